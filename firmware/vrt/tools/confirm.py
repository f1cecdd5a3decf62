# The device's own act of confirmation (design: "Confirmation"): a button, held for a second, begun after the request.
# A request and its grant belong to one call (id and digest of name and arguments) in one epoch; a grant serves once.
# The App shows `asking` by the LED; pure: the button's debounced level and ticks come in.
from micropython import const

from vrt import diff

_WINDOW_MS = const(15000)  # decisions 8: a confirmation that is not answered by then is refused
_HOLD_MS = const(1000)
_BLIND_MS = const(250)  # not having looked for so long, a button that is down may have been up in between


class Confirm:
    def __init__(self):
        self.cancel()

    def cancel(self):
        # The request and any grant are dead: the epoch closed, the session ended, or it is answered.
        self.asking = False
        self._call = None  # who asks, or has been granted what it asked for

    def ask(self, call_id, digest, epoch, now, timeout_ms=_WINDOW_MS):
        # A new request; it replaces the one before. `timeout_ms` can shorten the time to answer.
        self.cancel()
        self._timeout_ms = min(_WINDOW_MS, timeout_ms)
        self._since = self._seen = now
        self._armed = False  # the button has been seen up since the request: only now does a press count
        self._pressed = None  # ticks at which the press that counts began
        self.asking = True
        self._call = (call_id, digest, epoch)  # last: without memory for all of it nothing can be granted

    def poll(self, down, now):
        # Every loop while asking. "confirmed", "refused" or "expired" ends the request; None: it still waits.
        if not self.asking:
            return None
        blind = diff(now, self._seen) > _BLIND_MS
        self._seen = now
        if diff(now, self._since) >= self._timeout_ms:
            self.cancel()
            return "expired"
        if not down:
            if self._pressed is not None:  # let go before the time was up, however late we see it
                self.cancel()
                return "refused"
            self._armed = True
        elif self._armed:
            if self._pressed is None or blind:
                self._pressed = now
            elif diff(now, self._pressed) >= _HOLD_MS:
                self.asking = False
                return "confirmed"
        return None

    def use(self, call_id, digest, epoch, now):
        # Whether exactly this call was confirmed, inside the window. Whatever the answer, the grant is spent.
        good = (
            not self.asking
            and self._call == (call_id, digest, epoch)
            and diff(now, self._since) < self._timeout_ms
        )
        self.cancel()
        return good
