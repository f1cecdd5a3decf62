"""A WebSocket to a server of OpenAI's, with JSON objects both ways.

The SDK could carry it, but the SDK's realtime part wants an older `websockets` than the host's own server.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from vrt_host.agents.dial import Dial, goodbye
from vrt_host.agents.openai_errors import from_close, from_connect
from vrt_host.agents.provider import ProviderError

_MESSAGE_BYTES = 1 << 24
_CLOSE_S = 2.0
_QUEUED_FRAMES = 500
"""Frames of the user's audio that wait for the connection; then the oldest are dropped."""
_BREATH = 32
"""Messages that are taken in a row before others may run."""

_silent = logging.getLogger(__name__ + ".socket")
_silent.setLevel(logging.WARNING)  # at DEBUG it writes the headers, and the key with them


def address(base_url: str, path: str, query: str = "") -> str:
    """The WebSocket's address below a base URL, which may also be that of the WebSocket itself."""
    parts = urlsplit(base_url)
    scheme = "wss" if parts.scheme in ("https", "wss") else "ws"
    if not parts.path.rstrip("/").endswith(path):
        parts = parts._replace(path=parts.path.rstrip("/") + path)
    return urlunsplit((scheme, parts.netloc, parts.path, query, ""))


def headers(base_url: str, key: str, header: str) -> dict[str, str]:
    """What proves who we are; `header` is `bearer`, `api-key`, or `auto`: what that host wants."""
    if not key:
        return {}
    if header == "auto":
        header = "api-key" if (urlsplit(base_url).hostname or "").endswith(".azure.com") else "bearer"
    return {"api-key": key} if header == "api-key" else {"Authorization": f"Bearer {key}"}


class Link:
    """An open connection. `send` and `send_audio` only queue; control goes out before audio, and old audio is dropped."""

    def __init__(self, socket: ClientConnection, append: str, farewell: Mapping[str, Any] | None) -> None:
        """`append` is the type of the message that carries audio; `farewell` is sent before it is closed."""
        self._socket = socket
        self._append = append
        self._farewell = farewell
        self._control: deque[Mapping[str, Any]] = deque()
        self._audio: deque[bytes] = deque(maxlen=_QUEUED_FRAMES)
        self._news = asyncio.Event()
        self._writer = asyncio.create_task(self._write())

    @classmethod
    async def open(
        cls,
        url: str,
        head: Mapping[str, str],
        append: str,
        timeout_s: float,
        farewell: Mapping[str, Any] | None = None,
    ) -> Link:
        """Connect; raises `ProviderError`."""
        try:
            socket = await Dial(
                url,
                additional_headers=head,
                open_timeout=timeout_s,
                close_timeout=_CLOSE_S,
                max_size=_MESSAGE_BYTES,
                logger=_silent,
            )
        except (OSError, WebSocketException, ValueError, EOFError) as error:
            raise from_connect(error, timeout_s) from None
        return cls(socket, append, farewell)

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message."""
        self._control.append(message)
        self._news.set()

    def send_audio(self, payload: bytes) -> None:
        """Queue a piece of the user's audio."""
        self._audio.append(payload)
        self._news.set()

    async def events(self) -> AsyncIterator[Mapping[str, Any] | ProviderError]:
        """Each message, or a `ProviderError` in its place if it is no JSON object; raises one when the connection has ended."""
        count = 0
        try:
            while True:
                yield _parsed(await self._socket.recv())
                count += 1
                if count % _BREATH == 0:
                    await asyncio.sleep(0)
        except ConnectionClosed as error:
            raise from_close(error) from None

    async def close(self) -> None:
        """Close it."""
        self._writer.cancel()
        await asyncio.gather(self._writer, return_exceptions=True)
        if self._farewell is not None:
            with contextlib.suppress(ConnectionClosed, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._socket.send(json.dumps(self._farewell))
        await goodbye(self._socket, _CLOSE_S)

    async def _write(self) -> None:
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._control or self._audio:
                    if self._control:
                        message = self._control.popleft()
                    else:
                        audio = base64.b64encode(self._audio.popleft()).decode("ascii")
                        message = {"type": self._append, "audio": audio}
                    await self._socket.send(json.dumps(message, ensure_ascii=False, separators=(",", ":")))
        except ConnectionClosed:
            pass  # `events` tells


def _parsed(data: str | bytes) -> Mapping[str, Any] | ProviderError:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return ProviderError("malformed", "an event that is not JSON")
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        return ProviderError("malformed", "an event without a type")
    return message
