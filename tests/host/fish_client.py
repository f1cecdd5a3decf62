"""A Fish client for the tests of the facade: an unmodified room of LiveKit's SDK. What the facade sends is judged by schema/peers/fish."""

import asyncio
import contextlib
import json
from unittest import mock

import aiohttp
import numpy as np
import pytest_asyncio
from host_client import DEADLINE_S, hosting
from livekit import rtc
from peers.livekit_server import KEY, SECRET
from peers.plan import samples, tone
from peers.process import PeerProcess
from peers.vectors import errors
from vrt_host.agents.base import Text, TurnBegin, TurnEnd
from vrt_host.facades import fish, fish_session

DASHBOARD = {
    "name": "open_dashboard",
    "description": "Opens the dashboard.",
    "parameters": {"type": "object", "properties": {"tab": {"type": "string"}}},
}
NOTE = {"name": "note", "description": "Notes something.", "expects_response": False, "effect": "none"}
LOUD = 1500


@pytest_asyncio.fixture(name="livekit", scope="module", loop_scope="module")
async def livekit_process():
    """The LiveKit server, a process of its own."""
    async with PeerProcess("livekit_server") as server:
        yield server


class FakeRoom:
    """In a room's place: `events` is the session, `sent` what it was told to send."""

    made = ()
    fails = None
    played = 0.0
    joined = False
    takes = True

    def __init__(self, user, events):
        self.user, self.events = user, events
        self.sent = []
        self.sound = b""
        self.news = asyncio.Event()
        self.closed = None
        FakeRoom.made.append(self)

    async def connect(self, url, token):
        self.url, self.token = url, token
        if FakeRoom.fails is not None:
            raise FakeRoom.fails
        self.joined = True

    async def close(self, *, farewell):
        self.closed = farewell
        self.news.set()

    def _note(self, *what):
        self.sent.append(what)
        self.news.set()

    def event(self, message):
        assert errors("fish", "server", message) == []
        self._note("event", json.loads(message))

    def state(self, state):
        self._note("state", state)

    def said(self, segment, text, *, final):
        self._note("said", segment, text, final)

    def begin(self, segment):
        self._note("begin")

    def write(self, text):
        self._note("write", text)

    def end(self):
        self._note("end")

    def play(self, payload):
        self.sound += payload
        self.news.set()

    def hush(self):
        self._note("hush")

    def room(self):
        return self.takes

    async def until(self, true):
        async with asyncio.timeout(DEADLINE_S):
            while not (found := true()):
                self.news.clear()
                await self.news.wait()
        return found

    async def gets(self, *what, count=1):
        """The `count`th thing sent that begins like this."""
        return (
            await self.until(
                lambda: (
                    len(found := [one for one in self.sent if one[: len(what)] == what]) >= count and found
                )
            )
        )[count - 1]

    async def event_of(self, kind, count=1):
        """The `count`th message of that type."""
        return (
            await self.until(
                lambda: (
                    len(found := [one for one in self.events_sent if one["type"] == kind]) >= count and found
                )
            )
        )[count - 1]

    @property
    def events_sent(self):
        return [what[1] for what in self.sent if what[0] == "event"]

    @property
    def words(self):
        """All words of the agent, with | behind each segment."""
        return "".join(
            "|" if what[0] == "end" else what[1] for what in self.sent if what[0] in ("write", "end")
        )

    def send(self, type_, **members):
        self.events.packet(json.dumps({"type": type_, **members}).encode())


class Client:
    """A participant, and what came to it, in order: (kind, value)."""

    def __init__(self, session):
        self.session = session
        self.room = rtc.Room()
        self.came = []
        self.taken = 0
        self.news = asyncio.Event()
        self._tasks = set()
        self.room.on("participant_attributes_changed", self._on_attributes)
        self.room.on("participant_connected", self._on_joined)
        self.room.on("participant_active", lambda who: self._note("active", who.identity))
        self.room.on("participant_disconnected", lambda who: self._note("left", who.identity))
        self.room.on("disconnected", lambda reason: self._note("disconnected", reason))
        self.room.on("reconnected", lambda: self._note("reconnected", None))
        self.room.on("data_received", self._on_data)
        self.room.on("track_subscribed", self._on_track)
        self.room.register_text_stream_handler("lk.transcription", self._on_stream)

    async def __aenter__(self):
        await self.room.connect(self.session["livekit_url"], self.session["token"])
        self.me = self.room.local_participant
        for who in self.room.remote_participants.values():
            self._on_joined(who)
        return self

    async def __aexit__(self, *_):
        await self.room.disconnect()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _note(self, kind, value):
        self.came.append((kind, value))
        self.news.set()

    def _spawn(self, work):
        self._tasks.add(asyncio.get_running_loop().create_task(work))

    def _on_joined(self, who):
        self._note("join", who.identity)
        self.agent = who
        if "lk.agent.state" in who.attributes:
            self._on_attributes(who.attributes, who)

    def _on_attributes(self, changed, who):
        assert errors("fish", "agent_state", dict(changed)) == []
        self._note("state", changed["lk.agent.state"])

    def _on_data(self, packet):
        assert packet.topic == "agent-event"
        assert errors("fish", "server", packet.data) == []
        self._note("event", json.loads(packet.data))

    def _on_track(self, track, publication, who):
        self._note("track", who.identity)
        self._spawn(self._hear(track))

    async def _hear(self, track):
        stream = rtc.AudioStream(track, sample_rate=48_000, num_channels=1)
        loud = False
        try:
            async for event in stream:
                now = np.abs(samples(bytes(event.frame.data), "pcm16")).mean() > LOUD
                if now != loud:
                    self._note("sound", now)
                loud = now
        finally:
            await stream.aclose()

    def _on_stream(self, reader, identity):
        self._spawn(self._read(reader, identity))

    async def _read(self, reader, identity):
        sender = "user" if identity == self.me.identity else "agent"
        header, chunks = dict(reader.info.attributes), []
        try:
            async for chunk in reader:
                chunks.append(chunk)
                self._note("words", (sender, header["lk.segment_id"], "".join(chunks)))
        except rtc.StreamError:
            return
        told = {
            "sender": sender,
            "attributes": header,
            "chunks": chunks,
            "trailer": dict(reader.info.attributes),
        }
        assert errors("fish", "transcription", told) == []
        self._note("segment", told)

    async def next(self, *kinds):
        """The next thing that came of these kinds; others before it are passed over."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                while self.taken < len(self.came):
                    kind, value = self.came[self.taken]
                    self.taken += 1
                    if not kinds or kind in kinds:
                        return value if len(kinds) == 1 else (kind, value)
                self.news.clear()
                await self.news.wait()

    async def has(self, kind, true=lambda value: True):
        """Wait until something like this came, taken or not."""
        async with asyncio.timeout(DEADLINE_S):
            while not (found := [value for this, value in self.came if this == kind and true(value)]):
                self.news.clear()
                await self.news.wait()
        return found[0]

    async def listening(self):
        """Wait for the agent to be ready."""
        await self.has("state", lambda state: state == "listening")
        return self

    async def event(self, kind):
        """The next message of that type."""
        while (message := await self.next("event"))["type"] != kind:
            pass
        return message

    async def segment(self, sender="agent"):
        """The next whole segment: its text."""
        while (told := await self.next("segment"))["sender"] != sender:
            pass
        return "".join(told["chunks"])

    def of(self, kind):
        """All that came of that kind."""
        return [value for this, value in self.came if this == kind]

    async def raw(self, payload, **more):
        await self.me.publish_data(payload, **{"topic": "client-event", **more})

    async def send(self, type_, **members):
        await self.raw(json.dumps({"type": type_, **members}))

    async def say(self, text, **members):
        await self.send("user.message", text=text, **members)

    @contextlib.asynccontextmanager
    async def speaking(self):
        """Publish a loud tone meanwhile."""
        source = rtc.AudioSource(48_000, 1)
        track = rtc.LocalAudioTrack.create_audio_track("microphone", source)
        options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
        await self.me.publish_track(track, options)
        sounding = asyncio.create_task(self._tone(source))
        try:
            yield
        finally:
            sounding.cancel()
            await asyncio.wait({sounding})

    async def _tone(self, source):
        sound = tone(0.1, "pcm16", 48_000)
        try:
            while True:
                await source.capture_frame(rtc.AudioFrame(sound, 48_000, 1, 4_800))
        finally:
            await source.aclose()


@contextlib.asynccontextmanager
async def serving(
    livekit, *brains, config=None, lending=None, key=None, tmp_path=None, tools=(DASHBOARD, NOTE), **options
):
    """`create(**body)`: status and body of an answer; `fish(**body)`: a client in its room; `brains`: the agents, in their order.

    Without `livekit` the rooms are fake: `meet(**body)` creates a session whose user is there.
    """
    if tmp_path is not None:
        options["tools"] = tmp_path / "tools.json"
        options["tools"].write_text(json.dumps(tools))
    port = 7880 if livekit is None else livekit.port
    given = {"livekit_url": f"ws://127.0.0.1:{port}", "api_key": KEY, "api_secret": SECRET, "port": 0}
    FakeRoom.made, FakeRoom.fails = [], None
    facade, rest = fish.FishFacade(fish.Options.model_validate({**given, **options})), list(brains)
    fake = contextlib.nullcontext() if livekit else mock.patch.object(fish_session, "Room", FakeRoom)
    with fake:
        async with (
            hosting(lambda: rest.pop(0), config=config, facades=[facade], lending=lending) as host,
            aiohttp.ClientSession() as http,
        ):

            async def create(*, data=None, key=key, headers=(), **body):
                headers = dict(headers)
                if key is not None:
                    headers["Authorization"] = f"Bearer {key}"
                if data is None:
                    data = json.dumps({"agent_id": "a", **body})
                async with http.post(facade.url, data=data, headers=headers) as answer:
                    said = json.loads(await answer.read())
                    part = "session" if answer.status == 201 else "session_error"
                    assert errors("fish", part, said) == []
                    host.headers = answer.headers
                    return answer.status, said

            @contextlib.asynccontextmanager
            async def client(**body):
                status, session = await create(**body)
                assert status == 201, session
                async with Client(session) as made:
                    yield await made.listening()

            async def meet(*, ready=True, **body):
                status, session = await create(**body)
                assert status == 201, session
                room = FakeRoom.made[-1]
                room.session = session
                room.events.arrived()
                if ready:
                    await room.gets("state", "listening")
                return room

            host.create, host.fish, host.meet, host.facade, host.http = create, client, meet, facade, http
            yield host


def answers(agent, text):
    """What most brains do: "You said ..."."""
    agent.turns = getattr(agent, "turns", 0) + 1
    turn = f"t{agent.turns}"
    agent.port.emit(TurnBegin(turn))
    agent.port.emit(Text(turn, "You said "))
    agent.port.emit(Text(turn, f"{text}.", True))
    agent.port.emit(TurnEnd(turn))
