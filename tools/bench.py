"""`make bench`: run every benchmark, print a table, write `build/bench.json`.

A benchmark is a module `tools/bench_*.py` with `rows() -> list of dict`, each
`{name, value, unit, baseline, ratio, budget, ok}`: `baseline` names what ran beside it in the same run (or None), `ratio` is
value over baseline, `budget` is a text such as "<= 2.0 x", `ok` says whether the budget was met (None: no budget).
A figure over its budget is printed, not hidden; the exit code says whether every benchmark ran.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "bench.json"
FIELDS = ("name", "value", "unit", "baseline", "ratio", "budget", "ok")


def shown(value: Any) -> str:
    """A cell of the table."""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return "" if value is None else str(value)


def save(rows: list[dict[str, Any]], *, keep: bool) -> None:
    """Write `build/bench.json`; `keep`: with the rows that are in it under other names."""
    made = [{field: row.get(field) for field in FIELDS} for row in rows]
    if keep and OUT.exists():
        names = {row["name"] for row in made}
        made = [row for row in json.loads(OUT.read_text("utf-8")) if row["name"] not in names] + made
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(made, indent=1) + "\n", "utf-8")


def main() -> int:
    """Run the benchmarks named on the command line (all when none is); 1 when one of them did not run."""
    found = sorted((ROOT / "tools").glob("bench_*.py"))
    names = [
        path.stem for path in found if "\ndef rows(" in path.read_text("utf-8")
    ]  # others are parts of those
    parser = argparse.ArgumentParser(description="Run the benchmarks.", epilog=f"known: {' '.join(names)}")
    parser.add_argument("only", nargs="*", metavar="NAME", help="run these only, such as bench_link")
    only = parser.parse_args().only
    unknown = set(only) - set(names)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; known: {' '.join(names)}")
    sys.path.insert(0, str(ROOT / "tools"))
    rows: list[dict[str, Any]] = []
    broken = []
    for name in only or names:
        print(f"bench: {name}", flush=True)
        try:
            rows += importlib.import_module(name).rows()
        except Exception:
            traceback.print_exc()
            broken.append(name)
    table = Table(*FIELDS)
    for row in rows:
        table.add_row(*(shown(row.get(field)) for field in FIELDS))
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    save(rows, keep=bool(only))
    print(f"bench: wrote {OUT.relative_to(ROOT)}" + (f"; DID NOT RUN: {', '.join(broken)}" if broken else ""))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
