"""The raw client: what is awaited, and what is said when it does not come."""

import asyncio
import contextlib
import json

import pytest
from vrt_host.conformance.checks import Ledger, NotTestable, Unmet
from vrt_host.conformance.client import Server
from vrt_host.conformance.run import Pace
from vrt_host.conformance.watch import ALWAYS, Watch
from websockets.asyncio.server import serve

PACE = Pace(answer_s=0.2)
READY = {"sessionId": "s", "input": {"encoding": "pcm16"}, "output": {"encoding": "pcm16"}}


def frame(type_, seq=0, **members):
    return json.dumps({"v": 1, "seq": seq, "type": type_, **members})


@contextlib.asynccontextmanager
async def talking(*answers, profile=frozenset()):
    """A server that answers each text frame with the next of these lists of frames: (as the suite has it, what came)."""
    came = asyncio.Queue()
    left = list(answers)

    async def respond(link):
        async for one in link:
            for answer in left.pop(0) if left else ():
                await (link.close(answer) if isinstance(answer, int) else link.send(answer))
            came.put_nowait(json.loads(one) if one.startswith("{") else one)

    async with serve(respond, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield Server(f"ws://127.0.0.1:{port}", PACE, Watch(Ledger(ALWAYS)), profile=profile), came


async def test_what_is_awaited_is_found_behind_what_is_passed_over():
    answer = [frame("pong"), frame("ack", upTo=1), b"\x02\0\0\0\0ab", frame("ack", upTo=2)]
    async with talking(answer) as (server, _), server.line() as line:
        await line.text("go")
        assert (await line.until("ack", upTo=2))["upTo"] == 2
        assert line.seen("ack", upTo=1)
        line.rewind(0)
        assert [one.payload for one in await line.until_audio()] == [b"ab"]
        line.skip()
        with pytest.raises(Unmet, match=r"no ack within 0\.2 s; came: nothing"):
            await line.until("ack")


async def test_unmet_says_what_came_instead():
    answer = [frame("error", code="MALFORMED", recoverable=True), 1001]
    async with talking(answer) as (server, _), server.line() as line:
        await line.text("go")
        with pytest.raises(Unmet, match=r'no ready before close 1001; came: .*"MALFORMED"'):
            await line.until("ready")
        assert (await line.until_closed()).code == 1001


async def test_frame_that_is_no_message_is_kept_as_such():
    async with talking(["nonsense"]) as (server, _), server.line() as line:
        await line.text("go")
        assert (await line.frame())["type"] == "(invalid)"


async def test_sync_waits_for_the_pong_of_its_own_ping():
    async with talking([frame("pong")], [frame("pong")], []) as (server, came), server.line() as line:
        for _ in range(2):
            await line.send({"v": 1, "seq": 0, "type": "ping"})
            await came.get()
        with pytest.raises(Unmet, match="no pong"):
            await line.sync()


async def test_device_numbers_its_messages_and_sends_them_again_after_a_resume():
    state = frame("turn.state", 1, turnId="t", epoch=1, state="idle")
    answers = ([frame("ready", **READY), state], [], [], [frame("ready", resumedFrom=1, **READY)])
    async with talking(*answers) as (server, came), server.session(pings=False, tools=[]) as device:
        await device.line.until("turn.state")
        await device.send("context", context=1)
        await device.send("context", context=2)
        for _ in range(3):
            await came.get()
        device.cut()
        await device.resume()
        hello = await came.get()
        assert (hello["sessionId"], hello["resumeFrom"]) == ("s", 1)
        assert await came.get() == {"v": 1, "seq": 2, "type": "context", "context": 2}


async def test_answer_is_the_text_of_the_new_turn():
    old = frame("turn.state", 1, turnId="old", epoch=1, state="thinking")
    turn = [
        frame("turn.state", 2, turnId="old", epoch=1, state="idle"),
        frame("turn.state", 3, turnId="new", epoch=2, state="thinking"),
        frame("text", 4, text="1", turnId="new"),
        frame("text", 5, text="not this", turnId="old"),
        frame("text", 6, text="7"),
        frame("turn.state", 7, turnId="new", epoch=2, state="idle"),
    ]
    knows = frozenset({"count"})
    async with (
        talking([frame("ready", **READY), old], turn, profile=knows) as (server, came),
        server.session(pings=False) as device,
    ):
        await device.line.until("turn.state")
        assert await device.ask_json("count") == 17
        await came.get()
        assert (await came.get())["text"] == "test count"
        with pytest.raises(NotTestable, match="no 'say'"):
            await device.begin("say")


async def test_server_that_is_not_there_is_unmet():
    server = Server("ws://127.0.0.1:1", PACE, Watch(Ledger(ALWAYS)))
    with pytest.raises(Unmet, match="no connection"):
        async with server.line():
            pass
