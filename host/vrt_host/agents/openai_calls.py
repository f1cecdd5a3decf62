"""The calls of a Realtime model, wherever its server tells them: in events as they are written, as items, in the response's end."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from vrt_host.agents.base import AgentEvent, Call, CallBegin, CallDelta
from vrt_host.agents.model_tools import ToolNames
from vrt_host.agents.openai_responses import ModelCall, Response, Responses, prune


class ModelCalls:
    """A call is issued once, as soon as it is complete. That of a dead turn, too: no call may stay without a result."""

    def __init__(
        self,
        emit: Callable[[AgentEvent], None],
        tools: ToolNames,
        responses: Responses,
        session: Callable[[], int],
    ) -> None:
        """`session()` is the number of the server's session."""
        self._emit = emit
        self._tools = tools
        self._responses = responses
        self._session = session
        self._names: OrderedDict[str, tuple[str, str]] = OrderedDict()
        """Call item -> call id and the model's name for the tool."""

    def begin(self, response: Response, item: Mapping[str, Any]) -> None:
        """The model begins to write one."""
        call, name = str(item.get("call_id") or item["id"]), str(item.get("name") or "")
        self._names[str(item.get("id"))] = call, name
        prune(self._names)
        response.turn.answered = True
        if name:
            self._emit(CallBegin(response.turn.key, call, self._tools.own(name)))

    def on_delta(self, event: Mapping[str, Any]) -> None:
        """More of the arguments."""
        response = self._responses.of(event)
        if response is not None and not response.dead and event.get("delta"):
            call = event.get("call_id") or self._names.get(event["item_id"], ("", ""))[0]
            self._emit(CallDelta(response.turn.key, str(call), str(event["delta"])))

    def on_arguments(self, event: Mapping[str, Any]) -> None:
        """All of the arguments; or what there is of them when the response was cut off, which only the item tells."""
        call, name = self._names.get(event["item_id"], (event["item_id"], ""))
        call, name, arguments = (
            str(event.get("call_id") or call),
            event.get("name") or name,
            event["arguments"],
        )
        if (response := self._responses.of(event)) is None:
            return
        if name and _whole(arguments):
            self._issue(response, call, name, arguments)
        else:
            response.written[call] = name, arguments

    def item(self, response: Response | None, item: Mapping[str, Any]) -> None:
        """The item of a call has ended."""
        if response is None:
            return
        call = str(item.get("call_id") or item["id"])
        name, arguments = response.written.pop(call, ("", None))
        given = item.get("arguments")
        if item.get("status") in (None, "completed"):
            self._issue(response, call, item.get("name") or name, given or arguments or given)

    def rest(self, response: Response, said: Mapping[str, Any]) -> None:
        """The response has ended: the calls that no item told, unless it was cut off from writing them."""
        for output in said.get("output") or ():
            if output.get("type") == "function_call":
                self.item(response, output)
        written, response.written = response.written, {}
        for call, (name, arguments) in written.items():
            if said.get("status") in (None, "completed"):
                self._issue(response, call, name, arguments)

    def _issue(self, response: Response, call: str, name: object, arguments: object) -> None:
        if isinstance(arguments, Mapping):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if not isinstance(arguments, str) or not isinstance(name, str) or not name:
            raise TypeError("a call without a name or arguments")
        turn = response.turn
        if call not in turn.calls:
            arguments = arguments or "{}"  # of a tool that has no parameters
            turn.answered = turn.owes = True
            turn.calls[call] = ModelCall(call, name, arguments, self._session())
            self._emit(Call(turn.key, call, self._tools.own(name), arguments))


def _whole(arguments: object) -> bool:
    """Whether nothing of an object's text can be missing."""
    try:
        return isinstance(arguments, str) and isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False
