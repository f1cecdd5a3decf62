"""From power on to `ready` on the simulated board, against a MicroPython program that only connects a bare socket."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from vrt_host.agents.echo import EchoAgent
from vrt_host.config import ServerConfig
from vrt_host.server import serve
from vrt_host.sim.board import SimBoard

ROUNDS = 7
_DEADLINE_S = 30

FLOOR = """\
import socket

import board

connection = socket.socket()
connection.connect(socket.getaddrinfo("127.0.0.1", PORT)[0][-1])
connection.write(b"?")
connection.read(1)
board.event("ready")
while True:
    board.wait(None, 100)
"""
"""On the same hardware; the peer answers one byte with one."""


async def boot(port: int, program: Path | None = None, duplex: str = "half") -> float:
    """Milliseconds from the start of MicroPython to the event `ready`."""
    board = SimBoard(url=f"ws://127.0.0.1:{port}/", program=program, config={"duplex": duplex})
    async with asyncio.timeout(_DEADLINE_S):
        began = time.perf_counter()
        async with board:
            async for event in board.events():
                if event["event"] == "ready":
                    return (time.perf_counter() - began) * 1000
    raise RuntimeError("the board ended before it was ready")


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(1)
    writer.write(b"!")
    await writer.drain()
    await reader.read()  # until the board is off
    writer.close()


async def measure(rounds: int) -> tuple[float, ...]:
    """Milliseconds of the floor and of the firmware, in half and in full duplex: the least of rounds that take turns."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(ServerConfig(port=0), EchoAgent, ready=port.set_result))
    bare = await asyncio.start_server(_answer, "127.0.0.1", 0)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "floor.py"
        bare_port = bare.sockets[0].getsockname()[1]
        program.write_text(FLOOR.replace("PORT", str(bare_port)), "utf-8")
        try:
            host = await port
            spans = [
                (await boot(bare_port, program), await boot(host), await boot(host, duplex="full"))
                for _ in range(rounds)
            ]
        finally:
            bare.close()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
    return tuple(map(min, zip(*spans, strict=True)))


def rows() -> list[dict[str, Any]]:
    """The figure, in the form that bench.py prints."""
    floor_ms, ready_ms, full_ms = asyncio.run(measure(ROUNDS))
    return [
        {
            "name": "device.boot_to_ready_ms",
            "value": ready_ms,
            "unit": "ms in the simulator, from the start of MicroPython, without the safe-boot window; "
            f"{full_ms:.0f} ms with full duplex, whose echo is measured before",
            "baseline": f"a program that connects a bare socket: {floor_ms:.0f} ms",
            "ratio": ready_ms / floor_ms,
            "budget": None,
            "ok": None,
        }
    ]
