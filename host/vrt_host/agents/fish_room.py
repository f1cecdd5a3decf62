"""The LiveKit room of a session: what happens in it, in the order in which it came, and what is said into it.

LiveKit's SDK works in threads of its own, and calls back on the event loop. It mends a connection that breaks; a room that is over
is told as `Over`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from livekit import rtc

from vrt_host.agents import fish_messages as messages
from vrt_host.agents.fish_messages import Message
from vrt_host.agents.fish_session import Ticket
from vrt_host.agents.fish_sound import SOUND
from vrt_host.agents.outbox import Outbox
from vrt_host.agents.provider import ProviderError

log = logging.getLogger(__name__)


def _is_no_chatter(record: logging.LogRecord) -> bool:
    """Not what the SDK tells of each connection and, in the agent's own words, of each stream that nobody reads."""
    return record.levelno >= logging.WARNING or f"{os.sep}livekit{os.sep}" not in record.pathname


logging.getLogger("livekit").setLevel(logging.WARNING)
logging.getLogger().addFilter(_is_no_chatter)  # some of it goes there

AGENT_S = 15.0
"""From the connection to the agent's arrival (`agentSession.ts`)."""
AUDIENCE_S = 3.0
"""The user's audio waits so long until the agent listens to it."""
_FRAME_MS = 20
_FRAME_BYTES = SOUND.bytes_per_second * _FRAME_MS // 1000
_MIC_BYTES = 5 * SOUND.bytes_per_second
_QUEUE_MS = 200
_MESSAGES = 64
LEAVE_S = 3.0
"""For the SDK to end what it began, when it is closed while it connects."""
BYE_S = 0.5
"""For the agent to leave, when it was told that the user hangs up."""
_LEAVING: set[asyncio.Task[None]] = set()
_HUNG_UP = (
    rtc.DisconnectReason.ROOM_DELETED,
    rtc.DisconnectReason.ROOM_CLOSED,
    rtc.DisconnectReason.PARTICIPANT_REMOVED,
)


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet of `agent-event`."""

    data: bytes


@dataclass(frozen=True, slots=True)
class State:
    """`lk.agent.state`."""

    state: str


@dataclass(frozen=True, slots=True)
class Words:
    """A piece of a segment, or with `closed` its end; a user's segment comes whole."""

    segment: str
    user: bool
    text: str
    final: bool = False
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Sound:
    """The agent's track."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Mended:
    """The connection was lost for a moment; what was sent meanwhile never comes."""


@dataclass(frozen=True, slots=True)
class Over:
    """The room is over; `hung_up`: the agent ended it."""

    error: ProviderError
    hung_up: bool = False


Happening = Packet | State | Words | Sound | Mended | Over


class FishRoom:
    """One session's room. Use `open`, then read `events` up to `Over`."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Happening] = asyncio.Queue()
        self._room = rtc.Room()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._source = rtc.AudioSource(SOUND.sample_rate, 1, queue_size_ms=_QUEUE_MS)
        self._joining: asyncio.Future[None] | None = None
        self._publishing: asyncio.Future[None] | None = None
        self._agent = asyncio.Event()
        self._audience = asyncio.Event()
        self._left = asyncio.Event()
        self._over = self._closing = False
        self._mic = bytearray()
        self._mic_dropped = False
        self._to_hear = asyncio.Event()
        self._outbox = Outbox[Message]("fish", _MESSAGES)
        room = self._room
        room.on("participant_connected", lambda one: self._agent.set())
        room.on("participant_disconnected", self._on_left)
        room.on("participant_attributes_changed", self._on_attributes)
        room.on("data_received", self._on_data)
        room.on("track_subscribed", lambda track, publication, one: self._spawn(self._listen(track)))
        room.on("local_track_subscribed", lambda track: self._audience.set())
        room.on("reconnected", self._on_mended)
        room.on("disconnected", self._on_disconnected)
        room.register_text_stream_handler(
            "lk.transcription", lambda reader, identity: self._spawn(self._read(reader, identity))
        )

    async def open(self, ticket: Ticket, timeout_s: float) -> None:
        """Join, and wait for the agent; raises `ProviderError`."""
        try:
            options = rtc.RoomOptions(auto_subscribe=True, connect_timeout=timeout_s)
            # The SDK ends the whole process when who connects is cancelled before it is done.
            self._joining = asyncio.ensure_future(self._room.connect(ticket.url, ticket.token, options))
            await self._joined(self._joining, timeout_s)
            self._publishing = asyncio.ensure_future(self._publish_microphone())
            await asyncio.shield(self._publishing)  # `close` says when it is too late for that
            if not self._room.remote_participants:
                async with asyncio.timeout(AGENT_S):
                    await self._agent.wait()
        except TimeoutError:
            raise ProviderError(
                "unreachable", f"no agent came within {AGENT_S:g} s", advice="try again later"
            ) from None
        except (rtc.ConnectError, rtc.participant.PublishTrackError) as error:
            said = str(error).replace(ticket.token, "***")
            raise ProviderError("unreachable", f"its room cannot be joined: {said}") from None
        for one in self._room.remote_participants.values():
            self._on_attributes(one.attributes, one)  # who comes late reads the state at once
        self._spawn(self._speak())
        self._spawn(self._send())

    async def _joined(self, joining: asyncio.Future[None], timeout_s: float) -> None:
        """The SDK's own time is that of one of ten tries."""
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(joining)
        except TimeoutError:
            said = f"its room could not be joined within {timeout_s:g} s"
            raise ProviderError("unreachable", said) from None

    async def _publish_microphone(self) -> None:
        track = rtc.LocalAudioTrack.create_audio_track("microphone", self._source)
        microphone = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
        await self._room.local_participant.publish_track(track, microphone)

    # --- out

    def hear(self, payload: bytes) -> None:
        """The user's audio, in `SOUND`."""
        self._mic += payload
        if len(self._mic) > _MIC_BYTES:
            del self._mic[: len(self._mic) - _MIC_BYTES]
            if not self._mic_dropped:
                self._mic_dropped = True
                log.warning("fish: the user's audio comes faster than it is spoken; the oldest is dropped")
        self._to_hear.set()

    def send(self, message: Message) -> None:
        """On `client-event`, in order."""
        self._outbox.put(message)

    def give_up(self) -> None:
        """The agent has ended the session, and nothing follows."""
        self._end(ProviderError("gone", "the agent has ended the session"), hung_up=True)

    async def close(self) -> None:
        """Hang up, and leave."""
        self._closing = True
        if self._joining is not None:
            _, pending = await asyncio.wait({self._joining}, timeout=LEAVE_S)
            if pending:
                leaving = asyncio.get_running_loop().create_task(self._leave_late(self._joining))
                _LEAVING.add(leaving)
                leaving.add_done_callback(_LEAVING.discard)
                return
        with contextlib.suppress(TimeoutError, rtc.participant.PublishDataError):
            # A message that still waits for the connection would keep the SDK from leaving.
            if self._audience.is_set() and not self._over and self._room.isconnected():
                async with asyncio.timeout(BYE_S):
                    await self._publish(messages.HANGUP)
                    await self._left.wait()  # what was sent has arrived by then
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._disconnect()

    async def _leave_late(self, joining: asyncio.Future[None]) -> None:
        """The SDK is still on its way into the room, and nobody waits for that."""
        await asyncio.wait({joining})
        if not joining.cancelled():
            joining.exception()  # seen, whatever it is
        await self._disconnect()

    async def _disconnect(self) -> None:
        await self._room.disconnect()
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.gather(self._publishing, return_exceptions=True)
        await self._source.aclose()

    async def _speak(self) -> None:
        with contextlib.suppress(TimeoutError):  # what is spoken before somebody listens is lost
            async with asyncio.timeout(AUDIENCE_S):
                await self._audience.wait()
        while True:
            while len(self._mic) >= _FRAME_BYTES:
                payload = bytes(self._mic[:_FRAME_BYTES])
                del self._mic[:_FRAME_BYTES]
                await self._source.capture_frame(
                    rtc.AudioFrame(payload, SOUND.sample_rate, 1, _FRAME_BYTES // 2)
                )
            self._to_hear.clear()
            await self._to_hear.wait()

    async def _send(self) -> None:
        while True:
            await self._outbox.news.wait()
            self._outbox.news.clear()
            while self._outbox.messages:
                await self._deliver(self._outbox.messages.popleft())

    async def _deliver(self, message: Message) -> None:
        try:
            await self._publish(message)
        except rtc.participant.PublishDataError as error:
            log.warning("fish: %s was not delivered: %s", message["type"], error)
            if message["type"] == "client_tool.result":
                with contextlib.suppress(rtc.participant.PublishDataError):
                    await self._publish(messages.failure(message["callId"], "could not be delivered"))

    async def _publish(self, message: Message) -> None:
        await self._room.local_participant.publish_data(
            messages.encode(message), reliable=True, topic="client-event"
        )

    # --- in

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._closing:
            log.error("the fish agent's room failed", exc_info=error)
            self._end(ProviderError("gone", "its room failed; the host's log says why"))

    def _on_data(self, packet: rtc.DataPacket) -> None:
        if packet.topic == "agent-event":
            self.events.put_nowait(Packet(bytes(packet.data)))

    def _on_attributes(self, changed: dict[str, str], one: rtc.Participant) -> None:
        if "lk.agent.state" in changed and one.identity != self._room.local_participant.identity:
            self._agent.set()
            self.events.put_nowait(State(one.attributes.get("lk.agent.state", "")))

    async def _read(self, reader: rtc.TextStreamReader, identity: str) -> None:
        attributes = dict(reader.info.attributes or {})
        segment = attributes.get("lk.segment_id")
        if not segment:
            return
        user = identity == self._room.local_participant.identity
        final = attributes.get("lk.transcription_final") == "true"
        if not user:
            self.events.put_nowait(Words(segment, user, ""))
        pieces = []
        try:
            async for piece in reader:
                pieces.append(piece)
                if not user:
                    self.events.put_nowait(Words(segment, user, piece))
        except rtc.StreamError:
            final = False
        if user:
            self.events.put_nowait(Words(segment, user, "".join(pieces), final))
        else:
            self.events.put_nowait(Words(segment, user, "", closed=True))

    async def _listen(self, track: rtc.Track) -> None:
        if track.kind != rtc.TrackKind.KIND_AUDIO:
            return
        stream = rtc.AudioStream(
            track, sample_rate=SOUND.sample_rate, num_channels=1, frame_size_ms=_FRAME_MS
        )
        try:
            async for event in stream:
                self.events.put_nowait(Sound(bytes(event.frame.data)))
        finally:
            await stream.aclose()

    def _on_mended(self) -> None:
        self.events.put_nowait(Mended())
        for one in self._room.remote_participants.values():
            self._on_attributes(one.attributes, one)
        if not self._room.remote_participants:
            self._spawn(self._return())

    async def _return(self) -> None:
        """The SDK has joined anew, and the agent is to be seen again."""
        self._agent.clear()
        try:
            async with asyncio.timeout(AGENT_S):
                await self._agent.wait()
        except TimeoutError:
            self._end(ProviderError("gone", "the agent has left"), hung_up=True)

    def _on_left(self, one: rtc.RemoteParticipant) -> None:
        # While it joins anew, the SDK takes leave of all.
        connected = self._room.connection_state == rtc.ConnectionState.CONN_CONNECTED
        if connected and not self._room.remote_participants:
            self._left.set()
            self._end(ProviderError("gone", "the agent has left"), hung_up=True)

    def _on_disconnected(self, reason: rtc.DisconnectReason.ValueType) -> None:
        name = rtc.DisconnectReason.Name(reason).lower()
        self._end(ProviderError("gone", f"its room is over ({name})"), hung_up=reason in _HUNG_UP)

    def _end(self, error: ProviderError, *, hung_up: bool = False) -> None:
        if not (self._over or self._closing):
            self._over = True
            self.events.put_nowait(Over(error, hung_up))
