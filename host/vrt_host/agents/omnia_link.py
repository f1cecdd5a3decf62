"""One connection to an Omnia facade: opened, read and closed; every end of it is a `ProviderError`."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Self

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.protocol import State

from vrt_host.agents import omnia_errors as errors
from vrt_host.agents import omnia_frames as frames
from vrt_host.agents import omnia_messages as messages
from vrt_host.agents.base import Json
from vrt_host.agents.dial import GOODBYE_S, Dial, goodbye
from vrt_host.agents.omnia_frames import Frame, FrameError
from vrt_host.agents.omnia_messages import Connected, Failure, Incoming, MediaChunk, Message
from vrt_host.agents.provider import ProviderError

_FRAME_BYTES = messages.MESSAGE_BYTES + (1 << 16)
"""Of one message or frame that comes: what the facade calls its own limit, and what is around it."""


_quiet = logging.getLogger("vrt_host.agents.omnia.websocket")
_quiet.setLevel(logging.INFO)  # below that, headers are logged, and with them the credential


class Link:
    """Use `open`."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._assembly = frames.Assembly()

    @classmethod
    async def open(cls, url: str, credential: str, timeout_s: float) -> tuple[Self, Connected]:
        """Connect and wait for the first message; raises `ProviderError`."""
        headers = {"Authorization": f"Bearer {credential}"} if credential else {}
        try:
            async with asyncio.timeout(timeout_s):
                socket = await Dial(
                    url,
                    additional_headers=headers,
                    compression=None,
                    max_size=_FRAME_BYTES,
                    open_timeout=None,  # it is in `timeout_s`
                    close_timeout=GOODBYE_S,
                    logger=_quiet,
                )
                try:
                    link = cls(socket)
                    return link, await link._greeting()
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
            said = error.strerror or str(error) or "it ended the connection at once"
            raise ProviderError("unreachable", said) from None

    async def _greeting(self) -> Connected:
        first = await self.receive()
        if isinstance(first, Failure):
            raise first.error
        if not isinstance(first, Connected):
            raise ProviderError("version", "its first message is not connected")
        return first

    async def send(self, message: Message) -> None:
        """Send one message."""
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        try:
            await self._socket.send(text, text=True)
        except ConnectionClosed as error:
            raise _ended(error) from None

    async def confirm(self, then: Callable[[], None]) -> None:
        """Call back when the other side has read all that was sent so far: it answers a ping in its order."""
        try:
            pong = await self._socket.ping()
        except ConnectionClosed as error:
            raise _ended(error) from None

        def answered(done: asyncio.Future[float]) -> None:
            if not done.cancelled() and done.exception() is None:
                then()

        asyncio.ensure_future(pong).add_done_callback(answered)

    async def send_frame(self, frame: Frame) -> None:
        """Send one binary frame."""
        try:
            await self._socket.send(frames.encode(frame))
        except ConnectionClosed as error:
            raise _ended(error) from None

    async def receive(self) -> Incoming:
        """The next message; a `ProviderError` of the kind `malformed` may be one message, or the end (`alive`)."""
        while True:
            try:
                data = await self._socket.recv()
            except ConnectionClosed as error:
                raise _ended(error) from None
            if isinstance(data, str):
                return messages.parse(data)
            try:
                whole = self._assembly.feed(frames.decode(data))
            except FrameError as error:
                raise ProviderError(
                    "malformed", f"it sent a binary frame that is not right: {error}"
                ) from None
            if whole is not None:
                return _media(whole)

    @property
    def alive(self) -> bool:
        """Whether it is not at its end."""
        return self._socket.state is State.OPEN

    async def close(self) -> None:
        """Say goodbye, a second at most, also to one that does not read."""
        await goodbye(self._socket, GOODBYE_S)


def _media(frame: Frame) -> MediaChunk:
    """Metadata that makes no sense counts as none."""
    mime_type = frame.metadata.get("mime_type")
    return MediaChunk(
        frame.media_id.rstrip(b"\0").decode("utf-8", "replace"),
        None if frame.flags & frames.CHUNKED else frame.sequence,
        frame.last,
        frame.payload,
        mime_type if isinstance(mime_type, str) and mime_type else "audio/pcm",
        _count(frame.metadata.get("sample_rate")),
        _count(frame.metadata.get("channels")) or 1,
    )


def _count(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _ended(error: ConnectionClosed) -> ProviderError:
    if error.rcvd is None and error.sent is not None and error.sent.code not in (1000, 1011):
        # It was this side that had enough.
        why = error.sent.reason or error.sent.code
        return ProviderError("malformed", f"the connection was given up: {why}")
    code, reason = (1006, "") if error.rcvd is None else (error.rcvd.code, error.rcvd.reason)
    return errors.closed(code, reason)


def _refusal(error: InvalidStatus) -> ProviderError:
    status = error.response.status_code
    if 300 <= status < 400:
        return ProviderError("version", f"it sends elsewhere (HTTP status {status})")
    said = (error.response.body or b"")[:4000].decode("utf-8", "replace").strip()
    try:
        told = json.loads(said)
        said = str(told.get("message") or told.get("error") or "") if isinstance(told, dict) else said
    except ValueError:
        if said.startswith("<"):
            said = ""
    wait = error.response.headers.get("Retry-After", "")
    return errors.refused(status, said, float(wait) if wait.isdecimal() else None)
