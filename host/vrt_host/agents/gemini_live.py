"""The agent `gemini`: Gemini Live, over connections that come and go (docs/agents/gemini.md).

Three tasks at most: one holds the connection and reads, one sends, one hands what is said to the port as there is room. Reading
never waits for the device, since an interruption may stand behind a minute of speech. What it all means is `gemini_dialogue`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

from vrt_host.agents import gemini_messages as messages
from vrt_host.agents.base import (
    Abilities,
    Agent,
    AgentError,
    AgentEvent,
    Format,
    Heard,
    Json,
    Port,
    SessionInfo,
    ToolResult,
)
from vrt_host.agents.gemini_dialogue import Dialogue
from vrt_host.agents.gemini_link import Link
from vrt_host.agents.gemini_messages import Frame, Incoming
from vrt_host.agents.gemini_options import Options
from vrt_host.agents.model_tools import ToolNames
from vrt_host.agents.mouth import Mouth
from vrt_host.agents.options import shown
from vrt_host.agents.outbox import INPUT, Outbox
from vrt_host.agents.provider import Backoff, ProviderError
from vrt_host.agents.tasks import Tasks
from vrt_host.errors import AgentStartError

log = logging.getLogger(__name__)

__all__ = ["GeminiLive", "Options"]

OUTPUT = Format("pcm16", messages.OUTPUT_RATE)

_AGAIN = 8
"""Of the messages with audio, the newest that nothing was answered to: an exchange may come between the first words and their notice."""
_MESSAGES = 64
"""Messages to the model that may wait, audio apart."""
_HANDLE_S = 2.0
"""How long an exchange waits for a handle that knows the last answer, too."""
_TICK_S = 0.2
_STALL_S = 0.6
"""No audio for so long: the microphone was switched off."""
_DOUBT_S = 3.0
"""No news for so long after something was dropped: it was the answer, and the question is asked again."""
_STEADY_S = 10.0
"""A connection that ends sooner was of no use: the one after the next waits, longer each time."""
_PATIENCE_S = 12.0
"""A spoken turn that the model says nothing to is over: it may decide that nobody spoke to it."""


class GeminiLive(Agent):
    """One session of the device: one conversation, one connection at a time."""

    name: ClassVar[str] = "gemini"
    abilities: ClassVar[Abilities] = Abilities(interruption="managed", inputs=(INPUT,), outputs=(OUTPUT,))

    def __init__(self, options: Options) -> None:
        self._options = options
        self._speaks = messages.dialect(options)
        self._tasks = Tasks(self.name, self._failed)
        self._link: Link | None = None
        self._handle: tuple[str, int] | None = None
        """By which the model's session is resumed, and how much of the history it knows."""
        self._going = False
        """The server has said that it will close the connection."""
        self._malformed = False
        self._out = Outbox[Frame](self.name, _MESSAGES)
        self._unanswered: deque[bytes] = deque(maxlen=_AGAIN)
        self._streaming = False
        self._mouth = Mouth()
        self._at_rest = asyncio.Event()
        self._handle_news = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = self._news_at = 0.0

    async def start(self, session: SessionInfo, port: Port) -> None:
        """Connect; what the provider refuses is told in one line."""
        self._loop = asyncio.get_running_loop()
        self._port = port
        self._tools = ToolNames(session.tools, messages.function_name)
        self._dialogue = Dialogue(
            self,
            speaks=self._speaks,
            tools=self._tools,
            instructions=self._options.instructions,
            context=session.context,
        )
        try:
            link = await self._open()
        except ProviderError as error:
            raise AgentStartError(self._line(error)) from None
        self._tasks.spawn(self._live(link))
        self._tasks.spawn(self._mouth.talk(self._port))

    async def close(self) -> None:
        """Close the connection."""
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.end()
        if self._link is not None:
            await self._link.close()

    def _failed(self, task: asyncio.Task[Any]) -> None:
        self.emit(AgentError("the agent gemini failed; the host's log says why", recoverable=False))

    # --- what the user and the device do

    def user_text(self, text: str) -> None:
        """`Agent.user_text`."""
        self._dialogue.user_text(text)

    def user_audio(self, payload: bytes) -> None:
        """`Agent.user_audio`."""
        self._out.hear(payload, wanted=not self._dialogue.deaf)
        self._streaming = self._dialogue.hears = True
        self._heard_at = self._loop.time()
        self._watch()
        self._out.news.set()

    def interrupted(self, turn: str, heard: Sequence[Heard]) -> None:
        """`Agent.interrupted`."""
        self._dialogue.interrupted(turn, heard)
        self._moved()

    def tool_result(self, turn: str, result: ToolResult) -> None:
        """`Agent.tool_result`."""
        self._dialogue.tool_result(turn, result)

    def context(self, value: Json) -> None:
        """`Agent.context`."""
        self._dialogue.context(value)

    # --- what the dialogue makes (`gemini_dialogue.Outlet`)

    def emit(self, event: AgentEvent) -> None:
        """To the port, at once."""
        self._port.emit(event)

    def say(self, event: AgentEvent) -> None:
        """To the port, in its order."""
        self._mouth.say(event)

    def hush(self) -> None:
        """Forget what was not said yet."""
        self._mouth.hush()

    def send(self, frame: Frame) -> None:
        """To the model, when there is a connection."""
        self._out.put(frame)

    # --- time

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        if self._streaming and now - self._heard_at >= _STALL_S:
            self._streaming = False
            self.send(messages.AUDIO_END)
        if self._dialogue.waiting and now - self._news_at >= _PATIENCE_S:
            self._dialogue.give_up_waiting()
            self._moved()
        if self._dialogue.doubtful and now - self._news_at >= _DOUBT_S:
            self._dialogue.insist()
            self._moved()
        if self._streaming or self._dialogue.waiting or self._dialogue.doubtful:
            self._watch()

    def _moved(self) -> None:
        """Something changed: is there peace for another connection now?"""
        if self._going and self._dialogue.at_rest:
            self._at_rest.set()

    # --- connections

    async def _live(self, link: Link) -> None:
        """Hold a connection, and another after it."""
        useless, backoff = 0, Backoff()
        while True:
            since = self._loop.time()
            error = await self._hold(link)
            self._link = None
            useless = useless + 1 if self._loop.time() - since < _STEADY_S else 0
            if error is not None:
                self._lost(error, told=useless == 2)
            await link.close()  # first: a session that still has a connection is not resumed on another
            if error is not None and not error.passing:
                return
            if useless > 1:
                await asyncio.sleep(backoff.next(error))
            else:
                backoff.reset()
            renewed = await self._renew(error)
            if renewed is None:
                return
            link = renewed
            if error is None:
                self._out.again(self._unanswered)
            self._unanswered.clear()

    async def _hold(self, link: Link) -> ProviderError | None:
        """Use the connection until it ends, or None: until it is to be exchanged."""
        self._at_rest.clear()
        self._moved()
        sending = self._loop.create_task(self._send(link))
        receiving = self._loop.create_task(self._receive(link))
        exchange = self._loop.create_task(self._peace())
        try:
            # Not for the sender: what came before the end is still to be read.
            await asyncio.wait((receiving, exchange), return_when=asyncio.FIRST_COMPLETED)
            return receiving.result() if receiving.done() else None
        finally:
            for task in (sending, receiving, exchange):
                task.cancel()
            await asyncio.gather(sending, receiving, exchange, return_exceptions=True)

    async def _peace(self) -> None:
        """Wait for a moment in which nothing is lost with the connection, once it is going to end."""
        while True:
            await self._at_rest.wait()
            if not self._resumable():
                self._handle_news.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_HANDLE_S):
                        await self._handle_news.wait()
            if self._dialogue.at_rest:
                return
            self._at_rest.clear()

    def _resumable(self) -> bool:
        """Whether the model's session goes on by its handle with nothing missing."""
        known = self._handle
        return (
            known is not None
            and known[1] == self._dialogue.history.changes
            and not self._dialogue.context_due
        )

    async def _receive(self, link: Link) -> ProviderError:
        while True:
            try:
                message = messages.parse(await link.receive())
            except ProviderError as error:
                if error.kind != "malformed" or not link.alive:
                    return error
                self._report_malformed(error)
                continue
            if message.error is not None:
                return message.error
            if message.malformed:
                self._report_malformed(ProviderError("malformed", message.malformed))
            self._take(message)
            await self._mouth.room()

    def _take(self, message: Incoming) -> None:
        for name in message.unknown:
            log.debug("gemini: a message of an unknown kind, %.40r, was ignored", name)
        self._news_at = self._loop.time()
        if message.heard or message.guess or message.parts or message.calls or message.turn_complete:
            self._unanswered.clear()
        self._dialogue.feed(message)
        if message.resumption is not None:
            handle, resumable = message.resumption
            # What cannot be resumed now, in the midst of an answer, can still be resumed from before it.
            if resumable and handle:
                self._handle = handle, self._dialogue.history.changes
            self._handle_news.set()
        if message.going_s is not None and not self._going:
            self._going = True
            log.info("gemini: the connection ends in %g s; the next is made before that", message.going_s)
        if self._dialogue.waiting or self._dialogue.doubtful:
            self._watch()
        if message.cancelled:
            self._out.news.set()  # it may hear again
        self._moved()

    def _report_malformed(self, error: ProviderError) -> None:
        if not self._malformed:
            self._malformed = True
            log.warning("%s", self._line(error))
            self.emit(error.event(self.name, secrets=self._secrets()))

    async def _send(self, link: Link) -> None:
        """Control first; audio as it has gathered. Ends with the connection."""
        with contextlib.suppress(ProviderError):  # the reader says it, too
            while True:
                while (frame := self._next_frame()) is not None:
                    await link.send(frame)
                if not self._dialogue.deaf and (payload := self._out.chunk()):
                    await link.send(messages.audio(payload))
                    self._unanswered.append(payload)
                    continue
                self._out.news.clear()
                await self._out.news.wait()

    def _next_frame(self) -> Frame | None:
        """The next message that may go now: input waits while the model takes none, and the end of the audio for the audio.

        Results go before all else, for the model may be waiting for them.
        """
        deaf = self._dialogue.deaf or any("toolResponse" in frame for frame in self._out.messages)
        for place, frame in enumerate(self._out.messages):
            if not (deaf and "realtimeInput" in frame) and not (
                frame is messages.AUDIO_END and self._out.audio_bytes
            ):
                del self._out.messages[place]
                return frame
        return None

    def _lost(self, error: ProviderError, *, told: bool = False) -> None:
        """The connection ended by itself. The device is told where that costs it something, or where it is to be `told`."""
        self._out.messages.clear()
        turn = self._dialogue.lost()
        log.log(logging.WARNING if error.passing else logging.ERROR, "%s", self._line(error))
        if turn is not None or told or not error.passing:
            self._tell(error, turn)

    def _tell(self, error: ProviderError, turn: str | None) -> None:
        if turn is not None and error.kind == "gone":  # the connection is tried again, the turn is not
            error = ProviderError("gone", error.said, advice="ask again")
        self.emit(error.event(self.name, turn, self._secrets()))

    async def _renew(self, ended: ProviderError | None) -> Link | None:
        """Another connection, as soon as there is one; None: there will be none."""
        backoff = Backoff()
        told = False
        if ended is not None and ended.kind == "rate":
            await asyncio.sleep(backoff.next(ended))
        while True:
            try:
                return await self._open()
            except ProviderError as error:
                self._out.messages.clear()
                turn = self._dialogue.lost()
                log.log(logging.WARNING if error.passing else logging.ERROR, "%s", self._line(error))
                if turn is not None or not told or not error.passing:
                    told = True
                    self._tell(error, turn)
                if not error.passing:
                    return None
                await asyncio.sleep(backoff.next(error))

    async def _open(self) -> Link:
        """One attempt: the session goes on by its handle if that knows everything, and is begun anew with the history if not."""
        resumed = self._resumable()
        try:
            link, came = await self._connect(
                self._handle[0] if self._handle is not None and resumed else None
            )
        except ProviderError as error:
            if not resumed or error.kind in ("key", "quota", "rate", "unreachable"):
                raise
            log.info("gemini: the session cannot be resumed (%s); it begins anew", self._line(error))
            resumed = False
            link, came = await self._connect(None)
        if not resumed:
            self._handle = None
        self._going = False
        self._out.connected()
        self._dialogue.connected(anew=not resumed)
        for message in came:
            self._take(message)
        self._link = link
        return link

    async def _connect(self, handle: str | None) -> tuple[Link, list[Incoming]]:
        turns = self._dialogue.history.turns() if handle is None else []
        first = [messages.setup(self._options, self._speaks, self._tools, handle=handle, seeded=bool(turns))]
        if turns:
            first.append(messages.content(turns, complete=self._speaks.seeds))
        url, headers = self._options.address()
        return await Link.open(url, headers, first, self._options.connect_timeout_s)

    def _secrets(self) -> tuple[str]:
        return (shown(self._options.api_key),)

    def _line(self, error: ProviderError) -> str:
        return error.line(self.name, self._secrets())
