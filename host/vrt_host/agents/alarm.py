"""Timers of an adapter's dialogue, which owns no clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """What is due later."""

    def cancel(self) -> None:
        """It is not due any more."""


class Alarm:
    """One timer, set anew or not set. `later` calls back after so many seconds."""

    def __init__(self, later: Callable[[float, Callable[[], None]], Timer], ring: Callable[[], None]) -> None:
        self._later, self._ring = later, ring
        self._timer: Timer | None = None

    @property
    def is_set(self) -> bool:
        """Whether it will ring."""
        return self._timer is not None

    def set(self, seconds: float) -> None:
        """Ring in so long from now, and not before."""
        self.stop()
        self._timer = self._later(seconds, self._rings)

    def stop(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rings(self) -> None:
        self._timer = None
        self._ring()
