"""The rooms of the peer `fish`, as the service has them: a LiveKit server, and in each room an agent by the official SDK."""

import asyncio
import datetime
import logging

from livekit import api, rtc
from livekit.protocol import models

from peers.livekit_server import KEY, SECRET, LiveKitServer
from peers.plan import quiet

_QUEUE_MS = 100
logging.getLogger("livekit").propagate = False  # it complains of rooms that are gone while an agent joins


class Rooms:
    """All of them. `told(kind)` hears of users who come and go."""

    def __init__(self, rate, told):
        self._rate = rate
        self._told = told
        self._server = LiveKitServer(self._of)
        self.url = None

    def _of(self, kind, **fields):
        if fields.get("identity", "").startswith("user"):
            self._told({"joined": "connected", "left": "closed"}.get(kind, kind))

    async def serve(self, application):
        self.url = f"ws://127.0.0.1:{await self._server.start()}"

    def token(self, room, identity, kind="standard"):
        grants = api.VideoGrants(room_join=True, room=room, can_update_own_metadata=kind == "agent")
        token = api.AccessToken(KEY, SECRET).with_identity(identity).with_kind(kind).with_grants(grants)
        return token.with_ttl(datetime.timedelta(minutes=30)).to_jwt()

    def room(self, name, user, on_data):
        return _Room(self, name, user, on_data, self._rate)

    async def delete(self, name):
        """Everybody has to go."""
        await self._server.delete(name)

    async def shut(self, name):
        """The server goes."""
        await self._server.delete(name, models.SERVER_SHUTDOWN)

    def cut(self, name, user):
        self._server.cut(name, user)


class _Room:
    """The agent's end of one."""

    def __init__(self, rooms, name, user, on_data, rate):
        self._rooms, self._name, self._user, self._rate = rooms, name, user, rate
        self.frames = asyncio.Queue()
        """What the user says."""
        self._room = rtc.Room()
        self._source = rtc.AudioSource(rate, 1, queue_size_ms=_QUEUE_MS)
        self._audible = asyncio.Event()
        self._tasks = set()
        self._capturing = self._joining = self._publishing = None
        self._room.on("local_track_subscribed", lambda track: self._audible.set())
        self._room.on("data_received", lambda one: one.topic == "client-event" and on_data(one.data))
        self._room.on("track_subscribed", self._on_track)

    async def join(self):
        """In it, with a user who listens: another one would miss what is said."""
        token = self._rooms.token(self._name, f"agent-of-{self._name}", "agent")
        self._joining = asyncio.ensure_future(self._room.connect(self._rooms.url, token))
        await asyncio.shield(self._joining)  # the SDK ends the process when that is cancelled
        track = rtc.LocalAudioTrack.create_audio_track("voice", self._source)
        self._publishing = asyncio.ensure_future(
            self._room.local_participant.publish_track(track, rtc.TrackPublishOptions())
        )
        await asyncio.shield(self._publishing)
        await self._audible.wait()

    async def connected(self):
        """For who closes a room: the SDK waits long for one that is closed while it connects."""
        if self._joining is not None:
            await asyncio.gather(self._joining, return_exceptions=True)

    async def leave(self):
        await self.connected()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._capturing is not None:
            await asyncio.gather(self._capturing, return_exceptions=True)
        await self._room.disconnect()
        if self._publishing is not None:  # it does not notice that itself
            self._publishing.cancel()
            await asyncio.gather(self._publishing, return_exceptions=True)
        await self._source.aclose()

    def _on_track(self, track, *_):
        self._tasks.add(asyncio.get_running_loop().create_task(self._hear(track)))

    async def _hear(self, track):
        stream = rtc.AudioStream(track, sample_rate=self._rate, num_channels=1, frame_size_ms=20)
        try:
            async for event in stream:
                self.frames.put_nowait(bytes(event.frame.data))
        finally:
            await stream.aclose()

    async def state(self, state):
        await self._room.local_participant.set_attributes({"lk.agent.state": state})

    async def send(self, text):
        try:
            await self._room.local_participant.publish_data(text, topic="agent-event")
        except rtc.participant.PublishDataError as error:
            raise ConnectionError(str(error)) from None

    async def stream(self, attributes, *, user=False):
        """A text stream, of the agent's words or of the user's: `write`, and `aclose(attributes=...)`."""
        sender = {"sender_identity": self._user} if user else {}
        return await self._room.local_participant.stream_text(
            topic="lk.transcription", attributes=attributes, **sender
        )

    async def sound(self, chunk):
        if self._capturing is not None:  # one that nobody waits for any more has to end first
            await asyncio.gather(self._capturing, return_exceptions=True)
        frame = rtc.AudioFrame(chunk, self._rate, 1, len(chunk) // 2)
        self._capturing = asyncio.ensure_future(self._source.capture_frame(frame))
        await asyncio.shield(self._capturing)

    async def played(self):
        await self._source.wait_for_playout()

    async def falls_silent(self):
        """Nothing more of what was said. Where packets end without quiet, who listens makes up how it went on."""
        self._source.clear_queue()
        await self.sound(quiet(_QUEUE_MS / 1000, "pcm16", self._rate))
