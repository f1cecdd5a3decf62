"""A board at a serial port: MicroPython's unix port with a littlefs for its flash, behind a pseudo-terminal.

A relay stands between port and MicroPython. It does what the ESP32 port does and the unix port does not: a soft reset (Ctrl-D) starts
afresh, without main.py when the prompt is the raw one; and it can be unplugged.
"""

import contextlib
import os
import pty
import select
import subprocess
import sys
import termios
import threading
import tty
from pathlib import Path

import littlefs
from vrt_host.sim.firmware import find_runtime

BLOCK = 4096
HERE = Path(__file__).parent
# Becomes the program that is named, with standard input for its terminal: a session has none by itself.
_CONTROLLED = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def new_flash(blocks: int = 256) -> littlefs.LittleFS:
    """An empty file system with the parameters of MicroPython's VfsLfs2."""
    return littlefs.LittleFS(
        block_size=BLOCK, block_count=blocks, read_size=32, prog_size=32, lookahead_size=32, cache_size=128
    )


def mounted(image: bytes) -> littlefs.LittleFS:
    """The file system on a flash with that content."""
    fs = littlefs.LittleFS(
        block_size=BLOCK,
        block_count=len(image) // BLOCK,
        read_size=32,
        prog_size=32,
        lookahead_size=32,
        cache_size=128,
        mount=False,
    )
    fs.context.buffer[:] = image
    fs.mount()
    return fs


def content(fs: littlefs.LittleFS) -> dict[str, bytes]:
    """Every file, by its path without the first slash."""
    made = {}
    for folder, _, names in fs.walk("/"):
        for name in names:
            path = f"{folder.rstrip('/')}/{name}"
            with fs.open(path, "rb") as file:
                made[path.lstrip("/")] = file.read()
    return made


def operations(log: bytes) -> list[tuple[int, bytes]]:
    """What was written to the flash, in order: address, data."""
    made, at = [], 0
    while at < len(log):
        block, offset, n = (int.from_bytes(log[at + i : at + i + 2], "little") for i in (0, 2, 4))
        made.append((block * BLOCK + offset, log[at + 6 : at + 6 + n]))
        at += 6 + n
    return made


class FakeBoard:
    """Use it as a context: the board is switched on, `port` is where it is plugged in."""

    def __init__(self, folder: Path, *, files: dict[str, bytes] | None = None, deaf: bool = False) -> None:
        self.port = str(folder / "ttyBOARD")
        self.image = folder / "flash"
        self.log = folder / "writes"
        self.deaf = deaf
        self.printed = b""
        self.said = threading.Condition()
        if not self.image.exists():
            fs = new_flash()
            for path, data in (files or {}).items():
                if "/" in path:
                    fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                with fs.open(path, "wb") as file:
                    file.write(data)
            self.image.write_bytes(bytes(fs.context.buffer))
        self.log.write_bytes(b"")
        self._runtime = str(find_runtime().path)
        self._wake_in, self._wake = os.pipe()
        self._process: subprocess.Popen[bytes] | None = None
        self._inner = -1
        self._outer, self._slave = pty.openpty()
        tty.setraw(self._slave)
        os.symlink(os.ttyname(self._slave), self.port)
        self._thread = threading.Thread(target=self._relay)

    def __enter__(self) -> "FakeBoard":
        self._start("main")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.unplug()
        self._thread.join()
        self._end()
        for fd in (self._wake, self._wake_in):
            os.close(fd)

    def unplug(self) -> None:
        """The port is gone, and the power with it."""
        with contextlib.suppress(OSError):
            os.unlink(self.port)
        os.write(self._wake, b"x")

    def files(self) -> dict[str, bytes]:
        """What is on the flash now."""
        return content(mounted(self.image.read_bytes()))

    def wait_for(self, text: bytes) -> None:
        """Until the board has printed that."""
        with self.said:
            assert self.said.wait_for(lambda: text in self.printed, 30), self.printed

    def _start(self, how: str) -> None:
        self._inner, slave = pty.openpty()
        tty.setraw(slave)
        mode = termios.tcgetattr(
            slave
        )  # Ctrl-C interrupts, as it does on a board; at its prompt MicroPython takes it for a key
        mode[3] |= termios.ISIG
        mode[6][termios.VQUIT] = mode[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(slave, termios.TCSANOW, mode)
        words = [self._runtime, "-i", HERE / "lfs_board.py", self.image, self.log, how]
        self._process = subprocess.Popen(
            [sys.executable, "-ISc", _CONTROLLED, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            os.close(self._inner)

    def _relay(self) -> None:
        raw = False
        try:
            while True:
                ready, _, _ = select.select([self._wake_in, self._outer, self._inner], [], [])
                if self._wake_in in ready:
                    return
                if self._outer in ready:
                    data = os.read(self._outer, 4096)
                    if self.deaf:
                        continue
                    for byte in data:
                        raw = {1: True, 2: False}.get(byte, raw)
                    os.write(self._inner, data)
                if self._inner in ready:
                    try:
                        data = os.read(self._inner, 4096)
                    except OSError:
                        data = b""
                    text, again, _ = data.partition(b"\x1cagain\x1c")
                    if text:
                        self._forward(text)
                    if again or not data:
                        self._soft_reset(raw and not again)
        finally:
            os.close(self._outer)
            os.close(self._slave)

    def _forward(self, data: bytes) -> None:
        os.write(self._outer, data)
        with self.said:
            self.printed += data
            self.said.notify_all()

    def _soft_reset(self, raw: bool) -> None:
        self._end()
        self._forward(b"MPY: soft reboot\r\n")
        self._start("prompt" if raw else "main")
        if raw:
            seen = b""
            while not seen.endswith(b">>> "):
                seen += os.read(self._inner, 4096)
            os.write(self._inner, b"\x01")
