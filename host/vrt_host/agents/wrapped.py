"""An agent that stands for another one, and does something more on the way."""

from __future__ import annotations

from collections.abc import Sequence

from vrt_host.agents.base import Agent, Heard, Json, Port, SessionInfo, ToolResult


class Wrapped(Agent):
    """Hands everything on to `agent`; what a subclass does not override stays as it is."""

    def __init__(self, agent: Agent) -> None:
        # Of a class elsewhere, here of the one object.
        self.name = agent.name  # type: ignore[misc]
        self.abilities = agent.abilities  # type: ignore[misc]
        self._agent = agent

    async def start(self, session: SessionInfo, port: Port) -> None:
        """`Agent.start`."""
        await self._agent.start(session, port)

    def user_text(self, text: str) -> None:
        """`Agent.user_text`."""
        self._agent.user_text(text)

    def user_audio(self, payload: bytes) -> None:
        """`Agent.user_audio`."""
        self._agent.user_audio(payload)

    def interrupted(self, turn: str, heard: Sequence[Heard]) -> None:
        """`Agent.interrupted`."""
        self._agent.interrupted(turn, heard)

    def tool_result(self, turn: str, result: ToolResult) -> None:
        """`Agent.tool_result`."""
        self._agent.tool_result(turn, result)

    def context(self, value: Json) -> None:
        """`Agent.context`."""
        self._agent.context(value)

    async def close(self) -> None:
        """`Agent.close`."""
        await self._agent.close()
