"""WAV files: any common one in, as the 16 kHz mono that the simulated microphone hears; 16-bit ones out."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vrt_host.errors import UsageError
from vrt_host.speech.codec import to_pcm16
from vrt_host.speech.resample import resample

MIC_RATE = 16_000
"""Samples a second at the simulated microphone."""

Samples = NDArray[np.int16]

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_HINT = "convert it, for instance with `ffmpeg -i IN -ac 1 -ar 16000 OUT.wav`"


def load(path: Path) -> Samples:
    """The file as 16 kHz mono 16-bit samples; channels are averaged. Raises `UsageError` when it cannot be used."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    try:
        mono, rate = decode(data)
    except ValueError as error:
        raise UsageError(f"{path}: {error}; {_HINT}") from None
    if not len(mono):
        raise UsageError(f"{path}: there is no sound in it")
    return to_pcm16(resample(mono, rate, MIC_RATE))


def decode(data: bytes) -> tuple[NDArray[np.float32], int]:
    """A WAV file's sound as mono floats within -1..1 and its rate; raises `ValueError` with the reason."""
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise ValueError("not a WAV file")
    header, sound = None, None
    place = 12
    while place + 8 <= len(data) and (header is None or sound is None):
        name, size = data[place : place + 4], int.from_bytes(data[place + 4 : place + 8], "little")
        body = data[place + 8 : place + 8 + size]  # a recorder that was killed leaves a size beyond the end
        if name == b"fmt ":
            header = body
        elif name == b"data":
            sound = body
        place += 8 + size + (size & 1)
    if header is None or len(header) < 16:
        raise ValueError("a WAV file without a format")
    if sound is None:
        raise ValueError("a WAV file without sound data")
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", header)
    if kind == _EXTENSIBLE and len(header) >= 26:
        kind = int.from_bytes(header[24:26], "little")
    if not 1 <= channels <= 64:
        raise ValueError(f"{channels} channels are not supported")
    if not 4_000 <= rate <= 384_000:
        raise ValueError(f"a rate of {rate} Hz is not supported (4,000 to 384,000)")
    frame = channels * bits // 8
    flat = _to_float(sound[: len(sound) // frame * frame] if frame else b"", kind, bits)
    return flat.reshape(-1, channels).mean(axis=1, dtype=np.float32), rate


def _to_float(raw: bytes, kind: int, bits: int) -> NDArray[np.float32]:
    """Interleaved samples as floats within -1..1."""
    if kind == _PCM and bits in (8, 16, 24, 32):
        if bits == 8:
            whole = np.frombuffer(raw, np.uint8).astype(np.int32) - 128
        elif bits == 24:
            wide = np.zeros((len(raw) // 3, 4), np.uint8)
            wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
            whole = wide.view("<i4").reshape(-1) >> 8
        else:
            whole = np.frombuffer(raw, f"<i{bits // 8}").astype(np.int32)
        return np.asarray(whole, np.float32) / np.float32(2 ** (bits - 1))
    if kind == _FLOAT and bits in (32, 64):
        return np.nan_to_num(np.asarray(np.frombuffer(raw, f"<f{bits // 8}"), np.float32)).clip(-1, 1)
    raise ValueError(
        f"its encoding (format {kind}, {bits} bits) is not supported: PCM of 8, 16, 24, 32 bits or float is"
    )


def save(path: Path, samples: Samples, rate: int) -> None:
    """Write 16-bit samples, shaped (n,) for mono or (n, channels)."""
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    body = np.ascontiguousarray(samples, "<i2").tobytes()
    head = struct.pack("<4sI4s", b"RIFF", 36 + len(body), b"WAVE")
    head += struct.pack(
        "<4sIHHIIHH", b"fmt ", 16, _PCM, channels, rate, rate * channels * 2, channels * 2, 16
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(head + struct.pack("<4sI", b"data", len(body)) + body)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
