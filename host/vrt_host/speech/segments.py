"""One stream of the user's audio cut into utterances by voice activity alone, for recognisers that write whatever is said.

Audio goes in, events come out; time is the audio's own. `listener.py` is the one that knows a grammar.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vrt_host.speech.codec import Samples
from vrt_host.speech.vad import BEFORE_MS, WINDOW_MS, Activity, Vad, Windows


@dataclass(frozen=True, slots=True)
class Began:
    """The user began to speak."""


@dataclass(frozen=True, slots=True)
class Spoke:
    """The next samples of the utterance, at 16 kHz."""

    samples: Samples


@dataclass(frozen=True, slots=True)
class Ended:
    """The user has finished, after `voiced_ms` of speech."""

    voiced_ms: int


Event = Began | Spoke | Ended


class Segments:
    """Feed it in one thread at a time."""

    def __init__(self, vad: Vad, *, silence_ms: int, longest_ms: int) -> None:
        """An utterance ends after `silence_ms` without speech, and after `longest_ms` whatever is heard."""
        self._windows = Windows(vad)
        self._silence_ms, self._longest_ms = silence_ms, longest_ms
        self._activity = Activity()
        self._before: list[Samples] = []
        self._length_ms = 0
        self._deaf = False

    @property
    def speaking(self) -> bool:
        """Whether an utterance is open."""
        return self._activity.speaking

    def feed(self, samples: Samples) -> list[Event]:
        """The next audio at 16 kHz; what it brought about."""
        events: list[Event] = []
        for window, probability in self._windows.feed(samples):
            events += self._window(window, probability)
        return events

    def _window(self, window: Samples, probability: float) -> list[Event]:
        activity = self._activity
        if self._deaf and probability >= activity.off:
            return []
        self._deaf = False
        if activity.push(probability):
            self._length_ms = WINDOW_MS * (len(self._before) + 1)
            lead = np.concatenate([*self._before, window])
            self._before.clear()
            return [Began(), Spoke(lead)]
        if not activity.speaking:
            self._before.append(window)
            del self._before[: -BEFORE_MS // WINDOW_MS]
            return []
        self._length_ms += WINDOW_MS
        events: list[Event] = [Spoke(window)]
        if activity.silence_ms >= self._silence_ms or self._length_ms >= self._longest_ms:
            self._deaf = not activity.silence_ms  # who never pauses does not talk to us: wait until it ends
            events.append(self._end())
        return events

    def stall(self) -> list[Event]:
        """No audio has come for a while, because the microphone was switched off: what was said is all there is."""
        return [self._end()] if self.speaking else []

    def _end(self) -> Ended:
        ended = Ended(self._activity.voiced_ms)
        self._activity.reset()
        return ended
