"""Checks and what came of them: one stable id for pass and fail.

    LEVELS = (must("server.heartbeat.pong", "§4.4", "every ping is answered, in any state"), should(...), may(...))

    ledger = Ledger(checks, secrets=(token,))       of a whole run
    ledger.settle(id, ok, detail)                   as often as the rule is looked at: one failure outweighs any
                                                    number of passes, a pass outweighs `not_testable`
    ledger.note(id, text)                           a figure of interest, shown when the check passes
    ledger.not_testable(id, reason)                 the peer does not offer what the rule is about
    ledger.findings()                               one `Finding` for each check, in the order they were given

A scenario gets a `Sheet`, which takes only the ids that the scenario declared, and may end early by raising

    NotTestable(reason)     the peer does not offer what the scenario needs
    Unmet(what)             something that had to happen did not: what the scenario did not settle fails, "not reached"

A detail is one line that says what was seen, the frames shortened (`shown`); it is shown only when the rule was broken,
and may be a function that makes it. The ledger takes secrets out of it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")
Detail = str | Callable[[], str]

SHOWN = 240
"""Characters of a frame in a detail."""
DETAILS = 8
"""Failures of one check that are told in full; the rest is counted."""


class Level(StrEnum):
    """How binding a rule is (BCP 14)."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"


class Outcome(StrEnum):
    """What came of a check."""

    PASSED = "passed"
    FAILED = "failed"
    """A MUST was broken."""
    WARNED = "warned"
    """A SHOULD was not followed."""
    NOTED = "noted"
    """A MAY that the peer does not do."""
    NOT_TESTABLE = "not testable"


BROKEN = {Level.MUST: Outcome.FAILED, Level.SHOULD: Outcome.WARNED, Level.MAY: Outcome.NOTED}


@dataclass(frozen=True, slots=True)
class Check:
    """A rule that is looked at. `id`: lower-case words joined by `-`, three of them joined by `.`."""

    id: str
    section: str
    level: Level
    title: str
    """What holds when it passes."""


def must(id_: str, section: str, title: str) -> Check:
    """A rule whose breach fails the peer."""
    return Check(id_, section, Level.MUST, title)


def should(id_: str, section: str, title: str) -> Check:
    """A rule whose breach is warned of."""
    return Check(id_, section, Level.SHOULD, title)


def may(id_: str, section: str, title: str) -> Check:
    """Something the peer may do or leave; it is noted when it does not."""
    return Check(id_, section, Level.MAY, title)


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one check."""

    check: Check
    outcome: Outcome
    details: tuple[str, ...] = ()


class NotTestable(Exception):
    """The peer does not offer what the scenario needs; the text says what."""


class Unmet(Exception):
    """What had to happen did not; the text says what, and what came instead."""


@dataclass(slots=True)
class _Entry:
    passed: bool = False
    note: str = ""
    failures: dict[str, None] = field(default_factory=dict)
    failed: int = 0
    reason: str | None = None


class Ledger:
    """All checks of a run."""

    def __init__(
        self,
        checks: Iterable[Check],
        *,
        secrets: Collection[str] = (),
        changed: Callable[[Finding], None] | None = None,
    ) -> None:
        """`changed(finding)` is called when the outcome of a check becomes another one."""
        self._checks: dict[str, Check] = {}
        for check in checks:
            if self._checks.setdefault(check.id, check) != check:
                raise ValueError(f"two checks have the id {check.id}")
        self._entries = {name: _Entry() for name in self._checks}
        self._secrets = tuple(secret for secret in secrets if secret)
        self._changed = changed

    def settle(self, check_id: str, ok: bool, detail: Detail = "") -> None:
        """The rule was kept, or broken."""
        entry = self._entries[check_id]
        if ok and entry.passed:
            return  # the usual case: the rules of every frame
        before = self._outcome(check_id)
        if ok:
            entry.passed = True
        else:
            entry.failed += 1
            if len(entry.failures) < DETAILS:
                text = detail if isinstance(detail, str) else detail()
                entry.failures[self._clean(text) or "no detail"] = None
        self._tell(check_id, before)

    def note(self, check_id: str, text: str) -> None:
        """A figure of interest; the last one counts."""
        self._entries[check_id].note = self._clean(text)

    def not_testable(self, check_id: str, reason: str) -> None:
        """The rule cannot be looked at with this peer."""
        before = self._outcome(check_id)
        self._entries[check_id].reason = self._clean(reason)
        self._tell(check_id, before)

    def settled(self, check_id: str) -> bool:
        """Whether anything came of the check yet."""
        return self._outcome(check_id) is not None

    def findings(self) -> list[Finding]:
        """What came of each check; one that nothing touched is not testable: "nothing in this run showed it"."""
        return [self._finding(name) for name in self._checks]

    def _outcome(self, check_id: str) -> Outcome | None:
        entry = self._entries[check_id]
        if entry.failed:
            return BROKEN[self._checks[check_id].level]
        if entry.passed:
            return Outcome.PASSED
        return None if entry.reason is None else Outcome.NOT_TESTABLE

    def _finding(self, check_id: str) -> Finding:
        entry = self._entries[check_id]
        outcome = self._outcome(check_id)
        details: tuple[str, ...] = ()
        if entry.failed:
            details = tuple(entry.failures)
            more = entry.failed - len(details)
            if more:
                details += (f"and {more:,} more",)
        elif entry.passed:
            details = (entry.note,) if entry.note else ()
        else:
            details = (entry.reason or "nothing in this run showed it",)
        return Finding(self._checks[check_id], outcome or Outcome.NOT_TESTABLE, details)

    def _tell(self, check_id: str, before: Outcome | None) -> None:
        if self._changed is not None and self._outcome(check_id) is not before:
            self._changed(self._finding(check_id))

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return printable(" ".join(text.split()))


class Sheet:
    """The checks that one scenario declared; it settles no others."""

    def __init__(self, ledger: Ledger, checks: Iterable[Check]) -> None:
        self._ledger = ledger
        self._open = {check.id for check in checks}
        self._mine = frozenset(self._open)
        self._last: str | None = None

    def settle(self, check_id: str, ok: bool, detail: Detail = "") -> None:
        """See `Ledger.settle`."""
        self._take(check_id)
        self._ledger.settle(check_id, ok, detail)

    def note(self, check_id: str, text: str) -> None:
        """See `Ledger.note`."""
        self._ledger.note(check_id, text)

    async def holds(self, check_id: str, happens: Awaitable[T]) -> T | None:
        """Settles a check by whether something happens; None when it did not, and the scenario may go on."""
        try:
            result = await happens
        except Unmet as unmet:
            self.settle(check_id, False, str(unmet))
            return None
        self.settle(check_id, True)
        return result

    def not_testable(self, check_id: str, reason: str) -> None:
        """See `Ledger.not_testable`."""
        self._take(check_id)
        self._ledger.not_testable(check_id, reason)

    def close(self, failure: str | None = None, *, absent: str | None = None) -> None:
        """The scenario is over: what it did not settle was not reached, or is not testable (`absent`).

        A failure after everything was settled once, as in a further round of a loop, is one of the check settled last.
        """
        if failure is not None and not self._open and self._last is not None:
            self._open.add(self._last)
        for check_id in sorted(self._open):
            if absent is not None:
                self._ledger.not_testable(check_id, absent)
            else:
                self._ledger.settle(check_id, False, f"not reached: {failure or 'the scenario ended before'}")
        self._open.clear()

    def _take(self, check_id: str) -> None:
        if check_id not in self._mine:
            raise KeyError(f"the scenario does not declare {check_id}")
        self._open.discard(check_id)
        self._last = check_id


def printable(text: str) -> str:
    """What a peer said, for a terminal and a file: without what would move the cursor, or is no character at all."""
    return (
        text if text.isprintable() else "".join(one if one.isprintable() else _escaped(one) for one in text)
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shown(frame: Any) -> str:
    """A frame, message or value for a detail: JSON in one line, bytes in hex, shortened, without the credential."""
    if isinstance(frame, (bytes, bytearray, memoryview)):
        octets = bytes(frame)
        return f"{len(octets)} bytes {octets[:24].hex(' ')}" + ("..." if len(octets) > 24 else "")
    if isinstance(frame, str):
        text = frame
    else:
        if isinstance(frame, dict) and "auth" in frame:
            frame = {**frame, "auth": "***"}
        text = json.dumps(frame, ensure_ascii=False, default=repr)
    text = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"
