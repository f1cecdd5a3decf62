"""The simulated user: says sentences and answers the board's requests for the button, by plan.

The plan is data (`Utterance`, `Presses`), read from the command line by `parse_*`; `commands/sim.py` has the words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vrt_host.errors import UsageError

HOLD_S = 1.2
"""How long `auto` holds the button: a second confirms, and a person does not hit it to the millisecond."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """Something the user says: a `text` to be spoken or a `wav` to be played.

    `at` is in seconds from the start; None: once the answer to the one before has been played.
    """

    text: str | None = None
    wav: Path | None = None
    at: float | None = None


@dataclass(slots=True)
class Presses:
    """How long the button is held at the Nth request (from 1); `rest` is for requests that are not named."""

    holds: dict[int, float] = field(default_factory=dict)
    rest: Literal["auto", "never"] = "never"

    def hold(self, number: int) -> float | None:
        """Seconds to hold at request `number`; None: do not press."""
        return self.holds.get(number, HOLD_S if self.rest == "auto" else None)


def parse_timed(word: str) -> tuple[str, float | None]:
    """`VALUE@SECONDS` or `VALUE`; an @ that no number follows belongs to the value. Raises `UsageError`."""
    value, separator, number = word.rpartition("@")
    at: float | None = None
    if separator:
        try:
            at = float(number)
        except ValueError:
            value = word
    else:
        value = word
    if not value.strip():
        raise UsageError(f"{word!r} says nothing; write it as VALUE or VALUE@SECONDS")
    if at is not None and not 0 <= at < math.inf:
        raise UsageError(f"{word!r}: the time after @ must be 0 seconds or more")
    return value, at


def parse_presses(words: list[str]) -> Presses:
    """`N@SECONDS`, `auto` or `never`, several together. Raises `UsageError`."""
    presses = Presses()
    for word in words:
        if word in {"auto", "never"}:
            presses.rest = "auto" if word == "auto" else "never"
            continue
        number, _, seconds = word.partition("@")
        try:
            count, hold = int(number), float(seconds)
        except ValueError:
            raise UsageError(
                f"--press {word}: write N@SECONDS (hold that long at the Nth request), auto or never"
            ) from None
        if count < 1 or not 0 < hold <= 60:
            raise UsageError(f"--press {word}: N counts from 1, and SECONDS is above 0 and at most 60")
        presses.holds[count] = hold
    return presses


def parse_heap(word: str) -> int:
    """A heap size in bytes: `128k`, `2M` or plain bytes. Raises `UsageError`."""
    unit = {"k": 1024, "m": 1024 * 1024}.get(word[-1:].lower(), 1)
    digits = word[:-1] if unit > 1 else word
    if not digits.isascii() or not digits.isdigit():
        raise UsageError(f"{word!r} is not a heap size; write it as 128k, 2M or in bytes")
    size = int(digits) * unit
    if not 32 * 1024 <= size <= 64 * 1024 * 1024:
        raise UsageError(
            f"a heap of {word} cannot work; give 32k to 64M (a board has 100k to 300k, 8M with PSRAM)"
        )
    return size


def parse_until(word: str) -> str | float:
    """The name of an event, or a time in seconds. Raises `UsageError`."""
    try:
        seconds = float(word)
    except ValueError:
        if not word.strip() or any(char.isspace() for char in word):
            raise UsageError(f"--until {word!r}: give the name of an event or a time in seconds") from None
        return word
    if not math.isfinite(seconds) or seconds <= 0:
        raise UsageError(f"--until {word}: the time must be above 0 seconds")
    return seconds
