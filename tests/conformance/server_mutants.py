"""Servers that break one rule each: our host with a patch, and what the suite has to find of it.

A mutant is a function that gets a `pytest.MonkeyPatch`. `fails` are the checks that have to fail (a SHOULD has to be
warned of, a MAY noted); `may` those of the same rule that may fail with them, because a scenario goes no further or
because it depends on what comes first. No other check may fail.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from vrt_host import conformance
from vrt_host.agents.script import load
from vrt_host.agents.scripted import ScriptedAgent
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig, TurnLimits
from vrt_host.conformance.checks import Ledger, Outcome
from vrt_host.conformance.client import Server
from vrt_host.conformance.run import Pace, play
from vrt_host.conformance.server_cases import CHECKS, SCENARIOS, vectors
from vrt_host.conformance.watch import ALWAYS, Watch
from vrt_host.server import serve
from vrt_host.session import Limits

FACTOR = float(os.environ.get("VRT_TESTS_TIMEOUT_FACTOR", "1"))
PROFILE = Path(conformance.__file__).with_name("profile.json")
WORDS = frozenset(
    [
        "text",
        "count",
        "context",
        "audio",
        "say",
        "long",
        "think",
        "call",
        "calls",
        "stream",
        "broken",
        "work",
        "outcome",
        "heard",
        "timeout",
        "error",
        "end",
        "speech",
        "refuse",
    ]
)
LIMITS = Limits(ack_s=0.05)
SHORT = replace(LIMITS, heartbeat_s=1.2 * FACTOR, resume_window_s=1.2 * FACTOR)
"""For the rules about times."""
TURNS = TurnLimits(call_margin=0.3)
BAD = frozenset({Outcome.FAILED, Outcome.WARNED, Outcome.NOTED})
USUAL = frozenset({"server.tools.wrong-epoch-ignored"})
"""What our own host is noted for."""


@dataclass(frozen=True)
class Mutant:
    """A server with one rule broken."""

    name: str
    fails: frozenset[str]
    may: frozenset[str]
    patch: Callable[[pytest.MonkeyPatch], None]
    tokens: bool = True
    """Whether it asks for tokens."""
    limits: Limits = LIMITS
    fatal: bool = False
    """It brings the server down, so that nothing else can be tested with it."""


SAMPLE = tuple(
    vector
    for place, vector in enumerate(vectors.vectors())
    if place % 4 == 0
    or any(word in vector.id for word in ("order", "interrupt", "ping", "opus", "nan", "binary"))
)
"""Vectors enough for each mutant; all of them take a second or two."""

MUTANTS: dict[str, Mutant] = {}


def mutant(*fails: str, may: tuple[str, ...] = (), tokens=True, limits=LIMITS, fatal=False):
    """Registers a mutant; checks are named without `server.`."""

    def register(patch):
        name = patch.__name__.replace("_", "-")
        full = [frozenset(f"server.{one}" for one in names) for names in (fails, may)]
        unknown = (full[0] | full[1]) - {check.id for check in CHECKS}
        assert not unknown, unknown
        assert name not in MUTANTS, name
        MUTANTS[name] = Mutant(name, *full, patch, tokens, limits, fatal)
        return patch

    return register


@dataclass
class Verdict:
    """What the suite found: check -> its details, of those that did not pass; `passed`: of those that did."""

    bad: dict[str, tuple[str, ...]] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)

    def wrong(self, mutant: Mutant) -> list[str]:
        """Where it is not what the mutant deserves."""
        missed = [f"{check} did not fail" for check in mutant.fails - self.bad.keys()]
        others = self.bad.keys() - mutant.fails - mutant.may
        return missed + [f"{check} failed: {self.bad[check]}" for check in others]


def examine(mutant: Mutant, folder: Path, scenarios, *, jobs: int = 24, answer_s: float = 2.5) -> Verdict:
    """Run scenarios against a mutant, in a loop of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.root.manager, "disable", logging.CRITICAL)
        if mutant.fails:
            patch.setattr(vectors, "vectors", lambda: SAMPLE)
        mutant.patch(patch)
        return asyncio.run(_examine(mutant, folder, scenarios, jobs, Pace(FACTOR, answer_s)))


async def _examine(mutant: Mutant, folder: Path, scenarios, jobs: int, pace: Pace) -> Verdict:
    path = folder / f"{mutant.name}.json"
    path.unlink(missing_ok=True)
    tokens = [TokenFile(path).add(name) for name in ("one", "two")] if mutant.tokens else [None, None]
    script = load(PROFILE)
    stop = asyncio.Event()
    port = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            serve(
                ServerConfig(port=0, tokens=path if mutant.tokens else None, stop_timeout=0.1),
                lambda: ScriptedAgent(script),
                limits=mutant.limits,
                turn_limits=TURNS,
                ready=port.set_result,
                stop=stop,
            )
        )
        ledger = Ledger(CHECKS, secrets=[token for token in tokens if token])
        server = Server(f"ws://127.0.0.1:{await port}", pace, Watch(ledger), *tokens, profile=WORDS)
        findings = await play(scenarios, server, ledger, pace=pace, jobs=jobs)
        stop.set()
    verdict = Verdict()
    for finding in findings:
        if finding.outcome in BAD and finding.check.id not in USUAL - mutant.fails:
            verdict.bad[finding.check.id] = finding.details
        elif finding.outcome is Outcome.PASSED:
            verdict.passed.add(finding.check.id)
    return verdict


def needed(mutant: Mutant):
    """The scenarios that can show that the rule is broken, and those that could mistake it for another one."""
    general = bool(mutant.fails & {check.id for check in ALWAYS})
    return [
        one
        for one in SCENARIOS
        if mutant.fails & {check.id for check in one.checks} or (general and one.name in GENERAL)
    ]


GENERAL = (
    "turns", "interrupt", "text input", "results", "device tools", "given up", "own tools", "previews", "resends",
    "pending call", "output audio", "playback", "audio after resume", "acknowledgements", "second hello", "pings",
)  # fmt: skip
"""What shows the rules that are looked at all the time."""
