"""Firmware for the simulated board: MicroPython, and the sources compiled for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from vrt_host.device import compiler
from vrt_host.device.compiler import Compiler
from vrt_host.errors import UsageError
from vrt_host.resources import root

MICROPYTHON_MINIMUM = (1, 27)  # older ones allocate in slice assignment, which the audio path must not

_HINT = "set VRT_MICROPYTHON to a MicroPython unix binary of 1.27 or newer"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A MicroPython: where it is, its version, and the `.mpy` files it takes (`arch` is empty when no machine code)."""

    path: Path
    version: tuple[int, ...]
    mpy_version: str
    arch: str


@dataclass(frozen=True, slots=True)
class Build:
    """Folders for the module path, first one first, and what the operator should know of it (empty: nothing)."""

    folders: tuple[Path, ...]
    note: str


def find_runtime() -> Runtime:
    """The MicroPython that runs the firmware: VRT_MICROPYTHON, else the wheel's beside this Python, else the PATH's.

    It is started once to learn its version. Raises UsageError, naming VRT_MICROPYTHON, when there is none that fits.
    """
    named = os.environ.get("VRT_MICROPYTHON")
    if named:
        found = shutil.which(named)
        if found is None:
            raise UsageError(f"VRT_MICROPYTHON names {named}, which is not a program: {_HINT}")
    else:
        beside = Path(sys.executable).parent / "micropython"
        found = shutil.which(str(beside)) or shutil.which("micropython")
        if found is None:
            raise UsageError(f"no MicroPython here (its wheel is for Linux x86-64 and macOS arm64): {_HINT}")
    version, mpy = _ask(found)
    if version < MICROPYTHON_MINIMUM:
        said = ".".join(map(str, version))
        raise UsageError(f"{found} is MicroPython {said}, and the firmware needs 1.27: {_HINT}")
    return Runtime(Path(found).absolute(), version, *compiler.accepted(mpy))


def _ask(binary: str) -> tuple[tuple[int, ...], int]:
    """A MicroPython's version and its `_mpy`; raises UsageError when the program does not answer as one."""
    code = "import sys; i = sys.implementation; print(i[0], getattr(i, '_mpy', 0), *i[1][:3])"
    try:
        done = subprocess.run([binary, "-c", code], capture_output=True, text=True, timeout=20, check=False)
        name, *numbers = done.stdout.split()
        if name == "micropython":
            mpy, *version = (int(number) for number in numbers)
            return tuple(version), mpy
    except (OSError, ValueError, subprocess.TimeoutExpired):
        pass
    raise UsageError(f"{binary} did not answer as a MicroPython does: {_HINT}")


def build(runtime: Runtime, *, program: Path | None = None, tools: Path | None = None) -> Build:
    """The firmware and `boards/sim` for this runtime, compiled where that is possible.

    `program` replaces the firmware's `main`, and `tools` the board's `tools`; both are files of MicroPython source.
    Raises UsageError when one of them cannot be read or has a syntax error.
    """
    cross = Compiler.find(runtime.mpy_version, runtime.arch)
    folders = []
    for name, file in (("main", program), ("tools", tools)):
        if file is not None:
            folders.append(compiler.one(cross, name, file))
    board, firmware = root() / "boards" / "sim", root() / "firmware"
    if cross.binary:
        files = [path for path in board.iterdir() if path.suffix in (".py", ".json")]
        board, firmware = compiler.board(cross, files), compiler.firmware(cross)
    folders += [board, firmware]
    slower = "running the .py files, which start slower and need a larger heap"
    return Build(tuple(folders), f"{cross.note}: {slower}" if cross.note else "")
