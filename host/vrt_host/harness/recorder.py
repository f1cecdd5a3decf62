"""The event log of a run: everything that every part saw, on one clock.

An event is a dict `{"t": seconds since the start, "source": who saw it, "event": its name, ...}`. Sources are
`device` (the firmware), `host` (server, turns, agent), `hardware` (the simulated board around the firmware),
`proxy` (the network between them) and `demo` (scenes and steps). All of them stamp with `time.monotonic`, which
is one clock for every process of a machine.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

Event = dict[str, Any]
Match = Callable[[Event], bool]

SOURCES = ("device", "host", "hardware", "proxy", "demo")


class NotSeen(Exception):
    """An awaited event did not come in time; `since` lists what came instead, oldest first."""

    def __init__(self, within: float, since: Sequence[Event]) -> None:
        super().__init__(f"not seen within {within:g} s")
        self.within = within
        self.since = list(since)


class Recorder:
    """Collects events, tells listeners, and lets a scenario wait for one.

    With a `path` every event is also written at once, one JSON object a line, so that a run that dies leaves its
    log; `close` rewrites the file in the order of time. Not thread-safe: call it on the event loop.
    """

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.events: list[Event] = []
        self.origin = clock()
        self._clock = clock
        self._path = path
        self._file: IO[str] | None = None
        self._listeners: list[Callable[[Event], None]] = []
        self._arrived = asyncio.Event()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="utf-8")

    @property
    def now(self) -> float:
        """Seconds since the start of the recording."""
        return self._clock() - self.origin

    def add(self, source: str, event: str, /, at: float | None = None, **fields: Any) -> Event:
        """Record `event` of `source`; `at` is the clock's absolute reading when it happened, now by default.

        Values that JSON does not know are written as their text.
        """
        when = self._clock() if at is None else at
        entry: Event = {"t": round(when - self.origin, 4), "source": source, "event": event}
        entry.update((name, value) for name, value in fields.items() if name not in entry)
        self.events.append(entry)
        if self._file is not None:
            self._file.write(to_line(entry) + "\n")
            self._file.flush()
        for listener in self._listeners:
            listener(entry)
        self._arrived.set()
        return entry

    def restart(self) -> None:
        """Let time begin now; what was recorded keeps its times."""
        self.origin = self._clock()

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call `listener` with every later event."""
        self._listeners.append(listener)

    def mark(self) -> int:
        """A place in the log: what comes later has an index at or above it."""
        return len(self.events)

    def find(self, match: Match, after: int = 0) -> Event | None:
        """The first event at or above index `after` that matches."""
        return next((event for event in self.events[after:] if match(event)), None)

    async def wait_for(self, match: Match, *, within: float | None, after: int = 0) -> Event:
        """The first match at or above index `after`, already there or still to come.

        Raises `NotSeen` when there is none `within` so many seconds; None waits for ever.
        """
        place = after
        try:
            async with asyncio.timeout(within):
                while True:
                    found = self.find(match, place)
                    if found is not None:
                        return found
                    place = self.mark()
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise NotSeen(within or 0, self.events[after:]) from None

    def close(self) -> None:
        """Put the file in the order of time; the recorder can still be read."""
        if self._file is None or self._path is None:
            return
        self._file.close()
        self._file = None
        self.events.sort(key=lambda event: event["t"])
        self._path.write_text("".join(to_line(event) + "\n" for event in self.events), encoding="utf-8")


def to_line(event: Event) -> str:
    """One event as one line of JSON."""
    return json.dumps(event, ensure_ascii=False, separators=(", ", ": "), default=str)


def load(path: Path) -> list[Event]:
    """The events of a file that a `Recorder` wrote."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
