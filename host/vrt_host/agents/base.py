"""The agent interface: what answers the user behind the host (design: "an agent").

An agent never sees sequence numbers, epochs or sockets. It receives user input through the methods of
`Agent` and emits `AgentEvent`s through the `Port` it was started with; `turns.py` alone turns these into vRT.
Both directions run on one event loop thread; work that blocks belongs in a thread of the agent's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

Json = Any
"""Any JSON value."""

Code = Literal["INTERRUPTED", "REJECTED", "INVALID", "TIMEOUT", "FAILED"]
"""Why a call failed (vRT §7.3)."""


@dataclass(frozen=True, slots=True)
class Format:
    """An audio format (vRT §8.2), always mono. `pcm16` is signed little-endian; `pcmu` is G.711 mu-law at 8,000 Hz."""

    encoding: Literal["pcm16", "pcmu", "opus"]
    sample_rate: int

    @property
    def bytes_per_second(self) -> int:
        """Payload bytes in a second of audio; not defined for `opus`, whose packets vary."""
        return self.sample_rate * (2 if self.encoding == "pcm16" else 1)


PCMU = Format("pcmu", 8000)
PCM16_24K = Format("pcm16", 24000)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the device declared (vRT §7, decisions 16). `parameters` is a JSON Schema of an object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Json] | None = None
    timeout_ms: int = 30_000
    confirm: Literal["button", "voice"] | None = None
    confirm_when: Mapping[str, Sequence[Json]] | None = None
    """Which calls ask: argument name -> values that ask. None with `confirm` set: every call asks."""
    effect: Literal["none", "reversible", "irreversible"] = "reversible"
    phrases: Sequence[Json] = ()
    """How the tool is spoken of; `docs/tools.md` gives the format."""

    def asks(self, arguments: Mapping[str, Json]) -> bool:
        """Whether a call with these arguments needs the user's confirmation."""
        if self.confirm is None:
            return False
        if self.confirm_when is None:
            return True
        return any(arguments.get(name) in values for name, values in self.confirm_when.items())


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What an agent knows of the session it serves. The formats are the agent's; the client's may differ."""

    tools: Sequence[Tool]
    context: Json
    input: Format
    output: Format


@dataclass(frozen=True, slots=True)
class Heard:
    """How much of an audio item the user heard, in milliseconds from its start (vRT §8.4)."""

    item: str
    played_ms: int


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The one result of a call (vRT §7.2): `output` when `ok`, else `code` and `message`."""

    call: str
    ok: bool
    output: Json = None
    code: Code | None = None
    message: str = ""


# --- events an agent emits. `turn`, `item` and `call` are keys of the agent's own, unique within the session.
# --- Whatever names a turn that has ended or was interrupted is dropped by the turn manager, wherever it comes from.


@dataclass(frozen=True, slots=True)
class TurnBegin:
    """A turn starts. A response still in flight is interrupted first (`listening`: reason speech, else server)."""

    turn: str
    state: Literal["listening", "thinking"] = "thinking"


@dataclass(frozen=True, slots=True)
class TurnState:
    """What the agent is doing now. `speaking` and `acting` are also set by the turn manager on audio and calls."""

    turn: str
    state: Literal["listening", "thinking", "speaking", "acting"]


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The agent will emit nothing more in this turn, unless a call of it is still open."""

    turn: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was said. A user transcript that is not final replaces the one before; the agent's append."""

    turn: str
    role: Literal["user", "agent"]
    text: str
    final: bool
    item: str | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """A chunk of the agent's answer as text."""

    turn: str
    text: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class AudioBegin:
    """An audio item starts; its payloads are in `SessionInfo.output`."""

    turn: str
    item: str


@dataclass(frozen=True, slots=True)
class Audio:
    """The next payload of an item, any length; the turn manager cuts it into frames and paces it.

    `whole`: the payload is one frame and stays one, as long as the device takes frames of its size.
    """

    turn: str
    item: str
    payload: bytes
    whole: bool = False


@dataclass(frozen=True, slots=True)
class AudioEnd:
    """No more audio in this item."""

    turn: str
    item: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """The model begins to write a call (display only, vRT §7.4)."""

    turn: str
    call: str
    name: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """The next fragment of the arguments' JSON text (display only)."""

    turn: str
    call: str
    delta: str


@dataclass(frozen=True, slots=True)
class Call:
    """Run a tool of the device. `arguments` is the JSON text as the model wrote it, or the value itself.

    Text that is not JSON is refused (`INVALID`), never repaired. The answer comes by `Agent.tool_result`.
    """

    turn: str
    call: str
    name: str
    arguments: str | Mapping[str, Json]
    confirmed: bool = False
    """The user was asked about this very call and said yes. Without it, one that is confirmed by voice is `REJECTED`."""


@dataclass(frozen=True, slots=True)
class OwnCall:
    """The agent runs a tool of its own, behind the host; `OwnResult` has to follow. For display only (vRT §7.5)."""

    turn: str
    call: str
    name: str
    arguments: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class OwnProgress:
    """What a running tool of the agent's own reports."""

    turn: str
    call: str
    progress: Json


@dataclass(frozen=True, slots=True)
class OwnResult:
    """A tool of the agent's own has ended; `code` says why it failed. Its output is the agent's affair."""

    turn: str
    call: str
    code: Code | None = None


@dataclass(frozen=True, slots=True)
class AgentError:
    """Something went wrong behind the agent. `recoverable=False` ends the session."""

    message: str
    recoverable: bool = True
    turn: str | None = None
    code: str = "AGENT_ERROR"


Displayed = CallBegin | CallDelta | OwnCall | OwnProgress | OwnResult
"""What is sent for the client to look at, and runs nothing there."""

AgentEvent = (
    TurnBegin
    | TurnState
    | TurnEnd
    | Transcript
    | Text
    | AudioBegin
    | Audio
    | AudioEnd
    | Call
    | Displayed
    | AgentError
)


class Port(Protocol):
    """Where an agent puts its events. Owned by the turn manager."""

    def emit(self, event: AgentEvent) -> None:
        """Hand over one event; never blocks. Events of a dead turn are dropped without an error."""

    async def drain(self) -> None:
        """Wait while more than a few seconds of audio are queued; a well-behaved agent awaits it after audio.

        An agent that does not, and runs `limits.agent_audio_s` ahead, has its turn ended with an `AgentError`.
        """

    def idle(self) -> bool:
        """Whether no response is in flight: nothing queued, nothing still due at the device, no call open."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an agent can do when it is interrupted (voice page §2.2: a capability, not an assumption)."""

    interruption: Literal["truncate", "cancel", "managed"] = "truncate"
    inputs: Sequence[Format] = field(default=(PCMU, PCM16_24K))
    """Formats it takes, best first. It gets one of them, whatever the client sends: the rest is conversion (`transcode`)."""
    outputs: Sequence[Format] = field(default=(PCMU, PCM16_24K))
    same_format: bool = False
    """Its output has the format of its input; `outputs` says nothing then."""


class Agent(ABC):
    """One session's brain. Every method is called on the event loop and returns at once, `start` and `close` apart."""

    name: ClassVar[str]
    abilities: ClassVar[Abilities] = Abilities()

    @abstractmethod
    async def start(self, session: SessionInfo, port: Port) -> None:
        """Get ready to answer; raise `AgentStartError` to refuse (the client sees START_FAILED, vRT §5.1)."""

    @abstractmethod
    def user_text(self, text: str) -> None:
        """The user typed `text`. A response in flight has already been interrupted (vRT §6.3)."""

    @abstractmethod
    def user_audio(self, payload: bytes) -> None:
        """One frame of the user's audio in `SessionInfo.input`."""

    @abstractmethod
    def interrupted(self, turn: str, heard: Sequence[Heard]) -> None:
        """`turn` is dead: stop the model. `heard` lists, per item sent, what the user really heard."""

    @abstractmethod
    def tool_result(self, turn: str, result: ToolResult) -> None:
        """A call of `turn` is settled; called exactly once per `Call`, interrupted ones included."""

    def context(self, value: Json) -> None:  # noqa: B027  (most agents have no use for it)
        """The application's context changed. Data, never instructions (vRT §5.5)."""

    async def close(self) -> None:  # noqa: B027  (an agent without resources has nothing to free)
        """The session ended; free everything."""
