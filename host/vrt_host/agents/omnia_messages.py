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
from vrt_host.agents.omnia_errors import judged, of_upload
from vrt_host.agents.provider import ProviderError

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
        if _bytes(value) > METADATA_VALUE_BYTES:
            return f"the value of {key} has more than {METADATA_VALUE_BYTES:,} bytes"
    if sum(_bytes(key) + _bytes(value) for key, value in metadata.items()) > METADATA_BYTES:
        return f"keys and values together have more than {METADATA_BYTES:,} bytes"
    return None


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))  # as it is sent


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

    @property
    def of_upload(self) -> bool:
        """Whether it may be about an upload."""
        return of_upload(self.code, self.error.said)

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


_URL = re.compile(r"https?://[^/].*", re.DOTALL)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_ID = re.compile(r"[^\x00-\x20\x7f\ud800-\udfff]{1,512}")
_FACET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}")
_PARTS = ("text", "image", "audio", "video", "file")


class EndError(ProviderError):
    """A malformed message that would have ended an answer."""


@dataclass(slots=True)
class _Reader:
    """Members of an object, with the types that they have to have."""

    where: str
    value: Mapping[str, Json] = field(default_factory=dict)

    def wrong(self, name: str, what: str) -> ProviderError:
        """What is to be raised for a member that is not right."""
        return ProviderError("malformed", f"its {self.where} has no {name} that is {what}")

    def inner(self, name: str) -> _Reader:
        value = self.value.get(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return _Reader(name, value)

    def text(self, name: str, default: str | None = None) -> str:
        value = self.value.get(name, default)
        if not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def name(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise self.wrong(name, "not empty")
        return value

    def matching(self, name: str, pattern: re.Pattern[str], what: str, default: str | None = None) -> str:
        value = self.text(name, default)
        if value != default and not pattern.fullmatch(value):
            raise self.wrong(name, what)
        return value

    def number(self, name: str, least: int) -> int:
        value = self.value.get(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.wrong(name, f"a whole number, {least} or more")
        return value

    def truth(self, name: str, default: bool | None = False) -> bool:
        value = self.value.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value


def parse(text: str | bytes) -> Incoming:
    """One text frame; raises `ProviderError` of the kind `malformed`."""
    try:
        value = json.loads(text, parse_constant=_constant)
    except (ValueError, RecursionError):
        raise ProviderError("malformed", "it sent a message that is not JSON") from None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise ProviderError("malformed", "it sent a message without a type")
    kind = value["type"]
    make = _MAKERS.get(kind)
    if make is None:
        return Unknown(kind)
    reader = _Reader(kind, value)
    try:
        reader.text("session_id", "")
        reader.matching("timestamp", _TIME, "a time", "")
        return make(reader)
    except ProviderError as error:
        if kind in ("done", "error"):
            raise EndError(error.kind, error.said) from None
        raise


def _constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _connected(reader: _Reader) -> Connected:
    body = reader.inner("connected")
    able = body.inner("capabilities")
    version = able.number("protocol_version", 0)
    if version != PROTOCOL_VERSION:
        raise ProviderError(
            "version", f"it speaks version {version} of the protocol, and {PROTOCOL_VERSION} is spoken here"
        )
    able.truth("binary_frames", None)
    body.matching("memory_facet", _FACET, "a facet", "")
    return Connected(
        reader.matching("session_id", _ID, "printable, and of 512 characters at most"),
        able.number("max_payload_size", 1),
        body.truth("resumed"),
        body.truth("ai_disclosure"),
    )


def _chunk(reader: _Reader) -> Chunk:
    role = reader.text("role", "")
    if role not in ("", "user"):
        raise reader.wrong("role", "user")
    return Chunk(reader.text("content", ""), role == "user")


def _done(reader: _Reader) -> Done:
    content, parts = reader.text("content", ""), reader.value.get("parts", [])
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise reader.wrong("parts", "a list of objects")
    if not parts:
        return Done(content or None)
    readers = [_Reader("part", part) for part in parts]
    texts = [part.text("text", "") for part in readers if _part_type(part) == "text"]
    media = [_media(part) for part in readers if part.text("type") != "text"]
    return Done("\n\n".join(texts) or None, tuple(media))


def _part_type(part: _Reader) -> str:
    kind = part.text("type")
    if kind not in _PARTS:
        raise part.wrong("type", f"one of {', '.join(_PARTS)}")
    return kind


def _media(part: _Reader) -> Media:
    media = part.inner("media")
    sources = [name for name in ("data", "url", "storage_ref") if name in media.value]
    if len(sources) != 1:
        raise ProviderError("malformed", "its media have not one of data, url and storage_ref")
    data = media.text("data", "")
    where = media.matching("url", _URL, "an address", "") or media.text("storage_ref", "")
    return Media(
        part.text("type"),
        media.name("mime_type"),
        _base64(data, "media") if "data" in sources else None,
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
    arguments, categories = body.value.get("arguments", {}), body.value.get("categories", [])
    if not isinstance(arguments, dict):
        raise body.wrong("arguments", "an object")
    if not isinstance(categories, list) or not all(isinstance(one, str) for one in categories):
        raise body.wrong("categories", "a list of texts")
    consent = body.text("consent_message", "").strip()
    return ToolCall(body.name("id"), body.name("name"), arguments, consent, tuple(categories))


def _tool_result(reader: _Reader) -> GivenUp:
    body = reader.inner("tool_result")
    return GivenUp(body.name("id"), body.text("error", ""))


def _upload_ready(reader: _Reader) -> UploadReady:
    body = reader.inner("upload_ready")
    headers = body.value.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise body.wrong("headers", "an object of texts")
    return UploadReady(
        upload_id=body.name("upload_id"),
        url=body.matching("upload_url", _URL, "an address"),
        storage_ref=body.name("storage_ref"),
        expires_at=body.matching("expires_at", _TIME, "a time"),
        method=body.name("method") if "method" in body.value else "PUT",
        headers=headers,
    )


def _media_chunk(reader: _Reader) -> MediaChunk:
    body = reader.inner("media_chunk")
    return MediaChunk(
        body.text("media_id"),
        body.number("sequence", 0),
        body.truth("is_last", None),
        _base64(body.text("data"), "media_chunk"),
        body.name("mime_type"),
    )


def _session_config(reader: _Reader) -> SessionConfig:
    body = reader.inner("session_config")
    return SessionConfig(body.name("codec"), body.number("sample_rate", 1), body.number("channels", 1))


def _failure(reader: _Reader) -> Failure:
    body = reader.inner("error")
    details = body.value.get("details", {})
    if not isinstance(details, dict):
        raise body.wrong("details", "an object")
    return Failure(body.text("code"), judged(body.text("code"), body.text("message"), details))


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
    "error": _failure,
}
