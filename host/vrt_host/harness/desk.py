"""The device that a scenario is played against: a simulated board, or one on the desk.

Both are a `conformance.subject.Subject`: they are started with the address, and come by themselves from then on. What a
user's hands do to a simulated board is asked of the operator when it is a real one.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, Self

import numpy as np

from vrt_host.conformance.subject import Operator, Subject
from vrt_host.errors import UsageError
from vrt_host.harness.live import View
from vrt_host.harness.proxy import Observer, Proxy
from vrt_host.harness.recorder import Recorder
from vrt_host.harness.scenario import Scenario
from vrt_host.harness.watch import watch
from vrt_host.sim.board import SimBoard
from vrt_host.sim.wav import MIC_RATE

QUIET = {"listen": "button", "duplex": "half", "stats_ms": 0}
"""The simulated board's microphone is off until its button is pressed, so that it says nothing by itself."""
_TONE_HZ = 300


class Device(Subject, Protocol):
    """What a scenario needs of the device besides its connection."""

    tells: bool
    """Whether its events come into the recorder."""
    patience_s: float
    """How long it may take to come for the first time."""

    async def press(self, seconds: float) -> None:
        """Hold its button."""

    async def speak(self, seconds: float) -> None:
        """Let its microphone hear a tone."""

    async def power_cut(self) -> None:
        """Off and on again."""


class SimDevice:
    """A simulated board of its own for each scenario; its events go into the recorder."""

    restarts = False
    tells = True
    patience_s = 30.0

    def __init__(self, recorder: Recorder, scenario: Scenario) -> None:
        self._recorder = recorder
        self._scenario = scenario
        self._board: SimBoard | None = None
        self._ended = asyncio.Event()

    async def start(self, url: str) -> None:
        """Boot it; raises `VrtError` when it does not."""
        scenario = self._scenario
        config = {**QUIET, **scenario.config}
        self._board = board = SimBoard(url=url, heap=scenario.heap, tools=scenario.tools, config=config)
        watch(self._recorder, board)
        board.listen(
            lambda event: self._ended.set() if event["event"] == "exit" and not event["asked"] else None
        )
        await board.__aenter__()

    async def stop(self) -> None:
        """Switch it off; raises `VrtError` when the firmware failed meanwhile."""
        if self._board is not None:
            board, self._board = self._board, None
            await board.__aexit__(None, None, None)

    async def gone(self) -> str:
        """Returns when the firmware has ended by itself."""
        await self._ended.wait()
        return "the board's firmware ended by itself"

    async def press(self, seconds: float) -> None:
        """`Device.press`."""
        await self._on.press(seconds)

    async def speak(self, seconds: float) -> None:
        """`Device.speak`; returns when it has been heard."""
        t = np.arange(int(seconds * MIC_RATE)) / MIC_RATE
        self._on.say((12_000 * np.sin(2 * np.pi * _TONE_HZ * t)).astype(np.int16))
        await asyncio.sleep(seconds)

    async def power_cut(self) -> None:
        """`Device.power_cut`."""
        await self._on.cut()
        await self._on.boot()

    @property
    def _on(self) -> SimBoard:
        if self._board is None:
            raise UsageError(
                "the board is not switched on before the scenario waits for it: begin with 'open'"
            )
        return self._board


class DeskDevice(Operator):
    """A board that somebody has connected; what is to be done to it is asked for."""

    tells = False
    patience_s = 600.0

    def __init__(self, view: View) -> None:
        super().__init__(view.note)
        self._view = view

    async def press(self, seconds: float) -> None:
        """`Device.press`."""
        await self._ask(f"now hold the button for {seconds:g} s", seconds)

    async def speak(self, seconds: float) -> None:
        """`Device.speak`."""
        await self._ask(f"now speak to it for {seconds:g} s", seconds)

    async def power_cut(self) -> None:
        """`Device.power_cut`."""
        await self._ask("now switch it off and on again", 1.0)

    async def _ask(self, what: str, seconds: float) -> None:
        self._view.note(what)
        await asyncio.sleep(REACT_S + seconds)


REACT_S = 2.0
"""What an operator needs to read a line and reach the board."""


class Wire(Proxy):
    """The proxy at an address of the operator's choice, where a board in the network can reach it."""

    def __init__(self, target: tuple[str, int], *, at: tuple[str, int], observer: Observer) -> None:
        """`at`: host and port to listen at; port 0 takes any free one. Entering it raises `UsageError` for a taken one."""
        super().__init__(*target, observer=observer)
        self._at = at

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._accept, *self._at)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or (
                "this is no name of a host" if isinstance(error, UnicodeError) else error
            )
            raise UsageError(f"cannot listen at {self._at[0]}:{self._at[1]}: {why}") from None
        return self

    @property
    def url(self) -> str:
        """What the board is to be set to."""
        host = "THIS-COMPUTER" if self._at[0] == "0.0.0.0" else self._at[0]
        return f"ws://{f'[{host}]' if ':' in host else host}:{self.port}/"
