# The device's event log, on its way to the board. Secrets never come here: no token, no whole session id.
from micropython import const

from vrt import diff

# So many faults are told in a while, the others counted: a peer's flood of them neither fills the log nor holds the loop.
_FAULTS = const(8)
_WHILE_MS = const(10_000)


class Log:
    def __init__(self, event):
        self._event = event  # of the board: event(kind, **fields)
        self._left = _FAULTS  # that may still be told
        self._since = 0
        self._untold = 0

    def event(self, kind, **fields):
        # A heap too full for it costs the line, not what it tells of.
        try:
            self._event(kind, **fields)
        except MemoryError:
            self._untold += 1

    def fault(self, code, message=""):
        if self._left:
            self._left -= 1
            self.event("error", code=code, message=message)
        else:
            self._untold += 1

    def step(self, now):
        if not 0 <= diff(now, self._since) < _WHILE_MS:
            self._since = now
            self._left = _FAULTS
            if self._untold:
                text = f"{self._untold} more were not told"
                self._untold = 0
                self.event("error", code="UNTOLD", message=text)
