"""Scenario files: the shipped ones are right, and a mistake is told in one line with its place."""

import json
import re

import pytest
from jsonschema import Draft202012Validator
from vrt_host.errors import UsageError
from vrt_host.harness import player
from vrt_host.harness.scenario import SHIPPED, find, load, schema, shipped
from vrt_host.resources import root

OPEN = {"open": {}}
EXPECT = {"expect": {"message": "interrupt"}, "check": "it interrupts"}
CALL = {"call": {"tool": "light", "as": "a"}}


@pytest.fixture
def write(tmp_path):
    """A scenario file with these steps, or this text."""

    def made(*steps, text=None, **members):
        path = tmp_path / "mine.json"
        value = {"title": "t", "why": "w", "section": "§6.2", "steps": list(steps), **members}
        path.write_text(json.dumps(value) if text is None else text)
        return path

    return made


def test_shipped_scenarios_say_what_they_are_about():
    headings = set(
        re.findall(r"^#{2,3} (\d+(?:\.\d+)*)", (root() / "schema" / "vrt-1.3.md").read_text("utf-8"), re.M)
    )
    scenarios = [load(path) for path in shipped()]
    assert len(scenarios) >= 12
    for scenario in scenarios:
        assert scenario.title
        assert len(scenario.why) > 20
        for section in {scenario.section, *(check.section for check in scenario.checks)}:
            assert section.removeprefix("§") in headings, scenario.name
    assert len({check.id for one in scenarios for check in one.checks}) == sum(
        len(one.checks) for one in scenarios
    )


def test_shipped_scenarios_use_every_kind_of_check_and_fault():
    used = {step.verb for path in shipped() for step in load(path).steps}
    assert {
        "expect",
        "never",
        "count",
        "cut",
        "stall",
        "throttle",
        "split",
        "unreachable",
        "power",
        "press",
    } <= used


def test_schema_is_a_schema_and_the_player_does_each_verb():
    Draft202012Validator.check_schema(schema())
    verbs = {
        name for name in schema()["$defs"]["step"]["properties"] if hasattr(player.Player, f"_do_{name}")
    }
    assert verbs | {
        "expect",
        "never",
        "count",
        "comment",
        "check",
        "section",
        "within",
        "for",
        "is",
        "unsaid",
        "padTo",
    } == set(schema()["$defs"]["step"]["properties"])


def test_name_finds_a_shipped_scenario_and_a_path_a_file(write):
    assert find("late-call") == SHIPPED / "late-call.json"
    path = write(OPEN, EXPECT)
    assert find(str(path)) == path
    with pytest.raises(UsageError, match="no-such is no file and no shipped scenario; --list shows those"):
        find("no-such")


def test_ids_of_checks_are_made_of_the_file_and_the_text(write):
    checks = load(write(OPEN, EXPECT, {**EXPECT, "check": "It's told", "section": "§8.4"})).checks
    assert [(check.id, check.section) for check in checks] == [
        ("harness.mine.it-interrupts", "§6.2"),
        ("harness.mine.it-s-told", "§8.4"),
    ]


def test_tools_beside_the_scenario_are_found(write, tmp_path):
    (tmp_path / "own.py").write_text("")
    assert load(write(OPEN, EXPECT, device={"tools": "own.py"})).tools == tmp_path / "own.py"


MISTAKES = [
    ([OPEN, {"expected": {}}], r"steps\[1\]: .*'expected' was unexpected"),
    ([OPEN, {}], r"steps\[1\]: must have exactly one of "),
    ([OPEN, {"turn": "thinking", "acks": False}], r"steps\[1\]: must have exactly one of "),
    ([OPEN, {"turn": "sleeping"}], r"steps\[1\]\.turn: 'sleeping' is not one of "),
    ([OPEN, {**EXPECT, "within": "1 s"}], r"steps\[1\]\.within: '1 s' is not of type 'number'"),
    ([OPEN, {**EXPECT, "for": 1}], r"steps\[1\]: 'for' goes with count or never, not 'expect'"),
    ([OPEN, {"turn": "thinking", "within": 1}], r"steps\[1\]: 'within' goes with expect, not 'turn'"),
    ([OPEN, {"expect": {"message": "interrupt"}}], r"steps\[1\]: 'expect' needs 'check'"),
    ([OPEN, {"expect": {}, "check": "c"}], r"steps\[1\]\.expect: must have exactly one of "),
    ([OPEN, {"expect": {"end": True, "message": "a"}, "check": "c"}], r"steps\[1\]\.expect: must have exactly one of "),
    ([OPEN, {"expect": {"end": 7}, "check": "c"}], r"steps\[1\]\.expect\.end: must be: the connection ends"),
    ([OPEN, {"never": {"results": ["a", "b"]}, "check": "c"}], r"steps\[1\]\.never: 'results' goes with 'expect' alone"),
    ([OPEN, {"count": {"end": True}, "check": "c"}], r"steps\[1\]: 'count' needs 'is'"),
    ([OPEN, EXPECT, EXPECT], r"steps\[2\]\.check: is another check's text"),
    ([OPEN, CALL, CALL, EXPECT], r"steps\[2\]\.call\.as: there is a call 'a' already"),
    ([OPEN, {"again": "a"}, EXPECT], r"steps\[1\]\.again: there is no call 'a' before it"),
    ([OPEN, {"expect": {"result": "a"}, "check": "c"}], r"steps\[1\]\.expect\.result: there is no call 'a'"),
    ([OPEN, {"expect": {"message": "m", "with": {"x": ["$a"]}}, "check": "c"}], r"steps\[1\]\.expect\.with: there is no call 'a'"),
    ([{"turn": "thinking"}, OPEN, EXPECT], r"steps\[0\]: 'turn' comes before 'open'"),
    ([OPEN, {"frame": {"hex": "0"}}, EXPECT], r"steps\[1\]\.frame: must be: a frame as it stands"),
    ([OPEN], r"steps: check nothing; add a step with 'expect'"),
    ([], r"steps: \[\] should be non-empty"),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "told"), MISTAKES)
def test_mistake_is_told_with_its_place(steps, told, write):
    with pytest.raises(UsageError, match=rf"^mine\.json: {told}") as error:
        load(write(*steps))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"section": "6.2"}, r"section: must be: of the protocol text"),
        ({"title": ""}, r"title: "),
        ({"device": {"tools": "none.py"}}, r"device\.tools: the tools must be house, conformance or a file"),
        ({"device": {"heap": "big"}}, r"device\.heap: must be: of its MicroPython"),
        ({"devices": {}}, r".*'devices' was unexpected"),
    ],
)
def test_mistake_beside_the_steps_is_told_with_its_place(members, told, write):
    with pytest.raises(UsageError, match=rf"^mine\.json: {told}"):
        load(write(OPEN, EXPECT, **members))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", r"line 1 column 2: not JSON"),
        ('{"title": "a", "title": "b"}', r"'title' is given twice in one object"),
        ("[]", r".*is not of type 'object'"),
    ],
)
def test_file_that_is_no_scenario_is_refused(text, told, write):
    with pytest.raises(UsageError, match=rf"^mine\.json: {told}"):
        load(write(text=text))


def test_every_verb_and_member_is_documented():
    page = (root() / "docs" / "harness.md").read_text("utf-8")
    for name, definition in schema()["$defs"]["step"]["properties"].items():
        assert f'"{name}"' in page or f"`{name}`" in page, name
        for member in definition.get("properties", {}):
            assert f'"{member}"' in page or f"`{member}`" in page, f"{name}.{member}"
    for path in shipped():
        assert f"`{path.stem}`" in page


def test_example_of_the_page_is_a_scenario(tmp_path):
    page = (root() / "docs" / "harness.md").read_text("utf-8")
    path = tmp_path / "example.json"
    path.write_text(re.search(r"```json\n(\{.*?\})\n```", page, re.S).group(1))
    assert load(path).checks
