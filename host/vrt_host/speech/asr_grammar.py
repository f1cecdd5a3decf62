"""The grammar recogniser: PocketSphinx, fed while the user speaks.

It hears nothing but sentences of its grammar, so it is good at telling "unlock" from "lock" and must never be
believed alone (see `agents/agreement.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pocketsphinx  # type: ignore[import-untyped]

from vrt_host.errors import UsageError
from vrt_host.speech import models
from vrt_host.speech.codec import Samples, to_pcm16

ONSET = 4096
"""Samples at the end of the lead of an utterance that hold speech (256 ms): enough to tell how loud it is."""
_FRAME = 512
_LOUDEST = 0.15
"""What the loudest 32 ms of the onset (RMS) are brought to: the model's means depend on it."""
_MEANS = {
    # Cepstral means of speech at that loudness, after mu-law at 8 kHz and at full bandwidth. A decoder that begins with
    # others hears half of the first sentences wrong. Measured with noise at 60, 20 and 14 dB.
    "narrow": "45.3,35.9,-44.1,35.1,-10.5,-14.1,23.5,-24.9,6.5,3.1,-12.5,13.3,-5.2",
    "wide": "55.8,-1.2,-0.2,3.6,-2.7,0.7,-2.4,-2.3,-3.5,-0.4,-0.5,0.2,3.5",
}


class GrammarRecogniser(Protocol):
    """One stream's recogniser; stateful, one utterance at a time."""

    def begin(self, lead: Samples, learn: bool = False, more: bool = False) -> None:
        """Start an utterance with the audio until now; in the last `ONSET` samples there is speech.

        `learn`: the last utterance was understood, so that this one may be expected to sound like it. `more`: it was so a
        moment ago, so that this one may go on from it with "and".
        """

    def feed(self, samples: Samples) -> None:
        """The next audio at 16 kHz."""

    def partial(self) -> str:
        """The best sentence, or beginning of one, so far; empty when there is none."""

    def finish(self) -> str:
        """End the utterance; its best sentence, or empty."""


class PocketSphinx:
    """Costs 0.5 ms for 20 ms of audio, 20 ms to make: a decoder of its own for every session, 5 MB."""

    def __init__(
        self, jsgf: str, more: str, pronunciations: Mapping[str, Sequence[Sequence[str]]], *, narrow: bool
    ) -> None:
        """`more` is the grammar of what goes on from the last sentence; `narrow`: the audio was sampled at 8 kHz once."""
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
        self._decoder.add_jsgf_string("more", more)
        self._means = _MEANS["narrow" if narrow else "wide"]
        self._running = False
        self._gain = 1.0

    def begin(self, lead: Samples, learn: bool = False, more: bool = False) -> None:
        if self._running:
            self._decoder.end_utt()
        self._gain = min(60.0, max(0.05, _LOUDEST / max(_loudest(lead[-ONSET:]), 1e-5)))
        if learn:
            self._means = self._decoder.get_cmn(True)
        self._decoder.set_cmn(self._means)  # else what it took in may have been a door
        self._decoder.activate_search("more" if more else "commands")
        self._decoder.start_utt()
        self._running = True
        self.feed(lead)

    def feed(self, samples: Samples) -> None:
        if self._running and len(samples):
            self._decoder.process_raw(to_pcm16(samples * np.float32(self._gain)).tobytes())

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


def _loudest(samples: Samples) -> float:
    """The loudness (RMS) of the loudest frame."""
    whole = len(samples) // _FRAME * _FRAME
    frames = samples[len(samples) - whole :].reshape(-1, _FRAME)
    return float(np.sqrt((frames * frames).mean(axis=1)).max(initial=0.0))
