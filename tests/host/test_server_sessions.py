"""What a session promises its client, through the real server: who may resume it, who carries it, its ids, its streams."""

import asyncio
import uuid

import pytest
from host_client import Events, hosting
from vrt_host.agents.base import (
    Agent,
    Call,
    CallBegin,
    CallDelta,
    OwnCall,
    OwnProgress,
    OwnResult,
    TurnBegin,
    TurnEnd,
)
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig, TurnLimits
from vrt_host.session import Limits

TOOL = {"name": "status"}
TERMINAL = ("settled", "cancelled", "failed")


class Scripted(Agent):
    """Does with each text what `on_text(agent, text)` says; notes its results and contexts."""

    name = "scripted"

    def __init__(self, on_text=lambda agent, text: None):
        self.on_text = on_text
        self.results = []
        self.contexts = []

    async def start(self, session, port):
        self.contexts.append(session.context)
        self.port = port

    def user_text(self, text):
        self.on_text(self, text)

    def user_audio(self, payload):
        pass

    def interrupted(self, turn, heard):
        pass

    def tool_result(self, turn, result):
        self.results.append((result.call, result.ok, result.code))

    def context(self, value):
        self.contexts.append(value)


class Paces(Events):
    """An observer that notes with each event how often the loop has gone round."""

    def __init__(self):
        super().__init__()
        self.round = 0
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self):
        self.round += 1
        asyncio.get_running_loop().call_soon(self._turn)

    def __call__(self, event):
        super().__call__({**event, "round": self.round})


# --- who may resume it


async def test_foreign_unknown_and_expired_resumes_are_the_same_in_answer_and_time(tmp_path):
    tokens = TokenFile(tmp_path / "tokens.json")
    mine, other = tokens.add("mine"), tokens.add("other")
    paces = Paces()
    config = ServerConfig(port=0, tokens=tokens.path)
    async with hosting(Scripted, config=config, limits=Limits(resume_window_s=0.05), observer=paces) as host:
        host.events = paces
        async with host.client() as client:
            gone = (await client.hello(auth={"token": mine}))["sessionId"]
        await host.event("session.closed", session=gone)
        async with host.client() as owner:
            foreign = (await owner.hello(auth={"token": mine}))["sessionId"]
            seen = []
            for session, token in ((foreign, other), (str(uuid.uuid4()), other), (gone, mine), (gone, other)):
                before = len(paces)
                async with host.client() as client:
                    await client.send("hello", auth={"token": token}, sessionId=session, resumeFrom=3)
                    error = await client.until("error")
                    assert await client.closed() == 4404
                events = [event for event in paces[before:] if event["event"] != "link.open"]
                begun = next(event for event in events if event["event"] == "message.in")
                ended = next(event for event in events if event["event"] == "link.close")
                # No step of the loop lies between question and answer, so no clock tells the cases apart.
                seen.append((error, ended["round"] - begun["round"], [event["event"] for event in events]))
            await owner.send("ping")
            await owner.until("pong")
    assert seen[0][0]["code"] == "RESUME_FAILED"
    assert seen[0][1] == 0
    assert all(one == seen[0] for one in seen)


# --- who carries it


async def test_late_close_of_a_replaced_link_touches_nothing():
    async with hosting(Scripted) as host, host.client() as old:
        session = (await old.hello())["sessionId"]
        old.ws.transport.pause_reading()  # it hears of nothing, and answers no close
        async with host.client() as new:
            await new.hello(sessionId=session)
            await host.event("link.close", code=4000)
            parked = [event["event"] for event in host.events].count("session.parked")
            old.ws.transport.abort()
            await new.send("context", context=1)
            await new.until("ack", upTo=1)
            await new.send("ping")
            await new.until("pong")
            assert [event["event"] for event in host.events].count("session.parked") == parked


async def test_replaced_link_hears_nothing_more_of_its_session():
    def begin(agent, text):
        agent.port.emit(TurnBegin(text))
        agent.port.emit(TurnEnd(text))

    async with hosting(lambda: Scripted(begin)) as host, host.client() as old:
        session = (await old.hello())["sessionId"]
        async with host.client() as new:
            await new.hello(sessionId=session)
            await new.send("text", text="t")
            await new.until("turn.state", state="idle")
        with pytest.raises(Exception, match="4000"):
            await old.next()


# --- its numbers


async def test_session_whose_numbers_are_used_up_is_closed_and_a_new_one_opens():
    def begin(agent, text):
        agent.port.session.outbox.last = 2**32 - 2
        agent.port.emit(TurnBegin(text))
        agent.port.emit(TurnEnd(text))

    async with hosting(lambda: Scripted(begin)) as host:
        async with host.client() as client:
            session = (await client.hello())["sessionId"]
            await client.send("text", text="t")
            assert (await client.until("turn.state"))["seq"] == 2**32 - 1
            assert await client.closed() == 1000
        async with host.client() as client:
            await client.send("hello", sessionId=session)
            assert (await client.until("error"))["code"] == "RESUME_FAILED"
        async with host.client() as client:
            assert (await client.hello())["sessionId"] != session


# --- capabilities


@pytest.mark.parametrize(
    "offered", [["tool-stream-v1"], ["global-tool-ids-v1"], ["x-mine", "tool-stream-v1"] * 2, []]
)
async def test_capabilities_are_those_offered_and_stay_for_the_session(offered):
    async with hosting(Scripted) as host:
        async with host.client() as client:
            ready = await client.hello(capabilities=offered)
        async with host.client() as client:
            again = await client.hello(
                sessionId=ready["sessionId"], capabilities=["global-tool-ids-v1", "tool-stream-v1"]
            )
    known = [token for token in dict.fromkeys(offered) if not token.startswith("x-")]
    assert ready["capabilities"] == again["capabilities"] == known


def every_phase(agent, text):
    """Calls of the device's and the agent's own, each of which ends in another way; the last one stays open."""
    emit = agent.port.emit
    emit(TurnBegin("t"))
    emit(CallBegin("t", "written", "status"))
    emit(CallDelta("t", "written", "{"))
    emit(CallDelta("t", "written", "}"))
    emit(Call("t", "written", "status", "{}"))
    emit(OwnCall("t", "own", "search", {"q": 1}))
    emit(OwnProgress("t", "own", {"done": 0.5}))
    emit(OwnResult("t", "own"))
    emit(OwnResult("t", "own"))
    emit(OwnProgress("t", "own", {"done": 1}))
    emit(Call("t", "unknown", "fly", "{}"))
    emit(Call("t", "broken", "status", "{"))
    emit(CallBegin("t", "never", "status"))
    emit(Call("t", "open", "status", "{}"))


async def test_tool_stream_has_seven_phases_and_one_end_for_each_call():
    async with hosting(lambda: Scripted(every_phase)) as host, host.client() as client:
        await client.hello(tools=[TOOL], capabilities=["tool-stream-v1"])
        await client.send("text", text="go")
        call = await client.until("tool.call")
        await client.send(
            "tool.result", callId=call["callId"], epoch=call["epoch"], ok=False, code="REJECTED"
        )
        await host.event("call.settled", code="REJECTED")
        await client.send("interrupt", epoch=call["epoch"], reason="user")
        await client.until("interrupted")
        await client.send("text", text="again")  # a second turn, after which nothing of the first may come
        await client.until("turn.state", state="thinking")
    streams = {}
    for event in host.events:
        message = event.get("message")
        if (
            event["event"] == "message.out"
            and message["type"] == "tool.stream"
            and message["epoch"] == call["epoch"]
        ):
            streams.setdefault(message["callId"], []).append(message)
        assert event["event"] != "message.out" or message["type"] != "tool.call.delta"
    ends = []
    for messages in streams.values():
        phases = [message["phase"] for message in messages]
        assert phases[0] == "start"
        assert [phase in TERMINAL for phase in phases] == [False] * (len(phases) - 1) + [True]
        assert phases.count("arguments-complete") <= 1
        order = ["start", "arguments-delta", "arguments-complete", "progress"]
        places = [order.index(phase) for phase in phases[:-1]]
        assert places == sorted(places)
        end = messages[-1]
        ends.append((end["name"], phases[-1], end.get("ok"), end.get("code")))
    assert sorted(ends, key=str) == sorted(
        [
            ("status", "settled", False, "REJECTED"),
            ("search", "settled", True, None),
            ("fly", "settled", False, "FAILED"),
            ("status", "failed", None, None),  # its arguments are no JSON
            ("status", "cancelled", None, None),  # the model never finished it
            ("status", "cancelled", None, None),  # it was open
        ],
        key=str,
    )
    assert {message["phase"] for messages in streams.values() for message in messages} == {
        "start",
        "arguments-delta",
        "arguments-complete",
        "progress",
        *TERMINAL,
    }


def same_keys(agent, text):
    """A model that gives its turns and calls the same names in every session, and its calls in every turn."""
    agent.port.emit(TurnBegin(text))
    agent.port.emit(CallBegin(text, "call-1", "status"))
    agent.port.emit(CallDelta(text, "call-1", "{}"))
    agent.port.emit(Call(text, "call-1", "status", "{}"))
    agent.port.emit(TurnEnd(text))


async def test_ids_are_of_no_other_turn_or_call_of_any_session_and_survive_a_resume():
    ids = []
    async with hosting(lambda: Scripted(same_keys)) as host:
        for _ in range(2):
            async with host.client() as client:
                ready = await client.hello(tools=[TOOL], capabilities=["global-tool-ids-v1"])
                for text in ("one", "two"):
                    await client.send("text", text=text)
                    state = await client.until("turn.state", state="thinking")
                    preview = await client.until("tool.call.delta")
                    call = await client.until("tool.call")
                    assert preview["callId"] == call["callId"]
                    assert state["turnId"] == preview["turnId"] == call["turnId"]
                    ids += [call["callId"], call["turnId"]]
                    if text == "one":
                        result = {"callId": call["callId"], "epoch": call["epoch"], "ok": True, "output": 1}
                        await client.send("tool.result", **result)
                        await client.until("turn.state", state="idle")
                # A late result of the first call is none of the second.
                await client.send("tool.result", **result)
                seq = client.seq
            async with host.client() as client:  # the open call comes again, byte for byte
                await client.hello(sessionId=ready["sessionId"], resumeFrom=call["seq"] - 1)
                assert await client.until("tool.call") == call
                client.seq = seq
                await client.send(
                    "tool.result", callId=call["callId"], epoch=call["epoch"], ok=True, output=2
                )
                await client.until("turn.state", state="idle")
    assert len(set(ids)) == len(ids) == 8
    assert all(uuid.UUID(one).version == 4 for one in ids)
    settled = [event for event in host.events if event["event"] == "call.settled"]
    assert len(settled) == 4


# --- context, calls that are not answered


async def test_context_is_replaced_in_order_and_cleared_by_null():
    agent = Scripted()
    async with hosting(lambda: agent) as host:
        async with host.client() as client:
            session = (await client.hello(context={"doc": 1}))["sessionId"]
            for value in ({"doc": 2}, [], "x", None):
                await client.send("context", context=value)
            await client.until("ack", upTo=4)
        async with host.client() as client:  # a resume brings no context of its own
            await client.hello(sessionId=session, context={"doc": 3})
    assert agent.contexts == [{"doc": 1}, {"doc": 2}, [], "x", None]


async def test_call_without_an_answer_is_a_timeout_and_its_late_result_nothing():
    def call(agent, text):
        agent.port.emit(TurnBegin("t"))
        agent.port.emit(Call("t", "c", "status", "{}"))

    agent = Scripted(call)
    tool = {"name": "status", "timeoutMs": 20}
    async with (
        hosting(lambda: agent, turn_limits=TurnLimits(call_margin=0.0)) as host,
        host.client() as client,
    ):
        await client.hello(tools=[tool], capabilities=["tool-stream-v1"])
        await client.send("text", text="go")
        asked = await client.until("tool.call")
        ended = await client.until("tool.stream", phase="settled")
        assert ended["code"] == "TIMEOUT"
        assert (await client.until("interrupted"))["epoch"] == asked["epoch"]
        await client.send("tool.result", callId=asked["callId"], epoch=asked["epoch"], ok=True, output=1)
        await client.send("ping")
        await client.until("pong")
    assert agent.results == [("c", False, "TIMEOUT")]
