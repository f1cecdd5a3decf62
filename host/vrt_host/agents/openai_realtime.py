"""OpenAI Realtime, and every server of its dialect (Azure, xAI), as an agent. See `docs/agents/openai.md`."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from pydantic import Field

from vrt_host.agents.base import (
    PCM16_24K,
    PCMU,
    Abilities,
    AgentEvent,
    Format,
    Heard,
    Json,
    ToolResult,
)
from vrt_host.agents.openai_agent import OpenAIBase, check_format, expiry, silence, table
from vrt_host.agents.openai_errors import from_error
from vrt_host.agents.openai_history import DATA_RULE, declarations
from vrt_host.agents.openai_link import Link, address
from vrt_host.agents.openai_options import CommonOptions, merged
from vrt_host.agents.openai_pump import Pump
from vrt_host.agents.openai_responses import LATE
from vrt_host.agents.openai_session import Dialogue
from vrt_host.agents.provider import ProviderError

log = logging.getLogger(__name__)

_PENT_UP_S = 300
"""Seconds of an answer that may wait here; a model that says more is cut off."""
_RING_FRAMES = 500
"""Frames of the user's audio that are kept while there is no server, or while it has not answered them (10 s)."""
_RECENT_FRAMES, _RECENT_S = 100, 2.0
"""What was said so lately may have gone to a connection that was lost already."""
_STALL_S = 0.6
"""No audio for so long: the microphone was switched off, which the server's ear has to be told by silence."""
_SILENCE_S = 0.1
_SILENCES = 100


class Options(CommonOptions):
    """See the table in `docs/agents/openai.md`."""

    dialect: Literal["auto", "openai", "xai"] = "auto"
    model: str = Field(default="gpt-realtime-2.1", min_length=1)
    speed: float | None = Field(default=None, ge=0.25, le=1.5)
    output: Literal["audio", "text"] = "audio"
    turn_detection: Literal["server_vad", "semantic_vad"] = "server_vad"
    threshold: float | None = Field(default=None, ge=0, le=1)
    prefix_padding_ms: int | None = Field(default=None, ge=0)
    silence_duration_ms: int = Field(default=500, ge=100, le=5000)
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    noise_reduction: Literal["near_field", "far_field"] | None = None
    transcription: str = "gpt-realtime-whisper"
    language: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1, le=4096)


class OpenAIAgent(OpenAIBase):
    """One session of a device, over as many sessions of the server as it takes."""

    name: ClassVar[str] = "openai"
    abilities: ClassVar[Abilities] = Abilities(
        interruption="truncate", inputs=(PCMU, PCM16_24K), outputs=(PCMU, PCM16_24K)
    )

    append = "input_audio_buffer.append"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._options = options
        self._ring: deque[bytes] = deque(maxlen=_RING_FRAMES)
        self._dropped = False
        self._transcribed = False
        self._heard_at = 0.0
        self._silences = 0
        self._watching = False
        self._pump: Pump | None = None

    def _prepare(self) -> None:
        output = self._session.output
        self._dialogue = Dialogue(
            self._emit, self._tools, output, later=self._later, told=self._tell, noted=self._note
        )
        self._pump = Pump(self._port, _PENT_UP_S * output.bytes_per_second, self._dialogue.cut)
        self._dialogue.context(self._session.context)

    def _emit(self, event: AgentEvent) -> None:
        assert self._pump is not None
        self._pump.emit(event)

    # --- the user

    def user_text(self, text: str) -> None:
        """The user typed."""
        self._keeper.hurry()
        self._dialogue.user_text(text)

    def user_audio(self, payload: bytes) -> None:
        """To the server; kept while there is none."""
        if self._link is not None:
            self._link.send_audio(payload)
            self._ring.append(payload)
            while len(self._ring) > _RECENT_FRAMES and not self._dialogue.unheard:
                self._ring.popleft()
        else:
            self._keeper.hurry()
            if len(self._ring) == _RING_FRAMES and not self._dropped:
                self._dropped = True
                log.warning("%s: there is no server to listen: the user's oldest audio is dropped", self.name)
            self._ring.append(payload)
        self._heard_at = self._loop.time()
        self._silences = 0
        if not self._watching:
            self._watching = True
            self._later(_STALL_S, self._watch)

    def _watch(self) -> None:
        """When the user's audio has stopped: silence, until the server has heard that the user is silent."""
        left = self._heard_at + _STALL_S - self._loop.time()
        if left > 0 and not self._silences:
            self._later(left, self._watch)
            return
        seconds = _SILENCE_S if self._silences else self._options.silence_duration_ms / 1000 + 0.3
        if self._link is not None:
            self._link.send_audio(silence(self._session.input, seconds))
        self._silences += 1
        self._watching = self._silences < _SILENCES and (self._silences == 1 or self._dialogue.speaking)
        if self._watching:
            self._later(_SILENCE_S, self._watch)

    def interrupted(self, turn: str, heard: Sequence[Heard]) -> None:
        """Cut the model off where the user heard it last."""
        if self._pump is not None:
            self._pump.forget(turn)
        self._dialogue.interrupted(turn, heard)

    def tool_result(self, turn: str, result: ToolResult) -> None:
        """To the model."""
        self._keeper.hurry()
        self._dialogue.tool_result(turn, result)

    def context(self, value: Json) -> None:
        """To the model, as data."""
        self._dialogue.context(value)

    async def close(self) -> None:
        """Hang up."""
        await super().close()
        if self._pump is not None:
            await self._pump.close()

    # --- the server (`Talk`)

    async def dial(self) -> tuple[Link, float | None]:
        """Connect and agree on the session."""
        query = f"model={quote(self._options.model, safe='')}"
        return await self._dial(address(self._options.base_url, "/realtime", query), self._agree)

    async def _agree(self, link: Link) -> float | None:
        asked = False
        async for event in link.events():
            if isinstance(event, ProviderError):
                raise event
            kind, session = event["type"], event.get("session")
            if kind == "error":
                raise from_error(event.get("error") or event.get("message"))
            if isinstance(session, Mapping) and "input_audio_format" in session and "audio" not in session:
                raise ProviderError("version", "the server speaks the beta of the Realtime protocol")
            if kind in ("session.created", "conversation.created") and not asked:
                asked = True
                flat = not isinstance(session, Mapping) or session.get("type") != "realtime"
                if self._options.dialect != "auto":
                    flat = self._options.dialect == "xai"
                link.send({"type": "session.update", "session": self._request(flat)})
            elif kind == "session.updated" and isinstance(session, Mapping):
                self._check(session)
                return expiry(session)
        raise ProviderError("version", "the server opened no session")

    def _request(self, flat: bool) -> dict[str, Any]:
        """The session that we want; `flat`: with the turn detection and the voice where xAI has them."""
        options = self._options
        detection: dict[str, Any] = {"type": options.turn_detection}
        if options.turn_detection == "semantic_vad":
            detection["eagerness"] = options.eagerness
        else:
            detection["silence_duration_ms"] = options.silence_duration_ms
            if options.threshold is not None:
                detection["threshold"] = options.threshold
            if options.prefix_padding_ms is not None:
                detection["prefix_padding_ms"] = options.prefix_padding_ms
        detection |= {"create_response": True, "interrupt_response": True}
        input_: dict[str, Any] = {"format": wire_format(self._session.input)}
        output: dict[str, Any] = {"format": wire_format(self._session.output)}
        if options.transcription:
            input_["transcription"] = {"model": options.transcription}
            if options.language is not None:
                input_["transcription"]["language"] = options.language
        if options.noise_reduction is not None:
            input_["noise_reduction"] = {"type": options.noise_reduction}
        if options.speed is not None:
            output["speed"] = options.speed
        session: dict[str, Any] = {"instructions": f"{options.instructions}\n\n{DATA_RULE}"}
        if flat:
            session["turn_detection"] = detection
        else:
            session |= {"type": "realtime", "output_modalities": [options.output]}
            input_["turn_detection"] = detection
        if options.voice is not None:
            (session if flat else output)["voice"] = options.voice
        if options.max_output_tokens is not None:
            session["max_output_tokens"] = options.max_output_tokens
        session |= {"audio": {"input": input_, "output": output}, "tools": declarations(self._tools)}
        return merged(session, options.session)

    def _check(self, session: Mapping[str, Any]) -> None:
        """The server has to have agreed to the formats: it would be noise otherwise."""
        audio = table(session.get("audio"))
        for way, wanted in (("input", self._session.input), ("output", self._session.output)):
            check_format(table(audio.get(way)).get("format"), wire_format(wanted), f" for its {way}")
        self._transcribed = bool(table(audio.get("input")).get("transcription"))

    def opened(self, link: Link) -> None:
        """Tell the new session what was said, and go on."""
        self._link = link
        self._dropped = False
        self._dialogue.ready(link.send, transcribed=self._transcribed)
        for payload in self._ring:
            link.send_audio(payload)
        self._ring.clear()

    def received(self, event: Mapping[str, Any]) -> None:
        """An event of the server."""
        if event["type"] == "error" and isinstance(error := event.get("error"), Mapping):
            fault = from_error(error)
            late = str(error.get("event_id") or "").startswith(LATE)  # a server need not know how to truncate
            if (not fault.passing and not late) or error.get("code") == "session_expired":
                raise fault
        if event["type"] == "response.created":
            self._ring.clear()  # this is heard, and must not be said to another session again
        self._dialogue.feed(event)

    def lost(self, error: ProviderError) -> None:
        """Say so; what the user said last is kept for the next session, if this one had not understood it."""
        self._link = None
        unheard = self._dialogue.lost(error)
        if not error.retried or not (unheard or self._loop.time() - self._heard_at <= _RECENT_S):
            self._ring.clear()
        if not self._dialogue.resting or self._ring:
            self._keeper.hurry()

    def quiet(self) -> bool:
        """Whether neither is saying anything."""
        return self._port.idle() and self._dialogue.resting


def wire_format(format_: Format) -> dict[str, Any]:
    """A format as the protocol writes it."""
    if format_.encoding == "pcmu":
        return {"type": "audio/pcmu"}
    return {"type": "audio/pcm", "rate": format_.sample_rate}
