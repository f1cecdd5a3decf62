"""The table of rules against the text: every MUST and SHOULD is in it once, with its checks or a reason for having none."""

import hashlib
import importlib.util
import json
import re
from dataclasses import replace

import pytest
from vrt_host.conformance import client_cases, server_cases
from vrt_host.conformance.checks import Level, may, must
from vrt_host.conformance.rules import FILE, SIDES, load
from vrt_host.resources import root

TEXT = (root() / "schema" / "vrt-1.3.md").read_text("utf-8")
TABLE = load()
RULES = TABLE.rules

# No \b: in two places the text has lost the blank before the word ("seqMUST NOT wrap").
KEYWORD = re.compile(r"(?<![A-Z])(MUST|REQUIRED|SHALL|SHOULD|RECOMMENDED)(?: NOT)?(?![A-Z])")
LEVELS = {"MUST": Level.MUST, "REQUIRED": Level.MUST, "SHALL": Level.MUST}
STRICTNESS = {Level.MAY: 0, Level.SHOULD: 1, Level.MUST: 2}
SUITE = {check.id: check for check in (*client_cases.CHECKS, *server_cases.CHECKS)}
CHECK_ID = re.compile(r"(server|client)\.[a-z0-9]+(?:-[a-z0-9]+)*\.[a-z0-9]+(?:-[a-z0-9]+)*")

spec = importlib.util.spec_from_file_location("gen_rules", root() / "tools" / "gen_rules.py")
gen_rules = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gen_rules)


def keywords(text):
    """Offset -> level of every key word, but for the paragraph that defines them."""
    definition = re.search(r"^The key words MUST.*$", text, re.MULTILINE).span()
    return {
        found.start(): LEVELS.get(found[1], Level.SHOULD)
        for found in KEYWORD.finditer(text)
        if not definition[0] <= found.start() < definition[1]
    }


def section_starts(text):
    """(offset, section) of every numbered heading and appendix."""
    starts, seen = [], set()
    for found in re.finditer(r"^#+ ([0-9]+(?:\.[0-9]+)?|Appendix [A-Z])", text, re.MULTILINE):
        starts.append((found.start(), f"{found[1]} (identifiers)" if found[1] in seen else found[1]))
        seen.add(found[1])
    return starts


def table_rows(text):
    """(offset, row) of the tables of §5.1, without their heads."""
    start, end = text.index("### 5.1 "), text.index("### 5.2 ")
    rows = [
        (start + found.start(), found[0]) for found in re.finditer(r"^\|.*\|$", text[start:end], re.MULTILINE)
    ]
    heads = [number for number, (_, row) in enumerate(rows) if row.startswith("|---")]
    return [row for number, row in enumerate(rows) if number not in heads and number + 1 not in heads]


def listed_items(text):
    """(start, end) of each item of the lists that a MUST and a colon introduce (§6.2, §7.5); some have lost their breaks."""
    items = []
    for found in re.finditer(r"MUST[^\n]*:\n(.*?(?:;\n(?!-)|\. ))", text, re.DOTALL):
        items += [
            (found.start(1) + item.start(), found.start(1) + item.end())
            for item in re.finditer(r"[^;]{9,}", found[1])
        ]
    return items


def places(rules, text):
    """(rule, start, end) in the text; a rule whose excerpt is not there exactly once is left out."""
    return [
        (rule, text.index(rule.text), text.index(rule.text) + len(rule.text))
        for rule in rules
        if text.count(rule.text) == 1
    ]


def faults(rules, text=TEXT):
    """What is wrong with the table, a line each."""
    found = [
        f"{rule.id}: occurs {text.count(rule.text)} times" for rule in rules if text.count(rule.text) != 1
    ]
    placed, starts = places(rules, text), section_starts(text)
    words = keywords(text)
    for offset in words:
        owners = [rule.id for rule, start, end in placed if start <= offset < end]
        if len(owners) != 1:
            found.append(f"...{text[offset - 40 : offset + 40]!r}...: {owners or 'no rule'}")
    for rule, start, end in placed:
        inside = [level for offset, level in words.items() if start <= offset < end]
        if len(inside) > 1:
            found.append(f"{rule.id}: {len(inside)} key words")
        if (inside or [Level.MUST])[0] is not rule.level:
            found.append(f"{rule.id}: the text does not say {rule.level}")
        section = [name for offset, name in starts if offset <= start][-1]
        if section != rule.section:
            found.append(f"{rule.id}: is in {section}")
    for offset, row in table_rows(text):
        owners = [rule.id for rule, start, end in placed if start <= offset and offset + len(row) <= end]
        if len(owners) != 1:
            found.append(f"{row}: {owners or 'no rule'}")
    for first, last in listed_items(text):
        owners = [rule.id for rule, start, end in placed if first <= start < last]
        if len(owners) != 1:
            found.append(f"{text[first:last]!r}: {owners or 'no rule'}")
    return found


def without(rule_id):
    return [rule for rule in RULES if rule.id != rule_id]


def changed(rule_id, **members):
    assert any(rule.id == rule_id for rule in RULES)
    return [replace(rule, **members) if rule.id == rule_id else rule for rule in RULES]


# --- the table and the text


def test_text_is_the_published_one():
    """The text is normative, so it is not edited here, not even where a blank is missing."""
    digest = hashlib.sha256((root() / "schema" / "vrt-1.3.md").read_bytes()).hexdigest()
    assert digest == "b6548fa6b767565b200949444004b768d23248687ef575f65206e55b61815139"


def test_every_word_row_and_item_of_the_text_has_one_rule():
    assert faults(RULES) == []


def test_what_is_counted():
    assert len(keywords(TEXT)) == 90  # 59 of MUST, 31 of SHOULD and RECOMMENDED
    assert len(table_rows(TEXT)) == 16 + 6
    assert len(listed_items(TEXT)) == 4 + 4


@pytest.mark.parametrize(
    "rule", ["4.1-8", "4.3-3", "5.1-server-12", "5.1-client-4", "6.2-1c", "7.5-5d", "9.3-1"]
)
def test_missing_and_doubled_rules_are_found(rule):
    assert len(faults(without(rule))) == 1
    twice = [*RULES, *(replace(one, id="twice") for one in RULES if one.id == rule)]
    assert len(faults(twice)) == 1
    assert "twice" in faults(twice)[0]


@pytest.mark.parametrize(
    ("rule", "members", "fault"),
    [
        ("4.3-3", {"level": Level.MUST}, "the text does not say MUST"),
        ("4.3-2", {"level": Level.SHOULD}, "the text does not say SHOULD"),
        ("4.3-1", {"level": Level.SHOULD}, "the text does not say SHOULD"),
        ("4.3-2", {"section": "4.2"}, "is in 4.3"),
        ("6.3-1", {"section": "6.3 (identifiers)"}, "is in 6.3"),
        ("4.3-2", {"text": "the receiver MUST NOT handle it once"}, "occurs 0 times"),
        ("4.3-2", {"text": "the receiver"}, "occurs"),
        (
            "4.3-2",
            {"text": "the receiver MUST NOT handle it again and SHOULD acknowledge again."},
            "2 key words",
        ),
    ],
)
def test_wrong_rules_are_found(rule, members, fault):
    found = faults(changed(rule, **members))
    assert any(fault in one for one in found), found


def test_new_demands_of_the_text_are_found():
    assert len(faults(RULES, TEXT + "\nA server MUST sing.\n")) == 1
    assert len(faults(RULES, TEXT.replace("### 5.2 ", "| open | song | listen | open |\n### 5.2 "))) == 1
    assert (
        len(
            faults(
                RULES,
                TEXT.replace("raise its closed epoch to", "sing the epoch;\n- raise its closed epoch to"),
            )
        )
        == 1
    )


# --- the table itself


def test_ids_are_unique_and_rules_in_the_order_of_the_text():
    assert len({rule.id for rule in RULES}) == len(RULES)
    starts = [TEXT.index(rule.text) for rule in RULES]
    assert starts == sorted(starts)
    for rule in RULES:
        assert rule.id.startswith(rule.section.replace(" (identifiers)", "-identifiers") + "-"), rule.id


def test_rules_say_what_they_demand_in_one_line():
    for rule in RULES:
        assert rule.rule.endswith("."), rule.id
        assert not {"|", "\n"} & set(rule.rule + rule.reason), rule.id
        assert len(rule.rule) <= 110, rule.id


def unaccounted(rule):
    """The peers that a rule binds and no check tests, though the rule gives no reason; ids that are none of theirs."""
    bound = SIDES[rule.side]
    tested = {check.partition(".")[0] for check in rule.checks}
    return [side for side in bound if side not in tested and not rule.reason] + sorted(tested - set(bound))


def test_every_rule_has_a_check_or_a_reason_for_each_side():
    assert [(rule.id, unaccounted(rule)) for rule in RULES if unaccounted(rule)] == []
    for rule in RULES:
        assert all(CHECK_ID.fullmatch(check) for check in rule.checks), rule.id
        assert len(set(rule.checks)) == len(rule.checks), rule.id
        assert rule.checks or rule.reason, rule.id


def test_reasons_are_for_what_is_not_tested():
    for rule in RULES:
        tested = {check.partition(".")[0] for check in rule.checks}
        assert not (rule.reason and SIDES[rule.side] and tested == set(SIDES[rule.side])), rule.id


def test_rules_without_check_and_reason_are_found():
    whole = next(rule for rule in RULES if rule.side == "both" and len(rule.checks) == 2)
    assert unaccounted(whole) == []
    assert unaccounted(replace(whole, checks=())) == ["client", "server"]
    assert unaccounted(replace(whole, checks=("server.a.b",))) == ["client"]
    assert unaccounted(replace(whole, side="server")) == ["client"]


def test_loader_refuses_what_it_does_not_know(tmp_path):
    file = tmp_path / "rules.json"
    entry = json.loads(FILE.read_text("utf-8"))["rules"][0]
    for wrong, error in [
        ({"level": "MIGHT"}, ValueError),
        ({"side": "neighbour"}, ValueError),
        ({"check": []}, TypeError),
    ]:
        file.write_text(json.dumps({"rules": [{**entry, **wrong}], "beyond": {}}), "utf-8")
        with pytest.raises(error):
            load(file)


# --- the table and the suite


def mismatches(rules, beyond, suite):
    """Where the table and the suite's checks do not fit, a line each."""
    named = {}
    for rule in rules:
        for check in rule.checks:
            named.setdefault(check, []).append(rule)
    found = [f"{check}: not in the suite" for check in (*named, *beyond) if check not in suite]
    for check in suite.values():
        owners = named.get(check.id, [])
        if bool(owners) == (check.id in beyond):
            found.append(f"{check.id}: {'in both lists' if owners else 'in no rule'}")
        if owners and check.section.removeprefix("§") not in {rule.section.split()[0] for rule in owners}:
            found.append(f"{check.id}: says {check.section}")
        if owners and check.level is Level.MAY:
            found.append(f"{check.id}: MAY is no rule")
        found += [
            f"{check.id}: stricter than {rule.id}"
            for rule in owners
            if STRICTNESS[check.level] > STRICTNESS[rule.level]
        ]
    for rule in rules:
        levels = {suite[check].level for check in rule.checks if check in suite}
        if levels and rule.level not in levels:
            found.append(f"{rule.id}: only weaker checks")
    return found


def test_checks_of_the_table_are_those_of_the_suite():
    assert mismatches(RULES, TABLE.beyond, SUITE) == []


def test_wrong_checks_are_found():
    whole = next(rule for rule in RULES if rule.checks == ("server.errors.seq",))
    check = SUITE["server.errors.seq"]

    def found(checks=whole.checks, level=whole.level, beyond=(), suite=()):
        suite = suite or {check.id: check}
        return mismatches([replace(whole, checks=checks, level=level)], dict.fromkeys(beyond, ""), suite)

    assert found() == []
    assert found(suite={check.id: check, "server.a.b": must("server.a.b", "§4.1", "")}) == [
        "server.a.b: in no rule"
    ]
    assert found((check.id, "server.a.b")) == ["server.a.b: not in the suite"]
    assert found(beyond=["server.a.b"]) == ["server.a.b: not in the suite"]
    assert found(()) == [f"{check.id}: in no rule"]
    assert found((), beyond=[check.id]) == []
    assert found(beyond=[check.id]) == [f"{check.id}: in both lists"]
    assert found(level=Level.SHOULD) == [
        f"{check.id}: stricter than {whole.id}",
        f"{whole.id}: only weaker checks",
    ]
    assert found(suite={check.id: replace(check, section="§4.2")}) == [f"{check.id}: says §4.2"]
    assert found(suite={check.id: may(check.id, "§4.1", "")}) == [
        f"{check.id}: MAY is no rule",
        f"{whole.id}: only weaker checks",
    ]


# --- the page


def test_page_is_fresh():
    assert gen_rules.main(["--check"]) == 0


def test_page_that_is_missing_or_stale_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gen_rules, "ROOT", tmp_path)
    monkeypatch.setattr(gen_rules, "PAGE", tmp_path / "page.md")
    assert gen_rules.main(["--check"]) == 1
    assert gen_rules.main([]) == 0
    assert gen_rules.main(["--check"]) == 0
    gen_rules.PAGE.write_text("# stale\n", "utf-8")
    assert gen_rules.main(["--check"]) == 1
    assert capsys.readouterr().err.count("stale") == 2


def test_page_names_every_rule_once():
    lines = gen_rules.PAGE.read_text("utf-8").splitlines()
    assert [line.split(" | ")[0][2:] for line in lines if re.match(r"\| [0-9]", line)] == [
        rule.id for rule in RULES
    ]
