"""A link of the server with its connection, and the session that it is bound to."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from vrt_host.connection import Connection, Event
from vrt_host.errors import AgentStartError
from vrt_host.links.base import Link
from vrt_host.runner import Alarm, Observer, Runner, printable, without_tokens
from vrt_host.session import AudioFrame, Fault, Hello, Limits, Message

log = logging.getLogger(__name__)

FAULTS_LOGGED = 20
"""Lines that the faults of one link may fill in the log."""


class Seating(Protocol):
    """What a seat needs of its server."""

    @property
    def limits(self) -> Limits:
        """What this server takes."""

    @property
    def observer(self) -> Observer | None:
        """Who is told what happens."""

    def open(self, seat: Seat, hello: Hello) -> None:
        """Answer a `hello`, at once or later."""

    def left(self, seat: Seat) -> None:
        """Nothing is left of it."""


class Seat:
    """A link with its connection, and the session it is bound to, if any. Is the link's `Receiver`."""

    def __init__(self, host: Seating, link: Link) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self.link = link
        self.peer = link.peer
        self.runner: Runner | None = None
        self.refusal: AgentStartError | None = None
        """Why there is no session, if it was the agent's doing; the client is told its words alone."""
        self.connection = Connection(host.limits, self.now(), wake=self._wake)
        self._alarm = Alarm(self._loop, self.flush)
        self._scheduled = False
        self._flushing = False
        self._over = False
        self._faults = 0
        self._observer = host.observer
        self._observe("link.open", peer=link.peer)

    def now(self) -> float:
        """The time that everything below the server is told."""
        return self._loop.time()

    def bind(self, runner: Runner) -> None:
        """The connection carries this session now."""
        self.runner = runner
        runner.carrier = self

    # --- what the link reports

    def text(self, frame: str) -> None:
        """`Receiver.text`."""
        if self._observer is not None:
            self._observe_message("message.in", frame)
        self.connection.receive_text(frame, self.now())

    def audio(self, frame: bytes) -> None:
        """`Receiver.audio`."""
        if self._observer is not None:
            self._observe("audio.in", bytes=len(frame))
        self.connection.receive_audio(frame, self.now())

    def heard(self) -> None:
        """`Receiver.heard`."""
        self.connection.heard(self.now())

    def lost(self, *, too_large: bool) -> None:
        """`Receiver.lost`."""
        self._observe("link.lost", too_large=too_large)
        if too_large:
            self.connection.receive_too_large(self.now())
        else:
            self.connection.receive_eof(self.now())
        self.flush()
        self._over = True
        self._alarm.cancel()

    def gone(self) -> None:
        """Nothing is left of the link."""
        self._host.left(self)
        self._alarm.cancel()
        self.connection.receive_eof(self.now())
        self.runner = None

    # --- what goes through it

    def admit(self, seconds: float) -> bool:
        """`Carrier.admit`."""
        return self.link.admit(seconds)

    def flush(self) -> None:
        """Handle what came, run the session, send what waits."""
        self._scheduled = False
        if self._flushing:
            return
        self._flushing = True
        try:
            self._flush()
        except Exception:
            log.exception("a link from %s failed", self.peer)
            self._end(1011, "internal error")
        finally:
            self._flushing = False

    def _flush(self) -> None:
        now = self.now()
        connection = self.connection
        connection.tick(now)
        events = connection.events()
        while True:
            mine = self._sort(events) if events else ()
            runner = self.runner
            if runner is not None and (mine or runner.carrier is self):
                runner.run(now, mine)
            events = connection.events()
            if not events:
                break
        self._send()
        if not self._over:
            self._alarm.set(connection.deadline)

    def _sort(self, events: Sequence[Event]) -> list[Message | AudioFrame]:
        """Those that are for the session, in order; the server gets the others."""
        mine: list[Message | AudioFrame] = []
        for event in events:
            if isinstance(event, (AudioFrame, Message)):
                mine.append(event)
            elif isinstance(event, Hello):
                self._host.open(self, event)
            else:
                self._on_fault(event)
        return mine

    def _on_fault(self, fault: Fault) -> None:
        """Log what the peer did wrong, as long as it does not fill the log with it."""
        self._faults += 1
        text = printable(fault.text, 200)
        if self._faults <= FAULTS_LOGGED:
            log.info("%s: %s: %s", self.peer, fault.code, text)
            if self._faults == FAULTS_LOGGED:
                log.info("%s: further faults of this link are not logged", self.peer)
        self._observe("fault", code=fault.code, text=text)

    def _send(self) -> None:
        link, connection = self.link, self.connection
        if self._over:
            return
        if link.writable or connection.closing is not None:
            frames = connection.data_to_send()
            if frames:
                if self._observer is not None:
                    self._observe_sent(frames)
                link.write(frames)
        closing = connection.closing
        if closing is not None:
            self._observe("link.close", code=closing.code, reason=closing.reason)
            self._end(closing.code, closing.reason)
            # Parks a session that is still bound: its link is as good as gone.
            connection.receive_eof(self.now())

    def _wake(self) -> None:
        if not self._scheduled and not self._flushing:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def _end(self, code: int, reason: str) -> None:
        self._over = True
        self._alarm.cancel()
        self.link.end(code, reason)

    # --- for the event log

    def _observe(self, name: str, /, **fields: Any) -> None:
        if self._observer is not None:
            session = None if self.runner is None else self.runner.id
            self._observer({"t": self.now(), "event": name, "session": session, **fields})

    def _observe_message(self, name: str, frame: str) -> None:
        frame = without_tokens(frame)  # also the error that quotes what a client put into the wrong place
        try:
            message = json.loads(frame)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            message.pop("auth", None)  # a credential has no place in a log
            self._observe(name, message=message)
        else:
            self._observe(name, text=printable(frame, 200))

    def _observe_sent(self, frames: list[str | bytes]) -> None:
        for frame in frames:
            if isinstance(frame, str):
                self._observe_message("message.out", frame)
            else:
                self._observe("audio.out", bytes=len(frame))
