"""What an adapter has for its service while that is slow or away: messages in order, and the newest of the user's audio."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection
from typing import Final, Generic, TypeVar

from vrt_host.agents.base import Format

log = logging.getLogger(__name__)

_T = TypeVar("_T")

INPUT: Final = Format("pcm16", 16_000)
AUDIO_BYTES: Final = 5 * INPUT.bytes_per_second
"""Of the user's audio that may wait; beyond it the oldest is dropped."""
CHUNK_BYTES: Final = INPUT.bytes_per_second // 10
"""In one message, when so much has gathered."""


class Outbox(Generic[_T]):
    """Whoever sends takes from `messages`, then from `chunk`, and waits for `news`."""

    def __init__(self, name: str, most: int) -> None:
        """`name` is the agent's; `most`: messages that may wait, then the oldest is dropped."""
        self._name = name
        self._most = most
        self.messages: deque[_T] = deque()
        self._audio: deque[bytes] = deque()
        self.audio_bytes = 0
        self._dropped = self._crowded = False
        self.news = asyncio.Event()

    def put(self, message: _T) -> None:
        """Behind those that wait; that there are too many is told once a connection."""
        if len(self.messages) >= self._most:
            if not self._crowded:
                self._crowded = True
                log.warning("%s: more than %d messages wait; the oldest are dropped", self._name, self._most)
            self.messages.popleft()
        self.messages.append(message)
        self.news.set()

    def hear(self, payload: bytes, *, wanted: bool = True) -> None:
        """The user's audio; that it cannot all be kept is told once a connection, if it is `wanted`. Sets no news."""
        self._audio.append(payload)
        self.audio_bytes += len(payload)
        while self.audio_bytes > AUDIO_BYTES:
            self.audio_bytes -= len(self._audio.popleft())
            if wanted and not self._dropped:
                self._dropped = True
                log.warning(
                    "%s: the user's audio cannot be sent as fast as it comes; the oldest is dropped",
                    self._name,
                )

    def chunk(self) -> bytes:
        """The oldest of the audio, enough for a message if there is so much."""
        payload = b""
        while self._audio and len(payload) < CHUNK_BYTES:
            payload += self._audio.popleft()
        self.audio_bytes -= len(payload)
        return payload

    def again(self, payloads: Collection[bytes]) -> None:
        """These chunks once more, before what waits."""
        self._audio.extendleft(reversed([*payloads]))
        self.audio_bytes += sum(map(len, payloads))

    def forget_audio(self) -> None:
        """Nobody wants it any more."""
        self._audio.clear()
        self.audio_bytes = 0

    def connected(self) -> None:
        """There is another connection: its faults are told anew."""
        self._dropped = self._crowded = False
