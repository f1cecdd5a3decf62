"""`make soak`: the real firmware on real MicroPython against the real server, over a network that fails all the time.

    python tools/soak.py [--cuts 1000] [--boards 4] [--seed 1] [--out build/soak]

Each board has a network of its own (`vrt_host.harness.proxy`), which is stalled, throttled, split into small pieces and
cut, by a reset that loses what is under way or by an end. A third of the cuts come between a call and its result, a third
while the board plays audio, the others while it connects, is interrupted, is told much at once, or does nothing. After each
the session has to be resumed, and at the end `soak_judge` reads in both sides' logs what was lost or doubled. The heap of
the device, after it was collected, is compared between the first and the last hundred cuts of each board.

Boards run at once, because a device that was cut off again within two seconds waits longer and longer. What cuts come when is
decided by the seed; what the network makes of it is not the same twice.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import bench
import soak_judge
from soak_agent import SoakAgent
from vrt_host.harness.recorder import Event, NotSeen, Recorder
from vrt_host.harness.rig import Rig

ROOT = Path(__file__).resolve().parents[1]
TOOLS = Path(__file__).with_name("soak_tools.py")
KINDS = ("call", "audio", "other")
WAIT_S = 30.0
"""How long anything may take: more than a device waits at most before it tries again."""
PROVEN_S = 2.05
"""A device that was connected for so long answers a cut quickly."""
SPAN = 100
"""Cuts of each board, at the beginning and at the end, whose heap is compared; fewer tell nothing: the journal of calls
fills up first."""
FLAT_BYTES = 1024


class SoakError(Exception):
    """What was awaited did not come; the message tells what did."""


@dataclass
class Figures:
    """What is counted of a board's cuts. `heap`: bytes in use after each of them, collected."""

    cuts: Counter[str] = field(default_factory=Counter)
    heap: list[int] = field(default_factory=list)
    impaired: Counter[str] = field(default_factory=Counter)


class Player:
    """One board, its network, and the hand that cuts it."""

    def __init__(self, number: int, seed: int, out: Path) -> None:
        self._random = random.Random(f"{seed} {number}")
        self._name = f"board-{number}"
        self._log = Recorder(out / f"{self._name}.jsonl")
        self._log.listen(self._hear)
        self._agents: list[SoakAgent] = []
        self._rig = Rig(
            self._log,
            self._agent,
            heap="128k",
            tools=TOOLS,
            config={"id": self._name},
        )
        self.figures = Figures()
        self._calls: set[str] = set()
        self._speaking = False
        self._ready_at = 0.0
        self._heap = 0

    async def run(self, cuts: int, progress: Callable[[], object]) -> soak_judge.Verdict:
        """So many cuts, and what both logs say of them."""
        try:
            async with self._rig:
                await self._until(0, "device", "ready")
                kinds = [KINDS[number % len(KINDS)] for number in range(cuts)]
                self._random.shuffle(kinds)
                for kind in kinds:
                    await self._round(kind)
                    progress()
                await self._settle()
            return soak_judge.judge(self._log.events)
        except NotSeen as error:
            last = "\n  ".join(map(str, error.since[-12:]))
            raise SoakError(
                f"{self._name}: {error} after {self.figures.cuts['all']} cuts; the last events:\n  {last}"
            ) from None
        finally:
            self._log.close()

    # --- the log

    def _agent(self) -> SoakAgent:
        self._agents.append(SoakAgent(self._log.add))
        return self._agents[-1]

    def _hear(self, event: Event) -> None:
        match event["source"], event["event"]:
            case "device", "ready":
                self._ready_at = time.monotonic()
            case "device", "stats":
                self._heap = event["heap_used"]
            case "host", "call.sent":
                self._calls.add(event["id"])
            case "host", "call.settled":
                self._calls.discard(event["id"])
            case "host", "message.out" if event["type"] == "audio.start":
                self._speaking = True
            case "host", ("turn.interrupted" | "turn.state"):
                self._speaking = self._speaking and event.get("state") not in (None, "idle")

    async def _until(self, after: int, source: str, name: str, **fields: Any) -> Event:
        wanted = {"source": source, "event": name, **fields}.items()
        return await self._log.wait_for(lambda event: wanted <= event.items(), within=WAIT_S, after=after)

    async def _over(self, turn: str) -> None:
        """Until a turn has ended, well or not."""

        def ends(event: Event) -> bool:
            name = event["event"]
            return event.get("turn") == turn and (
                name == "turn.interrupted" or (name == "turn.state" and event["state"] == "idle")
            )

        await self._log.wait_for(ends, within=WAIT_S)

    # --- the network

    async def _pause(self, least: float, most: float) -> None:
        await asyncio.sleep(self._random.uniform(least, most))

    def _cut(self) -> None:
        """Cut, and count in the midst of what."""
        figures = self.figures
        figures.cuts["all"] += 1
        figures.cuts["between a call and its result"] += bool(self._calls)
        figures.cuts["during audio"] += self._speaking
        reset = self._random.random() < 0.7
        figures.cuts["by reset"] += reset
        self._rig.proxy.cut(reset=reset)

    def _impair(self, how: str, *arguments: Any) -> None:
        self.figures.impaired[how] += 1
        getattr(self._rig.proxy, how)(*arguments)

    def _mend(self) -> None:
        proxy = self._rig.proxy
        proxy.flow()
        proxy.throttle(0)
        proxy.split(0)
        proxy.refusing = False

    async def _round(self, kind: str) -> None:
        """One cut, and the way back."""
        left = self._ready_at + PROVEN_S - time.monotonic()
        if left > 0 and self._random.random() < 0.95:
            await asyncio.sleep(left)
        self.figures.heap.append(
            self._heap
        )  # of a device that is connected, and has collected after the last turn
        mark = self._log.mark()
        turn = await self._random.choice(self.SCENES[kind])(self, self._agents[-1], mark)
        self._mend()
        await self._until(mark, "device", "ready", resumed=True)
        if turn is not None:
            await self._over(turn)

    async def _settle(self) -> None:
        """Until both sides have acknowledged everything, and have nothing more to say."""
        agent = self._agents[-1]
        await self._over(agent.play(calls=[("ahead", 0)], seconds=0.2, texts=1))
        await self._acknowledged("message.in", "message.out")
        await self._acknowledged("message.out", "message.in")

    async def _acknowledged(self, by: str, of: str) -> None:
        last = max(event["message"]["seq"] for event in self._log.events if event["event"] == of)

        def acknowledges(event: Event) -> bool:
            message = event.get("message", {})
            return event["event"] == by and message.get("type") == "ack" and bool(message["upTo"] >= last)

        # The last word may have been acknowledged by the `ready` of a resume, but there was none after the last turn.
        await self._log.wait_for(acknowledges, within=WAIT_S)

    # --- the scenes: each makes one cut and returns the turn that has to end after the resume

    async def _call_under_way(self, agent: SoakAgent, mark: int) -> str:
        """The call is lost on its way to the device."""
        self._impair("stall", "down")
        turn = agent.play(calls=self._work(50))
        await self._until(mark, "host", "call.sent")
        await self._pause(0, 0.1)
        self._cut()
        return turn

    async def _call_running(self, agent: SoakAgent, mark: int) -> str:
        """The tool is at work."""
        if self._random.random() < 0.3:
            self._impair("split", self._random.randint(1, 30))
        turn = agent.play(calls=self._work(self._random.randint(100, 600)))
        await self._until(mark, "device", "call_start")
        await self._pause(0, 0.1)
        self._cut()
        return turn

    async def _result_under_way(self, agent: SoakAgent, mark: int) -> str:
        """The result is lost on its way to the host."""
        turn = agent.play(calls=self._work(self._random.randint(50, 150)))
        await self._until(mark, "device", "call_start")
        self._impair("stall", "up")
        await self._until(mark, "device", "result")
        await self._pause(0, 0.1)
        self._cut()
        return turn

    async def _queued(self, agent: SoakAgent, mark: int) -> str:
        """Several calls, one of them at work; the ends of some may cross the cut."""
        if self._random.random() < 0.5:
            self._impair("throttle", self._random.randint(2_000, 12_000))
        turn = agent.play(calls=[work for _ in range(4) for work in self._work(60)])
        await self._until(mark, "device", "call_start")
        await self._pause(0, 0.15)
        self._cut()
        return turn

    async def _playing(self, agent: SoakAgent, mark: int) -> str:
        """The device plays; the network may be slow, or pass a few bytes at a time."""
        how = self._random.choice(("", "", "throttle", "split"))
        if how:
            self._impair(
                how, self._random.randint(9_000, 20_000) if how == "throttle" else self._random.randint(1, 60)
            )
        turn = agent.play(seconds=self._random.uniform(0.9, 1.6), texts=2)
        await self._until(mark, "device", "audio_start")
        await self._pause(0, 0.7)
        self._cut()
        return turn

    async def _playing_on(self, agent: SoakAgent, mark: int) -> str:
        """The network stands still first, so that the speaker runs dry."""
        turn = agent.play(seconds=self._random.uniform(1.2, 1.8))
        await self._until(mark, "device", "audio_start")
        self._impair("stall", *self._random.choice((("up",), ("down",), ("up", "down"))))
        await self._pause(0.1, 0.9)
        self._cut()
        return turn

    async def _result_unacknowledged(self, agent: SoakAgent, mark: int) -> str:
        """The host has the result, but the device does not know it and sends it again."""
        turn = agent.play(calls=self._work(60))
        await self._until(mark, "device", "call_start")
        self._impair("stall", "down")
        await self._until(mark, "host", "call.settled")
        self._cut()
        return turn

    async def _interrupted(self, agent: SoakAgent, mark: int) -> str:
        """The user presses the button while a call runs and another waits; what that sends may be lost."""
        turn = agent.play(calls=[*self._work(800), *self._work(60)], seconds=1.0)
        await self._until(mark, "device", "call_start")
        if self._random.random() < 0.5:
            self._impair("stall", "up")
        await self._rig.board.press(0.1)
        await self._until(mark, "device", "interrupt")
        await self._pause(0, 0.1)
        self._cut()
        return turn

    async def _flood(self, agent: SoakAgent, mark: int) -> str:
        """More messages than one acknowledgement covers."""
        if self._random.random() < 0.5:
            self._impair("stall", "up")
        turn = agent.play(texts=50)
        await self._pause(0, 0.05)
        self._cut()
        return turn

    async def _connecting(self, agent: SoakAgent, mark: int) -> None:
        """Nothing happens; the next connection is cut, or refused, before it is ready."""
        self._cut()
        if self._random.random() < 0.5:
            self._rig.proxy.refusing = True
            await self._until(mark, "proxy", "refused")
            return
        await self._until(mark, "proxy", "connected")
        await self._pause(0, 0.02)
        self._rig.proxy.cut()

    async def _idle(self, agent: SoakAgent, mark: int) -> None:
        """Nothing happens."""
        await self._pause(0, 0.3)
        self._cut()

    def _work(self, ms: int) -> list[tuple[str, int]]:
        return [(self._random.choice(("ahead", "behind")), ms)]

    Scene = Callable[["Player", SoakAgent, int], Awaitable[str | None]]
    SCENES: ClassVar[dict[str, tuple[Scene, ...]]] = {
        "call": (_call_under_way, _call_running, _result_under_way, _queued),
        "audio": (_playing, _playing, _playing_on),
        "other": (_result_unacknowledged, _interrupted, _flood, _connecting, _idle),
    }


def growth(heap: Sequence[int]) -> int | None:
    """Bytes by which the median of the last cuts is above that of the first; None: there were not enough."""
    if len(heap) < 2 * SPAN:
        return None
    return round(statistics.median(heap[-SPAN:]) - statistics.median(heap[:SPAN]))


@dataclass
class Outcome:
    """All boards together."""

    verdicts: list[soak_judge.Verdict]
    figures: list[Figures]
    seconds: float

    @property
    def cuts(self) -> Counter[str]:
        """How many, and when."""
        return sum((one.cuts for one in self.figures), Counter())

    @property
    def growth(self) -> int | None:
        """Of the heap of the board on which it is largest."""
        return max((grown for one in self.figures if (grown := growth(one.heap)) is not None), default=None)

    @property
    def flat(self) -> bool:
        """Whether no heap grew, as far as that can be told."""
        return self.growth is None or self.growth <= FLAT_BYTES

    @property
    def problems(self) -> list[str]:
        """In words."""
        found = [
            f"board {number}: {problem}"
            for number, verdict in enumerate(self.verdicts, 1)
            for problem in verdict.problems
        ]
        return found if self.flat else [*found, f"the heap grew by {self.growth} bytes"]

    def total(self, name: str) -> int:
        """Of a count of the verdicts."""
        return sum(getattr(verdict, name) for verdict in self.verdicts)

    def rows(self, form: str) -> list[dict[str, Any]]:
        """For build/bench.json; `form` says how long it was."""
        cuts = self.cuts
        when = ", ".join(f"{cuts[name]} {name}" for name in ("between a call and its result", "during audio"))
        handled = f"of {self.total('handled'):,} messages and {self.total('calls'):,} calls"
        made: list[dict[str, Any]] = [
            {"name": "soak.cuts", "value": cuts["all"], "unit": f"cuts: {when} ({form})"}
        ]
        for name in ("lost", "doubled"):
            count = self.total(name)
            made.append(
                {"name": f"soak.{name}", "value": count, "unit": handled, "budget": "0", "ok": count == 0}
            )
        if self.growth is not None:
            budget = f"<= {FLAT_BYTES}"
            unit = f"bytes of heap, first {SPAN} cuts of a board against its last"
            made.append(
                {"name": "soak.heap", "value": self.growth, "unit": unit, "budget": budget, "ok": self.flat}
            )
        return made


async def soak(
    cuts: int, boards: int, seed: int, out: Path, progress: Callable[[], object] = lambda: None
) -> Outcome:
    """Play, and judge. Raises when a board fails, or when something awaited does not come."""
    started = time.monotonic()
    players = [Player(number, seed, out) for number in range(1, boards + 1)]
    shares = [cuts // boards + (number < cuts % boards) for number in range(boards)]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(player.run(share, progress))
            for player, share in zip(players, shares, strict=True)
        ]
    return Outcome(
        [task.result() for task in tasks], [player.figures for player in players], time.monotonic() - started
    )


def main() -> int:
    """Print the figures; 1 when anything was lost, doubled or otherwise wrong."""
    parser = argparse.ArgumentParser(
        description="Cut connections, and prove that nothing is lost or doubled."
    )
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--boards", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "soak", help="where the logs go")
    args = parser.parse_args()
    done = itertools.count(1)

    def progress() -> None:
        number = next(done)
        if number % 50 == 0:
            print(f"soak: {number} of {args.cuts} rounds", flush=True)

    try:
        outcome = asyncio.run(soak(args.cuts, args.boards, args.seed, args.out, progress))
    except* SoakError as group:
        sys.exit("\n".join(f"soak: {error}" for error in group.exceptions))
    cuts, impaired = outcome.cuts, sum((one.impaired for one in outcome.figures), Counter[str]())
    print(
        f"cuts       {cuts['all']}: "
        + ", ".join(f"{count} {name}" for name, count in cuts.items() if name != "all")
    )
    print("besides    " + ", ".join(f"{count} x {name}" for name, count in impaired.items()))
    print(f"messages   {outcome.total('handled'):,} numbered, {outcome.total('resent'):,} of them came again")
    print(f"calls      {outcome.total('calls'):,}")
    print(f"lost       {outcome.total('lost')}")
    print(f"doubled    {outcome.total('doubled')}")
    if outcome.growth is not None:
        print(f"heap       {outcome.growth:+d} bytes, first {SPAN} cuts of a board against its last {SPAN}")
    print(f"time       {outcome.seconds / 60:.1f} min, {args.boards} boards, logs in {args.out}")
    for problem in outcome.problems:
        print("problem:", problem)
    bench.save(outcome.rows("make soak"), keep=True)
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
