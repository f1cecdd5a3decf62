"""What the user says to a Realtime model, as its server hears it: whose turn an utterance is, and its text when that comes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from vrt_host.agents.base import AgentEvent, Transcript
from vrt_host.agents.openai_errors import from_error
from vrt_host.agents.openai_history import History, Said
from vrt_host.agents.openai_responses import Turn, prune
from vrt_host.agents.provider import ProviderError


class Utterances:
    """The user's items by id. `heard_out(turn)` is called when the text of a turn's utterance is there or will not come."""

    def __init__(
        self,
        emit: Callable[[AgentEvent], None],
        history: History,
        heard_out: Callable[[Turn], None],
        noted: Callable[[ProviderError], None],
    ) -> None:
        self._emit = emit
        self._history = history
        self._heard_out = heard_out
        self._noted = noted
        self._items: OrderedDict[str, tuple[Turn, Said]] = OrderedDict()
        self.transcribed = False
        """Whether the server gives the text."""

    def begin(self, turn: Turn, item: object) -> None:
        """The user speaks in that turn."""
        turn.hearing = self.transcribed
        if isinstance(item, str):
            self._items[item] = turn, Said("user")
            prune(self._items)

    def turn(self, item: object) -> Turn | None:
        """Whose an utterance is."""
        return self._items[item][0] if isinstance(item, str) and item in self._items else None

    def complete(self, item: str) -> None:
        """The user has said it all: it takes its place in the history, its text may follow."""
        if item in self._items:
            turn, said = self._items[item]
            turn.user = said
            self._history.add(said)

    def move(self, old: Turn, new: Turn) -> None:
        """It is to be answered in another turn."""
        for item, (turn, said) in self._items.items():
            if turn is old:
                self._items[item] = new, said
                new.user, new.hearing = old.user, old.hearing

    def on_delta(self, event: Mapping[str, Any]) -> None:
        """More of the text."""
        if event["item_id"] in self._items and (delta := event.get("delta")):
            turn, said = self._items[event["item_id"]]
            said.text += delta
            self._emit(Transcript(turn.key, "user", said.text, final=False))

    def on_completed(self, event: Mapping[str, Any]) -> None:
        """The whole text."""
        if event["item_id"] in self._items:
            turn, said = self._items[event["item_id"]]
            if isinstance(event.get("transcript"), str):
                said.text = event["transcript"].strip()
            self._emit(Transcript(turn.key, "user", said.text, final=True))
            self._heard_out(turn)

    def on_failed(self, event: Mapping[str, Any]) -> None:
        """There will be no text."""
        error = from_error(event.get("error") or "no reason is given")
        self._noted(ProviderError(error.kind, f"what the user said was not transcribed: {error.said}"))
        if (turn := self.turn(event["item_id"])) is not None:
            self._heard_out(turn)
