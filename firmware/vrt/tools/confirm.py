# The device's own act of confirmation (design: "Confirmation"): a button, held for a second, begun after the request.
# A request and its grant belong to one call (id and digest of name and arguments) in one epoch; a grant serves once.
# The App shows `asking` by the LED; pure: the button's debounced level and ticks come in.
from micropython import const

from vrt.ticks import diff

CONFIRMED = const(1)
REFUSED = const(2)
EXPIRED = const(3)

_BLIND_MS = const(250)  # not having looked for so long, a button that is down may have been up in between


class Confirm:
    def __init__(self, window_ms=15000, hold_ms=1000):
        # Decisions 8: a confirmation that is not answered in 15 s is refused.
        self.window_ms = window_ms
        self.hold_ms = hold_ms
        self.cancel()

    def cancel(self):
        # The request and any grant are dead: the epoch closed, the session ended, or it is answered.
        self.asking = False
        self._granted = False
        self._key = None

    def ask(self, call_id, digest, epoch, now, window_ms=None):
        # A new request; it replaces the one before. `window_ms` shortens the time to answer.
        self._key = (call_id, digest, epoch)
        self._window_ms = self.window_ms if window_ms is None else min(self.window_ms, window_ms)
        self._asked = self._seen = now
        self._armed = False  # the button has been seen up since the request: only now does a press count
        self._pressed = None  # ticks at which the press that counts began
        self._granted = False
        self.asking = True

    def poll(self, down, now):
        # Every loop while asking. CONFIRMED, REFUSED or EXPIRED ends the request; 0 means it still waits.
        if not self.asking:
            return 0
        blind = diff(now, self._seen) > _BLIND_MS
        self._seen = now
        if diff(now, self._asked) >= self._window_ms:
            self.cancel()
            return EXPIRED
        if not down:
            if self._pressed is not None:  # let go before the time was up, however late we see it
                self.cancel()
                return REFUSED
            self._armed = True
        elif self._armed:
            if self._pressed is None or blind:
                self._pressed = now
            elif diff(now, self._pressed) >= self.hold_ms:
                self.asking = False
                self._granted = True
                return CONFIRMED
        return 0

    def use(self, call_id, digest, epoch, now):
        # Whether exactly this call was confirmed, inside the window. Whatever the answer, the grant is spent.
        good = (
            self._granted
            and self._key == (call_id, digest, epoch)
            and diff(now, self._asked) < self._window_ms
        )
        self.cancel()
        return good
