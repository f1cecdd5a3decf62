"""The suite for clients is tested by clients that break one rule each: the checks of that rule fail, and no others.

The clients are our firmware (client_on_cpython.py), so that the suite also passes it here. VRT_MUTANTS=all plays the rare
mutants too. They keep real time and are played side by side, and a machine that is late for all of them at once says nothing of
any: what is not as expected is played once more, alone.
"""

import asyncio
import os
import sys
from pathlib import Path

import client_mutants  # noqa: F401  (they enter themselves)
import client_mutants_turns  # noqa: F401
import pytest
from mutation import MUTANTS
from vrt_host.conformance.checks import Ledger, Level, Outcome
from vrt_host.conformance.client_cases import SCENARIOS
from vrt_host.conformance.client_cases.errors import every_invalid_message_comes, every_valid_message_comes
from vrt_host.conformance.client_cases.sessions import ENDINGS
from vrt_host.conformance.client_cases.stage import Stage
from vrt_host.conformance.run import Pace, play
from vrt_host.conformance.subject import Command
from vrt_host.conformance.watch_client import ALWAYS, ClientWatch
from vrt_host.conformance.websocket import WebSocketListener

pytestmark = pytest.mark.timeout(600)

CLIENT = Path(__file__).with_name("client_on_cpython.py")
SLOW = (every_invalid_message_comes, every_valid_message_comes, *ENDINGS)
JOBS = 14
FACTOR = 1.5 * float(os.environ.get("VRT_TESTS_TIMEOUT_FACTOR", "1"))
PLAYED = [name for name, one in MUTANTS.items() if os.environ.get("VRT_MUTANTS") == "all" or not one.rare]
UNBROKEN = "firmware"


async def found(name="", *, slow=True, settings=()):
    """What the suite finds of a mutant, or of the firmware as it is: {check: (outcome, details)}, and the output."""
    scenarios = [one for one in SCENARIOS if slow or one not in SLOW]
    ledger = Ledger([*ALWAYS, *(check for one in scenarios for check in one.checks)])
    command = Command([sys.executable, str(CLIENT), "{url}", name, *settings])
    async with WebSocketListener() as listener:
        pace = Pace(FACTOR)
        stage = Stage(listener, listener.url, command, ClientWatch(ledger), pace=pace, ping_s=1.5)
        try:
            findings = await play(scenarios, stage, ledger, pace=pace, jobs=1)
        finally:
            await command.stop()
    return {one.check.id: (one.outcome, one.details) for one in findings}, "\n".join(command.output)


@pytest.fixture(scope="module")
def findings(request, tmp_path_factory):
    """What was found of each client that a selected test asks for; they are played side by side."""
    here = [item for item in request.session.items if item.path == request.path]
    wanted = [item.callspec.params["name"] for item in here if hasattr(item, "callspec")]

    async def play_all():
        seats = asyncio.Semaphore(JOBS)

        async def one(name):
            mutant = MUTANTS.get(name)
            async with seats:
                if mutant is None:
                    return await found()
                return await found(name, slow=mutant.slow, settings=mutant.settings)

        all_found = dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))
        for name in wanted:
            if any(surprises(name, all_found[name][0])):
                all_found[name] = await one(name)
        return all_found

    with pytest.MonkeyPatch.context() as patch:  # clients that are killed leave their flash behind
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("flash")))
        return asyncio.run(play_all())


def broken(found_of_it):
    """The checks that failed or were warned of, and why."""
    return {
        check: details
        for check, (outcome, details) in found_of_it.items()
        if outcome in (Outcome.FAILED, Outcome.WARNED)
    }


def surprises(name, found_of_it):
    """(checks that should have noticed, what unrelated ones say) of a client."""
    faults = broken(found_of_it)
    if name == UNBROKEN:
        return set(), faults
    mutant = MUTANTS[name]
    unrelated = (check for check in faults.keys() - mutant.checks if not check.startswith(mutant.also))
    return mutant.checks - faults.keys(), {check: faults[check] for check in unrelated}


@pytest.mark.parametrize("name", [UNBROKEN])
def test_firmware_passes(findings, name):
    faults, output = broken(findings[name][0]), findings[name][1]
    assert not faults, output


@pytest.mark.parametrize("name", PLAYED)
def test_mutant_fails_by_its_rule_alone(findings, name):
    unnoticed, unrelated = surprises(name, findings[name][0])
    assert not unnoticed, findings[name][1][-3000:]
    assert not unrelated


def test_every_check_is_failed_by_a_mutant():
    checks = (*ALWAYS, *(check for one in SCENARIOS for check in one.checks))
    checks = {check.id for check in checks if check.level is not Level.MAY}
    failed = {check for mutant in MUTANTS.values() for check in mutant.checks}
    assert failed == checks
