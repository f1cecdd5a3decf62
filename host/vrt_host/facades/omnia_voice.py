"""A realtime audio session of Omnia's (a call): the formats of its frames, both ways."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

from vrt_host.agents.base import Json
from vrt_host.facades import omnia_frames
from vrt_host.facades.omnia_frames import Frame
from vrt_host.facades.omnia_messages import encode

CODEC, RATE, CHANNELS = "pcm", 16_000, 1
"""Of a call whose first frame tells none; pcm is signed, 16 bits, little-endian."""
RATES = range(8000, 48_001)
MIME = "audio/pcm"


class Voice:
    """One call. Both directions have the format that `session_config` tells."""

    def __init__(self, session: str, metadata: Mapping[str, Json]) -> None:
        """`metadata` is the first frame's; a format that is not taken is answered with another one."""
        told = _format(metadata)
        fits = told[0] == CODEC and told[1] in RATES and told[2] == CHANNELS
        self.rate = told[1] if fits else RATE
        self.ending = False
        """The client sent its last frame."""
        self._session = session
        self._format = CODEC, self.rate, CHANNELS
        self._odd = b""
        self._sequence = 0
        self._item = ""
        self._part = 0

    @property
    def config(self) -> dict[str, Json]:
        """Session config."""
        codec, rate, channels = self._format
        return {"codec": codec, "sample_rate": rate, "channels": channels}

    def heard(self, frame: Frame) -> bytes:
        """Whole samples of what the client sends; nothing of a frame that says that its format is another one."""
        told = _format(frame.metadata, self._format)
        if told != self._format:
            return b""
        data = self._odd + frame.payload
        whole = len(data) - len(data) % 2
        self._odd = data[whole:]
        return data[:whole]

    def spoken(self, payload: bytes, item: str, *, binary: bool) -> Iterator[str | bytes]:
        """The frames for a piece of the agent's voice; `item` is what it belongs to."""
        if binary:
            metadata = {"session_id": self._session, "mime_type": MIME, **self.config}
            for frame in omnia_frames.encode(payload, metadata, self._sequence):
                self._sequence += 1
                yield frame
            return
        if item != self._item:
            yield from self.rest()
            self._item = item
        yield self._chunk(payload, last=False)

    def rest(self) -> Iterator[str]:
        """What ends the item under way, where its frames are JSON: each item is a medium of its own."""
        if self._item:
            yield self._chunk(b"", last=True)
        self._item, self._part = "", 0

    def _chunk(self, payload: bytes, *, last: bool) -> str:
        told = {"media_id": self._item, "sequence": self._part, "is_last": last, "mime_type": MIME}
        self._part += 1
        data = base64.b64encode(payload).decode()
        return encode("media_chunk", self._session, media_chunk={**told, "data": data})


def _format(
    metadata: Mapping[str, Json], default: tuple[str, int, int] = (CODEC, RATE, CHANNELS)
) -> tuple[str, int, int]:
    """Codec, rate and channels that a frame's metadata tell; the default's where they tell none that can be one."""
    codec = metadata.get("codec")
    numbers = [metadata.get(name) for name in ("sample_rate", "channels")]
    rate, channels = (
        number if type(number) is int and number > 0 else usual
        for number, usual in zip(numbers, default[1:], strict=True)
    )
    return codec if isinstance(codec, str) and codec else default[0], rate, channels
