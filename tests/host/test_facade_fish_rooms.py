"""The Fish facade in real rooms: a LiveKit server, and clients that are rooms of the official SDK, unmodified.

Most tests share one session, as a room is dear.
"""

import asyncio
import json

import pytest
import pytest_asyncio
from fish_client import Client, answers, livekit_process, serving  # noqa: F401  (a fixture)
from host_client import DEADLINE_S
from livekit import api, rtc
from peers.livekit_server import KEY, SECRET
from peers.plan import tone
from peers.vectors import frame, load
from test_guest import Brain, call
from vrt_host.agents.base import (
    PCM16_24K,
    Abilities,
    AgentError,
    Audio,
    AudioBegin,
    Transcript,
    TurnBegin,
    TurnEnd,
)
from vrt_host.facades import fish_messages, fish_room

pytestmark = pytest.mark.asyncio(loop_scope="module")
LOUD = tone(1, "pcm16", 24_000)


class Voice(Brain):
    """Can be heard, and hears."""

    abilities = Abilities(inputs=(PCM16_24K,), outputs=(PCM16_24K,))
    turns = 0

    def speak(self, words="You have twelve dollars.", seconds=1, *, end=True):
        self.turns += 1
        turn = f"v{self.turns}"
        self.port.emit(TurnBegin(turn))
        self.port.emit(AudioBegin(turn, turn))
        self.port.emit(Transcript(turn, "agent", words, True, turn))
        for _ in range(seconds):
            self.port.emit(Audio(turn, turn, LOUD))
        if end:
            self.port.emit(TurnEnd(turn))


@pytest_asyncio.fixture(name="stage", scope="module", loop_scope="module")
async def one_session(livekit, tmp_path_factory):
    """`stage.client` in a session with `stage.brain`."""
    brain = Voice(answers)
    folder = tmp_path_factory.mktemp("fish")
    async with serving(livekit, brain, tmp_path=folder, join_timeout=3600) as host, host.fish() as client:
        host.client, host.brain = client, brain
        yield host


@pytest.fixture(name="client")
def clean_client(stage):
    """The client, who has forgotten what came before."""
    stage.client.came.clear()
    stage.client.taken = 0
    stage.brain.on_text = answers
    return stage.client


async def test_a_text_is_answered_under_the_agents_identity(stage, client):
    """Page, Client events; Transcription: the agent's segments under the agent participant."""
    assert client.agent.kind == rtc.ParticipantKind.PARTICIPANT_KIND_AGENT
    await client.say("hello")
    assert await client.segment() == "You said hello."
    told = client.of("segment")[0]
    assert told["attributes"]["lk.transcription_final"] == "false"
    assert told["trailer"]["lk.transcription_final"] == "true"


async def test_a_reply_without_sound_is_written_alone(stage, client):
    stage.brain.on_text = lambda agent, text: agent.speak("Twelve.", 1)
    await client.say("quietly", audio=False)
    assert await client.segment() == "Twelve."
    assert client.of("sound") == []


async def test_packets_that_are_wrong_or_not_for_the_agent_are_passed_over(stage, client, livekit, caplog):
    """Page, Client events: malformed JSON and unknown types; Channels: the topic."""
    heard = []
    stage.brain.on_text = lambda agent, text: (heard.append(text), answers(agent, text))
    for vector in load("fish").invalid:
        if vector["direction"] == "client" and "as" not in vector and vector["id"] != "client.packet.deep":
            sent = frame(vector)
            if isinstance(sent, str | bytes) and sent:
                await client.raw(sent)
    await client.raw('{"type": "user.message", "text": "on another topic"}', topic="agent-event")
    await client.raw('{"type": "user.message", "text": "without one"}', topic="")
    caplog.set_level("INFO")
    await client.me.send_text("as a stream", topic="a\nforged line")
    grants = api.VideoGrants(room_join=True, room=client.session["session_id"])
    token = api.AccessToken(KEY, SECRET).with_identity("stranger").with_grants(grants).to_jwt()
    async with Client({**client.session, "token": token}) as stranger:
        await stranger.has("join", lambda who: who.startswith("agent-"))
        await stranger.say("let me in")
        await stranger.send("user.hangup")
        await client.say("it is me")
        assert await client.segment() == "You said it is me."
        stage.brain.port.emit(AgentError("for the user"))
        await client.event("error")
        await client.raw('{"type": "session.ended", "reason": "behind the agent\'s"}', topic="agent-event")
        await stranger.next("event")  # what is for the user is the user's: it is the first
        assert [one["type"] for one in stranger.of("event")] == ["session.ended"]
        assert stranger.of("segment") == []
    assert heard == ["it is me"]
    assert "forged" not in caplog.text


async def test_the_largest_call_and_result_fit_into_packets(stage, client):
    """Code, toolDispatcher.ts: 60,000 bytes of a result; 64,000 of a packet with its envelope."""
    stage.brain.port.emit(TurnBegin("large"))
    frame = len(
        '{"type":"client_tool.call","callId":"","toolName":"open_dashboard","params":{"tab":""},"expectsResponse":true}'
    )
    tab = "x" * (fish_messages.PACKET_BYTES - frame - 36)
    call(stage.brain, "open_dashboard", "large", json.dumps({"tab": tab}))
    made = await client.event("client_tool.call")
    assert made["params"]["tab"] == tab
    result = {"type": "client_tool.result", "callId": made["callId"], "result": ""}
    result["result"] = "y" * (60_000 - len(json.dumps(result)))
    await client.raw(json.dumps(result))
    await stage.brain.until(lambda: stage.brain.results)
    assert stage.brain.results.pop().output == result["result"]
    stage.brain.port.emit(TurnEnd("t"))


async def test_a_client_that_lost_its_connection_goes_on(stage, client, livekit):
    """Page, Agent state: sticky, also for who reconnects; Compatibility rules: no replay."""
    await livekit.do("cut", room=client.session["session_id"], identity=client.me.identity)
    await client.has("reconnected")
    await client.say("again")
    assert await client.segment() == "You said again."
    assert client.agent.attributes["lk.agent.state"] in ("thinking", "listening")
    async with client.speaking():
        await stage.brain.until(lambda: any(stage.brain.audio))


async def test_an_agent_that_lost_its_connection_goes_on(stage, client, livekit):
    """Page, Agent state: sticky; who joins anew begins with what the token says."""
    await livekit.do("cut", room=client.session["session_id"], identity=client.agent.identity)
    await client.has("active")
    await client.has("state", lambda state: state == "listening")
    await client.say("still there?")
    assert await client.segment() == "You said still there?."
    assert ("state", "idle") not in client.came


async def test_the_second_of_the_same_identity_takes_the_place_of_the_first(stage, client):
    async with Client(stage.client.session) as second:
        await client.has("disconnected", lambda why: why == rtc.DisconnectReason.DUPLICATE_IDENTITY)
        await second.listening()
        await second.say("I am the second")
        assert await second.segment() == "You said I am the second."
        await second.send("user.hangup")
        assert (await second.event("session.ended"))["reason"] == "user_hangup"
        await second.has("left")
    await stage.brain.closed.wait()


async def test_sound_goes_both_ways_with_its_words_and_stops_at_an_interruption(livekit):
    """Page, Channels: audio tracks; Transcription: the user's words under the user's identity, the agent's paced, and cut."""
    brain = Voice()
    async with serving(livekit, brain) as host, host.fish() as client:
        async with client.speaking():
            await brain.until(lambda: any(brain.audio))
        brain.port.emit(TurnBegin("u", "listening"))
        brain.port.emit(Transcript("u", "user", "lock the", False))
        brain.port.emit(Transcript("u", "user", "lock the door", True))
        brain.port.emit(TurnEnd("u"))
        assert await client.segment("user") == "lock the"
        assert await client.segment("user") == "lock the door"
        one, two = (told["attributes"] for told in client.of("segment"))
        assert one["lk.segment_id"] == two["lk.segment_id"]
        assert (one["lk.transcription_final"], two["lk.transcription_final"]) == ("false", "true")
        words = " ".join(["word"] * 200)
        brain.speak(words, 20)
        await client.has("sound", bool)
        await client.has("state", lambda state: state == "speaking")
        await client.has("words", lambda told: told[0] == "agent")
        await client.send("user.interrupt")
        said = await client.segment()
        assert words.startswith(said.strip())
        assert 0 < len(said) < len(words) / 2
        (session,) = host.facade._sessions
        assert session.place._source.queued_duration == 0  # up to a second of it was on its way
        await client.has("sound", lambda loud: not loud)


async def test_who_comes_late_reads_the_state_and_is_greeted_and_a_host_that_stops_says_so(livekit):
    """Page, Agent state: who connects late reads the current value immediately."""
    async with serving(livekit, Voice(answers), overrides=("first_message_prompt",)) as host:
        _, session = await host.create(overrides={"first_message_prompt": "Greet."})
        await livekit.seen("joined", room=session["session_id"])
        async with Client(session) as client:
            assert client.came[:2] == [("join", client.agent.identity), ("state", "initializing")]
            assert await client.segment() == "You said Greet.."
            host.stop.set()
            assert (await client.event("session.ended"))["reason"] == "agent_hangup"
            await client.has("left")  # while the client waits for that


async def test_a_room_that_is_deleted_is_over_and_so_is_the_agent(livekit):
    brain = Voice(answers)
    async with serving(livekit, brain) as host, host.fish() as client:
        await livekit.do("delete", room=client.session["session_id"])
        await brain.closed.wait()
        assert await client.next("disconnected") == rtc.DisconnectReason.ROOM_DELETED


async def test_a_livekit_server_that_is_not_there_or_refuses_the_key_is_503(livekit, monkeypatch, caplog):
    async with serving(livekit, api_secret="another-secret-of-another-server") as host:
        status, said = await host.create()
        assert (status, said["code"]) == (503, "transport_unavailable")
    assert caplog.text.count("check livekit_url and the key") == 1
    assert "another-secret" not in caplog.text
    monkeypatch.setattr(fish_room, "CONNECT_S", 0.2)
    held = []

    class Silent(asyncio.Protocol):
        def connection_made(self, transport):
            held.append(transport)

    server = await asyncio.get_running_loop().create_server(Silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with serving(livekit, livekit_url=f"ws://127.0.0.1:{port}") as host:
        assert (await host.create())[0] == 503
        server.close()
        for transport in held:
            transport.abort()
    assert "it did not let the agent in within 0.2 s" in caplog.text


async def test_nothing_is_left_of_a_session(livekit):
    brain = Voice(answers)
    async with serving(livekit, brain) as host:
        await host.create(agent_id="")  # its connection stays open for the next one
        before = asyncio.all_tasks()
        async with host.fish() as client, client.speaking():
            await brain.until(lambda: any(brain.audio))
            brain.speak(seconds=5)
            await client.has("sound", bool)
            await client.send("user.hangup")
            await client.has("left")
        async with asyncio.timeout(DEADLINE_S):
            while left := asyncio.all_tasks() - before:
                await asyncio.wait(left)
        assert host.facade._sessions == set()


# --- what the SDK does not take


class Told:
    """A session."""

    def __init__(self):
        self.heard = []
        self.news = asyncio.Event()

    def lost(self, why):
        self.heard.append(why)
        self.news.set()

    def roomy(self):
        self.heard.append("roomy")
        self.news.set()


async def test_messages_that_the_sdk_does_not_take_are_dropped_and_too_many_end_the_session(
    monkeypatch, caplog
):
    caplog.set_level("INFO")
    monkeypatch.setattr(fish_room, "SEND_S", 0.01)
    told, sent = Told(), []
    room = fish_room.Room("user", told)

    async def fails():
        raise rtc.StreamError("the stream is gone")

    async def takes():
        sent.append(1)

    room._put(asyncio.Event().wait)
    room._put(fails)
    room._put(takes)
    room._out.put_nowait(None)
    await room._send_all()
    assert sent == [1]
    assert "not taken within 0.01 s" in caplog.text
    assert "could not be sent: the stream is gone" in caplog.text
    for _ in range(fish_room.QUEUED):
        room.event(b"{}")
    assert told.heard == []
    room.event(b"{}")
    assert told.heard == ["it takes no more messages"]


async def test_a_state_that_is_not_confirmed_keeps_no_other_back(monkeypatch):
    monkeypatch.setattr(fish_room, "STATE_S", 0.01)
    told, news = [], asyncio.Event()

    class Me:
        async def set_attributes(self, attributes):
            told.append(attributes["lk.agent.state"])
            news.set()
            if len(told) == 1:
                await asyncio.Event().wait()

    class Silent(fish_room.Room):
        _me = Me()

    async def until(*states):
        async with asyncio.timeout(DEADLINE_S):
            while told != list(states):
                news.clear()
                await news.wait()

    room = Silent("user", Told())
    telling = asyncio.create_task(room._tell_states())
    room.state("initializing")
    room.state("listening")
    await until("listening")
    room.state("thinking")
    await until("listening", "thinking")
    room._on_away()
    room.state("speaking")
    await asyncio.sleep(0)
    assert told == ["listening", "thinking"]
    room._on_again()
    await until("listening", "thinking", "speaking")
    telling.cancel()
    await asyncio.wait({telling})


async def test_why_a_room_was_lost_is_told_also_if_it_is_not_known():
    told = Told()
    room = fish_room.Room("user", told)
    room._on_lost(rtc.DisconnectReason.SERVER_SHUTDOWN)
    room._on_lost(4711)
    assert told.heard == ["SERVER_SHUTDOWN", "4711"]


async def test_sound_that_the_sdk_does_not_take_is_not_taken_from_the_host():
    class Source:
        queued_duration = 0.0

        async def capture_frame(self, frame):
            await gate.acquire()

    gate, told = asyncio.Semaphore(0), Told()
    room = fish_room.Room("user", told)
    for _ in range(2):
        assert room.room()
        room.play(bytes(48_000))
    assert not room.room()  # 2 s
    speaking = asyncio.create_task(room._speak(Source()))
    gate.release()
    async with asyncio.timeout(DEADLINE_S):
        await told.news.wait()
    assert room.room()
    assert told.heard == ["roomy"]
    speaking.cancel()
    await asyncio.wait({speaking})
