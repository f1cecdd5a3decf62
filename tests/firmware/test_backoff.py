from vrt.protocol.backoff import Backoff


def longest(n):
    return n - 1


def shortest(n):
    return 0


def test_first_retry_is_quick():
    assert Backoff(longest).next_ms() < 250
    assert Backoff(shortest).next_ms() >= 0


def test_delays_grow_to_a_cap_and_never_end():
    backoff = Backoff(longest)
    delays = [backoff.next_ms() for _ in range(5000)]
    assert delays[1] > delays[0]
    assert delays[1:6] == sorted(delays[1:6])
    assert max(delays) <= 10_000
    assert delays[-1] >= 9_000
    assert backoff.failures < 100  # nothing grows with the failures


def test_jitter_spans_half_of_the_delay():
    low, high = Backoff(shortest), Backoff(longest)
    for _ in range(20):
        a, b = low.next_ms(), high.next_ms()
    assert a == 5_000
    assert b == 9_999


def test_reset_makes_the_next_retry_quick_again():
    backoff = Backoff(longest)
    for _ in range(10):
        backoff.next_ms()
    backoff.reset()
    assert backoff.next_ms() < 250


def test_slow_skips_the_quick_retries():
    backoff = Backoff(shortest)
    backoff.slow()
    assert backoff.next_ms() >= 5_000
