"""The Omnia facade when its host stops: turns under way end first, for 30 s at most."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys

import pytest
from host_client import DEADLINE_S
from omnia_client import PCM16_16K, serving
from test_guest import LOCK, Brain, board
from vrt_host.agents.base import (
    Abilities,
    Audio,
    AudioBegin,
    AudioEnd,
    Call,
    Text,
    Transcript,
    TurnBegin,
    TurnEnd,
)
from vrt_host.facades import omnia
from vrt_host.lending import Lending
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

STOPPED = 1001, "server shutdown"


def begins(agent, text):
    agent.port.emit(TurnBegin("t"))
    agent.port.emit(Text("t", "Well, "))


def ends(brain):
    brain.port.emit(Text("t", "yes."))
    brain.port.emit(TurnEnd("t"))


async def refused(host, **query):
    """The status of an upgrade that is refused."""
    with pytest.raises(InvalidStatus) as error:
        async with host.omnia(agent="a", **query):
            pass
    return error.value.response.status_code


async def test_a_turn_under_way_ends_first_and_whoever_has_none_is_told_at_once():
    """Code, server.go: 503 while it drains, then 1001 "server shutdown"."""
    brain = Brain(begins)
    async with (
        serving(brain) as host,
        host.omnia(agent="a", connected=True) as client,
        host.omnia(agent="a", connected=True) as idle,
    ):
        await client.say("x")
        await client.until("chunk")
        host.stop.set()
        await idle.say("too late")
        assert await idle.closed() == STOPPED
        assert await refused(host) == 503
        assert await refused(host, resume="unknown") == 503
        ends(brain)
        assert (await client.until("done"))["content"] == "Well, yes."
        assert await client.closed() == STOPPED
        async with asyncio.timeout(DEADLINE_S):
            await host.task


async def test_a_host_waits_30_s_for_turns(monkeypatch):
    """Code, server_config.go: 30 s."""
    assert omnia.DRAIN_S == 30
    monkeypatch.setattr(omnia, "DRAIN_S", 0.1)
    async with serving(Brain(begins)) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("x")
        await client.until("chunk")
        host.stop.set()
        assert await client.closed() == STOPPED


async def test_who_cancels_the_host_does_not_wait():
    async with (
        serving(Brain(begins)) as host,
        host.omnia(agent="a", connected=True) as client,
        host.omnia(agent="a", connected=True) as idle,
    ):
        await client.say("x")
        await client.until("chunk")
        host.stop.set()
        assert await idle.closed() == STOPPED  # it waits for the turn
        host.task.cancel()
        assert await client.closed() == STOPPED
        await asyncio.wait({host.task})
        host.task = asyncio.create_task(asyncio.sleep(0))


async def test_a_parked_calls_turn_can_still_be_heard_out():
    """Code, server.go: a drain still admits `resume`."""

    class Speaks(Brain):
        abilities = Abilities(inputs=(PCM16_16K,), outputs=(PCM16_16K,))

    brain = Speaks()
    async with serving(brain) as host, host.omnia(agent="a", connected=True) as idle:
        async with host.omnia(agent="a", connected=True) as client:
            await client.audio(bytes(640))
            await brain.until(lambda: brain.audio)
            brain.port.emit(TurnBegin("t"))
            brain.port.emit(Transcript("t", "agent", "Well, ", False))
            await client.until("chunk")
            client.ws.transport.abort()
            await client.ws.wait_closed()
        host.stop.set()
        assert await idle.closed() == STOPPED
        async with host.omnia(agent="a", resume=client.id, connected=True) as again:
            assert again.connected["connected"]["resumed"] is True
            brain.port.emit(AudioBegin("t", "i"))
            brain.port.emit(Audio("t", "i", bytes(640)))
            brain.port.emit(AudioEnd("t", "i"))
            brain.port.emit(TurnEnd("t"))
            assert (await again.until("media_chunk"))["media_chunk"]["data"]
            await again.until("done")
            assert await again.closed() == STOPPED


async def test_a_board_is_there_for_the_turn_that_is_waited_for():
    brain = Brain(begins)
    async with (
        serving(Brain(), brain, lending=Lending(["porch"])) as host,
        host.client() as porch,
        host.omnia(agent="a", connected=True) as client,
        host.omnia(agent="a", connected=True) as idle,
    ):
        await board(porch, LOCK)
        await client.say("x")
        await client.until("chunk")
        host.stop.set()
        assert await idle.closed() == STOPPED
        brain.port.emit(Call("t", "c", "lock", {}))
        ran = await porch.until("tool.call", name="lock")
        await porch.send(
            "tool.result", callId=ran["callId"], epoch=ran["epoch"], ok=True, output={"state": "locked"}
        )
        await brain.until(lambda: brain.results)
        assert brain.results[0].ok


async def test_a_second_signal_ends_it_at_once(tmp_path):
    script = {"rules": [{"on": {"text": {"matches": ""}}, "do": [{"text": "Well, "}, {"waitMs": 3_600_000}]}]}
    (tmp_path / "s.json").write_text(json.dumps(script))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vrt_host", "serve", "--agent", "scripted", "--port", "0"),
        *("--script", str(tmp_path / "s.json"), "--facade", "omnia"),
        env={**os.environ, "VRT_OMNIA_FACADE_PORT": str(port)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(3 * DEADLINE_S):
            assert await process.stdout.readline()
            url = f"ws://127.0.0.1:{port}/ws?agent=a"
            async with connect(url, proxy=None) as idle, connect(url, proxy=None) as ws:
                await ws.recv()
                await ws.send(json.dumps({"type": "message", "content": "x"}))
                assert json.loads(await ws.recv())["content"] == "Well, "
                process.send_signal(signal.SIGTERM)
                await idle.wait_closed()  # it waits for the turn
                process.send_signal(signal.SIGTERM)
                await ws.wait_closed()
                assert (ws.close_code, ws.close_reason) == STOPPED
            _, log = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert process.returncode == 0
    assert b"Traceback" not in log
