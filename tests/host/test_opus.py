"""protocol/opus.py and speech/opus.py, against libopus itself."""

import importlib
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vrt_host.errors import UsageError
from vrt_host.protocol import opus as packets
from vrt_host.speech import opus

HZ = 440.0


@pytest.fixture(name="library", scope="module")
def _library():
    return pytest.importorskip("opuslib_next", reason="the extra `opus` is not installed")


def tone(rate, seconds=1.0, level=0.3):
    return (level * np.sin(2 * np.pi * HZ * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def delay(sent, got, rate):
    """Samples by which `got` lags behind `sent`, both of noise: the best match within 30 ms."""
    reach = int(rate * 0.03)
    part = sent[reach:-reach]
    scores = [float(part @ got[reach + lag : reach + lag + len(part)]) for lag in range(-reach, reach)]
    return int(np.argmax(scores)) - reach


def noise(rate, seconds=1.0):
    """Noise of speech's band, which Opus keeps the shape of."""
    spectrum = np.fft.rfft(np.random.default_rng(7).standard_normal(int(rate * seconds)))
    hertz = np.fft.rfftfreq(int(rate * seconds), 1 / rate)
    spectrum[(hertz < 200) | (hertz > 3000)] = 0
    shaped = np.fft.irfft(spectrum)
    return (0.3 * shaped / np.abs(shaped).max()).astype(np.float32)


# --- how long a packet sounds


def test_length_of_a_packet_is_what_libopus_says(library):
    decoder = importlib.import_module("opuslib_next.api.decoder")
    for toc in range(256):
        for second in (0, 1, 2, 3, 6, 12, 48, 63, 64 + 5, 0xFF):
            packet = bytes((toc, second)).ljust(40, b"\1")
            try:
                # Of a state, since that applies the bound of 120 ms as well.
                count = decoder.get_nb_samples(decoder.create_state(48_000, 1), packet, len(packet))
            except library.OpusError:
                count = 0
            assert packets.seconds(packet) * 48_000 == pytest.approx(count), (toc, second)


@given(st.binary(max_size=4))
def test_length_of_any_packet_is_bounded(packet):
    assert 0 <= packets.seconds(packet) <= packets.MAX_S + 1e-9


# --- there and back


@pytest.mark.parametrize("rate", opus.RATES)
def test_sound_comes_back_with_its_energy_and_in_its_place(library, rate):
    sent = noise(rate)
    encoder, decoder = opus.Encoder(rate), opus.Decoder(rate)
    got = np.concatenate([decoder.decode(packet) for packet in encoder.encode(sent)])
    assert len(got) == len(sent)
    assert (got**2).mean() == pytest.approx((sent**2).mean(), rel=0.2)
    assert 0 <= delay(sent, got, rate) <= 0.010 * rate  # the look-ahead of the codec
    assert decoder.faults == 0


@pytest.mark.parametrize(("there", "back"), [(8_000, 48_000), (48_000, 8_000), (24_000, 16_000)])
def test_packets_are_decoded_at_any_rate(library, there, back):
    decoder = opus.Decoder(back)
    got = np.concatenate([decoder.decode(packet) for packet in opus.Encoder(there).encode(tone(there))])
    assert len(got) == back
    phase = 2 * np.pi * HZ * np.arange(back) / back
    middle = slice(back // 4, -back // 8)
    basis = np.stack([np.sin(phase), np.cos(phase)], axis=1)[middle]
    found, *_ = np.linalg.lstsq(basis, got[middle], rcond=None)
    assert float(np.hypot(*found)) == pytest.approx(0.3, rel=0.1)


@settings(max_examples=8)
@given(st.lists(st.integers(0, 3000), max_size=8))
def test_packets_are_the_same_however_the_samples_are_cut(library, sizes):
    samples = noise(16_000, 0.4)
    encoder, at, cut = opus.Encoder(16_000), 0, []
    for size in [*sizes, len(samples)]:
        cut += encoder.encode(samples[at : at + size])
        at += size
    assert cut == opus.Encoder(16_000).encode(samples)
    assert len(cut) == 20
    assert all(packets.seconds(packet) == 0.020 for packet in cut)


def test_rate_that_libopus_lacks_is_left_to_the_resampler():
    assert [opus.rate_for(rate) for rate in (8_000, 24_000, 22_050, 44_100)] == [
        8_000,
        24_000,
        48_000,
        48_000,
    ]


# --- what is broken


@pytest.mark.parametrize(
    ("broken", "ms"),
    [
        (b"", 60),  # lost: as long as the one before
        (b"\x03", 60),  # a code that needs another byte
        (bytes((1 << 3 | 3, 63)) + b"x" * 9, 60),  # 63 frames are too many
        (bytes((1 << 3 | 1, 0)), 40),  # two frames of 20 ms cannot share one byte
        (bytes((2 << 3 | 3, 0x82, 0xFF)), 80),  # padding longer than the packet
    ],
)
def test_broken_packet_is_silence_of_its_length_and_counted(library, broken, ms):
    decoder = opus.Decoder(16_000)
    before = library.Encoder(16_000, 1, "voip").encode_float(tone(16_000, 0.06).tobytes(), 960)
    assert len(decoder.decode(before)) == 960
    silence = decoder.decode(broken)
    assert len(silence) == 16 * ms
    assert not silence.any()
    assert decoder.faults == 1
    assert len(decoder.decode(before)) == 960
    assert decoder.faults == 1


@given(st.lists(st.binary(max_size=200), max_size=6))
def test_no_packet_raises_and_every_one_takes_time(library, stream):
    decoder = opus.Decoder(8_000)
    for packet in stream:
        samples = decoder.decode(packet)
        assert 0 < len(samples) <= packets.MAX_S * 8_000
        assert np.isfinite(samples).all()


# --- without libopus


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("no"), OSError("wrong machine"), Exception("no libopus")]
)
def test_missing_library_is_one_line_that_names_the_extra(monkeypatch, error):
    def fail(name):
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(UsageError, match=r'pip install "vrt-edge\[opus\]"') as caught:
        opus.Decoder(8_000)
    assert "\n" not in str(caught.value)


def test_library_is_not_loaded_by_the_module():
    assert "opuslib_next" not in vars(sys.modules["vrt_host.speech.opus"])
