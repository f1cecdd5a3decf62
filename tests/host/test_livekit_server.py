"""The LiveKit server of the tests, with rooms of the official SDK, unmodified."""

import asyncio
import contextlib
import datetime
import itertools

import numpy as np
import pytest
import pytest_asyncio
from livekit import api, rtc
from peers.livekit_server import KEY, SECRET
from peers.plan import samples, tone
from peers.process import DEADLINE_S, PeerProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

_ROOMS = itertools.count(1)


@pytest_asyncio.fixture(name="server", scope="module", loop_scope="module")
async def server_process():
    async with PeerProcess("livekit_server") as server:
        yield server


class Guest:
    """A room, and what came in it."""

    def __init__(self, server, room, identity, *, kind="standard", secret=SECRET, ttl=60, **may):
        self.room = rtc.Room()
        self.name, self.identity = room, identity
        self.events = []
        self._url = f"ws://127.0.0.1:{server.port}"
        self._news = asyncio.Event()
        self._tasks = set()
        grants = api.VideoGrants(room_join=True, room=room, can_update_own_metadata=True, **may)
        token = api.AccessToken(KEY, secret).with_identity(identity).with_kind(kind).with_grants(grants)
        self._token = token.with_ttl(datetime.timedelta(seconds=ttl)).to_jwt()
        seen = ("participant_connected", "participant_active", "participant_disconnected")
        for event in (*seen, "reconnected", "disconnected"):
            self.room.on(event, lambda *args, event=event: self._came(event, *args))
        self.room.on("participant_attributes_changed", lambda changed, who: self._came("changed", changed))
        self.room.on("data_received", lambda one: self._came("data", one.topic, one.data, one.participant))
        self.room.on("track_subscribed", self._on_track)
        self.room.register_text_stream_handler("words", self._on_stream)

    def _came(self, kind, *what):
        self.events.append((kind, *what))
        self._news.set()

    def spawn(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

    def _on_stream(self, reader, identity):
        self.spawn(self._read(reader, identity))

    async def _read(self, reader, identity):
        pieces = [piece async for piece in reader]
        self._came("stream", identity, pieces, dict(reader.info.attributes))

    def _on_track(self, track, publication, participant):
        self._came("track", participant.identity)
        self.spawn(self._hear(track))

    async def _hear(self, track):
        stream = rtc.AudioStream(track, sample_rate=48_000, num_channels=1)
        try:
            async for event in stream:
                loud = np.abs(samples(bytes(event.frame.data), "pcm16")).mean()
                if loud > 2000:
                    self._came("sound", event.frame.sample_rate)
        finally:
            await stream.aclose()

    async def __aenter__(self):
        await self.room.connect(self._url, self._token)
        return self

    async def __aexit__(self, *_):
        await self.room.disconnect()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def got(self, kind):
        """The next of that kind."""
        async with asyncio.timeout(DEADLINE_S):
            while not (found := [event for event in self.events if event[0] == kind]):
                self._news.clear()
                await self._news.wait()
        self.events.remove(found[0])
        return found[0][1:]

    async def speaks(self):
        """Publish a tone, until the test ends."""
        source = rtc.AudioSource(48_000, 1)
        track = rtc.LocalAudioTrack.create_audio_track("voice", source)
        await self.room.local_participant.publish_track(track, rtc.TrackPublishOptions())
        self.spawn(self._tone(source))

    async def _tone(self, source):
        sound = tone(0.1, "pcm16", 48_000)
        try:
            while True:
                await source.capture_frame(rtc.AudioFrame(sound, 48_000, 1, 4_800))
        finally:
            await source.aclose()


@contextlib.asynccontextmanager
async def two(server):
    """An agent and a user in one room, each of whom has seen the other."""
    room = f"room-{next(_ROOMS)}"
    async with Guest(server, room, "agent", kind="agent") as agent, Guest(server, room, "user") as user:
        await agent.got("participant_connected")
        yield agent, user


async def test_attributes_and_kind_are_seen_by_who_comes_late(server):
    room = f"room-{next(_ROOMS)}"
    async with Guest(server, room, "agent", kind="agent") as agent:
        await agent.room.local_participant.set_attributes({"lk.agent.state": "listening"})
        async with Guest(server, room, "user") as user:
            seen = user.room.remote_participants["agent"]
            assert seen.attributes == {"lk.agent.state": "listening"}
            assert seen.kind == rtc.ParticipantKind.PARTICIPANT_KIND_AGENT
            await agent.room.local_participant.set_attributes({"lk.agent.state": "thinking"})
            assert await user.got("changed") == ({"lk.agent.state": "thinking"},)
        await agent.got("participant_disconnected")


async def test_data_goes_to_who_is_meant_in_its_order(server):
    async with two(server) as (agent, user):
        for number in range(3):
            await user.room.local_participant.publish_data(str(number), topic="client-event")
        came = [await agent.got("data") for _ in range(3)]
        assert [(topic, data) for topic, data, _ in came] == [("client-event", b"%d" % n) for n in range(3)]
        assert came[0][2].identity == "user"
        me = agent.room.local_participant
        await me.publish_data("not you", topic="agent-event", destination_identities=["nobody"])
        await me.publish_data("you", topic="agent-event", destination_identities=["user"])
        assert (await user.got("data"))[1] == b"you"


async def test_data_reaches_whoever_is_active(server):
    room = f"room-{next(_ROOMS)}"
    async with Guest(server, room, "agent", kind="agent") as agent, Guest(server, room, "user") as user:
        await agent.got("participant_active")
        await agent.room.local_participant.publish_data("you are here", topic="agent-event")
        assert (await user.got("data"))[1] == b"you are here"


@pytest.mark.parametrize(
    ("kind", "seen"), [("agent", "user"), ("standard", "other")], ids=["agent", "standard"]
)
async def test_only_an_agent_may_say_that_a_text_is_anothers(server, kind, seen):
    """Identity rule of the real server: only a text header of an agent keeps the identity that it claims."""
    room = f"room-{next(_ROOMS)}"
    async with Guest(server, room, "other", kind=kind) as other, Guest(server, room, "user") as user:
        await other.got("participant_connected")
        writer = await other.room.local_participant.stream_text(
            topic="words", attributes={"lk.segment_id": "s"}, sender_identity="user"
        )
        for piece in ("one ", "two ", "three"):
            await writer.write(piece)
        await writer.aclose(attributes={"lk.transcription_final": "true"})
        identity, pieces, attributes = await user.got("stream")
        assert (identity, "".join(pieces)) == (seen, "one two three")
        assert attributes == {"lk.segment_id": "s", "lk.transcription_final": "true"}


async def test_sound_goes_both_ways(server):
    async with two(server) as (agent, user):
        await agent.speaks()
        await user.speaks()
        assert await user.got("track") == ("agent",)
        assert await agent.got("track") == ("user",)
        assert await user.got("sound") == (48_000,)
        assert await agent.got("sound") == (48_000,)


async def test_who_comes_late_hears_what_is_there_already(server):
    room = f"room-{next(_ROOMS)}"
    async with Guest(server, room, "agent", kind="agent") as agent, Guest(server, room, "first") as first:
        await agent.speaks()
        await first.got("sound")
        async with Guest(server, room, "user") as user:
            assert await user.got("track") == ("agent",)
            await user.got("sound")


async def test_lost_signalling_is_mended_by_the_sdk(server):
    async with two(server) as (agent, user):
        await agent.speaks()
        await user.got("sound")
        await server.do("cut", room=user.name, identity="user")
        await user.got("reconnected")
        user.events.clear()
        await user.got("sound")
        await user.room.local_participant.publish_data("again", topic="client-event")
        assert (await agent.got("data"))[1] == b"again"


async def test_room_that_is_deleted_is_over_for_all(server):
    async with two(server) as (agent, user):
        await server.do("delete", room=user.name)
        assert await user.got("disconnected") == (rtc.DisconnectReason.ROOM_DELETED,)
        assert await agent.got("disconnected") == (rtc.DisconnectReason.ROOM_DELETED,)


async def test_same_identity_takes_the_place_of_the_first(server):
    async with two(server) as (agent, user), Guest(server, user.name, "user"):
        assert await user.got("disconnected") == (rtc.DisconnectReason.DUPLICATE_IDENTITY,)
        assert set(agent.room.remote_participants) == {"user"}


@pytest.mark.parametrize("wrong", [{"secret": "another-secret-of-another-server-yes"}, {"ttl": -3600}])
async def test_wrong_token_is_denied(server, wrong):
    with pytest.raises(rtc.ConnectError, match=r"401|nvalid"):
        await Guest(server, "room", "user", **wrong).__aenter__()
    await server.seen("denied")


async def test_grants_are_kept_to(server):
    room = f"room-{next(_ROOMS)}"
    async with (
        Guest(server, room, "agent", kind="agent") as agent,
        Guest(server, room, "mute", can_publish_data=False, can_subscribe=False) as mute,
        Guest(server, room, "user") as user,
    ):
        await agent.speaks()
        await user.got("sound")
        assert not [event for event in mute.events if event[0] == "track"]
        with contextlib.suppress(rtc.participant.PublishDataError):
            await mute.room.local_participant.publish_data("no", topic="client-event")
        await server.seen("refused", identity="mute", what="data")
        await user.room.local_participant.publish_data("yes", topic="client-event")
        assert (await agent.got("data"))[1] == b"yes"
        assert not [event for event in mute.events if event[0] == "track"]
