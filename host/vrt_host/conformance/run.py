"""Plays scenarios against a peer, several at a time, each within a deadline.

    @scenario(must("server.heartbeat.pong", "§4.4", "..."), should(...))
    async def pings(stage: Stage, sheet: Sheet) -> None:
        ...                                         settles each check that it declares; or raises, see `checks`

    findings = await play(scenarios, stage, ledger, pace=Pace(factor), jobs=8)

`stage` is whatever the scenarios need to reach the peer; this module only hands it on. Waits are made of
`pace.s(seconds)`, so that one factor stretches all of them on a slow machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from vrt_host.conformance.checks import Check, Finding, Ledger, NotTestable, Sheet, Unmet

log = logging.getLogger(__name__)

S = TypeVar("S")

SCENARIO_S = 60.0
"""What a scenario may take, before the factor; its own waits are much shorter."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things may take with this peer."""

    factor: float = 1.0
    answer_s: float = 5.0
    """What the peer does at once may take so long, before the factor."""

    def s(self, seconds: float) -> float:
        """A deadline."""
        return seconds * self.factor


@dataclass(frozen=True, slots=True)
class Scenario(Generic[S]):
    """A play with a peer that settles the checks it declares."""

    name: str
    checks: tuple[Check, ...]
    act: Callable[[S, Sheet], Awaitable[None]]
    alone: bool = False
    """It measures time, so that nothing else may run beside it."""
    seconds: float = SCENARIO_S
    """What it may take, before the factor."""


def scenario(
    *checks: Check, alone: bool = False, seconds: float = SCENARIO_S
) -> Callable[[Callable[[S, Sheet], Awaitable[None]]], Scenario[S]]:
    """Makes a scenario of a coroutine function; its name is the function's."""
    return lambda act: Scenario(act.__name__.replace("_", " "), checks, act, alone, seconds)


def matching(check_id: str, only: Sequence[str]) -> bool:
    """Whether an id is wanted: `only` holds ids and beginnings of ids; an empty one wants everything."""
    return not only or any(check_id == name or check_id.startswith(name.rstrip(".*") + ".") for name in only)


def select(scenarios: Iterable[Scenario[S]], only: Sequence[str]) -> list[Scenario[S]]:
    """The scenarios that settle a wanted check."""
    return [one for one in scenarios if any(matching(check.id, only) for check in one.checks)]


async def play(
    scenarios: Sequence[Scenario[S]],
    stage: S,
    ledger: Ledger,
    *,
    pace: Pace,
    jobs: int = 8,
    begun: Callable[[Scenario[S]], None] = lambda one: None,
    ended: Callable[[Scenario[S]], None] = lambda one: None,
) -> list[Finding]:
    """Play all, `jobs` at a time, those that measure time alone at the end; returns the ledger's findings."""
    seats = asyncio.Semaphore(jobs)

    async def one(scenario: Scenario[S]) -> None:
        async with seats:
            begun(scenario)
            await _act(scenario, stage, ledger, pace)
            ended(scenario)

    async with asyncio.TaskGroup() as group:
        for each in scenarios:
            if not each.alone:
                group.create_task(one(each))
    for each in scenarios:
        if each.alone:
            await one(each)
    return ledger.findings()


async def _act(scenario: Scenario[S], stage: S, ledger: Ledger, pace: Pace) -> None:
    sheet = Sheet(ledger, scenario.checks)
    try:
        async with asyncio.timeout(pace.s(scenario.seconds)):
            await scenario.act(stage, sheet)
    except NotTestable as absent:
        sheet.close(absent=str(absent))
    except Unmet as unmet:
        sheet.close(str(unmet))
    except TimeoutError:
        sheet.close(f"the scenario {scenario.name!r} took more than {pace.s(scenario.seconds):g} s")
    except Exception as error:
        log.exception("the scenario %r failed", scenario.name)
        sheet.close(f"the suite itself failed: {type(error).__name__}: {error}")
    else:
        sheet.close()
