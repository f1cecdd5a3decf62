"""What `make size` tells of each board's heap (tools/bench_size.py)."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path

import pytest
from vrt_host.device.profiles import Profile, dumps, find, load
from vrt_host.resources import root

sys.path.insert(0, str(root() / "tools"))
import bench_size

HEAP = {"code_bytes": 1234, "running_bytes": 5678}


def test_estimate_takes_buffers_in_full_and_a_part_of_the_rest() -> None:
    found = {"used": 11_000, "buffers": {"ring": 600, "line": 400}}
    assert bench_size.estimate(found) == {"code_bytes": 7200, "running_bytes": 8200}


async def test_real_boards_drivers_count_instead_of_the_simulated_boards() -> None:
    used = {}
    for name in ("waveshare-touch-lcd-1.85", "waveshare-s3-audio-board"):
        profile = find(name)
        low = {**profile.data, "speaker": {**profile.data["speaker"], "rate": 16000}}
        found = await bench_size.probe(profile=dataclasses.replace(profile, data=low))
        assert "app.link.rx" in found["buffers"]
        used[name] = found["used"]
    # The second has two codecs, an expander and a LED.
    assert used["waveshare-s3-audio-board"] > used["waveshare-touch-lcd-1.85"] + 5_000


@pytest.mark.parametrize("name", ["bread-compact-s3", "sim"])
def test_figures_are_written_into_the_file_and_nothing_else_changes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / name
    shutil.copytree(find(name).folder, folder)
    before = load(folder).data
    monkeypatch.setattr(bench_size, "find", lambda _: load(folder))
    for _ in range(2):
        bench_size.write({name: HEAP})
    after: Profile = load(folder)
    assert after.data == {**before, "heap": HEAP}
    assert after.abilities()["heap"] == HEAP
    assert (folder / "board.json").read_text("utf-8") == dumps(after.data)
