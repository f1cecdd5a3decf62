"""Reports: the same findings for people, programs and CI."""

import io
import json
from xml.etree import ElementTree

import pytest
from rich.console import Console
from vrt_host.conformance.checks import Check, Finding, Level, Outcome
from vrt_host.conformance.report import Report

FINDINGS = (
    Finding(Check("server.audio.seq", "§8.1", Level.MUST, "frames count"), Outcome.PASSED, ("17 ms",)),
    Finding(Check("server.audio.kind", "§8.1", Level.MUST, "is <2>"), Outcome.FAILED, ("[bold] & <b>\x1b",)),
    Finding(Check("server.turns.acting", "§6.1", Level.SHOULD, "acts"), Outcome.WARNED, ("none",)),
    Finding(Check("server.turns.more", "§6.1", Level.MAY, "does more"), Outcome.NOTED),
    Finding(Check("server.resume.foreign", "§5.3", Level.MUST, "fails"), Outcome.NOT_TESTABLE, ("no token",)),
)
REPORT = Report("server", "ws://127.0.0.1:1", FINDINGS, 1.26, "2026-11-29T12:00:00Z")


def printed(report, **options):
    console = Console(file=io.StringIO(), width=200)
    report.print(console, **options)
    return console.file.getvalue()


@pytest.mark.parametrize(("outcome", "code"), [(one, int(one is Outcome.FAILED)) for one in Outcome])
def test_only_a_failed_must_is_a_failure(outcome, code):
    assert Report("server", "x", [Finding(FINDINGS[0].check, outcome)], 0.0).exit_code == code


def test_table_shows_what_did_not_pass_or_everything():
    text = printed(REPORT)
    assert "server.audio.kind  is <2>" in text
    assert "[bold] & <b>" in text
    assert "server.audio.seq" not in text
    assert "1 passed, 1 failed, 1 warned, 1 noted, 1 not testable (1.3 s)" in text
    assert "17 ms" in printed(REPORT, everything=True)


def test_json_has_everything():
    value = json.loads(REPORT.to_json())
    assert value["counts"] == {"passed": 1, "failed": 1, "warned": 1, "noted": 1, "not testable": 1}
    assert [check["id"] for check in value["checks"]] == [one.check.id for one in FINDINGS]
    assert value["checks"][1] == {
        "id": "server.audio.kind",
        "section": "§8.1",
        "level": "MUST",
        "title": "is <2>",
        "outcome": "failed",
        "details": ["[bold] & <b>\x1b"],
    }


def test_reports_can_be_written_whatever_the_peer_is_called():
    report = Report("client", "run \udcff </script> {url}", FINDINGS, 1.0)
    for text in (report.to_json(), report.to_junit(), report.to_html()):
        assert text.encode("utf-8")
        assert "</script>" not in text or text == report.to_json()


def test_junit_is_xml_with_a_suite_for_each_chapter():
    root = ElementTree.fromstring(REPORT.to_junit().partition("?>")[2])
    suites = {suite.get("name"): suite.attrib for suite in root}
    assert list(suites) == ["server.audio", "server.turns", "server.resume"]
    audio = suites["server.audio"]
    assert (audio["tests"], audio["failures"], audio["skipped"]) == ("2", "1", "0")
    assert suites["server.resume"]["skipped"] == "1"
    assert suites["server.turns"]["failures"] == "0"
    failure = root.find(".//testcase[@name='server.audio.kind']/failure")
    assert failure.get("message") == "§8.1 MUST: is <2>"
    assert failure.text == "[bold] & <b>\N{REPLACEMENT CHARACTER}"
    assert root.find(".//testcase[@name='server.resume.foreign']/skipped").get("message") == "no token"


def test_html_is_one_page_that_needs_nothing_else():
    page = REPORT.to_html()
    for text in ("server.audio.kind", "is &lt;2&gt;", "[bold] &amp; &lt;b&gt;", "1 not testable", "§6.1"):
        assert text in page
    for name in ("src=", "href=", "<script", "http"):
        assert name not in page
