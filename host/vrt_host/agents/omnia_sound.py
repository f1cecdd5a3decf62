"""Audio between the formats that this agent works with and those that a facade names, in both directions."""

from __future__ import annotations

import io
import re
import wave
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from vrt_host.agents.base import Format, Json
from vrt_host.agents.omnia_frames import TRANSFER_BYTES, Frame
from vrt_host.agents.omnia_messages import MediaChunk, SessionConfig
from vrt_host.speech.convert import Converter

INPUT: Final = Format("pcm16", 16_000)
OUTPUT: Final = Format("pcm16", 24_000)

_PCM = frozenset(("pcm", "pcm16", "pcm_s16le", "s16le", "linear16", "lpcm"))
_PCMU = frozenset(("pcmu", "mulaw", "ulaw", "g711_ulaw", "basic"))
_RATE = re.compile(r"[0-9]{1,6}")
_REORDERED = 32
"""Chunks that may wait for one before them; then it is given up."""


def encoding(codec: str) -> str | None:
    """The encoding that a codec, or the second half of a MIME type, stands for; None: it is not known here."""
    name = codec.lower().removeprefix("x-")
    return "pcm16" if name in _PCM else "pcmu" if name in _PCMU else None


class Microphone:
    """The user's audio on its way to the facade."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new audio session: its first frame says its format, and frames are counted from 0."""
        self.sequence = 0
        self._config = SessionConfig("pcm", INPUT.sample_rate, 1)
        self._encoding = "pcm16"
        self._converter: Converter | None = None
        self._half = b""

    @property
    def active(self) -> bool:
        """Whether there is an audio session."""
        return self.sequence > 0

    def configure(self, config: SessionConfig) -> bool:
        """Use this format from now on; False: it cannot be had."""
        name = encoding(config.codec)
        if name is None or config.channels not in (1, 2) or not 8_000 <= config.sample_rate <= 48_000:
            return False
        self._config, self._encoding = config, name
        target = name, config.sample_rate
        source = INPUT.encoding, INPUT.sample_rate
        self._converter = None if target == source else Converter(source, target)
        return True

    def frame(self, payload: bytes, session_id: str) -> Frame | None:
        """The next frame, of audio in `INPUT`; None: no whole sample has come out of the conversion yet."""
        payload = self._half + payload
        whole = len(payload) // 2 * 2
        payload, self._half = payload[:whole], payload[whole:]
        if self._converter is not None:
            payload = b"".join(self._converter.feed(payload))
        if self._config.channels == 2:
            samples = np.frombuffer(payload, "<i2" if self._encoding == "pcm16" else "u1")
            payload = np.repeat(samples, 2).tobytes()
        if not payload:
            return None
        metadata: dict[str, Json] = {"session_id": session_id, "mime_type": "audio/pcm"}
        if self._encoding == "pcmu":
            metadata["mime_type"] = "audio/pcmu"
        if not self.active:
            metadata |= {
                "codec": self._config.codec,
                "sample_rate": self._config.sample_rate,
                "channels": self._config.channels,
            }
        frame = Frame(payload, self.sequence, metadata)
        # Not back to 0 after 2^32, which would say that the session begins.
        self.sequence += 1
        return frame


class Stream:
    """Chunks of one medium, put in order; and its sound, where it has any that can be played."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._early: dict[int, MediaChunk] = {}
        self._converter: Converter | None = None
        self._source: tuple[str, int] | None = None
        self._whole = bytearray()
        self._file: MediaChunk | None = None
        """The newest chunk of a file that is not complete."""
        self._half = b""

    def order(self, chunk: MediaChunk) -> list[MediaChunk]:
        """The chunks whose turn it is now; one that came before is not given out again."""
        if chunk.sequence is None:
            self._next = None
            return [chunk]
        if self._next is None:
            self._next = chunk.sequence
        if chunk.sequence >= self._next:
            self._early.setdefault(chunk.sequence, chunk)
        waiting = sum(len(one.data) for one in self._early.values())
        if len(self._early) > _REORDERED or waiting > TRANSFER_BYTES:
            self._next = min(self._early)
        ready = []
        while (found := self._early.pop(self._next, None)) is not None:
            ready.append(found)
            self._next += 1
        return ready

    def rest(self) -> list[MediaChunk]:
        """Those that wait for one which will not come, and the end of a file."""
        early, self._early = self._early, {}
        rest = [early[sequence] for sequence in sorted(early)]
        if self._file is not None and not any(chunk.last for chunk in rest):
            rest.append(replace(self._file, data=b"", last=True))
        return rest

    def sound(self, chunk: MediaChunk, rate: int) -> bytes | None:
        """The chunk as `OUTPUT`; None: it is nothing that can be played. `rate` holds where the chunk says none."""
        kind, _, rest = chunk.mime_type.partition(";")
        family, _, codec = kind.strip().lower().partition("/")
        if family != "audio":
            return None
        if codec.removeprefix("x-") in ("wav", "wave"):
            return self._wav(chunk)
        name = encoding(codec)
        if name is None:
            return None
        said = _parameters(rest).get("rate", "")
        usual = 8_000 if name == "pcmu" else rate
        told = int(said) if _RATE.fullmatch(said) else usual
        return self._convert(chunk.data, name, chunk.rate or told, chunk.channels)

    def end(self) -> bytes:
        """What the conversion holds back."""
        return b"" if self._converter is None else b"".join(self._converter.end())

    def _wav(self, chunk: MediaChunk) -> bytes | None:
        """A file is played when all of it is there."""
        self._whole += chunk.data
        if len(self._whole) > TRANSFER_BYTES:
            self._whole.clear()
            return None
        self._file = None if chunk.last else chunk
        if not chunk.last:
            return b""
        data, self._whole = bytes(self._whole), bytearray()
        try:
            with wave.open(io.BytesIO(data)) as file:
                if file.getsampwidth() != 2:
                    return None
                return self._convert(
                    file.readframes(file.getnframes()), "pcm16", file.getframerate(), file.getnchannels()
                )
        except (wave.Error, EOFError):
            return None

    def _convert(self, data: bytes, name: str, rate: int, channels: int) -> bytes | None:
        if not 8_000 <= rate <= 48_000 or channels not in (1, 2):
            return None
        width = channels * (2 if name == "pcm16" else 1)
        source, target = (name, rate), (OUTPUT.encoding, OUTPUT.sample_rate)
        if source != self._source:
            self._source, self._half = source, b""
            self._converter = None if source == target else Converter(source, target)
        data = self._half + data
        whole = len(data) // width * width
        data, self._half = data[:whole], data[whole:]
        if channels == 2:
            data = np.frombuffer(data, "<i2" if name == "pcm16" else "u1")[::2].tobytes()
        return data if self._converter is None else b"".join(self._converter.feed(data))


def _parameters(text: str) -> Mapping[str, str]:
    pairs = (part.partition("=") for part in text.split(";"))
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
