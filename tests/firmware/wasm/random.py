# MicroPython's `random` for the WASI build, which lacks it: what the tests use of it, repeatable.
_state = [1]


def seed(n):
    _state[0] = (n * 2 + 1) & 0xFFFFF


def _next():
    # 16 bits. Everything stays a small integer, so that a test of many numbers makes no garbage.
    _state[0] = (_state[0] * 757 + 12345) & 0xFFFFF
    return _state[0] >> 4


def getrandbits(n):
    if n <= 16:
        return _next() >> (16 - n)
    if n <= 30:
        return (_next() << 14 | _next() >> 2) >> (30 - n)
    return getrandbits(n - 16) << 16 | _next()


def randrange(start, stop=None):
    if stop is None:
        start, stop = 0, start
    return start + getrandbits(30) % (stop - start)


def random():
    return getrandbits(24) / 0x1000000


def choice(sequence):
    return sequence[randrange(len(sequence))]
