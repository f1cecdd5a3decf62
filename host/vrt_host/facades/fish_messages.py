"""Fish Audio's messages as an agent's side reads and writes them: the body that creates a session, and what data packets hold.

Sections are those of Fish Audio's page "Wire Protocol"; `session.ts` is of its package. Unknown members are passed over.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from vrt_host.agents.base import Json
from vrt_host.errors import VrtError
from vrt_host.facades.model import Model
from vrt_host.protocol.wire import loads, well_formed

AGENT_TOPIC, CLIENT_TOPIC = "agent-event", "client-event"
TRANSCRIPTION = "lk.transcription"
SEGMENT, FINAL = "lk.segment_id", "lk.transcription_final"
STATE = "lk.agent.state"
State = Literal["initializing", "idle", "listening", "thinking", "speaking"]
NODE = "main"
"""`nodeId` of every tool: agents here have no flow of nodes."""
NAME_CHARS = 128
"""Of a session's name (session.ts)."""
SHOWN_BYTES = 4096
"""Of `input` and `output`, in UTF-8; more is cut between two characters (Tool lifecycle: 4 KB)."""
PACKET_BYTES = 60_000
"""Of a message; a data packet has 64,000 bytes with its envelope."""

_T = TypeVar("_T")


class InvalidError(VrtError):
    """A packet that is passed over, or a body that is refused; the text says why."""


# --- Client events: `client-event`


class UserMessage(Model):
    """A text turn; `audio` false: it is answered in text alone."""

    type: Literal["user.message"]
    text: str
    audio: bool = True


class UserActivity(Model):
    """The user types."""

    type: Literal["user.activity"]


class UserInterrupt(Model):
    """The answer is to stop."""

    type: Literal["user.interrupt"]


class UserHangup(Model):
    """The session is to end."""

    type: Literal["user.hangup"]


class ClientToolResult(Model):
    """What became of a `client_tool.call`."""

    nullable: ClassVar[frozenset[str]] = frozenset({"result"})

    type: Literal["client_tool.result"]
    callId: str
    result: Any = None
    isError: bool = False

    @property
    def why(self) -> str:
        """What it says of a failure."""
        if self.result in (None, ""):
            return "the tool failed"
        return self.result if isinstance(self.result, str) else dumps(self.result)


ClientEvent = UserMessage | UserActivity | UserInterrupt | UserHangup | ClientToolResult
_CLIENT: TypeAdapter[ClientEvent] = TypeAdapter(Annotated[ClientEvent, Field(discriminator="type")])


def decode(packet: bytes) -> ClientEvent:
    """The message in a packet of the client's. Raises `InvalidError`."""
    return _validated(_CLIENT, _object(packet))


# --- Connect to a session


class Overrides(Model):
    """What a session would have otherwise than its agent (session.ts)."""

    first_message: str | None = None
    first_message_prompt: str | None = None
    system_prompt: str | None = None
    voice_id: str | None = None
    language: str | None = None

    @model_validator(mode="after")
    def _one_beginning(self) -> Overrides:
        if self.first_message is not None and self.first_message_prompt is not None:
            raise ValueError("first_message and first_message_prompt exclude each other")
        return self

    @property
    def given(self) -> dict[str, str]:
        """Those that are there."""
        return self.model_dump(exclude_none=True)


class SessionRequest(Model):
    """The body that asks for a session (session.ts)."""

    agent_id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(max_length=NAME_CHARS)] | None = None
    timezone: str | None = None
    client_timezone: str | None = None
    world_context: bool = False
    overrides: Overrides = Overrides()
    dynamic_variables: dict[str, str | bool | int | float] = Field(default_factory=dict)
    end_user_id: str | None = None
    tool_events: bool = True
    metadata: dict[str, Any] = Field(default_factory=dict)

    @field_validator("timezone")
    @classmethod
    def _resolves(cls, name: str | None) -> str | None:
        if name is not None and zone(name) is None:
            raise ValueError("there is no such time zone")
        return name

    @property
    def zone(self) -> ZoneInfo | None:
        """Where the user is: what is said for sure, else the hint, which need not be right."""
        return zone(self.timezone or self.client_timezone or "")


def zone(name: str) -> ZoneInfo | None:
    """The time zone of that IANA name; None: there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError, ValueError):  # the last two: a folder, a path
        return None


def request(body: bytes) -> SessionRequest:
    """What a body asks for. Raises `InvalidError`."""
    return _validated(TypeAdapter(SessionRequest), _object(body))


def _object(data: bytes) -> dict[str, Json]:
    try:
        value = loads(data.decode())
    except (ValueError, RecursionError):
        raise InvalidError("it is not JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise InvalidError("it is no JSON object")
    return value


def _validated(kind: TypeAdapter[_T], value: Json) -> _T:
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        said = first["msg"].removeprefix("Value error, ")
        raise InvalidError(f"{where}: {said}" if where else said) from None


# --- Agent events: `agent-event`


def dumps(value: Json) -> str:
    """A value as JSON, in as few bytes as it takes."""
    return well_formed(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def encode(kind: str, /, **members: Json) -> bytes:
    """A message of the agent's."""
    return dumps({"type": kind, **members}).encode()


def shown(name: str, value: Json) -> dict[str, Json]:
    """`input` or `output` as the lifecycle shows it, with its mark where it is cut."""
    data = dumps(value).encode()
    if len(data) <= SHOWN_BYTES:
        return {name: data.decode()}
    return {name: data[:SHOWN_BYTES].decode(errors="ignore"), f"{name}Truncated": True}
