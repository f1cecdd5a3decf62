"""The messages of Omnia's facade: those that are sent are made here, those that come are taken apart and judged here."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vrt_host.agents.base import AgentError, Json
from vrt_host.agents.provider import Kind, ProviderError

PROTOCOL_VERSION = 1
MESSAGE_BYTES = 1 << 24
"""`max_payload_size`, where the facade says nothing of it."""

METADATA_KEYS = 32
METADATA_VALUE_BYTES = 8 * 1024
METADATA_BYTES = 32 * 1024
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Message = dict[str, Any]


# --- what is sent


def metadata_fault(metadata: Mapping[str, str]) -> str | None:
    """Which limit this metadata breaks (page, "Message metadata"); None: none."""
    if len(metadata) > METADATA_KEYS:
        return f"{len(metadata)} keys, and {METADATA_KEYS} are allowed"
    for key, value in metadata.items():
        if not _KEY.fullmatch(key):
            return f"the key {key[:64]!r} is not 1 to 64 letters, digits, _ . or -"
        if len(value.encode()) > METADATA_VALUE_BYTES:
            return f"the value of {key} has more than {METADATA_VALUE_BYTES:,} bytes"
    if sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items()) > METADATA_BYTES:
        return f"keys and values together have more than {METADATA_BYTES:,} bytes"
    return None


def message(
    texts: Sequence[str],
    media: Sequence[Message] = (),
    *,
    session_id: str | None,
    metadata: Mapping[str, str],
    declare: Json = None,
) -> Message:
    """What the user says: one text as `content`, all else as `parts`, whose texts the runtime joins by a blank line."""
    made: Message = {"type": "message"}
    if session_id is not None:
        made["session_id"] = session_id
    if len(texts) == 1 and not media:
        made["content"] = texts[0]
    else:
        made["parts"] = [*({"type": "text", "text": text} for text in texts), *media]
    if metadata:
        made["metadata"] = dict(metadata)
    if declare:
        made["declare"] = declare
    return made


def media_part(mime_type: str, name: str, size: int, **source: str) -> Message:
    """A part of a message that is a file: `source` is its `storage_ref` or its `data`."""
    kind = mime_type.partition("/")[0]
    media = {"mime_type": mime_type, "filename": name, "size_bytes": size, **source}
    return {"type": kind if kind in ("image", "audio", "video") else "file", "media": media}


def upload_request(name: str, mime_type: str, size: int, *, session_id: str | None) -> Message:
    """Ask where a file may be put."""
    made: Message = {"type": "upload_request"}
    if session_id is not None:
        made["session_id"] = session_id
    made["upload_request"] = {"filename": name, "mime_type": mime_type, "size_bytes": size}
    return made


def ack(call: str) -> Message:
    """The call was received, and is worked on."""
    return {"type": "tool_call_ack", "tool_call_ack": {"call_id": call}}


def nack(call: str, reason: str) -> Message:
    """The call is declined."""
    return {"type": "tool_call_nack", "tool_call_nack": {"call_id": call, "reason": reason}}


def result(call: str, output: Json) -> Message:
    """What the tool gave."""
    return {"type": "tool_result", "tool_result": {"call_id": call, "result": output}}


def failure(call: str, error: str) -> Message:
    """The tool failed."""
    return {"type": "tool_result", "tool_result": {"call_id": call, "error": error}}


def credential_refresh(token: str) -> Message:
    """The credential that replaces the connection's."""
    return {"type": "credential_refresh", "token": token}


HANGUP: Message = {"type": "hangup"}
DISCLOSURE_ACK: Message = {"type": "disclosure_ack"}


# --- what comes


@dataclass(frozen=True, slots=True)
class Connected:
    """The first message of a connection."""

    session_id: str
    max_bytes: int
    resumed: bool
    ai_disclosure: bool


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next words, of the agent or of the user as they were transcribed."""

    text: str
    user: bool


@dataclass(frozen=True, slots=True)
class Media:
    """What a part of an answer holds besides text: `data` where it came along, else where it is."""

    kind: str
    mime_type: str
    data: bytes | None
    where: str
    name: str


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is complete. Its text is None where it says none: then it is what came in chunks."""

    text: str | None
    media: tuple[Media, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool of the client's is called."""

    id: str
    name: str
    arguments: Mapping[str, Json]
    consent: str
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A call is over for the facade: it did not wait any longer, or it ran the tool itself (demo)."""

    id: str
    error: str


@dataclass(frozen=True, slots=True)
class UploadReady:
    """Where a file may be put."""

    upload_id: str
    url: str
    storage_ref: str
    expires_at: str
    method: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MediaChunk:
    """A piece of audio or video, whichever way it came."""

    media_id: str
    sequence: int | None
    """None: it needs no order, since it was a transfer of its own."""
    last: bool
    data: bytes
    mime_type: str
    rate: int | None = None
    channels: int = 1


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The user speaks into the answer."""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The format in which the user's audio is wanted."""

    codec: str
    sample_rate: int
    channels: int


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of the facade's."""

    code: str
    error: ProviderError

    def event(self, agent: str, turn: str | None, secrets: Sequence[str]) -> AgentError:
        """What the session is told, under the facade's own code."""
        return replace(self.error.event(agent, turn, secrets), code=self.code.upper())


@dataclass(frozen=True, slots=True)
class Unknown:
    """A message of another time."""

    type: str


Incoming = (
    Connected
    | Chunk
    | Done
    | ToolCall
    | GivenUp
    | UploadReady
    | MediaChunk
    | Interrupt
    | SessionConfig
    | Failure
    | Unknown
)


@dataclass(slots=True)
class _Reader:
    """Members of an object, with the types that they have to have."""

    where: str
    value: Mapping[str, Json] = field(default_factory=dict)

    def inner(self, name: str) -> _Reader:
        value = self.value.get(name)
        if not isinstance(value, dict):
            raise ProviderError("malformed", f"its {self.where} has no {name}")
        return _Reader(name, value)

    def text(self, name: str, default: str | None = None) -> str:
        value = self.value.get(name, default)
        if not isinstance(value, str):
            raise ProviderError("malformed", f"its {self.where} has no {name} that is a text")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        value = self.value.get(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ProviderError("malformed", f"its {self.where} has no {name} that is a whole number")
        return value

    def truth(self, name: str) -> bool:
        value = self.value.get(name, False)
        if not isinstance(value, bool):
            raise ProviderError("malformed", f"its {self.where} has a {name} that is neither true nor false")
        return value


def parse(text: str | bytes) -> Incoming:
    """One text frame; raises `ProviderError` of the kind `malformed`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ProviderError("malformed", "it sent a message that is not JSON") from None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise ProviderError("malformed", "it sent a message without a type")
    kind = value["type"]
    make = _MAKERS.get(kind)
    return Unknown(kind) if make is None else make(_Reader(kind, value))


def _connected(reader: _Reader) -> Connected:
    body = reader.inner("connected")
    able = body.inner("capabilities")
    version = able.number("protocol_version")
    if version != PROTOCOL_VERSION:
        raise ProviderError(
            "version", f"it speaks version {version} of the protocol, and {PROTOCOL_VERSION} is spoken here"
        )
    session_id = reader.text("session_id")
    if not session_id:
        raise ProviderError("malformed", "its connected has no session_id")
    return Connected(
        session_id, able.number("max_payload_size"), body.truth("resumed"), body.truth("ai_disclosure")
    )


def _chunk(reader: _Reader) -> Chunk:
    return Chunk(reader.text("content", ""), reader.text("role", "") == "user")


def _done(reader: _Reader) -> Done:
    parts = reader.value.get("parts")
    if not parts:
        return Done(reader.text("content", "") or None)
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise ProviderError("malformed", "its done has parts that are none")
    readers = [_Reader("part", part) for part in parts]
    texts = [part.text("text", "") for part in readers if part.text("type") == "text"]
    media = [_media(part) for part in readers if part.text("type") != "text"]
    return Done("\n\n".join(texts) or None, tuple(media))


def _media(part: _Reader) -> Media:
    media = part.inner("media")
    data = media.text("data", "")
    where = media.text("url", "") or media.text("storage_ref", "")
    if not (data or where):
        raise ProviderError("malformed", "its media have neither data nor url nor storage_ref")
    return Media(
        part.text("type"),
        media.text("mime_type"),
        _base64(data, "media") if data else None,
        where,
        media.text("filename", ""),
    )


def _base64(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise ProviderError("malformed", f"its {where} has data that is not base64") from None


def _tool_call(reader: _Reader) -> ToolCall:
    body = reader.inner("tool_call")
    arguments = body.value.get("arguments", {})
    categories = body.value.get("categories", [])
    if not isinstance(arguments, dict) or not isinstance(categories, list):
        raise ProviderError("malformed", "its tool_call has arguments or categories of a wrong kind")
    return ToolCall(
        body.text("id"),
        body.text("name"),
        arguments,
        body.text("consent_message", "").strip(),
        tuple(map(str, categories)),
    )


def _tool_result(reader: _Reader) -> GivenUp:
    body = reader.inner("tool_result")
    return GivenUp(body.text("id"), body.text("error", ""))


def _upload_ready(reader: _Reader) -> UploadReady:
    body = reader.inner("upload_ready")
    headers = body.value.get("headers") or {}
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise ProviderError("malformed", "its upload_ready has headers that are no texts")
    return UploadReady(
        upload_id=body.text("upload_id"),
        url=body.text("upload_url"),
        storage_ref=body.text("storage_ref"),
        expires_at=body.text("expires_at"),
        method=body.text("method", "PUT") or "PUT",
        headers=headers,
    )


def _media_chunk(reader: _Reader) -> MediaChunk:
    body = reader.inner("media_chunk")
    data = _base64(body.text("data", ""), "media_chunk")
    return MediaChunk(
        body.text("media_id", ""),
        body.number("sequence"),
        body.truth("is_last"),
        data,
        body.text("mime_type"),
    )


def _session_config(reader: _Reader) -> SessionConfig:
    body = reader.inner("session_config")
    return SessionConfig(body.text("codec"), body.number("sample_rate"), body.number("channels"))


_MAKERS: dict[str, Callable[[_Reader], Incoming]] = {
    "connected": _connected,
    "chunk": _chunk,
    "done": _done,
    "tool_call": _tool_call,
    "tool_result": _tool_result,
    "upload_ready": _upload_ready,
    "media_chunk": _media_chunk,
    "interrupt": lambda _: Interrupt(),
    "session_config": _session_config,
    "error": lambda reader: failed(reader.inner("error")),
}


# --- errors (page, "Error codes")

_ERRORS: dict[str, tuple[Kind, str]] = {
    "INVALID_MESSAGE": ("refused", "say it in other words"),
    "SESSION_EXPIRED": ("refused", "say it again: a new session begins"),
    "INTERNAL_ERROR": ("refused", "ask again; the facade's log says why"),
    "UPLOAD_FAILED": ("refused", "the file was not handed over; try it again"),
    "MEDIA_NOT_ENABLED": ("refused", "write to this agent, or enable its media in Omnia"),
    "RATE_LIMITED": ("rate", "wait a little and ask again"),
    "TURN_IN_PROGRESS": ("rate", "wait until the answer before is there, and ask again"),
    "UNSATISFIABLE_FORMAT": ("refused", "write to this agent: it takes no audio of ours"),
    "pack_compile_failed": ("model", "mend the agent's source in Omnia"),
    "SESSION_DECLARATION_REFUSED": ("format", "mend the option declare"),
    "MAX_ROUNDS_EXCEEDED": ("refused", "ask again to let it go on"),
    "PROVIDER_RATE_LIMITED": ("rate", "wait a little and ask again"),
    "PROVIDER_UNAVAILABLE": ("unreachable", "ask again shortly"),
    "PROVIDER_STALLED": ("gone", "ask again to let it go on"),
    "PROVIDER_TIMEOUT": ("unreachable", "ask again shortly"),
    "PROVIDER_AUTH_FAILED": ("key", "mend the agent's Provider or its workload identity in Omnia"),
    "CREDENTIAL_EXPIRED": ("expired", "get a new credential"),
    "DUPLEX_ERROR": ("gone", "speak again: the audio session is begun anew"),
}
"""Code -> what kind of fault it is, which says whether there is hope, and what can be done."""

_HOPE = ("SandboxUnavailable", "MaxInstances", "SessionInitFailed")
"""Reasons of a refused declaration that may be over in a while."""


def failed(body: _Reader) -> Failure:
    """An `error`; of a code that is unknown, its own words alone."""
    code, said = body.text("code"), body.text("message", "")
    details = body.value.get("details")
    kind, advice = _ERRORS.get(code, ("refused", "ask again"))
    if isinstance(details, dict):
        more = [str(details[name]) for name in ("error", "reason", "message") if details.get(name)]
        said = ": ".join(dict.fromkeys([said, *more]))
        if code == "SESSION_DECLARATION_REFUSED" and details.get("reason") in _HOPE:
            kind, advice = "refused", "ask again in a while"
    return Failure(code, ProviderError(kind, f"{said} ({code})" if said else code, advice=advice))


def closed(code: int, reason: str) -> ProviderError:
    """The end of a connection."""
    if code == 4401:
        return ProviderError("expired", f"the credential has expired ({code} {reason})")
    if code == 1009:
        return ProviderError("malformed", f"a message was too large for it ({code} {reason})")
    return ProviderError("gone", f"it closed the connection ({code} {reason})".replace(" )", ")"))


def refused(status: int, said: str, retry_after_s: float | None) -> ProviderError:
    """The answer to an upgrade that was none."""
    said = f"{said} (HTTP status {status})" if said else f"HTTP status {status}"
    kinds: dict[int, tuple[Kind, str | None]] = {
        400: ("format", "check the options agent, namespace and memory_facet"),
        401: ("key", None),
        403: ("format", "check memory_facet, and what this credential may reach"),
        404: ("model", "check the address and the name of the agent"),
        429: ("rate", None),
        503: ("rate", "it has no room, or is going down: try again in a while"),
    }
    kind, advice = kinds.get(status, ("unreachable" if status >= 500 else "refused", None))
    return ProviderError(kind, said, advice=advice, retry_after_s=retry_after_s)
