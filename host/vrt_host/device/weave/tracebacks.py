"""What a board says of where it failed, with the names that the sources have."""

from __future__ import annotations

import re

from vrt_host.device.weave import firmware

_FRAME = re.compile(r'File "([\w.-]+)", line \d+, in (\w+)$')
_PLACE = re.compile(r"\b(vrt[\w.-]*):([A-Za-z_]\w*)")


def readable(line: str) -> str:
    """A line of a board's traceback with the names that the sources have; one of another firmware as it is."""
    found = _FRAME.search(line)
    if found is None:
        return line
    meant = _meant(found[1], found[2])
    if not meant:
        return line
    where = " or ".join(dict.fromkeys(module for module, _ in meant))
    return f'{line[: found.start()]}File "{where}", in {meant[0][1]}'


def placed(text: str) -> str:
    """A text with the place of a crash, "module:function", as the sources have it."""
    return _PLACE.sub(_place, text)


def _place(found: re.Match[str]) -> str:
    meant = _meant(found[1], found[2])
    if not meant:
        return found[0]
    return " or ".join(dict.fromkeys(module for module, _ in meant)) + ":" + meant[0][1]


def _meant(module: str, function: str) -> list[tuple[str, str]]:
    names, _, digest = module.partition("-")
    for native in (True, False) if module.startswith("vrt") else ():
        made = firmware(native=native)
        if digest in ("", made.digest):
            return made.meant(names, function)
    return []
