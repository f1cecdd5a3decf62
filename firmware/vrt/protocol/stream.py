# The two numbered streams of a session (vRT §4). They belong to the session and live on when a connection is lost.
from micropython import const

from vrt.errors import ProtocolError
from vrt.protocol import wire
from vrt.ticks import diff

LAST_SEQ = const(0xFFFFFFFF)  # seq must not wrap: nothing follows it (§4.1)
_ACK_MS = const(180)  # 250 are RECOMMENDED (§4.2), and the loop does not look at every moment
_ACK_MESSAGES = const(32)


class Outgoing:
    # What we sent and the peer has not acknowledged, and what still waits to be sent. The caller heeds `free`.
    def __init__(self, tx, slots):
        self.tx = tx  # a bytearray to encode into; its size is the largest message
        self.slots = slots
        self.kept = []  # encoded messages with seq acked+1 .. last, in order
        self.reset()

    def reset(self):
        # A new session. Nothing of the old one is ever sent again (§5.4).
        self.kept.clear()
        self.limit = len(self.tx)  # the largest message that both sides take
        self.last = 0  # the highest seq given out
        self.acked = 0  # the highest that the peer has handled
        self.next = 0  # index into `kept` of what to send next on this connection
        self.sent = 0  # the highest seq handed to any connection
        self.restored = False

    def restore(self, last):
        # After a reboot: `last` was given out, nothing is kept.
        self.reset()
        self.last = self.acked = self.sent = last
        self.restored = True

    @property
    def free(self):
        return self.slots - len(self.kept)

    def add(self, message):
        # Numbers a message and keeps it, encoded. Raises ProtocolError, before it has a seq, if it is too large or no JSON.
        message["v"] = 1
        message["seq"] = self.last + 1
        n = wire.encode(message, self.tx)
        if n > self.limit:
            raise ProtocolError(f"message too large: {n} bytes, the server takes {self.limit}")
        self.kept.append(bytes(memoryview(self.tx)[:n]))
        self.last += 1

    def fill(self):
        # Copies the message to send next into tx and returns its length, 0 when there is none.
        if self.next == len(self.kept):
            return 0
        message = self.kept[self.next]
        self.tx[: len(message)] = message
        return len(message)

    def advance(self):
        # What `fill` gave has been sent.
        self.next += 1
        self.sent = max(self.sent, self.acked + self.next)

    def ack(self, up_to):
        # The peer has handled everything up to there; a value beyond what was sent means all of it (§4.2).
        count = min(up_to, self.sent) - self.acked
        if count > 0:
            del self.kept[:count]
            self.acked += count
            self.next = max(self.next - count, 0)

    def resume(self, handled):
        # A new connection of the same session: the peer has handled up to `handled`; the rest is sent again.
        # False: it asks for what is gone or was never sent (§5.4).
        if self.restored and handled >= self.last:
            # What was sent after the last note before the reboot is unknown; the peer knows.
            self.last = self.acked = self.sent = handled
        if not self.acked <= handled <= self.sent:
            return False
        self.restored = False
        self.ack(handled)
        self.next = 0
        return True


class Incoming:
    # Which of the peer's messages have been handled, and what acknowledgement is owed.
    def __init__(self):
        self.reset(0)

    def reset(self, last):
        self.last = last  # the highest seq handled
        self.owed = 0  # messages since the last acknowledgement; 0 again when one is sent
        self.since = 0  # ticks of the first of them
        self.duplicates = 0
        self.missing = 0  # messages that a gap left out

    def take(self, seq, now):
        # Whether the message is to be handled (§4.3). A gap is accepted and counted; there is no recovery for one.
        if not self.owed:
            self.since = now
        self.owed += 1
        if seq <= self.last:
            self.duplicates += 1
            return False
        self.missing += seq - self.last - 1
        self.last = seq
        return True

    def ack_due(self, now):
        return self.owed >= _ACK_MESSAGES or (self.owed > 0 and diff(now, self.since) >= _ACK_MS)
