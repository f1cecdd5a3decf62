"""What the text demands, and the checks that look at it: `rules.json`, read and typed.

A rule is one MUST, MUST NOT, REQUIRED, SHALL, SHOULD, SHOULD NOT or RECOMMENDED of `schema/vrt-1.3.md`, one item of a
list that such a word introduces, one row of the tables of §5.1, or a sentence that says what a side does without such a
word. `tests/host/test_conformance_rules.py` counts them against the text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from vrt_host.conformance.checks import Level

FILE = Path(__file__).with_name("rules.json")
SIDES = {
    "client": ("client",),
    "server": ("server",),
    "both": ("client", "server"),
    "document": (),
    "deployment": (),
}
"""Whom a rule may bind, and which of the two peers that is."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the text."""

    id: str
    """The section and a number, or what the row of a table is of: `4.1-3`, `6.2-1a`, `5.1-server-3`."""
    section: str
    """`4.1`; the second §6.3 is `6.3 (identifiers)`."""
    level: Level
    side: str
    """A key of `SIDES`."""
    rule: str
    """What it demands, in a line of our own."""
    text: str
    """An excerpt that occurs once in the text, and holds one key word at most."""
    checks: tuple[str, ...]
    reason: str = ""
    """Why no check can test it, or not on both sides."""


@dataclass(frozen=True, slots=True)
class Rules:
    """All of `rules.json`."""

    rules: tuple[Rule, ...]
    beyond: dict[str, str]
    """Checks that test no rule of the text, and where what they test is written."""


def load(file: Path = FILE) -> Rules:
    """Read the table; raises `TypeError` for a member that is missing or unknown, `ValueError` for a wrong value."""
    table = json.loads(file.read_text("utf-8"))
    rules = []
    for entry in table["rules"]:
        rule = Rule(**{**entry, "level": Level(entry["level"]), "checks": tuple(entry["checks"])})
        if rule.side not in SIDES:
            raise ValueError(f"{rule.id}: there is no side {rule.side!r}")
        rules.append(rule)
    return Rules(tuple(rules), table["beyond"])
