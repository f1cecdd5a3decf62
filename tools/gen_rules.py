"""Generates `docs/conformance-rules.md`, the rules of the text and their checks, from the suite's `rules.json`.

python tools/gen_rules.py            writes the file
python tools/gen_rules.py --check    exits 1 when it is stale
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path

from vrt_host.conformance.rules import SIDES, Rule, Rules, load

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "conformance-rules.md"
TEXT = ROOT / "schema" / "vrt-1.3.md"

HEADER = """\
# Every rule of vRT 1.3 and what tests it

<!-- generated from host/vrt_host/conformance/rules.json by tools/gen_rules.py, not edited -->

Each row is a rule of [the text](../schema/vrt-1.3.md): one MUST, MUST NOT, SHOULD, SHOULD NOT or RECOMMENDED (the text has no
REQUIRED and no SHALL), an item of a list that such a word introduces, a row of the tables of §5.1, or a sentence that says what
a side does without such a word; the last two count as MUST. The wording here is ours, the text's is what binds. The last column
names the checks of `vrt conformance` that look at the rule, or says why none can.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Generate the page of the rules from the suite's table.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is stale")
    check = parser.parse_args(arguments).check
    page = generate(load())
    if not check:
        PAGE.write_text(page, "utf-8")
    elif not PAGE.is_file() or PAGE.read_text("utf-8") != page:
        print(f"{PAGE.relative_to(ROOT)} is stale: run python tools/gen_rules.py", file=sys.stderr)
        return 1
    return 0


def generate(table: Rules) -> str:
    """The text of the page."""
    parts = [HEADER, *counts(table.rules)]
    names = headings()
    for section, rules in groupby(table.rules, lambda rule: rule.section):
        parts += [
            f"\n## {section} {names[section]}\n",
            "| id | level | side | rule | checks |",
            "|---|---|---|---|---|",
        ]
        parts += [row(rule) for rule in rules]
    if table.beyond:
        parts += [
            "\n## Checks of what the text does not say\n",
            "| check | where it is written |",
            "|---|---|",
        ]
        parts += [f"| `{check}` | {source} |" for check, source in sorted(table.beyond.items())]
    return "\n".join(parts) + "\n"


def counts(rules: tuple[Rule, ...]) -> list[str]:
    """How many rules there are of each level, for each side, and how many have no check."""
    number = Counter((rule.level, rule.side) for rule in rules)
    lines = ["| level | " + " | ".join(SIDES) + " | without a check |", "|---" * (len(SIDES) + 2) + "|"]
    for level in sorted({rule.level for rule in rules}):
        unchecked = sum(rule.level == level and not rule.checks for rule in rules)
        lines.append(
            f"| {level} | " + " | ".join(str(number[level, side]) for side in SIDES) + f" | {unchecked} |"
        )
    return lines


def headings() -> dict[str, str]:
    """The title of each section; the first one of a number counts under the bare number."""
    found: dict[str, str] = {}
    for number, title in re.findall(
        r"^#+ ([0-9]+(?:\.[0-9]+)?)\.? (.+)$", TEXT.read_text("utf-8"), re.MULTILINE
    ):
        found[f"{number} (identifiers)" if number in found else number] = title
    return found


def row(rule: Rule) -> str:
    tested = ", ".join(f"`{check}`" for check in rule.checks)
    cell = ". ".join(part for part in (tested, rule.reason) if part)
    return f"| {rule.id} | {rule.level} | {rule.side} | {rule.rule} | {cell} |"


if __name__ == "__main__":
    sys.exit(main())
