"""What an `aitp_dialogue.Dialogue` knows of a turn, of calls, of what was said before, and of its surroundings."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from vrt_host.agents.aitp_messages import Frame
from vrt_host.agents.base import AgentEvent, Json

_ENTRIES = 80
_CHARACTERS = 16_000
"""Of what is handed over to a new session, the newest."""
LONGEST = 4_000
"""Of each of them."""


@dataclass(slots=True, eq=False)
class Turn:
    """`typed`: it answers a text."""

    key: str
    typed: bool
    asked: bool = False
    """The server owes an answer."""
    out: bool = False
    """It has answered something."""
    ended: bool = False
    left: bool = False
    """The server need not be told that this was interrupted."""
    overdue: bool = False
    """It ends because the device did not answer a call; what the server says of that is to be heard."""
    parted: bool = False
    """The server said that it is done, with a call still open."""
    ends_at: float | None = None
    """If nothing more comes."""
    heard: str = ""
    told: str = ""
    """Of what was heard, what the client was told to be all."""
    said: str = ""
    item: str | None = None
    open: bool = False
    texted: bool = False
    captioned: bool = False
    """Its words were told as they were spoken."""
    recorded: bool = False
    """It answers a whole message of speech: the server may send a text, say that it is done, and then send its sound."""
    done: bool = False
    early: bool = False
    """The user's words in it may have been said before the server's question that they come after."""
    calls: set[str] = field(default_factory=set)

    def speak(self, text: str) -> None:
        """The agent's next words, as far as they will be handed over."""
        self.said = (self.said + text)[:LONGEST]


@dataclass(slots=True)
class ServerCall:
    """A call that the server made."""

    id: str
    name: str
    args: Mapping[str, Json]
    connection: int
    announced: bool = False
    """The server was told that the user is asked."""


class History:
    """The newest of what was said, for a session of the server's that begins anew."""

    def __init__(self) -> None:
        self._entries: deque[dict[str, str]] = deque(maxlen=_ENTRIES)
        self._known = 0
        """How many of them, from the end, the present session has lived through."""

    def add(self, role: str, text: str) -> None:
        """One more entry."""
        if text := text.strip()[:LONGEST]:
            self._entries.append({"role": role, "text": text})
            self._known = min(self._known + 1, _ENTRIES)

    def tell(self, role: str, text: str) -> None:
        """One more that the present session did not live through."""
        self.add(role, text)
        self._known = 0

    def renew(self, known: int) -> None:
        """The session is another; it is told the newest `known` entries by itself."""
        self._known = known

    def before(self) -> list[dict[str, str]]:
        """What the present session has to be told."""
        known = len(self._entries) - self._known
        room = _CHARACTERS
        kept: list[dict[str, str]] = []
        for entry in reversed(list(self._entries)[:known]):
            room -= len(entry["text"])
            if room < 0:
                break
            kept.insert(0, entry)
        return kept


class Outlet(Protocol):
    """Where a dialogue puts what it makes."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def idle(self) -> bool:
        """Whether nothing is in flight at the device."""

    def emit(self, event: AgentEvent) -> None:
        """Now."""

    def say(self, event: AgentEvent) -> None:
        """In its order, as the device has room for it."""

    def hush(self) -> None:
        """Forget what `say` was given and is not out yet."""

    def reopen(self, turn: str) -> bool:
        """Take back the end of a turn; False: it is out."""

    def send(self, type_: str, payload: Frame) -> None:
        """To the server, when it is there."""

    def report(
        self, text: str, turn: str | None = None, *, final: bool = False, advice: str | None = None
    ) -> None:
        """What is wrong, for the log and for the device; without `advice` they are the server's words."""

    def note(self, text: str, advice: str) -> None:
        """What the server says, for the log alone."""

    def soon(self, work: Callable[[], None]) -> None:
        """Do it when what was emitted so far has taken effect."""

    def context_changed(self) -> None:
        """The server has to be told the context again."""
