"""A board's profile in a folder of its own, for tests that need one."""

import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from vrt_host.resources import root

SIM = json.loads((root() / "boards" / "sim" / "board.json").read_text())


@dataclass(frozen=True)
class Board:
    """What the tools need of a profile."""

    id: str
    folder: Path
    data: dict[str, Any]


def made(folder: Path, **changes: Any) -> Board:
    """A board like the simulator's, with `changes` to its board.json."""
    folder.mkdir(exist_ok=True)
    data = {
        **SIM,
        "id": "test-board",
        "name": "Test board",
        "mcu": "esp32s3",
        "memory": {"flash_mb": 4, "psram": "octal"},
        "micropython": "ESP32_GENERIC_S3-SPIRAM_OCT",
        **changes,
    }
    (folder / "board.json").write_text(json.dumps(data))
    (folder / "board.py").write_text((root() / "boards" / "sim" / "board.py").read_text())
    return Board(data["id"], folder, data)


def install(monkeypatch: pytest.MonkeyPatch, board: Board) -> Board:
    """Make it what every name of a board finds."""
    name = "vrt_host.device.profiles"
    if name not in sys.modules and importlib.util.find_spec(name) is None:
        fake = ModuleType(name)
        fake.find = None  # type: ignore[attr-defined]
        sys.modules[name] = sys.modules["vrt_host.device"].profiles = fake  # type: ignore[attr-defined]
    monkeypatch.setattr("vrt_host.device.profiles.find", lambda name: board)
    return board
