"""Audio as AITP carries it, with a type, to and from PCM."""

from __future__ import annotations

import re
import struct

from vrt_host.agents import aitp_messages as messages
from vrt_host.speech.codec import codec
from vrt_host.speech.resample import Resampler

_RATES = range(4_000, 192_001)
_HEAD = 65_536
"""Bytes of a recording before its samples."""


class Unplayable(ValueError):
    """It is no PCM of 16 bits with one channel."""


class Sound:
    """What comes of one audio item, as pcm16 at `OUTPUT_RATE`, whatever the rate that a server sends."""

    def __init__(self) -> None:
        self._rate = 0
        self._resampler: Resampler | None = None
        self._odd = b""
        self._codec = codec("pcm16")

    def feed(self, data: bytes, mime: str) -> bytes:
        """The next payload; raises `Unplayable`."""
        rate, pcm = _pcm(data, mime)
        if rate != self._rate:
            self._rate, self._odd = rate, b""
            self._resampler = None if rate == messages.OUTPUT_RATE else Resampler(rate, messages.OUTPUT_RATE)
        pcm = self._odd + pcm
        cut = len(pcm) // 2 * 2
        self._odd = pcm[cut:]
        if self._resampler is None:
            return pcm[:cut]
        return self._codec.encode(self._resampler.process(self._codec.decode(pcm[:cut])))

    def end(self) -> bytes:
        """What is held back."""
        return b"" if self._resampler is None else self._codec.encode(self._resampler.end())


def _pcm(raw: bytes, mime: str) -> tuple[int, bytes]:
    """The rate and the samples. A recording says itself what it is: the page's own example has one under the type of PCM."""
    if raw[:4] == b"RIFF" and raw[8:12] == b"WAVE":
        return _wav(raw)
    kind, *parameters = [part.strip() for part in mime.lower().split(";")]
    if kind not in ("audio/pcm", "audio/l16", "audio/raw", "audio/x-raw"):
        raise Unplayable(f"audio of the type {mime[:60]}")
    given = dict(part.split("=", 1) for part in parameters if "=" in part)
    rate, channels = (given.get(name, usual) for name, usual in (("rate", "24000"), ("channels", "1")))
    if not re.fullmatch(r"\d{4,6}", rate) or int(rate) not in _RATES or channels != "1":
        raise Unplayable(f"audio of the type {mime[:60]}")
    return int(rate), raw


def _wav(raw: bytes) -> tuple[int, bytes]:
    place, rate = 12, 0
    while place + 8 <= len(raw):
        if place >= _HEAD:
            raise Unplayable("a recording whose samples do not begin")
        name, size = struct.unpack_from("<4sI", raw, place)
        body = raw[place + 8 : place + 8 + size]
        if name == b"fmt " and len(body) >= 16:
            kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
            if kind not in (1, 0xFFFE) or channels != 1 or bits != 16 or rate not in _RATES:
                raise Unplayable("a recording that is not mono PCM of 16 bits")
        elif name == b"data" and rate:
            return rate, body  # a streamed recording has a size that is not known yet: all there is
        place += 8 + size + size % 2
    return rate or messages.OUTPUT_RATE, b""


def recording(pcm: bytes, rate: int) -> bytes:
    """PCM of 16 bits as a WAV file."""
    head = struct.pack(
        "<4sI4s4sIHHIIHH", b"RIFF", 36 + len(pcm), b"WAVE", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16
    )
    return head + struct.pack("<4sI", b"data", len(pcm)) + pcm
