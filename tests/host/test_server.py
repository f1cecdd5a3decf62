"""The server over real WebSockets: links, sessions, resumes, limits, and how it ends."""

import asyncio
import contextlib
import json
import logging
import socket
import ssl
import threading

import pytest
from host_client import DEADLINE_S, Client, hosting
from self_signed import self_signed
from vrt_host.agents.base import Agent, Audio, AudioBegin, Call, Text, TurnBegin, TurnEnd
from vrt_host.agents.echo import EchoAgent
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig
from vrt_host.errors import AgentStartError, UsageError
from vrt_host.seat import FAULTS_LOGGED
from vrt_host.server import serve
from vrt_host.session import Limits
from vrt_host.tools import DeclaredTools
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

TOOL = {"name": "status"}


class PlainAgent(Agent):
    """Does what `on_text` says; notes what it is told."""

    name = "plain"
    made = ()

    def __init__(self, on_text=None):
        self.on_text = on_text
        self.told = []
        self.closed = False

    async def start(self, session, port):
        self.session = session
        self.port = port

    def user_text(self, text):
        if self.on_text:
            self.on_text(self, text)

    def user_audio(self, payload):
        self.told.append(("audio", payload))

    def interrupted(self, turn, heard):
        self.told.append(("interrupted", turn, [(one.item, one.played_ms) for one in heard]))

    def tool_result(self, turn, result):
        self.told.append(("result", result.call, result.ok, result.code))

    def context(self, value):
        self.told.append(("context", value))

    async def close(self):
        self.closed = True


def plain(on_text=None):
    """A factory, and the list of what it made."""
    made = []

    def make():
        made.append(PlainAgent(on_text))
        return made[-1]

    return make, made


def call_status(agent, text):
    agent.port.emit(TurnBegin(text))
    agent.port.emit(Call(text, "c", "status", "{}"))
    agent.port.emit(TurnEnd(text))


async def request(port, text, count=4096):
    """Raw bytes to the port; what comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    async with asyncio.timeout(DEADLINE_S):
        data = await reader.read(count)
    writer.close()
    return data


# --- hello


async def test_session_opens_with_limits_and_capabilities():
    async with hosting() as host, host.client() as client:
        ready = await client.hello(capabilities=["tool-stream-v1", "x-mine"])
    assert ready["capabilities"] == ["tool-stream-v1"]
    assert ready["limits"]["resumeWindowMs"] == 30_000
    assert len(ready["sessionId"]) >= 32


async def test_agent_is_told_the_tools_the_context_and_the_formats():
    make, made = plain()
    async with hosting(make) as host, host.client() as client:
        await client.hello(
            tools=[TOOL, {"name": "bad name"}], context={"room": "hall"}, output={"encoding": "pcmu"}
        )
        await client.send("context", context=None)
        await client.send("text", text="in order")
        await host.event("message.in", message={"v": 1, "seq": 2, "type": "text", "text": "in order"})
    session = made[0].session
    assert [tool.name for tool in session.tools] == ["status"]
    assert session.context == {"room": "hall"}
    assert session.output.encoding == "pcmu"
    assert ("context", None) in made[0].told


async def test_message_before_hello_is_refused_and_the_link_stays():
    async with hosting() as host, host.client() as client:
        await client.send("text", text="x")
        assert (await client.until("error"))["code"] == "NO_SESSION"
        await client.send("ping")
        await client.until("pong")
        client.seq = 0
        await client.hello()


async def test_link_without_hello_is_closed():
    async with hosting(limits=Limits(hello_s=0.05)) as host, host.client() as client:
        assert await client.closed() == 1008


async def test_messages_while_the_agent_starts_are_kept_and_handled_after_ready():
    started = asyncio.Event()

    class Slow(EchoAgent):
        async def start(self, session, port):
            await started.wait()
            await super().start(session, port)

    async with hosting(Slow) as host, host.client() as client:
        await client.send("hello")
        await client.send("text", text="early")
        await client.send("ping")
        await client.until("pong")
        started.set()
        assert (await client.next())["type"] == "ready"
        assert (await client.until("text"))["text"] == "Echo: early"


async def test_too_many_messages_before_ready_end_the_link():
    class Never(EchoAgent):
        async def start(self, session, port):
            await asyncio.Event().wait()

    async with hosting(Never) as host, host.client() as client:
        await client.send("hello")
        for _ in range(33):
            await client.send("text", text="x")
        assert await client.closed() == 1008


@pytest.mark.parametrize(
    ("error", "shown"),
    [(AgentStartError("no model here"), "no model here"), (RuntimeError("secret"), "failed to start")],
)
async def test_agent_that_does_not_start_is_start_failed(error, shown, caplog):
    class Broken(PlainAgent):
        async def start(self, session, port):
            raise error

    async with hosting(Broken) as host, host.client() as client:
        await client.send("hello")
        message = await client.until("error")
        assert await client.closed() == 1011
        assert (message["code"], message["seq"], message["recoverable"]) == ("START_FAILED", 0, False)
        assert shown in message["message"]
        assert "secret" not in message["message"]
        async with host.client() as other:  # and the host goes on
            await other.send("ping")
            await other.until("pong")


async def test_agent_that_takes_too_long_to_start_is_start_failed():
    class Never(PlainAgent):
        async def start(self, session, port):
            await asyncio.Event().wait()

    config = ServerConfig(port=0, start_timeout=0.05)
    async with hosting(Never, config=config) as host, host.client() as client:
        await client.send("hello")
        assert (await client.until("error"))["code"] == "START_FAILED"


async def test_agent_that_cannot_be_made_is_start_failed():
    def make():
        raise RuntimeError("a bug")

    async with hosting(make) as host, host.client() as client:
        await client.send("hello")
        assert (await client.until("error"))["code"] == "START_FAILED"
        assert await client.closed() == 1011


async def test_tools_that_take_long_to_check_hold_up_nobody_else(monkeypatch):
    checked = threading.Event()

    def slow(declarations):
        assert checked.wait(DEADLINE_S)
        return DeclaredTools(declarations)

    async with hosting() as host, host.client() as other, host.client() as client:
        await other.hello()
        monkeypatch.setattr("vrt_host.server.DeclaredTools", slow)
        await client.send("hello", tools=[TOOL])
        await client.send("ping")
        await client.until("pong")  # the hello was read
        await other.send("ping")
        await other.until("pong")
        checked.set()
        await client.until("ready")


async def test_sessions_beyond_the_limit_are_start_failed():
    config = ServerConfig(port=0, max_sessions=1)
    async with hosting(config=config) as host, host.client() as one, host.client() as two:
        await one.hello()
        await two.send("hello")
        assert (await two.until("error"))["code"] == "START_FAILED"


async def test_links_beyond_the_limit_are_refused():
    config = ServerConfig(port=0, max_links=1)
    async with hosting(config=config) as host, host.client() as one:
        await one.hello()
        with pytest.raises(InvalidStatus, match="503"):
            async with host.client():
                pass


# --- authentication


@pytest.fixture
def tokens(tmp_path):
    return TokenFile(tmp_path / "tokens.json")


async def test_hello_needs_a_token_where_there_are_tokens(tokens):
    good = tokens.add("kitchen")
    async with hosting(config=ServerConfig(port=0, tokens=tokens.path)) as host:
        for auth in ({}, {"auth": {"token": "wrong"}}):
            async with host.client() as client:
                await client.send("hello", **auth)
                error = await client.until("error")
                assert (error["code"], error["seq"], error["recoverable"]) == ("UNAUTHORIZED", 0, False)
                assert await client.closed() == 4401
        async with host.client() as client:
            await client.hello(auth={"token": good})


async def test_token_appears_in_no_log(tokens, caplog):
    caplog.set_level(logging.DEBUG)
    good = tokens.add("kitchen")
    async with hosting(config=ServerConfig(port=0, tokens=tokens.path)) as host:
        for token in (good, "wrong-token"):
            async with host.client() as client:
                await client.send("hello", auth={"token": token})
                await client.next()
        async with host.client() as client:
            for wrong in (
                f'{{"auth":{{"token":"{good}"',
                json.dumps({"v": 1, "seq": 0, "type": "hello", "auth": good}),
            ):
                await client.raw(wrong)
                await client.until("error")
    logged = "".join(record.getMessage() for record in caplog.records if record.name.startswith("vrt_host"))
    for text in (logged, json.dumps(list(host.events))):
        assert good not in text
        assert "wrong-token" not in text


async def test_session_is_resumed_by_its_principal_alone(tokens):
    mine, other = tokens.add("mine"), tokens.add("other")
    async with hosting(config=ServerConfig(port=0, tokens=tokens.path)) as host:
        async with host.client() as client:
            session = (await client.hello(auth={"token": mine}))["sessionId"]
        answers = []
        for token, asked in ((other, session), (mine, "unknown")):
            async with host.client() as client:
                await client.send("hello", auth={"token": token}, sessionId=asked)
                answers.append(await client.until("error"))
                assert await client.closed() == 4404
        assert answers[0] == answers[1]  # a foreigner learns nothing
        async with host.client() as client:
            ready = await client.hello(auth={"token": mine}, sessionId=session)
            assert ready["sessionId"] == session


async def test_revoked_token_ends_its_session(tokens, monkeypatch):
    monkeypatch.setattr("vrt_host.server.TOKENS_EVERY_S", 0.02)
    good, other = tokens.add("kitchen"), tokens.add("other")
    async with (
        hosting(config=ServerConfig(port=0, tokens=tokens.path)) as host,
        host.client() as client,
        host.client() as stays,
    ):
        await client.hello(auth={"token": good})
        await stays.hello(auth={"token": other})
        tokens.revoke("kitchen")
        assert (await client.until("error"))["code"] == "UNAUTHORIZED"
        assert await client.closed() == 4401
        await stays.send("ping")
        await stays.until("pong")


async def test_token_that_was_replaced_under_its_name_ends_its_session(tokens, monkeypatch):
    monkeypatch.setattr("vrt_host.server.TOKENS_EVERY_S", 0.02)
    old = tokens.add("kitchen")
    async with hosting(config=ServerConfig(port=0, tokens=tokens.path)) as host, host.client() as lost:
        await lost.hello(auth={"token": old})
        tokens.revoke("kitchen")
        tokens.add("kitchen")  # before the host looks at the file again
        assert await lost.closed() == 4401


async def test_new_session_of_a_board_replaces_the_one_it_lost(tokens):
    token, other = tokens.add("kitchen"), tokens.add("other")
    async with (
        hosting(config=ServerConfig(port=0, tokens=tokens.path)) as host,
        host.client() as old,
        host.client() as new,
        host.client() as stranger,
    ):
        await old.hello(auth={"token": token}, device={"id": "k-1"})
        await stranger.hello(auth={"token": other}, device={"id": "k-1"})
        await new.hello(auth={"token": token}, device={"id": "k-1"})
        assert await old.closed() == 4000
        for client in (new, stranger):
            await client.send("ping")
            await client.until("pong")


async def test_same_device_id_without_tokens_replaces_nobody():
    async with hosting() as host, host.client() as one, host.client() as two:
        await one.hello(device={"id": "sim"})
        await two.hello(device={"id": "sim"})
        await one.send("ping")
        await one.until("pong")


# --- resume


async def test_resume_sends_what_was_missed_and_the_agent_notices_nothing():
    make, made = plain(lambda agent, text: None)
    async with hosting(make) as host:
        async with host.client() as client:
            session = (await client.hello())["sessionId"]
        await host.event("session.parked")
        for name in ("a", "b"):
            made[0].port.emit(TurnBegin(name))
            made[0].port.emit(Text(name, name, final=True))
            made[0].port.emit(TurnEnd(name))
        async with host.client() as client:
            ready = await client.hello(sessionId=session, resumeFrom=0)
            assert ready["resumedFrom"] == 0
            messages = [await client.next() for _ in range(6)]
        assert [message["seq"] for message in messages] == [1, 2, 3, 4, 5, 6]
        assert not made[0].closed


async def test_call_cut_by_a_lost_link_gets_its_one_result_after_the_resume():
    make, made = plain(call_status)
    async with hosting(make) as host:
        async with host.client() as client:
            session = (await client.hello(tools=[TOOL]))["sessionId"]
            await client.send("text", text="t")
            call = await client.until("tool.call")
            seq = client.seq
        await host.event("session.parked")
        async with host.client() as client:
            await client.hello(sessionId=session, resumeFrom=call["seq"])
            client.seq = seq
            for _ in range(2):
                await client.send(
                    "tool.result", callId=call["callId"], epoch=call["epoch"], ok=True, output=None
                )
            await client.until("turn.state", state="idle")
    assert made[0].told == [("result", "c", True, None)]


async def test_newer_link_takes_the_session_over_and_the_older_one_cannot_touch_it():
    async with hosting() as host, host.client() as old:
        session = (await old.hello())["sessionId"]
        async with host.client() as new:
            await new.hello(sessionId=session)
            assert await old.closed() == 4000
            await host.event("link.close", code=4000)
            await new.send("text", text="still here")
            assert (await new.until("text"))["text"] == "Echo: still here"


async def test_audio_goes_on_under_a_new_item_after_a_resume():
    def speak(agent, text):
        agent.port.emit(TurnBegin("t"))
        agent.port.emit(AudioBegin("t", "i"))
        agent.port.emit(Audio("t", "i", bytes(8000 * 20)))

    make, _ = plain(speak)
    async with hosting(make) as host:
        async with host.client() as client:
            session = (await client.hello(output={"encoding": "pcmu"}))["sessionId"]
            await client.send("text", text="t")
            first = await client.until("audio.start")
            await client.audio_until(5)
        await host.event("session.parked")
        async with host.client() as client:
            await client.hello(sessionId=session, resumeFrom=2)
            message = await client.next()
            assert message["type"] == "audio.start"
            assert message["itemId"] != first["itemId"]
            assert isinstance(await client.next(), bytes)


async def test_session_ends_when_the_resume_window_does():
    make, made = plain()
    async with hosting(make, limits=Limits(resume_window_s=0.05)) as host:
        async with host.client() as client:
            session = (await client.hello())["sessionId"]
        await host.event("session.closed")
        async with host.client() as client:
            await client.send("hello", sessionId=session)
            assert (await client.until("error"))["code"] == "RESUME_FAILED"
            assert await client.closed() == 4404
    assert made[0].closed


# --- links


async def test_silent_link_is_closed_and_its_session_parked():
    async with hosting(limits=Limits(heartbeat_s=0.1)) as host, host.client() as client:
        await client.hello()
        assert await client.closed() == 4408
        await host.event("session.parked")


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("not json", "MALFORMED"),
        ("[]", "MALFORMED"),
        ('{"v":2,"seq":1,"type":"text","text":"x"}', "UNSUPPORTED_VERSION"),
        ('{"v":1,"seq":1,"type":"ready"}', "UNKNOWN_TYPE"),
        ('{"v":1,"seq":1,"type":"text"}', "INVALID_FIELD"),
        (b"\x01\x00", "MALFORMED"),
        (b"\x02\x00\x00\x00\x00x", "MALFORMED"),
        ("[" * 10_000, "MALFORMED"),
        ('"' + "x" * 400_000 + '"', "TOO_LARGE"),
        (b"\x01" * 300_000, "TOO_LARGE"),
    ],
)
async def test_bad_frame_is_answered_and_stops_nothing(frame, code):
    async with hosting() as host, host.client() as client:
        await client.hello()
        await client.raw(frame)
        error = await client.until("error")
        assert (error["code"], error["recoverable"]) == (code, True)
        client.seq = 1
        await client.send("text", text="on")
        assert (await client.until("text"))["text"] == "Echo: on"


async def test_crash_that_a_device_reports_is_a_warning_of_one_line(caplog):
    crash = "update 2.0 did not start: ImportError at b/main.py:2\nINFO forged vrt_0123456789" + "x" * 999
    async with hosting() as host:
        for told in (crash, "", 7, None):
            async with host.client() as client:
                await client.hello(device={"id": "kitchen", "crash": told})
        async with host.client() as client:  # a board that crashed within the window of its session
            session = (await client.hello(device={"id": "kitchen"}))["sessionId"]
        async with host.client() as client:
            ready = await client.hello(
                device={"id": "kitchen", "crash": "ValueError: oops"}, sessionId=session
            )
            assert ready["sessionId"] == session
    told = [record for record in caplog.records if "crashed before" in record.getMessage()]
    first, second = (record.getMessage() for record in told)
    assert "update 2.0 did not start: ImportError at b/main.py:2\\nINFO forged" in first
    assert "vrt_0123" not in first
    assert len(first.splitlines()) == 1
    assert len(first) < 400
    assert second.endswith("the device crashed before: ValueError: oops")
    assert {record.levelname for record in told} == {"WARNING"}


async def test_peer_cannot_fill_the_log_with_its_faults(caplog):
    caplog.set_level(logging.INFO)
    async with hosting() as host, host.client() as client:
        await client.hello()
        for number in range(50):
            await client.raw(f"not json {number} \x1b[2J\n" + "x" * 5000)
            await client.until("error")
    lines = [record.getMessage() for record in caplog.records if "MALFORMED" in record.getMessage()]
    assert len(lines) == FAULTS_LOGGED
    assert max(map(len, lines)) < 300
    assert all(line.isprintable() for line in lines)


async def test_text_that_is_not_utf8_closes_with_1007_and_parks_the_session():
    async with hosting() as host, host.client() as client:
        await client.hello()
        await client.ws.send(b'{"v":1,"seq":1,"type":"text","text":"\xff"}', text=True)
        assert await client.closed() == 1007
        await host.event("session.parked")
        assert not [event for event in host.events if event["event"] == "message.in" and event.get("text")]


async def test_frame_beyond_what_is_read_closes_with_1009_and_twice_ends_the_session():
    async with hosting(limits=Limits(message_bytes=1000, audio_bytes=1000)) as host:
        session = None
        for _ in range(2):
            async with host.client() as client:
                await client.hello(**({} if session is None else {"sessionId": session}))
                session = client.ready["sessionId"]
                await client.raw("x" * 5000)
                assert await client.closed() == 1009
        await host.event("session.closed")
        async with host.client() as client:
            await client.send("hello", sessionId=session)
            assert (await client.until("error"))["code"] == "RESUME_FAILED"


async def test_fragmented_message_is_put_together():
    async with hosting() as host, host.client() as client:
        await client.hello()

        async def parts():
            for part in ('{"v":1,"seq":1,"type":', '"text",', '"text":"é"}'):
                yield part

        async with asyncio.timeout(DEADLINE_S):
            await client.ws.send(parts())
        assert (await client.until("text"))["text"] == "Echo: é"


async def test_tool_list_of_41_kb_in_three_fragments_with_a_ping_between_them_is_taken():
    make, made = plain()
    text = "what it does " * 26
    tools = [{"name": f"tool_{number}", "description": text} for number in range(112)]
    hello = json.dumps({"v": 1, "seq": 0, "type": "hello", "tools": tools})
    assert 41_000 <= len(hello) < 43_000
    async with hosting(make) as host, host.client() as client:

        async def parts():
            for at in range(0, len(hello), 15_000):
                if at:
                    pongs.append(await client.ws.ping())
                yield hello[at : at + 15_000]

        pongs = []
        async with asyncio.timeout(DEADLINE_S):
            await client.ws.send(parts())
            for pong in pongs:
                await pong
            await client.until("ready")
    assert len(pongs) == 2
    assert len(made[0].session.tools) == len(tools)


async def test_message_in_too_many_fragments_closes_with_1009():
    async with hosting() as host, host.client() as client:
        await client.hello()

        async def parts():
            for _ in range(2000):
                yield ""

        with contextlib.suppress(ConnectionClosed):
            async with asyncio.timeout(DEADLINE_S):
                await client.ws.send(parts())
        assert await client.closed() == 1009


async def test_audio_waits_for_a_peer_that_does_not_read():
    """Only pings' worth of audio go to a peer that answers none; the rest follows when it reads."""

    def speak(agent, text):
        agent.port.emit(TurnBegin("t"))
        agent.port.emit(AudioBegin("t", "i"))
        agent.port.emit(Audio("t", "i", bytes(8000 * 5)))

    make, _ = plain(speak)
    async with hosting(make) as host:
        reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
        writer.write(
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        async with asyncio.timeout(DEADLINE_S):
            await reader.readuntil(b"\r\n\r\n")
            for message in (
                {
                    "v": 1,
                    "seq": 0,
                    "type": "hello",
                    "output": {"encoding": "pcmu"},
                    "limits": {"bufferMs": 60_000},
                },
                {"v": 1, "seq": 1, "type": "text", "text": "t"},
            ):
                writer.write(masked(1, json.dumps(message).encode()))
            frames = Frames(reader)
            while await frames.next() != (9, b"1"):  # the first ping, after 200 ms of audio
                pass
            assert frames.audio == 10
            await host.event("message.out")
            await asyncio.sleep(0)
            frames_before = frames.audio
            writer.write(masked(1, b'{"v":1,"seq":0,"type":"ping"}'))
            while (await frames.next())[0] != 1:  # another 200 ms came at once, then only the answer
                pass
            assert frames.audio == frames_before + 10
            writer.write(masked(10, b"1"))
            while await frames.next() != (9, b"2"):
                pass
            writer.write(masked(10, b"2"))
            while frames.audio < 40:
                opcode, payload = await frames.next()
                if opcode == 9:
                    writer.write(masked(10, payload))
        writer.close()


def masked(opcode, payload):
    """A client's frame, masked with zeros."""
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
    return bytes([0x80 | opcode]) + size + bytes(4) + payload


class Frames:
    """A server's frames off a stream; counts audio."""

    def __init__(self, reader):
        self.reader = reader
        self.audio = 0

    async def next(self):
        head = await self.reader.readexactly(2)
        size = head[1]
        if size == 126:
            size = int.from_bytes(await self.reader.readexactly(2), "big")
        payload = await self.reader.readexactly(size)
        opcode = head[0] & 15
        self.audio += opcode == 2
        return opcode, payload


async def test_peer_that_never_reads_is_closed_and_its_session_waits():
    def flood(agent, text):
        agent.port.emit(TurnBegin("t"))
        for _ in range(200):
            agent.port.emit(Text("t", "x" * 10_000))

    make, _ = plain(flood)
    limits = Limits(waiting_bytes=1_000_000, kept_bytes=500_000)
    async with hosting(make, limits=limits) as host, host.client() as client:
        client.ws.transport.pause_reading()
        await client.send("hello")
        await client.send("text", text="t")
        await host.event("link.close", code=1008)
        await host.event("session.parked")
        client.ws.transport.abort()


# --- one fails, the others go on


async def test_agent_that_raises_ends_its_session_alone(caplog):
    def fail(agent, text):
        raise RuntimeError("a bug")

    make, made = plain(fail)
    async with hosting(make) as host, host.client() as bad, host.client() as good:
        await bad.hello()
        await good.hello()
        await bad.send("text", text="x")
        error = await bad.until("error")
        assert (error["code"], error["recoverable"]) == ("AGENT_ERROR", False)
        assert await bad.closed() == 1011
        await good.send("ping")
        await good.until("pong")
        await host.event("session.closed")
    assert [agent.closed for agent in made] == [True, True]


async def test_agent_that_raises_in_close_is_logged(caplog):
    class Bad(PlainAgent):
        async def close(self):
            raise RuntimeError("a bug in close")

    async with hosting(Bad) as host, host.client() as client:
        await client.hello()
    assert "a bug in close" in caplog.text


async def test_agent_that_answers_each_result_at_once_is_served_without_a_further_input():
    class Chain(PlainAgent):
        def user_text(self, text):
            self.port.emit(TurnBegin("t"))
            self.port.emit(Call("t", "0", "unknown", "{}"))

        def tool_result(self, turn, result):
            number = int(result.call) + 1
            if number < 5:
                self.port.emit(Call("t", str(number), "unknown", "{}"))
            else:
                self.port.emit(Text("t", "five times refused", final=True))

    async with hosting(Chain) as host, host.client() as client:
        await client.hello()
        await client.send("text", text="go")
        assert (await client.until("text"))["text"] == "five times refused"


# --- HTTP


async def test_healthz_answers_and_other_paths_are_websockets():
    async with hosting() as host:
        answer = await request(host.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"application/json" in answer
        assert answer.endswith(b'{"status": "ok"}\n')
        assert (await request(host.port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 426")
        await request(host.port, b"\x00\x01\x02 garbage\r\n\r\n")
        assert (await request(host.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(
            b"HTTP/1.1 200"
        )


@pytest.mark.parametrize(
    ("origin", "taken"),
    [(None, True), ("https://good.example", True), ("https://bad.example", False), ("null", False)],
)
async def test_browser_s_origin_has_to_be_listed(origin, taken):
    config = ServerConfig(port=0, origins=("https://good.example",))
    async with hosting(config=config) as host:
        if taken:
            async with host.client(origin=origin) as client:
                await client.hello()
        else:
            with pytest.raises(InvalidStatus, match="403"):
                async with host.client(origin=origin):
                    pass


async def test_tls_link(tmp_path):
    cert, key, _ = self_signed(tmp_path)
    async with hosting(config=ServerConfig(port=0, tls_cert=cert, tls_key=key)) as host:
        context = ssl.create_default_context(cafile=cert)
        async with host.client("wss", ssl=context) as client:
            await client.hello()
            await client.send("text", text="hi")
            assert (await client.until("text"))["text"] == "Echo: hi"


# --- the end


async def test_stop_tells_the_clients_and_closes_the_agents(caplog):
    caplog.set_level(logging.INFO)
    make, made = plain(call_status)
    async with hosting(make) as host, host.client() as client, host.client() as stranger:
        await client.hello(tools=[TOOL])
        await client.send("text", text="t")
        await client.until("tool.call")
        host.stop.set()
        assert (await client.until("interrupted"))["reason"] == "server"
        error = await client.until("error")
        assert (error["code"], error["recoverable"]) == ("HOST_STOPPING", False)
        assert await client.closed() == 1001
        assert await stranger.closed() == 1001
        async with asyncio.timeout(DEADLINE_S):
            await host.task
    assert made[0].told == [("result", "c", False, "INTERRUPTED"), ("interrupted", "t", [])]
    assert made[0].closed
    assert "stopping: 1 sessions, 1 calls without a result" in caplog.text


async def test_stop_does_not_wait_for_an_agent_that_hangs():
    class Hangs(PlainAgent):
        async def close(self):
            await asyncio.Event().wait()

    class Never(PlainAgent):
        async def start(self, session, port):
            await asyncio.Event().wait()

    kinds = iter((Hangs, Never))

    def make():
        return next(kinds)()

    config = ServerConfig(port=0, stop_timeout=0.05)
    async with (
        hosting(make, config=config) as host,
        host.client() as one,
        host.client() as two,
    ):
        await one.hello()
        await two.send("hello")
        await two.send("ping")
        await two.until("pong")
        host.stop.set()
        assert await one.closed() == 1001
        assert await two.closed() == 1001
        async with asyncio.timeout(DEADLINE_S):
            await host.task


async def test_cancelled_server_ends_in_good_order():
    make, made = plain()
    async with hosting(make) as host, host.client() as client:
        await client.hello()
        host.task.cancel()
        assert await client.closed() == 1001
        with pytest.raises(asyncio.CancelledError):
            await host.task
        assert made[0].closed
        host.task = asyncio.create_task(asyncio.sleep(0))


async def test_busy_port_is_one_line():
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port {port} is in use.*--port"):
            await serve(ServerConfig(port=port), EchoAgent)


async def test_any_free_port_of_localhost_is_the_one_that_is_told():
    async with hosting(config=ServerConfig(host="localhost", port=0)) as host, host.client() as client:
        await client.hello()


async def test_address_of_another_machine_is_one_line():
    with pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.1"):
        await serve(ServerConfig(host="192.0.2.1", port=0, insecure=True), EchoAgent)


@pytest.mark.parametrize("name", ["a..b", "x" * 80])
async def test_name_that_cannot_be_one_is_one_line(name):
    with pytest.raises(UsageError, match=r"is not an address or a name"):
        await serve(ServerConfig(host=name, port=0, insecure=True), EchoAgent)


async def test_host_without_an_observer_does_the_same():
    async with hosting(observer=None) as host, connect(f"ws://127.0.0.1:{host.port}", proxy=None) as ws:
        client = Client(ws)
        await client.hello(input={"encoding": "pcmu"}, output={"encoding": "pcmu"})
        await client.send("text", text="hi")
        assert (await client.until("text"))["text"] == "Echo: hi"
        await client.audio(b"x" * 160)
        assert await client.audio_until(1) == [b"x" * 160]
