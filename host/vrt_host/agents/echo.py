"""The echo agent: says back what it gets, at once. The baseline of the benches and the first thing to try a board with."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import ClassVar

from vrt_host.agents.base import (
    PCM16_24K,
    PCMU,
    Abilities,
    Agent,
    Audio,
    AudioBegin,
    AudioEnd,
    Format,
    Heard,
    Port,
    SessionInfo,
    Text,
    ToolResult,
    TurnBegin,
    TurnEnd,
)


class EchoAgent(Agent):
    """A text T is answered with `Echo: T` in a turn of its own; input audio comes back frame by frame as one item.

    The audio turn lasts while audio comes and ends `pause` seconds after its last frame.
    """

    name: ClassVar[str] = "echo"
    abilities: ClassVar[Abilities] = Abilities(
        interruption="cancel",
        inputs=(
            PCM16_24K,
            PCMU,
            *(Format("pcm16", rate) for rate in (8_000, 16_000, 48_000)),
            Format("opus", 48_000),
        ),
        outputs=(PCM16_24K,),
        same_format=True,
    )

    def __init__(self, pause: float = 1.0) -> None:
        self._pause = pause
        self._keys = itertools.count(1)
        self._audio_turn: str | None = None
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, session: SessionInfo, port: Port) -> None:
        """Nothing to prepare."""
        self._loop = asyncio.get_running_loop()
        self._port = port

    def user_text(self, text: str) -> None:
        """Say it back."""
        turn = f"text-{next(self._keys)}"
        self._port.emit(TurnBegin(turn))
        self._port.emit(Text(turn, f"Echo: {text}", final=True))
        self._port.emit(TurnEnd(turn))

    def user_audio(self, payload: bytes) -> None:
        """Send it back; the frame stays whole."""
        if not payload:
            return
        turn = self._audio_turn
        self._last = self._loop.time()
        if turn is None:
            turn = self._audio_turn = f"audio-{next(self._keys)}"
            self._port.emit(TurnBegin(turn))
            self._port.emit(AudioBegin(turn, turn))
            self._timer = self._loop.call_later(self._pause, self._end_if_quiet)
        self._port.emit(Audio(turn, turn, payload, whole=True))

    def interrupted(self, turn: str, heard: Sequence[Heard]) -> None:
        """The next frame begins a new turn."""
        if turn == self._audio_turn:
            self._forget()

    def tool_result(self, turn: str, result: ToolResult) -> None:
        """It calls no tools."""

    async def close(self) -> None:
        """Stop the timer."""
        self._forget()

    def _end_if_quiet(self) -> None:
        """One timer for a whole turn: it looks when the last frame was, instead of being moved by each."""
        left = self._last + self._pause - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._end_if_quiet)
            return
        turn = self._audio_turn
        self._forget()
        if turn is not None:
            self._port.emit(AudioEnd(turn, turn))
            self._port.emit(TurnEnd(turn))

    def _forget(self) -> None:
        self._audio_turn = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
