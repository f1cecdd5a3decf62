"""Omnia's binary WebSocket frames: a header of 32 bytes, JSON metadata, raw audio (page, "Binary WebSocket frames")."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vrt_host.agents.base import Json
from vrt_host.errors import VrtError
from vrt_host.protocol.wire import loads

VERSION = 1
MEDIA_CHUNK = 1
"""The only type of message."""
CHUNKED = 0x02
IS_LAST = 0x04
WHOLE_BYTES = 1_048_576
"""A longer payload is split."""
CHUNK_BYTES = 65_536
METADATA_BYTES = 16_384
"""Longer metadata are not looked at."""

_HEADER = struct.Struct(">4sBBHIII12s")
_MAGIC = b"OMNI"
_NO_ID = bytes(12)
"""The MediaID of frames of a call."""


class FrameError(VrtError):
    """What is wrong with a frame, in the facade's words."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One that came. Metadata that is no JSON object, or too long, is empty; a call needs none."""

    last: bool
    metadata: Mapping[str, Json]
    payload: bytes

    def parts(self, size: int) -> Iterator[Frame]:
        """The same in frames of at most so many bytes of audio."""
        ends = range(size, len(self.payload), size)
        for end in ends:
            yield Frame(False, self.metadata, self.payload[end - size : end])
        yield Frame(self.last, self.metadata, self.payload[len(ends) * size :])


def decode(data: bytes) -> Frame:
    """Take a frame apart; bytes behind the lengths that it declares are left out. Raises `FrameError`."""
    if len(data) < _HEADER.size:
        raise FrameError("invalid binary frame: invalid header size")
    magic, version, flags, kind, told, size, _, _ = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise FrameError("invalid binary frame: invalid magic bytes")
    if version != VERSION:
        raise FrameError(
            f"invalid binary frame: unsupported binary protocol version: got {version}, expected {VERSION}"
        )
    start = _HEADER.size + told
    if start > len(data):
        raise FrameError("invalid binary frame: metadata length exceeds frame size")
    if start + size > len(data):
        raise FrameError("invalid binary frame: payload length exceeds frame size")
    if kind != MEDIA_CHUNK:
        raise FrameError("unknown binary message type")
    return Frame(bool(flags & IS_LAST), _metadata(data[_HEADER.size : start]), data[start : start + size])


def encode(payload: bytes, metadata: Mapping[str, Json], sequence: int) -> Iterator[bytes]:
    """The frames for a piece of audio: one with its own number, or chunks counted from 0 when it is too long for that."""
    if len(payload) <= WHOLE_BYTES:
        yield _frame(payload, metadata, sequence, 0)
        return
    total = -(-len(payload) // CHUNK_BYTES)
    for index in range(total):
        part = payload[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
        yield _frame(part, {**metadata, "total_chunks": total}, index, CHUNKED)


def _frame(payload: bytes, metadata: Mapping[str, Json], sequence: int, flags: int) -> bytes:
    told = json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode()
    sizes = len(told), len(payload)
    head = _HEADER.pack(_MAGIC, VERSION, flags, MEDIA_CHUNK, *sizes, sequence % (1 << 32), _NO_ID)
    return head + told + payload


def _metadata(data: bytes) -> Mapping[str, Json]:
    if len(data) > METADATA_BYTES:
        return {}
    try:
        value = loads(data.decode())
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
