"""A board's profile in a folder of its own, for tests that need one."""

import json
from pathlib import Path
from typing import Any

import pytest
from vrt_host.device.profiles import Profile
from vrt_host.resources import root

SIM = json.loads((root() / "boards" / "sim" / "board.json").read_text())


def made(folder: Path, **changes: Any) -> Profile:
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
    return Profile(folder, data, ())


def install(monkeypatch: pytest.MonkeyPatch, board: Profile) -> Profile:
    """Make it what every name of a board finds."""
    monkeypatch.setattr("vrt_host.device.profiles.find", lambda name: board)
    return board
