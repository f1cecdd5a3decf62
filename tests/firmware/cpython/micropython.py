"""MicroPython's `micropython` module for CPython: enough to import and run the firmware's modules there."""

import builtins


class _Pointer:
    """`ptr8(buffer)` and its kin: viper's view of a buffer as elements of one width."""

    def __init__(self, width):
        self.code = {1: "B", 2: "H", 4: "i"}[width]
        self.width = width

    def __call__(self, buffer):
        view = memoryview(buffer)
        if view.format != "B":
            view = view.cast("B")
        return view.cast(self.code) if self.width > 1 and len(view) % self.width == 0 else view


def const(value):
    return value


def viper(function):
    return function


native = viper


def heap_lock():
    """CPython has no heap lock; the tests that need it skip by `hasattr(micropython, "heap_locked")` or by runtime."""


def heap_unlock():
    return 0


def schedule(function, argument):
    function(argument)


def alloc_emergency_exception_buf(size):
    pass


class RingIO:
    """Bytes that wait in a buffer, of which one stays spare; no more of the stream's methods than are used."""

    def __init__(self, buffer):
        if not 2 <= len(buffer) <= 65535:
            raise ValueError
        self._buffer = buffer
        self._put = self._get = 0

    def any(self):
        return (self._put - self._get) % len(self._buffer)

    def write(self, src, off, n):
        n = min(n, len(self._buffer) - 1 - self.any())
        for byte in memoryview(src)[off : off + n]:
            self._buffer[self._put] = byte
            self._put = (self._put + 1) % len(self._buffer)
        return n

    def readinto(self, dst, n):
        n = min(n, self.any())
        out = memoryview(dst).cast("B")
        for i in range(n):
            out[i] = self._buffer[self._get]
            self._get = (self._get + 1) % len(self._buffer)
        return n


for _name, _value in (
    ("const", const),
    ("ptr8", _Pointer(1)),
    ("ptr16", _Pointer(2)),
    ("ptr32", _Pointer(4)),
    ("uint", int),
):
    if not hasattr(builtins, _name):
        setattr(builtins, _name, _value)
