from support import raises
from vrt.errors import ProtocolError
from vrt.protocol.lifecycle import CLOSED, CONNECTING, FAILED, OPEN, TABLE, WAITING, Lifecycle

INPUTS = (
    "opened",
    "ready",
    "pong",
    "message",
    "transient",
    "error",
    "refused",
    "ended",
    "lost",
    "renew",
    "retry",
)


def life():
    return Lifecycle(lambda n: n - 1, 15_000)


def test_table_reaches_states_it_knows_by_inputs_it_names():
    for row in TABLE.values():
        for inp, state in row.items():
            assert inp in INPUTS
            assert state in TABLE


def test_every_missing_entry_is_an_error_that_changes_nothing():
    for state, row in TABLE.items():
        for inp in INPUTS:
            if inp not in row:
                one = life()
                one.state = state
                raises(ProtocolError, one.move, inp)
                assert one.state == state


def test_connects_at_once_then_quickly_then_less_often():
    one = life()
    assert one.wants_link(0)
    now = 0
    waits = []
    for _ in range(6):
        one.again("lost", now)
        start = now
        while not one.wants_link(now):
            now += 1
        waits.append(now - start)
    assert waits[0] <= 250
    assert waits == sorted(waits)
    assert waits[-1] <= 10_000


def test_never_gives_up_and_keeps_time_across_the_wrap():
    one = life()
    now = 0x3FFFFFFF - 20_000
    for _ in range(5000):
        one.again("lost", now & 0x3FFFFFFF)
        assert not one.wants_link(now & 0x3FFFFFFF)
        now += 10_000
        assert one.wants_link(now & 0x3FFFFFFF)


def test_a_connection_that_holds_makes_the_next_retry_quick():
    one = life()
    for _ in range(8):
        one.again("lost", 0)
    one.opened(0)
    one.move("ready")
    one.tick(1_999, 1_999)
    one.again("lost", 2_000)
    assert not one.wants_link(2_250)  # it did not hold: the server may be in a loop
    one.opened(20_000)
    one.move("ready")
    one.tick(22_000, 22_000)
    one.again("lost", 22_000)
    assert one.wants_link(22_250)


def test_open_is_dead_after_two_and_a_half_ping_intervals_of_silence():
    one = life()
    one.opened(0)
    one.move("ready")
    assert not one.tick(37_499, 0)
    assert one.tick(37_500, 0)
    assert not one.tick(90_000, 60_000)


def test_waiting_is_dead_when_ready_does_not_come_whatever_else_arrives():
    one = life()
    one.opened(0)
    assert not one.tick(37_499, 37_000)
    assert one.tick(37_500, 37_400)


def test_a_closed_session_connects_only_when_asked():
    one = life()
    one.opened(0)
    one.move("ended")
    one.again("lost", 10)
    assert one.state == CLOSED
    assert not one.wants_link(100_000)
    one.again("renew", 100_000)
    assert one.state == CONNECTING
    assert one.wants_link(100_250)


def test_a_refused_client_connects_only_when_something_changed():
    one = life()
    one.opened(0)
    one.move("refused")
    one.again("lost", 10)
    assert one.state == FAILED
    assert not one.wants_link(1_000_000)
    one.again("retry", 1_000_000)
    assert one.wants_link(1_000_250)


def test_states_of_a_good_day():
    one = life()
    one.opened(0)
    assert one.state == WAITING
    one.move("ready")
    assert one.state == OPEN
    one.again("lost", 5)
    assert one.state == CONNECTING
