"""The memory of the running client, and what the firmware of each board takes of its flash: `make size` prints all of it.

The heap is that of the simulated board on 64 bits (tools/size_probe.py), connected over WebSocket without TLS, mu-law both ways, with
the simulator's tools. The figure for a board is an estimate: buffers in full, and 0.72 of the rest, which is what the same
`.mpy` took on a MicroPython of 32 bits.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from vrt_host.agents.echo import EchoAgent
from vrt_host.config import ServerConfig
from vrt_host.device import build
from vrt_host.device.profiles import profiles
from vrt_host.server import serve
from vrt_host.sim.board import SimBoard

PROBE = Path(__file__).with_name("size_probe.py")
HEAP = "512k"
RATIO = 0.72
CODE_BUDGET, RUNNING_BUDGET = 48 * 1024, 80 * 1024
_DEADLINE_S = 60


async def probe(*, modules: bool) -> dict[str, Any]:
    """The event `size` of a board: `used` bytes, `buffers` and `modules` by name."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(ServerConfig(port=0), EchoAgent, ready=port.set_result))
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "probe.py"
        program.write_text(
            PROBE.read_text("utf-8").replace("MODULES = False", f"MODULES = {modules}"), "utf-8"
        )
        try:
            async with asyncio.timeout(_DEADLINE_S):
                async with SimBoard(url=f"ws://127.0.0.1:{await port}/", heap=HEAP, program=program) as board:
                    async for event in board.events():
                        if event["event"] == "size":
                            return event
                raise RuntimeError("the board ended before it was measured")
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


def rows() -> list[dict[str, Any]]:
    """The figures, in the form that bench.py prints."""
    found = asyncio.run(probe(modules=False))
    buffers = sum(found["buffers"].values())
    code = round(RATIO * (found["used"] - buffers))
    note = f"estimate for 32 bits: {RATIO} x {found['used'] - buffers:,} B measured on 64"
    return [
        {"name": "device.code_heap_bytes", "value": code, "unit": f"B of code and objects ({note})",
         "budget": f"<= {CODE_BUDGET}", "ok": code <= CODE_BUDGET},
        {"name": "device.running_heap_bytes", "value": code + buffers, "unit": f"B with {buffers:,} B of buffers (estimate)",
         "budget": f"<= {RUNNING_BUDGET}", "ok": code + buffers <= RUNNING_BUDGET},
    ]  # fmt: skip


def flash() -> Table:
    """What each board's files take of its flash, in one slot."""
    table = Table("board", "files", "bytes in a slot", "largest")
    for profile in profiles().values():
        files = build.files(profile).slot
        largest = max(files, key=lambda path: len(files[path]))
        table.add_row(
            profile.id,
            str(len(files)),
            f"{sum(map(len, files.values())):,}",
            f"{largest} {len(files[largest]):,}",
        )
    return table


def main() -> None:
    """Print it all."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(flash())
    found = asyncio.run(probe(modules=True))
    modules = Table(
        "module",
        "heap bytes at import, 64 bits",
        title="without what it imports itself; several are forgotten after the start",
    )
    for name, size in sorted(found["modules"].items(), key=lambda item: -item[1]):
        if size:
            modules.add_row(name, f"{size:,}")
    console.print(modules)
    buffers = Table("buffer", "bytes")
    for name, size in sorted(found["buffers"].items(), key=lambda item: -item[1]):
        buffers.add_row(name, f"{size:,}")
    console.print(buffers)
    for row in rows():
        console.print(
            f"{row['name']}: {row['value']:,} {row['unit']}; budget {row['budget']}: {'met' if row['ok'] else 'NOT MET'}"
        )


if __name__ == "__main__":
    main()
