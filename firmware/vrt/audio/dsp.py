# The kernels of the audio path: G.711, level, change of rate. viper: compiled to machine code, so the .mpy depends on the
# chip; dsp_plain.py holds their plain twins. Nothing here allocates, and nothing checks the bounds of a buffer.
#
# Samples at both ends are signed, 16 bits, little-endian. Between them the filters work on unsigned ones, with the middle
# at 0x8000, in a `work` array('H'): their coefficients add up to one, so the offset passes through and no sign needs
# extending. The first samples of `work` (HALVE_PAST ...) are what came before; a filter carries them over when it ends.
# ruff: noqa: PLR1730 (viper: a call, such as min(), costs more than the branch)
import micropython
from micropython import const

# How far each filter looks back, in samples.
HALVE_PAST = const(26)
DOUBLE_PAST = const(13)
THRICE_PAST = const(9)

# The segment of G.711 by magnitude / 32.
_SEGMENT = b"\0\0" + b"\1" * 2 + b"\2" * 4 + b"\3" * 8 + b"\4" * 16 + b"\5" * 32 + b"\6" * 64 + b"\7" * 128


@micropython.viper
def encode_ulaw(src, n: int, dst, at: int):
    # n signed samples to G.711 mu-law in dst[at:]. The 14-bit definition of ITU-T G.711: a negative sample is shifted
    # down before it loses its sign.
    samples = ptr16(src)
    out = ptr8(dst)
    segment = ptr8(_SEGMENT)
    for i in range(n):
        value = samples[i]
        flip = 0xFF
        if value & 0x8000:
            value = 0x10003 - value
            flip = 0x7F
        value = (value >> 2) + 33
        if value > 8191:
            value = 8191
        exponent = segment[value >> 5]
        out[at + i] = flip ^ (exponent << 4 | value >> (exponent + 1) & 15)


@micropython.viper
def decode_ulaw(src, n: int, work, at: int):
    # n bytes of mu-law to work[at:].
    codes = ptr8(src)
    out = ptr16(work)
    for i in range(n):
        code = codes[i] ^ 0xFF
        value = ((code & 15) << 3) + 0x84 << (code >> 4 & 7)
        if code & 0x80:
            out[at + i] = 0x8084 - value
        else:
            out[at + i] = 0x7F7C + value


@micropython.viper
def centre(src, n: int, work, at: int):
    # n signed samples to work[at:].
    samples = ptr16(src)
    out = ptr16(work)
    for i in range(n):
        out[at + i] = samples[i] ^ 0x8000


@micropython.viper
def measure(src, n: int, work, at: int, state) -> int:
    # `centre`, and the mean distance of the samples from their slow average (a high pass at 80 Hz for 16 kHz: a
    # microphone's offset and rumble are no sound). state: array('i') of one, the average times 32, at first 32 * 0x8000.
    samples = ptr16(src)
    out = ptr16(work)
    kept = ptr32(state)
    average = int(kept[0])
    total = 0
    for i in range(n):
        value = samples[i] ^ 0x8000
        out[at + i] = value
        value -= average >> 5
        average += value
        if value < 0:
            value = 0 - value
        total += value
    kept[0] = average
    return total // n


@micropython.viper
def halve(work, n: int, dst):
    # n new samples, in work after HALVE_PAST old ones, to n / 2 signed ones at half the rate. Half-band low pass of 27
    # taps: flat to 0.2 of the old rate, -45 dB from 0.3 of it.
    w = ptr16(work)
    out = ptr16(dst)
    k = 0
    for i in range(n >> 1):
        y = w[k + 13] << 13
        y += 5168 * (w[k + 12] + w[k + 14])
        y -= 1624 * (w[k + 10] + w[k + 16])
        y += 847 * (w[k + 8] + w[k + 18])
        y -= 502 * (w[k + 6] + w[k + 20])
        y += 283 * (w[k + 4] + w[k + 22])
        y -= 166 * (w[k + 2] + w[k + 24])
        y += 90 * (w[k] + w[k + 26])
        y = y + 8192 >> 14
        if y < 0:
            y = 0
        if y > 65535:
            y = 65535
        out[i] = y ^ 0x8000
        k += 2
    for i in range(26):
        w[i] = w[n + i]


@micropython.viper
def double(work, n: int, dst):
    # n new samples, after DOUBLE_PAST old ones, to 2 n signed ones at twice the rate. The filter of `halve`.
    w = ptr16(work)
    out = ptr16(dst)
    k = 0
    for i in range(n):
        y = 10336 * (w[i + 6] + w[i + 7])
        y -= 3248 * (w[i + 5] + w[i + 8])
        y += 1694 * (w[i + 4] + w[i + 9])
        y -= 1004 * (w[i + 3] + w[i + 10])
        y += 566 * (w[i + 2] + w[i + 11])
        y -= 332 * (w[i + 1] + w[i + 12])
        y += 180 * (w[i] + w[i + 13])
        y = y + 8192 >> 14
        if y < 0:
            y = 0
        if y > 65535:
            y = 65535
        out[k] = w[i + 6] ^ 0x8000
        out[k + 1] = y ^ 0x8000
        k += 2
    for i in range(13):
        w[i] = w[n + i]


@micropython.viper
def thrice(work, n: int, dst):
    # n new samples, after THRICE_PAST old ones, to 3 n signed ones at three times the rate. Third-band filter of 10 taps a
    # phase: what is below 0.31 of the old rate comes with images at -38 dB or less, below 0.4 at -30 dB.
    w = ptr16(work)
    out = ptr16(dst)
    a = w[0]
    b = w[1]
    c = w[2]
    d = w[3]
    e = w[4]
    f = w[5]
    g = w[6]
    h = w[7]
    p = w[8]
    k = 0
    for i in range(n):
        q = w[i + 9]
        out[k] = e ^ 0x8000
        y = (
            218 * a
            - 676 * b
            + 1417 * c
            - 3065 * d
            + 13414 * e
            + 6700 * f
            - 2447 * g
            + 1233 * h
            - 609 * p
            + 199 * q
        )
        y = y + 8192 >> 14
        if y < 0:
            y = 0
        if y > 65535:
            y = 65535
        out[k + 1] = y ^ 0x8000
        y = (
            218 * q
            - 676 * p
            + 1417 * h
            - 3065 * g
            + 13414 * f
            + 6700 * e
            - 2447 * d
            + 1233 * c
            - 609 * b
            + 199 * a
        )
        y = y + 8192 >> 14
        if y < 0:
            y = 0
        if y > 65535:
            y = 65535
        out[k + 2] = y ^ 0x8000
        k += 3
        a = b
        b = c
        c = d
        d = e
        e = f
        f = g
        g = h
        h = p
        p = q
    for i in range(9):
        w[i] = w[n + i]


@micropython.viper
def three_halves(work, n: int, dst):
    # n new samples (an even number), after THRICE_PAST old ones, to 3 n / 2 signed ones: every second output of `thrice`.
    w = ptr16(work)
    out = ptr16(dst)
    i = 0
    k = 0
    while i < n:
        out[k] = w[i + 4] ^ 0x8000
        y = 218 * w[i + 9] - 676 * w[i + 8] + 1417 * w[i + 7] - 3065 * w[i + 6] + 13414 * w[i + 5]
        y += 6700 * w[i + 4] - 2447 * w[i + 3] + 1233 * w[i + 2] - 609 * w[i + 1] + 199 * w[i]
        y = y + 8192 >> 14
        if y < 0:
            y = 0
        if y > 65535:
            y = 65535
        out[k + 1] = y ^ 0x8000
        y = 218 * w[i + 1] - 676 * w[i + 2] + 1417 * w[i + 3] - 3065 * w[i + 4] + 13414 * w[i + 5]
        y += 6700 * w[i + 6] - 2447 * w[i + 7] + 1233 * w[i + 8] - 609 * w[i + 9] + 199 * w[i + 10]
        y = y + 8192 >> 14
        if y < 0:
            y = 0
        if y > 65535:
            y = 65535
        out[k + 2] = y ^ 0x8000
        k += 3
        i += 2
    for i in range(9):
        w[i] = w[n + i]


@micropython.viper
def pack(src, n: int, dst, at: int):
    # n signed samples to little-endian bytes in dst[at:], where `at` may be odd.
    samples = ptr16(src)
    out = ptr8(dst)
    for i in range(n):
        value = samples[i]
        out[at] = value & 0xFF
        out[at + 1] = value >> 8
        at += 2


@micropython.viper
def fill(samples, start: int, end: int, value: int):
    # samples[start:end] = value, for samples of 16 bits of either kind.
    out = ptr16(samples)
    for i in range(start, end):
        out[i] = value
