"""What the simulated user says, as sound: a text is spoken, a WAV file is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vrt_host.errors import UsageError
from vrt_host.sim import wav
from vrt_host.sim.wav import MIC_RATE, Samples
from vrt_host.speech import models
from vrt_host.speech.codec import to_pcm16
from vrt_host.speech.resample import resample
from vrt_host.speech.tts import SpeechError, Voice, open_voice

_PEAK = 0.5
"""Of full scale: somebody near the microphone."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """Something the user says: a `text` to be spoken or a `wav` to be played.

    `at` is in seconds from the start; None: once the answer to the one before has been played.
    """

    text: str | None = None
    wav: Path | None = None
    at: float | None = None


def sounds(
    utterances: Sequence[Utterance], *, voices: Callable[[], Voice | None] = open_voice
) -> list[Samples]:
    """16 kHz samples of each utterance. Raises `UsageError` for a file that cannot be used or a missing voice."""
    files = [None if one.wav is None else wav.load(one.wav) for one in utterances]
    spoken = speak([one.text for one in utterances if one.text is not None], voices)
    return [
        spoken[one.text or ""] if file is None else file for one, file in zip(utterances, files, strict=True)
    ]


def speak(texts: Sequence[str], voices: Callable[[], Voice | None] = open_voice) -> dict[str, Samples]:
    """Each text as 16 kHz samples. The voice runs only as long as this takes."""
    if not texts:
        return {}
    voice = voices()
    if voice is None:
        raise UsageError(f"--say needs a voice: {models.INSTALL}, or record the sentence and use --wav")
    try:
        return {text: _spoken(voice, text) for text in texts}
    except SpeechError as error:
        raise UsageError(f"--say: {error}; record the sentence and use --wav") from None
    finally:
        voice.close()


def _spoken(voice: Voice, text: str) -> Samples:
    sound = voice.render(text if text[-1:] in ".?!" else f"{text}.")
    loudest = float(np.abs(sound).max(initial=0))
    if not loudest:
        raise UsageError(f"--say {text!r}: the voice cannot say it; write it in English words")
    return to_pcm16(resample(sound * np.float32(_PEAK / loudest), voice.rate, MIC_RATE))
