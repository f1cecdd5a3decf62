"""Output audio: items cut into frames and paced by the clock of the device's speaker (vRT §8, decisions 11).

vRT has no flow control, so what has been sent and is not yet due at the speaker is bounded here. The clock is one
for the session, not for the item: items are played one after the other, and a pause of the agent is a pause of the
speaker. Told the time, in seconds; knows nothing of turns but the epoch and id that `audio.start` carries.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from vrt_host.agents.base import Format
from vrt_host.protocol import opus

log = logging.getLogger(__name__)

FRAME_S = 0.020
"""Length of the frames that are cut. What an agent hands over as whole frames keeps its length."""
_EPSILON = 1e-6


class AudioOut(Protocol):
    """What playout needs of a session (`session.Session`)."""

    def start_audio(self, item_id: str, epoch: int, turn_id: str) -> bool: ...
    def send_audio(self, payload: bytes) -> bool: ...


@dataclass(slots=True)
class Segment:
    """A part of an item that went out under one public id: the whole of it, unless a resume came in between."""

    id: str
    sent: float = 0.0
    """Seconds of audio sent."""
    due: float = 0.0
    """When the last of it leaves the speaker."""
    reported: float | None = None
    """Seconds played, as the device told; the first report counts."""

    def played(self, now: float) -> float:
        """Seconds that the user heard, as the device told or else by the clock."""
        if self.reported is not None:
            return min(self.reported, self.sent)
        return max(0.0, self.sent - max(0.0, self.due - now))


@dataclass(slots=True)
class Item:
    """One audio item of an agent. `key` is the agent's name for it."""

    key: str
    turn_id: str
    epoch: int
    frames: deque[bytes] = field(default_factory=deque)
    rest: bytes = b""
    """What does not fill a frame yet."""
    ended: bool = False
    segments: list[Segment] = field(default_factory=list)
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """The public id of its first segment, known before a frame is sent."""

    @property
    def current_id(self) -> str:
        """The public id under which it is known to the client now."""
        return self.segments[-1].id if self.segments else self.id

    def played(self, now: float) -> float:
        """Seconds of the item that the user heard."""
        return sum(segment.played(now) for segment in self.segments)


class Playout:
    """The items of a session that are not yet sent, in order, and the clock of the speaker."""

    def __init__(
        self,
        out: AudioOut,
        format_: Format,
        *,
        buffer_s: float,
        frame_limit: int | None = None,
        admit: Callable[[float], bool] = lambda seconds: True,
    ) -> None:
        """`frame_limit`: payload bytes that the device takes; `admit(seconds)`: whether the link has room for more."""
        self._out = out
        self._admit = admit
        self._packets = format_.encoding == "opus"
        self._rate = 0 if self._packets else format_.bytes_per_second
        sample = 2 if format_.encoding == "pcm16" else 1
        self._sample = sample
        self._limit = frame_limit
        size = int(self._rate * FRAME_S)
        if frame_limit is not None:
            size = min(size, frame_limit)
        self._size = max(sample, size - size % sample)
        self._buffer_s = max(buffer_s, FRAME_S)
        self._items: deque[Item] = deque()
        self._segment: Segment | None = None
        """Where the next frame goes; None: `audio.start` has to be sent first."""
        self.held = False
        """Whether the link, not the clock, keeps a frame back: it is busy, or there is none."""
        self.queued_s = 0.0
        """Seconds of audio that wait here."""
        self.due = 0.0
        """When the last sample sent leaves the speaker."""
        self.dropped = 0
        """Opus packets that are none, or too large for the device: a packet cannot be cut."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to send and no item that could still get audio."""
        return not self._items

    def begin(self, item: Item) -> None:
        """Queue an item. The one before it can get no more audio."""
        if self._items:
            self.end(self._items[-1])
        self._items.append(item)

    def push(self, item: Item, payload: bytes, whole: bool = False) -> None:
        """Add audio to an item that has not ended. `whole`: it is one frame and stays one, as far as it fits."""
        if whole or self._packets:
            self._flush_rest(item)
            fits = self._limit is None or len(payload) <= self._limit
            if self._packets and not (fits and opus.seconds(payload)):
                self._drop(payload)
                return
            if fits:
                self._queue(item, payload)
                return
        if item.rest:
            payload = item.rest + payload
        size = self._size
        whole_frames = len(payload) // size * size
        for start in range(0, whole_frames, size):
            self._queue(item, payload[start : start + size])
        item.rest = payload[whole_frames:]

    def end(self, item: Item) -> None:
        """No more audio in this item."""
        if not item.ended:
            self._flush_rest(item)
            item.ended = True

    def pump(self, now: float) -> bool:
        """Send what may go out now; returns whether anything did."""
        sent = False
        self.held = False
        items = self._items
        while items:
            item = items[0]
            frames = item.frames
            if not frames:
                if not item.ended:
                    break
                items.popleft()
                self._segment = None
                continue
            frame = frames[0]
            seconds = self._seconds(frame)
            lead = self.due - now
            if lead > 0 and lead + seconds > self._buffer_s + _EPSILON:
                break
            if not self._send(item, frame, seconds):
                self.held = True
                break
            item.frames.popleft()
            self._count(seconds, now)
            sent = True
        return sent

    def deadline(self, now: float) -> float | None:
        """When `pump` can send again; None: not before new audio, room on the link, or a resume."""
        if self.held or not self._items or not self._items[0].frames:
            return None
        # A packet may be longer than the whole buffer: it goes out when nothing else is due.
        return min(self.due, self.due - self._buffer_s + self._seconds(self._items[0].frames[0]))

    def busy(self, now: float) -> bool:
        """Whether audio waits here or is still due at the speaker."""
        return bool(self._items) or self.due > now + _EPSILON

    def clear(self, now: float) -> None:
        """Forget everything: the device falls silent too."""
        self._items.clear()
        self._segment = None
        self.queued_s = 0.0
        self.due = min(self.due, now)
        self.held = False

    def _send(self, item: Item, frame: bytes, seconds: float) -> bool:
        if self._segment is None and not self._start(item):
            return False
        if not self._admit(seconds):
            return False
        if self._out.send_audio(frame):
            return True
        # The link changed: what was announced on the old one has to be announced again (§8.3).
        self._segment = None
        return self._start(item) and self._out.send_audio(frame)

    def _start(self, item: Item) -> bool:
        if item.segments and not item.segments[-1].sent:
            item.segments.pop()  # announced on a link that was lost before a frame followed
        segment = Segment(str(uuid.uuid4()) if item.segments else item.id)
        if not self._out.start_audio(segment.id, item.epoch, item.turn_id):
            return False
        item.segments.append(segment)
        self._segment = segment
        return True

    def _count(self, seconds: float, now: float) -> None:
        segment = self._segment
        assert segment is not None
        self.due = max(self.due, now) + seconds
        segment.sent += seconds
        segment.due = self.due
        self.queued_s = max(0.0, self.queued_s - seconds)

    def _queue(self, item: Item, frame: bytes) -> None:
        if frame:
            item.frames.append(frame)
            self.queued_s += self._seconds(frame)

    def _flush_rest(self, item: Item) -> None:
        rest, item.rest = item.rest, b""
        self._queue(item, rest[: len(rest) - len(rest) % self._sample])

    def _drop(self, packet: bytes) -> None:
        self.dropped += 1
        if self.dropped == 1:
            log.warning(
                "an Opus packet of %d bytes is none, or larger than the device takes: dropped", len(packet)
            )

    def _seconds(self, frame: bytes) -> float:
        return opus.seconds(frame) if self._packets else len(frame) / self._rate
