"""How fast and how right the local agent answers: real host, real firmware on the simulated board, real time.

Every sentence of `tests/speech` is heard by the board's microphone, over pink noise that never stops, 20 dB below the speech.
`local.reply_ms` goes from the last sample of speech at the microphone to the first audible sample at the DAC, over the
unconfirmed commands that were answered as they should be; those that were not are counted in the rows beside it. Nothing
is kept between answers but the models and a few fixed phrases ("Sorry, I did not catch that.").
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
import wave
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from vrt_host.agents.local import LocalAgent
from vrt_host.config import ServerConfig
from vrt_host.server import serve
from vrt_host.sim.board import SimBoard
from vrt_host.sim.hardware import DAC_RATE, Hardware

CORPUS = Path(__file__).resolve().parents[1] / "tests" / "speech"
SPEECH_RMS, NOISE_RMS = 3276, 327
"""Of int16: speech 20 dB below full scale, and the noise 20 dB below speech."""
AUDIBLE = 328
"""The first sample beyond this, 40 dB below full scale, is audible."""
PAUSE_S = 0.8
"""Of noise alone, before each sentence."""
DEADLINE_S = 12.0
START_S = 60.0
STAGES = ("pause", "recognised", "end", "call", "result", "audio")
"""What the agent tells on the way, in the order of a usual answer."""


@dataclass
class Answer:
    """What came of one sentence. Times are seconds after its last sample of speech."""

    sentence: dict[str, Any]
    stages: dict[str, float] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    asked: bool = False
    understood: list[str] = field(default_factory=list)
    """What the recognisers heard on the way."""
    heard: float | None = None
    """When the answer became audible."""

    @property
    def right(self) -> bool:
        """Whether exactly the calls were made that the sentence asks for."""
        return bool(self.calls == self.sentence["calls"])


class Bench:
    """One board, one session, one sentence after the other."""

    def __init__(self, board: SimBoard) -> None:
        self._board = board
        self.connected = asyncio.Event()
        self._idle = asyncio.Event()
        self._asking = asyncio.Event()
        self._traced: list[tuple[float, str, dict[str, Any]]] = []

    async def follow(self, host: asyncio.StreamReader) -> None:
        """What the host tells; its clock is ours."""
        while line := await host.readline():
            event = json.loads(line)
            if "stage" in event:
                self._traced.append((event["t"], event["stage"], event["fields"]))
            elif event["event"] == "session.connected":
                self.connected.set()
            elif event["state"] == "idle":
                self._idle.set()
            else:
                self._idle.clear()

    def listen(self, event: dict[str, Any]) -> None:
        """What the board does."""
        if event["event"] == "led" and event["state"] == "confirm":
            self._asking.set()

    async def say(self, sentence: dict[str, Any]) -> Answer:
        """Say a sentence and wait until it is answered, or leave it at that when nothing comes."""
        hardware = self._board.hardware
        self._traced.clear()
        self._asking.clear()
        self._idle.clear()
        start, _ = self._board.say(read(sentence), hardware.now + PAUSE_S)
        last = start + sentence["end_ms"] / 1000
        async with asyncio.timeout(DEADLINE_S):
            refuse = asyncio.create_task(self._refuse())
            await self._idle.wait()
            refuse.cancel()
        answer = Answer(sentence, asked=self._asking.is_set())
        for at, name, fields in self._traced:
            answer.stages[name] = at - hardware.monotonic(last)
            if name == "call":
                answer.calls += [{"name": tool, "arguments": given} for tool, given in fields["calls"]]
            if name in ("pause", "recognised", "end"):
                answer.understood.append(fields.get("grammar") or fields.get("text", ""))
        sound = np.abs(self._board.speaker_samples.astype(np.int32))
        first = max(0, round((last - hardware.speaker.start) * DAC_RATE))
        audible = np.flatnonzero(sound[first:] > AUDIBLE)
        if len(audible):
            answer.heard = hardware.speaker.start + (first + audible[0]) / DAC_RATE - last
        return answer

    async def _refuse(self) -> None:
        """A tap on the button refuses what it is asked for: the bench unlocks nothing."""
        await self._asking.wait()
        await self._board.press(0.2)


def read(sentence: dict[str, Any]) -> NDArray[np.int16]:
    """The recording, as loud as it should be."""
    with wave.open(str(CORPUS / "voices" / sentence["file"])) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float64)
    first, last = (round(sentence[key] * 16) for key in ("start_ms", "end_ms"))
    samples *= SPEECH_RMS / np.sqrt((samples[first:last] ** 2).mean())
    return np.clip(samples, -32768, 32767).astype(np.int16)


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Bench]:
    """A host with the local agent, in a process of its own, and a board with the corpus's tools connected to it."""
    host = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--host"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert host.stdout is not None
    assert host.stdin is not None
    try:
        async with asyncio.timeout(START_S):
            port = json.loads(await host.stdout.readline())["port"]
        hardware = Hardware(noise_rms=NOISE_RMS, seed=1)
        board = SimBoard(
            url=f"ws://127.0.0.1:{port}/", heap="256k", tools=CORPUS / "tools.py", hardware=hardware
        )
        bench = Bench(board)
        board.listen(bench.listen)
        listening = asyncio.create_task(bench.follow(host.stdout))
        async with board:
            async with asyncio.timeout(DEADLINE_S):
                await bench.connected.wait()
            yield bench
    finally:
        host.stdin.close()  # ends it
        await host.wait()
    await listening


async def host() -> None:
    """The other process: serve until standard input ends, and tell of everything, a line of JSON each."""
    await asyncio.to_thread(LocalAgent.prepare)
    stop = asyncio.Event()

    def tell(**event: Any) -> None:
        print(json.dumps(event), flush=True)

    def observe(event: dict[str, Any]) -> None:
        if event["event"] in ("session.connected", "turn.state"):
            tell(**event)

    asyncio.get_running_loop().add_reader(0, stop.set)
    await serve(
        ServerConfig(port=0),
        lambda: LocalAgent(trace=lambda name, **fields: tell(t=time.monotonic(), stage=name, fields=fields)),
        ready=lambda port: tell(port=port),
        observer=observe,
        stop=stop,
    )


async def measure(sentences: list[dict[str, Any]]) -> list[Answer]:
    """Say all of them."""
    answers = []
    async with running() as bench:
        for sentence in sentences:
            try:
                answers.append(await bench.say(sentence))
            except TimeoutError:
                answers.append(Answer(sentence))
    return answers


def report(answers: list[Answer], console: Console) -> None:
    """Where the time goes, and what went wrong."""
    table = Table("stage of a right answer", "median ms", "p95 ms", title="after the last sample of speech")
    right = [answer for answer in answers if answer.sentence["kind"] == "command" and answer.right]
    for stage in (*STAGES, "heard"):
        times = [
            at
            for answer in right
            if (at := answer.heard if stage == "heard" else answer.stages.get(stage)) is not None
        ]
        if times:
            table.add_row(stage, f"{1000 * np.median(times):.0f}", f"{1000 * np.percentile(times, 95):.0f}")
    console.print(table)
    voices = Table(
        "voice", "commands", "right", "nothing done", "something else done", title="unconfirmed commands"
    )
    for voice in sorted({answer.sentence["voice"] for answer in answers}):
        mine = [a for a in answers if a.sentence["voice"] == voice and a.sentence["kind"] == "command"]
        voices.add_row(
            voice,
            *(str(n) for n in (len(mine), sum(a.right for a in mine), sum(not a.calls for a in mine))),
            str(sum(bool(a.calls) and not a.right for a in mine)),
        )
    console.print(voices)
    for answer in answers:
        if not answer.right:
            console.print(
                f"  {answer.sentence['kind']}: {answer.sentence['file']}: {answer.calls or 'nothing done'}"
            )


def rows() -> list[dict[str, Any]]:
    """The figures (`bench.py`)."""
    sentences = json.loads((CORPUS / "corpus.json").read_text("utf-8"))
    answers = asyncio.run(measure(sentences))
    report(answers, Console(width=120))
    of = {
        kind: [a for a in answers if a.sentence["kind"] == kind]
        for kind in ("command", "confirmed", "other", "stop")
    }
    heard = [1000 * a.heard for a in of["command"] if a.right and a.heard is not None]

    def share(name: str, count: int, whole: int, **budget: Any) -> dict[str, Any]:
        return {"name": name, "value": count, "unit": f"of {whole}", **budget}

    median = float(np.median(heard)) if heard else float("inf")
    harm = sum(bool(a.calls) and not a.right for a in answers)
    acted = sum(bool(a.calls) for a in of["other"] + of["stop"])
    return [
        {"name": "local.reply_ms", "value": median, "unit": "ms", "budget": "<= 500", "ok": median <= 500},
        {
            "name": "local.reply_p95_ms",
            "value": float(np.percentile(heard, 95)) if heard else None,
            "unit": "ms",
        },
        share("local.commands_right", sum(a.right for a in of["command"]), len(of["command"])),
        share("local.commands_wrong", harm, len(answers), budget="0", ok=harm == 0),
        share(
            "local.confirmed_asked", sum(a.right and a.asked for a in of["confirmed"]), len(of["confirmed"])
        ),
        share("local.others_acted_on", acted, len(of["other"] + of["stop"]), budget="0", ok=acted == 0),
    ]


if __name__ == "__main__" and "--host" in sys.argv:
    asyncio.run(host())
elif __name__ == "__main__":
    for row in rows():
        print(json.dumps(row))
