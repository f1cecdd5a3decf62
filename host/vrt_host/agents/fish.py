"""The agent `fish`: a Fish Audio agent, by its wire protocol 0.1.0 over LiveKit (docs/agents/fish.md).

One task lives in the room of one session after the other. What happens there, and what it means, is `fish_dialogue`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from vrt_host.agents import fish_session
from vrt_host.agents.base import (
    Abilities,
    Agent,
    AgentError,
    AgentEvent,
    Heard,
    Json,
    Port,
    SessionInfo,
    ToolResult,
)
from vrt_host.agents.fish_dialogue import Dialogue
from vrt_host.agents.fish_messages import Message
from vrt_host.agents.fish_options import Options
from vrt_host.agents.fish_room import FishRoom, Over
from vrt_host.agents.fish_sound import SOUND, Speech
from vrt_host.agents.options import shown
from vrt_host.agents.provider import Backoff, ProviderError
from vrt_host.agents.tasks import Tasks
from vrt_host.errors import AgentStartError

log = logging.getLogger(__name__)

__all__ = ["FishAgent", "Options"]

ENDED_S = 10.0
"""From `session.ended` to the end of the room (`agentSession.ts`); then we leave."""


class FishAgent(Agent):
    """One session of the device."""

    name: ClassVar[str] = "fish"
    abilities: ClassVar[Abilities] = Abilities(interruption="cancel", inputs=(SOUND,), outputs=(SOUND,))

    backoff = Backoff
    """Waits between sessions; tests have their own."""
    room = FishRoom
    """The same."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._tasks = Tasks(self.name, self._failed)
        self._room: FishRoom | None = None
        self._context: Json = None
        self._wanted = asyncio.Event()
        self._speech = Speech()
        self._closed = False

    async def start(self, session: SessionInfo, port: Port) -> None:
        """Create a session and join it; what Fish refuses is told in one line."""
        self._loop = asyncio.get_running_loop()
        self._port = port
        self._context = session.context
        self._dialogue = Dialogue(self, self._options, session.tools)
        try:
            self._room = await self._open()
        except ProviderError as error:
            raise AgentStartError(self._line(error)) from None
        self._tasks.spawn(self._live(self._room))

    async def close(self) -> None:
        """Hang up."""
        self._closed = True
        self._dialogue.close()
        await self._tasks.end()
        if self._room is not None:
            await self._room.close()

    def _failed(self, task: asyncio.Task[Any]) -> None:
        self.emit(AgentError("the agent fish failed; the host's log says why", recoverable=False))

    # --- what the user and the device do

    def user_text(self, text: str) -> None:
        """`Agent.user_text`."""
        self._dialogue.user_text(text)

    def user_audio(self, payload: bytes) -> None:
        """`Agent.user_audio`; while there is no session, it is lost, but for that somebody speaks."""
        if self._speech.heard(payload):
            self._wanted.set()
        if self._room is not None:
            self._room.hear(payload)

    def interrupted(self, turn: str, heard: Sequence[Heard]) -> None:
        """`Agent.interrupted`."""
        self._dialogue.interrupted(turn)

    def tool_result(self, turn: str, result: ToolResult) -> None:
        """`Agent.tool_result`."""
        self._dialogue.tool_result(turn, result)

    def context(self, value: Json) -> None:
        """`Agent.context`."""
        self._context = value
        self._dialogue.context(value)

    # --- what the dialogue makes (`fish_turn.Outlet`)

    def now(self) -> float:
        """`Outlet.now`."""
        return self._loop.time()

    def emit(self, event: AgentEvent) -> None:
        """To the port."""
        self._port.emit(event)

    def send(self, message: Message) -> None:
        """To the Fish agent."""
        if self._room is not None:
            self._room.send(message)

    def later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """`Outlet.later`."""
        return self._loop.call_later(seconds, lambda: None if self._closed else callback())

    def report(self, error: ProviderError, turn: str | None) -> None:
        """To the log and to the device."""
        log.log(logging.WARNING if error.passing else logging.ERROR, "%s", self._line(error))
        self.emit(error.event(self.name, turn, self._secrets()))

    def ended(self) -> None:
        """`Outlet.ended`."""
        if (room := self._room) is not None:
            self.later(ENDED_S, room.give_up)

    def wanted(self) -> None:
        """There is something to say."""
        self._wanted.set()

    # --- sessions

    async def _live(self, room: FishRoom) -> None:
        """Live in a room, and in another one after it."""
        while True:
            self._room = room
            self._dialogue.joined()
            over = await self._hold(room)
            self._room = None
            self._wanted.clear()
            log.warning("%s", self._line(over.error))
            self._dialogue.over(over)
            await room.close()
            if over.hung_up and not self._dialogue.waiting:
                # Whoever hung up is not called again before there is something to say.
                await self._wanted.wait()
            renewed = await self._renew()
            if renewed is None:
                return
            room = renewed

    async def _hold(self, room: FishRoom) -> Over:
        while True:
            happening = await room.events.get()
            if isinstance(happening, Over):
                return happening
            self._dialogue.feed(happening)

    async def _renew(self) -> FishRoom | None:
        """Another session, as soon as there is one; None: there will be none."""
        backoff, told = self.backoff(), False
        while True:
            try:
                return await self._open()
            except ProviderError as error:
                log.log(logging.WARNING if error.passing else logging.ERROR, "%s", self._line(error))
                if not (told and error.passing):
                    told = True
                    self.emit(error.event(self.name, secrets=self._secrets()))
                if not error.passing:
                    return None
                await asyncio.sleep(backoff.next(error))

    async def _open(self) -> FishRoom:
        ticket = await fish_session.create(self._options, self._context)
        room = self.room()
        try:
            await room.open(ticket, self._options.connect_timeout_s)
        except BaseException:
            await room.close()
            raise
        return room

    def _secrets(self) -> tuple[str, ...]:
        return (shown(self._options.api_key),)

    def _line(self, error: ProviderError) -> str:
        return error.line(self.name, self._secrets())
