# The plain twins of dsp.py: the same functions and results, for a runtime without the viper emitter. They are also the
# readable definition of its filters. Buffers of samples must be array('h') or array('H') here, since only they can be
# indexed by sample; the wire's mu-law may be in one too, two codes in each.
from array import array

from micropython import const

_LEARN = const(10)
_LEAST = const(40)
_ON = const(5)
_OFF = const(20)

# Half of the symmetric half-band filter without its zeros, nearest the middle first, in 1/16384 at the lower rate's phase.
_HALF_BAND = (5168, -1624, 847, -502, 283, -166, 90)
# The sample one third after the middle, from the 10 around it, in 1/16384; mirrored, the sample two thirds after.
_THIRD = (218, -676, 1417, -3065, 13414, 6700, -2447, 1233, -609, 199)


def encode(src, n, dst, at, width):
    if width == 2:
        for i in range(n):
            value = src[i] & 0xFFFF
            dst[at + 2 * i] = value & 0xFF
            dst[at + 2 * i + 1] = value >> 8
        return
    for i in range(n):
        value = src[i]
        flip = 0xFF
        value >>= 2
        if value < 0:
            value = -value
            flip = 0x7F
        value = min(value + 33, 8191)
        exponent = 0
        while value >> (exponent + 6):
            exponent += 1
        dst[at + i] = flip ^ (exponent << 4 | value >> (exponent + 1) & 15)


def decode(src, n, work, at, end, width):  # noqa: PLR0917
    if width == 1:
        pairs = isinstance(src, array)
        for i in range(n):
            code = (src[i >> 1] >> 8 * (i & 1) & 0xFF if pairs else src[i]) ^ 0xFF
            value = (((code & 15) << 3) + 0x84 << (code >> 4 & 7)) - 0x84
            work[at + i] = 0x8000 - value if code & 0x80 else 0x8000 + value
    elif width == 2:
        for i in range(n):
            work[at + i] = src[i] + 0x8000
    for i in range(at + n, end):
        work[i] = 0x8000 if width else 0


def volume(buf, at, n, factor, middle):
    total = 0
    for i in range(at, at + n):
        value = (buf[i] - middle) * factor >> 15
        buf[i] = value + middle
        total += abs(value)
    return total // n


def hear(src, n, work, at, state):
    average = state[0]
    total = 0
    for i in range(n):
        value = src[i] + 0x8000
        work[at + i] = value
        value -= average >> 5
        average += value
        total += abs(value)
    state[0] = average

    level = state[7] = total // n
    floor = state[1]
    step = level * 64 - floor
    if state[2] < _LEARN:
        state[2] += 1
        state[1] = level * 64 if state[2] == 1 else max(floor, level * 64)
    elif level > _LEAST and level > state[6] and level * 64 > floor * 2:
        state[1] += step // 512
        state[3] = min(_ON, state[3] + 1)
        state[4] = 0
        if state[3] == _ON:
            state[5] = 1
    else:
        state[1] += step // (8 if step < 0 else 64)
        state[3] = max(0, state[3] - 2)
        state[4] += 1
        if state[4] >= _OFF:
            state[5] = 0


# The filters take the offset off each sample, so that no sum leaves the small integers of 32 bits.


def resample(work, n, dst, ratio):
    if ratio == 1:
        past = 26
        for i in range(n // 2):
            middle = 2 * i + 13
            y = (work[middle] - 0x8000) * 8192
            for j in range(7):
                y += _HALF_BAND[j] * (work[middle - 2 * j - 1] + work[middle + 2 * j + 1] - 0x10000)
            dst[i] = _signed(y)
    elif ratio == 4:
        past = 13
        for i in range(n):
            y = 0
            for j in range(7):
                y += 2 * _HALF_BAND[j] * (work[i + 6 - j] + work[i + 7 + j] - 0x10000)
            dst[2 * i] = work[i + 6] - 0x8000
            dst[2 * i + 1] = _signed(y)
    elif ratio == 6:
        past = 9
        for i in range(n):
            dst[3 * i] = work[i + 4] - 0x8000
            dst[3 * i + 1] = _one_third(work, i)
            dst[3 * i + 2] = _two_thirds(work, i)
    else:
        past = 9
        for i in range(0, n, 2):
            k = i // 2 * 3
            dst[k] = work[i + 4] - 0x8000
            dst[k + 1] = _two_thirds(work, i)
            dst[k + 2] = _one_third(work, i + 1)
    for i in range(past):
        work[i] = work[n + i]


def _signed(y):
    # A filter's sum to the sample, rounded and clipped.
    return max(-0x8000, min(0x7FFF, y + 8192 >> 14))


def _one_third(work, i):
    y = 0
    for j in range(10):
        y += _THIRD[j] * (work[i + j] - 0x8000)
    return _signed(y)


def _two_thirds(work, i):
    y = 0
    for j in range(10):
        y += _THIRD[9 - j] * (work[i + j] - 0x8000)
    return _signed(y)
