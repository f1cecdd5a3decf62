"""The two numbered streams of a session: what is sent and kept, what is received and acknowledged (vRT §4)."""

from __future__ import annotations

from collections import deque

from vrt_host.protocol.wire import U32_MAX, size


class Outbox:
    """The sequenced messages sent and not yet acknowledged, so that a resume can send them again (§4.1).

    It is bounded in messages and bytes; when it is full the oldest is discarded and counted, and a resume that
    would need it fails (§5.4).
    """

    def __init__(self, messages: int, octets: int) -> None:
        self.last = 0
        """The last seq given out."""
        self.discarded = 0
        self._messages = messages
        self._octets = octets
        self._kept: deque[tuple[str, int]] = deque()  # the frame and its bytes; the last one is number `last`
        self._held = 0

    @property
    def exhausted(self) -> bool:
        """Whether no number is left: seq must not wrap (§4.1)."""
        return self.last >= U32_MAX

    def keep(self, frame: str) -> None:
        """Keeps the frame of message `last + 1`, which is given out with it."""
        self.last += 1
        octets = size(frame)
        self._kept.append((frame, octets))
        self._held += octets
        while len(self._kept) > self._messages or self._held > self._octets:
            self._drop()
            self.discarded += 1

    def acknowledge(self, up_to: int) -> None:
        """Forgets what the peer has; a value beyond `last` means everything (§4.2)."""
        while self._kept and self.last - len(self._kept) < up_to:
            self._drop()

    def after(self, seq: int) -> list[str] | None:
        """The frames with greater numbers, in order; None if one is gone or `seq` was never sent (§5.4)."""
        missing = self.last - seq
        if not 0 <= missing <= len(self._kept):
            return None
        return [frame for frame, _ in list(self._kept)[len(self._kept) - missing :]]

    def clear(self) -> None:
        """Keeps nothing; the session is over."""
        self._kept.clear()
        self._held = 0

    def _drop(self) -> None:
        self._held -= self._kept.popleft()[1]


class Inbox:
    """What has been handled of the peer's stream, and what of it is not yet acknowledged (§4.2, §4.3)."""

    def __init__(self, delay: float, every: int) -> None:
        self.last = 0
        """lastSeq: the highest seq handled, whether its message was valid or not (decision 6)."""
        self.duplicates = 0
        self.missing = 0
        """Numbers that the peer skipped."""
        self._delay = delay
        self._every = every
        self._owed = 0
        self._since = 0.0
        self._at_once = False

    def take(self, seq: int, now: float) -> bool:
        """Whether the message with this seq is new; then it counts as handled. `seq` is at least 1."""
        if seq <= self.last:
            self.duplicates += 1
            self._at_once = True  # the peer seems to have missed our acknowledgement
            return False
        self.missing += seq - self.last - 1
        self.last = seq
        if not self._owed:
            self._since = now
        self._owed += 1
        return True

    @property
    def due_at(self) -> float | None:
        """When an acknowledgement is due, of the caller's clock; None if none is owed."""
        if self._at_once or self._owed >= self._every:
            return float("-inf")
        return self._since + self._delay if self._owed else None

    def acknowledged(self) -> None:
        """The peer has been told `last`."""
        self._owed = 0
        self._at_once = False
