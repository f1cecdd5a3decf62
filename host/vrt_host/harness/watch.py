"""What happens at a simulated board, into the log and onto the status bar."""

from __future__ import annotations

import asyncio
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
