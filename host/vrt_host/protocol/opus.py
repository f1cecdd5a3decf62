"""Opus packets, of which vRT carries one in a frame (§8.2): how long they sound. Decoding them is `speech.opus`' affair."""

from __future__ import annotations

MAX_S = 0.12
"""The longest packet there is (RFC 6716 §3.2.5)."""
_SILK = (0.010, 0.020, 0.040, 0.060)
_CELT = (0.0025, 0.005, 0.010, 0.020)
_FRAMES_S = (*_SILK * 3, *_SILK[:2] * 2, *_CELT * 4)
"""Length of a frame by the upper five bits of the first byte (RFC 6716 §3.1)."""


def seconds(packet: bytes) -> float:
    """How long a packet sounds; 0 for what cannot be one. Looks at its first two bytes alone."""
    if not packet:
        return 0.0
    frame_s = _FRAMES_S[packet[0] >> 3]
    code = packet[0] & 3
    if code < 2:
        return frame_s * (code + 1)
    if code == 2:
        return frame_s * 2
    count = packet[1] & 0x3F if len(packet) > 1 else 0
    return count * frame_s if count * frame_s <= MAX_S + 1e-9 else 0.0
