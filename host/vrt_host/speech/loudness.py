"""A voice activity detector that needs no model: what is much louder than the room has been is speech.

For a host without the offline parts, in a quiet room. It takes a slammed door for the beginning of a word.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vrt_host.speech.codec import Samples
from vrt_host.speech.vad import WINDOW

_ABOVE = 4.0
"""Speech is so much louder than the room (RMS, 12 dB)."""
_QUIETEST = 0.003
"""Nothing below this (50 dB below full scale) is speech."""
_RISE = 1.01
"""What the room is taken for grows by 1 % in 32 ms while it is louder: in 4 s it is used to a fan."""


class Loudness:
    """One stream (a `Vad`)."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._pending = np.zeros(0, np.float32)
        self._room = _QUIETEST / _ABOVE

    def feed(self, samples: Samples) -> Sequence[float]:
        self._pending = np.concatenate([self._pending, samples])
        whole = len(self._pending) // WINDOW
        windows, self._pending = self._pending[: whole * WINDOW], self._pending[whole * WINDOW :]
        return [
            self._window(float(loud)) for loud in np.sqrt((windows.reshape(whole, WINDOW) ** 2).mean(axis=1))
        ]

    def _window(self, loud: float) -> float:
        speech = loud >= max(_QUIETEST, _ABOVE * self._room)
        self._room = min(max(loud, _QUIETEST / _ABOVE), self._room * _RISE)
        return float(speech)
