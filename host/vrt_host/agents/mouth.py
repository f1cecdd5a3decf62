"""What an agent says: in order, and handed to the port no faster than it takes sound; a server that is far ahead is not read on."""

from __future__ import annotations

import asyncio
from collections import deque

from vrt_host.agents.base import PCM16_24K, AgentEvent, Audio, Port, Text, Transcript, TurnEnd

OUTPUT = PCM16_24K
MOST_BYTES = 180 * OUTPUT.bytes_per_second
"""Of sound that may wait for the device; beyond it nothing is read."""
EVENTS = 4096
"""The same for all that is said, in pieces."""
_SLICE_BYTES = OUTPUT.bytes_per_second
"""Handed on at once."""


class Mouth:
    """Between a connection and the port; `talk` is a task of the agent's."""

    def __init__(self) -> None:
        self._events: deque[AgentEvent] = deque()
        self.waiting_bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def silent(self) -> bool:
        """Whether nothing waits."""
        return not self._events

    def say(self, event: AgentEvent) -> None:
        """Behind what waits; sound in slices, between which an interruption has its place."""
        if isinstance(event, Audio):
            self.waiting_bytes += len(event.payload)
            for start in range(0, len(event.payload), _SLICE_BYTES):
                part = event.payload[start : start + _SLICE_BYTES]
                self._events.append(Audio(event.turn, event.item, part))
        else:
            self._events.append(event)
        self._news.set()

    def hush(self) -> None:
        """Forget what was not said yet."""
        self._events.clear()
        self.waiting_bytes = 0
        self._room.set()

    def reopen(self, turn: str) -> bool:
        """Take back the end of a turn, if that was not said yet: more has come."""
        if TurnEnd(turn) not in self._events:
            return False
        self._events = deque(event for event in self._events if not (event.turn == turn and _ends(event)))
        return True

    async def talk(self, port: Port) -> None:
        """Say it all, for ever."""
        while True:
            while self._events:
                event = self._events.popleft()
                port.emit(event)
                if isinstance(event, Audio):
                    self.waiting_bytes -= len(event.payload)
                self._room.set()
                if isinstance(event, Audio):
                    await port.drain()
            self._news.clear()
            await self._news.wait()

    async def room(self) -> None:
        """Wait while too much waits: for whoever reads the connection."""
        while self.waiting_bytes > MOST_BYTES or len(self._events) > EVENTS:
            self._room.clear()
            await self._room.wait()


def _ends(event: AgentEvent) -> bool:
    """Whether it says that there is no more."""
    return isinstance(event, TurnEnd) or (
        isinstance(event, Text | Transcript) and event.final and not event.text
    )
