from support import raises
from vrt.errors import ProtocolError
from vrt.protocol.lifecycle import TABLE, Lifecycle

INPUTS = (
    "opened",
    "ready",
    "pong",
    "message",
    "error",
    "refused",
    "ended",
    "lost",
    "renew",
    "retry",
)


def life(random=lambda n: n - 1):
    return Lifecycle(random, 15_000)


def opened(one, now):
    one.move("opened")
    one._since = now


def rows():
    # The table, taken apart: state -> {input: state that follows}.
    made = {}
    for line in TABLE.strip().split("\n"):
        state, *entries = line.split(" ")
        made[state] = {}
        for entry in entries:
            inp, _, follows = entry.partition("=")
            made[state][inp] = follows or state
    return made


def waits(one, count):
    # How long it waits each time a connection is lost.
    made = []
    for _ in range(count):
        one.again("lost", 0)
        now = 0
        while not one.wants_link(now):
            now += 1
        made.append(now)
    return made


def test_table_reaches_states_it_knows_by_inputs_it_names():
    table = rows()
    assert sorted(table) == ["closed", "connecting", "failed", "open", "waiting"]
    for row in table.values():
        for inp, state in row.items():
            assert inp in INPUTS
            assert state in table


def test_every_entry_leads_where_it_says_and_every_missing_one_is_an_error_that_changes_nothing():
    for state, row in rows().items():
        for inp in INPUTS:
            one = life()
            one.state = state
            if inp in row:
                one.move(inp)
                assert one.state == row[inp]
            else:
                raises(ProtocolError, one.move, inp)
                assert one.state == state


def test_connects_at_once_then_quickly_then_less_often():
    one = life()
    assert one.wants_link(0)
    delays = waits(one, 12)
    assert delays[0] < 250
    assert delays == sorted(delays)
    assert delays[1] > 250
    assert 9_000 <= delays[-1] <= 10_000


def test_jitter_spans_half_of_the_delay():
    assert waits(life(lambda n: 0), 7) == [0, 500, 1000, 2000, 4000, 5000, 5000]
    assert waits(life(), 7) == [249, 999, 1999, 3999, 7999, 9999, 9999]


def test_a_peer_that_cannot_serve_us_is_asked_rarely_from_the_start():
    one = life(lambda n: 0)
    one.failures = 5
    assert waits(one, 1) == [5000]


def test_never_gives_up_and_keeps_time_across_the_wrap():
    one = life()
    now = 0x3FFFFFFF - 20_000
    for _ in range(500):
        one.again("lost", now & 0x3FFFFFFF)
        assert not one.wants_link(now & 0x3FFFFFFF)
        now += 10_000
        assert one.wants_link(now & 0x3FFFFFFF)


def test_a_connection_that_holds_makes_the_next_retry_quick():
    one = life()
    for _ in range(8):
        one.again("lost", 0)
    opened(one, 0)
    one.move("ready")
    one.tick(1_999, 1_999)
    one.again("lost", 2_000)
    assert not one.wants_link(2_250)  # it did not hold: the server may be in a loop
    opened(one, 20_000)
    one.move("ready")
    one.tick(22_000, 22_000)
    one.again("lost", 22_000)
    assert one.wants_link(22_250)


def test_open_is_dead_after_two_and_a_half_ping_intervals_of_silence():
    one = life()
    opened(one, 0)
    one.move("ready")
    assert not one.tick(37_499, 0)
    assert one.tick(37_500, 0)
    assert not one.tick(90_000, 60_000)


def test_waiting_is_dead_when_ready_does_not_come_whatever_else_arrives():
    one = life()
    opened(one, 0)
    assert not one.tick(37_499, 37_000)
    assert one.tick(37_500, 37_400)


def test_a_closed_session_connects_only_when_asked():
    one = life()
    opened(one, 0)
    one.move("ended")
    one.again("lost", 10)
    assert one.state == "closed"
    assert not one.wants_link(100_000)
    one.again("renew", 100_000)
    assert one.state == "connecting"
    assert one.wants_link(100_250)


def test_a_refused_client_connects_only_when_something_changed():
    one = life()
    opened(one, 0)
    one.move("refused")
    one.again("lost", 10)
    assert one.state == "failed"
    assert not one.wants_link(1_000_000)
    one.again("retry", 1_000_000)
    assert one.wants_link(1_000_250)


def test_states_of_a_good_day():
    one = life()
    opened(one, 0)
    assert one.state == "waiting"
    one.move("ready")
    assert one.state == "open"
    one.again("lost", 5)
    assert one.state == "connecting"
