"""speech/resample.py: rates, without delay, ripple or aliases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vrt_host.speech.resample import Resampler, resample

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
    assert amplitude == pytest.approx(
        0.5, rel=0.06 if hertz == 3000 else 0.01
    )  # the filter begins to fall there
    assert clean_db > 60


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair[0] > pair[1]])
def test_resampler_removes_what_the_lower_rate_cannot_carry(source, target):
    out = Resampler(source, target).process(tone(target / 2 * 1.1, source))
    assert np.abs(out[200:]).max() < 0.5 * 10 ** (-55 / 20)


@given(st.sampled_from(PAIRS), st.lists(st.integers(0, 700), max_size=12))
def test_resampler_gives_the_same_however_the_stream_is_cut(pair, sizes):
    samples = np.random.default_rng(1).standard_normal(sum(sizes) + 700, np.float32)
    stream = Resampler(*pair)
    parts = []
    at = 0
    for size in [*sizes, 700]:
        parts.append(stream.process(samples[at : at + size]))
        at += size
    cut = np.concatenate(parts)
    whole = resample(samples, *pair)
    assert len(cut) > 0
    assert np.allclose(cut, whole[: len(cut)], atol=1e-4)


def test_resampler_starts_anew():
    stream = Resampler(8000, 16000)
    samples = tone(440, 8000)
    first = stream.process(samples)
    stream.reset()
    assert np.array_equal(first, stream.process(samples))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_resampler_holds_back_less_than_three_milliseconds(source, target):
    stream = Resampler(source, target)
    frame = np.zeros(source // 50, np.float32)
    given_s = got_s = 0.0
    for _ in range(50):
        got_s += len(stream.process(frame)) / target
        given_s += len(frame) / source
        assert given_s - got_s < 0.003


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_resample_keeps_length_and_place(source, target):
    click = np.zeros(source, np.float32)
    click[source // 2] = 1.0
    out = resample(click, source, target)
    assert abs(len(out) - target) <= 1
    assert abs(int(np.argmax(np.abs(out))) - target // 2) <= 1


def test_resampler_of_equal_rates_changes_nothing():
    samples = tone(440, 8000)
    assert Resampler(8000, 8000).process(samples) is samples


def test_resampler_refuses_a_rate_of_zero():
    with pytest.raises(ValueError, match="positive"):
        Resampler(0, 8000)
