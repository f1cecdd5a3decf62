"""The user's audio of one session on its way to text: decoded, cut into utterances, recognised.

The detector runs in a thread; all else is on the event loop, so that what is told comes in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from vrt_host.agents.base import Format
from vrt_host.speech import parts
from vrt_host.speech.codec import codec
from vrt_host.speech.resample import Resampler
from vrt_host.speech.segments import Began, Ended, Event, Segments, Spoke
from vrt_host.speech.vad import RATE

log = logging.getLogger(__name__)

_QUEUED_FRAMES = 500
"""Frames of the user's audio that may wait (10 s); beyond that the oldest are dropped."""
_STALL_S = 0.6
"""No audio for so long in the middle of an utterance: the microphone was switched off."""


class Ears:
    """Feed it frames by `hear`; `run` does the work."""

    def __init__(
        self,
        input_: Format,
        segments: Segments,
        recogniser: parts.Recogniser,
        *,
        began: Callable[[], None],
        ended: Callable[[parts.Utterance, int], None],
    ) -> None:
        """`began()`: the user speaks; `ended(utterance, voiced_ms)`: the user has finished, and `utterance.text()` is due."""
        self._codec = codec(input_.encoding)
        self._resampler = Resampler(input_.sample_rate, RATE)
        self._segments = segments
        self._recogniser = recogniser
        self._began, self._ended = began, ended
        self._frames: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._utterance: parts.Utterance | None = None
        self._dropped = False

    def hear(self, payload: bytes) -> None:
        """One frame."""
        if len(self._frames) >= _QUEUED_FRAMES:
            self._frames.popleft()
            if not self._dropped:
                log.warning(
                    "chat: voice activity detection is slower than speech; the user's oldest audio is dropped"
                )
            self._dropped = True
        self._frames.append(payload)
        self._news.set()

    async def run(self) -> None:
        """Listen until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    async with asyncio.timeout(_STALL_S if self._segments.speaking else None):
                        await self._news.wait()
                    self._news.clear()
                    payload = b"".join(self._frames)
                    self._frames.clear()
                    events = await loop.run_in_executor(parts.threads("listen"), self._feed, payload)
                except TimeoutError:
                    events = self._segments.stall()
                for event in events:
                    self._on_event(event)
        finally:
            if self._utterance is not None:
                self._utterance.cancel()

    def _feed(self, payload: bytes) -> list[Event]:
        """Runs in a thread, never twice at once."""
        return self._segments.feed(self._resampler.process(self._codec.decode(payload)))

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Began):
            self._utterance = self._recogniser.utterance()
            self._began()
        elif self._utterance is None:
            pass
        elif isinstance(event, Spoke):
            self._utterance.feed(event.samples)
        elif isinstance(event, Ended):
            utterance, self._utterance = self._utterance, None
            self._ended(utterance, event.voiced_ms)
