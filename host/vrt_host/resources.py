"""Where the firmware, the boards and the schema are: in the checkout, or bundled in the wheel."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def root() -> Path:
    """The folder that holds `firmware/`, `boards/` and `schema/`."""
    bundle = _HERE / "bundle"
    return bundle if bundle.is_dir() else _HERE.parent.parent
