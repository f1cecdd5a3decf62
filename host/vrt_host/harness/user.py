"""The simulated user: says sentences and answers the board's requests for the button, by plan.

The plan is data (`Utterance`, `Presses`), read from the command line by `parse_*`; `commands/sim.py` has the words.
A `User` knows what a person would: it hears the speaker, sees the light and holds the button.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from vrt_host.errors import UsageError
from vrt_host.harness.recorder import Event, NotSeen, Recorder
from vrt_host.sim.board import SimBoard
from vrt_host.sim.say import Utterance
from vrt_host.sim.wav import MIC_RATE, Samples

RESTING = ("idle", "listening", "muted")
"""What the light shows when nothing is going on."""
ANSWER_S = 10.0
"""Without a sign that an answer comes for so long, there is none."""
SILENT_S = 5.0
"""An answer that stays open and silent for so long counts as over: the echo of an open microphone has no end."""
REACT_S = 0.5
"""A person needs so long to reach the button."""
HOLD_S = 1.2
"""How long `auto` holds the button: a second confirms, and a person does not hit it to the millisecond."""


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


def parse_heap(word: str) -> str:
    """A heap size as MicroPython takes it, such as `128k` or `2M`. Raises `UsageError`."""
    unit = {"k": 1, "m": 1024}.get(word[-1:].lower(), 0)
    digits = word[:-1]
    if not unit or not digits.isascii() or not digits.isdigit():
        raise UsageError(f"{word!r} is not a heap size; write it as 128k or 2M")
    if not 32 <= int(digits) * unit <= 64 * 1024:
        raise UsageError(
            f"a heap of {word} cannot work; give 32k to 64M (a board has 100k to 300k, 8M with PSRAM)"
        )
    return word.lower()


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


class User:
    """Says and presses. `sounds` are those of the utterances; the plan's times count from `start`, when it is called."""

    def __init__(
        self,
        board: SimBoard,
        recorder: Recorder,
        utterances: Sequence[Utterance] = (),
        sounds: Sequence[Samples] = (),
        presses: Presses | None = None,
    ) -> None:
        self.unanswered = 0
        """Utterances that the next one waited for in vain."""
        self._board = board
        self._recorder = recorder
        self._plan = list(zip(utterances, sounds, strict=True))
        self._presses = presses or Presses()
        self._requests = 0
        self._tasks: set[asyncio.Task[None]] = set()
        recorder.listen(self._see)

    async def talk(self) -> None:
        """Say everything; returns when the answer to the last has been played."""
        start = self._recorder.now
        before: tuple[int, float] | None = None  # where the log was at the last utterance, and when it ended
        for utterance, sound in self._plan:
            if utterance.at is not None:
                await asyncio.sleep(max(0.0, start + utterance.at - self._recorder.now))
            elif before is not None:
                await self._answered(*before)
            place = self._recorder.mark()
            before = place, self.say(sound, utterance.text, utterance.wav)["end"]
        if before is not None:
            await self._answered(*before)

    def say(self, sound: Samples, text: str | None, wav: Path | None = None) -> Event:
        """Let the microphone hear it; returns the event `says`, which tells when it begins and ends.

        `speech_start` and `speech_end` leave the silence at both ends of the sound out.
        """
        hardware = self._board.hardware
        start, end = (hardware.monotonic(t) - self._recorder.origin for t in self._board.say(sound))
        first, last = speech_edges(sound)
        times = {
            "start": start,
            "end": end,
            "speech_start": start + first / MIC_RATE,
            "speech_end": start + last / MIC_RATE,
        }
        what = {"text": text} if text is not None else {"wav": wav.name if wav is not None else ""}
        return self._recorder.add(
            "demo",
            "says",
            at=start + self._recorder.origin,
            **{name: round(t, 4) for name, t in times.items()},
            **what,
        )

    async def press(self, hold: float) -> None:
        """Hold the button for so many seconds."""
        await self._board.press(hold)

    async def close(self) -> None:
        """Let go of everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answered(self, place: int, end: float) -> None:
        """Wait until the light has left its rest and come back, and the utterance is over.

        When the light says that the board speaks and nothing was to be heard of it for `SILENT_S`, that is the end, too.
        """
        await asyncio.sleep(max(0.0, end - self._recorder.now))
        try:
            if self._board.hardware.led in RESTING:
                await self._recorder.wait_for(_awakes, within=ANSWER_S, after=place)
        except NotSeen:
            self.unanswered += 1
            self._recorder.add("demo", "unanswered", within=ANSWER_S)
            return
        while (light := self._board.hardware.led) not in RESTING:
            try:
                await self._recorder.wait_for(_changes, within=SILENT_S, after=self._recorder.mark())
            except NotSeen:
                heard = [event["on"] for event in self._recorder.events[place:] if event["event"] == "sound"]
                if light == "speaking" and not (heard and heard[-1]):
                    self.unanswered += not heard
                    self._recorder.add("demo", "open", silent=SILENT_S)
                    return

    def _see(self, event: Event) -> None:
        if event["source"] == "device" and event["event"] == "confirm_asked":
            self._requests += 1
            hold = self._presses.hold(self._requests)
            if hold is not None:
                task = asyncio.create_task(self._answer_request(hold))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _answer_request(self, hold: float) -> None:
        await asyncio.sleep(REACT_S)
        await self._board.press(hold)


def speech_edges(sound: Samples) -> tuple[int, int]:
    """The first and the last sample that are louder than 1 % of the loudest; (0, 0) for silence."""
    loud = np.flatnonzero(
        np.abs(sound.astype(np.int32)) > max(1, int(np.abs(sound.astype(np.int32)).max(initial=0)) // 100)
    )
    return (int(loud[0]), int(loud[-1]) + 1) if len(loud) else (0, 0)


def _light(event: Event) -> bool:
    return bool(event["source"] == "hardware" and event["event"] == "led")


def _awakes(event: Event) -> bool:
    return _light(event) and event["state"] not in RESTING


def _changes(event: Event) -> bool:
    return event["event"] == "sound" or _light(event)
