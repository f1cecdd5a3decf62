"""One connection of the server: the table of vRT §5.1. `session.py` documents how it is driven."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, ClassVar

from vrt_host.errors import LocalError
from vrt_host.protocol import audio, wire
from vrt_host.session import AudioFrame, Close, Fault, Hello, Limits, Message, Session

Event = Hello | Message | AudioFrame | Fault


class State(StrEnum):  # the key of a look-up for each audio frame: strings hash faster than other members
    """Where a connection is."""

    AWAITING_HELLO = "awaiting hello"
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


class Input(StrEnum):
    """What can happen to a connection."""

    HELLO = "hello"
    PING = "ping"
    CONTROL = "any other valid control message"
    AUDIO = "valid input audio frame"
    INVALID = "invalid control message or audio frame"
    CROWDED = "too many messages before ready"
    REFUSED = "authentication refused, or the session cannot start"
    NOT_RESUMED = "resume of an unknown, expired or foreign session, or of lost messages"
    OPENED = "session opened or resumed"
    NO_HELLO = "no hello in time"
    SILENT = "heartbeat timeout"
    ENDED = "the session ended, or a newer connection has it"
    LOST = "connection closed"


REFUSALS = {"UNAUTHORIZED": 4401, "START_FAILED": 1011}
"""The close code after each error that refuses a hello (§9.3)."""


class Connection:
    """One link of a client, from its opening to its end."""

    def __init__(self, limits: Limits, now: float, wake: Callable[[], None] = lambda: None) -> None:
        self.closing: Close | None = None
        """Close the link like this, after `data_to_send`; set once."""
        self._limits = limits
        self._wake = wake
        self._state = State.AWAITING_HELLO
        self._began_at = self._heard_at = now
        self._hello: Hello | None = None
        self._session: Session | None = None
        self._events: list[Event] = []
        self._waiting: list[str | bytes] = []
        self._waiting_bytes = 0
        self._ack_waits = False
        self._early: list[wire.Message] = []
        self._early_bytes = 0

    # --- what the link reports

    def receive_text(self, frame: str | bytes, now: float) -> None:
        """A text frame arrived; `bytes` may be anything, also no UTF-8."""
        self._heard_at = now
        size = wire.size(frame) if isinstance(frame, str) else len(frame)
        if size > self._limits.message_bytes:
            # The link let us read on. The message takes its place in the stream, or it would be resent for ever.
            self._too_large(
                "a message", size, self._limits.message_bytes, wire.position(frame, "client"), now
            )
            return
        try:
            message = wire.decode(frame, "client")
        except wire.WireError as error:
            self._step(Input.INVALID, error, now)
            return
        type_ = message["type"]
        if type_ == "hello":
            self._step(Input.HELLO, message, now)
        elif type_ == "ping":
            self._step(Input.PING, message, now)
        else:
            self._step(Input.CONTROL, (message, size), now)

    def receive_audio(self, frame: bytes, now: float) -> None:
        """A binary frame arrived."""
        self._heard_at = now
        if len(frame) > self._limits.audio_bytes:
            self._too_large("an audio frame", len(frame), self._limits.audio_bytes, 0, now)
            return
        try:
            arrived = audio.decode(frame, audio.INPUT)
        except wire.WireError as error:
            self._step(Input.INVALID, error, now)
            return
        self._step(Input.AUDIO, arrived, now)

    def heard(self, now: float) -> None:
        """Another frame arrived, such as a WebSocket ping: the peer lives (§4.4)."""
        self._heard_at = now

    def receive_too_large(self, now: float) -> None:
        """The link closed itself (1009) on a frame beyond what it reads."""
        if self._session is not None and self._session.bound_to(self):
            self._session.too_large()
        self.receive_eof(now)

    def receive_eof(self, now: float) -> None:
        """The link is gone."""
        self._step(Input.LOST, Close(1006, "the connection was lost"), now)

    @property
    def deadline(self) -> float | None:
        """When to call `tick`; it moves with every call, but an early tick does no harm."""
        if self._state is State.CLOSED:
            return None
        due = [self._heard_at + self._limits.heartbeat_s]
        if self._state is State.AWAITING_HELLO:
            due.append(self._began_at + self._limits.hello_s)
        if self._session is not None and not self._ack_waits and self._session.inbox.due_at is not None:
            due.append(self._session.inbox.due_at)
        return min(due)

    def tick(self, now: float) -> None:
        """Does what is due: the heartbeat (§4.4), the acknowledgement (§4.2), the wait for hello."""
        if self._state is State.CLOSED:
            return
        if now >= self._heard_at + self._limits.heartbeat_s:
            self._step(Input.SILENT, Close(4408, "heartbeat timeout"), now)
        elif self._state is State.AWAITING_HELLO and now >= self._began_at + self._limits.hello_s:
            self._step(Input.NO_HELLO, Close(1008, "no hello in time"), now)
        else:
            self._acknowledge_if_due(now)

    # --- what the server takes

    def events(self) -> list[Event]:
        """What happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    def data_to_send(self) -> list[str | bytes]:
        """The frames to send now, in order; they are handed over and not kept here."""
        frames, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if self._ack_waits and self._session is not None and self._state is State.OPEN:
            self._session.inbox.acknowledged()
            frames.append(wire.transient("ack", upTo=self._session.inbox.last))
        self._ack_waits = False
        return frames

    # --- what the server decides

    def accept(self, session: Session, now: float) -> bool:
        """Answers the hello with a new session (§5.2)."""
        if self._state is State.CLOSED:
            return False
        self._asked()
        if self._bind(session, None, now):
            return True
        if self._state is State.OPENING:
            self.refuse("START_FAILED", "the session ended before it began")
        return False

    def resume(self, session: Session | None, principal: str | None, now: float) -> bool:
        """Answers the hello with the session that it names, or with RESUME_FAILED (§5.4)."""
        if self._state is State.CLOSED:
            return False
        hello = self._asked()
        if (
            session is not None
            and session.resumable(principal, now)
            and self._bind(session, hello.resume_from, now)
        ):
            return True
        if self._state is State.OPENING:
            self._step(Input.NOT_RESUMED, ("RESUME_FAILED", "the session cannot be resumed", 4404), now)
        return False

    def refuse(self, code: str, message: str) -> None:
        """Answers the hello with an error and closes (§5.3); does nothing when the link is gone."""
        if self._state is not State.CLOSED:
            self._asked()
            self._step(Input.REFUSED, (code, message, REFUSALS[code]))

    # --- what the session asks

    def carry(self, frame: str | bytes) -> None:
        """Queues a frame. A peer that lets too much wait is closed; its session is parked when the link ends."""
        if self.closing is not None:
            return
        self._waiting_bytes += wire.size(frame) if isinstance(frame, str) else len(frame)
        if self._waiting_bytes > self._limits.waiting_bytes:
            self._waiting.clear()
            self._close(Close(1008, "the peer does not read"))
            return
        self._waiting.append(frame)
        if len(self._waiting) == 1:
            self._wake()

    def end(self, close: Close) -> None:
        """Closes the link after what waits is sent. Whoever wants to end a bound session closes the session."""
        if self._session is not None and self._session.bound_to(self):
            raise LocalError("close the session, not its connection")
        self._step(Input.ENDED, close)

    # --- the actions of the table

    def _ignore(self, value: Any, now: float) -> None:
        pass

    def _ask(self, message: wire.Message, now: float) -> None:
        self._hello = Hello(message)
        self._events.append(self._hello)

    def _pong(self, message: wire.Message, now: float) -> None:
        self.carry(wire.transient("pong"))

    def _no_session(self, control: tuple[wire.Message, int], now: float) -> None:
        self._fault("NO_SESSION", f"{control[0]['type']} came before hello", recoverable=False)

    def _duplicate(self, message: wire.Message, now: float) -> None:
        self._fault("DUPLICATE_HELLO", "this connection has had its hello")

    def _keep(self, control: tuple[wire.Message, int], now: float) -> None:
        message, size = control
        self._early.append(message)
        self._early_bytes += size
        if len(self._early) > self._limits.early_messages or self._early_bytes > self._limits.early_bytes:
            self._step(Input.CROWDED, ("OVERFLOW", "too many messages before ready", 1008), now)

    def _handle(self, control: tuple[wire.Message, int], now: float) -> None:
        message = control[0]
        session = self._bound()
        if message["type"] == "ack":
            session.outbox.acknowledge(message["upTo"])
        elif self._is_new(session, message["seq"], now):
            self._events.append(Message(message))

    def _pass(self, arrived: tuple[int, bytes], now: float) -> None:
        seq, payload = arrived
        self._bound().audio_arrived(seq)
        self._events.append(AudioFrame(payload))

    def _answer(self, error: wire.WireError, now: float) -> None:
        # Answered also when its number is an old one; disposed of for good when it is new (§4.3 leaves both open).
        if self._state is State.OPEN and error.seq:
            self._is_new(self._bound(), error.seq, now)
        self._fault(error.code, str(error))

    def _open(self, session: Session, now: float) -> None:
        self._session = session
        early, self._early = self._early, []
        for message in early:
            self._step(Input.CONTROL, (message, 0), now)

    def _refuse(self, refusal: tuple[str, str, int], now: float) -> None:
        code, message, close = refusal
        self._fault(code, message, recoverable=False)
        self._shut(Close(close, message), now)

    def _shut(self, close: Close, now: float) -> None:
        self._close(close)
        if self._session is not None and self._session.bound_to(self):
            self._session.park(now)

    TABLE: ClassVar[dict[tuple[State, Input], tuple[Callable[..., None], State]]] = {
        (State.AWAITING_HELLO, Input.HELLO): (_ask, State.OPENING),
        (State.AWAITING_HELLO, Input.PING): (_pong, State.AWAITING_HELLO),
        (State.AWAITING_HELLO, Input.CONTROL): (_no_session, State.AWAITING_HELLO),
        (State.AWAITING_HELLO, Input.AUDIO): (_ignore, State.AWAITING_HELLO),
        (State.AWAITING_HELLO, Input.INVALID): (_answer, State.AWAITING_HELLO),
        (State.AWAITING_HELLO, Input.NO_HELLO): (_shut, State.CLOSED),
        (State.AWAITING_HELLO, Input.SILENT): (_shut, State.CLOSED),
        (State.AWAITING_HELLO, Input.ENDED): (_shut, State.CLOSED),
        (State.AWAITING_HELLO, Input.LOST): (_shut, State.CLOSED),
        (State.OPENING, Input.HELLO): (_duplicate, State.OPENING),
        (State.OPENING, Input.PING): (_pong, State.OPENING),
        (State.OPENING, Input.CONTROL): (_keep, State.OPENING),
        (State.OPENING, Input.AUDIO): (_ignore, State.OPENING),
        (State.OPENING, Input.INVALID): (_answer, State.OPENING),
        (State.OPENING, Input.CROWDED): (_refuse, State.CLOSED),
        (State.OPENING, Input.REFUSED): (_refuse, State.CLOSED),
        (State.OPENING, Input.NOT_RESUMED): (_refuse, State.CLOSED),
        (State.OPENING, Input.OPENED): (_open, State.OPEN),
        (State.OPENING, Input.SILENT): (_shut, State.CLOSED),
        (State.OPENING, Input.ENDED): (_shut, State.CLOSED),
        (State.OPENING, Input.LOST): (_shut, State.CLOSED),
        (State.OPEN, Input.HELLO): (_duplicate, State.OPEN),
        (State.OPEN, Input.PING): (_pong, State.OPEN),
        (State.OPEN, Input.CONTROL): (_handle, State.OPEN),
        (State.OPEN, Input.AUDIO): (_pass, State.OPEN),
        (State.OPEN, Input.INVALID): (_answer, State.OPEN),
        (State.OPEN, Input.SILENT): (_shut, State.CLOSED),
        (State.OPEN, Input.ENDED): (_shut, State.CLOSED),
        (State.OPEN, Input.LOST): (_shut, State.CLOSED),
        (State.CLOSED, Input.HELLO): (_ignore, State.CLOSED),
        (State.CLOSED, Input.PING): (_ignore, State.CLOSED),
        (State.CLOSED, Input.CONTROL): (_ignore, State.CLOSED),
        (State.CLOSED, Input.AUDIO): (_ignore, State.CLOSED),
        (State.CLOSED, Input.INVALID): (_ignore, State.CLOSED),
        (State.CLOSED, Input.ENDED): (_ignore, State.CLOSED),
        (State.CLOSED, Input.LOST): (_ignore, State.CLOSED),
    }
    """§5.1 row by row, "any" written out. What a peer can cause has an entry in each state; a missing one is our fault."""

    # --- helpers

    def _step(self, input_: Input, value: Any, now: float = 0.0) -> None:
        entry = self.TABLE.get((self._state, input_))
        if entry is None:
            raise LocalError(f"{input_.value}: impossible while {self._state.value}")
        action, self._state = entry  # the state first: an action may cause the next step
        action(self, value, now)

    def _too_large(self, what: str, size: int, limit: int, seq: int, now: float) -> None:
        text = f"{what} has {size} bytes, this server takes {limit}"
        self._step(Input.INVALID, wire.WireError("TOO_LARGE", text, seq), now)

    def _asked(self) -> Hello:
        if self._state is not State.OPENING or self._hello is None:
            raise LocalError("no hello waits for an answer")
        return self._hello

    def _bind(self, session: Session, resume_from: int | None, now: float) -> bool:
        if not session.bind(self, resume_from, now) or self._state is not State.OPENING:
            return False  # the second: whoever was told that it is connected has already ended it
        self._step(Input.OPENED, session, now)
        return True

    def _bound(self) -> Session:
        if self._session is None:
            raise LocalError("this connection has no session")
        return self._session

    def _is_new(self, session: Session, seq: int, now: float) -> bool:
        missing = session.inbox.missing
        new = session.inbox.take(seq, now)
        if session.inbox.missing > missing:
            self._events.append(
                Fault("GAP", f"{session.inbox.missing - missing} messages before {seq} never came")
            )
        self._acknowledge_if_due(now)
        return new

    def _acknowledge_if_due(self, now: float) -> None:
        due = self._session.inbox.due_at if self._session is not None else None
        if due is not None and now >= due:
            self._ack_waits = True
            self._wake()

    def _fault(self, code: str, text: str, recoverable: bool = True) -> None:
        """Tells the peer and the log; the error has a number when a session is bound (§4.1)."""
        self._events.append(Fault(code, text))
        if self._session is not None and self._session.bound_to(self):
            self._session.error(code, text, recoverable)
        else:
            self.carry(
                wire.transient("error", code=code, recoverable=recoverable, message=text[: wire.SHOWN])
            )

    def _close(self, close: Close) -> None:
        if self.closing is None:
            self.closing = close
            self._wake()
