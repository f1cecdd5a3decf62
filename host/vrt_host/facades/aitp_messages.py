"""AITP 1.0.0 as a server reads and writes it: the envelope, the payloads of the client's messages, JSON Schema in its dialect.

Sections are those of the AITP page ("1. HANDSHAKE_INIT" and so on). What the page leaves open follows the validation of its
reference implementation: objects are open, unknown members are dropped, a missing or wrong one makes the message invalid.
"""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationError

from vrt_host.agents.base import Json, Tool
from vrt_host.errors import VrtError
from vrt_host.facades.model import Model
from vrt_host.protocol.wire import loads

VERSION = "1.0.0"
TYPES = frozenset(
    (
        *("HANDSHAKE_INIT", "HANDSHAKE_ACK", "CONTEXT_UPDATE", "USER_INPUT", "TOOL_CALL", "TOOL_RESULT"),
        *("APPROVAL_REQUEST", "APPROVAL_RESPONSE", "AGENT_RESPONSE", "AUDIO_STREAM", "VOICE_INPUT_END"),
        *("VOICE_INTERRUPT", "VOICE_STATE_EVENT", "SYSTEM_EVENT"),
    )
)

Some = Annotated[str, Field(min_length=1)]
Risk = Literal["none", "low", "high", "critical"]


class InvalidError(VrtError):
    """A frame that is no AITP message; the text says why, and quotes nothing of it."""


def _base64(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError("it is no text")  # noqa: TRY004  (what a validator raises)
    return base64.b64decode(text, validate=True)


class Property(Model):
    """A value of a tool's arguments, in AITP's dialect (3. CONTEXT_UPDATE)."""

    type: Literal["STRING", "NUMBER", "BOOLEAN", "OBJECT", "ARRAY"]
    description: str | None = None
    enum: list[str] | None = None
    items: Property | None = None
    properties: dict[str, Property] | None = None
    required: list[str] | None = None


class Parameters(Model):
    """A tool's arguments."""

    type: Literal["OBJECT"]
    properties: dict[str, Property]
    required: list[str] | None = None


class Declaration(Model):
    """A tool of the client's."""

    name: Some
    description: Some
    parameters: Parameters | None = None
    risk: Risk | None = None


class HandshakeInit(Model):
    """1. HANDSHAKE_INIT."""

    apiKey: Some
    userAgent: str
    viewport: str
    sdkVersion: str
    protocolVersion: str


class ContextUpdate(Model):
    """3. CONTEXT_UPDATE."""

    url: str
    title: str | None = None
    activeTools: list[Declaration]
    context: dict[str, Any] | None = None


class UserInput(Model):
    """4. USER_INPUT."""

    modality: Literal["text", "audio"]
    content: str
    mimeType: Some | None = None


class ToolResult(Model):
    """6. TOOL_RESULT."""

    nullable: ClassVar[frozenset[str]] = frozenset({"result"})

    callId: Some
    status: Literal["success", "error", "pending_approval"]
    result: Any = None
    error: str | None = None


class ApprovalRequest(Model):
    """7. APPROVAL_REQUEST."""

    callId: Some
    toolName: Some
    risk: Risk
    args: dict[str, Any]
    message: Some


class ApprovalResponse(Model):
    """8. APPROVAL_RESPONSE."""

    nullable: ClassVar[frozenset[str]] = frozenset({"result"})

    callId: Some
    approved: bool
    result: Any = None
    error: str | None = None


class AudioStream(Model):
    """10. AUDIO_STREAM."""

    data: Annotated[bytes, BeforeValidator(_base64), Field(min_length=1)]
    """Base64 on the wire, bytes here."""
    mimeType: Some


class VoiceInputEnd(Model):
    """11. VOICE_INPUT_END."""

    reason: Literal["user_stop", "vad", "timeout"]


class VoiceInterrupt(Model):
    """12. VOICE_INTERRUPT."""

    reason: Literal["barge_in"]


CLIENT: Mapping[str, type[Model]] = {
    "HANDSHAKE_INIT": HandshakeInit,
    "CONTEXT_UPDATE": ContextUpdate,
    "USER_INPUT": UserInput,
    "TOOL_RESULT": ToolResult,
    "APPROVAL_REQUEST": ApprovalRequest,
    "APPROVAL_RESPONSE": ApprovalResponse,
    "AUDIO_STREAM": AudioStream,
    "VOICE_INPUT_END": VoiceInputEnd,
    "VOICE_INTERRUPT": VoiceInterrupt,
}
"""What a client sends, by type."""


class _Meta(Model):
    sessionId: str | None = None
    token: str | None = None


class _Envelope(Model):
    nullable: ClassVar[frozenset[str]] = frozenset({"payload"})

    id: Some
    type: str
    timestamp: float
    payload: Any
    meta: _Meta | None = None


def decode(text: str) -> Any:
    """The payload of a client's message, an instance of one of `CLIENT`. Raises `InvalidError`."""
    try:
        # Read as strictly as everything that goes on into the host: no NaN, no lone surrogates, nested 32 levels at most.
        envelope = _Envelope.model_validate(loads(text))
    except ValidationError as error:
        raise InvalidError(_first(error)) from None
    except ValueError:
        raise InvalidError("invalid JSON, or nested too deeply") from None
    kind = CLIENT.get(envelope.type)
    if kind is None:
        known = envelope.type in TYPES
        raise InvalidError("a message that only a server sends" if known else "an unknown type")
    try:
        return kind.model_validate(envelope.payload)
    except ValidationError as error:
        raise InvalidError(f"{envelope.type}: {_first(error)}") from None


def encode(kind: str, payload: Mapping[str, Json], session: str) -> str:
    """A server's message, with an id and the time of its own. Members that are None are left out."""
    message = {
        "id": f"msg_{uuid.uuid4()}",
        "type": kind,
        "timestamp": round(time.time() * 1000),
        "payload": {name: value for name, value in payload.items() if value is not None},
        "meta": {"sessionId": session},
    }
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def rate_of(mime: str, default: int) -> int | None:
    """Hz of `audio/pcm;rate=16000`; None when it is something else than 16-bit PCM."""
    kind, *parameters = (part.strip() for part in mime.lower().split(";"))
    if kind not in ("audio/pcm", "audio/l16"):
        return None
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "rate":
            fits = value.isdecimal() and len(value) <= 5 and 8000 <= int(value) <= 48_000
            return int(value) if fits else None
    return default


# --- tools in both dialects

_TO_JSON = {
    "STRING": "string",
    "NUMBER": "number",
    "BOOLEAN": "boolean",
    "OBJECT": "object",
    "ARRAY": "array",
}
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""A name that the host does not decline (decisions, "Client messages")."""
_FROM_JSON = {
    **{name: kind for kind, name in _TO_JSON.items()},
    "integer": "NUMBER",
}


def declared(tool: Declaration, timeout_ms: int) -> dict[str, Json]:
    """A client's tool as vRT declares one (decisions 16)."""
    made: dict[str, Json] = {
        "name": tool.name,
        "description": tool.description,
        "timeoutMs": timeout_ms,
        "effect": {"none": "none", "low": "reversible", None: "reversible"}.get(tool.risk, "irreversible"),
    }
    if tool.parameters is not None:
        made["parameters"] = _schema(tool.parameters)
    return made


def _schema(value: Property | Parameters) -> dict[str, Json]:
    made: dict[str, Json] = {"type": _TO_JSON[value.type]}
    if value.required is not None:
        made["required"] = value.required
    if value.properties is not None:
        made["properties"] = {name: _schema(one) for name, one in value.properties.items()}
    if isinstance(value, Property):
        if value.description is not None:
            made["description"] = value.description
        if value.enum is not None:
            made["enum"] = value.enum
        if value.items is not None:
            made["items"] = _schema(value.items)
    return made


def taken(tools: Iterable[Declaration], ours: Collection[str]) -> tuple[list[Declaration], list[Declaration]]:
    """Those that count: the first of a name that is none of `ours` and that vRT can name; and the others."""
    mine: dict[str, Declaration] = {}
    others = []
    for tool in tools:
        if tool.name in ours or tool.name in mine or not _NAME.fullmatch(tool.name):
            others.append(tool)
        else:
            mine[tool.name] = tool
    return list(mine.values()), others


def described(tool: Declaration) -> dict[str, Json]:
    """A client's tool as it is told back (14. SYSTEM_EVENT, tools_effective)."""
    return tool.model_dump(exclude_none=True)


def offered(name: str, tool: Tool) -> dict[str, Json]:
    """A board's tool as AITP describes one."""
    made: dict[str, Json] = {"name": name, "description": tool.description or name, "risk": risk_of(tool)}
    if tool.parameters is not None:
        made["parameters"] = {"properties": {}, **_property(tool.parameters), "type": "OBJECT"}
        made["parameters"].pop("description", None)
    return made


def risk_of(tool: Tool) -> Risk:
    """By what the tool does, and whether the board asks."""
    if tool.effect == "irreversible":
        return "critical"
    if tool.confirm is not None:
        return "high"
    return "none" if tool.effect == "none" else "low"


def _property(schema: Mapping[str, Json]) -> dict[str, Json]:
    """The nearest that the dialect has; what it cannot say is checked by the board all the same."""
    kind = schema.get("type")
    made: dict[str, Json] = {
        "type": _FROM_JSON.get(kind, "STRING") if isinstance(kind, str) else "STRING",
        **{name: schema[name] for name in ("description", "required") if name in schema},
    }
    values = schema.get("enum")
    if isinstance(values, list) and all(isinstance(value, str) for value in values):
        made["enum"] = values
    if isinstance(schema.get("properties"), dict):
        made["properties"] = {name: _property(one) for name, one in schema["properties"].items()}
    if isinstance(schema.get("items"), dict):
        made["items"] = _property(schema["items"])
    return made


def _first(error: ValidationError) -> str:
    """The first thing that is wrong; never a value."""
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg'].lower()}"
