# The device's side of a serial line (docs/serial.md) without I/O: bytes in, events out, frames to send. No port, no clock.
# Reading: read into `chunk` and call next_event(n); while left() call next_event(0) instead, for more of the chunk.
# Writing (sender.py): frame() makes a message's frame in `tx`. While out_n is not 0, write tx[out_at:][:out_n] and call sent(n).
#
# A peer's fault never raises: it becomes close_code and close_reason. Every buffer is made in the constructor, and between
# OPEN and CLOSED nothing is allocated.
import sys

from micropython import const

from vrt.links import AUDIO, NONE, OPEN, TEXT
from vrt.links.sender import Sender

if sys.implementation.name == "micropython":
    try:
        from vrt.links.stuffing import feed
    except (SyntaxError, ValueError):  # no emitter for viper here, met with the source or with a chip's .mpy
        from vrt.links.stuffing_plain import feed
else:
    from vrt.links.stuffing_plain import feed

# One more event than all links have: something may be to send, or the connection is over; ask for the next event at once.
_CONTROL = const(5)

# Kinds of frames: O Y C c A P Q X.
_OPEN = const(0x4F)
_OPENED = const(0x59)
_TEXT = const(0x43)
_PART = const(0x63)
_AUDIO = const(0x41)
_PING = const(0x50)
_PONG = const(0x51)
_CLOSE = const(0x58)

# Slots of the kernels' state, see stuffing.py.
_POS = const(0)
_END = const(1)
_HAVE = const(2)
_COUNT = const(6)
_BASE = const(9)
_LIMIT = const(10)
_NOISE = const(11)

_NO_CODE = const(1006)


class Framing(Sender):
    # In bytes, rx: the largest message taken; a larger one is thrown away unbuffered and counted in `dropped`, as vRT asks.
    # tx: the largest piece of a message sent at once; audio must fit into one. chunk: the most read at once.
    def __init__(self, rx, tx, chunk):
        self.rx = bytearray(rx + 4)
        Sender.__init__(self, tx)
        self.chunk = bytearray(chunk)
        self._state[_LIMIT] = rx
        self.dropped = 0
        self.nonce = b""
        self.reset()

    def reset(self):
        # Forgets the connection, if there was one, and what has come of it.
        st = self._state
        for slot in range(_LIMIT):
            st[slot] = 0
        self.begin(0)
        self.close_code = 0
        self.close_reason = ""
        self.lost = False  # the host, or what it said, ended the connection

    def begin(self, window):
        # Nothing was sent or received on this connection. window: what the host takes while it does not read; 0: none is open.
        self._state[_BASE] = 0
        self._received = 0  # frames of texts
        self._skip = False  # a text that does not fit is thrown away
        self.n = 0  # bytes of the latest message
        self.begin_sending(window)

    def left(self):
        # There is more in the chunk.
        return self._state[_POS] < self._state[_END]

    def next_event(self, n):  # noqa: PLR0911  (a call would cost more)
        # n: bytes that are new in chunk. Returns NONE, OPEN, TEXT or AUDIO (the message is rx[0:self.n] until the next call), or
        # _CONTROL.
        st = self._state
        kind = feed(st, self.chunk, n, self.rx)
        if not kind:
            return NONE
        if self.lost:
            return _CONTROL
        if not self.open_:
            return self._before(kind)
        if kind in (_OPENED, _OPEN):  # a second answer, or an echo of our own question
            return _CONTROL
        if kind == _CLOSE:
            return self._closed()
        if st[_COUNT] != self._received & 255:
            self.lose("a control frame was lost")
            return _CONTROL
        if kind in (_TEXT, _PART):
            return self._text(kind == _TEXT)
        if kind == _AUDIO and st[_BASE] == 0 and st[_HAVE] <= st[_LIMIT] and not self.closing:
            self.n = st[_HAVE]
            return AUDIO
        self._signal(kind)
        return _CONTROL

    def _text(self, whole):
        st = self._state
        self._received += 1
        n = st[_BASE] + st[_HAVE]
        if n > st[_LIMIT]:
            self._skip = True
        if not whole:
            if not self._skip:
                st[_BASE] = n
            return _CONTROL
        st[_BASE] = 0
        if self._skip:
            self._skip = False
            self.dropped += 1
            return _CONTROL
        self.n = n
        return _CONTROL if self.closing else TEXT

    def _signal(self, kind):
        st = self._state
        number = self.rx[st[_BASE]] if st[_HAVE] == 1 else 0
        if kind == _PING and number:
            self._pong = number
        elif kind == _PONG:
            if number and number == self.asked:
                self.asked = self._ahead = 0
                self._full = self._again = False
        elif kind == _AUDIO and not self.closing:
            self.dropped += 1
        elif kind != _AUDIO:
            st[_NOISE] = (st[_NOISE] + 1) & 0x3FFFFFFF
        self.next()

    def _before(self, kind):
        # Before the connection is open only the host's answer counts.
        if kind != _OPENED:
            return _CONTROL
        from vrt.links.opening import answer  # noqa: PLC0415  (forgets itself)

        n = min(self._state[_HAVE], self._state[_LIMIT])
        window = answer(bytes(self.rx[:n]), self.nonce)
        if not window:
            return _CONTROL
        out = self.out_n, self.out_at  # our question may be half out once more
        self.begin(window)
        self.out_n, self.out_at = out
        self.writable = not self.out_n
        return OPEN

    def _closed(self):
        # The host's close: the answer to ours, or one that we answer.
        n = min(self._state[_HAVE], self._state[_LIMIT])
        if n > 1 and not self.closing:
            self.close_code = self.rx[0] << 8 | self.rx[1]
            try:
                self.close_reason = str(bytes(self.rx[2:n]), "utf-8")
            except (ValueError, UnicodeError):
                self.close_reason = "closed"
            self._close = bytes(self.rx[:2])
        self.over("closed")
        return _CONTROL

    def lose(self, reason):
        # The connection cannot go on; the host hears of it.
        self._close = b"\x03\xee" + reason.encode()
        self.over(reason)

    def over(self, reason):
        # The connection is; the first reason counts.
        if not self.close_code:
            self.close_code = _NO_CODE
            self.close_reason = reason
        self.lost = True
        self.rest = None
        self._pong = -1
        self.open_ = self.writable = False
        self.next()
