"""Sound that scenarios send and get, in the formats that every server can choose: pcm16 and pcmu (vRT §8.2)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vrt_host.conformance.checks import NotTestable
from vrt_host.conformance.client import Device
from vrt_host.protocol.wire import Message
from vrt_host.speech.codec import codec

PCMU: Message = {"encoding": "pcmu", "sampleRate": 8000}
PCM16: Message = {"encoding": "pcm16", "sampleRate": 24000}
FRAME_MS = 20
TONE_MS = 600
"""A voice that no server overhears."""
HZ = 300.0


def bytes_per_ms(format_: Message) -> float:
    """Payload bytes in a millisecond; raises `NotTestable` for packets, whose sizes say nothing."""
    if format_["encoding"] == "opus":
        raise NotTestable("the server speaks opus, whose packets do not tell their length")
    width, usual = (2, 24_000) if format_["encoding"] == "pcm16" else (1, 8_000)
    rate: int = format_.get("sampleRate", usual)
    return width * rate / 1000


def silence(format_: Message, ms: int = FRAME_MS) -> bytes:
    """A payload without sound."""
    return (b"\xff" if format_["encoding"] == "pcmu" else b"\0") * round(ms * bytes_per_ms(format_))


def voice(format_: Message) -> Iterator[bytes]:
    """Payloads of a loud tone."""
    size = round(FRAME_MS * bytes_per_ms(format_))
    rate = format_.get("sampleRate", 24_000 if format_["encoding"] == "pcm16" else 8_000)
    time = np.arange(TONE_MS * rate // 1000, dtype=np.float32) / rate
    octets = codec(format_["encoding"]).encode((0.5 * np.sin(2 * np.pi * HZ * time)).astype(np.float32))
    for place in range(0, len(octets), size):
        yield octets[place : place + size]


def sound_ms(device: Device, since: int = 0) -> float:
    """How much sound came on the connection."""
    octets = sum(len(frame.payload) for frame in device.line.sound(since))
    return octets / bytes_per_ms(device.ready["output"])


async def until_sound(device: Device, ms: int) -> None:
    """Wait until so much sound has come."""
    while sound_ms(device) < ms:
        await device.line.until_audio()
