"""`vrt demo`: the whole conversation, live, checked step by step, with its record in a folder."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vrt_host import __version__
from vrt_host.agents import registry
from vrt_host.errors import UsageError, VrtError
from vrt_host.harness import figures, live, story, timeline
from vrt_host.harness import sentences as spoken
from vrt_host.harness.live import View
from vrt_host.harness.recorder import Recorder
from vrt_host.harness.rig import Rig
from vrt_host.harness.scenes import Conversation
from vrt_host.harness.sound import RATE, conversation
from vrt_host.harness.stage import Stage, StepFailed
from vrt_host.harness.story import Narrator
from vrt_host.harness.user import User, parse_heap
from vrt_host.harness.watch import animate, logged
from vrt_host.sim import wav
from vrt_host.sim.board import SimBoard
from vrt_host.sim.wav import Samples

OUT = Path("build/demo")
_BOOT_S = 20.0
_STATS_MS = 2000
"""How often the board tells its figures."""

EXAMPLES = """\
examples:
  vrt demo                       about a minute; listen to build/demo/conversation.wav afterwards
  vrt demo --heap 160k           give the board's MicroPython another heap (default: 128k)
  vrt demo --out /tmp/demo       keep the record elsewhere

A simulated board runs the real firmware on real MicroPython and talks with the offline agent through a network that
can be cut. Four scenes: a door is unlocked with the button's confirmation; a confirmation expires; an answer is
interrupted; the connection is cut in the middle of a call. Each step is checked against the event log.

The folder then holds conversation.wav (user left, speaker right), timeline.png, events.jsonl and summary.json.
It ends with 0 only when every step happened.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt demo`."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--heap", default="128k", metavar="SIZE", help="of the board's MicroPython (default: 128k)"
    )
    parser.add_argument(
        "--out", type=Path, default=OUT, metavar="DIR", help=f"where the record goes (default: {OUT})"
    )


def run(args: argparse.Namespace) -> int:
    """Play it; 0 only when every step happened. Raises `UsageError` for what the operator can mend."""
    heap = parse_heap(args.heap)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        recorder = Recorder(args.out / "events.jsonl")
    except OSError as error:
        raise UsageError(
            f"cannot write to {args.out}: {error.strerror or error}; choose another --out"
        ) from None
    return asyncio.run(_Demo(heap, args.out, recorder).play())


class _Demo:
    def __init__(self, heap: str, out: Path, recorder: Recorder) -> None:
        self.heap = heap
        self.out = out
        self.recorder = recorder
        self.view = View(live.console())
        self.stage = Stage(recorder, self.view)
        self.failure = ""
        self.rig: Rig | None = None

    async def play(self) -> int:
        """The conversation, then the record of it; the exit code."""
        started = time.monotonic()
        with self.view:
            self.view.title(f"vRT Edge {__version__}", "a spoken sentence works a lock, on real firmware")
            try:
                await self._converse()
            except StepFailed as error:
                self.failure = str(error)
            except UsageError:
                raise
            except VrtError as error:
                self.failure = str(error)
                self.view.failed(self.recorder.now, self.failure)
            finally:
                self.recorder.close()
            self._keep()
        count = self.stage.steps
        steps = f"{count} step{'s' * (count != 1)} in {time.monotonic() - started:.0f} s"
        if self.failure:
            self.view.verdict(False, f"after {steps}: {self.failure}")
            return 1
        self.view.verdict(True, f"{steps}, and all of them happened")
        return 0

    async def _converse(self) -> None:
        view, recorder = self.view, self.recorder
        recorder.listen(Narrator(view, voices_only=True).hear)
        with logged(recorder):
            view.note("the host gets ready: voice detection, two recognisers, a voice; all of it offline")
            sentences = spoken.load()
            agents = registry.factory("local")
            await asyncio.to_thread(registry.prepare, agents)
            recorder.restart()
            rig = Rig(recorder, agents, heap=self.heap, config={"stats_ms": _STATS_MS})
            async with rig:
                self.rig = rig
                await self._scenes(rig, sentences)

    async def _scenes(self, rig: Rig, sentences: Mapping[str, Samples]) -> None:
        view, recorder, stage = self.view, self.recorder, self.stage
        moving = asyncio.create_task(animate(view, recorder, rig.board.hardware))
        user = User(rig.board, recorder)
        try:
            await stage.expect("the board has booted and opened a session", "device", "ready", within=_BOOT_S)
            version = ".".join(map(str, rig.board.runtime.version))
            view.note(f"the board: real firmware on MicroPython {version} with a heap of {self.heap}")
            if rig.board.note:
                view.note(rig.board.note)
            await Conversation(stage, rig, user, sentences).play()
            place = recorder.mark()  # the figures of the whole conversation
            await recorder.wait_for(lambda event: event["event"] == "stats", within=5, after=place)
        finally:
            moving.cancel()
            await user.close()

    def _keep(self) -> None:
        """Write the record and show the summary, whatever happened."""
        if self.rig is None:
            return
        recorder, board = self.recorder, self.rig.board
        end = recorder.now
        user, speaker = conversation(board.hardware, recorder.origin, end)
        wav.save(self.out / "conversation.wav", np.stack([user, speaker], axis=1), RATE)
        made = figures.figures(recorder.events, self.rig.frames["in"], self.rig.frames["out"])
        scenes = [{"title": one.title, "ok": one.ok, "steps": one.steps} for one in self.stage.scenes]
        summary = {
            "ok": not self.failure,
            "failure": self.failure or None,
            "heap": self.heap,
            "scenes": scenes,
            **made,
        }
        (self.out / "summary.json").write_text(
            json.dumps(summary, indent=1, ensure_ascii=False) + "\n", "utf-8"
        )
        self.view.table("Summary", figures.table(made))
        drawn = self._draw(board, user, speaker, end)
        self.view.note(f"in {self.out}: conversation.wav, {drawn}events.jsonl, summary.json")

    def _draw(self, board: SimBoard, user: Samples, speaker: Samples, end: float) -> str:
        made = story.picture(self.recorder.events, end)
        made.title = "vRT Edge: a conversation with a simulated board"
        version = ".".join(map(str, board.runtime.version))
        made.subtitle = (
            f"the real firmware on MicroPython {version}, heap {self.heap}; 8 kHz mu-law both ways"
        )
        made.user, made.speaker, made.rate = user, speaker, RATE
        try:
            timeline.draw(made, self.out / "timeline.png")
        except ImportError as error:
            self.view.note(f"no timeline.png: it needs the package {error.name}: `pip install matplotlib`")
            return ""
        return "timeline.png, "
