"""The short form of `make fuzz`: the seeds and the same few thousand mutations of them, on CPython and on MicroPython."""

import random
import sys

import pytest
from vrt_host.protocol import wire
from vrt_host.resources import root

sys.path.insert(0, str(root() / "tools"))
import fuzz
import fuzz_firmware
import fuzz_host

MUTATIONS = 20  # for each unit of a target's weight: there are some 7,000 inputs in all
ALL = {target.name: target for target in fuzz.targets()}
DEVICE = {name: target for name, target in ALL.items() if target.letter}


def count(target):
    return len(target.seeds()) + MUTATIONS * target.weight


def picked(target, seed=1):
    return list(fuzz.inputs(target, count(target), seed, target.seeds()))


@pytest.mark.parametrize("name", ALL)
def test_parser_answers_with_nothing_but_what_it_documents(name):
    assert fuzz.play(ALL[name], count(ALL[name]), seed=1) > MUTATIONS


@pytest.mark.parametrize("name", DEVICE)
def test_parser_answers_the_same_on_micropython(name, micropython_binary):
    fuzz.on_micropython(micropython_binary, DEVICE[name], picked(DEVICE[name]))


def test_every_parser_of_the_device_is_run_on_micropython():
    assert {target.letter for target in DEVICE.values()} == set(fuzz_firmware.device.PARSERS)


def test_same_seed_makes_the_same_inputs_and_another_makes_others():
    target = ALL["device.sequence"]
    assert picked(target) == picked(target)
    assert picked(target) != picked(target, seed=2)


def test_mutations_reach_deep_into_json():
    """Half of them stay JSON, or they would only ever meet the first check."""
    dice = random.Random(1)
    seeds = [seed for seed in ALL["device.message"].seeds() if fuzz_firmware.device.grammar(seed) == "True"]
    made = [fuzz.mutate(dice, dice.choice(seeds), seeds, text=True) for _ in range(1000)]
    answers = [fuzz_firmware.device.message(data).split()[0] for data in made]
    assert {"MALFORMED", "UNSUPPORTED_VERSION", "UNKNOWN_TYPE", "INVALID_FIELD", "valid"} == set(answers)
    assert answers.count("MALFORMED") < 600


def test_exception_is_a_finding_with_its_input(monkeypatch):
    def broken(frame, sender):
        if b"1.0" in frame:
            raise KeyError("x")
        raise wire.WireError("MALFORMED", "no")

    monkeypatch.setattr(fuzz_host.wire, "decode", broken)
    with pytest.raises(fuzz.Finding, match=r"host.message: KeyError: 'x'\n  input: b'.*1\.0"):
        fuzz.play(ALL["host.message"], 2000, seed=1)


@pytest.mark.parametrize(
    ("name", "function", "answer"),
    [
        ("device.grammar", "grammar", "True"),
        ("device.message", "message", "MALFORMED 0"),
        ("device.upgrade", "upgrade", "9 "),
        ("device.stream", "stream", "4"),
    ],
)
def test_answer_that_another_reader_would_not_give_is_a_finding(monkeypatch, name, function, answer):
    monkeypatch.setattr(fuzz_firmware.device, function, lambda data: answer)
    with pytest.raises(fuzz.Finding):
        fuzz.play(ALL[name], 2000, seed=1)


def test_answer_of_another_runtime_is_a_finding(monkeypatch, micropython_binary):
    monkeypatch.setitem(fuzz_firmware.device.PARSERS, "g", lambda data: "False")
    with pytest.raises(fuzz.Finding, match=r"MicroPython: True\n  CPython:     False\n  input: b'\[\]'"):
        fuzz.on_micropython(micropython_binary, DEVICE["device.grammar"], [b"[", b"[]"])
