"""The WebSocket under the suite's server (RFC 6455): every frame as it comes, and frames as no library would write them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import CLOSED, OPEN
from websockets.server import ServerProtocol

from vrt_host.conformance.server import Connection, Ear

_KINDS: Final = {Opcode.TEXT: "text", Opcode.BINARY: "binary", Opcode.PING: "ping", Opcode.PONG: "pong"}
_OPCODES: Final = {"text": Opcode.TEXT, "binary": Opcode.BINARY}
_NO_CLOSE: Final = 1006
_quiet = logging.getLogger(f"{__name__}.library")
_quiet.setLevel(logging.CRITICAL)


class WebSocketLink(asyncio.Protocol):
    """One client's WebSocket, a `server.Link`. Pings are answered, until it is told to be `dead`."""

    def __init__(self, listener: WebSocketListener) -> None:
        self._listener = listener
        self._protocol = ServerProtocol(max_size=2**24, logger=_quiet)
        self._parts: list[bytes] = []
        self._kind = ""
        self._held: list[bytes] | None = None
        """What waits for the end of a message that comes byte by byte."""
        self.ear: Ear = lambda kind, data: None
        self.target = ""
        """The path and query that the client asked for."""
        self.dead = False
        """While true, nothing is sent any more, not even answers of the transport's own."""

    # --- what the server says

    def text(self, data: bytes) -> None:
        """One text frame, valid UTF-8 or not."""
        self.frame("text", data)

    def binary(self, data: bytes) -> None:
        """One binary frame."""
        self.frame("binary", data)

    def close(self, code: int, reason: str = "") -> None:
        """Begin the closing handshake."""
        if self._protocol.state is OPEN:
            self._protocol.send_close(code, reason)
            self._send()

    def cut(self) -> None:
        """End the connection by a reset, as a network does."""
        transport = self._transport
        with contextlib.suppress(OSError, AttributeError):
            linger = struct.pack("ii", 1, 0)
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        transport.abort()

    # --- what only a WebSocket has

    def frame(self, kind: Literal["text", "binary"], data: bytes, sizes: Sequence[int] = ()) -> None:
        """A message in fragments of these sizes and a last one with the rest; without sizes, in one frame."""
        opcode = _OPCODES[kind]
        for size in sizes:
            self._raw(Frame(opcode, data[:size], fin=False))
            data, opcode = data[size:], Opcode.CONT
        self._raw(Frame(opcode, data))

    def ping(self, payload: bytes) -> None:
        """A ping of the WebSocket's own; the answer is heard as `pong`."""
        self._raw(Frame(Opcode.PING, payload))

    def fragment_around_ping(self, data: bytes, payload: bytes) -> None:
        """A text message in two fragments with a ping between them."""
        half = len(data) // 2
        self._raw(Frame(Opcode.TEXT, data[:half], fin=False))
        self.ping(payload)
        self._raw(Frame(Opcode.CONT, data[half:]))

    async def trickle(self, data: bytes, seconds: float) -> None:
        """A text message, byte by byte, each that much after the one before."""
        self._held = []
        for byte in Frame(Opcode.TEXT, data).serialize(mask=False, extensions=[]):
            if not self._transport.is_closing():
                self._transport.write(bytes((byte,)))
            await asyncio.sleep(seconds)
        held, self._held = self._held, None
        for one in held:
            self._write(one)

    def _raw(self, frame: Frame) -> None:
        if self._protocol.state is OPEN:
            self._write(frame.serialize(mask=False, extensions=[]))

    def _write(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
        elif not self.dead and not self._transport.is_closing():
            self._transport.write(data)

    # --- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connects."""
        self._transport: Any = transport
        if not self._listener.admit(self):
            self.cut()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self.target = event.path
                self._protocol.send_response(self._protocol.accept(event))
                self._send()
                if self._protocol.state is OPEN:
                    self._listener.opened(self)
            elif isinstance(event, Frame):
                self._heard(event)
        self._send()

    def eof_received(self) -> None:
        """The client has ended its side."""
        self._protocol.receive_eof()
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        self._listener.gone(self)
        self._protocol.receive_eof()
        fault = self._protocol.parser_exc
        code = self._protocol.close_rcvd.code if self._protocol.close_rcvd else _NO_CLOSE
        reason = "" if fault is None or isinstance(fault, EOFError) else str(fault)
        self.ear("end", code.to_bytes(2, "big") + reason.encode())

    def _heard(self, frame: Frame) -> None:
        opcode, data = frame.opcode, bytes(frame.data)
        if opcode is Opcode.CLOSE:
            self.ear("close", data)
        elif opcode in (Opcode.PING, Opcode.PONG):
            self.ear(_KINDS[opcode], data)  # type: ignore[arg-type]
        else:
            if opcode is not Opcode.CONT:
                self._kind = _KINDS[opcode]
            self._parts.append(data)
            if frame.fin:
                whole = b"".join(self._parts)
                self._parts.clear()
                self.ear(self._kind, whole)  # type: ignore[arg-type]

    def _send(self) -> None:
        """What the library wants to be sent: the handshakes, and answers to pings."""
        for data in self._protocol.data_to_send():
            if data:
                self._write(data)
            elif not self.dead and not self._transport.is_closing():
                self._transport.write_eof()
        if self._protocol.state is CLOSED and not self._transport.is_closing():
            self._transport.close()


class WebSocketListener:
    """A `server.Listener` for WebSockets at `url`. An async context manager; leaving it cuts everything."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._address = (host, port)
        self._waiting: asyncio.Queue[Connection] = asyncio.Queue()
        self._links: set[WebSocketLink] = set()
        """Also those that have not said, or never say, that they are WebSockets."""
        self.attempts: list[float] = []
        self._knocked = asyncio.Event()
        self.refusing = False

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: WebSocketLink(self), *self._address)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for link in tuple(self._links):
            link.cut()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Where a client on this computer connects to."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"ws://{f'[{host}]' if ':' in host else host}:{port}/"

    async def accept(self) -> Connection:
        """The next connection, as soon as it is open."""
        return await self._waiting.get()

    async def knock(self) -> None:
        """Returns at the next attempt."""
        self._knocked.clear()
        await self._knocked.wait()

    # --- for its links

    def admit(self, link: WebSocketLink) -> bool:
        """Whether a client that knocks may come in."""
        self._links.add(link)
        self.attempts.append(asyncio.get_running_loop().time())
        self._knocked.set()
        return not self.refusing

    def gone(self, link: WebSocketLink) -> None:
        """Its connection is over."""
        self._links.discard(link)

    def opened(self, link: WebSocketLink) -> None:
        """A client's opening handshake is done."""
        self._waiting.put_nowait(Connection(link))
