# The client's side of a WebSocket (RFC 6455) without I/O: bytes in, events out, bytes to send. No socket, no clock.
# The caller loops over
#   next_event()            until it says NONE, then reads at most `want` bytes into `chunk` and calls
#   receive_data(n)         or, at the end of the stream, receive_eof(); and whenever out_n is not 0 it writes
#   out[out_at:][:out_n]    and calls sent(n) with what the socket took.
# A peer's fault never raises: it becomes close_code and close_reason. Every buffer is made in the constructor; between
# start() and the close nothing is allocated.
from array import array

from micropython import const

from vrt.errors import ProtocolError
from vrt.links import CLOSED, NONE, OPEN
from vrt.links.upgrade import refusal, request

try:
    from vrt.links.frames import build, feed, utf8
except (
    SyntaxError,
    ValueError,
):  # a runtime without the viper emitter, met with the source or with a chip's .mpy
    from vrt.links.frames_plain import build, feed, utf8

CONTROL = (
    5  # an event besides those of all links: there may be something to send; ask for the next event at once
)

_CLOSED = const(0)
_HANDSHAKE = const(1)
_OPEN = const(2)
_CLOSING = const(3)  # a close frame was sent or is about to be; messages are no longer handed out

# Slots of the kernels' state, see frames.py.
_POS = const(0)
_END = const(1)
_N = const(8)
_LIMIT = const(9)
_CTL = const(12)
_WANT = const(13)
_LAST = const(14)
_DROPPED = const(15)
_KEY_HIGH = const(16)
_KEY_LOW = const(17)
_SLOTS = const(18)

_CONTROL_MAX = const(125)  # 5.5
_HEAD_MAX = const(4096)  # bytes of the server's answer to the upgrade request, if rx holds as many
_FRAME_EXTRA = const(14)  # the longest header with its key

_WORDS = {1002: "protocol error", 1007: "text is not utf-8", 1009: "message too big"}


def valid_close_code(code):
    # 7.4: codes that may stand in a close frame, with those registered since.
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


class WebSocket:
    # rx_bytes: the largest message taken; a larger one is thrown away unbuffered and counted in `dropped`, as vRT asks.
    # tx_bytes: the largest message sent.
    def __init__(self, rx_bytes, tx_bytes, chunk_bytes=512):
        self.rx = bytearray(rx_bytes)
        self._tx = bytearray(tx_bytes + _FRAME_EXTRA)
        self.chunk = bytearray(chunk_bytes)
        self._ctl = bytearray(_CONTROL_MAX)
        self._pong = bytearray(_CONTROL_MAX)
        self._ctl_tx = bytearray(_CONTROL_MAX + _FRAME_EXTRA)
        self._st = array("i", bytes(4 * _SLOTS))
        self.reset()

    def reset(self):
        # Forgets the connection, if there was one.
        self._state = _CLOSED
        self._st[_POS] = self._st[_END] = 0
        self.close_code = 0
        self.close_reason = ""
        self.n = 0  # bytes of the latest message, or of the answer to the upgrade request
        self.want = len(self.chunk)
        self.out = self._tx
        self.out_at = self.out_n = 0
        self._tx_n = 0  # length of the data frame that waits in _tx or is half out
        self._pong_n = -1  # length of the payload in _pong that waits to be sent
        self._close_n = -1  # length of the close payload in _close that waits to be sent, 0 or 2
        self._close = b""
        self._lost = None  # why nothing can be sent any more

    @property
    def writable(self):
        return self._state == _OPEN and not self._tx_n

    @property
    def closing(self):
        return self._state == _CLOSING

    @property
    def dropped(self):
        return self._st[_DROPPED]

    def start(self, host, path, entropy):
        # A new connection; entropy: 20 random bytes. Section 1.3 wants masks that a peer cannot guess, against scripts that
        # attack proxies: no stranger's code runs here, so a generator that starts from random bits is enough.
        self.reset()
        st = self._st
        for slot in range(_SLOTS):
            if slot != _DROPPED:
                st[slot] = 0
        st[_LIMIT] = len(self.rx)
        st[_WANT] = st[_LAST] = 2
        st[_KEY_HIGH] = entropy[16] << 8 | entropy[17]
        st[_KEY_LOW] = entropy[18] << 8 | entropy[19] | 1  # all zeros would stay so
        self.out, self._key = request(host, path, entropy[:16])
        self.out_n = len(self.out)
        self._state = _HANDSHAKE

    def receive_data(self, n):
        # chunk[0:n] is new. Only after next_event() said NONE.
        self._st[_POS] = 0
        self._st[_END] = n

    def receive_eof(self, reason="eof"):
        # The connection is over; close_code and close_reason say how.
        self._end(1006, self._lost or reason)
        self._state = _CLOSED
        self.out_n = 0

    def next_event(self):
        # NONE, OPEN, TEXT or AUDIO (the message is rx[0:n] until the next call), CLOSED (the upgrade failed), or CONTROL.
        st = self._st
        if st[_POS] == st[_END]:
            return NONE
        if self._state != _OPEN:
            if self._state == _HANDSHAKE:
                return self._read_head()
            if (
                self._state == _CLOSED or self.close_code
            ):  # whatever follows a close frame or a fault means nothing
                st[_POS] = st[_END]
                return NONE
        got = feed(st, self.chunk, self.rx, self._ctl)
        self.want = st[_WANT]
        if got == 0:
            return NONE
        if 0 < got < 3 and self._state == _OPEN:
            self.n = st[_N]
            return got + 1
        if got < 0:
            self._fail(-got)
        elif got == 8:
            self._read_close(st[_CTL])
        elif got == 9 and self._state == _OPEN:  # 5.5.3: an unsent answer to an older ping may be left out
            self._ctl, self._pong = self._pong, self._ctl
            self._pong_n = st[_CTL]
            self._next_out()
        return CONTROL

    # Sending

    def send(self, opcode, buf, n):
        # buf[0:n] as one message, opcode 1 (text) or 2 (binary). False: not now, a data frame is not wholly out yet.
        if self._tx_n or self._state != _OPEN:
            return False
        if not 0 <= n <= len(buf):
            raise ProtocolError("no such bytes in the buffer")
        if n + _FRAME_EXTRA > len(self._tx):
            raise ProtocolError(
                f"message of {n} bytes: this link sends at most {len(self._tx) - _FRAME_EXTRA}"
            )
        self._tx_n = build(self._tx, 0x80 | opcode, buf, n, self._st)
        if not self.out_n:
            self.out = self._tx
            self.out_at = 0
            self.out_n = self._tx_n
        return True

    def sent(self, n):
        self.out_at += n
        self.out_n -= n
        if not self.out_n:
            if self.out is self._tx:
                self._tx_n = 0
            self._next_out()

    def cannot_send(self, reason):
        # The socket takes nothing any more, but the peer's close frame, with the real reason, may still be read.
        self.out_n = self._tx_n = 0
        self._pong_n = self._close_n = -1
        self._lost = reason
        if self._state == _OPEN:
            self._state = _CLOSING

    def close(self, code):
        if not valid_close_code(code):
            raise ProtocolError(f"{code} is no close code")
        if self._state == _OPEN:
            self._send_close(bytes((code >> 8, code & 255)))

    def _send_close(self, payload):
        self._close = payload
        self._close_n = len(payload)
        self._state = _CLOSING
        self._next_out()

    def _next_out(self):
        # Control frames go between data frames: a pong before the data frame that waits, the close after it.
        if self.out_n:
            return
        if self._pong_n >= 0:
            self.out = self._ctl_tx
            self.out_n = build(self._ctl_tx, 0x8A, self._pong, self._pong_n, self._st)
            self._pong_n = -1
        elif self._tx_n:
            self.out = self._tx
            self.out_n = self._tx_n
        elif self._close_n >= 0:
            self.out = self._ctl_tx
            self.out_n = build(self._ctl_tx, 0x88, self._close, self._close_n, self._st)
            self._close_n = -1
        self.out_at = 0

    # Closing

    def _end(self, code, reason):
        # The first reason counts.
        if not self.close_code:
            self.close_code = code
            self.close_reason = reason

    def _fail(self, code):
        # 7.1.7: say why, then hear nothing more.
        self._end(code, _WORDS[code])
        if self._state == _OPEN:
            self._send_close(bytes((code >> 8, code & 255)))

    def _read_close(self, n):
        # 5.5.1: the code is answered with itself, an empty payload with an empty one.
        ctl = self._ctl
        code = ctl[0] << 8 | ctl[1] if n >= 2 else 1005
        if n == 1 or (n and not valid_close_code(code)):
            self._fail(1002)
        elif n and utf8(ctl, 2, n, 0):
            self._fail(1007)
        else:
            self._end(code, str(ctl[2:n], "utf-8") if n > 2 else "closed")
            if self._state == _OPEN:
                self._send_close(bytes(ctl[: min(n, 2)]))

    # The upgrade, section 4

    def _read_head(self):
        st = self._st
        rx = self.rx
        n = self.n
        limit = min(len(rx), _HEAD_MAX)
        while st[_POS] < st[_END]:
            byte = self.chunk[st[_POS]]
            if n < 5 and byte != b"HTTP/"[n]:
                return self._refuse("answer is not http")
            if n == limit:
                return self._refuse("answer too long")
            rx[n] = byte
            n += 1
            st[_POS] += 1
            if byte == 10 and n > 3 and rx[n - 2] == 13 and rx[n - 3] == 10 and rx[n - 4] == 13:
                self.n = 0
                reason = refusal(bytes(rx[: n - 4]), self._key)
                if reason:
                    return self._refuse(reason)
                self.want = st[_WANT]
                self._state = _OPEN
                return OPEN
        self.n = n
        return NONE

    def _refuse(self, reason):
        self._end(1006, reason)
        self._state = _CLOSED
        return CLOSED
