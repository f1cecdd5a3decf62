# The echo's measurement, and what follows from it, on an I2S of both directions with a way from one to the other.
import gc
import random
from array import array

from fake_i2s import BLOCK, FakeMicrophone, FakeSpeaker
from vrt import figures
from vrt.audio import dsp
from vrt.config import checked
from vrt.sound import Sound
from vrt.volume import volume

if hasattr(gc, "freeze"):  # CPython's garbage is everybody's
    gc.freeze()

OPEN = {"listen": "open", "duplex": "full"}


class Room:
    # A board whose microphone hears its speaker `loss_db` weaker and `delay_ms` later, and pink noise. Time goes by 2 ms steps.
    NAME = "room"

    def __init__(self, loss_db=None, delay_ms=5, noise=0, **settings):
        gc.collect()
        settings["url"] = "ws://h/"
        self.DESCRIPTION = {"mic_rate": 16000, "mic_dma_ms": 64, "dac_rate": 24000, "dma_ms": 43}
        self.events = []
        self.gain = 0 if loss_db is None else 10 ** (-loss_db / 20)
        self.delay = delay_ms * 24
        self.noise = noise
        self.voice = 0
        self.broken = False  # a microphone that is opened does not run
        self.now = 0
        self.turn = "idle"
        self.live = True
        self.frames = []  # what was sent
        self.sound = Sound(self, checked(settings))

    def speaker(self):
        self.played = FakeSpeaker()
        self.played.clock = 0
        return self.played

    def microphone(self):
        self.ears = FakeMicrophone(self.hear)
        self.ears.stuck = self.broken
        return self.ears

    def event(self, what, **fields):
        self.events.append((what, fields))

    def hear(self, i):
        at = i * 3 // 2 - self.delay - (self.played.clock - len(self.played.out))
        value = self.gain * self.played.out[at] if 0 <= at < len(self.played.out) else 0
        if self.noise:
            value += random.randrange(-2 * self.noise, 2 * self.noise)
        if self.voice:
            value += self.voice if i & 16 else -self.voice
        return max(-32768, min(32767, round(value)))

    def run(self, ms):
        sound = self.sound
        for step in range(ms // 2):
            if not step & 63 and hasattr(gc, "mem_free"):
                gc.collect()
            self.now += 2
            while self.played.clock + BLOCK <= self.now * 24:
                self.played.run(BLOCK)
            while self.ears.clock + BLOCK <= self.now * 16:
                self.ears.run(BLOCK)
            sound.hear(self.now)
            sound.speaker.poll(self.now)
            sound.playing = sound.speaker.playing
            sound.listen(self.live, self.turn, self.now)
            frame = sound.mic.frame
            while frame:
                self.frames.append(bytes(frame[5:]))
                frame = sound.mic.sent()

    def skip(self, ms):
        # So long nothing happens.
        self.now += ms
        self.played.out = array("h")
        gc.collect()
        self.played.clock, self.ears.clock = self.now * 24 // BLOCK * BLOCK, self.now * 16 // BLOCK * BLOCK

    def measured(self, ms=2000):
        # Lets the echo be measured; returns what was told of it.
        while self.sound.fresh or self.sound.probe:
            self.run(2)
            ms -= 2
            assert ms > 0, "it does not end"
        assert len(self.events) == 1
        return self.events[0][1]

    def speak(self, ms, level=8000, item="i"):
        # A reply, all at once.
        self.sound.begin(item)
        samples = array("h", [level if i % 13 < 7 else -level for i in range(8 * ms)])
        frame = bytearray(5 + len(samples))
        dsp.encode(samples, len(samples), frame, 5, 1)
        for start in range(0, 8 * ms, 160):
            self.sound.play(frame[start : start + 165], 165, self.now)


def loudest(samples):
    return max([abs(sample) for sample in samples])


def test_a_path_without_an_echo_is_proven():
    room = Room(**OPEN)
    assert room.sound.half
    assert room.measured()["duplex"] == "full"
    assert room.events[0][1]["loss_db"] > 60
    assert not room.sound.half
    assert room.now < 1200


def test_the_loss_is_measured_whatever_the_delay_and_36_db_are_asked_for():
    for loss_db, delay_ms in ((50, 0), (38, 0), (38, 100), (34, 0), (34, 100), (20, 30), (0, 5), (-6, 20)):
        room = Room(loss_db, delay_ms, **OPEN)
        told = room.measured()
        assert abs(told["loss_db"] - loss_db) <= 2, (loss_db, delay_ms, told)
        assert told["duplex"] == ("full" if loss_db > 36 else "half")
        assert room.sound.half == (loss_db < 36)
        room.run(1000)
        assert len(room.events) == 1  # once


def test_the_signal_is_short_and_as_quiet_as_the_room():
    for noise, least, most in ((0, 600, 1000), (100, 1000, 9000)):
        random.seed(noise)
        room = Room(40, noise=noise, **OPEN)
        told = room.measured()
        room.run(500)
        sounding = [i for i in range(len(room.played.out)) if room.played.out[i]]
        assert (sounding[-1] - sounding[0]) / 24 < 700
        assert least < loudest(room.played.out) < most, noise
        assert abs(told["loss_db"] - 40) <= 3
        assert told["duplex"] == "full"


def test_the_way_is_measured_in_every_format_of_the_speaker():
    room = Room(40, output="pcm16", input="pcm16", **OPEN)
    assert abs(room.measured()["loss_db"] - 40) <= 2


def test_nothing_is_played_in_a_loud_room_and_it_is_measured_when_that_is_quiet():
    random.seed(1)
    room = Room(noise=3000, **OPEN)
    room.run(1000)
    assert room.events == [("echo", {"loss_db": None, "duplex": "half"})]
    assert not any(room.played.out)
    for _ in range(2):
        room.skip(9000)
        room.run(1500)
        assert len(room.events) == 1
        assert room.sound.half
    assert not any(room.played.out)
    room.noise = 0
    room.run(300)
    room.skip(9000)
    room.run(2500)
    assert room.events[1][1]["duplex"] == "full"
    assert any(room.played.out)


def test_nothing_is_sent_and_nobody_heard_while_it_is_measured():
    room = Room(0, **OPEN)
    room.measured()
    assert room.frames == []
    assert not room.sound.mic.voiced
    assert figures.of(room.sound)["received"] == figures.of(room.sound)["speaker_dropped"] == 0
    room.run(250)
    assert room.frames == []
    room.run(300)
    assert room.frames


def test_the_microphone_is_off_again_when_nobody_asked_for_it():
    room = Room(duplex="full")
    room.live = False
    assert room.measured()["duplex"] == "full"
    assert not room.sound.mic.live
    room.run(1000)
    assert room.frames == []


def test_a_muted_microphone_measures_nothing():
    room = Room(mute=True, **OPEN)
    room.live = False
    room.run(1500)
    assert room.events == []
    assert not any(room.played.out)
    assert room.sound.half


def test_half_duplex_measures_nothing():
    room = Room(listen="open")
    room.run(1500)
    assert room.events == []
    assert not any(room.played.out)


def test_a_reply_comes_first_and_is_whole():
    room = Room(40, **OPEN)
    room.run(400)
    assert room.sound.probe
    room.turn = "speaking"
    room.speak(300)
    assert room.sound.probe is None
    before = len(room.played.out)
    room.run(1000)
    loud = [sample for sample in room.played.out[before:] if abs(sample) > 4000]
    assert 6300 < len(loud) < 7300  # 300 ms
    assert room.sound.half
    assert figures.of(room.sound)["received"] == 15
    assert room.events == []
    room.turn = "idle"
    assert room.measured()["duplex"] == "full"


def test_a_press_ends_it_and_says_nothing_of_it():
    room = Room(40, **OPEN)
    room.run(400)
    assert room.sound.probe
    assert room.sound.flush() == []
    assert room.sound.probe is None
    assert room.measured()["duplex"] == "full"


def test_a_microphone_that_does_not_run_leaves_half_duplex():
    room = Room(**OPEN)
    room.ears.stuck = room.broken = True
    assert room.measured(6000) == {"loss_db": None, "duplex": "half"}


def test_formats_may_change_meanwhile():
    room = Room(40, **OPEN)
    room.run(400)
    wide = {"encoding": "pcm16", "sampleRate": 24000}
    room.sound.adopt({"input": wide, "output": wide})
    assert room.sound.probe is None
    room.skip(0)
    assert abs(room.measured()["loss_db"] - 40) <= 2


# --- what follows


def test_its_own_voice_is_never_a_voice_and_is_not_sent():
    for loss_db, delay_ms in ((38, 0), (38, 100), (50, 30)):
        room = Room(loss_db, delay_ms, **OPEN)
        assert room.measured()["duplex"] == "full"
        room.run(700)
        room.frames.clear()
        room.speak(800, level=20000)
        room.turn = "speaking"
        for _ in range(120):
            room.run(10)
            assert not room.sound.mic.voiced
        assert len(room.frames) > 50  # full duplex
        assert set(room.frames) == {b"\xff" * 160}


def test_a_voice_over_a_reply_is_heard_and_sent():
    room = Room(40, 10, **OPEN)
    room.measured()
    room.run(700)
    room.speak(700, level=8000)
    room.turn = "speaking"
    room.run(300)
    room.frames.clear()
    room.voice = 600
    room.run(200)
    assert room.sound.mic.voiced
    assert room.frames[-1] != b"\xff" * 160


def test_nothing_is_held_back_when_the_reply_is_over():
    room = Room(38, **OPEN)
    room.measured()
    room.run(700)
    room.speak(300, level=20000)
    room.run(1000)
    room.frames.clear()
    room.voice = 60
    room.run(200)
    assert b"\xff" * 160 not in room.frames[2:]


def test_another_volume_is_heard_and_the_echo_measured_again():
    room = Room(40, **OPEN)
    room.measured()
    room.events.clear()
    room.run(700)
    assert volume() == 100
    assert volume(50) == 50
    assert room.sound.half
    assert abs(room.measured()["loss_db"] - 40) <= 2
    assert not room.sound.half
    room.run(700)
    room.skip(0)
    room.speak(200, level=8000)
    room.run(600)
    assert 1800 < sorted([abs(sample) for sample in room.played.out])[-2400] < 2200
    assert volume(-5) == 0
    assert volume(500) == 100


def test_volume_in_half_duplex():
    room = Room(listen="open", volume=30)
    assert volume() == 30
    room.speak(200, level=10000)
    room.run(600)
    assert 800 < sorted([abs(sample) for sample in room.played.out])[-2400] < 1000
    volume(0)
    before = len(room.played.out)
    room.speak(200)
    room.run(600)
    assert not any(room.played.out[before:])
    volume(100)
    assert room.sound.speaker.volume == -1
    assert room.events == []


def test_a_board_with_a_volume_of_its_own_is_told():
    told = []

    class Loud(Room):
        def volume(self, percent):
            told.append(percent)

    room = Loud(listen="open", volume=70)
    assert told == [70]
    volume(20)
    assert told == [70, 20]
    assert room.sound.speaker.volume == -1


def test_the_level_of_a_reply_is_asked_for_only_where_an_echo_is_expected():
    for loss_db, asked in ((None, False), (20, False), (40, True)):
        room = Room(loss_db, **OPEN)
        room.measured()
        room.run(700)
        assert (room.sound.speaker.volume >= 0) == asked, loss_db
