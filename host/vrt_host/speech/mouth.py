"""A text being spoken: rendered clause by clause, ahead of its use, into payloads of the session's format."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future

import numpy as np

from vrt_host.speech.codec import codec
from vrt_host.speech.engines import Engines
from vrt_host.speech.resample import resample
from vrt_host.speech.tts import clauses

_BETWEEN_CLAUSES_S = 0.05
_BETWEEN_SENTENCES_S = 0.2


class Speech:
    """One text. The first clause is rendered from the start, each other one while the one before it is used."""

    def __init__(self, engines: Engines, text: str, encoding: str, rate: int) -> None:
        self._engines = engines
        self._encoding = encoding
        self._rate = rate
        self._clauses = clauses(text)
        self._rendered: list[Future[bytes]] = []
        self._render_next()

    def _render_next(self) -> None:
        index = len(self._rendered)
        if index < len(self._clauses):
            last = index + 1 == len(self._clauses)
            self._rendered.append(self._engines.speaking.submit(self._render, self._clauses[index], last))

    def _render(self, clause: str, last: bool) -> bytes:
        """Runs in the voice's thread."""
        voice = self._engines.render(clause)
        assert self._engines.voice is not None
        samples = resample(voice, self._engines.voice.rate, self._rate)
        pause = 0.0 if last else _BETWEEN_SENTENCES_S if clause[-1] in ".!?" else _BETWEEN_CLAUSES_S
        return codec(self._encoding).encode(np.pad(samples, (0, int(pause * self._rate))))

    async def clauses(self) -> AsyncIterator[tuple[str, bool, bytes]]:
        """Each clause as (text with the blank after it, whether it is the last, audio), as soon as it is there.

        Raises `SpeechError`.
        """
        for index, clause in enumerate(self._clauses):
            payload = await asyncio.wrap_future(self._rendered[index])
            self._render_next()
            last = index + 1 == len(self._clauses)
            yield clause if last else f"{clause} ", last, payload

    def cancel(self) -> None:
        """It will not be used: what has not been started will not be."""
        for future in self._rendered:
            future.cancel()
