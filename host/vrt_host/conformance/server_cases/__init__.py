"""The scenarios for servers, a file a chapter."""

from __future__ import annotations

from vrt_host.conformance.checks import Check
from vrt_host.conformance.client import Server
from vrt_host.conformance.run import Scenario
from vrt_host.conformance.server_cases import (
    audio,
    auth,
    calls,
    framing,
    reliability,
    resume,
    sessions,
    streams,
    times,
    turns,
    vectors,
)
from vrt_host.conformance.watch import ALWAYS

CHAPTERS = (times, framing, vectors, reliability, sessions, auth, resume, turns, calls, streams, audio)
"""Those that wait longest come first, so that the others run meanwhile."""

SCENARIOS: tuple[Scenario[Server], ...] = tuple(
    one for chapter in CHAPTERS for one in vars(chapter).values() if isinstance(one, Scenario)
)

CHECKS: tuple[Check, ...] = tuple(
    {check.id: check for check in (*ALWAYS, *(check for one in SCENARIOS for check in one.checks))}.values()
)
