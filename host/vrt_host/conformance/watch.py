"""Looks at every frame that a server sends, in all scenarios: framing, numbers, sessions, audio (vRT §2, §4, §5, §8).

    watch = Watch(ledger)           of a run; `ALWAYS` lists what it settles
    eye = watch.line()              one for each connection
    eye.sent(message)               what the suite sends as a conforming client
    eye.sent_raw()                  ... or as something else: then what depends on the client's numbers is left out
    eye.text(frame)                 each text frame that comes; returns the message, None when it is none
    eye.binary(frame)               each binary frame

A rule counts as kept when a frame came that could have broken it. `watch_turns` has the rules about turns and calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vrt_host.conformance.checks import Ledger, must, should, shown
from vrt_host.conformance.oddities import Oddities
from vrt_host.conformance.watch_turns import TURNS, Ids, TurnEye
from vrt_host.protocol import wire
from vrt_host.protocol.wire import Message

ALWAYS = (
    must("server.framing.schema", "§2.2", "every text frame is a control message its schema allows"),
    must("server.framing.no-double-members", "§2.2", "no object has two members of the same name"),
    must("server.framing.plain-integers", "§2.2", "integers are written without a fraction or exponent"),
    must("server.audio.frame-layout", "§2.1", "every binary frame is one frame of output audio"),
    must(
        "server.reliability.seq-classes", "§4.1", "transient types have seq 0, sequenced ones 1 to 4294967295"
    ),
    must(
        "server.reliability.seq-contiguous",
        "§4.1",
        "sequenced messages count from 1 by one, also across resumes",
    ),
    must("server.errors.seq", "§4.1", "an error has seq 0 exactly while no session is bound"),
    must("server.reliability.ack-not-ahead", "§4.2", "ack.upTo never exceeds the highest seq received"),
    must(
        "server.sessions.ready-first", "§5.1", "before ready come only pongs and errors, and ready comes once"
    ),
    must("server.resume.transient-not-resent", "§4.1", "no more pongs come on a connection than pings went"),
    must(
        "server.resume.resent-unchanged", "§5.4", "a message that is resent is the one that was sent before"
    ),
    must("server.streams.only-when-negotiated", "§3.4", "no gated message type without its capability"),
    must("server.errors.flags", "§9.2", "the codes of §9.2 carry the flag of the table"),
    must("server.audio.start-before-frames", "§8.3", "audio.start precedes output frames on each connection"),
    must("server.audio.seq", "§8.1", "output frames count from 0 by one, modulo 2^32"),
    should("server.audio.whole-samples", "§8.2", "a payload of pcm16 holds whole samples"),
    *TURNS,
)

RECOVERABLE = {
    "MALFORMED": True,
    "UNSUPPORTED_VERSION": True,
    "UNKNOWN_TYPE": True,
    "INVALID_FIELD": True,
    "NO_SESSION": False,
    "DUPLICATE_HELLO": True,
    "UNAUTHORIZED": False,
    "RESUME_FAILED": False,
    "START_FAILED": False,
}
TRANSIENT = frozenset({"ready", "audio.start", "ack", "pong"})
INTEGERS = ("v", "seq", "epoch", "upTo", "resumedFrom")
U32 = 1 << 32


@dataclass
class SessionEye:
    """What was seen of one session, over all its connections."""

    id: str
    capabilities: frozenset[str]
    output: str
    turns: TurnEye
    last: int = 0
    """The highest seq of the server's stream."""
    sent: int = 0
    """The highest seq of the client's stream."""
    sent_raw: bool = False
    audio: int | None = None
    """The number of the last output frame."""
    messages: dict[int, Message] = field(default_factory=dict)


class Watch:
    """All connections of a run."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._sessions: dict[str, SessionEye] = {}
        self._ids = Ids(ledger)

    def line(self) -> LineEye:
        """A new connection."""
        return LineEye(self, self.ledger)

    def session(self, ready: Message, hello: Message | None) -> SessionEye:
        """The session that a `ready` names."""
        eye = self._sessions.get(ready["sessionId"])
        if eye is None:
            capabilities = frozenset(ready.get("capabilities", ()))
            tools = None if hello is None else frozenset(tool["name"] for tool in hello.get("tools", ()))
            turns = TurnEye(self.ledger, ready["sessionId"], capabilities, tools, self._ids)
            eye = SessionEye(ready["sessionId"], capabilities, ready["output"]["encoding"], turns)
            self._sessions[eye.id] = eye
        return eye


class LineEye:
    """One connection."""

    def __init__(self, watch: Watch, ledger: Ledger) -> None:
        self._watch = watch
        self._settle = ledger.settle
        self._session: SessionEye | None = None
        self._hello: Message | None = None
        self._raw = False
        self._pings = 0
        self._sent = 0
        self._next: int | None = None
        """The seq that has to come next."""
        self._item: Message | None = None
        """The audio.start of the current item."""
        self._audio: int | None = None

    # --- what the suite sends

    def sent(self, message: Message) -> None:
        """A message as a client may send it."""
        if message["type"] == "ping":
            self._pings += 1
        elif message["type"] == "hello" and self._hello is None:
            self._hello = message
        self._sent = max(self._sent, message["seq"])
        if self._session is not None:
            self._session.sent = max(self._session.sent, self._sent)

    def sent_raw(self) -> None:
        """A frame that no client would send, or a number that is none of the stream's."""
        self._raw = True
        if self._session is not None:
            self._session.sent_raw = True

    # --- what comes

    def text(self, frame: str) -> Message | None:
        """Check a text frame."""
        odd = Oddities(INTEGERS)
        value: dict[str, Any] = {}
        try:
            value = odd.read(frame)
            self._seq_class(value)
            message = wire.decode(frame, "server")
        except (ValueError, RecursionError, wire.WireError) as error:
            self._settle("server.framing.schema", False, f"{error}: {shown(frame)}")
            if self._next is not None and value.get("seq") == self._next:
                self._next += 1  # it has its place in the stream all the same
            return None
        self._settle("server.framing.schema", True)
        self._settle(
            "server.framing.no-double-members", not odd.twice, lambda: f"{odd.twice} twice in {shown(frame)}"
        )
        self._settle(
            "server.framing.plain-integers", not odd.fractions, lambda: f"{odd.fractions} in {shown(frame)}"
        )
        self._take(message)
        return message

    def binary(self, frame: bytes) -> None:
        """Check a binary frame."""
        valid = len(frame) >= 5 and frame[0] == 2
        self._settle("server.audio.frame-layout", valid, lambda: shown(frame))
        if not valid:
            return
        self._ready_first(self._session is not None, "an audio frame")
        self._settle(
            "server.audio.start-before-frames", self._item is not None, lambda: f"none before {shown(frame)}"
        )
        session = self._session
        if session is None:
            return
        self._count_audio(session, int.from_bytes(frame[1:5], "big"))
        if session.output == "pcm16":
            self._settle("server.audio.whole-samples", len(frame) % 2 == 1, lambda: shown(frame))
        if self._item is not None:
            session.turns.audio(self._item)

    # --- rules

    def _take(self, message: Message) -> None:
        type_, seq = message["type"], message["seq"]
        if type_ == "ready":
            self._ready(message)
        elif type_ == "error":
            self._error(message)
        elif type_ == "pong":
            self._pings -= 1
            if not self._raw:
                self._settle("server.resume.transient-not-resent", self._pings >= 0, "a pong too many")
        else:
            self._ready_first(self._session is not None, type_)
        session = self._session
        if session is None:
            return
        token = wire.gated().get(type_)
        if token is not None:
            self._settle(
                "server.streams.only-when-negotiated", token in session.capabilities, lambda: shown(message)
            )
        if type_ == "ack":
            if not session.sent_raw:
                above = f"upTo {message['upTo']}, sent {session.sent}"
                self._settle("server.reliability.ack-not-ahead", message["upTo"] <= session.sent, above)
        elif type_ == "audio.start":
            self._item = message
            session.turns.take(message)
        elif seq:
            self._sequenced(session, message)

    def _seq_class(self, message: Message) -> None:
        type_, seq = message.get("type"), message.get("seq")
        if type_ in ("error", None) or not isinstance(seq, (int, float)):
            return
        ok = seq == 0 if type_ in TRANSIENT else 1 <= seq < U32
        self._settle("server.reliability.seq-classes", ok, lambda: shown(message))

    def _ready(self, message: Message) -> None:
        self._ready_first(self._session is None, "a second ready")
        hello = self._hello
        self._session = session = self._watch.session(message, hello)
        session.sent_raw |= self._raw
        session.sent = max(session.sent, self._sent)
        if "resumedFrom" not in message:
            self._next = 1
        elif hello is not None:
            self._next = int(hello.get("resumeFrom", 0)) + 1

    def _error(self, message: Message) -> None:
        code, seq = message["code"], message["seq"]
        if code != "RESUME_FAILED":  # may come before or after the session is bound
            bound = self._session is not None
            self._settle(
                "server.errors.seq",
                (seq > 0) == bound,
                lambda: f"{'a' if bound else 'no'} session, {shown(message)}",
            )
        if code in RECOVERABLE:
            self._settle(
                "server.errors.flags", message["recoverable"] == RECOVERABLE[code], lambda: shown(message)
            )

    def _ready_first(self, ok: bool, what: str) -> None:
        self._settle("server.sessions.ready-first", ok, lambda: f"{what} came out of place")

    def _sequenced(self, session: SessionEye, message: Message) -> None:
        seq = message["seq"]
        if message.get("code") == "RESUME_FAILED":
            return  # its number may be any: the client asked for one that does not exist
        if self._next is not None:
            self._settle(
                "server.reliability.seq-contiguous",
                seq == self._next,
                lambda: f"seq {seq} instead of {self._next}: {shown(message)}",
            )
        self._next = seq + 1
        if seq in session.messages:
            before = session.messages[seq]
            self._settle(
                "server.resume.resent-unchanged",
                message == before,
                lambda: f"{shown(before)}, then {shown(message)}",
            )
            return
        session.messages[seq] = message
        if seq > session.last:
            session.last = seq
            session.turns.take(message)

    def _count_audio(self, session: SessionEye, number: int) -> None:
        if self._audio is not None:
            ok, wanted = number == (self._audio + 1) % U32, f"{(self._audio + 1) % U32}"
        elif session.audio is None:
            ok, wanted = number == 0, "0"
        else:  # what was in flight when the connection broke is lost, and nothing says that the count goes on
            ok = number == 0 or 0 < (number - session.audio) % U32 < U32 // 2
            wanted = f"0, or more than {session.audio}"
        self._settle("server.audio.seq", ok, lambda: f"frame {number}, expected {wanted}")
        self._audio = session.audio = number
