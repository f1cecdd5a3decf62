"""Scenes and steps: what has to happen, checked against the event log as it happens.

Each step has a condition, a deadline and, when it fails, one line that says where, what was awaited and what was
seen instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from vrt_host.harness.live import View
from vrt_host.harness.recorder import Event, NotSeen, Recorder

_SHOWN = 4
_SKIPPED = ("t", "source", "event", "session", "message")


class StepFailed(Exception):
    """A step did not happen; the message is one line."""


@dataclass(slots=True)
class SceneLog:
    """One scene as it went. `ok` is None while it runs."""

    number: int
    title: str
    start: float
    end: float | None = None
    ok: bool | None = None
    note: str = ""
    steps: list[str] = field(default_factory=list)


class Stage:
    """Runs scenes over a recorder and tells the view."""

    def __init__(self, recorder: Recorder, view: View) -> None:
        self.recorder = recorder
        self.view = view
        self.scenes: list[SceneLog] = []
        self.steps = 0
        """How many steps happened."""
        self._since = 0

    @contextlib.contextmanager
    def scene(self, title: str) -> Iterator[SceneLog]:
        """A scene: everything awaited inside is looked for from its beginning on."""
        scene = SceneLog(len(self.scenes) + 1, title, self.recorder.now)
        self.scenes.append(scene)
        self._since = self.recorder.mark()
        self.recorder.add("demo", "scene", number=scene.number, title=title)
        self.view.title(f"{scene.number}  {title}")
        try:
            yield scene
            scene.ok = True
        except StepFailed:
            scene.ok = False
            raise
        finally:
            scene.end = self.recorder.now
            self.recorder.add("demo", "scene.end", number=scene.number, ok=scene.ok, note=scene.note)

    def seen(self, source: str, event: str, **fields: Any) -> list[Event]:
        """All such events of the scene so far."""
        return [
            entry
            for entry in self.recorder.events[self._since :]
            if entry["source"] == source and entry["event"] == event and agrees(entry, fields)
        ]

    async def expect(
        self,
        step: str,
        source: str,
        event: str,
        *,
        within: float,
        after: Event | None = None,
        detail: Callable[[Event], str] | None = None,
        **fields: Any,
    ) -> Event:
        """The first event of this source and name whose members equal `fields` (a callable member is a test).

        It is looked for after the event `after`, by default from the scene's beginning. Raises `StepFailed` when it is
        not seen within `within` seconds, or when the board dies.
        """

        def match(entry: Event) -> bool:
            wanted = entry["source"] == source and entry["event"] == event and agrees(entry, fields)
            return wanted or _fatal(entry)

        place = self._since if after is None else self.recorder.events.index(after) + 1
        try:
            found = await self.recorder.wait_for(match, within=within, after=place)
        except NotSeen as error:
            wanted = " ".join([source, event, *(f"{name}={_short(value)}" for name, value in fields.items())])
            seen = [entry for entry in error.since if not _noise(entry)]
            last = "; ".join(summary(entry) for entry in seen[-_SHOWN:]) or "nothing"
            self._fail(step, f"waited {within:g} s for {wanted}; the last that was seen: {last}")
        if _fatal(found):
            self._fail(step, f"the board stopped: {self._last_words() or summary(found)}")
        self._pass(step, found["t"], detail(found) if detail is not None else "")
        return found

    def _last_words(self) -> str:
        """What the firmware said before it ended, in one line."""
        for entry in reversed(self.recorder.events):
            if entry["source"] == "device" and entry["event"] == "error":
                return f"{entry['code']}, {entry.get('message', '')}"
            if entry["source"] == "device" and entry["event"] in {"traceback", "console"}:
                return str(entry["text"]).splitlines()[-1]
        return ""

    def check(self, step: str, condition: bool, saw: object, detail: str = "") -> None:
        """A condition that must hold now; `saw` says what there was."""
        if not condition:
            self._fail(step, f"saw {saw}")
        self._pass(step, self.recorder.now, detail)

    def _pass(self, step: str, time: float, detail: str) -> None:
        self.steps += 1
        if self.scenes:
            self.scenes[-1].steps.append(step)
        self.recorder.add("demo", "step", text=step, ok=True, seen_at=time)
        self.view.passed(time, step, detail)

    def _fail(self, step: str, why: str) -> NoReturn:
        where = f"scene {self.scenes[-1].number}, " if self.scenes else ""
        line = f"{where}“{step}” did not happen: {why}"
        self.recorder.add("demo", "step", text=step, ok=False, why=why)
        self.view.failed(self.recorder.now, step)
        raise StepFailed(line)


def _fatal(entry: Event) -> bool:
    return bool(entry["source"] == "device" and entry["event"] == "exit" and not entry["asked"])


def _noise(entry: Event) -> bool:
    """What says nothing to somebody who looks for a cause."""
    names = (entry["event"], entry.get("type"))
    return entry["source"] == "demo" or names[0] == "stats" or names[1] in {"ack", "ping", "pong"}


def agrees(entry: Event, fields: dict[str, Any]) -> bool:
    """Whether an event has these members; a callable one is a test of the value."""
    for name, wanted in fields.items():
        value = entry.get(name)
        if not (wanted(value) if callable(wanted) else value == wanted):
            return False
    return True


def summary(entry: Event) -> str:
    """An event in a few words."""
    rest = [
        f"{name}={_short(value)}" for name, value in entry.items() if name not in {"t", "source", "event"}
    ]
    return " ".join([f"{entry['t']:.2f}", entry["source"], entry["event"], *rest[:4]])


def _short(value: object) -> str:
    if callable(value):
        return getattr(value, "__name__", "(a test)")
    text = str(value).replace("\n", " / ")
    return text if len(text) <= 40 else text[:39] + "…"
