"""The embedded agent: hears, understands and speaks offline, over the tools that the device declared.

Audio goes to a `Listener` in a thread; what it reports comes back here, where everything else happens on the event
loop. Each turn that answers is a task. A turn that is dead has its task cancelled, and its events would be dropped by
the turn manager anyway, so nothing of it comes out. See `docs/local.md`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from vrt_host.agents import replies
from vrt_host.agents.base import (
    PCM16_24K,
    PCMU,
    Abilities,
    Agent,
    AgentError,
    Audio,
    AudioBegin,
    AudioEnd,
    Call,
    Format,
    Heard,
    Port,
    SessionInfo,
    Text,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
    TurnState,
)
from vrt_host.agents.intents import Beyond, Command, Intents, Meaning, complete
from vrt_host.agents.tasks import Tasks
from vrt_host.agents.understood import YES_MS, Understood, compare, stopped
from vrt_host.errors import AgentStartError, UsageError
from vrt_host.speech.codec import Codec, Samples, codec
from vrt_host.speech.engines import Engines
from vrt_host.speech.listener import SHORTEST_MS, End, Event, Guess, Listener, Onset, Pause
from vrt_host.speech.mouth import Speech
from vrt_host.speech.resample import Resampler
from vrt_host.speech.tts import SpeechError
from vrt_host.speech.vad import RATE

log = logging.getLogger(__name__)

Trace = Callable[..., None]
"""`trace(name, **fields)` is told when each stage of an answer is done, for measurements."""

_QUEUED_FRAMES = 500
"""Frames of the user's audio that may wait (10 s); beyond that the oldest are dropped."""
_STALL_S = 0.6
"""No audio for so long in the middle of an utterance: the microphone was switched off."""
_AFTER_STALL_S = 2.0
"""How long a yes waits, after which the audio stopped at once, for whatever else was said."""
_ONSET_LAG_S = 1.0
"""The device may notice a voice, and interrupt, so long before its sound is taken for the beginning of an utterance."""
_CONSENT_S = 15.0
"""How long a question of ours waits for its yes."""
_QUICK_S = 0.15
"""A tool that answers sooner is not talked over."""
_AHEAD_S = 0.4
"""How much of a text about a running tool is handed out before it is heard: its end must be able to stop it."""
_CAREFUL_WINDOWS = 8
"""Windows of speech that begin an utterance while the device waits for its button: an utterance would be the end of
that, so a click must not be taken for one."""
_MAX_WARNINGS = 20
_MAX_TEXT = 500
"""Characters of a typed text that are looked at: a sentence of ours is shorter."""

_lock = threading.Lock()
_engines: list[Engines] = []


def engines() -> Engines:
    """The engines of this process, loaded by the first caller (2 s); callable from any thread."""
    with _lock:
        if not _engines:
            _engines.append(Engines(replies.FIXED))
        return _engines[0]


@dataclass(slots=True, eq=False)
class _Turn:
    """A turn of ours that may still be alive."""

    key: str
    typed: bool = False
    task: asyncio.Task[Any] | None = None
    calls: dict[str, tuple[Command, asyncio.Future[ToolResult]]] = field(default_factory=dict)
    overdue: str | None = None
    """What to say of a call that was not answered in time, until it is said."""
    speech: Speech | None = None
    """What is being said."""


@dataclass(slots=True)
class _Question:
    """Commands that wait for an explicit yes."""

    turn: str
    commands: tuple[Command, ...]
    typed: bool
    expires: float = 0.0


class LocalAgent(Agent):
    """One session's share of the engines: a decoder with the grammar of its tools, and its turns."""

    name: ClassVar[str] = "local"
    abilities: ClassVar[Abilities] = Abilities(
        interruption="cancel",  # there is no conversation to truncate
        inputs=(PCM16_24K, PCMU, Format("pcm16", 16_000), Format("pcm16", 8_000)),
        outputs=(PCM16_24K, PCMU, Format("pcm16", 16_000), Format("pcm16", 8_000)),
    )

    def __init__(
        self, trace: Trace = lambda name, **fields: None, load: Callable[[], Engines] = engines
    ) -> None:
        """`load` gives the engines; it is called in a thread."""
        self._trace = trace
        self._load = load
        self._keys = itertools.count(1)
        self._turns: dict[str, _Turn] = {}
        self._listening: _Turn | None = None
        """The turn of the utterance that is open."""
        self._talked_over = False
        """Whether a response was in flight when the utterance began."""
        self._cut_at = float("-inf")
        """When a turn of ours was last interrupted."""
        self._question: _Question | None = None
        self._frames: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._confirmed: deque[int] = deque()
        self._recognised: dict[int, asyncio.Task[Understood]] = {}
        self._prepared: dict[str, Speech] = {}
        self._tasks = Tasks(self.name, self._failed)
        self._dropped = 0

    @staticmethod
    def prepare() -> None:
        """Load the engines now, so that the first session does not wait; raises `UsageError` for what is missing."""
        engines()

    async def start(self, session: SessionInfo, port: Port) -> None:
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._output = session.output
        try:
            self._engines = await asyncio.to_thread(self._load)
            await asyncio.to_thread(self._learn, session)
        except UsageError as error:
            raise AgentStartError(str(error)) from error
        self._hearing = self._tasks.spawn(self._listen())

    def _learn(self, session: SessionInfo) -> None:
        """Make everything that depends on the session's tools and formats. Runs in a thread."""
        self._codec: Codec = codec(session.input.encoding)
        self._resampler = Resampler(session.input.sample_rate, RATE)
        intents = self._intents = Intents(session.tools)
        grammar = intents.pronounce(self._engines.pronouncer.sounds)
        if not intents.examples():
            log.warning("this board declares no tool that can be spoken of: see docs/tools.md")
        for warning in intents.warnings[:_MAX_WARNINGS]:
            log.warning("%s", warning)
        self._listener = Listener(
            self._engines.vad(),
            self._engines.grammar(
                grammar.jsgf, grammar.more, grammar.pronunciations, rate=session.input.sample_rate
            ),
            lambda text: intents.parse(complete(text)) is not None,
        )

    async def close(self) -> None:
        for turn in list(self._turns.values()):
            self._forget(turn)
        self._discard_prepared()
        await self._tasks.end()

    def _failed(self, task: asyncio.Task[Any]) -> None:
        turn = next((turn.key for turn in self._turns.values() if turn.task is task), None)
        message = "the local agent failed; the host's log says why"
        self._port.emit(AgentError(message, recoverable=task is not self._hearing, turn=turn))

    # --- hearing

    def user_audio(self, payload: bytes) -> None:
        if len(self._frames) >= _QUEUED_FRAMES:
            self._frames.popleft()
            self._dropped += 1
            if self._dropped == 1:
                log.warning("speech recognition is slower than speech: the user's audio is dropped")
        self._frames.append(payload)
        self._news.set()

    async def _listen(self) -> None:
        """Feed the listener, in order, one thing at a time."""
        while True:
            stalled = False
            try:
                async with asyncio.timeout(_STALL_S if self._listener.speaking else None):
                    await self._news.wait()
            except TimeoutError:
                stalled = True
            self._news.clear()
            events: list[Event] = []
            while self._confirmed:
                events += self._listener.confirm(self._confirmed.popleft())
            if self._frames:
                payload = b"".join(self._frames)
                self._frames.clear()
                events += await self._loop.run_in_executor(self._engines.listening, self._feed, payload)
            elif stalled:
                events += self._listener.stall()
            for event in events:
                self._on_event(event)

    def _feed(self, payload: bytes) -> list[Event]:
        """Runs in a thread, never twice at once."""
        return self._listener.feed(self._resampler.process(self._codec.decode(payload)))

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Onset):
            self._trace("onset")
            lag = self._loop.time() - self._cut_at
            self._talked_over = not self._port.idle() or lag < _ONSET_LAG_S
            self._discard_prepared()
            self._listening = self._begin("listening")
        elif isinstance(event, Guess):
            self._trace("guess", grammar=event.grammar)
            self._foresee(self._intents.parse(complete(event.grammar)))
        elif isinstance(event, Pause):
            self._trace("pause", grammar=event.grammar)
            self._recognised[event.number] = self._tasks.spawn(self._recognise(event))
        else:
            self._trace("end", agreed=event.pause is not None, grammar=event.grammar)
            self._on_end(event)

    async def _recognise(self, pause: Pause) -> Understood:
        """Ask the free recogniser about the utterance so far; if it agrees, let the utterance end sooner."""
        understood = await self._understand(pause.audio, pause.grammar)
        self._trace("recognised", text=understood.free, agreed=understood.meaning is not None)
        if understood.meaning is not None and not understood.is_yes:  # which may go on: "yes, but ..."
            self._confirmed.append(pause.number)
            self._news.set()
            self._foresee(understood.meaning)
        return understood

    async def _understand(self, audio: Samples, grammar: str) -> Understood:
        return await self._loop.run_in_executor(self._engines.recognising, self._compare, audio, grammar)

    def _compare(self, audio: Samples, grammar: str) -> Understood:
        """Runs in a thread."""
        free = self._engines.free.transcribe(audio, complete(grammar))
        known = self._engines.pronouncer.known
        return compare(self._intents, grammar, free.text, free.against, known, free.others)

    def _foresee(self, meaning: Meaning | None) -> None:
        """Have rendered what will be said first, if all goes well. It is said only if it does."""
        if meaning is None or not meaning.commands:
            return
        first = meaning.commands[0]
        if any(command.asks_aloud for command in meaning.commands):
            text: str | None = replies.question(meaning.commands)
        elif first.asks_device:
            text = replies.ask(first)
        else:
            text = replies.during(first) or replies.foreseen(first)
        if text not in self._prepared:
            self._discard_prepared()
            if text is not None and self._engines.voice is not None:
                self._prepared[text] = self._speech(text)

    def _discard_prepared(self) -> None:
        for speech in self._prepared.values():
            speech.cancel()
        self._prepared.clear()

    def _on_end(self, end: End) -> None:
        turn, self._listening = self._listening, None
        recognised = self._recognised.get(end.pause) if end.pause is not None else None
        self._recognised.clear()
        if turn is None or turn.key not in self._turns:
            # Something else interrupted while the user spoke: what was said is still to be answered, in a new turn.
            turn = None
        else:
            self._port.emit(TurnState(turn.key, "thinking"))
        work = self._answer_speech(turn, end, recognised, self._talked_over)
        if turn is None:
            self._tasks.spawn(work)
        else:
            turn.task = self._tasks.spawn(work)

    async def _answer_speech(
        self,
        turn: _Turn | None,
        end: End,
        recognised: asyncio.Task[Understood] | None,
        talked_over: bool,
    ) -> None:
        understood = await (recognised or self._understand(end.audio, end.grammar))
        if understood.is_yes and (end.voiced_ms > YES_MS or (end.stalled and turn is None)):
            understood = understood.doubted()
        elif understood.is_yes and end.stalled:
            # Whatever comes after all begins another turn, which ends this one.
            await asyncio.sleep(_AFTER_STALL_S)
        self._listener.understood = understood.meaning is not None
        if understood.meaning is None and talked_over:
            understood = stopped(self._intents, end.grammar, understood.free) or understood
        meaning = understood.meaning
        if meaning is None and (end.voiced_ms < SHORTEST_MS or not understood.text):
            if turn is not None:
                self._end(turn)
            return
        if turn is None:
            turn = self._begin("thinking")
            turn.task = asyncio.current_task()
        if understood.text:
            self._port.emit(Transcript(turn.key, "user", understood.text, final=True))
        await self._respond(turn, meaning, understood.beyond, replies.NOT_CAUGHT)

    def user_text(self, text: str) -> None:
        turn = self._begin("thinking", typed=True)
        turn.task = self._tasks.spawn(self._answer_text(turn, text[:_MAX_TEXT]))

    async def _answer_text(self, turn: _Turn, text: str) -> None:
        otherwise = replies.not_understood(self._intents.examples())
        await self._respond(turn, self._intents.parse(text), self._intents.beyond(text), otherwise)

    # --- answering

    async def _respond(
        self, turn: _Turn, meaning: Meaning | None, beyond: Beyond | None, otherwise: str
    ) -> None:
        if meaning is not None:
            await self._answer(turn, meaning)
            return
        if beyond is not None:
            self._question = None  # it was about something else
            otherwise = replies.out_of_range(beyond)
        await self._say(turn, otherwise, last=True)

    async def _answer(self, turn: _Turn, meaning: Meaning) -> None:
        question, self._question = self._question, None
        if meaning.control == "stop":
            self._end(turn)
        elif meaning.control == "help":
            await self._say(turn, replies.can_say(self._intents.examples()), last=True)
        elif meaning.control is not None and (question is None or self._loop.time() > question.expires):
            await self._say(turn, replies.NOTHING_TO_CONFIRM, last=True)
        elif meaning.control == "no":
            await self._say(turn, replies.DROPPED, last=True)
        elif meaning.control == "yes" and question is not None:
            await self._run(turn, question.commands, confirmed=True)
        elif any(command.asks_aloud for command in meaning.commands):
            asked = self._question = _Question(turn.key, meaning.commands, turn.typed)
            asked.expires = self._loop.time() + _CONSENT_S
            asked.expires += await self._say(turn, replies.question(meaning.commands), last=True)
        else:
            await self._run(turn, meaning.commands)

    async def _run(self, turn: _Turn, commands: Sequence[Command], *, confirmed: bool = False) -> None:
        """Issue the calls, in order and at once, and tell of each result as it comes. `confirmed`: the user said yes to them."""
        for command in commands:
            key = f"call-{next(self._keys)}"
            turn.calls[key] = (command, self._loop.create_future())
            self._port.emit(Call(turn.key, key, command.tool.name, command.arguments, confirmed))
        self._trace("call", calls=[(command.tool.name, dict(command.arguments)) for command in commands])
        for number, (command, result) in enumerate(turn.calls.values(), 1):
            if command.asks_device:
                self._listener.activity.onset_windows = _CAREFUL_WINDOWS
                try:
                    await self._say(turn, replies.ask(command), until=result)
                    await result
                finally:
                    del self._listener.activity.onset_windows
            elif (text := replies.during(command)) is not None:
                await asyncio.wait([result], timeout=_QUICK_S)
                await self._say(turn, text, until=result)
            settled = await result
            self._trace("result", ok=settled.ok)
            if settled.code == "INTERRUPTED":
                return
            await self._say(turn, replies.reply(command, settled), last=number == len(commands))

    def tool_result(self, turn: str, result: ToolResult) -> None:
        alive = self._turns.get(turn)
        if alive is None or result.call not in alive.calls:
            return
        command, settled = alive.calls[result.call]
        if result.code == "TIMEOUT":
            alive.overdue = replies.reply(command, result)
        if not settled.done():
            settled.set_result(result)

    async def _say(
        self, turn: _Turn, text: str, *, until: asyncio.Future[ToolResult] | None = None, last: bool = False
    ) -> float:
        """Say a text in a turn, the `last` one before its end; returns the seconds that this takes at the device.

        With `until`, what is not yet handed out when that is done is left out.
        """
        speech = self._prepared.pop(text, None)
        self._discard_prepared()
        if turn.typed or self._engines.voice is None:
            self._port.emit(Text(turn.key, text, final=last))
        seconds = 0.0
        if self._engines.voice is not None:
            turn.speech = speech or self._speech(text)
            try:
                seconds = await self._play(turn, turn.speech, f"item-{next(self._keys)}", until)
            except SpeechError as error:
                log.warning("an answer goes out as text: %s", error)
                if not turn.typed:
                    self._port.emit(Text(turn.key, text, final=last))
        if last:
            self._end(turn)
        return seconds

    async def _play(
        self, turn: _Turn, speech: Speech, item: str, until: asyncio.Future[ToolResult] | None
    ) -> float:
        seconds = 0.0
        heard = self._loop.time()  # when the device will have played what was handed out
        async for clause, final, payload in speech.clauses():
            if until is not None and until.done():
                break
            if not seconds:
                self._trace("audio")
                self._port.emit(AudioBegin(turn.key, item))
            self._port.emit(Transcript(turn.key, "agent", clause, final, item))
            self._port.emit(Audio(turn.key, item, payload))
            length = len(payload) / self._output.bytes_per_second
            seconds += length
            heard = max(heard, self._loop.time()) + length
            if until is None:
                await self._port.drain()
            else:
                await asyncio.wait([until], timeout=max(0.0, heard - _AHEAD_S - self._loop.time()))
        if seconds:
            self._port.emit(AudioEnd(turn.key, item))
        return seconds

    def _speech(self, text: str) -> Speech:
        return Speech(self._engines, text, self._output.encoding, self._output.sample_rate)

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
        if turn.speech is not None:
            turn.speech.cancel()
        if turn.task is not None and turn.task is not asyncio.current_task():
            turn.task.cancel()

    def interrupted(self, turn: str, heard: Sequence[Heard]) -> None:
        if self._question is not None and self._question.turn == turn and not self._question.typed:
            self._question = None  # it was not heard out
        self._cut_at = self._loop.time()
        dead = self._turns.get(turn)
        if dead is None:  # it was said to the end, but not heard to the end
            return
        self._forget(dead)
        if dead.overdue is not None:  # the host gave up waiting for the device, and closed the turn with it
            again = self._begin("thinking", typed=dead.typed)
            again.task = self._tasks.spawn(self._say(again, dead.overdue, last=True))
