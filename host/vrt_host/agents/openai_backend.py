"""The Responses model behind a Live model: it gets what is typed, calls the tools, and its results are spoken by the other.

Its events come wrapped in the session's (`response.event`), one response at a time. A call belongs to the turn in which
its delegation began, also when that turn is over.
"""

from __future__ import annotations

import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from vrt_host.agents.base import AgentEvent, Call, CallBegin, CallDelta, ToolResult
from vrt_host.agents.model_tools import ToolNames
from vrt_host.agents.openai_errors import from_error
from vrt_host.agents.openai_history import Called, History, items, output
from vrt_host.agents.openai_responses import LATE, Message, ModelCall, prune
from vrt_host.agents.provider import ProviderError

log = logging.getLogger(__name__)

_ENDS = ("response.completed", "response.failed", "response.incomplete", "response.cancelled")


class Working(Protocol):
    """What the backend needs of a turn."""

    key: str
    dead: bool
    calls: dict[str, ModelCall]


class Backend:
    """See the module. `turn()` gives the turn that work without a name belongs to; `worked(turn)` is called when it is done."""

    def __init__(
        self,
        emit: Callable[[AgentEvent], None],
        tools: ToolNames,
        history: History,
        turn: Callable[[], Working],
        *,
        worked: Callable[[str], None],
        told: Callable[[ProviderError, str | None], None],
    ) -> None:
        self._emit = emit
        self._tools = tools
        self._history = history
        self._turn = turn
        self._worked = worked
        self._told = told
        self._keys = itertools.count(1)
        self._send: Callable[[Message], None] | None = None
        self._session = 0
        self._delegated: OrderedDict[str, Working] = OrderedDict()
        self._names: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._active: Working | None = None
        """Whose response is being made."""
        self._asked: OrderedDict[str, Working] = OrderedDict()
        """What was asked for and has not begun, by the id of the message that did. Only the last can be alive."""
        self._due: Working | None = None

    def begin(self, send: Callable[[Message], None] | None) -> None:
        """A new session, or None: it was lost, and what is due is for the next one."""
        self._send = send
        if send is None:
            for waiting in (*self._asked.values(), self._active):
                if waiting is not None and not waiting.dead:
                    self._due = waiting
        else:
            self._session += 1
        self._active = None
        self._asked.clear()
        self._delegated.clear()
        self._ask()

    def busy(self, turn: Working) -> bool:
        """Whether something is still to come of a turn's work."""
        return any(one is turn for one in (self._active, self._due, *self._asked.values())) or any(
            not call.done for call in turn.calls.values()
        )

    def text(self, turn: Working, text: str) -> None:
        """What the user typed; it is answered in that turn."""
        if self._send is not None:
            part = {"type": "input_text", "text": text}
            self._item({"type": "message", "role": "user", "content": [part]})
        self.want(turn)

    def data(self, text: str) -> None:
        """Something to know, which needs no answer."""
        self._item({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})

    def want(self, turn: Working) -> None:
        """The model is to go on for that turn, once it has nothing else to do."""
        self._due = turn
        self._ask()

    def interrupted(self, turn: Working) -> None:
        """Nobody waits for what that turn was to bring."""
        if self._due is turn:
            self._due = None

    def move(self, old: Working, new: Working) -> None:
        """What was to be for one turn is to be for another."""
        asked = next((id_ for id_, turn in self._asked.items() if turn is old), None)
        if asked is not None:
            self._asked[asked] = new
        elif self._active is old:
            self._active = new
        else:
            self.want(new)

    def result(self, turn: Working, result: ToolResult) -> None:
        """A call is settled; the model goes on once all of the turn's are, unless the turn is over."""
        call = turn.calls.get(result.call)
        if call is None or call.done:
            return
        call.done = True
        entry = Called(call.id, call.name, call.arguments, output(result))
        self._history.add(entry)
        if call.session == self._session:
            self._item(items(entry)[1])
        else:  # this session knows of no such call
            self.data(told(entry))
        if result.code == "INTERRUPTED":
            return
        if not turn.dead and all(one.done for one in turn.calls.values()) and self._active is not turn:
            self.want(turn)

    # --- events

    def on_delegation(self, event: Mapping[str, Any]) -> None:
        """The Live model has given it something to do."""
        delegation = event["delegation"]
        if delegation.get("target") == "responses":
            self._delegated[str(delegation["id"])] = self._turn()
            prune(self._delegated)

    def on_event(self, outer: Mapping[str, Any]) -> None:
        """An event of its response."""
        event = outer["event"]
        kind = str(event["type"])
        if kind == "response.created":
            delegated = self._delegated.get(str(outer.get("delegation_id")))
            if delegated is None and self._asked:
                delegated = self._asked.popitem(last=False)[1]
            self._active = delegated or self._turn()
        elif kind == "response.output_item.added":
            self._on_added(event["item"])
        elif kind == "response.function_call_arguments.delta":
            if event.get("item_id") in self._names and self._active is not None:
                call = self._names[event["item_id"]][0]
                self._emit(CallDelta(self._active.key, call, str(event["delta"])))
        elif kind == "response.output_item.done":
            self._on_done(event["item"])
        elif kind in _ENDS:
            self._on_end(event)
        else:
            log.debug("an event %.60s of the backend was ignored", kind)

    def _on_added(self, item: Mapping[str, Any]) -> None:
        if item.get("type") == "function_call" and self._active is not None:
            call, name = str(item["call_id"]), str(item["name"])
            self._names[str(item.get("id"))] = call, name
            prune(self._names)
            self._emit(CallBegin(self._active.key, call, self._tools.own(name)))

    def _on_done(self, item: Mapping[str, Any]) -> None:
        turn = self._active
        if item.get("type") != "function_call" or turn is None or item.get("status") == "incomplete":
            return
        call, name, arguments = str(item["call_id"]), str(item["name"]), item["arguments"]
        if not isinstance(arguments, str):
            raise TypeError("a call without arguments")
        if call not in turn.calls:
            turn.calls[call] = ModelCall(call, name, arguments, self._session)
            self._emit(Call(turn.key, call, self._tools.own(name), arguments))

    def _on_end(self, event: Mapping[str, Any]) -> None:
        turn, self._active = self._active, None
        response = event.get("response")
        error = response.get("error") if isinstance(response, Mapping) else None
        if turn is not None:
            if event["type"] == "response.failed" and not turn.dead:
                turn.dead = True
                self._told(from_error(error or "the backend's response failed"), turn.key)
            elif (
                turn.calls
                and all(call.done for call in turn.calls.values())
                and not turn.dead
                and self._new(turn)
            ):
                self._due = turn  # the results were there before the end
            elif not self.busy(turn):
                self._worked(turn.key)
        self._ask()

    def _new(self, turn: Working) -> bool:
        """Whether a turn has results that the model was not asked to go on with."""
        fresh = [call for call in turn.calls.values() if not call.answered]
        for call in fresh:
            call.answered = True
        return bool(fresh)

    def _ask(self) -> None:
        turn = self._due
        if turn is None or self._send is None or self._active is not None:
            return
        if any(not asked.dead for asked in self._asked.values()):
            return
        for call in turn.calls.values():
            call.answered = call.done
        self._due = None
        id_ = f"{LATE}{next(self._keys)}"
        self._asked[id_] = turn
        self._send({"type": "response.create", "event_id": id_})

    def refused(self, about: str) -> Working | None:
        """An error that may be about what was asked for: the turn that gets no answer."""
        return self._asked.pop(about, None)

    def _item(self, item: Message) -> None:
        if self._send is not None:
            self._send({"type": "response.item.create", "item": item})


def told(entry: Called) -> str:
    """A call and its result, for a session that did not make it."""
    return f"[device data] the tool {entry.name} was called with {entry.arguments}: {entry.output}"
