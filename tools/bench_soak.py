"""The short form of `make soak`, whose 1,000 cuts take too long for a benchmark; it measures nothing that grows."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import soak

CUTS = 60
BOARDS = 4


def rows() -> list[dict[str, Any]]:
    """The figures, in the form that bench.py prints."""
    with tempfile.TemporaryDirectory() as out:
        outcome = asyncio.run(soak.soak(CUTS, BOARDS, 1, Path(out)))
    if outcome.problems:
        print(*outcome.problems, sep="\n")
    return outcome.rows("short form: make soak has 1,000")
