"""A small LiveKit server: enough of its signalling for the official SDK, unmodified, over aiohttp and aiortc.

What it has: rooms, tokens and their grants, participants with attributes, data and text streams with the real server's rule of
who a packet is from, audio tracks (those that are there already go to who comes late), leaving, a room that is deleted, and lost
signalling, after which the SDK is told to join anew. What it has not: video, resuming a connection in place, mute, simulcast,
regions, egress. Packets of `_lossy` channels are passed on, too.

As a process it is a peer (`process`) whose reports are `joined`, `left`, `denied` (a token) and `refused` (what the grants do not allow).
"""

import asyncio
import contextlib
import fractions
import itertools
import json
import time
from dataclasses import dataclass, field

import jwt
from aiohttp import WSMsgType, web
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.sdp import candidate_from_sdp
from av.packet import Packet
from livekit.protocol import models, rtc

from peers.process import Peer, main

KEY, SECRET = "devkey", "a-secret-of-the-livekit-server-of-tests"
_PING_S, _PONG_S = 10, 30
_CLOCK = fractions.Fraction(1, 48_000)
_IDS = itertools.count(1)
_CHANNELS = {"_reliable": {"ordered": True}, "_lossy": {"ordered": False, "maxRetransmits": 0}}
_GRANTS = {"canPublish": True, "canSubscribe": True, "canPublishData": True, "canUpdateOwnMetadata": False}
"""A token's permissions, and what holds where it says nothing."""


def _id(kind):
    return f"{kind}_{next(_IDS):06}"


class Denied(Exception):
    """Why a token is not taken."""


def grants(token):
    """The claims of a token, its permissions filled in; or `Denied`."""
    try:
        claims = jwt.decode(token, SECRET, algorithms=["HS256"], issuer=KEY)
    except jwt.PyJWTError as error:
        raise Denied(f"invalid token: {error}") from None
    video = claims.get("video", {})
    if not (claims.get("sub") and video.get("roomJoin") and video.get("room")):
        raise Denied("the token lets nobody join a room")
    claims["video"] = {**_GRANTS, **video}
    return claims


class Copy(MediaStreamTrack):
    """What one subscriber gets of a track: its packets as they are. What comes before they are connected is lost, as in any room."""

    kind = "audio"

    def __init__(self, sid):
        super().__init__()
        self._id = sid  # the SDK knows a track by it
        self._packets = None

    async def recv(self):
        if self._packets is None:
            self._packets = asyncio.Queue()
        return await self._packets.get()

    def pass_on(self, packet):
        if self._packets is not None:
            self._packets.put_nowait(packet)


@dataclass(eq=False)
class Published:
    """A track, and who gets it."""

    info: models.TrackInfo
    copies: list = field(default_factory=list)
    arrives: bool = False

    def copy(self):
        self.copies.append(Copy(self.info.sid))
        return self.copies[-1]

    async def take(self, packet, arrival_time_ms):
        """One RTP packet; in place of a receiver's own work, which decodes it."""
        if packet.payload:
            passed = Packet(packet.payload)
            passed.pts, passed.time_base = packet.timestamp, _CLOCK
            for copy in self.copies:
                copy.pass_on(passed)


@dataclass(eq=False)
class Participant:
    """Somebody in a room, with one connection for what they send and one for what they get."""

    room: "Room"
    socket: web.WebSocketResponse
    transport: object
    identity: str
    name: str
    kind: str
    may: dict
    attributes: dict
    metadata: str = ""
    sid: str = field(default_factory=lambda: _id("PA"))
    joined: int = field(default_factory=lambda: int(time.time()))
    tracks: dict = field(default_factory=dict)
    channels: dict = field(default_factory=dict)
    publisher: RTCPeerConnection | None = None
    reason: int = models.CLIENT_INITIATED

    def __post_init__(self):
        self.subscriber = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        for label, kind in _CHANNELS.items():
            self.channels[label] = self.subscriber.createDataChannel(label, **kind)
        self.ready = asyncio.Event()
        """What goes to them arrives."""
        self.channels["_reliable"].on("open", self._on_open)
        self._senders = {}
        self._offered = asyncio.Lock()
        self._answered = asyncio.Event()

    async def _on_open(self):
        self.ready.set()
        await self.room.update(self)

    def info(self, state=None):
        """As others see them; ready for data when they are `ACTIVE`."""
        if state is None:
            ready = self.channels["_reliable"].readyState == "open"
            state = models.ParticipantInfo.ACTIVE if ready else models.ParticipantInfo.JOINED
        told = models.ParticipantInfo(
            sid=self.sid,
            identity=self.identity,
            name=self.name,
            metadata=self.metadata,
            state=state,
            joined_at=self.joined,
            is_publisher=bool(self.tracks),
            attributes=self.attributes,
            kind=getattr(models.ParticipantInfo, self.kind.upper()),
            tracks=[one.info for one in self.tracks.values()],
            permission=models.ParticipantPermission(
                can_publish=self.may["canPublish"],
                can_subscribe=self.may["canSubscribe"],
                can_publish_data=self.may["canPublishData"],
                can_update_metadata=self.may["canUpdateOwnMetadata"],
                agent=self.kind == "agent",
            ),
        )
        if state == models.ParticipantInfo.DISCONNECTED:
            told.disconnect_reason = self.reason
        return told

    async def send(self, **response):
        """One response. A connection that is gone is noticed by who reads from it."""
        with contextlib.suppress(ConnectionError, RuntimeError):
            await self.socket.send_bytes(rtc.SignalResponse(**response).SerializeToString())

    # --- what they get

    async def offer(self):
        """Offer all that they are to get; returns when they have answered."""
        async with self._offered:
            if self.subscriber.signalingState == "closed":
                return
            self._answered.clear()
            await self.subscriber.setLocalDescription(await self.subscriber.createOffer())
            sdp = self.subscriber.localDescription.sdp
            for sender, owner in self._senders.items():
                sdp = sdp.replace(
                    f"msid:{sender._stream_id} {sender._track_id}",
                    f"msid:{owner.sid}|{sender._track_id} {sender._track_id}",
                )
            await self.send(offer=rtc.SessionDescription(type="offer", sdp=sdp))
            await self._answered.wait()

    async def answer(self, sdp):
        await self.subscriber.setRemoteDescription(RTCSessionDescription(sdp, "answer"))
        self._answered.set()

    def subscribe(self, owner, track):
        """They get a track from now on, when it is offered."""
        if not (self.may["canSubscribe"] and track.arrives):
            return False
        self._senders[self.subscriber.addTrack(track.copy())] = owner
        return True

    # --- what they send

    async def take_offer(self, offer):
        if self.publisher is None:
            self.publisher = RTCPeerConnection(RTCConfiguration(iceServers=[]))
            self.publisher.on("datachannel", self._on_channel)
            self.publisher.on("track", self._on_track)
        await self.publisher.setRemoteDescription(RTCSessionDescription(offer.sdp, "offer"))
        await self.publisher.setLocalDescription(await self.publisher.createAnswer())
        sdp = self.publisher.localDescription.sdp
        await self.send(answer=rtc.SessionDescription(type="answer", sdp=sdp, id=offer.id))

    def _on_channel(self, channel):
        channel.on("message", lambda data: self.room.packet(self, channel.label, data))

    def _on_track(self, media):
        receiver = next(one for one in self.publisher.getReceivers() if one.track is media)
        track = next((one for one in self.tracks.values() if not one.arrives), None)
        if track is not None:
            track.arrives = True
            receiver._handle_rtp_packet = track.take
            self.room.offer(self, track)

    async def add_track(self, wanted):
        if not self.may["canPublish"]:
            refusal = rtc.RequestResponse(reason=rtc.RequestResponse.NOT_ALLOWED, add_track=wanted)
            await self.send(request_response=refusal)
            self.room.told("refused", identity=self.identity, what="track")
            return
        info = models.TrackInfo(sid=_id("TR"), name=wanted.name, type=wanted.type, source=wanted.source)
        self.tracks[info.sid] = Published(info)
        await self.send(track_published=rtc.TrackPublishedResponse(cid=wanted.cid, track=info))
        await self.room.update(self)

    async def update(self, wanted):
        answer = rtc.RequestResponse(request_id=wanted.request_id, update_metadata=wanted)
        if not self.may["canUpdateOwnMetadata"]:
            answer.reason = rtc.RequestResponse.NOT_ALLOWED
            answer.message = "does not have permission to update own metadata"
            await self.send(request_response=answer)
            return
        self.metadata = wanted.metadata or self.metadata
        for name, value in wanted.attributes.items():
            self.attributes[name] = value
            if not value:
                del self.attributes[name]
        await self.send(request_response=answer)
        await self.room.update(self)

    async def candidate(self, trickle):
        connection = self.publisher if trickle.target == rtc.PUBLISHER else self.subscriber
        told = json.loads(trickle.candidateInit or "{}")
        if connection is None or not told.get("candidate"):
            return
        candidate = candidate_from_sdp(told["candidate"].partition(":")[2])
        candidate.sdpMid, candidate.sdpMLineIndex = told.get("sdpMid"), told.get("sdpMLineIndex")
        with contextlib.suppress(ValueError):  # of an interface that this machine has not
            await connection.addIceCandidate(candidate)

    async def close(self):
        self._answered.set()
        self.ready.set()
        for connection in (self.publisher, self.subscriber):
            if connection is not None:
                await connection.close()


class Room:
    """Who is in a room."""

    def __init__(self, name, spawn, told):
        self.name, self.sid = name, _id("RM")
        self.members = {}
        self.told = told
        self._spawn = spawn

    def others(self, one):
        return [other for other in self.members.values() if other is not one]

    async def update(self, one, state=None):
        """All are told of one; one who is gone is told nothing."""
        told = rtc.ParticipantUpdate(participants=[one.info(state)])
        for member in list(self.members.values()):
            await member.send(update=told)

    def offer(self, owner, track):
        for other in self.others(owner):
            if other.subscribe(owner, track):
                self._spawn(self._offer(other, owner, track))

    async def _offer(self, other, owner, track):
        await other.offer()
        await other.ready.wait()
        await owner.ready.wait()  # who is told so may be answered
        await owner.send(track_subscribed=rtc.TrackSubscribed(track_sid=track.info.sid))

    def packet(self, sender, label, data):
        """Pass a packet on. Its sender is who sent it, whatever it says; but an agent's text stream may be another's words."""
        if not sender.may["canPublishData"]:
            self.told("refused", identity=sender.identity, what="data")
            return
        packet = models.DataPacket.FromString(data)
        kind = packet.WhichOneof("value")
        claimed = packet.participant_identity
        text = kind == "stream_header" and packet.stream_header.HasField("text_header")
        if text and sender.kind == "agent" and claimed not in ("", sender.identity):
            packet.stream_header.text_header.generated = True
        else:
            packet.participant_identity = sender.identity
        packet.participant_sid = sender.sid
        if kind == "user":
            packet.user.participant_identity = sender.identity
            packet.user.participant_sid = sender.sid
        meant = set(packet.destination_identities)
        for other in self.others(sender):
            channel = other.channels[label]
            if (not meant or other.identity in meant) and channel.readyState == "open":
                channel.send(packet.SerializeToString())


class LiveKitServer:
    """The server. `told(kind, **fields)` hears what a peer reports."""

    def __init__(self, told=lambda kind, **fields: None):
        self.rooms = {}
        self._told = told
        self._tasks = set()

    async def start(self):
        """Listen on the loopback; the port."""
        application = web.Application()
        application.router.add_get("/rtc", self._join)  # at /rtc/v1 the SDK is told 404, and comes here
        application.router.add_get("/rtc/validate", self._validate)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return self._runner.addresses[0][1]

    async def stop(self):
        for room in list(self.rooms):
            await self.delete(room)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.cleanup()

    async def delete(self, room, reason=models.ROOM_DELETED):
        """The room is no more; who was in it is told so."""
        found = self.rooms.pop(room, None)
        members = list(found.members.values()) if found else []
        for member in members:  # all are told before any is gone
            await member.send(leave=rtc.LeaveRequest(reason=reason, action=rtc.LeaveRequest.DISCONNECT))
        for member in members:
            await self._dismiss(member, reason, rtc.LeaveRequest.DISCONNECT)

    async def remove(self, room, identity, reason=models.PARTICIPANT_REMOVED):
        """One has to go."""
        await self._dismiss(self.rooms[room].members[identity], reason, rtc.LeaveRequest.DISCONNECT)

    def cut(self, room, identity):
        """One's signalling is lost; the SDK will come again."""
        self.rooms[room].members[identity].transport.abort()

    async def _dismiss(self, member, reason, action):
        member.reason = reason
        await member.send(leave=rtc.LeaveRequest(reason=reason, action=action))
        await member.socket.close()

    def _spawn(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _token(self, request):
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return grants(given or request.query.get("access_token", ""))

    async def _validate(self, request):
        try:
            self._token(request)
        except Denied as error:
            return web.Response(status=401, text=str(error))
        return web.Response(text="success")

    async def _join(self, request):
        try:
            claims = self._token(request)
        except Denied as error:
            self._told("denied", why=str(error))
            return web.Response(status=401, text=str(error))
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if request.query.get("reconnect") == "1":
            again = rtc.LeaveRequest(reason=models.STATE_MISMATCH, action=rtc.LeaveRequest.RECONNECT)
            await socket.send_bytes(rtc.SignalResponse(leave=again).SerializeToString())
            await socket.close()
            return socket
        await self._talk(self._member(claims, socket, request.transport))
        return socket

    def _member(self, claims, socket, transport):
        name = claims["video"]["room"]
        room = self.rooms.setdefault(name, Room(name, self._spawn, self._told))
        return Participant(
            room,
            socket,
            transport,
            claims["sub"],
            claims.get("name", ""),
            claims.get("kind") or "standard",
            claims["video"],
            dict(claims.get("attributes") or {}),
            claims.get("metadata", ""),
        )

    async def _talk(self, member):
        room = member.room
        before = room.members.get(member.identity)
        if before is not None:
            await self._gone(before, models.DUPLICATE_IDENTITY)
            self._spawn(self._dismiss(before, models.DUPLICATE_IDENTITY, rtc.LeaveRequest.DISCONNECT))
        room.members[member.identity] = member
        try:
            await self._greet(member)
            async for message in member.socket:
                if message.type is WSMsgType.BINARY and not await self._take(member, message.data):
                    break
        finally:
            await self._gone(member, member.reason)

    async def _greet(self, member):
        room, others = member.room, member.room.others(member)
        await member.send(
            join=rtc.JoinResponse(
                room=models.Room(sid=room.sid, name=room.name),
                participant=member.info(),
                other_participants=[other.info() for other in others],
                server_version="1.9.0",
                server_info=models.ServerInfo(version="1.9.0", protocol=15),
                subscriber_primary=True,
                ping_interval=_PING_S,
                ping_timeout=_PONG_S,
            )
        )
        await room.update(member)
        for other in others:
            for track in other.tracks.values():
                member.subscribe(other, track)
        self._spawn(member.offer())
        self._told("joined", room=room.name, identity=member.identity)

    async def _gone(self, member, reason):
        """Once for each."""
        room = member.room
        if room.members.get(member.identity) is not member:
            return
        del room.members[member.identity]
        member.reason = reason
        self._told("left", room=room.name, identity=member.identity)
        await room.update(member, models.ParticipantInfo.DISCONNECTED)
        self._spawn(member.close())
        if not room.members and self.rooms.get(room.name) is room:
            del self.rooms[room.name]

    async def _take(self, member, data):
        """One request; False: they leave."""
        request = rtc.SignalRequest.FromString(data)
        match request.WhichOneof("message"):
            case "ping":
                await member.send(pong=int(time.time() * 1000))
            case "ping_req":
                then, now = request.ping_req.timestamp, int(time.time() * 1000)
                await member.send(pong_resp=rtc.Pong(last_ping_timestamp=then, timestamp=now))
            case "answer":
                await member.answer(request.answer.sdp)
            case "offer":
                await member.take_offer(request.offer)
            case "trickle":
                await member.candidate(request.trickle)
            case "add_track":
                await member.add_track(request.add_track)
            case "update_metadata":
                await member.update(request.update_metadata)
            case "leave":
                return False
        return True


class LiveKitPeer(Peer):
    """The server as a process of its own."""

    def __init__(self):
        super().__init__()
        self._server = LiveKitServer(self.tell)

    async def serve(self):
        return await self._server.start()

    async def on_delete(self, room):
        await self._server.delete(room)

    async def on_remove(self, room, identity):
        await self._server.remove(room, identity)

    def on_cut(self, room, identity):
        self._server.cut(room, identity)


if __name__ == "__main__":
    main(LiveKitPeer)
