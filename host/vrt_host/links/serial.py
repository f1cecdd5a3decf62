"""Serial links of the server (docs/serial.md): a port, and the connections that its board opens over it, one at a time.

A port that is not there, or goes away, is looked for again for as long as the server runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from serial_asyncio_fast import create_serial_connection

from vrt_host.errors import UsageError
from vrt_host.links.base import Receiver
from vrt_host.links.pings import Pings
from vrt_host.protocol.framing import Event, HostSide
from vrt_host.runner import printable

log = logging.getLogger(__name__)

BAUD: Final = 921_600
CLOSE_TIMEOUT_S: Final = 2.0
ASK_AGAIN_S: Final = 1.0
"""For the answer to a ping, which may be lost, before another is sent."""
PROBE_S: Final = 0.5
"""After a message until a ping shows whether it came: a board that has lost one ends the connection, and resumes."""
LOOK_S: Final = 0.25
"""Between looks for a port that is not there: at first, and doubled with each."""
LONGEST_LOOK_S: Final = 2.0
BROKEN_S: Final = 10.0
"""A board that does not answer pings for so long while it is asked is gone."""
WRITE_LIMIT: Final = 4096
"""Bytes in the transport above which nothing more is handed to it."""
LINES_LOGGED: Final = 200
"""Lines of a board's console in the log, for each connection; the rest is left out."""
logging.getLogger("asyncio").addFilter(
    # A port that is pulled out is no error of this program, as the library thinks, but an event that is told here.
    lambda record: "on serial transport" not in str(record.msg) + str(record.args)
)


class SerialLink:
    """A `links.base.Link`: one connection of a board."""

    def __init__(self, port: SerialPort) -> None:
        self._port = port
        self._receiver: Receiver | None = None
        self._flow = Pings()
        self.code = 1006
        """What the board closed with, once it has."""
        self.over = False
        """Nothing more is sent or told."""

    def attach(self, receiver: Receiver) -> None:
        """Who gets the frames."""
        self._receiver = receiver

    @property
    def peer(self) -> str:
        """The port's name."""
        return self._port.name

    @property
    def writable(self) -> bool:
        """Whether the board, and the transport, take data."""
        return not self.over and self._port.writable

    def write(self, frames: Iterable[str | bytes]) -> None:
        """Send frames; a ping follows when enough audio was among them."""
        if self.over:
            return
        side = self._port.side
        for frame in frames:
            if isinstance(frame, str):
                side.send_text(frame.encode("utf-8", "surrogatepass"))
            else:
                side.send_audio(frame)
        self._port.send()

    def admit(self, seconds: float) -> bool:
        """At most one ping's worth of audio follows a ping that is not answered."""
        return self._flow.admit(seconds)

    def end(self, code: int, reason: str) -> None:
        """Close it; the port forgets it when the board does not answer in time."""
        if not self.over:
            self.over = True
            self._port.close_connection(code, reason)

    # --- for the port

    def ask(self, side: HostSide) -> None:
        """Send the ping that is due, unless one of the framing's own is on its way, which knows less."""
        if side.asked == 0:
            self._flow.answered()
        if self._flow.due and not side.asked:
            side.ping()
            self._flow.asked()

    def happened(self, event: Event) -> None:
        """Something came."""
        receiver = self._receiver
        if receiver is None or self.over:
            return
        if event.kind == "audio":
            receiver.audio(event.data)
        elif event.kind == "text":
            try:
                text = event.data.decode()
            except UnicodeDecodeError as error:  # it never reaches vRT (decisions 9)
                self._port.close_connection(1007, f"{error.reason} at position {error.start}")
                self.lost(1007, too_large=False)
            else:
                receiver.text(text)
        else:
            receiver.heard()

    def settled(self) -> None:
        """Everything that came together was told, or the board takes data again."""
        if self._receiver is not None and not self.over:
            self._receiver.flush()

    def lost(self, code: int, *, too_large: bool) -> None:
        """The connection is gone."""
        if self._receiver is not None and not self.over:
            self.over = True
            self.code = code
            self._receiver.lost(too_large=too_large)


class SerialPort(asyncio.Protocol):
    """One port. `opened(link)` attaches a receiver to each new connection; `gone(link)` hears of the end of each.

    `name` is what pyserial opens: a device, or `hwgrep://` and a pattern.
    """

    def __init__(
        self,
        name: str,
        opened: Callable[[SerialLink], object],
        gone: Callable[[SerialLink], object],
        *,
        max_message: int,
        link: Callable[[SerialPort], SerialLink] = SerialLink,
    ) -> None:
        self.name = name
        self.side = HostSide(max_message)
        self._opened = opened
        self._gone = gone
        self._make = link
        self._max_message = max_message
        self._transport: Any = None
        self._link: SerialLink | None = None
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._probe: asyncio.TimerHandle | None = None
        self._unanswered = 0
        self._lines = 0
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin. Raises `UsageError` for a port that is there and cannot be used; one that is not there is waited for."""
        await self._connect()
        if self._transport is None:
            log.info("%s: waiting for this port; it is not there yet", self.name)
        self._task = asyncio.create_task(self._keep_open())

    async def close(self) -> None:
        """End, after what was sent last has left."""
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._lost.wait()

    async def _keep_open(self) -> None:
        while True:
            if self._transport is not None:
                await self._lost.wait()
                log.info("%s: the port is gone; waiting for it", self.name)
            wait = LOOK_S
            told = ""
            while self._transport is None:
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_LOOK_S)
                try:
                    await self._connect()
                except UsageError as error:
                    if told != str(error):
                        told = str(error)
                        log.warning("%s", error)
            log.info("%s: the port is there", self.name)

    async def _connect(self) -> None:
        """Open the port if it is there. Raises `UsageError` when it cannot be used."""
        self._lost.clear()
        try:
            await create_serial_connection(
                asyncio.get_running_loop(), lambda: self, self.name, baudrate=BAUD, exclusive=True
            )
            await asyncio.sleep(0)  # for connection_made
        except (OSError, ValueError) as error:  # what pyserial raises
            if not _missing(error):
                raise UsageError(_why_not(self.name, error)) from None

    # --- for its connection

    @property
    def writable(self) -> bool:
        """Whether the board, and the transport, take data."""
        return self._transport is not None and not self._paused and not self.side.blocked

    def send(self) -> None:
        """What there is to send."""
        if self._link is not None and not self._link.over:
            self._link.ask(self.side)
        data = self.side.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)
        if self.side.asked and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ASK_AGAIN_S, self._ask_again, self.side.asked)

        if self.side.loose and self._probe is None:
            self._probe = asyncio.get_running_loop().call_later(PROBE_S, self._ask)

    def close_connection(self, code: int, reason: str) -> None:
        """The server ends the connection."""
        self.side.close(code, reason)
        self.send()
        asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, self._forget, self._link)

    def cut_connection(self) -> int:
        """The connection, if there is one, is no more; returns how many there were."""
        had = self.side.open
        self.side.cut()
        self._settle()
        return int(had)

    def _ask(self) -> None:
        """A message was sent a while ago."""
        self._probe = None
        if self.side.loose:
            self.side.ping(again=True)
            self.send()

    def _ask_again(self, number: int) -> None:
        """A ping was not answered in time."""
        self._timer = None
        if not self.side.asked:
            return
        if self.side.asked == number:
            self._unanswered += 1
            if self._unanswered * ASK_AGAIN_S >= BROKEN_S:
                self._unanswered = 0
                self.side.cut()
                self._settle()
                return
            self.side.ping(again=True)
        self.send()

    def _forget(self, link: SerialLink | None) -> None:
        """The board has not answered a close."""
        if link is not None and self._link is link:
            self.side.cut()
            self._settle()

    # --- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The port is open. A board with a connection from before hears that it has none."""
        self._transport = transport
        self._paused = False
        self._transport.set_write_buffer_limits(high=WRITE_LIMIT)
        self.side = HostSide(self._max_message)
        self.side.greet()
        self.send()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._unanswered = 0
        self.side.receive_data(data)
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        """The port is gone, or we closed it."""
        self._transport = None
        for timer in (self._timer, self._probe):
            if timer is not None:
                timer.cancel()
        self._timer = self._probe = None
        self.side.receive_eof()
        self._settle()
        self._lost.set()

    def pause_writing(self) -> None:
        """The transport has enough."""
        self._paused = True

    def resume_writing(self) -> None:
        """It takes data again."""
        self._paused = False
        if self._link is not None:
            self._link.settled()

    def _settle(self) -> None:
        """Tell what happened, then send."""
        for event in self.side.events():
            if event.kind == "noise":
                self._log(event.data)
            elif event.kind == "open":
                self._lines = 0
                self._link = self._make(self)
                self._opened(self._link)
            elif self._link is not None:
                if event.kind == "lost":
                    self._end(event)
                else:
                    self._link.happened(event)
        self.send()
        if self._link is not None:
            self._link.settled()

    def _end(self, event: Event) -> None:
        link, self._link = self._link, None
        assert link is not None
        reason = printable(event.data.decode("utf-8", "replace"), 120)
        log.debug("%s: connection over, code %d (%s)", self.name, event.code, reason)
        link.lost(event.code, too_large=self.side.too_large)
        self._gone(link)

    def _log(self, data: bytes) -> None:
        """What a board prints between frames is worth a look, as far as it is text and does not fill the log."""
        text = printable(data.decode("utf-8", "replace").strip(), 200)
        if text and self._lines < LINES_LOGGED:
            self._lines += 1
            log.debug("%s: %s", self.name, text)


def _missing(error: Exception) -> bool:
    number = getattr(error, "errno", None)
    return number in (errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.EIO) or "no ports found" in str(error)


def _why_not(name: str, error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number in (errno.EACCES, errno.EPERM):
        return (
            f"{name} may not be opened by this user: on Linux, `sudo usermod -aG dialout $USER` and log in again "
            "(the group is `uucp` on some systems)"
        )
    if number in (errno.EBUSY, errno.EAGAIN) or "exclusively lock" in str(error):
        return f"{name} is in use: close the program that has it open, such as a terminal, mpremote or another host"
    if "configure port" in str(error) or number in (errno.ENOTTY, errno.EISDIR, errno.EINVAL):
        return f"{name} is no serial port: give the board's, such as /dev/ttyUSB0 or /dev/ttyACM0"
    return f"{name} cannot be opened: {getattr(error, 'strerror', None) or error}"
