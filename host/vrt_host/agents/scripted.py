"""The scripted agent: does what a file says on which input. Deterministic; the tool of tests and demonstrations.

One script runs in a session, one list of actions at a time: an input that matches a rule ends the list before.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from vrt_host.agents import base, script
from vrt_host.agents.base import Agent, Json, Port, SessionInfo, ToolResult
from vrt_host.agents.script import OnAudio, OnInterruption, OnResult, OnStart, OnText, Rule, Script, Trigger
from vrt_host.errors import AgentStartError
from vrt_host.speech.codec import Codec, Samples, codec
from vrt_host.speech.resample import resample

log = logging.getLogger(__name__)

TONE_LEVEL = 0.3
CHUNK_S = 0.5
"""Seconds of audio between two looks at whether there is room for more."""
_REARM_MS = 300.0
"""Silence after which a voice counts as a new one."""
_SLOT = re.compile(r"\{(\w+(?:\.\w+)*)\}")


@dataclass(slots=True)
class _Ear:
    """How much voice one rule has heard."""

    on: OnAudio
    voiced: float = 0.0
    silent: float = 0.0
    fired: bool = False

    def hear(self, level: float, ms: float) -> bool:
        """Take in a frame; whether the rule's input has come."""
        on = self.on
        assert on.voiced_ms is not None
        if level >= on.level:
            self.voiced += ms
            self.silent = 0.0
        else:
            self.silent += ms
        due = not self.fired and self.voiced >= on.voiced_ms and self.silent >= on.silence_ms
        if due:
            self.fired = True
        if self.silent >= max(_REARM_MS, on.silence_ms):
            self.voiced = 0.0
            self.fired = False
        return due


@dataclass(slots=True)
class _Run:
    """One list of actions at work. `calls`: what the script calls a call -> the future of its result."""

    turn: str | None
    values: dict[str, Json]
    task: asyncio.Task[None] | None = None
    calls: dict[str, asyncio.Future[ToolResult]] = field(default_factory=dict)
    last_call: str = ""


class ScriptedAgent(Agent):
    """One session of a script."""

    name: ClassVar[str] = "scripted"
    abilities: ClassVar[base.Abilities] = base.Abilities(interruption="truncate")

    def __init__(self, script: Script) -> None:
        self._script = script
        self._keys = itertools.count(1)
        self._fired: Counter[int] = Counter()
        self._ears = {
            place: _Ear(rule.on)
            for place, rule in enumerate(script.rules)
            if isinstance(rule.on, OnAudio) and rule.on.voiced_ms is not None
        }
        self._run: _Run | None = None
        self._newest = ""
        self._replaced: set[str] = set()
        """Turns that a newer one of the script interrupts: that is no input, or it would end the newer one."""
        self._tools: dict[str, str] = {}
        """The agent's key of a call -> the tool's name."""
        self._known: dict[str, Json] = {
            "context": None,
            "texts": 0,
            "audioBytes": 0,
            "heardMs": 0,
            "outcome": "",
        }
        """What texts can name of the session so far."""

    async def start(self, session: SessionInfo, port: Port) -> None:
        """Begin with what the script does at the start; raises `AgentStartError` when that is to refuse."""
        self._port = port
        self._input = session.input
        self._rate = session.output.sample_rate
        self._decoder = codec(session.input.encoding)
        self._encoding = session.output.encoding
        self.context(session.context)
        place = self._first(OnStart, lambda on: on.context in (script.ANY, session.context))
        if place is not None:
            do = self._script.rules[place].do
            if do and isinstance(do[0], script.Refuse):
                raise AgentStartError(do[0].message)
            self._fire(place, {})

    def user_text(self, text: str) -> None:
        """The first rule that matches, or `otherwise`."""
        self._known["texts"] += 1
        for place, rule in enumerate(self._script.rules):
            if not isinstance(rule.on, OnText) or not self._armed(place):
                continue
            match = rule.on.pattern.search(text)
            if match is not None:
                groups = {str(number): group for number, group in enumerate(match.groups(), 1)}
                self._fire(place, {"text": text, **groups, **match.groupdict()})
                return
        self._begin(Rule(OnText(re.compile("")), self._script.otherwise), {"text": text})

    def user_audio(self, payload: bytes) -> None:
        """Count voice for every rule that waits for it."""
        self._known["audioBytes"] += len(payload)
        ready: list[int] = []
        if self._ears:
            samples = self._decoder.decode(payload)
            level = float(np.abs(samples).mean()) if len(samples) else 0.0
            ms = 1000 * len(samples) / self._input.sample_rate
            ready = [place for place, ear in self._ears.items() if ear.hear(level, ms)]
        for place, rule in enumerate(self._script.rules):
            any_frame = isinstance(rule.on, OnAudio) and rule.on.voiced_ms is None and not self._busy
            if (any_frame or place in ready) and self._armed(place):
                self._fire(place, {})
                return

    def interrupted(self, turn: str, heard: Sequence[base.Heard]) -> None:
        """The list that was at work in this turn ends; a rule may say what then."""
        if self._run is not None and self._run.turn == turn:
            self._stop()
        self._known["heardMs"] = sum(one.played_ms for one in heard)
        if turn in self._replaced:
            self._replaced.remove(turn)
            return
        self._fire_first(OnInterruption, lambda on: True, {})

    def tool_result(self, turn: str, result: ToolResult) -> None:
        """To the action that waits for it, or else to a rule. What ended the turn ends the list with it."""
        run = self._run
        tool = self._tools.pop(result.call, "")
        self._known["outcome"] = f"ok {_json(result.output)}" if result.ok else result.code or ""
        dead = result.code in ("INTERRUPTED", "TIMEOUT")
        if run is not None and not (dead and run.turn == turn):
            future = run.calls.get(result.call)
            if future is not None and not future.done():
                future.set_result(result)
                if self._busy:
                    return

        if dead and turn in self._replaced:
            return

        def matches(on: OnResult) -> bool:
            return on.tool in (None, tool) and on.ok in (None, result.ok) and on.code in (None, result.code)

        self._fire_first(OnResult, matches, _values(result), None if dead else turn)

    def context(self, value: Json) -> None:
        """Texts can name it."""
        self._known |= {"context": value, "contextJson": _json(value)}

    async def close(self) -> None:
        """End the list at work."""
        self._stop()

    # --- rules

    @property
    def _busy(self) -> bool:
        return self._run is not None and self._run.task is not None and not self._run.task.done()

    def _armed(self, place: int) -> bool:
        times = self._script.rules[place].times
        return times is None or self._fired[place] < times

    def _fire_first(
        self, kind: type[Trigger], matches: Any, values: dict[str, Json], turn: str | None = None
    ) -> None:
        place = self._first(kind, matches)
        if place is not None:
            self._fire(place, values, turn)

    def _first(self, kind: type[Trigger], matches: Any) -> int | None:
        for place, rule in enumerate(self._script.rules):
            if isinstance(rule.on, kind) and matches(rule.on) and self._armed(place):
                return place
        return None

    def _fire(self, place: int, values: dict[str, Json], turn: str | None = None) -> None:
        self._fired[place] += 1
        self._begin(self._script.rules[place], values, turn)

    def _begin(self, rule: Rule, values: dict[str, Json], turn: str | None = None) -> None:
        """Start a list. In a turn that still lives something is emitted at once, which keeps it alive."""
        self._stop()
        self._run = run = _Run(turn, values)
        if turn is not None:
            self._port.emit(base.TurnState(turn, "thinking"))
        elif rule.turn is not None:
            self._begin_turn(run, rule.turn)
        run.task = asyncio.get_running_loop().create_task(self._work(run, rule))

    def _begin_turn(self, run: _Run, state: Any) -> None:
        if not self._port.idle():
            self._replaced.add(self._newest)
        self._newest = run.turn = f"turn-{next(self._keys)}"
        self._port.emit(base.TurnBegin(run.turn, state))

    def _stop(self) -> None:
        run, self._run = self._run, None
        if run is not None and run.task is not None:
            run.task.cancel()

    async def _work(self, run: _Run, rule: Rule) -> None:
        try:
            await self._do(run, rule.do)
            if run.turn is not None:
                self._port.emit(base.TurnEnd(run.turn))
        except Exception:  # the loop would only tell when the task is collected
            log.exception("the script failed")
            self._port.emit(base.AgentError("the script failed; the host's log says why", turn=run.turn))

    # --- actions

    async def _do(self, run: _Run, actions: Sequence[script.Action]) -> bool:
        """Do a list; False when the turn was ended in it."""
        for action in actions:
            match action:
                case script.Wait():
                    await asyncio.sleep(action.seconds)
                case script.Branch():
                    if not await self._branch(run, action):
                        return False
                case script.BeginTurn():
                    self._begin_turn(run, action.state)
                case script.Fail():
                    turn = run.turn if action.in_turn else None
                    message = self._fill(action.message, run)
                    self._port.emit(base.AgentError(message, action.recoverable, turn, action.code))
                case script.End():
                    if run.turn is not None:
                        self._port.emit(base.TurnEnd(run.turn))
                    return False
                case _:
                    await self._in_turn(run, action)
        return True

    async def _in_turn(self, run: _Run, action: script.Action) -> None:
        """What belongs to a turn; one is begun when there is none."""
        if run.turn is None:
            self._begin_turn(run, "thinking")
        turn = run.turn
        assert turn is not None
        emit = self._port.emit
        match action:
            case script.Say():
                await self._say(run, turn, action)
            case script.Write():
                for place, chunk in enumerate(action.chunks, 1):
                    emit(base.Text(turn, self._fill(chunk, run), place == len(action.chunks)))
            case script.Heard():
                emit(base.Transcript(turn, "user", self._fill(action.text, run), action.final))
            case script.SetState():
                emit(base.TurnState(turn, action.state))
            case script.CallTool():
                self._call(run, turn, action)
            case script.Work():
                key = f"call-{next(self._keys)}"
                arguments = self._fill_all(action.arguments, run)
                emit(base.OwnCall(turn, key, action.tool, arguments))
                for progress in action.progress:
                    emit(base.OwnProgress(turn, key, self._fill_all(progress, run)))
                emit(base.OwnResult(turn, key, action.code))

    async def _say(self, run: _Run, turn: str, action: script.Say) -> None:
        item = f"item-{next(self._keys)}"
        if action.sound is not None:
            self._port.emit(base.AudioBegin(turn, item))
        self._port.emit(base.Transcript(turn, "agent", self._fill(action.text, run), True, item))
        if action.sound is not None:
            samples = _sound(action.sound, self._rate)
            encoder: Codec = codec(self._encoding)
            step = int(CHUNK_S * self._rate)
            for start in range(0, len(samples), step):
                self._port.emit(base.Audio(turn, item, encoder.encode(samples[start : start + step])))
                await self._port.drain()
            self._port.emit(base.AudioEnd(turn, item))

    def _call(self, run: _Run, turn: str, action: script.CallTool) -> None:
        key = f"call-{next(self._keys)}"
        arguments = (
            action.arguments if isinstance(action.arguments, str) else self._fill_all(action.arguments, run)
        )
        if action.stream:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            if action.unfinished:
                text = text[: len(text) // 2]
            self._port.emit(base.CallBegin(turn, key, action.tool))
            for start in range(0, len(text), 8):
                self._port.emit(base.CallDelta(turn, key, text[start : start + 8]))
        if action.unfinished:
            return
        run.calls[key] = future = asyncio.get_running_loop().create_future()
        if action.id is not None:
            run.calls[action.id] = future
        run.last_call = key
        self._tools[key] = action.tool
        self._port.emit(base.Call(turn, key, action.tool, arguments))

    async def _branch(self, run: _Run, action: script.Branch) -> bool:
        result = await run.calls[action.call or run.last_call]
        run.values.update(_values(result))
        cases = action.cases
        for name in ("ok",) if result.ok else (result.code or "", "failed"):
            if name in cases:
                return await self._do(run, cases[name])
        return await self._do(run, action.otherwise)

    # --- texts

    def _fill(self, text: str, run: _Run) -> str:
        """`{name}` becomes what the input or the last result brought under that name; an unknown one stays."""

        def value(match: re.Match[str]) -> str:
            found: Json = {**self._known, **run.values}
            for step in match[1].split("."):
                if not isinstance(found, Mapping) or step not in found:
                    return match[0]
                found = found[step]
            return found if isinstance(found, str) else _json(found)

        return _SLOT.sub(value, text)

    def _fill_all(self, value: Json, run: _Run) -> Any:
        if isinstance(value, str):
            return self._fill(value, run)
        if isinstance(value, list):
            return [self._fill_all(item, run) for item in value]
        if isinstance(value, dict):
            return {name: self._fill_all(item, run) for name, item in value.items()}
        return value


def _values(result: ToolResult) -> dict[str, Json]:
    """What texts can name of a result."""
    return {"output": result.output, "code": result.code or "", "message": result.message}


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _sound(sound: script.Tone | script.Recording, rate: int) -> Samples:
    """Samples at the session's output rate."""
    if isinstance(sound, script.Tone):
        time = np.arange(sound.ms * rate // 1000, dtype=np.float32) / rate
        return (TONE_LEVEL * np.sin(2 * np.pi * sound.hz * time)).astype(np.float32)
    if sound.rate == rate:
        return sound.samples
    return resample(sound.samples, sound.rate, rate)
