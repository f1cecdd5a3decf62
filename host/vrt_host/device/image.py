"""One file that makes a board of an empty chip: MicroPython, and behind it a file system with the firmware in it.

MicroPython mounts a littlefs on its partition "vfs", whose size must be the file system's (image_file.py; micropython `ports/esp32/modules/_boot.py`, `flashbdev.py`; the parameters
are the defaults of `extmod/vfs_lfs.c`). What is free there is not in the file: littlefs erases a block before it uses it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vrt_host import __version__
from vrt_host.device import build
from vrt_host.device.image_file import CHIPS, Image
from vrt_host.device.profiles import Profile
from vrt_host.errors import UsageError, VrtError

BLOCK = 4096
_READ = _PROG = _LOOKAHEAD = 32
_CACHE = 4 * _PROG


def content(profile: Profile, *, tools: Path | None = None) -> dict[str, bytes]:
    """All files of a new board, path -> content."""
    made = build.files(profile, tools=tools)
    return {**{f"a/{path}": data for path, data in made.slot.items()}, **made.root, "slot": b"a "}


def make(image: Image, files: dict[str, bytes], flash: int) -> bytes:
    """The image with these files behind it, for a chip with so many bytes of flash, to be written where the image is.

    Raises UsageError when they have no room.
    """
    vfs = image.vfs(flash)
    system = filesystem(files, vfs.size // BLOCK)
    at = vfs.offset - image.offset
    if len(image.content) > at:
        raise UsageError(
            f"{image.path} has a file system already: take MicroPython as it is on micropython.org"
        )
    whole = image.content.ljust(at, b"\xff") + system.rstrip(b"\xff")
    whole = whole.ljust(at + -(-(len(whole) - at) // BLOCK) * BLOCK, b"\xff")
    if read(whole[at:], vfs.size // BLOCK) != files:
        raise VrtError("the file system does not read back")
    return whole


def filesystem(files: dict[str, bytes], blocks: int) -> bytes:
    """A littlefs with these files. Raises UsageError when they do not fit."""
    littlefs = _littlefs()
    try:
        system = littlefs.LittleFS(block_count=blocks, **_parameters())
        for path, data in sorted(files.items()):
            if "/" in path:
                system.makedirs(path.rpartition("/")[0], exist_ok=True)
            with system.open(path, "wb") as file:
                file.write(data)
    except littlefs.LittleFSError as error:
        raise UsageError(f"the files do not fit into {blocks * BLOCK >> 10} KB of flash ({error})") from None
    return bytes(system.context.buffer)


def read(system: bytes, blocks: int) -> dict[str, bytes]:
    """The files of a littlefs, of which the free end may be missing."""
    mounted = _littlefs().LittleFS(block_count=blocks, mount=False, **_parameters())
    mounted.context.buffer[: len(system)] = system
    mounted.mount()
    made = {}
    for folder, _, names in mounted.walk("/"):
        for name in names:
            path = f"{folder.rstrip('/')}/{name}"
            with mounted.open(path, "rb") as file:
                made[path.lstrip("/")] = file.read()
    return made


def manifest(image: Image, name: str) -> str:
    """For ESP Web Tools: what to write where, for a page beside which the file `name` lies."""
    part = {"path": name, "offset": image.offset}
    made = {
        "name": "vRT Edge",  # as Improv says it: by that a page tells an update from a first install
        "version": __version__,
        "new_install_prompt_erase": True,
        "builds": [{"chipFamily": CHIPS[image.mcu], "parts": [part]}],
    }
    return json.dumps(made, indent=2) + "\n"


def _parameters() -> dict[str, int]:
    return {
        "block_size": BLOCK,
        "read_size": _READ,
        "prog_size": _PROG,
        "lookahead_size": _LOOKAHEAD,
        "cache_size": _CACHE,
    }


def _littlefs() -> Any:
    try:
        import littlefs  # noqa: PLC0415
    except ImportError:
        raise UsageError("littlefs-python is not installed: pip install 'vrt-edge[device]'") from None
    return littlefs
