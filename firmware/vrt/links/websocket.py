# The client's side of a WebSocket (RFC 6455) without I/O: bytes in, events out, bytes to send. No socket, no
# clock.
# Reading: read at most `want` bytes into `chunk` and call next_event(n) or, at the end of the stream,
# receive_eof(); while `want` is 0 call next_event(0) instead, for more of the chunk.
# Writing: frame() makes a message's frame in `out`, to be written at once; keep() takes what the socket did not.
# While out_n is not 0, write out[out_at:][:out_n] and call sent(n) with what the socket took.
#
# A peer's fault never raises: it becomes close_code and close_reason. Every buffer is made in the constructor,
# and between start() and the close nothing is allocated. No properties: one in a class makes each store to its
# objects slow.
import sys
from array import array

from micropython import const

from vrt.errors import ProtocolError
from vrt.links import CLOSED, NONE, OPEN
from vrt.links.upgrade import refusal, request

if sys.implementation.name == "micropython":
    try:
        from vrt.links.frames import build, feed, utf8
    except (SyntaxError, ValueError):  # no emitter for viper here, met with the source or with a chip's .mpy
        from vrt.links.frames_plain import build, feed, utf8
else:
    from vrt.links.frames_plain import build, feed, utf8

# One more event than all links have: there may be something to send; ask for the next event at once.
CONTROL = 5

_CLOSED = const(0)
_HANDSHAKE = const(1)
_OPEN = const(2)
_CLOSING = const(3)  # a close frame was sent or is about to be; messages are no longer handed out
_READ_ONLY = const(4)  # nothing can be sent any more

# Slots of the kernels' state, see frames.py.
_POS = const(0)
_END = const(1)
_N = const(8)
_LIMIT = const(9)
_CTL = const(12)
_WANT = const(13)
_LAST = const(14)
_KEY_HIGH = const(15)
_KEY_LOW = const(16)
_SLOTS = const(17)

_CONTROL_MAX = const(125)  # 5.5
_HEAD_MAX = const(4096)  # bytes of the server's answer to the upgrade request, if rx holds as many
_FRAME_EXTRA = const(14)  # the longest header with its key

_WORDS = {1002: "protocol error", 1007: "text is not utf-8", 1009: "message too big"}


def valid_close_code(code):
    # 7.4: codes that may stand in a close frame, with those registered since.
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


class WebSocket:
    # rx_bytes: the largest message taken; a larger one is thrown away unbuffered and counted in `dropped`, as
    # vRT asks; one of 2**30 bytes closes with 1009. tx_bytes: the largest message sent.
    def __init__(self, rx_bytes, tx_bytes, chunk_bytes=512):
        self.rx = bytearray(rx_bytes)
        self._tx_max = tx_bytes
        self._tx = bytearray(tx_bytes + _FRAME_EXTRA)
        self.chunk = bytearray(chunk_bytes)
        self._ctl = bytearray(_CONTROL_MAX)
        self._pong = bytearray(_CONTROL_MAX)
        self._ctl_tx = bytearray(_CONTROL_MAX + _FRAME_EXTRA)
        self._st = array("i", bytes(4 * _SLOTS))
        self.dropped = 0
        self.reset()

    def reset(self):
        # Forgets the connection, if there was one.
        self._state = _CLOSED
        self.close_code = 0
        self.close_reason = ""
        self.n = 0  # bytes of the latest message, or of the answer to the upgrade request
        self.want = len(self.chunk)
        self.out = self._tx
        self.out_at = self.out_n = 0
        self._pong_n = -1  # length of the payload in _pong that waits to be sent
        self._close_n = -1  # length of the close payload in _close that waits to be sent, 0 or 2
        self._close = b""
        self._lost = None  # the reason for people when nothing could be sent any more

    def writable(self):
        return self._state == _OPEN and not self.out_n

    def closing(self):
        return self._state == _CLOSING

    def start(self, host, path, entropy):
        # A new connection; entropy: 20 random bytes. Masks must be unpredictable for scripts that attack
        # proxies (10.3). No stranger's code runs here, so a generator that starts from random bits is enough.
        self.reset()
        st = self._st
        for slot in range(_SLOTS):
            st[slot] = 0
        st[_LIMIT] = len(self.rx)
        st[_WANT] = st[_LAST] = 2  # the shortest frame
        st[_KEY_HIGH] = entropy[16] << 8 | entropy[17]
        st[_KEY_LOW] = entropy[18] << 8 | entropy[19] | 1  # all zeros would stay so
        self.out, self._key = request(host, path, entropy[:16])
        self.out_n = len(self.out)
        self._state = _HANDSHAKE

    def receive_eof(self, reason="eof"):
        # The connection is over; close_code and close_reason say how.
        self._end(1006, self._lost or reason)
        self._state = _CLOSED
        self.out_n = 0

    def next_event(self, n):
        # n: bytes that are new in chunk. Returns NONE, OPEN, TEXT or AUDIO (the message is rx[0:self.n] until
        # the next call), CLOSED (the upgrade failed), or CONTROL.
        if self._state == _HANDSHAKE:
            return self._read_head(n)
        if self.close_code:  # whatever follows a close frame or a fault means nothing
            self.want = len(self.chunk)
            return NONE
        st = self._st
        got = feed(st, self.chunk, n, self.rx, self._ctl)
        self.want = st[_WANT]
        if self._lost and self.want:
            self.want = 1
        if got == 0:
            return NONE
        if 0 < got < 3 and self._state != _CLOSING:
            self.n = st[_N]
            return got + 1
        self._handle(got)
        return CONTROL

    def _handle(self, got):
        # What feed returned, when it is no message to hand out.
        if got < 0:
            self._fail(-got)
        elif got == 3:
            self.dropped += 1
        elif got == 8:
            self._read_close(self._st[_CTL])
        elif got == 9 and self._state == _OPEN:  # 5.5.3: an unsent answer to an older ping may be left out
            self._ctl, self._pong = self._pong, self._ctl
            self._pong_n = self._st[_CTL]
            self._next_out()

    # Sending

    def frame(self, opcode, buf, n):
        # Makes buf[0:n] a message, opcode 1 (text) or 2 (binary): the frame is out[0:length]. Returns the
        # length, or 0: not now, because a frame is half out or the WebSocket is not open.
        if self.out_n or self._state != _OPEN:
            return 0
        if not 0 <= n <= len(buf):
            raise ProtocolError("no such bytes in the buffer")
        if n > self._tx_max:
            raise ProtocolError(f"message of {n} bytes: this link sends at most {self._tx_max}")
        self.out = self._tx
        return build(self._tx, 0x80 | opcode, buf, n, self._st)

    def keep(self, length, done):
        # Of the frame just made the socket took only `done` bytes.
        self.out_at = done
        self.out_n = length - done

    def sent(self, n):
        if self.out_n:  # cannot_send leaves nothing
            self.out_at += n
            self.out_n -= n
            self._next_out()

    def cannot_send(self):
        # The socket takes nothing any more. What the peer said before, and why it closed, may still be read;
        # byte by byte, because a socket that meets its error in the middle of a read throws away what it has.
        # Returns False when there was no WebSocket yet.
        if self._state == _HANDSHAKE:
            return False
        self.out_n = 0
        self._pong_n = self._close_n = -1
        self._lost = "reset"
        self.want = min(self.want, 1)
        if self._state == _OPEN:
            self._state = _READ_ONLY
        return True

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
        # Control frames go out between data frames, the close last.
        if self.out_n:
            return
        self.out = self._ctl_tx
        self.out_at = 0
        if self._pong_n >= 0:
            self.out_n = build(self.out, 0x8A, self._pong, self._pong_n, self._st)
            self._pong_n = -1
        elif self._close_n >= 0:
            self.out_n = build(self.out, 0x88, self._close, self._close_n, self._st)
            self._close_n = -1

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
        code = ctl[0] << 8 | ctl[1] if n > 1 else 1005  # which nobody may send
        if n and not valid_close_code(code):
            self._fail(1002)
        elif n and utf8(ctl, 2, n, 0):
            self._fail(1007)
        else:
            self._end(code, str(ctl[2:n], "utf-8") if n > 2 else "closed")
            if self._state == _OPEN:
                self._send_close(bytes(ctl[: min(n, 2)]))

    # The upgrade, section 4

    def _read_head(self, n):
        rx = self.rx
        at = self.n
        limit = min(len(rx), _HEAD_MAX)
        for pos in range(n):
            byte = self.chunk[pos]
            if at < 5 and byte != b"HTTP/"[at]:
                return self._refuse("answer is not http")
            if at == limit:
                return self._refuse("answer too long")
            rx[at] = byte
            at += 1
            if byte == 10 and at > 3 and rx[at - 2] == 13 and rx[at - 3] == 10 and rx[at - 4] == 13:
                reason = refusal(bytes(rx[: at - 4]), self._key)
                if reason:
                    return self._refuse(reason)
                self._st[_POS] = pos + 1
                self._st[_END] = n
                self.want = 0 if pos + 1 < n else self._st[_WANT]
                self.n = 0
                self._state = _OPEN
                return OPEN
        self.n = at
        return NONE

    def _refuse(self, reason):
        self._end(1006, reason)
        self._state = _CLOSED
        return CLOSED
