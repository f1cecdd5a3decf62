"""Between a model that speaks faster than real time and the port: what it says waits here, in order, and is bounded.

The connection is read on meanwhile, so that an interruption by the model's own ear is not stuck behind a minute of audio.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from vrt_host.agents.base import AgentError, AgentEvent, Audio, CallDelta, Port, Text, Transcript, TurnBegin

_EVENTS = 10_000
"""Events that may wait; words beyond are dropped, too."""


class Pump:
    """Hands events to a port, audio no faster than it takes it."""

    def __init__(self, port: Port, limit_bytes: int, overrun: Callable[[str], None]) -> None:
        """`overrun(turn)` is called when more than `limit_bytes` of audio, or too many words, wait; what comes beyond is dropped."""
        self._port = port
        self._limit = limit_bytes
        self._overrun = overrun
        self._events: deque[AgentEvent] = deque()
        self._bytes = 0
        self._draining = False
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def emit(self, event: AgentEvent) -> None:
        """One event: at once if it is of the user or ends something, else behind what waits."""
        if isinstance(event, TurnBegin | AgentError):
            if isinstance(event, TurnBegin) or event.turn is not None:
                self.forget(event.turn, others=isinstance(event, TurnBegin))
            self._port.emit(event)
        elif isinstance(event, Transcript) and event.role == "user":
            self._port.emit(event)
        elif self._events or self._draining:
            size = len(event.payload) if isinstance(event, Audio) else 0
            words = isinstance(event, Text | Transcript | CallDelta) and len(self._events) >= _EVENTS
            if words or (size and self._bytes + size > self._limit):
                assert event.turn is not None
                self._overrun(event.turn)
                return
            self._bytes += size
            self._events.append(event)
        else:
            self._hand(event)

    def forget(self, turn: str | None, *, others: bool = False) -> None:
        """Drop what waits of a turn that is dead, or of all `others` when one begins."""
        self._events = deque(event for event in self._events if (event.turn == turn) == others)
        self._bytes = sum(len(event.payload) for event in self._events if isinstance(event, Audio))

    async def close(self) -> None:
        """Stop."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _hand(self, event: AgentEvent) -> None:
        self._port.emit(event)
        if isinstance(event, Audio):
            self._draining = True
            self._news.set()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._port.drain()
            self._draining = False
            while self._events and not self._draining:
                event = self._events.popleft()
                if isinstance(event, Audio):
                    self._bytes -= len(event.payload)
                self._hand(event)
