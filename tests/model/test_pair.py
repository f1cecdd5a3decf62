"""The real client and the real server on a faulty wire: whatever happens, nothing is lost, doubled or run too late."""

import os

import pytest
from pair_machine import PairMachine, runs

EXAMPLES = int(os.environ.get("VRT_MODEL_EXAMPLES", "0"))
"""How many runs, each time others; 0: the short form, the same runs each time."""

pytestmark = pytest.mark.timeout(0 if EXAMPLES else 120)

TestPair = PairMachine.TestCase
TestPair.settings = runs(EXAMPLES or 80, derandomize=not EXAMPLES)
