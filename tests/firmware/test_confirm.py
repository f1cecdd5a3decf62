# The button that confirms: held for a second, begun after the request, for one call only.
from support import raises
from vrt.tools.confirm import Confirm

CALL = ("call-1", "digest", 7)


def asked(now=1000, down=False, timeout_ms=15000):
    confirm = Confirm()
    confirm.ask("call-1", "digest", 7, now, timeout_ms)
    assert confirm.asking
    assert confirm.poll(down, now) is None
    return confirm


def play(confirm, *spans, now=1000, every=10):
    # spans: (down, milliseconds); polls every few ms and returns (outcome, ticks) of the first answer.
    for down, length in spans:
        for _ in range(length // every):
            now += every
            outcome = confirm.poll(down, now)
            if outcome:
                return outcome, now
    return None, now


def test_button_held_for_a_second_confirms():
    confirm = asked()
    assert play(confirm, (False, 500), (True, 2000)) == ("confirmed", 1000 + 500 + 10 + 1000)
    assert not confirm.asking
    assert confirm.use(*CALL, 2600)


def test_short_press_refuses():
    for length in (10, 500, 1000):
        confirm = asked()
        outcome, _ = play(confirm, (False, 200), (True, length), (False, 100))
        assert outcome == "refused", length
        assert not confirm.asking
        assert not confirm.use(*CALL, 3000)


def test_nothing_pressed_expires():
    confirm = asked()
    assert play(confirm, (False, 20000)) == ("expired", 1000 + 15000)
    assert not confirm.asking
    assert not confirm.use(*CALL, 16000)


def test_hold_that_ends_too_late_expires():
    confirm = asked()
    assert play(confirm, (False, 14500), (True, 5000)) == ("expired", 1000 + 15000)


def test_window_can_be_shortened_but_not_lengthened():
    assert play(asked(timeout_ms=3000), (False, 20000)) == ("expired", 4000)
    assert play(asked(timeout_ms=60000), (False, 20000)) == ("expired", 16000)


def test_button_down_at_the_request_does_not_count():
    confirm = asked(down=True)
    assert play(confirm, (True, 14000))[0] is None
    confirm = asked(down=True)
    assert play(confirm, (True, 5000), (False, 100)) == (None, 6100), "letting go of it is no refusal"
    confirm = asked(down=True)
    assert play(confirm, (True, 5000), (False, 100), (True, 1100))[0] == "confirmed"


def test_button_pressed_before_the_first_look_does_not_count():
    confirm = Confirm()
    confirm.ask("call-1", "digest", 7, 0)
    assert play(confirm, (True, 5000), now=0)[0] is None


def test_loop_that_did_not_look_does_not_confirm():
    # Pressed and let go while the loop stood still: seen late, it must not look like a long press.
    confirm = asked()
    assert confirm.poll(False, 1100) is None
    assert confirm.poll(True, 1110) is None
    assert confirm.poll(False, 4000) == "refused"
    confirm = asked()
    assert confirm.poll(True, 1110) is None
    assert confirm.poll(True, 4000) is None, "it may have been up in between"
    outcome, now = play(confirm, (True, 2000), now=4000)
    assert (outcome, now) == ("confirmed", 5000)


def test_grant_serves_the_one_call_once():
    for other in (("call-2", "digest", 7), ("call-1", "other", 7), ("call-1", "digest", 8)):
        confirm = asked()
        assert play(confirm, (False, 10), (True, 1100))[0] == "confirmed"
        assert not confirm.use(*other, 2200)
        assert not confirm.use(*CALL, 2200), "whatever was asked spends it"
    confirm = asked()
    assert play(confirm, (False, 10), (True, 1100))[0] == "confirmed"
    assert confirm.use(*CALL, 2200)
    assert not confirm.use(*CALL, 2200)


def test_grant_expires_with_the_window():
    confirm = asked()
    assert play(confirm, (False, 10), (True, 1100))[0] == "confirmed"
    assert not confirm.use(*CALL, 16000)


def test_grant_dies_when_cancelled_or_asked_again():
    confirm = asked()
    assert play(confirm, (False, 10), (True, 1100))[0] == "confirmed"
    confirm.cancel()
    assert not confirm.use(*CALL, 2200)
    confirm = asked()
    assert play(confirm, (False, 10), (True, 1100))[0] == "confirmed"
    confirm.ask(*CALL, 2200)
    assert not confirm.use(*CALL, 2200)


def test_second_request_starts_from_nothing():
    confirm = asked()
    play(confirm, (False, 10), (True, 900))
    confirm.ask("call-2", "digest", 7, 1910)
    assert play(confirm, (True, 3000), now=1910)[0] is None, "the hold began before this request"
    assert play(confirm, (False, 10), (True, 1100), now=4910)[0] == "confirmed"
    assert not confirm.use(*CALL, 6100)


class Heavy:
    # A number for which the heap has no room.
    def __lt__(self, other):
        raise MemoryError

    __gt__ = __lt__


def test_request_without_memory_for_it_grants_nothing():
    for confirm in (Confirm(), asked()):
        raises(MemoryError, confirm.ask, *CALL, 1000, Heavy())
        assert not confirm.use(*CALL, 1100)


def test_cancelled_request_hears_nothing():
    confirm = asked()
    confirm.cancel()
    assert not confirm.asking
    assert play(confirm, (False, 10), (True, 3000)) == (None, 4010)


def test_ticks_may_wrap():
    start = 2**30 - 500
    confirm = Confirm()
    confirm.ask("call-1", "digest", 7, start)
    now = start
    outcome = None
    for i in range(200):
        now = (start + i * 10) % 2**30
        outcome = confirm.poll(i > 2, now)
        if outcome:
            break
    assert outcome == "confirmed"
    assert confirm.use(*CALL, now)


def test_request_that_is_not_answered_grants_nothing():
    confirm = asked()
    assert not confirm.use(*CALL, 1100)
    assert not confirm.asking
    assert play(confirm, (False, 10), (True, 3000))[0] is None
    assert not Confirm().use(*CALL, 1100)
