"""agents/aitp.py and aitp_link.py: connections to a server's stand-in, a process of its own (tests/peers)."""

import asyncio
import contextlib
import json
import logging
import re
from pathlib import Path

import pytest
import pytest_asyncio
from agent_stage import answering, started
from peers.plan import quiet, tone
from peers.process import DEADLINE_S, PeerProcess
from pydantic import SecretStr
from vrt_host.agents import aitp, aitp_link, mouth, outbox, registry
from vrt_host.agents import aitp_messages as messages
from vrt_host.agents.aitp import Aitp, Options
from vrt_host.agents.base import AgentError, Audio, Call, Text, Tool, ToolResult, Transcript, TurnBegin
from vrt_host.agents.options import load
from vrt_host.errors import AgentStartError
from websockets.asyncio.server import serve

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "a-secret-that-nobody-may-see"
SPEECH = tone(0.4, "pcm16", 16_000)
PAUSE = quiet(0.8, "pcm16", 16_000)
FRAME = 640
"""Bytes of 20 ms."""
PAY = Tool("pay", confirm="button")
PAGE = Path(__file__).parents[2] / "docs" / "agents" / "aitp.md"


@pytest_asyncio.fixture(name="process", scope="module", loop_scope="module")
async def process_of_module():
    async with PeerProcess("aitp") as peer:
        yield peer


@pytest_asyncio.fixture(name="peer", loop_scope="module")
async def peer_of_test(process):
    yield process
    await process.reset()


def agent_for(port, **options):
    given = {"api_key": SecretStr(KEY), "reconnect_delay_ms": 20, **options}
    return Aitp(Options(url=f"ws://127.0.0.1:{port}", **given))


@contextlib.asynccontextmanager
async def talking(peer, *, context=None, tools=(PAY,), **options):
    """An agent that has started, and its port."""
    agent = agent_for(peer.port, **options)
    async with started(agent, tools=tools, context=context, format_=aitp.INPUT, output=aitp.OUTPUT) as port:
        yield agent, port


def says(agent, *sounds):
    """The microphone, faster than real time."""
    audio = b"".join(sounds)
    for start in range(0, len(audio), FRAME):
        agent.user_audio(audio[start : start + FRAME])


def waiting(monkeypatch):
    """How long is waited before each attempt to connect again; nothing is waited for."""
    waits = []

    async def pause(seconds):
        waits.append(seconds)

    monkeypatch.setattr(Aitp, "pause", staticmethod(pause))
    return waits


async def comes_true(condition):
    while not condition():  # noqa: ASYNC110  (what an agent sends wakes nobody)
        await asyncio.sleep(0)


# --- the handshake


async def test_handshake_is_given_5000_ms():
    """5000 ms, then close 4000 (page: Connection Troubleshooting); the close itself is in test_aitp_flows.py."""
    assert aitp_link.HANDSHAKE_S == 5.0


async def test_key_is_in_the_header_and_the_first_message_and_in_no_log(peer, caplog):
    with caplog.at_level(logging.DEBUG):
        async with talking(peer) as (agent, port):
            agent.user_text("Hello")
            await port.ends()
    init = (await peer.seen("init"))["payload"]
    assert (init["protocolVersion"], init["viewport"]) == ("1.0.0", "0x0")
    assert KEY not in caplog.text


async def test_client_without_a_key_is_anonymous(peer):
    await peer.do("be", asked=False)
    async with talking(peer, api_key=None) as (agent, port):
        agent.user_text("Hello")
        await port.ends()


async def test_server_that_confirms_before_it_is_greeted_is_taken(peer):
    """code: OwlLayerServer.ts."""
    await peer.do("be", early=True)
    async with talking(peer) as (agent, port):
        agent.user_text("Hello")
        await port.ends()


async def test_server_of_another_version_is_refused(peer):
    """1.0.0, strictly (page: Version Negotiation)."""
    await peer.do("be", version="1.0.1")
    with pytest.raises(
        AgentStartError, match=r"aitp: the server speaks AITP 1\.0\.1, this host 1\.0\.0; .*update"
    ):
        async with talking(peer):
            pass
    await peer.seen("closed_by", code=1008)


async def test_server_that_never_confirms_is_left_with_4000(peer, monkeypatch):
    """4000 "Handshake timeout" (page: Connection Troubleshooting)."""
    monkeypatch.setattr(aitp_link, "HANDSHAKE_S", 0.05)
    await peer.do("be", ack=False)
    with pytest.raises(AgentStartError, match="no handshake"):
        async with talking(peer):
            pass
    await peer.seen("closed_by", code=4000, reason="Handshake timeout")


@pytest.mark.parametrize(
    ("status", "word"), [(401, "key"), (404, "no AITP server"), (302, "no AITP server"), (503, "network")]
)
async def test_server_of_another_kind_is_told_in_one_line(status, word):
    async with answering(status=status, location="http://127.0.0.1:1/") as (port, requests):
        with pytest.raises(AgentStartError, match=word) as caught:
            await started(agent_for(port)).__aenter__()
    assert KEY not in str(caught.value)
    assert len(requests) == 1
    assert "apiKey" not in requests[0].path


async def test_address_where_nobody_listens_is_told_in_one_line():
    with pytest.raises(AgentStartError, match=r"^aitp: nobody listens there; check the address"):
        await started(agent_for(1)).__aenter__()


async def test_leaving_is_told_with_1000(peer):
    """1000 "Client disconnect" (code: OwlLayerClient.ts)."""
    async with talking(peer):
        pass
    await peer.seen("closed_by", code=1000, reason="Client disconnect")


# --- connections that come and go


@pytest.mark.parametrize("code", [1003, 1008, 1011])
async def test_close_that_is_final_ends_the_session(peer, code, monkeypatch):
    """1003, 1008, 1011: no reconnection (code: OwlLayerClient.ts)."""
    waits = waiting(monkeypatch)
    async with talking(peer) as (_, port):
        await peer.seen("context")
        await peer.do("close", code=code, reason=f"Over, {KEY}")
        await port.until(lambda: port.all(AgentError))
        [error] = port.all(AgentError)
        assert error.recoverable is False
        assert "Over, ***" in error.message
        assert error.code == ("PROVIDER_AUTH_FAILED" if code == 1008 else "AGENT_ERROR")
    assert waits == []


@pytest.mark.parametrize("code", [1000, 1001, 1013, 4999])
async def test_any_other_close_is_followed_by_another_connection(peer, code):
    async with talking(peer, context={"room": "kitchen"}) as (agent, port):
        agent.user_text("Remember the milk")
        await port.ends()
        await peer.do("close", code=code)
        await peer.seen("init")
        await peer.seen("init")
        agent.user_text("What was it?")
        await port.ends(2)
        assert port.all(AgentError) == []
        contexts = [report["payload"]["context"] for report in peer.reports if report["kind"] == "context"]
        assert contexts[0] == {"room": "kitchen"}
        assert contexts[-1]["room"] == "kitchen"
        assert contexts[-1]["earlierConversation"][0] == {"role": "user", "text": "Remember the milk"}


async def test_attempts_wait_2000_ms_longer_each_time_and_are_ten(monkeypatch):
    """2000 ms times the attempt, 10 attempts (code: OwlLayerClient.ts)."""
    waits = waiting(monkeypatch)
    async with PeerProcess("aitp") as peer:
        agent = Aitp(Options(url=f"ws://127.0.0.1:{peer.port}", api_key=SecretStr(KEY)))
        async with started(agent, format_=aitp.INPUT) as port:
            await peer.refuse("rate", times=99)
            await peer.drop()
            await port.until(lambda: any(not error.recoverable for error in port.all(AgentError)))
            assert "10 attempts" in port.all(AgentError)[-1].message
            assert port.all(AgentError)[-1].code == "PROVIDER_UNAVAILABLE"
            assert peer.count("refused") == 10
    assert waits == [2.0 * attempt for attempt in range(1, 11)]


async def test_text_is_given_up_with_the_first_attempt_that_fails(peer, caplog):
    async with talking(peer, reconnect_delay_ms=50) as (agent, port):
        await peer.seen("context")
        await peer.refuse("rate")
        await peer.drop()
        await peer.seen("closed")
        agent.user_text("Hello?")
        await port.until(lambda: port.all(AgentError))
        assert port.all(AgentError)[0].turn == port.all(TurnBegin)[0].turn
        assert "Server at capacity" in port.all(AgentError)[0].message
        agent.user_text("Hello!")
        await port.ends()
        assert [report["text"] for report in peer.reports if report["kind"] == "text"] == ["Hello!"]


async def test_broken_message_is_told_once_a_connection(peer):
    async with talking(peer) as (agent, port):
        await peer.seen("context")
        for _ in range(2):
            await peer.do("frame", text="{")
            await peer.do(
                "frame", text='{"id": "1", "type": "AGENT_RESPONSE", "timestamp": 1, "payload": {}}'
            )
            agent.user_text("Hello")
            await port.until(lambda: port.idle())  # noqa: PLW0108
            await port.until(lambda: port.all(AgentError))
        [error] = port.all(AgentError)
        assert error.recoverable
        assert error.turn is None


async def test_server_that_disconnects_ends_the_session_and_is_not_called_again(peer, monkeypatch):
    waits = waiting(monkeypatch)
    async with talking(peer) as (_, port):
        await peer.seen("context")
        await peer.do("event", kind="disconnect", message="Good night.")
        await port.until(lambda: port.all(AgentError))
        await peer.seen("closed")
        assert [error.message for error in port.all(AgentError)] == [
            "aitp: the server ends the session: Good night; see the provider's words"
        ]
    assert waits == []


@pytest.mark.parametrize("arrived", [False, True])
async def test_text_that_may_not_have_arrived_is_sent_again_and_no_other(arrived):
    """A pong says that all before its ping has arrived."""
    texts, sockets, again = [], [], asyncio.Event()
    ack = {"sessionId": "s", "serverVersion": "", "protocolVersion": "1.0.0", "capabilities": ["text"]}

    async def server(socket):
        sockets.append(socket)
        await socket.recv()
        await socket.send(json.dumps(messages.message("HANDSHAKE_ACK", ack)))
        await socket.recv()
        if len(sockets) == 2:
            again.set()
        elif not arrived:
            socket.transport.pause_reading()
            await socket.wait_closed()
        async for frame in socket:
            texts.append(json.loads(frame)["payload"]["content"])
            if len(sockets) == 2:
                done = messages.message("AGENT_RESPONSE", {"chunk": "Yes.", "done": True})
                await socket.send(json.dumps(done))

    async with serve(server, "127.0.0.1", 0) as listener, asyncio.timeout(DEADLINE_S):
        agent = agent_for(listener.sockets[0].getsockname()[1])
        async with started(agent, format_=aitp.INPUT) as port:
            await comes_true(lambda: not agent._page.due)
            agent.user_text("Hello")
            await comes_true(lambda: not agent._out.messages and arrived != bool(agent._unconfirmed))
            sockets[0].transport.abort()
            await again.wait()
            if arrived:
                await port.until(lambda: port.all(AgentError))
                assert port.all(AgentError)[0].turn == port.all(TurnBegin)[0].turn
                agent.user_text("Again")
            await port.ends()
            assert len(port.all(AgentError)) == arrived
    assert texts == (["Hello", "Again"] if arrived else ["Hello"])


async def test_audio_waits_for_the_next_connection_and_is_bounded(peer, monkeypatch, caplog):
    monkeypatch.setattr(outbox, "AUDIO_BYTES", 32_000)
    async with talking(peer, reconnect_delay_ms=50) as (agent, _):
        await peer.seen("context")
        await peer.refuse("rate", times=2)
        await peer.drop()
        await peer.seen("refused")  # what went into the old connection is gone
        for _ in range(10):
            agent.user_audio(quiet(0.2, "pcm16", 16_000))
        agent.user_audio(SPEECH + quiet(0.5, "pcm16", 16_000))
        assert (await peer.seen("speech_started"))["ms"] <= 200
        assert caplog.text.count("the oldest is dropped") == 1


@pytest.mark.parametrize("what", [{"say": "This has no end.", "seconds": None}, {"say": "x", "seconds": 60}])
async def test_reading_stops_when_a_reply_is_far_ahead(peer, monkeypatch, what):
    monkeypatch.setattr(mouth, "MOST_BYTES", 5 * 48_000)
    if what["seconds"]:
        monkeypatch.setattr(mouth, "MOST_BYTES", 1 << 30)
        monkeypatch.setattr(mouth, "EVENTS", 50)
    async with talking(peer) as (agent, port):
        await peer.respond([what])
        port.full, stalled, clear = True, asyncio.Event(), agent._mouth._room.clear
        monkeypatch.setattr(agent._mouth._room, "clear", lambda: (clear(), stalled.set()))
        agent.user_text("Talk")
        async with asyncio.timeout(DEADLINE_S):
            await stalled.wait()
        port.fill(False)
        agent.interrupted(port.all(TurnBegin)[0].turn, [])
        agent.user_text("Next")
        await port.ends()


@pytest.mark.parametrize("more", [0, 1])
async def test_message_that_is_too_large_ends_the_connection(more):
    ack = {"sessionId": "s", "serverVersion": "", "protocolVersion": "1.0.0", "capabilities": []}

    async def server(socket):
        await socket.recv()
        await socket.send(json.dumps(messages.message("HANDSHAKE_ACK", ack)))
        await socket.send("x" * (aitp_link._MAX_BYTES + more))
        await socket.wait_closed()

    async with serve(server, "127.0.0.1", 0, compression=None) as listener:
        url = f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
        link, _, _ = await aitp_link.Link.open(url, {}, messages.handshake("", ""), 10)
        if more:
            with pytest.raises(messages.AitpError) as caught:
                await link.receive()
            assert caught.value.kind == "gone"
        else:
            assert len(await link.receive()) == aitp_link._MAX_BYTES
        await link.close()


# --- voice


async def test_speech_goes_up_in_pieces_of_100_ms_and_its_end_is_told(peer):
    """16000 Hz (code: aitp.constants.ts); 100 messages in a second are more than enough."""
    async with talking(peer) as (agent, port):
        says(agent, SPEECH, PAUSE)
        await peer.seen("input_end", reason="vad")
        await peer.seen("committed")
        await port.ends()
        assert agent._dialogue._ears  # so that late words are told from an answer
        assert [event.state for event in port.all(TurnBegin)] == ["listening"]
        assert sum(len(event.payload) for event in port.all(Audio)) == 0.2 * 48_000
        assert [one.text for one in port.all(Transcript) if one.text][-1] in ("All right.", "What is said.")


async def test_all_of_the_speech_is_sent_before_its_end():
    ack = {"sessionId": "s", "serverVersion": "", "protocolVersion": "1.0.0", "capabilities": ["audio"]}
    async with (
        asyncio.timeout(DEADLINE_S),
        answering(messages.message("HANDSHAKE_ACK", ack)) as (port, received),
        started(agent_for(port, vad="server"), format_=aitp.INPUT) as device,
    ):
        await comes_true(lambda: len(received) == 3)  # the request, the handshake, the context
        device.agent.user_audio(bytes(FRAME))
        device.agent.send("VOICE_INPUT_END", {"reason": "vad"})
        await comes_true(lambda: len(received) == 5)
        assert [one["type"] for one in received[3:]] == ["AUDIO_STREAM", "VOICE_INPUT_END"]


async def test_microphone_that_is_switched_off_ends_the_speech(peer):
    """user_stop (page: 11. VOICE_INPUT_END)."""
    async with talking(peer) as (agent, port):
        says(agent, SPEECH)
        await peer.seen("input_end", reason="user_stop")
        await port.ends()


async def test_speech_without_an_end_is_ended(peer):
    """timeout (page: 11. VOICE_INPUT_END)."""
    async with talking(peer, longest_s=1.0) as (agent, port):
        says(agent, *[SPEECH] * 4, PAUSE)
        await peer.seen("input_end", reason="timeout")
        await port.ends()


async def test_server_can_find_the_end_by_itself(peer):
    await peer.do("be", vad="server")
    async with talking(peer, vad="server") as (agent, port):
        says(agent, SPEECH, PAUSE)
        await peer.seen("committed")
        await port.ends()
        await peer.seen("input_end", reason="user_stop")  # the microphone is off now
        assert peer.count("committed") == 1


async def test_server_that_finds_the_user_interrupting_is_followed(peer):
    await peer.do("be", vad="server")
    await peer.respond([{"say": "This is long.", "seconds": 20, "pace": 1}], [{"say": "Yes?"}])
    async with talking(peer, vad="server") as (agent, port):
        agent.user_text("Talk")
        await port.until(lambda: port.all(Audio))
        says(agent, SPEECH, PAUSE)
        await peer.seen("committed")
        await port.ends()
        assert [event.state for event in port.all(TurnBegin)][:2] == ["thinking", "listening"]
        assert peer.count("cancel") == 0


async def test_speech_can_go_up_as_a_whole(peer):
    """USER_INPUT with modality audio and a mimeType (page: 4. USER_INPUT)."""
    await peer.respond([{"text": "It is on."}])
    async with talking(peer, voice="message") as (agent, port):
        says(agent, SPEECH, PAUSE)
        report = await peer.seen("recording")
        assert (report["mime"], report["head"]) == ("audio/wav", "RIFF")
        assert 0.4 * 32_000 < report["bytes"] < 1.4 * 32_000
        await port.until(lambda: port.all(Text))
        assert [event.text for event in port.all(Transcript)] == ["What is said."] * 2
    assert peer.count("speech_started") == 0


async def test_audio_of_another_rate_comes_down(peer):
    await peer.do("be", rate=16_000)
    async with talking(peer) as (agent, port):
        agent.user_text("Hello")
        await port.ends()
        assert abs(sum(len(event.payload) for event in port.all(Audio)) - 0.2 * 48_000) < 200


async def test_server_without_live_voice_complains_once(peer, caplog):
    """5 s and longer of "Audio mode unavailable" (code: OwlLayerServer.ts)."""
    await peer.do("be", live=False)
    async with talking(peer) as (agent, port):
        says(agent, quiet(3.0, "pcm16", 16_000))
        await port.until(lambda: port.all(AgentError))
        agent.user_text("Hello")
        await port.ends()
        assert ["Audio mode unavailable" in error.message for error in port.all(AgentError)] == [True]


async def test_error_that_is_repeated_is_told_once(peer, caplog):
    async with talking(peer) as (_, port):
        await peer.seen("context")
        for message in ("Too many tools", "Context too large", "Too many tools", "The end"):
            await peer.do("event", kind="error", message=message)
        await port.until(lambda: "The end" in str(port.all(AgentError)))
        assert len(port.all(AgentError)) == 3
    assert caplog.text.count("Too many tools") == 1


async def test_server_without_audio_gets_none(peer):
    """capabilities (page: 2. HANDSHAKE_ACK)."""
    await peer.do("be", capabilities=["text"])
    async with talking(peer) as (agent, port):
        says(agent, SPEECH, PAUSE)
        agent.user_text("Hello")
        await port.ends()
        assert ["takes no audio" in error.message for error in port.all(AgentError)] == [True]
    assert peer.count("speech_started") == 0
    assert (await peer.seen("context"))["payload"]["activeTools"] == []


# --- tools and context


async def test_tools_and_context_are_told_first_and_changes_together(peer):
    """Batched, and before a TOOL_RESULT (code: OwlLayerClient.ts)."""
    await peer.respond([{"call": "light"}])
    async with talking(peer, tools=[Tool("light", "Switch it.")], context={"n": 0}) as (agent, port):
        first = (await peer.seen("context"))["payload"]
        assert [tool["name"] for tool in first["activeTools"]] == ["light"]
        assert first["context"] == {"n": 0}
        agent.user_text("Light")
        await port.until(lambda: port.all(Call))
        call = port.all(Call)[0]
        for number in range(1, 6):
            agent.context({"n": number})
        agent.tool_result(call.turn, ToolResult(call.call, True, "on"))
        await peer.seen("result")
        kinds = [report["kind"] for report in peer.reports if report["kind"] in ("context", "result")]
        assert kinds == ["context", "context", "result"]
        assert (await peer.seen("context"))["payload"]["context"] == {"n": 5}


async def test_tools_that_are_the_servers_own_are_named(peer, caplog):
    await peer.do("own", names=["pay"])
    async with talking(peer) as (agent, port):
        agent.user_text("Hello")
        await port.ends()
    assert "does not call the device's: pay" in caplog.text


async def test_device_that_asks_its_user_keeps_the_server_waiting(peer):
    """pending_approval, APPROVAL_REQUEST, APPROVAL_RESPONSE (page: 3. Human Approval)."""
    await peer.respond([{"call": "pay", "arguments": '{"amount": 5}'}])
    async with talking(peer) as (agent, port):
        agent.user_text("Pay")
        await peer.seen("pending")
        assert (await peer.seen("approval_request"))["payload"]["risk"] == "high"
        [call] = port.all(Call)
        agent.tool_result(call.turn, ToolResult(call.call, False, code="REJECTED"))
        assert (await peer.seen("result"))["approved"] is False
        await port.ends()


async def test_server_that_asks_gets_the_users_answer(peer):
    async with talking(peer) as (agent, port):
        await peer.seen("context")
        await peer.do("ask", id="tc_9", message="Refund 5 USD?")
        await port.ends()
        assert port.all(Text)[0].text == "Refund 5 USD? (Yes or no?)"
        agent.user_text("Yes")
        assert (await peer.seen("approval", id="tc_9"))["approved"] is True
        await port.ends(2)
    assert peer.count("text") == 0


async def test_messages_stay_below_100_in_a_second(peer):
    """100 /s (code: server-hardening-limits.md): the peer counts."""
    async with talking(peer) as (agent, _):
        await peer.seen("context")
        for _ in range(120):
            agent.send("VOICE_INTERRUPT", {"reason": "barge_in"})
        async with asyncio.timeout(DEADLINE_S):
            while peer.count("cancel") < 120:
                await peer.seen("cancel")


# --- the registry and the page


def example():
    return re.search(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1]


async def test_pages_example_is_taken(tmp_path):
    (tmp_path / "aitp.key").write_text(KEY)
    (tmp_path / "agents.toml").write_text(example())
    options = load(Options, "aitp", tmp_path / "agents.toml", environ={})
    assert options.address()[1] == {"Authorization": f"Bearer {KEY}"}
    made = registry.factory("aitp", config=tmp_path / "agents.toml")()
    assert made.name == "aitp"


async def test_page_names_every_option_and_its_default():
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.read_text("utf-8"), re.MULTILINE))
    for name, field in Options.model_fields.items():
        if name == "api_key":
            assert "api_key_file" in rows
        elif field.is_required():
            assert rows[name] == "required"
        else:
            assert rows[name] == f"`{json.dumps(field.default).strip(chr(34))}`", name
