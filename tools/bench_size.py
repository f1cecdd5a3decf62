"""The memory of the running client, and what the firmware of each board takes of its flash and heap: `make size` prints all of it.

The heap is that of the simulated board on 64 bits (tools/size_probe.py), connected over WebSocket without TLS, mu-law both ways, with
the simulator's tools. The figure for a board is an estimate: buffers in full, and 0.72 of the rest, which is what the same
`.mpy` took on a MicroPython of 32 bits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from vrt_host.agents.echo import EchoAgent
from vrt_host.config import ServerConfig
from vrt_host.device import build
from vrt_host.device.profiles import Profile, dumps, find, profiles
from vrt_host.device.weave import firmware
from vrt_host.server import serve
from vrt_host.sim.board import SimBoard
from vrt_host.sim.firmware import find_runtime

PROBE = Path(__file__).with_name("size_probe.py")
HEAP = "512k"
RATIO = 0.72
CODE_BUDGET, RUNNING_BUDGET = 48 * 1024, 80 * 1024
_DEADLINE_S = 60


async def probe(*, modules: bool = False, profile: Profile | None = None) -> dict[str, Any]:
    """The event `size` of a board: `used` bytes, `buffers` and, if asked for, `modules` by name.

    With a real board's `profile` those are of its sound, its drivers and its files; its chips are played.
    """
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(ServerConfig(port=0), EchoAgent, ready=port.set_result))
    with tempfile.TemporaryDirectory() as folder:
        constants: dict[str, object] = {"MODULES": modules}
        config = {}
        if profile is not None:
            slot = Path(folder) / "slot"
            arch = find_runtime().arch
            files = build.files(profile, arch=arch)
            for path, data in {**files.slot, "slots.mpy": files.root["slots.mpy"]}.items():
                target = slot / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            constants |= {"DESCRIPTION": json.dumps(profile.data), "SLOT": str(slot)}
            config["duplex"] = str(profile.data["duplex"])
        program = Path(folder) / "probe.py"
        program.write_text(_filled(PROBE.read_text("utf-8"), constants), "utf-8")
        try:
            async with asyncio.timeout(_DEADLINE_S):
                async with SimBoard(
                    url=f"ws://127.0.0.1:{await port}/", heap=HEAP, program=program, config=config
                ) as board:
                    async for event in board.events():
                        if event["event"] == "size":
                            buffers = {_named(path): size for path, size in event["buffers"].items()}
                            return {**event, "buffers": buffers}
                raise RuntimeError("the board ended before it was measured")
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


def _named(path: str) -> str:
    """The way to a buffer as the sources have it, as far as the names of one class are not those of another."""
    names = {new: old for old, new in firmware().public_attributes.items()}
    return "app" + re.sub(r"\w+", lambda found: names.get(found[0], found[0]), path)


def _filled(program: str, constants: Mapping[str, object]) -> str:
    """The program with other values of its constants, a line each, and without the parts for those that are not set."""
    made: list[str] = []
    left_out = False
    for line in program.split("\n"):
        words = line.split()
        if words[:2] == ["#", "if"]:
            left_out = not constants.get(words[2])
        elif words == ["#", "end"]:
            left_out = False
        elif words[1:2] == ["="] and words[0] in ("DESCRIPTION", "SLOT", "MODULES"):
            if constants.get(words[0]):
                made.append(f"{words[0]} = {constants[words[0]]!r}")
        elif not left_out:
            made.append(line)
    return "\n".join(made)


def estimate(found: Mapping[str, Any]) -> dict[str, int]:
    """The member `heap` of a board.json: bytes of code and objects, and with the buffers, on 32 bits."""
    buffers = sum(found["buffers"].values())
    code = round(RATIO * (found["used"] - buffers))
    return {"code_bytes": code, "running_bytes": code + buffers}


def rows() -> list[dict[str, Any]]:
    """The figures, in the form that bench.py prints."""
    found = asyncio.run(probe())
    buffers = sum(found["buffers"].values())
    code = estimate(found)["code_bytes"]
    note = f"estimate for 32 bits: {RATIO} x {found['used'] - buffers:,} B measured on 64"
    return [
        {"name": "device.code_heap_bytes", "value": code, "unit": f"B of code and objects ({note})",
         "budget": f"<= {CODE_BUDGET}", "ok": code <= CODE_BUDGET},
        {"name": "device.running_heap_bytes", "value": code + buffers, "unit": f"B with {buffers:,} B of buffers (estimate)",
         "budget": f"<= {RUNNING_BUDGET}", "ok": code + buffers <= RUNNING_BUDGET},
    ]  # fmt: skip


def boards() -> tuple[Table, dict[str, dict[str, int]]]:
    """What each board's files take of its flash, in one slot, and of its heap; the latter also by id."""
    table = Table("board", "files", "bytes in a slot", "largest", "heap: code", "running")
    heaps = {}
    for profile in profiles().values():
        files = build.files(profile).slot
        largest = max(files, key=lambda path: len(files[path]))
        real = profile.data["mcu"] != "unix"
        heap = heaps[profile.id] = estimate(asyncio.run(probe(profile=profile if real else None)))
        table.add_row(
            profile.id,
            str(len(files)),
            f"{sum(map(len, files.values())):,}",
            f"{largest} {len(files[largest]):,}",
            f"{heap['code_bytes']:,}",
            f"{heap['running_bytes']:,}",
        )
    return table, heaps


def write(heaps: Mapping[str, Mapping[str, int]]) -> None:
    """Put the figures into the boards' `board.json`, before what is said of their sources."""
    for name, heap in heaps.items():
        profile = find(name)
        members = [item for item in profile.data.items() if item[0] != "heap"]
        at = next((n for n, (member, _) in enumerate(members) if member == "source"), len(members))
        members.insert(at, ("heap", dict(heap)))
        (profile.folder / "board.json").write_text(dumps(dict(members)), "utf-8")


def main() -> None:
    """Print it all."""
    parser = argparse.ArgumentParser(description="Flash and heap of each board.")
    parser.add_argument("--write", action="store_true", help="put the heap's figures into each board.json")
    args = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    table, heaps = boards()
    console.print(table)
    if args.write:
        write(heaps)
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
