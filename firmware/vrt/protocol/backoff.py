# When to try again. Never gives up; the first try is quick, later ones are apart and never in step with other devices.
from micropython import const

_FIRST_MS = const(250)
_BASE_MS = const(500)
_CAP_MS = const(10_000)  # well inside a server's resume window of 30 s (§5.1)
_STEPS = const(5)  # 500 ms doubled that often is above the cap


class Backoff:
    def __init__(self, random):
        self.random = random  # random(n) -> 0 .. n-1
        self.failures = 0

    def reset(self):
        # The connection has proved good.
        self.failures = 0

    def slow(self):
        # The peer cannot serve us now: go straight to the longest delays.
        self.failures = _STEPS

    def next_ms(self):
        # Milliseconds until the next try: below 250 at first, then half to all of a span that doubles up to 10 s.
        if not self.failures:
            self.failures = 1
            return self.random(_FIRST_MS)
        span = min(_BASE_MS << self.failures, _CAP_MS)
        self.failures = min(self.failures + 1, _STEPS)
        return span // 2 + self.random(span // 2)
