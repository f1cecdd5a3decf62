"""The serial port of a simulated board: two terminals and what lies between them.

The board's MicroPython has one of them as its standard input and output, raw before it starts. The other one is what a computer
sees of a board on a cable: `path` leads to it, for `vrt serve --serial PATH` or `mpremote connect PATH`. It stays while the
board is off, as the chip on its USB plug does. What nobody reads is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pty
import select
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from vrt_host.errors import UsageError
from vrt_host.protocol.framing import Decoder

_LOOK_S: Final = 0.05
"""Between looks for somebody who opens the port."""
_KEPT: Final = 64 * 1024
"""Bytes on their way to a side that does not read; what comes then is lost."""
_TAIL: Final = 64
_PROMPT_S: Final = 0.3
"""What comes behind a Ctrl-C waits so long for the prompt at most: MicroPython's unix port throws away what is typed before it."""
_TICK_S: Final = 0.01


class _End:
    """Our end of one terminal, with what waits to be written there."""

    def __init__(self, arrived: Callable[[bytes], None], hung_up: Callable[[], None]) -> None:
        self.fd, self.slave = pty.openpty()
        _make_raw(self.slave)
        os.set_blocking(self.fd, False)
        self._loop = asyncio.get_running_loop()
        self._arrived = arrived
        self._hung_up = hung_up
        self._waiting = bytearray()

    def listen(self) -> None:
        """Read from now on."""
        self._loop.add_reader(self.fd, self.drain)

    def deaf(self) -> None:
        """Neither read nor write."""
        self._loop.remove_reader(self.fd)
        self._loop.remove_writer(self.fd)
        self._waiting.clear()

    def drain(self) -> None:
        """Everything that is there, now."""
        while True:
            try:
                data = os.read(self.fd, _KEPT)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                data = b""
            if not data:
                self.deaf()
                self._hung_up()
                return
            self._arrived(data)

    def write(self, data: bytes) -> None:
        """Send it as the other side takes it."""
        if len(self._waiting) + len(data) <= _KEPT:
            self._waiting += data
        self._flush()

    def _flush(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: os.write(self.fd, self._waiting)]
        except BlockingIOError:
            self._loop.add_writer(self.fd, self._flush)
            return
        except OSError:
            self._waiting.clear()
        self._loop.remove_writer(self.fd)

    def close(self) -> None:
        self.deaf()
        os.close(self.fd)


class Cable:
    """One board's. `printed(data)` is told what the board prints between frames.

    `spoil(way, data)`, when it is set, may change what passes: a line has noise, and bytes get lost.
    """

    def __init__(self, path: Path, printed: Callable[[bytes], None]) -> None:
        """Raises `UsageError` when `path` cannot be made."""
        self.path = path
        self.spoil: Callable[[Literal["up", "down"], bytes], bytes] | None = None
        self.attached = False
        """Somebody has the port open."""
        self._printed = printed
        self._decoder = Decoder()
        self._tail = b""
        self._board = _End(self._from_board, lambda: None)
        self._plug = _End(self._from_host, self._detached)
        self.device = os.ttyname(self._plug.slave)
        os.close(self._plug.slave)  # nobody has it open
        self._look_again: asyncio.TimerHandle | None = None
        self._held: bytearray | None = None
        """What came behind a Ctrl-C."""
        self._holding: asyncio.TimerHandle | None = None
        try:
            if path.is_symlink():
                path.unlink()
            path.symlink_to(self.device)
        except OSError as error:
            self._board.close()
            self._plug.close()
            os.close(self._board.slave)
            raise UsageError(
                f"cannot make {path} the board's serial port: {error.strerror or error}; name a new file"
            ) from None
        self._board.listen()
        self._look()

    @property
    def slave(self) -> int:
        """The board's terminal."""
        return self._board.slave

    @property
    def prompt(self) -> Literal["", "friendly", "raw"]:
        """Which prompt the board printed last, if that is the last it printed."""
        if b"raw REPL; CTRL-B to exit\r\n>" in self._tail:
            return "raw"
        return "friendly" if b">>> " in self._tail else ""

    def drain(self) -> None:
        """Everything that the board has printed."""
        self._board.drain()

    def ended(self) -> None:
        """The board's MicroPython has ended."""
        self.drain()
        if rest := self._decoder.rest():
            self._printed(rest)
        self._decoder = Decoder()
        self._tail = b""
        with contextlib.suppress(OSError):
            termios.tcflush(self.slave, termios.TCIOFLUSH)
        _make_raw(self.slave)

    def type(self, data: bytes) -> None:
        """As if it came over the cable."""
        self._board.write(data)

    def tell(self, data: bytes) -> None:
        """As if the board had said it."""
        if self.attached:
            self._plug.write(data)

    def rebooted(self) -> None:
        """The board's MicroPython starts again, which boards say."""
        self.tell(b"MPY: soft reboot\r\n")

    def close(self) -> None:
        """Unplug it for good."""
        for timer in (self._look_again, self._holding):
            if timer is not None:
                timer.cancel()
        self._board.close()
        os.close(self._board.slave)
        self._plug.close()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _from_board(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_TAIL:]
        for one in self._decoder.feed(data):
            if isinstance(one, bytes):
                self._printed(one)
        self.tell(data if self.spoil is None else self.spoil("up", data))

    def _from_host(self, data: bytes) -> None:
        data = data if self.spoil is None else self.spoil("down", data)
        if self._held is not None:
            self._held += data
            return
        stop = data.find(b"\x03") + 1
        if stop and not self.prompt:
            data, self._held = data[:stop], bytearray(data[stop:])
            self._hold(_PROMPT_S)
        self._board.write(data)

    def _hold(self, left: float) -> None:
        """Wait for the prompt, no longer than `left` seconds."""
        if left > 0 and not self.prompt:
            self._holding = asyncio.get_running_loop().call_later(_TICK_S, self._hold, left - _TICK_S)
            return
        held, self._held = self._held or b"", None
        self._board.write(bytes(held))

    async def prompted(self) -> None:
        """Returns when the board shows its prompt."""
        while not self.prompt:  # noqa: ASYNC110  (whoever prints it wakes nobody)
            await asyncio.sleep(_TICK_S)

    def _look(self) -> None:
        """Whether somebody has opened the port: a terminal tells only of its end."""
        poll = select.poll()
        poll.register(self._plug.fd, select.POLLIN)
        self.attached = not any(what & select.POLLHUP for _, what in poll.poll(0))
        if self.attached:
            self._plug.listen()
        else:
            self._look_again = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _detached(self) -> None:
        self.attached = False
        self._look()


def _make_raw(fd: int) -> None:
    """Bytes pass as they are, and a read that finds none returns."""
    made = termios.tcgetattr(fd)
    made[0] = made[1] = made[3] = 0
    made[2] = termios.CS8 | termios.CREAD | termios.CLOCAL
    made[6][termios.VMIN] = made[6][termios.VTIME] = 0
    termios.tcsetattr(fd, termios.TCSANOW, made)
