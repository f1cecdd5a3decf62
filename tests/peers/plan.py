"""What a peer answers: a response is a list of parts, played one after the other; and the sound that it is made of.

A part is a dict of one of these kinds:
- `{"say": text, "seconds": 0.2, "pace": 0, "deaf": 0}`: a loud tone whose transcript is `text`. `seconds` None: it has no end.
  `pace` is seconds of audio in a second, 0: all at once. `deaf`: so many more of its events are sent after a cancellation.
- `{"text": text}`: written, not spoken.
- `{"call": tool, "arguments": JSON text, "id": id}`: the peer makes an id where none is given. Arguments may be broken.
- `{"wait": name}`: reported as `waiting`, and held until the test releases it.
- `{"fault": kind}`: one of `FAULTS`.
"""

import asyncio

import numpy as np

DEFAULT = ({"say": "All right.", "seconds": 0.2},)
"""What is answered when a test planned nothing."""

FAULTS = ("disconnect", "malformed", "unknown", "error", "rate", "expired")
"""The connection is cut; an event that cannot be parsed; one of an unknown type; the provider reports an error of its own,
that too much was asked, that the session has reached its age."""

REFUSALS = ("key", "model", "format", "rate", "quota", "expired", "version")
"""Why a connection is refused."""

_PARTS = {
    "say": {"seconds": 0.2, "pace": 0, "deaf": 0},
    "text": {},
    "call": {"arguments": "{}", "id": None},
    "wait": {},
    "fault": {},
}
"""Kind -> what it may have besides, and the value when it is not given."""


def checked(part):
    """The part with all its members; a `ValueError` for one that no peer knows."""
    kinds = [kind for kind in _PARTS if kind in part]
    if len(kinds) != 1 or not isinstance(part[kinds[0]], str):
        raise ValueError(f"not a part: {part}")
    members = _PARTS[kinds[0]]
    if unknown := part.keys() - {kinds[0], *members}:
        raise ValueError(f"{part} has the unknown {', '.join(sorted(unknown))}")
    if kinds[0] == "fault" and part["fault"] not in FAULTS:
        raise ValueError(f"there is no fault {part['fault']!r}; there are {', '.join(FAULTS)}")
    return {**members, **part}


# --- sound: bytes of mono audio, `pcmu` (G.711 mu-law) or `pcm16` (signed, little-endian)


def _decoded():
    codes = ~np.arange(256, dtype=np.uint8)
    magnitude = ((((codes & 15).astype(np.int32) << 3) + 132) << ((codes >> 4) & 7)) - 132
    return np.where(codes & 128, -magnitude, magnitude)


_LINEAR = _decoded()
_BY_VALUE = 255 - np.argsort(_LINEAR[::-1], kind="stable")  # of the two codes for 0 the usual one, 255


def samples(payload, encoding):
    """The payload as integers of 16 bits; half a sample at its end is left out."""
    if encoding == "pcmu":
        return _LINEAR[np.frombuffer(payload, np.uint8)]
    return np.frombuffer(payload[: len(payload) // 2 * 2], "<i2").astype(np.int32)


def encoded(values, encoding):
    """Integers of 16 bits as a payload."""
    if encoding == "pcm16":
        return np.asarray(values, "<i2").tobytes()
    sorted_ = _LINEAR[_BY_VALUE]
    above = np.clip(np.searchsorted(sorted_, values), 1, 255)
    nearer = np.where(values - sorted_[above - 1] <= sorted_[above] - values, above - 1, above)
    return _BY_VALUE[nearer].astype(np.uint8).tobytes()


def tone(seconds, encoding, rate, hertz=400):
    """A loud tone; `hertz` times a chunk's length should be whole, so that chunks join."""
    at = np.arange(round(seconds * rate))
    return encoded(np.round(12_000 * np.sin(2 * np.pi * hertz * at / rate)).astype(np.int32), encoding)


def quiet(seconds, encoding, rate):
    """Silence."""
    return encoded(np.zeros(round(seconds * rate), np.int32), encoding)


async def chunks(part, encoding, rate, chunk_s=0.1):
    """The audio of a `say`, each chunk when the part's pace wants it; the loop runs between any two."""
    total = None if part["seconds"] is None else round(part["seconds"] * rate)
    size = round(chunk_s * rate)
    whole = tone(chunk_s, encoding, rate)
    width = len(whole) // size
    loop = asyncio.get_running_loop()
    start, sent = loop.time(), 0
    while total is None or sent < total:
        due = start + sent / rate / part["pace"] if part["pace"] else 0.0
        await asyncio.sleep(max(0.0, due - loop.time()))
        count = size if total is None else min(size, total - sent)
        yield whole[: count * width]
        sent += count


class EnergyVad:
    """Finds speech by loudness alone. Its time is the audio's own, so that a test may send faster than real time."""

    FRAME_MS = 20

    def __init__(self, encoding, rate, *, quiet_ms=400, level=500, loud_ms=FRAME_MS):
        """Speech begins with `loud_ms` of that RMS level and ends with `quiet_ms` below it."""
        self._encoding = encoding
        self._level = level
        self._quiet_ms = quiet_ms
        self._onset_ms = loud_ms
        self._loud_ms = 0
        self._frame = rate * self.FRAME_MS // 1000 * (2 if encoding == "pcm16" else 1)
        self._rest = b""
        self._still_ms = 0
        self.now_ms = 0
        """How much audio was heard in whole frames."""
        self.speaking = False

    def feed(self, payload):
        """Each `("start" or "stop", milliseconds)` that the payload brings: where speech begins, and where it was found to end."""
        found = []
        self._rest += payload
        while len(self._rest) >= self._frame:
            frame, self._rest = self._rest[: self._frame], self._rest[self._frame :]
            loud = (
                np.sqrt(np.mean(np.square(samples(frame, self._encoding), dtype=np.float64))) >= self._level
            )
            self._still_ms = 0 if loud else self._still_ms + self.FRAME_MS
            self._loud_ms = self._loud_ms + self.FRAME_MS if loud else 0
            if self._loud_ms >= self._onset_ms and not self.speaking:
                self.speaking = True
                found.append(("start", self.now_ms))
            self.now_ms += self.FRAME_MS
            if self.speaking and self._still_ms >= self._quiet_ms:
                self.speaking = False
                found.append(("stop", self.now_ms))
        return found
