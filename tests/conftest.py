"""Shared by all tests: firmware tests raise `SkipTest`, which pytest must read as a skip."""

import gc
import signal
import sys
from pathlib import Path

import hypothesis
import micropython  # noqa: F401  (the CPython shim: puts ptr8 and const into builtins)
import pytest
from support import SkipTest

sys.path.append(str(Path(__file__).parent))  # `peers` is a package here and in its processes

# A shell that starts the tests in the background has them ignore Ctrl-C, and all commands that they start with them.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("vrt", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("vrt")


def pytest_collection_finish():
    """The firmware collects garbage at every turn, which on CPython walks all that is imported: let it not be walked."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    outcome = yield
    if outcome.excinfo is not None and issubclass(outcome.excinfo[0], SkipTest):
        outcome.force_exception(pytest.skip.Exception(str(outcome.excinfo[1])))


@pytest.fixture(scope="session")
def micropython_binary():
    """The MicroPython that the simulator would use; its absence is a failure, not a skip."""
    from vrt_host.sim.board import find_micropython  # noqa: PLC0415  (imports numpy; few tests need it)

    return str(find_micropython())
