"""WebSocket links of the server (RFC 6455, vRT §2.1): `websockets`' connection, driven without a task per frame.

The library gives messages to a coroutine through a queue. Here each frame goes straight from the transport's callback
to the receiver, and what is answered to all frames of one read leaves in one write: a fraction of the cost, and every
frame counts as a sign of life (vRT §4.4). Small whole binary frames, which is what audio comes in, are taken apart and made
here: the library needs a third of all time for that. Whatever else comes is the library's. asyncio sets TCP_NODELAY itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

from websockets.asyncio.server import ServerConnection
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import CLOSED, OPEN

from vrt_host.links.base import Receiver
from vrt_host.links.pings import Pings

try:
    from websockets.speedups import apply_mask
except ImportError:  # the library was installed without a compiler
    from websockets.utils import apply_mask

quiet = logging.getLogger(f"{__name__}.library")
"""Where the library logs: it reports every stranger's broken handshake as an error with a traceback."""
quiet.setLevel(logging.CRITICAL)

SMALL: Final = 1024
"""Bytes of the largest frame that is not left to the library; 20 ms of 24 kHz pcm16 have 965."""
_FOR_GOOD: Final = 1 << 62
MAX_FRAGMENTS: Final = 1024
MAX_PINGS_UNREAD: Final = 1024
"""Pings of a peer that does not read: the library answers each, and the answers pile up."""
CLOSE_TIMEOUT_S: Final = 2.0
WRITE_LIMIT: Final = 64 * 1024
"""Bytes in the transport above which nothing more is handed to it; the socket's own buffer comes on top."""


class WebSocketLink(ServerConnection):
    """A `links.base.Link`. Frames that come before `attach` wait for it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._receiver: Receiver | None = None
        self._early: list[Frame] = []
        self._parts: list[bytes] = []
        """Of a fragmented message."""
        self._text = False
        self._small = SMALL
        self._rest = b""
        """The beginning of a frame: of its header, or of a small one."""
        self._left = 0
        """Bytes to come of a frame that is the library's."""
        self._failed = False
        self._ended = False
        self._flow = Pings()
        self._pings = 0
        self._asked: bytes | None = None
        """What the ping said that is not answered yet."""
        self._pings_unread = 0
        self._closing: asyncio.Task[None] | None = None

    # --- for the server

    def attach(self, receiver: Receiver) -> None:
        """Who gets the frames, from the first on."""
        self._receiver = receiver
        self._small = min(SMALL, self.protocol.max_message_size or SMALL)
        early, self._early = self._early, []
        for frame in early:
            self._frame(frame)
        self._settle()

    @property
    def peer(self) -> str:
        """Address and port."""
        address = self.remote_address
        return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unknown"

    @property
    def writable(self) -> bool:
        """Whether the transport's buffer has room."""
        return not self.paused

    def write(self, frames: Iterable[str | bytes]) -> None:
        """Send frames in one write; a ping follows when enough audio was among them."""
        protocol = self.protocol
        if protocol.state is not OPEN or self.transport.is_closing():
            return
        writes: list[bytes] = []
        for frame in frames:
            size = len(frame)
            if isinstance(frame, str):
                protocol.send_text(frame.encode())
            elif size <= SMALL:
                writes += (b"\x82%c" % size if size < 126 else b"\x82\x7e" + size.to_bytes(2, "big"), frame)
                continue
            else:
                protocol.send_binary(frame)
            writes += protocol.data_to_send()
        if self._flow.due:
            self._flow.asked()
            self._pings += 1
            self._asked = b"%d" % self._pings
            protocol.send_ping(self._asked)
        writes += protocol.data_to_send()
        if writes:
            self.transport.write(b"".join(writes))

    def admit(self, seconds: float) -> bool:
        """At most one ping's worth of audio follows a ping that is not answered."""
        return self._flow.admit(seconds)

    def end(self, code: int, reason: str) -> None:
        """Start the close handshake; the transport is cut if the peer does not answer in time."""
        if not self._ended:
            self._ended = True
            self._closing = self.loop.create_task(self.close(code, _reason(reason)))

    # --- what the transport calls

    def process_event(self, event: Any) -> None:
        """A frame, or the request of the opening handshake."""
        if self.request is None:
            super().process_event(event)
        elif self._receiver is None:
            self._early.append(event)
        else:
            self._frame(event)

    def data_received(self, data: bytes) -> None:
        """Handle all frames of one read, then answer them together."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        at = 0
        while at < len(data):
            at = self._take(data, at)
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        super().connection_lost(exc)
        self._settle()

    def resume_writing(self) -> None:
        """The transport takes data again."""
        super().resume_writing()
        self._pings_unread = 0
        if self._receiver is not None and not self._ended:
            self._receiver.flush()

    # --- frames

    def _take(self, data: bytes, at: int) -> int:
        """Handle the frame that begins at `at`, or what there is of it; returns where the next one begins."""
        receiver, end = self._receiver, len(data)
        if receiver is None:
            spoke = self.request is not None
            super().data_received(data)
            if spoke or (self.request is not None and data.find(b"\r\n\r\n") != end - 4):
                # A client that did not wait for our answer: the library may be inside a frame.
                self._left = _FOR_GOOD
            return end
        if self.protocol.state is OPEN and not self._failed and not self._ended:
            if not self._left:
                head, size = _measure(data, at)
                begin, after = at + head, at + head + size
                ours = data[at] == 0x82 and head + size <= self._small and not self._parts
                if not head or (ours and after > end):
                    self._rest = data[at:]
                    return end
                if ours:
                    receiver.audio(apply_mask(data[begin:after], data[begin - 4 : begin]))
                    return after
                self._left = head + size
            end = min(end, at + self._left)
            self._left -= end - at
        super().data_received(data[at:end])
        return end

    def _frame(self, frame: Frame) -> None:
        receiver = self._receiver
        assert receiver is not None
        if self._ended or self._failed:
            return
        opcode = frame.opcode
        if opcode is Opcode.BINARY and frame.fin:
            receiver.audio(bytes(frame.data))
        elif opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._fragment(frame, receiver)
        else:
            if opcode is Opcode.PONG and bytes(frame.data) == self._asked:
                self._asked = None
                self._flow.answered()
            elif opcode is Opcode.PING and self.paused:
                self._pings_unread += 1
                if self._pings_unread > MAX_PINGS_UNREAD:
                    self._fail(CloseCode.POLICY_VIOLATION, "the peer does not read")
                    return
            receiver.heard()

    def _fragment(self, frame: Frame, receiver: Receiver) -> None:
        """Put a message together; the library has checked the order of opcodes and the size of the whole."""
        if frame.opcode is not Opcode.CONT:
            self._text = frame.opcode is Opcode.TEXT
        self._parts.append(bytes(frame.data))
        if not frame.fin:
            if len(self._parts) >= MAX_FRAGMENTS:
                self._fail(CloseCode.MESSAGE_TOO_BIG, "too many fragments")
            else:
                receiver.heard()
            return
        data = b"".join(self._parts)
        self._parts.clear()
        if not self._text:
            receiver.audio(data)
            return
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            # It never reaches vRT (decisions 9).
            self._fail(CloseCode.INVALID_DATA, f"{error.reason} at position {error.start}")
            return
        receiver.text(text)

    def _fail(self, code: CloseCode, reason: str) -> None:
        """Close because of what the peer sent; `_settle` does the rest."""
        if self.protocol.state is OPEN:
            self.protocol.fail(code, _reason(reason))
            self.send_data()
        self._failed = True
        self._parts.clear()

    def _settle(self) -> None:
        """After a read: answer, or say that the link is over, as soon as a close frame came or went."""
        if self._receiver is None or self._ended:
            return
        protocol = self.protocol
        if protocol.state is OPEN:
            if self._flow.due:
                self.write(())  # the last ping was answered, and the next one is overdue
            self._receiver.flush()
            return
        if protocol.state is not CLOSED:
            self.end(CloseCode.NORMAL_CLOSURE, "")  # only waits: the close frame has been sent
        self._ended = True
        sent = protocol.close_sent
        self._receiver.lost(too_large=sent is not None and sent.code == CloseCode.MESSAGE_TOO_BIG)


def _measure(data: bytes, at: int) -> tuple[int, int]:
    """Bytes of the header, and of the payload, of the frame that begins at `at`; (0, 0): more must come to know."""
    if len(data) < at + 2:
        return 0, 0
    size = data[at + 1] - 0x80
    if size < 0:  # not masked: the library closes, whatever follows
        return 2, _FOR_GOOD
    if size < 126:
        return 6, size
    extra = 2 if size == 126 else 8
    if len(data) < at + 2 + extra:
        return 0, 0
    return 6 + extra, int.from_bytes(data[at + 2 : at + 2 + extra], "big")


def _reason(text: str) -> str:
    """A reason as a close frame can carry it: at most 123 bytes."""
    return text.encode()[:120].decode(errors="ignore")
