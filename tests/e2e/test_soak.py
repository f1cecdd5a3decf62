"""The short form of `make soak`, and that its judge sees what it is there to see."""

import asyncio
import copy
import importlib.util
import sys

import pytest
from vrt_host.harness import recorder
from vrt_host.resources import root

CUTS = 20
BOARDS = 4


def load(name):
    spec = importlib.util.spec_from_file_location(name, root() / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


bench, soak_agent, soak_judge, soak = map(load, ("bench", "soak_agent", "soak_judge", "soak"))


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    return tmp_path_factory.mktemp("soak")


@pytest.fixture(scope="module")
def outcome(logs):
    return asyncio.run(soak.soak(CUTS, BOARDS, 1, logs))


@pytest.fixture
def log(outcome, logs):
    """What one board and its host told, to be tampered with."""
    events = recorder.load(logs / "board-1.jsonl")
    assert judged(events) == (0, 0, [])
    return copy.deepcopy(events)


def judged(events):
    verdict = soak_judge.judge(events)
    return verdict.lost, verdict.doubled, verdict.problems


def place(events, source, name, **fields):
    return next(
        number
        for number, event in enumerate(events)
        if (event["source"], event["event"]) == (source, name) and fields.items() <= event.items()
    )


def test_nothing_is_lost_or_doubled_over_cuts(outcome):
    assert outcome.problems == []
    assert (outcome.total("lost"), outcome.total("doubled")) == (0, 0)
    cuts = outcome.cuts
    assert cuts["all"] == CUTS
    assert 3 * cuts["between a call and its result"] >= CUTS - 3
    assert 3 * cuts["during audio"] >= CUTS - 3
    assert outcome.total("resent") > 0, "no cut lost anything: this proves nothing"
    assert outcome.total("calls") >= CUTS // 3
    assert [row["value"] for row in outcome.rows("short")] == [CUTS, 0, 0]


EVIDENCE = [
    ("device", "turn", {"state": "speaking"}),
    ("device", "transcript", {}),
    ("device", "text", {}),
    ("device", "call", {}),
    ("device", "call_start", {}),
    ("host", "call.settled", {}),
    ("host", "agent.result", {}),
    ("hardware", "output", {"value": 1}),
]
NAMES = [f"{source} {name}" for source, name, _ in EVIDENCE]


@pytest.mark.parametrize(("source", "name", "fields"), EVIDENCE, ids=NAMES)
def test_judge_sees_what_is_lost(log, source, name, fields):
    del log[place(log, source, name, **fields)]
    lost, _, problems = judged(log)
    assert lost > 0
    assert problems


@pytest.mark.parametrize(("source", "name", "fields"), EVIDENCE, ids=NAMES)
def test_judge_sees_what_is_doubled(log, source, name, fields):
    number = place(log, source, name, **fields)
    log.insert(number, log[number])
    _, doubled, problems = judged(log)
    assert doubled > 0
    assert problems


def test_judge_sees_a_run_that_the_tool_tells_of(log):
    number = next(n for n, event in enumerate(log) if event.get("text", "").startswith("ran "))
    assert judged([*log, log[number]])[1] > 0
    assert judged(log[:number] + log[number + 1 :])[0] > 0


def test_judge_sees_a_result_that_only_one_side_tells_of(log):
    number = place(log, "device", "result")
    for events in (log[:number] + log[number + 1 :], [*log, log[number]]):
        lost, doubled, problems = judged(events)
        assert lost + doubled > 0
        assert "tool.result of the device" in str(problems)


def test_judge_sees_another_order(log):
    first = place(log, "device", "turn", state="speaking")
    second = place(log[first + 1 :], "device", "turn") + first + 1
    log[first], log[second] = log[second], log[first]
    assert "in another order" in str(judged(log)[2])


def test_judge_sees_a_number_that_is_missing_and_one_that_was_two_messages(log):
    numbers = [
        n for n, event in enumerate(log) if event["event"] == "message.in" and event["message"].get("seq")
    ]
    assert judged(log[: numbers[0]] + log[numbers[0] + 1 :])[0] > 0
    again = copy.deepcopy(log[numbers[0]])
    assert judged([*log, again]) == (0, 0, [])
    again["message"]["v"] = 2
    assert "was two messages" in str(judged([*log, again])[2])


def test_judge_sees_a_session_that_was_not_resumed(log):
    log[place(log, "device", "ready", resumed=True)]["resumed"] = False
    assert "opened 2 sessions" in str(judged(log)[2])


def test_judge_passes_over_no_fault(log):
    for source, name in (
        ("host", "fault"),
        ("host", "agent.error"),
        ("device", "error"),
        ("device", "traceback"),
    ):
        assert judged([*log, {"t": 0, "source": source, "event": name}])[2], name


def test_growth_compares_the_first_with_the_last(log):
    steady = [50_000] * (2 * soak.SPAN)
    assert soak.growth(steady[1:]) is None
    assert soak.growth(steady) == 0
    assert soak.growth([value + 10 * number for number, value in enumerate(steady)]) == 10 * soak.SPAN
