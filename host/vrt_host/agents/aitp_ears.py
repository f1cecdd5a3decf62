"""Where the user's speech begins and ends, for a server that is told (VOICE_INPUT_END), and the speech itself for one that wants it whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vrt_host.agents.aitp_options import Options
from vrt_host.agents.base import Format
from vrt_host.agents.chat_ears import Ears
from vrt_host.speech import parts
from vrt_host.speech.codec import Samples, codec
from vrt_host.speech.segments import Segments
from vrt_host.speech.vad import Vad


class Clip:
    """An utterance that somebody else recognises; `kept` or not."""

    def __init__(self, kept: bool) -> None:
        self._kept = kept
        self._samples: list[Samples] = []

    def feed(self, samples: Samples) -> None:
        """`Utterance.feed`."""
        if self._kept:
            self._samples.append(samples)

    async def text(self) -> str:
        """`Utterance.text`: not here."""
        return ""

    def cancel(self) -> None:
        """`Utterance.cancel`."""
        self._samples.clear()

    def pcm(self) -> bytes:
        """All of it, as pcm16 at 16 kHz."""
        return codec("pcm16").encode(np.concatenate(self._samples)) if self._samples else b""


def ears(
    input_: Format,
    vad: Vad,
    options: Options,
    *,
    began: Callable[[], None],
    ended: Callable[[parts.Utterance, int], None],
) -> Ears:
    """What tells `began` and `ended`."""
    segments = Segments(vad, silence_ms=options.silence_ms, longest_ms=int(1000 * options.longest_s))
    recogniser = parts.Recogniser(lambda: Clip(options.voice == "message"))
    return Ears(input_, segments, recogniser, began=began, ended=ended)
