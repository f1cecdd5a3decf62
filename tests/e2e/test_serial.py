"""All of vRT over a serial line: the real firmware on a terminal, the real host on its other end, `mpremote` before and after."""

import asyncio
import contextlib
import itertools
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from vrt_host.agents import base
from vrt_host.agents.echo import EchoAgent
from vrt_host.config import ServerConfig
from vrt_host.resources import root
from vrt_host.server import serve
from vrt_host.sim.board import SimBoard

DEADLINE_S = 60
HEAP = "192k"
CALLS = 24


class Caller(base.Agent):
    """Switches the light on and off, one call a turn, and speaks in each."""

    name = "caller"
    results = None
    sessions = 0

    async def start(self, session, port):
        Caller.sessions += 1
        self.port = port
        self.turns = itertools.count(1)
        self.begin()

    def begin(self):
        number = next(self.turns)
        if number > CALLS:
            return
        turn = f"turn-{number}"
        self.port.emit(base.TurnBegin(turn))
        self.port.emit(base.AudioBegin(turn, turn))
        self.port.emit(base.Audio(turn, turn, b"\x15" * 1600))
        self.port.emit(base.AudioEnd(turn, turn))
        self.port.emit(base.CallBegin(turn, f"call-{number}", "light"))
        self.port.emit(base.Call(turn, f"call-{number}", "light", {"state": "on" if number % 2 else "off"}))

    def tool_result(self, turn, result):
        Caller.results.append((turn, result.ok))
        self.port.emit(base.Text(turn, "\u00fc\u06c0 " * 300))
        self.port.emit(base.TurnEnd(turn))
        self.begin()

    def user_text(self, text):
        pass

    def user_audio(self, payload):
        pass

    def interrupted(self, turn, heard):
        pass  # a new turn ends what is still played of the one before


@contextlib.asynccontextmanager
async def hosting(path, agent):
    ready, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
    config = ServerConfig(port=0, serial=(str(path),))
    task = asyncio.create_task(serve(config, agent, ready=ready.set_result, stop=stop))
    try:
        await ready
        yield
    finally:
        stop.set()
        await task


@pytest.fixture
def path(tmp_path):
    return tmp_path / "port"


class Watched:
    """A board's events."""

    def __init__(self, board):
        self.seen = []
        self._news = asyncio.Event()
        board.listen(self._hear)

    def _hear(self, event):
        self.seen.append(event)
        self._news.set()

    def named(self, name, /, **fields):
        return [
            event
            for event in self.seen
            if event["event"] == name and all(event.get(key) == value for key, value in fields.items())
        ]

    async def until(self, holds):
        async with asyncio.timeout(DEADLINE_S):
            while not holds():
                self._news.clear()
                await self._news.wait()

    async def count(self, number, name, /, **fields):
        await self.until(lambda: len(self.named(name, **fields)) >= number)


def board_on(path, **config):
    """A board that is not started yet, and all that it will tell: listened to before its first line."""
    config = {"safe_boot_ms": 0, "stats_ms": 0, **config}
    board = SimBoard(url=f"serial:{path}", heap=HEAP, config=config)
    return board, Watched(board)


async def mpremote(path, *words):
    program = shutil.which("mpremote", path=str(Path(sys.executable).parent)) or "mpremote"
    process = await asyncio.create_subprocess_exec(
        program,
        "connect",
        str(path),
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    return process.returncode, said.decode()


async def test_conversation_with_audio_both_ways(path):
    board, watched = board_on(path, stats_ms=100)
    async with hosting(path, EchoAgent), board:
        await watched.count(1, "audio_start")
        t = np.arange(16_000) / 16_000
        board.say((9_000 * np.sin(2 * np.pi * 300 * t)).astype(np.int16))
        await watched.until(lambda: np.abs(board.speaker_samples.astype(int)).max(initial=0) > 3000)
        assert not watched.named("lost")


async def test_what_a_line_damages_is_repaired_with_nothing_lost_or_doubled(path):
    Caller.results, Caller.sessions = [], 0
    dice = random.Random(7)

    def spoil(way, data):
        roll = dice.random()
        if roll < 0.04:  # a byte is wrong
            at = dice.randrange(len(data))
            return data[:at] + bytes((data[at] ^ 1 << dice.randrange(8),)) + data[at + 1 :]
        if roll < 0.05:  # some are missing
            return data[: dice.randrange(len(data))]
        return b"noise\r\n" + data if roll < 0.06 else data

    board, watched = board_on(path)
    async with hosting(path, Caller), board:
        await watched.count(1, "ready")
        board.cable.spoil = spoil
        await watched.until(lambda: len(Caller.results) >= CALLS // 2)
        board.cable.spoil = lambda way, data: b""
        await asyncio.sleep(0.5)  # the line is cut for so long
        board.cable.spoil = spoil
        await watched.until(lambda: len(Caller.results) >= CALLS)
    assert Caller.results == [(f"turn-{number}", True) for number in range(1, CALLS + 1)]
    assert Caller.sessions == 1
    assert watched.named("ready", resumed=True)
    switched = [event["value"] for event in watched.named("output", name="light")]
    assert switched == [0, *(number % 2 for number in range(1, CALLS + 1))]


async def test_host_that_starts_again_is_found(path):
    board, watched = board_on(path)
    async with board:
        for number in (1, 2):
            async with hosting(path, EchoAgent):
                await watched.count(number, "ready")
        assert watched.named("lost")[0]["code"] == 1001


async def test_board_that_starts_again_has_its_session_or_a_new_one(path):
    board, watched = board_on(path)
    async with hosting(path, EchoAgent), board:
        for number in (1, 2, 3):
            await watched.count(number, "ready")
            await board.cut()
            await board.boot()
        await watched.count(4, "ready")


async def test_mpremote_reaches_the_board_before_and_after(path):
    board, watched = board_on(path, safe_boot_ms=10_000)
    async with board:
        await watched.count(
            1, "console", text="vrt: starts in 10000 ms; Ctrl-C or the button held now stops it"
        )
        assert await mpremote(path, "resume", "exec", "print(6 * 7)") == (0, "42\n")
        board.check()
        code, said = await mpremote(path, "exec", "import os; print('config.json' in os.listdir())")
        assert (code, said) == (0, "True\n")
        async with asyncio.timeout(DEADLINE_S):
            await board.cut()
            board._config["safe_boot_ms"] = 0
            await board.boot()
        async with hosting(path, EchoAgent):
            await watched.count(1, "ready")
        # While no host answers, whoever types Ctrl-C has the board.
        await watched.count(1, "lost")
        assert await mpremote(path, "resume", "exec", "print(6 * 7)") == (0, "42\n")
        board.check()
        code, _ = await mpremote(path, "soft-reset")
        assert code == 0


async def test_ctrl_c_from_a_host_with_a_connection_stops_nothing(path):
    board, watched = board_on(path)
    async with hosting(path, EchoAgent), board:
        await watched.count(1, "ready")
        board.cable.type(b"\x03\x03\x04noise\x01")
        t = np.arange(8_000) / 16_000
        board.say((9_000 * np.sin(2 * np.pi * 300 * t)).astype(np.int16))
        await watched.count(1, "sound", on=True)
        assert not watched.named("lost")


def test_conformance_of_a_client_on_a_cable(vrt, command, path):
    code, lines, errors = vrt(
        "conformance",
        "client",
        "--serial",
        str(path),
        *("--only", "client.resume", "--only", "client.tools", "--"),
        *(*command, "sim", "--url", "{url}", "--tools", str(root() / "boards/sim/conformance.py")),
        *("--heap", "256k"),
        timeout=180,
    )
    assert code == 0, "\n".join(lines) + errors
    assert re.search(r"[2-9]\d passed, \d+ not testable", lines[-1]), lines[-1]


def test_harness_with_a_board_on_a_cable(vrt, command, path):
    words = [*command, "sim", "--url", f"serial:{path}", "--heap", HEAP, "--set", "listen=button", "--json"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as board:
        try:
            scenarios = ("late-call", "cut-while-a-call-runs", "host-away", "slow-network")
            code, lines, errors = vrt("harness", *scenarios, "--device", f"serial:{path}", timeout=180)
        finally:
            board.terminate()
    assert code == 0, "\n".join(lines) + errors
    told = "\n".join(lines)
    assert "a serial line cannot be slowed down" in told
    assert re.search(r"\d+ passed, [1-9] not testable", lines[-1]), lines[-1]
