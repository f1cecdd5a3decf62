"""The start of the simulated board, measured from outside (tools/bench_boot.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from vrt_host.errors import VrtError
from vrt_host.resources import root

sys.path.insert(0, str(root() / "tools"))
import bench_boot


def test_start_is_measured_beside_a_bare_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_boot, "ROUNDS", 1)
    (row,) = bench_boot.rows()
    assert row["name"] == "device.boot_to_ready_ms"
    assert row["ratio"] > 0
    assert "bare socket" in row["baseline"]


async def test_program_that_is_never_ready_is_no_figure(tmp_path: Path) -> None:
    program = tmp_path / "floor.py"
    program.write_text("import board\n", "utf-8")
    with pytest.raises((RuntimeError, VrtError), match="ended"):
        await bench_boot.boot(1, program)
