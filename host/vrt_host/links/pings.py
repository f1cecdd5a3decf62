"""How far audio may run ahead of a peer: as far as it has proved, by answering pings, what it has read (decisions 11)."""

from __future__ import annotations

from typing import Final

PING_AFTER_S: Final = 0.2 - 1e-6
"""Seconds of audio after which the peer is asked, by a ping, whether it has read them; ten frames of 20 ms add up to a
little less than 0.2."""


class Pings:
    """Counts the audio of one link. `waiting`: a ping is not answered."""

    def __init__(self) -> None:
        self.waiting = False
        self._unasked_s = 0.0
        """Seconds of audio sent since the last ping."""

    def admit(self, seconds: float) -> bool:
        """Whether so much more may be sent, which is then counted: at most a ping's worth follows one that is not answered."""
        if self._unasked_s >= PING_AFTER_S:
            return False
        self._unasked_s += seconds
        return True

    @property
    def due(self) -> bool:
        """Whether a ping should be sent."""
        return self._unasked_s >= PING_AFTER_S and not self.waiting

    def asked(self) -> None:
        """A ping was sent."""
        self._unasked_s = 0.0
        self.waiting = True

    def answered(self) -> None:
        """That one was."""
        self.waiting = False
