"""What a run is doing, while it does it: one line in the terminal that is rewritten, and each failure once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from vrt_host.conformance.checks import Finding, Outcome
from vrt_host.conformance.report import STYLES
from vrt_host.conformance.run import matching


class Progress:
    """A context manager. `changed`, `begun` and `ended` are for a `Ledger` and for `run.play`."""

    def __init__(self, console: Console, scenarios: int, only: Sequence[str] = ()) -> None:
        """`only`: the checks that are of interest."""
        self._console = console
        self._only = only
        self._scenarios = scenarios
        self._done = 0
        self._running: list[str] = []
        self._outcomes: dict[str, Outcome] = {}
        self._live = Live(console=console, get_renderable=self._line, refresh_per_second=8, transient=True)

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def changed(self, finding: Finding) -> None:
        """The outcome of a check is known, or another one."""
        if not matching(finding.check.id, self._only):
            return
        self._outcomes[finding.check.id] = finding.outcome
        if finding.outcome is Outcome.FAILED:
            check, style = finding.check, STYLES[finding.outcome]
            self._console.print(
                f"[{style}]{finding.outcome}[/] {escape(check.id)} ({check.section}): {escape(check.title)}",
                soft_wrap=True,
            )

    def begun(self, scenario: Any) -> None:
        """A scenario is at work."""
        self._running.append(scenario.name)

    def ended(self, scenario: Any) -> None:
        """It is done."""
        self._running.remove(scenario.name)
        self._done += 1

    def _line(self) -> Text:
        counts = Counter(self._outcomes.values())
        text = Text(f"{self._done}/{self._scenarios} scenarios ", no_wrap=True, overflow="ellipsis")
        for outcome in Outcome:
            if counts[outcome]:
                text.append(f" {counts[outcome]} {outcome}", STYLES[outcome])
        return text.append(f"  {', '.join(self._running)}", "dim")
