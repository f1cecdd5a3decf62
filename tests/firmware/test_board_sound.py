# The real microphone and speaker on the sound of real boards, at an uneven pace.
import random
import sys
from array import array

import micropython
from fake_machine import booted, codec_chips, described
from support import SkipTest, raises
from test_board_real import profiles
from vrt.audio.mic import Mic
from vrt.audio.speaker import Speaker
from vrt.errors import ConfigError

FRAME = 480  # samples of 20 ms that are played


def count(i):
    # A sound whose samples tell where they are; never silence.
    return i % 30000 + 1


class Talk:
    # A board with the firmware's microphone and speaker, and what went through them.
    def __init__(self, name, seed=1, slot=None):
        board, self.machine = booted(name, codec_chips())
        self.board = board
        self.entry = board._made
        slot = self.entry["microphone"]["slot"] = slot or self.entry["microphone"]["slot"]
        if slot == "left":
            self.machine.sound = count
        else:
            self.machine.sound, self.machine.right = (lambda i: 555), count
        self.duplex = self.entry["duplex"]
        made = board.DESCRIPTION
        self.speaker = Speaker(
            board.speaker(),
            encoding="pcm16",
            rate=24000,
            dac_rate=made["dac_rate"],
            ring_bytes=65534,
            dma_ms=made["dma_ms"],
            reopen=board.speaker,
        )
        self.mic = Mic(
            board.microphone(),
            encoding="pcm16",
            rate=16000,
            mic_rate=made["mic_rate"],
            dma_ms=made["mic_dma_ms"],
            reopen=board.microphone,
        )
        random.seed(seed)  # MicroPython has one generator
        self.heard = []  # samples, an array for each time that the microphone was live
        self.given = 0  # samples handed to the speaker

    def run(self, ms, live=False, speaking=False, rest_ms=150):
        # Lets so much time pass, in steps as they come; in a turn that speaks, audio arrives a little ahead of its time, and
        # its last part is as long before the end. In half duplex the microphone is off in such a turn, from the step after
        # its first sound on, and until the sound has left.
        mic, speaker, machine = self.mic, self.speaker, self.machine
        begun = machine.ticks_ms()
        fed = 0
        if speaking:
            speaker.begin("item")
        while machine.ticks_ms() - begun < ms:
            self.board.wait(None, random.randrange(1, 18))
            now = machine.ticks_ms()
            while speaking and fed * 20 < now - begun + 100 and fed * 20 < ms - rest_ms:
                self.give()
                fed += 1
            mic.poll(now)
            speaker.poll(now)
            wanted = live and not (self.duplex == "half" and (speaker.playing or speaking))
            if wanted and not mic.live:
                mic.start(now)
                self.heard.append(array("H"))
            elif mic.live and not wanted:
                mic.stop()
            self.take()
            self.look()

    def give(self):
        frame = bytearray()
        for i in range(self.given, self.given + FRAME):
            value = count(i)
            frame.append(value & 255)
            frame.append(value >> 8)
        self.given += FRAME
        assert self.speaker.write(frame, 0, len(frame)) == len(frame)

    def take(self):
        mic = self.mic
        frame = mic.frame
        while frame:
            for i in range(5, mic.n, 2):
                self.heard[-1].append(frame[i] | frame[i + 1] << 8)
            frame = mic.sent()

    def look(self):
        # What must hold at each moment.
        machine = self.machine
        assert machine.lost == 0
        assert machine.most <= 1, "more than one transfer outstanding"
        sending = [i2s for i2s in machine.open.values() if i2s.mode == i2s.TX and i2s.bits == 16]
        amplifier = self.entry["speaker"].get("amplifier", {})
        if "pin" in amplifier:
            assert (machine.pins[amplifier["pin"]] == amplifier["on"]) == bool(sending)
        elif "expander" in amplifier:
            bits = {0x43: (0x05, 0x6E), 0x20: (0x03, 0x01)}[amplifier["address"]]
            on = machine.chips[amplifier["address"]].registers[bits[0]] & bits[1]
            assert bool(on) == bool(sending)
        if self.entry["microphone"].get("codec") == "es7210":
            clock = [i2s for i2s in machine.open.values() if i2s.bits == 32]
            receiving = [i2s for i2s in machine.open.values() if i2s.mode == i2s.RX]
            assert len(clock) == len(receiving)
            for one, other in zip(clock, receiving):
                assert one.rate * 64 == other.rate * 256  # ticks a sample

    def out(self):
        # How many samples of sound have left, without the silence around them. They come in their order, and none is missing.
        pieces = [self.machine.played]
        for i2s in self.machine.open.values():
            if i2s.mode == i2s.TX and i2s.bits == 16:
                pieces.append(i2s.engine.out)
        n = 0
        for piece in pieces:
            for sample in piece:
                if sample:
                    assert sample == count(n)
                    n += 1
        return n

    def faultless(self):
        mic, speaker = self.mic, self.speaker
        assert (mic.stalls, mic.overruns, mic.dropped) == (0, 0, 0)
        assert (speaker.stalls, speaker.underruns, speaker.dropped) == (0, 0, 0)


def contiguous(samples):
    return all(samples[i] == count(samples[0] - 1 + i) for i in range(len(samples)))


def test_every_board_listens_and_then_speaks_and_listens_again():
    for name in profiles():
        talk = Talk(name)
        talk.run(300, live=True)
        talk.run(500, speaking=True, live=True)
        talk.run(800, live=True)
        talk.faultless()
        assert talk.given >= 24000 * 0.3
        assert talk.out() == talk.given, name
        lengths = [len(samples) for samples in talk.heard]
        if talk.duplex == "half":
            assert len(lengths) == 2
            assert min(lengths) > 16000 * 0.08, name
        else:
            assert len(lengths) == 1
            assert lengths[0] > 16000 * 0.9, name


def test_a_full_duplex_board_hears_every_sample_while_it_speaks():
    for seed in range(3):
        talk = Talk("bread-compact-s3", seed)
        talk.run(900, live=True, speaking=True)
        talk.faultless()
        assert contiguous(talk.heard[0])
        assert sorted(talk.machine.open) == [0, 1]


def test_the_slot_of_the_microphone_can_be_the_right_one():
    for slot in ("left", "right"):
        for name in ("bread-compact-s3", "esp32-s3-box-3"):
            talk = Talk(name, 2, slot)
            talk.run(600, live=True)
            talk.faultless()
            assert len(talk.heard[0]) > 16000 * 0.4, (slot, name)
            assert contiguous(talk.heard[0]), (slot, name)
            talk.run(300, speaking=True)  # in half duplex it loses the clocks, and gets them back
            talk.run(500, live=True)
            talk.faultless()
            assert len(talk.heard[1]) > 16000 * 0.1, (slot, name)
            assert contiguous(talk.heard[1]), (slot, name)


def test_a_half_duplex_board_hears_every_sample_while_it_is_silent():
    for seed in range(3):
        talk = Talk("esp32-s3-box-3", seed)
        talk.run(900, live=True)
        talk.faultless()
        assert contiguous(talk.heard[0])
        assert [i2s.mode for i2s in talk.machine.open.values() if i2s.bits == 16] == [9]


def test_an_interruption_gives_the_clocks_back_to_the_microphone():
    talk = Talk("m5-atoms3r-echo-base")
    talk.run(400, speaking=True, rest_ms=-200)  # what comes later is cut off
    ((item, heard_ms),) = talk.speaker.flush()
    assert item == "item"
    assert 0 < heard_ms < talk.given * 1000 // 24000
    talk.run(800, live=True)
    talk.faultless()
    assert len(talk.heard[0]) > 16000 * 0.15
    talk.run(400, speaking=True)
    talk.faultless()


def test_the_microphone_does_not_take_the_clocks_from_a_speaker_at_work():
    board, machine = booted("esp32-s3-box-3", codec_chips())
    speaker, mic = board.speaker(), board.microphone()
    ended = []
    speaker.irq(ended.append)
    mic.irq(ended.append)
    out, heard = array("h", [1] * 384), array("h", [0] * 320)
    assert speaker.write(out) == 768
    assert mic.readinto(heard) == 640
    assert [i2s.mode for i2s in machine.open.values()] == [10]
    mic.again()  # as `wait` does
    assert ended == [mic]  # it ends, with nothing heard
    mic.readinto(heard)
    machine.sleep_ms(60)  # what is played has been handed over
    assert ended == [mic, speaker]
    mic.again()
    assert sorted([i2s.mode for i2s in machine.open.values()]) == [9, 10]  # with the master clock
    machine.sound = count
    machine.sleep_ms(60)
    assert ended == [mic, speaker, mic]


def test_a_board_without_use_for_sound_keeps_the_amplifier_off():
    for name in profiles():
        talk = Talk(name)
        if talk.duplex == "half":
            talk.run(100)
            assert talk.machine.open == {}
            talk.look()


def test_the_amplifier_comes_on_after_the_i2s_runs_and_goes_off_before_it_ends():
    for name in ("lilygo-t-circle-s3", "esp32-s3-box-3"):
        talk = Talk(name)
        talk.run(300, speaking=True)
        talk.board.safe()
        entry = talk.entry["speaker"]
        pin, unit = entry["amplifier"]["pin"], entry["unit"]
        log = [one for one in talk.machine.log if one[:2] in (("pin", pin), ("i2s", unit), ("closed", unit))]
        assert ("pin", pin, 1) not in log[: log.index(("i2s", unit, "tx"))]
        on = log.index(("pin", pin, 1))
        assert log.index(("closed", unit, "tx")) > log.index(("pin", pin, 0), on)
        assert talk.machine.open == {}


def test_safe_silences_every_board_and_leaves_its_ports_free():
    for name in profiles():
        talk = Talk(name)
        talk.run(200, live=True)
        talk.run(200, speaking=True)
        talk.board.safe()
        assert talk.machine.open == {}
        talk.look()
        talk.speaker.close()  # as the firmware's end does, after it
        talk.mic.close()
        talk.board.wait(None, 20)
        assert talk.machine.open == {}


def test_a_chip_that_is_gone_keeps_no_output_from_its_safe_level_and_no_port_open():
    talk = Talk("m5-atoms3r-echo-base")
    talk.run(200, speaking=True)
    talk.machine.chips.clear()
    talk.board.safe()
    assert talk.machine.open == {}


def test_a_closed_microphone_does_not_come_back():
    board, machine = booted("esp32-s3-box-3", codec_chips())
    mic = board.microphone()
    mic.irq(lambda port: None)
    mic.readinto(array("h", [0] * 320))
    board.safe()
    board.wait(None, 20)
    assert machine.open == {}


def test_a_port_that_a_soft_reset_left_open_is_opened_all_the_same():
    board, machine = booted("bread-compact-s3")
    machine.busy = {0, 1}
    board.speaker()
    board.microphone()
    assert sorted(machine.open) == [0, 1]


def test_a_stuck_i2s_is_opened_again():
    for name in ("bread-compact-s3", "esp32-s3-box-3"):
        talk = Talk(name)
        talk.run(300, live=True)
        unit = talk.entry["microphone"]["unit"]
        talk.machine.open[unit].engine.stuck = True
        talk.run(900, live=True)
        assert talk.mic.stalls == 1
        assert len(talk.heard[0]) > 16000 * 0.3
        talk.look()


def test_a_missing_codec_is_told_with_its_bus():
    for name, lost, way in [
        ("esp32-s3-box-3", 0x40, "microphone"),
        ("esp32-s3-box-3", 0x18, "speaker"),
        ("m5-atoms3r-echo-base", 0x43, "speaker"),
        ("waveshare-s3-audio-board", 0x20, "speaker"),
    ]:
        chips = codec_chips()
        del chips[lost]
        board, _ = booted(name, chips)
        bus = described(name)["i2c"]
        text = str(raises(ConfigError, getattr(board, way)))
        assert f"0x{lost:02x}" in text
        assert f"SDA {bus['sda']}, SCL {bus['scl']}" in text


def test_a_codec_that_is_lost_while_it_runs_is_a_crash_and_no_wrong_configuration():
    # So the board starts again, instead of waiting at its prompt.
    talk = Talk("esp32-s3-box-3")
    talk.run(200, live=True)
    del talk.machine.chips[0x18]
    raises(OSError, talk.run, 400, speaking=True)


def test_what_an_expander_holds_is_there_before_the_microphone():
    chips = codec_chips()
    chips[0x20].registers[2] = 0
    board, machine = booted("waveshare-s3-audio-board", chips)
    registers = machine.chips[0x20].registers
    board.microphone()
    assert registers[2] & 0x43 == 0x43
    assert registers[6] & 0x43 == 0
    assert registers[3] & 1 == 0  # the amplifier is off


def test_codecs_are_told_which_way_the_sound_goes():
    talk = Talk("m5-atoms3r-echo-base")
    registers = talk.machine.chips[0x18].registers
    talk.run(200, live=True)
    assert registers[0x02] == 2 << 3
    assert registers[0x31] == 0x60
    talk.run(300, speaking=True)
    assert registers[0x02] == 3 << 3
    assert registers[0x31] == 0
    talk.board.volume(0)
    assert registers[0x32] == 0
    talk.run(200, live=True)
    talk.run(300, speaking=True)
    assert registers[0x32] == 0  # as it was set


def test_a_frame_allocates_nothing():
    if sys.implementation.name != "micropython":
        raise SkipTest("no heap lock here")
    board = booted("bread-compact-s3")[0]
    mic, speaker = board.microphone(), board.speaker()
    mic.deinit()
    board._made["microphone"]["slot"] = "right"
    right = board.microphone()

    class Hardware:
        def readinto(self, buf):
            return len(buf)

        write = readinto

    hits = bytearray(1)

    class Listener:
        def advance(self, port):
            hits[0] += 1

    advance = Listener().advance
    buf = array("h", bytes(640))
    for port in (mic, right, speaker):
        port.irq(advance)
        hardware = port.i2s = Hardware()
        start = port.write if port.k else port.readinto
        start(buf)
        port.done(hardware)
        micropython.heap_lock()
        try:
            start(buf)
            port.done(hardware)
        finally:
            micropython.heap_unlock()
    assert hits[0] == 6
    micropython.heap_lock()
    try:
        board.wait(None, 0)
    finally:
        micropython.heap_unlock()
