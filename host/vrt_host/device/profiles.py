"""The boards we know: their descriptions, loaded and checked, and those that cannot work."""

from __future__ import annotations

import difflib
import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from vrt_host.device import pins
from vrt_host.errors import UsageError
from vrt_host.resources import root

_WIDTH = 110


@dataclass(frozen=True, slots=True)
class Profile:
    """A board: its folder, what its `board.json` says, and what to be careful about."""

    folder: Path
    data: dict[str, Any]
    warnings: tuple[str, ...]

    @property
    def id(self) -> str:
        return str(self.data["id"])

    @property
    def name(self) -> str:
        return str(self.data["name"])

    def abilities(self) -> dict[str, Any]:
        """What the board can do, for people and programs; None where it has no such thing."""
        data = self.data
        memory = data.get("memory")
        codecs = sorted({data[part]["codec"] for part in ("microphone", "speaker") if "codec" in data[part]})
        return {
            "id": self.id,
            "name": self.name,
            "mcu": data["mcu"],
            "status": data["status"],
            "assembly": data.get("assembly"),
            "duplex": data["duplex"],
            "microphone": data["microphone"].get("part"),
            "amplifier": data["speaker"].get("part"),
            "codec": codecs or None,
            "button": data.get("button", {}).get("pin"),
            "led": data.get("led", {}).get("kind"),
            "outputs": sorted(data["outputs"]),
            "flash_mb": memory["flash_mb"] if memory else None,
            "psram": memory["psram"] if memory else None,
            "micropython": data.get("micropython"),
            "link": data.get("link"),
            "serial": data.get("serial", {}).get("kind"),
            "heap": data.get("heap"),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A board that stock MicroPython cannot drive: why, and the id of the nearest one that it can."""

    id: str
    name: str
    reason: str
    instead: str


def profiles() -> dict[str, Profile]:
    """Every board of this product by its id, the simulated one included. Raises UsageError for one that is broken."""
    folders = sorted(path.parent for path in (root() / "boards").glob("*/board.json"))
    return {folder.name: load(folder) for folder in folders}


def unsupported() -> dict[str, Unsupported]:
    """The boards that cannot work, by id."""
    listed = json.loads((root() / "boards" / "unsupported.json").read_text("utf-8"))
    return {
        name: Unsupported(name, entry["name"], entry["reason"], entry["instead"])
        for name, entry in listed.items()
    }


def find(name: str) -> Profile:
    """A board by its id, or by the path of a folder with a `board.json`.

    Raises UsageError: with the nearest ids, or with the reason and the alternative for a board that cannot work.
    """
    boards = root() / "boards"
    if "/" not in name and (boards / name / "board.json").is_file():
        return load(boards / name)
    if (entry := unsupported().get(name)) is not None:
        raise UsageError(f"{entry.name} cannot work: {entry.reason}; the nearest that can is {entry.instead}")
    folder = Path(name).expanduser()
    if (folder / "board.json").is_file():
        return load(folder.resolve())
    if "/" in name:
        raise UsageError(f"no board.json in {name}; `vrt boards new ID --folder FOLDER` makes one")
    known = {path.parent.name for path in boards.glob("*/board.json")}
    near = difflib.get_close_matches(name.lower(), sorted(known | set(unsupported())), n=3, cutoff=0.5)
    raise UsageError(
        f"no board {name!r}; "
        + (
            f"did you mean {' or '.join(near)}?"
            if near
            else "`vrt boards` lists them, and a folder is named by its path"
        )
    )


def load(folder: Path) -> Profile:
    """The board in a folder. Raises UsageError that names the file and what is wrong with it."""
    path = folder / "board.json"
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    return checked(data, folder)


def checked(data: Any, folder: Path) -> Profile:
    """A description that is to be in `folder`, checked. Raises UsageError."""
    path = folder / "board.json"
    fault = best_match(_validator().iter_errors(data))
    if fault is not None:
        place = fault.json_path.removeprefix("$").removeprefix(".")
        raise UsageError(f"{path}: {place + ': ' if place else ''}{_short(fault.message)}")
    if data["id"] != folder.name:
        raise UsageError(f"{path}: id: {data['id']!r} must be the name of its folder, {folder.name!r}")
    errors, warnings = pins.check(data)
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise UsageError(f"{path}: {errors[0]}{more}")
    return Profile(folder, data, tuple(warnings))


def dumps(value: Any) -> str:
    """JSON laid out as the boards' files are: what fits into a line stays in one."""
    return _dumps(value, 0, _WIDTH) + "\n"


def _dumps(value: Any, indent: int, room: int) -> str:
    one = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or (indent and len(one) + indent <= room):
        return one
    pad = " " * (indent + 2)
    if isinstance(value, dict):
        lines = [f"{json.dumps(k)}: {_dumps(v, indent + 2, room - len(k) - 4)}" for k, v in value.items()]
        return "{\n" + ",\n".join(pad + line for line in lines) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(pad + _dumps(v, indent + 2, room) for v in value) + "\n" + " " * indent + "]"


@functools.cache
def _validator() -> Draft202012Validator:
    schema = json.loads((root() / "boards" / "board.schema.json").read_text("utf-8"))
    return Draft202012Validator(schema)


def _short(message: str) -> str:
    return message if len(message) <= 200 else message[:200] + " ..."
