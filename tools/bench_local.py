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
STAGES = ("pause", "recognised", "end", "call", "result", "audio")
"""What the agent tells on the way, in the order of a usual answer."""


@dataclass
class Answer:
    """What came of one sentence. Times are seconds after its last sample of speech."""

    sentence: dict[str, Any]
    stages: dict[str, float] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    asked: bool = False
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
        self._idle = asyncio.Event()
        self._asking = asyncio.Event()
        self._traced: list[tuple[float, str, dict[str, Any]]] = []

    def trace(self, name: str, **fields: Any) -> None:
        """A stage of an answer (`LocalAgent`'s `trace`)."""
        self._traced.append((time.monotonic(), name, fields))

    def observe(self, event: dict[str, Any]) -> None:
        """What the host does."""
        if event["event"] == "turn.state":
            if event["state"] == "idle":
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
    """A host with the local agent, and a board with the corpus's tools connected to it."""
    await asyncio.to_thread(LocalAgent.prepare)
    stop = asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    bench: list[Bench] = []
    ready = asyncio.Event()

    def observe(event: dict[str, Any]) -> None:
        if event["event"] == "session.connected":
            ready.set()
        if bench:
            bench[0].observe(event)

    serving = asyncio.create_task(
        serve(
            ServerConfig(port=0),
            lambda: LocalAgent(trace=bench[0].trace),
            ready=port.set_result,
            observer=observe,
            stop=stop,
        )
    )
    try:
        hardware = Hardware(noise_rms=NOISE_RMS, seed=1)
        board = SimBoard(
            url=f"ws://127.0.0.1:{await port}/", heap="256k", tools=CORPUS / "tools.py", hardware=hardware
        )
        bench.append(Bench(board))
        board.listen(bench[0].listen)
        async with board:
            async with asyncio.timeout(DEADLINE_S):
                await ready.wait()
            yield bench[0]
    finally:
        stop.set()
        await serving


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


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row))
