"""The firmware's WebSocket link alone: conformance, and CPU and heap per audio frame against a bare socket."""

from __future__ import annotations

import base64
import hashlib
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import autobahn

CLIENT = Path(__file__).with_name("bench_link_client.py")
ROUNDS = 5
FRAMES = 4000
UP = 173
DOWN = b"\x82\x7e\x00\xa5" + bytes(165)


def find_micropython() -> str:
    from vrt_host.sim.board import find_micropython as find  # noqa: PLC0415  (imports numpy)

    return str(find())


def answer(connection: socket.socket) -> None:
    """The peer of both clients: accepts an upgrade if it is asked for one, then answers each frame up with one down."""
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        got = connection.recv(4096)
        if got.startswith(b"GET "):
            while not got.endswith(b"\r\n\r\n"):
                got += connection.recv(4096) or b"\r\n\r\n"
            key = next(line[19:] for line in got.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key: "))
            accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
            connection.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
            )
            got = b""
        waiting = len(got)
        while True:
            while waiting >= UP:
                connection.sendall(DOWN)
                waiting -= UP
            data = connection.recv(4096)
            if not data:
                return
            waiting += len(data)


def trade(
    micropython: str,
    client: Path = CLIENT,
    words: Sequence[str] = (),
    peer: Callable[[socket.socket], None] = answer,
) -> dict[str, tuple[float, float]]:
    """Microseconds of CPU and bytes of heap per frame, of the floor and of the link, by `client` with these more words.

    Of the microseconds the least over the rounds, which take turns. `peer` serves one connection, and closes it.
    """
    best: dict[str, tuple[float, float]] = {}
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for _ in range(2 * ROUNDS):
                peer(listening.accept()[0])

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        port = str(listening.getsockname()[1])
        for _ in range(ROUNDS):
            for kind in ("floor", "link"):
                done = subprocess.run(
                    [micropython, str(client), kind, port, str(FRAMES), *words],
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                if done.returncode:
                    raise RuntimeError(f"{kind}: {done.stdout}{done.stderr}")
                cpu_us, allocated = map(float, done.stdout.split())
                least, most = best.get(kind, (cpu_us, allocated))
                best[kind] = min(least, cpu_us), max(most, allocated)
        serving.join(10)
    return best


def rows() -> list[dict[str, Any]]:
    """The figures, in the form that bench.py prints."""
    micropython = find_micropython()
    costs = trade(micropython)
    (floor_us, floor_bytes), (link_us, link_bytes) = costs["floor"], costs["link"]
    ratio = link_us / floor_us
    with tempfile.TemporaryDirectory() as report:
        outcome = autobahn.play(micropython, Path(report))
    scored = outcome.played - len(outcome.informational)
    passed = len(outcome.passed)
    return [
        {
            "name": "device.link_cpu_ratio",
            "value": ratio,
            "unit": f"x ({link_us:.1f} us per frame up and down)",
            "baseline": f"blocking socket, same bytes: {floor_us:.1f} us",
            "ratio": ratio,
            "budget": "<= 1.5 x",
            "ok": ratio <= 1.5,
        },
        {
            "name": "device.link_alloc_bytes_per_frame",
            "value": link_bytes,
            "unit": "bytes",
            "baseline": f"blocking socket, same bytes: {floor_bytes:g}",
            "ratio": None,
            "budget": "0",
            "ok": link_bytes == 0,
        },
        {
            "name": "device.autobahn_passed",
            "value": passed,
            "unit": f"of {scored} scored cases",
            "baseline": None,
            "ratio": None,
            "budget": f"{scored}",
            "ok": passed == scored,
        },
        {
            "name": "device.autobahn_failed",
            "value": len(outcome.failed),
            "unit": "cases" + (f": {' '.join(sorted(outcome.failed))}" if outcome.failed else ""),
            "baseline": None,
            "ratio": None,
            "budget": "0",
            "ok": not outcome.failed,
        },
    ]
