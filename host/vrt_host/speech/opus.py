"""Opus packets to samples and back, by libopus.

The package `opuslib_next` comes with the extra `opus`, which brings libopus too; the distribution `opuslib-next` with a libopus of
the system serves as well. It is loaded when it is first needed: most sessions pass packets through unopened.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from vrt_host.errors import UsageError
from vrt_host.protocol import opus
from vrt_host.speech.codec import Samples

RATES = (8_000, 12_000, 16_000, 24_000, 48_000)
"""The sample rates that libopus converts from and to by itself."""
PACKET_S = 0.020
BITRATE = 32_000
"""More than speech needs: what a model hears must not suffer."""


def rate_for(other: int) -> int:
    """The rate to decode to, or to encode from, when the other side has `other`."""
    return other if other in RATES else 48_000


def load() -> Any:
    """The module `opuslib_next`; raises `UsageError`, one line that says what to install."""
    try:
        return importlib.import_module("opuslib_next")
    except ModuleNotFoundError:
        raise UsageError('Opus audio needs libopus: pip install "vrt-edge[opus]"') from None
    except Exception as error:  # `opuslib-next` raises just that when there is no libopus
        raise UsageError(
            f'libopus cannot be loaded ({error}); pip install "vrt-edge[opus]" brings one'
        ) from None


class Decoder:
    """One stream of packets. `faults` counts those that were lost or broken."""

    def __init__(self, rate: int) -> None:
        """`rate` is one of `RATES`; raises `UsageError` without libopus."""
        self._library = load()
        self._rate = rate
        self._state = self._library.Decoder(rate, 1)
        self._last_s = PACKET_S
        self.faults = 0

    def decode(self, packet: bytes) -> Samples:
        """The samples of the next packet. An empty one stands for a lost one: what cannot be decoded is silence of its length."""
        seconds = opus.seconds(packet)
        count = round((seconds or self._last_s) * self._rate)
        if seconds:
            self._last_s = seconds
            try:
                return np.frombuffer(self._state.decode_float(packet, count), np.float32)
            except self._library.OpusError:
                pass
        self.faults += 1
        return np.zeros(count, np.float32)


class Encoder:
    """One stream of samples, as packets of 20 ms."""

    def __init__(self, rate: int) -> None:
        """`rate` is one of `RATES`; raises `UsageError` without libopus."""
        self._state = load().Encoder(rate, 1, "audio")
        self._state.bitrate = BITRATE
        self._count = round(rate * PACKET_S)
        self._rest = np.zeros(0, np.float32)

    def encode(self, samples: Samples) -> list[bytes]:
        """The packets that are full now; the rest waits for more samples."""
        samples = np.concatenate((self._rest, samples), dtype=np.float32)
        whole = len(samples) // self._count * self._count
        self._rest = samples[whole:]
        return [
            self._state.encode_float(part.tobytes(), self._count)
            for part in np.split(samples[:whole], whole // self._count or 1)
            if len(part)
        ]
