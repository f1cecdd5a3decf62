"""An update whose power is cut at any write leaves a board that starts; the whole of it is `make bench` (tools/bench_update.py)."""

from __future__ import annotations

import sys

from vrt_host.resources import root

sys.path.insert(0, str(root() / "tools"))
from bench_update import cuts

EVERY = 61


def test_board_starts_after_a_power_cut_at_any_write_of_an_update() -> None:
    outcomes = list(cuts(EVERY))
    assert {outcome.step for outcome in outcomes} >= {"install", "first start", "start without confirming"}
    assert not [outcome for outcome in outcomes if outcome.problem]
