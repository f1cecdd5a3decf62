"""The inputs that fuzzing begins with: above all the frames of schema/examples."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from vrt_host.protocol.framing import AUDIO, CLOSE, OPEN, OPENED, PART, PING, PONG, TEXT, encode
from vrt_host.resources import root

STEPS = 24
"""Of a sequence that are taken, or mutations would make long ones of it that find nothing more."""
FORMATS = {"input": {"encoding": "pcmu"}, "output": {"encoding": "pcmu"}}


@cache
def vectors(folder: str) -> list[bytes]:
    """The frames of schema/examples."""
    found = []
    for path in sorted((root() / "schema" / "examples" / folder).glob("*.json")):
        for case in json.loads(path.read_text("utf-8")):
            if "hex" in case:
                found.append(bytes.fromhex(case["hex"]))
            else:
                text = case["text"] if "text" in case else json.dumps(case["json"], ensure_ascii=False)
                found.append(text.encode("utf-8", "surrogatepass"))
    return found


def line(letter: str, **members: Any) -> bytes:
    """A step of a sequence: a text frame."""
    return letter.encode() + json.dumps({"v": 1, **members}).encode()


def frame(first: int, payload: bytes, mask: bytes) -> bytes:
    """A WebSocket frame; `mask`: four bytes, or none."""
    size = len(payload)
    flag = 0x80 if mask else 0
    head = bytes((first, flag | size)) if size < 126 else bytes((first, flag | 126)) + size.to_bytes(2, "big")
    return head + mask + bytes(byte ^ mask[place & 3] if mask else byte for place, byte in enumerate(payload))


def frames(mask: bytes) -> list[bytes]:
    """Streams of frames; the first byte is none of it (it says how they are cut)."""
    small = [
        (0x81, "é€😀".encode()),
        (0x82, b"\1\0\0\0\1" + bytes(160)),
        (0x01, b"a"),
        (0x89, b"p"),
        (0x00, b"b"),
        (0x80, b""),
        (0x8A, b""),
        (0x82, bytes(400)),
        (0x88, b"\x03\xe8bye"),
    ]
    each = [frame(first, payload, mask) for first, payload in small]
    broken = [b"\x10\xf1\x02ab", b"\x08\x82\x7f" + bytes(8), b"\x08\x88\x01x"]
    return [b"\x05" + b"".join(each), b"\x3f" + b"".join(each), *(b"\x03" + one for one in each), *broken]


def lines() -> list[bytes]:
    """What comes over serial lines; the first byte is none of it (it says how it is cut)."""
    ready = encode(TEXT, 0, b'{"v":1,"seq":0,"type":"ready"}')
    said = (
        encode(PART, 1, b"par")
        + encode(PING, 2, b"\x07")
        + encode(TEXT, 2, b"ted")
        + encode(AUDIO, 3, bytes(range(200)))
    )
    opened = json.dumps({"v": 1, "nonce": "00c0ffee", "window": 1000}).encode()
    whole = encode(OPEN, 0, opened) + b"rst:0x1\r\n" + encode(OPENED, 0, opened) + ready + said
    ends = [encode(AUDIO, 1, bytes(400)), encode(CLOSE, 0, b"\x0f\xa0bye"), encode(PONG, 0, b"\x01")]
    parts = [whole, whole + b"".join(ends), *(ready + said + end for end in ends)]
    return [bytes((cut,)) + part for cut in (5, 63) for part in [*parts, *vectors("serial")]]
