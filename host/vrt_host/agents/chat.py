"""Any chat model with a voice: speech recognition, a server with OpenAI's `/chat/completions`, and a synthesiser.

The answer is spoken clause by clause while the model still writes it. What it says in a turn and the tools that it calls
go on until it calls none; an interruption ends the request and the voice, and of the answer the conversation keeps what was
heard. See `docs/agents/chat.md`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from vrt_host.agents.base import (
    PCM16_24K,
    PCMU,
    Abilities,
    Agent,
    AgentError,
    Call,
    CallBegin,
    CallDelta,
    Format,
    Heard,
    Json,
    Port,
    SessionInfo,
    Text,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
    TurnState,
)
from vrt_host.agents.chat_ears import Ears
from vrt_host.agents.chat_history import Answer, CallMade, History, output
from vrt_host.agents.chat_model import Busy, ChatModel, Done, Said, Wanted, Writes
from vrt_host.agents.chat_mouth import Mouth
from vrt_host.agents.chat_options import Options
from vrt_host.agents.chat_text import heard
from vrt_host.agents.model_tools import ToolNames
from vrt_host.agents.options import shown
from vrt_host.agents.provider import Backoff, ProviderError
from vrt_host.agents.tasks import Tasks
from vrt_host.errors import AgentStartError, UsageError
from vrt_host.speech import openai_api, parts
from vrt_host.speech.segments import Segments

log = logging.getLogger(__name__)

_SHORTEST_MS = 160
"""Less speech than this is a cough or a door."""
_TRIES = 3
_PATIENCE_S = 5.0
"""No other try begins later than this."""
_ROUNDS = 16
"""Requests to the model in one turn: one that calls tools for ever is stopped."""
_LONGEST_CHARS = 8000
"""Of one answer; one without an end is stopped here."""


@dataclass(slots=True, eq=False)
class _Turn:
    """A turn that may still be alive."""

    key: str
    typed: bool = False
    task: asyncio.Task[Any] | None = None
    voice: asyncio.Task[None] | None = None
    """What speaks the answer."""
    overdue: bool = False
    """A call was not answered in time, and the model does not know."""


@dataclass(slots=True)
class _Open:
    """A call without a result."""

    made: CallMade
    result: asyncio.Future[ToolResult]


class ChatAgent(Agent):
    """One session's conversation."""

    name: ClassVar[str] = "chat"
    abilities: ClassVar[Abilities] = Abilities(
        interruption="cancel",  # what was heard is kept here; nobody else has the conversation
        inputs=(PCM16_24K, PCMU, Format("pcm16", 16_000), Format("pcm16", 8_000)),
        outputs=(PCM16_24K, PCMU, Format("pcm16", 16_000), Format("pcm16", 8_000)),
    )

    backoff = Backoff
    """Waits between tries; tests have their own."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._secrets = [
            shown(secret) for secret in (options.api_key, options.recogniser_key, options.synthesiser_key)
        ]
        self._keys = itertools.count(1)
        self._turns: dict[str, _Turn] = {}
        self._listening: _Turn | None = None
        """The turn of the utterance that is open."""
        self._calls: dict[tuple[str, str], _Open] = {}
        self._tasks = Tasks(self.name, self._failed)
        self._closing: list[Callable[[], Awaitable[None]]] = []
        self._recognising = asyncio.Lock()
        self._works = False
        """The model has answered."""

    @staticmethod
    def prepare(options: Options) -> None:
        """Load what is offline, so that the first session does not wait; raises `UsageError` for what is missing."""
        for name in (options.vad, options.recogniser, options.synthesiser):
            parts.load(name)

    async def start(self, session: SessionInfo, port: Port) -> None:
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._output = session.output
        options = self._options
        try:
            await asyncio.to_thread(self.prepare, options)
            vad = await asyncio.to_thread(parts.vad, options.vad)
            recogniser, self._voice = self._parts()
        except UsageError as error:
            raise AgentStartError(f"chat: {error}") from error
        client = openai_api.client(options.base_url, shown(options.api_key), options.timeout_s)
        self._closing.append(client.close)
        self._names = ToolNames(session.tools)
        request = {
            "model": options.model,
            "temperature": options.temperature,
            "max_tokens": options.max_tokens,
        }
        self._model = ChatModel(
            client,
            self._names,
            {name: value for name, value in request.items() if value is not None},
            options.extra,
        )
        self._history = History(options.instructions, session.context, options.history)
        checks = [self._model.check, recogniser.check, self._voice.check if self._voice else None]
        try:
            await asyncio.gather(*(self._patiently(check) for check in checks if check is not None))
        except ProviderError as error:
            raise AgentStartError(error.line(self.name, self._secrets)) from error
        segments = Segments(vad, silence_ms=options.silence_ms, longest_ms=int(1000 * options.longest_s))
        self._ears = Ears(session.input, segments, recogniser, began=self._on_began, ended=self._on_ended)
        self._hearing = self._tasks.spawn(self._ears.run())

    def _parts(self) -> tuple[parts.Recogniser, parts.Synthesiser | None]:
        """A speech endpoint without an address is the chat server's, and gets its key; no other server does."""
        options = self._options
        recogniser = parts.recogniser(
            options.recogniser,
            url=options.recogniser_url or options.base_url,
            key=shown(options.recogniser_key if options.recogniser_url else options.api_key),
            model=options.recogniser_model,
            language=options.language,
            timeout_s=options.timeout_s,
        )
        voice = parts.synthesiser(
            options.synthesiser,
            url=options.synthesiser_url or options.base_url,
            key=shown(options.synthesiser_key if options.synthesiser_url else options.api_key),
            model=options.synthesiser_model,
            voice=options.voice,
            timeout_s=options.timeout_s,
        )
        self._closing += [
            part.close for part in (recogniser, voice) if part is not None and part.close is not None
        ]
        return recogniser, voice

    async def _patiently(self, check: Callable[[], Awaitable[None]]) -> None:
        backoff, since = self.backoff(), self._loop.time()
        while True:
            try:
                return await check()
            except ProviderError as error:
                await self._again(error, backoff, since)

    async def _again(self, error: ProviderError, backoff: Backoff, since: float) -> None:
        """Wait before the next try, or raise the error when there should be none; the first try began at `since`."""
        wait = backoff.next(error)
        late = self._loop.time() - since + wait > _PATIENCE_S
        if not error.retried or backoff.failures >= _TRIES or late:
            raise error
        log.info("%s (attempt %d)", error.line(self.name, self._secrets), backoff.failures)
        await asyncio.sleep(wait)

    async def close(self) -> None:
        await self._tasks.end()
        await asyncio.gather(*(close() for close in self._closing), return_exceptions=True)

    def _failed(self, task: asyncio.Task[Any]) -> None:
        turn = next((turn.key for turn in self._turns.values() if task in (turn.task, turn.voice)), None)
        message = "the chat agent failed; the host's log says why"
        self._port.emit(AgentError(message, recoverable=task is not self._hearing, turn=turn))

    # --- what the user says

    def user_audio(self, payload: bytes) -> None:
        self._ears.hear(payload)

    def _on_began(self) -> None:
        self._listening = self._begin("listening")

    def _on_ended(self, utterance: parts.Utterance, voiced_ms: int) -> None:
        turn, self._listening = self._listening, None
        if turn is not None and turn.key not in self._turns:
            turn = None  # something else interrupted while the user spoke: it is answered in a new turn
        if voiced_ms < _SHORTEST_MS:
            utterance.cancel()
            if turn is not None:
                self._end(turn)
            return
        if turn is not None:
            self._port.emit(TurnState(turn.key, "thinking"))
        self._tasks.spawn(self._answer_speech(turn, utterance))

    async def _answer_speech(self, turn: _Turn | None, utterance: parts.Utterance) -> None:
        try:
            async with self._recognising:  # one after the other: what was said first is asked first
                text = heard(await utterance.text())
        except ProviderError as error:
            if turn is None or turn.key in self._turns:
                self._fail(turn, error)
            return
        if turn is not None and turn.key not in self._turns:
            if text:  # the user went on after a pause: the model gets both
                self._history.ask(text)
            return
        if not text:
            if turn is not None:
                self._end(turn)
            return
        if turn is None:
            turn = self._begin("thinking")
        turn.task = asyncio.current_task()
        self._port.emit(Transcript(turn.key, "user", text, final=True))
        self._history.ask(text)
        await self._answer(turn)

    def user_text(self, text: str) -> None:
        turn = self._begin("thinking", typed=True)
        self._history.ask(text[:_LONGEST_CHARS])
        turn.task = self._tasks.spawn(self._answer(turn))

    def context(self, value: Json) -> None:
        self._history.context(value)

    # --- what the model says

    async def _answer(self, turn: _Turn) -> None:
        """Ask the model, run what it calls, ask it again, until it calls nothing."""
        try:
            for left in reversed(range(_ROUNDS)):
                calls = await self._round(turn)
                if not calls:
                    if self._written(turn):
                        self._port.emit(Text(turn.key, "", final=True))
                    self._end(turn)
                    return
                results = [await call.result for call in calls]
                if any(result.code == "INTERRUPTED" for result in results):
                    return
                if left:
                    self._port.emit(TurnState(turn.key, "thinking"))
            said = f"the model called tools {_ROUNDS} times in a row"
            self._fail(turn, ProviderError("refused", said, advice="choose another model"))
        except ProviderError as error:
            self._fail(turn, error, said=self._history.said(turn.key))

    def _written(self, turn: _Turn) -> bool:
        return turn.typed or self._voice is None

    async def _round(self, turn: _Turn) -> list[_Open]:
        """One answer of the model, said to its end; the calls in it, issued."""
        turn.overdue = False
        backoff, since = self.backoff(), self._loop.time()
        while True:
            messages = self._history.messages()
            answer = self._history.answer(turn.key, f"item-{next(self._keys)}", shown=self._written(turn))
            mouth = self._mouth(turn, answer)
            try:
                wanted = await self._read(turn, messages, answer, mouth)
            except ProviderError as error:
                if answer.begun:  # what there is of it is said
                    await self._finish(turn, mouth)
                    raise
                if turn.voice is not None:
                    turn.voice.cancel()
                if openai_api.context_too_long(error) and self._history.shorten():
                    log.warning("%s; the older half of it is forgotten", error.line(self.name, self._secrets))
                    continue
                await self._again(error, backoff, since)
                continue
            self._works = True
            calls = self._issue(turn, answer, wanted)
            await self._finish(turn, mouth)
            return calls

    async def _finish(self, turn: _Turn, mouth: Mouth | None) -> None:
        """Wait until the answer is said."""
        if mouth is not None and turn.voice is not None:
            await mouth.finish()
            await turn.voice

    def _mouth(self, turn: _Turn, answer: Answer) -> Mouth | None:
        if self._voice is None:
            return None
        mouth = Mouth(self._port, self._output, self._voice, answer, self._hoarse)
        turn.voice = self._tasks.spawn(mouth.run())
        return mouth

    async def _read(
        self, turn: _Turn, messages: Sequence[dict[str, Any]], answer: Answer, mouth: Mouth | None
    ) -> Sequence[tuple[str, Wanted]]:
        """Hand on what the model says as it comes; its calls, under their keys."""
        keys: dict[int, str] = {}
        length = 0
        async with contextlib.aclosing(self._model.stream(messages)) as stream:
            async for part in stream:
                match part:
                    case Said(text):
                        answer.begun = True
                        length += len(text)
                        if length > _LONGEST_CHARS:
                            log.warning(
                                "chat: an answer of more than %d characters is cut off", _LONGEST_CHARS
                            )
                            return ()
                        if answer.shown:
                            answer.text += text
                            self._port.emit(Text(turn.key, text))
                        if mouth is not None:
                            await mouth.say(text)
                    case Busy():
                        if not answer.begun:
                            self._port.emit(TurnState(turn.key, "thinking"))
                    case Writes(call, delta):
                        answer.begun = True
                        if call.number not in keys:
                            keys[call.number] = f"call-{next(self._keys)}"
                            self._port.emit(
                                CallBegin(turn.key, keys[call.number], self._names.own(call.name))
                            )
                        if delta:
                            self._port.emit(CallDelta(turn.key, keys[call.number], delta))
                    case Done(calls, reason):
                        if not (answer.begun or calls):
                            self._nothing(reason)
                        return [(keys.get(call.number) or f"call-{next(self._keys)}", call) for call in calls]
        return ()

    def _nothing(self, reason: str) -> None:
        """The model neither said nor called anything; raises `ProviderError` where that is no answer of its own."""
        if reason in ("", "stop"):
            log.info("chat: the model said nothing")
            return
        advice = "raise max_tokens" if reason == "length" else "ask again in other words"
        raise ProviderError("refused", f"the model gave no answer ({reason})", advice=advice)

    def _issue(self, turn: _Turn, answer: Answer, wanted: Sequence[tuple[str, Wanted]]) -> list[_Open]:
        """Run the calls of an answer, in order and at once."""
        opened = []
        ids = [call.id for _, call in wanted]
        for key, call in wanted:
            id_ = call.id if call.id and ids.count(call.id) == 1 else key
            made = CallMade(id_, call.name, call.arguments, extra=call.extra)
            answer.calls.append(made)
            opened.append(_Open(made, self._loop.create_future()))
            self._calls[turn.key, key] = opened[-1]
        for key, call in wanted:
            self._port.emit(Call(turn.key, key, self._names.own(call.name), call.arguments))
        return opened

    def tool_result(self, turn: str, result: ToolResult) -> None:
        call = self._calls.pop((turn, result.call), None)
        if call is None:
            return
        call.made.result = output(result, call.made.arguments)
        call.result.set_result(result)
        if result.code == "TIMEOUT" and turn in self._turns:
            self._turns[turn].overdue = True

    def _hoarse(self, error: ProviderError) -> None:
        """The voice does not work: answers are written, and the session goes on."""
        line = error.line(self.name, self._secrets)
        log.warning("%s (the answer is written)", line)
        self._port.emit(AgentError(line, recoverable=True))

    def _fail(self, turn: _Turn | None, error: ProviderError, *, said: bool = False) -> None:
        """Tell what is wrong, and end the turn; what was `said` in it is heard to its end."""
        log.warning("%s", error.line(self.name, self._secrets))
        gone = None if turn is None or said else turn.key
        if turn is not None:
            self._turns.pop(turn.key, None)
        # What is refused once, and was not before, is the matter of this conversation and not of the options.
        recoverable = error.passing or (error.kind == "format" and self._works)
        self._port.emit(AgentError(error.line(self.name, self._secrets), recoverable, gone, error.code))
        if turn is not None and said:
            self._port.emit(TurnEnd(turn.key))

    # --- turns

    def _begin(self, state: Literal["listening", "thinking"], *, typed: bool = False) -> _Turn:
        """A new turn, and the end of all others."""
        for turn in list(self._turns.values()):
            self._forget(turn)
        turn = _Turn(f"turn-{next(self._keys)}", typed)
        self._turns[turn.key] = turn
        self._port.emit(TurnBegin(turn.key, state))
        return turn

    def _end(self, turn: _Turn) -> None:
        """Everything was said."""
        self._turns.pop(turn.key, None)
        self._port.emit(TurnEnd(turn.key))

    def _forget(self, turn: _Turn) -> None:
        """The turn is dead."""
        self._turns.pop(turn.key, None)
        for task in (turn.task, turn.voice):
            if task is not None and task is not asyncio.current_task():
                task.cancel()

    def interrupted(self, turn: str, heard: Sequence[Heard]) -> None:
        self._history.interrupted(turn, {one.item: one.played_ms for one in heard})
        dead = self._turns.get(turn)
        if dead is None:  # it was said to the end, but not heard to the end; or it is we who began another
            return
        self._forget(dead)
        if dead.overdue:  # the host gave up waiting for the device, and closed the turn with it
            again = self._begin("thinking", typed=dead.typed)
            again.task = self._tasks.spawn(self._answer(again))
