"""The process of a simulated board: what it prints, line by line, in order with what it tells by other ways, and its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

MARK = b"\x1e"
"""`boards/sim/board.py` prints it before each of its events, so that what is printed keeps its place among them."""
_LONGEST = 64 * 1024
"""Bytes of a line that are kept."""


class Console(asyncio.SubprocessProtocol):
    """For `loop.subprocess_exec`; `told(line)` is called on the event loop with each line of the standard output.

    Lines behind a mark wait until `passed` is called for it. Where the output is no pipe, whoever reads it calls `printed`;
    `source` lets it read what is there.
    """

    def __init__(self, told: Callable[[str], None], source: Callable[[], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        """The process's exit code, when nothing more can come."""
        self._told = told
        self._source = source
        self._data = b""
        self._telling = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport
        self._reads = os.name != "nt" and self._source is None
        pipe = transport.get_pipe_transport(1)
        if pipe is None:
            return
        assert isinstance(pipe, asyncio.ReadTransport)
        self._pipe = pipe
        if self._reads:  # the transport would tell only in the loop's next round what it has read
            self._pipe.pause_reading()
            self._fd = self._pipe.get_extra_info("pipe").fileno()
            self._loop.add_reader(self._fd, self.drain)

    def drain(self) -> None:
        """Tell every line up to the next mark, now: the event of that mark is next."""
        if self._source is not None:
            self._source()
        while self._reads:
            try:
                data = os.read(self._fd, _LONGEST)
            except BlockingIOError:
                break
            self.pipe_data_received(1, data)
            if not data:
                self._reads = False
                self._loop.remove_reader(self._fd)
                self._pipe.resume_reading()  # it finds the end, and closes

    def passed(self) -> None:
        """The event of the mark has been told: go on behind it."""
        self._data = self._data.replace(MARK, b"", 1)
        self._tell()

    def kill(self) -> None:
        """End it at once."""
        if self._transport.get_returncode() is None:
            self._transport.kill()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.printed(data)

    def printed(self, data: bytes) -> None:
        """More of the output."""
        self._data += data
        self._tell()

    def connection_lost(self, exc: Exception | None) -> None:
        """The process has ended and everything that it wrote was read."""
        self.drain()
        self._data = self._data.replace(MARK, b"")
        if self._data and not self._data.endswith(b"\n"):
            self._data += b"\n"
        self._tell()
        self._transport.close()
        if not self.ended.done():
            self.ended.set_result(self._transport.get_returncode() or 0)

    def _tell(self) -> None:
        """Tell the lines up to the next mark."""
        if self._telling:  # who is told may have made us look again
            return
        self._telling = True
        while True:
            ready, mark, later = self._data.partition(MARK)
            line, whole, rest = ready.partition(b"\n")
            if not whole:
                self._data = line[: _LONGEST + 1] + mark + later
                break
            self._data = rest + mark + later
            long = len(line) > _LONGEST
            self._told("(a line too long to show)" if long else line.decode("utf-8", "replace").rstrip("\r"))
        self._telling = False
