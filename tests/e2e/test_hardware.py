"""The test of real boards (`make hardware-test`), on a simulated board with a serial port: what it finds right, and wrong."""

import asyncio
import dataclasses
import itertools
import json
import sys

import pytest
from vrt_host.device.profiles import find
from vrt_host.resources import root
from vrt_host.sim.board import SimBoard
from vrt_host.sim.converters import Echo
from vrt_host.sim.hardware import Hardware

sys.path.insert(0, str(root() / "tools"))
import hardware_test

DEADLINE_S = 90
PROFILE = find("sim")
PROFILE = dataclasses.replace(PROFILE, data={**PROFILE.data, "led": {}, "button": {}})


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch):
    monkeypatch.setattr(hardware_test, "PACE", 0.4)


async def tried(tmp_path, hardware, *, yes=True, press=True, profile=PROFILE):
    """Play the test to a simulated board, all but the soak; (facts, {part: (outcome, figures)}, LED states seen)."""
    leds = []
    port = tmp_path / "port"

    async def presses(board):
        for _ in itertools.count() if press else ():
            await board.press(0.4)
            await asyncio.sleep(0.6)

    async with (
        asyncio.timeout(DEADLINE_S),
        SimBoard(url=f"serial:{port}", hardware=hardware, heap="256k") as board,
    ):
        board.listen(lambda event: leds.append(event["state"]) if event["event"] == "led" else None)
        pressing = asyncio.create_task(presses(board))
        try:
            facts, parts = await asyncio.to_thread(hardware_test.test, profile, str(port), 0, lambda _: yes)
        finally:
            pressing.cancel()
    return facts, {part.name: (part.outcome, part.figures) for part in parts}, leds


async def test_board_that_is_right_passes_and_gets_its_report(tmp_path):
    facts, parts, leds = await tried(tmp_path, Hardware(noise_rms=40, echo=Echo(loss_db=20)))
    expected = dict.fromkeys(("board", "LED", "button", "microphone", "tone", "loopback"), "passed")
    assert {name: outcome for name, (outcome, _) in parts.items()} == {**expected, "Wi-Fi": "not done"}, parts
    assert [state for state in leds if state in hardware_test.LEDS] == list(hardware_test.LEDS)
    made = [hardware_test.Part(name, *rest) for name, rest in parts.items()]
    page = hardware_test.report(PROFILE, facts, made, "2026-01-02")
    assert "2026-01-02" in page
    assert facts["micropython"] in page
    for name, (outcome, figures) in parts.items():
        assert f"| {name} | {outcome} | {figures} |" in page


async def test_board_whose_parts_are_dead_fails_by_each_of_them(tmp_path):
    other = dataclasses.replace(PROFILE, data={**PROFILE.data, "id": "another"})
    _, parts, _ = await tried(tmp_path, Hardware(), yes=False, press=False, profile=other)
    assert parts["board"] == ("failed", "the board says that it is sim")
    assert parts["LED"][0] == parts["tone"][0] == parts["loopback"][0] == "failed"
    assert parts["microphone"][0] == "failed"
    assert "data line does not move" in parts["microphone"][1]
    assert parts["button"] == ("not done", "nobody pressed it")


async def test_parts_that_need_a_person_are_not_done_without_one(tmp_path):
    _, parts, _ = await tried(tmp_path, Hardware(noise_rms=40), yes=None)
    assert parts["LED"] == parts["tone"] == ("not done", "nobody was there to say")


class Wire:
    """A port whose board says these lines, and is then unplugged."""

    def __init__(self, *events):
        self.said = [json.dumps(event).encode() + b"\r\n" for event in events]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def read(self, _):
        return self.said.pop(0) if self.said else b""


STATS = {"event": "stats", "heap_free": 20_000, "underruns": 0}


@pytest.mark.parametrize(
    ("events", "outcome", "words"),
    [
        (
            ({"event": "ready"}, STATS, {**STATS, "heap_free": 19_000}),
            "passed",
            "heap free 19,000 to 20,000 B; underruns 0",
        ),
        ((STATS,), "not done", "did not reach its host"),
        (
            ({"event": "ready"}, STATS, {"event": "error", "code": "CRASH", "message": "x"}),
            "failed",
            "1 faults, the first: CRASH x",
        ),
        (({"event": "ready"}, STATS, {"event": "lost", "reason": "timeout"}), "failed", "lost timeout"),
        (({"event": "ready"},), "failed", "heap free 0"),
    ],
)
def test_soak_judges_what_the_board_says(monkeypatch, events, outcome, words):
    clock = itertools.count()
    monkeypatch.setattr(hardware_test.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(hardware_test.serial, "Serial", lambda *_, **__: Wire(*events))
    part = hardware_test.soak("port", 0.2)
    assert part.outcome == outcome
    assert words in part.figures


def test_soak_of_a_board_that_is_unplugged_fails():
    part = hardware_test.soak("/nowhere/tty", 1)
    assert (part.outcome, part.figures[:18]) == ("failed", "the port went away")


def ran(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["hardware_test.py", *words])
    code = hardware_test.main()
    said = capsys.readouterr()
    return code, said.out, said.err


def test_what_cannot_begin_is_one_line(monkeypatch, capsys):
    for words, why in (([""], "which board? BOARD=ID"), (["nope"], "no board 'nope'")):
        code, out, err = ran(monkeypatch, capsys, *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert why in err


def test_report_that_cannot_be_written_is_printed(monkeypatch, capsys, tmp_path):
    lost = dataclasses.replace(PROFILE, folder=tmp_path / "gone")
    monkeypatch.setattr(hardware_test, "find", lambda _: lost)
    monkeypatch.setattr(hardware_test, "choose", lambda port: port)
    monkeypatch.setattr(hardware_test, "test", lambda *_: ({}, []))
    monkeypatch.setattr(hardware_test, "report", lambda *_: "the report of an hour")
    code, out, err = ran(monkeypatch, capsys, "sim", "--port", "x")
    assert code == 1
    assert "the report of an hour" in out
    assert "cannot write" in err


def test_interruption_is_one_line(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(hardware_test, "choose", lambda port: port)
    monkeypatch.setattr(hardware_test, "test", interrupted)
    assert ran(monkeypatch, capsys, "sim", "--port", "x")[::2] == (
        130,
        "hardware-test: interrupted, so there is no report\n",
    )
