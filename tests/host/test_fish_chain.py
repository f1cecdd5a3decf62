"""The agent `fish` against our Fish facade, written apart from it, with another agent of ours behind that, in real LiveKit rooms."""

import asyncio
import contextlib

import pytest
from agent_stage import started
from fish_client import answers, livekit_process, serving  # noqa: F401  (a fixture)
from host_client import DEADLINE_S
from peers.plan import tone
from test_guest import Brain
from vrt_host.agents import base
from vrt_host.agents.base import (
    PCM16_24K,
    Abilities,
    Audio,
    AudioBegin,
    Call,
    Text,
    Tool,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
)
from vrt_host.agents.fish import FishAgent, Options
from vrt_host.agents.fish_sound import SOUND, is_loud

pytestmark = pytest.mark.asyncio(loop_scope="module")


@contextlib.asynccontextmanager
async def through(livekit, brain, **given):
    """The agent's port."""
    async with serving(livekit, brain, **given) as host:
        options = Options(agent_id="a", base_url=f"http://127.0.0.1:{host.facade.port}")
        tools = [Tool("open_dashboard"), Tool("note")]
        async with started(FishAgent(options), tools=tools, format_=SOUND) as port:
            yield port


def said(port):
    return "".join(one.text for one in port.all(Transcript) if one.role == "agent")


async def test_texts_are_answered_once_each_and_in_their_order(livekit):
    async with through(livekit, Brain(answers)) as port:
        port.agent.user_text("Hello")
        await port.ends()
        port.agent.user_text("again")
        await port.ends(2)
        assert said(port) == "You said Hello.You said again."
        assert port.all(base.AgentError) == []


async def test_speech_is_heard_and_answered_aloud(livekit):
    class Voice(Brain):
        abilities = Abilities(inputs=(PCM16_24K,), outputs=(PCM16_24K,))
        spoken = False

        def user_audio(self, payload):
            super().user_audio(payload)
            if self.spoken or not is_loud(payload):
                return
            self.spoken = True
            self.port.emit(TurnBegin("v", "listening"))
            self.port.emit(Transcript("v", "user", "Hello.", True))
            self.port.emit(AudioBegin("v", "v"))
            self.port.emit(Transcript("v", "agent", "Hello to you.", True, "v"))
            self.port.emit(Audio("v", "v", tone(0.5, "pcm16", 24_000)))
            self.port.emit(TurnEnd("v"))

    async with through(livekit, Voice(answers)) as port:
        port.agent.user_audio(tone(0.2, "pcm16", 48_000))
        await port.ends()
        assert 0.4 <= sum(len(one.payload) for one in port.all(Audio)) / 96_000 <= 0.7
        assert said(port) == "Hello to you."
        assert [one.text for one in port.all(Transcript) if one.role == "user" and one.final] == ["Hello."]
        assert len(port.all(TurnBegin)) == 1


async def test_call_goes_through_and_its_result_back_and_what_is_not_run_is_told_with_its_reason(
    livekit, tmp_path
):
    class Calls(Brain):
        def tool_result(self, turn, result):
            super().tool_result(turn, result)
            self.port.emit(Text(turn, "Done." if result.ok else f"No: {result.message}", True))
            self.port.emit(TurnEnd(turn))

    def on_text(agent, text):
        agent.port.emit(TurnBegin(f"t-{text}"))
        agent.port.emit(Call(f"t-{text}", f"c-{text}", "open_dashboard", {"tab": text}))

    brain = Calls(on_text)
    async with through(livekit, brain, tmp_path=tmp_path) as port:
        port.agent.user_text("billing")
        await port.until(lambda: port.all(Call))
        call = port.all(Call)[0]
        assert (call.name, call.arguments) == ("open_dashboard", {"tab": "billing"})
        port.agent.tool_result(call.turn, ToolResult(call.call, True, {"opened": True}))
        await port.ends()
        port.agent.user_text("secrets")
        await port.until(lambda: len(port.all(Call)) == 2)
        call = port.all(Call)[1]
        port.agent.tool_result(
            call.turn, ToolResult(call.call, False, code="REJECTED", message="nobody confirmed it")
        )
        await port.ends(2)
        assert said(port).startswith("Done.")
        assert "nobody confirmed it" in said(port)
    assert [(one.ok, one.output) for one in brain.results] == [(True, {"opened": True}), (False, None)]


async def test_interruption_and_hang_up_go_through(livekit):
    gone = asyncio.Event()

    class Talks(Brain):
        async def close(self):
            await super().close()
            gone.set()

    def on_text(agent, text):
        agent.port.emit(TurnBegin(text))
        if text == "Talk.":
            agent.port.emit(Text(text, "This has no end"))
        else:
            agent.port.emit(Text(text, "All right.", True))
            agent.port.emit(TurnEnd(text))

    brain = Talks(on_text)
    async with through(livekit, brain) as port:
        port.agent.user_text("Talk.")
        await port.until(lambda: "end" in said(port))
        turn = port.all(TurnBegin)[-1].turn
        port._alive = None
        port.agent.interrupted(turn, [])
        port.agent.user_text("Stop.")
        await port.ends()
        assert said(port).endswith("All right.")
        assert not gone.is_set()
    async with asyncio.timeout(DEADLINE_S):
        await gone.wait()
