"""What facades over HTTP and WebSocket share: a port, its TLS, who may come, and how it is left."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import Field

from vrt_host.agents.options import Options
from vrt_host.errors import UsageError

if TYPE_CHECKING:
    from vrt_host.server import Host

log = logging.getLogger(__name__)

_http = logging.getLogger(f"{__name__}.http")
"""The library's; see `_not_theirs`."""

LEAVE_S = 2.0
"""For a client to take what was sent before its connection closes."""
REQUEST_S = 10.0
"""How long a connection may be open without a request."""
WAITING_BYTES = 16 * 1024 * 1024
"""What may wait for a client that does not read; one frame may be as large."""


def _not_theirs(record: logging.LogRecord) -> bool:
    """What a client does wrong, or that it leaves, is no error here: no stranger fills the log, least of all with an address."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError)


_http.addFilter(_not_theirs)


class WebOptions(Options):
    """Of every facade with a port."""

    port: int = Field(default=0, ge=0, le=65535)
    """Where it listens, on the host's address and with its TLS; 0: any free port."""


class WebFacade(ABC):
    """One facade's server; `host` is there while it listens."""

    name: ClassVar[str]
    path: ClassVar[str] = ""
    """Of its WebSocket, for `url`."""
    host: Host

    def __init__(self, options: WebOptions) -> None:
        self._port = options.port
        self._scheme = "ws"

    @property
    def port(self) -> int:
        """The one that it has, once it listens."""
        return self._port

    @property
    def url(self) -> str:
        """Where its clients connect."""
        address = self.host.config.host or "0.0.0.0"
        shown = f"[{address}]" if ":" in address else address
        return f"{self.host.config.scheme}://{shown}:{self._port}{self.path}"

    @asynccontextmanager
    async def listen(self, host: Host) -> AsyncIterator[None]:
        """Be there for clients meanwhile. Raises `UsageError` when the port cannot be had."""
        self.host = host
        app = web.Application()
        self.routes(app)
        runner = web.AppRunner(
            app, access_log=None, logger=_http, shutdown_timeout=1.0, keepalive_timeout=REQUEST_S
        )
        await runner.setup()
        try:
            # A name with two addresses would get two different ports from the system; only one can be told.
            name = host.config.host or None
            address = "127.0.0.1" if self._port == 0 and (name or "").lower() == "localhost" else name
            site = web.TCPSite(runner, address, self._port, ssl_context=host.config.tls)
            try:
                await site.start()
            except OSError as error:
                raise UsageError(self._why_not(error)) from None
            self._port = runner.addresses[0][1]
            yield
        finally:
            await runner.cleanup()

    async def drain(self) -> None:  # noqa: B027  (most protocols have nothing of the kind)
        """The host is about to stop: let what is under way end, where the protocol wants that; return when it has."""

    @abstractmethod
    def routes(self, app: web.Application) -> None:
        """Fill in what is served."""

    def admits(self, request: web.Request) -> bool:
        """Whether a page of that origin may connect; what sends no Origin header is no browser and is not asked."""
        origin = request.headers.get("Origin")
        return origin is None or origin in self.host.config.origins

    def _why_not(self, error: OSError) -> str:
        where = f"{self.name} facade: port {self._port}"
        mend = f"set another port in the table [{self.name}_facade] of the options file"
        if error.errno == errno.EADDRINUSE:
            return f"{where} is in use: stop the program that has it, or {mend}"
        if error.errno == errno.EACCES:
            return f"{where} may not be opened by this user: {mend}, above 1023"
        return f"{where} cannot be listened on: {error.strerror or error}"


def bearer(request: web.Request) -> str | None:
    """The token of the Authorization header; a query string is no place for one and is not looked at."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() or None if kind.lower() == "bearer" else None


class Window:
    """At most `most` things in each window of `seconds`: a fixed-window counter."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._began = float("-inf")
        self._count = 0

    def admit(self) -> bool:
        """Count one more; False: it is beyond the limit."""
        now = time.monotonic()
        if now >= self._began + self._seconds:
            self._began, self._count = now, 0
        self._count += 1
        return self._count <= self._most

    @property
    def first(self) -> bool:
        """Whether the last one was the first beyond it: the one to answer, lest many answers follow many questions."""
        return self._count == self._most + 1


class Sender:
    """Sends frames over a WebSocket in order, from code that does not wait; a peer that does not read is cut off."""

    def __init__(self, request: web.Request, ws: web.WebSocketResponse, *, most: int) -> None:
        """`most` frames may wait."""
        self._request = request
        self._ws = ws
        self._queue: asyncio.Queue[str | bytes | tuple[int, str]] = asyncio.Queue()
        self._most = most
        self._bytes = 0
        self._over = False
        self._task = asyncio.create_task(self._run())

    @property
    def waiting(self) -> int:
        """Frames that are not sent yet."""
        return self._queue.qsize()

    @property
    def closing(self) -> bool:
        """Whether nothing more is sent, as the connection closes or is cut; what still comes is of no use."""
        return self._over

    def send(self, frame: str | bytes) -> None:
        """Send it behind those before it."""
        if self._over:
            return
        if self._queue.qsize() >= self._most or self._bytes > WAITING_BYTES:
            log.info("a client does not read; it is cut off")
            self.cut()
            return
        self._bytes += len(frame)
        self._queue.put_nowait(frame)

    def cut(self) -> None:
        """End the connection without a word."""
        self._over = True
        if self._request.transport is not None:
            self._request.transport.abort()

    def close(self, code: int, reason: str) -> None:
        """Close the WebSocket behind what was sent."""
        if not self._over:
            self._over = True
            self._queue.put_nowait((code, reason))

    async def done(self) -> None:
        """The connection is over: stop sending, but for a close that is under way."""
        if not self._over:
            self._task.cancel()
        self._over = True
        await asyncio.wait({self._task}, timeout=LEAVE_S)
        self._task.cancel()

    async def _run(self) -> None:
        try:
            while True:
                frame = await self._queue.get()
                if isinstance(frame, tuple):
                    reason = frame[1].encode()[:123].decode(errors="ignore")  # no half characters
                    await self._ws.close(code=frame[0], message=reason.encode())
                    return
                if isinstance(frame, str):
                    await self._ws.send_str(frame)
                else:
                    await self._ws.send_bytes(frame)
                self._bytes -= len(frame)
        except (ConnectionError, RuntimeError):
            self._over = True
        except Exception:
            log.exception("a frame could not be sent; its client is cut off")
            self.cut()
