"""The real firmware in the heap of its budget: whatever befalls it, there is room."""

import asyncio
import contextlib
import re
import subprocess

import pytest
from vrt_host.agents.echo import EchoAgent
from vrt_host.config import ServerConfig
from vrt_host.harness.proxy import Proxy
from vrt_host.resources import root
from vrt_host.server import serve
from vrt_host.sim.board import SimBoard

HEAP = "128k"
DEADLINE_S = 60
LEAST_FREE = 12 * 1024
LEAST_IN_ONE_PIECE = 6 * 1024

# The firmware's own loop, but impatient: it connects again at once. After 100 rounds of a session it measures the heap.
PROGRAM = """
import gc
import board
from vrt.build import shed, start

app = start(board)
shed(app)
del shed, start  # as main.py does
sleep = board.wait
rounds = 0

def wait(link, ms):
    global rounds
    app.session.failures = 0
    if app.session.state == "open":
        rounds += 1
        if rounds == 100:
            gc.collect()
            free = n = gc.mem_free()
            while not room(n):
                n -= 256
            board.event("measured", free=free, piece=n)
    return sleep(link, ms)

def room(n):
    try:
        bytearray(n)
        return True
    except MemoryError:
        return False

board.wait = wait
app.run()
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@contextlib.asynccontextmanager
async def hosted():
    """A proxy before a host, whose agent says what it hears."""
    ready, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
    task = asyncio.create_task(serve(ServerConfig(port=0), EchoAgent, ready=ready.set_result, stop=stop))
    try:
        async with Proxy("127.0.0.1", await ready) as proxy:
            yield proxy
    finally:
        stop.set()
        await task


class Watched:
    """A board's events, none of which may tell of a full heap."""

    def __init__(self, board):
        self._events = board.events()

    async def next(self, name, /, **fields):
        """The next event of that name with these fields."""
        async with asyncio.timeout(DEADLINE_S):
            async for event in self._events:
                assert event["event"] != "traceback", event["text"]
                assert event.get("code") not in ("MEMORY", "UNTOLD", "CRASH"), event
                assert event.get("reason") != "memory", event
                if event["event"] == name and all(event.get(key) == value for key, value in fields.items()):
                    return event
        raise AssertionError(f"the board ended before {name}")


async def test_idle_heap_has_room(program):
    async with (
        hosted() as proxy,
        SimBoard(url=f"ws://127.0.0.1:{proxy.port}/", heap=HEAP, program=program) as board,
    ):
        found = await Watched(board).next("measured")
        assert found["free"] >= LEAST_FREE
        assert found["piece"] >= LEAST_IN_ONE_PIECE


async def test_heap_outlasts_refusals_and_cuts(program):
    async with (
        hosted() as proxy,
        SimBoard(url=f"ws://127.0.0.1:{proxy.port}/", heap=HEAP, program=program) as board,
    ):
        watched = Watched(board)
        await watched.next("ready", resumed=False)
        for reset in (True, False) * 8:
            proxy.cut(reset=reset)
            await watched.next("lost")
            await watched.next("ready", resumed=True)
        proxy.refusing = True
        proxy.cut()
        for _ in range(30):
            await watched.next("lost")
        proxy.refusing = False
        await watched.next("ready", resumed=True)


async def test_heap_outlasts_a_conversation_at_120k():
    async with (
        hosted() as proxy,
        SimBoard(
            url=f"ws://127.0.0.1:{proxy.port}/", heap="120k", config={"stats_ms": 1000, "listen": "open"}
        ) as board,
    ):
        watched = Watched(board)
        await watched.next("ready")
        await watched.next("audio_start")
        for _ in range(3):
            figures = await watched.next("stats")
        assert figures["received"] > 50
        proxy.cut()
        await watched.next("ready", resumed=True)
        await watched.next("audio_start")


async def test_revoked_token_is_told_and_stops_the_device(serve, command, tmp_path):
    tokens = tmp_path / "tokens.json"

    async def token(*words):
        process = await asyncio.create_subprocess_exec(
            *command, "token", *words, "kitchen", "--tokens", tokens, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        assert process.returncode == 0
        return said.decode().strip()

    secret = await token("add")
    url = serve(None, "--agent", "echo", "--tokens", str(tokens))
    async with SimBoard(url=url, token=secret, heap=HEAP, config={"stats_ms": 500}) as board:
        watched = Watched(board)
        await watched.next("ready")
        await watched.next("audio_start")
        await token("revoke")
        await watched.next("error", code="UNAUTHORIZED", message="the token was revoked")
        await watched.next("error", code="UNAUTHORIZED", message="a valid token is needed")
        await watched.next("led", state="denied")
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(12):  # the longest wait between two tries is 10 s, the first are much shorter
                async for event in board.events():
                    assert event["event"] not in ("connecting", "ready"), "it must not ask again"
                    if event["event"] == "stats":
                        break


TOOLS = """
from vrt.tools import tool

{names}

@tool("Add up.", {{"of": {{"type": "array", "items": {{"type": "integer"}}, "maxItems": 8}}}})
def total(of):
    return sum(of) + {first} - {first}
"""


async def test_users_tools_may_have_many_names(serve, tmp_path):
    names = [f"a_name_of_the_users_{number}" for number in range(40)]
    tools = tmp_path / "many.py"
    house = (root() / "boards" / "sim" / "tools.py").read_text("utf-8")
    text = TOOLS.format(names="\n".join(f"{name} = 1" for name in names), first=names[0])
    tools.write_text(house + text)
    url = serve(
        {
            "rules": [
                {
                    "on": {"start": True},
                    "do": [{"call": {"tool": "total", "arguments": {"of": [1, 2, 3]}}}],
                }
            ]
        }
    )
    async with SimBoard(url=url, heap=HEAP, tools=tools) as board:
        watched = Watched(board)
        await watched.next("ready")
        result = await watched.next("result", name="total")
        assert result["result"]["output"] == 6


# Tells how many names the heap has, before and after a peer and a user have used many characters.
NAMES = """
import json, micropython, sys
sys.path.insert(0, sys.argv[1])
from vrt.links.url import parse
from vrt.protocol.wire import WireError, decode
from vrt.tools import Tool

def hear(data):
    try:
        decode(bytearray(data), len(data))
    except WireError:
        pass

def use(first, last):
    word = bytes(range(first, last)).decode()
    for kind, member in (("error", "code"), ("text", "text"), (word, word)):
        hear(json.dumps({"v": 1, "seq": 1, "type": kind, member: word.upper(), "recoverable": True}).encode())
    for code in range(first, last):
        hear(b'{"v":1,"seq":1,"type":"text","text":"\\\\ud83d\\\\ude%02x"}' % code)
        hear(b'{"v":1,"seq":0,"type":"ack","upTo":%d}' % (code % 10))
    parse("ws://" + word + "/" + word)
    Tool(len, word, "Do it.")

use(0x61, 0x62)
micropython.qstr_info()
use(0x61, 0x7b)
micropython.qstr_info()
"""


def test_what_is_said_makes_no_names(micropython_binary):
    done = subprocess.run(
        [micropython_binary, "-c", NAMES, root() / "firmware"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    before, after = re.findall(r"n_qstr=(\d+)", done.stdout)
    assert before == after
