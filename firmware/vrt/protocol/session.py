# The device's side of one vRT session (vRT §4 to §6), without I/O and without a clock.
#
# A session outlives connections. The caller owns the link and, in one loop:
#   wants_link(now)                     true: open the link; then opened(now), and lost(now, code) when it is gone or failed
#   receive_text(buf, n, now)           each text frame; then next_event() until it gives None
#   receive_audio(buf, n) -> bool       each binary frame; true: play buf[5:n]. Allocates nothing
#   tick(now, last_rx) -> bool          true: the connection is dead, close it with 4000
#   data_to_send(now) -> n              the next frame is in tx[0:n]; when the link took it whole: sent(now). 0: nothing to send
# A peer's fault is never raised: it is an event. ProtocolError is our own misuse.
#
# Events are dicts. The server's messages keep their type, each is handed out once, gated by its epoch; further types:
# `invalid` (code, message); `unexpected` (got); `refused` (code, message): stopped until again("retry"); `ended` (code,
# message): nothing of the session is ever sent again, again("renew") asks for a new one; `stalled`: the outbox is full,
# close the link, a resume will tell what has arrived.
from micropython import const

from vrt.errors import ProtocolError
from vrt.protocol import wire
from vrt.protocol.audio import Receiver
from vrt.protocol.epoch import NONE, Epoch
from vrt.protocol.lifecycle import OPEN, TABLE, WAITING, Lifecycle
from vrt.protocol.stream import LAST_SEQ, Incoming, Outgoing
from vrt.protocol.tables import SERVER

_GATED = ("turn.state", "audio.start", "tool.call", "tool.call.delta", "tool.stream")
_LEAST_BYTES = const(1024)  # a server's limit below this is none that we could keep to
_SPARE = const(8)  # slots of the outbox that text and context leave to interruptions


class Session(Lifecycle):
    # tx: a bytearray, the size of the largest message; hello(resuming) -> dict: the members of our hello but for v, seq, type,
    # sessionId, resumeFrom; random(n) -> 0 .. n-1; calls: how many queued calls we announce.
    def __init__(self, tx, hello, random, *, slots=32, calls=4, ping_ms=15_000):
        super().__init__(random, ping_ms)
        self.tx = tx
        self.hello = hello
        self.call_slots = calls
        self.outbox = Outgoing(tx, slots)
        self.inbox = Incoming()
        self.epoch = Epoch()
        self.id = None
        self.pending = 0  # calls handed out and not answered; each has a slot of the outbox
        self.item_epoch = NONE  # of the item that output audio belongs to (§8.3)
        self.frames = Receiver()
        self.invalid = 0
        self.discarded = 0  # frames of no item, or of a closed epoch
        self._too_big = 0  # the seq that a close with 1009 left unsent
        self._events = []
        self._greeted = False
        self._stalled = False
        self._sending = ""

    def opened(self, now):
        super().opened(now)
        self._greeted = self._stalled = False
        self.frames.begin()

    def lost(self, now, code=1006):
        self.again("lost", now)
        outbox = self.outbox
        if code == 1009 and outbox.sent > outbox.acked:  # decisions 7: once more, not for ever
            if self._too_big == outbox.acked + 1:
                self._end("TOO_LARGE", "the server closes on our next message as too large")
            self._too_big = outbox.acked + 1
        self.item_epoch = NONE  # a resumed connection starts without an item (§8.3)

    def restore(self, session_id, handled, sent):
        # After a reboot, before the first connection: the session it cut, and the seqs handled and given out by then.
        self.id = session_id
        self.inbox.reset(handled)
        self.outbox.restore(sent)

    def _end(self, code, message):
        # The session is over: forget its streams, so that nothing of it can be sent again (§5.4).
        self.move("ended")
        if self.id is not None:
            self.backoff.reset()  # the server is there, and has not yet refused a new session
        self.id = None
        self.pending = 0
        self.outbox.reset()
        self.inbox.reset(0)
        self.epoch.reset()
        self.item_epoch = NONE
        self._events.append({"type": "ended", "code": code, "message": message})

    # --- received

    def next_event(self):
        return self._events.pop(0) if self._events else None

    def receive_text(self, buf, n, now):
        # Each control message; the buffer may be rewritten. Everything else that may follow is in the events.
        try:
            message = wire.decode(buf, n)
        except wire.WireError as error:
            self.invalid += 1
            if error.seq and self.state == OPEN:  # decisions 6: disposed of, so that it is not sent for ever
                self.inbox.take(error.seq, now)
            self._events.append({"type": "invalid", "code": error.code, "message": str(error)})
            return
        inp = self._input(message)
        if inp not in TABLE[self.state]:
            self._events.append({"type": "unexpected", "got": message["type"]})
            return
        if message["seq"] and self.state == OPEN and inp != "ended":
            if message["type"] == "tool.call" and self.outbox.free <= self.pending:
                self._stall()  # not handled, not acknowledged: it comes again after the resume (decisions 17)
                return
            if not self.inbox.take(message["seq"], now):
                return
        if self._apply(inp, message, now):
            self._events.append(message)

    def _input(self, message):
        # What a message is in the table of states, before its seq is looked at (decisions 5).
        kind = message["type"]
        if kind == "error":
            if message["code"] == "RESUME_FAILED":
                return "ended"
            return "refused" if self.state == WAITING and not message["recoverable"] else "error"
        return kind if kind in ("ready", "pong") else "transient" if SERVER[kind][0] == "0" else "message"

    def receive_audio(self, buf, n):
        if not self.frames.check(buf, n):
            return False
        if self.state != OPEN or self.item_epoch <= self.epoch.closed:  # §6.2, §8.3
            self.discarded += 1
            return False
        return True

    def _apply(self, inp, message, now):
        # What a message means for the session. Returns whether the application is to hear of it.
        kind = message["type"]
        if inp == "ended":
            self._end(message["code"], message.get("message", ""))
            return False
        if inp == "refused":
            self.move("refused")
            message["type"] = "refused"
        elif kind == "ready":
            return self._ready(message, now)
        elif kind == "ack":
            self.outbox.ack(message["upTo"])
            return False
        elif kind == "interrupted":
            return self.epoch.close(message["epoch"])
        elif kind in _GATED:
            return self._gate(kind, message, message["epoch"])
        return True

    def _gate(self, kind, message, epoch):
        # What belongs to a turn (§6.1, §6.2).
        if kind in ("turn.state", "audio.start", "tool.call"):
            self.epoch.observe(epoch)
        is_open = epoch > self.epoch.closed
        if kind == "audio.start":
            self.item_epoch = epoch if is_open else NONE
        elif kind == "tool.call":
            self.pending += 1
            if not is_open:  # it came late, or again
                self.result(_failure(message, "INTERRUPTED", "the turn was interrupted"))
        elif kind == "turn.state":
            if message["state"] == "listening":
                self.item_epoch = NONE  # §8.4: the user speaks; what is under way is not played any more
            return True
        return is_open

    def _ready(self, message, now):
        handled = message.get("resumedFrom")
        if self.id is None:
            fits = not handled  # nothing of ours was handled in a session that is new
        else:
            fits = handled is not None and message["sessionId"] == self.id and self.outbox.resume(handled)
        if not fits:
            self._end("RESUME_FAILED", "ready does not fit the session")
            return False
        self.move("ready")
        self.id = message["sessionId"]
        self._since = now
        limits = message.get("limits")
        size = limits.get("messageBytes") if isinstance(limits, dict) else None
        if isinstance(size, int) and size >= _LEAST_BYTES:
            self.outbox.limit = min(len(self.tx), size)
        return True

    # --- sent

    # An interruption by the user begins with epoch.close_observed(); its effects here come next, and then what is
    # sent: playback(), interrupt(), result() (§6.2, decisions 14).

    def interrupt(self, epoch, reason):
        self._queue("interrupt", {"epoch": epoch, "reason": reason})

    def playback(self, item, played_ms):
        # False: no slot is left for it; it is a courtesy.
        if self.outbox.free <= self.pending + 1:
            return False
        self._queue("playback", {"itemId": item, "playedMs": played_ms})
        return True

    def result(self, result):
        # The one result of a call that was handed out; its slot was reserved. A dict: callId, epoch, ok and output, or
        # code and message.
        self.pending = max(self.pending - 1, 0)
        try:
            self._queue("tool.result", result)
        except ProtocolError as error:  # decisions 7: too large, or not JSON
            self._queue("tool.result", _failure(result, "FAILED", str(error)))

    @property
    def room(self):
        # Whether text and context are taken now.
        return self.outbox.free > self.call_slots + _SPARE

    def text(self, text):
        return self._offer("text", {"text": text})

    def context(self, value):
        return self._offer("context", {"context": value})

    def _offer(self, kind, message):
        # False: the outbox has no room. Raises ProtocolError when the message is too large or not JSON.
        if not self.room:
            return False
        self._queue(kind, message)
        return True

    def _queue(self, kind, message):
        if self.outbox.last == LAST_SEQ:
            self._end("SEQ_EXHAUSTED", "the session has used every seq")
            return
        message["type"] = kind
        self.outbox.add(message)
        if self.outbox.free <= 0:
            self._stall()

    def _stall(self):
        if self.state == OPEN and not self._stalled:
            self._stalled = True
            self._events.append({"type": "stalled"})

    def data_to_send(self, now):
        # The length of the next frame in tx, 0 for none. Valid until anything else is called but sent().
        if self.state == WAITING and not self._greeted:
            return self._greet()
        if self.state == OPEN:
            if self.inbox.ack_due(now):
                return self._prepare("ack", {"upTo": self.inbox.last})
            n = self.outbox.fill()
            if n:
                self._sending = "kept"
                return n
        if self._ping_due(now):
            return self._prepare("ping", {})
        return 0

    def sent(self, now):
        # The frame that data_to_send() gave is in the link's hands.
        self.said = now
        if self._sending == "kept":
            self.outbox.advance()
        elif self._sending == "ack":
            self.inbox.owed = 0
        elif self._sending == "hello":
            self._greeted = True
        else:
            self.ping = False

    def _greet(self):
        hello = self.hello(self.id is not None)
        if self.id is not None:
            hello["sessionId"] = self.id
            hello["resumeFrom"] = self.inbox.last
        try:
            return self._prepare("hello", hello)
        except ProtocolError as error:  # nothing that waiting would heal
            self._events.append({"type": "refused", "code": "HELLO_TOO_LARGE", "message": str(error)})
            self.move("refused")
            return 0

    def _prepare(self, kind, message):
        # Encodes a transient message.
        message["v"] = 1
        message["seq"] = 0
        message["type"] = self._sending = kind
        return wire.encode(message, self.tx)


def _failure(call, code, text):
    return {"callId": call["callId"], "epoch": call["epoch"], "ok": False, "code": code, "message": text}
