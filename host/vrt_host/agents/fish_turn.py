"""What a Fish dialogue knows of turns and calls, and what it needs of the agent around it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from vrt_host.agents.alarm import Timer
from vrt_host.agents.base import AgentEvent
from vrt_host.agents.fish_messages import Message
from vrt_host.agents.provider import ProviderError

_SAID = 16
_SAID_CHARS = 400


class Outlet(Protocol):
    """What the dialogue needs of its agent; all of it is at once."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def emit(self, event: AgentEvent) -> None:
        """Tell the port."""

    def send(self, message: Message) -> None:
        """Tell the Fish agent; there is a room."""

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back after so long."""

    def report(self, error: ProviderError, turn: str | None) -> None:
        """Tell the log and the device; the turn, if it is named, ends with that."""

    def ended(self) -> None:
        """The Fish agent says that it ends the session."""

    def wanted(self) -> None:
        """There is something to say: a session is needed."""


class Said:
    """What was said, for a session that knows nothing of it."""

    def __init__(self) -> None:
        self._said: deque[str] = deque(maxlen=_SAID)

    def add(self, role: Literal["user", "agent"], text: str) -> None:
        """Pieces of the agent's are one utterance, up to the next of the user's."""
        start = f"{role}: "
        if role == "agent" and self._said and self._said[-1].startswith(start):
            self._said[-1] = (self._said[-1] + text)[:_SAID_CHARS]
        else:
            self._said.append((start + text)[:_SAID_CHARS])

    def told(self) -> str:
        """All of it; empty: nothing."""
        return " / ".join(self._said)


@dataclass(slots=True, eq=False)
class Turn:
    """A turn of the port."""

    key: str
    typed: bool
    out: bool = False
    """The agent has done or said something in it."""
    asked: bool = False
    """It was told something, and has shown no sign of that yet: its state is that of before."""
    spoke: bool = False
    """It has begun to speak, or to write."""
    aloud: bool = False
    """Its state said that it speaks: there is sound."""
    sounded: bool = False
    """Sound of what it says now was heard."""
    wrote: bool = False
    heard: str | None = None
    """The user's segment that it answers."""
    final: bool = True
    """Whether all of that was said."""
    item: str | None = None
    calls: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)
    again: bool = False
    """What was said in it was said to a second session."""
    overdue: bool = False
    """The host ends it because a call was not answered in time; what the agent says to that is to be heard."""


@dataclass(slots=True, eq=False)
class OpenCall:
    """A call of the Fish agent's without a result. `key` is its name at the port."""

    id: str
    key: str
    name: str
    until: float
    """When the agent waits no more."""
    state: Literal["open", "silent", "lost"] = "open"
    """`silent`: no answer is expected. `lost`: the session that brought it is gone."""
