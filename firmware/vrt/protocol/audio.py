# Audio frames (vRT §8.1): kind, seq, payload. Everything here runs for each frame and allocates nothing.
from micropython import const

from vrt.protocol.tables import HEADER_BYTES, INPUT, OUTPUT

_MASK = const(0x1FFFFFFF)  # of the seq we look at: a full one would be a big integer on the boards
_JUMP = const(0x10000)  # more frames than this are not lost, the sender has begun to count anew


class Sender:
    # Numbers our frames. The counter is bytes, for the same reason.
    def __init__(self):
        self.seq = bytearray(4)

    def put(self, frame):
        # Writes kind and seq into frame[0:5] and counts, wrapping after 2**32 frames.
        seq = self.seq
        frame[0] = INPUT
        frame[1:HEADER_BYTES] = seq
        i = 3
        while i >= 0:
            seq[i] = (seq[i] + 1) & 0xFF
            if seq[i]:
                return
            i -= 1


class Receiver:
    # Checks the server's frames and counts what is missing. On a new connection call `begin`.
    def __init__(self):
        self.malformed = 0
        self.missing = 0
        self.begin()

    def begin(self):
        self._next = -1

    def check(self, buf, n):
        # Whether buf[0:n] is output audio; what is not is dropped without a word (§8.1).
        if n < HEADER_BYTES or buf[0] != OUTPUT:
            self.malformed += 1
            return False
        seq = (buf[1] & 0x1F) << 24 | buf[2] << 16 | buf[3] << 8 | buf[4]
        gap = (seq - self._next) & _MASK
        if self._next >= 0 and gap < _JUMP:
            self.missing += gap
        self._next = seq + 1 if seq < _MASK else 0
        return True
