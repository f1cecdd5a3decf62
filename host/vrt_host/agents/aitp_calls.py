"""The calls that a server makes, and what it is told of them ("5. TOOL_CALL" to "8. APPROVAL_RESPONSE")."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence

from vrt_host.agents.aitp_approvals import DENIED
from vrt_host.agents.aitp_messages import Frame, ToolCall
from vrt_host.agents.aitp_tools import risk
from vrt_host.agents.aitp_turn import ServerCall
from vrt_host.agents.base import Tool, ToolResult
from vrt_host.consent import question

log = logging.getLogger(__name__)

_SEEN = 512
"""Calls of a connection that are remembered, so that none runs twice."""
_QUESTION = 500


class ServerCalls:
    """Those that are open, under keys of ours."""

    def __init__(self) -> None:
        self.connection = 0
        self._open: dict[str, ServerCall] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._without: Sequence[str] = ()

    def connected(self) -> None:
        """A server knows only the calls that it made on this connection."""
        self.connection += 1
        self._seen.clear()

    def is_new(self, said: ToolCall) -> bool:
        """Whether it was not made before."""
        if said.call_id in self._seen:
            return False
        self._seen[said.call_id] = None
        if len(self._seen) > _SEEN:
            self._seen.popitem(last=False)
        return True

    def without(self, names: Sequence[str]) -> None:
        """The server does not call these tools. It says so after each CONTEXT_UPDATE; the log does when there are others."""
        if names and names != self._without:
            log.warning(
                "aitp: the server has tools of its own by these names, and does not call the device's: %.500s",
                ", ".join(names).encode("unicode_escape").decode("ascii"),
            )
        self._without = names

    def add(self, key: str, said: ToolCall) -> ServerCall:
        """It is open."""
        self._open[key] = call = ServerCall(said.call_id, said.name, said.args, self.connection)
        return call

    def pop(self, key: str) -> ServerCall | None:
        """It is settled."""
        return self._open.pop(key, None)

    def get(self, key: str) -> ServerCall | None:
        """It, if it is open."""
        return self._open.get(key)


def request(call: ServerCall, tool: Tool) -> Frame:
    """APPROVAL_REQUEST: the device asks its user, and the server waits for longer."""
    return {
        "callId": call.id,
        "toolName": call.name,
        "risk": risk(tool),
        "args": dict(call.args),
        "message": question(tool, call.args)[:_QUESTION],
    }


def pending(call: ServerCall) -> Frame:
    """TOOL_RESULT of a call that waits for the user."""
    return {"callId": call.id, "status": "pending_approval", "result": None}


def answer(call: ServerCall, result: ToolResult) -> tuple[str, Frame]:
    """The one message that a result becomes."""
    if call.announced:
        return "APPROVAL_RESPONSE", _approval(call.id, result)
    return "TOOL_RESULT", outcome(call.id, result)


def outcome(call_id: str, result: ToolResult) -> Frame:
    """TOOL_RESULT of a call that is settled."""
    if result.ok:
        return {"callId": call_id, "status": "success", "result": result.output}
    return {"callId": call_id, "status": "error", "result": None, "error": _why(result)}


def _approval(call_id: str, result: ToolResult) -> Frame:
    """APPROVAL_RESPONSE: what is not known to be approved is not."""
    if result.ok:
        return {"callId": call_id, "approved": True, "result": result.output}
    if result.code == "FAILED":
        return {"callId": call_id, "approved": True, "error": _why(result)}
    return {
        "callId": call_id,
        "approved": False,
        "error": DENIED if result.code == "REJECTED" else _why(result),
    }


def _why(result: ToolResult) -> str:
    return f"{result.code}: {result.message}" if result.message else str(result.code)


def words(name: str, result: ToolResult) -> str:
    """A result as a line of the conversation."""
    return f"{name}: {result.output if result.ok else _why(result)}"
