"""Payloads to samples and back: G.711 mu-law and 16-bit PCM.

Inside `speech`, audio is a one-dimensional float32 array in [-1, 1), mono; only this module knows bytes.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vrt_host.errors import UsageError

Samples = NDArray[np.float32]
"""Mono audio, full scale 1.0."""


def _encode_table() -> NDArray[np.uint8]:
    """G.711 mu-law for every 16-bit sample, indexed by the sample's two's complement bits (14 bits count)."""
    value = np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int32) >> 2
    negative = value < 0
    magnitude = np.minimum(np.where(negative, -value, value), 8159) + 33
    exponent = np.searchsorted([0x3F, 0x7F, 0xFF, 0x1FF, 0x3FF, 0x7FF, 0xFFF, 0x1FFF], magnitude)
    code = np.where(exponent >= 8, 0x7F, (exponent << 4) | ((magnitude >> (exponent + 1)) & 15))
    return (np.where(negative, 0x7F, 0xFF) ^ code).astype(np.uint8)


def _decode_table() -> NDArray[np.int16]:
    code = ~np.arange(256, dtype=np.uint8)
    value = (((code & 15).astype(np.int32) << 3) + 0x84) << ((code >> 4) & 7)
    value -= 0x84
    return np.where(code & 0x80, -value, value).astype(np.int16)


_ULAW = _encode_table()
_LINEAR = _decode_table().astype(np.float32) / np.float32(32768)


def to_pcm16(samples: Samples) -> NDArray[np.int16]:
    """Samples as 16-bit integers; what is out of range is clipped."""
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)


def from_pcm16(values: NDArray[np.int16]) -> Samples:
    """16-bit integers as samples."""
    samples: Samples = values.astype(np.float32) / np.float32(32768)
    return samples


class Codec(Protocol):
    """One stream's encoding. Keeps at most a byte between calls, so one object serves one direction of one stream."""

    def decode(self, payload: bytes) -> Samples:
        """The samples of the next payload; bytes of a sample cut in two wait for their other half."""

    def encode(self, samples: Samples) -> bytes:
        """Payload bytes of the samples."""

    def reset(self) -> None:
        """Forget half a sample: the stream starts anew."""


class Pcmu:
    """G.711 mu-law."""

    def decode(self, payload: bytes) -> Samples:
        return _LINEAR[np.frombuffer(payload, np.uint8)]

    def encode(self, samples: Samples) -> bytes:
        return _ULAW[to_pcm16(samples).view(np.uint16)].tobytes()

    def reset(self) -> None:
        pass


class Pcm16:
    """Signed 16-bit little-endian."""

    def __init__(self) -> None:
        self._half = b""

    def decode(self, payload: bytes) -> Samples:
        data = self._half + payload
        whole = len(data) & ~1
        self._half = data[whole:]
        return from_pcm16(np.frombuffer(data[:whole], "<i2"))

    def encode(self, samples: Samples) -> bytes:
        return to_pcm16(samples).astype("<i2").tobytes()

    def reset(self) -> None:
        self._half = b""


def codec(encoding: str) -> Codec:
    """The codec of a vRT encoding (§8.2); UsageError for one we cannot read."""
    if encoding == "pcmu":
        return Pcmu()
    if encoding == "pcm16":
        return Pcm16()
    raise UsageError(f"the local agent cannot read {encoding!r} audio; use pcmu or pcm16")
