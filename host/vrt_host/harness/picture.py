"""What the timeline shows, free of event names: `story.py` reads it out of the log, `timeline.py` draws it.

All times are seconds since the start of the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from vrt_host.sim.wav import Samples


@dataclass(frozen=True, slots=True)
class Band:
    """Something that lasted: a state, a sentence, a press. `kind` picks the colour."""

    start: float
    end: float
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Scene:
    """A part of the conversation; `ok` is None while it is not finished. `note` holds its figures."""

    start: float
    end: float
    title: str
    ok: bool | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class CallBar:
    """A tool call from its arrival at the device to its result; `started` is None when it never ran."""

    queued: float
    started: float | None
    ended: float
    text: str
    outcome: str
    """`ok` or the failure code."""
    confirming: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment that concerns every lane."""

    at: float
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Zoom:
    """A short span drawn large beside its scene: both voices and the marks within, each with its own label."""

    start: float
    end: float
    title: str
    marks: Sequence[Mark]


def _silence() -> Samples:
    return np.zeros(0, np.int16)


@dataclass(slots=True)
class Picture:
    """Everything that is drawn. Both sounds start at time 0 and have `rate` samples a second."""

    title: str
    subtitle: str = ""
    scenes: list[Scene] = field(default_factory=list)
    user: Samples = field(default_factory=_silence)
    speaker: Samples = field(default_factory=_silence)
    rate: int = 24_000
    said: list[Band] = field(default_factory=list)
    spoken: list[Band] = field(default_factory=list)
    led: list[Band] = field(default_factory=list)
    presses: list[Band] = field(default_factory=list)
    turns: list[Band] = field(default_factory=list)
    calls: list[CallBar] = field(default_factory=list)
    outputs: dict[str, list[Band]] = field(default_factory=dict)
    link: list[Band] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    zooms: list[Zoom] = field(default_factory=list)
