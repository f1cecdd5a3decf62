"""The scripted agent's file: what to do on which input. `docs/scripted.md` describes it; this reads and checks it.

Every error names the file, the place in it, and what to write there.
"""

from __future__ import annotations

import json
import re
import wave
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from vrt_host.agents.base import Json
from vrt_host.errors import UsageError
from vrt_host.speech.codec import Samples, from_pcm16

TurnState = Literal["listening", "thinking", "speaking", "acting"]
STATES = ("listening", "thinking", "speaking", "acting")
CODES = ("INTERRUPTED", "REJECTED", "INVALID", "TIMEOUT", "FAILED")
OUTCOMES = ("ok", "REJECTED", "INVALID", "FAILED", "failed", "otherwise")
"""What a branch can follow. INTERRUPTED and TIMEOUT end the turn, and the list of actions with it."""
MAX_FILE = 1 << 20
MAX_SOUND_MS = 600_000
_CODE = re.compile(r"[A-Z0-9]+(_[A-Z0-9]+)*")

# --- what a script says


@dataclass(frozen=True)
class Tone:
    """A sine tone."""

    ms: int
    hz: float


@dataclass(frozen=True, eq=False)
class Recording:
    """A WAV file's sound, mono."""

    samples: Samples
    rate: int


@dataclass(frozen=True)
class Say:
    """Speech: a transcript, and sound when there is any."""

    text: str
    sound: Tone | Recording | None = None


@dataclass(frozen=True)
class Write:
    """Text, in one or more chunks."""

    chunks: tuple[str, ...]


@dataclass(frozen=True)
class Heard:
    """A transcript of the user."""

    text: str
    final: bool


@dataclass(frozen=True)
class CallTool:
    """A call; `arguments` is the value, or the text as a model could have written it."""

    tool: str
    arguments: str | dict[str, Json]
    id: str | None
    stream: bool


@dataclass(frozen=True)
class Wait:
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Branch:
    """Wait for the result of a call (None: the last one), then do what stands under its outcome."""

    call: str | None
    cases: Mapping[str, tuple[Action, ...]]
    otherwise: tuple[Action, ...] = ()


@dataclass(frozen=True)
class SetState:
    """A turn state."""

    state: TurnState


@dataclass(frozen=True)
class BeginTurn:
    """Begin another turn; one still in flight is interrupted."""

    state: Literal["listening", "thinking"]


@dataclass(frozen=True)
class Fail:
    """An error."""

    message: str
    code: str
    recoverable: bool
    in_turn: bool


@dataclass(frozen=True)
class End:
    """End the turn."""


Action = Say | Write | Heard | CallTool | Wait | Branch | SetState | BeginTurn | Fail | End


@dataclass(frozen=True)
class OnStart:
    """The session begins."""


@dataclass(frozen=True)
class OnText:
    """The user typed something that `pattern` finds."""

    pattern: re.Pattern[str]


@dataclass(frozen=True)
class OnAudio:
    """Sound of the user. `voiced_ms` None: any frame; else after so much voice, and then so much silence."""

    voiced_ms: int | None
    silence_ms: int = 0
    level: float = 0.01


@dataclass(frozen=True)
class OnResult:
    """The result of a call for which no action waits. None: any."""

    tool: str | None = None
    ok: bool | None = None
    code: str | None = None


@dataclass(frozen=True)
class OnInterruption:
    """A turn was interrupted."""


Trigger = OnStart | OnText | OnAudio | OnResult | OnInterruption


@dataclass(frozen=True)
class Rule:
    """What to do on which input, at most `times` times in a session."""

    on: Trigger
    do: tuple[Action, ...]
    times: int | None = None
    turn: Literal["listening", "thinking"] | None = "thinking"


@dataclass(frozen=True)
class Script:
    """Rules in order, the first that matches counts; `otherwise` answers a text that none matches."""

    rules: tuple[Rule, ...]
    otherwise: tuple[Action, ...] = field(default=(Write(("The script has no answer to this.",)),))


# --- reading


def load(path: Path) -> Script:
    """The script in a file; raises `UsageError` with the file, the place and what to do."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the script {path}: {error.strerror or error}") from None
    try:
        return _Reader(path.parent).script(_parse(data))
    except _BadScript as error:
        where = f" {error.where}" if error.where else ""
        raise UsageError(f"{path}:{where} {error.problem}; docs/scripted.md describes the format") from None
    except RecursionError:
        raise UsageError(f"{path}: is nested too deeply; docs/scripted.md describes the format") from None


class _BadScript(Exception):
    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem)
        self.where = where
        self.problem = problem


T = TypeVar("T")


def _parse(data: bytes) -> Json:
    if len(data) > MAX_FILE:
        raise _BadScript("", "is larger than 1 MiB")

    def unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        value = dict(pairs)
        if len(value) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise _BadScript("", f"{twice!r} is given twice in one object")
        return value

    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise _BadScript("", f"line {error.lineno} column {error.colno}: not JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise _BadScript("", f"byte {error.start}: not UTF-8; save the file as UTF-8") from None


class _Reader:
    """Turns checked JSON into a script. `where` is a path such as `rules[0].do[1].call`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def script(self, value: Json) -> Script:
        members = self._object(value, "", required=("rules",), optional=("otherwise", "comment"))
        rules = self._list(members["rules"], "rules", self._rule)
        if "otherwise" not in members:
            return Script(rules)
        return Script(rules, self._actions(members["otherwise"], "otherwise", set()))

    def _rule(self, value: Json, where: str) -> Rule:
        members = self._object(value, where, required=("on", "do"), optional=("times", "turn", "comment"))
        times = members.get("times")
        if times is not None:
            times = self._integer(times, f"{where}.times", 1, 1_000_000)
        turn = members.get("turn", "thinking")
        self._one_of(turn, f"{where}.turn", ("thinking", "listening", "none"))
        on = self._trigger(members["on"], f"{where}.on")
        do = self._actions(members["do"], f"{where}.do", set())
        return Rule(on, do, times, None if turn == "none" else turn)

    # --- triggers

    def _trigger(self, value: Json, where: str) -> Trigger:
        kind, inner = self._single(value, where, ("start", "text", "audio", "result", "interruption"))
        where = f"{where}.{kind}"
        if kind == "text":
            return OnText(self._text_pattern(inner, where))
        if kind == "audio":
            return self._audio(inner, where)
        if kind == "result":
            return self._result(inner, where)
        if inner is not True:
            raise _BadScript(where, "must be true")
        return OnStart() if kind == "start" else OnInterruption()

    def _text_pattern(self, value: Json, where: str) -> re.Pattern[str]:
        if isinstance(value, str):
            return re.compile(rf"\A{re.escape(value)}\Z")
        kind, inner = self._single(value, where, ("contains", "matches"))
        text = self._string(inner, f"{where}.{kind}")
        try:
            return re.compile(re.escape(text) if kind == "contains" else text)
        except (re.error, OverflowError, RecursionError) as error:
            raise _BadScript(f"{where}.{kind}", f"is not a regular expression: {error}") from None

    def _audio(self, value: Json, where: str) -> OnAudio:
        if value == "any":
            return OnAudio(None)
        members = self._object(value, where, required=("voicedMs",), optional=("silenceMs", "level"))
        return OnAudio(
            self._integer(members["voicedMs"], f"{where}.voicedMs", 1, 60_000),
            self._integer(members.get("silenceMs", 0), f"{where}.silenceMs", 0, 60_000),
            self._number(members.get("level", 0.01), f"{where}.level", 0.0001, 1.0),
        )

    def _result(self, value: Json, where: str) -> OnResult:
        if value is True:
            return OnResult()
        members = self._object(value, where, optional=("tool", "ok", "code"))
        if "tool" in members:
            self._string(members["tool"], f"{where}.tool")
        if "ok" in members:
            self._boolean(members["ok"], f"{where}.ok")
        if "code" in members:
            self._one_of(members["code"], f"{where}.code", CODES)
        return OnResult(members.get("tool"), members.get("ok"), members.get("code"))

    # --- actions

    def _actions(self, value: Json, where: str, calls: set[str]) -> tuple[Action, ...]:
        """`calls`: the ids of the calls before; "" stands for one without an id."""
        return self._list(value, where, lambda action, place: self._action(action, place, calls))

    def _action(self, value: Json, where: str, calls: set[str]) -> Action:
        readers: dict[str, Callable[[Json, str], Action]] = {
            "say": self._say,
            "text": self._write,
            "heard": self._heard,
            "waitMs": lambda ms, place: Wait(self._integer(ms, place, 0, 3_600_000) / 1000),
            "state": lambda state, place: SetState(self._one_of(state, place, STATES)),
            "turn": lambda state, place: BeginTurn(self._one_of(state, place, ("thinking", "listening"))),
            "error": self._error,
            "end": self._end,
            "call": lambda call, place: self._call(call, place, calls),
            "waitResult": lambda call, place: Branch(self._call_name(call, place, calls), {}),
            "branch": lambda branch, place: self._branch(branch, place, calls),
        }
        kind, inner = self._single(value, where, tuple(readers))
        return readers[kind](inner, f"{where}.{kind}")

    def _say(self, value: Json, where: str) -> Say:
        if isinstance(value, str):
            return Say(value)
        members = self._object(value, where, required=("text",), optional=("toneMs", "toneHz", "wav"))
        text = self._string(members["text"], f"{where}.text")
        if "wav" in members:
            if "toneMs" in members or "toneHz" in members:
                raise _BadScript(where, "has both a tone and a WAV file; keep one")
            return Say(text, self._wav(members["wav"], f"{where}.wav"))
        if "toneMs" not in members:
            if "toneHz" in members:
                raise _BadScript(where, "has toneHz without toneMs; add how long the tone is")
            return Say(text)
        ms = self._integer(members["toneMs"], f"{where}.toneMs", 1, MAX_SOUND_MS)
        return Say(text, Tone(ms, self._number(members.get("toneHz", 440), f"{where}.toneHz", 20, 4000)))

    def _wav(self, value: Json, where: str) -> Recording:
        path = self._folder / self._string(value, where)
        try:
            with wave.open(str(path), "rb") as file:
                channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
                raw = file.readframes(rate * MAX_SOUND_MS // 1000)
        except (OSError, EOFError, ValueError, wave.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            shown = str(path)[:200].encode("unicode_escape").decode()
            raise _BadScript(where, f"cannot read {shown}: {reason or 'it ends too early'}") from None
        if width != 2 or not 8_000 <= rate <= 48_000:
            raise _BadScript(where, f"{path} must have 16-bit samples at 8,000 to 48,000 Hz")
        frames = np.frombuffer(raw[: len(raw) // (2 * channels) * 2 * channels], "<i2").reshape(-1, channels)
        return Recording(from_pcm16(frames.astype(np.int16)).mean(axis=1).astype(np.float32), rate)

    def _write(self, value: Json, where: str) -> Write:
        if isinstance(value, str):
            return Write((value,))
        chunks = self._list(value, where, self._string)
        if not chunks:
            raise _BadScript(where, "must hold at least one chunk")
        return Write(chunks)

    def _heard(self, value: Json, where: str) -> Heard:
        if isinstance(value, str):
            return Heard(value, True)
        members = self._object(value, where, required=("text",), optional=("final",))
        final = self._boolean(members.get("final", True), f"{where}.final")
        return Heard(self._string(members["text"], f"{where}.text"), final)

    def _error(self, value: Json, where: str) -> Fail:
        if isinstance(value, str):
            return Fail(value, "AGENT_ERROR", True, False)
        members = self._object(
            value, where, required=("message",), optional=("code", "recoverable", "inTurn")
        )
        code = self._string(members.get("code", "AGENT_ERROR"), f"{where}.code")
        if not _CODE.fullmatch(code):
            raise _BadScript(f"{where}.code", "must be upper-case words joined by '_', such as AGENT_ERROR")
        return Fail(
            self._string(members["message"], f"{where}.message"),
            code,
            self._boolean(members.get("recoverable", True), f"{where}.recoverable"),
            self._boolean(members.get("inTurn", False), f"{where}.inTurn"),
        )

    def _end(self, value: Json, where: str) -> End:
        if value is not True:
            raise _BadScript(where, "must be true")
        return End()

    def _call(self, value: Json, where: str, calls: set[str]) -> CallTool:
        members = self._object(
            value, where, required=("tool",), optional=("arguments", "raw", "id", "stream")
        )
        tool = self._string(members["tool"], f"{where}.tool")
        if "raw" in members and "arguments" in members:
            raise _BadScript(where, "has both arguments and raw; keep one")
        arguments = members.get("arguments", {})
        if "raw" in members:
            arguments = self._string(members["raw"], f"{where}.raw")
        elif not isinstance(arguments, dict):
            raise _BadScript(f"{where}.arguments", "must be an object; use raw for text that is not")
        name = members.get("id")
        if name is not None and not self._string(name, f"{where}.id"):
            raise _BadScript(f"{where}.id", "must not be empty")
        calls.add(name or "")
        stream = self._boolean(members.get("stream", False), f"{where}.stream")
        return CallTool(tool, arguments, name, stream)

    def _branch(self, value: Json, where: str, calls: set[str]) -> Branch:
        members = self._object(value, where, optional=("call", *OUTCOMES))
        call = self._call_name(members.pop("call", True), f"{where}.call", calls)
        cases = {name: self._actions(do, f"{where}.{name}", set(calls)) for name, do in members.items()}
        return Branch(call, cases, cases.pop("otherwise", ()))

    def _call_name(self, value: Json, where: str, calls: set[str]) -> str | None:
        if not calls:
            raise _BadScript(where, "waits for a result, but no call stands before it")
        if value is True:
            return None
        name = self._string(value, where)
        if name not in calls:
            raise _BadScript(where, f"no call before it has the id {name!r}")
        return name

    # --- JSON

    def _object(
        self, value: Json, where: str, *, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()
    ) -> dict[str, Json]:
        if not isinstance(value, dict):
            raise _BadScript(where, f"must be an object with {_names((*required, *optional))}")
        for name in required:
            if name not in value:
                raise _BadScript(where, f"has no {name!r}; add it")
        for name in value:
            if name not in required and name not in optional:
                raise _BadScript(
                    where, f"has the unknown member {name!r}; known are {_names((*required, *optional))}"
                )
        return dict(value)

    def _single(self, value: Json, where: str, names: tuple[str, ...]) -> tuple[str, Json]:
        members = self._object(value, where, optional=(*names, "comment"))
        members.pop("comment", None)
        if len(members) != 1:
            raise _BadScript(where, f"must have exactly one of {_names(names)}")
        return next(iter(members.items()))

    def _list(self, value: Json, where: str, read: Callable[[Json, str], T]) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise _BadScript(where, "must be a list")
        return tuple(read(item, f"{where}[{place}]") for place, item in enumerate(value))

    def _string(self, value: Json, where: str) -> str:
        if not isinstance(value, str):
            raise _BadScript(where, "must be a text")
        return value

    def _boolean(self, value: Json, where: str) -> bool:
        if not isinstance(value, bool):
            raise _BadScript(where, "must be true or false")
        return value

    def _number(self, value: Json, where: str, least: float, most: float) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise _BadScript(where, f"must be a number from {least:g} to {most:g}")
        return float(value)

    def _integer(self, value: Json, where: str, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _BadScript(where, f"must be a whole number from {least} to {most}")
        return value

    def _one_of(self, value: Json, where: str, allowed: tuple[str, ...]) -> Any:
        if value not in allowed:
            raise _BadScript(where, f"must be one of {_names(allowed)}")
        return value


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(repr(name) for name in names)
