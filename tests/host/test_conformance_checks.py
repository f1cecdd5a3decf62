"""What becomes of a check that is settled, and how often."""

import pytest
from vrt_host.conformance.checks import (
    DETAILS,
    Ledger,
    NotTestable,
    Outcome,
    Sheet,
    Unmet,
    may,
    must,
    should,
    shown,
)

CHECKS = (
    must("a.b.must", "§1", "holds"),
    should("a.b.should", "§2", "is wise"),
    may("a.b.may", "§3", "is nice"),
)


def outcomes(ledger):
    return [finding.outcome for finding in ledger.findings()]


@pytest.mark.parametrize(
    ("check", "outcome"),
    [("a.b.must", Outcome.FAILED), ("a.b.should", Outcome.WARNED), ("a.b.may", Outcome.NOTED)],
)
def test_level_says_what_a_breach_is(check, outcome):
    ledger = Ledger(CHECKS)
    ledger.settle(check, False, "seen")
    finding = next(one for one in ledger.findings() if one.check.id == check)
    assert (finding.outcome, finding.details) == (outcome, ("seen",))


@pytest.mark.parametrize("order", [(True, False, True), (False, True, True), (True, True, False)])
def test_one_failure_outweighs_any_number_of_passes(order):
    ledger = Ledger(CHECKS)
    for ok in order:
        ledger.settle("a.b.must", ok, "seen")
    ledger.not_testable("a.b.must", "not here")
    assert outcomes(ledger)[0] is Outcome.FAILED


def test_pass_outweighs_what_was_not_testable_elsewhere():
    ledger = Ledger(CHECKS)
    ledger.not_testable("a.b.must", "not here")
    assert outcomes(ledger)[0] is Outcome.NOT_TESTABLE
    ledger.settle("a.b.must", True)
    assert outcomes(ledger)[0] is Outcome.PASSED


def test_what_nothing_touched_is_not_testable_and_never_passed():
    (finding, *_) = Ledger(CHECKS).findings()
    assert finding.outcome is Outcome.NOT_TESTABLE
    assert finding.details == ("nothing in this run showed it",)


def test_details_are_of_failures_only_and_counted_when_many():
    ledger = Ledger(CHECKS)
    ledger.settle("a.b.must", True, lambda: pytest.fail("made for nothing"))
    ledger.note("a.b.must", "17 ms")
    assert ledger.findings()[0].details == ("17 ms",)
    for number in range(DETAILS + 3):
        ledger.settle("a.b.must", False, lambda number=number: f"seen {number}")
    details = ledger.findings()[0].details
    assert details == (*(f"seen {number}" for number in range(DETAILS)), "and 3 more")


def test_details_are_one_line_without_secrets():
    ledger = Ledger(CHECKS, secrets=["hush", ""])
    ledger.settle("a.b.must", False, "it said\n hush")
    ledger.not_testable("a.b.should", "hush")
    assert [finding.details for finding in ledger.findings()][:2] == [("it said ***",), ("***",)]


def test_changes_are_told_once():
    told = []
    ledger = Ledger(CHECKS, changed=lambda finding: told.append((finding.check.id, finding.outcome)))
    for ok in (True, True, False, False, True):
        ledger.settle("a.b.must", ok)
    assert told == [("a.b.must", Outcome.PASSED), ("a.b.must", Outcome.FAILED)]


def test_two_checks_cannot_share_an_id():
    Ledger([CHECKS[0], CHECKS[0]])
    with pytest.raises(ValueError, match=r"a\.b\.must"):
        Ledger([CHECKS[0], must("a.b.must", "§1", "is another")])


def test_sheet_takes_no_other_checks():
    sheet = Sheet(Ledger(CHECKS), CHECKS[:1])
    with pytest.raises(KeyError):
        sheet.settle("a.b.should", True)
    with pytest.raises(KeyError):
        sheet.not_testable("a.b.should", "x")


def test_what_a_scenario_did_not_reach_fails_with_the_reason():
    ledger = Ledger(CHECKS)
    sheet = Sheet(ledger, CHECKS)
    sheet.settle("a.b.must", True)
    sheet.close("no pong came")
    assert outcomes(ledger) == [Outcome.PASSED, Outcome.WARNED, Outcome.NOTED]
    assert ledger.findings()[1].details == ("not reached: no pong came",)


def test_failure_after_the_last_check_is_not_lost():
    ledger = Ledger(CHECKS[:2])
    sheet = Sheet(ledger, CHECKS[:2])
    for check in CHECKS[:2]:
        sheet.settle(check.id, True)
    sheet.close("the second round ended early")
    assert outcomes(ledger) == [Outcome.PASSED, Outcome.WARNED]


def test_what_the_peer_does_not_offer_is_not_testable():
    ledger = Ledger(CHECKS)
    Sheet(ledger, CHECKS).close(absent="no microphone")
    assert set(outcomes(ledger)) == {Outcome.NOT_TESTABLE}


async def test_holds_settles_by_what_happens():
    async def happens():
        return 7

    async def does_not():
        raise Unmet("nothing came")

    async def cannot():
        raise NotTestable("no way")

    ledger = Ledger(CHECKS)
    sheet = Sheet(ledger, CHECKS)
    assert await sheet.holds("a.b.must", happens()) == 7
    assert await sheet.holds("a.b.should", does_not()) is None
    with pytest.raises(NotTestable):
        await sheet.holds("a.b.may", cannot())
    assert outcomes(ledger)[:2] == [Outcome.PASSED, Outcome.WARNED]
    assert ledger.findings()[1].details == ("nothing came",)


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        ({"type": "hello", "auth": {"token": "hush"}}, '{"type": "hello", "auth": "***"}'),
        (b"\x01\x00\xff", "3 bytes 01 00 ff"),
        ("a\nb\x1b", "a\\nb\\x1b"),
        ("ü", "ü"),
    ],
)
def test_frames_are_shown_in_one_line_without_a_credential(frame, text):
    assert shown(frame) == text


def test_long_frames_are_cut():
    assert shown("x" * 1000) == "x" * 240 + "... (1000 characters)"
    assert shown(bytes(100)).endswith("...")


def test_detail_moves_no_cursor_and_can_be_written_to_a_file():
    ledger = Ledger(CHECKS)
    ledger.settle("a.b.must", False, "close 4001 (\x1b[31mred\x07 \ud800 \x9b1m \u202e é)")
    ledger.not_testable("a.b.should", "no \x1b[2J")
    ledger.note("a.b.may", "\x00")
    ledger.settle("a.b.may", True)
    details = [finding.details for finding in ledger.findings()]
    assert details == [
        (r"close 4001 (\x1b[31mred\x07 \ud800 \x9b1m \u202e é)",),
        (r"no \x1b[2J",),
        (r"\x00",),
    ]
