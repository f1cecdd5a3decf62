# A byte ring between one producer and one consumer, made once and never grown. Neither side's calls allocate;
# they may run in callbacks of the scheduler, not in hard interrupts.
from vrt.errors import ConfigError

try:
    from micropython import RingIO
except ImportError:

    class RingIO:
        # CPython's stand-in for the part of MicroPython's RingIO that Ring needs; one byte stays spare.
        def __init__(self, buf):
            self._buf = buf
            self._put = self._get = 0

        def any(self):
            return (self._put - self._get) % len(self._buf)

        def write(self, src, off, n):
            n = min(n, len(self._buf) - 1 - self.any())
            for byte in memoryview(src)[off : off + n]:
                self._buf[self._put] = byte
                self._put = (self._put + 1) % len(self._buf)
            return n

        def readinto(self, dst, n):
            n = min(n, self.any())
            out = memoryview(dst).cast("B")
            for i in range(n):
                out[i] = self._buf[self._get]
                self._get = (self._get + 1) % len(self._buf)
            return n


_LARGEST = 65534  # RingIO counts in 16 bits


class Ring:
    def __init__(self, size):
        # Holds `size` bytes. Raises ConfigError when RingIO cannot.
        if not 0 < size <= _LARGEST:
            raise ConfigError(f"a ring holds 1 to {_LARGEST} bytes, not {size}")
        self.size = size
        self._buf = bytearray(size + 1)
        self.clear()

    def clear(self):
        # Empties the ring. Makes one small object: for interruptions, not for frames.
        self._ring = RingIO(self._buf)

    @property
    def readable(self):
        return self._ring.any()

    @property
    def writable(self):
        return self.size - self._ring.any()

    def write(self, buf, off, n):
        # Takes what fits of buf[off:off+n], first bytes first; returns how many bytes that was.
        return self._ring.write(buf, off, n)

    def readinto(self, buf, n):
        # Moves up to n of the oldest bytes to the start of buf; returns how many there were.
        return self._ring.readinto(buf, n)
