"""The tools of boards that the agent of one facade's session may use besides its client's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from vrt_host.agents.base import Json, ToolResult
from vrt_host.lending import Lending, Lent
from vrt_host.tools import MAX_TIMEOUT_MS

MARGIN_MS = 2000
"""More than the board's own time for a call, so that its answer comes first."""


class Borrowed:
    """What can be borrowed when the session opens; a board that comes later is not among it (vRT §5.4: tools stay as declared)."""

    def __init__(self, lending: Lending, *, ask_s: float = 0.0) -> None:
        """`ask_s`: how long the client's user may take to approve a call before the board is asked."""
        self._lending = lending
        self._ask_ms = round(1000 * ask_s)
        self._tools: dict[str, Lent] = {}

    def declarations(self, taken: Collection[str]) -> list[dict[str, Json]]:
        """The declarations for `hello` (decisions 16); a name that is `taken`, or another board's, gets the board's in front."""
        self._tools = {}
        for lent in self._lending.tools():
            name = lent.tool.name
            while name in taken or name in self._tools:
                name = f"{lent.board}.{name}"
            self._tools[name] = lent
        return [self._declared(name, lent) for name, lent in self._tools.items()]

    def get(self, name: str) -> Lent | None:
        """The board's tool of that name, as it was declared."""
        return self._tools.get(name)

    def has(self, name: str) -> bool:
        """Whether that tool is a board's."""
        return name in self._tools

    async def call(self, name: str, arguments: Mapping[str, Json]) -> ToolResult:
        """Have its board run it, if it is there, or there again, with that very tool: it is what the user was asked about."""
        lent = self._tools[name]
        now = self._lending.find(lent.board, lent.tool.name)
        if now is None:
            return ToolResult(
                "",
                False,
                code="FAILED",
                message=f"the board {lent.board} is not connected, or has no such tool now",
            )
        if now.tool != lent.tool:
            return ToolResult(
                "",
                False,
                code="FAILED",
                message=f"the board {lent.board} came back with another tool of that name",
            )
        return await now.lender.call(lent.tool.name, arguments)

    def _declared(self, name: str, lent: Lent) -> dict[str, Json]:
        tool = lent.tool
        made: dict[str, Json] = {
            "name": name,
            "description": f"{tool.description} (on the board {lent.board})".strip(),
            "timeoutMs": min(tool.timeout_ms + self._ask_ms + MARGIN_MS, MAX_TIMEOUT_MS),
            "effect": tool.effect,
        }
        if tool.parameters is not None:
            made["parameters"] = dict(tool.parameters)
        if tool.phrases:
            made["phrases"] = list(tool.phrases)
        return made
