# The life of a session as its client sees it (vRT §5.1): one table of states, and when to connect, ping and give up.
from micropython import const

from vrt.errors import ProtocolError
from vrt.protocol.backoff import Backoff
from vrt.ticks import diff

CONNECTING = "connecting"
WAITING = "waiting"  # hello is sent or about to be
OPEN = "open"
CLOSED = "closed"  # the session is over; a new one may be opened
FAILED = "failed"  # the server refuses us; something must change first

# State, input -> next state. What is missing here is out of place: from the peer it is reported and not acted upon,
# from ourselves it is an error.
TABLE = {
    CONNECTING: {"opened": WAITING, "lost": CONNECTING, "ended": CLOSED},
    WAITING: {
        "ready": OPEN,
        "pong": WAITING,
        "error": WAITING,
        "refused": FAILED,
        "ended": CLOSED,
        "lost": CONNECTING,
    },
    OPEN: {
        "message": OPEN,
        "transient": OPEN,
        "pong": OPEN,
        "error": OPEN,
        "ended": CLOSED,
        "lost": CONNECTING,
    },
    CLOSED: {"lost": CLOSED, "ended": CLOSED, "renew": CONNECTING},
    FAILED: {"lost": FAILED, "ended": FAILED, "retry": CONNECTING},
}
# ready, pong; message: sequenced; transient: ack, audio.start; error; refused: an error that is not recoverable where
# it means that we may not come in; ended: RESUME_FAILED, in any state. The rest comes from ourselves.

_CONNECTED = (WAITING, OPEN)
_PROVEN_MS = const(2_000)  # a connection open for so long is good: the next loss is answered quickly again


class Lifecycle:
    def __init__(self, random, ping_ms):
        self.state = CONNECTING
        self.ping_ms = ping_ms
        self.dead_ms = ping_ms * 5 // 2  # §4.4
        self.backoff = Backoff(random)
        self._retry_at = None  # None: connect at once
        self._since = 0  # ticks at which the state WAITING or OPEN began
        self.said = 0  # ticks of the last frame sent; audio counts, and whoever sends it says so
        self.ping = (
            False  # send one with the next data; its pong comes behind all that the server sent before
        )

    def move(self, inp):
        state = TABLE[self.state].get(inp)
        if state is None:
            raise ProtocolError(inp + " while " + self.state)
        self.state = state

    def wants_link(self, now):
        return self.state == CONNECTING and (self._retry_at is None or diff(now, self._retry_at) >= 0)

    def opened(self, now):
        # The link is open: hello is due.
        self.move("opened")
        self._since = self.said = now
        self.ping = False

    def again(self, inp, now):
        # The way back to a connection: "lost" (the link is gone, or did not come about), "retry" (after `refused`: something
        # has changed, such as the credential, §5.3), "renew" (after `ended`: ask for a new session).
        self.move(inp)
        if self.state == CONNECTING:
            self._retry_at = (now + self.backoff.next_ms()) & 0x3FFFFFFF

    def tick(self, now, last_rx):
        # `last_rx`: ticks of the last byte received. True: the connection is dead (§4.4), or `ready` does not come.
        if self.state == OPEN:
            if self.backoff.failures and diff(now, self._since) >= _PROVEN_MS:
                self.backoff.reset()
            return diff(now, last_rx) >= self.dead_ms
        return self.state == WAITING and diff(now, self._since) >= self.dead_ms

    def _ping_due(self, now):
        return self.state in _CONNECTED and (self.ping or diff(now, self.said) >= self.ping_ms)
