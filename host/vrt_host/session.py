"""The server side of one vRT session, without I/O and without a clock (vRT §4, §5).

A `Session` outlives connections and owns both numbered streams; a `Connection` (`connection.py`) is one link and
holds the table of §5.1. Times are seconds of any clock that never goes back (`now`, float). Nothing here raises
for a peer's fault; `LocalError` means that the caller broke the rules below.

**The server**, per link:

    connection = Connection(limits, now, wake=...)
    connection.receive_text(frame: str | bytes, now)    each text frame
    connection.receive_audio(frame: bytes, now)         each binary frame
    connection.heard(now)                               any other frame (a WebSocket ping or pong), for the heartbeat
    connection.receive_too_large(now)                   the link is gone because of a frame's size (close code 1009)
    connection.receive_eof(now)                         the link is gone for any other reason: parks the session
    connection.tick(now)                                at `connection.deadline` (float | None), or earlier

  After each of these, without an await between, and whenever `wake()` was called, do three things in this order:

    for event in connection.events(): ...               Hello | Message | AudioFrame | Fault, each handed out once
    for frame in connection.data_to_send(): ...         str = a text frame, bytes = a binary frame
    connection.closing                                  None, or Close(code, reason): close the link after that data

  `wake()` is called from inside any method when there is something new to send or `closing` is set, also when a
  turn manager sent a message or a newer link took the session over. It must only set a flag. The data waits in
  the connection until it is taken, so take it when the previous write is done; a peer that does not read is
  closed with 1008 when more than `limits.waiting_bytes` wait.

  A `Hello` event is answered once, at once or later, by one of

    connection.accept(session, now) -> bool             a new session; sends `ready`
    connection.resume(session | None, principal, now) -> bool   None: the id is unknown. Does all of §5.4:
                                                        principal, expiry, what is still held; binds, sends `ready`,
                                                        resends, closes an older link with 4000; or RESUME_FAILED
    connection.refuse("UNAUTHORIZED" | "START_FAILED", message) -> None

  False means that nothing was bound: the link went away meanwhile, or the resume failed. A new session that was
  not accepted should be closed by the caller. Messages that came early are handed out as events after it.
  `connection.end(Close(code, reason))` closes a connection that has no session (a shutdown).

**The turn manager**, per session:

    session = Session(session_id, principal, hello: Hello, *, input={...}, output={...}, capabilities=(...),
                      limits=Limits(), on_state=callback)   `input`, `output`: formats as JSON (§8.2)
    session.send(type, **members) -> bool               numbers and keeps a sequenced server message, sends it when a
                                                        link is bound. False: the session is closed. Raises
                                                        `wire.TooLargeError` (before it numbers) if the device's limit
                                                        (`session.peer.message_bytes`) or our depth is exceeded
    session.room(type, **members) -> int | None         bytes left under that limit for more JSON text (negative: over);
                                                        None: the device announced no limit. See `wire.cut`
    session.error(code, message, recoverable=True) -> bool      a sequenced `error`
    session.start_audio(item_id, epoch, turn_id) -> bool        `audio.start`. False: no link is bound, nothing sent
    session.send_audio(payload: bytes) -> bool          one frame of the current item. False: no link, or no
                                                        `audio.start` on this link yet (§8.3). Raises TooLargeError
                                                        above `session.peer.audio_bytes` (header included)
    session.close(code=1000, reason="")                 ends it; a bound link is closed after what waits is sent
    session.tick(now)                                   at `session.deadline` (float | None): the resume window
    session.state                                       State.CONNECTED, PARKED (also: not yet bound) or CLOSED
    on_state(state)                                     called on each change, from inside whatever caused it; when a
                                                        newer link takes over: PARKED, then CONNECTED

  `session.hello` is the opening Hello (`.message`, `.session_id`, `.resume_from`, `.token`), `session.peer` the
  limits the device announced (`PeerLimits`), `session.counters()` what went wrong without stopping anything.

Client messages are handed out as `Message(message)` exactly once per session, in the order of the client stream:
`text`, `interrupt`, `playback`, `tool.result`, `context`, already checked against their schema, with `seq`, `epoch`
as ints. Acknowledgements, pings, duplicates and everything invalid are dealt with here and never seen outside,
except as a `Fault(code, text)` for the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from vrt_host.errors import LocalError
from vrt_host.protocol import audio, wire
from vrt_host.protocol.stream import Inbox, Outbox

Json = Any


@dataclass(frozen=True, slots=True)
class Limits:
    """What this server takes and keeps (§11). The first four are announced in `ready.limits`."""

    message_bytes: int = 262_144
    audio_bytes: int = 65_536
    resume_window_s: float = 30.0
    heartbeat_s: float = 45.0
    hello_s: float = 10.0
    """How long a connection may stay without a hello."""
    early_messages: int = 32
    early_bytes: int = 65_536
    """What is kept of messages that come between hello and ready."""
    kept_messages: int = 1024
    kept_bytes: int = 8_388_608
    """What is kept unacknowledged for a resume."""
    waiting_bytes: int = 16_777_216
    """What may wait for a peer that does not read; above `kept_bytes`, since a resume resends those."""
    ack_s: float = 0.25
    ack_every: int = 32

    def announced(self) -> dict[str, int]:
        """The value of `ready.limits`."""
        return {
            "messageBytes": self.message_bytes,
            "audioBytes": self.audio_bytes,
            "resumeWindowMs": round(self.resume_window_s * 1000),
            "heartbeatMs": round(self.heartbeat_s * 1000),
        }


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """What the device announced in `hello.limits`; None where it said nothing usable."""

    message_bytes: int | None = None
    audio_bytes: int | None = None
    queued_calls: int | None = None
    buffer_ms: int | None = None

    @classmethod
    def of(cls, limits: Json) -> PeerLimits:
        """Reads the extra member leniently: nothing in it makes a hello invalid. Absurdly small sizes are raised."""

        def read(name: str, least: int) -> int | None:
            value = limits.get(name) if isinstance(limits, dict) else None
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 1:
                return None
            return max(int(value), least)

        return cls(
            message_bytes=read("messageBytes", 512),  # not even `ready` would fit into less
            audio_bytes=read("audioBytes", 64),
            queued_calls=read("queuedCalls", 1),
            buffer_ms=read("bufferMs", 20),
        )


@dataclass(frozen=True, slots=True)
class Hello:
    """A client asks to open or resume a session: answer it with `accept`, `resume` or `refuse`."""

    message: wire.Message

    @property
    def session_id(self) -> str | None:
        """The session to resume; None asks for a new one."""
        value: str | None = self.message.get("sessionId")
        return value

    @property
    def resume_from(self) -> int:
        """The last seq of the server's stream that the client handled (§5.4)."""
        value: int = self.message.get("resumeFrom", 0)
        return value

    @property
    def token(self) -> str | None:
        """The credential (§5.3)."""
        value: str | None = self.message.get("auth", {}).get("token")
        return value


@dataclass(slots=True)
class Message:
    """The next message of the client stream, valid and new."""

    message: wire.Message


@dataclass(slots=True)
class AudioFrame:
    """The payload of one frame of input audio."""

    payload: bytes


@dataclass(slots=True)
class Fault:
    """Something the peer did wrong and was told, for the log. `text` is bounded."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Close:
    """Close the link with this code (§9.3)."""

    code: int
    reason: str


class State(Enum):
    """Where a session is (§5.1)."""

    CONNECTED = "connected"
    PARKED = "parked"
    CLOSED = "closed"


class Link(Protocol):
    """What a session asks of the connection it is bound to."""

    def carry(self, frame: str | bytes) -> None:
        """Sends a frame after those before it."""

    def end(self, close: Close) -> None:
        """The session left this connection: close it."""


def in_effect(offered: Iterable[str], supported: Collection[str]) -> tuple[str, ...]:
    """The capabilities of a new session: the offered ones that are supported, each once (§3.3)."""
    return tuple(dict.fromkeys(token for token in offered if token in supported))


class Session:
    """One session; the module's docstring says who calls what. The last section is for `Connection` alone."""

    def __init__(
        self,
        session_id: str,
        principal: str | None,
        hello: Hello,
        *,
        input: Mapping[str, Json],
        output: Mapping[str, Json],
        capabilities: Collection[str] = (),
        limits: Limits | None = None,
        on_state: Callable[[State], None] | None = None,
    ) -> None:
        self.id = session_id
        self.principal = principal
        """Who opened it; only the same principal may resume it (§5.3)."""
        self.hello = hello
        self.peer = PeerLimits.of(hello.message.get("limits"))
        self.capabilities = tuple(capabilities)
        self.limits = limits or Limits()
        self.state = State.PARKED
        self.deadline: float | None = None
        """When to call `tick`: the end of the resume window, while parked."""
        self.outbox = Outbox(self.limits.kept_messages, self.limits.kept_bytes)
        self.inbox = Inbox(self.limits.ack_s, self.limits.ack_every)
        self._input = dict(input)
        self._output = dict(output)
        self._on_state = on_state
        self.announce: Mapping[str, Json] = {}
        """More members for each `ready`."""
        self._link: Link | None = None
        self._item_open = False
        self._audio_sent = 0
        self._audio_expected: int | None = None
        self._audio_lost = 0
        self._too_large_at: int | None = None

    def send(self, type_: str, /, **members: Json) -> bool:
        """Sends a sequenced message, now or after the next resume; see the module's docstring."""
        if self.state is State.CLOSED:
            return False
        if self.outbox.exhausted:
            self.close(1000, "out of sequence numbers")  # seq must not wrap (§4.1)
            return False
        token = wire.gated().get(type_)
        if token is not None and token not in self.capabilities:
            raise LocalError(f"{type_} needs the capability {token}")
        frame = self._numbered(type_, members)
        limit = self.peer.message_bytes
        if limit is not None and (size := wire.size(frame)) > limit:
            raise wire.TooLargeError(f"{type_} has {size} bytes, the device takes {limit}")
        self.outbox.keep(frame)
        if self._link is not None:
            self._link.carry(frame)
        return True

    def room(self, type_: str, /, **members: Json) -> int | None:
        """Bytes that `send` of the same could still take within the device's limit; None: it announced none."""
        limit = self.peer.message_bytes
        return None if limit is None else limit - wire.size(self._numbered(type_, members))

    def error(self, code: str, message: str, recoverable: bool = True) -> bool:
        """Sends a sequenced error (§9.2). The caller closes the session after one that is not recoverable."""
        room = self.room("error", code=code, recoverable=recoverable, message="")
        text = message[: wire.SHOWN] if room is None else wire.cut(message[: wire.SHOWN], room)[0]
        return self.send("error", code=code, recoverable=recoverable, message=text)

    def start_audio(self, item_id: str, epoch: int, turn_id: str) -> bool:
        """Announces an item of output audio on the bound link (§8.3)."""
        if self._link is None:
            return False
        self._item_open = True
        self._link.carry(wire.transient("audio.start", itemId=item_id, epoch=epoch, turnId=turn_id))
        return True

    def send_audio(self, payload: bytes) -> bool:
        """Sends one frame of the current item (§8.1)."""
        if self._link is None or not self._item_open:
            return False
        limit = self.peer.audio_bytes
        if limit is not None and len(payload) + audio.HEADER_BYTES > limit:
            raise wire.TooLargeError(
                f"a payload has {len(payload)} bytes, the device takes frames of {limit}"
            )
        self._link.carry(audio.encode(audio.OUTPUT, self._audio_sent, payload))
        self._audio_sent += 1
        return True

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Ends the session, once; a bound link is closed with the code after what waits is sent."""
        if self.state is State.CLOSED:
            return
        link = self._unbind()
        self.outbox.clear()
        self.deadline = None
        self._enter(State.CLOSED)
        if link is not None:
            link.end(Close(code, reason))

    def tick(self, now: float) -> None:
        """Closes a parked session whose resume window is over (§5.1); early calls do nothing."""
        if self.deadline is not None and now >= self.deadline:
            self.close()

    def counters(self) -> dict[str, int]:
        """What the peer or the network did without stopping the session."""
        return {
            "duplicates": self.inbox.duplicates,
            "missing": self.inbox.missing,
            "audio_lost": self._audio_lost,
            "discarded": self.outbox.discarded,
        }

    # --- for Connection

    def resumable(self, principal: str | None, now: float) -> bool:
        """Whether this principal may resume it now; a foreigner learns no more than for an unknown id (§5.3)."""
        if principal != self.principal:
            return False
        self.tick(now)
        return self.state is not State.CLOSED

    def bind(self, link: Link, resume_from: int | None, now: float) -> bool:
        """Binds a link: `ready`, then all that the peer misses; None opens the session. False: it is closed (§5.4)."""
        seen = resume_from or 0
        if self.outbox.after(seen) is None:
            self.close(4404, "the resume asks for messages that are gone or were never sent")
        older = self._link
        if older is not None:
            self.park(now)
            older.end(Close(4000, "replaced by a newer connection"))
        missed = self.outbox.after(seen)
        if self.state is State.CLOSED or missed is None:
            return False
        self.outbox.acknowledge(seen)
        self.inbox.acknowledged()  # by `resumedFrom`
        self.deadline = None
        members: dict[str, Json] = {"sessionId": self.id, "input": self._input, "output": self._output}
        if resume_from is not None:
            members["resumedFrom"] = self.inbox.last
        members |= {"capabilities": list(self.capabilities), "limits": self.limits.announced()}
        members |= self.announce
        link.carry(wire.transient("ready", **members))
        for frame in missed:
            link.carry(frame)
        self._link = link
        self._enter(State.CONNECTED)
        return True

    def renew(self, now: float, reason: str) -> None:
        """Ends the bound link, so that the client comes back at once and is told what is new in another `ready`."""
        link = self._link
        if link is not None:
            self.park(now)
            link.end(Close(1012, reason))

    def bound_to(self, link: Link) -> bool:
        return self._link is link

    def park(self, now: float) -> None:
        """The bound link is gone; the resume window begins (§5.1)."""
        self._unbind()
        self.deadline = now + self.limits.resume_window_s
        self._enter(State.PARKED)

    def audio_arrived(self, seq: int) -> None:
        """Counts the frames that were lost before this one; their numbers are informational (§8.1)."""
        if self._audio_expected is not None:
            ahead = (seq - self._audio_expected) & wire.U32_MAX
            if ahead <= wire.U32_MAX // 2:  # else it started over
                self._audio_lost += ahead
        self._audio_expected = seq + 1

    def too_large(self) -> None:
        """The link closed because of a frame's size. The second time in one place ends what would never end."""
        if self._too_large_at == self.inbox.last:
            self.close(4404, "a message is too large, and came again")
        self._too_large_at = self.inbox.last

    def _numbered(self, type_: str, members: Mapping[str, Json]) -> str:
        return wire.encode({"v": 1, "seq": self.outbox.last + 1, "type": type_, **members})

    def _enter(self, state: State) -> None:
        self.state = state
        if self._on_state is not None:
            self._on_state(state)

    def _unbind(self) -> Link | None:
        link, self._link = self._link, None
        self._item_open = False  # a resumed connection starts without a current item (§8.3)
        return link
