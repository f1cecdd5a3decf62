"""Omnia's JSON messages as a server reads and writes them, and the parameters of its WebSocket's address.

Sections are those of Omnia's page "WebSocket protocol". Objects are open: unknown members are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from multidict import MultiMapping
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from vrt_host.agents.base import Json
from vrt_host.errors import VrtError
from vrt_host.facades.model import Model
from vrt_host.protocol.wire import loads, well_formed

METADATA_KEYS = 32
METADATA_VALUE_BYTES = 8 * 1024
METADATA_BYTES = 32 * 1024
DECLARE_BYTES = 16 * 1024
SESSION_CHARS = 128
"""Of an id that a client makes up."""
PARTS = 100
"""Of a message; and so many grants. To find all that is wrong in 16 MiB of them takes minutes."""
_SHOWN = 200
"""Characters of what describes a medium to the model."""

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SLOT = re.compile(r"\{([A-Za-z0-9_.-]{1,64})\}")
_RESERVED = frozenset({"mock_scenario", "content_type"})
_FACET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}")
Some = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Grant = Literal[
    "memory:identity",
    "memory:preferences",
    "memory:context",
    "memory:location",
    "memory:health",
    "memory:history",
    "analytics:aggregate",
]
Grants = Annotated[list[Grant], Field(max_length=PARTS)]


class InvalidError(VrtError):
    """A message that is answered with INVALID_MESSAGE; the text is for the client."""


class UpgradeError(VrtError):
    """A connection that is refused with an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Client(Model):
    session_id: Annotated[str, Field(max_length=SESSION_CHARS)] | None = None


class Media(Model):
    """ContentPart structure."""

    data: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]*={0,2}$")] | None = None
    url: Annotated[str, Field(pattern=r"^https?://[^/]")] | None = None
    storage_ref: Some | None = None
    mime_type: Some
    filename: str | None = None
    size_bytes: Count | None = None
    width: Count | None = None
    height: Count | None = None
    detail: Literal["low", "high", "auto"] | None = None
    duration_ms: Count | None = None
    sample_rate: Count | None = None
    channels: Count | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Media:
        if sum(source is not None for source in (self.data, self.url, self.storage_ref)) != 1:
            raise ValueError("media has exactly one of data, url and storage_ref")
        return self


class Part(Model):
    """ContentPart types."""

    type: Literal["text", "image", "audio", "video", "file"]
    text: str | None = None
    media: Media | None = None

    @model_validator(mode="after")
    def _whole(self) -> Part:
        if self.type == "text" and self.text is None:
            raise ValueError("a part of type text has no text")
        if self.type != "text" and self.media is None:
            raise ValueError(f"a part of type {self.type} has no media")
        return self


class Message(_Client):
    """Message; Message metadata."""

    content: str | None = None
    parts: Annotated[list[Part], Field(max_length=PARTS)] | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    declare: dict[str, Any] = Field(default_factory=dict)
    consent_grants: Grants = Field(default_factory=list)
    session_consent_grants: Grants = Field(default_factory=list)

    @field_validator("metadata", mode="before")
    @classmethod
    def _keys(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > METADATA_KEYS:
            raise ValueError(f"metadata has more than {METADATA_KEYS} keys")
        return value

    @field_validator("metadata")
    @classmethod
    def _limits(cls, value: dict[str, str]) -> dict[str, str]:
        sizes = {name: len(text.encode()) for name, text in value.items()}
        if not all(_KEY.fullmatch(name) for name in value):
            raise ValueError("a key of metadata is not 1 to 64 letters, digits, '_', '.' or '-'")
        if max(sizes.values(), default=0) > METADATA_VALUE_BYTES:
            raise ValueError("a value of metadata has more than 8 KiB")
        if sum(sizes.values()) + sum(map(len, sizes)) > METADATA_BYTES:
            raise ValueError("metadata has more than 32 KiB, keys and values together")
        return value

    @field_validator("declare")
    @classmethod
    def _size(cls, value: dict[str, Any]) -> dict[str, Any]:
        if len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()) > DECLARE_BYTES:
            raise ValueError("declare has more than 16 KiB")
        return value

    @model_validator(mode="after")
    def _something(self) -> Message:
        if self.content is None and self.parts is None:
            raise ValueError("neither content nor parts")
        return self

    def text(self, template: str | None = None) -> str:
        """What the model is told: the text; in words, which media came with it; and the metadata, by a template for them."""
        parts = self.parts or []
        texts = [part.text for part in parts if part.type == "text" and part.text]
        media = [_described(part.type, part.media) for part in parts if part.media is not None]
        shown = [] if template is None else self._rendered(template)
        return "\n\n".join([*(texts or [self.content or ""]), *media, *shown]).strip("\n")

    def _rendered(self, template: str) -> list[str]:
        told = {
            name: text
            for name, text in self.metadata.items()
            if name not in _RESERVED and not name.startswith("omnia.")
        }
        return [_SLOT.sub(lambda slot: told.get(slot[1], ""), template)] if told else []


def _described(kind: str, media: Media) -> str:
    size = len(media.data) * 3 // 4 - media.data.count("=") if media.data is not None else media.size_bytes
    where = media.url or media.storage_ref or "sent along"
    told = [media.filename, media.mime_type, None if size is None else f"{size} bytes", where]
    shown = ", ".join("".join(filter(str.isprintable, one[:_SHOWN])) for one in told if one)
    return f"[The user attached, and you cannot see its content: {kind}, {shown}]"


class Upload(Model):
    """Upload request."""

    filename: Some
    mime_type: Some
    size_bytes: Annotated[int, Field(gt=0)]


class UploadRequest(_Client):
    """Upload request."""

    upload_request: Upload


class RequestUpload(Upload):
    """Request upload: the body of the HTTP route."""

    session_id: Annotated[str, Field(min_length=1, max_length=SESSION_CHARS)]


class Result(Model):
    """Tool result."""

    nullable = frozenset({"result"})
    call_id: Some
    result: Any = None
    error: str | None = None


class ToolResult(_Client):
    """Tool result."""

    tool_result: Result


class Ack(Model):
    """Tool call acknowledgement and rejection."""

    call_id: Some


class ToolCallAck(_Client):
    """Tool call acknowledgement and rejection."""

    tool_call_ack: Ack


class Nack(Model):
    """Tool call acknowledgement and rejection."""

    call_id: Some
    reason: str


class ToolCallNack(_Client):
    """Tool call acknowledgement and rejection."""

    tool_call_nack: Nack


class Hangup(_Client):
    """Hangup."""


class DisclosureAck(_Client):
    """Disclosure acknowledgement."""


class CredentialRefresh(BaseModel):
    """Credential refresh: one that is wrong is ignored, as any other."""


CLIENT: Mapping[str, type[BaseModel]] = {
    "message": Message,
    "upload_request": UploadRequest,
    "tool_result": ToolResult,
    "tool_call_ack": ToolCallAck,
    "tool_call_nack": ToolCallNack,
    "hangup": Hangup,
    "disclosure_ack": DisclosureAck,
    "credential_refresh": CredentialRefresh,
}
"""What a client sends, by type."""

_UPLOAD_WORDS: Mapping[tuple[int | str, ...], str] = {
    ("upload_request",): "upload_request field is required",
    ("upload_request", "filename"): "filename is required",
    ("upload_request", "mime_type"): "mime_type is required",
    ("upload_request", "size_bytes"): "size_bytes must be positive",
}


def decode(text: str) -> Any:
    """A client's message, an instance of one of `CLIENT`. Raises `InvalidError`, which quotes nothing of it."""
    try:
        value = loads(text)
    except (ValueError, RecursionError):
        raise InvalidError("invalid message format") from None
    if not isinstance(value, dict):
        raise InvalidError("invalid message format")
    kind = CLIENT.get(value["type"]) if isinstance(value.get("type"), str) else None
    if kind is None:
        raise InvalidError("unknown message type")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise InvalidError(first(error)) from None


def first(error: ValidationError) -> str:
    """The first thing that is wrong, for the client; never a value."""
    found = error.errors(include_input=False, include_url=False)[0]
    missing = found["type"] in ("missing", "string_too_short", "greater_than")
    if missing and (words := _UPLOAD_WORDS.get(found["loc"])) is not None:
        return words
    said = found["msg"].removeprefix("Value error, ")
    if found["type"] == "value_error":
        return said
    return f"{'.'.join(map(str, found['loc'])) or 'the message'}: {said[:1].lower()}{said[1:]}"


def encode(kind: str, session: str | None, /, **body: Json) -> str:
    """A server's message; members that are None are left out."""
    message = {"type": kind, "session_id": session, "timestamp": timestamp(datetime.now(UTC)), **body}
    shown = {name: value for name, value in message.items() if value is not None}
    return well_formed(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))


def timestamp(moment: datetime) -> str:
    """A time as RFC 3339 writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


@dataclass(frozen=True, slots=True)
class Query:
    """URL format: the parameters of a connection. `resume` is None when there is none."""

    binary: bool
    resume: str | None
    facet: str | None


def query(given: MultiMapping[str], *, agent: str | None, facet: str | None) -> Query:
    """Read them; `agent` and `facet` are what the facade is configured with. Raises `UpgradeError`."""
    named = given.get("agent") or agent
    if named is None:
        raise UpgradeError(400, "agent parameter is required")
    if agent is not None and named != agent:
        raise UpgradeError(404, "there is no such agent")
    facets = given.getall("memory_facet", [])
    if len(facets) > 1 or not all(_FACET.fullmatch(one) for one in facets):
        raise UpgradeError(400, "memory_facet is malformed")
    if facet is not None and facets not in ([], [facet]):
        raise UpgradeError(403, "the agent's memory_facet is another one")
    chosen = facets[0] if facets else facet
    return Query(given.get("binary") == "true", given.get("resume") or None, chosen)
