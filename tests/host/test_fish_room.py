"""The agent `fish` in real LiveKit rooms, by LiveKit's SDK: joining, what goes through a room, and its ends."""

import asyncio
import logging

import pytest
import pytest_asyncio
from agent_stage import Port, logged, started
from peers.process import DEADLINE_S, PeerProcess
from vrt_host.agents import fish_room
from vrt_host.agents.base import AgentError, Audio, SessionInfo, Text, Transcript
from vrt_host.agents.fish import FishAgent, Options
from vrt_host.agents.fish_sound import SOUND
from vrt_host.errors import AgentStartError

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(name="service", scope="module", loop_scope="module")
async def service_process():
    async with PeerProcess("fish") as service:
        yield service


@pytest_asyncio.fixture(name="peer", loop_scope="module")
async def clean(service):
    yield service
    await service.reset()


def agent(peer, **given):
    return FishAgent(Options(agent_id="a", base_url=f"http://127.0.0.1:{peer.port}", **given))


def talking(peer, **given):
    return started(agent(peer, **given), format_=SOUND)


async def test_agent_that_does_not_come_within_15_s_is_given_up(peer, monkeypatch):
    """`agentSession.ts`: 15 s."""
    assert fish_room.AGENT_S == 15.0
    monkeypatch.setattr(fish_room, "AGENT_S", 0.01)
    await peer.do("be", absent=True)
    with pytest.raises(AgentStartError, match="no agent came within"):
        async with talking(peer):
            pass
    await peer.seen("closed")


async def test_session_is_hung_up_at_the_end(peer):
    async with talking(peer) as port:
        port.agent.user_text("Hello.")
        await port.ends()
    await peer.seen("hangup")
    await peer.seen("closed")


async def test_answer_to_a_text_is_heard_and_read_and_one_in_text_alone_is_read(peer):
    async with talking(peer) as port:
        port.agent.user_text("Hello.")
        await port.ends()
        assert "All right." in "".join(one.text for one in port.all(Transcript))
        assert sum(len(one.payload) for one in port.all(Audio)) >= 0.15 * SOUND.bytes_per_second
    async with talking(peer, typed_audio=False) as port:
        port.agent.user_text("Hello.")
        await port.ends()
        assert "".join(one.text for one in port.all(Text)) == "All right."
        assert port.all(Audio) == []
    assert (await peer.seen("text", audio=False))["text"] == "Hello."


async def test_start_that_is_broken_off_leaves_the_room(peer):
    starting = agent(peer)
    task = asyncio.create_task(starting.start(SessionInfo([], None, SOUND, SOUND), Port()))
    await peer.seen("connected")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await starting.close()
    await peer.seen("closed")


async def test_lost_signalling_is_mended_in_the_same_session(peer):
    async with talking(peer) as port:
        port.agent.user_text("Hello.")
        await port.ends()
        await peer.do("cut")
        await peer.seen("closed")
        await peer.seen("connected")
        await peer.seen("connected")
        port.agent.user_text("Again.")
        await port.ends(2)
        assert peer.count("session") == 1


async def test_agent_that_hung_up_is_called_again_when_there_is_something_to_say(peer, caplog):
    async with talking(peer) as port:
        port.agent.user_text("Hello.")
        await port.ends()
        with caplog.at_level(logging.WARNING):
            await peer.do("leave")
            await logged(caplog, "fish: the agent has left")
        assert peer.count("session") == 1
        port.agent.user_text("Hello?")
        await port.ends(2)
        assert peer.count("session") == 2
        assert port.all(AgentError) == []


@pytest.mark.parametrize("listens", [True, False])
async def test_audio_waits_until_somebody_listens_and_is_bounded(listens, monkeypatch):
    monkeypatch.setattr(fish_room, "AUDIENCE_S", DEADLINE_S if listens else 0.01)
    room = fish_room.FishRoom()
    room._spawn(room._speak())
    for _ in range(600):
        room.hear(bytes(960))
    assert len(room._mic) == 5 * SOUND.bytes_per_second
    if listens:
        room._audience.set()
    async with asyncio.timeout(DEADLINE_S):
        while len(room._mic) == 5 * SOUND.bytes_per_second:  # noqa: ASYNC110  (nobody is told)
            await asyncio.sleep(0)
    await room.close()
    assert not room._tasks
