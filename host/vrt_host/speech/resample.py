"""Sample rate conversion of mono streams, by libsamplerate.

Its fastest sinc filter holds back a constant 2.5 ms or less; converters that work in larger steps would let 20 ms frames
come out in bursts.
"""

from __future__ import annotations

import numpy as np
import samplerate  # type: ignore[import-not-found]

from vrt_host.speech.codec import Samples


class Resampler:
    """Converts one stream from `source` Hz to `target` Hz; samples keep their place in time."""

    def __init__(self, source: int, target: int) -> None:
        if source <= 0 or target <= 0:
            raise ValueError(f"sample rates are positive, not {source} and {target}")
        self._ratio = target / source
        self._converter = samplerate.Resampler("sinc_fastest", channels=1)

    def reset(self) -> None:
        """Start a new stream: silence before it."""
        self._converter.reset()

    def process(self, samples: Samples) -> Samples:
        """What the next input samples, any number of them, bring: float32, shape (n,)."""
        if self._ratio == 1:
            return samples
        return np.asarray(self._converter.process(samples, self._ratio), np.float32)


def resample(samples: Samples, source: int, target: int) -> Samples:
    """A whole sound at another rate, in its place."""
    if source == target or not len(samples):
        return samples
    return np.asarray(samplerate.resample(samples, target / source, "sinc_fastest"), np.float32)
