"""Sample rate conversion of mono streams, by libsamplerate.

Its fastest sinc filter holds back a constant 2.5 ms or less; converters that work in larger steps would let 20 ms frames
come out in bursts.
"""

from __future__ import annotations

import numpy as np
import samplerate  # type: ignore[import-not-found]

from vrt_host.speech.codec import Samples

_HELD_S = 0.02
"""More than the filter holds back, at any pair of rates."""


class Resampler:
    """Converts one stream from `source` Hz to `target` Hz; samples keep their place in time."""

    def __init__(self, source: int, target: int) -> None:
        if source <= 0 or target <= 0:
            raise ValueError(f"sample rates are positive, not {source} and {target}")
        self._ratio = target / source
        self._silence = np.zeros(int(source * _HELD_S), np.float32)
        self._converter = samplerate.Resampler("sinc_fastest", channels=1)
        self._taken = self._given = 0

    def reset(self) -> None:
        """Start a new stream: silence before it."""
        self._converter.reset()
        self._taken = self._given = 0

    def process(self, samples: Samples) -> Samples:
        """What the next input samples, any number of them, bring: float32, shape (n,)."""
        if self._ratio == 1:
            return samples
        out = np.asarray(self._converter.process(samples, self._ratio), np.float32)
        self._taken += len(samples)
        self._given += len(out)
        return out

    def end(self) -> Samples:
        """What is held back, for the stream has ended; the next samples begin a new one."""
        if self._ratio == 1:
            return self._silence[:0]
        # The library's own way to end a stream has no room for what it holds back.
        rest = np.asarray(self._converter.process(self._silence, self._ratio), np.float32)
        rest = rest[: max(0, round(self._taken * self._ratio) - self._given)]
        self.reset()
        return rest


def resample(samples: Samples, source: int, target: int) -> Samples:
    """A whole sound at another rate, in its place."""
    if source == target or not len(samples):
        return samples
    return np.asarray(samplerate.resample(samples, target / source, "sinc_fastest"), np.float32)
