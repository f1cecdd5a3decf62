"""What the bridge adds to a model's own time, per adapter: real host, the provider's peer (`tests/peers`), real firmware.

Two delays, for an utterance (a tone of a second, whose end is sharp) at a simulated board: from its last sample at the
microphone to the provider's having it, less the time of quiet that whoever decides on its end waits for, and from the
provider's first byte of audio to the first audible sample at the DAC. Then the CPU of the host while sessions talk: audio of the user goes
up and audio of the agent comes down, both at their own pace. The echo agent stands beside them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
from vrt_host.sim.board import SimBoard
from vrt_host.sim.hardware import DAC_RATE, Hardware
from vrt_host.sim.wav import MIC_RATE
from websockets.asyncio.client import ClientConnection, connect

TESTS = Path(__file__).resolve().parents[1] / "tests"
TIMES = 12
"""Utterances per adapter."""
TALKING = 8
"""Sessions that talk at once."""
WARM_S, WINDOW_S = 2.0, 8.0
QUIET_S = {"chat": 0.5, "aitp": 0.5}
"""How long is listened for the end of an utterance, by the agent itself; the peers of all others take 400 ms."""
AUDIBLE = 328
"""The first sample beyond this, 40 dB below full scale, is audible."""
DEADLINE_S = 20.0
FRAME = b"\xff" * 160
PCMU = {"encoding": "pcmu", "sampleRate": 8000}


@contextlib.asynccontextmanager
async def serving(name: str, config: Path | None) -> AsyncIterator[tuple[int, int]]:
    """`vrt serve` with an agent in a process of its own; its port and its pid."""
    words = ["-m", "vrt_host", "serve", "--port", "0", "--agent", name]
    words += [] if config is None else ["--config", str(config)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            while b"ws://" not in (said := await process.stdout.readline()):
                if not said:
                    raise RuntimeError(f"vrt serve --agent {name} did not start")
        yield int(said.split()[-1].rpartition(b":")[2].strip(b"/")), process.pid
    finally:
        process.terminate()
        await process.wait()


async def delays(peer: Any, port: int, quiet_s: float) -> tuple[list[float], list[float]]:
    """Milliseconds of each utterance: to the provider, and from the provider to the DAC."""
    up, down = [], []
    last = 1.0
    sound = np.round(9_000 * np.sin(2 * np.pi * 400 * np.arange(MIC_RATE) / MIC_RATE)).astype(np.int16)
    ready = asyncio.Event()
    rest = asyncio.Event()
    hardware = Hardware(seed=1)

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            ready.set()
        if event["event"] == "led":
            rest.set() if event["state"] == "listening" else rest.clear()

    board = SimBoard(url=f"ws://127.0.0.1:{port}/", hardware=hardware)
    board.listen(listen)
    async with board, asyncio.timeout(TIMES * DEADLINE_S):
        await ready.wait()
        for _ in range(TIMES):
            await peer.respond([{"wait": "go"}, {"say": "All right.", "seconds": 0.5}])
            start, _ = board.say(sound, hardware.now + 0.3)
            committed = await peer.seen("committed")
            up.append(1000 * (committed["t"] - hardware.monotonic(start + last) - quiet_s))
            await peer.seen("waiting")
            await peer.release("go")
            released = await peer.seen("released")
            first = None
            while first is None:
                await asyncio.sleep(0.1)
                first = audible(board, released["t"])
            down.append(1000 * (first - released["t"]))
            await rest.wait()
    return up, down


def audible(board: SimBoard, since: float) -> float | None:
    """When the first audible sample after a time left the DAC, on the monotonic clock."""
    speaker = board.hardware.speaker
    start = board.hardware.monotonic(speaker.start)
    sound = np.abs(board.speaker_samples.astype(np.int32))
    first = max(0, round((since - start) * DAC_RATE))
    found = np.flatnonzero(sound[first:] > AUDIBLE)
    return start + (first + int(found[0])) / DAC_RATE if len(found) else None


async def talk(ws: ClientConnection) -> None:
    """A user's microphone, in real time."""
    start, count = time.monotonic(), 0
    while True:
        await ws.send(b"\x01" + count.to_bytes(4, "big") + FRAME)
        count += 1
        await asyncio.sleep(max(0.0, start + count * 0.02 - time.monotonic()))


async def take(ws: ClientConnection, counts: list[int], place: int) -> None:
    """What comes down."""
    async for frame in ws:
        if isinstance(frame, bytes):
            counts[place] += 1


async def talking(peer: Any, port: int, pid: int) -> float:
    """Per cent of a core that each talking session takes."""
    counts = [0] * TALKING
    async with contextlib.AsyncExitStack() as stack:
        tasks = []
        for place in range(TALKING):
            ws = await stack.enter_async_context(
                connect(f"ws://127.0.0.1:{port}/", proxy=None, compression=None, max_queue=None)
            )
            await ws.send(
                json.dumps({"v": 1, "seq": 0, "type": "hello", "input": PCMU, "output": PCMU, "tools": []})
            )
            await ws.recv()  # ready
            if peer is not None:
                await peer.respond([{"say": "I go on.", "seconds": 60, "pace": 1.0}])
                await ws.send(json.dumps({"v": 1, "seq": 1, "type": "text", "text": "Go on."}))
            tasks += [asyncio.create_task(talk(ws)), asyncio.create_task(take(ws, counts, place))]
        await asyncio.sleep(WARM_S)
        before, cpu, wall = sum(counts), cpu_s(pid), time.monotonic()
        await asyncio.sleep(WINDOW_S)
        cpu, wall, played = cpu_s(pid) - cpu, time.monotonic() - wall, (sum(counts) - before) / 50
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if played < 0.8 * TALKING * wall:
        raise RuntimeError(
            f"of {TALKING * wall:.0f} s of audio only {played:.0f} s came: nothing was measured"
        )
    return 100 * cpu / wall / TALKING


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has taken so far, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def measure(kind: Any) -> dict[str, Any]:
    """One agent."""
    with tempfile.TemporaryDirectory() as folder:
        async with kind(Path(folder)) as subject:
            if subject.peer is None:
                async with serving(kind.name, None) as (port, pid):
                    return {"cpu": await talking(None, port, pid)}
            async with serving(kind.name, subject.config) as (port, pid):
                up, down = await delays(subject.peer, port, QUIET_S.get(kind.name, 0.4))
                await subject.peer.reset()
            async with serving(kind.name, subject.config) as (port, pid):
                return {"up": up, "down": down, "cpu": await talking(subject.peer, port, pid)}


def rows() -> list[dict[str, Any]]:
    """The figures (`bench.py`)."""
    if not Path("/proc/self/stat").exists():
        raise RuntimeError("this benchmark reads CPU time from /proc: it needs Linux")
    sys.path[:0] = [str(TESTS), str(TESTS / "host")]
    kinds = importlib.import_module("peers.subjects").SUBJECTS
    echo = asyncio.run(measure(kinds["echo"]))["cpu"]
    made = [{"name": "agents.echo.cpu", "value": echo, "unit": "% of a core per talking session"}]
    for name, kind in kinds.items():
        if not kind.provider or kind.name != name:  # another way to the same agent
            continue
        figures = asyncio.run(measure(kind))
        for way, what in (("up", "end of speech to provider"), ("down", "provider's audio to DAC")):
            times = figures[way]
            p95 = f"p95 {np.percentile(times, 95):.0f}"
            made.append(
                {
                    "name": f"agents.{name}.{way}_ms",
                    "value": statistics.median(times),
                    "unit": f"ms, {what}, {p95}",
                }
            )
        made.append(
            {
                "name": f"agents.{name}.cpu",
                "value": figures["cpu"],
                "unit": "% of a core per talking session",
                "baseline": f"echo: {echo:.2f}",
                "ratio": figures["cpu"] / echo,
            }
        )
    return made


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row))
