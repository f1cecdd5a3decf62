"""Sound that comes at the pace at which it is played: a little of it waits for what is late, and no more than that.

A model that hears while it speaks takes for granted that its words are heard as it says them. So nothing queues up: what comes
in a burst after a stall is dropped but for the cushion.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

log = logging.getLogger(__name__)


def loud(payload: bytes, encoding: str) -> bool:
    """Whether there is more than silence in a piece of sound."""
    if encoding == "pcmu":
        return bool(np.any((~np.frombuffer(payload, np.uint8) & 0x7F) >= 0x20))
    return bool(np.any(np.abs(np.frombuffer(payload[: len(payload) // 2 * 2], "<i2").astype(np.int32)) > 400))


class Jitter:
    """The sound of a model on its way to the port: `out(payload)` gets what is to be played."""

    def __init__(
        self,
        out: Callable[[bytes], None],
        bytes_per_second: int,
        cushion_s: float,
        *,
        now: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._out = out
        self._rate = bytes_per_second
        self._cushion_s = cushion_s
        self._now = now
        self._later = later
        self._held: list[bytes] = []
        self._ends = 0.0
        """When the last sound that was handed out has been played."""
        self._round = 0
        self.dropped_s = 0.0

    def push(self, payload: bytes) -> bool:
        """The next sound; returns whether it will be played."""
        now, seconds = self._now(), len(payload) / self._rate
        if self._held:
            self._held.append(payload)
            return True
        if now >= self._ends:  # after a pause the cushion is made anew
            self._held.append(payload)
            number = self._round
            self._later(self._cushion_s, lambda: self._release(number))
            return True
        if self._ends - now > self._cushion_s + max(0.1, seconds):
            self._drop(seconds)
            return False
        self._hand(payload)
        return True

    def flush(self) -> None:
        """Nothing more comes: what waits goes out now."""
        held, self._held = self._held, []
        self._round += 1
        for payload in held:
            self._hand(payload)

    def clear(self) -> None:
        """What waits will not be heard."""
        self._held.clear()
        self._round += 1
        self._ends = self._now()

    def _release(self, number: int) -> None:
        if number == self._round:
            held, self._held = self._held, []
            self._round += 1
            for payload in held:
                if self._ends - self._now() > self._cushion_s + 0.1:
                    self._drop(len(payload) / self._rate)
                else:
                    self._hand(payload)

    def _hand(self, payload: bytes) -> None:
        self._ends = max(self._ends, self._now()) + len(payload) / self._rate
        self._out(payload)

    def _drop(self, seconds: float) -> None:
        if not self.dropped_s:
            log.warning("the model's sound comes in bursts: what is behind is dropped")
        self.dropped_s += seconds
