# What a person does with the button and what the device shows. Pure: levels and ticks in; nothing here allocates.
from micropython import const

from vrt.ticks import diff

PRESSED = const(1)
RELEASED = const(2)

_DEBOUNCE_MS = const(30)
_TAP_MS = const(400)  # a shorter press is a tap
_TAIL_MS = const(800)  # of silence sent after the user has spoken, for the host to hear that it is over
_OPEN_MS = const(15_000)  # the longest that a tap keeps the microphone live

_OFF = const(0)
_HELD = const(1)  # the button is down
_TAPPED = const(2)  # it was tapped; the turn ends it
_TAIL = const(3)  # the microphone is off, silence is sent


class Button:
    # A level that bounces in, presses out.
    def __init__(self):
        self.down = False
        self._changed = 0  # ticks since when the level differs from `down`
        self._differs = False

    def poll(self, level, now):
        # PRESSED or RELEASED when it has changed and stayed so, else 0.
        if level == self.down:
            self._differs = False
        elif not self._differs:
            self._differs = True
            self._changed = now
        elif diff(now, self._changed) >= _DEBOUNCE_MS:
            self._differs = False
            self.down = level
            return PRESSED if level else RELEASED
        return 0


class Talk:
    # When the user asks the microphone to be live: while the button is held, or from a tap until the turn moves on, the
    # next tap or 15 s. With listen="open" it always is, and only mute and half duplex say no (see App).
    def __init__(self, is_open):
        self.is_open = is_open
        self._state = _OFF
        self._since = 0

    @property
    def asked(self):
        return self.is_open or self._state in (_HELD, _TAPPED)

    @property
    def tail(self):
        # Silence is due instead of what the microphone hears.
        return self._state == _TAIL

    def press(self, now):
        if not self.is_open:
            self._enter(_TAIL if self._state == _TAPPED else _HELD, now)

    def release(self, now):
        if self._state == _HELD:
            self._enter(_TAPPED if diff(now, self._since) < _TAP_MS else _TAIL, now)

    def answered(self):
        # The host has heard enough: the turn thinks, speaks or acts.
        if self._state != _HELD:
            self._state = _OFF

    def poll(self, now):
        if self._state == _TAPPED and diff(now, self._since) >= _OPEN_MS:
            self._enter(_TAIL, now)
        elif self._state == _TAIL and diff(now, self._since) >= _TAIL_MS:
            self._state = _OFF

    def _enter(self, state, now):
        self._state = state
        self._since = now


def light(*, failed, connected, asking, playing, turn, live, mute):  # noqa: PLR0911  (an answer for each)
    # The LED's state, what matters most first. `turn` is the state of the current turn, `live` the microphone's.
    if failed:
        return "error"
    if not connected:
        return "connecting"
    if asking:
        return "confirm"
    if playing:
        return "speaking"
    if turn in ("thinking", "speaking", "acting"):
        return "thinking"
    if live:
        return "listening"
    return "muted" if mute else "idle"
