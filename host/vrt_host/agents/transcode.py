"""Between an agent's audio formats and the client's: what is agreed on, and the conversion where they differ (vRT §8.2).

An agent declares formats (`Abilities`) and gets them; what a client cannot send or play is converted here, for all agents.
Sessions without a conversion have no `Transcoder`.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vrt_host.agents.base import (
    PCM16_24K,
    PCMU,
    Abilities,
    Agent,
    AgentEvent,
    Audio,
    AudioBegin,
    AudioEnd,
    Format,
    Json,
    Port,
    SessionInfo,
    TurnBegin,
    TurnEnd,
)
from vrt_host.agents.wrapped import Wrapped
from vrt_host.errors import AgentStartError, UsageError

if TYPE_CHECKING:
    from vrt_host.speech.convert import Converter

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of a session's audio: in the format that `ready` names, and in the agent's."""

    client: Format
    agent: Format

    @property
    def converts(self) -> bool:
        """Whether the two differ."""
        return self.client != self.agent


def negotiate(hello: Mapping[str, Json], abilities: Abilities) -> tuple[Way, Way]:
    """The formats of input and output: what the client prefers if the agent takes it unchanged, else pcm16 at 24 kHz (§8.2).

    Against that SHOULD, a client that prefers pcmu gets it from every agent: 24 kHz pcm16 is six times the bytes, for which the heap
    of a small board has no room, and a conversion costs the host less than 0.1 ms a frame. Opus is never made for a client.
    """
    input_ = _choose(hello.get("input"), abilities.inputs)
    able = (input_.agent,) if abilities.same_format else abilities.outputs
    return input_, _choose(hello.get("output"), able)


class Transcoder(Wrapped):
    """An agent, with its audio converted on the way. Is the `Port` of the agent that it stands for."""

    def __init__(self, agent: Agent, input_: Way, output: Way, fault: Callable[[str], None]) -> None:
        """`fault(text)` is told of each packet of the agent that could not be decoded."""
        super().__init__(agent)
        self._ways = input_, output
        self._fault = fault
        self._input: Converter | None = None
        self._items: dict[tuple[str, str], Converter] = {}
        """Output items that can get audio."""
        self.faults = 0
        """Packets that were lost or broken, and became silence of their length."""

    # --- the agent's port

    def emit(self, event: AgentEvent) -> None:
        """`Port.emit`, with audio in the client's format."""
        if self._ways[1].converts:
            match event:
                case Audio():
                    self._convert(event)
                    return
                case AudioBegin():
                    key = event.turn, event.item
                    if key not in self._items:
                        self._flush(event.turn)  # the item before it can get no more
                        self._items = {other: one for other, one in self._items.items() if other[0] != key[0]}
                        self._items[key] = self._converter(self._ways[1])
                case AudioEnd():
                    self._flush(event.turn, event.item)
                    self._items.pop((event.turn, event.item), None)
                case TurnEnd():
                    self._flush(event.turn)
                case TurnBegin():
                    self._items = {key: one for key, one in self._items.items() if key[0] == event.turn}
        self._port.emit(event)

    async def drain(self) -> None:
        """`Port.drain`."""
        await self._port.drain()

    def idle(self) -> bool:
        """`Port.idle`."""
        return self._port.idle()

    # --- the agent

    async def start(self, session: SessionInfo, port: Port) -> None:
        """Load what is needed; raises `AgentStartError` when it is not there."""
        self._port = port
        input_, output = self._ways
        # It brings numpy: not for those who need no conversion, and not on the event loop.
        module = await asyncio.to_thread(importlib.import_module, "vrt_host.speech.convert")
        self._make = module.Converter
        try:
            if input_.converts:
                self._input = self._converter(input_, up=True)
            if output.converts:
                self._converter(output)
        except UsageError as error:
            raise AgentStartError(f"the agent {self.name} cannot serve this client: {error}") from None
        await self._agent.start(replace(session, input=input_.agent, output=output.agent), self)

    def user_audio(self, payload: bytes) -> None:
        """`Agent.user_audio`, in the agent's format."""
        if self._input is None:
            self._agent.user_audio(payload)
        else:
            for part in self._input.feed(payload):
                self._agent.user_audio(part)

    async def close(self) -> None:
        """`Agent.close`."""
        if self.faults:
            log.warning("%d audio packets could not be decoded and became silence", self.faults)
        await self._agent.close()

    # --- conversion

    def _converter(self, way: Way, *, up: bool = False) -> Converter:
        source, target = (way.client, way.agent) if up else (way.agent, way.client)
        made: Converter = self._make(
            (source.encoding, source.sample_rate), (target.encoding, target.sample_rate)
        )
        return made

    def _convert(self, event: Audio) -> None:
        converter = self._items.get((event.turn, event.item))
        if converter is None:
            log.warning("the agent emitted audio outside of an audio item; it was dropped")
            return
        before = converter.faults
        for payload in converter.feed(event.payload):
            self._port.emit(Audio(event.turn, event.item, payload))
        if converter.faults > before:
            self.faults += 1
            self._fault("an Opus packet of the agent was lost or broken: silence of its length")

    def _flush(self, turn: str, item: str | None = None) -> None:
        """Give out what the converters of a turn's items, or of one, hold back."""
        for (turn_, item_), converter in self._items.items():
            if turn_ == turn and item in (None, item_):
                for payload in converter.end():
                    self._port.emit(Audio(turn_, item_, payload))


def to_json(format_: Format) -> dict[str, Json]:
    """A format as vRT writes it."""
    return {"encoding": format_.encoding, "sampleRate": format_.sample_rate}


def _choose(preferred: Mapping[str, Json] | None, able: Sequence[Format]) -> Way:
    client = PCM16_24K
    if preferred is not None:
        encoding, rate = preferred["encoding"], preferred.get("sampleRate")
        for format_ in able:
            # Packets tell their rate themselves.
            usual = PCM16_24K.sample_rate if encoding == "pcm16" else format_.sample_rate
            if format_.encoding == encoding and (
                encoding == "opus" or format_.sample_rate == (rate or usual)
            ):
                return Way(format_, format_)
        if encoding == "pcmu" and rate in (None, PCMU.sample_rate):
            client = PCMU
    if client in able:
        return Way(client, client)
    # Best first; packets only where there is nothing else, since each of them has to be decoded.
    return Way(client, next((one for one in able if one.encoding != "opus"), able[0]))
