# The device's side of a serial line (docs/serial.md) without I/O: bytes in, events out, frames to send. No port, no clock.
# Reading: read into `chunk` and call next_event(n); while left() call next_event(0) instead, for more of the chunk.
# Writing: frame() makes a message's frame in `tx`. While out_n is not 0, write tx[out_at:][:out_n] and call sent(n).
#
# A peer's fault never raises: it becomes close_code and close_reason. Every buffer is made in the constructor, and between
# OPEN and CLOSED nothing is allocated.
import sys
from array import array

from micropython import const

from vrt.errors import ProtocolError
from vrt.links import AUDIO, NONE, OPEN, TEXT

if sys.implementation.name == "micropython":
    try:
        from vrt.links.stuffing import build, feed
    except (SyntaxError, ValueError):  # no emitter for viper here, met with the source or with a chip's .mpy
        from vrt.links.stuffing_plain import build, feed
else:
    from vrt.links.stuffing_plain import build, feed

# One more event than all links have: something may be to send, or the connection is over; ask for the next event at once.
_CONTROL = const(5)

_VERSION = const(1)
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
_SENT = const(12)
_FROM = const(13)
_TO = const(14)
_SLOTS = const(15)

_MARGIN = const(16)  # bytes of a ping, or of a pong
_LEAST_WINDOW = const(64)
_NO_CODE = const(1006)


class Framing:
    # In bytes, rx: the largest message taken; a larger one is thrown away unbuffered and counted in `dropped`, as vRT asks.
    # tx: the largest piece of a message sent at once; audio must fit into one. chunk: the most read at once.
    def __init__(self, rx, tx, chunk):
        self.rx = bytearray(rx + 4)
        self.tx = bytearray(2 * tx + 14)
        self.piece = tx
        self.chunk = bytearray(chunk)
        self._state = array("i", bytes(4 * _SLOTS))
        self._state[_LIMIT] = rx
        self.dropped = 0
        self.nonce = b""
        self._number = 0  # of the latest ping
        self._sign = bytearray(1)
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
        st = self._state
        st[_BASE] = st[_SENT] = 0
        self._received = 0  # frames of texts
        self._skip = False  # a text that does not fit is thrown away
        self.n = 0  # bytes of the latest message
        self.out_at = self.out_n = 0
        self.rest = None  # the text that goes out in parts, while some are left
        self._rest_at = self._rest_n = 0
        self._pong = -1  # what the host's ping asked with, while the answer is to be sent
        self._window = window
        self.asked = 0  # the number of the ping that is not answered yet
        self._again = False  # it is to be repeated
        self._ahead = self._unasked = (
            0  # bytes up to that ping and not known to be read; and since the last ping
        )
        self._full = False  # the host must read first
        self._close = None  # the payload of the close frame that waits to be sent
        self.closing = False  # ours was sent, or is about to be; messages are no longer handed out
        self.open_ = window > 0  # `open` is the link's verb
        self.writable = self.open_  # a message would be taken now

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
        import json  # noqa: PLC0415

        try:
            said = json.loads(bytes(self.rx[: min(self._state[_HAVE], self._state[_LIMIT])]))
            window = said["window"]
            ours = said["v"] == _VERSION and said["nonce"].encode() == self.nonce
        except (ValueError, KeyError, TypeError, AttributeError):
            return _CONTROL
        if not ours or not isinstance(window, int) or window < _LEAST_WINDOW:
            return _CONTROL
        out = self.out_n, self.out_at  # our question may be half out once more
        self.begin(min(window, 0x100000))
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

    # Sending

    def knock(self, window):
        # Makes the frame that asks for a connection. window: bytes that our side takes while nobody reads.
        payload = b'{"v":1,"nonce":"%s","window":%d}' % (self.nonce, window)
        self._make(_OPEN, payload, len(payload))

    def frame(self, kind, buf, n):
        # Makes buf[0:n] a message, kind 1 (text) or 2 (binary), and puts its frame, or the first of its parts, into tx. A text
        # longer than a piece must stay as it is until `writable`. False: not now. Raises ProtocolError for what is too long.
        if not self.writable:
            return False
        if not 0 <= n <= len(buf) or (kind == 2 and n > self.piece):
            raise ProtocolError("no such bytes in the buffer, or more than a piece")
        if kind == 2:
            self._make(_AUDIO, buf, n)
            if self._room():
                self._went()
                return True
            self.out_n = 0
            self._full = True
            self.next()
            return False
        self.rest = buf
        self._rest_at = 0
        self._rest_n = n
        self.next()
        return True

    def _make(self, kind, buf, to, start=0):
        st = self._state
        st[_FROM] = start
        st[_TO] = to
        self.out_at = 0
        self.out_n = build(self.tx, kind, buf, st)

    def _room(self):
        # Whether the host takes the frame in tx while it does not read.
        ahead = self._ahead + self._unasked
        return not ahead or ahead + self.out_n + _MARGIN <= self._window

    def _went(self):
        # The frame in tx counts as sent.
        self._unasked += self.out_n
        self.writable = False

    def _part(self):
        # The next part of a text, if there is room for it.
        st = self._state
        start = self._rest_at
        most = min(self.piece, (self._window >> 1) - _MARGIN)
        to = min(start + most, self._rest_n)
        self._make(_PART if to < self._rest_n else _TEXT, self.rest, to, start)
        if not self._room():
            self.out_n = 0
            self._full = True
            return
        st[_SENT] = (st[_SENT] + 1) & 255
        self._rest_at = to
        if to == self._rest_n:
            self.rest = None
        self._went()

    def sent(self, n):
        self.out_at += n
        self.out_n -= n
        if not self.out_n:
            self.next()

    def next(self):
        # What goes out when nothing is half out: signs of life between the parts of a text, the close last.
        if not self.out_n:
            if self._pong >= 0:
                self._sign[0] = self._pong
                self._pong = -1
                self._make(_PONG, self._sign, 1)
                self._went()
            elif self.open_ and (
                self._again if self.asked else self._full or self._unasked >= self._window >> 1
            ):
                self._ask()
            elif self.rest is not None and not self._full:
                self._part()
                if self._full:  # it must be asked first
                    self.next()
                    return
            elif self._close is not None and self.rest is None:
                self._make(_CLOSE, self._close, len(self._close))
                self._close = None
        self.writable = (
            self.open_ and not self.closing and not self.out_n and self.rest is None and not self._full
        )

    def ask_again(self):
        # The ping, or the answer to it, may be lost.
        self._again = True
        self.next()

    def _ask(self):
        self._again = False
        self._number = self.asked = self._number % 255 + 1
        self._sign[0] = self.asked
        self._make(_PING, self._sign, 1)
        self._went()
        self._ahead += self._unasked
        self._unasked = 0

    def close(self, code):
        # Says so to the host, whose answer ends the connection.
        if self.open_ and not self.closing:
            self.closing = True
            self._close = bytes((code >> 8, code & 255))
            self.next()
