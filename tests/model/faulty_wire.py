"""The network between device and host: byte streams that delay, stall, break at any byte and end late or never.

A `Line` is one connection: two `Pipe`s, with a `DeviceLink` at one end and a `HostLink` at the other. What was written
arrives in order after the latency, up to the cut; then the reader learns of the end, or never does (a half-open link).
"""

import json
from collections import deque
from dataclasses import dataclass, field

from vrt import links

HEADER = 4  # bytes of a frame on the wire besides its payload
DEVICE_BYTES = 4096  # that wait for the network before the device's link takes no more
HOST_BYTES = 65536
AUDIO_UNREAD = 20  # frames after which the host's link admits no more (decisions 11)
CLOSE_MS = 2000  # how long either side waits for the answer to its close


@dataclass(frozen=True)
class Close:
    """A close frame; as what `Pipe.take` gives, also the end of a stream that was cut (1006)."""

    code: int


CUT = Close(1006)


def kind(frame):
    """The type of a control message, None for anything else."""
    try:
        message = json.loads(frame) if isinstance(frame, str) else None
    except ValueError:
        return None
    return message.get("type") if isinstance(message, dict) else None


def octets(frame):
    if isinstance(frame, Close):
        return HEADER
    return HEADER + (len(frame.encode()) if isinstance(frame, str) else len(frame))


@dataclass
class Pipe:
    wire: "Wire"
    packets: deque = field(default_factory=deque)  # (when it arrives, frame)
    waiting: int = 0  # bytes of them
    audio: int = 0  # frames of audio among them
    written: list = field(default_factory=list)  # every sequenced frame, for late copies
    held_until: int = 0  # nothing arrives before
    deaf: bool = False  # acknowledgements are lost
    broken: bool = False  # what is written goes nowhere
    ends_at: int | None = None  # when the reader learns that it is broken; None: never

    def write(self, frame):
        if self.broken:
            return
        sort = kind(frame)
        if self.deaf and sort == "ack":
            return
        if sort not in (None, "hello", "ready", "audio.start", "ack", "ping", "pong"):
            self.written.append(frame)
        self._put(frame, self.wire.latency_ms)

    def repeat(self, age):
        """A late copy of what was written `age` messages ago."""
        if not self.broken and len(self.written) >= age:
            self._put(self.written[-age], 0)

    def hold(self, ms):
        self.held_until = self.wire.now + ms

    def cut(self, kept, ms):
        """The next `kept` bytes still arrive, as far as they are whole frames; the end after `ms`, None: never."""
        if self.broken:
            return
        while self.waiting > kept:
            self._count(self.packets.pop()[1], -1)
        self.broken = True
        self.ends_at = None if ms is None else self.wire.now + ms

    @property
    def held(self):
        return self.wire.now < self.held_until

    def arrived(self):
        """The frames that the reader could take now."""
        return [] if self.held else [frame for due, frame in self.packets if due <= self.wire.now]

    def take(self):
        """The next frame; `CUT` at the end; None: nothing has come."""
        if self.held:
            return None
        if self.packets:
            if self.packets[0][0] > self.wire.now:
                return None
            frame = self.packets.popleft()[1]
            self._count(frame, -1)
            return frame
        return CUT if self.ends_at is not None and self.wire.now >= self.ends_at else None

    def _put(self, frame, latency_ms):
        self.packets.append((self.wire.now + latency_ms, frame))
        self._count(frame, 1)

    def _count(self, frame, sign):
        self.waiting += sign * octets(frame)
        self.audio += sign * isinstance(frame, bytes)


class Line:
    def __init__(self, wire):
        self.up = Pipe(wire)
        self.down = Pipe(wire)
        self.greeted = self.ready = False  # the device said hello, and was handed `ready`
        self.open = False  # the host has sent `ready`
        self.resent = []  # the epochs closed by what the host sent together with `ready`

    @property
    def well(self):
        return not (self.up.broken or self.down.broken)


class Wire:
    """Where devices connect. `accept(line)` tells the host of a new connection."""

    def __init__(self):
        self.now = 0  # ms
        self.latency_ms = 10
        self.deaf = False  # the host's acknowledgements are lost on every line
        self.reachable_at = 0
        self.accept = lambda line: None
        self.line = Line(self)  # the newest one

    def connect(self):
        if self.now < self.reachable_at:
            return None
        self.line = Line(self)
        self.line.down.deaf = self.deaf
        self.accept(self.line)
        return self.line

    def heal(self):
        """Nothing stalls; a line that has lost acknowledgements is cut, for only a resume can make up for them."""
        self.reachable_at = 0
        self.latency_ms = 10
        self.deaf = False
        up, down = self.line.up, self.line.down
        for pipe in (up, down):
            pipe.held_until = 0
            if up.deaf or down.deaf:
                pipe.cut(0, 0)


class DeviceLink:
    """The verbs of the firmware's links."""

    def __init__(self, wire):
        self.wire = wire
        self.rx = bytearray(DEVICE_BYTES)
        self.n = 0
        self.line = None
        self.sock = None
        self.last_rx = self.dropped = self.close_code = 0
        self.close_reason = ""
        self.acked_at = 0  # when an acknowledgement was sent
        self._event = links.NONE  # what the next poll tells
        self._closed_at = None  # when we closed

    def open(self, now):
        self.last_rx = now
        self._closed_at = None
        self.line = self.wire.connect()
        self._event = links.OPEN
        if self.line is None:
            self._end("refused", 1006)
            self._event = links.CLOSED

    def poll(self, now):
        event, self._event = self._event, links.NONE
        while not event and self.line is not None:
            frame = self.line.down.take()
            if frame is None:
                if self._closed_at is not None and self.wire.now - self._closed_at >= CLOSE_MS:
                    event = self._end("timeout", 1006)
                break
            if isinstance(frame, Close):
                self.line.up.write(frame)
                event = self._end("eof" if frame is CUT else "closed", frame.code)
            elif self._closed_at is None:
                data = frame if isinstance(frame, bytes) else frame.encode()
                self.last_rx = now
                self.n = len(data)
                self.rx[: self.n] = data
                self.line.ready = self.line.ready or kind(frame) == "ready"
                event = links.AUDIO if isinstance(frame, bytes) else links.TEXT
        return event

    def unread(self):
        return self.line is not None and bool(self.line.down.arrived())

    @property
    def writable(self):
        return self.line is not None and self._closed_at is None and self.line.up.waiting < DEVICE_BYTES

    def send_text(self, buf, n):
        return self._send(bytes(buf[:n]).decode())

    def send_audio(self, buf, n):
        return self._send(bytes(buf[:n]))

    def close(self, code):
        if self.line is not None and self._closed_at is None:
            self.line.up.write(Close(code))
            self._closed_at = self.wire.now

    def _send(self, frame):
        if self.writable:
            # §5.1: before `ready` nothing but hello, once and first, and pings.
            assert self.line.ready or kind(frame) == ("ping" if self.line.greeted else "hello"), frame
            self.line.greeted = True
            if kind(frame) == "ack":
                self.acked_at = self.wire.now
            self.line.up.write(frame)
            return True
        return False

    def _end(self, reason, code):
        self.line = None
        self.close_code = code
        self.close_reason = reason
        return links.CLOSED


class HostLink:
    """A `vrt_host.links.base.Link`. `receiver` is its seat; `over`: nothing is left of it."""

    peer = "model"

    def __init__(self, line):
        self.line = line
        self.receiver = None
        self.over = False
        self._refused = False  # the host was told to wait
        self._ended_at = None

    @property
    def writable(self):
        self._refused = self._refused or self.line.down.waiting >= HOST_BYTES
        return self.line.down.waiting < HOST_BYTES

    def admit(self, seconds):
        self._refused = self.line.down.audio >= AUDIO_UNREAD
        return not self._refused

    def write(self, frames):
        frames = list(frames)
        messages = [json.loads(frame) for frame in frames if isinstance(frame, str)]
        resumes = any(message["type"] == "ready" for message in messages)
        for message in messages:
            self.line.open = self.line.open or message["type"] == "ready"
            assert self.line.open or not message["seq"], "the host sends before it is ready"
            if resumes and message["type"] == "interrupted":
                self.line.resent.append(message["epoch"])
        for frame in frames:
            self.line.down.write(frame)

    def end(self, code, reason):
        if self._ended_at is None:
            self._ended_at = self.line.down.wire.now
            self.line.down.write(Close(code))

    def deliver(self):
        """Gives the seat what has arrived."""
        up, seat = self.line.up, self.receiver
        ended = self._ended_at is not None and up.wire.now - self._ended_at >= CLOSE_MS
        heard = False
        while not ended and (frame := up.take()) is not None:
            heard = True
            if isinstance(frame, Close):
                ended = True
                if self._ended_at is None:
                    self._ended_at = up.wire.now
                    seat.lost(too_large=False)
                    self.line.down.write(frame)
            elif self._ended_at is None:
                (seat.audio if isinstance(frame, bytes) else seat.text)(frame)
        if ended:
            self.over = True
        elif self._ended_at is None and (heard or (self._refused and self.admit(0) and self.writable)):
            seat.flush()
