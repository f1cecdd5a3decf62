"""Looks at every frame that a client sends, in all scenarios: framing, numbers, sessions, results, audio (vRT §2 to §8).

    watch = ClientWatch(ledger)     of a run; `ALWAYS` lists what it settles
    watch.look(connection)          at each connection, before anything is said on it

What the server said is seen as well, on the same connection: its `ready`, calls and items say what the client may send. A
rule counts as kept when a frame came that could have broken it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from vrt_host.conformance.checks import Ledger, must, should, shown
from vrt_host.conformance.oddities import Oddities
from vrt_host.conformance.server import Connection, Frame, tool_names
from vrt_host.protocol import wire
from vrt_host.protocol.wire import Message

ALWAYS = (
    must("client.link.well-formed", "§2.1", "the WebSocket's frames are as RFC 6455 has them, masked ones included"),
    must("client.framing.schema", "§2.2", "every text frame is a control message its schema allows"),
    must("client.framing.no-double-members", "§2.2", "no object has two members of the same name"),
    must("client.framing.plain-integers", "§2.2", "integers are written without a fraction or exponent"),
    must("client.audio.frame-layout", "§8.1", "every binary frame is one frame of input audio"),
    must("client.sessions.hello-first", "§5.2", "the first frame of a connection is hello"),
    must("client.sessions.quiet-until-ready", "§5.1", "nothing sequenced and no audio before ready"),
    must("client.sessions.tool-names-unique", "§5.2", "the names of the tools in a hello are unique"),
    must("client.sessions.registered-capabilities", "§3.4", "only registered and private capabilities are offered"),
    must("client.sessions.credential-not-in-url", "§5.3", "a credential is not in the URL"),
    must("client.reliability.seq-contiguous", "§4.1", "sequenced messages count from 1 by one, also across resumes"),
    must("client.reliability.ack-not-ahead", "§4.2", "ack.upTo never exceeds the highest seq received"),
    must("client.resume.resent-unchanged", "§6.3", "a message that is resent is the one that was sent before"),
    must("client.tools.one-result", "§7.2", "no call has a second result"),
    must("client.tools.result-names-call", "§7.2", "a result has the callId and the epoch of a call"),
    must("client.audio.seq", "§8.1", "input frames count from 0 by one, modulo 2^32"),
    should("client.audio.whole-samples", "§8.2", "a payload of pcm16 holds whole samples"),
    should("client.audio.played-of-sent", "§8.4", "playback names an item, and no more of it than was sent"),
)  # fmt: skip

INTEGERS = ("v", "seq", "epoch", "upTo", "resumeFrom")
U32 = 1 << 32


@dataclass
class _Session:
    """What was seen of one session, over all its connections."""

    input: Message
    output: Message
    last: int = 0
    """The highest seq of the client's."""
    said: int = 0
    """The highest seq of the server's, also of what was no valid message."""
    messages: dict[int, Message] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    """The epoch of each call."""
    answered: set[str] = field(default_factory=set)
    items: dict[str, float] = field(default_factory=dict)
    """Milliseconds sent of each item."""
    audio: int | None = None
    """The number of the client's last frame."""


class ClientWatch:
    """All connections of a run."""

    def __init__(self, ledger: Ledger, *, target: str = "/") -> None:
        """`target`: the path and query of the address that the client was given."""
        self.ledger = ledger
        self.target = target
        self.sessions: dict[str, _Session] = {}

    def look(self, connection: Connection) -> None:
        """Look at a connection: at what has come already, and at what comes."""
        eye = _Eye(self, connection)
        for frame in connection.frames:
            eye.frame(frame)
        connection.observers.append(eye.frame)


class _Eye:
    """One connection."""

    def __init__(self, watch: ClientWatch, connection: Connection) -> None:
        self._watch = watch
        self._settle = watch.ledger.settle
        self._session: _Session | None = None
        self._first = True
        self._next: int | None = None
        """The seq that has to come next."""
        self._item = ""
        self._audio_begun = self._resumed = False
        target = getattr(connection.link, "target", None)
        if target is not None:
            given = target == watch.target
            self._settle("client.sessions.credential-not-in-url", given, f"it asked for {target}")

    def frame(self, frame: Frame) -> None:
        """The next frame of the connection."""
        if frame.sent:
            if frame.kind == "binary":
                self._sent_audio(frame.data)
            elif frame.message is not None:
                self._sent(frame.message)
            return
        if frame.kind == "end":
            self._settle("client.link.well-formed", len(frame.data) == 2, str(frame))
        elif frame.kind == "text":
            self._text(frame)
        elif frame.kind == "binary":
            self._audio(frame.data)

    # --- what the server says

    def _sent(self, message: Message) -> None:
        type_, seq = message.get("type"), message.get("seq")
        if type_ == "ready" and self._session is None:
            self._ready(message)
        session = self._session
        if session is None:
            return
        if isinstance(seq, int):
            session.said = max(session.said, seq)
        if type_ == "tool.call" and isinstance(message.get("callId"), str):
            session.calls.setdefault(message["callId"], message.get("epoch", -1))
        elif type_ == "audio.start" and isinstance(message.get("itemId"), str):
            self._item = message["itemId"]
            session.items.setdefault(self._item, 0)

    def _ready(self, message: Message) -> None:
        known = self._watch.sessions
        if message["sessionId"] not in known:
            known[message["sessionId"]] = _Session(message["input"], message["output"])
            self._next = 1
        else:
            self._resumed = True
        self._session = known[message["sessionId"]]

    def _sent_audio(self, frame: bytes) -> None:
        session = self._session
        if session is not None and self._item:
            session.items[self._item] += len(frame[5:]) * 1000 / bytes_per_second(session.output)

    # --- what the client says

    def _text(self, frame: Frame) -> None:
        text = frame.data.decode("utf-8", "replace")
        odd = Oddities(INTEGERS)
        try:
            odd.read(text)
            names = tool_names(frame.message or {})
            if names:
                self._settle("client.sessions.tool-names-unique", len(names) == len(set(names)), f"{names}")
            message = wire.decode(frame.data, "client")
        except (ValueError, RecursionError, AttributeError, TypeError, wire.WireError) as error:
            self._hello_first((frame.message or {}).get("type"))
            self._settle("client.framing.schema", False, f"{error}: {shown(text)}")
            seq = getattr(error, "seq", 0)
            if seq and self._session is not None:  # it has its place all the same
                self._next = seq + 1
                self._session.last = max(self._session.last, seq)
            return
        self._settle("client.framing.schema", True)
        self._settle(
            "client.framing.no-double-members", not odd.twice, lambda: f"{odd.twice} twice in {shown(text)}"
        )
        self._settle(
            "client.framing.plain-integers", not odd.fractions, lambda: f"{odd.fractions} in {shown(text)}"
        )
        self._hello_first(message["type"])
        self._take(message)

    def _hello_first(self, type_: Any) -> None:
        if self._first:
            self._settle(
                "client.sessions.hello-first", type_ == "hello", f"first came {type_ or 'no message'}"
            )
            self._first = False

    def _take(self, message: Message) -> None:
        type_, seq, session = message["type"], message["seq"], self._session
        if type_ == "hello":
            self._hello(message)
        if seq:
            self._quiet_until_ready(type_)
        if session is None:
            return
        if type_ == "ack":
            above = f"upTo {message['upTo']}, said {session.said}"
            self._settle("client.reliability.ack-not-ahead", message["upTo"] <= session.said, above)
        elif seq:
            self._sequenced(session, message)

    def _hello(self, message: Message) -> None:
        foreign = [
            token
            for token in message.get("capabilities", ())
            if token not in registered() and not token.startswith("x-")
        ]
        self._settle("client.sessions.registered-capabilities", not foreign, f"{foreign}")

    def _quiet_until_ready(self, what: str) -> None:
        self._settle("client.sessions.quiet-until-ready", self._session is not None, f"{what} before ready")

    def _sequenced(self, session: _Session, message: Message) -> None:
        seq = message["seq"]
        right = seq <= session.last + 1 if self._next is None else seq == self._next
        wanted = f"at most {session.last + 1}" if self._next is None else f"{self._next}"
        self._settle(
            "client.reliability.seq-contiguous", right, lambda: f"{wanted} was due: {shown(message)}"
        )
        self._next = seq + 1
        if seq in session.messages:
            before = session.messages[seq]
            self._settle(
                "client.resume.resent-unchanged",
                message == before,
                lambda: f"{shown(before)}, then {shown(message)}",
            )
            return
        session.messages[seq] = message
        session.last = max(session.last, seq)
        if message["type"] == "tool.result":
            self._result(session, message)
        elif message["type"] == "playback":
            sent = session.items.get(message["itemId"])
            kept = sent is not None and message["playedMs"] <= sent + 1
            self._settle(
                "client.audio.played-of-sent", kept, lambda: f"{sent} ms were sent: {shown(message)}"
            )

    def _result(self, session: _Session, message: Message) -> None:
        call = message["callId"]
        asked = session.calls.get(call) == message["epoch"]
        self._settle("client.tools.result-names-call", asked, lambda: shown(message))
        first = call not in session.answered
        self._settle("client.tools.one-result", first, lambda: f"a second one: {shown(message)}")
        session.answered.add(call)

    def _audio(self, frame: bytes) -> None:
        valid = len(frame) >= 5 and frame[0] == 1
        self._settle("client.audio.frame-layout", valid, lambda: shown(frame))
        self._hello_first("audio")
        self._quiet_until_ready("audio")
        session = self._session
        if session is None or not valid:
            return
        number = int.from_bytes(frame[1:5], "big")
        if self._audio_begun and session.audio is not None:
            wanted = (session.audio + 1) % U32
            ok = number == wanted
        else:  # what was under way when a connection broke is lost, and nothing says that the count goes on
            wanted = 0
            ok = number == 0 or (self._resumed and (number - (session.audio or 0)) % U32 < U32 // 2)
        self._audio_begun = True
        self._settle("client.audio.seq", ok, f"frame {number}, expected {wanted}")
        session.audio = number
        if session.input["encoding"] == "pcm16":
            self._settle("client.audio.whole-samples", len(frame) % 2 == 1, lambda: shown(frame))


@cache
def registered() -> frozenset[str]:
    """The tokens of the capability registry."""
    registry = json.loads((wire.schema_folder() / "capabilities.json").read_text("utf-8"))
    return frozenset(entry["token"] for entry in registry["capabilities"])


def bytes_per_second(format_: Message) -> int:
    """Of a format that is not compressed."""
    if format_["encoding"] == "pcm16":
        return 2 * int(format_.get("sampleRate", 24000))
    return int(format_.get("sampleRate", 8000))
