"""The Responses model behind a Live model: it gets what is typed, calls the tools, and its results are spoken by the other.

Its events come wrapped in the session's (`response.event`), each with the delegation that it belongs to, if it belongs to one.
A call belongs to the turn in which its delegation began, also when that turn is over.
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
from vrt_host.agents.openai_history import DATA, Called, History, items, output
from vrt_host.agents.openai_responses import LATE, Message, ModelCall, prune
from vrt_host.agents.provider import ProviderError

log = logging.getLogger(__name__)

_ENDS = ("response.completed", "response.failed", "response.incomplete", "response.cancelled", "error")


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
        self._active: OrderedDict[str, Working] = OrderedDict()
        """Delegation ("" without one) -> whose response is being made."""
        self._asked: OrderedDict[str, Working] = OrderedDict()
        """What was asked for and has not begun, by the id of the message that did. Only the last can be alive."""
        self._due: Working | None = None

    def begin(self, send: Callable[[Message], None] | None) -> None:
        """A new session, or None: it was lost, and what is due is for the next one."""
        self._send = send
        if send is None:
            for waiting in (*self._asked.values(), *self._active.values()):
                if not waiting.dead:
                    self._due = waiting
        else:
            self._session += 1
        self._active.clear()
        self._asked.clear()
        self._delegated.clear()
        self._ask()

    def busy(self, turn: Working) -> bool:
        """Whether something is still to come of a turn's work."""
        works = (self._due, *self._active.values(), *self._asked.values())
        return any(one is turn for one in works) or any(not call.done for call in turn.calls.values())

    def give_up(self) -> None:
        """Nothing that was asked for is waited for any more."""
        self._due = None
        self._active.clear()
        self._asked.clear()

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
        active = next((key for key, turn in self._active.items() if turn is old), None)
        if asked is not None:
            self._asked[asked] = new
        elif active is not None:
            self._active[active] = new
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
        works = any(one is turn for one in self._active.values())
        if not turn.dead and all(one.done for one in turn.calls.values()) and not works:
            self.want(turn)

    # --- events

    def on_delegation(self, event: Mapping[str, Any]) -> None:
        """The Live model has given it something to do."""
        delegation = event["delegation"]
        if delegation.get("target") == "responses":
            self._delegated[str(delegation["id"])] = self._claimed(event) or self._turn()
            prune(self._delegated)

    def on_event(self, outer: Mapping[str, Any]) -> None:
        """An event of its response."""
        event = outer["event"]
        kind, key = str(event["type"]), str(outer.get("delegation_id") or "")
        if kind == "response.created":
            self._on_created(outer, key)
        elif kind == "response.output_item.added":
            self._on_added(self._worker(key), event["item"])
        elif kind == "response.function_call_arguments.delta":
            if event.get("item_id") in self._names and event.get("delta"):
                call = self._names[event["item_id"]][0]
                self._emit(CallDelta(self._worker(key).key, call, str(event["delta"])))
        elif kind == "response.output_item.done":
            self._on_done(key, event["item"])
        elif kind in _ENDS:
            self._on_end(key, event)
        else:
            log.debug("an event %.60s of the backend was ignored", kind)

    def _claimed(self, event: Mapping[str, Any]) -> Working | None:
        """Whose request that event answers: the one that it names, else the oldest."""
        named = event.get("client_event_id")
        if isinstance(named, str) and named in self._asked:
            return self._asked.pop(named)
        return self._asked.popitem(last=False)[1] if self._asked else None

    def _on_created(self, outer: Mapping[str, Any], key: str) -> None:
        turn = self._delegated.get(key)
        if turn is None:
            turn = self._claimed(outer) or self._turn()
        else:  # a response that goes on with results is of the same delegation
            for id_ in [id_ for id_, asked in self._asked.items() if asked is turn]:
                del self._asked[id_]
        self._active[key] = turn
        prune(self._active)

    def _worker(self, key: str) -> Working:
        """Whose response an event is of."""
        if key not in self._active and len(self._active) == 1:
            return next(iter(self._active.values()))
        return self._active.get(key) or self._delegated.get(key) or self._turn()

    def _on_added(self, turn: Working, item: Mapping[str, Any]) -> None:
        if item.get("type") == "function_call" and (name := item.get("name")):
            call = str(item["call_id"])
            self._names[str(item.get("id"))] = call, str(name)
            prune(self._names)
            self._emit(CallBegin(turn.key, call, self._tools.own(str(name))))

    def _on_done(self, key: str, item: Mapping[str, Any]) -> None:
        if item.get("type") != "function_call" or item.get("status") == "incomplete":
            return
        turn = self._worker(key)
        call, name, arguments = str(item["call_id"]), str(item["name"]), item["arguments"]
        if not isinstance(arguments, str):
            raise TypeError("a call without arguments")
        if call not in turn.calls:
            arguments = arguments or "{}"  # of a tool that has no parameters
            turn.calls[call] = ModelCall(call, name, arguments, self._session)
            self._emit(Call(turn.key, call, self._tools.own(name), arguments))

    def _on_end(self, key: str, event: Mapping[str, Any]) -> None:
        if key not in self._active and len(self._active) == 1:
            key = next(iter(self._active))
        turn = self._active.pop(key, None)
        response = event.get("response")
        error = response.get("error") if isinstance(response, Mapping) else None
        if event["type"] == "error":
            error = event.get("error") or event
        if turn is not None:
            if event["type"] in ("response.failed", "error") and not turn.dead:
                turn.dead = True
                self._told(from_error(error or "the backend's response failed", of_answer=True), turn.key)
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
        if turn is None or self._send is None or self._active:
            return
        if any(not asked.dead for asked in self._asked.values()):
            return
        for call in turn.calls.values():
            call.answered = call.done
        self._due = None
        id_ = f"{LATE}{next(self._keys)}"
        self._asked[id_] = turn
        self._send({"type": "response.create", "event_id": id_})

    def asked(self, about: str) -> bool:
        """Whether that is the id of a request."""
        return about in self._asked

    def refused(self, about: str, code: str) -> Working | None:
        """An error that may be about what was asked for: the turn that gets no answer. What came too early is asked for again.

        One that does not say what it is about is about the newest request, if nothing is being made.
        """
        if not about and self._asked and not self._active:
            return self._asked.popitem()[1]
        turn = self._asked.pop(about, None)
        if (
            turn is not None and "already" in code and "active" in code
        ):  # the voice has given it something, too
            self._due = turn if self._due is None and not turn.dead else self._due
            return None
        return turn

    def _item(self, item: Message) -> None:
        if self._send is not None:
            self._send({"type": "response.item.create", "item": item})


def told(entry: Called) -> str:
    """A call and its result, for a session that did not make it."""
    return f"{DATA} the tool {entry.name} was called with {entry.arguments}: {entry.output}"
