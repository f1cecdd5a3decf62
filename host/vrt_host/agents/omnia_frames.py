"""Omnia's binary frames, both ways: a header of 32 bytes, metadata as JSON, the payload (page, "Binary frame structure")."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from vrt_host.agents.base import Json

_HEADER = struct.Struct(">4sBBHIII12s")
_MAGIC, _VERSION = b"OMNI", 1
MEDIA_CHUNK = 1
CHUNKED, IS_LAST = 2, 4
"""Flags; 1 is reserved, and not read."""
NO_MEDIA = bytes(12)
"""The media of a realtime session has no name."""
TRANSFER_BYTES = 1 << 24
"""Of one transfer in chunks."""
_TRANSFERS = 4
"""At once, each of another medium."""


class FrameError(ValueError):
    """A frame that is not right; the text says why."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One binary frame, or the whole that came in several."""

    payload: bytes
    sequence: int = 0
    """Which frame of its stream it is; of those in a transfer: which chunk."""
    metadata: Mapping[str, Json] = field(default_factory=dict)
    media_id: bytes = NO_MEDIA
    flags: int = 0

    @property
    def last(self) -> bool:
        """Whether it ends its stream."""
        return bool(self.flags & IS_LAST)


def encode(frame: Frame) -> bytes:
    """A frame as it is sent. It is a single one: what we send is a tenth of a second of audio."""
    metadata = json.dumps(frame.metadata, separators=(",", ":")).encode()
    sizes = len(metadata), len(frame.payload)
    head = _HEADER.pack(
        _MAGIC, _VERSION, frame.flags, MEDIA_CHUNK, *sizes, frame.sequence & 0xFFFFFFFF, frame.media_id
    )
    return head + metadata + frame.payload


def decode(data: bytes) -> Frame:
    """A frame that came; raises `FrameError`. Bytes beyond the declared lengths are ignored, metadata that is no object too."""
    if len(data) < _HEADER.size:
        raise FrameError(f"it has {len(data)} bytes, fewer than its header")
    magic, version, flags, kind, metadata, payload, sequence, media_id = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise FrameError("it does not begin with OMNI")
    if version != _VERSION:
        raise FrameError(f"it is of version {version}, and {_VERSION} is spoken here")
    if kind != MEDIA_CHUNK:
        raise FrameError(f"its message type is {kind}, and only {MEDIA_CHUNK} exists")
    start = _HEADER.size + metadata
    if start > len(data):
        raise FrameError("its metadata is longer than the frame")
    if start + payload > len(data):
        raise FrameError("its payload is longer than the frame")
    try:
        told = json.loads(data[_HEADER.size : start])
    except (ValueError, RecursionError):
        told = None
    return Frame(
        data[start : start + payload], sequence, told if isinstance(told, dict) else {}, media_id, flags
    )


class Assembly:
    """Puts transfers in chunks together, one per stream at a time."""

    def __init__(self) -> None:
        self._open: dict[bytes, tuple[int, bytearray]] = {}

    def feed(self, frame: Frame) -> Frame | None:
        """The whole, when it is complete; raises `FrameError` for a chunk that does not fit, and the transfer is dropped."""
        if not frame.flags & CHUNKED:
            if self._open.pop(frame.media_id, None) is not None:
                raise FrameError("it comes in the midst of a transfer in chunks")
            return frame
        total = frame.metadata.get("total_chunks")
        count, whole = self._open.pop(frame.media_id, (0, bytearray()))
        if not isinstance(total, int) or isinstance(total, bool) or total < 1:
            raise FrameError("it is a chunk, and does not say of how many")
        if frame.sequence != count or frame.sequence >= total:
            raise FrameError(f"it is chunk {frame.sequence} of {total:.6g}, and {count} should come")
        whole += frame.payload
        if len(whole) > TRANSFER_BYTES:
            raise FrameError(f"its transfer has more than {TRANSFER_BYTES:,} bytes")
        if count + 1 < total:
            self._open[frame.media_id] = count + 1, whole
            if len(self._open) > _TRANSFERS:
                del self._open[next(iter(self._open))]
            return None
        return Frame(bytes(whole), 0, frame.metadata, frame.media_id, frame.flags)
