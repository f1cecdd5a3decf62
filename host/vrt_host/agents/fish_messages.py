"""The messages of a Fish Audio agent's session (page "Wire Protocol", protocol 0.1.0): parsed, and made."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vrt_host.agents.base import Json

log = logging.getLogger(__name__)

RESULT_BYTES = 60_000
"""Of a `client_tool.result` (`toolDispatcher.ts`); the data channel takes 64,000 with its envelope."""

ERRORS = {
    "provider_error": "a model or voice behind the agent failed",
    "internal_error": "the agent's runtime failed",
}
"""`code` of an `error` -> what it means."""

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`client_tool.call`."""

    id: str
    name: str
    params: Mapping[str, Json]
    expects: bool


@dataclass(frozen=True, slots=True)
class OwnStarted:
    """`tool.started`."""

    id: str
    name: str
    source: str
    input: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class OwnEnded:
    """`tool.completed` or `tool.failed`."""

    id: str
    name: str
    source: str
    failed: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """`error`."""

    code: str


@dataclass(frozen=True, slots=True)
class Ended:
    """`session.ended`, which is later than 0.1.0."""

    reason: str


Event = ToolCall | OwnStarted | OwnEnded | Failed | Ended


class Malformed(Exception):
    """A packet that is not of the protocol."""


def parse(data: bytes) -> Event | None:
    """One packet of `agent-event`; None for a type that is unknown. Unknown members are passed over."""
    try:
        message = json.loads(data, parse_constant=_no_json)
    except (ValueError, RecursionError):
        raise Malformed("it sent a packet that is no JSON") from None
    if not isinstance(message, dict) or not isinstance(type_ := message.get("type"), str):
        raise Malformed("it sent a packet without a type")
    try:
        return _event(type_, message)
    except (KeyError, TypeError):
        raise Malformed(f"it sent a {type_} that lacks something") from None


def _no_json(constant: str) -> None:
    """NaN and infinities, which Python reads."""
    raise ValueError(constant)


def _event(type_: str, message: Message) -> Event | None:
    match type_:
        case "client_tool.call":
            params, expects = message["params"], message["expectsResponse"]
            if not isinstance(params, dict) or not isinstance(expects, bool):
                raise TypeError
            return ToolCall(_text(message, "callId"), _text(message, "toolName"), params, expects)
        case "tool.started":
            return OwnStarted(*_tool(message), _input(_text(message, "input")))
        case "tool.completed" | "tool.failed":
            return OwnEnded(*_tool(message), type_ == "tool.failed")
        case "error":
            return Failed(_text(message, "code"))
        case "session.ended":
            return Ended(_text(message, "reason"))
    log.debug("fish: a message of an unknown type, %.40r, was ignored", type_)
    return None


def _text(message: Message, name: str) -> str:
    value = message[name]
    if not isinstance(value, str):
        raise TypeError
    return value


def _tool(message: Message) -> tuple[str, str, str]:
    return _text(message, "callId"), _text(message, "toolName"), _text(message, "toolSource")


def _input(text: str) -> Mapping[str, Json]:
    """JSON as text, which may have been cut."""
    try:
        value = json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return {"input": text}
    return value if isinstance(value, dict) else {"input": value}


def encode(message: Message) -> bytes:
    """A packet."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def user_message(text: str, *, audio: bool) -> Message:
    """A text of the user's; without `audio` it is answered in text alone."""
    message: Message = {"type": "user.message", "text": text}
    return message if audio else {**message, "audio": False}


INTERRUPT: Message = {"type": "user.interrupt"}
HANGUP: Message = {"type": "user.hangup"}


def result(call: str, output: Json) -> Message:
    """What a tool gave; one that is too large is an error."""
    message = {"type": "client_tool.result", "callId": call, "result": output}
    if len(encode(message)) > RESULT_BYTES:
        return failure(call, f"FAILED: the result is too large: more than {RESULT_BYTES:,} bytes")
    return message


NOT_RUN = "INTERRUPTED: the user interrupted; it was not run"


def unknown_tool(name: str, tools: Iterable[str]) -> str:
    """Why a call failed whose tool the device has not."""
    names = ", ".join(tools) or "none"
    return f"FAILED: Tool is not registered: the device has no tool {name[:64]!r}; it has: {names}"


def failure(call: str, why: str) -> Message:
    """A tool failed."""
    return {"type": "client_tool.result", "callId": call, "isError": True, "result": why[:2000]}
