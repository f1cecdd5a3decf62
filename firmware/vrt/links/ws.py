# The WebSocket link: a non-blocking socket, with or without TLS, under websocket.py. The verbs of all links
# are in __init__.py. Only open() may block, while it looks up the host's name. Between OPEN and CLOSED
# nothing is allocated.
from micropython import const

from vrt import diff
from vrt.links import CLOSED, NONE, OPEN
from vrt.links.websocket import WebSocket

_CONNECT_MS = const(15000)  # from open() to OPEN; a TLS handshake takes seconds on a board
_CLOSE_MS = const(2000)  # from the first close frame to the end of the stream
_STALL_MS = const(10000)  # without a byte accepted by the socket while there is something to send
_READS = const(8)  # in one poll, so that a flood of bytes without a message cannot hold the loop

_CONTROL = const(5)  # of websocket.py
_ERRORS = (OSError, ValueError, MemoryError)  # what sockets and TLS raise


class WebSocketLink(WebSocket):
    # rx: bytes of the largest message from the host; a larger one is counted in `dropped`. tx: of the largest piece in
    # which ours go out. A longer text must not change until `writable`.
    # Raises ConfigError for the url or ca, see url.py. The ticks given to open and poll are milliseconds, see vrt.diff.
    def __init__(self, url, rx=4096, tx=4096, *, ca=None, chunk=256):
        WebSocket.__init__(self, rx, tx, chunk)
        from vrt.links.connect import forget  # noqa: PLC0415
        from vrt.links.url import address  # noqa: PLC0415  (forgets itself)

        self.address = address(url, ca)
        forget()  # its names stay in the heap: here, and not in the midst of what is free when it is imported again
        self.sock = None
        self.last_rx = self.now = 0
        self._stalled = None  # since when the socket has taken nothing of what goes out
        self._since = 0  # the deadline: _timeout_ms (0: none) after _since
        self._forget()
        self.poll = self._running().send
        self.poll(None)  # to its first yield

    def unread(self):
        # True: poll again before you sleep on `sock`, for it does not know of the bytes that have left it. Also after a poll
        # that ended before it had read all that there is.
        return self.want == 0

    def open(self, now):
        # Starts to connect. Failures come as CLOSED from poll, with the reason.
        self._forget()
        self.reset()
        self.now = self._since = self.last_rx = now
        self._timeout_ms = _CONNECT_MS
        self._stalled = None
        try:
            from vrt.links.connect import connect  # noqa: PLC0415

            self.connecting = connect(self)
            self._advance()
        except _ERRORS as error:
            self.fault(error)

    # poll(now), send_audio and _write are the whole path of a frame. MicroPython puts the state of a call
    # that is larger than 11 words onto the heap: locals, stack, 3 for a try, 3 more for a name in its except.
    # So they are small, and the one that cannot be is a generator, whose state is made once: poll is its
    # send.

    def _running(self):  # noqa: C901, PLR0912  (a call would cost more than its branches)
        # poll(now): at most one event.
        chunk = self.chunk
        event = NONE
        while True:
            self.now = now = yield event
            event = NONE
            try:
                reads = _READS
                if self.connecting:
                    event = self._advance()
                    reads = 0
                elif self.out_n:
                    self._flush()
                    if self.out_n and diff(now, self._stalled) >= _STALL_MS:
                        self._end("timeout")
                while not event and self.sock:
                    want = self.want
                    if want:
                        if reads == 0:
                            if not self.connecting:
                                self.want = 0  # nothing of the chunk is left, as next_event will find
                            break
                        if want > 1:
                            reads -= 1
                        n = self.sock.readinto(chunk, want)
                        if not n:
                            if n == 0:
                                self._end("eof")
                            break
                        self.last_rx = now
                        event = self.next_event(n)
                    else:
                        event = self.next_event(0)
                    if event == _CONTROL:
                        event = NONE
                        self._answer()
            except _ERRORS as error:
                self.fault(error)
            if not event:
                # Is it time for one?
                if self._timeout_ms and diff(self.now, self._since) >= self._timeout_ms:
                    self._end("timeout")
                if self._closed:
                    self._closed = False
                    event = CLOSED

    def send_text(self, buf, n):
        return self.send_audio(buf, n, 1)

    def send_audio(self, buf, n, kind=2):
        # buf[0:n] as one message; False: not now. Raises ProtocolError when the buffer is shorter.
        if not self.writable:
            self._flush()
        n = self.frame(kind, buf, n)
        if not n:
            return False
        done = self._write(n)
        if done != n or self.rest:
            self.out_n = n
            self._stalled = self.now
            self.sent(done or 0)
            self._flush()  # the other pieces, as far as the socket takes them
        return True

    def _write(self, n):
        # The next n bytes that go out; returns how many the socket took, or None. On an error, all of them:
        # the peer is gone, but what it said before, and why it closed, may still be read.
        try:
            return self.sock.write(self.tx, self.out_at, n)  # pyright: ignore[reportAttributeAccessIssue]
        except _ERRORS:
            self.cannot_send()
        self._since = self.now
        self._timeout_ms = _CLOSE_MS
        return n

    def _flush(self):
        while self.out_n:
            n = self._write(self.out_n)
            if not n:
                if self._stalled is None:
                    self._stalled = self.now
                break
            self.sent(n)
            self._stalled = None

    def _advance(self):
        # Returns OPEN or NONE.
        reason = next(self.connecting)  # pyright: ignore[reportArgumentType]
        if reason is None:
            return NONE
        self.connecting = None
        if reason:
            self._end(reason)
            return NONE
        self._timeout_ms = 0
        self.last_rx = self.now
        return OPEN

    def _answer(self):
        # A control frame came, a message was dropped, or a close frame is about to go.
        self._flush()
        if self.closing and not self._timeout_ms:
            self._since = self.now
            self._timeout_ms = _CLOSE_MS

    # Ending

    def close(self, code):
        # Raises ProtocolError when the code may not be sent (RFC 6455 section 7.4).
        WebSocket.close(self, code)
        if self.closing:
            self._answer()
        elif self.sock:
            self._end("closed")

    def fault(self, error):
        try:
            from vrt.links.connect import explain  # noqa: PLC0415

            error = explain(error)
        except MemoryError:
            error = "memory"
        self._end(error)

    def _end(self, reason):
        # poll reports CLOSED; `reason` holds unless the WebSocket knows a better one.
        self.receive_eof(reason)
        self._forget()
        self._closed = True

    def _forget(self):
        self._closed = False  # over, and not yet reported
        self.connecting = None
        self._timeout_ms = 0
        if self.sock:
            self.sock.close()
            self.sock = None
