"""The prompt of a board, through mpremote's transport: run code there, write files, leave the board running again."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

from vrt_host.device import ports
from vrt_host.errors import UsageError, VrtError

BAUD = 115_200
ANSWER_S = 10.0
"""The longest silence while code runs."""
BUSY_S = 2.0
LISTEN_S = 3.0
"""How long a program may take to end when it is stopped."""
KNOCK_S = 20.0
"""How long Ctrl-C is sent to a board that does not listen: it takes it in its safe-boot window, which a reset opens."""
CHUNK = 1024

_PROMPT = b">>> "


class BoardError(VrtError):
    """Code on the board raised: `kind` is the exception's name."""

    def __init__(self, traceback: str) -> None:
        last = traceback.strip().splitlines()[-1] if traceback.strip() else "an error without words"
        super().__init__(f"the board says: {last}")
        self.kind = last.partition(":")[0].strip()


class Repl:
    """A board whose program is stopped and whose heap is fresh. As a context it starts the program again at the end, unless it shall `stay`."""

    def __init__(self, port: str, *, stay: bool = False, say: Callable[[str], None] = print) -> None:
        """Opens the port and stops the program. Raises UsageError for the port, VrtError when no prompt comes."""
        try:
            from mpremote.transport import (  # type: ignore[import-untyped]  # noqa: PLC0415
                TransportError,
                TransportExecError,
            )
            from mpremote.transport_serial import (  # type: ignore[import-untyped]  # noqa: PLC0415
                SerialTransport,
            )
        except ImportError:
            raise UsageError("mpremote is not installed: pip install 'vrt-edge[device]'") from None
        self.port = port
        self._stay = stay
        self._say = say
        self._error, self._raised = TransportError, TransportExecError
        self._transport: Any = None
        try:
            self._transport = self._opened(SerialTransport)
            self._enter()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Repl:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._stay:
            with contextlib.suppress(VrtError):  # it is gone, which was told
                self.restart()
        self.close()

    def close(self) -> None:
        """Close the port; the board stays at its prompt."""
        if self._transport is not None:
            with contextlib.suppress(Exception):
                if self._transport.in_raw_repl:
                    self._transport.exit_raw_repl()
            with contextlib.suppress(Exception):
                self._transport.close()
            self._transport = None

    def restart(self) -> None:
        """Start the board's program, as after power on (a soft reset), and close the port."""
        with self._wire():
            self._transport.exit_raw_repl()
            self._transport.serial.write(b"\x04")
            self._transport.serial.flush()
            self._transport.in_raw_repl = False
        self.close()

    def run(self, code: str, *, patience_s: float = ANSWER_S) -> str:
        """Run code; what it printed. `patience_s` is the longest silence. Raises BoardError when it raised."""
        with self._wire():
            said, raised = self._transport.exec_raw(code, timeout=patience_s)
        if raised:
            raise BoardError(raised.decode("utf-8", "replace"))
        return str(said.decode("utf-8", "replace"))

    def ask(self, code: str, *, patience_s: float = ANSWER_S) -> Any:
        """Run code whose last line of output is JSON; the value."""
        said = self.run(code, patience_s=patience_s).strip().splitlines()
        try:
            return json.loads(said[-1])
        except (IndexError, ValueError):
            raise VrtError(f"the board at {self.port} did not answer what it was asked") from None

    def write(self, path: str, content: bytes, progress: Callable[[int, int], None] | None = None) -> None:
        """Write a file; `progress` hears bytes done and bytes in all."""
        with self._wire():
            self._transport.fs_writefile(path, content, chunk_size=CHUNK, progress_callback=progress)

    @contextlib.contextmanager
    def _wire(self) -> Iterator[None]:
        """Turns what the transport raises into our errors."""
        if self._transport is None:
            raise ports.Gone(f"the connection to {self.port} is closed")
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # the transport prints what it did not expect
                yield
        except self._raised as error:
            raise BoardError(error.error_output) from None
        except (self._error, OSError, struct.error, IndexError) as error:
            self.close()
            what = "was unplugged" if ports.examine(self.port) else "stopped answering"
            raise ports.Gone(f"the board at {self.port} {what}") from error

    def _opened(self, transport: Callable[..., Any]) -> Any:
        """The transport. Raises UsageError; a port that is in use is tried again: systems look at a new one for a moment."""
        end = time.monotonic() + BUSY_S
        while True:
            try:
                return transport(self.port, baudrate=BAUD, timeout=ANSWER_S)
            except self._error:
                trouble = ports.examine(self.port)
            if (trouble and trouble.kind != "busy") or time.monotonic() > end:
                raise UsageError(trouble.text if trouble else f"{self.port} cannot be opened")
            time.sleep(0.1)

    def _enter(self) -> None:
        """Stop the program and get a fresh heap. A board that does not listen is reset, and caught while it starts."""
        if self._try(LISTEN_S):
            return
        self._say(
            f"the board at {self.port} does not listen: resetting it; if nothing happens, press its RESET"
        )
        self._reset()
        if self._knock() and self._try(ANSWER_S):
            return
        raise VrtError(
            f"no MicroPython prompt at {self.port}: press RESET on the board while this command runs; "
            "a board without MicroPython needs `vrt flash` first"
        )

    def _try(self, patience_s: float) -> bool:
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                self._transport.enter_raw_repl(soft_reset=True, timeout_overall=patience_s)
            except self._error:
                return False
            except OSError as error:
                raise ports.Gone(f"the board at {self.port} was unplugged") from error
        return True

    def _reset(self) -> None:
        """By the lines that serial adapters lead to EN and IO0; native USB and pseudo-terminals have no such thing."""
        with contextlib.suppress(OSError):
            self._transport.serial.dtr = False
            self._transport.serial.rts = True
            time.sleep(0.1)
            self._transport.serial.rts = False

    def _knock(self) -> bool:
        """Send Ctrl-C until there is a prompt."""
        wire = self._transport.serial
        wire.timeout = 0.1
        seen = b""
        end = time.monotonic() + KNOCK_S
        try:
            while time.monotonic() < end:
                wire.write(b"\x03")
                seen = (seen + wire.read(4096))[-64:]
                if seen.endswith(_PROMPT):
                    return True
        except OSError as error:
            raise ports.Gone(f"the board at {self.port} was unplugged") from error
        finally:
            wire.timeout = ANSWER_S
        return False
