# The WebSocket link: a non-blocking socket, with or without TLS, under websocket.py. The verbs of all links are in
# __init__.py. Only open() may block, while it looks up the host's name. Between OPEN and CLOSED nothing is
# allocated.
import os
import select
import socket
import time
from errno import ECONNREFUSED, ECONNRESET, EHOSTUNREACH, EINPROGRESS, ENOMEM, ETIMEDOUT

from micropython import const

from vrt.links import AUDIO, CLOSED, NONE, OPEN, TEXT, tls
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
        self._tls = tls.context(ca) if secure else None
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
        self._poll = None
        self._now = self._moved = 0
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
        self._now = self._moved = self.last_rx = now
        self._set_limit(_CONNECT_MS)
        try:
            self._addresses = list(socket.getaddrinfo(self._host, self._port, 0, socket.SOCK_STREAM))
        except OSError:
            self._addresses = []
        self._dial("dns")

    def poll(self, now):  # noqa: PLR0912
        # At most one event. This and send_audio are the whole path of a frame: few calls, no properties.
        self._now = now
        ws = self._ws
        reads = _READS
        try:
            if ws.out_n:
                self._push()
            else:
                self._moved = now
                if self._stage == _CONNECTING:
                    self._connect()
            while self._stage == _RUNNING and (reads or not ws.want):
                if ws.want:
                    reads -= ws.want > 1
                    n = self.sock.readinto(ws.chunk, ws.want)
                    if not n:
                        if n == 0:
                            self._end("eof")
                        break
                    self.last_rx = now
                    event = ws.next_event(n)
                else:
                    event = ws.next_event(0)
                if TEXT <= event <= AUDIO:
                    self.n = ws.n
                    return event
                if event and self._handle(event):
                    return event
        except (OSError, ValueError) as error:
            self._end(self._word(error))
        except MemoryError:
            self._end("memory")
        if self._limit and diff(now, self._since) >= self._limit:
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
        if ws.out_n:
            self._flush()
        length = ws.frame(opcode, buf, n)
        if not length:
            return False
        try:
            done = self.sock.write(ws.tx, 0, length)
            if done != length:
                ws.keep(length, done or 0)
                self.writable = False
        except (OSError, ValueError) as error:
            self._cannot_send(error)
        return True

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
            self._poll = select.poll()
            self._poll.register(sock, select.POLLOUT)
            self._stage = _CONNECTING
            return
        self._end(reason)

    def _connect(self):
        ready = self._poll.poll(0)
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
        self._poll = None
        if self._tls:
            # The handshake goes on whenever something is read or written.
            self.sock = self._tls.wrap_socket(sock, server_hostname=self._host, do_handshake_on_connect=False)
        self._ws.start(self._header, self.path, os.urandom(20))
        self._stage = _RUNNING
        self._flush()

    # Running

    def _handle(self, event):
        # True: the caller hears of it.
        if event == OPEN:
            self._limit = 0
            self.writable = self._ws.writable()
            return True
        if event == CLOSED:
            self._end("refused")
        else:
            self._answer()
        return False

    def _answer(self):
        # A control frame came, a message was dropped, or a close frame is about to go.
        self.dropped = self._ws.dropped
        self._flush()
        if self._ws.closing() and not self._limit:
            self._set_limit(_CLOSE_MS)

    def _push(self):
        self._flush()
        if self._ws.out_n and diff(self._now, self._moved) >= _STALL_MS:
            self._end("timeout")

    def _flush(self):
        ws = self._ws
        try:
            while ws.out_n:
                n = self.sock.write(ws.out, ws.out_at, ws.out_n)
                if not n:
                    break
                ws.sent(n)
                self._moved = self._now
        except (OSError, ValueError) as error:
            self._cannot_send(error)
        self.writable = ws.writable()

    def _cannot_send(self, error):
        self._ws.cannot_send(self._word(error))
        self.writable = False
        self._set_limit(_CLOSE_MS)

    # Ending

    def _set_limit(self, limit_ms):
        self._since = self._now
        self._limit = limit_ms

    def _end(self, reason):
        # poll reports it; `reason` holds unless the WebSocket knows a better one.
        self._ws.receive_eof(reason)
        self.close_code = self._ws.close_code
        self.close_reason = self._ws.close_reason
        self._shut()
        self._stage = _OVER

    def _shut(self):
        self._stage = _IDLE
        self._limit = 0
        self._poll = None
        self.writable = False
        if self.sock:
            self.sock.close()
            self.sock = None

    def _word(self, error):
        if isinstance(error, ValueError) or error.errno == _UNTRUSTED:  # newer MicroPython says what is wrong
            if time.gmtime()[0] < 2025:
                return "tls: the clock is not set"
            return "tls: " + (
                str(error).strip() if isinstance(error, ValueError) else "certificate not trusted"
            )
        number = error.errno
        # mbedTLS numbers its errors below those of the system.
        return _WORDS.get(number) or ("tls" if self._tls and number and number < -255 else f"error {number}")
