"""Our real firmware as a client on CPython, over real sockets, on a fake board that keeps real time.

    python client_on_cpython.py URL [MUTANT] [SETTING=VALUE ...]

What is fast here and slow on a board is the pause before a connection is made again: a tenth. MUTANT is one of
mutation.MUTANTS.
"""

import json
import os
import select
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.dont_write_bytecode = False  # the firmware forgets modules, and takes them in again
sys.pycache_prefix = str(ROOT / "build" / "pycache")
PATHS = ("tests/conformance", "tests/firmware", "tests/firmware/cpython", "firmware", "boards/sim")
sys.path[:0] = [str(ROOT / path) for path in PATHS]

import micropython  # noqa: E402, F401  (first: it makes the dialect)
import stream_socket  # noqa: E402

sys.modules["socket"] = stream_socket  # before the firmware takes the other one

import client_mutants  # noqa: E402, F401
import client_mutants_turns  # noqa: E402, F401
import conformance  # noqa: E402
import fake_device  # noqa: E402
import mutation  # noqa: E402
from vrt import tools  # noqa: E402
from vrt.audio import dsp  # noqa: E402
from vrt.build import build  # noqa: E402
from vrt.config import checked  # noqa: E402
from vrt.protocol import lifecycle  # noqa: E402

sys.modules["tools"] = conformance
STEP_MS = 10
IDLE_MS = 20
MASK = 0x3FFFFFFF


class Board(fake_device.FakeBoard):
    """Sound goes by as time does, and the device sleeps on its socket."""

    def __init__(self, raw, storage):
        super().__init__(raw)
        self.storage = storage
        self.DESCRIPTION["dac_rate"] = 24_000
        self.heard = self.played = None
        self._at = ticks()
        self._steps = 0

    def event(self, what, **fields):
        if what != "stats":
            print(json.dumps({"event": what, **fields}), flush=True)

    def wait(self, sock, ms):
        """Whether the link may have something."""
        readable = select.select([sock] if sock else [], [], [], ms / 1000)[0] if sock else []
        if not sock:
            time.sleep(ms / 1000)
        while (ticks() - self._at) & MASK >= STEP_MS:
            self._at = (self._at + STEP_MS) & MASK
            self._steps += 1
            if self.heard:
                self.heard.step()
            for _ in range(
                1 + self._steps % 2 if self.played else 0
            ):  # it plays 160 samples a step, and 240 are due
                self.played.step()
        return bool(readable)


def ticks():
    return int(time.monotonic() * 1000) & MASK


def main(url, mutant="", *settings):
    lifecycle._HALF_MS, lifecycle._CAP_MS = 25, 500
    dsp.hear = dsp.encode = lambda *samples: None  # what is heard is never listened to
    raw = {
        "url": url,
        "listen": "button",
        "duplex": "full",
        "safe_boot_ms": 0,
        "stats_ms": 0,
        "ping_ms": 1500,
    }
    for setting in settings:
        name, _, value = setting.partition("=")
        raw[name] = json.loads(value) if value[:1].isdigit() else value
    if mutant:
        mutation.MUTANTS[mutant].patch()
    with tempfile.TemporaryDirectory() as storage:
        board = Board(raw, storage + os.sep)
        app = build(board, checked(board.config(), "full"))
        tools.running = None
        while True:
            sound = app.sound
            busy = sound.playing or (sound.mic and sound.mic.live)
            app.step(ticks(), board.wait(app.link.sock, STEP_MS if busy else IDLE_MS))


if __name__ == "__main__":
    main(*sys.argv[1:])
