# The device's side of one vRT session (vRT §4 to §6), without I/O and without a clock.
# A session outlives connections. The caller owns the link and, in one loop:
#   wants_link(now)                     true: open the link; then opened(now), and lost(now, code) when it is gone or failed
#   receive_text(buf, n, now)           each text frame; then next_event() until it gives None
#   receive_audio(buf, n) -> bool       each binary frame; true: play buf[5:n]. Allocates nothing
#   tick(now, last_rx) -> bool          true: the connection is dead, close it with 4000
#   data_to_send(now) -> bytes          the next frame; when the link took it whole: sent(now). None: nothing to send
# A peer's fault is never raised: it is an event. ProtocolError is our own misuse. Events are dicts. The server's messages keep
# their type, each is handed out once, gated by its epoch; further: `invalid` (code, message); `unexpected` (got); `refused`
# (code, message): stopped until again("retry"); `ended` (code, message): nothing of the session is ever sent again,
# again("renew") asks for a new one; `stalled`: the outbox is full, close the link, a resume will tell what has arrived.
# After a MemoryError an event may be there or not: when not, then the message was not taken, and a resume brings it again.
from micropython import const

from vrt import diff, once
from vrt.errors import ProtocolError
from vrt.protocol.lifecycle import Lifecycle
from vrt.protocol.stream import Streams
from vrt.protocol.wire import WireError, decode, encode

_NONE = const(-1)  # below every epoch and every seq
_LAST_SEQ = const(0xFFFFFFFF)  # seq must not wrap: nothing follows it (§4.1)
_SLOTS = const(32)  # of the outbox
_SPARE = const(8)  # slots that text and context leave to interruptions
_HEADER_BYTES = const(5)  # of an audio frame (§8.1): kind, seq
_INPUT = const(1)
_OUTPUT = const(2)
_MASK = const(0x1FFFFFFF)  # of a frame's seq that we look at: a full one would be a big integer on the boards
_JUMP = const(0x10000)  # more frames than this are not lost, the sender has begun to count anew


class Session(Lifecycle):
    # size: bytes of the largest message; hello(resuming) -> dict: the members of our hello but for v, seq, type,
    # sessionId, resumeFrom; random(n) -> 0 .. n-1; calls: how many queued calls we announce.
    def __init__(self, size, hello, random, calls, ping_ms):
        super().__init__(random, ping_ms)
        self.hello = hello
        self.calls = calls
        self.streams = Streams(size, _SLOTS)
        # Messages and frames; frames; frames of no item, or of a closed epoch.
        self.invalid = self.missing = self.discarded = 0
        self._next = _NONE  # the seq of the next frame
        self._too_big = 0  # the seq that a close with 1009 left unsent
        self._events = []
        self._sending = None
        self.seq = bytearray(4)  # of our own next frame
        self._forget()

    def _forget(self):
        # Nothing of the old session can be sent again (§5.4), and the epochs of a new one start at 0.
        self.streams.reset(0, 0)
        self.seq[:] = b"\0\0\0\0"  # the count of a session begins at 0 (§8.1)
        self.id = None
        self._stalled = 0  # not 0: the outbox is full, and nothing sequenced is taken until a resume; 2: and this was told
        self.pending = 0  # calls handed out and not answered; each has a slot of the outbox
        self.observed = _NONE  # the highest epoch seen, whether or not it was closed (§6.1)
        self.closed = _NONE  # this epoch and all below are closed (§6.2)
        self._item_epoch = _NONE  # of the item that output audio belongs to (§8.3)

    def opened(self, now):
        # The link is open: hello is due.
        self.move("opened")
        self._since = self.said = now
        self._greeted = self._stalled = self.bare = self.ping = False
        self._next = _NONE

    def lost(self, now, code):
        self._item_epoch = _NONE  # a resumed connection starts without an item (§8.3)
        self.again("lost", now)
        seq = self.streams.acked + 1
        if code == 1009 and self.streams.sent >= seq:  # decisions 7: once more, not for ever
            if self._too_big == seq:
                self.end("TOO_LARGE", "the server refuses our next message")
            self._too_big = seq

    def restore(self, session_id, handled, last, observed):
        # After a reboot, before the first connection: the session it cut; the seqs handled and given out, the epoch observed.
        self.id = session_id
        self.observed = observed
        self.streams.reset(handled, last)
        self.streams.restored = True

    def end(self, code, message):
        # The session is over; also for a reason of the caller's.
        self.move("ended")
        if self.id is not None:
            self.failures = 0  # the server is there, and has not yet refused a new session
        self._forget()
        self._events.append({"type": "ended", "code": code, "message": message})

    def close(self, epoch):
        # Closes everything up to `epoch`, also epochs not observed yet. False: it was closed before (no effect).
        if epoch <= self.closed:
            return False
        self.closed = epoch
        return True

    # --- received

    def next_event(self):
        if self._stalled == 1:
            self._events.append({"type": "stalled"})
            self._stalled = 2
        return self._events.pop(0) if self._events else None

    def receive_text(self, buf, n, now):
        # Each control message; the buffer may be rewritten. Everything else that may follow is in the events.
        streams, is_open = self.streams, self.state == "open"
        try:
            message = decode(buf, n)
        except WireError as error:
            self.invalid += 1
            if error.seq and is_open and not self._stalled:  # decisions 6: lest it is sent for ever
                streams.take(error.seq, now)
            self._events.append({"type": "invalid", "code": error.code, "message": str(error)})
            return
        kind = message["type"]  # in the table of states it counts before its seq is looked at (decisions 5)
        inp = kind if kind in ("ready", "pong", "error") else "message"
        if kind == "error":
            if message["code"] == "RESUME_FAILED":
                inp = "ended"
            elif self.state == "waiting" and not message["recoverable"]:
                inp = message["type"] = "refused"
        state = self.next_state(inp)
        if not state:
            self._events.append({"type": "unexpected", "got": kind})
        elif inp == "ended":
            self.end(message["code"], message.get("message", ""))
        elif message["seq"] and (self._stalled or (kind == "tool.call" and streams.free() <= self.pending)):
            self._stall()  # not handled, not acknowledged: it comes again after the resume (decisions 17)
        else:
            opened = kind == "ready" and once("vrt.protocol.opening").opened
            self._events.append(message)  # while nothing has changed: what has no room until here comes again
            told = not (is_open and message["seq"]) or streams.take(message["seq"], now)
            if told:
                told = opened(self, message) if opened else self._apply(kind, message)
            if not told:
                self._events.remove(message)
            elif inp == "ready" or inp == "refused":  # noqa: PLR1714  (a tuple of words is 200 bytes)
                self.state = state
                self._since = now

    def _apply(self, kind, message):
        # What any other message means for the session. Returns whether the application is to hear of it.
        if kind == "ack":
            self.streams.ack(message["upTo"])
            return False
        if kind == "interrupted":
            return self.close(message["epoch"])
        observed = kind in ("turn.state", "audio.start", "tool.call")  # §6.1
        if not observed and not kind.startswith("tool."):
            return True
        epoch = message["epoch"]
        fresh = epoch > self.closed
        if observed:
            self.observed = max(self.observed, epoch)
        if kind == "turn.state":
            if message["state"] == "listening":
                self._item_epoch = _NONE  # §8.4: the user speaks; what is under way is not played any more
            return True
        if kind == "audio.start":
            self._item_epoch = epoch if fresh else _NONE
        elif kind == "tool.call":
            self.pending += 1
            if not fresh:  # without memory for it the application refuses the event
                self.refuse(message, "INTERRUPTED", "its turn was interrupted")
        return fresh

    def receive_audio(self, buf, n):
        # What is not output audio is dropped without a word (§8.1).
        if n < _HEADER_BYTES or buf[0] != _OUTPUT:
            self.invalid += 1
            return False
        seq = (buf[1] & 0x1F) << 24 | buf[2] << 16 | buf[3] << 8 | buf[4]
        gap = (seq - self._next) & _MASK
        if self._next >= 0 and gap < _JUMP:
            self.missing += gap
        self._next = seq + 1 if seq < _MASK else 0
        if self.state != "open" or self._item_epoch <= self.closed:  # §6.2, §8.3
            self.discarded += 1
            return False
        return True

    # --- sent. An interruption begins with close(observed), then its effects, then playback(), interrupt(), result() (§6.2).

    def interrupt(self, epoch, reason):
        self._queue("interrupt", {"epoch": epoch, "reason": reason})

    def playback(self, item, played_ms):
        # Dropped when no slot is left for it; it is a courtesy.
        if self.streams.free() > self.pending + 1:
            self._queue("playback", {"itemId": item, "playedMs": played_ms})

    def result(self, result):
        # The one result of a call that was handed out; its slot was reserved. Its members: callId, epoch, ok ...
        try:
            self._queue("tool.result", result)
        except (ProtocolError, MemoryError) as error:  # decisions 7: too large, or not JSON
            self._queue("tool.result", _failure(result, "FAILED", str(error)))
        self.pending = max(self.pending - 1, 0)

    def refuse(self, call, code, text):
        self.result(_failure(call, code, text))

    def room(self):
        return self.streams.free() > self.calls + _SPARE

    def offer(self, kind, value):
        # A text or a context. False: there is no room. Raises ProtocolError when it is too large or not JSON.
        room = self.room()
        if room:
            self._queue(kind, {kind: value})
        return room

    def _queue(self, kind, message):
        if self.streams.last == _LAST_SEQ:
            self.end("SEQ_EXHAUSTED", "the session has used every seq")
            return
        message["type"] = kind
        self.streams.add(message)
        if self.streams.free() <= 0:
            self._stall()

    def _stall(self):
        if self.state == "open":
            self._stalled = self._stalled or 1

    def data_to_send(self, now):
        # The same until it is sent or anything else is called.
        streams, state, message = self.streams, self.state, None
        if state == "waiting" and not self._greeted:
            message = self.hello(self.id is not None)
            message["type"] = "hello"
            if self.id is not None:
                message["sessionId"] = self.id
                message["resumeFrom"] = streams.handled
            if self.bare:
                message.pop("context", None)
        elif state == "open" and streams.ack_due(now):
            message = {"type": "ack", "upTo": streams.handled}
        elif state == "open" and streams.next < len(streams.kept):
            data = streams.kept[streams.next]
        elif state in ("waiting", "open") and (self.ping or diff(now, self.said) >= self.ping_ms):
            message = {"type": "ping"}
        else:
            return None
        self._sending = message and message["type"]
        if message:
            message.update(v=1, seq=0)  # type: ignore
            try:
                data = encode(message, streams.size)
            except ProtocolError as error:  # our hello, and waiting would not heal it
                if self.bare:
                    self._events.append({"type": "refused", "code": "TOO_LARGE", "message": str(error)})
                    self.move("refused")
                self.bare = True  # once more, without the context: it grows with the calls of unknown outcome
                return None
        return data

    def sent(self, now):
        # The frame that data_to_send() gave is in the link's hands.
        self.said = now
        kind = self._sending
        if not kind:
            self.streams.advance()
        elif kind == "ack":
            self.streams.owed = 0
        elif kind == "hello":
            self._greeted = True
        else:
            self.ping = False

    def number(self, frame):
        # Writes kind and seq into frame[0:5] of our audio; seq wraps after 2**32 frames. Allocates nothing.
        seq = self.seq
        frame[0] = _INPUT
        frame[1:_HEADER_BYTES] = seq
        for i in range(3, -1, -1):
            seq[i] = (seq[i] + 1) & 0xFF
            if seq[i]:
                return


def _failure(call, code, text):
    return {"callId": call["callId"], "epoch": call["epoch"], "ok": False, "code": code, "message": text}
