"""The agent `omnia` against our Omnia facade, written apart from it, with another agent of ours behind that, over real sockets."""

import base64
import contextlib

import pytest
from agent_stage import started
from omnia_client import PCM16_16K, answers, serving
from peers.plan import tone
from pydantic import SecretStr
from test_guest import Brain
from vrt_host.agents import base, omnia_calls
from vrt_host.agents.base import Audio, AudioBegin, AudioEnd, Call, Text, Tool, ToolResult, TurnBegin, TurnEnd
from vrt_host.agents.echo import EchoAgent
from vrt_host.agents.omnia import INPUT, OUTPUT, OmniaAgent, Options
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig

TOOLS = (Tool("weather"), Tool("where"))


@contextlib.asynccontextmanager
async def through(*brains, context=None, agent_options=None, **facade):
    """The agent, its port, and the host with the facade."""
    async with serving(*brains, **facade) as host:
        given = {"base_url": f"http://127.0.0.1:{host.facade.port}", "agent": "a", **(agent_options or {})}
        agent = OmniaAgent(Options(**given))
        async with started(agent, tools=TOOLS, context=context, format_=INPUT, output=OUTPUT) as port:
            yield agent, port, host


def said(port):
    return "".join(event.text for event in port.all(Text))


def calls(name, then="Done."):
    """A brain that calls a tool for each text, and says what came of it."""

    class Calls(Brain):
        def tool_result(self, turn, result):
            super().tool_result(turn, result)
            self.port.emit(Text(turn, then if result.ok else f"{result.code}: {result.message}", True))
            self.port.emit(TurnEnd(turn))

    def on_text(agent, text):
        agent.port.emit(TurnBegin(f"t-{text}"))
        agent.port.emit(
            base.Call(f"t-{text}", f"c-{text}", name, {"location": "Bern"} if name == "weather" else {})
        )

    return Calls(on_text)


async def test_text_is_answered_once():
    async with through(Brain(answers), context={"room": "attic"}) as (agent, port, _):
        agent.user_text("Hello")
        await port.ends()
        assert said(port).startswith("You said ")
        assert said(port).count("Hello") == 1
        assert '{"room": "attic"}' in said(port)
        agent.user_text("again")
        await port.ends(2)
        assert said(port).endswith("You said again.")


@pytest.mark.parametrize("binary", [True, False])
async def test_audio_comes_back_whole(binary):
    async with through(EchoAgent(0.2), agent_options={"binary": binary}) as (agent, port, _):
        for _ in range(5):
            agent.user_audio(tone(0.1, "pcm16", 16_000))
        await port.until(lambda: sum(len(one.payload) for one in port.all(Audio)) >= 0.5 * 48_000)
        assert len(port.all(AudioBegin)) == 1


async def test_call_goes_through_and_its_result_back(tmp_path):
    brain = calls("weather")
    async with through(brain, tmp_path=tmp_path) as (agent, port, _):
        agent.user_text("Is it warm?")
        await port.until(lambda: port.all(Call))
        [call] = port.all(Call)
        assert (call.name, call.arguments) == ("weather", {"location": "Bern"})
        agent.tool_result(call.turn, ToolResult(call.call, True, {"temperature": 21}))
        await port.ends()
        assert said(port) == "Done."
    assert [(one.ok, one.output) for one in brain.results] == [(True, {"temperature": 21})]


async def test_call_that_is_not_run_is_told_with_its_reason(tmp_path):
    brain = calls("weather")
    async with through(brain, tmp_path=tmp_path) as (agent, port, _):
        agent.user_text("Is it warm?")
        await port.until(lambda: port.all(Call))
        [call] = port.all(Call)
        agent.tool_result(
            call.turn, ToolResult(call.call, False, code="REJECTED", message="nobody confirmed it")
        )
        await port.ends()
        assert "nobody confirmed it" in said(port)
    assert [one.ok for one in brain.results] == [False]


@pytest.mark.parametrize(("answer", "runs"), [("Yes.", True), ("No.", False)])
async def test_question_of_the_facade_is_the_users_to_answer(answer, runs, tmp_path):
    brain = calls("where")
    async with through(brain, tmp_path=tmp_path) as (agent, port, _):
        agent.user_text("Where am I?")
        await port.ends()
        assert said(port) == "Share your place? (location)"
        agent.user_text(answer)
        if runs:
            await port.until(lambda: port.all(Call))
            agent.tool_result(port.all(Call)[0].turn, ToolResult("call-1", True, "attic"))
        await port.ends(2)
        assert len(port.all(Call)) == runs
        assert "did not agree" in said(port) or runs
    assert [one.ok for one in brain.results] == [runs]


async def test_call_that_the_facade_gives_up_is_over(tmp_path):
    brain = calls("weather")
    async with through(brain, tmp_path=tmp_path, client_tool_timeout=0.3) as (agent, port, _):
        agent.user_text("Is it warm?")
        await port.until(lambda: port.all(Call))
        await port.ends()
        agent.tool_result(port.all(Call)[0].turn, ToolResult("call-1", True, 1))
        agent.user_text("once more")
        await port.until(lambda: len(port.all(Call)) == 2)
        assert port.all(base.AgentError) == []


async def test_realtime_session_is_taken_up_again():
    class Hears(Brain):
        abilities = base.Abilities(inputs=(PCM16_16K,), outputs=(PCM16_16K,))

    brain = Hears()
    async with through(brain) as (agent, port, _):
        agent.user_audio(tone(0.1, "pcm16", 16_000))
        await brain.until(lambda: len(brain.audio) >= 3_200)
        agent._link._socket.transport.abort()
        agent.user_audio(tone(0.1, "pcm16", 16_000))
        await brain.until(lambda: len(brain.audio) >= 6_400)
        assert not brain.closed.is_set()
        brain.port.emit(TurnBegin("t"))
        brain.port.emit(AudioBegin("t", "i"))
        brain.port.emit(Audio("t", "i", tone(0.1, "pcm16", 16_000)))
        brain.port.emit(AudioEnd("t", "i"))
        brain.port.emit(TurnEnd("t"))
        await port.ends()
        assert port.all(Audio)
    await brain.until(brain.closed.is_set)


async def test_conversation_goes_on_over_another_connection(tmp_path):
    tokens = TokenFile(tmp_path / "t.json")
    key = tokens.add("board")
    config = ServerConfig(port=0, tokens=tokens.path)
    options = {"api_key": SecretStr(key)}
    async with through(Brain(answers), Brain(answers), config=config, agent_options=options) as (
        agent,
        port,
        _,
    ):
        agent.user_text("one")
        await port.ends()
        agent._link._socket.transport.abort()
        agent.user_text("two")
        await port.ends(2)
        assert said(port).endswith("You said two.")
        assert port.all(base.AgentError) == []


async def test_file_is_uploaded_to_the_facades_own_storage(tmp_path):
    tokens = TokenFile(tmp_path / "t.json")
    key = tokens.add("board")
    config = ServerConfig(port=0, tokens=tokens.path)
    photo = f"data:image/png;name=door.png;base64,{base64.b64encode(b'photo').decode()}"
    async with through(
        Brain(answers),
        config=config,
        media=tmp_path / "media",
        agent_options={"api_key": SecretStr(key)},
        context={"door": photo},
    ) as (agent, port, _):
        agent.user_text("Who is there?")
        await port.ends()
        assert "door.png" in said(port)
        assert port.all(base.AgentError) == []
        assert b"photo" in [path.read_bytes() for path in (tmp_path / "media").rglob("*") if path.is_file()]


async def test_agent_that_takes_no_audio_is_told():
    async with through(Brain(answers), calls=0) as (agent, port, _):
        agent.user_audio(tone(0.1, "pcm16", 16_000))
        await port.until(lambda: port.all(base.AgentError))
        assert "audio not supported" in port.all(base.AgentError)[0].message
        agent.user_text("Hello")
        await port.ends()


@pytest.mark.parametrize("hears", [True, False])
async def test_call_that_the_users_voice_interrupts_is_taken_back_before_it_is_told_of(
    hears, tmp_path, monkeypatch
):
    """Told of it first, the agent there would begin to answer to what the user has not finished saying."""
    monkeypatch.setattr(omnia_calls, "HEARS_S", 3600 if hears else 0.05)

    class Hears(Brain):
        abilities = base.Abilities(inputs=(PCM16_16K,), outputs=(PCM16_16K,))

    brain = Hears()
    async with through(brain, tmp_path=tmp_path) as (agent, port, _):
        agent.user_audio(tone(0.1, "pcm16", 16_000))
        await brain.until(lambda: brain.audio)
        brain.port.emit(TurnBegin("t"))
        brain.port.emit(base.Call("t", "c", "weather", {"location": "Bern"}))
        await port.until(lambda: port.all(Call))
        [call] = port.all(Call)
        agent.interrupted(call.turn, [])
        agent.tool_result(call.turn, ToolResult(call.call, False, code="INTERRUPTED", message="speech"))
        if hears:
            size = len(brain.audio)
            agent.user_audio(tone(0.1, "pcm16", 16_000))  # it would come behind what is told
            await brain.until(lambda: len(brain.audio) > size)
            brain.port.emit(TurnBegin("u", "listening"))
        await brain.until(lambda: brain.results)
        assert brain.results[0].code == ("INTERRUPTED" if hears else "FAILED")
