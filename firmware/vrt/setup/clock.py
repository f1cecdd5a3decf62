# The time, from a time server: SNTP (RFC 4330), without waiting, but for the server's name. Needed before the certificate of a
# host is verified, because a board that has just been switched on believes that it is the year 2000.
import os
import socket
import time

from micropython import const

from vrt import diff

_PORT = const(123)
_SIZE = const(48)  # of a question, and of an answer
_ANSWER_MS = const(3000)
# Between tries: a span that doubles.
_WAIT_MS = const(2000)
_CAP_MS = const(60_000)
_ERA = 0x100000000  # seconds; what is below half of it belongs to the next one, which begins in 2036
_HALF_ERA = 0x80000000


class Clock:
    # server: its name. event: of the log, for the reason when the time cannot be had. setter(time as gmtime gives it).
    def __init__(self, server, event, setter=None, resolve=socket.getaddrinfo, new=socket.socket):
        self.server = server
        self.event = event
        self.reason = ""
        self._set = setter or rtc
        self._resolve = resolve
        self._new = new
        self._sock = None
        self._since = 0
        self._wait_ms = 0
        self._next_ms = _WAIT_MS

    def poll(self, now):
        # True once the clock is set.
        try:
            if self._sock:
                return self._listen(now)
            if diff(now, self._since) >= self._wait_ms or not self._wait_ms:
                self._ask(now)
        except (OSError, ValueError) as error:
            self._fail(now, str(error) or "no answer")
        return False

    def _ask(self, now):
        try:
            address = self._resolve(self.server, _PORT, 0, socket.SOCK_DGRAM)[0][-1]
        except OSError:
            self._fail(now, "its name is not known")
            return
        self._sock = sock = self._new(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setblocking(False)
        self._nonce = os.urandom(8)
        # Version 4, mode client; what stands for the time of sending comes back in the answer.
        sock.sendto(b"\x23" + bytes(39) + self._nonce, address)
        self._since = now

    def _listen(self, now):
        try:
            data = self._sock.recv(_SIZE)
        except OSError as error:
            if error.errno != 11:  # EAGAIN: nothing there yet
                raise
            if diff(now, self._since) >= _ANSWER_MS:
                self._fail(now, "no answer")
            return False
        seconds = read(data, self._nonce)
        if seconds is None:  # for somebody else, or from somebody who has no time himself
            return False
        self._sock.close()
        self._sock = None
        # The epoch of gmtime is 1970 or 2000.
        since_1900 = 3155673600 if time.gmtime(0)[0] == 2000 else 2208988800
        self._set(time.gmtime(seconds - since_1900))
        self.event("clock", state="set")
        return True

    def _fail(self, now, reason):
        if self._sock:
            self._sock.close()
            self._sock = None
        self._since = now
        self._wait_ms = self._next_ms
        self._next_ms = min(2 * self._next_ms, _CAP_MS)
        if reason != self.reason:
            self.reason = reason
            text = f"no time from {self.server}: {reason}; without it no wss:// host can be verified"
            self.event("error", code="CLOCK", message=text)


def read(data, nonce):
    # Seconds since 1900 in an answer, or None when it is none to our question (RFC 4330 section 5).
    if len(data) < _SIZE or data[0] & 7 != 4 or data[0] >> 6 == 3 or not 1 <= data[1] <= 15:
        return None
    if data[24:32] != nonce:
        return None
    seconds = int.from_bytes(data[40:44], "big")
    return seconds + _ERA if seconds < _HALF_ERA else seconds


def rtc(now):
    # Sets the chip's clock.
    import machine  # noqa: PLC0415  (no simulator has it)

    machine.RTC().datetime((now[0], now[1], now[2], now[6], now[3], now[4], now[5], 0))
