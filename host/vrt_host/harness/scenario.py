"""Scenario files: what the host says, what the wire does, what the device must answer (docs/harness.md).

    scenario = load(find("late-call"))         a shipped one by its name, or a path
    scenario.steps[0].verb, .value, .place     place: `steps[0]`, for messages

The structure is `scenario.schema.json`'s business, the sense of it this module's. A mistake is a `UsageError` in one
line with its place: `mine.json: steps[3].expect.end: ...`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from vrt_host.agents.script_json import BadFile, parse
from vrt_host.conformance.checks import Check, Level
from vrt_host.errors import UsageError
from vrt_host.resources import root

SHIPPED: Final = Path(__file__).with_name("scenarios")
CHECKING: Final = frozenset({"expect", "never", "count"})
COMING: Final = frozenset({"open", "resume", "refuse"})
KINDS: Final = ("result", "results", "message", "event", "end")
"""What an expectation may look for."""
_BELONGS: Final[Mapping[str, frozenset[str]]] = {
    "check": CHECKING | COMING,
    "section": CHECKING | COMING,
    "within": frozenset({"expect"}),
    "for": frozenset({"never", "count"}),
    "is": frozenset({"count"}),
    "unsaid": frozenset({"call", "interrupted", "say"}),
    "padTo": frozenset({"say"}),
}
"""Which members go with which verbs."""
_TOLD: Final = 300
"""Characters of a mistake."""
_TOOLS: Final = {"house": "tools.py", "conformance": "conformance.py"}


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its verb with the value, and the members beside it (`more`)."""

    place: str
    verb: str
    value: Any
    more: Mapping[str, Any]
    check: Check | None

    @property
    def does_something(self) -> bool:
        """Whether the time of later expectations begins with it."""
        return self.verb not in CHECKING


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario file, checked."""

    name: str
    title: str
    why: str
    section: str
    steps: tuple[Step, ...]
    tools: Path
    needs: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    heap: str = "192k"

    @property
    def checks(self) -> tuple[Check, ...]:
        """What it settles, in order."""
        return tuple(step.check for step in self.steps if step.check is not None)


def shipped() -> list[Path]:
    """The scenarios that come with the product, by name."""
    return sorted(SHIPPED.glob("*.json"))


def find(word: str) -> Path:
    """The file that a word on the command line means: a path, or the name of a shipped scenario."""
    known = {path.stem: path for path in shipped()}
    path = Path(word)
    if word in known and not path.is_file():
        return known[word]
    if not path.is_file():
        raise UsageError(f"{word} is no file and no shipped scenario; --list shows those")
    return path


def load(path: Path) -> Scenario:
    """Read a scenario file."""
    try:
        return _read(path, parse(path.read_bytes()))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except BadFile as bad:
        where = f"{bad.where}: " if bad.where else ""
        raise UsageError(f"{path.name}: {where}{bad.problem}") from None


def _read(path: Path, value: Any) -> Scenario:
    wrong = best_match(_validator().iter_errors(value))
    if wrong is not None:
        raise _told(wrong)
    name = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "scenario"
    steps = tuple(_step(name, value["section"], f"steps[{n}]", step) for n, step in enumerate(value["steps"]))
    device = value.get("device", {})
    made = Scenario(
        name,
        value["title"],
        value["why"],
        value["section"],
        steps,
        _tools(path, device),
        tuple(device.get("needs", ())),
        device.get("config", {}),
        device.get("heap", "192k"),
    )
    _check_sense(made)
    return made


def _step(name: str, section: str, place: str, value: Mapping[str, Any]) -> Step:
    verbs = [member for member in value if member in _verbs()]
    if len(verbs) != 1:
        raise BadFile(place, f"must have exactly one of {', '.join(sorted(_verbs()))}")
    verb = verbs[0]
    more = {member: value[member] for member in value if member not in {verb, "comment"}}
    for member in more:
        if verb not in _BELONGS[member]:
            raise BadFile(
                place, f"{member!r} goes with {' or '.join(sorted(_BELONGS[member]))}, not {verb!r}"
            )
    if verb in CHECKING:
        if "check" not in more:
            raise BadFile(place, f"{verb!r} needs 'check': what holds when it passes")
        if sum(kind in value[verb] for kind in KINDS) != 1:
            raise BadFile(f"{place}.{verb}", f"must have exactly one of {', '.join(KINDS)}")
        if "results" in value[verb] and verb != "expect":
            raise BadFile(f"{place}.{verb}", "'results' goes with 'expect' alone")
        if verb == "count" and "is" not in more:
            raise BadFile(place, "'count' needs 'is': how many there must be")
    check = None
    if "check" in more:
        slug = re.sub(r"[^a-z0-9]+", "-", more["check"].lower()).strip("-")
        check = Check(f"harness.{name}.{slug}", more.get("section", section), Level.MUST, more["check"])
    return Step(place, verb, value[verb], more, check)


def _check_sense(scenario: Scenario) -> None:
    """What no schema can say."""
    calls: set[str] = set()
    ids: set[str] = set()
    is_open = False
    for step in scenario.steps:
        if step.check is not None:
            if step.check.id in ids:
                raise BadFile(f"{step.place}.check", "is another check's text, too")
            ids.add(step.check.id)
        if step.verb == "open":
            is_open = True
        elif not is_open and step.verb in _NEEDS_SESSION:
            raise BadFile(step.place, f"{step.verb!r} comes before 'open'")
        if step.verb == "call":
            if step.value["as"] in calls:
                raise BadFile(f"{step.place}.call.as", f"there is a call {step.value['as']!r} already")
            calls.add(step.value["as"])
        for where, name in _named(step):
            if name not in calls:
                raise BadFile(f"{step.place}.{where}", f"there is no call {name!r} before it")
    if not ids:
        raise BadFile("steps", "check nothing; add a step with 'expect'")


_NEEDS_SESSION: Final = frozenset(
    {"resume", "turn", "state", "call", "again", "interrupted", "audio", "say", "frame", "close", "acks", "pongs"}
)  # fmt: skip


def _named(step: Step) -> Iterator[tuple[str, str]]:
    """The calls that a step refers to, and where."""
    if step.verb == "again":
        yield "again", step.value
    elif step.verb in CHECKING:
        if "result" in step.value:
            yield f"{step.verb}.result", step.value["result"]
        for name in step.value.get("results", ()):
            yield f"{step.verb}.results", name
        for name in re.findall(r'"\$([^"]*)"', json.dumps(step.value.get("with", {}))):
            yield f"{step.verb}.with", name


def _tools(path: Path, device: Mapping[str, Any]) -> Path:
    try:
        return tools(device.get("tools", "house"), path.parent)
    except UsageError as error:
        raise BadFile("device.tools", str(error)) from None


def tools(name: str, folder: Path) -> Path:
    """The file with the simulated board's tools: one of ours by its name, or one in `folder`. Raises `UsageError`."""
    path = root() / "boards" / "sim" / _TOOLS[name] if name in _TOOLS else folder / name
    if not path.is_file():
        raise UsageError(f"the tools must be {', '.join(_TOOLS)} or a file, not {name!r}")
    return path


@cache
def schema() -> dict[str, Any]:
    """The JSON schema of scenario files."""
    made: dict[str, Any] = json.loads(Path(__file__).with_name("scenario.schema.json").read_text("utf-8"))
    return made


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(schema())


@cache
def _verbs() -> frozenset[str]:
    return frozenset(schema()["$defs"]["step"]["properties"]) - {*_BELONGS, "comment"}


def _told(error: ValidationError) -> BadFile:
    """A fault against the schema with its place in the file."""
    parent: Any = error.parent
    while parent is not None and parent.validator == "anyOf":  # none of its branches is what was meant
        error, parent = parent, parent.parent
    where = ""
    for part in error.absolute_path:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    problem = error.message
    meaning = error.schema.get("description") if isinstance(error.schema, dict) else None
    if error.validator in {"anyOf", "const", "pattern"} and meaning:
        problem = f"must be: {meaning}"
    return BadFile(where, problem if len(problem) <= _TOLD else f"{problem[:_TOLD]}...")
