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
    runs_on = f"harness.{path.stem}.the-board-runs-on"
    assert {one.check.id for one in played[path.stem]} == {
        runs_on,
        *(check.id for check in load(path).checks),
    }


BROKEN = """
from vrt.tools import tool
import vrt.app

@tool("Bring the firmware down.")
def light():
    def broken(*_):
        raise ValueError("a fault of the firmware")
    vrt.app.App.step = broken
"""


def test_board_that_fails_is_told_of_with_its_last_words(vrt, tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    path = tmp_path / "broken.json"
    steps = [
        OPEN,
        {"call": {"tool": "light", "as": "a"}},
        {"wait": 1},
        {"call": {"tool": "light", "as": "b"}},
        {"expect": {"result": "b"}, "check": "it answers"},
    ]
    path.write_text(
        json.dumps(
            {"title": "t", "why": "w", "section": "§7.2", "device": {"tools": "broken.py"}, "steps": steps}
        )
    )
    code, lines, errors = vrt("harness", str(path), "--json", str(tmp_path / "r.json"))
    assert code == 1, "\n".join(lines) + errors
    checks = {one["id"]: one for one in json.loads((tmp_path / "r.json").read_text())["checks"]}
    assert "a fault of the firmware" in checks["harness.broken.the-board-runs-on"]["details"][0]
    assert "the board stopped" in checks["harness.broken.it-answers"]["details"][0]


def test_command_plays_records_replays_draws_and_reports(vrt, tmp_path):
    capture, picture = tmp_path / "c.jsonl", tmp_path / "p.png"
    reports = [
        word for kind in ("junit", "json", "html") for word in (f"--{kind}", str(tmp_path / f"r.{kind}"))
    ]
    code, lines, errors = vrt(
        "harness",
        "same-call-again",
        "--record",
        str(capture),
        "--picture",
        str(picture),
        *reports,
        VRT_TOKEN="s3cret",
    )
    assert code == 0, "\n".join(lines) + errors
    assert any("tool.call" in line for line in lines)
    assert lines[-1].startswith("4 passed")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "<testsuite " in (tmp_path / "r.junit").read_text()
    assert "harness.same-call-again.it-was-started-once" in (tmp_path / "r.html").read_text()
    code, lines, errors = vrt("harness", "--replay", str(capture), "--json", str(tmp_path / "r.json"))
    assert code == 0, "\n".join(lines) + errors
    assert {one["outcome"] for one in json.loads((tmp_path / "r.json").read_text())["checks"]} == {"passed"}
    rows = capture.read_text("utf-8").split("\n")
    changed = [row.replace("locked", "ajar") if "tool.result" in row else row for row in rows]
    (tmp_path / "changed.jsonl").write_text("\n".join(changed), "utf-8")
    code, lines, _ = vrt("harness", "--replay", str(tmp_path / "changed.jsonl"))
    assert code == 1
    assert any("the first difference, result 1" in line for line in lines)


def test_server_records_boards_without_their_credentials(serve, vrt, tmp_path):
    capture, picture = tmp_path / "c.jsonl", tmp_path / "p.png"
    script = {"rules": [{"on": {"start": True}, "do": [
        {"call": {"tool": "light", "arguments": {"state": "on"}}},
        {"waitResult": True},
        {"say": {"text": "It is on.", "toneMs": 300}},
    ]}]}  # fmt: skip
    url = serve(script, "--record", str(capture))
    code, lines, errors = vrt("sim", "--url", url, "--until", "played", VRT_TOKEN="vrt_" + "s3cret" * 7)
    assert code == 0, "\n".join(lines) + errors
    assert "s3cret" not in capture.read_text()
    code, lines, errors = vrt("harness", "--show", str(capture), "--picture", str(picture))
    assert code == 0, "\n".join(lines) + errors
    shown = "\n".join(lines)
    assert '"name":"light"' in shown
    assert "It is on." in shown
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, lines, errors = vrt("harness", "--replay", str(capture))
    assert code == 0, "\n".join(lines) + errors
    assert "results compared: 1" in "\n".join(lines)


@pytest.mark.parametrize("name", WRONG)
def test_expectation_that_is_wrong_fails_and_says_what_came(name, played):
    failed = [one for one in played[f"wrong-{name}"] if one.outcome is Outcome.FAILED]
    assert [one.check.title for one in failed] == ["it is wrong"]
    assert WRONG[name][2] in failed[0].details[0]
    assert len(failed[0].details) == 1
