"""`--facade aitp`: an AITP 1.0.0 server, whose clients reach this host's agents and the tools of its boards.

Sections are those of the AITP page. A session of the host has the tools it was opened with, so it is opened at the client's first
CONTEXT_UPDATE, and anew, between turns, when the client's tools change: what was said goes on in its context.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections import Counter
from typing import ClassVar

from aiohttp import WSMsgType, web
from pydantic import Field

from vrt_host.facades import aitp_messages as wire
from vrt_host.facades.aitp_session import AitpSession
from vrt_host.facades.web import Sender, WebFacade, WebOptions, Window, bearer
from vrt_host.runner import printable

log = logging.getLogger(__name__)

PATH = "/owllayer"
MESSAGE_BYTES = 4 * 1024 * 1024
"""Of a WebSocket message; a larger one closes the connection with 1009."""
PING_S = 30.0
"""Between two pings; a client that answered none of them by the next is cut off."""
INIT_S = 10.0
"""How long a connection may stay without HANDSHAKE_INIT; twice the client's own time."""
MESSAGES_PER_S = 100
QUEUED = 4096
"""Frames that may wait for a client that does not read."""


class Options(WebOptions):
    """The table `[aitp_facade]`."""

    port: int = Field(default=3000, ge=0, le=65535)
    max_active_tools: int = Field(default=30, ge=1, le=100)
    """Tools of a client, told in HANDSHAKE_ACK."""
    connections: int = Field(default=10, ge=1)
    """At once, with one key."""


class AitpFacade(WebFacade):
    """The server. Each connection is one `Client`."""

    name: ClassVar[str] = "aitp"
    path: ClassVar[str] = PATH

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.options = options
        self.connections: Counter[str] = Counter()
        """Principal -> how many it has."""
        self._clients: set[Client] = set()

    def routes(self, app: web.Application) -> None:
        """One, the WebSocket."""
        app.router.add_get(PATH, self._connect)
        app.on_shutdown.append(self._leave)

    async def _connect(self, request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(autoping=False, max_msg_size=MESSAGE_BYTES, compress=False)
        await ws.prepare(request)
        client = Client(self, request, ws)
        if len(self._clients) >= self.host.config.max_links:
            client.close(1013, "Server at capacity")
        self._clients.add(client)
        try:
            await client.run()
        finally:
            self._clients.discard(client)
        return ws

    async def _leave(self, _: web.Application) -> None:
        for client in list(self._clients):
            client.close(1001, "Server shutting down")


class Client:
    """One connection, from its opening to its end."""

    def __init__(self, facade: AitpFacade, request: web.Request, ws: web.WebSocketResponse) -> None:
        self._facade = facade
        self._request = request
        self._ws = ws
        self._peer = f"{request.remote} (aitp)"
        self._out = Sender(request, ws, most=QUEUED)
        self._id = f"sess_{uuid.uuid4()}"
        self._principal: str | None = None
        self._session: AitpSession | None = None
        self._rate = Window(MESSAGES_PER_S, 1.0)
        self._ponged = True

    async def run(self) -> None:
        """Until the connection is over."""
        pinging = asyncio.create_task(self._ping())
        try:
            if not self._facade.admits(self._request):
                self.close(1008, "Origin not allowed")
            if not self._out.closing:  # else nothing that it sends is read
                await self._read()
        finally:
            pinging.cancel()
            if self._session is not None:
                self._session.close()
            if self._principal is not None:
                self._facade.connections[self._principal] -= 1
            await self._out.done()

    def close(self, code: int, reason: str) -> None:
        """Close it behind what was sent."""
        self._out.close(code, reason)

    def send(self, kind: str, /, **payload: object) -> None:
        """A message of the server's."""
        self._out.send(wire.encode(kind, payload, self._id))

    def error(self, message: str) -> None:
        """14. SYSTEM_EVENT of kind error; the connection stays."""
        self.send("SYSTEM_EVENT", kind="error", message=message)

    @property
    def congested(self) -> bool:
        """Whether the client reads too slowly for more sound."""
        return self._out.waiting > 64

    # --- what arrives

    async def _read(self) -> None:
        deadline = time.monotonic() + INIT_S
        while True:
            wait = None if self._session else max(0.0, deadline - time.monotonic())
            try:
                frame = await self._ws.receive(timeout=wait)
            except TimeoutError:
                self.close(1008, "no HANDSHAKE_INIT in time")
                return
            if frame.type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING, WSMsgType.ERROR):
                return
            if frame.type is WSMsgType.PING:
                await self._ws.pong(frame.data)
            elif frame.type is WSMsgType.PONG:
                self._ponged = True
            elif frame.type is WSMsgType.TEXT:
                if not self._out.closing:
                    self._receive(frame.data)
            else:
                log.info("%s: a binary frame was ignored", self._peer)

    def _receive(self, text: str) -> None:
        """Invalid frames are logged and ignored, as are messages that come out of place."""
        if not self._rate.admit():
            if self._rate.first:
                self.error(f"Too many messages: {MESSAGES_PER_S} a second are taken")
            return
        try:
            message = wire.decode(text)
        except wire.InvalidError as error:
            log.info("%s: ignored: %s", self._peer, printable(str(error), 200))
            return
        if isinstance(message, wire.HandshakeInit):
            self._init(message)
        elif self._session is None:
            log.info("%s: a message before HANDSHAKE_INIT was ignored", self._peer)
        else:
            self._session.receive(message)

    def _init(self, init: wire.HandshakeInit) -> None:
        """1. HANDSHAKE_INIT: the version, then who it is (Version Negotiation)."""
        if self._session is not None:
            log.info("%s: a second HANDSHAKE_INIT was ignored", self._peer)
            return
        if init.protocolVersion != wire.VERSION:
            said = printable(init.protocolVersion, 32)
            self.error(f"Incompatible protocol version: {said} (server: {wire.VERSION})")
            self.close(1008, "Protocol version mismatch")
            return
        token = bearer(self._request) or (None if init.apiKey == "anonymous" else init.apiKey)
        facade = self._facade
        principal = facade.host.auth.authenticate(token)
        if principal is None:
            self.error("Unauthorized: the API key is not one of this host's tokens")
            self.close(1008, "Unauthorized")
            return
        if facade.connections[principal] >= facade.options.connections:
            self.error(f"This key has {facade.options.connections} connections already")
            self.close(1008, "Connection limit")
            return
        facade.connections[principal] += 1
        self._principal = principal
        self._session = AitpSession(facade.host, self, token, self._peer, facade.options.max_active_tools)
        self.send(
            "HANDSHAKE_ACK",
            sessionId=self._id,
            serverVersion=wire.VERSION,
            protocolVersion=wire.VERSION,
            capabilities=["text", "audio", "tools"],
            maxActiveTools=facade.options.max_active_tools,
        )

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_S)
            if not self._ponged:
                log.info("%s: it answers no ping", self._peer)
                self._out.cut()
                return
            self._ponged = False
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(PING_S):  # whoever reads nothing takes no ping either
                    await self._ws.ping()
