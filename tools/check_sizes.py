"""Fail when a module has outgrown what a reader holds in the head: 300 lines on the device, 500 on the host."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {"firmware": 300, "boards": 300, "host": 500, "tools": 500, "tests": 900}


def too_long() -> list[str]:
    """`path: lines (limit)` of every Python file that is over its folder's limit."""
    found = []
    for folder, limit in LIMITS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > limit:
                found.append(f"{path.relative_to(ROOT)}: {lines} lines (limit {limit})")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(too_long()) or 0)
