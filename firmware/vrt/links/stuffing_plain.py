# The plain twin of stuffing.py: the same two functions, the same state, the same results, for a runtime without the viper
# emitter. Slower by an order of magnitude and, on 32 bits, still free of big integers.
# ruff: noqa: C901, PLR0912, PLR0915 (it follows its twin)
from micropython import const

_POS = const(0)
_END = const(1)
_HAVE = const(2)
_ESC = const(3)
_BAD = const(4)
_KIND = const(5)
_COUNT = const(6)
_HIGH = const(7)
_LOW = const(8)
_BASE = const(9)
_LIMIT = const(10)
_NOISE = const(11)
_SENT = const(12)
_FROM = const(13)
_TO = const(14)
_LONGEST = const(0x100000)


def _table():
    # CRC-32 (IEEE 802.3) of every byte: low and high halves.
    for value in range(256):
        high, low = 0, value
        for _ in range(8):
            bit = low & 1
            low = low >> 1 | (high & 1) << 15
            high >>= 1
            if bit:
                high ^= 0xEDB8
                low ^= 0x8320
        _LOWS.append(low)
        _HIGHS.append(high)


_LOWS = []
_HIGHS = []
_table()


def feed(st, chunk, n, msg):
    pos = 0 if n else st[_POS]
    end = n or st[_END]
    have = st[_HAVE]
    esc = st[_ESC]
    bad = st[_BAD]
    high = st[_HIGH]
    low = st[_LOW]
    if st[_KIND] == 0:
        have = 0
        high = low = 0xFFFF
        st[_KIND] = 1
    result = 0
    while pos < end and not result:
        byte = chunk[pos]
        pos += 1
        if byte == 0xC0:
            if have or esc or bad:
                if not bad and not esc and have > 5 and low == 0x20E3 and high == 0xDEBB:
                    result = st[_KIND]
                    have -= 6
                else:
                    st[_NOISE] = (st[_NOISE] + 1) & 0x3FFFFFFF
                    have = 0
                    high = low = 0xFFFF
                esc = bad = 0
        elif bad:
            pass
        elif byte == 0xDB:
            bad = esc
            esc = 1
        elif byte < 5 and byte != 2:
            bad = 1
        else:
            if esc:
                esc = 0
                byte ^= 0x20
                if byte not in (0, 1, 3, 4, 0xC0, 0xDB):
                    bad = 1
            at = (low ^ byte) & 255
            low = (low >> 8 | (high & 255) << 8) ^ _LOWS[at]
            high = high >> 8 ^ _HIGHS[at]
            if have == 0:
                st[_KIND] = byte
                bad = bad or byte == 0
            elif have == 1:
                st[_COUNT] = byte
            elif st[_BASE] + have - 2 < st[_LIMIT] + 4:
                msg[st[_BASE] + have - 2] = byte
            have += 1
            if have == _LONGEST:
                bad = 1
    st[_POS] = pos
    st[_END] = end
    st[_HAVE] = have
    st[_ESC] = esc
    st[_BAD] = bad
    st[_HIGH] = high
    st[_LOW] = low
    if result:
        st[_KIND] = 0
    return result


def build(frame, kind, buf, st):
    start = st[_FROM]
    n = st[_TO] - start
    high = low = 0xFFFF
    frame[0] = 0xC0
    at = 1
    for i in range(-2, n + 4):
        if i < n:
            byte = kind if i == -2 else st[_SENT] if i == -1 else buf[start + i]
            slot = (low ^ byte) & 255
            low = (low >> 8 | (high & 255) << 8) ^ _LOWS[slot]
            high = high >> 8 ^ _HIGHS[slot]
        else:
            byte = low & 255 ^ 255
            low = low >> 8 | (high & 255) << 8
            high >>= 8
        if byte in (0, 1, 3, 4, 0xC0, 0xDB):
            frame[at] = 0xDB
            at += 1
            byte ^= 0x20
        frame[at] = byte
        at += 1
    frame[at] = 0xC0
    return at + 1
