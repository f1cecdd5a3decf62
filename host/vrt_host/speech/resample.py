"""Sample rate conversion that holds nothing back: a polyphase FIR with state.

A stream of 20 ms frames must not come out in bursts, so every output sample is delivered as soon as the input
sample at its place is there; the price is the filter's group delay (2 ms at the lower rate), which `flush` pays out.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from vrt_host.speech.codec import Samples

_HALF_TAPS = 16
"""Half the filter's length, in samples of the lower rate."""
_KAISER_BETA = 6.0
"""About 60 dB of stopband: more than mu-law's own 38 dB."""
_CUTOFF = 0.92
"""Of the lower rate's Nyquist frequency."""


def _filters(up: int, down: int) -> NDArray[np.float32]:
    """One filter per phase, shape (up, taps), each for a window that ends at the newest input sample."""
    widest = max(up, down)
    half = _HALF_TAPS * widest / up
    taps = 2 * math.ceil(half)
    age = np.arange(taps - 1, -1, -1)[None, :] + np.arange(up)[:, None] / up
    t = age - half  # input samples from the filter's centre
    cutoff = _CUTOFF * up / widest
    window = np.i0(_KAISER_BETA * np.sqrt(np.clip(1 - (t / half) ** 2, 0, None))) / np.i0(_KAISER_BETA)
    window[np.abs(t) > half] = 0
    filters = cutoff * np.sinc(cutoff * t) * window
    filters /= filters.sum(axis=1, keepdims=True)  # every phase passes DC unchanged: no ripple
    return filters.astype(np.float32)


class Resampler:
    """Converts one stream from `source` Hz to `target` Hz."""

    def __init__(self, source: int, target: int) -> None:
        if source <= 0 or target <= 0:
            raise ValueError(f"sample rates are positive, not {source} and {target}")
        common = math.gcd(source, target)
        self._up, self._down = target // common, source // common
        self._filters = _filters(self._up, self._down)
        self._taps = self._filters.shape[1]
        self.reset()

    def reset(self) -> None:
        """Start a new stream: silence before it."""
        self._history = np.zeros(self._taps - 1, np.float32)
        self._read = self._written = 0  # samples in and out, modulo whole periods of the two rates

    def process(self, samples: Samples) -> Samples:
        """The output samples that the next input samples, any number of them, bring."""
        if self._up == self._down:
            return samples
        if not len(samples):
            return np.zeros(0, np.float32)
        block = np.concatenate([self._history, samples])
        due = -(-(self._read + len(samples)) * self._up // self._down)
        ticks = np.arange(self._written, due) * self._down
        windows = sliding_window_view(block, self._taps)[ticks // self._up - self._read]
        out: Samples = np.einsum("ij,ij->i", windows, self._filters[ticks % self._up])
        self._history = block[len(samples) :]
        periods, self._read = divmod(self._read + len(samples), self._down)
        self._written = due - periods * self._up
        return out

    def flush(self) -> Samples:
        """The rest of the stream, which the group delay still owes; the resampler is then as new."""
        out = self.process(np.zeros(self._taps, np.float32))
        self.reset()
        return out
