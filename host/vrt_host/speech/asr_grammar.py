"""The grammar recogniser: PocketSphinx, fed while the user speaks.

It hears nothing but sentences of its grammar, so it is good at telling "unlock" from "lock" and must never be
believed alone (see `agents/agreement.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pocketsphinx  # type: ignore[import-untyped]

from vrt_host.errors import UsageError
from vrt_host.speech import models
from vrt_host.speech.codec import Samples, to_pcm16


class GrammarRecogniser(Protocol):
    """One stream's recogniser; stateful, one utterance at a time."""

    def begin(self) -> None:
        """Start an utterance."""

    def feed(self, samples: Samples) -> None:
        """The next audio at 16 kHz."""

    def partial(self) -> str:
        """The best sentence, or beginning of one, so far; empty when there is none."""

    def finish(self) -> str:
        """End the utterance; its best sentence, or empty."""


class PocketSphinx:
    """Costs 0.5 ms for 20 ms of audio, 20 ms to make: a decoder of its own for every session, 5 MB."""

    def __init__(self, jsgf: str, pronunciations: Mapping[str, Sequence[Sequence[str]]]) -> None:
        folder = models.package_folder("pocketsphinx", use="speech recognition") / "model" / "en-us" / "en-us"
        if not Path(folder).is_dir():
            raise UsageError(
                f"pocketsphinx has no acoustic model at {folder}; reinstall it: {models.INSTALL}"
            )
        # Without the default dictionary and language model it is small and starts at once.
        self._decoder = pocketsphinx.Decoder(hmm=str(folder), lm=None, dict=None, loglevel="FATAL")
        for word, sounds in pronunciations.items():
            for index, phones in enumerate(sounds):
                self._decoder.add_word(
                    word if not index else f"{word}({index + 1})", " ".join(phones), update=False
                )
        self._decoder.add_jsgf_string("commands", jsgf)
        self._decoder.activate_search("commands")
        self._running = False

    def begin(self) -> None:
        if self._running:
            self._decoder.end_utt()
        self._decoder.start_utt()
        self._running = True

    def feed(self, samples: Samples) -> None:
        if self._running and len(samples):
            self._decoder.process_raw(to_pcm16(samples).tobytes())

    def partial(self) -> str:
        hypothesis = self._decoder.hyp() if self._running else None
        return hypothesis.hypstr if hypothesis else ""

    def finish(self) -> str:
        if not self._running:
            return ""
        self._decoder.end_utt()
        self._running = False
        hypothesis = self._decoder.hyp()
        return hypothesis.hypstr if hypothesis else ""
