"""speech/resample.py: rates, without delay, ripple or aliases."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vrt_host.speech.resample import Resampler

PAIRS = [(8000, 16000), (16000, 8000), (24000, 16000), (22050, 8000), (22050, 24000), (8000, 24000)]


def tone(hertz: float, rate: int, seconds: float = 0.5) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def fit(samples: np.ndarray, hertz: float, rate: int) -> tuple[float, float]:
    """Amplitude of the tone in `samples`, and what else there is, in dB below it."""
    phase = 2 * np.pi * hertz * np.arange(len(samples)) / rate
    basis = np.stack([np.sin(phase), np.cos(phase)], axis=1)
    found, *_ = np.linalg.lstsq(basis, samples, rcond=None)
    rest = samples - basis @ found
    return float(np.hypot(*found)), float(10 * np.log10((samples**2).mean() / (rest**2).mean()))


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("hertz", [300, 1000, 3000])
def test_resampler_keeps_a_tone(source, target, hertz):
    out = Resampler(source, target).process(tone(hertz, source))
    amplitude, clean_db = fit(out[400:-100], hertz, target)
    assert amplitude == pytest.approx(0.5, rel=0.01)
    assert clean_db > 60


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair[0] > pair[1]])
def test_resampler_removes_what_the_lower_rate_cannot_carry(source, target):
    out = Resampler(source, target).process(tone(target / 2 * 1.1, source))
    assert np.abs(out[200:]).max() < 0.5 * 10 ** (-55 / 20)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(PAIRS), st.lists(st.integers(0, 700), max_size=12))
def test_resampler_gives_the_same_however_the_stream_is_cut(pair, sizes):
    samples = np.random.default_rng(1).standard_normal(sum(sizes), np.float32)
    stream = Resampler(*pair)
    parts = []
    at = 0
    for size in sizes:
        parts.append(stream.process(samples[at : at + size]))
        at += size
        # nothing is held back: every sample whose time has come is out
        assert sum(map(len, parts)) == -(-at * pair[1] // pair[0])
    whole = Resampler(*pair).process(samples)
    assert np.allclose(np.concatenate([*parts, np.zeros(0, np.float32)]), whole, atol=1e-6)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_resampler_flush_pays_out_the_delay_and_starts_anew(source, target):
    stream = Resampler(source, target)
    click = np.zeros(source // 100, np.float32)
    click[-1] = 1.0
    first = np.concatenate([stream.process(click), stream.flush()])
    long = Resampler(source, target).process(np.concatenate([click, np.zeros(source // 10, np.float32)]))
    assert np.allclose(first, long[: len(first)])
    assert not long[len(first) :].any()
    assert np.abs(first[len(first) // 2 :]).max() > 0.1
    again = np.concatenate([stream.process(click), stream.flush()])
    assert np.allclose(first, again)


def test_resampler_delays_by_less_than_three_milliseconds():
    impulse = np.zeros(800, np.float32)
    impulse[100] = 1.0
    for source, target in PAIRS:
        out = Resampler(source, target).process(impulse)
        assert 0 <= np.argmax(np.abs(out)) / target - 100 / source < 0.003


def test_resampler_of_equal_rates_changes_nothing():
    samples = tone(440, 8000)
    assert Resampler(8000, 8000).process(samples) is samples


def test_resampler_refuses_a_rate_of_zero():
    with pytest.raises(ValueError, match="positive"):
        Resampler(0, 8000)
