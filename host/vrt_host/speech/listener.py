"""One stream of the user's audio: where utterances begin, pause and end, and what the grammar heard in them.

Not a line of waiting: audio goes in, events come out, and time is the audio's own. The free recogniser is somebody
else's work, because it is slow: a `Pause` hands out the utterance to run it on, and `confirm` brings word that it
agreed, which lets the utterance end sooner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vrt_host.speech.asr_grammar import GrammarRecogniser
from vrt_host.speech.codec import Samples
from vrt_host.speech.vad import BEFORE_MS, WINDOW_MS, Activity, Vad, Windows

PAUSE_MS = 3 * WINDOW_MS
"""Silence after which the utterance so far is handed out."""
AGREED_MS = 8 * WINDOW_MS
"""Silence that ends an utterance in which both recognisers heard the same complete sentence."""
COMPLETE_MS = 500
"""Silence that ends one which the grammar alone finds complete."""
OPEN_MS = 800
"""Silence that ends any other: people pause in the middle of a sentence."""
LONGEST_MS = 10_000
"""An utterance is ended after this time whatever is heard: another voice, or music, never pauses."""
SHORTEST_MS = 160
"""Less speech than this is a cough or a door, unless both recognisers make sense of it."""
_STABLE_MS = 2 * WINDOW_MS
"""How long a sentence must stay the grammar's best to be a guess."""
_MORE_MS = 1500
"""How soon after its end a sentence may be gone on from."""
_SURE_MS = 192
"""Speech after which the grammar begins: it has to know how loud the user is, and the first sound may be an "s"."""


@dataclass(frozen=True, slots=True)
class Onset:
    """The user began to speak."""


@dataclass(frozen=True, slots=True)
class Guess:
    """The grammar has held a whole sentence for a while; the user may still be speaking."""

    grammar: str


@dataclass(frozen=True, slots=True)
class Pause:
    """The user paused after what may be a whole sentence. `number` names the pause, and grows."""

    number: int
    audio: Samples
    """The utterance so far, at 16 kHz."""
    grammar: str


@dataclass(frozen=True, slots=True)
class End:
    """The user has finished."""

    audio: Samples
    grammar: str
    pause: int | None
    """The pause that ended it, if it was handed out: its transcription holds for the whole utterance."""
    voiced_ms: int
    stalled: bool = False
    """No silence was heard: the audio stopped, and there may have been more to say."""


Event = Onset | Guess | Pause | End


class Listener:
    """Feed it in one thread at a time."""

    def __init__(self, vad: Vad, grammar: GrammarRecogniser, complete: Callable[[str], bool]) -> None:
        """`complete(text)`: whether a sentence of the grammar is whole."""
        self._windows = Windows(vad)
        self._grammar = grammar
        self._complete = complete
        self.activity = Activity()
        self._number = 0
        self._deaf = False
        self._apart_ms = 0  # since the last utterance ended
        self.understood = False
        """To be set when the last utterance was understood: the next one is expected to sound like it, or to go on."""
        self._reset()

    def _reset(self) -> None:
        self.activity.reset()
        self._recent: list[Samples] = []  # windows: the utterance, or the last ones before it
        self._pause: int | None = None
        self._agreed = False
        self._begun = False  # whether the grammar listens yet
        self._heard = (
            ""  # the grammar's best so far, whether it is whole, and for how long it has been the best
        )
        self._whole = False
        self._stable_ms = 0

    @property
    def speaking(self) -> bool:
        """Whether an utterance is open."""
        return self.activity.speaking

    def feed(self, samples: Samples) -> list[Event]:
        """The next audio at 16 kHz; what it brought about."""
        events: list[Event] = []
        for window, probability in self._windows.feed(samples):
            events += self._window(window, probability)
        return events

    def _window(self, window: Samples, probability: float) -> list[Event]:
        activity = self.activity
        if self._deaf and probability >= activity.off:
            return []
        self._deaf = False
        paused = activity.silence_ms > 0
        began = activity.push(probability)
        self._recent.append(window)
        if began:
            return [Onset()]
        if not activity.speaking:
            self._apart_ms += WINDOW_MS
            del self._recent[: -BEFORE_MS // WINDOW_MS]
            return []
        if self._begun:
            self._grammar.feed(window)
        elif activity.voiced_ms >= _SURE_MS or activity.silence_ms:
            self._begun = True
            self._grammar.begin(
                np.concatenate(self._recent),
                learn=self.understood,
                more=self.understood and self._apart_ms <= _MORE_MS,
            )
            self.understood = False
        else:
            return []
        if paused and not activity.silence_ms:  # the user went on
            self._pause, self._agreed = None, False
        events: list[Event] = []
        if self._pause is None:
            self._follow()
            if self._whole and self._stable_ms == _STABLE_MS:
                events.append(Guess(self._heard))
            if self._whole and activity.silence_ms >= PAUSE_MS:
                self._number += 1
                self._pause = self._number
                events.append(Pause(self._number, np.concatenate(self._recent), self._heard))
        if self._over():
            self._deaf = (
                not activity.silence_ms
            )  # who talks for so long does not talk to us: wait until it ends
            events.append(self._end())
        return events

    def _follow(self) -> None:
        """Ask the grammar what it has heard."""
        heard = self._grammar.partial()
        if heard == self._heard:
            self._stable_ms += WINDOW_MS
        else:
            self._heard, self._stable_ms = heard, 0
            self._whole = self._complete(heard)

    def confirm(self, pause: int) -> list[Event]:
        """The free recogniser agrees with what the grammar had heard at `pause`."""
        if pause != self._pause or not self.speaking:
            return []
        self._agreed = True
        return [self._end()] if self._over() else []

    def stall(self) -> list[Event]:
        """No audio has come for a while, because the microphone was switched off: what was said is all there is."""
        return [self._end(stalled=True)] if self.speaking else []

    def _over(self) -> bool:
        silence = self.activity.silence_ms
        if len(self._recent) * WINDOW_MS >= LONGEST_MS:
            return True
        if self._pause is None:
            return silence >= OPEN_MS
        return silence >= (AGREED_MS if self._agreed else COMPLETE_MS)

    def _end(self, *, stalled: bool = False) -> End:
        heard = self._grammar.finish() if self._begun else ""
        self._apart_ms = 0
        end = End(
            np.concatenate(self._recent),
            heard if self._pause is None else self._heard,
            self._pause,
            self.activity.voiced_ms,
            stalled,
        )
        self._reset()
        return end
