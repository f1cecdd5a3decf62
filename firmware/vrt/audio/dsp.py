# The kernels of the audio path: G.711, voice, change of rate. viper: compiled to machine code, so the .mpy depends on the
# chip; dsp_plain.py holds their plain twins. Nothing here allocates, and nothing checks the bounds of a buffer. They are
# few and take numbers that tell what to do, since a kernel's code is outside the heap but each costs 130 bytes in it.
#
# Samples at both ends are signed, 16 bits, little-endian; `width` is the bytes of one on the wire: 1 mu-law, 2 pcm16.
# Between them the filters work on unsigned ones, with the middle at 0x8000, in a `work` array('H'): their coefficients
# add up to one, so the offset passes through and no sign needs extending. The first samples of `work` are what came
# before (audio/formats.py: how many); a filter carries them over when it ends.
# ruff: noqa: PLR1730 (viper: a call, such as min(), costs more than the branch)
import micropython
from micropython import const

# The voice detector, which works on the mean amplitude of each frame. The floor follows quiet frames fast and others slowly.
# Pink noise that stays as loud never starts it (tools/bench_audio.py counts); one that grows to twice as loud does, once.
_LEARN = const(10)  # frames that only set the floor, at each start
_LEAST = const(40)  # a loud frame is above this, of 32768, and above twice the floor
_ON = const(5)  # loud frames, less twice the others since, that make a voice
_OFF = const(20)  # frames without a loud one that end it


@micropython.viper
def encode(src, n: int, dst, at: int, width: int):
    # n signed samples to the wire's format in dst[at:], where `at` may be odd. mu-law by the 14-bit definition of ITU-T
    # G.711: a negative sample is shifted down before it loses its sign.
    samples = ptr16(src)
    out = ptr8(dst)
    if width == 2:
        for i in range(n):
            value = samples[i]
            out[at] = value & 0xFF
            out[at + 1] = value >> 8
            at += 2
        return
    for i in range(n):
        value = samples[i]
        flip = 0xFF
        if value & 0x8000:
            value = 0x10003 - value
            flip = 0x7F
        value = (value >> 2) + 33
        if value > 8191:
            value = 8191
        exponent = 0
        top = value >> 5
        if top > 15:
            top >>= 4
            exponent = 4
        if top > 3:
            top >>= 2
            exponent += 2
        if top > 1:
            exponent += 1
        out[at + i] = flip ^ (exponent << 4 | value >> (exponent + 1) & 15)


@micropython.viper
def decode(src, n: int, work, at: int, end: int, width: int):  # noqa: PLR0917
    # n samples of the wire's format to work[at:], then silence up to `end`. width 0: the samples are in place already, and
    # stay signed.
    out = ptr16(work)
    silence = 0x8000
    if width == 1:
        codes = ptr8(src)
        for i in range(n):
            code = codes[i] ^ 0xFF
            value = ((code & 15) << 3) + 0x84 << (code >> 4 & 7)
            if code & 0x80:
                out[at + i] = 0x8084 - value
            else:
                out[at + i] = 0x7F7C + value
    elif width == 2:
        samples = ptr16(src)
        for i in range(n):
            out[at + i] = samples[i] ^ 0x8000
    else:
        silence = 0
    for i in range(at + n, end):
        out[i] = silence


@micropython.viper
def volume(buf, at: int, n: int, factor: int, middle: int) -> int:
    # n > 0 samples of buf[at:] become factor / 32768 of what they were, at most 1. Returns their level then: the mean distance
    # from the middle, which is 0 for signed ones and otherwise 0x8000.
    samples = ptr16(buf)
    flip = 0x8000 ^ middle
    total = 0
    for i in range(at, at + n):
        value = ((samples[i] ^ flip) - 0x8000) * factor >> 15
        samples[i] = value + 0x8000 ^ flip
        if value < 0:
            value = 0 - value
        total += value
    return total // n


@micropython.viper
def hear(src, n: int, work, at: int, state):
    # n signed samples to work[at:], and whether somebody speaks. Their level is the mean distance from their slow average
    # (a high pass at 80 Hz for 16 kHz: a microphone's offset and rumble are no sound). state: array('i') of
    #   0 the average times 32, at first 32 * 0x8000         3 loud frames, less twice the others since
    #   1 the level of the noise, times 64                   4 frames since a loud one
    #   2 how many frames have set it since the start        5 whether somebody speaks
    #   6 the level up to which a frame is not loud           7 the level of this frame
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

    level = total // n
    kept[7] = level
    floor = int(kept[1])
    step = level * 64 - floor
    learnt = int(kept[2])
    if learnt < _LEARN:
        kept[2] = learnt + 1
        if learnt == 0 or step > 0:
            kept[1] = level * 64
        return
    loud = int(kept[3])
    if level > _LEAST and level > int(kept[6]) and level * 64 > floor * 2:
        kept[1] = floor + (step >> 9)
        loud += 1
        kept[4] = 0
        if loud >= _ON:
            loud = _ON
            kept[5] = 1
    else:
        if step < 0:
            kept[1] = floor + (step >> 3)
        else:
            kept[1] = floor + (step >> 6)
        loud -= 2
        if loud < 0:
            loud = 0
        quiet = int(kept[4]) + 1
        kept[4] = quiet
        if quiet >= _OFF:
            kept[5] = 0
    kept[3] = loud


@micropython.viper
def resample(work, n: int, dst, ratio: int):  # noqa: C901, PLR0912, PLR0915  (one kernel of four)
    # n new samples, in work after the old ones, to n * ratio / 2 signed ones.
    #   1, 4  half and twice the rate: half-band low pass of 27 taps, flat to 0.2 of the higher rate, -45 dB from 0.3 of it
    #   3, 6  3/2 (n is even) and 3 times the rate: third-band filter of 10 taps a phase; what is below 0.31 of the old
    #         rate comes with images at -38 dB or less, below 0.4 at -30 dB
    w = ptr16(work)
    out = ptr16(dst)
    k = 0
    past = 9
    if ratio == 1:
        past = 26
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
    elif ratio == 4:
        past = 13
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
    elif ratio == 6:
        a = w[0]
        b = w[1]
        c = w[2]
        d = w[3]
        e = w[4]
        f = w[5]
        g = w[6]
        h = w[7]
        p = w[8]
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
    else:  # 3: every second sample of 6
        i = 0
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
    for i in range(past):
        w[i] = w[n + i]
