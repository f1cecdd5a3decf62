# What a person does with the button. Pure: levels and ticks in; nothing here allocates.
from micropython import const

from vrt import diff

_DEBOUNCE_MS = const(30)
_TAP_MS = const(400)  # a shorter press is a tap
_TAIL_MS = const(800)  # of silence sent after the user has spoken, for the host to hear that it is over
_OPEN_MS = const(15_000)  # the longest that a tap keeps the microphone live

_OFF = const(0)
_TAIL = const(1)  # the microphone is off, silence is sent
_HELD = const(2)  # the button is down
_TAPPED = const(3)  # it was tapped; the turn ends it


class Button:
    # A level that bounces in; out come presses, and when the user asks the microphone to be live: while the button is
    # held, or from a tap until the turn moves on, the next tap or 15 s. With listen="open" it always is, and only mute
    # and half duplex say no (see Conversation).
    def __init__(self, is_open=False):
        self.is_open = is_open
        self.down = False
        self.fresh = False  # it may have just been pressed: what begins now began after the press
        self._changed = None  # ticks since when the level differs from `down`
        self._seen = 0  # ticks at which the level was last that of a pressed button
        self.move(_OFF, 0)

    def move(self, state, now):
        self._state = state
        self._since = now
        self.asked = self.is_open or state >= _HELD
        self.tail = state == _TAIL  # silence is due instead of what the microphone hears

    def poll(self, level, now):
        # True when it has just been pressed, and stayed so. The caller says by `press` whether that means to talk.
        pressed = False
        if level == self.down:
            self._changed = None
        elif self._changed is None:
            self._changed = now
        elif diff(now, self._changed) >= _DEBOUNCE_MS:
            self._changed = None
            self.down = pressed = level
        if level:
            self._seen = now
        self.fresh = not self.down and (level or (self.fresh and diff(now, self._seen) < _DEBOUNCE_MS))
        past = diff(now, self._since)
        if self._state == _HELD:
            if not self.down:
                self.move(_TAPPED if past < _TAP_MS else _TAIL, now)
        elif self._state == _TAPPED:
            if past >= _OPEN_MS:
                self.move(_TAIL, now)
        elif self._state == _TAIL and past >= _TAIL_MS:
            self.move(_OFF, now)
        return pressed

    def press(self, now):
        if not self.is_open:
            self.move(_TAIL if self._state == _TAPPED else _HELD, now)

    def answered(self):
        # The host has heard enough: the turn thinks, speaks or acts.
        if self._state != _HELD:
            self.move(_OFF, 0)
