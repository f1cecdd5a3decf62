"""Both sides of a conversation as one sound: what the microphone heard and what the speaker played, at their times."""

from __future__ import annotations

import numpy as np

from vrt_host.sim.converters import Track
from vrt_host.sim.hardware import DAC_RATE, Hardware
from vrt_host.sim.wav import Samples
from vrt_host.speech.codec import from_pcm16, to_pcm16
from vrt_host.speech.resample import resample

RATE = DAC_RATE


def conversation(hardware: Hardware, origin: float, end: float) -> tuple[Samples, Samples]:
    """(user, speaker) at `RATE`, both from `origin` (the clock of `time.monotonic`) for `end` seconds."""
    hardware.settle()
    return _placed(hardware, hardware.microphone, origin, end), _placed(
        hardware, hardware.speaker, origin, end
    )


def _placed(hardware: Hardware, track: Track, origin: float, end: float) -> Samples:
    sound = track.samples
    if track.rate != RATE:
        sound = to_pcm16(resample(from_pcm16(sound), track.rate, RATE))
    made = np.zeros(max(0, round(end * RATE)), np.int16)
    first = round((hardware.monotonic(track.start) - origin) * RATE)
    sound = sound[max(0, -first) :][: max(0, len(made) - max(0, first))]
    made[max(0, first) :][: len(sound)] = sound
    return made
