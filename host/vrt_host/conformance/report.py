"""What a run found, as a terminal table, JSON, JUnit XML and one HTML page.

report = Report("server", url, findings, seconds)
report.print(console)   report.to_json()   report.to_junit()   report.to_html()   report.exit_code
"""

from __future__ import annotations

import html
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vrt_host import __version__
from vrt_host.conformance.checks import Finding, Level, Outcome, printable

STYLES = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "bold red",
    Outcome.WARNED: "yellow",
    Outcome.NOTED: "cyan",
    Outcome.NOT_TESTABLE: "dim",
}


@dataclass(frozen=True)
class Report:
    """The findings of one run. `side`: what was tested, `server` or `client`; `peer`: how it was reached."""

    side: str
    peer: str
    findings: Sequence[Finding]
    seconds: float
    began: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))

    @property
    def counts(self) -> dict[Outcome, int]:
        """How many checks came out how."""
        counted = Counter(finding.outcome for finding in self.findings)
        return {outcome: counted[outcome] for outcome in Outcome}

    @property
    def exit_code(self) -> int:
        """0 when no MUST failed, else 1."""
        return 1 if self.counts[Outcome.FAILED] else 0

    @property
    def summary(self) -> str:
        """`210 passed, 1 failed, ...`."""
        told = ", ".join(f"{count} {outcome}" for outcome, count in self.counts.items() if count)
        return f"{told or 'nothing was checked'} ({self.seconds:.1f} s)"

    def print(self, console: Console, *, everything: bool = False) -> None:
        """A table of what did not pass, or of everything, and the summary."""
        rows = [one for one in self.findings if everything or one.outcome is not Outcome.PASSED]
        if rows:
            table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
            table.add_column(no_wrap=True)
            table.add_column(no_wrap=True)
            table.add_column(overflow="fold")
            for finding in rows:
                check, style = finding.check, STYLES[finding.outcome]
                lines = [f"[bold]{escape(check.id)}[/bold]  {escape(check.title)}"]
                lines += [
                    f"[{'dim' if finding.outcome is not Outcome.FAILED else 'red'}]{escape(detail)}[/]"
                    for detail in finding.details
                ]
                table.add_row(
                    f"[{style}]{finding.outcome}[/]",
                    f"{check.level} {escape(check.section)}",
                    "\n".join(lines),
                )
            console.print(table)
        style = STYLES[Outcome.FAILED] if self.exit_code else STYLES[Outcome.PASSED]
        console.print(f"[{style}]{escape(self.summary)}[/]")

    def to_json(self) -> str:
        """Everything, for a program."""
        return json.dumps(self._value(), indent=2, ensure_ascii=False) + "\n"

    def to_junit(self) -> str:
        """JUnit XML: a chapter is a suite, a SHOULD or MAY never a failure, what is not testable is skipped."""
        root = ElementTree.Element("testsuites", name=f"vRT 1.3 {self.side}", time=f"{self.seconds:.3f}")
        for chapter, findings in self._chapters():
            outcomes = Counter(finding.outcome for finding in findings)
            suite = ElementTree.SubElement(
                root,
                "testsuite",
                name=chapter,
                timestamp=self.began.rstrip("Z"),
                tests=str(len(findings)),
                failures=str(outcomes[Outcome.FAILED]),
                errors="0",
                skipped=str(outcomes[Outcome.NOT_TESTABLE]),
            )
            for finding in findings:
                self._junit_case(suite, chapter, finding)
        ElementTree.indent(root)
        return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"

    def to_html(self) -> str:
        """One page that needs nothing else."""
        chapters = "".join(
            f"<h2>{html.escape(chapter)}</h2><table>{''.join(map(_row, findings))}</table>"
            for chapter, findings in self._chapters()
        )
        counts = "".join(
            f'<span class="{_class(outcome)}">{count} {outcome}</span> '
            for outcome, count in self.counts.items()
            if count
        )
        title = f"vRT 1.3: {self.side} {printable(self.peer)}"
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
            f"<style>{_CSS}</style><h1>{html.escape(title)}</h1>"
            f"<p>{self.began}, {self.seconds:.1f} s, vrt {__version__}</p><p>{counts}</p>{chapters}</html>\n"
        )

    def _value(self) -> dict[str, Any]:
        return {
            "suite": f"vRT 1.3 {self.side}",
            "version": __version__,
            "peer": printable(self.peer),
            "began": self.began,
            "seconds": round(self.seconds, 3),
            "counts": {str(outcome): count for outcome, count in self.counts.items()},
            "checks": [
                {
                    "id": finding.check.id,
                    "section": finding.check.section,
                    "level": str(finding.check.level),
                    "title": finding.check.title,
                    "outcome": str(finding.outcome),
                    "details": list(finding.details),
                }
                for finding in self.findings
            ],
        }

    def _chapters(self) -> Iterator[tuple[str, list[Finding]]]:
        chapters: dict[str, list[Finding]] = {}
        for finding in self.findings:
            chapters.setdefault(finding.check.id.rpartition(".")[0], []).append(finding)
        yield from chapters.items()

    def _junit_case(self, suite: ElementTree.Element, chapter: str, finding: Finding) -> None:
        check = finding.check
        case = ElementTree.SubElement(suite, "testcase", classname=chapter, name=check.id)
        told = _xml_text("\n".join(finding.details))
        if finding.outcome is Outcome.FAILED:
            message = f"{check.section} {check.level}: {check.title}"
            ElementTree.SubElement(case, "failure", message=message).text = told
        elif finding.outcome is Outcome.NOT_TESTABLE:
            ElementTree.SubElement(case, "skipped", message=told)
        else:
            text = f"{finding.outcome}: {check.section} {check.level}: {check.title}\n{told}"
            ElementTree.SubElement(case, "system-out").text = text.strip()


def _row(finding: Finding) -> str:
    check = finding.check
    details = "".join(f"<li>{html.escape(detail)}</li>" for detail in finding.details)
    mark = "MUST" if check.level is Level.MUST else str(check.level).lower()
    return (
        f'<tr class="{_class(finding.outcome)}"><td>{finding.outcome}<td>{mark} {html.escape(check.section)}'
        f"<td><code>{html.escape(check.id)}</code><br>{html.escape(check.title)}"
        + (f"<ul>{details}</ul>" if details else "")
        + "</tr>"
    )


def _class(outcome: Outcome) -> str:
    return str(outcome).replace(" ", "-")


def _xml_text(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return "".join(
        c if c in "\n\t" or (c.isprintable() and c not in "\ufffe\uffff") else "\ufffd" for c in text
    )


_CSS = """
body{font:15px/1.45 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.4rem}h2{font-size:1rem;margin:1.5rem 0 .3rem;font-family:monospace}
table{border-collapse:collapse;width:100%}td{padding:.25rem .8rem .25rem 0;vertical-align:top;border-top:1px solid #ddd}
td:first-child{white-space:nowrap;width:7rem}td:nth-child(2){white-space:nowrap;width:9rem;color:#666}
ul{margin:.2rem 0;padding-left:1.2rem;color:#555;overflow-wrap:anywhere;font:13px/1.4 monospace}
span{margin-right:1rem}.passed td:first-child,span.passed{color:#187a2f}
.failed td:first-child,span.failed{color:#c01c28;font-weight:bold}.warned td:first-child,span.warned{color:#9a6700}
.noted td:first-child,span.noted{color:#1a6fb0}.not-testable td:first-child,span.not-testable{color:#777}
@media(prefers-color-scheme:dark){body{background:#1b1b1b;color:#ddd}td{border-color:#444}ul{color:#aaa}}
"""
