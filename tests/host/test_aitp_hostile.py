"""agents/aitp.py against servers that break, leave and repeat: nothing is waited or tried for without end, and the user is told."""

import asyncio
import contextlib
import json
import logging

import pytest
from agent_stage import Port, logged, started
from peers import vectors
from peers.process import DEADLINE_S
from pydantic import SecretStr
from vrt_host.agents import aitp, aitp_link
from vrt_host.agents import aitp_messages as messages
from vrt_host.agents.aitp import Aitp, Options
from vrt_host.agents.base import (
    AgentError,
    Audio,
    Call,
    SessionInfo,
    Text,
    Tool,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
)
from vrt_host.errors import AgentStartError
from websockets.asyncio.server import serve

KEY = "a-key-that-is-long"
PAY = Tool("pay", confirm="button")
ACK = {
    "sessionId": "ses_1",
    "serverVersion": "0.4.0",
    "protocolVersion": "1.0.0",
    "capabilities": ["text", "audio", "tools"],
}
OVER = logging.getLogger("test_aitp_hostile")
OVER.setLevel(logging.CRITICAL)


@pytest.fixture(name="waits", autouse=True)
def waits_of_test(monkeypatch):
    """How long is waited before each attempt to connect again; nothing is waited for."""
    waits = []

    async def pause(seconds):
        waits.append(seconds)

    monkeypatch.setattr(Aitp, "pause", staticmethod(pause))
    return waits


@contextlib.asynccontextmanager
async def against(talk, *, tools=(PAY,), ack=ACK, **options):
    """An agent and its port; `talk(server, number)` plays each connection after its handshake, and all that comes is judged."""
    came = []
    news = []

    class Server:
        def __init__(self, socket):
            self.socket = socket

        async def next(self, type_):
            async for text in self.socket:
                frame = json.loads(text)
                assert vectors.errors("aitp", "client", frame) == []
                came.append(frame)
                news[0]()
                if frame["type"] == type_:
                    return frame
            return None

        async def say(self, type_, **payload):
            await self.socket.send(json.dumps(messages.message(type_, payload)))

    connections = []

    async def serves(socket):
        connections.append(socket)
        news[0]()
        server = Server(socket)
        await server.next("HANDSHAKE_INIT")
        await server.say("HANDSHAKE_ACK", **ack)
        await talk(server, len(connections))

    given = {"api_key": SecretStr(KEY), **options.pop("given", {})}
    async with serve(serves, "127.0.0.1", 0, logger=OVER, **options) as listener, asyncio.timeout(DEADLINE_S):
        agent = Aitp(Options(url=f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}", **given))
        news.append(lambda: None)
        async with started(agent, tools=tools, format_=aitp.INPUT, output=aitp.OUTPUT) as port:
            port.connections, port.came = connections, came
            news[0] = port._news.set
            yield agent, port


def told(port, type_):
    return sum(frame["type"] == type_ for frame in port.came)


def errors(port):
    return [(error.message, error.recoverable) for error in port.all(AgentError)]


async def test_text_that_ends_each_connection_is_sent_twice_and_then_told(waits):
    """A server that closes with 1009, or dies of it, would do so for ever."""

    async def talk(server, number):
        await server.next("never")

    async with against(talk, max_size=4_000) as (agent, port):
        agent.user_text("x" * 5_000)
        await port.until(lambda: port.all(AgentError))
        [(line, recoverable)] = errors(port)
        assert line.endswith("exceeds limit of 4000 bytes; ask again")
        assert recoverable
        assert port.all(AgentError)[0].turn == port.all(TurnBegin)[0].turn
        assert len(port.connections) == 2


async def test_connections_that_do_not_last_are_attempts_that_failed(waits):
    """10 attempts, 2000 ms longer each time (code: OwlLayerClient.ts), also where each of them shakes hands."""

    async def talk(server, number):
        await server.next("CONTEXT_UPDATE")
        await server.socket.close(1001)

    async with against(talk) as (_, port):
        await port.until(lambda: port.all(AgentError))
        [(line, recoverable)] = errors(port)
        assert "the connection is gone, and 10 attempts brought none that lasts" in line
        assert not recoverable
    assert waits == [2.0 * attempt for attempt in range(1, 11)]


async def test_connection_that_lasted_10_s_begins_the_attempts_anew(waits, monkeypatch):
    """_STEADY_S."""
    monkeypatch.setattr(aitp, "_STEADY_S", 0.0)

    async def talk(server, number):
        await server.next("CONTEXT_UPDATE")
        await server.socket.close(1001)

    async with against(talk) as (_, port):
        await port.until(lambda: len(port.connections) == 4)
    assert waits[:3] == [2.0] * 3


async def test_connection_that_was_of_use_begins_the_attempts_anew(waits):
    async def talk(server, number):
        if number % 2:
            await server.next("CONTEXT_UPDATE")
            await server.socket.close(1001)
        else:
            await server.next("USER_INPUT")
            await server.say("AGENT_RESPONSE", chunk="Yes.", done=True)

    async with against(talk) as (agent, port):
        for number in (1, 2):
            await port.until(lambda number=number: told(port, "CONTEXT_UPDATE") == 2 * number)
            agent.user_text("Hello")
            await port.ends(number)
    assert waits[:3] == [2.0, 2.0, 4.0]


async def test_server_that_hangs_up_while_it_starts_is_called_again(waits):
    gone = asyncio.Event()

    async def talk(server, number):
        if number == 1:
            await server.next("CONTEXT_UPDATE")
            gone.set()
            await server.socket.close(1012)
        else:
            await server.next("USER_INPUT")
            await server.say("AGENT_RESPONSE", chunk="Yes.", done=True)

    def hang_up(connection, request):
        if gone.is_set() and len(waits) < 3:
            connection.transport.abort()

    async with against(talk, process_request=hang_up) as (agent, port):
        await port.until(lambda: len(port.connections) == 2 or port.all(AgentError))
        agent.user_text("Hello")
        await port.ends()
        assert errors(port) == []
    assert waits == [2.0, 4.0, 6.0]


async def test_server_that_leaves_at_once_is_not_said_to_be_tried_again():
    """Before a session has begun the device tries, and not this host."""

    async def leave(socket):
        await socket.close(1001, "Server shutting down")

    async with serve(leave, "127.0.0.1", 0) as listener:
        agent = Aitp(Options(url=f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}"))
        with pytest.raises(AgentStartError, match=r"^aitp: Server shutting down; try again$"):
            await started(agent).__aenter__()


async def test_errors_without_end_are_told_as_far_as_anybody_would_read_them(caplog):
    """16 in 10 s; one that ends a turn or the session is never left out."""

    async def talk(server, number):
        await server.next("CONTEXT_UPDATE")
        for n in range(100):
            await server.say("SYSTEM_EVENT", kind="error", message=f"No. {n}")
        await server.say("AGENT_RESPONSE", chunk="That was all.", done=True)
        await server.next("USER_INPUT")
        await server.say("SYSTEM_EVENT", kind="error", message="AI service error")
        await server.next("USER_INPUT")
        await server.say("SYSTEM_EVENT", kind="disconnect", message="Enough")

    async with against(talk) as (agent, port):
        await port.ends()
        assert len(port.all(AgentError)) == 16
        agent.user_text("Hello")
        await port.until(lambda: len(port.all(AgentError)) == 17)
        assert port.all(AgentError)[-1].turn == port.all(TurnBegin)[1].turn
        agent.user_text("Hello")
        await port.until(lambda: not errors(port)[-1][1])
        assert len(port.all(AgentError)) == 18
    assert "Enough" in caplog.text


async def test_address_with_the_key_in_it_is_in_no_log(caplog):
    """Servers take the key in the address, too."""
    caplog.set_level(logging.DEBUG)

    async def talk(server, number):
        await server.next("CONTEXT_UPDATE")
        for kind in ("redirect", "waiting", "error", "disconnect"):
            await server.say(
                "SYSTEM_EVENT", kind=kind, message=f"?apiKey={KEY}", data={"url": f"?apiKey={KEY}"}
            )

    async with against(talk) as (_, port):
        await port.until(lambda: len(port.all(AgentError)) == 2)
    assert caplog.text.count("apiKey=***") == 5
    assert KEY not in f"{caplog.text} {port.events}"


async def test_handshake_that_is_not_valid_is_told(monkeypatch):
    async def talk(server, number):
        await server.next("never")

    monkeypatch.setattr(aitp_link, "HANDSHAKE_S", 0.05)
    with pytest.raises(
        AgentStartError, match=r"no handshake within 0.05 s, but an invalid message: .*ersion"
    ):
        async with against(talk, ack={**ACK, "protocolVersion": 1}):
            pass


async def test_what_comes_behind_the_end_of_an_answer_loses_nothing_of_it():
    """The device still gets the answer, and a server that goes on interrupts nobody."""

    async def talk(server, number):
        await server.next("USER_INPUT")
        for _ in range(2):
            await server.say("AUDIO_STREAM", data=messages.encoded(bytes(96_000)), mimeType="audio/pcm")
            await server.say("AGENT_RESPONSE", chunk="All of it. ", done=True)
        await server.say("SYSTEM_EVENT", kind="transcript", data={"role": "agent", "text": "La la."})
        await server.say("VOICE_STATE_EVENT", event="turn_complete")
        question = {"callId": "tc_1", "toolName": "refund", "risk": "high", "args": {}}
        await server.say("APPROVAL_REQUEST", message="Refund?", **question)
        await server.next("never")

    async with against(talk) as (agent, port):
        port.fill(True)
        agent.user_text("Go on")
        await port.until(lambda: agent._dialogue._approvals.asked)
        port.fill(False)
        await port.ends()
        assert [event.turn for event in port.all(TurnEnd)] == [event.turn for event in port.all(TurnBegin)]
        assert "".join(event.text for event in port.all(Text)) == 2 * "All of it. " + "Refund? (Yes or no?)"
        assert sum(len(event.payload) for event in port.all(Audio)) == 2 * 96_000
        told = [(event.text, event.final) for event in port.all(Transcript)]
        assert told == [("La la.", False), ("", True)]
        assert isinstance(port.events[-1], TurnEnd)


async def test_half_of_a_character_stops_nothing():
    """JSON can say it, UTF-8 cannot: what came down with it goes up again in a question and in a history."""

    async def talk(server, number):
        await server.next("USER_INPUT")
        call = messages.message("TOOL_CALL", {"callId": "tc_1", "name": "pay", "args": {"to": "\ud83d"}})
        await server.socket.send(json.dumps(call))
        await server.next("APPROVAL_RESPONSE")
        await server.say("AGENT_RESPONSE", chunk="Paid \ud83d.", done=True)
        if number == 1:
            await server.socket.close(1001)

    async with against(talk) as (agent, port):
        for number in (1, 2):
            agent.user_text("Pay")
            await port.until(lambda number=number: len(port.all(Call)) == number)
            await port.until(lambda number=number: told(port, "APPROVAL_REQUEST") == number)
            call = port.all(Call)[-1]
            agent.tool_result(call.turn, ToolResult(call.call, True, None))
            await port.ends(number)
        assert "".join(one.text for one in port.all(Text)) == 2 * "Paid \ufffd."
    update = [one for one in port.came if one["type"] == "CONTEXT_UPDATE"][-1]
    assert update["payload"]["context"]["earlierConversation"][-1]["text"] == "Paid \ufffd."


async def test_sender_that_fails_ends_the_session(monkeypatch, caplog):
    """Nothing would go out any more, and nobody would know."""

    async def talk(server, number):
        await server.next("never")

    async with against(talk) as (agent, port):
        await logged(caplog, "")
        monkeypatch.setattr(aitp_link.Link, "send", lambda *_: 1 / 0)
        agent.user_text("Hello")
        await port.until(lambda: port.all(AgentError))
        assert errors(port) == [("the agent aitp failed; the host's log says why", False)]


async def test_name_of_a_session_that_is_endless_is_not_repeated():
    async def talk(server, number):
        await server.next("USER_INPUT")
        await server.say("AGENT_RESPONSE", chunk="Yes.", done=True)

    async with against(talk, ack={**ACK, "sessionId": "s" * 100_000}) as (agent, port):
        agent.user_text("Hello")
        await port.ends()
        assert all("meta" not in one for one in port.came)


async def test_end_of_the_speech_does_not_wait_for_what_is_said_after_it(monkeypatch):
    """An uplink that is no faster than the microphone: the end, and the results behind it, would never go out."""
    ended = asyncio.Event()

    async def talk(server, number):
        await server.next("VOICE_INPUT_END")
        ended.set()
        await server.next("never")

    async with against(talk, given={"vad": "server"}) as (agent, _):
        send = aitp_link.Link.send

        async def slowly(link, frame):
            if frame["type"] == "AUDIO_STREAM":
                agent.user_audio(bytes(3_200))
            await send(link, frame)

        monkeypatch.setattr(aitp_link.Link, "send", slowly)
        agent.user_audio(bytes(3_200))
        agent.send("VOICE_INPUT_END", {"reason": "vad"})
        await ended.wait()


async def test_speech_of_an_outage_is_sent_with_its_end(monkeypatch):
    offline, spoken = asyncio.Event(), asyncio.Event()

    async def pause(_):
        offline.set()
        await spoken.wait()

    async def talk(server, number):
        if number == 1:
            await server.next("CONTEXT_UPDATE")
            await server.socket.close(1012)
        elif await server.next("VOICE_INPUT_END"):
            await server.say("AGENT_RESPONSE", chunk="Yes.", done=True)

    monkeypatch.setattr(Aitp, "pause", staticmethod(pause))
    async with against(talk, given={"vad": "server"}) as (agent, port):
        await offline.wait()
        agent._dialogue.speech_began()
        agent.user_audio(bytes(3_200))
        agent._dialogue.speech_ended("vad")
        spoken.set()
        await port.ends()
        assert errors(port) == []
        assert [one["type"] for one in port.came[-2:]] == ["AUDIO_STREAM", "VOICE_INPUT_END"]
        assert port.came[-1]["payload"] == {"reason": "vad"}


async def test_sessions_that_are_over_leave_nothing_behind():
    before = asyncio.all_tasks()

    async def talk(server, number):
        await server.next("USER_INPUT")
        await server.say("TOOL_CALL", callId="tc_1", name="pay", args={})
        await server.next("never")

    async with against(talk) as (agent, _):
        url = agent._options.url
        for _ in range(20):
            other, its = Aitp(Options(url=url)), Port()
            its.agent = other
            await other.start(SessionInfo((PAY,), None, aitp.INPUT, aitp.OUTPUT), its)
            other.user_text("Pay")
            other.user_audio(bytes(640))
            await its.until(lambda its=its: its.all(Call))
            await other.close()
            assert not other._tasks
            assert not other._link.alive
    assert asyncio.all_tasks() == before
