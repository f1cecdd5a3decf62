# The WebSocket link: a non-blocking socket, with or without TLS, under websocket.py. The verbs of all links
# are in __init__.py. Only open() may block, while it looks up the host's name. Between OPEN and CLOSED
# nothing is allocated.
import os
import select
import socket
import time
from errno import ECONNREFUSED, ECONNRESET, EHOSTUNREACH, EINPROGRESS, ENOMEM, ETIMEDOUT

from micropython import const

from vrt.links import AUDIO, CLOSED, NONE, OPEN, TEXT
from vrt.links.url import parse
from vrt.links.websocket import WebSocket
from vrt.ticks import diff

_CONNECT_MS = const(15000)  # from open() to OPEN; a TLS handshake takes seconds on a board
_CLOSE_MS = const(2000)  # from the first close frame to the end of the stream
_STALL_MS = const(10000)  # without a byte accepted by the socket while there is something to send
_READS = const(8)  # in one poll, so that a flood of bytes without a message cannot hold the loop

_IDLE = const(0)
_CONNECTING = const(1)  # the socket is not connected yet
_RUNNING = const(2)
_OVER = const(3)  # over, and not yet reported

_ERRORS = (OSError, ValueError, MemoryError)  # what sockets and TLS raise
_UNTRUSTED = const(-0x2700)  # MBEDTLS_ERR_X509_CERT_VERIFY_FAILED
_WORDS = {
    ECONNREFUSED: "refused",
    ECONNRESET: "reset",
    EHOSTUNREACH: "unreachable",
    ENOMEM: "memory",
    ETIMEDOUT: "timeout",
    32: "reset",  # EPIPE, which errno does not name
    -0x7F00: "memory",  # MBEDTLS_ERR_SSL_ALLOC_FAILED
}


class WebSocketLink:
    # rx_bytes, tx_bytes: the largest message either way; a larger one from the host is counted in `dropped`.
    # ca: see tls.py. The ticks given to open and poll are milliseconds, see vrt.ticks.
    def __init__(self, url, rx_bytes=4096, tx_bytes=4096, *, ca=None, chunk_bytes=512):
        secure, self._host, self._port, self.path, self._header = parse(url)
        self._ws = WebSocket(rx_bytes, tx_bytes, chunk_bytes)
        self._tls = None
        if secure:
            from vrt.links import tls  # noqa: PLC0415  (memory that ws:// does not need)

            self._tls = tls.context(ca)
        self.rx = self._ws.rx
        self.n = 0
        self.sock = None
        self.writable = False  # a message would be taken now; kept by hand, because properties cost
        self.close_code = 0
        self.close_reason = ""
        self.last_rx = 0
        self.dropped = 0
        self._stage = _IDLE
        self._addresses = []
        self._poller = None
        self._now = 0
        self._stuck = None  # since when the socket has taken nothing of what goes out
        self.poll = self._polling().send
        self.poll(None)  # to its first yield
        self._since = self._limit = 0  # the deadline: _limit milliseconds (0: none) after _since

    def unread(self):
        # True: poll again before you sleep on `sock`, for it does not know of the bytes that have left it.
        return self._ws.want == 0

    def open(self, now):
        # Starts to connect. Failures come as CLOSED from poll, with the reason.
        self._shut()
        self._ws.reset()
        self.close_code = 0
        self.close_reason = ""
        self._now = self.last_rx = now
        self._stuck = None
        self._set_limit(_CONNECT_MS)
        try:
            self._addresses = list(socket.getaddrinfo(self._host, self._port, 0, socket.SOCK_STREAM))
        except OSError:
            self._addresses = []
        self._dial("dns")

    # poll(now), send_audio and _write are the whole path of a frame. MicroPython puts the state of a call
    # that is larger than 11 words onto the heap: locals, stack, 3 for a try, 3 more for a name in its except.
    # So they are small, and the one that cannot be is a generator, whose state is made once: poll is its
    # send.

    def _polling(self):  # noqa: PLR0912  (a call would cost more than its branches)
        # poll(now): at most one event.
        ws = self._ws
        event = NONE
        while True:
            self._now = yield event
            event = NONE
            try:
                if ws.out_n:
                    self._push()
                elif self._stage == _CONNECTING:
                    self._connect()
                reads = _READS
                while event == NONE and self._stage == _RUNNING:
                    if ws.want:
                        if reads == 0:
                            break
                        reads -= ws.want > 1
                        n = self.sock.readinto(ws.chunk, ws.want)
                        if not n:
                            if n == 0:
                                self._end("eof")
                            break
                        self.last_rx = self._now
                        event = ws.next_event(n)
                    else:
                        event = ws.next_event(0)
                    if TEXT <= event <= AUDIO:
                        self.n = ws.n
                    elif event:
                        event = self._handle(event)
            except _ERRORS as error:
                self._end(self._word(error))
            if not event:
                event = self._rest()

    def _rest(self):
        # There was no event: is it time for one?
        if self._limit and diff(self._now, self._since) >= self._limit:
            self._end("timeout")
        if self._stage == _OVER:
            self._stage = _IDLE
            return CLOSED
        return NONE

    def send_text(self, buf, n):
        return self.send_audio(buf, n, 1)

    def send_audio(self, buf, n, opcode=2):
        # buf[0:n] as one message; False: not now. Raises ProtocolError when it is larger than tx_bytes.
        ws = self._ws
        if self._limit:  # it is connecting or closing
            return False
        if ws.out_n:
            self._flush()
        n = ws.frame(opcode, buf, n)
        if not n:
            return False
        done = self._write(n)
        if done != n:
            ws.keep(n, done or 0)
            self.writable = False
            self._stuck = self._now
        return True

    def _write(self, n):
        # The next n bytes that go out; returns how many the socket took, or None. On an error, all of them:
        # the peer is gone, but what it said before, and why it closed, may still be read.
        try:
            return self.sock.write(self._ws.out, self._ws.out_at, n)  # pyright: ignore[reportCallIssue]
        except _ERRORS:
            if not self._ws.cannot_send():
                raise  # while it connects, poll tells the reason
        self.writable = False
        self._set_limit(_CLOSE_MS)
        return n

    def close(self, code):
        # Raises ProtocolError when the code may not be sent (RFC 6455 section 7.4).
        self._ws.close(code)
        if self._ws.closing():
            self._answer()
        elif self._stage in (_CONNECTING, _RUNNING):
            self._end("closed")

    # Connecting

    def _dial(self, reason):
        # The next address, until one does not fail at once.
        while self._addresses:
            family, kind, protocol, _, address = self._addresses.pop(0)
            sock = None
            try:
                sock = socket.socket(family, kind, protocol)
                sock.setblocking(False)
                sock.setsockopt(6, getattr(socket, "TCP_NODELAY", 1), 1)  # IPPROTO_TCP
                sock.connect(address)
            except OSError as error:
                if error.errno != EINPROGRESS:
                    reason = self._word(error)
                    if sock:
                        sock.close()
                    continue
            self.sock = sock
            self._poller = select.poll()
            self._poller.register(sock, select.POLLOUT)
            self._stage = _CONNECTING
            return
        self._end(reason)

    def _connect(self):
        ready = self._poller.poll(0)
        if not ready:
            return
        sock = self.sock
        if ready[0][1] & (select.POLLERR | select.POLLHUP):
            reason = "refused"
            try:
                sock.readinto(self._ws.chunk, 1)  # raises what connect could not
            except OSError as error:
                reason = self._word(error)
            sock.close()
            self.sock = None
            self._dial(reason)
            return
        self._poller = None
        if self._tls:
            # The handshake goes on whenever something is read or written.
            sock = self._tls.wrap_socket(
                sock,  # pyright: ignore[reportArgumentType]
                server_hostname=self._host,
                do_handshake_on_connect=False,
            )
            self.sock = sock
        self._ws.start(self._header, self.path, os.urandom(20))
        self._stage = _RUNNING
        self._flush()

    # Running

    def _handle(self, event):
        # Returns the event that the caller hears of.
        if event == OPEN:
            self._limit = 0
            self.writable = self._ws.writable()
            return OPEN
        if event == CLOSED:
            self._end("refused")
        else:
            self._answer()
        return NONE

    def _answer(self):
        # A control frame came, a message was dropped, or a close frame is about to go.
        self.dropped = self._ws.dropped
        self._flush()
        if self._ws.closing() and not self._limit:
            self._set_limit(_CLOSE_MS)

    def _push(self):
        self._flush()
        if self._ws.out_n and diff(self._now, self._stuck) >= _STALL_MS:
            self._end("timeout")

    def _flush(self):
        ws = self._ws
        while ws.out_n:
            n = self._write(ws.out_n)
            if not n:
                if self._stuck is None:
                    self._stuck = self._now
                break
            ws.sent(n)
            self._stuck = None
        self.writable = ws.writable()

    # Ending

    def _set_limit(self, limit_ms):
        self._since = self._now
        self._limit = limit_ms

    def _end(self, reason):
        # poll reports CLOSED; `reason` holds unless the WebSocket knows a better one.
        self._ws.receive_eof(reason)
        self.close_code = self._ws.close_code
        self.close_reason = self._ws.close_reason
        self._shut()
        self._stage = _OVER

    def _shut(self):
        self._stage = _IDLE
        self._limit = 0
        self._poller = None
        self.writable = False
        if self.sock:
            self.sock.close()
            self.sock = None

    def _word(self, error):
        if isinstance(error, MemoryError):
            return "memory"
        if isinstance(error, ValueError) or error.errno == _UNTRUSTED:  # mbedTLS refuses the certificate
            if time.gmtime()[0] < 2025:
                return "tls: the clock is not set"
            return "tls: " + (str(error).strip() if isinstance(error, ValueError) else "not trusted")
        number = error.errno
        # mbedTLS numbers its errors below those of the system.
        return _WORDS.get(number) or ("tls" if self._tls and number and number < -255 else f"error {number}")
