"""Tools of a board that agents of other sessions may call, when the configuration lends them.

A board runs a tool only in a turn of its own session (vRT §6.2), so a call from elsewhere gets one: begun only while nothing else
is going on there, and ended by whoever speaks to the board meanwhile. The board asks for its confirmation as for any call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vrt_host.agents.base import (
    Agent,
    Call,
    Heard,
    Json,
    Port,
    SessionInfo,
    Tool,
    ToolResult,
    TurnBegin,
    TurnEnd,
)
from vrt_host.agents.wrapped import Wrapped
from vrt_host.errors import UsageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lent:
    """A tool of a board that is connected."""

    board: str
    tool: Tool
    lender: Lender


class Lending:
    """Which tools are lent, and the boards that are there."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Each name is a board's, for all its tools, or `BOARD/TOOL`. Raises `UsageError`."""
        self._wanted: dict[str, set[str]] = {}
        for name in names:
            board, slash, tool = name.partition("/")
            if not board or (slash and not tool):
                raise UsageError(
                    f"{name!r} names no tool to lend; write BOARD for all of a board's, or BOARD/TOOL"
                )
            self._wanted.setdefault(board, set()).add(tool)
        self._lenders: dict[str, list[Lender]] = {}

    def wraps(self, board: str, agent: Agent, tools: Iterable[Tool]) -> Agent:
        """The agent for a session of that board, by way of which its tools can be lent, if they are to be."""
        wanted = self._wanted.get(board)
        if wanted is None:
            return agent
        chosen = []
        for tool in tools:
            if "" not in wanted and tool.name not in wanted:
                continue
            if tool.confirm == "voice":
                log.warning(
                    "%s: %s is confirmed by voice, by whoever is at the board: it is not lent",
                    board,
                    tool.name,
                )
                continue
            chosen.append(tool)
        return Lender(self, board, agent, chosen)

    def tools(self) -> Iterator[Lent]:
        """What can be borrowed now."""
        for board, lenders in self._lenders.items():
            for tool in lenders[-1].tools:
                yield Lent(board, tool, lenders[-1])

    def find(self, board: str, name: str) -> Lent | None:
        """A tool as that board has it now; None: it has none of that name, or is not there."""
        return next((lent for lent in self.tools() if (lent.board, lent.tool.name) == (board, name)), None)

    def add(self, lender: Lender) -> None:
        """A board is there; its newest session counts."""
        self._lenders.setdefault(lender.board, []).append(lender)

    def remove(self, lender: Lender) -> None:
        """Its session has ended."""
        lenders = self._lenders.get(lender.board, [])
        if lender in lenders:
            lenders.remove(lender)
        if not lenders:
            self._lenders.pop(lender.board, None)


class Lender(Wrapped):
    """An agent of a board's session, beside which calls from elsewhere reach the board."""

    def __init__(self, lending: Lending, board: str, agent: Agent, tools: Sequence[Tool]) -> None:
        super().__init__(agent)
        self.board = board
        self.tools = tools
        self._lending = lending
        self._port: Port | None = None
        self._over = False
        self._number = 0
        self._waiting: tuple[str, asyncio.Future[ToolResult]] | None = None

    async def call(self, name: str, arguments: Mapping[str, Json]) -> ToolResult:
        """Have the board run a tool; its one result. When the wait is cancelled, so is the call."""
        port = self._port
        if port is None:
            return _failed(f"the board {self.board} is not connected")
        if self._waiting is not None or not port.idle():
            return _failed(f"the board {self.board} is busy; try again in a moment")
        self._number += 1
        turn = f"lent-{self._number}"
        result: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        self._waiting = turn, result
        port.emit(TurnBegin(turn))
        port.emit(Call(turn, turn, name, arguments))
        port.emit(TurnEnd(turn))
        try:
            made = await result
        except asyncio.CancelledError:
            if self._waiting is not None and self._port is not None:  # a turn that begins ends the one before
                port.emit(TurnBegin(f"{turn}-over"))
                port.emit(TurnEnd(f"{turn}-over"))
            raise
        if made.code == "INTERRUPTED":
            # There, not here: an agent that hears INTERRUPTED of a call takes its own turn for dead.
            why = "somebody turned to it meanwhile, or it has gone; whether it ran is unknown"
            return _failed(f"the call at the board {self.board} was interrupted: {why}")
        return made

    async def start(self, session: SessionInfo, port: Port) -> None:
        """`Agent.start`; what the board has can be borrowed from then on."""
        await super().start(session, port)
        if not self._over:  # a session can end while its agent gets ready
            self._port = port
            self._lending.add(self)

    def interrupted(self, turn: str, heard: Sequence[Heard]) -> None:
        """`Agent.interrupted`, unless the turn is ours: its call's result says all."""
        if not turn.startswith("lent-"):
            super().interrupted(turn, heard)

    def tool_result(self, turn: str, result: ToolResult) -> None:
        """`Agent.tool_result`, unless it is for whoever borrowed the tool."""
        if not turn.startswith("lent-"):
            super().tool_result(turn, result)
        elif self._waiting is not None and self._waiting[0] == turn:
            waiting, self._waiting = self._waiting[1], None
            if not waiting.done():
                waiting.set_result(result)

    async def close(self) -> None:
        """`Agent.close`."""
        self._over = True
        self._lending.remove(self)
        self._port = None
        if self._waiting is not None and not self._waiting[1].done():
            self._waiting[1].set_result(
                _failed(f"the board {self.board} has gone; whether it ran is unknown")
            )
        await super().close()


def _failed(message: str) -> ToolResult:
    return ToolResult("", False, code="FAILED", message=message)
