# The serial link: a board's UART or USB port under framing.py. The verbs of all links are in __init__.py. The port is what
# board.serial() returns: readinto(buf, n) and write(buf, at, n), which do not wait (None or 0: nothing there, or later) and raise
# OSError, and close(). It may have `window`, the bytes that it takes while nobody reads, and, where a REPL shares it,
# interrupt(on): whether Ctrl-C stops the program. That is so until a host answers: whoever types it is a human, or a tool.
# Between OPEN and CLOSED nothing is allocated.
import os

from micropython import const

from vrt import diff
from vrt.links import CLOSED, NONE, OPEN
from vrt.links.framing import Framing

_KNOCK_MS = const(1000)  # between questions for a connection, and between pings that are not answered
_PROBE_MS = const(500)  # after a text until a ping shows whether it came
_CLOSE_MS = const(2000)  # from our close to the host's
# Without a frame from the host while it owes an answer, or without a byte accepted by the port.
_STALL_MS = const(10000)
_READS = const(8)  # in one poll, so that a flood of bytes without a message cannot hold the loop
_WINDOW = const(256)
_CONTROL = const(5)  # of framing.py
_ERRORS = (OSError, ValueError, MemoryError)


class SerialLink(Framing):
    # port(): opens the port, see above. rx: bytes of the largest message from the host; a larger one is counted in `dropped`. tx: of
    # the largest frame of audio, and of the parts in which a text goes; a text must not change until `writable`. The ticks given
    # to open and poll are milliseconds, see vrt.diff.
    def __init__(self, port, rx=4096, tx=1024, *, chunk=256):
        Framing.__init__(self, rx, tx, chunk)
        self._port = port
        self.sock = self._interrupt = self._question = None
        self.last_rx = self.now = 0
        self.busy = False  # the latest poll has read as much as it may
        self._since = 0  # ticks of the last question for a connection, or of our close
        self._asking = 0  # the ping that was not answered at _asked_at
        self._asked_at = 0
        self._loose_at = None  # since when a text may be lost without a trace
        self._owed = None  # since when the host owes us an answer
        self._stalled = None  # since when the port has taken nothing of what goes out
        self._ended = False  # over, and not yet reported
        self.poll = self._running().send
        self.poll(None)  # to its first yield

    def unread(self):
        # True: poll again before you sleep on `sock`, for it does not know of the bytes that have left it.
        return self.busy or self.left()

    def open(self, now):
        # Asks for a connection, and goes on asking: nothing is wrong with a wire on which nobody answers yet.
        self._release()
        self.reset()
        self._ended = False
        self.now = self.last_rx = now
        self.nonce = b"%08x" % int.from_bytes(os.urandom(4), "little")
        try:
            self.sock = self._port()
            self._interrupt = getattr(self.sock, "interrupt", None)
            if self._interrupt:
                self._interrupt(True)
            from vrt.links.opening import question  # noqa: PLC0415  (forgotten when it is answered)

            self._question = question(self.nonce, getattr(self.sock, "window", _WINDOW))
            self._knock()
        except _ERRORS as error:
            self.fault(error)

    # poll(now), send_audio and _flush are the whole path of a frame; see ws.py for why poll is a generator.

    def _running(self):
        # poll(now): at most one event.
        event = NONE
        while True:
            self.now = yield event
            event = NONE
            self.busy = False
            try:
                if self.sock:
                    self._tick()
                reads = _READS
                while not event and self.sock:
                    n = 0
                    if not self.left():
                        if reads == 0:
                            self.busy = True
                            break
                        reads -= 1
                        n = self.sock.readinto(self.chunk, len(self.chunk))
                        if not n:
                            break
                    event = self.next_event(n)
                    if event:
                        self.last_rx = self.now
                        if event == _CONTROL:
                            event = NONE
                            self._answer()
                        elif event == OPEN and self._interrupt:
                            self._interrupt(False)
            except _ERRORS as error:
                self.fault(error)
            if self._ended and not event:
                self._ended = False
                event = CLOSED

    def send_text(self, buf, n):
        return self.send_audio(buf, n, 1)

    def send_audio(self, buf, n, kind=2):
        # buf[0:n] as one message; False: not now. Raises ProtocolError for audio of more than `tx` bytes.
        taken = self.frame(kind, buf, n)
        self._flush()
        return taken

    def _flush(self):
        try:
            while self.out_n:
                n = self.sock.write(self.tx, self.out_at, self.out_n)  # pyright: ignore[reportOptionalMemberAccess]
                if not n:
                    break
                self._stalled = None
                self.sent(n)
        except _ERRORS:
            self._end("port: it takes nothing")

    def _tick(self):
        # What is due.
        now = self.now
        if self.out_n:
            self._flush()
        if not (self.open_ or self.lost) and not self.out_n and diff(now, self._since) >= _KNOCK_MS:
            self._knock()
        if self.closing and diff(now, self._since) >= _CLOSE_MS:
            self._end("timeout")
        if not self.out_n:
            self._stalled = None
        elif self._stalled is None:
            self._stalled = now
        elif diff(now, self._stalled) >= _STALL_MS:
            self._end("timeout")
        if self.open_:
            self._doubt(now)

    def _doubt(self, now):
        # Does the host still hear us?
        if not self.asked:
            self._owed = None
        elif self._owed is None:
            self._owed = now
        elif diff(now, self._owed) >= _STALL_MS and diff(now, self.last_rx) >= _STALL_MS:
            self._end("timeout")
        if self.asked != self._asking:
            self._asking = self.asked
            self._asked_at = now
        elif self.asked and diff(now, self._asked_at) >= _KNOCK_MS:
            self.ask()
            self._flush()
        if not self.loose:
            self._loose_at = None
        elif self._loose_at is None:
            self._loose_at = now
        elif diff(now, self._loose_at) >= _PROBE_MS:
            self.ask()
            self._flush()

    def _knock(self):
        self._since = self.now
        self.knock(self._question)
        self._flush()

    def _answer(self):
        self._flush()
        if self.lost:
            self._end("closed")

    # Ending

    def close(self, code):
        if self.open_ and not self.closing:
            Framing.close(self, code)
            self._since = self.now
            self._flush()
        elif not self.open_ and self.sock:
            self._end("closed")

    def fault(self, error):
        self._end("memory" if isinstance(error, MemoryError) else f"port: {error}")

    def _end(self, reason):
        # poll reports CLOSED; `reason` holds unless framing.py knows a better one.
        self.over(reason)
        self._release()
        self._ended = True

    def _release(self):
        # The port is the REPL's again.
        self.closing = False
        self.out_n = 0
        if self.sock:
            sock = self.sock
            self.sock = None
            if self._interrupt:
                self._interrupt(True)
                self._interrupt = None
            sock.close()


make = SerialLink  # for vrt.use
