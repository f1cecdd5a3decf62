"""The agent of tools/soak.py: it does what the player says, and tells the log what it was told."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar

from vrt_host.agents import base


class SoakAgent(base.Agent):
    """One session's. `tell(source, event, **fields)` writes the log."""

    name: ClassVar[str] = "soak"

    def __init__(self, tell: Callable[..., object]) -> None:
        self._tell = tell
        self._keys = itertools.count(1)
        self.port: base.Port

    async def start(self, session: base.SessionInfo, port: base.Port) -> None:
        """Nothing to prepare."""
        self.port = port
        self._second = session.output.bytes_per_second

    def user_text(self, text: str) -> None:
        """The firmware sends none."""

    def user_audio(self, payload: bytes) -> None:
        """The rig counts the frames."""

    def interrupted(self, turn: str, heard: Sequence[base.Heard]) -> None:
        """`Agent.interrupted`."""
        self._tell("host", "agent.interrupted", turn=turn)

    def context(self, value: base.Json) -> None:
        """`Agent.context`."""
        self._tell("host", "agent.context", value=value)

    def tool_result(self, turn: str, result: base.ToolResult) -> None:
        """Say so, and end the turn if this was the last thing in it."""
        self._tell("host", "agent.result", call=result.call, ok=result.ok, code=result.code)
        self.port.emit(base.Text(turn, f"result of {result.call}", final=True))
        self.port.emit(base.TurnEnd(turn))

    def play(self, *, calls: Sequence[tuple[str, int]] = (), seconds: float = 0, texts: int = 0) -> str:
        """A turn with calls (tool, milliseconds), audio, and texts; returns its key."""
        turn = f"turn-{next(self._keys)}"
        emit = self.port.emit
        emit(base.TurnBegin(turn))
        emit(base.Transcript(turn, "agent", f"this is {turn}", final=True))
        for number in range(texts):
            emit(base.Text(turn, f"{turn}, text {number}"))
        if seconds:
            emit(base.AudioBegin(turn, turn))
            emit(base.Audio(turn, turn, b"\x55" * int(seconds * self._second)))
            emit(base.AudioEnd(turn, turn))
        for tool, ms in calls:
            number = next(self._keys)
            emit(base.Call(turn, f"call-{number}", tool, {"n": number, "ms": ms}))
        emit(base.TurnEnd(turn))
        return turn
