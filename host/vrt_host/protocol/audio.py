"""Audio frames: one byte of kind, four of sequence, the payload (vRT §8.1)."""

from __future__ import annotations

import struct

from vrt_host.protocol.wire import WireError

INPUT = 1
OUTPUT = 2

HEADER_BYTES = 5
_HEADER = struct.Struct(">BI")


def encode(kind: int, seq: int, payload: bytes) -> bytes:
    """A binary frame; `seq` wraps modulo 2^32."""
    return _HEADER.pack(kind, seq & 0xFFFF_FFFF) + payload


def decode(frame: bytes, kind: int) -> tuple[int, bytes]:
    """The seq and the payload of a frame of the one kind that the receiver takes, or `WireError`."""
    if len(frame) < HEADER_BYTES:
        raise WireError("MALFORMED", f"an audio frame of {len(frame)} bytes has no header")
    got, seq = _HEADER.unpack_from(frame)
    if got != kind:
        raise WireError("MALFORMED", f"this side takes audio frames of kind {kind}, not {got}")
    return seq, frame[HEADER_BYTES:]
