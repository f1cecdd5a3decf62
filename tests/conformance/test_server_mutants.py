"""The suite for servers finds the rule that each mutant breaks, and no other."""

import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest
import server_mutants_sessions  # noqa: F401
import server_mutants_turns  # noqa: F401
import server_mutants_wire  # noqa: F401
from server_mutants import FACTOR, GENERAL, LIMITS, MUTANTS, USUAL, Mutant, examine, needed
from vrt_host.conformance.server_cases import CHECKS, SCENARIOS
from vrt_host.conformance.server_cases.auth import credentials, foreign_resume, foreign_timing
from vrt_host.conformance.server_cases.vectors import (
    vectors_before_hello,
    vectors_in_a_session,
    vectors_with_an_answer,
)

WHOLE = replace(LIMITS, heartbeat_s=6.0 * FACTOR, resume_window_s=4.0 * FACTOR, ack_s=0.25)
IGNORED = "server.sessions.auth-ignored-when-not-required"
WITH_TOKENS = [check.id for one in (credentials, foreign_resume, foreign_timing) for check in one.checks]
LONG = os.environ.get("VRT_LONG") == "1"
"""Let every mutant play every scenario, those apart that take its answer to one frame for that to another."""
VECTORS = (vectors_before_hello, vectors_in_a_session, vectors_with_an_answer)


def work(name, folder):
    """In a process of its own: what the suite finds of a mutant."""
    mutant = MUTANTS[name]
    scenarios = needed(mutant)
    if LONG and not mutant.fatal:
        scenarios = [one for one in SCENARIOS if one in scenarios or one not in VECTORS]
    return examine(mutant, folder, scenarios)


@pytest.fixture(scope="module")
def verdicts(request, tmp_path_factory):
    """What the suite found of each mutant that is asked for; some at a time, since they wait more than they work."""
    wanted = [item.callspec.params["name"] for item in request.session.items if item.function is test_mutant]
    folder = tmp_path_factory.mktemp("mutants")
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    context.set_forkserver_preload(["server_mutants"])  # imported once, where the method can
    with pytest.MonkeyPatch.context() as patch, ProcessPoolExecutor(12, context) as pool:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        yield {name: pool.submit(work, name, folder) for name in wanted}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("tokens", [True, False])
def test_our_own_host_breaks_no_rule(tmp_path, tokens):
    host = Mutant("host", frozenset(), frozenset(), lambda patch: None, tokens, WHOLE)
    verdict = examine(host, tmp_path, SCENARIOS, jobs=8)
    assert not verdict.bad
    # Nothing is left out for another reason than that tokens are asked for, or are not.
    left = {check.id for check in CHECKS} - verdict.passed - USUAL
    assert left == ({IGNORED} if tokens else set(WITH_TOKENS))


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant(verdicts, name, tmp_path):
    mutant = MUTANTS[name]
    if (
        verdicts[name].result().wrong(mutant)
    ):  # on a busy machine an answer may come late: once more, with patience
        assert not examine(mutant, tmp_path, needed(mutant), jobs=4, answer_s=10.0).wrong(mutant)


def test_every_check_is_failed_by_some_mutant():
    found = frozenset().union(*(mutant.fails for mutant in MUTANTS.values()))
    assert {check.id for check in CHECKS} == found


def test_general_scenarios_exist():
    assert set(GENERAL) <= {one.name for one in SCENARIOS}
