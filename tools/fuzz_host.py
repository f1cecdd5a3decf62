"""The host's parsers under tools/fuzz.py, each with the answers that it documents; whatever else they raise is a finding."""
# ruff: noqa: PT017  (an assertion is a finding here, in a handler too)

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from functools import cache
from typing import Any, cast

from fuzz_seeds import FORMATS, STEPS, frames, line, lines, vectors
from fuzz_target import SEPARATOR, Target
from vrt_host.config import ServerConfig, is_loopback
from vrt_host.connection import Connection
from vrt_host.errors import LocalError, UsageError
from vrt_host.links.websocket import _FOR_GOOD, WebSocketLink
from vrt_host.protocol import audio, framing, wire
from vrt_host.session import AudioFrame, Fault, Hello, Limits, Message, Session, State
from vrt_host.tools import ArgumentsError, DeclaredTools
from websockets.asyncio.server import ServerConnection
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

CODES = {"MALFORMED", "UNSUPPORTED_VERSION", "UNKNOWN_TYPE", "INVALID_FIELD"}
CLOSES = {1000, 1001, 1006, 1007, 1008, 1009, 1011, 4000, 4401, 4404, 4408}


def host_message(data: bytes) -> None:
    """Either direction: a message that can be sent again, or a code of §9.1."""
    senders: tuple[wire.Direction, ...] = ("client", "server")
    for sender in senders:
        try:
            message = wire.decode(data, sender)
        except wire.WireError as error:
            assert error.code in CODES, error.code
            assert 0 <= error.seq <= wire.U32_MAX, error.seq
            assert len(str(error)) <= 2 * wire.SHOWN + 50, len(str(error))
            continue
        assert type(message["seq"]) is int
        assert wire.decode(wire.encode(message), sender) == message


def host_audio(data: bytes) -> None:
    """A number and a payload, or MALFORMED."""
    try:
        seq, payload = audio.decode(data, audio.INPUT)
    except wire.WireError as error:
        assert error.code == "MALFORMED"
        assert len(data) < audio.HEADER_BYTES or data[0] != audio.INPUT
    else:
        assert audio.encode(audio.INPUT, seq, payload) == data


class Desk:
    """A server with one session and one connection at a time, which keeps to the rules of `session.py`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.limits = Limits(
            message_bytes=600, audio_bytes=300, kept_messages=8, early_messages=4, early_bytes=800
        )
        self.session: Session | None = None
        self.handled = 0
        self.hello: Hello | None = None
        self.connect()

    def connect(self) -> None:
        """A new link; an older one stays as it is, as a network would have it."""
        self.connection = Connection(self.limits, self.now)
        self.hello = None

    def step(self, op: int, body: bytes) -> None:  # noqa: C901, PLR0912  (a branch for each step)
        """t text frame, a audio, h other frame, + time, e end, L too large, c connect, n time without end, and the
        server's own: s sends, d sends audio, r resumes or opens, f refuses, x ends the session."""
        connection = self.connection
        match chr(op):
            case "t":
                connection.receive_text(body, self.now)
            case "a":
                connection.receive_audio(body, self.now)
            case "h":
                connection.heard(self.now)
            case "+":
                self.now += 0.3 * (1 + len(body))
                connection.tick(self.now)
            case "n":
                self.now += 60
                connection.tick(self.now)
            case "e":
                connection.receive_eof(self.now)
            case "L":
                connection.receive_too_large(self.now)
            case "c":
                self.connect()
            case "s" if self.session is not None:
                with contextlib.suppress(wire.TooLargeError):
                    self.session.send("text", text=body.decode("utf-8", "replace"))
            case "d" if self.session is not None:
                self.session.start_audio("i", 1, "t")
                with contextlib.suppress(wire.TooLargeError):
                    self.session.send_audio(body)
            case "f":
                self.answer(refuse=True)
            case "r":
                self.answer(refuse=False)
            case "x" if self.session is not None:
                self.session.close()
        if self.session is not None:
            self.session.tick(self.now)
        self.take()

    def answer(self, *, refuse: bool) -> None:
        """The hello that waits, if one does."""
        hello, self.hello = self.hello, None
        if hello is None:
            return
        if refuse:
            self.connection.refuse("UNAUTHORIZED", "no")
        elif hello.session_id is not None:
            self.connection.resume(self.session, None, self.now)
        else:
            session = Session("s", None, hello, limits=self.limits, **FORMATS)  # type: ignore[arg-type]
            if self.connection.accept(session, self.now):
                self.session, self.handled = session, 0

    def take(self) -> None:
        """What a server has to do after each call, and what it may rely on."""
        for event in self.connection.events():
            if isinstance(event, Hello):
                self.hello = event
            elif isinstance(event, Message):
                assert event.message["seq"] > self.handled, "handled twice, or out of order"
                self.handled = event.message["seq"]
            elif isinstance(event, Fault):
                assert event.code.isupper()
            else:
                assert isinstance(event, AudioFrame)
        for frame in self.connection.data_to_send():
            if isinstance(frame, str):
                wire.decode(frame, "server")
            else:
                audio.decode(frame, audio.OUTPUT)
        closing = self.connection.closing
        assert closing is None or closing.code in CLOSES
        assert self.session is None or self.session.state in State


def host_connection(data: bytes) -> None:
    """Any sequence of frames, times and ends."""
    desk = Desk()
    for part in data.split(SEPARATOR)[:STEPS]:
        if part:
            desk.step(part[0], part[1:])


def host_tools(data: bytes) -> None:
    """A list of tools and arguments for each: taken or declined, valid or refused."""
    first, _, second = data.partition(SEPARATOR)
    try:
        declared = wire.loads(first.decode())
        hello = wire.encode({"v": 1, "seq": 0, "type": "hello", "tools": declared})
        message = wire.decode(hello, "client")
    except ValueError:
        return
    except (wire.WireError, LocalError):
        return
    tools = DeclaredTools(message["tools"])
    assert len(tools.tools) + len(tools.declined) >= len({tool["name"] for tool in message["tools"]})
    text = second.decode("utf-8", "replace")
    for tool in tools.tools:
        try:
            value = tools.arguments(tool, text)
        except ArgumentsError as error:
            assert len(str(error)) < 4000
        else:
            wire.encode({"arguments": value})


def lists_of_tools() -> list[bytes]:
    schema = {
        "type": "object",
        "properties": {"door": {"enum": ["front"]}, "n": {"type": "integer", "minimum": 1}},
    }
    declared = [
        {"name": "lock", "parameters": {**schema, "required": ["door"], "additionalProperties": False}},
        {
            "name": "say",
            "confirm": "button",
            "confirmWhen": {"state": ["on"]},
            "phrases": ["say it"],
            "timeoutMs": 5,
        },
        {"name": "bad name", "parameters": {"type": "nonsense"}},
        {"name": "deep", "parameters": {"items": {"$ref": "#"}, "pattern": "(a+)+$"}},
    ]
    given = ['{"door":"front","n":2}', "", "[]", '{"door":"fro', '{"n":1e999}']
    return [json.dumps(declared).encode() + SEPARATOR + text.encode() for text in given]


def host_config(data: bytes) -> None:
    """Addresses, ports and origins of an operator: a configuration, or an error for people."""
    text = data.decode("utf-8", "replace")
    host, _, origin = text.partition(" ")
    is_loopback(host)
    try:
        ServerConfig(host=host, port=len(data), origins=(origin,) if origin else ())
    except UsageError as error:
        assert str(error)
    else:
        assert not origin or re.fullmatch(r"https?://[a-z0-9_.:\[\]-]+", origin)


class _Sink(asyncio.Transport):
    """A transport that takes everything and goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = False

    def write(self, data: Any) -> None:
        pass

    def write_eof(self) -> None:
        pass

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class _Ear:
    """A receiver that notes what it is told."""

    def __init__(self) -> None:
        self.heard_: list[Any] = []

    def text(self, frame: str) -> None:
        self.heard_.append(frame)

    def audio(self, frame: bytes) -> None:
        self.heard_.append(frame)

    def heard(self) -> None:
        self.heard_.append(None)

    def flush(self) -> None:
        pass

    def lost(self, *, too_large: bool) -> None:
        self.heard_.append("lost")


def _link(data: bytes, alone: bool) -> list[Any]:
    """What a link makes of a stream, cut as its first byte says. `alone`: the library does all of it.

    Not the code of a close: the library looks at a whole read first, and then says what was wrong last.
    """

    async def run() -> list[Any]:
        protocol = ServerProtocol(max_size=600, state=OPEN)
        link = WebSocketLink(protocol, cast(Any, None), close_timeout=None)
        super(ServerConnection, link).connection_made(
            _Sink()
        )  # without the server that would begin to handle it
        link.request = cast(Any, True)  # past the handshake
        ear = _Ear()
        link.attach(ear)
        if alone:
            link._left = _FOR_GOOD
        size = data[0] + 1 if data else 1
        whole = data + bytes(
            14
        )  # a header is looked at when it is whole, which the last one may not have been
        for start in range(1, len(whole), size):
            link.data_received(whole[start : start + size])
        if link._closing is not None:
            link._closing.cancel()
        return ear.heard_

    return _loop().run_until_complete(run())


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def host_link(data: bytes) -> None:
    """The host's own reading of small frames is the library's, with any cuts."""
    ours, library = _link(data, False), _link(data, True)
    assert ours == library, (ours, library)


def lives_of_clients() -> list[bytes]:
    """Sequences for the host: what a client does, with every valid message in one of them."""
    begin = [line("t", seq=0, type="hello", tools=[{"name": "lock"}]), b"+"]
    lives = [
        [*begin, line("t", seq=1, type="text", text="hi"), b"a\1\0\0\0\0xx", b"+", b"e", b"c", b"r"],
        [
            line("t", seq=0, type="ping"),
            b"a\2",
            b"h",
            b"++",
            *begin,
            line("t", seq=0, type="ack", upTo=2),
            b"L",
        ],
        [*begin, b"d", b"e", b"c", b"r1", line("t", seq=3, type="context", context=None), b"x"],
        [b"n", line("t", seq=1, type="text", text="early"), b"c", *begin, b"f"],
    ]
    for frame in vectors("client"):
        lives.append([*begin, b"t" + frame, b"s", b"+"])
    return [SEPARATOR.join(life) for life in lives]


def host_line(data: bytes) -> None:
    """The host's side of a serial line: what it says is frames, and however the line is cut, the same comes of it."""
    made = [_lived(data[:1], data[1:]), _lived(bytes(((data[0] + 7) & 255,)) if data else b"", data[1:])]
    assert made[0] == made[1], made


def _lived(cut: bytes, data: bytes) -> list[object]:
    side = framing.HostSide(300)
    side.receive_data(framing.encode(framing.OPEN, 0, b'{"v":1,"nonce":"00c0ffee","window":64}'))
    size = (cut[0] & 63) + 1 if cut else 1
    said = b""
    events: list[framing.Event] = []
    for at in range(0, len(data), size):
        side.receive_data(data[at : at + size])
        events += side.events()
        said += side.data_to_send()
    side.receive_eof()
    events += side.events()
    assert len(b"".join(event.data for event in events)) <= 2 * len(data) + 1000
    decoder = framing.Decoder()
    frames = decoder.feed(said)
    assert decoder.noise == 0
    assert all(isinstance(frame, framing.Frame) for frame in frames)
    return [frames, [event for event in events if event.kind != "noise"], side.noise]


TARGETS = (
    Target("host.line", host_line, lines, 4),
    Target("host.message", host_message, lambda: vectors("client") + vectors("server"), 20, text=True),
    Target("host.audio", host_audio, lambda: vectors("binary"), 2),
    Target("host.connection", host_connection, lives_of_clients, 12, text=True),
    Target("host.link", host_link, lambda: frames(b"\1\2\3\4"), 6),
    Target("host.tools", host_tools, lists_of_tools, 3, text=True),
    Target(
        "host.config",
        host_config,
        lambda: [b"127.0.0.1 https://a.b", b"::1 http://x:80", b"h https://[::1]:9"],
        2,
    ),
)
