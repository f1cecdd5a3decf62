"""One connection to a server under test: frames as they are given, valid or not; every wait has a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from vrt_host.conformance.checks import Unmet, shown
from vrt_host.conformance.run import Pace
from vrt_host.conformance.watch import LineEye
from vrt_host.protocol.wire import Message

MANY_FRAMES, MOST_FRAMES = 2_000, 50_000
"""Of a server's on one connection: more, and far more, than a scenario asks for."""
PING_S = 1.0
"""How often a connection on which nothing else is sent sends a ping."""


@dataclass(frozen=True, slots=True)
class Audio:
    """A frame of output audio."""

    seq: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Closed:
    """How a connection ended; 1006: without a close frame."""

    code: int
    reason: str

    def __str__(self) -> str:
        return f"close {self.code} ({self.reason})" if self.reason else f"close {self.code}"


Frame = Message | Audio


class Line:
    """One connection. `frames` is all that came, in order."""

    def __init__(self, socket: ClientConnection, pace: Pace, eye: LineEye) -> None:
        self.frames: list[Frame] = []
        self.closed: Closed | None = None
        self.heard: Callable[[Message], None] = lambda message: None
        """Told of each message."""
        self._socket = socket
        self._pace = pace
        self._eye = eye
        self._at = 0
        self._pings = self._pongs = 0
        self._news = asyncio.Event()
        self._tasks = [asyncio.create_task(self._read())]

    # --- sending

    async def send(self, message: Message) -> None:
        """A message as a client may send it."""
        self._eye.sent(message)
        if message["type"] == "ping":
            self._pings += 1
        await self._write(json.dumps(message, ensure_ascii=False, separators=(",", ":")))

    async def text(self, frame: str | bytes | Iterable[str]) -> None:
        """A text frame as it is given: bytes that may be no UTF-8, or fragments."""
        self._eye.sent_raw()
        await self._write(frame, text=True)

    async def audio(self, seq: int, payload: bytes) -> None:
        """A frame of input audio."""
        await self._write(b"\x01" + seq.to_bytes(4, "big") + payload)

    async def binary(self, frame: bytes) -> None:
        """A binary frame as it is given."""
        await self._write(frame)

    def keep_alive(self) -> None:
        """Send a ping now and then, from now on."""
        self._tasks.append(asyncio.create_task(self._ping()))

    async def close(self, code: int = 1000) -> None:
        """Close it in good order."""
        await self._socket.close(code)
        await self._end()

    def cut(self) -> None:
        """Lose it: no close frame, as when the network goes."""
        self._socket.transport.abort()

    def pause(self, paused: bool) -> None:
        """Read nothing for a while, so that not even WebSocket's own pings are answered."""
        if paused:
            self._socket.transport.pause_reading()
        else:
            self._socket.transport.resume_reading()

    # --- waiting

    async def frame(self, within: float | None = None) -> Frame:
        """The next frame."""
        frame = await self._find(lambda frame: True, within)
        if frame is None:
            raise Unmet(f"nothing came {self._meanwhile(self._at, within)}")
        return frame

    async def until(self, *types: str, within: float | None = None, **members: Any) -> Message:
        """The next message of one of the types and with these members; others are passed over."""
        began = self._at

        def wanted(frame: Frame) -> bool:
            return not isinstance(frame, Audio) and frame["type"] in types and _has(frame, members)

        frame = await self._find(wanted, within)
        if not isinstance(frame, dict):
            what = " or ".join(types) + (f" with {shown(members)}" if members else "")
            raise Unmet(f"no {what} {self._meanwhile(began, within)}")
        return frame

    async def outcome(self, *types: str, within: float | None = None) -> Message | Closed:
        """The next message of one of the types, or else the end of the connection."""
        try:
            return await self.until(*types, within=within)
        except Unmet:
            if self.closed is None:
                raise
            return self.closed

    async def until_audio(self, count: int = 1, within: float | None = None) -> list[Audio]:
        """The next frames of audio, passing over messages."""
        found: list[Audio] = []
        began = self._at
        while len(found) < count:
            frame = await self._find(lambda frame: isinstance(frame, Audio), within)
            if not isinstance(frame, Audio):
                raise Unmet(f"{len(found)} of {count} audio frames {self._meanwhile(began, within)}")
            found.append(frame)
        return found

    async def until_closed(self, within: float | None = None) -> Closed:
        """Its end."""
        began = self._at
        await self._find(lambda frame: False, within)
        if self.closed is None:
            raise Unmet(f"the connection was not closed {self._meanwhile(began, within)}")
        return self.closed

    async def sync(self, within: float | None = None) -> bool:
        """Wait until the server has read everything that was sent: a ping, and its pong. True, or it raises."""
        await self.send({"v": 1, "seq": 0, "type": "ping"})
        wanted, at = self._pings, self._at
        deadline = self._deadline(within)
        while self._pongs < wanted and self.closed is None and await self._wait(deadline):
            pass
        if self._pongs < wanted:
            raise Unmet(f"no pong {self._meanwhile(at, within)}")
        return True

    def seen(self, *types: str, since: int = 0, **members: Any) -> list[Message]:
        """What came of these types since a place in `frames`."""
        frames = (frame for frame in self.frames[since:] if isinstance(frame, dict))
        return [frame for frame in frames if frame["type"] in types and _has(frame, members)]

    def sound(self, since: int = 0) -> list[Audio]:
        """The frames of audio that came since a place in `frames`."""
        return [frame for frame in self.frames[since:] if isinstance(frame, Audio)]

    @property
    def place(self) -> int:
        """Where `frames` ends now, for `seen`."""
        return len(self.frames)

    def rewind(self, place: int) -> None:
        """Wait also for what came since a place in `frames`."""
        self._at = place

    def skip(self) -> int:
        """Wait from here on only for what has not come yet; returns the place."""
        self._at = len(self.frames)
        return self._at

    # --- inside

    async def _write(self, frame: Any, *, text: bool | None = None) -> None:
        with contextlib.suppress(ConnectionClosed):  # what comes of it is seen by what is received
            await self._socket.send(frame, text=text)

    async def _find(self, wanted: Callable[[Frame], bool], within: float | None) -> Frame | None:
        deadline = self._deadline(within)
        over = False
        while True:
            while self._at < len(self.frames):
                frame = self.frames[self._at]
                self._at += 1
                if wanted(frame):
                    return frame
            if over or self.closed is not None:
                return None
            over = not await self._wait(deadline)

    def _deadline(self, within: float | None) -> float:
        return asyncio.get_running_loop().time() + self._seconds(within)

    async def _wait(self, deadline: float) -> bool:
        """Wait for something new; False: the time is over."""
        self._news.clear()
        try:
            async with asyncio.timeout_at(deadline):
                await self._news.wait()
        except TimeoutError:
            await asyncio.sleep(0)  # on a busy machine it may lie here, not yet read
            return False
        return True

    def _seconds(self, within: float | None) -> float:
        return self._pace.s(self._pace.answer_s if within is None else within)

    def _meanwhile(self, began: int, within: float | None) -> str:
        how = f"before {self.closed}" if self.closed is not None else f"within {self._seconds(within):g} s"
        came = [_brief(frame) for frame in self.frames[began:] if not _is_pong(frame)]
        if len(came) > 5:
            came = [f"... {len(came) - 5} others", *came[-5:]]
        return f"{how}; came: {'; '.join(came) or 'nothing'}"

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for frame in self._socket:
                self._take(frame)
                if len(self.frames) > MOST_FRAMES:
                    self.cut()
                    break
                if len(self.frames) > MANY_FRAMES:
                    await asyncio.sleep(0)  # a flood does not keep the suite from seeing the time go by
        code, reason = self._socket.close_code, self._socket.close_reason
        if len(self.frames) > MOST_FRAMES:
            code, reason = None, f"cut off by the suite, after {MOST_FRAMES:,} frames"
        self.closed = Closed(1006 if code is None else code, reason or "")
        self._news.set()

    def _take(self, frame: str | bytes) -> None:
        if isinstance(frame, bytes):
            self._eye.binary(frame)
            self.frames.append(Audio(int.from_bytes(frame[1:5], "big"), frame[5:]))
        else:
            message = self._eye.text(frame)
            if message is None:
                message = {"v": 0, "seq": 0, "type": "(invalid)", "text": frame}
            if message["type"] == "pong":
                self._pongs += 1
            self.frames.append(message)
            self.heard(message)
        self._news.set()

    async def _ping(self) -> None:
        while self.closed is None:
            await asyncio.sleep(PING_S)
            await self.send({"v": 1, "seq": 0, "type": "ping"})

    async def _end(self) -> None:
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _has(message: Message, members: Message) -> bool:
    return all(name in message and message[name] == value for name, value in members.items())


def _is_pong(frame: Frame) -> bool:
    """Most pings only keep the connection alive."""
    return not isinstance(frame, Audio) and frame["type"] == "pong"


def _brief(frame: Frame) -> str:
    return f"audio {frame.seq}" if isinstance(frame, Audio) else shown(frame)[:120]
