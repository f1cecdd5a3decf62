# What the device knows of the wire: generated from schema/ by tools/gen_tables.py, not edited.
#
# SERVER maps the type of a server message to (seq class, fields); PHASES maps the phase of a tool.stream (§7.5)
# to its further fields. A field is (name, kind, required, extra):
#   kind      JSON 0 any value         STRING 1               ID 2 string of 1 to 256 characters (code points)
#             U32 3 integer 0..2^32-1, 1.0 counts, true does not       BOOL 4       ENUM 5 one of the strings in extra
#             FORMAT 6 object: encoding one of extra, sampleRate absent or an integer > 0
#             TOKENS 7 array of strings of 1 to 64 characters: words of a-z 0-9, joined by single . or -
#             CODE 8 string: words of A-Z 0-9, joined by single _
#   required  0 may be absent, 1 must be present (null included, for JSON), 2 must be present when ok is false.
#             A member that is present must be of its kind in each case.
# seq class   0 transient: seq is 0.  1 sequenced: seq is 1..2^32-1.  2 sessionless: seq is 0..2^32-1 (§4.1)
# A receiver takes MAX_DEPTH levels of nesting.

from micropython import const

HEADER_BYTES = const(5)  # of an audio frame (§8.1)
INPUT = const(1)
OUTPUT = const(2)
MAX_DEPTH = const(32)

CLOSE_NORMAL = const(1000)  # Normal closure.
CLOSE_START_FAILED = const(1011)  # The server could not start the session.
CLOSE_REPLACED = const(4000)  # Replaced by a newer connection to the session; also from a client that closes a dead one.
CLOSE_UNAUTHORIZED = const(4401)  # Authentication failed.
CLOSE_RESUME_FAILED = const(4404)  # Unknown, expired or foreign session.
CLOSE_HEARTBEAT = const(4408)  # Heartbeat timeout.

SERVER = {
    "ack": (0, (("upTo", 3, 1, None),)),
    "audio.start": (0, (("itemId", 2, 1, None), ("epoch", 3, 1, None), ("turnId", 2, 0, None))),
    "error": (2, (("code", 8, 1, None), ("recoverable", 4, 1, None), ("message", 1, 0, None))),
    "interrupted": (1, (("epoch", 3, 1, None), ("reason", 1, 0, None))),
    "pong": (0, ()),
    "ready": (0, (("sessionId", 2, 1, None), ("input", 6, 1, ("pcm16", "pcmu", "opus")), ("output", 6, 1, ("pcm16", "pcmu", "opus")), ("resumedFrom", 3, 0, None), ("capabilities", 7, 0, None))),
    "text": (1, (("text", 1, 1, None), ("final", 4, 0, None), ("turnId", 2, 0, None), ("epoch", 3, 0, None))),
    "tool.call.delta": (1, (("callId", 2, 1, None), ("epoch", 3, 1, None), ("preview", 0, 1, None), ("name", 1, 0, None), ("turnId", 2, 0, None))),
    "tool.call": (1, (("callId", 2, 1, None), ("name", 1, 1, None), ("arguments", 0, 1, None), ("turnId", 2, 1, None), ("epoch", 3, 1, None))),
    "tool.stream": (1, (("callId", 2, 1, None), ("name", 1, 1, None), ("turnId", 2, 1, None), ("epoch", 3, 1, None), ("phase", 5, 1, ("start", "arguments-delta", "arguments-complete", "progress", "settled", "cancelled", "failed")))),
    "transcript": (1, (("role", 5, 1, ("user", "agent")), ("text", 1, 1, None), ("final", 4, 1, None), ("turnId", 2, 0, None), ("epoch", 3, 0, None), ("itemId", 2, 0, None))),
    "turn.state": (1, (("turnId", 2, 1, None), ("epoch", 3, 1, None), ("state", 5, 1, ("listening", "thinking", "speaking", "acting", "idle")))),
}

PHASES = {
    "start": (),
    "arguments-delta": (("delta", 1, 1, None),),
    "arguments-complete": (("arguments", 0, 1, None),),
    "progress": (("progress", 0, 1, None),),
    "settled": (("ok", 4, 1, None), ("code", 5, 2, ("INTERRUPTED", "REJECTED", "INVALID", "TIMEOUT", "FAILED"))),
    "cancelled": (),
    "failed": (("message", 1, 1, None),),
}
