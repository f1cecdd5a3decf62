# A byte ring between one producer and one consumer, made once and never grown. Neither side's calls allocate; they are
# RingIO's own, since each frame passes through all of them, and may run in callbacks of the scheduler.
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
        # Empties the ring. Allocates: for interruptions, not for frames.
        ring = RingIO(self._buf)
        self.readable = ring.any  # () -> bytes that wait
        self.write = ring.write  # (buf, off, n) -> how many of buf[off:off+n] fitted, first bytes first
        self.readinto = ring.readinto  # (buf, n) -> how many of the oldest bytes are now in buf[0:n]

    def writable(self):
        return self.size - self.readable()
