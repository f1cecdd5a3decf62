"""What a `gemini_dialogue.Dialogue` knows of a turn, of the calls that the model made in one message, and of its surroundings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from vrt_host.agents.base import AgentEvent, Code
from vrt_host.agents.gemini_history import Entry, History
from vrt_host.agents.gemini_messages import Frame


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
    item: str | None = None
    """Its newest audio item."""
    open: bool = False
    """Which can get audio."""
    odd: bytes = b""
    calls: set[str] = field(default_factory=set)
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


@dataclass(slots=True, eq=False)
class Batch:
    """Calls that the model made in one message: it gets their results in one, too."""

    turn: str
    connection: int
    missing: set[str]
    results: list[tuple[str | None, str, Frame]] = field(default_factory=list)
    cancelled: bool = False
    codes: set[Code | None] = field(default_factory=set)


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
