"""What the parts of an Omnia dialogue share: turns, messages, answers; and what they need of the agent around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vrt_host.agents.alarm import Timer
from vrt_host.agents.base import AgentEvent
from vrt_host.agents.omnia_files import File
from vrt_host.agents.omnia_messages import Failure, Message
from vrt_host.agents.provider import ProviderError

_TEXT_CHARS = 1 << 18
"""Of an answer's chunks that are kept, to be compared with its final text."""


class Outlet(Protocol):
    """What the dialogue needs of its agent. All but `say` is at once."""

    def emit(self, event: AgentEvent) -> None:
        """Tell the port."""

    def say(self, event: AgentEvent) -> None:
        """Tell the port in its order, behind audio that waits there."""

    def hush(self) -> None:
        """Forget what was not said yet."""

    def send(self, message: Message) -> None:
        """Tell the facade, if there is a connection."""

    def cut(self) -> None:
        """Make the connection anew: there is no other way to stop an answer."""

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back after so long."""

    def upload(self, files: Sequence[File]) -> None:
        """Put the files where the facade wants them; `Sender.uploaded` goes on, or `lost`."""

    def report(self, failure: Failure | ProviderError, turn: str | None) -> None:
        """Tell the log and the device what is wrong; the turn, if it is named, ends with that."""

    def calling(self) -> bool:
        """Whether there is an audio session."""

    def deaf(self, seconds: float) -> None:
        """The audio session is over; no other one begins for so long."""

    def expired(self, error: ProviderError) -> None:
        """The connection's credential is of no use any more."""


class Words:
    """What an answer said in chunks."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._chars = 0

    def add(self, text: str) -> None:
        """The next of it."""
        self._chars += len(text)
        if self._chars <= _TEXT_CHARS:
            self._parts.append(text)
        else:
            self._parts.clear()

    @property
    def whole(self) -> str | None:
        """All of it; None: it is too long to be kept."""
        return "".join(self._parts) if self._chars <= _TEXT_CHARS else None


@dataclass(slots=True, eq=False)
class Turn:
    """A turn of the port."""

    key: str
    typed: bool
    ended: bool = False
    out: bool = False
    """The agent has said or done something in it."""
    heard: str = ""
    heard_out: bool = False
    item: str | None = None
    media: str = ""
    """The medium that `item` plays."""
    wrote: bool = False
    calls: set[str] = field(default_factory=set)
    overdue: bool = False
    """A call was not answered in time, for which the host ends the turn. The answer to that belongs to another one."""
    files: list[File] = field(default_factory=list)
    """Of results: they go out with a message of their own, once the facade listens again."""
    notes: list[str] = field(default_factory=list)
    """Results that the facade could not be told on their own way."""


Context = tuple[str, Sequence[File]]
"""The application's, as a text, and the files in it."""


@dataclass(slots=True, eq=False)
class Said:
    """A message of the user's, on its way."""

    turn: Turn
    texts: list[str]
    """The user's words."""
    notes: list[str] = field(default_factory=list)
    """Results that the facade could not be told on their own way."""
    files: list[File] = field(default_factory=list)
    contexts: list[Context] = field(default_factory=list)
    media: list[Message] = field(default_factory=list)
    """All its files, as the facade knows them once they are `placed`."""
    faults: list[str] = field(default_factory=list)
    """Files that it could not be given."""
    placed: bool = False
    ready: bool = False
    """What is told along with it is in it."""
    tries: int = 0
    declares: bool = False
    """It opens the session."""
    fresh: bool = False
    """It was refused by an expired session once, and goes into a new one."""


@dataclass(slots=True, eq=False)
class Reply:
    """The answer in flight. Nobody hears it when its turn is not the dialogue's."""

    turn: Turn | None
    said: Said | None = None
    """The message that it answers; None: the user spoke, or nobody did."""
    message: Message | None = None
    """The same, as it was sent."""
    text: Words = field(default_factory=Words)
    flowing: bool = False
    arrived: bool = False
    """The message has certainly reached the facade. One that has perhaps not is sent again over the next connection."""
    former: bool = False
    """It is that of a turn before, for which a message was not taken."""
