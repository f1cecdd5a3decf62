import struct

import numpy as np
import pytest
from vrt_host.errors import UsageError
from vrt_host.sim import wav
from vrt_host.speech.codec import to_pcm16
from vrt_host.speech.resample import resample


def tone(rate, seconds=0.5, hz=440.0, level=0.5):
    return (level * np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def riff(kind, bits, channels, rate, body, *, extra=b"", fmt_size=16, before=b"", data_size=None):
    fmt = (
        struct.pack("<HHIIHH", kind, channels, rate, rate * channels * bits // 8, channels * bits // 8, bits)
        + extra
    )
    chunks = before + b"fmt " + struct.pack("<I", len(fmt[: fmt_size + len(extra)])) + fmt
    chunks += b"data" + struct.pack("<I", len(body) if data_size is None else data_size) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def body_of(sound, kind, bits):
    if kind == 3:
        return sound.astype(f"<f{bits // 8}").tobytes()
    if bits == 8:
        return (sound * 127 + 128).astype(np.uint8).tobytes()
    if bits == 24:
        return (sound * (2**23 - 1)).astype("<i4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    return (sound.astype(np.float64) * (2 ** (bits - 1) - 1)).astype(f"<i{bits // 8}").tobytes()


@pytest.mark.parametrize(("kind", "bits"), [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)])
def test_wav_reads_every_common_width(kind, bits):
    sound = tone(16_000)
    mono, rate = wav.decode(riff(kind, bits, 1, 16_000, body_of(sound, kind, bits)))
    assert rate == 16_000
    assert np.abs(mono - sound).max() < 0.02 if bits == 8 else np.abs(mono - sound).max() < 1e-4


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 24_000, 44_100, 48_000, 96_000])
def test_wav_converts_every_common_rate(tmp_path, rate):
    path = tmp_path / "a.wav"
    path.write_bytes(riff(1, 16, 1, rate, body_of(tone(rate), 1, 16)))
    heard = wav.load(path)
    assert heard.dtype == np.int16
    assert abs(len(heard) - 8_000) <= 2
    middle = heard[2_000:6_000].astype(np.float64)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    assert spectrum.argmax() * 16_000 / len(middle) == pytest.approx(440, abs=4)
    assert np.abs(middle).max() == pytest.approx(16_384, rel=0.02)


def test_wav_averages_channels():
    left, right = tone(16_000), np.zeros(8_000, np.float32)
    both = np.stack([left, right], axis=1).reshape(-1)
    mono, _ = wav.decode(riff(1, 16, 2, 16_000, body_of(both, 1, 16)))
    assert np.abs(mono - left / 2).max() < 1e-4


def test_wav_reads_the_extensible_form_and_skips_other_chunks():
    sound = tone(16_000)
    extra = struct.pack("<HHIH", 22, 16, 4, 1) + bytes(14)
    odd = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    mono, _ = wav.decode(riff(0xFFFE, 16, 1, 16_000, body_of(sound, 1, 16), extra=extra, before=odd))
    assert np.abs(mono - sound).max() < 1e-4


def test_wav_reads_what_is_there_when_the_recorder_was_killed():
    sound = tone(16_000)
    mono, _ = wav.decode(riff(1, 16, 1, 16_000, body_of(sound, 1, 16) + b"\x01", data_size=0xFFFFFFFF))
    assert len(mono) == len(sound)


def test_wav_floats_that_are_no_number_become_silence():
    mono, _ = wav.decode(riff(3, 32, 1, 16_000, np.array([np.nan, np.inf, 0.5], "<f4").tobytes()))
    assert mono.tolist() == [0.0, 1.0, 0.5]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a WAV file"),
        (b"ID3\x04 an MP3, say", "not a WAV file"),
        (b"RIFF\x04\0\0\0WAVE", "without a format"),
        (riff(1, 16, 1, 16_000, b"")[:36], "without sound data"),
        (riff(6, 8, 1, 8_000, b"\0" * 80), "encoding"),
        (riff(1, 12, 1, 8_000, b"\0" * 80), "encoding"),
        (riff(1, 0, 1, 8_000, b"\0" * 80), "encoding"),
        (riff(1, 16, 0, 8_000, b"\0" * 80), "0 channels"),
        (riff(1, 16, 1, 0, b"\0" * 80), "0 Hz"),
        (riff(1, 16, 1, 16_000, b""), "no sound"),
    ],
)
def test_wav_says_in_one_line_why_a_file_cannot_be_used(tmp_path, data, reason):
    path = tmp_path / "bad.wav"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=reason) as caught:
        wav.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wav_says_which_file_is_missing(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*nowhere\.wav: No such file"):
        wav.load(tmp_path / "nowhere.wav")
    with pytest.raises(UsageError, match="cannot read"):
        wav.load(tmp_path)


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
def test_wav_keeps_sounds_in_their_place(rate):
    sound = np.zeros(3 * rate, np.float32)
    sound[rate : rate + rate // 10] = tone(rate, 0.1)
    heard = np.abs(resample(sound, rate, 16_000)) > 0.05
    assert np.flatnonzero(heard)[0] == pytest.approx(16_000, abs=16)
    assert np.flatnonzero(heard)[-1] == pytest.approx(17_600, abs=16)


def test_wav_saves_what_it_loads(tmp_path):
    path = tmp_path / "deep" / "out.wav"
    sound = to_pcm16(tone(16_000))
    wav.save(path, sound, 16_000)
    assert np.abs(wav.load(path).astype(int) - sound).max() <= 1
    wav.save(path, np.stack([sound, sound], axis=1), 24_000)
    assert wav.decode(path.read_bytes())[1] == 24_000


def test_wav_says_when_it_cannot_save(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        wav.save(tmp_path / "file" / "out.wav", np.zeros(1, np.int16), 16_000)
