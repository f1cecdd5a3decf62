"""The conversation that a Realtime server keeps, as we mend it: what was said before, the application's data, what was heard."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from vrt_host.agents.base import Json, ToolResult
from vrt_host.agents.openai_history import (
    Called,
    Entry,
    History,
    Said,
    data_message,
    heard_part,
    items,
    output,
)
from vrt_host.agents.openai_responses import LATE, Item, Message, ModelCall


class Conversation:
    """The items of the server's session, and the history of all sessions. While there is no server, nothing is sent."""

    def __init__(self, bytes_per_second: int) -> None:
        """Of the model's audio."""
        self._rate = bytes_per_second
        self._send: Callable[[Message], None] | None = None
        self._keys = itertools.count(1)
        self._context: Json = None
        self._context_item: str | None = None
        self.session = 0
        """How many sessions of the server there were."""
        self.history = History()

    def begin(self, send: Callable[[Message], None] | None) -> None:
        """A new session, which is told everything; None: it was lost."""
        self._send = send
        if send is not None:
            self.session += 1
            self._context_item = None
            self._put_context()
            for entry in self.history:
                self._put(items(entry))

    def add(self, entry: Entry) -> None:
        """Something that the server does not know yet."""
        self.history.add(entry)
        self._put(items(entry))

    def settle(self, call: ModelCall, result: ToolResult) -> None:
        """A call has its result. A session that did not make the call gets both."""
        entry = Called(call.id, call.name, call.arguments, output(result))
        self.history.add(entry)
        made = items(entry)
        self._put(made[1:] if call.session == self.session else made)

    def context(self, value: Json) -> None:
        """The application's data, in place of what it was before."""
        self._context = value
        self._put_context()

    def truncate(self, item: Item, heard_ms: int) -> None:
        """Only so much of an item was heard; the server refuses more than it produced."""
        produced_ms = item.produced * 1000 // self._rate
        if heard_ms >= produced_ms and item.ended:
            return
        heard_ms = min(heard_ms, produced_ms)
        item.said.text = heard_part(item.said.text, heard_ms, produced_ms)
        if self._send is not None and item.session == self.session:
            about = {"item_id": item.id, "content_index": item.content, "audio_end_ms": heard_ms}
            self._send({"type": "conversation.item.truncate", "event_id": self._late(), **about})

    def _put(self, made: Sequence[Message]) -> None:
        if self._send is not None:
            for item in made:
                self._send({"type": "conversation.item.create", "item": item})

    def _put_context(self) -> None:
        if self._send is None:
            return
        old, self._context_item = self._context_item, None
        if old is not None:
            self._send({"type": "conversation.item.delete", "event_id": self._late(), "item_id": old})
        if self._context is not None:
            self._context_item = f"context_{next(self._keys)}"
            self._put([{"id": self._context_item, **items(Said("user", data_message(self._context)))[0]}])

    def _late(self) -> str:
        return f"{LATE}item-{next(self._keys)}"
