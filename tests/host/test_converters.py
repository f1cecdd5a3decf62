"""The DAC, the ADC and the room: exact samples at exact times, told the time instead of waiting for it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vrt_host.sim.converters import BLOCK, Adc, Dac, Echo, EchoPath, Room, Track, dma_blocks, pink_noise

RATE = 24_000
B = BLOCK / RATE
"""Seconds of a block."""


def sound(first: int, count: int) -> bytes:
    """Samples that are never zero and tell where they are."""
    return (1 + np.arange(first, first + count) % 30_000).astype(np.int16).tobytes()


def dac(blocks: int = 4) -> tuple[Dac, Track]:
    track = Track(RATE, 60)
    return Dac(RATE, blocks, 0.0, track), track


@pytest.mark.parametrize(
    ("ibuf", "frame_bytes", "blocks"), [(2048, 2, 4), (8192, 8, 4), (100, 2, 2), (1535, 2, 2), (1536, 2, 3)]
)
def test_dma_blocks_follow_the_rule_of_the_port(ibuf, frame_bytes, blocks):
    assert dma_blocks(ibuf, frame_bytes) == blocks


def test_dac_plays_silence_when_nothing_is_written():
    device, track = dac()
    assert device.advance(10.5 * B) == 0
    assert track.samples.tolist() == [0] * (11 * BLOCK)  # blocks 0 to 10 have begun
    assert device.due is None
    assert device.starved == 0


def test_dac_takes_as_much_as_its_dma_holds_and_the_rest_block_by_block():
    device, track = dac()
    device.advance(0.0)  # block 0 is being sent
    assert device.write(0.001, sound(0, 3 * BLOCK)) == 1  # the other three are free
    assert device.write(0.002, sound(3 * BLOCK, BLOCK + 1)) == 0
    assert device.due == pytest.approx(B)
    assert device.advance(0.99 * B) == 0
    assert device.advance(1 * B) == 0  # one block is free, one sample is left
    assert device.advance(2 * B) == 1
    device.advance(20 * B)
    assert [s for s in track.samples.tolist() if s] == np.frombuffer(
        sound(0, 4 * BLOCK + 1), np.int16
    ).tolist()
    assert track.samples[BLOCK] == 1  # what was written during block 0 begins with block 1
    assert device.starved == 1


def test_dac_serves_transfers_in_order():
    device, track = dac()
    done = 0
    for k in range(10):
        done += device.write(0.0, sound(k * 300, 300))
    for k in range(20):
        done += device.advance(k * B)
    assert done == 10
    assert [s for s in track.samples.tolist() if s] == np.frombuffer(sound(0, 3000), np.int16).tolist()


def test_dac_tells_when_sound_begins_and_ends():
    device, _ = dac()
    device.write(0.0, bytes(2 * 100) + sound(0, 1000))
    device.advance(1.0)
    assert device.changes == [(pytest.approx(B + 100 / RATE), True), (pytest.approx(B + 1100 / RATE), False)]
    assert device.due is None


def test_dac_does_not_call_a_short_gap_silence():
    device, _ = dac()
    device.write(0.0, sound(0, 1000) + bytes(2 * 2000) + sound(0, 1000))
    device.advance(1.0)
    assert [on for _, on in device.changes] == [True, False]


@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(0, 40_000)), min_size=1, max_size=30),
    st.integers(2, 6),
)
def test_dac_never_repeats_nor_loses_a_sample(transfers, blocks):
    device, track = dac(blocks)
    now, written, done = 0.0, 0, 0
    for count, wait_us in transfers:
        now += wait_us / 1e6
        done += device.write(now, sound(written, count))
        written += count
    done += device.advance(now + written / RATE + 2)
    assert done == len(transfers)
    played = track.samples
    assert played[played != 0].tolist() == np.frombuffer(sound(0, written), np.int16).tolist()


def test_dac_starves_to_silence_at_once():
    device, track = dac()
    device.write(0.0, sound(0, 700))
    device.advance(1.0)
    first = int(np.flatnonzero(track.samples)[0])
    assert track.samples[first : first + 700].all()
    assert not track.samples[first + 700 :].any()


def test_adc_serves_a_read_at_the_end_of_the_block_that_fills_it():
    room = Room()
    room.say(0.0, np.arange(1, 1001, dtype=np.int16))
    track = Track(16_000, 60)
    device = Adc(4, 0.0, room, track)
    assert device.read(0.0, 640) == []
    assert device.due == pytest.approx(0.016)
    assert device.advance(0.0319) == []
    (first,) = device.advance(0.0321)
    assert np.frombuffer(first, np.int16).tolist() == list(range(1, 321))
    (second,) = device.read(0.04, 384)  # what was left of the second block
    assert np.frombuffer(second, np.int16).tolist() == list(range(321, 513))
    assert device.read_samples == 512
    assert track.samples.tolist() == list(range(1, 513))


def test_adc_that_nobody_reads_keeps_the_newest():
    room = Room()
    room.say(0.0, np.arange(1, 10_001, dtype=np.int16))
    device = Adc(4, 0.0, room, Track(16_000, 60))
    assert device.due is None
    (got,) = device.read(10.5 * 0.016, 640)
    assert got == np.arange(10 * 256 - 768 + 1, 10 * 256 - 768 + 321, dtype=np.int16).tobytes()
    assert device.lost_samples == 10 * 256 - 768


def test_room_sounds_come_one_after_the_other_over_noise():
    room = Room()
    assert room.say(1.0, np.full(1600, 5, np.int16)) == (1.0, 1.1)
    assert room.say(1.0, np.full(1600, 7, np.int16)) == (1.1, pytest.approx(1.2))
    heard = room.listen(0, 32_000)
    assert heard[16_000:17_600].tolist() == [5] * 1600
    assert heard[17_600:19_200].tolist() == [7] * 1600
    assert not heard[:16_000].any()
    assert not heard[19_200:].any()


def test_room_hush_cuts_what_sounds_and_what_waits():
    room = Room()
    room.say(0.0, np.full(1600, 5, np.int16))
    room.say(0.0, np.full(1600, 7, np.int16))
    room.hush(0.05)
    heard = room.listen(0, 4800)
    assert heard.tolist() == [5] * 800 + [0] * 4000
    assert room.say(0.1, np.full(10, 9, np.int16)) == (0.1, pytest.approx(0.100625))


def test_room_noise_is_added_and_clipped():
    room = Room(noise_rms=300.0, seed=1)
    room.say(0.0, np.full(16_000, 32_767, np.int16))
    heard = room.listen(0, 32_000)
    assert heard[:16_000].max() == 32_767
    assert 250 < np.std(heard[16_000:]) < 350


def test_pink_noise_has_equal_power_in_every_octave():
    noise = pink_noise(16_000 * 8, 1000.0, 3)
    assert np.std(noise) == pytest.approx(1000, rel=0.01)
    power = np.abs(np.fft.rfft(noise)) ** 2
    frequency = np.fft.rfftfreq(len(noise), 1 / 16_000)
    octaves = [power[(frequency >= low) & (frequency < 2 * low)].sum() for low in (50, 200, 800, 3200)]
    assert max(octaves) / min(octaves) < 1.3


def test_track_keeps_time_through_gaps():
    track = Track(1000, 10)
    track.append(5.0, np.full(100, 1, np.int16).tobytes())
    track.append(5.2, np.full(100, 2, np.int16).tobytes())
    assert track.start == 5.0
    assert track.samples.tolist() == [1] * 100 + [0] * 100 + [2] * 100
    assert track.between(5.05, 5.25).tolist() == [1] * 50 + [0] * 100 + [2] * 50


def test_track_forgets_the_oldest():
    track = Track(1000, 1)
    for k in range(100):
        track.append(k * 0.1, np.full(100, k, np.int16).tobytes())
    assert len(track.samples) <= 1125
    assert track.start + len(track.samples) / 1000 == pytest.approx(10.0)
    assert track.samples[-1] == 99
    assert track.between(9.5, 9.6).tolist() == [95] * 100


def track_of(samples: np.ndarray, at: float = 0.0) -> Track:
    track = Track(RATE, 60)
    track.append(at, samples.astype(np.int16).tobytes())
    return track


def heard(path: EchoPath, seconds: float, block: int = BLOCK) -> np.ndarray:
    """What the microphone hears, asked for block by block."""
    room = Room(echo=path)
    return np.concatenate([room.listen(first, block) for first in range(0, int(16_000 * seconds), block)])


def rms(samples: np.ndarray) -> float:
    return float(np.sqrt(np.mean(samples.astype(float) ** 2)))


def test_track_window_is_zero_where_nothing_is_held():
    track = track_of(np.arange(1, 101), at=1.0)
    assert track.window(1.0 - 3 / RATE, 5).tolist() == [0, 0, 0, 1, 2]
    assert track.window(1.0 + 98 / RATE, 4).tolist() == [99, 100, 0, 0]
    assert track.window(0.0, 2).tolist() == track.window(2.0, 2).tolist() == [0, 0]
    assert Track(RATE, 60).window(0.5, 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize("delay_ms", [0, 2, 100])
@pytest.mark.parametrize("loss_db", [-6, 0, 30])
def test_echo_is_the_speakers_sound_later_and_weaker(loss_db, delay_ms):
    t = np.arange(RATE) / RATE
    played = 8_000 * np.sin(2 * np.pi * 700 * t) * (t > 0.1)
    out = heard(EchoPath(Echo(loss_db, delay_ms), track_of(played)), 1.0)
    u = np.arange(len(out)) / 16_000 - delay_ms / 1000
    wanted = 10 ** (-loss_db / 20) * 8_000 * np.sin(2 * np.pi * 700 * u) * (u > 0.1) * (u < 0.98)
    inside = (u > 0.11) & (u < 0.97)
    assert np.abs(out - wanted)[inside].max() < 3 + 0.01 * np.abs(wanted).max()
    assert not out[u < 0.098].any()


def test_echo_of_a_room_lasts_and_keeps_the_loss():
    noise = np.random.default_rng(1).normal(0, 6_000, RATE).round()
    played = np.concatenate([noise, np.zeros(RATE)])
    out = heard(EchoPath(Echo(20, 5, room_ms=400), track_of(played)), 2.0)
    band = 0.9 * 16_000 / RATE  # of the noise's band the microphone hears so much
    assert rms(out[8_000:16_000]) == pytest.approx(600 * band**0.5, rel=0.1)
    assert rms(out[16_000 + 1_600 : 16_000 + 2_400]) > 20  # 100 to 150 ms later
    assert rms(out[16_000 + 9_000 :]) < 1


def test_echo_has_no_seams_between_blocks():
    noise = np.random.default_rng(2).normal(0, 6_000, RATE).round()
    path = EchoPath(Echo(6, 3, room_ms=50), track_of(noise))
    assert heard(path, 0.96, block=256).tolist()[:15_360] == heard(path, 0.96, block=15_360).tolist()
