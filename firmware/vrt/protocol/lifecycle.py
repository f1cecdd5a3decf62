# The life of a session as its client sees it (vRT §5.1): one table of states, and when to connect, ping and give up.
from micropython import const

from vrt import diff
from vrt.errors import ProtocolError

# For each state what may come in, and after "=" the state that follows, unless it is the same. What is missing here is out of
# place: from the peer it is reported and not acted upon, from ourselves it is an error. A text, to spare the heap.
TABLE = (
    "\n"
    "connecting opened=waiting lost ended=closed\n"
    "waiting ready=open pong error refused=failed ended=closed lost=connecting\n"  # hello is sent or about to be
    "open message pong error ended=closed lost=connecting\n"
    "closed lost ended renew=connecting\n"  # the session is over; a new one may be opened
    "failed lost ended retry=connecting\n"  # the server refuses us; something must change first
)
# error: of the server's; refused: one that is not recoverable where it means that we may not come in; ended: RESUME_FAILED,
# in any state. message: any other but ready and pong. The rest comes from ourselves.

# Before each try a wait, in step with no other device: below 250 ms at first, then half to all of a span that doubles.
_HALF_MS = const(250)
_CAP_MS = const(5_000)  # of half a span; all of it is well inside a server's resume window of 30 s (§5.1)
_FAILURES = const(5)  # 250 ms doubled that often is above the cap
_PROVEN_MS = const(2_000)  # a connection open for so long is good: the next loss is answered quickly again


class Lifecycle:
    def __init__(self, random, ping_ms):
        self.state = "connecting"
        self.random = random  # random(n) -> 0 .. n-1
        self.ping_ms = ping_ms
        self.ping = (
            False  # send one with the next data; its pong comes behind all that the server sent before
        )
        self.failures = 0  # so far; at least 5: only long waits, because the peer cannot serve us now
        self.said = 0  # ticks of the last frame sent; audio counts, and whoever sends it says so
        self._since = 0  # ticks at which the state waiting or open began
        self._retry_at = None  # None: connect at once

    def next_state(self, inp):
        # What the table says, or None.
        at = TABLE.find("\n" + self.state) + 1
        for entry in TABLE[at : TABLE.find("\n", at)].split(" "):
            name, _, state = entry.partition("=")
            if name == inp:
                return state or self.state
        return None

    def move(self, inp):
        state = self.next_state(inp)
        if state is None:
            raise ProtocolError(inp + " while " + self.state)
        self.state = state

    def wants_link(self, now):
        return self.state == "connecting" and (self._retry_at is None or diff(now, self._retry_at) >= 0)

    def again(self, inp, now):
        # The way back to a connection: "lost" (the link is gone, or did not come about), "retry" (after `refused`: something
        # has changed, such as the credential, §5.3), "renew" (after `ended`: ask for a new session).
        self.move(inp)
        if self.state == "connecting":
            half = min(_HALF_MS << self.failures, _CAP_MS)
            wait = self.random(half) + (half if self.failures else 0)
            self._retry_at = (now + wait) & 0x3FFFFFFF
            self.failures = min(self.failures + 1, _FAILURES)

    def tick(self, now, last_rx):
        # `last_rx`: ticks of the last byte received. True: the connection is dead (§4.4), or `ready` does not come.
        since = self._since
        if self.state == "open":
            if diff(now, since) >= _PROVEN_MS:
                self.failures = 0
            since = last_rx
        elif self.state != "waiting":
            return False
        return diff(now, since) >= self.ping_ms * 5 // 2
