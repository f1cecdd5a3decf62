"""A WebSocket of the Omnia facade's that is cut when its client takes a frame for too long, and what a client may send at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

from aiohttp import web

MESSAGE_BYTES = 16 * 1024 * 1024
"""Of a WebSocket message; a larger one closes the connection with 1009."""
WRITE_S = 10.0
"""For a client to take one frame."""


class Socket(web.WebSocketResponse):
    """All that is sent raises `ConnectionError`, too."""

    def __init__(self, request: web.Request) -> None:
        # One byte more: the library refuses what is as long as its limit.
        super().__init__(autoping=False, max_msg_size=MESSAGE_BYTES + 1, compress=False)
        self._transport = request.transport

    async def send_str(self, data: str, compress: int | None = None) -> None:
        """A text frame."""
        await self._in_time(super().send_str(data, compress))

    async def send_bytes(self, data: Any, compress: int | None = None) -> None:
        """A binary frame."""
        await self._in_time(super().send_bytes(data, compress))

    async def ping(self, message: Any = b"") -> None:
        """A ping."""
        await self._in_time(super().ping(message))

    async def pong(self, message: Any = b"") -> None:
        """A pong: who only pings and reads nothing is cut as well."""
        await self._in_time(super().pong(message))

    async def _in_time(self, sending: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(WRITE_S):
                await sending
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()
            raise ConnectionAbortedError from None


class Bucket:
    """So many a second, and so many at once: a token bucket."""

    def __init__(self, per_second: float, at_once: float) -> None:
        self._rate = per_second
        self._most = at_once
        self._left = float(at_once)
        self._then = time.monotonic()

    def admit(self, amount: float = 1.0) -> bool:
        """Take so much; False: there is not enough left, and nothing is taken."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._then) * self._rate)
        self._then = now
        if amount > self._left:
            return False
        self._left -= amount
        return True
