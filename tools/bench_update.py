"""Updates and power cuts: at every write of an update, and of the starts around it, the power goes; then the board must start.

The flash is a littlefs on a file, its every write and erase counted (tools/ota_board.py, on MicroPython). Each cut is played
twice: before that write, and in its middle. What is left is started by fresh MicroPython processes: it must run a whole
firmware, the old or the new one, twice over, and must still take the update.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrt_host.device.build import tree
from vrt_host.device.bundle import Bundle, make_key, sign
from vrt_host.device.profiles import find
from vrt_host.sim.board import find_micropython

BOARD = Path(__file__).with_name("ota_board.py")
IMAGE_BYTES = 4096 * 256
CUT = 9
"""The exit code of a board whose power was cut."""
# The firmware checks itself, as far as its files go, and says which it is.
MAIN = """\
import json
from binascii import hexlify
from hashlib import sha256

def main():
    folder = __file__.rsplit("/", 1)[0]
    with open(folder + "/sums.json") as file:
        sums = json.load(file)
    for path in sums:
        with open(folder + "/" + path, "rb") as file:
            if hexlify(sha256(file.read()).digest()).decode() != sums[path]:
                raise OSError(path)
    print("whole", "%s")
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A cut: in which step, at which write, in its middle or before it; and what went wrong, if anything."""

    step: str
    write: int
    torn: bool
    problem: str


class Bench:
    """A folder with the images, the bundle and its key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.micropython = find_micropython()
        old, new = _firmware("1.0.0"), _firmware("2.0.0")
        for path, data in old.items():
            target = folder / "old" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        public = make_key(folder / "key.pem")
        (folder / "bundle").write_bytes(sign(Bundle("sim", "2.0.0", 0, new), folder / "key.pem"))
        self.steps = {
            "install": ("install", str(folder / "bundle"), str(public)),
            "first start": ("confirm",),
            "start without confirming": ("boot",),
            "start after that": ("boot",),
        }
        self.before: dict[str, Path] = {}
        """Step -> the image on which it begins."""

    def run(self, image: Path, cut: int, *words: str) -> tuple[int, str]:
        """One power-on of the board; (exit code, what it printed)."""
        done = subprocess.run(
            [self.micropython, BOARD, image, str(cut), *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def prepare(self) -> dict[str, int]:
        """Play every step without a cut; returns the writes of each."""
        image = self.folder / "image"
        image.write_bytes(b"\xff" * IMAGE_BYTES)
        self._well(image, "new", str(self.folder / "old"))
        counts = {}
        for name, words in self.steps.items():
            if (
                name == "start without confirming"
            ):  # a second life: the update again, and nobody is content with it
                shutil.copyfile(self.before["first start"], image)
            self.before[name] = self.folder / name.replace(" ", "-")
            shutil.copyfile(image, self.before[name])
            counts[name] = self._well(image, *words)
        return counts

    def _well(self, image: Path, *words: str) -> int:
        code, said = self.run(image, 0, *words)
        if code:
            raise RuntimeError(f"{words[0]} fails without a cut: {said}")
        return int(said.split()[-1])

    def play(self, step: str, write: int, *, torn: bool) -> Outcome:
        """One cut, and the starts behind it."""
        with tempfile.TemporaryDirectory(dir=self.folder) as work:
            image = Path(work) / "image"
            shutil.copyfile(self.before[step], image)
            code, said = self.run(image, -write if torn else write, *self.steps[step])
            problem = "" if code == CUT else f"the power was not cut: {said}"
            for attempt in ("first", "second") if not problem else ():
                code, said = self.run(image, 0, "boot")
                if code or "whole" not in said:
                    problem = f"the {attempt} start fails: {said}"
                    break
            if (
                not problem and "2.0.0" not in said
            ):  # it runs the old one, and takes the update as if nothing had been
                for words in (self.steps["install"], ("confirm",), ("boot",)):
                    code, said = self.run(image, 0, *words)
                    if code:
                        problem = f"it takes no update any more: {said}"
                        break
                else:
                    problem = "" if "2.0.0" in said else f"the update does not stay: {said}"
        return Outcome(step, write, torn, problem)


def _firmware(version: str) -> dict[str, bytes]:
    """The product's modules with another main, which only checks that all of them are whole."""
    made = tree(find("sim"), version=version)
    del made["main.mpy"]
    sums = {path: hashlib.sha256(data).hexdigest() for path, data in made.items()}
    return {**made, "sums.json": json.dumps(sums).encode(), "main.py": (MAIN % version).encode()}


def cuts(every: int = 1) -> Iterator[Outcome]:
    """Play every write of every step, or each `every`-th of the long ones, on two cores."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        bench = Bench(Path(folder))
        places = [
            (step, write, torn)
            for step, count in bench.prepare().items()
            for write in range(1, count + 1, every if count > every else 1)
            for torn in (False, True)
        ]
        yield from pool.map(lambda place: bench.play(place[0], place[1], torn=place[2]), places)


def rows() -> list[dict[str, Any]]:
    """The figures, in the form that bench.py prints."""
    outcomes = list(cuts())
    bricked = [outcome for outcome in outcomes if outcome.problem]
    for outcome in bricked[:10]:
        print(outcome, file=sys.stderr)
    steps = ", ".join(sorted({outcome.step for outcome in outcomes}))
    return [
        {"name": "ota.power_cuts", "value": len(outcomes), "unit": f"cuts, before and in the middle of each write: {steps}",
         "budget": ">= 1000", "ok": len(outcomes) >= 1000},
        {"name": "ota.bricked", "value": len(bricked), "unit": "boards that did not start a whole firmware or took no update",
         "budget": "0", "ok": not bricked},
    ]  # fmt: skip
