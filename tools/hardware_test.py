"""`make hardware-test BOARD=ID PORT=PORT`: try a real board, part by part, and write what came of it into the board's folder.

The board needs MicroPython and the firmware (`vrt flash`, `vrt deploy`), for Wi-Fi and the soak its settings (`vrt provision`), and
for the soak a host that answers (`vrt serve`). A person looks, listens and presses; without one those parts read "not done".
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import serial
from vrt_host import __version__
from vrt_host.device.monitor import BAUD, Lines
from vrt_host.device.ports import choose
from vrt_host.device.profiles import Profile, find
from vrt_host.device.repl import Repl
from vrt_host.errors import UsageError, VrtError

BOARD = Path(__file__).with_name("hardware_board.py")
REPORT = "hardware.md"
TONE_HZ = 1000
AMPLITUDE = 8000
SILENT_RMS, LOUD_RMS = 1.0, 8000.0
"""A microphone in a room is never below the one, and not above the other while nobody speaks."""
HEARD_DB = 10.0
"""So much louder the tone must be in the microphone while it is played."""
LEDS = ("listening", "confirm", "error", "off")
HOUR = 60.0
PACE = 1.0
"""What the times of the parts are multiplied with."""
STUCK = 0.9
"""The part of samples that equal the one before, beyond which a data line is dead."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the test: `outcome` is "passed", "failed" or "not done"; `figures` says what was measured, or why."""

    name: str
    outcome: str
    figures: str


def judged(name: str, good: bool, figures: str) -> Part:
    return Part(name, "passed" if good else "failed", figures)


class Test:
    """The parts, on an open prompt. `ask` puts a yes-or-no question to a person, and answers None when nobody is there."""

    def __init__(self, profile: Profile, repl: Repl, ask: Callable[[str], bool | None]) -> None:
        self.profile = profile
        self.repl = repl
        self.ask = ask
        self.facts: dict[str, Any] = {}
        repl.run(BOARD.read_text("utf-8"))

    def parts(self) -> Iterator[Part]:
        """All but the soak; one that raises has failed, and the others go on."""
        for name, part in (
            ("board", self.board),
            ("LED", self.led),
            ("button", self.button),
            ("microphone", self.microphone),
            ("tone", self.tone),
            ("loopback", self.loopback),
            ("Wi-Fi", self.wifi),
        ):
            try:
                yield part(name)
            except VrtError as error:
                yield Part(name, "failed", str(error))

    def board(self, name: str) -> Part:
        facts = self.facts = self.repl.ask("facts()")
        right = facts["board"] == self.profile.id
        told = f"MicroPython {facts['micropython']}, {facts['machine']}; heap {facts['heap']:,} B, {facts['heap_free']:,} free"
        if "largest_idf_block" in facts:
            told += f"; largest IDF block {facts['largest_idf_block']:,} B"
        return judged(name, right, told if right else f"the board says that it is {facts['board']}")

    def led(self, name: str) -> Part:
        if "led" not in self.profile.data:
            return Part(name, "not done", "the board has none")
        for state in LEDS:
            self.repl.ask(f"led({state!r}, {_ms(1500)})")
        return self._asked(name, f"Did the LED show {', '.join(LEDS)}, each differently, one after another?")

    def button(self, name: str) -> Part:
        if "button" not in self.profile.data:
            return Part(name, "not done", "the board has none")
        print("  press the button once, and let it go, within 8 s", flush=True)
        seen = self.repl.ask(f"button({_ms(8000)})")["seen"]
        if seen == [False] and self.ask("Did you press it?") is not True:
            return Part(name, "not done", "nobody pressed it")
        return judged(
            name,
            seen == [False, True, False],
            "levels seen: " + ", ".join("down" if one else "up" for one in seen),
        )

    def microphone(self, name: str) -> Part:
        print("  quiet, please: the microphone listens for 2 s", flush=True)
        heard = self.repl.ask(f"listen({_ms(2000)})")
        told = f"RMS {heard['rms']:.1f}, peak {heard['peak']}, mean {heard['mean']:.0f} of 32,767"
        if heard["same"] > STUCK:
            return Part(
                name,
                "failed",
                told + "; the data line does not move: look at its wire, and at the slot (L/R)",
            )
        return judged(name, SILENT_RMS <= heard["rms"] <= LOUD_RMS, told)

    def tone(self, name: str) -> Part:
        self.repl.ask(f"tone({TONE_HZ}, {_ms(1500)}, {AMPLITUDE})")
        return self._asked(
            name, f"Did you hear a clean tone ({TONE_HZ} Hz) from the speaker, for about 1.5 s?"
        )

    def loopback(self, name: str) -> Part:
        if self.profile.data["duplex"] != "full":
            return Part(name, "not done", "microphone and speaker share their clocks")
        heard = self.repl.ask(f"tone({TONE_HZ}, {_ms(1500)}, {AMPLITUDE}, True)")
        before, during = max(heard["before"], 0.1), max(heard["during"], 0.1)
        louder = 20 * math.log10(during / before)
        told = f"{TONE_HZ} Hz in the microphone: {before:.1f} before, {during:.1f} while it was played ({louder:.0f} dB more)"
        return judged(name, louder >= HEARD_DB, told)

    def wifi(self, name: str) -> Part:
        if self.profile.data.get("link") != "wifi":
            return Part(name, "not done", "the board's link is another")
        if not self.repl.ask("print(json.dumps(bool(board.config().get('wifi_ssid'))))"):
            return Part(name, "not done", "no network is set: `vrt provision`")
        found = self.repl.ask("wifi(30000)")
        rssi = f", {found['rssi']} dBm" if "rssi" in found else ""
        return judged(
            name,
            found["joined"],
            f"joined after {found['ms']} ms{rssi}" if found["joined"] else "not joined within 30 s",
        )

    def _asked(self, name: str, question: str) -> Part:
        said = self.ask(question)
        if said is None:
            return Part(name, "not done", "nobody was there to say")
        return judged(name, said, question.removesuffix("?") + ": " + ("yes" if said else "no"))


def _ms(ms: int) -> int:
    return round(ms * PACE)


def soak(port: str, minutes: float) -> Part:
    """Let the firmware run and read what it says: it must stay with its host, without a crash, with a flat heap."""
    name = f"soak of {minutes:g} min"
    ready = False
    faults: list[str] = []
    free: list[int] = []
    counts: dict[str, int] = {}
    lines = Lines()
    end = time.monotonic() + minutes * 60
    try:
        with serial.Serial(port, BAUD, timeout=0.5) as wire:
            while time.monotonic() < end:
                for line in lines.feed(wire.read(4096)):
                    event = _event(line)
                    kind = event.get("event")
                    ready = ready or kind == "ready"
                    if kind in ("error", "lost"):
                        faults.append(
                            f"{event.get('code', kind)} {event.get('message', event.get('reason', ''))}".strip()
                        )
                    elif kind == "stats":
                        free.append(int(event.get("heap_free", 0)))
                        counts = {
                            key: value
                            for key, value in event.items()
                            if isinstance(value, int) and key != "heap_free"
                        }
    except (OSError, serial.SerialException) as error:
        return Part(name, "failed", f"the port went away: {error}")
    if not ready:
        return Part(
            name,
            "not done",
            "the board did not reach its host: `vrt serve`, `vrt provision`, and see `vrt doctor`",
        )
    told = f"heap free {min(free, default=0):,} to {max(free, default=0):,} B; " + ", ".join(
        f"{key} {value}" for key, value in counts.items()
    )
    if faults:
        told += f"; {len(faults)} faults, the first: {faults[0]}"
    return judged(name, bool(free) and not faults, told)


def _event(line: str) -> dict[str, Any]:
    try:
        made = json.loads(line)
    except ValueError:
        return {}
    return made if isinstance(made, dict) else {}


def report(profile: Profile, facts: dict[str, Any], parts: list[Part], today: str) -> str:
    """The page that is written into the board's folder."""
    rows = "\n".join(f"| {part.name} | {part.outcome} | {part.figures} |" for part in parts)
    return f"""# {profile.name}: tried on hardware

{today}, firmware {__version__}, MicroPython {facts.get("micropython", "?")} on {facts.get("machine", "?")}. Made by
`make hardware-test BOARD={profile.id}`.

| part | outcome | measured |
|---|---|---|
{rows}
"""


def person(question: str) -> bool | None:
    """Ask who sits before the terminal; None when nobody does."""
    if not sys.stdin.isatty():
        return None
    while True:
        said = input(f"  {question} [y/n] ").strip().lower()
        if said in ("y", "yes", "n", "no"):
            return said[0] == "y"


def test(
    profile: Profile, port: str, minutes: float, ask: Callable[[str], bool | None]
) -> tuple[dict[str, Any], list[Part]]:
    """Play every part; (facts of the board, the parts)."""
    parts = []
    with Repl(port) as repl:
        work = Test(profile, repl, ask)
        for part in work.parts():
            parts.append(part)
            print(f"{part.outcome:>9}  {part.name}: {part.figures}", flush=True)
        repl.restart()
    if minutes:
        print(f"  the firmware runs for {minutes:g} minutes; speak with it", flush=True)
        parts.append(soak(port, minutes))
        print(f"{parts[-1].outcome:>9}  {parts[-1].name}: {parts[-1].figures}", flush=True)
    return work.facts, parts


def main() -> int:
    """0: every part passed; 1: one failed or was not done; 2: it could not begin."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("board", help="see `vrt boards`")
    parser.add_argument("--port", help="the serial port; the only one is taken")
    parser.add_argument("--minutes", type=float, default=HOUR, help="of the soak (default: 60; 0: none)")
    args = parser.parse_args()
    if not args.board:
        print("hardware-test: which board? BOARD=ID names it; `vrt boards` lists them", file=sys.stderr)
        return 2
    try:
        profile = find(args.board)
        facts, parts = test(profile, choose(args.port), args.minutes, person)
    except UsageError as error:
        print(f"hardware-test: {error}", file=sys.stderr)
        return 2
    except VrtError as error:
        print(f"hardware-test: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("hardware-test: interrupted, so there is no report", file=sys.stderr)
        return 130
    page = profile.folder / REPORT
    text = report(profile, facts, parts, datetime.date.today().isoformat())
    try:
        page.write_text(text, "utf-8")
    except OSError as error:
        print(text)  # it took an hour
        print(f"hardware-test: cannot write {page}: {error.strerror or error}", file=sys.stderr)
        return 1
    good = all(part.outcome == "passed" for part in parts) and args.minutes >= HOUR
    print(f"hardware-test: wrote {page}")
    if good:
        print(
            f'hardware-test: everything passed: set "status": "tested" in {profile.folder / "board.json"}, and send both'
        )
    return 0 if all(part.outcome == "passed" for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main())
