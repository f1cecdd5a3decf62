"""How scenarios are played: what each ending means, how many at a time, and which are wanted."""

import asyncio

import pytest
from vrt_host.conformance.checks import Ledger, NotTestable, Outcome, Unmet, must
from vrt_host.conformance.run import Pace, matching, play, scenario, select

ONE, TWO = must("a.b.one", "§1", "one"), must("a.b.two", "§1", "two")


async def found(*scenarios, **options):
    options = {"pace": Pace(), **options}
    findings = await play(scenarios, "the stage", Ledger([ONE, TWO]), **options)
    return [(finding.outcome, finding.details) for finding in findings]


async def test_scenario_gets_the_stage_and_settles_its_checks():
    @scenario(ONE, TWO)
    async def both_are_kept(stage, sheet):
        sheet.settle("a.b.one", stage == "the stage")
        sheet.settle("a.b.two", False, "seen")

    assert both_are_kept.name == "both are kept"
    assert await found(both_are_kept) == [(Outcome.PASSED, ()), (Outcome.FAILED, ("seen",))]


@pytest.mark.parametrize(
    ("error", "outcome", "detail"),
    [
        (Unmet("no pong came"), Outcome.FAILED, "not reached: no pong came"),
        (NotTestable("it has no ears"), Outcome.NOT_TESTABLE, "it has no ears"),
        (KeyError("x"), Outcome.FAILED, "not reached: the suite itself failed: KeyError: 'x'"),
        (None, Outcome.FAILED, "not reached: the scenario ended before"),
    ],
)
async def test_every_ending_settles_what_is_left(error, outcome, detail):
    @scenario(ONE, TWO)
    async def ends(stage, sheet):
        sheet.settle("a.b.one", True)
        if error is not None:
            raise error

    assert await found(ends) == [(Outcome.PASSED, ()), (outcome, (detail,))]


async def test_scenario_that_hangs_is_given_up():
    @scenario(ONE)
    async def hangs(stage, sheet):
        await asyncio.Event().wait()

    ((outcome, (detail,)), _) = await found(hangs, pace=Pace(0.0005))
    assert outcome is Outcome.FAILED
    assert "took more than 0.03 s" in detail


async def test_so_many_at_a_time_and_those_that_measure_time_alone():
    at_work, most, alone = set(), [], []

    def make(name, **options):
        async def act(stage, sheet):
            at_work.add(name)
            most.append(len(at_work))
            if options:
                alone.append(set(at_work))
            await asyncio.sleep(0)
            at_work.remove(name)

        act.__name__ = name
        return scenario(**options)(act)

    await found(make("timed", alone=True), *(make(f"usual_{number}") for number in range(7)), jobs=3)
    assert max(most) == 3
    assert alone == [{"timed"}]


async def test_beginnings_and_ends_are_told():
    told = []

    @scenario()
    async def nothing(stage, sheet):
        told.append("at work")

    await found(
        nothing,
        begun=lambda one: told.append(f"{one.name} began"),
        ended=lambda one: told.append(f"{one.name} ended"),
    )
    assert told == ["nothing began", "at work", "nothing ended"]


@pytest.mark.parametrize(
    ("only", "wanted"),
    [
        ([], True),
        (["server.resume.late"], True),
        (["server.resume"], True),
        (["server"], True),
        (["server.resume.*"], True),
        (["server.res"], False),
        (["server.audio", "server.resume"], True),
        (["client"], False),
    ],
)
def test_ids_are_wanted_whole_or_by_their_beginnings(only, wanted):
    assert matching("server.resume.late", only) is wanted


def test_scenarios_are_wanted_for_any_check():
    @scenario(ONE, TWO)
    async def both(stage, sheet):
        pass

    assert select([both], ["a.b.two"]) == [both]
    assert select([both], ["a.c"]) == []
