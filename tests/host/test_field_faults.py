"""docs/field-faults.md: every report has its place, and every test that is named there exists."""

import ast
import functools
import re
from pathlib import Path

import pytest
from vrt_host.harness.scenario import shipped

ROOT = Path(__file__).resolve().parents[2]
SHOWN, _, NOT_SHOWN = (
    (ROOT / "docs" / "field-faults.md").read_text(encoding="utf-8").partition("\n## Not shown yet\n")
)
REPORT = re.compile(r"\[([\w.-]+/[\w.-]+(?:#\d+)?)\]\(https://github\.com/([\w./-]+)\)")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)(?:\[([\w-]+)\])?`")
REPORTS = 56


def rows(text):
    """The cells of the rows of a text's tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[0] != "report" and not row[0].startswith("---")]


def first_report(row):
    return REPORT.search(row[0])[1]


@functools.cache
def names_in(path):
    """The tests that pytest, or the runner of the firmware's tests, collects from a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_every_report_has_one_row():
    every = rows(SHOWN) + rows(NOT_SHOWN)
    assert len(every) == REPORTS
    cited = [found for row in every for found in REPORT.findall(row[0])]
    for name, place in cited:
        assert place == name.replace("#", "/issues/")
    issues = [name for name, _ in cited if "#" in name]
    assert len(issues) == len(set(issues))


@pytest.mark.parametrize("row", rows(SHOWN), ids=first_report)
def test_row_names_tests_that_exist(row):
    _, saw, must, shown_by = row
    assert saw
    assert must
    named = TEST.findall(shown_by)
    assert named
    assert TEST.sub("", shown_by).replace("<br>", "") == ""
    check_that_they_exist(named)


@pytest.mark.parametrize("row", rows(NOT_SHOWN), ids=first_report)
def test_row_that_is_not_shown_says_why(row):
    _, saw, why = row
    assert saw
    assert why
    check_that_they_exist(TEST.findall(why))


def check_that_they_exist(named):
    for path, name, scenario in named:
        assert name in names_in(path), f"{path} has no {name}"
        if scenario:
            assert name == "test_shipped_scenario_passes_with_the_firmware"
            assert scenario in {one.stem for one in shipped()}
