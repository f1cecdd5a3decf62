"""The model can fail: it finds every seeded fault. A part of them by default, each with VRT_MUTANTS=all."""

import os

import pytest
from hypothesis import Phase
from hypothesis.stateful import run_state_machine_as_test
from mutants import MUTANTS
from pair_machine import EVENTS, PairMachine, events, runs

EXAMPLES = 100
NAMES = list(MUTANTS) if os.environ.get("VRT_MUTANTS") == "all" else list(MUTANTS)[::4]


@pytest.mark.parametrize("name", NAMES)
def test_mutant_is_found(name):
    patch, focus = MUTANTS[name]

    class Machine(PairMachine):
        events = events(focus or EVENTS)
        ends = () if focus else PairMachine.ends

    with patch(), pytest.raises(AssertionError):
        run_state_machine_as_test(Machine, settings=runs(EXAMPLES, derandomize=True, phases=[Phase.generate]))
