"""Everything that is loaded once in a process and shared by all sessions: models, dictionary, voice, threads.

This is where parts are exchanged: each is used only through its interface (`Vad`, `GrammarRecogniser`,
`FreeRecogniser`, `Voice`), and only here are they chosen.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from vrt_host.speech.asr_free import FreeRecogniser, Moonshine
from vrt_host.speech.asr_grammar import GrammarRecogniser, PocketSphinx
from vrt_host.speech.codec import Samples
from vrt_host.speech.pronounce import Pronouncer
from vrt_host.speech.tts import SpeechError, Voice, open_voice
from vrt_host.speech.vad import RATE, Silero, SileroModel, Vad


class Engines:
    """The shared parts, warmed up. Raises `UsageError` with what to install when a recogniser is missing.

    Without a voice `voice` is None, and answers are text.
    """

    def __init__(self, fixed: Iterable[str] = ()) -> None:
        """`fixed`: clauses that are said again and again, spoken once now."""
        with ThreadPoolExecutor(4) as pool:
            voice = pool.submit(open_voice)
            silero = pool.submit(SileroModel)
            free = pool.submit(Moonshine)
            pronouncer = pool.submit(Pronouncer, self._ipa)
        self.voice: Voice | None = voice.result()
        try:
            self._silero: SileroModel = silero.result()
            self.free: FreeRecogniser = free.result()
            self.pronouncer: Pronouncer = pronouncer.result()
        except BaseException:
            if self.voice is not None:
                self.voice.close()
            raise
        workers = max(2, os.cpu_count() or 2)
        self.listening = ThreadPoolExecutor(workers, "vrt-listen")
        """Voice activity and grammars: short work, many times a second."""
        self.recognising = ThreadPoolExecutor(workers, "vrt-recognise")
        """The free recogniser: 100 ms at a time."""
        self.speaking = ThreadPoolExecutor(1, "vrt-speak")
        """The voice, which does one thing after the other anyway."""
        self._fixed: dict[str, Samples] = {}
        if self.voice is not None:
            self._fixed = {text: self.voice.render(text) for text in fixed}
        # The first run of a network is three times as slow as the others.
        noise = np.random.default_rng(0).standard_normal(RATE, np.float32)
        self.free.transcribe(noise * np.float32(0.01), "hello")

    def vad(self) -> Vad:
        """A detector for one stream."""
        return Silero(self._silero)

    def grammar(
        self, jsgf: str, more: str, pronunciations: Mapping[str, Sequence[Sequence[str]]], *, rate: int
    ) -> GrammarRecogniser:
        """A recogniser for one stream, sampled at `rate` once, that hears the sentences of a grammar, or what goes on
        from the last one by the grammar `more`.
        """
        return PocketSphinx(jsgf, more, pronunciations, narrow=rate < RATE)

    def render(self, clause: str) -> Samples:
        """A clause as `voice` speaks it; raises `SpeechError`."""
        if self.voice is None:
            raise SpeechError("there is no voice")
        known = self._fixed.get(clause)
        return self.voice.render(clause) if known is None else known

    def _ipa(self, word: str) -> str:
        try:
            return self.voice.phonemes(word) if self.voice is not None else ""
        except SpeechError:
            return ""

    def close(self) -> None:
        """End the voice and the threads."""
        for pool in (self.listening, self.recognising, self.speaking):
            pool.shutdown(wait=False, cancel_futures=True)
        if self.voice is not None:
            self.voice.close()
