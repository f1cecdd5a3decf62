"""Updates over the air: which board is offered what in `ready`, and the HTTPS port that hands it out.

A folder holds one bundle a board, `BOARD.bundle`, put there by `vrt update publish`. A board whose `hello.device` names an older
firmware finds `"update": {"version": "0.2.0", "port": 8766}` in `ready`, and asks that port of the same host for
`GET /update/BOARD` with its token as `Authorization: Bearer`. It is TLS always: a token goes nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websockets
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from vrt_host.auth import Authenticator
from vrt_host.config import ServerConfig
from vrt_host.device.bundle import Bundle, number, opened
from vrt_host.errors import UsageError

log = logging.getLogger(__name__)

DEFAULT_PORT = 8766
SUFFIX = ".bundle"
_PATH = "/update/"


class Updates:
    """The bundles of a folder, read again when they change."""

    def __init__(self, folder: Path, port: int) -> None:
        """Raises `UsageError` when there is no such folder."""
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}; `vrt update publish` makes it")
        self.folder = folder
        self.port = port
        self._read: dict[str, tuple[tuple[int, int], Bundle | None]] = {}

    def published(self, board: str) -> Bundle | None:
        """What lies there for a board; a file that is no whole bundle is as good as none, and is logged once."""
        path = self._path(board)
        try:
            stat = path.stat() if path is not None else None
        except OSError:
            stat = None
        if path is None or stat is None:
            return None
        stamp = (stat.st_mtime_ns, stat.st_size)
        kept = self._read.get(board)
        if kept is None or kept[0] != stamp:
            kept = self._read[board] = (stamp, self._open(path, board))
        return kept[1]

    def offer(self, hello: dict[str, Any]) -> dict[str, Any]:
        """What `ready` says of updates to the device that sent this `hello`; nothing when there is none for it."""
        device = hello.get("device")
        if not isinstance(device, dict):
            return {}
        board, firmware = device.get("board"), device.get("firmware")
        if not isinstance(board, str) or not isinstance(firmware, str):
            return {}
        bundle = self.published(board)
        if bundle is None or bundle.number <= number(firmware):
            return {}
        return {"update": {"version": bundle.version, "port": self.port}}

    @asynccontextmanager
    async def listen(self, config: ServerConfig, auth: Authenticator) -> AsyncIterator[None]:
        """The port, open meanwhile; a port of 0 becomes the one that the system chose. Raises `UsageError`."""
        if config.tls is None or not auth.required:
            raise UsageError(
                "updates are handed out over TLS, to boards with tokens: give --tls-cert, --tls-key and --tokens too"
            )

        async def never(_: ServerConnection) -> None:
            """Every request is answered before it becomes a WebSocket."""

        async def answer(link: ServerConnection, request: Request) -> Response:
            return await asyncio.to_thread(self.answer, auth, link, request)

        try:
            server = await serve_websockets(
                never,
                config.host or None,
                self.port,
                ssl=config.tls,
                process_request=answer,
                server_header=None,
            )
        except OSError as error:
            raise UsageError(
                f"cannot hand out updates on port {self.port}: {error.strerror or error}; choose another with --updates-port"
            ) from None
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield

    def answer(self, auth: Authenticator, link: ServerConnection, request: Request) -> Response:
        """What the port says to a request."""
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or auth.authenticate(token) is None:
            return link.respond(HTTPStatus.UNAUTHORIZED, "a valid token is needed\n")
        board = request.path.removeprefix(_PATH)
        if not request.path.startswith(_PATH) or self.published(board) is None:
            return link.respond(HTTPStatus.NOT_FOUND, "there is no update for this board\n")
        path = self._path(board)
        assert path is not None
        data = path.read_bytes()
        log.info("update: %s is sent to %s", board, link.remote_address)
        headers = Headers({"Content-Type": "application/octet-stream", "Content-Length": str(len(data))})
        headers["Connection"] = "close"
        return Response(HTTPStatus.OK, "OK", headers, data)

    def _path(self, board: str) -> Path | None:
        plain = board.replace("-", "").replace(".", "").replace("_", "")
        return self.folder / f"{board}{SUFFIX}" if plain.isalnum() and not board.startswith(".") else None

    def _open(self, path: Path, board: str) -> Bundle | None:
        try:
            bundle = opened(path.read_bytes(), None, path.name)
        except (OSError, UsageError) as error:
            log.warning("update: %s is not offered: %s", path.name, error)
            return None
        if bundle.board == board:
            return bundle
        log.warning("update: %s is not offered: it is for the board %s", path.name, bundle.board)
        return None
