"""Tools that a Fish client runs, one call at a time, and what the client is shown of every tool.

Sections are those of Fish Audio's page "Wire Protocol". A client declares no tools: there the agent's side does, here a JSON file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from vrt_host.agents.base import Json
from vrt_host.errors import UsageError
from vrt_host.facades.fish_messages import NODE, PACKET_BYTES, ClientToolResult, encode, shown
from vrt_host.facades.guest import Call
from vrt_host.tools import DeclaredTools

CALL_S = 30.0
"""For a client's answer, unless the file says otherwise (client_tool.call: 1 to 120)."""
MARGIN_MS = 2000
"""What the host gives a call beyond that."""
ERROR_CHARS = 1000
"""Of a failure's words."""
TIMED_OUT = "Timed out"
_ENDS = {
    "TIMEOUT": TIMED_OUT,
    "REJECTED": "Rejected",
    "INVALID": "Invalid arguments",
    "INTERRUPTED": "Interrupted",
}

Send = Callable[[bytes], None]


class ClientTool(BaseModel):
    """An entry of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: str
    parameters: dict[str, Any] | None = None
    """A JSON Schema of an object."""
    expects_response: bool = True
    timeout: float = Field(default=CALL_S, ge=1, le=120)
    effect: Literal["none", "reversible", "irreversible"] = "reversible"

    @property
    def declared(self) -> dict[str, Json]:
        """As vRT declares a tool (decisions 16)."""
        made: dict[str, Json] = {
            "name": self.name,
            "description": self.description,
            "timeoutMs": round(1000 * self.timeout) + MARGIN_MS,
            "effect": self.effect,
        }
        return made if self.parameters is None else {**made, "parameters": self.parameters}


def load(path: Path) -> Mapping[str, ClientTool]:
    """The tools of a file, a JSON list, by name. Raises `UsageError`."""
    try:
        tools = TypeAdapter(list[ClientTool]).validate_python(json.loads(path.read_bytes()))
    except OSError as error:
        raise UsageError(f"the tools file {path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, found["loc"])) or "it"
        raise UsageError(f"the tools file {path}: {where}: {found['msg'].lower()}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"the tools file {path} is not JSON") from None
    named = {tool.name: tool for tool in tools}
    if len(named) < len(tools):
        raise UsageError(f"the tools file {path}: a name is there twice")
    declined = DeclaredTools([tool.declared for tool in tools]).declined
    if declined:
        raise UsageError(f"the tools file {path}: {declined[0]}")
    return named


class Settles(Protocol):
    """`Guest.result`."""

    def __call__(self, call: str, **result: Any) -> object: ...


class Calls:
    """Calls of one session's client; one at a time, as a guest runs them."""

    def __init__(self, tools: Mapping[str, ClientTool], send: Send, settle: Settles) -> None:
        self._tools = tools
        self._send = send
        self._settle = settle
        self._call: Call | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, call: Call) -> None:
        """client_tool.call."""
        tool = self._tools[call.name]
        message = encode(
            "client_tool.call",
            callId=call.id,
            toolName=call.name,
            params=call.arguments,
            expectsResponse=tool.expects_response,
        )
        if len(message) > PACKET_BYTES:
            self._settle(
                call.id, ok=False, message="the arguments are too large for the client; it was not called"
            )
            return
        self._send(message)
        if not tool.expects_response:
            self._settle(call.id, ok=True)
            return
        self._call = call
        self._timer = asyncio.get_running_loop().call_later(tool.timeout, self._silent)

    def answered(self, result: ClientToolResult) -> None:
        """client_tool.result; ignored unless it is waited for."""
        if self._call is None or self._call.id != result.callId:
            return
        if result.isError:
            self._over(ok=False, message=result.why)
        else:
            self._over(ok=True, output=result.result)

    def cancelled(self) -> None:
        """Nobody waits for it any more; the protocol has no word for that."""
        self._call = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _silent(self) -> None:
        self._over(ok=False, code="TIMEOUT", message=TIMED_OUT)

    def _over(self, **result: Any) -> None:
        call = self._call
        self.cancelled()
        if call is not None:
            self._settle(call.id, **result)


class Lifecycle:
    """Tool lifecycle: one start and one end of each call, made of vRT's `tool.stream` and of the results that are known here."""

    def __init__(self, send: Send, source: Callable[[str], str]) -> None:
        """`source(name)` is where a tool runs."""
        self._send = send
        self._source = source
        self._open: dict[str, dict[str, Json]] = {}
        self._results: dict[str, Mapping[str, Json]] = {}

    def stream(self, message: Mapping[str, Json]) -> None:
        """A `tool.stream` (vRT §7.5)."""
        call, phase = message["callId"], message["phase"]
        if phase == "arguments-complete" and call not in self._open:
            name = message["name"]
            told = {"callId": call, "toolName": name, "toolSource": self._source(name), "nodeId": NODE}
            self._open[call] = told
            self._send(encode("tool.started", **told, **shown("input", message["arguments"])))
        elif phase == "settled":
            self._end(call, message.get("code"))
        elif phase in ("cancelled", "failed"):
            self._end(call, "INTERRUPTED" if phase == "cancelled" else "FAILED")

    def result(self, call: str, **result: Json) -> None:
        """What `Guest.result` will be told."""
        if call in self._open:
            self._results[call] = result

    def interrupted(self) -> None:
        """All that runs is over; vRT's own word for it comes too late to be heard."""
        for call in list(self._open):
            self._end(call, "INTERRUPTED")
        self._results.clear()

    def _end(self, call: str, code: str | None) -> None:
        told, result = self._open.pop(call, None), self._results.pop(call, {})
        if told is None:
            return
        if code is None:
            self._send(encode("tool.completed", **told, **shown("output", result.get("output"))))
        else:
            why = str(_ENDS.get(code) or result.get("message") or "Failed")
            self._send(encode("tool.failed", **told, error=why[:ERROR_CHARS]))
