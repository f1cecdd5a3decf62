"""Which of the agent's sound is speech, and new, and when it is over: its track never ends, and says nothing of what is on it.

Its time is its own: what waits to be read, while the host is busy, is neither late nor quiet.
"""

from __future__ import annotations

from collections.abc import Callable

from vrt_host.agents.alarm import Alarm
from vrt_host.agents.base import Format
from vrt_host.agents.fish_turn import Outlet
from vrt_host.speech.codec import Pcm16
from vrt_host.speech.loudness import Loudness

SOUND = Format("pcm16", 48_000)
"""Both ways."""
RESIDUE_S = 0.5
"""What is heard so long after the agent began to speak again is new, in any case."""
_QUIET_BYTES = SOUND.bytes_per_second // 25
_SPEECH = 10
"""Windows of `Loudness` in a row, 107 ms."""
_LOUD = 64
"""A sample beyond it is sound."""


class Residue:
    """The rest of what was interrupted: what is heard up to the first quiet."""

    def __init__(self) -> None:
        self._quiet: int | None = None
        self._spoken: int | None = None

    def begin(self) -> None:
        """The agent was interrupted."""
        self._quiet, self._spoken = 0, None

    def speaks(self) -> None:
        """The agent has begun to speak anew."""
        self._spoken = 0

    def has(self, payload: bytes, *, loud: bool) -> bool:
        """Whether this belongs to it."""
        if self._quiet is None:
            return False
        self._quiet = 0 if loud else self._quiet + len(payload)
        if self._spoken is not None:
            self._spoken += len(payload)
        new = (self._spoken or 0) > RESIDUE_S * SOUND.bytes_per_second
        if self._quiet < _QUIET_BYTES and not new:
            return True
        self._quiet = None
        return False


class Ending:
    """The quiet behind what was said. It is held, and given out only if it was a pause."""

    def __init__(self, outlet: Outlet, ring: Callable[[], None]) -> None:
        self._outlet, self._ring = outlet, ring
        self._alarm = Alarm(outlet.later, self._silent)
        self._heard_at = float("-inf")
        self._wanted: float | None = None
        self._quiet = 0
        self._held = bytearray()

    def watch(self, quiet_s: float, patience_s: float) -> None:
        """Ring after so much quiet; or when nothing at all, not even quiet, has come for so long."""
        self._wanted, self._quiet = quiet_s * SOUND.bytes_per_second, 0
        self._patience_s = patience_s
        self._alarm.set(patience_s)

    def stop(self) -> None:
        """Do not ring."""
        self._wanted = None
        self._alarm.stop()

    def begin(self) -> None:
        """Quiet before the first sound is none behind it."""
        self._held.clear()

    def heard(self, payload: bytes, *, loud: bool) -> bytes:
        """What is to be heard now."""
        self._heard_at = self._outlet.now()
        if loud or self._wanted is None:
            self._quiet = 0
            held = bytes(self._held)
            self._held.clear()
            return held + payload
        self._quiet += len(payload)
        self._held += payload
        if self._quiet >= self._wanted:
            self.stop()
            self._ring()
        return b""

    def _silent(self) -> None:
        waited_s = self._outlet.now() - self._heard_at
        if waited_s < self._patience_s:
            self._alarm.set(self._patience_s - waited_s)
        else:
            self.stop()
            self._ring()


class Speech:
    """Whether somebody speaks at a microphone that may be open all the time."""

    def __init__(self) -> None:
        self._codec = Pcm16()
        self._loudness = Loudness()
        self._windows = 0

    def heard(self, payload: bytes) -> bool:
        """Whether it is speech up to here."""
        for loud in self._loudness.feed(self._codec.decode(payload)):
            self._windows = self._windows + 1 if loud else 0
        return self._windows >= _SPEECH


def is_loud(payload: bytes) -> bool:
    """Whether there is sound in it."""
    samples = memoryview(payload[: len(payload) // 2 * 2]).cast("h")
    return max(max(samples, default=0), -min(samples, default=0)) > _LOUD
