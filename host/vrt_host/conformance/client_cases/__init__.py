"""Scenarios for clients, a file a chapter. `SCENARIOS` in the order in which they are played, with one client."""

from __future__ import annotations

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

SCENARIOS = (
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
