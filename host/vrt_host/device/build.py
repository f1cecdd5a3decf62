"""The files of a board, as they lie on its flash.

At the root `main.py` and `slots.mpy` (firmware/slots.py), beside the board's own `config.json` and `calls`; everything
else in one of two folders, `a/` and `b/`, of which the file `slot` names the one that runs.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrt_host import __version__
from vrt_host.device import compiler
from vrt_host.device.compiler import Compiler, accepted
from vrt_host.device.profiles import Profile
from vrt_host.device.weave.sources import module
from vrt_host.errors import UsageError
from vrt_host.resources import root

MPY_VERSION = "6.3"
"""Of the `.mpy` files that MicroPython 1.27 takes, and all since."""
ARCHITECTURES = {"esp32": "xtensawin", "esp32s3": "xtensawin", "unix": "x64"}
"""By the board's `mcu`; the windowed calls of both Xtensa chips are the same."""
LISTING = "files.json"
"""In a slot: what it consists of, `{"board", "version", "tools", "files": {path: sha256}}`; `tools` is "own" or "board"."""
MAIN = b"""# Starts the firmware in the slot that is chosen, see slots.py.
import slots

try:
    slots.boot()
except SystemExit:  # it said why; passed on, it would start the board again, for ever
    pass
"""
"""A SystemExit out of main.py is a soft reset (micropython `ports/esp32/main.c`), so a board without settings would never rest."""

_CODECS = "vrt.audio.codecs"
_LINKS = "vrt.links"
_ENTRIES = {"wifi": ("vrt.links.ws", "vrt.links.wifi"), "serial": ("vrt.links.serial",)}
# What people read in board.json, not the device.
_FOR_PEOPLE = frozenset(
    ("$schema", "heap", "memory", "micropython", "name", "notes", "source", "status", "url", "vendor")
)


@dataclass(frozen=True, slots=True)
class Files:
    """All that a board gets: a slot's content and the root's, path -> content."""

    slot: dict[str, bytes]
    root: dict[str, bytes]


def files(profile: Profile, *, tools: Path | None = None, arch: str | None = None) -> Files:
    """Everything for a board; `arch` is asked of the board where there is one. Raises UsageError."""
    cross = _cross(profile, arch)
    content = _slot(profile, cross, tools)
    main = {
        "main.py": MAIN,
        "slots.mpy": _content(compiler.firmware(cross, ["slots"], base=root()))["slots.mpy"],
    }
    return Files({**content, LISTING: listing(profile, content, own_tools=tools is not None)}, main)


def tree(
    profile: Profile, *, tools: Path | None = None, arch: str | None = None, version: str | None = None
) -> dict[str, bytes]:
    """What a slot of this board holds, path -> content, without the listing; it calls itself `version`.

    Sources are compiled for `arch` (by default the board's), lean; the user's `tools` keep their line numbers, since it is
    he who reads the traceback. Raises UsageError when something cannot be read or compiled.
    """
    return _slot(profile, _cross(profile, arch), tools, version)


def listing(profile: Profile, content: Mapping[str, bytes], *, own_tools: bool) -> bytes:
    """`LISTING` for that content."""
    made = {
        "board": profile.id,
        "version": __version__,
        "tools": "own" if own_tools else "board",
        "files": digests(content),
    }
    return json.dumps(made, separators=(",", ":")).encode()


def digests(content: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of every file, in hex."""
    return {path: hashlib.sha256(data).hexdigest() for path, data in sorted(content.items())}


def arch_of(mpy: int) -> str:
    """The architecture a board takes, by its `sys.implementation._mpy`. Raises UsageError for files of another version."""
    version, arch = accepted(mpy)
    if version != MPY_VERSION:
        raise UsageError(
            f"the board's MicroPython takes .mpy files of version {version}, and these are {MPY_VERSION}: "
            "flash MicroPython 1.27 or newer (`vrt flash`)"
        )
    return arch


def _cross(profile: Profile, arch: str | None) -> Compiler:
    cross = Compiler.find(MPY_VERSION, ARCHITECTURES[profile.data["mcu"]] if arch is None else arch)
    if cross.note:
        raise UsageError(f"{cross.note}, which a board's files need: pip install 'vrt-edge[sim]'")
    return cross


def _slot(
    profile: Profile, cross: Compiler, tools: Path | None, version: str | None = None
) -> dict[str, bytes]:
    sources = needed(profile)
    own = tools or profile.folder / "tools.py"
    if tools is not None:
        try:
            tools.read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read {tools}: {error.strerror or error}") from None
    made = {
        "board.json": json.dumps(
            {name: value for name, value in profile.data.items() if name not in _FOR_PEOPLE},
            separators=(",", ":"),
        ).encode(),
    }
    base = root()
    if own.is_file() and own.read_bytes():
        made |= _content(compiler.one(cross, "tools", own, base=base))
    else:
        made["tools.py"] = b""  # the firmware imports it
    of_the_board = {name for name, path in sources.items() if base / "firmware" not in path.parents}
    made |= _content(compiler.board(cross, [sources[name] for name in of_the_board], base=base))
    woven = compiler.firmware(cross, sources.keys() - of_the_board, version=version, base=base)
    return made | _content(woven)


def _content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def needed(profile: Profile) -> dict[str, Path]:
    """The modules of a board, name -> source: all but the drivers of codecs and links that it can never use."""
    firmware = root() / "firmware"
    sources = {
        module(path.relative_to(firmware)): path
        for path in [firmware / "main.py", *_python(firmware / "vrt")]
    }
    sources["board"] = profile.folder / "board.py"
    if not sources["board"].is_file():
        raise UsageError(f"{profile.folder} has no board.py")
    boards = root() / "boards"
    for path in sorted(boards.glob("*.py")):  # what boards share; taken when it is imported
        sources[path.stem] = path
    imports = {name: _imports(path, sources) for name, path in sources.items()}
    barred = _barred(profile.data, sources)
    kept: set[str] = set()

    def keep(names: Iterable[str]) -> None:
        for name in names:
            if name not in kept and name not in barred:
                kept.add(name)
                keep(imports[name])

    shared = {path.stem for path in boards.glob("*.py")}
    optional: Callable[[str], bool] = lambda name: name in shared or name.startswith((_CODECS, _LINKS))  # noqa: E731
    keep(name for name in sources if not optional(name))
    keep(f"{_CODECS}.{codec}" for codec in codecs(profile.data) if f"{_CODECS}.{codec}" in sources)
    keep(name for link in links(profile.data) for name in _ENTRIES[link] if name in sources)
    return {name: sources[name] for name in sorted(kept)}


def codecs(data: Mapping[str, Any]) -> list[str]:
    """The codec drivers that a board needs."""
    return sorted({data[way]["codec"] for way in ("microphone", "speaker") if data[way].get("codec")})


def links(data: Mapping[str, Any]) -> list[str]:
    """The kinds of link that a board may use: "wifi", "serial"."""
    if data.get("link") == "serial":
        return ["serial"]
    return ["wifi", "serial"] if "serial" in data else ["wifi"]


def _barred(data: Mapping[str, Any], sources: Iterable[str]) -> set[str]:
    """Modules that this board never imports, although others name them."""
    used = {f"{_CODECS}.{codec}" for codec in codecs(data)}
    if "expander" in (data["speaker"].get("amplifier") or {}):
        used.add(f"{_CODECS}.expander")
    drivers = {
        name for name in sources if re.fullmatch(rf"{_CODECS}\.(expander|[a-z]+[0-9]+[a-z0-9]*)", name)
    }
    barred = drivers - used
    if not used:
        barred.update(name for name in sources if name.startswith(_CODECS))
    if "serial" not in links(data):
        barred.add("espserial")
    if "led" not in data:
        barred.add("espled")
    for link, entries in _ENTRIES.items():
        if link not in links(data):
            barred.update(entries)
    return barred


def _python(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def _imports(path: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules of `known` that a file imports, anywhere in it, with the packages that they are in."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # of vrt.use
            found.add(node.value)
    for name in list(found):
        parts = name.split(".")
        found.update(".".join(parts[:n]) for n in range(1, len(parts)))
    return {name for name in found if name in known}
