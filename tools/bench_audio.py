"""The device's audio path, whole: link, session, microphone and speaker, on real MicroPython with the virtual I2S.

`device.cpu_ratio` compares the firmware with a MicroPython program on the same binary that moves the same bytes through
the same virtual I2S, in the same transfers, and a bare socket. Both run at once, so that what else the machine does weighs
on both; the figure is the median of some rounds. `device.silence_after_interrupt_frames` is the worst of
many interruptions by the host at random moments: how many frames of 20 ms the DAC sounds on beyond the depth of its DMA.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import statistics
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from vrt_host.agents.base import (
    PCMU,
    Abilities,
    Agent,
    Audio,
    AudioBegin,
    AudioEnd,
    Heard,
    Port,
    SessionInfo,
    ToolResult,
    TurnBegin,
    TurnEnd,
)
from vrt_host.agents.echo import EchoAgent
from vrt_host.config import ServerConfig
from vrt_host.resources import root
from vrt_host.server import serve
from vrt_host.sim.board import SimBoard, find_micropython
from vrt_host.sim.converters import pink_noise
from vrt_host.sim.hardware import Event
from vrt_host.sim.wav import MIC_RATE

ROUNDS = 5
ROUND_MS = 4000
INTERRUPTIONS = 16
ONSETS = 8
NOISE_RMS = (30, 300, 3000)
NOISE_S = 600
DEADLINE_S = 60
HEAP = "256k"  # the figures are of time and growth; how small a heap may be is measured elsewhere

# Runs the firmware's own loop. The clock and the heap are read in `wait`, where every step ends.
FIRMWARE = """
import gc, io, sys, time
import board, micropython
from vrt.build import build
from vrt.config import checked

class Over(Exception):
    pass

app = build(board, checked(board.config(), board.DESCRIPTION["duplex"]))
over = Over()
sleep = board.wait
end = first = last = 0

def wait(link, ms):
    global first, last
    readable = sleep(link, ms)
    if not first:
        first = gc.mem_alloc()
    if time.ticks_diff(end, time.ticks_ms()) <= 0:
        last = gc.mem_alloc()
        raise over
    return readable

def run(ms):
    global end, first
    first = 0
    end = time.ticks_add(time.ticks_ms(), ms)
    try:
        steps()
    except Over:
        pass

def steps():
    while True:
        app.step(time.ticks_ms(), board.wait(app.link.sock, 20) is not False)

board.wait = wait
run(2500)
gc.collect()
gc.disable()
up, down, cpu = app.sound.sent, app.sound.speaker.frames, time.clock()
run(ROUND_MS)
cpu = time.clock() - cpu
gc.enable()
up, down = app.sound.sent - up, app.sound.speaker.frames - down
fields = {"up": up, "down": down, "us": cpu * 1e6 / up, "bytes": (last - first) / up}
gc.collect()
fields["locked"] = ""
micropython.heap_lock()
try:
    run(1000)
    micropython.heap_unlock()
except MemoryError as error:
    micropython.heap_unlock()
    text = io.StringIO()
    sys.print_exception(error, text)
    fields["locked"] = text.getvalue()
board.event("measured", **fields)
while True:
    sleep(None, 1000)
"""

# A frame up for every 20 ms heard, a frame down for every frame up, and sound for the speaker, in the firmware's transfers.
BASELINE = """
import socket, time
from array import array
import board

sock = socket.socket()
sock.connect(socket.getaddrinfo("127.0.0.1", PORT)[0][-1])
sock.setsockopt(6, 1, 1)
sock.setblocking(False)
heard = (array("h", bytes(640)), array("h", bytes(640)))
played = (array("h", bytes(768)), array("h", bytes(768)))
frame_up, frame_down = bytearray(UP), bytearray(DOWN)
mic, speaker = board.microphone(), board.speaker()
ready = owed = up = down = fills = takes = 0

def on_heard(i2s):
    global ready, fills
    fills = 1 - fills
    i2s.readinto(heard[fills])
    ready += 1

def on_taken(i2s):
    global takes
    takes = 1 - takes
    i2s.write(played[takes])

def run(ms):
    global ready, owed, up, down
    end = time.ticks_add(time.ticks_ms(), ms)
    while time.ticks_diff(end, time.ticks_ms()) > 0:
        board.wait(sock, 100)
        if owed and sock.readinto(frame_down):
            owed -= 1
            down += 1
        if ready:
            ready -= 1
            sock.write(frame_up)
            owed += 1
            up += 1

mic.irq(on_heard)
speaker.irq(on_taken)
mic.readinto(heard[0])
speaker.write(played[0])
run(2500)
before_up, before_down, cpu = up, down, time.clock()
run(ROUND_MS)
cpu = time.clock() - cpu
up, down = up - before_up, down - before_down
board.event("measured", up=up, down=down, us=cpu * 1e6 / up)
while True:
    board.wait(None, 1000)
"""

# The firmware's microphone, fed from a file as fast as it goes; prints how often a voice began.
NOISE = """
import sys
from vrt.audio.mic import Mic

class File:
    def irq(self, handler):
        self.handler = handler

    def readinto(self, buf):
        self.buf = buf
        return 640

mic = Mic(File(), encoding="pcmu", rate=8000)
mic.start(0)
began = now = 0
voiced = False
with open(sys.argv[1], "rb") as file:
    while file.readinto(mic.i2s.buf) == 640:
        mic.i2s.handler(mic.i2s)
        now += 20
        if mic.poll(now) is not None:
            mic.sent()
        before, voiced = voiced, mic.voiced
        began += voiced and not before
print(began)
"""

UP_BYTES = 8 + 5 + 160
"""A masked WebSocket frame with a vRT frame of 20 ms of mu-law."""
DOWN_BYTES = 4 + 5 + 160


class ToneAgent(Agent):
    """Plays a tone without a zero sample, and stops it when it is told to."""

    name: ClassVar[str] = "tone"
    abilities: ClassVar[Abilities] = Abilities(inputs=(PCMU,), outputs=(PCMU,))

    def __init__(self) -> None:
        self.turns = 0
        self.started = asyncio.Event()

    async def start(self, session: SessionInfo, port: Port) -> None:
        """Remember the port."""
        self.port = port
        self.started.set()

    def play(self, seconds: float) -> None:
        """Begin a turn with so much sound."""
        self.turns += 1
        turn = str(self.turns)
        self.port.emit(TurnBegin(turn))
        self.port.emit(AudioBegin(turn, turn))
        self.port.emit(Audio(turn, turn, bytes([0x90, 0x10]) * int(4000 * seconds)))
        self.port.emit(AudioEnd(turn, turn))
        self.port.emit(TurnEnd(turn))

    def cut(self) -> None:
        """Interrupt what is played."""
        self.turns += 1
        self.port.emit(TurnBegin(str(self.turns), "listening"))
        self.port.emit(TurnEnd(str(self.turns)))

    def user_text(self, text: str) -> None:
        """Nobody types."""

    def user_audio(self, payload: bytes) -> None:
        """Not listened to: the device's own voice detection is measured."""

    def interrupted(self, turn: str, heard: Sequence[Heard]) -> None:
        """There is nothing to stop."""

    def tool_result(self, turn: str, result: ToolResult) -> None:
        """It calls no tools."""


@contextlib.asynccontextmanager
async def hosted(agent: Callable[[], Agent]) -> AsyncIterator[str]:
    """The URL of a host with this agent."""
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    task = asyncio.create_task(serve(ServerConfig(port=0), agent, ready=ready.set_result, stop=stop))
    try:
        yield f"ws://127.0.0.1:{await ready}/"
    finally:
        stop.set()
        await task


@contextlib.asynccontextmanager
async def answering() -> AsyncIterator[int]:
    """The port of a peer that answers each frame of the baseline with one."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readexactly(UP_BYTES)
                writer.write(bytes(DOWN_BYTES))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def measured(text: str, url: str) -> Event:
    """The figures that a program reports."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(text.replace("ROUND_MS", str(ROUND_MS)))
        async with SimBoard(url=url, heap=HEAP, config={"stats_ms": 0}, program=program) as board:
            async with asyncio.timeout(DEADLINE_S):
                async for event in board.events():
                    if event["event"] == "measured":
                        return event
            board.check()
    raise RuntimeError("the program reported nothing")


async def cost() -> list[dict[str, Any]]:
    """CPU time and heap of a frame up and a frame down."""
    ours, theirs = [], []
    async with hosted(EchoAgent) as url, answering() as port:
        baseline = (
            BASELINE.replace("PORT", str(port)).replace("UP", str(UP_BYTES)).replace("DOWN", str(DOWN_BYTES))
        )
        for _ in range(ROUNDS):
            pair = await asyncio.gather(measured(FIRMWARE, url), measured(baseline, "ws://127.0.0.1:1/"))
            ours.append(pair[0])
            theirs.append(pair[1])
    for event in (*ours, *theirs):
        if min(event["up"], event["down"]) < ROUND_MS / 20 * 0.9:
            print(f"bench_audio: frames went missing, the machine was too busy: {event}")
    for event in ours:
        if event["locked"]:
            print(f"bench_audio: something was allocated:\n{event['locked']}")
    allocated = max(event["bytes"] for event in ours)
    ratio = statistics.median(a["us"] / b["us"] for a, b in zip(ours, theirs, strict=True))
    ours_us, theirs_us = (statistics.median(event["us"] for event in events) for events in (ours, theirs))
    return [
        {
            "name": "device.alloc_bytes_per_frame",
            "value": allocated,
            "unit": "B per frame up and down",
            "budget": "0 B",
            "ok": allocated == 0 and not any(event["locked"] for event in ours),
        },
        {
            "name": "device.cpu_ratio",
            "value": ratio,
            "unit": f"x ({ours_us:.0f} us per frame up and down)",
            "baseline": f"bare socket and I2S: {theirs_us:.0f} us",
            "ratio": ratio,
            "budget": "<= 2.0 x",
            "ok": ratio <= 2.0,
        },
    ]


class Listener:
    """Waits for the board's events."""

    def __init__(self, board: SimBoard) -> None:
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._sounds = False
        board.listen(self._events.put_nowait)

    async def next(self, name: str, **fields: Any) -> Event:
        """The next event of that name with these fields."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                event = await self._events.get()
                if event["event"] == "sound":
                    self._sounds = event["on"]
                if event["event"] == name and all(event.get(key) == value for key, value in fields.items()):
                    return event

    async def quiet(self) -> None:
        """Wait until the speaker is silent, which it is not yet when the echo has just been measured."""
        if self._sounds:
            await self.next("sound", on=False)


def voice(seconds: float) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Something like a voice that begins at once: a loud buzz of 120 Hz."""
    t = np.arange(int(16_000 * seconds)) / 16_000
    return (6000 * np.sign(np.sin(2 * np.pi * 120 * t)) * np.hanning(len(t)) ** 0.1).astype(np.int16)


async def silence() -> list[dict[str, Any]]:
    """How long it sounds after an interruption, by the host and by the user's voice."""
    agent = ToneAgent()
    draw = random.Random(1)
    async with (
        hosted(lambda: agent) as url,
        SimBoard(url=url, heap=HEAP, config={"stats_ms": 0}) as board,
    ):
        listener = Listener(board)
        hardware = board.hardware
        await listener.next("ready")
        await listener.quiet()
        depth_ms = hardware.dac.depth_s * 1000 if hardware.dac else 0.0
        after_cut, after_onset = [], []
        for _ in range(INTERRUPTIONS):
            agent.play(5)
            await listener.next("sound", on=True)
            await asyncio.sleep(0.5 + draw.random() / 4)
            at = hardware.now
            agent.cut()
            after_cut.append((await listener.next("sound", on=False))["t"] - at)
        for _ in range(ONSETS):
            agent.play(5)
            await listener.next("sound", on=True)
            await asyncio.sleep(0.5 + draw.random() / 4)
            at, _ = board.say(voice(0.4))
            after_onset.append((await listener.next("sound", on=False))["t"] - at)
            await asyncio.sleep(0.6)
    beyond = [(seconds * 1000 - depth_ms) / 20 for seconds in after_cut]
    return [
        {
            "name": "device.silence_after_interrupt_frames",
            "value": max(beyond),
            "unit": f"frames of 20 ms beyond the DMA ({depth_ms:.1f} ms), worst of {len(beyond)}",
            "budget": "<= 1 frame",
            "ok": max(beyond) <= 1,
        },
        {
            "name": "device.silence_after_onset_ms",
            "value": statistics.median(after_onset) * 1000,
            "unit": f"ms from the onset of a voice, median of {len(after_onset)}",
            "baseline": f"worst {max(after_onset) * 1000:.0f} ms",
        },
    ]


async def noise() -> list[dict[str, Any]]:
    """How often the device takes steady pink noise for a voice."""
    binary = find_micropython()
    triggers = 0
    with tempfile.TemporaryDirectory() as folder:
        file, program = Path(folder) / "noise", Path(folder) / "program.py"
        program.write_text(NOISE)
        for seed, rms in enumerate(NOISE_RMS):
            file.write_bytes(pink_noise(NOISE_S * MIC_RATE, rms, seed).tobytes())
            process = await asyncio.create_subprocess_exec(
                binary,
                program,
                file,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "MICROPYPATH": str(root() / "firmware")},
            )
            triggers += int((await process.communicate())[0])
    hours = NOISE_S * len(NOISE_RMS) / 3600
    return [
        {
            "name": "device.false_voice_per_hour",
            "value": triggers / hours,
            "unit": f"in {hours * 60:.0f} min of steady pink noise at {len(NOISE_RMS)} levels",
        }
    ]


async def _rows() -> list[dict[str, Any]]:
    return [*await cost(), *await silence(), *await noise()]


def rows() -> list[dict[str, Any]]:
    """The figures of the audio path."""
    return asyncio.run(_rows())
