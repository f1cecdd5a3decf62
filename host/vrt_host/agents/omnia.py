"""The agent `omnia`: an agent behind Omnia's facade, over connections that come and go (docs/agents/omnia.md).

What the facade says and what it means is `omnia_dialogue`'s; here are the connection, the microphone, the credential, uploads.
Reading never waits for the device, since an interruption may stand behind a minute of speech.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar
from urllib.parse import quote

from vrt_host.agents import omnia_files
from vrt_host.agents import omnia_messages as messages
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
from vrt_host.agents.dial import GOODBYE_S
from vrt_host.agents.mouth import Mouth
from vrt_host.agents.omnia_credential import RENEWAL_S, WATCH_S, Credential
from vrt_host.agents.omnia_dialogue import Dialogue
from vrt_host.agents.omnia_files import File
from vrt_host.agents.omnia_link import Link
from vrt_host.agents.omnia_messages import (
    Connected,
    Done,
    Failure,
    Incoming,
    Message,
    SessionConfig,
    UploadReady,
)
from vrt_host.agents.omnia_options import Options
from vrt_host.agents.omnia_sender import RATE_S
from vrt_host.agents.omnia_sound import INPUT, OUTPUT, Microphone
from vrt_host.agents.outbox import Outbox
from vrt_host.agents.provider import Backoff, ProviderError
from vrt_host.agents.tasks import Tasks
from vrt_host.errors import AgentStartError

log = logging.getLogger(__name__)

__all__ = ["OmniaAgent", "Options"]

GRACE_S = 15.0
"""How long the facade keeps a realtime session whose connection is gone."""
STALL_S = 0.6
"""No audio for so long: the microphone was switched off."""
_SILENCE = bytes(INPUT.bytes_per_second)
"""A second, by which the facade hears that an utterance has ended: `IsLast` would end the session."""
_MESSAGES = 256
"""Messages to the facade that may wait."""
_ANSWERS = ("tool_result", "tool_call_ack", "tool_call_nack")
_STEADY_S = 10.0
"""A connection that lasted so long, or in which a message was answered, was a good one: the next is made at once."""
_UPLOAD_S = 60.0


class OmniaAgent(Agent):
    """One session of the device: one conversation, one connection at a time."""

    name: ClassVar[str] = "omnia"
    abilities: ClassVar[Abilities] = Abilities(interruption="managed", inputs=(INPUT,), outputs=(OUTPUT,))

    backoff = Backoff
    """Waits between connections; tests have their own."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._credential = Credential(options)
        self._opened_with = self._presented = ""
        """The credential by which the last connection was opened, and the one that the facade has of it now."""
        self._tasks = Tasks(self.name, self._failed)
        self._microphone = Microphone()
        self._link: Link | None = None
        self._max_bytes = messages.MESSAGE_BYTES
        self._parked_until: float | None = None
        self._broken: asyncio.Future[ProviderError | None] | None = None
        self._malformed = False
        self._out = Outbox[Message](self.name, _MESSAGES)
        self._unconfirmed: deque[Message] = deque(maxlen=_MESSAGES)
        """What was said of calls, and may not have arrived."""
        self._waits = self.backoff()
        self._deaf_until = 0.0
        self._stall: asyncio.TimerHandle | None = None
        self._mouth = Mouth()
        self._upload_answer: asyncio.Future[UploadReady | Failure] | None = None
        self._uploading: asyncio.Task[None] | None = None
        self._started = self._closed = False

    async def start(self, session: SessionInfo, port: Port) -> None:
        """Connect; what the facade refuses is told in one line."""
        self._loop = asyncio.get_running_loop()
        self._port = port
        self._dialogue = Dialogue(self, self._options, session.tools, session.context)
        self._started = True
        try:
            link, hello = await self._open()
        except ProviderError as error:
            raise AgentStartError(self._line(error)) from None
        self._link = link
        self._tasks.spawn(self._live(link, hello))
        self._tasks.spawn(self._mouth.talk(self._port))
        if self._credential.renewable:
            self._tasks.spawn(self._watch())

    async def close(self) -> None:
        """Hang up."""
        self._closed = True
        if self._started:
            self._dialogue.close()
        if self._stall is not None:
            self._stall.cancel()
        await self._tasks.end()
        if self._link is not None:
            await self._hang_up(self._link)

    def _failed(self, task: asyncio.Task[Any]) -> None:
        self.emit(AgentError("the agent omnia failed; the host's log says why", recoverable=False))

    # --- what the user and the device do

    def user_text(self, text: str) -> None:
        """`Agent.user_text`."""
        self._dialogue.user_text(text)

    def user_audio(self, payload: bytes) -> None:
        """`Agent.user_audio`."""
        if self._loop.time() < self._deaf_until:
            return
        self._hear(payload)
        if self._stall is not None:
            self._stall.cancel()
        self._stall = self._loop.call_later(STALL_S, self._hear, _SILENCE)

    def _hear(self, payload: bytes) -> None:
        self._out.hear(payload)
        self._out.news.set()

    def interrupted(self, turn: str, heard: Sequence[Heard]) -> None:
        """`Agent.interrupted`."""
        self._dialogue.interrupted(turn, heard)

    def tool_result(self, turn: str, result: ToolResult) -> None:
        """`Agent.tool_result`."""
        self._dialogue.tool_result(turn, result)

    def context(self, value: Json) -> None:
        """`Agent.context`."""
        self._dialogue.sender.context(value)

    # --- what the dialogue makes (`omnia_turn.Outlet`)

    def emit(self, event: AgentEvent) -> None:
        """To the port, at once."""
        self._port.emit(event)

    def say(self, event: AgentEvent) -> None:
        """To the port, in its order."""
        self._mouth.say(event)

    def hush(self) -> None:
        """Forget what was not said yet."""
        self._mouth.hush()

    def send(self, message: Message) -> None:
        """To the facade: now, or when a session that is parked goes on."""
        if self._link is None and self._parked_until is None:
            return
        size = len(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
        if size > self._max_bytes:
            said = f"a message of {size:,} bytes was not sent: the facade takes {self._max_bytes:,}"
            if message["type"] != "tool_result":
                failure = Failure("TOO_LARGE", ProviderError("refused", said, advice="say less at once"))
                take = self._take if message["type"] == "upload_request" else self._dialogue.feed
                self._loop.call_soon(take, failure)
                return
            message = messages.failure(message["tool_result"]["call_id"], f"FAILED: {said}")
        self._out.put(message)

    def cut(self) -> None:
        """Give the connection up, for good."""
        self._break(None)

    def expired(self, error: ProviderError) -> None:
        """The same, because of the credential."""
        self._break(error)

    def _break(self, error: ProviderError | None) -> None:
        if self._broken is not None and not self._broken.done():
            self._broken.set_result(error)

    def later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """`Outlet.later`."""
        return self._loop.call_later(seconds, lambda: None if self._closed else callback())

    def calling(self) -> bool:
        """Whether there is an audio session."""
        return self._microphone.active

    def deaf(self, seconds: float) -> None:
        """No audio for so long; then a new audio session."""
        self._deaf_until = self._loop.time() + seconds
        self._microphone.begin()
        self._out.forget_audio()
        if self._stall is not None:
            self._stall.cancel()

    def report(self, failure: Failure | ProviderError, turn: str | None) -> None:
        """To the log and to the device."""
        error = failure.error if isinstance(failure, Failure) else failure
        log.log(logging.WARNING if error.passing else logging.ERROR, "%s", self._line(error))
        self.emit(failure.event(self.name, turn, self._secrets()))

    def upload(self, files: Sequence[File]) -> None:
        """Begin; `Sender.uploaded` is called at the end."""
        self._uploading = self._tasks.spawn(self._upload(files))

    # --- tasks

    async def _watch(self) -> None:
        """A new credential replaces the connection's, before that expires."""
        while True:
            credential = await self._credential.other(self._presented)
            if self._link is not None:
                self._presented = credential
                self.send(messages.credential_refresh(credential))
            else:
                await asyncio.sleep(WATCH_S)

    async def _upload(self, files: Sequence[File]) -> None:
        media, notes = [], []
        for file in files:
            try:
                media.append(await self._put(file))
            except ProviderError as error:
                self.report(error, None)
                notes.append(f"(The file {file.name} could not be handed over.)")
        self._dialogue.sender.uploaded(media, notes)

    async def _put(self, file: File) -> Message:
        waits = [*RATE_S]
        while isinstance(answer := await self._asked(file), Failure):
            if answer.code == "SESSION_EXPIRED" and self._dialogue.sender.left():
                continue
            if answer.code in ("RATE_LIMITED", "TURN_IN_PROGRESS") and waits:
                await asyncio.sleep(waits.pop(0))
                continue
            small = file.inline() if answer.code == "MEDIA_NOT_ENABLED" else None
            if small is None:
                raise answer.error
            return small
        confirm = self._options.http(
            f"/media/confirm-upload/{quote(answer.upload_id, safe='', errors='replace')}"
        )
        secret, insecure = self._credential.value, self._options.insecure
        ref = await omnia_files.put(file, answer, confirm, secret, insecure=insecure, timeout_s=_UPLOAD_S)
        return file.stored(ref)

    async def _asked(self, file: File) -> UploadReady | Failure:
        """Where the facade wants it, or why nowhere."""
        self._upload_answer = self._loop.create_future()
        self.send(
            messages.upload_request(
                file.name, file.mime_type, len(file.data), session_id=self._dialogue.sender.named
            )
        )
        try:
            async with asyncio.timeout(_UPLOAD_S):
                return await self._upload_answer
        except TimeoutError:
            raise ProviderError("unreachable", f"no answer to an upload within {_UPLOAD_S:g} s") from None

    # --- connections

    async def _live(self, link: Link, hello: Connected) -> None:
        """Hold a connection, and another after it."""
        while True:
            since = self._loop.time()
            self._greeted(link, hello)
            error = await self._hold(link)
            if self._loop.time() - since >= _STEADY_S:
                self._waits.reset()
            self._lost(error)
            closing = self._loop.create_task(self._hang_up(link) if error is None else link.close())
            try:
                renewed = await self._renew(error)
            finally:
                await asyncio.gather(closing, return_exceptions=True)
            if renewed is None:
                return
            link, hello = renewed

    def _greeted(self, link: Link, hello: Connected) -> None:
        self._link, self._max_bytes = link, hello.max_bytes
        self._parked_until = None
        self._malformed = False
        self._out.connected()
        self._out.messages.extendleft(reversed(self._unconfirmed))
        self._unconfirmed.clear()
        if not hello.resumed:
            results = [one["tool_result"] for one in self._out.messages if one["type"] == "tool_result"]
            self._out.messages.clear()
            told = [f"(What a tool gave while the connection was lost: {json.dumps(one)})" for one in results]
            self._dialogue.sender.tell(told)
            self._microphone.begin()
        self._dialogue.connected(hello)

    async def _hold(self, link: Link) -> ProviderError | None:
        """Use the connection until it ends, or None: until it is given up."""
        self._broken = self._loop.create_future()
        sending = self._tasks.spawn(self._send(link))
        receiving = self._loop.create_task(self._receive(link))
        try:
            # Not for the sender: what came before the end is still to be read.
            await asyncio.wait((receiving, self._broken), return_when=asyncio.FIRST_COMPLETED)
            return self._broken.result() if self._broken.done() else receiving.result()
        finally:
            self._broken = None
            for task in (sending, receiving):
                task.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)

    async def _receive(self, link: Link) -> ProviderError:
        while True:
            try:
                self._take(await link.receive())
            except ProviderError as error:
                if error.kind not in ("malformed", "version") or not link.alive:
                    return error
                if isinstance(error, messages.EndError):
                    self._dialogue.feed(Failure("AGENT_ERROR", error))
                elif not self._malformed:
                    self._malformed = True
                    self.report(ProviderError("malformed", error.said), None)
            await self._mouth.room()

    def _take(self, message: Incoming) -> None:
        upload = self._upload_answer
        if (
            upload is not None
            and not upload.done()
            and (isinstance(message, UploadReady) or (isinstance(message, Failure) and message.of_upload))
        ):
            upload.set_result(message)
            return
        reply = self._dialogue.sender.reply
        if isinstance(message, Done) and reply is not None and reply.said is not None:
            self._waits.reset()
        if isinstance(message, SessionConfig) and not self._microphone.configure(message):
            said = f"it wants the user's audio as {message.codec}, {message.sample_rate} Hz, {message.channels} channels"
            self.deaf(float("inf"))
            self.report(ProviderError("refused", said, advice="write to this agent"), None)
        self._dialogue.feed(message)

    async def _send(self, link: Link) -> None:
        """Control first; audio as it has gathered. Ends with the connection."""
        with contextlib.suppress(ProviderError):  # the reader says it, too
            while True:
                while self._out.messages:
                    message = self._out.messages.popleft()
                    if message["type"] in _ANSWERS:
                        self._unconfirmed.append(message)
                    await link.send(message)
                    if message["type"] in ("message", *_ANSWERS):
                        await link.confirm(partial(self._confirmed, message))
                if payload := self._out.chunk():
                    frame = self._microphone.frame(payload, self._dialogue.sender.own)
                    if frame is not None:
                        await link.send_frame(frame)
                    continue
                self._out.news.clear()
                await self._out.news.wait()

    def _confirmed(self, message: Message) -> None:
        """This message has arrived, and all before it."""
        if any(one is message for one in self._unconfirmed):
            while self._unconfirmed.popleft() is not message:
                pass
        self._dialogue.sender.arrived(message)

    def _lost(self, error: ProviderError | None) -> None:
        """The connection has ended."""
        self._link = None
        if self._uploading is not None:
            self._uploading.cancel()
        parked = error is not None and self._microphone.active
        if parked:
            self._parked_until = self._loop.time() + GRACE_S
        else:
            self._unconfirmed += [one for one in self._out.messages if one["type"] in _ANSWERS]
            self._out.messages.clear()
        if error is None:
            error = ProviderError("gone", "the answer was given up")
        else:
            log.log(logging.WARNING if error.passing else logging.ERROR, "%s", self._line(error))
            if self._awaits_credential(error):
                error = ProviderError("gone", error.said, advice="a new credential is waited for")
        self._dialogue.lost(error, parked=parked)

    async def _renew(self, ended: ProviderError | None) -> tuple[Link, Connected] | None:
        """Another connection, as soon as there is one; None: there will be none."""
        waits, error, told = self._waits, ended, False
        while True:
            if error is not None and self._awaits_credential(error):
                if not await self._renewed():
                    self.emit(error.event(self.name, secrets=self._secrets()))
                    return None
            elif error is not None and not error.passing:
                self.emit(error.event(self.name, secrets=self._secrets()))
                return None
            elif error is not None:
                first, wait = not waits.failures, waits.next(error)
                if not first or error.kind == "rate":
                    await asyncio.sleep(wait)
            try:
                return await self._open()
            except ProviderError as failure:
                error = failure
                log.log(logging.WARNING if error.passing else logging.ERROR, "%s", self._line(error))
                if not told and error.passing:
                    told = True
                    self.emit(error.event(self.name, secrets=self._secrets()))

    def _awaits_credential(self, error: ProviderError) -> bool:
        """Whether another credential may mend it."""
        return error.kind in ("expired", "key") and self._credential.renewable

    async def _renewed(self) -> bool:
        """Whether there is a new credential, now or soon."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RENEWAL_S):
                await self._credential.other(self._opened_with)
                return True
        return False

    async def _open(self) -> tuple[Link, Connected]:
        await self._credential.read()
        resume = None
        if self._parked_until is not None and self._loop.time() < self._parked_until:
            resume = self._dialogue.sender.own
        self._opened_with = self._presented = self._credential.value
        try:
            link, hello = await self._dial(resume)
        except ProviderError as error:
            if resume is None or error.kind not in ("format", "model", "refused"):
                raise
            log.info("omnia: the session cannot be resumed (%s); another one begins", self._line(error))
            self._parked_until = None
            link, hello = await self._dial(None)
        return link, replace(hello, resumed=hello.resumed and hello.session_id == resume)

    async def _dial(self, resume: str | None) -> tuple[Link, Connected]:
        url = self._options.address(resume)
        return await Link.open(url, self._credential.value, self._options.connect_timeout_s)

    async def _hang_up(self, link: Link) -> None:
        """An audio session that is over is not to be kept for us."""
        if self._microphone.active:
            with contextlib.suppress(ProviderError, TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    await link.send(messages.HANGUP)
        await link.close()

    def _secrets(self) -> Sequence[str]:
        return tuple(self._credential.seen)

    def _line(self, error: ProviderError) -> str:
        return error.line(self.name, self._secrets())
