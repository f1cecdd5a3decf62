"""OpenAI Live, which hears and speaks at the same time, as an agent. See `docs/agents/openai_live.md`."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from vrt_host.agents.base import (
    PCM16_24K,
    PCMU,
    Abilities,
    AgentError,
    AgentEvent,
    Format,
    Heard,
    Json,
    ToolResult,
    TurnBegin,
)
from vrt_host.agents.openai_agent import OpenAIBase, check_format, expiry, silence, table
from vrt_host.agents.openai_duplex import Duplex
from vrt_host.agents.openai_errors import from_error
from vrt_host.agents.openai_history import DATA_RULE, declarations, sound
from vrt_host.agents.openai_link import Link, address
from vrt_host.agents.openai_options import CommonOptions, merged
from vrt_host.agents.provider import Kind, ProviderError

log = logging.getLogger(__name__)

_TICK_S = 0.1
_MISSED_S = 0.2
"""No sound of the user's for so long: silence takes its place, since the model's time goes on only with sound."""
_RING_FRAMES = 150
"""Frames of the user's sound that are kept while there is no server (3 s): what is older is no conversation any more."""
_INPUTS = (PCMU, PCM16_24K, Format("pcm16", 16_000))


class Options(CommonOptions):
    """See the table in `docs/agents/openai_live.md`."""

    model: str = Field(default="gpt-live-1", min_length=1)
    backend_model: str = Field(default="gpt-5.5", min_length=1)
    backend_instructions: str = (
        "Do what the user asks with the tools. Never say that something was done unless its tool said so. "
        "Answer in a sentence that can be spoken."
    )
    reasoning: str | None = None
    jitter_ms: int = Field(default=60, ge=0, le=200)
    pause_ms: int = Field(default=600, ge=100, le=5000)
    idle_s: float = Field(default=10.0, ge=0)


class LiveAgent(OpenAIBase):
    """One session of a device, over as many sessions of the server as it takes."""

    name: ClassVar[str] = "openai_live"
    abilities: ClassVar[Abilities] = Abilities(interruption="managed", inputs=_INPUTS, same_format=True)
    append = "session.input_audio.append"
    farewell: Mapping[str, Any] = {"type": "session.close"}

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._options = options
        self._ring: deque[bytes] = deque(maxlen=_RING_FRAMES)
        self._heard_at = float("-inf")
        self._fed_until = 0.0
        """How far the model's time has been filled with sound."""
        self._busy_at = 0.0
        self._woken = asyncio.Event()
        self._clock: asyncio.Task[None] | None = None

    def _prepare(self) -> None:
        self._duplex = Duplex(
            self._emit,
            self._tools,
            self._session.input,
            self._options.jitter_ms / 1000,
            self._options.pause_ms / 1000,
            now=self._loop.time,
            later=self._later,
            told=self._tell,
            noted=self._note,
        )
        if self._session.context is not None:
            self._duplex.context(self._session.context)
        self._clock = self._loop.create_task(self._run_clock())

    def _emit(self, event: AgentEvent) -> None:
        self._port.emit(event)
        if isinstance(event, TurnBegin | AgentError):
            self._wake()

    async def close(self) -> None:
        """Hang up."""
        if self._clock is not None:
            self._clock.cancel()
            await asyncio.gather(self._clock, return_exceptions=True)
        await super().close()

    # --- the user

    def user_text(self, text: str) -> None:
        """The user typed."""
        self._wake()
        self._keeper.hurry()
        self._duplex.user_text(text)

    def user_audio(self, payload: bytes) -> None:
        """To the server; the newest is kept while there is none."""
        now = self._loop.time()
        self._heard_at = now
        self._wake()
        if self._link is None:
            self._keeper.hurry()
            self._ring.append(payload)
            return
        self._link.send_audio(payload)
        seconds = len(payload) / self._session.input.bytes_per_second
        self._fed_until = max(self._fed_until, now - _MISSED_S) + seconds

    def interrupted(self, turn: str, heard: Sequence[Heard]) -> None:
        """Hear no more of it."""
        self._duplex.interrupted(turn, heard)

    def tool_result(self, turn: str, result: ToolResult) -> None:
        """To the model."""
        self._wake()
        self._keeper.hurry()
        self._duplex.tool_result(turn, result)

    def context(self, value: Json) -> None:
        """To the model, as data."""
        self._duplex.context(value)

    # --- time, which the model has only while it is given sound

    def _wake(self) -> None:
        self._busy_at = self._loop.time()
        self._woken.set()

    async def _run_clock(self) -> None:
        while True:
            await self._woken.wait()
            await asyncio.sleep(_TICK_S)
            now = self._loop.time()
            self._duplex.tick()
            if self._duplex.active:
                self._busy_at = now
            elif now - self._busy_at > self._options.idle_s:
                self._woken.clear()
                continue
            if self._link is not None and now - self._heard_at > _MISSED_S and now > self._fed_until:
                seconds = min(1.0, now - self._fed_until)
                self._link.send_audio(silence(self._session.input, seconds))
                self._fed_until = now

    # --- the server (`Talk`)

    async def dial(self) -> tuple[Link, float | None]:
        """Connect and open the session."""
        return await self._dial(address(self._options.base_url, "/live/sessions"), self._agree)

    async def _agree(self, link: Link) -> float | None:
        opening = self._duplex.opening()
        link.send({"type": "session.start", "session": self._request(opening)})
        async for event in link.events():
            if isinstance(event, ProviderError):
                raise event
            kind, session = event["type"], event.get("session")
            if kind == "error":
                raise from_error(event.get("error") or event.get("message"))
            if kind == "session.closed":
                raise _closed(event)
            if kind == "session.started" and isinstance(session, Mapping):
                self._check(session)
                return expiry(session)
            if kind == "session.created":
                raise ProviderError("version", "the server speaks the Realtime protocol there, not Live")
        raise ProviderError("version", "the server opened no session")

    def _request(self, opening: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        options = self._options
        backend: dict[str, Any] = {
            "model": options.backend_model,
            "instructions": f"{options.backend_instructions}\n\n{DATA_RULE}",
            "tools": declarations(self._tools),
        }
        if options.reasoning is not None:
            backend["reasoning"] = {"effort": options.reasoning}
        session: dict[str, Any] = {
            "model": options.model,
            "instructions": f"{options.instructions}\n\n{DATA_RULE}",
            "audio": {"format": wire_format(self._session.input)},
            "delegation": {"type": "responses", "responses": backend},
        }
        if options.voice is not None:
            session["audio"]["output"] = {"voice": options.voice}
        if opening:
            session["input"] = list(opening)
        return merged(session, options.session)

    def _check(self, session: Mapping[str, Any]) -> None:
        """The server has to have agreed to the format: it would be noise otherwise."""
        check_format(table(session.get("audio")).get("format"), wire_format(self._session.input))

    def opened(self, link: Link) -> None:
        """Go on."""
        self._link = link
        self._fed_until = self._loop.time()
        self._duplex.ready(link.send)
        for payload in self._ring:
            link.send_audio(payload)
        self._ring.clear()

    def received(self, event: Mapping[str, Any]) -> None:
        """An event of the server."""
        kind = event["type"]
        if kind == "session.output_audio.delta":
            try:
                payload = sound(event["delta"])
            except (KeyError, TypeError, ValueError) as error:
                raise ProviderError("malformed", f"sound that is none ({type(error).__name__})") from None
            self._duplex.audio(payload)
        elif kind == "session.closed":
            raise _closed(event)
        else:
            if kind == "error" and not (fault := from_error(event.get("error"))).passing:
                raise fault
            self._duplex.feed(event)

    def lost(self, error: ProviderError) -> None:
        """Say so, if somebody waits."""
        self._link = None
        self._duplex.lost(error)
        if not self._duplex.resting or self._loop.time() - self._heard_at < _MISSED_S:
            self._keeper.hurry()

    def quiet(self) -> bool:
        """Whether neither is saying anything."""
        return self._port.idle() and self._duplex.resting


def wire_format(format_: Format) -> dict[str, Any]:
    """A format as the protocol writes it."""
    return {"type": "audio/pcmu" if format_.encoding == "pcmu" else "audio/pcm", "rate": format_.sample_rate}


def _closed(event: Mapping[str, Any]) -> ProviderError:
    reason = str(event.get("reason") or "no reason")
    kind: Kind = "refused" if reason == "content" else "gone"
    return ProviderError(kind, f"the server ended the session: {reason}")
