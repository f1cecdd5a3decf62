"""What a `gemini_dialogue.Dialogue` knows of a turn, and of its surroundings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from vrt_host.agents.base import AgentEvent
from vrt_host.agents.gemini_history import Entry, History
from vrt_host.agents.gemini_messages import Frame, ModelCall


@dataclass(slots=True, eq=False)
class Turn:
    """`typed`: it answers a text."""

    key: str
    typed: bool
    heard: str = ""
    """What the user said in it."""
    heard_out: bool = False
    """And there is no more of it."""
    out: bool = False
    """The model has answered something."""
    ended: bool = False
    overdue: bool = False
    """It ends because the device did not answer a call; what the model says of that is to be heard."""
    unwelcome: bool = False
    """The model was told that its calls were interrupted, since it waits for that; what it says to it is not to be heard."""
    item: str | None = None
    """Its newest audio item."""
    open: bool = False
    """Which can get audio."""
    odd: bytes = b""
    calls: set[str] = field(default_factory=set)
    made: dict[str, tuple[ModelCall, Frame | None]] = field(default_factory=dict)
    """The model's id -> the call, and what it was answered."""
    parted: bool = False
    """What made the newest calls has ended; with some models it does so before the results, with others not at all."""
    lingers: bool = False
    """It has ended behind the results: that was this end, or the model says nothing to them."""
    late: list[str] = field(default_factory=list)
    """Results of calls, as texts, until the model has answered them."""
    again: bool = False
    """What the user typed was sent a second time."""
    doubt: bool = False
    """What was dropped may have been the answer."""
    asked: Entry | None = None
    answer: Entry | None = None

    def record_late(self, history: History) -> None:
        """The model knows of them now, or the next one has to."""
        for text in self.late:
            history.add("user", text)
        self.late.clear()


class Outlet(Protocol):
    """Where a dialogue puts what it makes."""

    def emit(self, event: AgentEvent) -> None:
        """Now."""

    def say(self, event: AgentEvent) -> None:
        """In its order, as the device has room for it."""

    def hush(self) -> None:
        """Forget what `say` was given and is not out yet."""

    def send(self, frame: Frame) -> None:
        """To the model."""
