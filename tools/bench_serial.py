"""The serial framing: what full-duplex mu-law takes of a line, and the device's CPU and heap per frame against a bare socket."""

from __future__ import annotations

import json
import random
import socket
from pathlib import Path
from typing import Any

from bench_link import find_micropython, trade
from vrt_host.links.serial import BAUD
from vrt_host.protocol.framing import AUDIO, OPEN, OPENED, PING, PONG, Decoder, Frame, encode

CLIENT = Path(__file__).with_name("bench_serial_client.py")
FRAMES_PER_S = 50
PINGS_PER_S = 5
SHARE = 0.15
SOUND = bytes(5) + bytes((7 * n + 20) & 127 | 16 for n in range(160))
UP = len(encode(AUDIO, 0, b"\x01" + SOUND[1:]))
DOWN = encode(AUDIO, 0, b"\x02" + SOUND[1:])
WINDOW = 0x100000
"""So large that the device never waits for an answer."""


def share() -> float:
    """Of one direction of the line, ten bits a byte: random mu-law in frames of 20 ms, pings and pongs."""
    dice = random.Random(1)
    sizes = [len(encode(AUDIO, dice.randrange(256), dice.randbytes(165))) for _ in range(5000)]
    signs = len(encode(PING, 1, b"\x07")) + len(encode(PONG, 1, b"\x07"))
    per_s = FRAMES_PER_S * sum(sizes) / len(sizes) + PINGS_PER_S * signs
    return per_s * 10 / BAUD


def answer(connection: socket.socket) -> None:
    """The peer of both clients: opens a serial connection if it is asked for one, then answers each frame up with one down."""
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        got = connection.recv(4096)
        if got[:2] == b"\xc0O":
            asked = next(one for one in Decoder().feed(got) if isinstance(one, Frame) and one.kind == OPEN)
            said = {**json.loads(asked.payload), "window": WINDOW}
            connection.sendall(encode(OPENED, 0, json.dumps(said).encode()))
            got = b""
        data = got
        waiting, opened = 0, got == b""
        decoder = Decoder()
        while True:
            # The link's frames are read, for some are pings; the floor's bytes are counted.
            for frame in decoder.feed(data) if opened else ():
                if isinstance(frame, Frame):
                    signs = frame.kind == PING
                    connection.sendall(encode(PONG, 0, frame.payload) if signs else DOWN)
            waiting += 0 if opened else len(data)
            while waiting >= UP:
                connection.sendall(DOWN)
                waiting -= UP
            data = connection.recv(4096)
            if not data:
                return


def rows() -> list[dict[str, Any]]:
    """The figures, in the form that bench.py prints."""
    costs = trade(find_micropython(), CLIENT, (str(UP), str(len(DOWN))), answer)
    (floor_us, floor_bytes), (link_us, link_bytes) = costs["floor"], costs["link"]
    taken = share()
    moved = UP + len(DOWN)
    return [
        {
            "name": "serial.line_share",
            "value": taken,
            "unit": f"of each direction of {BAUD:,} baud, full-duplex mu-law",
            "baseline": None,
            "ratio": None,
            "budget": f"<= {SHARE}",
            "ok": taken <= SHARE,
        },
        {
            "name": "device.serial_throughput",
            "value": moved / link_us,
            "unit": f"MB/s of this machine's CPU ({link_us:.1f} us per frame up and down)",
            "baseline": f"blocking socket, same bytes: {moved / floor_us:.1f} MB/s ({floor_us:.1f} us)",
            "ratio": floor_us / link_us,
            "budget": None,
            "ok": None,
        },
        {
            "name": "device.serial_alloc_bytes_per_frame",
            "value": link_bytes,
            "unit": "bytes",
            "baseline": f"blocking socket, same bytes: {floor_bytes:g}",
            "ratio": None,
            "budget": "0",
            "ok": link_bytes == 0,
        },
    ]
