"""What the peers that speak over WebSockets share: a listener, its sessions, settings that last until a reset."""

import http
import itertools
import json
from typing import ClassVar

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from peers.process import Peer


class SocketPeer(Peer):
    """`session` is a class: `session(peer, socket)` has `run()`, which talks, and `end()`. `request` may refuse a connection."""

    session = None
    defaults: ClassVar = {}
    """The settings that `be` changes."""

    def __init__(self):
        super().__init__()
        self.on_be()
        self.sessions = set()
        self.ids = itertools.count(1)

    async def serve(self):
        self._server = await serve(self._connected, "127.0.0.1", 0, process_request=self._request)
        return self._server.sockets[0].getsockname()[1]

    def _request(self, connection, request):
        connection.refusal = self.refusal()
        return self.request(connection, request)

    async def _connected(self, socket):
        self.transports.add(socket.transport)
        self.tell("connected")
        session = self.session(self, socket)
        self.sessions.add(session)
        try:
            await session.run()
        except ConnectionClosed:
            pass
        finally:
            session.end()
            self.sessions.discard(session)
            self.transports.discard(socket.transport)
            self.tell("closed")

    def on_be(self, **settings):
        """Settings, until `reset`."""
        self.settings = {**self.defaults, **settings}

    def on_reset(self):
        super().on_reset()
        self.on_be()


_HTTP = {
    "key": (http.HTTPStatus.UNAUTHORIZED, "invalid_api_key", "Incorrect API key provided: {key}."),
    "expired": (http.HTTPStatus.UNAUTHORIZED, "token_expired", "The token is expired."),
    "rate": (http.HTTPStatus.TOO_MANY_REQUESTS, "rate_limit_exceeded", "Too many requests."),
}


class OpenAIPeer(SocketPeer):
    """Both of OpenAI's refuse alike, and their sessions end with age."""

    def fits(self, path):
        """Whether that path is the protocol's."""
        raise NotImplementedError

    def request(self, connection, request):
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not self.fits(request.path) or not key:
            self.tell("invalid", why=f"no key, or the path {request.path}")
        if connection.refusal in _HTTP:
            status, code, words = _HTTP[connection.refusal]
            error = {"message": words.format(key=key), "type": "invalid_request_error", "code": code}
            return connection.respond(status, json.dumps({"error": error}))
        return None

    async def on_expire(self):
        for session in list(self.sessions):
            await session.expire()
