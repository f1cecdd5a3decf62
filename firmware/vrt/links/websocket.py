# The client's side of an open WebSocket (RFC 6455) without I/O: bytes in, events out, bytes to send. No socket, no
# clock; upgrade.py opens it.
# Reading: read at most `want` bytes into `chunk` and call next_event(n) or, at the end of the stream,
# receive_eof(); while `want` is 0 call next_event(0) instead, for more of the chunk.
# Writing: frame() makes a message's frame in `tx`, to be written at once. When the socket did not take all of it, or it is
# only the first piece of a long message (`rest`), put the frame into out_at and out_n and call sent(n) with what the
# socket took; while out_n is not 0, write tx[out_at:][:out_n] and call sent(n) again.
#
# A peer's fault never raises: it becomes close_code and close_reason. Every buffer is made in the constructor,
# and between start() and the close nothing is allocated. No properties: one in a class makes each store to its
# objects slow.
import sys
from array import array

from micropython import const

from vrt.errors import ProtocolError
from vrt.links import NONE

if sys.implementation.name == "micropython":
    try:
        from vrt.links.frames import build, feed, utf8
    except (SyntaxError, ValueError):  # no emitter for viper here, met with the source or with a chip's .mpy
        from vrt.links.frames_plain import build, feed, utf8
else:
    from vrt.links.frames_plain import build, feed, utf8

# One more event than all links have: there may be something to send; ask for the next event at once.
_CONTROL = const(5)

# Slots of the kernels' state, see frames.py.
_N = const(8)
_LIMIT = const(9)
_CTL = const(12)
_WANT = const(13)
_LAST = const(14)
_KEY_HIGH = const(15)
_KEY_LOW = const(16)
_DONE = const(17)
_PIECE = const(18)
_SLOTS = const(19)

_NO_CODE = const(1005)  # 7.1.5: in close_code, for a close frame without one; nobody may send it
_CONTROL_MAX = const(125)  # 5.5
_FRAME_EXTRA = const(14)  # the longest header with its key


def _valid(code):
    # 7.4: codes that may stand in a close frame, with those registered since.
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


class WebSocket:
    # In bytes, rx: the largest message taken; a larger one is thrown away unbuffered and counted in `dropped`, as
    # vRT asks; one of 2**30 bytes closes with 1009. tx, 128 at least: the largest piece of a message sent at once.
    # chunk: the most read at once.
    def __init__(self, rx, tx, chunk):
        self.rx = bytearray(rx)
        self.tx = bytearray(tx + _FRAME_EXTRA)
        self.piece = tx & -4
        self.chunk = bytearray(chunk)
        self._ctl = bytearray(_CONTROL_MAX)
        self.pong = bytearray(_CONTROL_MAX)
        self._state = array("i", bytes(4 * _SLOTS))
        self.dropped = 0
        self.reset()

    def reset(self):
        # Forgets the connection, if there was one.
        self.close_code = 0
        self.close_reason = ""
        self.n = 0  # bytes of the latest message
        self.want = len(self.chunk)
        self.out_at = self.out_n = 0
        self.rest = None  # the message that goes out in pieces, while some are left; and its size
        self._rest_n = 0
        self._pong_n = -1  # length of the payload in pong that waits to be sent
        self._close = None  # the payload of the close frame that waits to be sent
        self._open = False  # neither side has begun to close
        self.closing = False  # our close frame was sent or is about to be; messages are no longer handed out
        self.writable = False  # a message would be taken now
        self._lost = False  # nothing can be sent any more

    def start(self, seed):
        # The upgrade is done. seed: 4 random bytes. Masks must be unpredictable for scripts that attack
        # proxies (10.3). No stranger's code runs here, so a generator that starts from random bits is enough.
        self.reset()
        st = self._state
        for slot in range(_SLOTS):
            st[slot] = 0
        st[_LIMIT] = len(self.rx)
        st[_PIECE] = self.piece
        st[_WANT] = st[_LAST] = self.want = 2  # the shortest frame
        st[_KEY_HIGH] = seed[0] << 8 | seed[1]
        st[_KEY_LOW] = seed[2] << 8 | seed[3] | 1  # all zeros would stay so
        self._open = self.writable = True

    def receive_eof(self, reason="eof"):
        # The connection is over; close_code and close_reason say how.
        if not self.close_code:  # the first reason counts
            self.close_code = 1006
            self.close_reason = "reset" if self._lost else reason
        self._open = self.closing = self.writable = False
        self.out_n = 0

    def next_event(self, n):
        # n: bytes that are new in chunk. Returns NONE, TEXT or AUDIO (the message is rx[0:self.n] until the next
        # call), or _CONTROL.
        is_open = self._open
        if not is_open and self.close_code:  # whatever follows a close frame or a fault means nothing
            self.want = len(self.chunk)
            return NONE
        st = self._state
        got = feed(st, self.chunk, n, self.rx, self._ctl)
        n = self.want = st[_WANT]
        if 0 < got < 3 and (is_open or not self.closing):
            self.n = st[_N]
            got += 1
        elif got:
            self._handle(got)
            got = _CONTROL
        if not is_open and self._lost and n:
            self.want = 1
        return got

    def _handle(self, got):
        # What feed returned, when it is no message to hand out.
        ctl = self._ctl
        n = self._state[_CTL]
        if got == 3:
            self.dropped += 1
        elif got == 9 and self._open:  # 5.5.3: an unsent answer to an older ping may be left out
            self._ctl = self.pong
            self.pong = ctl
            self._pong_n = n
            self._next()
        if got > 0 and got != 8:
            return
        code = -got
        reason = None
        if got == 8:
            code = ctl[0] << 8 | ctl[1] if n > 1 else _NO_CODE
            if n and not _valid(code):
                code = 1002
            elif n and utf8(ctl, 2, n, 0):
                code = 1007
            else:
                reason = str(ctl[2:n], "utf-8") if n > 2 else "closed"
        if reason is None:  # 7.1.7: say why, then hear nothing more
            reason = "protocol error"
            if code == 1007:
                reason = "text is not utf-8"
            elif code == 1009:
                reason = "message too big"
        self.close_code = code
        self.close_reason = reason
        self._send_close(code)

    # Sending

    def frame(self, kind, buf, n):
        # Makes buf[0:n] a message, kind 1 (text) or 2 (binary): the frame, or its first piece, is tx[0:length]. Returns
        # the length, or 0: not now, because a frame is half out or the WebSocket is not open. One longer than a piece
        # must stay as it is until `writable`.
        if not self.writable:
            return 0
        if not 0 <= n <= len(buf):
            raise ProtocolError("no such bytes in the buffer")
        if n > self.piece:
            self.rest = buf
            self._rest_n = n
        return build(self.tx, 0x80 | kind, buf, n, self._state)

    def sent(self, n):
        if self.out_n:  # cannot_send leaves nothing
            self.out_at += n
            self.out_n -= n
        self._next()

    def cannot_send(self):
        # The socket takes nothing any more. What the peer said before, and why it closed, may still be read;
        # byte by byte, because a socket that meets its error in the middle of a read throws away what it has.
        self.out_n = 0
        self.rest = None
        self._pong_n = -1
        self._close = None
        self._lost = True
        self.want = min(self.want, 1)
        self._open = self.writable = False

    def _next(self):
        # Control frames go out between data frames, the close last.
        if not self.out_n:
            self.out_at = 0
            if self.rest:
                self.out_at = 8
                self.out_n = build(self.tx, 0, self.rest, self._rest_n, self._state) - 8
                if not self._state[_DONE]:
                    self.rest = None
            elif self._pong_n >= 0:
                self.out_n = build(self.tx, 0x8A, self.pong, self._pong_n, self._state)
                self._pong_n = -1
            elif self._close is not None:
                self.out_n = build(self.tx, 0x88, self._close, len(self._close), self._state)
                self._close = None
        self.writable = self._open and not self.out_n

    # Closing

    def close(self, code):
        if not _valid(code):
            raise ProtocolError(f"{code} is no close code")
        self._send_close(code)

    def _send_close(self, code):
        # 5.5.1: a code is answered with itself, none with none.
        if self._open:
            self._open = False
            self.closing = True
            self._close = b"" if code == _NO_CODE else bytes((code >> 8, code & 255))
            self._next()
