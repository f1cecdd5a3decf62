"""What is shown of a run while it goes on."""

import io
from types import SimpleNamespace

from rich.console import Console
from vrt_host.conformance.checks import Finding, Outcome, must
from vrt_host.conformance.live import Progress

CHECK, OTHER = must("a.b.one", "§1", "[one] holds"), must("a.c.two", "§2", "two holds")
SCENARIO = SimpleNamespace(name="pings")


def test_line_counts_outcomes_and_names_what_is_at_work():
    progress = Progress(Console(file=io.StringIO(), width=200), 2)
    progress.begun(SCENARIO)
    progress.changed(Finding(CHECK, Outcome.PASSED))
    progress.changed(Finding(OTHER, Outcome.WARNED))
    assert progress._line().plain.split() == ["0/2", "scenarios", "1", "passed", "1", "warned", "pings"]
    progress.ended(SCENARIO)
    assert progress._line().plain.split() == ["1/2", "scenarios", "1", "passed", "1", "warned"]


def test_failure_that_is_of_interest_is_told_at_once():
    console = Console(file=io.StringIO(), width=200)
    with Progress(console, 1, ["a.b"]) as progress:
        for check in (CHECK, OTHER):
            for outcome in (Outcome.PASSED, Outcome.FAILED):
                progress.changed(Finding(check, outcome))
    assert console.file.getvalue() == "failed a.b.one (§1): [one] holds\n"


def test_nothing_is_redrawn_where_there_is_no_terminal():
    console = Console(file=io.StringIO(), width=200)
    with Progress(console, 1) as progress:
        progress.begun(SCENARIO)
    assert console.file.getvalue() == ""
