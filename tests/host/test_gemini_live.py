"""agents/gemini_live.py and gemini_link.py: connections to the service's stand-in, a process of its own (tests/peers)."""

import asyncio
import contextlib
import http
import logging

import pytest
import pytest_asyncio
from agent_stage import started
from peers.plan import quiet, tone
from peers.process import DEADLINE_S, PeerProcess
from pydantic import SecretStr
from vrt_host.agents import gemini_live, mouth, outbox
from vrt_host.agents import gemini_messages as messages
from vrt_host.agents.base import AgentError, Audio, Call, Tool, ToolResult, TurnBegin
from vrt_host.agents.gemini_link import Link
from vrt_host.agents.gemini_live import GeminiLive, Options
from vrt_host.agents.provider import Backoff
from vrt_host.errors import AgentStartError
from websockets.asyncio.server import serve

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "a-secret-that-nobody-may-see"
SPEECH = tone(0.3, "pcm16", 16_000)
LOCK = Tool("lock")


@pytest_asyncio.fixture(name="process", scope="module", loop_scope="module")
async def process_of_module():
    async with PeerProcess("gemini_live") as peer:
        yield peer


@pytest_asyncio.fixture(name="peer", loop_scope="module")
async def peer_of_test(process):
    yield process
    await process.reset()


@contextlib.asynccontextmanager
async def talking(peer, *, context=None, tools=(LOCK,), **options):
    """An agent that has started, and its port."""
    agent = GeminiLive(Options(api_key=SecretStr(KEY), base_url=f"http://127.0.0.1:{peer.port}", **options))
    async with started(
        agent, tools=tools, context=context, format_=gemini_live.INPUT, output=gemini_live.OUTPUT
    ) as port:
        yield agent, port


async def test_spoken_turn_ends_where_the_microphone_is_switched_off(peer, caplog):
    await peer.do("be", signals=True)
    async with talking(peer) as (agent, port):
        with caplog.at_level(logging.DEBUG):
            agent.user_audio(SPEECH)  # and no quiet behind it
            await peer.seen("stream_end")
            await peer.seen("committed")
            await port.ends(1)
        assert [event.state for event in port.all(TurnBegin)] == ["listening"]
        assert sum(len(event.payload) for event in port.all(Audio)) == 0.2 * 48_000
        assert KEY not in caplog.text


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "gemini-3.1-flash-live-preview", "gemini-3.8-live"])
async def test_each_generation_of_models_is_spoken_to_as_it_wants(peer, model):
    async with talking(peer, model=model, context={"a": 1}) as (agent, port):
        assert '"a":1' in (await peer.seen("context"))["text"]
        agent.context({"a": 2})
        agent.user_text("Hello")
        await port.ends(1)
        await peer.mentioned('\\"a\\":2')


@pytest.mark.parametrize(
    ("model", "before"), [("gemini-2.5-flash", True), ("gemini-3.1-flash-live-preview", False)]
)
async def test_older_model_hears_nothing_before_it_has_its_results(peer, model, before, monkeypatch):
    async with talking(peer, model=model) as (agent, port):
        silent, send = asyncio.Event(), agent.send
        monkeypatch.setattr(
            agent, "send", lambda frame: (send(frame), frame is messages.AUDIO_END and silent.set())
        )
        monkeypatch.setattr(gemini_live, "_STALL_S", 1e9)
        await peer.respond([{"call": "lock"}])
        if before:
            agent.user_audio(SPEECH)
            await peer.seen("speech_started")
        agent.user_text("Lock")
        await port.until(lambda: port.all(Call))
        [call] = port.all(Call)
        if not before:
            agent.user_audio(SPEECH)
        monkeypatch.setattr(gemini_live, "_STALL_S", 0.0)
        await silent.wait()  # the end of the speech waits, too
        agent.tool_result(call.turn, ToolResult(call.call, True, "locked"))
        await peer.seen("result")
        await peer.seen("committed")
        assert port.all(AgentError) == []


async def test_server_that_cuts_every_connection_is_not_run_down(monkeypatch):
    waits, thrice = [], asyncio.Event()

    def wait(_, error=None):
        waits.append(error)
        if len(waits) >= 3:
            thrice.set()
        return 0.0

    monkeypatch.setattr(Backoff, "next", wait)

    async def handler(socket):
        await socket.recv()
        await socket.send('{"setupComplete": {}}')
        await socket.close(1011, "Internal error encountered.")

    async with serve(handler, "127.0.0.1", 0) as server:
        there = type("There", (), {"port": server.sockets[0].getsockname()[1]})
        async with talking(there) as (_, port):
            async with asyncio.timeout(DEADLINE_S):
                await thrice.wait()
            [error] = port.all(AgentError)
            assert error.recoverable
            assert "Internal error encountered" in error.message


async def test_server_that_hangs_up_before_it_answers_is_unreachable():
    async def hang_up(_, writer):
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        there = type("There", (), {"port": server.sockets[0].getsockname()[1]})
        with pytest.raises(
            AgentStartError, match=r"ended without an answer.*; check the address and the network"
        ):
            async with talking(there):
                pass


async def test_interruption_is_read_while_the_device_has_no_room(peer):
    async with talking(peer) as (agent, port):
        await peer.respond([{"say": "This is long.", "seconds": 30, "deaf": 3}, {"wait": "gate"}])
        port.full = True
        agent.user_text("Talk")
        await peer.seen("waiting")
        agent.user_audio(SPEECH + quiet(0.5, "pcm16", 16_000))
        await port.until(lambda: len(port.all(TurnBegin)) == 2)
        port.fill(False)
        await port.ends(1)
        first, second = (event.turn for event in port.all(TurnBegin))
        heard = [event.turn for event in port.all(Audio)]
        assert heard.count(first) == 1
        assert second in heard


async def test_announced_end_is_not_noticed(peer, monkeypatch):
    async with talking(peer) as (agent, port):
        old, connect, lived = agent._link, Link.open, []
        monkeypatch.setattr(Link, "open", lambda *args: lived.append(old.alive) or connect(*args))
        await peer.seen("connected")
        await peer.respond([{"say": "One."}, {"wait": "gate"}])
        agent.user_text("Remember this.")
        await peer.seen("waiting")
        await peer.do("goaway", seconds=30)
        assert peer.count("connected") == 1  # not in the midst of an answer
        await peer.release("gate")
        await port.ends(1)
        assert "Remember this." in (await peer.seen("resumed"))["said"]
        await peer.seen("closed")
        agent.user_text("Two")
        await port.ends(2)
        assert port.all(AgentError) == []
        assert peer.count("history") == 0
        assert lived == [False]  # no session is resumed beside itself


async def test_words_that_the_old_connection_had_heard_alone_are_not_lost(peer):
    async with talking(peer) as (agent, port):
        agent.user_text("Remember this.")
        await port.ends(1)
        agent.user_audio(SPEECH)
        await peer.seen("speech_started")  # and says nothing of it
        await peer.do("goaway")
        await peer.seen("resumed")
        await peer.seen("speech_started")
        agent.user_audio(quiet(0.5, "pcm16", 16_000))
        await peer.seen("committed")
        await port.ends(2)
        assert port.all(AgentError) == []


async def test_handle_that_is_refused_costs_nothing_but_the_sound(peer):
    async with talking(peer) as (agent, port):
        agent.user_text("Remember this.")
        await port.ends(1)
        await peer.do("forget")
        await peer.do("goaway")
        turns = (await peer.seen("history"))["turns"]
        assert turns == [["user", "Remember this."], ["model", "All right."]]
        agent.user_text("Two")
        await port.ends(2)
        assert port.all(AgentError) == []


async def test_end_without_warning_is_not_noticed_between_turns(peer):
    await peer.do("be", resumable=False)
    async with talking(peer) as (agent, port):
        agent.user_text("Remember this.")
        await port.ends(1)
        await peer.do("expire")
        assert (await peer.seen("history"))["turns"][0] == ["user", "Remember this."]
        agent.user_text("Two")
        await port.ends(2)
        assert port.all(AgentError) == []


async def test_connection_lost_in_an_answer_is_told_once(peer, caplog):
    async with talking(peer) as (agent, port):
        await peer.respond([{"say": "This breaks off."}, {"fault": "disconnect"}])
        agent.user_text("Talk")
        await port.until(lambda: port.all(AgentError))
        [error] = port.all(AgentError)
        assert error.turn == port.all(TurnBegin)[0].turn
        assert error.recoverable
        assert error.message == "gemini: the connection was cut; ask again"
        await peer.seen("history")
        agent.user_text("Again")
        await port.ends(1)
        assert len(port.all(AgentError)) == 1


async def test_audio_waits_for_the_next_connection_and_is_bounded(peer, monkeypatch, caplog):
    monkeypatch.setattr(Backoff, "next", lambda self, error=None: 0.05)
    monkeypatch.setattr(outbox, "AUDIO_BYTES", 32_000)
    async with talking(peer) as (agent, port):
        await peer.seen("setup")
        await peer.refuse("rate", times=2)
        await peer.drop()
        await peer.seen("refused")  # what went into the old connection is gone
        for _ in range(10):
            agent.user_audio(quiet(0.2, "pcm16", 16_000))
        agent.user_audio(SPEECH + quiet(0.5, "pcm16", 16_000))
        await peer.seen("committed")
        await port.ends(1)
        assert caplog.text.count("the oldest is dropped") == 1
        assert (await peer.seen("speech_started"))["ms"] <= 300
        errors = port.all(AgentError)
        assert len(errors) == 1
        assert errors[0].recoverable


async def test_result_waits_for_the_next_connection(peer):
    async with talking(peer) as (agent, port):
        await peer.respond([{"call": "lock"}])
        agent.user_text("Lock")
        await port.until(lambda: port.all(Call))
        [call] = port.all(Call)
        await peer.drop()
        agent.tool_result(call.turn, ToolResult(call.call, True, {"state": "mark-1"}))
        await peer.mentioned("mark-1")
        await port.ends(1)
        assert port.all(AgentError) == []


@pytest.mark.parametrize("kind", ["key", "model", "format", "quota", "rate", "expired", "version"])
async def test_refusal_is_one_line(peer, kind):
    await peer.refuse(kind)
    with pytest.raises(AgentStartError) as caught:
        async with talking(peer):
            pass
    line = str(caught.value)
    assert line.startswith("gemini: ")
    assert "; " in line
    assert KEY not in line


async def test_nobody_there_is_one_line():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    there = type("There", (), {"port": port})
    with pytest.raises(AgentStartError, match=r"gemini: .*; "):
        async with talking(there):
            pass
    server.close()
    await server.wait_closed()
    with pytest.raises(AgentStartError, match=r"gemini: .*; check the address and the network"):
        async with talking(there):
            pass


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([], "no answer within"),
        (['{"setupComplete"'], "not JSON"),
        (['{"error": {"code": 403, "message": "The caller does not have permission"}}'], "permission"),
        (20 * ['{"usageMetadata": {}}'], "does not say that the session is set up"),
    ],
)
async def test_server_that_does_not_set_up_is_one_line(answers, words):
    async def handler(socket):
        await socket.recv()
        for answer in answers:
            await socket.send(answer)
        await socket.wait_closed()

    async with serve(handler, "127.0.0.1", 0) as server:
        there = type("There", (), {"port": server.sockets[0].getsockname()[1]})
        with pytest.raises(AgentStartError, match=words):
            async with talking(there, connect_timeout_s=0.2 if not answers else 5.0):
                pass


async def test_key_does_not_follow_a_redirect():
    seen = []

    def elsewhere(connection, request):
        seen.append(request.headers["x-goog-api-key"])
        response = connection.respond(http.HTTPStatus.FOUND, "")
        response.headers["Location"] = f"ws://127.0.0.1:{connection.local_address[1]}/other"
        return response

    async with serve(lambda socket: None, "127.0.0.1", 0, process_request=elsewhere) as server:
        there = type("There", (), {"port": server.sockets[0].getsockname()[1]})
        with pytest.raises(AgentStartError, match="sends elsewhere"):
            async with talking(there):
                pass
    assert seen == [KEY]


async def test_malformed_messages_are_told_once(peer):
    async with talking(peer) as (agent, port):
        await peer.respond(
            [{"fault": "malformed"}, {"fault": "unknown"}, {"fault": "malformed"}, {"say": "Still here."}]
        )
        agent.user_text("Talk")
        await port.ends(1)
        [error] = port.all(AgentError)
        assert error.recoverable
        assert error.turn is None


async def test_calls_that_the_service_takes_back_end_the_turn(peer):
    async with talking(peer) as (agent, port):
        await peer.respond([{"call": "lock"}])
        agent.user_text("Lock")
        await port.until(lambda: port.all(Call))
        await peer.do("cancel_calls")
        await port.until(lambda: len(port.all(TurnBegin)) == 2)
        [call] = port.all(Call)
        agent.tool_result(call.turn, ToolResult(call.call, False, code="INTERRUPTED", message="interrupted"))
        agent.user_text("Next")
        await port.ends(1)
        assert peer.count("result") == 0


async def test_reading_stops_when_a_reply_is_far_ahead(peer, monkeypatch):
    monkeypatch.setattr(mouth, "MOST_BYTES", 5 * 48_000)
    async with talking(peer) as (agent, port):
        await peer.respond([{"say": "This has no end.", "seconds": None}])
        port.full, stalled, clear = True, asyncio.Event(), agent._mouth._room.clear
        monkeypatch.setattr(agent._mouth._room, "clear", lambda: (clear(), stalled.set()))
        agent.user_text("Talk")
        async with asyncio.timeout(DEADLINE_S):
            await stalled.wait()
        port.fill(False)
        agent.interrupted(port.all(TurnBegin)[0].turn, [])
        agent.user_text("Next")
        await port.ends(1)
