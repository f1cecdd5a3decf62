"""Voice activity: how probable it is that each 32 ms of audio hold speech, and where an utterance begins and pauses.

`Vad` is the interface of a detector, `Silero` the one we ship; `Activity` turns its probabilities into onsets and
silences and knows nothing of models. Time is counted in samples, so a stalled network does not end a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from vrt_host.errors import UsageError
from vrt_host.speech import models
from vrt_host.speech.codec import Samples

RATE = 16_000
"""The rate of everything that listens, in Hz."""
WINDOW = 512
"""Samples of one probability: 32 ms."""
WINDOW_MS = WINDOW * 1000 // RATE
BEFORE_MS = 320
"""Audio from before the onset that belongs to the utterance."""
_CONTEXT = 64
"""The model wants the last 4 ms of the window before."""


class Vad(Protocol):
    """One stream's detector."""

    def feed(self, samples: Samples) -> Sequence[float]:
        """The probability of speech in each window of `WINDOW` samples that these samples complete."""

    def reset(self) -> None:
        """Start a new stream."""


class SileroModel:
    """The network, loaded once in a process; every stream has its own `Silero`."""

    def __init__(self) -> None:
        try:
            # Here, because whoever hears with another detector does not need it.
            import onnxruntime  # type: ignore[import-untyped]  # noqa: PLC0415
        except ModuleNotFoundError:
            raise UsageError(f"voice activity detection needs onnxruntime: {models.INSTALL}") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        path = models.locate(models.SILERO, use="voice activity detection")
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class Silero:
    """A stream through Silero v6. Costs 0.15 ms a window."""

    def __init__(self, model: SileroModel) -> None:
        self._session = model.session
        self._rate = np.array(RATE, np.int64)
        self.reset()

    def reset(self) -> None:
        self._state = np.zeros((2, 1, 128), np.float32)
        self._pending = np.zeros(
            _CONTEXT, np.float32
        )  # always the context, then what does not fill a window yet

    def feed(self, samples: Samples) -> Sequence[float]:
        pending = np.concatenate([self._pending, samples])
        probabilities = []
        at = 0
        while at + _CONTEXT + WINDOW <= len(pending):
            window = pending[None, at : at + _CONTEXT + WINDOW]
            out, self._state = self._session.run(
                None, {"input": window, "state": self._state, "sr": self._rate}
            )
            probabilities.append(float(out[0, 0]))
            at += WINDOW
        self._pending = pending[at:]
        return probabilities


class Windows:
    """One stream through a detector: each window with its probability of speech."""

    def __init__(self, vad: Vad) -> None:
        self._vad = vad
        self._partial = np.zeros(0, np.float32)  # what does not fill a window; the detector keeps the same

    def feed(self, samples: Samples) -> Iterator[tuple[Samples, float]]:
        """The next samples; (window of `WINDOW` samples, probability) for each that they complete."""
        self._partial = np.concatenate([self._partial, samples])
        for probability in self._vad.feed(samples):
            window, self._partial = self._partial[:WINDOW], self._partial[WINDOW:]
            yield window, probability


class Activity:
    """Speech or silence, with hysteresis: it takes `on` to begin or go on after a pause, and `off` to pause."""

    on = 0.5
    off = 0.35
    onset_windows = 2
    """Windows in a row above `on` that begin an utterance: one alone is a click."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Wait for a new utterance."""
        self.speaking = False
        self.silence_ms = 0
        """Since the end of the last window with speech; 0 while there is speech."""
        self.voiced_ms = 0
        """Speech in the utterance so far."""
        self._run = 0

    def push(self, probability: float) -> bool:
        """Take the next window's probability; whether it begins an utterance."""
        voiced = probability >= (self.off if self.speaking and not self.silence_ms else self.on)
        if not self.speaking:
            self._run = self._run + 1 if voiced else 0
            if self._run < self.onset_windows:
                return False
            self.speaking = True
            self.voiced_ms = self._run * WINDOW_MS
            return True
        if voiced:
            self.voiced_ms += WINDOW_MS
            self.silence_ms = 0
        else:
            self.silence_ms += WINDOW_MS
        return False
