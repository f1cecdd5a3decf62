"""The agent `fish` in real LiveKit rooms, by LiveKit's SDK: joining, what goes through a room, and its ends."""

import asyncio
import logging
from types import SimpleNamespace

import pytest
import pytest_asyncio
from agent_stage import Port, logged, started
from livekit import rtc
from peers.process import DEADLINE_S, PeerProcess
from vrt_host.agents import fish, fish_room, fish_session
from vrt_host.agents.base import AgentError, Audio, SessionInfo, Text, Transcript
from vrt_host.agents.fish import FishAgent, Options
from vrt_host.agents.fish_room import Words
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


async def test_room_that_does_not_answer_is_given_up_in_time_and_holds_up_nobody(peer, monkeypatch):
    assert fish_room.LEAVE_S == 3.0
    monkeypatch.setattr(fish_room, "LEAVE_S", 0.05)

    async def hold(reader, writer):
        writers.append(writer)

    writers = []
    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        await peer.do("be", absent=True, url=f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(AgentStartError, match=r"could not be joined within 0\.3 s"):
            async with talking(peer, connect_timeout_s=0.3):
                pass
        (leaving,) = fish_room._LEAVING
        assert not leaving.done()
        for writer in writers:
            writer.close()
    async with asyncio.timeout(DEADLINE_S):
        await leaving


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


async def test_agent_that_says_that_it_ends_the_session_and_does_not_is_left_after_10_s(
    peer, caplog, monkeypatch
):
    """`agentSession.ts`: 10 s from `session.ended`."""
    assert fish.ENDED_S == 10.0
    monkeypatch.setattr(fish, "ENDED_S", 0.01)
    async with talking(peer) as port:
        port.agent.user_text("Hello.")
        await port.ends()
        with caplog.at_level(logging.WARNING):
            await peer.do("send", message={"type": "session.ended", "reason": "escalated"})
            await logged(caplog, "the agent has ended the session")
        await peer.seen("closed")


async def test_messages_that_wait_are_bounded():
    room = fish_room.FishRoom()
    for number in range(99):
        room.send({"type": "user.message", "text": str(number)})
    assert [one["text"] for one in room._outbox.messages] == [str(number) for number in range(35, 99)]
    await room.close()


class Reader:
    """A text stream; `broken`: it ends in the middle."""

    def __init__(self, *pieces, broken=False, **attributes):
        self.info = SimpleNamespace(attributes={f"lk.{name}": value for name, value in attributes.items()})
        self._pieces, self._broken = pieces, broken

    async def __aiter__(self):
        for piece in self._pieces:
            yield piece
        if self._broken:
            raise rtc.StreamError("the room is over")


@pytest.mark.parametrize(
    ("sender", "reader", "told"),
    [
        ("me", Reader("Un", "lock", segment_id="s"), [Words("s", True, "Unlock")]),
        (
            "me",
            Reader("Unlock", segment_id="s", transcription_final="true"),
            [Words("s", True, "Unlock", True)],
        ),
        (
            "me",
            Reader("Un", segment_id="s", transcription_final="true", broken=True),
            [Words("s", True, "Un")],
        ),
        (
            "agent",
            Reader("Yes", ".", segment_id="s", transcription_final="false"),
            [
                Words("s", False, ""),
                Words("s", False, "Yes"),
                Words("s", False, "."),
                Words("s", False, "", closed=True),
            ],
        ),
        (
            "agent",
            Reader("Ye", segment_id="s", broken=True),
            [Words("s", False, ""), Words("s", False, "Ye"), Words("s", False, "", closed=True)],
        ),
        ("agent", Reader("It has no id."), []),
    ],
)
async def test_segments_are_told_by_their_sender_and_with_their_end(sender, reader, told):
    """Page, "Transcription and agent state"; `livekit.ts`: one without an id is passed over."""
    room = fish_room.FishRoom()
    room._room = SimpleNamespace(local_participant=SimpleNamespace(identity="me"))
    await room._read(reader, sender)
    assert [room.events.get_nowait() for _ in range(room.events.qsize())] == told


async def test_only_packets_of_agent_event_are_read():
    room = fish_room.FishRoom()
    for topic in ("agent-event", "client-event", "lk.chat", "", None):
        room._on_data(SimpleNamespace(topic=topic, data=b"{}"))
    assert room.events.qsize() == 1
    await room.close()


async def test_what_the_sdk_tells_of_each_connection_is_not_in_the_log(caplog):
    chatter = logging.LogRecord(
        "root", logging.INFO, rtc.__file__, 1, "ignoring text stream with topic 'psst'", (), None
    )
    with caplog.at_level(logging.DEBUG):
        logging.getLogger().handle(chatter)
        logging.getLogger("livekit").info("connecting")
    assert caplog.text == ""


async def test_token_and_key_are_in_no_log(peer, caplog, monkeypatch):
    tickets, key = [], "a-secret-that-nobody-may-see"

    async def create(*given, create=fish_session.create):
        tickets.append(await create(*given))
        return tickets[-1]

    monkeypatch.setattr(fish_session, "create", create)
    with caplog.at_level(logging.DEBUG):
        async with talking(peer, api_key=key) as port:
            port.agent.user_text("Hello.")
            await port.ends()
            await peer.do("drop")
            port.agent.user_text("Hello?")
            await port.ends(2)
    assert len(tickets) == 2
    told = caplog.text + repr(tickets) + repr(port.events) + repr(port.agent._options)
    assert not [one for one in (key, *(ticket.token for ticket in tickets)) if one in told]
