"""The agent's place in a LiveKit room: its connection, what it sends in order, its voice, and the user's.

The SDK wants some care: `connect` is never cancelled, handlers are there before it, and each send has a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from livekit import api, rtc

from vrt_host.errors import VrtError
from vrt_host.facades.fish_messages import (
    AGENT_TOPIC,
    CLIENT_TOPIC,
    FINAL,
    SEGMENT,
    STATE,
    TRANSCRIPTION,
    State,
)

log = logging.getLogger(__name__)

_T = TypeVar("_T")

RATE = 24_000
"""Hertz of both directions, as the host sees them; WebRTC has 48,000."""
FRAME_MS = 20
CONNECT_S = 10.0
"""To be in the room."""
SEND_S = 10.0
"""For the SDK to take one message."""
STATE_S = 1.0
"""For the server to confirm a state; the SDK can miss that, and then waits 5 s."""
QUEUED = 2048
"""Messages that may wait for it; more end the session."""
AHEAD_S = 2.0
"""Of sound that may wait for the SDK; more is not taken from the host."""
FAREWELL_S = 0.5
"""For the client to hear the last message and leave, before the agent does."""


def _is_no_chatter(record: logging.LogRecord) -> bool:
    """Not what the SDK tells of every connection and, in a peer's own words, of every stream that nobody reads."""
    return record.levelno >= logging.WARNING or f"{os.sep}livekit{os.sep}" not in record.pathname


logging.getLogger("livekit").setLevel(logging.WARNING)
logging.getLogger().addFilter(_is_no_chatter)  # some of it goes there


class RoomError(VrtError):
    """The LiveKit server lets nobody in, or is not there."""


class Events(Protocol):
    """What a session hears of its room."""

    def arrived(self) -> None:
        """The user is there, or there again."""

    def left(self) -> None:
        """The user has gone."""

    def packet(self, data: bytes) -> None:
        """A packet of the user's, on the client's topic."""

    def heard(self, payload: bytes) -> None:
        """Some of the user's sound."""

    def roomy(self) -> None:
        """There is room for more of the agent's sound."""

    def lost(self, why: str) -> None:
        """The agent is not in the room any more."""


class Room:
    """Is the `Segments` of its session's words."""

    def __init__(self, user: str, events: Events) -> None:
        """`user` is the identity of the one participant that the agent speaks with."""
        self._loop = asyncio.get_running_loop()
        self._user = user
        self.joined = False
        self._events = events
        self._room = rtc.Room(self._loop)
        self._whole: list[asyncio.Task[Any]] = []
        """What is never cancelled: the SDK would not survive it, or leave threads behind."""
        self._out: asyncio.Queue[Callable[[], Awaitable[None]] | None] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._ears: list[asyncio.Task[None]] = []
        self._source: rtc.AudioSource | None = None
        self._sound: deque[bytes] = deque()
        self._sounds = asyncio.Event()
        self._ahead = 0.0
        self._given = 0.0
        """Seconds of sound that the SDK was given, less what was cleared."""
        self._writer: rtc.TextStreamWriter | None = None
        self._state: State = "initializing"
        self._told: State | None = "initializing"
        """The state that the server was told last."""
        self._changed = asyncio.Event()
        self._there = False
        self._away = False
        """The SDK is joining anew: attributes that are set meanwhile are lost."""
        self._gone = asyncio.Event()
        self._closing = False

    async def connect(self, url: str, token: str) -> None:
        """Join, with a track to speak on. Raises `RoomError`; to be closed all the same."""
        room = self._room
        room.on("participant_connected", self._on_connected)
        room.on("participant_active", self._on_active)
        room.on("participant_disconnected", self._on_disconnected)
        room.on("data_received", self._on_data)
        room.on("track_subscribed", self._on_track)
        room.on("disconnected", self._on_lost)
        room.on("reconnecting", self._on_away)
        room.on("reconnected", self._on_again)
        connecting = room.connect(url, token, rtc.RoomOptions(connect_timeout=CONNECT_S / 2))
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._wholly(connecting)
                self._source = rtc.AudioSource(RATE, 1, loop=self._loop)
                track = rtc.LocalAudioTrack.create_audio_track("agent", self._source)
                options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
                await self._wholly(self._me.publish_track(track, options))
        except TimeoutError:
            raise RoomError(f"it did not let the agent in within {CONNECT_S:g} s") from None
        except (rtc.ConnectError, rtc.participant.PublishTrackError, RuntimeError) as error:
            raise RoomError(str(error)) from None
        if self._closing:
            return
        self.joined = True
        self._tasks = [
            self._loop.create_task(self._send_all()),
            self._loop.create_task(self._tell_states()),
            self._loop.create_task(self._speak(self._source)),
        ]
        if self._user in room.remote_participants:
            self._on_connected(room.remote_participants[self._user])

    async def close(self, *, farewell: bool) -> None:
        """Leave, behind what was sent; `farewell`: the user is not about to leave."""
        self._closing = True
        await asyncio.gather(*self._whole, return_exceptions=True)
        if self._tasks:
            self._out.put_nowait(None)
            await asyncio.wait({self._tasks[0]}, timeout=FAREWELL_S)
            if farewell and self._there and self._room.isconnected():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FAREWELL_S):
                        await self._gone.wait()
        for task in (*self._tasks, *self._ears):
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SEND_S):
                await self._room.disconnect()
        await asyncio.gather(*self._tasks, *self._ears, return_exceptions=True)
        if self._source is not None:
            await self._source.aclose()

    async def _wholly(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Its result; who is cancelled meanwhile does not cancel it, and `close` waits for it."""
        task = self._loop.create_task(work)
        self._whole.append(task)
        return await asyncio.shield(task)

    # --- what the agent sends

    def event(self, message: bytes) -> None:
        """A message on the agent's topic; nobody gets it who is not there."""
        self._put(
            lambda: self._me.publish_data(message, topic=AGENT_TOPIC, destination_identities=[self._user])
        )

    def state(self, state: State) -> None:
        """The sticky state; one that is soon over may not be told."""
        self._state = state
        self._changed.set()

    def said(self, segment: str, text: str, *, final: bool) -> None:
        """The user's words, under the user's identity: they replace those of the same segment."""
        self._put(lambda: self._said(segment, text, "true" if final else "false"))

    def begin(self, segment: str) -> None:
        """A segment of the agent's."""
        self._put(lambda: self._begin(segment))

    def write(self, text: str) -> None:
        """More of it."""
        self._put(lambda: self._write(text))

    def end(self) -> None:
        """That was it."""
        self._put(self._end)

    def _put(self, send: Callable[[], Awaitable[None]]) -> None:
        if self._closing:
            return
        if self._out.qsize() >= QUEUED:
            self._on_lost("it takes no more messages")
        else:
            self._out.put_nowait(send)

    @property
    def _me(self) -> rtc.LocalParticipant:
        return self._room.local_participant

    async def _stream(self, segment: str, final: str, sender: str) -> rtc.TextStreamWriter:
        return await self._me.stream_text(
            topic=TRANSCRIPTION,
            attributes={SEGMENT: segment, FINAL: final},
            destination_identities=[self._user],
            sender_identity=sender,
        )

    async def _said(self, segment: str, text: str, final: str) -> None:
        writer = await self._stream(segment, final, self._user)
        await writer.write(text)
        await writer.aclose()

    async def _begin(self, segment: str) -> None:
        self._writer = await self._stream(segment, "false", self._me.identity)

    async def _write(self, text: str) -> None:
        if self._writer is not None:
            await self._writer.write(text)

    async def _end(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.aclose(attributes={FINAL: "true"})

    async def _send_all(self) -> None:
        while (send := await self._out.get()) is not None:
            try:
                async with asyncio.timeout(SEND_S):
                    await send()
            except TimeoutError:
                log.info("a message was not taken within %g s; it is dropped", SEND_S)
            except (rtc.StreamError, rtc.participant.PublishDataError, RuntimeError) as error:
                log.info("a message could not be sent: %s", error)

    async def _tell_states(self) -> None:
        """Beside the messages, so that none waits for the server's answer."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._away or self._told == self._state:
                continue
            self._told = self._state
            try:
                async with asyncio.timeout(STATE_S):
                    await self._me.set_attributes({STATE: self._state})
            except TimeoutError:
                log.debug("a state was not confirmed within %g s", STATE_S)

    # --- the agent's voice

    @property
    def played(self) -> float:
        """Seconds of sound that the room has heard."""
        return self._given - (0.0 if self._source is None else self._source.queued_duration)

    def room(self) -> bool:
        """Whether more sound can be taken; `Events.roomy` when it can again."""
        return self._ahead < AHEAD_S

    def play(self, payload: bytes) -> None:
        """The next of it."""
        self._sound.append(payload)
        self._ahead += len(payload) / 2 / RATE
        self._sounds.set()

    def hush(self) -> None:
        """What is left of it is not to be heard."""
        self._sound.clear()
        self._ahead = 0.0
        if self._source is not None:
            self._given = self.played
            self._source.clear_queue()

    async def _speak(self, source: rtc.AudioSource) -> None:
        while True:
            while not self._sound:
                self._sounds.clear()
                await self._sounds.wait()
            payload = self._sound.popleft()
            samples = len(payload) // 2
            full = not self.room()
            self._ahead = max(0.0, self._ahead - samples / RATE)
            self._given += samples / RATE
            try:
                await source.capture_frame(rtc.AudioFrame(payload[: 2 * samples], RATE, 1, samples))
            except Exception as error:  # the SDK raises nothing more special
                log.info("some sound was not taken: %s", error)
            if full and self.room():
                self._events.roomy()

    # --- what happens there

    def _on_connected(self, participant: rtc.RemoteParticipant) -> None:
        if participant.identity != self._user:
            log.info("somebody else is in the room; the agent speaks with its user alone")
        elif participant.state == rtc.ParticipantState.PARTICIPANT_STATE_ACTIVE:
            self._on_active(participant)

    def _on_active(self, participant: rtc.RemoteParticipant) -> None:
        """They can be sent something from now on."""
        if participant.identity == self._user and not self._there:
            self._there = True
            self._gone.clear()
            self._events.arrived()

    def _on_disconnected(self, participant: rtc.RemoteParticipant) -> None:
        if participant.identity == self._user and self._there and not self._away:
            self._leaves()

    def _on_away(self) -> None:
        self._away = True

    def _on_again(self) -> None:
        """The agent joined anew: with the state of its token, and told of everybody's going and coming meanwhile."""
        self._away = False
        if self._there and self._user not in self._room.remote_participants:
            self._leaves()
        self._told = None
        self._changed.set()

    def _leaves(self) -> None:
        self._there = False
        self._gone.set()
        self._events.left()

    def _on_data(self, packet: rtc.DataPacket) -> None:
        sender = packet.participant
        if sender is not None and sender.identity == self._user and packet.topic == CLIENT_TOPIC:
            self._on_active(sender)
            self._events.packet(packet.data)

    def _on_track(
        self, track: rtc.Track, _: rtc.RemoteTrackPublication, participant: rtc.RemoteParticipant
    ) -> None:
        if participant.identity != self._user or track.kind != rtc.TrackKind.KIND_AUDIO or self._closing:
            return
        for ear in self._ears:  # the newest counts
            ear.cancel()
        self._ears = [ear for ear in self._ears if not ear.done()] + [
            self._loop.create_task(self._hear(track))
        ]

    async def _hear(self, track: rtc.Track) -> None:
        stream = rtc.AudioStream.from_track(
            track=track, loop=self._loop, sample_rate=RATE, num_channels=1, frame_size_ms=FRAME_MS
        )
        try:
            async for event in stream:
                self._events.heard(bytes(event.frame.data))
        finally:
            await stream.aclose()

    def _on_lost(self, why: str | int) -> None:
        """`why` is in words, or the SDK's number for it, which can be a later one than is known here."""
        if not self._closing:
            names: dict[int, str] = {number: name for name, number in rtc.DisconnectReason.items()}
            self._events.lost(why if isinstance(why, str) else names.get(why, str(why)))


def token(key: str, secret: str, identity: str, room: str, seconds: float, *, agent: bool) -> str:
    """Lets `identity` into a room, for so long; an agent may tell its state and say what is another's words."""
    grants = api.VideoGrants(
        room_join=True,
        room=room,
        can_publish=True,
        can_subscribe=True,
        can_publish_data=True,
        can_update_own_metadata=agent,
    )
    if not agent:
        grants.can_publish_sources = ["microphone"]
    made = api.AccessToken(key, secret).with_identity(identity).with_grants(grants)
    made = made.with_kind("agent" if agent else "standard").with_ttl(datetime.timedelta(seconds=seconds))
    if agent:
        made = made.with_name("agent").with_attributes({STATE: "initializing"})
    jwt: str = made.to_jwt()
    return jwt
