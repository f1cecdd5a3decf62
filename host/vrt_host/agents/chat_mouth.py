"""One answer on its way to the user's ear: clause after clause to the voice, into one audio item."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from vrt_host.agents.base import Audio, AudioBegin, AudioEnd, Format, Port, Text, Transcript
from vrt_host.agents.chat_history import Answer
from vrt_host.agents.chat_text import Clauses, spoken
from vrt_host.agents.provider import ProviderError
from vrt_host.speech.codec import codec
from vrt_host.speech.parts import Synthesiser
from vrt_host.speech.resample import Resampler

_AHEAD = 4
"""Clauses that may wait for the voice: beyond that the model waits."""


class Mouth:
    """Says one answer. Whoever has it runs `run` as a task, feeds it by `say`, and calls `finish`."""

    def __init__(
        self,
        port: Port,
        output: Format,
        voice: Synthesiser,
        answer: Answer,
        failed: Callable[[ProviderError], None],
    ) -> None:
        """`failed(error)` is told once that the voice does not work; the rest of the answer is written."""
        self._port = port
        self._output = output
        self._voice = voice
        self._answer = answer
        self._failed = failed
        self._clauses = Clauses()
        self._queue: asyncio.Queue[str | None] = asyncio.Queue(_AHEAD)
        self._begun = False
        self._hoarse = False

    async def say(self, text: str) -> None:
        """More of the answer's text; waits while the voice is far behind."""
        for clause in self._clauses.feed(text):
            await self._queue.put(clause)

    async def finish(self) -> None:
        """The answer's text is complete."""
        for clause in self._clauses.end():
            await self._queue.put(clause)
        await self._queue.put(None)

    async def run(self) -> None:
        """Speak until the end of the answer."""
        turn, item = self._answer.turn, self._answer.item
        while (clause := await self._queue.get()) is not None:
            self._answer.say(clause)
            said = spoken(clause)
            if said and not self._hoarse:
                try:
                    await self._speak(clause, said)
                except ProviderError as error:
                    self._hoarse = True
                    self._failed(error)
            if self._hoarse and not self._answer.shown:
                self._port.emit(Text(turn, clause))
        if self._begun:
            self._port.emit(Transcript(turn, "agent", "", True, item))
            self._port.emit(AudioEnd(turn, item))
        if self._hoarse and not self._answer.shown:
            self._port.emit(Text(turn, "", final=True))

    async def _speak(self, clause: str, said: str) -> None:
        turn, item = self._answer.turn, self._answer.item
        encoder = codec(self._output.encoding)
        resampler: Resampler | None = None
        async for rate, samples in self._voice.speak(said):
            if resampler is None:
                if not 4000 <= rate <= 384_000:
                    raise ProviderError("format", f"the voice: {rate} is no sample rate")
                resampler = Resampler(rate, self._output.sample_rate)
                if not self._begun:
                    self._begun = True
                    self._port.emit(AudioBegin(turn, item))
                self._port.emit(Transcript(turn, "agent", clause, False, item))
            await self._emit(encoder.encode(resampler.process(samples)))
        if resampler is None:
            raise ProviderError("malformed", "the voice said nothing")
        await self._emit(encoder.encode(resampler.end()))

    async def _emit(self, payload: bytes) -> None:
        if payload:
            self._answer.sound(1000 * len(payload) / self._output.bytes_per_second)
            self._port.emit(Audio(self._answer.turn, self._answer.item, payload))
            await self._port.drain()
