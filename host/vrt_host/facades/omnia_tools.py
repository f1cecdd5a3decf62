"""Tools that Omnia's clients run: which there are, and one call under way.

The protocol has no message by which a client offers a tool: the server's operator names them, in a JSON file.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from vrt_host.agents.base import Json
from vrt_host.errors import LocalError, UsageError
from vrt_host.facades.guest import Call
from vrt_host.protocol import wire
from vrt_host.tools import DeclaredTools

MARGIN_MS = 2000
"""What the host gives a call beyond our own times."""
NOT_ACKNOWLEDGED = "client did not acknowledge tool call within timeout"
NOT_ANSWERED = "client did not answer tool call within timeout"
INTERRUPTED = "the turn was interrupted"
TOOLS_BYTES = 131_072
"""Of all tools as they are declared; the host takes 262,144 with the boards' and what was said."""
RESULT_BYTES = 250_000
"""Of a result as JSON; the host takes 262,144 with all around it."""


class ClientTool(BaseModel):
    """An entry of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: str
    parameters: dict[str, Any] | None = None
    """A JSON Schema of an object."""
    consent_message: str | None = None
    categories: list[str] | None = None
    effect: Literal["none", "reversible", "irreversible"] = "reversible"

    def declared(self, seconds: float) -> dict[str, Json]:
        """As vRT declares a tool (decisions 16); `seconds` is what a call may take."""
        made: dict[str, Json] = {
            "name": self.name,
            "description": self.description,
            "timeoutMs": round(1000 * seconds) + MARGIN_MS,
            "effect": self.effect,
        }
        return made if self.parameters is None else {**made, "parameters": self.parameters}


def load(path: Path) -> Mapping[str, ClientTool]:
    """The tools of a file, a JSON list, by name. Raises `UsageError`."""
    try:
        tools = TypeAdapter(list[ClientTool]).validate_python(wire.loads(path.read_text("utf-8")))
    except OSError as error:
        raise UsageError(f"the tools file {path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, found["loc"])) or "it"
        said = found["msg"].removesuffix(f" or instance of {ClientTool.__name__}").lower()
        raise UsageError(f"the tools file {path}: {where}: {said}") from None
    except ValueError:
        raise UsageError(f"the tools file {path} is not JSON") from None
    named = {tool.name: tool for tool in tools}
    if len(named) < len(tools):
        raise UsageError(f"the tools file {path}: a name is there twice")
    declared = [tool.declared(1.0) for tool in tools]
    declined = DeclaredTools(declared).declined
    if declined:
        raise UsageError(f"the tools file {path}: {declined[0]}")
    try:
        if wire.size(wire.transient("hello", tools=declared)) > TOOLS_BYTES:
            raise UsageError(f"the tools file {path}: all tools together have more than {TOOLS_BYTES} bytes")
    except LocalError as error:
        raise UsageError(f"the tools file {path}: {error}") from None
    return named


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds for a client: until it acknowledges a call, and then until it answers."""

    ack: float
    result: float


class Settles(Protocol):
    """`Guest.result`."""

    def __call__(self, call: str, **result: Any) -> object: ...


class Calls:
    """Calls of one session's client; one at a time, as a guest runs them."""

    def __init__(
        self, tools: Mapping[str, ClientTool], times: Times, send: Callable[..., None], settle: Settles
    ) -> None:
        """`send(kind, **body)` is to the client, `settle` to the agent."""
        self._tools = tools
        self._times = times
        self._send = send
        self._settle = settle
        self._loop = asyncio.get_running_loop()
        self._id = ""
        self._call: Call | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._acknowledged = False

    def begin(self, call: Call) -> None:
        """Tool call."""
        tool = self._tools[call.name]
        self._id = f"tc-{uuid.uuid4().hex}"
        self._call = call
        self._acknowledged = False
        self._timer = self._loop.call_later(self._times.ack, self._silent)
        told = {"id": self._id, "name": call.name, "arguments": call.arguments}
        told |= {"consent_message": tool.consent_message, "categories": tool.categories}
        self._send("tool_call", tool_call={name: value for name, value in told.items() if value is not None})

    def acknowledged(self, id_: str) -> bool:
        """Tool call acknowledgement. False: nobody waits for it."""
        if not self._is(id_):
            return False
        if not self._acknowledged and self._timer is not None:
            self._acknowledged = True
            self._timer.cancel()
            self._timer = self._loop.call_later(self._times.result, self._silent)
        return True

    def answered(self, id_: str, result: Json, error: str | None) -> bool:
        """Tool result. False: nobody waits for it."""
        if not self._is(id_):
            return False
        if error is not None:
            self._over(ok=False, message=error or "the tool failed")
        elif len(json.dumps(result, ensure_ascii=False).encode()) > RESULT_BYTES:
            self._over(ok=False, message="the tool ran, but its result is too large")
        else:
            self._over(ok=True, output=result)
        return True

    def declined(self, id_: str, reason: str) -> bool:
        """Tool call rejection. False: nobody waits for it."""
        if not self._is(id_):
            return False
        self._over(ok=False, code="REJECTED", message=reason or "the client declined it")
        return True

    def cancelled(self) -> None:
        """The agent does not want it any more; the client stops waiting on it."""
        if self._call is not None:
            self._give_up(INTERRUPTED)

    def _is(self, id_: str) -> bool:
        return self._call is not None and self._id == id_

    def _silent(self) -> None:
        """Denied. What was acknowledged may have run all the same: then the agent is told of a time-out instead."""
        call = self._call
        words = NOT_ANSWERED if self._acknowledged else NOT_ACKNOWLEDGED
        code = "TIMEOUT" if self._acknowledged else "REJECTED"
        self._give_up(words)
        if call is not None:
            self._settle(call.id, ok=False, code=code, message=words)

    def _give_up(self, words: str) -> None:
        self._send("tool_result", tool_result={"id": self._id, "error": words})
        self._end()

    def _over(self, **result: Any) -> None:
        call = self._call
        self._end()
        if call is not None:
            self._settle(call.id, **result)

    def _end(self) -> None:
        self._call = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
