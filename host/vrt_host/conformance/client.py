"""A raw vRT client for tests of servers: frames as they are given, valid or not; every wait has a deadline.

`Server` is the server under test, as scenarios see it. `Line` is one connection to it; `Device` is one session,
over any number of connections, as a client would keep it.

    async with server.line() as line:
        await line.text("nonsense")
        error = await line.until("error", code="MALFORMED")
    async with server.session(tools=[ECHO]) as device:
        assert await device.ask("count") == "1"
        device.cut()
        await device.resume()

What is awaited and does not come raises `Unmet`, which says what came instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI, WebSocketException

from vrt_host.conformance.checks import NotTestable, Unmet, shown
from vrt_host.conformance.run import Pace
from vrt_host.conformance.watch import LineEye, Watch
from vrt_host.protocol.wire import Message

CONNECT_S = 10.0
PING_S = 1.0
"""How often a connection on which nothing else is sent sends a ping."""
TRANSIENT = frozenset({"hello", "ack", "ping"})
ECHO: Message = {
    "name": "test.echo",
    "description": "Gives back what it is given.",
    "parameters": {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]},
}
"""The tool that the profile's calls are for."""


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
        while True:
            while self._at < len(self.frames):
                frame = self.frames[self._at]
                self._at += 1
                if wanted(frame):
                    return frame
            if self.closed is not None or not await self._wait(deadline):
                return None

    def _deadline(self, within: float | None) -> float:
        return asyncio.get_running_loop().time() + self._seconds(within)

    async def _wait(self, deadline: float) -> bool:
        """Wait for something new; False: the time is over."""
        self._news.clear()
        try:
            async with asyncio.timeout_at(deadline):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _seconds(self, within: float | None) -> float:
        return self._pace.s(self._pace.answer_s if within is None else within)

    def _meanwhile(self, began: int, within: float | None) -> str:
        if self.closed is not None:
            how = f"before the end ({self.closed.code} {self.closed.reason})".replace(" )", ")")
        else:
            how = f"within {self._seconds(within):g} s"
        came = [_brief(frame) for frame in self.frames[began:] if not _is_pong(frame)]
        if len(came) > 5:
            came = [f"... {len(came) - 5} others", *came[-5:]]
        return f"{how}; came: {'; '.join(came) or 'nothing'}"

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for frame in self._socket:
                self._take(frame)
        code = self._socket.close_code
        self.closed = Closed(1006 if code is None else code, self._socket.close_reason or "")
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


class Device:
    """One session. `line` is its connection; `seq` and `last` are the last numbers sent and handled."""

    def __init__(self, server: Server, hello: Message, pings: bool) -> None:
        self.hello = hello
        self.ready: Message = {}
        self.seq = 0
        self.last = 0
        self.sent: list[Message] = []
        self.turns: set[str] = set()
        self.line: Line
        self._server = server
        self._pings = pings
        self._lines = contextlib.AsyncExitStack()

    async def open(self) -> Message:
        """Connect and say hello; returns `ready`."""
        self.line = await self._connect()
        await self.line.send({"v": 1, "seq": 0, "type": "hello", **self._server.credential, **self.hello})
        answer = await self.line.until("ready", "error")
        if answer["type"] != "ready":
            raise Unmet(f"hello was answered with {shown(answer)}")
        self.ready = answer
        return answer

    async def send(self, type_: str, /, **members: Any) -> Message:
        """The next message of the client stream, or a transient one; returns it."""
        seq = 0
        if type_ not in TRANSIENT:
            self.seq += 1
            seq = self.seq
        message = {"v": 1, "seq": seq, "type": type_, **members}
        if seq:
            self.sent.append(message)
        await self.line.send(message)
        return message

    async def ack(self) -> None:
        """Acknowledge all that came."""
        await self.send("ack", upTo=self.last)

    async def acknowledged(self, within: float | None = None) -> Message:
        """Wait until the server has acknowledged all that was sent; returns the ack."""
        ack: Message = next(reversed(self.line.seen("ack")), {"upTo": 0})
        while ack["upTo"] < self.seq:
            ack = await self.line.until("ack", within=within)
        return ack

    def cut(self) -> None:
        """Lose the connection."""
        self.line.cut()

    async def rejoin(self, *, resend: bool = True, **members: Any) -> Message:
        """Resume on a new connection, whatever became of the old one; returns `ready`, or the error that came.

        `resend`: send again what the server has not handled (§5.4). `members` replace those of the hello.
        """
        self.line = await self._connect()
        hello = {"sessionId": self.ready["sessionId"], "resumeFrom": self.last, **members}
        hello = {name: value for name, value in hello.items() if value is not None}
        await self.line.send({"v": 1, "seq": 0, "type": "hello", **self._server.credential, **hello})
        answer = await self.line.until("ready", "error")
        if resend and "resumedFrom" in answer:
            for message in self.sent:
                if message["seq"] > answer["resumedFrom"]:
                    await self.line.send(message)
        return answer

    async def resume(self, **members: Any) -> Message:
        """The same, where anything but `ready` is a failure."""
        answer = await self.rejoin(**members)
        if answer["type"] != "ready" or "resumedFrom" not in answer:
            raise Unmet(f"the resume was answered with {shown(answer)}")
        return answer

    # --- steering

    async def begin(self, words: str, *needs: str) -> Message:
        """Have the server begin a turn by a text of the profile; returns the turn's first state."""
        self._server.needs(words, *needs)
        before = set(self.turns)
        await self.send("text", text=f"test {words}")
        while True:
            state = await self.line.until("turn.state")
            if state["turnId"] not in before:
                return state

    async def finish(self, turn: Message, within: float | None = None) -> str:
        """Wait for the end of a turn; returns its text."""
        place = self.line.frames.index(turn)
        await self.line.until("turn.state", turnId=turn["turnId"], state="idle", within=within)
        said = self.line.seen("text", since=place)
        return "".join(one["text"] for one in said if one.get("turnId", turn["turnId"]) == turn["turnId"])

    async def ask(self, words: str) -> str:
        """Steer it, and wait for the text of its answer."""
        return await self.finish(await self.begin(words))

    async def ask_json(self, words: str) -> Any:
        """The same, where the text is JSON."""
        text = await self.ask(words)
        try:
            return json.loads(text)
        except ValueError:
            raise Unmet(f"'test {words}' was answered with {shown(text)}, which is not JSON") from None

    async def result(self, call: Message, **members: Any) -> Message:
        """Answer a call: `ok` with what it was given, unless members say otherwise."""
        output = call["arguments"].get("value") if isinstance(call["arguments"], dict) else None
        said = members or {"ok": True, "output": output}
        return await self.send("tool.result", **{"callId": call["callId"], "epoch": call["epoch"], **said})

    # --- inside

    async def _connect(self) -> Line:
        line = await self._lines.enter_async_context(self._server.line())
        line.heard = self._heard
        if self._pings:
            line.keep_alive()
        return line

    def _heard(self, message: Message) -> None:
        self.last = max(self.last, message["seq"])
        if message["type"] == "turn.state":
            self.turns.add(message["turnId"])

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._lines.aclose()


@dataclass(frozen=True)
class Server:
    """The server under test. `profile`: the steering texts that it knows."""

    url: str
    pace: Pace
    watch: Watch
    token: str | None = None
    other_token: str | None = None
    """The credential of another principal."""
    tls: ssl.SSLContext | None = None
    patience_s: float = 15.0
    """How long a rule about a time may take; longer ones are not testable."""
    profile: frozenset[str] = frozenset()

    @property
    def credential(self) -> Message:
        """The members of a hello that authenticate (§5.3)."""
        return {} if self.token is None else {"auth": {"token": self.token}}

    def needs(self, *words: str) -> None:
        """Raises `NotTestable` unless the server knows these texts."""
        missing = [word for word in words if word not in self.profile]
        if missing:
            raise NotTestable(f"the server's profile has no {', '.join(repr(word) for word in missing)}")

    def steered_by(self, profile: frozenset[str]) -> Server:
        """The same server, whose profile is known."""
        return replace(self, profile=profile)

    @contextlib.asynccontextmanager
    async def line(self) -> AsyncIterator[Line]:
        """A connection that has said nothing yet."""
        try:
            socket = await self.connect()
        except (OSError, WebSocketException) as error:
            raise Unmet(f"no connection: {why(error)}") from None
        line = Line(socket, self.pace, self.watch.line())
        try:
            yield line
        finally:
            await line.close()

    def session(self, *, pings: bool = True, **hello: Any) -> Device:
        """A new session, to be used as a context manager. `pings`: it keeps itself alive."""
        return Device(self, hello, pings)

    async def connect(self) -> ClientConnection:
        """A WebSocket."""
        return await connect(
            self.url,
            ssl=self.tls,
            compression=None,
            ping_interval=None,
            max_size=None,
            max_queue=None,
            open_timeout=self.pace.s(CONNECT_S),
            close_timeout=self.pace.s(1.0),
        )


def why(error: Exception) -> str:
    """What a connection failed of, in one line."""
    if isinstance(error, InvalidHandshake):
        return f"it does not take a WebSocket ({error})"
    if isinstance(error, InvalidURI):
        return "it is not an address of the form ws://HOST:PORT or wss://HOST:PORT"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(text.split())


def _has(message: Message, members: Message) -> bool:
    return all(name in message and message[name] == value for name, value in members.items())


def _is_pong(frame: Frame) -> bool:
    """Most pings only keep the connection alive."""
    return not isinstance(frame, Audio) and frame["type"] == "pong"


def _brief(frame: Frame) -> str:
    return f"audio {frame.seq}" if isinstance(frame, Audio) else shown(frame)[:120]
