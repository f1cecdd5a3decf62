"""One connection to an AITP server: opened with its handshake, and closed; every end of it is an `AitpError`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import Self

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.protocol import State

from vrt_host.agents import aitp_messages as messages
from vrt_host.agents.aitp_messages import AitpError, Frame, HandshakeAck, Message, SystemEvent
from vrt_host.agents.dial import GOODBYE_S, Dial, goodbye

log = logging.getLogger(__name__)

HANDSHAKE_S = 5.0
"""From the opening of the connection to HANDSHAKE_ACK (HANDSHAKE_TIMEOUT_MS)."""
_MAX_BYTES = 1 << 24
"""Of one message: a whole answer as a recording."""
_PER_SECOND = 80
"""Messages that are sent in a second: a server counts 100 in each of its own."""
_SESSION_CHARS = 1_000
"""Of a session's name; a longer one is not repeated in each message, which need not have it."""
_CERTIFICATE = "check the address, or name the file of its authority in SSL_CERT_FILE"
_EARLY = 16
"""Messages before the HANDSHAKE_ACK that are kept."""

_quiet = logging.getLogger("vrt_host.agents.aitp.websocket")
_quiet.setLevel(logging.INFO)  # below that, headers are logged, and with them the key


class Link:
    """Use `open`."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._sent: deque[float] = deque(maxlen=_PER_SECOND)
        self.session = ""
        """The server's name for it."""
        self._fault = ""
        """What was wrong with a message of the handshake."""

    @classmethod
    async def open(
        cls, url: str, headers: Mapping[str, str], first: Frame, timeout_s: float
    ) -> tuple[Self, HandshakeAck, list[Message]]:
        """Connect and shake hands. Returns what came before the acknowledgement, too."""
        try:
            socket = await Dial(
                url,
                additional_headers=dict(headers),
                compression=None,
                max_size=_MAX_BYTES,
                open_timeout=timeout_s,
                ping_interval=30,
                ping_timeout=30,
                close_timeout=GOODBYE_S,
                logger=_quiet,
            )
        except TimeoutError:
            raise AitpError("unreachable", f"no answer within {timeout_s:g} s") from None
        except InvalidStatus as error:
            raise messages.refused(error.response.status_code) from None
        except (InvalidHandshake, InvalidURI) as error:
            raise AitpError("version", f"it is no AITP server: {error}", final=True) from None
        except ssl.SSLCertVerificationError as error:
            said = f"its certificate is not trusted: {error.verify_message}"
            raise AitpError("unreachable", said, advice=_CERTIFICATE) from None
        except ConnectionRefusedError:
            raise AitpError("unreachable", "nobody listens there") from None
        except OSError as error:
            raise AitpError("unreachable", error.strerror or str(error)) from None
        link = cls(socket)
        try:
            ack, came = await link._shake_hands(first)
        except BaseException:
            with contextlib.suppress(Exception):
                await socket.close()
            raise
        link.session = ack.session_id if len(ack.session_id) <= _SESSION_CHARS else ""
        return link, ack, came

    async def _shake_hands(self, first: Frame) -> tuple[HandshakeAck, list[Message]]:
        """HANDSHAKE_INIT at once; a server may acknowledge before it has that."""
        came: deque[Message] = deque(maxlen=_EARLY)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await self.send(first)
                while not isinstance(message := await self._next(), HandshakeAck):
                    if message is not None:
                        came.append(message)
        except TimeoutError:
            await self._socket.close(4000, "Handshake timeout")
            said = f"no handshake within {HANDSHAKE_S:g} s"
            if self._fault:
                raise AitpError("malformed", f"{said}, but {self._fault}") from None
            raise AitpError("unreachable", said) from None
        except ConnectionClosed as error:
            told = [one.message for one in came if isinstance(one, SystemEvent) and one.kind == "error"]
            raise _ended(error, told[-1] if told else "") from None
        if message.protocol_version != messages.VERSION:
            await self._socket.close(1008, "Protocol version mismatch")
            said = f"the server speaks AITP {message.protocol_version[:40]}, this host {messages.VERSION}"
            raise AitpError("version", said, final=True)
        return message, list(came)

    async def _next(self) -> Message | None:
        """The next message of the handshake; what is not valid does not end the wait for it."""
        try:
            return messages.parse(await self._socket.recv())
        except AitpError as error:
            self._fault = error.said
            return None

    async def send(self, frame: Frame) -> None:
        """Send one message, as soon as the server's limit of messages allows it."""
        loop = asyncio.get_running_loop()
        if len(self._sent) == _PER_SECOND:
            await asyncio.sleep(self._sent[0] + 1.0 - loop.time())
        self._sent.append(loop.time())
        try:
            await self._socket.send(json.dumps(frame, ensure_ascii=False, separators=(",", ":")))
        except ConnectionClosed as error:
            raise _ended(error) from None

    async def confirmed(self, arrived: Callable[[], object]) -> None:
        """Ask for a sign that all that was sent has arrived: `arrived()` is called when it comes, and never if it does not."""
        with contextlib.suppress(ConnectionClosed):
            pong = asyncio.ensure_future(await self._socket.ping())
            pong.add_done_callback(
                lambda done: None if done.cancelled() or done.exception() is not None else arrived()
            )

    async def receive(self) -> str | bytes:
        """The next message."""
        try:
            return await self._socket.recv()
        except ConnectionClosed as error:
            raise _ended(error) from None

    @property
    def alive(self) -> bool:
        """Whether it is not at its end."""
        return self._socket.state is State.OPEN

    async def close(self) -> None:
        """Say goodbye, a second at most."""
        await goodbye(self._socket, GOODBYE_S, 1000, "Client disconnect")


def _ended(error: ConnectionClosed, said: str = "") -> AitpError:
    if error.rcvd is None and error.sent is not None and error.sent.code not in (1000, 4000):
        return AitpError("gone", f"the connection was given up: {error.sent.reason or error.sent.code}")
    code, reason = (1006, "") if error.rcvd is None else (error.rcvd.code, error.rcvd.reason)
    return messages.closed(code, reason, said)
