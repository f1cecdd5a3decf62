"""What the user of the demo says: recorded sentences, so that the demo needs no voice of its own.

`voices/README.md` tells who speaks and under which licence.
"""

from __future__ import annotations

from pathlib import Path

from vrt_host.sim import wav
from vrt_host.sim.wav import Samples

FOLDER = Path(__file__).parent / "voices"

SENTENCES = {
    "Unlock the front door.": "unlock-the-front-door",
    "Unlock the back door.": "unlock-the-back-door",
    "Turn on the light.": "turn-on-the-light",
    "Check the house, and then turn off the light.": "check-the-house-and-then-turn-off-the-light",
    "Stop.": "stop",
    "Check the house.": "check-the-house",
}
"""Sentence -> the file's name."""


def load() -> dict[str, Samples]:
    """Sentence -> its sound, 16 kHz."""
    return {text: wav.load(FOLDER / f"{name}.wav") for text, name in SENTENCES.items()}
