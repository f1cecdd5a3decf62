# What a serial link sends (docs/serial.md): messages as frames, as many as the host has room for, and signs of life. The half of
# framing.py that makes frames.
import sys
from array import array

from micropython import const

from vrt.errors import ProtocolError

if sys.implementation.name == "micropython":
    try:
        from vrt.links.stuffing import build
    except (SyntaxError, ValueError):  # no emitter for viper here, met with the source or with a chip's .mpy
        from vrt.links.stuffing_plain import build
else:
    from vrt.links.stuffing_plain import build

_OPEN = const(0x4F)
_TEXT = const(0x43)
_PART = const(0x63)
_AUDIO = const(0x41)
_PING = const(0x50)
_PONG = const(0x51)
_CLOSE = const(0x58)

# Slots of the kernels' state, see stuffing.py.
_SENT = const(12)
_FROM = const(13)
_TO = const(14)
_SLOTS = const(15)

_MARGIN = const(16)  # bytes of a ping, or of a pong


class Sender:
    def __init__(self, tx):
        self.tx = bytearray(2 * tx + 14)
        self.piece = tx
        self._state = array("i", bytes(4 * _SLOTS))
        self._number = 0  # of the latest ping
        self._sign = bytearray(1)

    def begin_sending(self, window):
        # Nothing was sent on this connection.
        self._state[_SENT] = 0
        self.out_at = self.out_n = 0
        self.rest = None  # the text that goes out in parts, while some are left
        self._rest_at = self._rest_n = 0
        self._pong = -1  # what the host's ping asked with, while the answer is to be sent
        self._window = window
        self.asked = 0  # the number of the ping that is not answered yet
        self._again = False  # one is to be sent now
        self.loose = False  # a text was sent behind the last ping: that it was lost may show by nothing
        # Bytes up to that ping and not known to be read; and since the last ping.
        self._ahead = self._unasked = 0
        self._full = False  # the host must read first
        self._close = None  # the payload of the close frame that waits to be sent
        self.closing = False  # ours was sent, or is about to be; messages are no longer handed out
        self.open_ = window > 0  # `open` is the link's verb
        self.writable = self.open_  # a message would be taken now

    def knock(self, payload):
        # Makes the frame that asks for a connection, see opening.py.
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
        self.loose = True
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
                self._again or (not self.asked and (self._full or self._unasked >= self._window >> 1))
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

    def ask(self):
        # A ping, also when the one before is not answered: it, or the answer, or what came before it may be lost.
        self._again = True
        self.next()

    def _ask(self):
        self._again = self.loose = False
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
