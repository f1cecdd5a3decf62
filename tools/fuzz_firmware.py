"""The device's parsers under tools/fuzz.py: fuzz_device.py's functions on CPython, judged by another reader of the same.

Where two parsers read the same language they have to say the same of every input: the device's grammar and decoder as the
host's and Python's, its check of arguments as JSON Schema's.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from fuzz_seeds import FORMATS, frames, line, lines, vectors
from fuzz_target import SEPARATOR, Target
from vrt_host.protocol import wire
from vrt_host.protocol.framing import Decoder, Frame
from vrt_host.resources import root

for _folder in ("tools", "firmware", "tests/firmware/cpython"):
    sys.path.insert(0, str(root() / _folder))
importlib.import_module("micropython")  # the shim, which makes `const` known
device: Any = importlib.import_module("fuzz_device")
rules: Any = importlib.import_module("vrt.tools.rules")
handshake: Any = importlib.import_module("vrt.links.upgrade")


def device_grammar(data: bytes) -> None:
    """As Python's parser has it, with a limit of depth and strict numbers and names."""
    assert device.grammar(data) == str(_is_json(data))


def _is_json(data: bytes) -> bool:
    def refuse(name: str) -> Any:
        raise ValueError(name)

    try:
        value = json.loads(data.decode(), parse_constant=refuse, parse_int=float, parse_float=float)
    except (ValueError, RecursionError):
        return False
    return _depth(value) <= wire.MAX_DEPTH


def _depth(value: Any) -> int:
    """Levels of nesting."""
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, (list, dict))]:
        depth += 1
        level = [part for one in level for part in (one.values() if isinstance(one, dict) else one)]
    return depth


def device_message(data: bytes) -> None:
    """The host's own reader of server messages says the same: the code of §9.1, the seq, or all members."""
    made = device.message(data)
    try:
        message = wire.decode(data, "server")
    except wire.WireError as error:
        if "out of range" in str(error):
            return  # a number beyond a double: the host refuses the message, the device only where it needs a number
        expected = f"{error.code} {error.seq}"
    else:
        expected = f"valid {message['seq']} {device.canonical(message)}"
    assert made == expected, (made, expected)


def device_stream(data: bytes) -> None:
    """The kernel reads no further than the stream, and says one of its numbers."""
    for part in device.stream(data).split():
        assert int(part.partition(":")[0]) in (0, 1, 2, 3, 8, 9, 10, -1002, -1007, -1009), part


def device_connection(data: bytes) -> None:
    """However the stream is cut, the same comes out of it; what the library takes, the device takes."""
    whole = device.connection(data)
    other = device.connection(bytes([(data[0] + 7) & 63]) + data[1:]) if data else whole
    assert _messages_of(whole) == _messages_of(other), (whole, other)
    code = int(whole.split()[-3])
    assert code in (1005, 1006, 1002, 1007, 1009) or 1000 <= code <= 4999, code


def _messages_of(text: str) -> list[str]:
    """Pings may be answered or left out, and a message too large is dropped whole: what is handed out counts."""
    return [part for part in text.split() if not part.startswith("sent:")]


def device_line(data: bytes) -> None:
    """The host's decoder takes the same frames from it, and the same noise."""
    data = data[: device.LINE]
    *found, noise = device.line(data).split()
    decoder = Decoder()
    expected = []
    for one in decoder.feed(data[1:]):
        if isinstance(one, Frame):
            kept = one.payload[: device.LIMIT]
            expected.append(f"{one.kind}:{one.number}:{len(one.payload)}:{zlib.crc32(kept)}")
    assert found == expected, (found, expected)
    assert noise == f"noise:{decoder.noise}", (noise, decoder.noise)


def device_side(data: bytes) -> None:
    """However the line is cut, the same comes out of it, but for what is sent when."""
    whole = device.side(data)
    other = device.side(bytes([(data[0] + 7) & 63]) + data[1:]) if data else whole
    assert _messages_of(whole)[:-1] == _messages_of(other)[:-1], (whole, other)


def device_upgrade(data: bytes) -> None:
    """Not yet, yes, or why not; a yes only for an answer that has all that RFC 6455 wants."""
    _, _, reason = device.upgrade(data).partition(" ")
    if not reason:
        lowered = data.lower()
        assert data.startswith(b"HTTP/1.1 101")
        for wanted in (b"upgrade", b"websocket", b"connection", b"sec-websocket-accept"):
            assert wanted in lowered


def answers() -> list[bytes]:
    """A right one first."""
    right = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + handshake._accept(device.KEY) + b"\r\n\r\n"
    )
    wrong = [b"HTTP/1.1 404 Not Found\r\n\r\n", b"SSH-2.0\r\n", b"HTTP/1.0 101 x\r\nA : b\r\n\r\n"]
    return [right, right[:40], *wrong]


def device_address(data: bytes) -> None:
    """Where it takes an address, it is the one that Python reads in it."""
    made = device.address(data)
    if not made.startswith("["):
        return
    try:
        parts = urlsplit(data.decode())
        number = parts.port
    except ValueError:
        return  # an address that nobody has; a name server says so
    tls, host, port, path, _ = device.url.parse(data.decode())
    assert tls == (parts.scheme == "wss")
    assert host.lower() == (parts.hostname or ""), (host, parts.hostname)
    assert port == (number or (443 if tls else 80))
    query = data.decode().partition("?")[1:]
    assert path == (parts.path or "/") + "".join(query), path


def addresses() -> list[bytes]:
    return [
        *(b"ws://192.168.1.20:8080/", b"wss://host.example/path?x=1", b"ws://[::1]:80", b"ws://u:p@host/"),
        *(
            b"ws://host:99999/",
            b"http://host/",
            b"ws://host?token=x",
            b"wss://h:443/#f",
            b"ws://[::1",
            b"WS://h:080/",
        ),
    ]


def device_settings(data: bytes) -> None:
    """Settings that are all there and in their bounds, or an error that tells no secret."""
    device.settings(data)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    try:
        made = device.checked(value, "full")
    except device.ConfigError as error:
        token = value.get("token") if isinstance(value, dict) else None
        secret = isinstance(token, str) and len(token) > 40 and token in str(error)
        assert not secret, "the token is in the error"
    else:
        assert made["url"]
        assert 100 <= made["buffer_ms"] <= 3000


def configurations() -> list[bytes]:
    return [
        b'{"url":"ws://h/"}',
        b'{"url":"ws://h/","token":"'
        + b"s" * 41
        + b'","listen":"open","duplex":"full","mute":true,"buffer_ms":1000}',
        b'{"url":"","output":"pcm16","buffer_ms":1200,"id":7}',
        b'{"token":{"a":[]},"urls":1}',
        b"[]",
    ]


def device_sequence(data: bytes) -> None:
    """Any life of a session: what is handed out has a new number, what is sent is right by the schemas."""
    session = device.life(data)
    device.told(session)
    seen = 0
    for kind, seq, _, was_open in session.handled:
        if kind == "ended":
            seen = 0
        elif seq and was_open and kind not in ("refused", "invalid", "unexpected"):
            assert seq > seen, "handled twice, or out of order"
            seen = seq
    for frame in session.frames:
        wire.decode(frame, "client")


SCHEMA = {
    "type": "object",
    "properties": {
        "door": {"enum": ["front", 1, None, [1]]},
        "n": {"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 2},
        "x": {"type": ["number", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 4},
        "list": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 3},
            "minItems": 1,
            "maxItems": 2,
        },
        "only": {"const": {"a": 1.0}},
    },
    "required": ["door"],
    "additionalProperties": False,
}


def device_arguments(data: bytes) -> None:
    """The device refuses what JSON Schema refuses, and nothing else."""
    try:
        value = wire.loads(data.decode())
    except ValueError:
        return
    if any(
        isinstance(one, float) and not one.is_integer() and not math.isclose(one, round(one, 6))
        for one in _numbers(value)
    ):
        return  # two ways to divide a fraction
    if _depth(value) > 12:
        return  # canonical texts are that deep and no deeper
    refused = rules.problem(SCHEMA, value) is not None
    assert refused == (not _validator().is_valid(value)), (value, rules.problem(SCHEMA, value))


@cache
def _validator() -> Any:
    return wire.Validator(SCHEMA)


def _numbers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _numbers(one)
    else:
        yield value


def calls() -> list[bytes]:
    return [
        b'{"door":"front","n":4,"x":1.5,"list":["ab","c"],"only":{"a":1}}',
        b'{"door":1.0,"x":null,"n":3}',
        b'{"door":true,"list":[""]}',
        b'{"door":[1],"more":1}',
        b"[]",
    ]


def lives_of_devices() -> list[bytes]:
    """Sequences for the device: what a server does."""
    ready = line("t", seq=0, type="ready", sessionId="s", **FORMATS)
    again = line("t", seq=0, type="ready", sessionId="s", resumedFrom=1, **FORMATS)
    call = line("t", seq=1, type="tool.call", callId="c", name="x", arguments={}, turnId="t", epoch=1)
    begin = [b"o", b"s", ready]
    lives = [
        [*begin, call, b"r", b"s", b"+", b"l", b"+++", b"o", b"s", again, b"s", call],
        [
            *begin,
            line("t", seq=0, type="audio.start", itemId="i", epoch=1),
            b"a\2\0\0\0\0xx",
            b"i",
            b"p",
            b"s",
            b"s",
        ],
        [
            b"o",
            b"s",
            line("t", seq=0, type="error", code="UNAUTHORIZED", recoverable=False),
            b"l",
            b"n",
            b"+",
        ],
        [
            *begin,
            b"c",
            b"l",
            b"++",
            b"o",
            b"s",
            line("t", seq=0, type="error", code="RESUME_FAILED", recoverable=False),
            b"n",
        ],
        [*begin, line("t", seq=1, type="interrupted", epoch=4), b"l9", b"+", b"o", b"s", again, b"s", b"s"],
    ]
    for frame in vectors("server"):
        lives.append([*begin, b"t" + frame, b"s"])
    return [SEPARATOR.join(life) for life in lives]


TARGETS = (
    Target(
        "device.grammar",
        device_grammar,
        lambda: vectors("client") + vectors("server"),
        14,
        text=True,
        letter="g",
    ),
    Target("device.message", device_message, lambda: vectors("server"), 18, text=True, letter="m"),
    Target("device.stream", device_stream, lambda: frames(b""), 8, letter="f"),
    Target("device.connection", device_connection, lambda: frames(b""), 6, letter="w"),
    Target("device.line", device_line, lines, 3, letter="l"),
    Target("device.side", device_side, lines, 2, letter="d"),
    Target("device.upgrade", device_upgrade, answers, 4, letter="u"),
    Target("device.address", device_address, addresses, 4, letter="a"),
    Target("device.settings", device_settings, configurations, 3, text=True, letter="c"),
    Target("device.sequence", device_sequence, lives_of_devices, 12, text=True, letter="s"),
    Target("device.arguments", device_arguments, calls, 4, text=True),
)
