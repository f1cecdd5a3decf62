"""The turns of a conversation with a Realtime model, and the responses that its server makes in them, one at a time."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vrt_host.agents.openai_errors import BUSY
from vrt_host.agents.openai_history import Said

Message = dict[str, Any]

_KEPT = 16
"""Turns, responses and items that late events may still name."""
LATE = "late-"
"""How the id of a message begins that may come too late: an error about it is none of the user's."""

OLD_NAMES = {
    "response.audio.delta": "response.output_audio.delta",
    "response.audio.done": "response.output_audio.done",
    "response.audio_transcript.delta": "response.output_audio_transcript.delta",
    "response.audio_transcript.done": "response.output_audio_transcript.done",
    "response.text.delta": "response.output_text.delta",
    "response.text.done": "response.output_text.done",
}
"""Names that servers of the dialect still use for what is the same otherwise."""


@dataclass(slots=True)
class Item:
    """An audio item of the model."""

    id: str
    content: int
    session: int
    """In which of the server's sessions it was said."""
    said: Said
    produced: int = 0
    """Bytes that came."""
    ended: bool = False
    shown: int = 0
    """Characters of its transcript that were handed out."""
    told: bool = False
    """Its transcript is complete."""


@dataclass(slots=True)
class ModelCall:
    """A call of the model, by the names that the model has for it."""

    id: str
    name: str
    arguments: str
    session: int
    done: bool = False
    """It has its result."""
    answered: bool = False
    """The model was asked to go on with it."""
    timed_out: bool = False
    """The device gave none in time."""


@dataclass(slots=True, eq=False)
class Turn:
    """A turn of ours. The newest alone can be alive."""

    key: str
    dead: bool = False
    ended: bool = False
    """The model has said everything."""
    listening: bool = False
    """The user is speaking."""
    spoken_on: bool = False
    """It died while the user was speaking."""
    answered: bool = False
    """The model has begun to answer what it was asked last."""
    owes: bool = False
    """The model waits for results."""
    asked_again: bool = False
    """The model was asked anew because a connection was lost."""
    timed_out: bool = False
    """A call of it was not answered in time."""
    text: str = ""
    """What the model has written of an answer."""
    asks: int = 0
    """How often the model was to answer in it."""
    user: Said | None = None
    """What the user said, once that is complete."""
    hearing: bool = False
    """Its text is still to come."""
    items: dict[str, Item] = field(default_factory=dict)
    calls: dict[str, ModelCall] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether a call has no result yet."""
        return any(not call.done for call in self.calls.values())

    def die(self) -> None:
        """It was interrupted, or another one has begun."""
        if not self.dead:
            self.dead = True
            self.spoken_on = self.listening


@dataclass(slots=True, eq=False)
class Response:
    """A response of the server, and the turn that it is for."""

    id: str
    turn: Turn
    cancelled: bool = False
    ended: bool = False
    written: dict[str, tuple[object, object]] = field(default_factory=dict)
    """Call -> name and arguments, of calls that may have been cut off: their items tell."""

    @property
    def dead(self) -> bool:
        """Whether nobody wants to hear more of it."""
        return self.turn.dead or self.cancelled


class Responses:
    """What was asked for, what is being made and what is to come. While there is no server, `send` is None."""

    def __init__(self, expect: Callable[[Turn], None]) -> None:
        """`expect(turn)` is called when the server owes an answer in that turn."""
        self._expect = expect
        self.send: Callable[[Message], None] | None = None
        self.active: Response | None = None
        self.asked: tuple[str, Turn] | None = None
        """What was asked for and has not begun, and the id of the message that did."""
        self.due: Turn | None = None
        """What the next one is for."""
        self._by_id: OrderedDict[str, Response] = OrderedDict()
        self._keys = itertools.count(1)

    @property
    def resting(self) -> bool:
        """Whether none is made or to be made."""
        return self.active is None and self.asked is None and self.due is None

    def begin(self, send: Callable[[Message], None] | None) -> None:
        """Another session of the server, or None: what it was doing is lost."""
        self.send = send
        self.active = self.asked = None

    def of(self, event: Mapping[str, Any]) -> Response | None:
        """The response that an event belongs to."""
        return self._by_id.get(str(event["response_id"]))

    def want(self, turn: Turn) -> None:
        """The model is to answer in that turn, as soon as it has nothing else to do."""
        self.due = turn
        self._expect(turn)
        self.ask()

    def awaited(self, turn: Turn) -> bool:
        """Whether that turn's response was asked for, or will be, and has not begun."""
        return turn is self.due or (self.asked is not None and turn is self.asked[1])

    def forget(self, turn: Turn) -> None:
        """The response of that turn will not come, and the end of what was cancelled before it neither."""
        if self.due is turn:
            self.due = None
        if self.asked is not None and self.asked[1] is turn:
            self.asked = None
        if self.active is not None and self.active.cancelled:
            self.active = None
        self.ask()

    def ask(self) -> None:
        """Ask for what is due, if that is possible now."""
        turn = self.due
        if turn is None or self.send is None or self.active is not None or self.asked is not None:
            return
        self.due = None
        id_ = f"ask-{next(self._keys)}"
        self.asked = id_, turn
        self.send({"type": "response.create", "event_id": id_, "response": {"metadata": {"turn": turn.key}}})

    def created(self, said: Mapping[str, Any], turns: Mapping[str, Turn], adopt: Callable[[], Turn]) -> None:
        """The server has begun one: for the turn that it names, else what was asked for, else of its own accord."""
        metadata = said.get("metadata") or {}
        turn = turns.get(metadata.get("turn") or "")
        if turn is None and self.asked is not None:
            turn = self.asked[1]
        if self.asked is not None and turn is self.asked[1]:
            self.asked = None
        self.active = Response(str(said["id"]), turn or adopt())
        self._by_id[self.active.id] = self.active
        prune(self._by_id)
        if self.active.turn.dead:
            self.cancel()

    def done(self, said: Mapping[str, Any]) -> Response | None:
        """The server has ended one, None: one that it never began. `ask` has to follow."""
        response = self._by_id.get(str(said.get("id")), self.active if said.get("id") is None else None)
        if response is self.active:
            self.active = None
        return response

    def cancel(self) -> None:
        """Stop the one that is being made."""
        if self.active is not None and not self.active.cancelled and self.send is not None:
            self.active.cancelled = True
            self.send(
                {
                    "type": "response.cancel",
                    "event_id": f"{LATE}{next(self._keys)}",
                    "response_id": self.active.id,
                }
            )

    def gone(self, response: Response | None = None) -> None:
        """What was cancelled (that, if it is named) has ended, which the server may have told in an event that was lost."""
        if self.active is not None and self.active.cancelled and response in (None, self.active):
            self.active = None
            self.ask()

    def refused(self, about: str, code: object) -> Turn | None:
        """An error that may be about what was asked for: the turn that gets no answer, None: no harm was done or it was not."""
        if self.asked is None or (about != self.asked[0] and code != BUSY):
            return None
        turn = self.asked[1]
        self.asked = None
        if code == BUSY:
            if self.due is None and not turn.dead:
                self.due = turn  # the server began one by itself; ours comes after it
            return None
        return turn


def prune(kept: OrderedDict[str, Any]) -> None:
    """Forget the oldest."""
    while len(kept) > _KEPT:
        kept.popitem(last=False)
