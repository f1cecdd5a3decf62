"""Frames on a serial line (docs/serial.md), and the host's side of a connection over it. No I/O, no clock.

A frame is `kind count payload crc` between delimiters. `Decoder` takes a stream apart; `HostSide` is the host's end of the
line over any number of connections: feed it with `receive_data`, send what `data_to_send` returns.
"""

from __future__ import annotations

import binascii
import json
import re
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

VERSION: Final = 1
DELIMITER: Final = b"\xc0"
ESCAPE: Final = b"\xdb"
ESCAPED: Final = b"\x00\x01\x03\x04\xc0\xdb"
"""Bytes that never stand in a frame: a REPL would take the first four for itself."""
MAX_PAYLOAD: Final = 65_536
"""Bytes; a longer frame is noise."""
LINE: Final = 256
"""Bytes of the text between frames that are handed out as one line."""
WINDOW: Final = 16_384
"""Bytes that the host takes while it does not read: the system keeps them."""
LEAST_WINDOW: Final = 64
NO_CONNECTION: Final = 1006
"""Code of an `X` that answers frames of a connection that the host does not know."""

OPEN, OPENED, TEXT, PART, AUDIO, PING, PONG, CLOSE = b"OYCcAPQX"
KINDS: Final = frozenset(b"OYCcAPQX")

_ONE: Final = {bytes((byte,)): bytes((0xDB, byte ^ 0x20)) for byte in ESCAPED}
_TO_ESCAPE: Final = re.compile(rb"[\x00\x01\x03\x04\xc0\xdb]")
_BARE: Final = re.compile(rb"[\x00\x01\x03\x04]")
_OVERHEAD: Final = 6
_NONCE: Final = re.compile(r"[0-9a-f]{8}")
_REASON: Final = 120
_MARGIN: Final = 16
"""Bytes of a window that are left for a ping, and of half a window that a part of a text leaves for its frame."""
_ANSWERED: Final = 64
"""One in so many frames without a connection is answered."""


class Frame(NamedTuple):
    """One whole frame."""

    kind: int
    number: int
    """Its count."""
    payload: bytes


def encode(kind: int, count: int, payload: bytes = b"") -> bytes:
    """A frame with its delimiters; `count` is taken modulo 256."""
    body = bytes((kind, count & 255)) + payload
    body += binascii.crc32(body).to_bytes(4, "little")
    return DELIMITER + _TO_ESCAPE.sub(lambda match: _ONE[match[0]], body) + DELIMITER


def decode(data: bytes) -> Frame | None:
    """What stands between two delimiters; None when it is no frame."""
    if _BARE.search(data):
        return None
    first, *parts = data.split(ESCAPE)
    made = bytearray(first)
    for part in parts:
        byte = part[0] ^ 0x20 if part else 0xFF
        if byte not in ESCAPED:
            return None
        made.append(byte)
        made += part[1:]
    size = len(made) - _OVERHEAD
    if not 0 <= size <= MAX_PAYLOAD or made[0] not in KINDS:
        return None
    if binascii.crc32(made[:-4]) != int.from_bytes(made[-4:], "little"):
        return None
    return Frame(made[0], made[1], bytes(made[2:-4]))


class Decoder:
    """Takes a stream apart. `noise` counts what stood between two delimiters and was no frame."""

    def __init__(self) -> None:
        self.noise = 0
        self._held = bytearray()
        """What came since the last delimiter, or of a line since its beginning."""
        self._text = False
        """What comes until the next delimiter cannot be a frame."""

    def feed(self, data: bytes) -> list[Frame | bytes]:
        """The frames that have ended, and in between as bytes what is none, in order. Text comes line by line."""
        found: list[Frame | bytes] = []
        *ended, rest = data.split(DELIMITER)
        for part in ended:
            self._take(part, found)
            if self._text or self._held:
                held = bytes(self._held)
                frame = None if self._text else decode(held)
                if frame is None:
                    self.noise += 1
                if frame is not None or held:
                    found.append(frame or held)
                self._held.clear()
                self._text = False
        self._take(rest, found)
        return found

    def rest(self) -> bytes:
        """What came since and is no frame, at the end of the stream."""
        held = bytes(self._held)
        self._held.clear()
        return held

    def _take(self, data: bytes, found: list[Frame | bytes]) -> None:
        held = self._held
        held += data
        if not held:
            return
        if not self._text:
            self._text = held[0] not in KINDS or len(held) > 2 * (MAX_PAYLOAD + _OVERHEAD)
        if self._text:
            while (end := held.find(b"\n") + 1) or len(held) >= LINE:
                end = min(end or LINE, LINE)
                found.append(bytes(held[:end]))
                del held[:end]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened on the line. `data`: of text, audio and noise; of `lost`, the reason."""

    kind: Literal["open", "text", "audio", "heard", "lost", "noise"]
    data: bytes = b""
    code: int = 0
    """Of `lost`: what the device closed with; 1006: it did not."""


class HostSide:
    """The host's end of one line. `max_message`: bytes of a text; a longer one loses the connection, `too_large` is set."""

    def __init__(self, max_message: int) -> None:
        self.refusing = False
        """While true, no connection is opened."""
        self.too_large = False
        self.waits = False
        """A connection was asked for while `refusing`."""
        self._max_message = max_message
        self._decoder = Decoder()
        self._events: list[Event] = []
        self._out: list[bytes] = []
        self._nonce: str | None = None
        """Of the connection; None without one."""
        self._ignored = 0
        """Frames since the last connection; the first is answered, and then one in a while, for an answer may be lost."""
        self._closing = False
        self._reset(LEAST_WINDOW)

    def _reset(self, window: int) -> None:
        self._window = window
        self._received = self._sent = 0
        """Text frames of this connection, each way."""
        self._parts = bytearray()
        self._queue: deque[tuple[int, bytes]] = deque()
        self.asked = 0
        """The number of the ping that is not answered yet."""
        self._number = 0
        self.loose = False
        """A text was sent behind the last ping: that it was lost may show by nothing."""
        self._ahead = self._since = 0
        """Bytes sent up to that ping and not known to be read; and since the last ping."""

    @property
    def noise(self) -> int:
        """How often there was something that is no frame."""
        return self._decoder.noise

    @property
    def open(self) -> bool:
        """Whether there is a connection."""
        return self._nonce is not None and not self._closing

    @property
    def blocked(self) -> bool:
        """Something waits until the device has read what it was sent."""
        return bool(self._queue)

    # --- what comes

    def receive_data(self, data: bytes) -> None:
        """Bytes came; `events` and `data_to_send` follow."""
        for one in self._decoder.feed(data):
            if isinstance(one, bytes):
                self._events.append(Event("noise", one))
            else:
                self._frame(one)

    def receive_eof(self) -> None:
        """The port is gone."""
        if rest := self._decoder.rest():
            self._events.append(Event("noise", rest))
        self._decoder = Decoder()
        self._out.clear()
        self._lose("the port is gone")

    def events(self) -> list[Event]:
        """What has happened since the last call."""
        events, self._events = self._events, []
        return events

    def _frame(self, frame: Frame) -> None:  # noqa: PLR0912  (one branch a kind)
        kind = frame.kind
        if kind == OPEN:
            self._on_open(frame.payload)
        elif kind == OPENED:
            return  # an echo of our own
        elif self._nonce is None:
            if kind != CLOSE:
                if self._ignored % _ANSWERED == 0:
                    self.greet()
                self._ignored += 1
        elif kind == CLOSE:
            self._on_close(frame.payload)
        elif kind == PONG:
            if self.asked and frame.payload == bytes((self.asked,)):
                self.asked = self._ahead = 0
                self._fill()
            self._events.append(Event("heard"))
        elif self._closing:
            return
        elif frame.number != self._received & 255:
            self._fail("a control frame was lost")
        elif kind in (TEXT, PART):
            self._on_text(frame)
        elif kind == AUDIO and not self._parts:
            self._events.append(Event("audio", frame.payload))
        else:
            if kind == PING:
                self._put(PONG, frame.payload[:1])
            self._events.append(Event("heard"))

    def _on_open(self, payload: bytes) -> None:
        try:
            said: Any = json.loads(payload)
            nonce, window = said["nonce"], said["window"]
            good = said["v"] == VERSION and type(window) is int and window >= LEAST_WINDOW
            good = good and isinstance(nonce, str) and _NONCE.fullmatch(nonce) is not None
        except (ValueError, KeyError, TypeError, RecursionError):
            good = False
        if not good:
            self._events.append(Event("noise", b"an opening that is not understood: " + payload[:80]))
            return
        if self.refusing:
            self.waits = True
            return
        if nonce != self._nonce or self._closing:
            self._lose("the device has started again")
            self._reset(window)
            self._nonce, self._closing, self._ignored, self.too_large = nonce, False, 0, False
            self._events.append(Event("open"))
        said = {"v": VERSION, "nonce": nonce, "window": WINDOW}
        self._out.append(encode(OPENED, 0, json.dumps(said, separators=(",", ":")).encode()))

    def _on_close(self, payload: bytes) -> None:
        code = int.from_bytes(payload[:2], "big") if len(payload) > 1 else NO_CONNECTION
        if not self._closing:
            self._out.append(encode(CLOSE, self._sent, payload))
        self._lose(payload[2:].decode("utf-8", "replace"), code)

    def _on_text(self, frame: Frame) -> None:
        self._received += 1
        self._parts += frame.payload
        if len(self._parts) > self._max_message:
            self.too_large = True
            self._fail("the message is too large", 1009)
        elif frame.kind == PART:
            self._events.append(Event("heard"))
        else:
            self._events.append(Event("text", bytes(self._parts)))
            self._parts.clear()

    def _fail(self, reason: str, code: int = NO_CONNECTION) -> None:
        self._out.append(encode(CLOSE, self._sent, _farewell(code, reason)))
        self._ignored = 1
        self._lose(reason)

    def _lose(self, reason: str, code: int = NO_CONNECTION) -> None:
        if self._nonce is not None:
            self._nonce = None
            self._queue.clear()
            self._closing = False
            self._events.append(Event("lost", reason.encode(), code))

    # --- what goes

    def greet(self) -> None:
        """Tell a device that may have a connection that there is none: after the start, and when it speaks on one."""
        self._out.append(encode(CLOSE, 0, _farewell(NO_CONNECTION, "no connection")))

    def send_text(self, data: bytes) -> None:
        """A message, in parts that fit the device's window."""
        if self.open:
            most = max(16, self._window // 2 - _MARGIN)
            while len(data) > most:
                self._queue.append((PART, data[:most]))
                data = data[most:]
            self._queue.append((TEXT, data))
            self._fill()

    def send_audio(self, data: bytes) -> None:
        """One frame of audio."""
        if self.open:
            self._queue.append((AUDIO, data))
            self._fill()

    def ping(self, *, again: bool = False) -> None:
        """Ask whether the device has read what it was sent, unless that is asked already. `again`: then, too."""
        if self._nonce is not None and (again or not self.asked):
            self._number = self.asked = self._number % 255 + 1
            self._put(PING, bytes((self.asked,)))
            self._ahead += self._since
            self._since = 0
            self.loose = False

    def close(self, code: int, reason: str = "") -> None:
        """Close in good order, after what was sent; what the device says until it answers is not heard any more."""
        if self.open:
            self._closing = True
            self._queue.append((CLOSE, _farewell(code, reason)))
            self._fill()

    def cut(self) -> None:
        """The connection is over, without an answer."""
        if self._nonce is not None:
            self._lose("")
            self._ignored = 1
            self.greet()

    def data_to_send(self) -> bytes:
        """Bytes to be written now."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _put(self, kind: int, payload: bytes = b"") -> None:
        frame = encode(kind, self._sent, payload)
        self._since += len(frame)
        self._out.append(frame)

    def _fill(self) -> None:
        """As much of the queue as the device has room for; a ping after half a window."""
        half = self._window // 2
        while self._queue:
            kind, payload = self._queue[0]
            frame = encode(kind, self._sent, payload)
            ahead = self._ahead + self._since
            if ahead and ahead + len(frame) + _MARGIN > self._window:
                self.ping()
                return
            self._queue.popleft()
            if kind in (TEXT, PART):
                self._sent += 1
                self.loose = True
            self._since += len(frame)
            self._out.append(frame)
            if self._since >= half and kind != CLOSE:
                self.ping()


def _farewell(code: int, reason: str) -> bytes:
    """The payload of a close."""
    return code.to_bytes(2, "big") + reason.encode()[:_REASON].decode(errors="ignore").encode()
