import random
import sys
from array import array

import micropython
from fake_i2s import BLOCK, FakeSpeaker
from support import SkipTest, raises
from vrt.audio import dsp
from vrt.audio.speaker import Speaker
from vrt.errors import ConfigError

DMA_MS = 43  # four blocks at 24 kHz


def make(fake, encoding="pcm16", rate=24000, ring_ms=800, **options):
    width = 1 if encoding == "pcmu" else 2
    ring_bytes = rate * ring_ms // 1000 * width
    options.setdefault("dma_ms", DMA_MS)
    return Speaker(fake, encoding=encoding, rate=rate, dac_rate=24000, ring_bytes=ring_bytes, **options)


def sound(first, n):
    # n samples that are never zero, each different from its neighbours: first, first + 1, ...
    return array("h", [1 + i % 30000 for i in range(first, first + n)])


def give(speaker, samples):
    return speaker.write(b"head!" + bytes(samples), 5, 2 * len(samples))


def play(speaker, fake, ms):
    # Lets so much time pass; returns how often playback was done.
    done = 0
    fake.until = getattr(fake, "until", 0) + ms * 24
    while fake.clock + BLOCK <= fake.until:
        for step in range(5):
            done += speaker.poll(fake.clock // 24 + 2 * step)
            fake.settle()
        fake.run(BLOCK)
        assert len(fake.transfers) <= 1, "more than one transfer outstanding"
        assert not fake.lost
    return done


def heard(fake):
    return [sample for sample in fake.out if sample]


def test_speaker_plays_every_sample_once_and_in_order():
    fake = FakeSpeaker()
    speaker = make(fake)
    speaker.begin("a")
    for start in range(0, 24000, 480):
        give(speaker, sound(start, 480))
        play(speaker, fake, 20)
    assert speaker.playing
    assert play(speaker, fake, 500) == 1
    assert heard(fake) == list(sound(0, 24000))
    assert not speaker.playing
    assert (speaker.frames, speaker.dropped, speaker.underruns, speaker.stalls) == (50, 0, 0, 0)


def test_speaker_done_when_the_last_sample_has_left_and_not_before():
    for n in (2400, 2401, 3000):  # the sound fills its last chunk, or not
        fake = FakeSpeaker()
        speaker = make(fake)
        speaker.begin("a")
        give(speaker, sound(0, n))
        done = 0
        while not done:
            for step in range(5):
                fake.settle()
                done = done or speaker.poll(fake.clock // 24 + 2 * step)
            if not done:
                fake.run(BLOCK)
            assert fake.clock < 24000
        assert heard(fake) == list(sound(0, n))
        last = max(i for i in range(len(fake.out)) if fake.out[i])
        assert len(fake.out) - last < (DMA_MS + 25) * 24  # and not much later
        assert not speaker.poll(fake.clock // 24)


def test_speaker_rests_when_it_has_nothing_to_play():
    fake = FakeSpeaker()
    speaker = make(fake)
    play(speaker, fake, 100)
    assert not fake.transfers
    speaker.begin("a")
    play(speaker, fake, 100)
    assert not fake.transfers
    assert not speaker.playing
    give(speaker, sound(0, 2400))
    play(speaker, fake, 500)
    assert not fake.transfers


def test_speaker_waits_for_the_prefill():
    fake = FakeSpeaker()
    speaker = make(fake, prefill_ms=60)
    speaker.begin("a")
    give(speaker, sound(0, 960))
    play(speaker, fake, 30)
    assert not heard(fake)
    give(speaker, sound(960, 480))
    play(speaker, fake, 11)
    assert speaker.playing
    play(speaker, fake, 300)
    assert heard(fake) == list(sound(0, 1440))


def test_speaker_plays_what_is_shorter_than_the_prefill():
    fake = FakeSpeaker()
    speaker = make(fake, prefill_ms=60)
    speaker.begin("a")
    give(speaker, sound(0, 100))
    assert play(speaker, fake, 300) == 1
    assert heard(fake) == list(sound(0, 100))


def test_speaker_plays_silence_when_it_runs_dry_and_counts_when_the_item_goes_on():
    fake = FakeSpeaker()
    speaker = make(fake)
    speaker.begin("a")
    give(speaker, sound(0, 2400))
    assert play(speaker, fake, 400) == 1
    assert speaker.underruns == 0
    give(speaker, sound(2400, 2400))
    assert play(speaker, fake, 400) == 1
    assert speaker.underruns == 1
    assert heard(fake) == list(sound(0, 4800))
    speaker.begin("b")
    give(speaker, sound(4800, 2400))
    play(speaker, fake, 400)
    assert speaker.underruns == 1  # another item is no gap in this one


def test_speaker_bridges_late_frames_with_what_the_dma_holds():
    fake = FakeSpeaker()
    speaker = make(fake)
    speaker.begin("a")
    give(speaker, sound(0, 1920))  # 80 ms ahead, and then down to 10
    start = 1920
    for gap in (20, 70, 0, 0, 20, 60, 0, 20, 20, 40, 0, 0):
        play(speaker, fake, gap)
        give(speaker, sound(start, 480))
        start += 480
    play(speaker, fake, 400)
    assert speaker.underruns == 0
    first = next(i for i in range(len(fake.out)) if fake.out[i])
    assert list(fake.out[first : first + start]) == list(sound(0, start))


def test_speaker_flush_is_silent_within_a_chunk_and_the_dma():
    for extra in range(0, 480, 96):
        fake = FakeSpeaker()
        speaker = make(fake)
        speaker.begin("a")
        for start in range(0, 9600, 480):
            give(speaker, sound(start, 480))
        play(speaker, fake, 150)
        for _ in range(extra // 96):
            speaker.poll(fake.clock // 24)
            fake.settle()
        at = len(fake.out)
        cut = speaker.flush()
        assert play(speaker, fake, 300) == 1
        last = max(i for i in range(len(fake.out)) if fake.out[i])
        assert last - at < (DMA_MS + 20) * 24
        # What is reported as heard is what left, to the millisecond.
        assert cut == [("a", len(heard(fake)) // 24)]
        assert heard(fake) == list(sound(0, len(heard(fake))))
        assert speaker.flush() == []


def test_speaker_flush_reports_each_item_that_was_cut():
    fake = FakeSpeaker()
    speaker = make(fake, ring_ms=1000)
    start = 0
    for name, frames in (("a", 4), ("b", 8), ("c", 6), ("d", 0)):
        assert speaker.begin(name)
        for _ in range(frames):
            give(speaker, sound(start, 480))
            start += 480
    play(speaker, fake, 130)
    cut = speaker.flush()
    play(speaker, fake, 200)
    # a: 80 ms, gone to the end. c was never begun, and d has been announced only.
    assert cut == [("b", len(heard(fake)) // 24 - 80), ("c", 0), ("d", 0)]


def test_speaker_flush_reports_the_newest_item_while_more_of_it_may_come():
    fake = FakeSpeaker()
    speaker = make(fake)
    speaker.begin("a")
    give(speaker, sound(0, 1200))
    play(speaker, fake, 60)
    assert speaker.playing  # all is handed over, the last of it still in the DMA
    assert speaker.flush() == [("a", 50)]
    play(speaker, fake, 200)
    assert heard(fake) == list(sound(0, 1200))


def test_speaker_flush_after_playback_is_done_reports_nothing():
    fake = FakeSpeaker()
    speaker = make(fake)
    speaker.begin("a")
    give(speaker, sound(0, 1200))
    assert play(speaker, fake, 400) == 1
    assert speaker.flush() == []


def test_speaker_flush_before_the_sound_begins_reports_that_nothing_was_heard():
    fake = FakeSpeaker()
    speaker = make(fake)
    speaker.begin("a")
    give(speaker, sound(0, 240))
    assert speaker.flush() == [("a", 0)]
    assert play(speaker, fake, 200) == 0
    assert not heard(fake)
    assert not speaker.playing


def test_speaker_after_a_flush_takes_nothing_until_the_next_item():
    fake = FakeSpeaker()
    speaker = make(fake)
    speaker.begin("a")
    give(speaker, sound(0, 4800))
    play(speaker, fake, 50)
    speaker.flush()
    assert give(speaker, sound(0, 480)) == 0
    assert speaker.dropped == 1
    play(speaker, fake, 200)
    before = len(heard(fake))
    speaker.begin("b")
    assert give(speaker, sound(20000, 2400)) == 4800
    play(speaker, fake, 400)
    assert heard(fake)[before:] == list(sound(20000, 2400))


def test_speaker_flush_in_the_tail_of_another_flush_stays_silent():
    fake = FakeSpeaker()
    speaker = make(fake)
    speaker.begin("a")
    give(speaker, sound(0, 9600))
    play(speaker, fake, 100)
    speaker.flush()
    play(speaker, fake, 20)
    speaker.begin("b")
    give(speaker, sound(20000, 9600))
    assert speaker.flush() == [("b", 0)]
    assert play(speaker, fake, 300) == 1
    assert max(heard(fake)) < 20000


def test_speaker_drops_the_newest_when_the_ring_is_full():
    fake = FakeSpeaker()
    speaker = make(fake, ring_ms=40)
    speaker.begin("a")
    assert give(speaker, sound(0, 480)) == 960
    assert give(speaker, sound(480, 720)) == 960
    assert give(speaker, sound(5000, 480)) == 0
    assert (speaker.frames, speaker.dropped) == (3, 2)
    play(speaker, fake, 300)
    assert heard(fake) == list(sound(0, 960))


def test_speaker_takes_whole_samples_only():
    fake = FakeSpeaker()
    speaker = make(fake)
    speaker.begin("a")
    data = bytes(sound(0, 480))
    assert speaker.write(data + b"\x55", 0, 961) == 960
    assert speaker.write(b"\x55", 0, 1) == 0
    assert speaker.write(b"", 0, 0) == 0
    assert speaker.dropped == 0
    play(speaker, fake, 300)
    assert heard(fake) == list(sound(0, 480))


def test_speaker_refuses_more_items_than_it_can_tell_apart():
    fake = FakeSpeaker()
    speaker = make(fake)
    for i in range(8):
        assert speaker.begin(str(i))
        give(speaker, sound(0, 240))
    assert not speaker.begin("9")
    assert give(speaker, sound(0, 240)) == 0
    play(speaker, fake, 60)
    assert speaker.begin("10")
    assert [item for item, _ in speaker.flush()][-1] == "10"


def test_speaker_converts_mulaw_to_the_rate_of_the_dac():
    fake = FakeSpeaker()
    speaker = make(fake, "pcmu", 8000)
    speaker.begin("a")
    square = array("h", ([8000] * 40 + [-8000] * 40) * 10)
    codes = bytearray(800)
    dsp.encode(square, 800, codes, 0, 1)
    speaker.write(codes, 0, 800)
    assert play(speaker, fake, 500) == 1
    assert len(heard(fake)) > 2390
    first = next(i for i in range(len(fake.out)) if abs(fake.out[i]) > 4000)
    for i in range(800):
        if 6 < i % 40 < 34:
            assert abs(fake.out[first + 3 * i] - square[i]) < 400, i


def test_speaker_mulaw_flush_reports_what_left():
    fake = FakeSpeaker()
    speaker = make(fake, "pcmu", 8000)
    speaker.begin("a")
    speaker.write(bytes(4000), 0, 4000)  # code 0: the loudest negative sample
    play(speaker, fake, 200)
    ((item, ms),) = speaker.flush()
    play(speaker, fake, 200)
    left = sum(1 for sample in fake.out if sample < -20000)
    assert item == "a"
    assert 0.3 < ms - left / 24 < 1.5  # the filter holds back half a millisecond, which a flush forgets


def test_speaker_flush_leaves_nothing_of_the_old_sound_in_the_filter():
    fake = FakeSpeaker()
    speaker = make(fake, "pcmu", 8000)
    speaker.begin("a")
    speaker.write(bytes(4000), 0, 4000)
    play(speaker, fake, 100)
    speaker.flush()
    at = len(fake.out)
    speaker.begin("b")
    speaker.write(b"\xff" * 4000, 0, 4000)
    play(speaker, fake, 700)
    after = fake.out[at + (DMA_MS + 10) * 24 :]
    assert len(after) > 9600
    assert not any(after)


def test_speaker_plays_less_than_a_chunk_after_a_week_of_silence():
    fake = FakeSpeaker()
    speaker = make(fake)
    speaker.begin("a")
    give(speaker, sound(0, 480))
    assert play(speaker, fake, 500) == 1
    speaker._seen = (fake.clock // 24 - 7 * 86_400_000) & 0x3FFFFFFF
    speaker.begin("b")
    give(speaker, sound(0, 100))
    assert play(speaker, fake, 500) == 1
    assert len(heard(fake)) == 580


def test_speaker_reopens_an_i2s_that_is_stuck():
    made = []

    def reopen():
        made.append(FakeSpeaker())
        return made[-1]

    fake = FakeSpeaker()
    speaker = make(fake, reopen=reopen)
    speaker.begin("a")
    give(speaker, sound(0, 9600))
    play(speaker, fake, 50)
    fake.stuck = True
    now = fake.clock // 24
    for _ in range(40):
        speaker.poll(now)
        now += 10
    speaker.poll(now + 5000)  # the loop was held up: no reason to suspect the I2S
    now += 5000
    for _ in range(40):
        speaker.poll(now)
        now += 10
    assert not made
    for _ in range(20):
        speaker.poll(now)
        now += 10
    assert speaker.stalls == 1
    assert fake.closed
    other = made[0]
    fake.handler(fake)  # a callback of the old one that was already on its way
    assert len(other.transfers) == 1
    other.clock = other.until = now * 24
    play(speaker, other, 600)
    assert not speaker.playing
    rest = heard(other)
    assert rest == list(sound(rest[0] - 1, len(rest)))
    assert rest[-1] == sound(0, 9600)[-1]
    assert len(made) == 1


def test_speaker_without_a_way_to_reopen_counts_only():
    fake = FakeSpeaker()
    speaker = make(fake)
    speaker.begin("a")
    give(speaker, sound(0, 9600))
    fake.stuck = True
    for now in range(0, 1300, 10):
        speaker.poll(now)
    assert speaker.stalls == 2


def test_speaker_refuses_formats_it_cannot_play():
    for encoding, rate in (("opus", 24000), ("pcmu", 16000), ("pcm16", 16000), ("pcm16", 48000)):
        raises(ConfigError, make, FakeSpeaker(), encoding, rate)
    raises(ConfigError, make, FakeSpeaker(), ring_ms=2000)  # more than RingIO can count
    raises(ConfigError, make, FakeSpeaker(), ring_ms=0)
    raises(
        ConfigError,
        Speaker,
        FakeSpeaker(),
        encoding="pcmu",
        rate=8000,
        dac_rate=8000,
        ring_bytes=100,
        dma_ms=43,
    )


def test_speaker_plays_at_the_volume_it_is_given_and_tells_the_loudest_level():
    for encoding, rate, width, playing in (
        ("pcmu", 8000, 1, 3),
        ("pcm16", 8000, 2, 3),
        ("pcm16", 12000, 2, 2),
        ("pcm16", 24000, 2, 1),
    ):
        for factor, least, most in ((-1, 7800, 8200), (32768, 7800, 8200), (8192, 1950, 2050), (0, 0, 0)):
            fake = FakeSpeaker()
            speaker = make(fake, encoding, rate)
            speaker.volume = factor
            speaker.begin("a")
            square = array("h", ([8000] * 40 + [-8000] * 40) * 10)
            data = bytearray(width * 800)
            dsp.encode(square, 800, data, 0, width)
            speaker.write(data, 0, len(data))
            play(speaker, fake, 500)
            loud = sorted([abs(sample) for sample in fake.out])[-1200 * playing // 3]  # of most of it
            assert least <= loud <= most, (encoding, factor, loud)
            assert speaker.level == 0 if factor < 0 else least <= speaker.level <= most


def test_speaker_says_nothing_of_an_item_without_an_id():
    fake = FakeSpeaker()
    speaker = make(fake)
    speaker.begin(None)
    give(speaker, sound(0, 4800))
    play(speaker, fake, 60)
    speaker.begin("a")
    give(speaker, sound(4800, 480))
    assert speaker.flush() == [("a", 0)]
    assert play(speaker, fake, 300) == 1


class Repeating(FakeSpeaker):
    # A DMA that nobody clears: a block that is not filled in time is played as it was the last time round.
    def __init__(self, blocks=4):
        super().__init__(blocks)
        self.dma = [[0] * BLOCK for _ in range(blocks)]
        self.repeated = 0

    def run(self, frames):
        for _ in range(frames // BLOCK):
            self.settle()
            block = self.dma[self.clock // BLOCK % self.blocks]
            self.repeated += len(self.fifo) < BLOCK
            block[: len(self.fifo[:BLOCK])] = self.fifo[:BLOCK]
            self.fifo = self.fifo[BLOCK:]
            self.out.extend(array("h", block))
            self.clock += BLOCK
            self.settle()


def test_speaker_whose_feeder_stops_mid_word_leaves_silence_and_nothing_old_in_the_dma():
    for n in (2400, 2401, 3000, 5000):
        fake = Repeating()
        speaker = make(fake)
        speaker.begin("a")
        give(speaker, sound(0, n))  # and no more of it comes
        assert play(speaker, fake, 600) == 1
        assert heard(fake) == list(sound(0, n))
        assert fake.repeated > 8  # it has gone round, and round again
        give(speaker, sound(n, 2400))  # the word goes on
        play(speaker, fake, 600)
        assert heard(fake) == list(sound(0, n + 2400))
        give(speaker, sound(0, 9600))
        play(speaker, fake, 100)
        speaker.flush()  # an interruption, the same
        play(speaker, fake, 300)
        at = len(fake.out)
        play(speaker, fake, 300)
        assert not any(fake.out[at:])


class Pausing(FakeSpeaker):
    # While the interpreter collects garbage no callback comes; what was handed over goes on to the DMA.
    paused = False
    owed = 0

    def _finish(self):
        if self.paused:
            del self.transfers[0]
            self.owed += 1
        else:
            super()._finish()

    def resume(self):
        self.paused = False
        while self.owed:
            self.owed -= 1
            self.handler(self)


def test_speaker_bridges_a_collection_of_100_ms_with_a_longer_dma_and_prefill():
    for blocks, prefill_ms, whole in ((12, 160, True), (12, 40, False), (4, 160, False)):
        fake = Pausing(blocks)
        speaker = make(fake, dma_ms=blocks * BLOCK // 24, prefill_ms=prefill_ms)
        speaker.begin("a")
        start = 0
        for frame in range(50):
            give(speaker, sound(start, 480))
            start += 480
            if frame % 25 == 24:  # the loop stands still, and then all comes at once that came meanwhile
                fake.paused = True
                fake.run(10 * BLOCK)
                fake.resume()
                fake.until += 10 * BLOCK
                give(speaker, sound(start, 10 * BLOCK))
                start += 10 * BLOCK
            play(speaker, fake, 20)
        play(speaker, fake, 500)
        assert heard(fake) == list(sound(0, start))  # all of it, in order, whatever the gaps
        first = next(i for i in range(len(fake.out)) if fake.out[i])
        assert all(fake.out[first : first + start]) == whole, (blocks, prefill_ms)


class _Told:
    # An I2S whose transfers end when the test says so, and which allocates nothing.
    def __init__(self):
        self.handler = None
        self.buf = None
        self.sum = 0
        self.ended = 0

    def irq(self, handler):
        self.handler = handler

    def write(self, buf):
        assert self.buf is None, "two transfers"
        self.buf = buf
        return 2 * len(buf)

    def end(self):
        buf = self.buf
        if buf is not None:
            self.buf = None
            self.ended += 1
            self.take(buf)
            self.handler(self)

    def take(self, buf):
        for sample in buf:
            self.sum = self.sum + sample & 0xFFFFFF


def test_speaker_allocates_nothing_for_a_frame():
    if sys.implementation.name != "micropython":
        raise SkipTest("heap_lock")
    for encoding, rate, n in (("pcmu", 8000, 160), ("pcm16", 24000, 960), ("pcm16", 8000, 320)):
        i2s = _Told()
        speaker = make(i2s, encoding, rate)
        speaker.volume = 9000
        frame = bytearray([i & 255 for i in range(5 + n)])
        speaker.begin("a")
        now = 0
        micropython.heap_lock()
        for _ in range(60):
            speaker.write(frame, 5, n)
            speaker.poll(now)
            for _ in range(6):
                i2s.end()
                speaker.poll(now)
            now += 20
        micropython.heap_unlock()
        assert i2s.ended > 60
        assert i2s.sum
        assert speaker.dropped == 0


class _Traced(_Told):
    # Keeps every sample that was taken.
    def __init__(self):
        super().__init__()
        self.out = []

    def take(self, buf):
        self.out.extend(buf)


def _interrupted(at, flush, times):
    # A short conversation during which the I2S's callback comes, so many times, before step number `at` of the speaker:
    # before a line of it, and in `flush` before every instruction.
    # Returns (samples taken, report of the flush, whether that step was reached).
    i2s = _Traced()
    # At a low rate, since there are many conversations.
    speaker = Speaker(
        i2s, encoding="pcm16", rate=2000, dac_rate=2000, ring_bytes=2000, dma_ms=DMA_MS, prefill_ms=0
    )
    count = [0]

    def trace(frame, event, _):
        if not frame.f_code.co_filename.endswith("audio/speaker.py") or frame.f_code.co_name == "_advance":
            return None
        frame.f_trace_opcodes = (
            frame.f_code.co_name == "flush"
        )  # it must not be split between two reads either
        if event in ("line", "opcode"):
            count[0] += 1
            if count[0] == at:
                for _ in range(times):
                    i2s.end()
        return trace

    sys.settrace(trace)
    try:
        speaker.begin("a")
        cut = []
        for step in range(4):
            if step < 3:
                give(speaker, sound(step * 75, 75))
            speaker.poll(step)
            i2s.end()
            speaker.poll(step)
            if flush and step == 3:
                cut = speaker.flush()
    finally:
        sys.settrace(None)
    for step in range(4, 24):
        speaker.poll(step * 20)
        i2s.end()
    assert not speaker.playing
    return [sample for sample in i2s.out if sample], cut, count[0] >= at


def test_speaker_callback_may_come_between_any_two_lines():
    if not hasattr(sys, "settrace") or sys.implementation.name == "micropython":
        raise SkipTest("settrace")
    for flush, times in ((False, 1), (False, 2), (True, 1), (True, 2)):
        at = 0
        reached = True
        while reached:
            at += 1
            out, cut, reached = _interrupted(at, flush, times)
            if flush:
                assert out == list(sound(0, len(out))), at
                assert cut == [("a", len(out) // 2)], (at, cut, len(out))
            else:
                assert out == list(sound(0, 225)), at
        assert at > 200


def test_speaker_survives_random_use():
    for seed in range(12):
        random.seed(seed)
        fake = FakeSpeaker()
        speaker = make(fake, ring_ms=200, prefill_ms=random.randrange(80))
        number = 0
        start = 0
        given = []
        for _ in range(60):
            what = random.randrange(12)
            if what == 0:
                speaker.flush()
                given.append(None)
            elif what < 3:
                speaker.begin(str(number))
                number += 1
            elif what < 9:
                n = random.randrange(700)
                took = give(speaker, sound(start, n)) // 2
                given += list(sound(start, took))
                start += n
            else:
                play(speaker, fake, random.randrange(80))
        play(speaker, fake, 800)
        assert not speaker.playing
        # Nothing twice, nothing out of order; after the last flush, everything.
        played = heard(fake)
        rest = given[len(given) - given[::-1].index(None) :] if None in given else given
        assert played[len(played) - len(rest) :] == rest
        steps = [(b - a) % 30000 for a, b in zip(played, played[1:])]
        assert all(0 < step < 29000 for step in steps)
