"""Server messages made to fit what the device takes (decisions 7): text is split or cut, the rest is checked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from vrt_host.agents.base import Json, Text, Transcript
from vrt_host.protocol.wire import TooLargeError, cut, size
from vrt_host.turn import Turn

log = logging.getLogger(__name__)

CUT_MARK = "…"
MAX_TEXT = 32_768
"""Bytes of text in one message, also for a device that announced no limit."""

Build = Callable[[str, bool], Mapping[str, Json]]
"""`build(part, last)`: the members of the message that carries `part` of a text."""


class MessageOut(Protocol):
    """What an outlet needs of a session (`session.Session`)."""

    def send(self, type_: str, /, **members: Json) -> bool: ...
    def room(self, type_: str, /, **members: Json) -> int | None: ...


class Outlet:
    """Sends the messages of one session. `dropped` counts what no cutting could make fit."""

    def __init__(self, out: MessageOut) -> None:
        self._out = out
        self.dropped = 0

    def send(self, kind: str, /, **members: Json) -> None:
        """A message without a text to shorten; one that the device could not take is dropped and counted."""
        try:
            self._out.send(kind, **members)
        except TooLargeError:
            self._drop(kind)

    def split(self, kind: str, text: str, build: Build) -> None:
        """As many messages as it takes; at least one, even for an empty text."""
        rest = text
        while True:
            part, rest = self._fit(kind, rest, build, 0)
            if rest and not part:
                self._drop(kind)
                return
            self.send(kind, **build(part, not rest))
            if not rest:
                return

    def cut(self, kind: str, text: str, build: Build) -> None:
        """One message; a text that is too long ends with a mark instead of its rest."""
        part, rest = self._fit(kind, text, build, 0)
        if rest:
            part = self._fit(kind, text, build, size(CUT_MARK))[0] + CUT_MARK
        self.send(kind, **build(part, True))

    def _fit(self, kind: str, text: str, build: Build, reserve: int) -> tuple[str, str]:
        room = self._out.room(kind, **build("", False))
        room = (MAX_TEXT if room is None else min(room, MAX_TEXT)) - reserve
        if 6 * len(text) <= room:  # the most that JSON makes of a character: almost every text ends here
            return text, ""
        return cut(text, room)

    def _drop(self, kind: str) -> None:
        self.dropped += 1
        log.warning("a %s message is larger than the device takes; it was dropped", kind)

    def transcript(self, turn: Turn, event: Transcript) -> None:
        """What was said in a turn."""
        members: dict[str, Json] = {"role": event.role, "turnId": turn.id, "epoch": turn.epoch}
        item = turn.items.get(event.item or "")
        if item is not None:
            members["itemId"] = item.current_id
        # A user transcript replaces the one before, so that only one message can carry it; the agent's append.
        send = self.cut if event.role == "user" else self.split
        send(
            "transcript",
            event.text,
            lambda part, last: {**members, "text": part, "final": event.final and last},
        )

    def text(self, turn: Turn, event: Text) -> None:
        """The agent's answer as text."""
        members: dict[str, Json] = {"turnId": turn.id, "epoch": turn.epoch}
        self.split(
            "text", event.text, lambda part, last: {"text": part, "final": event.final and last, **members}
        )
