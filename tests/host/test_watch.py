import asyncio
import io
import logging

import numpy as np
import pytest
from rich.console import Console
from vrt_host.harness import watch
from vrt_host.harness.live import View
from vrt_host.harness.recorder import Recorder
from vrt_host.sim.hardware import Hardware


class Board:
    """What `watch` needs of a board."""

    def __init__(self, hardware):
        self.hardware = hardware
        self.listeners = []

    def listen(self, listener):
        self.listeners.append(listener)


def test_watch_puts_the_boards_events_on_the_recorders_clock():
    recorder = Recorder(clock=lambda: 1_000.0)
    hardware = Hardware()
    hardware._origin = 1_002.0  # it began two seconds later
    board = Board(hardware)
    watch.watch(recorder, board)
    board.listeners[0]({"t": 0.5, "source": "device", "event": "call", "name": "lock", "arguments": {}})
    assert recorder.events == [
        {"t": 2.5, "source": "device", "event": "call", "name": "lock", "arguments": {}}
    ]


async def test_watch_moves_the_status_bar(monkeypatch):
    monkeypatch.setattr(watch, "_MOVE_S", 0.01)
    hardware = Hardware()
    hardware.speaker.append(0.0, np.full(24_000, 9_000, np.int16).tobytes())
    view = View(Console(file=io.StringIO()))
    moved = asyncio.Event()
    kept = view.heard
    monkeypatch.setattr(view, "heard", lambda *sounds: (kept(*sounds), moved.set()))
    task = asyncio.create_task(watch.animate(view, Recorder(), hardware))
    await asyncio.wait_for(moved.wait(), 5)
    task.cancel()
    assert set(view._mic) == {" "}
    assert set(view._speaker) - {" "}


async def test_watch_takes_the_hosts_warnings_off_the_terminal(capsys):
    recorder = Recorder()
    logger = logging.getLogger("vrt_host.anything")
    with watch.logged(recorder):
        logger.info("not this")
        logger.warning("the voice is %s", "poor")
        await asyncio.to_thread(logger.error, "from a thread")
        await asyncio.sleep(0)
    assert [(event["level"], event["text"]) for event in recorder.events] == [
        ("WARNING", "the voice is poor"),
        ("ERROR", "from a thread"),
    ]
    assert capsys.readouterr().err == ""
    assert logging.getLogger("vrt_host").propagate


async def test_watch_lets_the_log_go_when_something_breaks():
    before = list(logging.getLogger("vrt_host").handlers)
    with pytest.raises(ValueError, match="x"), watch.logged(Recorder()):
        raise ValueError("x")
    assert logging.getLogger("vrt_host").handlers == before
