"""A TCP proxy between device and host that breaks the network on command.

`up` is device to host, `down` is host to device. What it passes is never changed, only held, cut or lost with
the connection, as a network would.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Self

Direction = Literal["up", "down"]
Observer = Callable[..., object]

_CHUNK = 4096


class _Lane:
    """One direction of every connection: how it is impaired."""

    def __init__(self) -> None:
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.bytes_per_second = 0.0  # 0: as fast as it comes
        self.piece = 0  # the largest write in bytes; 0: as it comes
        self.bytes = 0


class _Pair:
    """One connection: the device's side and the host's, and the two tasks that carry the bytes."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.writers = (near, far)
        self.pumps: list[asyncio.Task[None]] = []
        self._ended = False

    def end(self, *, reset: bool) -> None:
        """Close both sides; the first call decides how."""
        if self._ended:
            return
        self._ended = True
        for writer in self.writers:
            _end(writer, reset)
        for pump in self.pumps:
            pump.cancel()


class Proxy:
    """Listens on a free loopback port and connects on to (`host`, `port`).

    `observer(event, **fields)` hears `connected`, `cut`, `closed`, `refused`, `stalled` and `flowing`.
    Use as an async context manager; leaving it cuts everything.
    """

    def __init__(self, host: str, port: int, *, observer: Observer | None = None) -> None:
        self._target = (host, port)
        self._observer = observer or (lambda event, **fields: None)
        self._lanes: dict[Direction, _Lane] = {"up": _Lane(), "down": _Lane()}
        self._pairs: set[_Pair] = set()
        self._server: asyncio.Server | None = None
        self.refusing = False
        """While true, new connections are reset at once."""
        self.accepted = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        pumps = [pump for pair in self._pairs for pump in pair.pumps]
        for pair in self._pairs:
            pair.end(reset=True)
        await asyncio.gather(*pumps, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        """Where the device connects to."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._pairs)

    def bytes(self, direction: Direction) -> int:
        """Bytes passed in a direction so far, all connections together."""
        return self._lanes[direction].bytes

    def cut(self, *, reset: bool = True) -> int:
        """End every connection, by RST (what is under way is lost) or by FIN; returns how many there were."""
        count = len(self._pairs)
        if count:
            self._observer("cut", how="reset" if reset else "fin", connections=count)
        for pair in self._pairs:
            pair.end(reset=reset)
        return count

    def stall(self, *directions: Direction) -> None:
        """Pass nothing on, both ways by default; connections stay open and senders run full."""
        for direction in directions or ("up", "down"):
            self._lanes[direction].flowing.clear()
            self._observer("stalled", direction=direction)

    def flow(self, *directions: Direction) -> None:
        """End a stall."""
        for direction in directions or ("up", "down"):
            self._lanes[direction].flowing.set()
            self._observer("flowing", direction=direction)

    def throttle(self, bytes_per_second: float, *directions: Direction) -> None:
        """Pass at most this many bytes a second in each direction; 0 lifts the limit."""
        for direction in directions or ("up", "down"):
            self._lanes[direction].bytes_per_second = bytes_per_second

    def split(self, piece: int, *directions: Direction) -> None:
        """Pass writes of at most `piece` bytes, each a segment of its own; 0 passes them as they come."""
        for direction in directions or ("up", "down"):
            self._lanes[direction].piece = piece

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            self._observer("refused")
            _end(writer, reset=True)
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError as error:
            self._observer("refused", why=str(error))
            _end(writer, reset=True)
            return
        for one in (writer, far_writer):
            one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = _Pair(writer, far_writer)
        pair.pumps = [
            asyncio.create_task(_pump(reader, far_writer, self._lanes["up"])),
            asyncio.create_task(_pump(far_reader, writer, self._lanes["down"])),
        ]
        self._pairs.add(pair)
        self.accepted += 1
        self._observer("connected", number=self.accepted)
        # A direction that fails was reset by its peer: the other side must see a reset too, not an end.
        done, _ = await asyncio.wait(pair.pumps, return_when=asyncio.FIRST_EXCEPTION)
        pair.end(reset=any(pump.cancelled() or pump.exception() for pump in done))
        self._pairs.discard(pair)
        self._observer("closed")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lane: _Lane) -> None:
    """Carry one direction of one connection until its end, then pass the end on."""
    while data := await reader.read(_CHUNK):
        step = lane.piece or len(data)
        for start in range(0, len(data), step):
            await lane.flowing.wait()
            piece = data[start : start + step]
            writer.write(piece)
            await writer.drain()
            lane.bytes += len(piece)
            if lane.bytes_per_second:
                await asyncio.sleep(len(piece) / lane.bytes_per_second)
            elif lane.piece:
                await asyncio.sleep(0)
    if writer.can_write_eof():
        writer.write_eof()


def _end(writer: asyncio.StreamWriter, reset: bool) -> None:
    """Close one socket, by RST when `reset`."""
    transport: Any = writer.transport
    if not reset:
        writer.close()
        return
    with contextlib.suppress(OSError):  # already gone
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
    transport.abort()
