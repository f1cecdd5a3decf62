"""`--facade omnia`: Omnia's agent facade, whose clients reach this host's agents and the tools of its boards.

Sections are those of Omnia's page "WebSocket protocol".
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from aiohttp import WSMsgType, web
from pydantic import AfterValidator, Field

from vrt_host.agents.base import Json
from vrt_host.facades import omnia_frames as frames
from vrt_host.facades import omnia_messages as wire
from vrt_host.facades import omnia_tools
from vrt_host.facades.omnia_archive import Archive, ExpiredError
from vrt_host.facades.omnia_media import MediaError, Routes, Store
from vrt_host.facades.omnia_session import BUSY, Session
from vrt_host.facades.omnia_socket import MESSAGE_BYTES, Bucket, Socket
from vrt_host.facades.web import Sender, WebFacade, WebOptions, bearer

log = logging.getLogger(__name__)

PATH = "/ws"
LONG_CHARS = 65_536
"""A longer message is read aside: it can take seconds, for which nobody else should wait."""
AUDIO_BYTES = 32_768
"""Of a frame's audio that are taken at once, for the same reason."""
PING_S = 30.0
SILENCE_S = 60.0
"""Nothing came for so long, neither a pong nor another frame: the client is gone."""
MESSAGES_PER_S, MESSAGES_AT_ONCE = 50, 100
MEDIA_BYTES_PER_S, MEDIA_BYTES_AT_ONCE = 2 * 1024 * 1024, 16 * 1024 * 1024
TEXT_BYTES = 250_000
"""Of a message's text, as JSON; the host takes 262,144 with all around it."""
STOPPED = 1001, "server shutdown"
DRAIN_S = 30.0
"""For turns under way when the host stops."""
QUEUED = 4096
"""Frames that may wait for a client that does not read."""
SESSIONS = 4
"""With an agent each, on one connection."""
CONGESTED = 64
"""Frames that wait when no more sound is added."""


def _named(folder: Path) -> Path:
    if folder == Path():
        raise ValueError("give it a folder of its own")
    return folder


class Options(WebOptions):
    """The table `[omnia_facade]`."""

    port: int = Field(default=8080, ge=0, le=65535)
    agent: Annotated[str, Field(min_length=1)] | None = None
    """What `agent` has to name; None: anything."""
    memory_facet: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}$")] | None = None
    ai_disclosure: bool | None = None
    """Told in `connected`; None: nothing is."""
    metadata_template: str | None = None
    """What of a message's metadata the model is told: a text with {name} in it; None: nothing."""
    tools: Path | None = None
    """Those of the clients (omnia_tools)."""
    media: Annotated[Path, AfterValidator(_named)] | None = None
    """The folder for uploads; None: there are none."""
    public_url: Annotated[str, Field(pattern=r"^https?://[^/?#@\s]+$")] | None = None
    """How clients reach the media routes, when not by the name that they connected to."""
    connections: int = Field(default=500, ge=1)
    calls: int = Field(default=8, ge=0)
    """Realtime audio sessions at a time; 0: there is no audio."""
    ack_timeout: float = Field(default=5.0, gt=0, le=600)
    client_tool_timeout: float = Field(default=60.0, gt=0, le=3000)
    context_ttl: float = Field(default=24 * 3600.0, gt=0)
    """Seconds for which a session can be resumed after it was used."""


class OmniaFacade(WebFacade):
    """The server. Each connection is one `Client`; is the `Server` of its sessions."""

    name: ClassVar[str] = "omnia"
    path: ClassVar[str] = PATH

    def __init__(self, options: Options) -> None:
        """Raises `UsageError` for a file or a folder that cannot be used."""
        super().__init__(options)
        self.options = options
        self.tools = {} if options.tools is None else omnia_tools.load(options.tools)
        self.times = omnia_tools.Times(options.ack_timeout, options.client_tool_timeout)
        self.store = None if options.media is None else Store(options.media)
        self.media: Routes | None = None
        self.archive = Archive(self, options.context_ttl)
        self._calls = 0
        self._clients: set[Client] = set()
        self._draining = self.stopping = False
        self._rested = asyncio.Event()

    def routes(self, app: web.Application) -> None:
        """The WebSocket, and those of media where there is a folder for them."""
        app.router.add_get(PATH, self._connect)
        if self.store is not None:
            self.media = Routes(self.store, self.principal, self.options.public_url)
            self.media.add(app)
            app.cleanup_ctx.append(self.store.kept)
        app.on_shutdown.append(self._leave)

    def principal(self, request: web.Request) -> str:
        """Who asks; raises 401 and 403."""
        if not self.admits(request):
            raise web.HTTPForbidden(text="origin not allowed")
        principal = self.host.auth.authenticate(bearer(request))
        if principal is None:
            raise web.HTTPUnauthorized(text="unauthorized", headers={"WWW-Authenticate": "Bearer"})
        return principal

    # --- for sessions

    def begins(self) -> bool:
        """A call begins. False: there are as many as there may be."""
        if self._calls >= self.options.calls:
            return False
        self._calls += 1
        return True

    def ends(self) -> None:
        """A call has ended."""
        self._calls -= 1

    def rests(self) -> None:
        """A turn has ended."""
        self._rested.set()

    def stops(self) -> None:
        """The host stops."""
        self.stopping = True
        for client in list(self._clients):
            client.close(*STOPPED)

    # --- connections

    async def drain(self) -> None:
        """Turns under way end; whoever has none is told at once. A parked call's can still be heard out by `resume`."""
        self._draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while True:
                    for client in self._clients:
                        if not client.busy:
                            client.close(*STOPPED)
                    if not self.archive.busy:
                        break
                    self._rested.clear()
                    await self._rested.wait()
        self.stops()

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        full = len(self._clients) >= self.options.connections
        if self.stopping or full:
            raise web.HTTPServiceUnavailable(text="the server takes no more connections")
        principal = self.principal(request)
        try:
            query = wire.query(request.query, agent=self.options.agent, facet=self.options.memory_facet)
        except wire.UpgradeError as error:
            return web.Response(status=error.status, text=str(error))
        if self._draining and self.archive.parked(query.resume or "", principal, query.facet) is None:
            raise web.HTTPServiceUnavailable(text="the server takes no more connections")
        ws = Socket(request)
        client = Client(self, request, ws, principal, query)
        self._clients.add(client)
        try:
            await ws.prepare(request)
            await client.run()
        finally:
            self._clients.discard(client)
        return ws

    async def _leave(self, _: web.Application) -> None:
        self.stops()
        self.archive.close()


class Client:
    """One connection, from its opening to its end; is the `Client` of its sessions."""

    def __init__(
        self,
        facade: OmniaFacade,
        request: web.Request,
        ws: Socket,
        principal: str,
        query: wire.Query,
    ) -> None:
        self.peer = f"{request.remote} (omnia)"
        self.token = bearer(request)
        self.binary = query.binary
        self._facade = facade
        self._request = request
        self._ws = ws
        self._principal = principal
        self._query = query
        self._out: Sender | None = None
        self._id = str(uuid.uuid4())
        self._key = object()
        """Marks sessions that were opened here."""
        self._sessions: dict[str, Session] = {}
        """Those that are used here."""
        self._messages = Bucket(MESSAGES_PER_S, MESSAGES_AT_ONCE)
        self._media = Bucket(MEDIA_BYTES_PER_S, MEDIA_BYTES_AT_ONCE)
        self._disclosed = False

    async def run(self) -> None:
        """Until the connection is over."""
        self._out = Sender(self._request, self._ws, most=QUEUED)
        if self._facade.stopping:  # it was opening meanwhile
            self.close(*STOPPED)
        pinging = asyncio.create_task(self._ping())
        try:
            self._connected()
            with contextlib.suppress(ConnectionError):
                await self._read()
        finally:
            pinging.cancel()
            for session in list(self._sessions.values()):
                session.leave()
            await self._out.done()

    def close(self, code: int, reason: str) -> None:
        """Close it behind what was sent."""
        if self._out is not None:
            self._out.close(code, reason)

    def expired(self) -> None:
        """Close codes: the token is no longer one of this host's."""
        self.error("CREDENTIAL_EXPIRED", "the credential has expired")
        self.close(4401, "credential expired")

    def send(self, kind: str, session: str | None, /, **body: Json) -> None:
        """A message of the server's."""
        self.write([wire.encode(kind, session, **body)])

    def write(self, made: Iterable[str | bytes]) -> None:
        """Frames as they are."""
        for frame in made:
            if self._out is not None:
                self._out.send(frame)

    def error(
        self, code: str, message: str, session: str | None = None, details: Mapping[str, Json] | None = None
    ) -> None:
        """Error; the connection stays."""
        error: dict[str, Json] = {"code": code, "message": message}
        self.send("error", session, error=error if details is None else {**error, "details": details})

    def left(self, session: Session) -> None:
        """That session is used on another connection now."""
        self._sessions.pop(session.id, None)

    @property
    def busy(self) -> bool:
        """Whether a turn runs."""
        return any(session.busy for session in self._sessions.values())

    @property
    def congested(self) -> bool:
        """Whether the client reads too slowly for more sound."""
        return self._out is not None and self._out.waiting > CONGESTED

    def _connected(self) -> None:
        """Connected: once, as the first frame."""
        query, options = self._query, self._facade.options
        parked = None
        if query.resume is not None:
            parked = self._facade.archive.parked(query.resume, self._principal, query.facet)
        if parked is not None:
            self._id = parked.id
            parked.maker = self._key
        told: dict[str, Json] = {
            "capabilities": {
                "binary_frames": self.binary,
                "max_payload_size": MESSAGE_BYTES,
                "protocol_version": frames.VERSION,
            },
            "resumed": None if query.resume is None else parked is not None,
            "ai_disclosure": options.ai_disclosure,
            "memory_facet": query.facet,
        }
        shown = {name: value for name, value in told.items() if value is not None}
        self.send("connected", self._id, connected=shown)
        if parked is not None:
            self._sessions[parked.id] = parked
            parked.attach(self)

    # --- what arrives

    async def _read(self) -> None:
        while True:
            await asyncio.sleep(0)  # many frames can have come at once, and none of them is waited for then
            try:
                frame = await self._ws.receive(timeout=SILENCE_S)
            except TimeoutError:
                log.info("%s: nothing came for %g s; it is cut off", self.peer, SILENCE_S)
                if self._request.transport is not None:
                    self._request.transport.abort()
                return
            if frame.type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING, WSMsgType.ERROR):
                return
            if frame.type is WSMsgType.PING:
                await self._ws.pong(frame.data)
            elif frame.type is WSMsgType.TEXT:
                await self._receive(frame.data)
            elif frame.type is WSMsgType.BINARY:
                await self._receive_binary(frame.data)

    async def _receive(self, text: str) -> None:
        if not self._messages.admit():
            self.error("RATE_LIMITED", "rate limit exceeded")
            return
        try:
            long = len(text) > LONG_CHARS
            message = await asyncio.to_thread(wire.decode, text) if long else wire.decode(text)
        except wire.InvalidError as error:
            self.error("INVALID_MESSAGE", str(error))
            return
        match message:
            case wire.Message():
                self._message(message)
            case wire.UploadRequest():
                self._upload(message)
            case wire.ToolResult() | wire.ToolCallAck() | wire.ToolCallNack():
                self._call(message)
            case wire.Hangup():
                for session in self._sessions.values():
                    session.hangup()
            case wire.DisclosureAck():
                if not self._disclosed:
                    log.info("%s: ai.disclosure.displayed, asserted by the client", self.peer)
                self._disclosed = True
            case wire.CredentialRefresh():
                pass  # a token is valid until it is revoked: there is none to be replaced

    def _call(self, message: wire.ToolResult | wire.ToolCallAck | wire.ToolCallNack) -> None:
        """Tool call acknowledgement and rejection, Tool result. Of those that come too late only a result is answered."""
        for session in self._sessions.values():
            match message:
                case wire.ToolResult(tool_result=told):
                    known = session.answered(told.call_id, told.result, told.error)
                case wire.ToolCallAck(tool_call_ack=ack):
                    known = session.acknowledged(ack.call_id)
                case wire.ToolCallNack(tool_call_nack=nack):
                    known = session.declined(nack.call_id, nack.reason)
            if known:
                return
        if isinstance(message, wire.ToolResult):
            self.error("INVALID_MESSAGE", "no pending tool call")

    async def _receive_binary(self, data: bytes) -> None:
        """Binary WebSocket frames: audio of a call, which is the connection's own session."""
        if not self._media.admit(len(data)):
            self.error("RATE_LIMITED", "media rate limit exceeded")
            return
        try:
            frame = frames.decode(data)
        except frames.FrameError as error:
            self.error("INVALID_MESSAGE", str(error))
            return
        if not self._facade.options.calls:
            self.error("MEDIA_NOT_ENABLED", "audio not supported")
        elif self._allowed() and (session := self._session(None)) is not None:
            voice = None
            for part in frame.parts(AUDIO_BYTES):
                if (voice is not None and session.voice is not voice) or not session.frame(self, part):
                    return  # the call has ended meanwhile, or is refused
                voice = session.voice
                self._used(session)
                await asyncio.sleep(0)

    def _message(self, message: wire.Message) -> None:
        """Message; Session handling."""
        text = message.text(self._facade.options.metadata_template)
        if len(json.dumps(text, ensure_ascii=False).encode()) > TEXT_BYTES:
            self.error("INVALID_MESSAGE", f"the text has more than {TEXT_BYTES} bytes as JSON")
            return
        if any(session.answering for session in self._sessions.values()):
            self.error("RATE_LIMITED", "too many in-flight requests")
            return
        if not self._allowed() or (session := self._session(message.session_id)) is None:
            return
        if session.parked:
            session.close()  # its owner came back without `resume`: the call is over
        if session.busy or (session.voice is not None and session.client is not self):
            self.error("TURN_IN_PROGRESS", BUSY, session.id)
        elif session.fresh and message.declare:
            self._refuse(session, message.declare)
        elif not text:
            self.send("done", session.id)
        else:
            session.say(self, text)
            self._used(session)

    def _refuse(self, session: Session, declare: dict[str, Json]) -> None:
        """Error codes, SESSION_DECLARATION_REFUSED: there are no sandboxes here, nor anything else to declare."""
        kind, declared = next(iter(declare.items()))
        handle = next(iter(declared), "") if isinstance(declared, dict) else ""
        words = "this server has nothing that a session could declare"
        details = {"type": kind, "handle": handle, "reason": "SessionInitUnsupported", "message": words}
        self.error("SESSION_DECLARATION_REFUSED", words, session.id, details)

    def _upload(self, message: wire.UploadRequest) -> None:
        """Upload request."""
        facade = self._facade
        if facade.store is None or facade.media is None:
            self.error("MEDIA_NOT_ENABLED", "media storage is not enabled")
            return
        if not self._allowed() or (session := self._session(message.session_id)) is None:
            return
        try:
            medium = facade.store.prepare(message.upload_request, session.id, self._principal)
        except MediaError as error:
            log.info("%s: no upload: %s", self.peer, error)
            self.error("UPLOAD_FAILED", "failed to prepare upload", session.id)
            return
        self.send("upload_ready", session.id, upload_ready=facade.media.ready(medium, self._request))

    def _session(self, id_: str | None) -> Session | None:
        """The session of a message; None: the client was told why not."""
        id_ = id_ or self._id
        known = self._facade.archive
        try:
            return known.get(id_, self._principal, self._query.facet, maker=self._key, joins=id_ == self._id)
        except ExpiredError:
            self.error("SESSION_EXPIRED", "session context has expired; start a new session", id_)
            return None

    def _used(self, session: Session) -> None:
        """It is the newest here; the oldest, whose agents would otherwise stay until the connection ends, let theirs go."""
        if session.client is not self:
            return
        self._sessions.pop(session.id, None)
        self._sessions[session.id] = session
        for other in list(self._sessions.values())[:-SESSIONS]:
            if not other.busy and other.voice is None:
                del self._sessions[other.id]
                other.close()

    def _allowed(self) -> bool:
        """Whether the token is still one of this host's; else the connection ends."""
        if self._facade.host.auth.authenticate(self.token) == self._principal:
            return True
        self.expired()
        return False

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_S)
            if not self.busy:
                self._allowed()
            with contextlib.suppress(ConnectionError):
                await self._ws.ping()
