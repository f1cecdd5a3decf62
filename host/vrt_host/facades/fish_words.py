"""A reply's words on their way to the client: one segment, paced to the sound that it is spoken with.

Sections are those of Fish Audio's page "Wire Protocol". No agent tells when a word is spoken, so that is reckoned from how fast people
speak; what is left when the sound ends, or pauses, follows at once. An interrupted segment ends with the words whose time had come.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable
from typing import Literal, Protocol

CHARS_PER_S = 15.0
"""Of speech."""
TICK_S = 0.1
"""Between two looks whether more words are due."""
HOLD_S = 1.5
"""How long words that are only written wait for a voice that may follow."""
PAUSE_S = 0.5
"""Of no sound, after which the words so far are not waited with any longer."""

_WORD = re.compile(r"\s*\S+\s*|\s+")


class Segments(Protocol):
    """Where segments of the agent go."""

    def begin(self, segment: str) -> None: ...
    def write(self, text: str) -> None: ...
    def end(self) -> None: ...


class Words:
    """Of one reply. `end` or `cut` it."""

    def __init__(self, out: Segments, played: Callable[[], float], *, aloud: bool) -> None:
        """`played` is how many seconds of sound the room has heard in all; not `aloud`: there is none to wait for."""
        self._out = out
        self._played = played
        self._aloud = aloud
        self._loop = asyncio.get_running_loop()
        self._waiting = {"spoken": "", "written": ""}
        self._kind: Literal["spoken", "written"] | None = None
        """What the segment has of the two, which may say the same."""
        self._since: float | None = None
        """What was played when its sound began."""
        self._heard = self._moved = 0.0
        """What was played when it last went on, and when that was."""
        self._said = 0
        self._hold: float | None = None
        self._begun = False
        self._timer: asyncio.TimerHandle | None = None

    def spoken(self, text: str) -> None:
        """The next words of what is spoken."""
        self._add("spoken", text)

    def written(self, text: str) -> None:
        """The next words of what is written; an agent can do both."""
        self._add("written", text)

    def sound(self) -> None:
        """Some of its sound was given to the room."""
        if self._since is None:
            self._since = self._heard = self._played()
            self._moved = self._loop.time()
            self._look()

    def end(self) -> None:
        """It was heard to its end."""
        self._release(None)
        self._close()

    def cut(self) -> None:
        """It was interrupted: now."""
        if self._aloud and self._since is not None:
            self._release(self._due())
        self._close()

    def _add(self, kind: Literal["spoken", "written"], text: str) -> None:
        if text and self._kind in (None, kind):
            self._waiting[kind] += text
            if self._hold is None:
                self._hold = self._loop.time() + HOLD_S
            self._look()

    def _due(self) -> int:
        """Characters whose time has come."""
        assert self._since is not None
        return int((self._played() - self._since) * CHARS_PER_S)

    def _pauses(self) -> bool:
        """Whether nothing more was heard for a while."""
        assert self._since is not None
        played, now = self._played(), self._loop.time()
        if played != self._heard:
            self._heard, self._moved = played, now
        return played > self._since and now >= self._moved + PAUSE_S

    def _look(self) -> None:
        """Let go what is due, and look again while something waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._aloud:
            self._release(None)
        elif self._since is not None:
            self._release(None if self._pauses() else self._due())
        elif self._hold is not None and self._loop.time() >= self._hold and not self._waiting["spoken"]:
            self._release(None)
        if any(self._waiting.values()):
            self._timer = self._loop.call_later(TICK_S, self._look)

    def _release(self, due: int | None) -> None:
        """The words that begin before that many characters; None: all."""
        if self._kind is None:
            kind: Literal["spoken", "written"] = "spoken" if self._waiting["spoken"] else "written"
            if not self._waiting[kind] or (due is not None and due <= self._said):
                return
            self._kind = kind
            self._waiting = {"spoken": "", "written": "", kind: self._waiting[kind]}
        text, size = self._waiting[self._kind], 0
        for word in _WORD.finditer(text):
            if due is not None and self._said + word.start() >= due:
                break
            size = word.end()
        if size:
            self._waiting[self._kind] = text[size:]
            self._said += size
            if not self._begun:
                self._begun = True
                self._out.begin(f"SG_{uuid.uuid4().hex[:12]}")
            self._out.write(text[:size])

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting = {"spoken": "", "written": ""}
        if self._begun:
            self._begun = False
            self._out.end()
