"""A serial line under the suite's server (docs/serial.md): the port of a device, and its connections."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

from vrt_host.conformance.checks import NotTestable
from vrt_host.conformance.server import Connection, Ear
from vrt_host.links import serial
from vrt_host.protocol.framing import NO_CONNECTION, Event

_LARGEST: Final = 2**24
_KINDS: Final = {"text": "text", "audio": "binary"}


class SerialLink(serial.SerialLink):
    """One connection, a `server.Link`: frames as they come and as they are given, without a receiver."""

    def __init__(self, port: serial.SerialPort) -> None:
        super().__init__(port)
        self.ear: Ear = lambda kind, data: None

    def text(self, data: bytes) -> None:
        """One text, valid UTF-8 or not."""
        if not self.over:
            self._port.side.send_text(data)
            self._port.send()

    def binary(self, data: bytes) -> None:
        """One frame of audio."""
        if not self.over:
            self._port.side.send_audio(data)
            self._port.send()

    def close(self, code: int, reason: str = "") -> None:
        """Begin to close in good order."""
        self.end(code, reason)

    def cut(self) -> None:
        """End it as a host does that has lost it."""
        if not self.over:
            self.over = True
            self._port.cut_connection()

    def happened(self, event: Event) -> None:
        """Something came."""
        kind = _KINDS.get(event.kind)
        if kind is not None:
            self.ear(kind, event.data)  # type: ignore[arg-type]

    def settled(self) -> None:
        """Nobody waits for it."""

    def lost(self, code: int, *, too_large: bool) -> None:
        """The connection is gone."""
        self.over = True
        if code != NO_CONNECTION:
            self.ear("close", code.to_bytes(2, "big"))
        self.ear("end", code.to_bytes(2, "big"))


class SerialListener:
    """A `server.Listener` for the device at a port, which may come later. An async context manager."""

    def __init__(self, name: str) -> None:
        self.url = f"serial:{name}"
        """As `vrt sim --url` takes it."""
        self._port = _Port(name, self)
        self._waiting: asyncio.Queue[Connection] = asyncio.Queue()
        self._knocked = asyncio.Event()
        self.attempts: list[float] = []
        self.refusing = False

    async def __aenter__(self) -> Self:
        await self._port.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._port.cut_connection()
        await self._port.close()

    async def accept(self) -> Connection:
        """The next connection, as soon as it is open."""
        return await self._waiting.get()

    async def knock(self) -> None:
        """Returns at the next attempt."""
        self._knocked.clear()
        await self._knocked.wait()

    def cut(self) -> int:
        """Cut the connection; returns how many there were."""
        return self._port.cut_connection()

    # --- for the port

    def attempted(self) -> None:
        """A device asks for a connection."""
        self.attempts.append(asyncio.get_running_loop().time())
        self._knocked.set()

    def opened(self, link: serial.SerialLink) -> None:
        """It has one."""
        assert isinstance(link, SerialLink)
        self.attempted()
        self._waiting.put_nowait(Connection(link))


class _Port(serial.SerialPort):
    """The listener's port."""

    def __init__(self, name: str, listener: SerialListener) -> None:
        super().__init__(name, listener.opened, lambda link: None, max_message=_LARGEST, link=SerialLink)
        self._listener = listener

    def data_received(self, data: bytes) -> None:
        side = self.side
        side.refusing = self._listener.refusing
        super().data_received(data)
        if side.waits:
            side.waits = False
            self._listener.attempted()


class SerialWire:
    """What a scenario may do to the line of a `SerialListener`: other than in a network, it can only be cut or refused."""

    def __init__(self, listener: SerialListener) -> None:
        self._listener = listener
        self.url = listener.url

    @property
    def refusing(self) -> bool:
        """While true, no connection is opened."""
        return self._listener.refusing

    @refusing.setter
    def refusing(self, value: bool) -> None:
        self._listener.refusing = value

    def cut(self, *, reset: bool = True) -> int:
        """Cut the connection; returns how many there were."""
        return self._listener.cut()

    def stall(self, *directions: object) -> None:
        """Not testable."""
        raise NotTestable("a serial line cannot be slowed down")

    flow = stall

    def throttle(self, bytes_per_second: float, *directions: object) -> None:
        """Not testable."""
        self.stall()

    def split(self, piece: int, *directions: object) -> None:
        """Not testable."""
        self.stall()
