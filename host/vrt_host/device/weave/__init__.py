"""The firmware as a board gets it, woven from its sources for the least memory: see firmware.py."""

from __future__ import annotations

import functools
from pathlib import Path

from vrt_host.device.weave.firmware import File, Firmware
from vrt_host.resources import root

__all__ = ["File", "Firmware", "firmware", "rules", "sources"]


def rules() -> list[Path]:
    """The files of this package: others make other files of the same sources."""
    return sorted(Path(__file__).parent.glob("*.py"))


def sources(base: Path | None = None) -> list[Path]:
    """The files that the names depend on."""
    base = base or root()
    boards = base / "boards"
    return sorted([*(base / "firmware").rglob("*.py"), *boards.glob("*.py"), *boards.glob("*/board.py")])


def firmware(*, native: bool = True, base: Path | None = None) -> Firmware:
    """The firmware of this host, or of `base`. Takes two seconds, once for the same sources."""
    stamps = tuple((path, path.stat().st_mtime_ns) for path in sources(base))
    return _firmware(native, base or root(), stamps)


@functools.lru_cache(4)
def _firmware(native: bool, base: Path, _: object) -> Firmware:
    return Firmware(base / "firmware", base / "boards", native)
