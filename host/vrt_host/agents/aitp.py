"""The agent `aitp`: an agent behind an OwlLayer server, by AITP 1.0.0, over connections that come and go (docs/agents/aitp.md).

One task holds the connection and reads, one sends, one hands what is said to the port as there is room, one finds where the user's
speech begins and ends. What it all means is `aitp_dialogue`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from vrt_host import __version__
from vrt_host.agents import aitp_messages as messages
from vrt_host.agents.aitp_dialogue import Dialogue
from vrt_host.agents.aitp_ears import Clip, ears
from vrt_host.agents.aitp_link import Link
from vrt_host.agents.aitp_messages import AitpError, Frame, HandshakeAck, Message, SystemEvent
from vrt_host.agents.aitp_options import Options
from vrt_host.agents.aitp_page import Page
from vrt_host.agents.aitp_sound import recording
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
from vrt_host.agents.mouth import Mouth
from vrt_host.agents.options import shown
from vrt_host.agents.outbox import CHUNK_BYTES, INPUT, Outbox
from vrt_host.agents.provider import ProviderError
from vrt_host.agents.tasks import Tasks
from vrt_host.errors import AgentStartError, UsageError
from vrt_host.speech import parts

log = logging.getLogger(__name__)

__all__ = ["Aitp", "Options"]

OUTPUT = Format("pcm16", messages.OUTPUT_RATE)

_MESSAGES = 512
"""Messages to the server that may wait, audio apart."""
_TICK_S = 0.1
_STALL_S = 0.5
"""No audio for so long: the microphone was switched off."""
_SHORTEST_MS = 160
"""Of speech; less is a noise."""
_STEADY_S = 10.0
"""A connection that ends sooner, and on which nothing was answered, was one more failed attempt."""
_REPEATED_S = 10.0
"""The same error is told once in so long: a server without voice complains of each piece of audio."""
_LINES = 16
"""So many different ones are told in that time, and no more."""


class Aitp(Agent):
    """One session of the device: one conversation, one connection at a time."""

    name: ClassVar[str] = "aitp"
    abilities: ClassVar[Abilities] = Abilities(interruption="cancel", inputs=(INPUT,), outputs=(OUTPUT,))

    pause = staticmethod(asyncio.sleep)
    """Waits before an attempt to connect again; tests have their own."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._tasks = Tasks(self.name, self._failed)
        self._link: Link | None = None
        self._malformed = False
        self._out = Outbox[tuple[str, Frame]](self.name, _MESSAGES)
        self._unconfirmed: deque[Frame] = deque()
        """What the user said, and no sign has come that the server has it."""
        self._repeated: Sequence[Frame] = ()
        """What of it is sent for the second time, which is the last: the server may be ending because of it."""
        self._attempts = 0
        """To connect, since there was a connection that was of use."""
        self._mic_at = 0.0
        self._heard_bytes = 0
        """Of audio since the user began to speak."""
        self._before_end = 0
        """Of audio that goes before the end of the speech that waits."""
        self._streaming = False
        self._deaf = self._deaf_told = False
        self._mouth = Mouth()
        self._timer: asyncio.TimerHandle | None = None
        self._over = False
        self._told: dict[str, float] = {}
        """When the last lines were told."""

    @staticmethod
    def prepare(options: Options) -> None:
        """Load the detector of speech; raises `UsageError` for what is missing."""
        if options.vad != "server":
            parts.load(options.vad)

    async def start(self, session: SessionInfo, port: Port) -> None:
        """Connect and shake hands; what the server refuses is told in one line."""
        self._loop = asyncio.get_running_loop()
        self._port = port
        self._page = Page(session.tools, session.context)
        self._dialogue = Dialogue(
            self,
            session.tools,
            pending_results=self._options.pending_results,
            ears=self._options.vad != "server",
        )
        self._ears = None
        try:
            if self._options.vad != "server":
                await asyncio.to_thread(self.prepare, self._options)
                vad = await asyncio.to_thread(parts.vad, self._options.vad)
                self._ears = ears(
                    session.input, vad, self._options, began=self._on_began, ended=self._on_ended
                )
            link = await self._open()
        except UsageError as error:
            raise AgentStartError(f"aitp: {error}") from error
        except AitpError as error:
            advice = "try again" if error.kind == "gone" else error.advice  # the device may: nobody else does
            raise AgentStartError(self._line(AitpError(error.kind, error.said, advice=advice))) from None
        self._tasks.spawn(self._live(link))
        self._tasks.spawn(self._mouth.talk(self._port))
        if self._ears is not None:
            self._tasks.spawn(self._ears.run())

    async def close(self) -> None:
        """Close the connection."""
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.end()
        if self._link is not None:
            await self._link.close()

    def _failed(self, task: asyncio.Task[Any]) -> None:
        self._end(AgentError("the agent aitp failed; the host's log says why", recoverable=False))

    def _end(self, event: AgentError) -> None:
        """The session is over."""
        if not self._over:
            self._over = True
            self.emit(event)

    # --- what the user and the device do

    def user_text(self, text: str) -> None:
        """`Agent.user_text`."""
        self._dialogue.user_text(text)
        self._watch()

    def user_audio(self, payload: bytes) -> None:
        """`Agent.user_audio`."""
        if self._deaf:
            if not self._deaf_told:
                self._deaf_told = True
                self.report("the server takes no audio", advice="type, or choose a server with audio")
            return
        self._mic_at = self._loop.time()
        self._streaming = True
        self._heard_bytes += len(payload)
        if self._ears is not None:
            self._ears.hear(payload)
        if self._options.voice == "message":
            return
        self._out.hear(payload)
        if self._out.audio_bytes >= CHUNK_BYTES:  # ten messages in a second: a server takes a hundred
            self._out.news.set()
        self._watch()

    def _on_began(self) -> None:
        self._heard_bytes = 0
        self._dialogue.speech_began()
        self._watch()

    def _on_ended(self, utterance: parts.Utterance, voiced_ms: int) -> None:
        seconds = self._heard_bytes / INPUT.bytes_per_second
        if voiced_ms < _SHORTEST_MS:
            self._dialogue.speech_ended(None)
            return
        said: Frame | None = None
        if self._options.voice == "message" and isinstance(utterance, Clip):
            content = messages.encoded(recording(utterance.pcm(), INPUT.sample_rate))
            said = {"modality": "audio", "content": content, "mimeType": "audio/wav"}
        if self._loop.time() - self._mic_at >= _STALL_S:
            self._dialogue.speech_ended("user_stop", said)
        else:
            self._dialogue.speech_ended("timeout" if seconds >= self._options.longest_s - 1 else "vad", said)
        self._watch()

    def interrupted(self, turn: str, heard: Sequence[Heard]) -> None:
        """`Agent.interrupted`."""
        self._dialogue.interrupted(turn, heard)
        self._watch()

    def tool_result(self, turn: str, result: ToolResult) -> None:
        """`Agent.tool_result`."""
        self._dialogue.tool_result(turn, result)
        self._watch()

    def context(self, value: Json) -> None:
        """`Agent.context`; many changes at once are one message, which goes out before all that waits."""
        self._page.change(value)
        self._out.news.set()

    # --- what the dialogue makes (`aitp_turn.Outlet`)

    def now(self) -> float:
        """Seconds."""
        return self._loop.time()

    def idle(self) -> bool:
        """Whether nothing is in flight at the device."""
        return self._mouth.silent and self._port.idle()

    def emit(self, event: AgentEvent) -> None:
        """To the port, at once."""
        self._port.emit(event)

    def say(self, event: AgentEvent) -> None:
        """To the port, in its order."""
        self._mouth.say(event)

    def hush(self) -> None:
        """Forget what was not said yet."""
        self._mouth.hush()

    def reopen(self, turn: str) -> bool:
        """Its end was not said yet, and is not."""
        return self._mouth.reopen(turn)

    def send(self, type_: str, payload: Frame) -> None:
        """To the server, when it is there."""
        if type_ == "VOICE_INPUT_END":
            self._before_end = self._out.audio_bytes
        self._out.put((type_, payload))

    def report(
        self, text: str, turn: str | None = None, *, final: bool = False, advice: str | None = None
    ) -> None:
        """What is wrong: one line, to the log and to the device."""
        error = AitpError("refused", text, final=final, advice=advice)
        line = self._line(error)
        now = self.now()
        self._told = {said: when for said, when in self._told.items() if now - when < _REPEATED_S}
        repeated = line in self._told or len(self._told) >= _LINES
        if repeated and turn is None and not final:
            return
        if final or not repeated:
            self._told[line] = now
            log.log(logging.ERROR if final else logging.WARNING, "%s", line)
        if final:
            self._end(self._event(error))
        else:
            self.emit(self._event(error, turn))

    def note(self, text: str, advice: str) -> None:
        """What the server says, for the log."""
        log.info("%s", self._line(AitpError("refused", text, advice=advice)))

    def soon(self, work: Callable[[], None]) -> None:
        """After what was emitted so far has taken effect."""
        self._loop.call_soon(work)

    def context_changed(self) -> None:
        """The server has to be told the context again."""
        self._page.due = True
        self._out.news.set()

    # --- time

    def _watch(self) -> None:
        if self._timer is None and (self._dialogue.waiting or self._streaming):
            self._timer = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._streaming and self.now() - self._mic_at >= _STALL_S:
            self._streaming = False
            if self._ears is None:
                self._dialogue.speech_ended("user_stop")
        self._dialogue.tick()
        if self._out.audio_bytes:
            self._out.news.set()
        self._watch()

    # --- connections

    async def _live(self, link: Link) -> None:
        """Hold a connection, and another after it."""
        while not self._over:
            since = self.now()
            error = await self._hold(link)
            if self.now() - since >= _STEADY_S:
                self._attempts = 0
            self._link = None
            self._lost(error)
            closing = self._loop.create_task(link.close())
            try:
                renewed = None if error.final or self._over else await self._renew()
            finally:
                await asyncio.gather(closing, return_exceptions=True)
            if renewed is None:
                return
            link = renewed

    async def _hold(self, link: Link) -> AitpError:
        """Use the connection until it ends."""
        sending = self._tasks.spawn(self._send(link))
        try:
            return await self._receive(link)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _receive(self, link: Link) -> AitpError:
        while True:
            try:
                message = messages.parse(await link.receive())
            except AitpError as error:
                if error.kind != "malformed":
                    return error
                self._report_malformed(error)
                continue
            if message is not None and not isinstance(message, HandshakeAck):
                self._take(message)
            if self._over:
                return AitpError("refused", "the session is over", final=True)
            await self._mouth.room()

    def _take(self, message: Message) -> None:
        if not isinstance(message, SystemEvent):
            self._attempts = 0
        self._dialogue.feed(message)
        self._watch()

    def _report_malformed(self, error: AitpError) -> None:
        """Once a connection."""
        if not self._malformed:
            self._malformed = True
            log.warning("%s", self._line(error))
            self.emit(self._event(error))

    async def _send(self, link: Link) -> None:
        """The context first, then control, then audio as it has gathered. Ends with the connection."""
        with contextlib.suppress(ProviderError):  # the reader says it, too
            while True:
                if self._page.due:
                    update = self._page.update(self._dialogue.history.before())
                    await link.send(messages.message("CONTEXT_UPDATE", update, link.session))
                elif self._out.messages and not (self._in_speech and self._out.audio_bytes):
                    await self._send_frame(link)
                elif self._out.audio_bytes:
                    await self._send_audio(link)
                else:
                    self._out.news.clear()
                    await self._out.news.wait()

    @property
    def _in_speech(self) -> bool:
        """Whether the end of the speech is next, and not all of that is out. What the user says after it does not delay it."""
        return self._out.messages[0][0] == "VOICE_INPUT_END" and self._before_end > 0

    async def _send_frame(self, link: Link) -> None:
        type_, payload = self._out.messages.popleft()
        if type_ == "USER_INPUT":  # what may not have arrived is sent again on the next connection
            self._unconfirmed.append(payload)
        await link.send(messages.message(type_, payload, link.session))
        if type_ == "USER_INPUT":
            await link.confirmed(self._unconfirmed.popleft)

    async def _send_audio(self, link: Link) -> None:
        payload = self._out.chunk()
        self._before_end -= len(payload)
        sound = {"data": messages.encoded(payload), "mimeType": messages.sound_type(INPUT.sample_rate)}
        await link.send(messages.message("AUDIO_STREAM", sound, link.session))
        if self._out.audio_bytes < CHUNK_BYTES and not (self._out.messages or self._page.due):
            self._out.news.clear()
            self._watch()
            await self._out.news.wait()

    def _lost(self, error: AitpError) -> None:
        """The connection ended by itself. The device is told where that costs it something."""
        if self._over:
            return
        again = [said for said in self._unconfirmed if all(said is not one for one in self._repeated)]
        waiting = [payload for type_, payload in self._out.messages if type_ == "USER_INPUT"]
        self._repeated, self._unconfirmed = again, deque()
        self._out.messages.clear()
        turn = self._dialogue.lost([*again, *waiting])
        log.log(logging.ERROR if error.final else logging.WARNING, "%s", self._line(error))
        if error.final:
            self._end(self._event(error))
        elif turn is not None:  # the connection is tried again, the turn is not
            self.emit(self._event(AitpError(error.kind, error.said, advice="ask again"), turn))

    async def _renew(self) -> Link | None:
        """Another connection; each attempt waits for longer. None: there will be none."""
        options = self._options
        while self._attempts < options.reconnect_attempts:
            self._attempts += 1
            await self.pause(options.reconnect_delay_ms * self._attempts / 1000)
            try:
                return await self._open()
            except AitpError as error:
                log.log(logging.ERROR if error.final else logging.WARNING, "%s", self._line(error))
                if error.final:
                    self._end(self._event(error))
                    return None
                turn = self._dialogue.unreachable()
                if turn is not None:
                    self.emit(self._event(error, turn))
        said = f"the connection is gone, and {options.reconnect_attempts} attempts brought none that lasts"
        self._end(self._event(AitpError("gone", said, final=True, advice="see why the server ends them")))
        return None

    async def _open(self) -> Link:
        """One attempt."""
        url, headers = self._options.address()
        first = messages.handshake(shown(self._options.api_key), __version__)
        link, ack, came = await Link.open(url, headers, first, self._options.connect_timeout_s)
        self._link = link
        self._malformed = False
        self._out.connected()
        self._told.clear()
        self._deaf = "audio" not in ack.capabilities
        self._page.heed(ack)
        self._out.news.set()
        self._dialogue.connected()
        for message in came:
            self._take(message)
        return link

    def _secrets(self) -> tuple[str]:
        return (shown(self._options.api_key),)

    def _line(self, error: AitpError) -> str:
        return error.line(self.name, self._secrets())

    def _event(self, error: AitpError, turn: str | None = None) -> AgentError:
        return error.event(self.name, turn, self._secrets())
