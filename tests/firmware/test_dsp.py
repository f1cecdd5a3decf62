import math
import random
import sys
from array import array

import micropython
import vrt.audio.dsp_plain as plain
from support import SkipTest
from vrt.audio import dsp

try:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import audioop
except ImportError:  # MicroPython, and CPython from 3.13 on
    audioop = None

# The upper ends of the segments of mu-law in ITU-T G.711 for 14-bit samples, the bias of 33 included.
_SEGMENT_ENDS = (0x3F, 0x7F, 0xFF, 0x1FF, 0x3FF, 0x7FF, 0xFFF, 0x1FFF)


def _ulaw(sample):
    value = sample >> 2
    mask = 0xFF
    if value < 0:
        value = -value
        mask = 0x7F
    value = min(value, 8159) + 33
    for segment, end in enumerate(_SEGMENT_ENDS):
        if value <= end:
            return (segment << 4 | (value >> (segment + 1) & 15)) ^ mask
    return 0x7F ^ mask


def test_encode_ulaw_is_g711_for_every_sample():
    samples = array("h", range(-32768, 32768))
    for kernels in (dsp, plain):
        out = bytearray(65536 + 5)
        kernels.encode(samples, 65536, out, 5, 1)
        assert bytes(out[:5]) == bytes(5)
        for i in range(65536):
            if out[5 + i] != _ulaw(samples[i]):
                raise AssertionError(samples[i])


def test_encode_ulaw_of_every_decoded_code_is_the_code():
    codes = bytes(range(256))
    for kernels in (dsp, plain):
        work = array("H", bytes(2 * 258))
        kernels.decode(codes, 256, work, 2, 258, 1)
        out = bytearray(256)
        kernels.encode(array("h", [value - 0x8000 for value in work[2:]]), 256, out, 0, 1)
        # Minus zero (0x7F) decodes to zero, whose code is 0xFF.
        assert bytes(out) == codes[:127] + b"\xff" + codes[128:]


def test_ulaw_equals_audioop():
    if audioop is None:
        raise SkipTest("audioop")
    samples = array("h", range(-32768, 32768))
    out = bytearray(65536)
    dsp.encode(samples, 65536, out, 0, 1)
    assert bytes(out) == audioop.lin2ulaw(samples.tobytes(), 2)
    work = array("H", bytes(512))
    dsp.decode(bytes(range(256)), 256, work, 0, 256, 1)
    assert array("h", [value - 0x8000 for value in work]).tobytes() == audioop.ulaw2lin(bytes(range(256)), 2)


# ratio, samples in, history, samples out
_FILTERS = ((1, 320, 26, 160), (4, 160, 13, 320), (6, 80, 9, 240), (3, 320, 9, 480))


def test_filters_equal_their_plain_twins():
    for ratio, n, past, count in _FILTERS:
        for extreme in (False, False, True, True):
            values = [
                random.getrandbits(1) * 65535 if extreme else random.getrandbits(16) for _ in range(past + n)
            ]
            results = []
            for kernels in (dsp, plain):
                work = array("H", values)
                out = array("h", bytes(2 * count))
                kernels.resample(work, n, out, ratio)
                results.append((list(out), list(work)))
            assert results[0] == results[1], ratio


def test_decode_equals_its_plain_twin_and_ends_in_silence():
    samples = array("h", [random.getrandbits(16) - 0x8000 for _ in range(50)])
    for src, width in ((bytes(samples), 1), (samples, 1), (samples, 2)):
        results = []
        for kernels in (dsp, plain):
            work = array("H", [7] * 70)
            kernels.decode(src, 50, work, 9, 60, width)
            assert list(work[:9]) == [7] * 9
            assert list(work[59:]) == [0x8000] + [7] * 10
            results.append(list(work))
        assert results[0] == results[1]
    for kernels in (dsp, plain):
        out = array("h", samples)
        kernels.decode(out, 30, out, 0, 48, 0)
        assert list(out) == list(samples[:30]) + [0] * 18 + list(samples[48:])


def test_encode_equals_its_plain_twin():
    samples = array("h", [random.getrandbits(16) - 0x8000 for _ in range(333)])
    for kernels in (dsp, plain):
        packed = bytearray(2 * 333 + 5)
        kernels.encode(samples, 333, packed, 5, 2)
        assert packed == bytes(5) + bytes(samples)


def test_hear_equals_its_plain_twin():
    results = []
    for kernels in (dsp, plain):
        random.seed(3)
        made = []
        state = array("i", (0x8000 * 32, 0, 0, 0, 0, 0, 0, 0))
        for loud in (0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 11, 12, 13, 14, 15, 9, 14, 14, 13) + (8,) * 40:
            samples = array("h", [random.getrandbits(loud) - (1 << loud >> 1) for _ in range(100)])
            work = array("H", bytes(2 * 110))
            kernels.hear(samples, 100, work, 7, state)
            assert list(work) == [0] * 7 + [value + 0x8000 for value in samples] + [0] * 3
            made.append(list(state))
        results.append(made)
    assert results[0] == results[1]
    assert any(state[5] for state in results[0])
    assert not results[0][-1][5]


def test_hear_takes_nothing_for_loud_that_is_below_the_given_level():
    for kernels in (dsp, plain):
        for given, voiced in ((0, 1), (1900, 1), (2100, 0)):
            state = array("i", (0x8000 * 32, 0, 0, 0, 0, 0, given, 0))
            work = array("H", bytes(200))
            for level in [10] * 12 + [2000] * 8:
                samples = array("h", [level if i & 4 else -level for i in range(96)])
                kernels.hear(samples, 96, work, 0, state)
                assert abs(state[7] - level) <= level // 20 + 1
            assert state[5] == voiced, given


def test_scale_equals_its_plain_twin_for_signed_and_unsigned_samples():
    samples = [random.getrandbits(16) - 0x8000 for _ in range(60)] + [0x7FFF, -0x8000, 0, 1, -1]
    for factor in (0, 1, 328, 8192, 32767, 32768):
        for middle in (0, 0x8000):
            results = []
            for kernels in (dsp, plain):
                buf = array("H" if middle else "h", [value + middle for value in samples])
                results.append(kernels.volume(buf, 5, 60, factor, middle))
                made = [value - middle for value in buf]
                assert made[:5] == samples[:5]
                assert made[65:] == samples[65:]
                assert made[5:65] == [value * factor >> 15 for value in samples[5:65]]
                assert results[-1] == sum([abs(value) for value in made[5:65]]) // 60
            assert results[0] == results[1]


def _through(ratio, samples, chunk):
    # The samples in chunks through a filter, as the mic and the speaker use it; all that comes out.
    past = {1: 26, 3: 9, 4: 13, 6: 9}[ratio]
    work = array("H", [0x8000] * (past + chunk))
    out = array("h", bytes(chunk * ratio))
    result = []
    for start in range(0, len(samples), chunk):
        dsp.decode(array("h", samples[start : start + chunk]), chunk, work, past, past + chunk, 2)
        dsp.resample(work, chunk, out, ratio)
        result += list(out)
    return result


def _tone(frequency, rate, n, amplitude=8000):
    return [round(amplitude * math.sin(2 * math.pi * frequency * i / rate)) for i in range(n)]


def _decibels(samples, frequency, rate):
    # (level of the tone, level of all else) in decibels of a full sine's power; over a whole number of periods.
    n = len(samples)
    cosine = sum(s * math.cos(2 * math.pi * frequency * i / rate) for i, s in enumerate(samples)) * 2 / n
    sine = sum(s * math.sin(2 * math.pi * frequency * i / rate) for i, s in enumerate(samples)) * 2 / n
    power = sum(s * s for s in samples) * 2 / n
    tone = cosine * cosine + sine * sine
    rest = max(power - tone, 1e-9)
    return 10 * math.log(tone + 1e-9) / math.log(10), 10 * math.log(rest) / math.log(10)


_FULL = 20 * math.log(8000) / math.log(10)


def test_halve_passes_speech_and_stops_what_would_alias():
    for frequency in (300, 1000, 2000, 3000):
        out = _through(1, _tone(frequency, 16000, 3520), 320)[160:]
        tone, rest = _decibels(out, frequency, 8000)
        assert abs(tone - _FULL) < 0.1
        assert rest < _FULL - 70
    for frequency in (5000, 6000, 7000):
        out = _through(1, _tone(frequency, 16000, 3520), 320)[160:]
        assert _decibels(out, 8000 - frequency, 8000)[0] < _FULL - 44


def test_thrice_has_no_loud_images():
    for frequency, images in ((300, 44), (1000, 44), (2000, 36), (2500, 36), (3000, 29)):
        out = _through(6, _tone(frequency, 8000, 1680), 80)[240:]
        tone, rest = _decibels(out, frequency, 24000)
        assert abs(tone - _FULL) < 0.4
        assert rest < _FULL - images


def test_three_halves_and_double_keep_the_tone():
    for frequency in (300, 1000, 4000):
        out = _through(3, _tone(frequency, 16000, 3520), 320)[480:]
        tone, rest = _decibels(out, frequency, 24000)
        assert abs(tone - _FULL) < 0.4
        assert rest < _FULL - 36
        out = _through(4, _tone(frequency, 24000, 5280), 240)[480:]
        tone, rest = _decibels(out, frequency, 48000)
        assert abs(tone - _FULL) < 0.1
        assert rest < _FULL - 44


def test_filters_do_not_depend_on_how_the_sound_is_cut():
    samples = [random.getrandbits(15) - 16384 for _ in range(960)]
    for ratio, *_ in _FILTERS:
        assert _through(ratio, samples, 60) == _through(ratio, samples, 480), ratio


def test_filters_clip_and_never_wrap():
    square = ([32767] * 7 + [-32768] * 7) * 40
    for ratio, *_ in _FILTERS:
        out = _through(ratio, square[:480], 480)
        # A wrapped peak would show as a jump over nearly the whole range and back within two samples.
        for a, b, c in zip(out, out[1:], out[2:]):
            assert not (abs(a - b) > 50000 and abs(b - c) > 50000), ratio


def _level(samples, state):
    # The level that `hear` finds, which sets the floor as long as it learns.
    state[2] = 0
    dsp.hear(array("h", samples), 320, array("H", bytes(2 * 320)), 0, state)
    return state[1] / 64


def test_hear_hears_a_tone_and_no_offset():
    state = array("i", (0x8000 * 32, 0, 0, 0, 0, 0, 0, 0))
    for _ in range(10):
        level = _level([3000] * 320, state)
    assert level <= 1
    level = _level([3000 + value for value in _tone(1000, 16000, 320, 1000)], state)
    assert 620 < level < 650  # 2 / pi of the amplitude
    assert _level([-32768, 32767] * 160, state) > 30000


def test_kernels_allocate_nothing():
    if sys.implementation.name != "micropython":
        raise SkipTest("heap_lock")
    samples = array("h", bytes(640))
    work = array("H", [0x8000] * 350)
    out = array("h", bytes(960))
    frame = bytearray(965)
    state = array("i", (0x8000 * 32, 0, 10, 0, 0, 0, 0, 0))
    for kernels in (dsp, plain):
        micropython.heap_lock()
        for ratio in (1, 3, 4, 6):
            kernels.resample(work, 80, out, ratio)
        for width in (1, 2):
            kernels.hear(samples, 320, work, 26, state)
            kernels.encode(out, 160, frame, 5, width)
            kernels.decode(samples, 160, work, 9, 200, width)
            kernels.volume(work, 9, 160, 12345, 0x8000)
        micropython.heap_unlock()


def test_kernels_are_the_compiled_ones_where_there_is_an_emitter():
    compiled = {}
    try:
        exec("import micropython\n@micropython.viper\ndef f() -> int:\n    return 1", compiled)
    except SyntaxError:
        assert dsp is plain
    else:
        assert dsp is not plain
