"""Scenarios for clients, a file a chapter. `SCENARIOS` in the order in which they are played, with one client."""

from __future__ import annotations

from vrt_host.conformance.checks import Check
from vrt_host.conformance.client_cases import (
    audio,
    calls,
    errors,
    failed,
    gate,
    interrupt,
    link,
    ready,
    reliability,
    resume,
    sessions,
    silence,
    streams,
)
from vrt_host.conformance.client_cases.stage import Stage
from vrt_host.conformance.run import Scenario
from vrt_host.conformance.watch_client import ALWAYS

SCENARIOS: tuple[Scenario[Stage], ...] = (
    *sessions.SCENARIOS,
    *ready.SCENARIOS,
    *reliability.SCENARIOS,
    *calls.SCENARIOS,
    *streams.SCENARIOS,
    *gate.SCENARIOS,
    *interrupt.SCENARIOS,
    *errors.SCENARIOS,
    *link.SCENARIOS,
    *audio.SCENARIOS,
    *resume.SCENARIOS,
    *failed.SCENARIOS,
    *silence.SCENARIOS,
    *sessions.ENDINGS,
)

CHECKS: tuple[Check, ...] = tuple(
    {check.id: check for check in (*ALWAYS, *(check for one in SCENARIOS for check in one.checks))}.values()
)
