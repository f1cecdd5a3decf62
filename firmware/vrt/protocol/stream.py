# The two numbered streams of a session (vRT §4). They belong to the session and live on when a connection is lost.
from micropython import const

from vrt import diff
from vrt.protocol.wire import encode

_ACK_MS = const(180)  # 250 are RECOMMENDED (§4.2), and the loop does not look at every moment
_ACK_MESSAGES = const(32)
_SLOTS_MOST = const(8)  # of one message


class Streams:
    # Out: what we sent and the peer has not acknowledged, and what still waits to be sent. The caller heeds free().
    # In: which of the peer's messages have been handled, and what acknowledgement is owed.
    def __init__(self, size, slots):
        self.size = size  # bytes of the largest message that we can send
        self.slots = slots
        self.kept = []  # encoded messages with seq acked+1 .. last, in order
        self.reset(0, 0)

    def reset(self, handled, last):
        # A new session: nothing of the old one is ever sent again (§5.4). Or, after a reboot, an old one, of which nothing
        # is kept: the highest seq handled and given out by then.
        self.kept.clear()
        self.limit = self.size  # bytes of the largest message that both sides take
        self.last = self.acked = self.sent = (
            last  # the highest seq given out, handled by the peer, given to a connection
        )
        self.next = 0  # index into `kept` of what to send next on this connection
        self.handled = handled  # the highest seq of the peer's messages
        self.gaps = 0  # messages of the peer's that are missing
        self.owed = 0  # messages since the last acknowledgement; 0 again when one is sent
        self.since = 0  # ticks of the first of them
        self.restored = False  # more may have been sent than `last` says

    def free(self):
        # Slots. A long message takes more of them, up to 8: a peer that acknowledges nothing must not fill the heap.
        n = self.slots
        for data in self.kept:
            n -= min(1 + (len(data) >> 8), _SLOTS_MOST)
        return n

    def add(self, message):
        # Numbers a message and keeps it, encoded. Raises ProtocolError, before it has a seq, if it is too large or no JSON.
        message["v"] = 1
        message["seq"] = self.last + 1
        self.kept.append(encode(message, self.limit))
        self.last += 1

    def advance(self):
        # The next of `kept` has been sent.
        self.next += 1
        self.sent = max(self.sent, self.acked + self.next)

    def ack(self, up_to):
        # The peer has handled everything up to there; a value beyond what was sent means all of it (§4.2).
        count = min(up_to, self.sent) - self.acked
        if count > 0:
            del self.kept[:count]
            self.acked += count
            self.next = max(self.next - count, 0)

    def resume(self, up_to):
        # A new connection of the same session: the peer has handled everything up to there; the rest is sent again.
        # False: it asks for what is gone or was never sent (§5.4).
        if self.restored and up_to >= self.last:
            # What was sent after the last note before the reboot is unknown; the peer knows.
            self.last = self.acked = self.sent = up_to
        if not self.acked <= up_to <= self.sent:
            return False
        self.restored = False
        self.ack(up_to)
        self.next = 0
        return True

    def take(self, seq, now):
        # Whether the peer's message is to be handled (§4.3). A gap is accepted and counted; there is no recovery for one.
        if not self.owed:
            self.since = now
        self.owed += 1
        if seq <= self.handled:
            return False
        self.gaps += seq - self.handled - 1
        self.handled = seq
        return True

    def ack_due(self, now):
        return self.owed >= _ACK_MESSAGES or (self.owed > 0 and diff(now, self.since) >= _ACK_MS)
