"""A vRT client that tests servers.

`Server` is the server under test, as scenarios see it; a `Line` (`line.py`) is one connection to it; `Device` is one
session, over any number of connections, as a client would keep it.

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

import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException

from vrt_host.config import is_loopback
from vrt_host.conformance.checks import NotTestable, Unmet, printable, shown
from vrt_host.conformance.line import Line
from vrt_host.conformance.run import Pace
from vrt_host.conformance.watch import Watch
from vrt_host.protocol.wire import Message

CONNECT_S = 10.0
MOST_BYTES = 1 << 26
"""Of a frame of the server's; a larger one ends the connection, with 1009."""
MOST_FRAMES = 1024
"""That wait to be looked at; then a server that floods has to wait."""
TRANSIENT = frozenset({"hello", "ack", "ping"})
ECHO: Message = {
    "name": "test.echo",
    "description": "Gives back what it is given.",
    "parameters": {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]},
}
"""The tool that the profile's calls are for."""


class _Connect(connect):
    """To the server that was named and to no other, which would get the token, too."""

    def process_redirect(self, exc: Exception) -> Exception:
        """A redirect is a refusal."""
        return exc


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
        try:
            await self.open()
        except BaseException:
            await self._lines.aclose()
            raise
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
        return await _Connect(
            self.url,
            ssl=self.tls,
            proxy=None if is_loopback(urlsplit(self.url).hostname or "") else True,
            compression=None,
            ping_interval=None,
            max_size=MOST_BYTES,
            max_queue=MOST_FRAMES,
            open_timeout=self.pace.s(CONNECT_S),
            close_timeout=self.pace.s(1.0),
        )


def why(error: Exception) -> str:
    """What a connection failed of, in one line."""
    if isinstance(error, InvalidHandshake):
        return printable(f"it does not take a WebSocket ({error})")
    if isinstance(error, InvalidURI):
        return "it is not an address of the form ws://HOST:PORT or wss://HOST:PORT"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return printable(" ".join(text.split()))
