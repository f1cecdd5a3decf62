import math
import random
import sys
from array import array

import micropython
from fake_i2s import BLOCK, FakeMicrophone
from support import SkipTest, raises
from vrt.audio import dsp
from vrt.audio.mic import Mic
from vrt.errors import ConfigError


def count(i):
    # A sound whose samples tell where they are.
    return i % 30000 - 15000


def make(fake, encoding="pcm16", rate=16000, **options):
    return Mic(fake, encoding=encoding, rate=rate, mic_rate=16000, **options)


def run(mic, fake, ms, frames=None):
    # Lets so much time pass while every frame is sent at once; returns their payloads.
    frames = [] if frames is None else frames
    fake.until = max(getattr(fake, "until", 0), fake.clock) + ms * 16
    while fake.clock + BLOCK <= fake.until:
        fake.run(BLOCK)
        frame = mic.poll(fake.clock // 16)
        while frame is not None:
            frames.append(bytes(frame[5 : mic.n]))
            mic.sent()
            frame = mic.poll(fake.clock // 16)
        assert len(fake.transfers) <= 1, "more than one transfer outstanding"
        assert not fake.lost
    return frames


def samples(frames):
    data = b"".join(frames)
    return [(data[i] | data[i + 1] << 8) - (data[i + 1] >> 7 << 16) for i in range(0, len(data), 2)]


def test_mic_sends_every_sample_once_and_in_order():
    fake = FakeMicrophone(count)
    mic = make(fake)
    assert mic.n == 645
    mic.start(0)
    heard = samples(run(mic, fake, 1000))
    assert len(heard) > 16000 * 0.8
    first = heard[0] + 15000
    assert heard == [count(i) for i in range(first, first + len(heard))]
    assert (mic.dropped, mic.overruns, mic.stalls, fake.overflow) == (0, 0, 0, 0)
    assert mic.frames == len(heard) // 320


def test_mic_does_not_hear_what_was_said_before_it_was_started():
    fake = FakeMicrophone(count)
    mic = make(fake)
    run(mic, fake, 500)
    assert not fake.transfers
    at = fake.clock
    mic.start(at // 16)
    heard = samples(run(mic, fake, 500))
    assert at <= heard[0] + 15000 < at + 100 * 16


def test_mic_stop_ends_it_at_once():
    fake = FakeMicrophone(count)
    mic = make(fake)
    mic.start(0)
    assert mic.live
    run(mic, fake, 300)
    fake.run(BLOCK)
    fake.run(BLOCK)  # a frame is there that poll has not seen
    mic.stop()
    assert not mic.live
    at = fake.clock
    assert run(mic, fake, 300) == []
    assert not fake.transfers
    mic.start(fake.clock // 16)
    mic.start(fake.clock // 16)
    heard = samples(run(mic, fake, 300))
    assert heard[0] + 15000 > at
    assert heard == [count(i) for i in range(heard[0] + 15000, heard[0] + 15000 + len(heard))]


def test_mic_started_again_while_its_last_transfer_runs_has_one_outstanding():
    fake = FakeMicrophone(count)
    mic = make(fake)
    mic.start(0)
    run(mic, fake, 210)
    mic.stop()
    mic.start(fake.clock // 16)
    assert len(fake.transfers) == 1
    heard = samples(run(mic, fake, 300))
    assert heard == [count(i) for i in range(heard[0] + 15000, heard[0] + 15000 + len(heard))]


def test_mic_frames_are_mulaw_at_half_the_rate():
    fake = FakeMicrophone(lambda i: round(8000 * math.sin(2 * math.pi * 500 * i / 16000)))
    mic = make(fake, "pcmu", 8000)
    assert mic.n == 165
    mic.start(0)
    data = b"".join(run(mic, fake, 600))
    work = array("H", bytes(2 * len(data)))
    dsp.decode(data, len(data), work, 0, len(data), 1)
    work = work[160:]
    n = len(work) // 16 * 16
    sine = sum((work[i] - 0x8000) * math.sin(2 * math.pi * i / 16) for i in range(n)) * 2 / n
    cosine = sum((work[i] - 0x8000) * math.cos(2 * math.pi * i / 16) for i in range(n)) * 2 / n
    assert abs(math.sqrt(sine * sine + cosine * cosine) - 8000) < 80


def test_mic_frames_are_pcm16_at_three_halves_of_the_rate():
    fake = FakeMicrophone(lambda i: 16 * (i % 1000))
    mic = make(fake, "pcm16", 24000)
    assert mic.n == 965
    mic.start(0)
    heard = samples(run(mic, fake, 300))[480:]
    steps = [b - a for a, b in zip(heard, heard[1:])]
    # 16 a sample at 16 kHz is 32 for 3 samples at 24 kHz, where the ramp does not start again.
    steady = [steps[i] + steps[i + 1] + steps[i + 2] for i in range(0, len(steps) - 2, 3)]
    assert sum(1 for step in steady if abs(step - 32) <= 1) > len(steady) * 0.95


def test_mic_leaves_the_header_to_the_sender():
    fake = FakeMicrophone(count)
    mic = make(fake, "pcmu", 8000, slots=1)
    mic.start(0)
    mic.poll(0)
    fake.run(BLOCK * 20)
    for now in range(6):
        mic.poll(now)
        fake.run(BLOCK * 2)
    mic.frame[:5] = b"\x01\x00\x00\x00\x07"
    for now in range(6):
        mic.poll(now)
        fake.run(BLOCK * 2)
    assert bytes(mic.frame[:5]) == b"\x01\x00\x00\x00\x07"


def test_mic_keeps_frames_for_a_link_that_is_busy_and_drops_the_oldest():
    fake = FakeMicrophone(count)
    mic = make(fake, slots=3)
    mic.start(0)
    got = samples(run(mic, fake, 200))
    made = mic.frames
    while mic.frames < made + 3:
        fake.run(BLOCK)
        frame = mic.poll(fake.clock // 16)
    assert frame is mic.frame
    assert samples([bytes(frame[5:645])])[0] == got[-1] + 1  # returned until it is sent
    while mic.frames < made + 5:
        fake.run(BLOCK)
        mic.poll(fake.clock // 16)
    assert mic.dropped == 2
    waiting = []
    for _ in range(3):
        waiting.append(bytes(mic.frame[5:645]))
        mic.sent()
        mic.poll(fake.clock // 16)
    assert mic.frame is None
    waiting = samples(waiting)
    assert waiting == list(range(got[-1] + 1 + 640, got[-1] + 1 + 640 + 960))


def test_mic_bridges_a_late_poll_with_what_the_dma_holds():
    fake = FakeMicrophone(count)
    mic = make(fake)
    mic.start(0)
    frames = run(mic, fake, 200)
    fake.run(3 * BLOCK)
    run(mic, fake, 200, frames)
    heard = samples(frames)
    assert heard == [count(i) for i in range(heard[0] + 15000, heard[0] + 15000 + len(heard))]
    assert mic.overruns == 0


def test_mic_counts_a_poll_that_came_too_late():
    fake = FakeMicrophone(count)
    mic = make(fake)
    mic.start(0)
    frames = run(mic, fake, 200)
    fake.run(20 * BLOCK)
    run(mic, fake, 200, frames)
    assert fake.overflow
    assert mic.overruns == 1
    heard = samples(frames)
    assert all(b > a for a, b in zip(heard, heard[1:]))


def test_mic_reopens_an_i2s_that_is_stuck():
    made = []

    def reopen():
        made.append(FakeMicrophone(count))
        made[-1].clock = fake.clock + 16000
        return made[-1]

    fake = FakeMicrophone(count)
    mic = make(fake, reopen=reopen)
    mic.start(0)
    run(mic, fake, 200)
    fake.stuck = True
    now = fake.clock // 16
    for _ in range(40):
        mic.poll(now)
        now += 10
    mic.poll(now + 5000)  # the loop was held up: no reason to suspect the I2S
    now += 5000
    for _ in range(40):
        mic.poll(now)
        now += 10
    assert not made
    for _ in range(20):
        mic.poll(now)
        now += 10
    assert mic.stalls == 1
    assert fake.closed
    other = made[0]
    fake.handler(fake)  # a callback of the old one that was already on its way
    assert len(other.transfers) == 1
    other.until = other.clock
    heard = samples(run(mic, other, 300))
    assert len(heard) > 3200
    assert heard[0] + 15000 >= other.until - 300 * 16
    assert len(made) == 1


def test_mic_that_is_off_is_never_stuck():
    fake = FakeMicrophone(count)
    mic = make(fake)
    mic.start(0)
    run(mic, fake, 100)
    mic.stop()
    run(mic, fake, 3000)
    assert mic.stalls == 0
    mic.start(fake.clock // 16)
    run(mic, fake, 100)
    assert mic.stalls == 0


def test_mic_refuses_formats_it_cannot_send():
    for encoding, rate in (("opus", 24000), ("pcmu", 16000), ("pcm16", 48000), ("pcm16", 11025)):
        raises(ConfigError, make, FakeMicrophone(count), encoding, rate)


# --- voice


def _pink(n, rms, seed):
    # Noise whose power falls by 3 dB an octave: white noise through Kellet's three poles.
    random.seed(seed)
    scale = rms / 1.76
    a = b = c = 0.0
    out = array("h", bytes(2 * n))
    for i in range(n):
        white = random.random() * 2 - 1
        a = 0.99765 * a + white * 0.0990460
        b = 0.96300 * b + white * 0.2965164
        c = 0.57000 * c + white * 1.0526913
        out[i] = max(-32768, min(32767, round((a + b + c + white * 0.1848) * scale)))
    return out


def _say(sound, at, n, rms, seed):
    # Adds n samples of syllables of 200 ms with gaps of 60 ms: a fundamental of 120 Hz and its partials, weaker upwards.
    random.seed(seed)
    partials = [(120 * k * 6.2832 / 16000, random.random() * 6.28, rms / k) for k in range(1, 16)]
    for i in range(n):
        place = i % 4160 / 16000
        if place < 0.2:
            loud = math.sin(math.pi * place / 0.2)
            value = sum([w * math.sin(f * i + p) for f, p, w in partials])
            sound[at + i] = max(-32768, min(32767, sound[at + i] + round(1.4 * loud * value)))


def _detect(sound):
    # When a mic that hears `sound` says that somebody speaks: [(ms, voiced)] of each change.
    fake = FakeMicrophone(lambda i: sound[i] if i < len(sound) else 0)
    mic = make(fake, "pcmu", 8000)
    mic.start(0)
    changes = []
    voiced = False
    while fake.clock < len(sound):
        fake.run(BLOCK)
        while mic.poll(fake.clock // 16) is not None:
            mic.sent()
            if mic.voiced != voiced:
                voiced = not voiced
                changes.append((fake.clock // 16, voiced))
    return changes


def test_mic_hears_no_voice_in_silence_nor_in_steady_noise():
    assert _detect(array("h", bytes(2 * 16000))) == []
    for rms in (30, 300, 3000):
        assert _detect(_pink(6 * 16000, rms, rms)) == [], rms


def test_mic_hears_a_voice_above_the_noise_within_150_ms():
    for noise, seed in ((0, 1), (100, 2), (500, 3)):
        sound = _pink(3 * 16000, noise, seed)
        _say(sound, 16000, 16000, max(500, 4 * noise), seed)
        changes = _detect(sound)
        assert [voiced for _, voiced in changes] == [True, False], noise
        assert 1000 < changes[0][0] <= 1000 + 40 + 150, changes  # 40: the block and the frame it waits for
        assert 2000 < changes[1][0] < 2600, changes


def test_mic_ignores_knocks():
    sound = _pink(3 * 16000, 100, 9)
    for k in range(1, 5):
        for i in range(960):
            sound[k * 9600 + i] = random.randrange(-12000, 12000)
    assert _detect(sound) == []


def test_mic_takes_a_noise_that_grows_by_half_for_noise():
    sound = _pink(4 * 16000, 1000, 4)
    for i in range(2 * 16000):
        sound[i] = sound[i] * 2 // 3
    assert _detect(sound) == []


def test_mic_gets_used_to_a_new_noise():
    sound = _pink(15 * 16000, 1000, 1)
    for i in range(2 * 16000):
        sound[i] //= 20
    changes = _detect(sound)
    assert [voiced for _, voiced in changes] == [True, False]
    assert changes[1][0] < 14000


def test_mic_sends_silence_for_what_may_be_the_devices_own_sound_and_takes_it_for_no_voice():
    for encoding, rate, quiet in (("pcmu", 8000, b"\xff" * 160), ("pcm16", 16000, bytes(640))):
        fake = FakeMicrophone(lambda i: 0 if i < 8000 else (1000 if i & 4 else -1000))
        mic = make(fake, encoding, rate)
        mic.start(0)
        mic.limit(1100)
        assert set(run(mic, fake, 700)[5:]) == {quiet}
        assert not mic.voiced
        mic.limit(900)
        assert quiet not in run(mic, fake, 500)
        assert mic.voiced
        mic.limit(0)
        assert quiet not in run(mic, fake, 100)


def test_mic_gives_what_it_hears_to_who_takes_it():
    fake = FakeMicrophone(count)
    mic = make(fake)
    taken = []
    mic.take = lambda buf: taken.append(list(buf))
    mic.start(0)
    assert run(mic, fake, 200) == []
    assert mic.frames == mic.dropped == 0
    assert [len(buf) for buf in taken] == [320] * len(taken)
    assert len(taken) > 4
    mic.take = mic._make
    assert len(run(mic, fake, 200)) > 5


# --- the callback, and the heap


class _Told:
    # An I2S whose transfers end when the test says so, and which allocates nothing.
    def __init__(self):
        self.handler = None
        self.buf = None
        self.at = 0

    def irq(self, handler):
        self.handler = handler

    def readinto(self, buf):
        assert self.buf is None, "two transfers"
        self.buf = buf
        return 2 * len(buf)

    def end(self):
        buf = self.buf
        if buf is not None:
            self.buf = None
            for i in range(len(buf)):
                buf[i] = count(self.at)
                self.at += 1
            self.handler(self)


def test_mic_allocates_nothing_for_a_frame():
    if sys.implementation.name != "micropython":
        raise SkipTest("heap_lock")
    for encoding, rate in (("pcmu", 8000), ("pcm16", 24000), ("pcm16", 16000)):
        i2s = _Told()
        mic = make(i2s, encoding, rate)
        mic.start(0)
        now = 0
        micropython.heap_lock()
        for _ in range(60):
            i2s.end()
            now += 20
            if mic.poll(now) is not None and now % 100:
                mic.sent()
            mic.limit(now * 16 & 0x7FFF)
        mic.stop()
        mic.start(now)
        micropython.heap_unlock()
        assert mic.frames > 50


def _interrupted(at):
    # A short recording during which the I2S's callback comes before line number `at` that the microphone runs.
    i2s = _Told()
    mic = make(i2s, dma_ms=20)
    lines = [0]

    def trace(frame, event, _):
        if not frame.f_code.co_filename.endswith("audio/mic.py") or frame.f_code.co_name == "_advance":
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == at:
                i2s.end()
        return trace

    frames = []
    sys.settrace(trace)
    try:
        mic.start(0)
        for step in range(6):
            if step % 3 != 2:
                i2s.end()
            if mic.poll(step * 20) is not None:
                frames.append(bytes(mic.frame[5:]))
                mic.sent()
            assert mic.filled or not any(mic._full), at
    finally:
        sys.settrace(None)
    for step in range(6, 10):
        i2s.end()
        if mic.poll(step * 20) is not None:
            frames.append(bytes(mic.frame[5:]))
            mic.sent()
    return samples(frames), lines[0] >= at


def test_mic_callback_may_come_between_any_two_lines():
    if not hasattr(sys, "settrace") or sys.implementation.name == "micropython":
        raise SkipTest("settrace")
    at = 0
    reached = True
    while reached:
        at += 1
        heard, reached = _interrupted(at)
        assert len(heard) > 1000
        assert heard == [count(i) for i in range(heard[0] + 15000, heard[0] + 15000 + len(heard))], at
    assert at > 50
