"""What was said, as text: for a session of the model's that has to begin anew."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from vrt_host.agents import gemini_messages as messages
from vrt_host.agents.base import Json

_ENTRIES = 80
_CHARACTERS = 16_000
"""Of what is handed over, the newest."""


@dataclass(slots=True, eq=False)
class Entry:
    """What one side said in a turn."""

    role: str
    said: list[tuple[str | None, str]] = field(default_factory=list)
    """Pieces of text, with the audio item that they belong to."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Item -> audio that was made."""

    def text(self, item: str | None, text: str) -> None:
        """One more piece."""
        self.said.append((item, text))

    def sound(self, item: str, seconds: float) -> None:
        """More audio of an item."""
        self.seconds[item] = self.seconds.get(item, 0.0) + seconds

    def cut(self, heard_ms: dict[str, int]) -> None:
        """Keep what was heard: of each item so much of its text as of its audio, in whole words."""
        kept: list[tuple[str | None, str]] = []
        for item in dict.fromkeys(item for item, _ in self.said):
            whole = "".join(text for of, text in self.said if of == item)
            if item is not None:
                share = heard_ms.get(item, 0) / 1000 / max(self.seconds.get(item, 0.0), 0.001)
                if share < 1:
                    head = whole[: int(len(whole) * share)]
                    whole = head.rpartition(" ")[0] + " ..." if " " in head else "..."
            kept.append((item, whole))
        self.said = kept

    def __str__(self) -> str:
        return "".join(text for _, text in self.said).strip()


class History:
    """The newest entries, and the context. `changes` counts both."""

    def __init__(self, context: Json) -> None:
        self.context = context
        self.changes = 0
        self._entries: deque[Entry] = deque(maxlen=_ENTRIES)

    def set_context(self, context: Json) -> None:
        """The application's context changed."""
        self.context = context
        self.changes += 1

    def add(self, role: str, text: str = "") -> Entry:
        """A new entry; text may be added to it later."""
        entry = Entry(role, [(None, text)] if text else [])
        self._entries.append(entry)
        self.changes += 1
        return entry

    def turns(self) -> list[tuple[str, str]]:
        """As messages for a new session, the user's first: the context, labelled, then what was said."""
        said: list[tuple[str, str]] = []
        room = _CHARACTERS
        for entry in reversed(self._entries):
            text = str(entry)[:_CHARACTERS]
            room -= len(text)
            if room < 0:
                break
            if text:
                said.insert(0, (entry.role, text))
        if self.context is not None:
            said.insert(0, ("user", messages.context_text(self.context)))
        elif said and said[0][0] != "user":
            said.insert(0, ("user", "(The conversation before this is not known any more.)"))
        merged: list[tuple[str, str]] = []
        for role, text in said:
            if merged and merged[-1][0] == role:
                merged[-1] = role, f"{merged[-1][1]}\n\n{text}"
            else:
                merged.append((role, text))
        return merged
