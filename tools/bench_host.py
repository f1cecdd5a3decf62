"""What the host carries: echoed audio against a bare `websockets` server, control messages, memory, growth.

`vrt serve --agent echo` and tools/echo_server.py stand side by side in processes of their own; tools/host_load.py, in a
third, makes them work in turns of a second. With two cores or more the servers have one and the load has another. What
else the machine does only adds to the time: of the turns, the calmest third counts, by a measure that knows nothing of
the result (how much of its core a saturated server got; how late the load itself was).

    python tools/bench_host.py --docs      measures the growth too and writes docs/capacity.md's table and plot
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOAD = Path(__file__).with_name("host_load.py")
BARE = Path(__file__).with_name("echo_server.py")
DOC = ROOT / "docs" / "capacity.md"
PLOT = ROOT / "docs" / "capacity.png"
TABLE = "<!-- table: tools/bench_host.py --docs -->"

TALKING = 200
"""Sessions at 50 frames a second each way, of the figure that has a budget."""
GROWTH = (1, 25, 50, 100, 150, 200, 300)
IDLE = (100, 300)
DEADLINE_S = 300.0

Window = dict[str, float]
Pair = tuple[Window, Window]
"""The bare server's, and the host's right after it."""


def _core(number: int) -> int | None:
    cores = sorted(os.sched_getaffinity(0))
    return cores[number] if len(cores) > 1 else None


@contextlib.contextmanager
def server(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    """A server in a process of its own, on the first core; its port and its pid."""
    core = _core(0)
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            if core is not None:
                os.sched_setaffinity(process.pid, {core})
            assert process.stdout is not None
            said = process.stdout.readline().strip()
            if not said:
                raise RuntimeError(f"{' '.join(command)} did not start")
            yield said.rpartition(":")[2], process.pid
        finally:
            process.terminate()


def work(mode: str, sessions: int, rounds: int, seconds: float) -> list[Pair]:
    """Let both servers work in turns, fresh ones for each call."""
    with (
        server([str(BARE)]) as bare,
        server(["-m", "vrt_host", "serve", "--agent", "echo", "--port", "0"]) as host,
    ):
        command = [sys.executable, str(LOAD), mode, f"bare:{bare[0]}:{bare[1]}", f"vrt:{host[0]}:{host[1]}"]
        command += ["--sessions", str(sessions), "--rounds", str(rounds), "--seconds", str(seconds)]
        core = _core(1)
        command += [] if core is None else ["--core", str(core)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode:
        said = (done.stderr.strip() or f"the load ended with {done.returncode}").splitlines()[-1]
        raise RuntimeError(f"{mode} with {sessions} sessions: {said}")
    made = json.loads(done.stdout)
    return list(zip(made["bare"], made["vrt"], strict=True))


def _calmest(pairs: list[Pair], unrest: Callable[[Window], float]) -> list[Pair]:
    ranked = sorted(pairs, key=lambda pair: max(map(unrest, pair)))
    return ranked[: max(1, len(pairs) // 3)]


def saturated(pairs: list[Pair]) -> list[Pair]:
    """Those in which the servers had their core for themselves."""
    return _calmest(pairs, lambda window: -window["server_s"] / window["wall_s"])


def paced(pairs: list[Pair]) -> list[Pair]:
    """Those in which the load was sent in time."""
    return _calmest(pairs, lambda window: window["late_ms"])


def rate(window: Window) -> float:
    """Frames, or messages, that came back per second of the server's CPU."""
    return window["done"] / window["server_s"]


def share(sessions: int) -> Callable[[Window], float]:
    """Per cent of a core that so many sessions take at 50 frames a second."""
    return lambda window: 100 * 50 * sessions / rate(window)


def median(pairs: list[Pair], value: Callable[[Window], float]) -> tuple[float, float]:
    """Of the bare server, and of the host."""
    bare, host = ([value(window) for window in side] for side in zip(*pairs, strict=True))
    return statistics.median(bare), statistics.median(host)


def row(name: str, value: float, unit: str, **rest: Any) -> dict[str, Any]:
    """One line of build/bench.json."""
    return {"name": name, "value": value, "unit": unit, **rest}


def slope(points: Sequence[tuple[float, float]]) -> float:
    """What one session more adds."""
    return float(statistics.linear_regression(*zip(*points, strict=True)).slope)


def rows() -> list[dict[str, Any]]:
    """The figures, in the form that bench.py prints."""
    if not Path("/proc/self/schedstat").exists():
        raise RuntimeError("this benchmark reads CPU time from /proc: it needs Linux")
    echoed = saturated(work("echo", 50, 18, 0.5))
    bare, host = median(echoed, rate)
    ratio = statistics.median(rate(pair[1]) / rate(pair[0]) for pair in echoed)
    made = [
        row(
            "host.echo_ratio",
            ratio,
            f"x ({host:,.0f} audio frames per second and core)",
            baseline=f"bare websockets: {bare:,.0f}",
            ratio=ratio,
            budget=">= 0.7 x",
            ok=ratio >= 0.7,
        )
    ]
    talking = work("pace", TALKING, 18, 1.0)
    calm = paced(talking)
    bare, host = median(calm, lambda window: window["p99_ms"])
    added = statistics.median(pair[1]["p99_ms"] - pair[0]["p99_ms"] for pair in calm)
    late = max(window["late_ms"] for pair in calm for window in pair)
    made.append(
        row(
            "host.added_p99_ms",
            added,
            f"ms (p99 {host:.1f}, {TALKING} sessions at 50 frames/s each way; the load was {late:.0f} ms late at most)",
            baseline=f"bare websockets: p99 {bare:.1f}",
            budget="<= 10 ms",
            ok=added <= 10,
        )
    )
    for name, mode, what in (
        ("host.control_round_trips", "text", "user text to the agent's answer, numbered both ways"),
        ("host.pings", "ping", "ping to pong"),
    ):
        calm = saturated(work(mode, 20, 9, 0.5))
        bare, host = median(calm, rate)
        baseline = f"bare websockets, the same bytes up: {bare:,.0f}"
        made.append(row(name, host, f"per second and core ({what})", baseline=baseline, ratio=host / bare))
    idle = [(sessions, work("hold", sessions, 1, 0.2)[0]) for sessions in IDLE]
    few = [(50, work("pace", 50, 1, 2.0)[0]), (TALKING, talking[-1])]
    for name, points in (("host.memory_idle", idle), ("host.memory_talking", few)):
        bare, host = (slope([(count, pair[side]["memory_kib"]) for count, pair in points]) for side in (0, 1))
        made.append(
            row(name, host, "KiB a session", baseline=f"bare websockets: {bare:.1f} KiB a connection")
        )
    return made


COLUMNS = (
    ("echo", "echoed frames per second and core", "{:,.0f}"),
    ("text", "round trips of a text per second and core", "{:,.0f}"),
    ("core", "share of a core at 50 frames/s, %", "{:.0f}"),
    ("p50", "p50 of such a frame, ms", "{:.1f}"),
    ("p99", "p99, ms", "{:.1f}"),
    ("idle", "memory, all idle, MiB", "{:.0f}"),
    ("talking", "memory, all talking, MiB", "{:.0f}"),
)


def growth() -> list[tuple[int, dict[str, tuple[float, float]]]]:
    """For each number of sessions the bare server's figure and the host's, by the names of COLUMNS."""
    made = []
    for sessions in GROWTH:
        print(f"{sessions} sessions", flush=True)
        found = {mode: median(saturated(work(mode, sessions, 6, 0.5)), rate) for mode in ("echo", "text")}
        found["idle"] = median(work("hold", sessions, 1, 0.2), _mebibytes)
        pairs = work("pace", sessions, 24, 0.5)
        found["talking"] = median(pairs[-1:], _mebibytes)
        calm = paced(pairs)
        found["core"] = median(calm, share(sessions))
        found["p50"] = median(calm, lambda window: window["p50_ms"])
        found["p99"] = median(calm, lambda window: window["p99_ms"])
        made.append((sessions, found))
    return made


def _mebibytes(window: Window) -> float:
    return window["memory_kib"] / 1024


def table(points: list[tuple[int, dict[str, tuple[float, float]]]]) -> str:
    """As Markdown, the bare server's figure in brackets."""
    lines = [
        "| sessions | " + " | ".join(title for _, title, _ in COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for sessions, found in points:
        cells = [
            f"{form.format(found[name][1])} ({form.format(found[name][0])})" for name, _, form in COLUMNS
        ]
        lines.append(f"| {sessions} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(points: list[tuple[int, dict[str, tuple[float, float]]]]) -> None:
    """The same as a plot."""
    import matplotlib as mpl  # noqa: PLC0415  (slow, and only here)

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(2, 3, figsize=(12, 6), layout="constrained")
    counts = [sessions for sessions, _ in points]
    shown = [column for column in COLUMNS if column[0] != "p50"]
    for axis, (name, title, _) in zip(axes.flat, shown, strict=True):
        for side, label, style in ((1, "vrt serve", "o-"), (0, "bare websockets", "s--")):
            axis.plot(counts, [found[name][side] for _, found in points], style, label=label)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("sessions", fontsize=9)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes.flat[0].legend(fontsize=9)
    figure.savefig(PLOT, dpi=100)
    pyplot.close(figure)


def document() -> None:
    """Put the growth, as measured now, into docs/capacity.md."""
    points = growth()
    draw(points)
    head, mark, rest = DOC.read_text("utf-8").partition(TABLE)
    if not mark:
        raise RuntimeError(f"{DOC} has no line {TABLE}")
    after = rest.partition(TABLE)[2]
    said = f"CPython {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores. In brackets the bare server."
    DOC.write_text(f"{head}{TABLE}\n{table(points)}\n\n{said}\n{TABLE}{after}", "utf-8")


def main() -> None:
    """Print the rows, or write the document."""
    parser = argparse.ArgumentParser(description="Measure what the host carries.")
    parser.add_argument("--docs", action="store_true", help="write docs/capacity.md's table and plot")
    if parser.parse_args().docs:
        document()
        return
    for one in rows():
        print(one)


if __name__ == "__main__":
    main()
