"""One connection to Gemini Live: opened, set up, and closed; every end of it is a `ProviderError`."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Self
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
)
from websockets.protocol import State

from vrt_host.agents import gemini_messages as messages
from vrt_host.agents.dial import GOODBYE_S, Dial, goodbye
from vrt_host.agents.gemini_messages import Frame
from vrt_host.agents.provider import ProviderError

_MAX_BYTES = 1 << 24
"""Of one message: a reply that comes all at once, more than two minutes of audio."""
_PING_S = 20.0
_PONG_S = 60.0
"""The service has been seen to answer a ping after half a minute; and while nothing is read, no answer is, either."""
_EARLY = 16
"""Messages that may come before the one that the session is ready."""

_quiet = logging.getLogger("vrt_host.agents.gemini.websocket")
_quiet.setLevel(logging.INFO)  # below that, headers are logged, and with them the key


class Link:
    """Use `open`."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    @classmethod
    async def open(
        cls, url: str, headers: Mapping[str, str], first: Sequence[Frame], timeout_s: float
    ) -> tuple[Self, list[messages.Incoming]]:
        """Connect, send the setup, wait for it to be taken, and send the rest of `first`. Returns what came before, too."""
        try:
            async with asyncio.timeout(timeout_s):
                socket = await Dial(
                    url,
                    additional_headers=dict(headers),
                    compression=None,
                    max_size=_MAX_BYTES,
                    ping_interval=_PING_S,
                    ping_timeout=_PONG_S,
                    close_timeout=GOODBYE_S,
                    logger=_quiet,
                )
                try:
                    link = cls(socket)
                    return link, await link._set_up(first)
                except BaseException:
                    socket.transport.abort()
                    raise
        except TimeoutError:
            raise ProviderError("unreachable", f"no answer within {timeout_s:g} s") from None
        except InvalidStatus as error:
            raise _refusal(error) from None
        except (InvalidHandshake, InvalidURI) as error:
            raise ProviderError("version", f"it is no WebSocket server of this kind: {error}") from None
        except OSError as error:
            why = error.strerror or str(error)
            raise ProviderError("unreachable", f"{urlsplit(url).netloc} cannot be reached ({why})") from None

    async def _set_up(self, first: Sequence[Frame]) -> list[messages.Incoming]:
        came: list[messages.Incoming] = []
        try:
            await self.send(first[0])
            while not came or not came[-1].setup_complete:
                message = messages.parse(await self._socket.recv())
                if message.error is not None:
                    raise message.error
                if message.malformed:
                    raise ProviderError("malformed", message.malformed)
                came.append(message)
                if len(came) > _EARLY:
                    raise ProviderError("version", "it sends, but does not say that the session is set up")
            for frame in first[1:]:
                await self.send(frame)
        except ConnectionClosed as error:
            raise _ended(error, ready=bool(came and came[-1].setup_complete)) from None
        return came

    async def send(self, frame: Frame) -> None:
        """Send one message."""
        try:
            await self._socket.send(json.dumps(frame, ensure_ascii=False, separators=(",", ":")))
        except ConnectionClosed as error:
            raise _ended(error, ready=True) from None

    async def receive(self) -> str | bytes:
        """The next message."""
        try:
            return await self._socket.recv()
        except ConnectionClosed as error:
            raise _ended(error, ready=True) from None

    @property
    def alive(self) -> bool:
        """Whether it is not at its end."""
        return self._socket.state is State.OPEN

    async def close(self) -> None:
        """Say goodbye, a second at most."""
        await goodbye(self._socket, GOODBYE_S)


def _ended(error: ConnectionClosed, *, ready: bool) -> ProviderError:
    if error.rcvd is None and error.sent is not None and error.sent.code == 1011:
        return ProviderError("gone", "the connection is dead: nothing answered for a minute")
    if (
        error.rcvd is None and error.sent is not None and error.sent.code != 1000
    ):  # it was this side that had enough
        return ProviderError(
            "malformed", f"the connection was given up: {error.sent.reason or error.sent.code}"
        )
    code, reason = (1006, "") if error.rcvd is None else (error.rcvd.code, error.rcvd.reason)
    return messages.closed(code, reason, ready=ready)


def _refusal(error: InvalidStatus) -> ProviderError:
    status = error.response.status_code
    if 300 <= status < 400:
        return ProviderError("version", f"it sends elsewhere (HTTP status {status})")
    body = (error.response.body or b"")[:4000].decode("utf-8", "replace").strip()
    said = body
    try:
        told = json.loads(body)
        if isinstance(told, list) and told:
            told = told[0]
        said = str(told["error"]["message"])
    except (ValueError, KeyError, TypeError):
        if body.startswith("<"):
            said = ""
    wait = error.response.headers.get("Retry-After", "")
    return messages.refused(status, said, float(wait) if wait.isdecimal() else None)
