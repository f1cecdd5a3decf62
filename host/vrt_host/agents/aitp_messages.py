"""The messages of AITP 1.0.0, both ways (docs/agents/aitp.md). What a server sends is checked and read, ours are made.

As the protocol's own validator does, members that are not known are left out, and a message that is not valid is rejected whole.
"""

from __future__ import annotations

import base64
import json
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from vrt_host.agents.base import Json
from vrt_host.agents.provider import Kind, ProviderError
from vrt_host.protocol import wire

log = logging.getLogger(__name__)

VERSION = "1.0.0"
"""Of the protocol; a server of another one is refused ("Version Negotiation")."""
SDK_VERSION = "0.4.0"
"""The client library whose behaviour is kept to."""
MAX_TOOLS = 30
"""Tools that a server takes when it does not say (`maxActiveTools`)."""
TEXT_CHARS = 8_000
"""Of a user's text: a server answers a longer one with an error."""
CONTEXT_BYTES = 65_536
"""Of the application's context."""
INPUT_RATE, OUTPUT_RATE = 16_000, 24_000
"""Of audio, in Hz; a server may send another one and says so."""


def _decoded(text: Json) -> bytes:
    if not isinstance(text, str):
        raise ValueError("it is no text")  # noqa: TRY004  (what pydantic takes for an answer)
    return base64.b64decode(text, validate=True)


Sound = Annotated[bytes, BeforeValidator(_decoded)]
"""Audio in base64."""
Risk = Literal["none", "low", "high", "critical"]
Frame = dict[str, Json]


class AitpError(ProviderError):
    """`final`: connecting again cannot help."""

    def __init__(self, kind: Kind, said: str, *, final: bool = False, advice: str | None = None) -> None:
        super().__init__(kind, said, advice=advice)
        self.final = final

    @property
    def passing(self) -> bool:
        """Whether it may be over in a while."""
        return not self.final


# --- what a server sends


class Payload(BaseModel):
    """Of a message; an optional member that is null is as wrong as for the protocol's own validator."""

    model_config = ConfigDict(alias_generator=to_camel, strict=True, frozen=True, hide_input_in_errors=True)


class HandshakeAck(Payload):
    """The session is there ("2. HANDSHAKE_ACK")."""

    session_id: str = Field(min_length=1)
    server_version: str
    protocol_version: str
    capabilities: list[str]
    max_active_tools: int = Field(MAX_TOOLS, gt=0)


class ToolCall(Payload):
    """A tool of the device is to run ("5. TOOL_CALL")."""

    call_id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    args: dict[str, Any]


class ApprovalRequest(Payload):
    """A tool of the server's waits for the user's approval ("7. APPROVAL_REQUEST")."""

    call_id: str = Field(min_length=1)
    tool_name: str = Field(min_length=1)
    risk: Risk
    args: dict[str, Any]
    message: str = Field(min_length=1)


class AgentResponse(Payload):
    """The next text of the answer ("9. AGENT_RESPONSE")."""

    chunk: str
    done: bool
    modality: Literal["text", "audio"] = "text"
    audio_data: Sound = b""


class AudioStream(Payload):
    """The next audio of the answer ("10. AUDIO_STREAM")."""

    data: Sound = Field(min_length=1)
    mime_type: str = Field(min_length=1)


class VoiceState(Payload):
    """How the voice turn goes on ("13. VOICE_STATE_EVENT")."""

    event: Literal["turn_complete", "interrupted", "waiting_for_input"]
    reason: str = ""


class SystemEvent(Payload):
    """All else ("14. SYSTEM_EVENT")."""

    kind: Literal[
        "error",
        "waiting",
        "approval_required",
        "tools_effective",
        "transcript",
        "reload",
        "redirect",
        "disconnect",
    ]
    message: str = ""
    data: dict[str, Any] = Field(default_factory=dict)

    def transcript(self) -> tuple[str, str] | None:
        """Who said what, None for what is no transcript."""
        role, text = self.data.get("role"), self.data.get("text")
        return (role, text) if role in ("user", "agent") and isinstance(text, str) and text else None

    def ignored_tools(self) -> list[str]:
        """Names of the device's tools that a server puts its own in the place of."""
        tools = self.data.get("ignoredClientTools")
        return [
            str(tool.get("name"))
            for tool in (tools if isinstance(tools, list) else ())
            if isinstance(tool, dict)
        ]


class _Meta(Payload):
    session_id: str = ""
    token: str = ""


class _Envelope(Payload):
    """ "Message Envelope Structure"."""

    id: str = Field(min_length=1)
    type: str
    timestamp: float
    payload: dict[str, Any]
    meta: _Meta = _Meta()


Message = HandshakeAck | ToolCall | ApprovalRequest | AgentResponse | AudioStream | VoiceState | SystemEvent

_EVENTS = get_args(SystemEvent.model_fields["kind"].annotation)
_VOICE_STATES = get_args(VoiceState.model_fields["event"].annotation)
_KINDS: Mapping[str, type[Message]] = {
    "HANDSHAKE_ACK": HandshakeAck,
    "TOOL_CALL": ToolCall,
    "APPROVAL_REQUEST": ApprovalRequest,
    "AGENT_RESPONSE": AgentResponse,
    "AUDIO_STREAM": AudioStream,
    "VOICE_STATE_EVENT": VoiceState,
    "SYSTEM_EVENT": SystemEvent,
}


def parse(text: str | bytes) -> Message | None:
    """A server's message, None: its type is unknown or a client's. Raises `AitpError` for one that is not valid.

    JSON is read as strictly as a device's: what vRT cannot say, or our answer could not repeat, does not come in.
    """
    if isinstance(text, bytes):
        raise AitpError("malformed", "a binary message, which the protocol does not have")
    try:
        envelope = _Envelope.model_validate(wire.loads(text))
        kind = _KINDS.get(envelope.type)
        said = envelope.payload
        if kind is None or _of_another_version(kind, said):
            log.debug("aitp: a message of an unknown kind, %.40r, was ignored", envelope.type)
            return None
        return kind.model_validate(said)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the message"
        raise AitpError("malformed", f"an invalid message: {where}: {first['msg']}") from None
    except ValueError as error:
        raise AitpError("malformed", f"a message is not proper JSON: {error}") from None


def _of_another_version(kind: type[Message], said: Mapping[str, Json]) -> bool:
    """Whether it is an event that this version does not have."""
    if kind is SystemEvent:
        return isinstance(said.get("kind"), str) and said["kind"] not in _EVENTS
    return kind is VoiceState and isinstance(said.get("event"), str) and said["event"] not in _VOICE_STATES


# --- what a client sends


def message(type_: str, payload: Frame, session: str | None = None) -> Frame:
    """In its envelope; `meta` names the session once there is one."""
    made = {"id": f"msg_{uuid.uuid4()}", "type": type_, "timestamp": time.time_ns() // 1_000_000}
    return made | {"payload": payload} | ({"meta": {"sessionId": session}} if session else {})


def handshake(key: str, version: str) -> Frame:
    """HANDSHAKE_INIT; without a key a client is `anonymous`."""
    payload = {
        "apiKey": key or "anonymous",
        "userAgent": f"vrt-edge/{version}",
        "viewport": "0x0",
        "sdkVersion": SDK_VERSION,
        "protocolVersion": VERSION,
    }
    return message("HANDSHAKE_INIT", payload)


def sound_type(rate: int) -> str:
    """The `mimeType` of PCM."""
    return f"audio/pcm;rate={rate}"


def encoded(data: bytes) -> str:
    """Audio as AITP writes it."""
    return base64.b64encode(data).decode("ascii")


def length(text: str) -> int:
    """In characters as a server counts them: JavaScript's, two for most of the pictures."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def fitting(context: Mapping[str, Json], said: Sequence[Mapping[str, str]], name: str) -> Frame | None:
    """The context, and under `name` as much of what was said, the newest, as `CONTEXT_BYTES` take; None: not even the first."""
    left = CONTEXT_BYTES - _size(context)
    if left < 0:
        return None
    left -= len(name) + 8
    kept: list[Mapping[str, str]] = []
    for entry in reversed(said):
        left -= _size(entry) + 1
        if left < 0:
            break
        kept.insert(0, entry)
    return {**context, name: kept} if kept else dict(context)


def _size(value: Json) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


# --- why a server ends a connection


_FINAL: Mapping[int, tuple[Kind, str]] = {
    1003: ("version", "the server takes no such data"),
    1008: ("key", "the server does not let this client in"),
    1011: ("refused", "the server failed"),
}
"""Close codes after which no client connects again, and what they mean."""
_POLICIES: Sequence[tuple[str, Kind, str | None]] = (
    ("version", "version", None),
    ("limit", "quota", "close other sessions of this key, or raise its limit"),
    ("too many", "quota", "close other sessions of this key, or raise its limit"),
    ("origin", "refused", "let the server take clients without an Origin header: this one is no browser"),
)
"""Words of a close 1008, what they mean and what to do."""


def closed(code: int, reason: str, said: str = "") -> AitpError:
    """What the end of a connection means; `said`: the server's last words before it."""
    words = ": ".join(dict.fromkeys(part.rstrip(".") for part in (reason, said) if part))
    if code == 1013:
        return AitpError("rate", words or "the server is at capacity (1013)")
    if code not in _FINAL:
        return AitpError("gone", words or f"the connection is gone (close code {code})")
    kind, usual = _FINAL[code]
    advice = None
    if code == 1008:
        lower = words.lower()
        for word, meant, wanted in _POLICIES:
            if word in lower:
                kind, advice = meant, wanted
                break
    return AitpError(kind, words or f"{usual} ({code})", final=True, advice=advice)


def refused(status: int) -> AitpError:
    """What an HTTP status instead of a WebSocket means."""
    said = f"HTTP status {status}"
    if status in (401, 403):
        return AitpError("key", said, final=True)
    if status == 429:
        return AitpError("rate", said)
    if status >= 500:
        return AitpError("unreachable", said)
    return AitpError("version", f"it is no AITP server: {said}", final=True)
