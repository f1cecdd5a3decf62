# What the device knows of the wire: generated from schema/ by tools/gen_tables.py, not edited.
#
# SERVER maps the type of a server message to its seq class and fields, PHASES the phase of a tool.stream (§7.5) to its
# further fields. They are text, taken apart for each message, because as tuples they would fill 9 KiB of a small heap:
# a seq class, then each field after a blank, as kind, requirement, name and, after "=", what is allowed, parted by "|".
#   kind      JSON 0 any value         STRING 1               ID 2 string of 1 to 256 characters (code points)
#             U32 3 integer 0..2^32-1, 1.0 counts, true does not       BOOL 4       ENUM 5 one of what is allowed
#             FORMAT 6 object: encoding one of what is allowed, sampleRate absent or an integer > 0
#             TOKENS 7 array of strings of 1 to 64 characters: words of a-z 0-9, joined by single . or -
#             CODE 8 string: words of A-Z 0-9, joined by single _
#   required  - may be absent, + must be present (null included, for JSON), ? must be present when ok is false.
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
    "ack": "0 3+upTo",
    "audio.start": "0 2+itemId 3+epoch 2-turnId",
    "error": "2 8+code 4+recoverable 1-message",
    "interrupted": "1 3+epoch 1-reason",
    "pong": "0",
    "ready": "0 2+sessionId 6+input=pcm16|pcmu|opus 6+output=pcm16|pcmu|opus 3-resumedFrom 7-capabilities",
    "text": "1 1+text 4-final 2-turnId 3-epoch",
    "tool.call.delta": "1 2+callId 3+epoch 0+preview 1-name 2-turnId",
    "tool.call": "1 2+callId 1+name 0+arguments 2+turnId 3+epoch",
    "tool.stream": "1 2+callId 1+name 2+turnId 3+epoch 5+phase=start|arguments-delta|arguments-complete|progress|settled|cancelled|failed",
    "transcript": "1 5+role=user|agent 1+text 4+final 2-turnId 3-epoch 2-itemId",
    "turn.state": "1 2+turnId 3+epoch 5+state=listening|thinking|speaking|acting|idle",
}

PHASES = {
    "start": "",
    "arguments-delta": " 1+delta",
    "arguments-complete": " 0+arguments",
    "progress": " 0+progress",
    "settled": " 4+ok 5?code=INTERRUPTED|REJECTED|INVALID|TIMEOUT|FAILED",
    "cancelled": "",
    "failed": " 1+message",
}
