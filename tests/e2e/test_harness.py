"""`vrt harness`: every shipped scenario with the real firmware on a real MicroPython, and scenarios that must fail."""

import asyncio
import json

import pytest
from rich.console import Console
from vrt_host.conformance.checks import Outcome
from vrt_host.harness import player
from vrt_host.harness.desk import SimDevice
from vrt_host.harness.live import View
from vrt_host.harness.recorder import Recorder
from vrt_host.harness.scenario import load, shipped

pytestmark = pytest.mark.timeout(300)

BESIDE = 3
"""Boards at a time: they wait more than they work."""

OPEN = {"open": {}}
TURN = {"turn": "thinking"}
LIGHT = {"call": {"tool": "light", "as": "a", "arguments": {"state": "on"}}}
DOOR = {"call": {"tool": "door_state", "as": "b", "arguments": {"door": "front"}}}

WRONG = {
    "result": ([TURN, LIGHT], {"expect": {"result": "a", "with": {"ok": False}}}, "it should have"),
    "result-output": (
        [TURN, LIGHT],
        {"expect": {"result": "a", "with": {"output": {"state": "off"}}}},
        '"state": "on"',
    ),
    "results": ([TURN, LIGHT, DOOR], {"expect": {"results": ["b", "a"]}, "within": 0.6}, "came the results of a, b"),
    "message": ([TURN], {"expect": {"message": "interrupt"}, "within": 0.3}, "no interrupt within 0.3 s"),
    "event": ([TURN], {"expect": {"event": "call_start"}, "within": 0.3}, "no event call_start within 0.3 s"),
    "end": ([TURN], {"expect": {"end": True}, "within": 0.3}, "no end of the connection within 0.3 s"),
    "end-code": (
        [{"close": 4408}],
        {"expect": {"end": 1000}, "within": 1},
        "no end of the connection with 1000 within 1 s",
    ),
    "too-late": (
        [{"call": {"tool": "check_house", "as": "a"}}],
        {"expect": {"result": "a"}, "within": 0.2},
        "no result of 'a' within 0.2 s",
    ),
    "never": ([TURN, LIGHT], {"never": {"message": "tool.result"}}, "it came: tool.result"),
    "never-event": ([TURN, LIGHT], {"never": {"event": "call_start"}}, "it came: "),
    "count": ([TURN, LIGHT], {"count": {"message": "tool.result"}, "is": 2}, "1 came, not 2"),
    "resume": ([{"unreachable": True}, {"cut": "reset"}], {"resume": {"within": 1}}, "did not come within 1 s"),
    "hello": (
        [TURN, {"wait": 0.3}, {"cut": "reset"}],
        {"resume": {"hello": {"resumeFrom": 7}}},
        "its hello should have",
    ),
    "hello-without": (
        [TURN, LIGHT, {"wait": 0.3}, {"cut": "reset"}],
        {"resume": {"without": ["sessionId"]}},
        "its hello should have no sessionId",
    ),
}  # fmt: skip
"""What is done, an expectation that the firmware cannot meet, and what is said of it; a kind each."""


def wrong(folder, name):
    """The scenario file of a kind of wrong expectation."""
    steps, expectation, _ = WRONG[name]
    path = folder / f"wrong-{name}.json"
    path.write_text(
        json.dumps(
            {
                "title": name,
                "why": "the harness has to see it",
                "section": "§7.2",
                "steps": [OPEN, *steps, {**expectation, "check": "it is wrong"}],
            }
        )
    )
    return path


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The findings of every scenario by name: all are played side by side, to save time."""
    folder = tmp_path_factory.mktemp("scenarios")
    paths = [*shipped(), *(wrong(folder, name) for name in WRONG)]

    async def one(path, seats):
        scenario, recorder = load(path), Recorder()
        console = Console(quiet=True)
        async with seats:
            device = SimDevice(recorder, scenario)
            findings = await player.play(scenario, device, recorder=recorder, view=View(console))
        return scenario.name, findings

    async def everything():
        seats = asyncio.Semaphore(BESIDE)
        return dict(await asyncio.gather(*(one(path, seats) for path in paths)))

    return asyncio.run(everything())


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.stem)
def test_shipped_scenario_passes_with_the_firmware(path, played):
    failed = {one.check.id: one.details for one in played[path.stem] if one.outcome is not Outcome.PASSED}
    assert not failed
    assert {one.check.id for one in played[path.stem]} == {check.id for check in load(path).checks}


@pytest.mark.parametrize("name", WRONG)
def test_expectation_that_is_wrong_fails_and_says_what_came(name, played):
    failed = [one for one in played[f"wrong-{name}"] if one.outcome is Outcome.FAILED]
    assert [one.check.title for one in failed] == ["it is wrong"]
    assert WRONG[name][2] in failed[0].details[0]
