"""The device's tools as somebody else's model sees them: under names that its provider allows, and what they answered."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, ItemsView, Iterable

from vrt_host.agents.base import Json, Tool, ToolResult

_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_CHARS = 64


def function_name(name: str, taken: Container[str]) -> str:
    """A name as OpenAI's servers, and those of their dialect, allow it: 64 letters, digits, `_` and `-`."""
    made = base = _NAME.sub("_", name)[:_NAME_CHARS]
    number = 1
    while made in taken:
        number += 1
        made = f"{base[: _NAME_CHARS - 4]}_{number}"
    return made


class ToolNames:
    """Tools under names of their own each, and back."""

    def __init__(
        self, tools: Iterable[Tool], allowed: Callable[[str, Container[str]], str] = function_name
    ) -> None:
        """`allowed(name, taken)` makes a name that the provider allows of the device's; it is none of `taken`."""
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self._tools[allowed(tool.name, self._tools)] = tool

    def own(self, name: str) -> str:
        """The device's name for what the model called; one that it made up stays as it is, and is refused further on."""
        tool = self._tools.get(name)
        return name if tool is None else tool.name

    def items(self) -> ItemsView[str, Tool]:
        """(the provider's name, the tool), in the order of the declaration."""
        return self._tools.items()

    def __contains__(self, name: object) -> bool:
        return name in self._tools


def outcome(result: ToolResult) -> dict[str, Json]:
    """A result as the model is told it."""
    if result.ok:
        return {"ok": True, "output": result.output}
    return {"ok": False, "code": result.code, "message": result.message}
