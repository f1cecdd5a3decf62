"""The AITP facade and clients that mean no good, or do it badly: what they send, how they leave, how much they may cost."""

import asyncio
import contextlib
import dataclasses
import json
import socket
import ssl

import pytest
from host_client import DEADLINE_S
from test_facade_aitp import CART, INIT, PAY, Client, Ears, answers, cut_off, hears, serving, stream
from test_guest import LOCK, Brain, board, call
from test_updates import served
from vrt_host import server
from vrt_host.agents.base import Call, Text, TurnBegin, TurnEnd
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig
from vrt_host.facades import aitp, aitp_messages, aitp_session, web
from vrt_host.lending import Lending
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidMessage

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="


def frame(message):
    """A masked text frame, as a client's socket sends it."""
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    head = bytes([0x81, 0x80 | len(data)]) if len(data) < 126 else b"\x81\xfe" + len(data).to_bytes(2, "big")
    return head + bytes(4) + data


def upgrade(*headers):
    lines = [b"GET /owllayer HTTP/1.1", b"Host: x", b"Connection: Upgrade", b"Upgrade: websocket"]
    lines += [b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: " + KEY, *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def message(kind, **payload):
    return {"id": "m", "type": kind, "timestamp": 1, "payload": payload}


@contextlib.asynccontextmanager
async def raw(host):
    reader, writer = await asyncio.open_connection("127.0.0.1", host.facade.port)
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def gone(host):
    """No connection is left, and no session of one."""
    async with asyncio.timeout(DEADLINE_S):
        while host.facade._clients or host.facade.host._runners or host.facade.host._seats:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# --- who comes


async def test_nothing_that_a_page_of_a_strange_origin_sends_is_read():
    """Also not what came in one piece with its request."""
    heard = [
        frame(message("HANDSHAKE_INIT", **INIT)),
        frame(message("CONTEXT_UPDATE", url="/", activeTools=[])),
    ]
    async with serving(Brain()) as host, raw(host) as (reader, writer):
        writer.write(upgrade(b"Origin: http://evil.example") + b"".join(heard))
        answer = await reader.read()
        assert b"Origin not allowed" in answer
        assert b"HANDSHAKE_ACK" not in answer
        assert host.facade.connections == {}


async def test_after_another_version_nothing_more_is_read():
    wrong = frame(message("HANDSHAKE_INIT", **{**INIT, "protocolVersion": "2"}))
    async with serving(Brain()) as host, raw(host) as (reader, writer):
        writer.write(upgrade() + wrong + frame(message("HANDSHAKE_INIT", **INIT)))
        answer = await reader.read()
        assert b"Protocol version mismatch" in answer
        assert host.facade.connections == {}


async def test_a_host_that_is_full_says_so():
    """Facts 3.2: 1013 Server at capacity."""
    config = ServerConfig(port=0, max_links=1)
    async with serving(Brain(), config=config) as host, host.aitp() as first:
        await first.init()
        async with host.aitp() as second:
            assert await second.closed() == (1013, "Server at capacity")


async def test_a_connection_without_a_request_is_closed(monkeypatch):
    monkeypatch.setattr(web, "REQUEST_S", 0.05)
    async with serving() as host, raw(host) as (reader, writer):
        writer.write(b"GET /owll")
        assert await reader.read() == b""


async def test_a_token_that_is_revoked_ends_its_session(tmp_path, monkeypatch):
    """Facts 3.2: 1008 Unauthorized."""
    monkeypatch.setattr(server, "TOKENS_EVERY_S", 0.05)
    file = TokenFile(tmp_path / "t.json")
    token = file.add("web")
    config = ServerConfig(port=0, tokens=file.path)
    async with serving(Brain(answers), config=config) as host, host.aitp() as client:
        await client.init(apiKey=token)
        await client.say("hello")
        await client.answer()
        file.revoke("web")
        assert await client.closed() == (1008, "Unauthorized")


async def test_with_tls_everything_is_encrypted(tmp_path):
    config = dataclasses.replace(served(tmp_path), port=0)
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    token = TokenFile(tmp_path / "tokens.json").add("mine")
    async with serving(Brain(answers), config=config) as host:
        assert host.facade.url == f"wss://127.0.0.1:{host.facade.port}/owllayer"
        async with connect(host.facade.url, ssl=trust, compression=None, proxy=None) as ws:
            client = Client(ws)
            await client.init(apiKey=token)
            await client.say("hello")
            assert await client.answer() == "You said hello."
        with pytest.raises((InvalidMessage, ConnectionError)):
            await connect(host.facade.url.replace("wss", "ws"), proxy=None)


# --- what comes


@pytest.mark.parametrize(
    "text",
    [
        '{"id":"m","type":"CONTEXT_UPDATE","timestamp":1,"payload":{"url":"/","activeTools":[],"context":{"x":1e999}}}',
        '{"id":"m","type":"CONTEXT_UPDATE","timestamp":1,"payload":{"url":"/","activeTools":[],"context":'
        + '{"x":' * 40
        + "1"
        + "}" * 42,
        "[" * 100_000,
        '{"id":"m","type":"AUDIO_STREAM","timestamp":1,"payload":{"data":"AAAA","mimeType":"audio/pcm;rate=%s"}}'
        % ("9" * 5000),
        '{"id":"m","type":"AUDIO_STREAM","timestamp":1,"payload":{"data":"AA==","mimeType":"audio/pcm;rate=8000"}}',
        '{"id":"m","type":"USER_INPUT","timestamp":1,"payload":{"modality":"audio","content":"UklGRgAAAAA=","mimeType":"audio/wav"}}',
        '{"id":"m","type":"TOOL_RESULT","timestamp":1,"payload":{"callId":"c","status":"success","result":1e999}}',
    ],
    ids=["infinity", "deep", "deeper", "rate", "half a sample", "half a wav", "infinite result"],
)
async def test_what_would_break_a_session_does_not(text):
    async with serving(Brain(answers), Brain(answers)) as host, host.aitp() as client:
        await client.init()
        await client.ws.send(text)
        await client.say("hello")
        assert await client.answer() == "You said hello."


async def test_half_characters_are_replaced_both_ways():
    """A lone surrogate, which JSON can carry and UTF-8 cannot, in a text and in what is told back of a tool."""
    async with serving(Brain(answers)) as host, host.aitp() as client:
        await client.init({**CART, "description": "\ud800"})
        await client.say("\ud800!")
        assert await client.answer() == "You said \ufffd!."


async def test_tools_that_are_too_large_leave_the_list_before():
    async with serving(Brain(answers)) as host, host.aitp() as client:
        await client.init(CART)
        large = {**PAY, "description": "x" * aitp_session.TOOLS_BYTES}
        await client.send("CONTEXT_UPDATE", url="/", activeTools=[large])
        said = await client.until("SYSTEM_EVENT", kind="error")
        assert said["message"] == "The tools are larger than 96 KB; the list before stays"
        told = await client.until("SYSTEM_EVENT", kind="tools_effective")
        assert [tool["name"] for tool in told["data"]["clientTools"]] == ["add_to_cart"]
        await client.say("hello")
        assert await client.answer() == "You said hello."


async def test_a_name_that_comes_twice_or_is_none_is_ignored_and_told():
    brain = Brain(answers)
    async with serving(brain) as host, host.aitp() as client:
        await client.send("HANDSHAKE_INIT", **INIT)
        await client.until("HANDSHAKE_ACK")
        told = (await client.page(PAY, {**PAY, "description": "Again."}, {**PAY, "name": "ça"}))["data"]
        assert told["clientTools"] == told["effectiveTools"] == [PAY]
        assert [tool["description"] for tool in told["ignoredClientTools"]] == ["Again.", "Pays."]
        await client.say("hello")
        assert await client.answer() == "You said hello."
        assert [tool.name for tool in brain.session.tools] == ["pay"]


async def test_the_largest_page_that_is_taken_opens_a_session():
    """Context, tools, address and what was said, each as large as it may be, fit into one `hello`."""
    tools = [{**PAY, "name": f"t{n}", "description": "é" * 500} for n in range(30)]
    brains = [Brain(answers), Brain(answers)]
    async with serving(*brains) as host, host.aitp() as client:
        await client.init()
        for _ in range(10):
            await client.say("\U0001f600" * 400)
            await client.answer()
        context = {"x": "é" * 32_000}
        await client.send(
            "CONTEXT_UPDATE", url="/" + "é" * 99_999, title="é" * 99_999, activeTools=tools, context=context
        )
        await client.until("SYSTEM_EVENT", kind="tools_effective")
        await client.say("hello")
        assert await client.answer() == "You said hello."
        assert len(brains[1].session.tools) == 30
        assert brains[1].session.context["context"] == context
        assert len(brains[1].session.context["url"]) == aitp_session.ADDRESS_CHARS


async def test_a_result_that_is_no_json_for_the_host_fails():
    """32 levels are taken in a message, one of which the envelope is."""
    deep = "1"
    for _ in range(29):
        deep = [deep]
    brain = Brain(lambda agent, text: call(agent, "pay"))
    async with serving(brain) as host, host.aitp() as client:
        await client.init(PAY)
        await client.say("pay")
        asked = await client.until("TOOL_CALL")
        await client.send("TOOL_RESULT", callId=asked["callId"], status="success", result=deep)
        await brain.until(lambda: brain.results)
        assert brain.results[0].ok


@pytest.mark.parametrize("value", ["99999999999", "9" * 5000, "७" * 5, "-1", ""])
def test_a_rate_that_is_none(value):
    assert aitp_messages.rate_of(f"audio/pcm;rate={value}", 16_000) is None


async def test_sound_that_comes_before_its_session_is_bounded(monkeypatch):
    monkeypatch.setattr(aitp_session, "EARLY_BYTES", 1000)
    brain = Brain(answers)
    ready = asyncio.Event()
    start = brain.start

    async def slow(session, port):
        await ready.wait()
        await start(session, port)

    brain.start = slow
    async with serving(brain) as host, host.aitp() as client:
        await client.init()
        for _ in range(4):
            await client.send("AUDIO_STREAM", **stream(bytes(400)))
        await client.send("USER_INPUT", modality="text", content="x" * 9000)  # everything before it has come
        await client.until("SYSTEM_EVENT", kind="error")
        ready.set()
        await client.say("hello")
        await client.answer()
        assert 1000 < len(brain.audio) <= 1200  # 800 bytes of 16 kHz, as 24 kHz


# --- how often, how much


async def test_tools_that_change_all_the_time_open_no_session_each(monkeypatch):
    assert aitp_session.REOPEN_S == 1
    monkeypatch.setattr(aitp_session, "REOPEN_S", 0.3)
    brains = [Brain(answers) for _ in range(80)]
    async with serving(*brains) as host, host.aitp() as client:
        await client.init()
        for turn in range(60):
            await client.page(*([CART], [PAY])[turn % 2])
        await client.say("hello")
        assert await client.answer() == "You said hello."
        opened = [brain for brain in brains if hasattr(brain, "session")]
        assert len(opened) < 12
        assert [tool.name for tool in opened[-1].session.tools] == ["pay"]


async def test_what_waits_for_a_client_that_does_not_read_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(web, "WAITING_BYTES", 1_000_000)
    async with cut_off():
        pass


async def test_whoever_reads_nothing_is_cut_off_by_the_ping_that_it_does_not_take(monkeypatch):
    monkeypatch.setattr(aitp, "PING_S", 0.3)
    async with cut_off(300) as host:
        await gone(host)


LEAVING = ["abort", "half", "close"]


@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.parametrize("phase", ["connected", "greeted", "opening", "answering"])
async def test_whoever_leaves_leaves_nothing_behind(how, phase):
    def endless(agent, text):
        agent.port.emit(TurnBegin("t"))
        agent.port.emit(Text("t", "..."))

    brains = [Brain(endless) for _ in range(10)]
    async with serving(*brains, connections=10) as host:
        for _ in range(10):
            async with host.aitp() as client:
                if phase != "connected":
                    await client.send("HANDSHAKE_INIT", **INIT)
                if phase in ("opening", "answering"):
                    await client.send("CONTEXT_UPDATE", url="/", activeTools=[CART])
                if phase == "answering":
                    await client.say("x")
                    await client.until("AGENT_RESPONSE")
                if how == "abort":
                    client.ws.transport.abort()
                elif how == "half":
                    client.ws.transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
        await gone(host)
        assert not any(host.facade.connections.values())
        async with asyncio.timeout(DEADLINE_S):
            for brain in brains:
                if hasattr(brain, "session"):
                    await brain.closed.wait()


async def test_a_host_that_stops_tells_clients_in_every_phase():
    """Facts 3.2: 1001, Server shutting down."""
    slow = Brain()

    async def never(session, port):
        await asyncio.Event().wait()

    slow.start = never
    brains = [Brain(lambda agent, text: call(agent, "pay")), Brain(), slow]
    async with serving(*brains) as host, host.aitp() as one, host.aitp() as two, host.aitp() as three:
        await one.init(PAY)
        await one.say("pay")
        await one.until("TOOL_CALL")
        await two.init()
        await three.init()
        async with host.aitp() as four, host.aitp() as five:
            await five.send("HANDSHAKE_INIT", **INIT)
            await five.until("HANDSHAKE_ACK")
            host.stop.set()
            for client in (one, two, three, four, five):
                assert await client.closed() == (1001, "Server shutting down")


# --- interruptions and approvals


async def test_after_a_barge_in_the_next_text_is_taken_at_once():
    brain = Ears(answers)
    brain.user_audio = lambda payload: None
    async with serving(brain) as host, host.aitp() as client:
        await client.init()
        await client.send("AUDIO_STREAM", **stream(bytes(640)))
        await brain.until(lambda: hasattr(brain, "port"))
        hears(brain, 20)
        await client.until("AUDIO_STREAM")
        await client.send("VOICE_INTERRUPT", reason="barge_in")
        await client.say("hello")
        await client.until("VOICE_STATE_EVENT", event="interrupted")
        assert (await client.until("AGENT_RESPONSE"))["done"]
        assert await client.answer() == "You said hello."


def locks(agent, text):
    agent.port.emit(TurnBegin(text))
    for number in range(2):
        agent.port.emit(Call(text, f"{text}{number}", "lock", "{}"))
    agent.port.emit(TurnEnd(text))


async def test_an_approval_counts_once_for_its_own_call_and_from_the_client_that_was_asked():
    mine, other = Brain(locks), Brain()
    async with serving(Brain(), mine, other, lending=Lending(["porch"])) as host, host.client() as porch:
        await board(porch, LOCK)
        async with host.aitp() as client, host.aitp() as stranger:
            await client.init()
            await mine.until(lambda: hasattr(mine, "port"))
            await stranger.init()
            await client.say("a")
            first = await client.until("APPROVAL_REQUEST")
            await stranger.send("APPROVAL_RESPONSE", callId=first["callId"], approved=True)
            await client.send("APPROVAL_RESPONSE", callId="call_other", approved=True)
            await client.send("TOOL_RESULT", callId=first["callId"], status="success", result="faked")
            await stranger.send("USER_INPUT", modality="text", content="x" * 9000)
            await stranger.until("SYSTEM_EVENT", kind="error")  # all of it has come
            await porch.send("ping")
            assert (await porch.next())["type"] == "pong"
            await client.send("APPROVAL_RESPONSE", callId=first["callId"], approved=True)
            await client.send("APPROVAL_RESPONSE", callId=first["callId"], approved=True)
            ran = await porch.until("tool.call")
            members = {"callId": ran["callId"], "epoch": ran["epoch"]}
            await porch.send("tool.result", **members, ok=True, output="locked")
            second = await client.until("APPROVAL_REQUEST")
            assert second["callId"] != first["callId"]
            await client.send("APPROVAL_RESPONSE", callId=first["callId"], approved=True)
            await client.send("VOICE_INTERRUPT", reason="barge_in")
            await client.send("APPROVAL_RESPONSE", callId=second["callId"], approved=True)
            await mine.until(lambda: len(mine.results) == 2)
            assert [one.ok for one in mine.results] == [True, False]
            await porch.send("ping")
            while (said := await porch.next())["type"] != "pong":
                assert said["type"] != "tool.call"


async def test_the_hosts_time_for_a_call_covers_the_clients_decision_and_the_boards():
    brain = Brain()
    async with serving(Brain(), brain, lending=Lending(["porch"])) as host, host.client() as porch:
        await board(porch, {**LOCK, "timeoutMs": 60_000})
        async with host.aitp() as client:
            await client.init()
            await brain.until(lambda: hasattr(brain, "session"))
            assert brain.session.tools[0].timeout_ms > 60_000 + 1000 * aitp_session.APPROVAL_S


async def test_two_clients_do_not_borrow_one_board_at_once():
    first, second = Brain(locks), Brain(locks)
    light = {"name": "lock", "parameters": {"type": "object"}}
    async with serving(Brain(), first, second, lending=Lending(["porch"])) as host, host.client() as porch:
        await board(porch, light)
        async with host.aitp() as one, host.aitp() as two:
            await one.init()
            await first.until(lambda: hasattr(first, "port"))
            await two.init()
            await one.say("a")
            ran = await porch.until("tool.call")
            await two.say("b")
            await second.until(lambda: len(second.results) == 2)
            assert all("is busy" in one.message for one in second.results)
            for _ in range(2):  # one after the other it is free again
                members = {"callId": ran["callId"], "epoch": ran["epoch"]}
                await porch.send("tool.result", **members, ok=True, output=None)
                if not first.results:
                    ran = await porch.until("tool.call")
            await first.until(lambda: len(first.results) == 2)
            assert [one.ok for one in first.results] == [True, True]
