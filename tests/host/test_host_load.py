"""The load of the capacity benchmark works on both servers; how fast is not for a test to say."""

import importlib.util
import sys
from pathlib import Path

import pytest
from vrt_host.resources import root

spec = importlib.util.spec_from_file_location("bench_host", root() / "tools" / "bench_host.py")
bench_host = importlib.util.module_from_spec(spec)
sys.modules["bench_host"] = bench_host
spec.loader.exec_module(bench_host)

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="the benchmark reads CPU time from /proc"
)


@pytest.mark.parametrize("mode", ["pace", "text"])
def test_what_is_sent_comes_back_from_both_servers(mode):
    ((bare, host),) = bench_host.work(mode, 3, 1, 0.2)
    for window in (bare, host):
        assert window["done"] > 0
        assert window["server_s"] > 0
        assert window["p50_ms"] <= window["p99_ms"]


def test_idle_sessions_take_memory():
    ((bare, host),) = bench_host.work("hold", 3, 1, 0.01)
    assert (bare["done"], host["done"]) == (0, 0)
    assert min(bare["memory_kib"], host["memory_kib"]) > 1000


def test_server_that_does_not_start_is_named():
    with pytest.raises(RuntimeError, match="nonsense"), bench_host.server(["-m", "vrt_host", "nonsense"]):
        pass


def test_calm_turns_are_chosen_by_unrest_alone():
    pairs = [({"late_ms": late, "p99_ms": 9 - late}, {"late_ms": 0.0, "p99_ms": 1.0}) for late in range(9)]
    assert [pair[0]["late_ms"] for pair in bench_host.paced(pairs)] == [0, 1, 2]
