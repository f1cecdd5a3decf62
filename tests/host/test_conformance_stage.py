"""The stage on which a client is tested, with clients that have nothing to do with ours."""

import asyncio
import contextlib
import json

import pytest
from vrt_host.conformance.checks import Ledger, NotTestable, Outcome, Sheet, Unmet, must
from vrt_host.conformance.client_cases.errors import every_valid_message_comes
from vrt_host.conformance.client_cases.stage import Stage, proves
from vrt_host.conformance.run import Pace
from vrt_host.conformance.watch_client import ALWAYS, ClientWatch
from vrt_host.conformance.websocket import WebSocketListener
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed


class Client:
    """A small vRT client. After RESUME_FAILED it asks for a new session, unless it is `stubborn`."""

    restarts = True

    def __init__(self, *, stubborn=False, comes=True, tools=()):
        self.stubborn = stubborn
        self.comes = comes
        self.tools = list(tools)
        self.starts = 0
        self.task = None

    async def start(self, url):
        self.starts += 1
        self.task = asyncio.create_task(self.run(url) if self.comes else asyncio.sleep(0))

    async def stop(self):
        if self.task:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task

    async def gone(self):
        await asyncio.wait([self.task])
        return "it ended"

    async def run(self, url):
        self.session, self.last, self.seq = None, 0, 0
        while True:
            with contextlib.suppress(ConnectionClosed):
                async with connect(url, proxy=None, compression=None) as ws:
                    await self.talk(ws)

    async def say(self, ws, type_, seq=0, **members):
        await ws.send(json.dumps({"v": 1, "seq": seq, "type": type_, **members}))

    async def talk(self, ws):
        if self.session:
            await self.say(ws, "hello", sessionId=self.session, resumeFrom=self.last)
        else:
            await self.say(ws, "hello", tools=[{"name": name} for name in self.tools])
        async for frame in ws:
            message = json.loads(frame)
            self.last = max(self.last, message["seq"])
            if message["type"] == "ready":
                if self.session is None:
                    self.last = self.seq = 0
                self.session = message["sessionId"]
            elif message["type"] == "error" and not self.stubborn:
                self.session = None
            elif message["type"] == "tool.call":
                self.seq += 1
                result = {"ok": False, "code": "FAILED", "message": "no such tool"}
                if message["name"] == "test.slow":
                    result = {"ok": True, "output": {"started": 5}}
                await self.say(
                    ws, "tool.result", self.seq, callId=message["callId"], epoch=message["epoch"], **result
                )
                await self.say(ws, "ack", upTo=self.last)


@contextlib.asynccontextmanager
async def playing(client, factor=1.0):
    async with WebSocketListener() as listener:
        stage = Stage(listener, listener.url, client, ClientWatch(Ledger(ALWAYS)), pace=Pace(factor))
        try:
            yield stage
        finally:
            await client.stop()


async def test_sessions_follow_each_other_with_one_client():
    client = Client()
    async with playing(client) as stage:
        ids = set()
        for _ in range(3):
            session = await stage.session()
            await stage.barrier(session)
            assert session.last == 1
            ids.add(session.id)
        assert len(ids) == 3
        assert client.starts == 1


async def test_a_connection_that_waits_for_ready_is_used():
    async with playing(Client()) as stage:
        connection, _ = await stage.arrive()
        again, hello = await stage.fresh()
        assert again is connection
        assert "sessionId" not in hello


async def test_a_lost_connection_comes_back_with_its_session():
    async with playing(Client()) as stage:
        session = await stage.session()
        session.turn()
        await stage.barrier(session)
        connection, hello = await stage.cut(session)
        assert hello["resumeFrom"] == 2
        session.resume(connection, hello)
        await stage.barrier(session)


async def test_a_client_that_asks_for_its_old_session_for_ever_is_started_again():
    client = Client(stubborn=True)
    async with playing(client) as stage:
        await stage.session()
        await stage.session()
        assert client.starts == 2


async def test_a_client_that_ends_is_started_again_and_then_given_up():
    client = Client(comes=False)
    async with playing(client) as stage:
        with pytest.raises(Unmet, match="it ended"):
            await stage.arrive()
        assert client.starts == 2


async def test_a_client_that_does_not_come_is_given_up():
    client = Client()
    client.run = lambda url: asyncio.sleep(60)
    async with playing(client, factor=0.001) as stage:
        with pytest.raises(Unmet, match="did not open a connection within"):
            await stage.arrive()


async def test_tools_that_are_missing_make_a_scenario_not_testable():
    async with playing(Client(tools=["test.slow"])) as stage:
        session = await stage.session()
        stage.needs(session, "test.slow")
        with pytest.raises(NotTestable, match=r"no tool test\.fail and no test\.say"):
            stage.needs(session, "test.slow", "test.fail", "test.say")
        assert await stage.slow(session) == 5


async def test_an_expectation_proves_its_checks_or_fails_them():
    ledger = Ledger([must("client.a.b", "§1", "x"), must("client.a.c", "§1", "y")])
    sheet = Sheet(ledger, [one.check for one in ledger.findings()])
    with proves(sheet, "client.a.b"):
        pass
    with pytest.raises(Unmet), proves(sheet, "client.a.c"):
        raise Unmet("nothing came")
    assert [one.outcome for one in ledger.findings()] == [Outcome.PASSED, Outcome.FAILED]


async def test_client_that_takes_no_message_is_not_said_to_have_taken_every_valid_one():
    class Small(Client):
        async def say(self, ws, type_, seq=0, **members):
            limits = {"limits": {"messageBytes": 1}} if type_ == "hello" else {}
            await super().say(ws, type_, seq, **limits, **members)

    async with playing(Small()) as stage:
        ledger = Ledger(every_valid_message_comes.checks)
        with pytest.raises(NotTestable, match="no message that is long enough"):
            await every_valid_message_comes.act(stage, Sheet(ledger, every_valid_message_comes.checks))
    assert {one.outcome for one in ledger.findings()} == {Outcome.NOT_TESTABLE}
