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
        kernels.encode_ulaw(samples, 65536, out, 5)
        assert bytes(out[:5]) == bytes(5)
        for i in range(65536):
            if out[5 + i] != _ulaw(samples[i]):
                raise AssertionError(samples[i])


def test_encode_ulaw_of_every_decoded_code_is_the_code():
    codes = bytes(range(256))
    for kernels in (dsp, plain):
        work = array("H", bytes(2 * 258))
        kernels.decode_ulaw(codes, 256, work, 2)
        out = bytearray(256)
        kernels.encode_ulaw(array("h", [value - 0x8000 for value in work[2:]]), 256, out, 0)
        # Minus zero (0x7F) decodes to zero, whose code is 0xFF.
        assert bytes(out) == codes[:127] + b"\xff" + codes[128:]


def test_ulaw_equals_audioop():
    if audioop is None:
        raise SkipTest("audioop")
    samples = array("h", range(-32768, 32768))
    out = bytearray(65536)
    dsp.encode_ulaw(samples, 65536, out, 0)
    assert bytes(out) == audioop.lin2ulaw(samples.tobytes(), 2)
    work = array("H", bytes(512))
    dsp.decode_ulaw(bytes(range(256)), 256, work, 0)
    assert array("h", [value - 0x8000 for value in work]).tobytes() == audioop.ulaw2lin(bytes(range(256)), 2)


# name, samples in, history, samples out
_FILTERS = (
    ("halve", 320, dsp.HALVE_PAST, 160),
    ("double", 160, dsp.DOUBLE_PAST, 320),
    ("thrice", 80, dsp.THRICE_PAST, 240),
    ("three_halves", 320, dsp.THRICE_PAST, 480),
)


def test_kernels_equal_their_plain_twins():
    for name, n, past, count in _FILTERS:
        for extreme in (False, False, True, True):
            values = [
                random.getrandbits(1) * 65535 if extreme else random.getrandbits(16) for _ in range(past + n)
            ]
            results = []
            for kernels in (dsp, plain):
                work = array("H", values)
                out = array("h", bytes(2 * count))
                getattr(kernels, name)(work, n, out)
                results.append((list(out), list(work)))
            assert results[0] == results[1], name
    samples = array("h", [random.getrandbits(16) - 0x8000 for _ in range(333)])
    results = []
    for kernels in (dsp, plain):
        work = array("H", bytes(2 * 340))
        state = array("i", (0x8000 * 32,))
        level = kernels.measure(samples, 333, work, 7, state)
        other = array("H", bytes(2 * 340))
        kernels.centre(samples, 333, other, 7)
        packed = bytearray(2 * 333 + 5)
        kernels.pack(samples, 333, packed, 5)
        filled = array("h", samples)
        kernels.fill(filled, 3, 300, 0)
        assert list(work) == list(other)
        results.append((level, state[0], list(work), bytes(packed), list(filled)))
    assert results[0] == results[1]


def _through(name, past, samples, chunk, ratio):
    # The samples in chunks through a filter, as the mic and the speaker use it; all that comes out.
    work = array("H", [0x8000] * (past + chunk))
    out = array("h", bytes(2 * int(chunk * ratio)))
    result = []
    for start in range(0, len(samples), chunk):
        dsp.centre(array("h", samples[start : start + chunk]), chunk, work, past)
        getattr(dsp, name)(work, chunk, out)
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
        out = _through("halve", dsp.HALVE_PAST, _tone(frequency, 16000, 3520), 320, 0.5)[160:]
        tone, rest = _decibels(out, frequency, 8000)
        assert abs(tone - _FULL) < 0.1
        assert rest < _FULL - 70
    for frequency in (5000, 6000, 7000):
        out = _through("halve", dsp.HALVE_PAST, _tone(frequency, 16000, 3520), 320, 0.5)[160:]
        assert _decibels(out, 8000 - frequency, 8000)[0] < _FULL - 44


def test_thrice_has_no_loud_images():
    for frequency, images in ((300, 44), (1000, 44), (2000, 36), (2500, 36), (3000, 29)):
        out = _through("thrice", dsp.THRICE_PAST, _tone(frequency, 8000, 1680), 80, 3)[240:]
        tone, rest = _decibels(out, frequency, 24000)
        assert abs(tone - _FULL) < 0.4
        assert rest < _FULL - images


def test_three_halves_and_double_keep_the_tone():
    for frequency in (300, 1000, 4000):
        out = _through("three_halves", dsp.THRICE_PAST, _tone(frequency, 16000, 3520), 320, 1.5)[480:]
        tone, rest = _decibels(out, frequency, 24000)
        assert abs(tone - _FULL) < 0.4
        assert rest < _FULL - 36
        out = _through("double", dsp.DOUBLE_PAST, _tone(frequency, 24000, 5280), 240, 2)[480:]
        tone, rest = _decibels(out, frequency, 48000)
        assert abs(tone - _FULL) < 0.1
        assert rest < _FULL - 44


def test_filters_do_not_depend_on_how_the_sound_is_cut():
    samples = [random.getrandbits(15) - 16384 for _ in range(960)]
    for name, _, past, _ in _FILTERS:
        ratio = {"halve": 0.5, "double": 2, "thrice": 3, "three_halves": 1.5}[name]
        assert _through(name, past, samples, 60, ratio) == _through(name, past, samples, 480, ratio), name


def test_filters_clip_and_never_wrap():
    square = ([32767] * 7 + [-32768] * 7) * 40
    for name, _, past, _ in _FILTERS:
        ratio = {"halve": 0.5, "double": 2, "thrice": 3, "three_halves": 1.5}[name]
        out = _through(name, past, square[:480], 480, ratio)
        # A wrapped peak would show as a jump over nearly the whole range and back within two samples.
        for a, b, c in zip(out, out[1:], out[2:]):
            assert not (abs(a - b) > 50000 and abs(b - c) > 50000), name


def test_measure_hears_a_tone_and_no_offset():
    work = array("H", bytes(2 * 320))
    state = array("i", (0x8000 * 32,))
    for _ in range(10):
        level = dsp.measure(array("h", [3000] * 320), 320, work, 0, state)
    assert level <= 1
    tone = array("h", [3000 + value for value in _tone(1000, 16000, 320, 1000)])
    level = dsp.measure(tone, 320, work, 0, state)
    assert 620 < level < 650  # 2 / pi of the amplitude
    assert dsp.measure(array("h", [-32768, 32767] * 160), 320, work, 0, state) > 30000


def test_kernels_allocate_nothing():
    if sys.implementation.name != "micropython":
        raise SkipTest("heap_lock")
    samples = array("h", bytes(640))
    work = array("H", [0x8000] * 350)
    out = array("h", bytes(960))
    frame = bytearray(965)
    state = array("i", (0x8000 * 32,))
    for kernels in (dsp, plain):
        micropython.heap_lock()
        kernels.measure(samples, 320, work, 26, state)
        kernels.centre(samples, 320, work, 26)
        kernels.halve(work, 320, out)
        kernels.three_halves(work, 320, out)
        kernels.thrice(work, 80, out)
        kernels.double(work, 160, out)
        kernels.encode_ulaw(out, 160, frame, 5)
        kernels.decode_ulaw(frame, 160, work, 9)
        kernels.pack(samples, 320, frame, 5)
        kernels.fill(work, 0, 9, 0x8000)
        micropython.heap_unlock()


def test_kernels_are_the_compiled_ones_where_there_is_an_emitter():
    compiled = {}
    try:
        exec("import micropython\n@micropython.viper\ndef f() -> int:\n    return 1", compiled)
    except SyntaxError:
        assert dsp is plain
    else:
        assert dsp is not plain
