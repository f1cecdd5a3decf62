"""A raw vRT server, to test clients with: it says what it is told, frame by frame, also what no server may say.

    async with WebSocketListener() as listener:            websocket.py; or another `Listener`
        connection = await listener.accept()               the next connection
        hello = await connection.message("hello", 5)       others are passed over; raises `Unmet` after 5 s
        connection.say("ready", sessionId="s1", input={"encoding": "pcmu"}, output={"encoding": "pcmu"})
        connection.text('{"v":1')                          a frame as it stands
        connection.audio(b"...", seq=0)
        connection.close(4408); connection.cut()           with and without a word
        connection.frames, connection.heard("text")        everything so far, both ways, with its time

        session = Session("s1")                            the numbered streams, over any number of connections:
        session.open(connection, input=..., output=...)    `ready`; from here on it answers pings, and acknowledges
        session.say("turn.state", turnId="t", epoch=1, state="thinking")
        call = session.call("light", {"state": "on"})
        result = await session.result(call, 5)
        session.resume(other, hello)                       `ready` with resumedFrom, and what `hello` says was missed

A `Connection` does nothing by itself. A `Session` plays a right server, and scenarios break one thing of it on purpose:
`acks` and `pongs` switch its answers off, `say` takes any seq, and everything may be said on the connection besides.
Every wait takes seconds and raises `Unmet`, which names what came instead. Nothing here judges what the client sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from vrt_host.conformance.checks import Unmet, shown
from vrt_host.protocol.audio import OUTPUT, encode

Message = dict[str, Any]
Kind = Literal["text", "binary", "ping", "pong", "close", "end"]
"""Of a frame: a control message, audio, the transport's own signs of life, its closing frame, and its end."""
Ear = Callable[[Kind, bytes], None]
"""Hears each frame. `ping`, `pong`: the payload. `close`: the code and the reason, as RFC 6455 has them, or nothing. `end`:
the code that the client closed with (1006: none), and what it did wrong on the transport, if that ended it."""

FRAME_MS: Final = 20
PCMU: Final[Message] = {"encoding": "pcmu", "sampleRate": 8000}
PCM16: Final[Message] = {"encoding": "pcm16", "sampleRate": 24000}
MOST_FRAMES = 1_000_000
"""On one connection, both ways: some hours of a conversation, or a client that floods."""
_SHOWN: Final = 12
"""Frames that an `Unmet` names."""


class Link(Protocol):
    """One connection's transport: what the server says on it. Nothing is sent once it is closing."""

    ear: Ear

    def text(self, data: bytes) -> None:
        """A control frame, whatever its bytes are."""

    def binary(self, data: bytes) -> None:
        """An audio frame, whatever its bytes are."""

    def close(self, code: int, reason: str = "") -> None:
        """Begin to close in good order."""

    def cut(self) -> None:
        """End it without a word."""


class Listener(Protocol):
    """Where clients connect to."""

    attempts: list[float]
    """When a client tried to connect, on the event loop's clock."""
    refusing: bool
    """While true, nobody gets in."""

    async def accept(self) -> Connection:
        """The next connection, as soon as it is open."""

    async def knock(self) -> None:
        """Returns at the next attempt."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a connection."""

    t: float
    """On the event loop's clock."""
    sent: bool
    """By this server."""
    kind: Kind
    data: bytes
    message: Message | None
    """Of a text frame that is a JSON object, valid or not."""

    def __str__(self) -> str:
        if self.kind == "end":
            return f"end {int.from_bytes(self.data[:2], 'big')} {self.data[2:].decode()}".rstrip()
        return (
            self.data.decode("utf-8", "replace") if self.kind == "text" else f"{self.kind} {shown(self.data)}"
        )


class Connection:
    """One connection of a client."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.frames: list[Frame] = []
        self.observers: list[Callable[[Frame], None]] = []
        """Called with each frame, after it was noted."""
        self.audio_seq = itertools.count()
        self.ended = False
        self._read = 0
        """Frames before this one have been waited for."""
        self._news = asyncio.Event()
        link.ear = self._hear

    # --- what the server says

    def say(self, type_: str, /, *, seq: int = 0, **members: Any) -> None:
        """A control message; what a schema requires of it is the caller's business."""
        self.text(json.dumps({"v": 1, "seq": seq, "type": type_, **members}, ensure_ascii=False))

    def text(self, frame: str | bytes, write: Callable[[bytes], None] | None = None) -> None:
        """A text frame as it stands. `write` brings it onto the link in another way than at once."""
        data = frame.encode("utf-8", "surrogatepass") if isinstance(frame, str) else frame
        self._note(True, "text", data)
        (write or self.link.text)(data)

    def binary(self, frame: bytes) -> None:
        """A binary frame as it stands."""
        self._note(True, "binary", frame)
        self.link.binary(frame)

    def audio(self, payload: bytes, seq: int | None = None) -> None:
        """A frame of output audio; without a seq it gets the next one."""
        self.binary(encode(OUTPUT, next(self.audio_seq) if seq is None else seq, payload))

    def refuse(self, code: str, close: int = 0, *, recoverable: bool = False, seq: int = 0) -> None:
        """An error, and the close that follows it, if there is one."""
        self.say("error", seq=seq, code=code, recoverable=recoverable, message=f"{code}, said by a test")
        if close:
            self.close(close)

    def close(self, code: int, reason: str = "") -> None:
        """Close it in good order."""
        self.link.close(code, reason)

    def cut(self) -> None:
        """End it as a network does."""
        self.link.cut()

    # --- what the client says

    def heard(self, *types: str) -> list[Message]:
        """The client's messages so far, of these types or of any."""
        found = (frame.message for frame in self.frames if not frame.sent)
        return [message for message in found if message and (not types or message.get("type") in types)]

    def audio_heard(self) -> list[Frame]:
        """The client's binary frames so far."""
        return [frame for frame in self.frames if frame.kind == "binary" and not frame.sent]

    async def frame(self, wanted: Callable[[Frame], bool], within: float, what: str) -> Frame:
        """The next frame of the client's that is wanted; others are passed over."""
        async with _patience(within, self, what):
            while True:
                while self._read < len(self.frames):
                    frame = self.frames[self._read]
                    self._read += 1
                    if not frame.sent and wanted(frame):
                        return frame
                await self.news(what)

    async def message(self, type_: str, within: float, **members: Any) -> Message:
        """The next message of a type, with these members."""

        def wanted(frame: Frame) -> bool:
            message = frame.message
            return (
                message is not None
                and message.get("type") == type_
                and all(name in message and message[name] == value for name, value in members.items())
            )

        message = (await self.frame(wanted, within, f"{type_} {members or ''}".rstrip())).message
        assert message is not None
        return message

    async def until(self, reached: Callable[[], bool], within: float, what: str) -> None:
        """Wait until something holds; it is looked at after every frame."""
        async with _patience(within, self, what):
            while not reached():
                await self.news(what)

    async def end(self, within: float) -> int:
        """Wait until the connection is over; returns the code that the client closed it with, 1006 if none."""
        async with _patience(within, self, "the end of the connection"):
            while not self.ended:
                await self.news("")
        return int.from_bytes(self.frames[-1].data[:2], "big")

    async def news(self, what: str) -> None:
        """Wait for the next frame, whichever; `Unmet` when there can be none."""
        if len(self.frames) > MOST_FRAMES:
            raise Unmet(
                f"the client was cut off before {what}: more than {MOST_FRAMES:,} frames on a connection"
            )
        if self.ended:
            raise Unmet(f"the client closed the connection before {what}; {self.told()}")
        self._news.clear()
        await self._news.wait()

    def told(self) -> str:
        """What the client said last."""
        heard = [frame for frame in self.frames if not frame.sent and frame.kind != "binary"]
        said = [shown(str(frame) if frame.message is None else frame.message) for frame in heard]
        return "it said " + ("; ".join(said[-_SHOWN:]) or "nothing")

    def _hear(self, kind: Kind, data: bytes) -> None:
        self.ended = self.ended or kind == "end"
        self._note(False, kind, data)
        self._news.set()
        if len(self.frames) > MOST_FRAMES:
            self.link.cut()

    def _note(self, sent: bool, kind: Kind, data: bytes) -> None:
        message = None
        if kind == "text":
            with contextlib.suppress(ValueError, RecursionError):
                message = json.loads(data)
        frame = Frame(
            asyncio.get_running_loop().time(),
            sent,
            kind,
            data,
            message if isinstance(message, dict) else None,
        )
        self.frames.append(frame)
        for observer in self.observers:
            observer(frame)


class Session:
    """A right server's side of one session, over its connections. It numbers, keeps, acknowledges and answers pings."""

    def __init__(self, id_: str, *, input_: Message = PCMU, output: Message = PCMU) -> None:
        self.id = id_
        self.formats: Message = {"input": input_, "output": output}
        self.capabilities: list[str] | None = None
        self.connection: Connection | None = None
        self.hello: Message = {}
        """The one that opened it."""
        self.acks = True
        """Whether the client's messages are acknowledged."""
        self.pongs = True
        """Whether its pings are answered."""
        self.kept: list[Message] = []
        """Every numbered message that was said, for resumes."""
        self.received: list[Message] = []
        """The client's numbered messages, without those that came again."""
        self.last = 0
        """The highest seq of the client's."""
        self.acked = 0
        """The highest seq of ours that the client acknowledged."""
        self.epoch = 0
        self._seen: set[int] = set()
        self._prefix = f"call-{secrets.token_hex(4)}"
        self._calls = itertools.count(1)

    # --- connections

    def open(self, connection: Connection, hello: Message, **ready: Any) -> None:
        """Say `ready` for a new session, and bind it to the connection. `ready`: further or other members."""
        self.hello = hello
        self.bind(connection)
        connection.say("ready", **{**self._ready(), **ready})

    def resume(self, connection: Connection, hello: Message, **ready: Any) -> None:
        """Bind it to a new connection: `ready`, and all that came after the hello's `resumeFrom`."""
        self.bind(connection)
        connection.say("ready", **{**self._ready(), "resumedFrom": self.last, **ready})
        for message in self.kept:
            if message["seq"] > resume_from(hello):
                connection.text(_json(message))

    def bind(self, connection: Connection) -> None:
        """Listen to the client on this connection, from now on."""
        if self.connection is not None and self._heard in self.connection.observers:
            self.connection.observers.remove(self._heard)
        self.connection = connection
        connection.observers.append(self._heard)

    def _ready(self) -> Message:
        made: Message = {"sessionId": self.id, **self.formats}
        return made if self.capabilities is None else {**made, "capabilities": self.capabilities}

    def _heard(self, frame: Frame) -> None:
        message, connection = frame.message, self.connection
        if frame.sent or message is None or connection is None:
            return
        kind, seq = message.get("type"), message.get("seq")
        if kind == "ping" and self.pongs:
            connection.say("pong")
        elif kind == "ack" and isinstance(message.get("upTo"), int):
            self.acked = max(self.acked, message["upTo"])
        elif isinstance(seq, int) and seq > 0:
            self.last = max(self.last, seq)
            if seq not in self._seen:
                self._seen.add(seq)
                self.received.append(message)
            if self.acks:
                connection.say("ack", upTo=self.last)

    # --- what the server says

    @property
    def seq(self) -> int:
        """The last one given out."""
        return int(self.kept[-1]["seq"]) if self.kept else 0

    def number(self, type_: str, /, *, seq: int | None = None, **members: Any) -> Message:
        """A numbered message, kept for resumes and not said."""
        message = {"v": 1, "seq": self.seq + 1 if seq is None else seq, "type": type_, **members}
        self.kept.append(message)
        return message

    def say(self, type_: str, /, *, seq: int | None = None, **members: Any) -> Message:
        """A numbered message; without a seq it gets the next one."""
        message = self.number(type_, seq=seq, **members)
        self.again(message)
        return message

    def again(self, message: Mapping[str, Any]) -> None:
        """Say a message as it is, whether or not it was said before."""
        assert self.connection is not None
        self.connection.text(_json(message))

    def turn(self, state: str = "thinking", *, new: bool = True) -> int:
        """The state of a turn; a new one raises the epoch. Returns the epoch."""
        self.epoch += new
        self.say("turn.state", turnId=f"turn-{self.epoch}", epoch=self.epoch, state=state)
        return self.epoch

    def call(self, name: str, arguments: Any, *, epoch: int | None = None, id_: str = "", **more: Any) -> str:
        """A tool call, of the current epoch unless another is given; returns its id."""
        epoch = self.epoch if epoch is None else epoch
        call_id = id_ or f"{self._prefix}-{next(self._calls)}"
        turn = f"turn-{epoch}"
        self.say(
            "tool.call", callId=call_id, name=name, arguments=arguments, turnId=turn, epoch=epoch, **more
        )
        return call_id

    def interrupted(self, epoch: int | None = None, reason: str = "server") -> None:
        """An epoch is closed, the current one unless another is given."""
        self.say("interrupted", epoch=self.epoch if epoch is None else epoch, reason=reason)

    def item(self, item: str, epoch: int | None = None) -> None:
        """An audio item begins."""
        assert self.connection is not None
        epoch = self.epoch if epoch is None else epoch
        self.connection.say("audio.start", itemId=item, epoch=epoch, turnId=f"turn-{epoch}")

    def tone(self, ms: int) -> None:
        """So much output audio of the item begun last, at once, in frames of 20 ms."""
        assert self.connection is not None
        form = self.formats["output"]
        pcm = form["encoding"] == "pcm16"
        samples = int(form.get("sampleRate", 24000 if pcm else 8000)) * FRAME_MS // 1000
        payload = (b"\x00\x10" * samples) if pcm else b"\x10" * samples
        for _ in range(ms // FRAME_MS):
            self.connection.audio(payload)

    # --- what the client says

    def results(self, *calls: str) -> list[Message]:
        """The results so far, in order, of these calls or of all."""
        found = (message for message in self.received if message.get("type") == "tool.result")
        return [message for message in found if not calls or message.get("callId") in calls]

    async def result(self, call_id: str, within: float) -> Message:
        """The result of a call."""
        await self.until(lambda: bool(self.results(call_id)), within, f"the result of {call_id}")
        return self.results(call_id)[0]

    async def all_results(self, calls: Iterable[str], within: float) -> list[Message]:
        """The results of these calls, in the order of the calls."""
        return [await self.result(call_id, within) for call_id in calls]

    async def until(self, reached: Callable[[], bool], within: float, what: str) -> None:
        """Wait until something holds, on the connection that is bound now."""
        assert self.connection is not None
        await self.connection.until(reached, within, what)


def _json(message: Mapping[str, Any]) -> str:
    """A message as text; half a surrogate pair, which UTF-8 cannot hold, is escaped as it came."""
    text = json.dumps(message, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(message)


def tool_names(hello: Message) -> list[str]:
    """The tools that a hello offers; what is none is left out, and fails its schema's check."""
    tools = hello.get("tools")
    rows = tools if isinstance(tools, list) else []
    return [tool["name"] for tool in rows if isinstance(tool, dict) and isinstance(tool.get("name"), str)]


def resume_from(hello: Message) -> int:
    """The last message that a client says it has; one that cannot say it has none."""
    since = hello.get("resumeFrom", 0)
    return since if isinstance(since, int) else 0


@contextlib.asynccontextmanager
async def _patience(within: float, connection: Connection, what: str) -> AsyncIterator[None]:
    """A deadline whose passing is an `Unmet`."""
    try:
        async with asyncio.timeout(within):
            yield
    except TimeoutError:
        raise Unmet(f"waited {within:g} s for {what}; {connection.told()}") from None
