"""What happens, into the log and onto the status bar: at a simulated board, and in the host's own log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from vrt_host.harness.live import View
from vrt_host.harness.recorder import Recorder
from vrt_host.sim.board import SimBoard
from vrt_host.sim.hardware import Hardware

_MOVE_S = 0.125


def watch(recorder: Recorder, board: SimBoard) -> None:
    """Record what the board and its hardware tell from now on."""

    def record(event: dict[str, Any]) -> None:
        fields = {name: value for name, value in event.items() if name not in {"t", "source", "event"}}
        recorder.add(event["source"], event["event"], at=board.hardware.monotonic(event["t"]), **fields)

    board.listen(record)


async def animate(view: View, recorder: Recorder, hardware: Hardware) -> None:
    """Keep the status bar moving, until cancelled."""
    while True:
        await asyncio.sleep(_MOVE_S)
        now = hardware.now
        sounds = (track.between(now - 2 * _MOVE_S, now) for track in (hardware.microphone, hardware.speaker))
        view.heard(recorder.now, *sounds)


class _Handler(logging.Handler):
    """Warnings of the host, into the event log."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(logging.WARNING)
        self._recorder = recorder
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self._loop.call_soon_threadsafe(
            lambda: self._recorder.add("host", "log", level=record.levelname, text=text)
        )


@contextlib.contextmanager
def logged(recorder: Recorder) -> Iterator[None]:
    """Warnings of the host go into the log of events, not to the terminal, where a live view is."""
    logger = logging.getLogger("vrt_host")
    handler = _Handler(recorder)
    logger.addHandler(handler)
    kept, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = kept
        logger.removeHandler(handler)
