"""The scripted agent's file: what to do on which input. `docs/scripted.md` describes it; this reads and checks it.

Every error names the file, the place in it, and what to write there.
"""

from __future__ import annotations

import re
import wave
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from vrt_host.agents import base
from vrt_host.agents.base import Json
from vrt_host.agents.script_json import BadFile, Checked, parse
from vrt_host.errors import UsageError
from vrt_host.speech.codec import Samples, from_pcm16

TurnState = Literal["listening", "thinking", "speaking", "acting"]
STATES = ("listening", "thinking", "speaking", "acting")
CODES = ("INTERRUPTED", "REJECTED", "INVALID", "TIMEOUT", "FAILED")
OUTCOMES = ("ok", "REJECTED", "INVALID", "FAILED", "failed", "otherwise")
"""What a branch can follow. INTERRUPTED and TIMEOUT end the turn, and the list of actions with it."""
MAX_SOUND_MS = 600_000
_CODE = re.compile(r"[A-Z0-9]+(_[A-Z0-9]+)*")

ANY = object()

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
    """A call; `arguments` is the value, or the text as a model could have written it.

    `unfinished`: the model stops in the middle of the arguments, so that there is no call.
    """

    tool: str
    arguments: str | dict[str, Json]
    id: str | None
    stream: bool
    unfinished: bool = False


@dataclass(frozen=True)
class Work:
    """A tool of the agent's own runs: what it reports on the way, and why it failed, if it did."""

    tool: str
    arguments: dict[str, Json]
    progress: tuple[Json, ...]
    code: base.Code | None


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


@dataclass(frozen=True)
class Refuse:
    """Do not start the session."""

    message: str


Action = Say | Write | Heard | CallTool | Work | Refuse | Wait | Branch | SetState | BeginTurn | Fail | End


@dataclass(frozen=True)
class OnStart:
    """The session begins; `context` is what its context has to be, ANY for whatever it is."""

    context: Json = ANY


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
        return _Reader(path.parent).script(parse(data))
    except BadFile as error:
        where = f" {error.where}" if error.where else ""
        raise UsageError(f"{path}:{where} {error.problem}; docs/scripted.md describes the format") from None
    except RecursionError:
        raise UsageError(f"{path}: is nested too deeply; docs/scripted.md describes the format") from None


class _Reader(Checked):
    """Turns checked JSON into a script. `where` is a path such as `rules[0].do[1].call`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def script(self, value: Json) -> Script:
        members = self.object(value, "", required=("rules",), optional=("otherwise", "comment"))
        rules = self.list(members["rules"], "rules", self._rule)
        if "otherwise" not in members:
            return Script(rules)
        return Script(rules, self._actions(members["otherwise"], "otherwise", set()))

    def _rule(self, value: Json, where: str) -> Rule:
        members = self.object(value, where, required=("on", "do"), optional=("times", "turn", "comment"))
        times = members.get("times")
        if times is not None:
            times = self.integer(times, f"{where}.times", 1, 1_000_000)
        turn = members.get("turn", "thinking")
        self.one_of(turn, f"{where}.turn", ("thinking", "listening", "none"))
        on = self._trigger(members["on"], f"{where}.on")
        do = self._actions(members["do"], f"{where}.do", set())
        if any(isinstance(action, Refuse) for action in do) and not (
            isinstance(on, OnStart) and len(do) == 1
        ):
            raise BadFile(f"{where}.do", "refuse stands alone, in a rule for the start")
        return Rule(on, do, times, None if turn == "none" else turn)

    # --- triggers

    def _trigger(self, value: Json, where: str) -> Trigger:
        kind, inner = self.single(value, where, ("start", "text", "audio", "result", "interruption"))
        where = f"{where}.{kind}"
        if kind == "text":
            return OnText(self._text_pattern(inner, where))
        if kind == "audio":
            return self._audio(inner, where)
        if kind == "result":
            return self._result(inner, where)
        if kind == "start" and isinstance(inner, dict):
            return OnStart(self.object(inner, where, required=("context",))["context"])
        if inner is not True:
            raise BadFile(where, "must be true")
        return OnStart() if kind == "start" else OnInterruption()

    def _text_pattern(self, value: Json, where: str) -> re.Pattern[str]:
        if isinstance(value, str):
            return re.compile(rf"\A{re.escape(value)}\Z")
        if not isinstance(value, dict):
            raise BadFile(where, "must be a text, or an object with 'contains' or 'matches'")
        kind, inner = self.single(value, where, ("contains", "matches"))
        text = self.string(inner, f"{where}.{kind}")
        try:
            return re.compile(re.escape(text) if kind == "contains" else text)
        except (re.error, OverflowError, RecursionError) as error:
            raise BadFile(f"{where}.{kind}", f"is not a regular expression: {error}") from None

    def _audio(self, value: Json, where: str) -> OnAudio:
        if value == "any":
            return OnAudio(None)
        members = self.object(value, where, required=("voicedMs",), optional=("silenceMs", "level"))
        return OnAudio(
            self.integer(members["voicedMs"], f"{where}.voicedMs", 1, 60_000),
            self.integer(members.get("silenceMs", 0), f"{where}.silenceMs", 0, 60_000),
            self.number(members.get("level", 0.01), f"{where}.level", 0.0001, 1.0),
        )

    def _result(self, value: Json, where: str) -> OnResult:
        if value is True:
            return OnResult()
        members = self.object(value, where, optional=("tool", "ok", "code"))
        if "tool" in members:
            self.string(members["tool"], f"{where}.tool")
        if "ok" in members:
            self.boolean(members["ok"], f"{where}.ok")
        if "code" in members:
            self.one_of(members["code"], f"{where}.code", CODES)
        return OnResult(members.get("tool"), members.get("ok"), members.get("code"))

    # --- actions

    def _actions(self, value: Json, where: str, calls: set[str]) -> tuple[Action, ...]:
        """`calls`: the ids of the calls before; "" stands for one without an id."""
        return self.list(value, where, lambda action, place: self._action(action, place, calls))

    def _action(self, value: Json, where: str, calls: set[str]) -> Action:
        readers: dict[str, Callable[[Json, str], Action]] = {
            "say": self._say,
            "text": self._write,
            "heard": self._heard,
            "waitMs": lambda ms, place: Wait(self.integer(ms, place, 0, 3_600_000) / 1000),
            "state": lambda state, place: SetState(self.one_of(state, place, STATES)),
            "turn": lambda state, place: BeginTurn(self.one_of(state, place, ("thinking", "listening"))),
            "error": self._error,
            "end": self._end,
            "refuse": lambda message, place: Refuse(self.string(message, place)),
            "work": self._work,
            "call": lambda call, place: self._call(call, place, calls),
            "waitResult": lambda call, place: Branch(self._call_name(call, place, calls), {}),
            "branch": lambda branch, place: self._branch(branch, place, calls),
        }
        kind, inner = self.single(value, where, tuple(readers))
        return readers[kind](inner, f"{where}.{kind}")

    def _say(self, value: Json, where: str) -> Say:
        if isinstance(value, str):
            return Say(value)
        members = self.object(value, where, required=("text",), optional=("toneMs", "toneHz", "wav"))
        text = self.string(members["text"], f"{where}.text")
        if "wav" in members:
            if "toneMs" in members or "toneHz" in members:
                raise BadFile(where, "has both a tone and a WAV file; keep one")
            return Say(text, self._wav(members["wav"], f"{where}.wav"))
        if "toneMs" not in members:
            if "toneHz" in members:
                raise BadFile(where, "has toneHz without toneMs; add how long the tone is")
            return Say(text)
        ms = self.integer(members["toneMs"], f"{where}.toneMs", 1, MAX_SOUND_MS)
        return Say(text, Tone(ms, self.number(members.get("toneHz", 440), f"{where}.toneHz", 20, 4000)))

    def _wav(self, value: Json, where: str) -> Recording:
        path = self._folder / self.string(value, where)
        try:
            with wave.open(str(path), "rb") as file:
                channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
                longest = rate * MAX_SOUND_MS // 1000
                if file.getnframes() > longest:
                    raise BadFile(where, f"{path} is longer than {MAX_SOUND_MS // 60_000} minutes; cut it")
                raw = file.readframes(longest)
        except (OSError, EOFError, ValueError, wave.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            shown = str(path)[:200].encode("unicode_escape").decode()
            raise BadFile(where, f"cannot read {shown}: {reason or 'it ends too early'}") from None
        if width != 2 or not 8_000 <= rate <= 48_000:
            raise BadFile(where, f"{path} must have 16-bit samples at 8,000 to 48,000 Hz")
        frames = np.frombuffer(raw[: len(raw) // (2 * channels) * 2 * channels], "<i2").reshape(-1, channels)
        return Recording(from_pcm16(frames.astype(np.int16)).mean(axis=1).astype(np.float32), rate)

    def _write(self, value: Json, where: str) -> Write:
        if isinstance(value, str):
            return Write((value,))
        chunks = self.list(value, where, self.string)
        if not chunks:
            raise BadFile(where, "must hold at least one chunk")
        return Write(chunks)

    def _heard(self, value: Json, where: str) -> Heard:
        if isinstance(value, str):
            return Heard(value, True)
        members = self.object(value, where, required=("text",), optional=("final",))
        final = self.boolean(members.get("final", True), f"{where}.final")
        return Heard(self.string(members["text"], f"{where}.text"), final)

    def _error(self, value: Json, where: str) -> Fail:
        if isinstance(value, str):
            return Fail(value, "AGENT_ERROR", True, False)
        members = self.object(value, where, required=("message",), optional=("code", "recoverable", "inTurn"))
        code = self.string(members.get("code", "AGENT_ERROR"), f"{where}.code")
        if not _CODE.fullmatch(code):
            raise BadFile(f"{where}.code", "must be upper-case words joined by '_', such as AGENT_ERROR")
        return Fail(
            self.string(members["message"], f"{where}.message"),
            code,
            self.boolean(members.get("recoverable", True), f"{where}.recoverable"),
            self.boolean(members.get("inTurn", False), f"{where}.inTurn"),
        )

    def _end(self, value: Json, where: str) -> End:
        if value is not True:
            raise BadFile(where, "must be true")
        return End()

    def _call(self, value: Json, where: str, calls: set[str]) -> CallTool:
        optional = ("arguments", "raw", "id", "stream", "unfinished")
        members = self.object(value, where, required=("tool",), optional=optional)
        tool = self.string(members["tool"], f"{where}.tool")
        if "raw" in members and "arguments" in members:
            raise BadFile(where, "has both arguments and raw; keep one")
        arguments = members.get("arguments", {})
        if "raw" in members:
            arguments = self.string(members["raw"], f"{where}.raw")
        else:
            self.object_of_any(arguments, f"{where}.arguments", "; use raw for text that is not")
        name = members.get("id")
        if name is not None and not self.string(name, f"{where}.id"):
            raise BadFile(f"{where}.id", "must not be empty")
        stream = self.boolean(members.get("stream", False), f"{where}.stream")
        unfinished = self.boolean(members.get("unfinished", False), f"{where}.unfinished")
        if not unfinished:
            calls.add(name or "")
        return CallTool(tool, arguments, name, stream or unfinished, unfinished)

    def _work(self, value: Json, where: str) -> Work:
        members = self.object(value, where, required=("tool",), optional=("arguments", "progress", "code"))
        arguments = self.object_of_any(members.get("arguments", {}), f"{where}.arguments")
        progress = self.list(members.get("progress", []), f"{where}.progress", lambda one, place: one)
        code = None if "code" not in members else self.one_of(members["code"], f"{where}.code", CODES)
        return Work(self.string(members["tool"], f"{where}.tool"), arguments, progress, code)

    def _branch(self, value: Json, where: str, calls: set[str]) -> Branch:
        members = self.object(value, where, optional=("call", *OUTCOMES))
        call = self._call_name(members.pop("call", True), f"{where}.call", calls)
        cases = {name: self._actions(do, f"{where}.{name}", set(calls)) for name, do in members.items()}
        return Branch(call, cases, cases.pop("otherwise", ()))

    def _call_name(self, value: Json, where: str, calls: set[str]) -> str | None:
        if not calls:
            raise BadFile(where, "waits for a result, but no call stands before it")
        if value is True:
            return None
        name = self.string(value, where)
        if name not in calls:
            raise BadFile(where, f"no call before it has the id {name!r}")
        return name
