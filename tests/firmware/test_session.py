import json

from support import raises
from vrt.errors import ProtocolError
from vrt.protocol.session import Session

READY = {
    "sessionId": "s-1",
    "input": {"encoding": "pcmu", "sampleRate": 8000},
    "output": {"encoding": "pcmu", "sampleRate": 8000},
}


class Peer:
    # A session and the server's end of it: what the session sends is in `sent`, decoded.
    def __init__(self, size=2048):
        self.now = 1000
        self.hellos = []
        self.session = Session(size, self.hello, lambda n: 0, 4, 15_000)
        self.seq = 0
        self.sent = []

    def hello(self, resuming):
        self.hellos.append(resuming)
        made = {"auth": {"token": "t"}}
        if not resuming:
            made["tools"] = []
        return made

    def flush(self):
        # Everything that the session has to send now; returns the messages.
        before = len(self.sent)
        data = self.session.data_to_send(self.now)
        while data:
            self.sent.append(json.loads(data))
            self.session.sent(self.now)
            data = self.session.data_to_send(self.now)
        return self.sent[before:]

    def kinds(self):
        return [message["type"] for message in self.flush()]

    def raw(self, data):
        buf = bytearray(data)
        self.session.receive_text(buf, len(buf), self.now)

    def receive(self, kind, seq, **fields):
        fields["v"] = 1
        fields["seq"] = seq
        fields["type"] = kind
        self.raw(json.dumps(fields).encode())

    def say(self, kind, **fields):
        # The next sequenced message.
        self.seq += 1
        self.receive(kind, self.seq, **fields)

    def turn(self, state, epoch):
        self.say("turn.state", turnId=f"t{epoch}", epoch=epoch, state=state)

    def call(self, call, epoch):
        self.say("tool.call", callId=call, name="n", arguments={}, turnId="t", epoch=epoch)

    def events(self):
        made = []
        event = self.session.next_event()
        while event:
            made.append(event)
            event = self.session.next_event()
        return made

    def names(self):
        return [event["type"] for event in self.events()]

    def open(self, **fields):
        self.session.opened(self.now)
        hello = self.flush()
        ready = dict(READY)
        ready.update(fields)
        self.receive("ready", 0, **ready)
        return hello

    def cut(self, code=1006):
        self.session.lost(self.now, code)


def opened(size=2048):
    peer = Peer(size)
    peer.open()
    assert peer.names() == ["ready"]
    return peer


def played(session, seq=0):
    frame = bytearray(b"\2\0\0\0" + bytes([seq]) + b"payload")
    return session.receive_audio(frame, len(frame))


# --- opening


def test_client_sends_hello_first_and_nothing_more_until_ready():
    peer = Peer()
    peer.session.offer("text", "early")
    assert peer.flush() == []  # not even hello, before the link is open
    peer.session.opened(peer.now)
    assert peer.kinds() == ["hello"]
    hello = peer.sent[0]
    assert hello == {"v": 1, "seq": 0, "type": "hello", "auth": {"token": "t"}, "tools": []}
    assert peer.kinds() == []
    peer.receive("ready", 0, **READY)
    assert peer.kinds() == ["text"]
    assert peer.sent[-1]["seq"] == 1


def test_client_pings_before_ready():
    peer = Peer()
    peer.session.opened(peer.now)
    peer.flush()
    peer.now += 15_000
    assert peer.kinds() == ["ping"]
    peer.receive("pong", 0)
    assert peer.names() == ["pong"]


def test_client_ignores_messages_before_ready_and_reports_them():
    peer = Peer()
    peer.session.opened(peer.now)
    peer.turn("thinking", 1)
    peer.receive("ack", 0, upTo=0)
    peer.receive("audio.start", 0, itemId="i", epoch=1)
    assert peer.names() == ["unexpected"] * 3
    assert peer.session.streams.handled == 0
    assert not played(peer.session)


def test_client_ignores_a_second_ready():
    peer = opened()
    peer.receive("ready", 0, **dict(READY, sessionId="s-2"))
    assert peer.names() == ["unexpected"]
    assert peer.session.id == "s-1"


def test_client_stops_when_it_is_refused():
    peer = Peer()
    peer.session.opened(peer.now)
    peer.flush()
    peer.receive("error", 0, code="UNAUTHORIZED", recoverable=False, message="no")
    events = peer.events()
    assert [event["type"] for event in events] == ["refused"]
    assert events[0]["code"] == "UNAUTHORIZED"
    peer.cut(4401)
    assert not peer.session.wants_link(peer.now + 100_000_000)
    peer.session.again("retry", peer.now)
    assert peer.session.wants_link(peer.now)


def test_client_goes_on_waiting_after_an_error_that_is_recoverable():
    peer = Peer()
    peer.session.opened(peer.now)
    peer.receive("error", 0, code="SLOW", recoverable=True)
    assert peer.names() == ["error"]
    peer.receive("ready", 0, **READY)
    assert peer.names() == ["ready"]


def test_client_that_is_refused_on_a_resume_keeps_the_session():
    peer = opened()
    peer.cut()
    peer.session.opened(peer.now)
    peer.flush()
    peer.receive("error", 0, code="UNAUTHORIZED", recoverable=False)
    peer.cut()
    peer.session.again("retry", peer.now)
    assert peer.open(resumedFrom=0)[0]["sessionId"] == "s-1"


def test_client_whose_hello_does_not_fit_stops_with_a_reason():
    peer = Peer(size=40)
    peer.session.opened(peer.now)
    assert peer.flush() == []
    assert peer.flush() == []  # it tries without the context
    events = peer.events()
    assert [event["type"] for event in events] == ["refused"]
    assert "too large" in events[0]["message"]


def test_client_whose_hello_does_not_fit_leaves_out_the_context():
    peer = Peer(size=400)
    hello = peer.hello
    peer.session.hello = lambda resuming: dict(hello(resuming), context="x" * 400)
    for _ in range(2):  # at each connection
        peer.session.opened(peer.now)
        assert peer.flush() == []
        assert "context" not in peer.flush()[0]
        assert peer.session.bare
        peer.cut()
    assert peer.names() == []


# --- the streams


def test_client_numbers_messages_and_keeps_them_until_acknowledged():
    peer = opened()
    assert peer.session.offer("text", "a")
    assert peer.session.offer("context", {"b": None})
    assert [(m["type"], m["seq"]) for m in peer.flush()] == [("text", 1), ("context", 2)]
    peer.receive("ack", 0, upTo=2)
    assert peer.session.streams.free() == 32


def test_client_acknowledges_in_time():
    peer = opened()
    peer.turn("thinking", 1)
    assert peer.kinds() == []
    peer.now += 150
    assert peer.kinds() == []
    peer.now += 50
    assert [(m["type"], m["upTo"]) for m in peer.flush()] == [("ack", 1)]
    for _ in range(32):
        peer.say("text", text="x")
    assert [(m["type"], m["upTo"]) for m in peer.flush()] == [("ack", 33)]


def test_client_handles_a_duplicate_once_and_acknowledges_again():
    peer = opened()
    peer.call("c", 1)
    peer.receive("tool.call", 1, callId="c", name="n", arguments={}, turnId="t", epoch=1)
    assert peer.names() == ["tool.call"]
    assert peer.session.pending == 1
    peer.now += 250
    assert peer.kinds() == ["ack"]


def test_client_accepts_a_gap_and_counts_it():
    peer = opened()
    peer.receive("text", 5, text="x")
    assert peer.names() == ["text"]
    assert peer.session.streams.handled == 5
    assert peer.session.streams.gaps == 4


def test_client_pings_when_it_has_said_nothing():
    peer = opened()
    peer.now += 14_000
    peer.session.offer("text", "x")
    peer.flush()
    peer.now += 14_999
    assert peer.kinds() == []
    peer.now += 1
    assert peer.kinds() == ["ping"]
    peer.now += 10_000
    peer.session.said = peer.now  # audio is saying something
    peer.now += 10_000
    assert peer.kinds() == []


def test_client_pings_when_asked():
    peer = opened()
    peer.session.ping = True
    assert peer.kinds() == ["ping"]
    assert peer.kinds() == []


def test_client_repeats_what_the_link_did_not_take():
    peer = opened()
    peer.session.offer("text", "a")
    data = peer.session.data_to_send(peer.now)
    assert data == peer.session.data_to_send(peer.now)  # not sent(): the same again
    assert peer.kinds() == ["text"]


# --- invalid messages (§9.1)


def test_client_reports_an_invalid_message_and_continues():
    peer = opened()
    peer.raw(b"{")
    peer.raw(b'{"v":2,"seq":0,"type":"pong"}')
    peer.receive("novel", 0)
    peer.receive("pong", 4)
    codes = [(event["type"], event["code"]) for event in peer.events()]
    assert codes == [
        ("invalid", "MALFORMED"),
        ("invalid", "UNSUPPORTED_VERSION"),
        ("invalid", "UNKNOWN_TYPE"),
        ("invalid", "INVALID_FIELD"),
    ]
    assert peer.session.invalid == 4
    peer.turn("thinking", 1)
    assert peer.names() == ["turn.state"]


def test_client_disposes_of_an_invalid_message_once():
    peer = opened()
    peer.say("turn.state", turnId="t", epoch=-1, state="idle")
    peer.say("novel")
    assert peer.session.streams.handled == 2
    peer.now += 250
    assert peer.flush()[0]["upTo"] == 2
    peer.cut()
    assert peer.open(resumedFrom=0)[0]["resumeFrom"] == 2


def test_client_does_not_let_a_transient_message_move_the_stream():
    peer = opened()
    peer.receive("pong", 4_000_000_000)
    peer.receive("audio.start", 77, itemId="i", epoch=1)
    assert peer.session.streams.handled == 0
    peer.turn("thinking", 1)
    assert peer.names() == ["invalid", "invalid", "turn.state"]


def test_client_does_not_act_on_an_invalid_call():
    peer = opened()
    peer.say("tool.call", callId="", name="n", arguments={}, turnId="t", epoch=1)
    assert peer.names() == ["invalid"]
    assert peer.session.pending == 0
    assert peer.session.observed == -1


def test_client_ignores_members_that_a_type_does_not_have():
    peer = opened()
    for kind in ("pong", "error", "text", "ready", "transcript", "ack"):
        fields = {
            "epoch": "x",
            "upTo": 0,
            "code": "X",
            "recoverable": True,
            "text": "a",
            "role": "user",
            "final": True,
        }
        if kind in ("text", "transcript"):
            fields["epoch"] = 3
        peer.receive(
            kind, peer.seq + 1 if kind in ("text", "transcript") else 0, state=[], callId={}, **fields
        )
        peer.seq += kind in ("text", "transcript")
    assert peer.names() == ["pong", "error", "text", "invalid", "transcript"]


# --- resuming (§5.4)


def test_client_resumes_and_resends_before_anything_new():
    peer = opened()
    for word in ("a", "b", "c"):
        peer.session.offer("text", word)
    peer.flush()
    peer.turn("thinking", 1)
    peer.cut()
    peer.session.offer("text", "d")  # said while there was no connection
    hello = peer.open(resumedFrom=1)[0]
    assert hello == {
        "v": 1,
        "seq": 0,
        "type": "hello",
        "auth": {"token": "t"},
        "sessionId": "s-1",
        "resumeFrom": 1,
    }
    peer.session.offer("text", "e")
    assert [(m["seq"], m["text"]) for m in peer.flush() if m["type"] == "text"] == [
        (2, "b"),
        (3, "c"),
        (4, "d"),
        (5, "e"),
    ]
    assert peer.session.observed == 1  # carries over


def test_client_resumes_again_and_again():
    peer = opened()
    peer.session.offer("text", "a")
    for _ in range(5):
        peer.cut()
        peer.open(resumedFrom=0)
        assert [m["seq"] for m in peer.flush()] == [1]
    peer.receive("ack", 0, upTo=1)
    peer.cut()
    peer.open(resumedFrom=1)
    assert peer.flush() == []


def test_client_gates_audio_after_a_resume_until_a_new_item():
    peer = opened()
    peer.receive("audio.start", 0, itemId="i", epoch=1)
    assert played(peer.session)
    peer.cut()
    assert not played(peer.session)
    peer.open(resumedFrom=0)
    assert not played(peer.session)
    peer.receive("audio.start", 0, itemId="j", epoch=1)
    assert played(peer.session)


def ended(peer):
    # What every end of a session has in common.
    events = [event for event in peer.events() if event["type"] == "ended"]
    assert len(events) == 1
    assert peer.flush() == []
    peer.session.lost(peer.now, 4404)
    assert not peer.session.wants_link(peer.now + 100_000)
    peer.session.again("renew", peer.now)
    assert peer.session.wants_link(peer.now + 10_000)
    peer.seq = 0
    hello = peer.open(sessionId="s-2")[0]
    assert "sessionId" not in hello
    assert "resumeFrom" not in hello
    assert peer.hellos[-1] is False
    assert peer.flush() == []  # nothing old is replayed
    peer.session.offer("text", "new")
    assert [m["seq"] for m in peer.flush()] == [1]
    frame = bytearray(5)
    peer.session.number(frame)
    assert frame == b"\1\0\0\0\0"  # audio is counted anew
    peer.turn("thinking", 1)
    assert peer.names() == ["ready", "turn.state"]
    return events[0]


def busy():
    # A session in the middle of something: kept messages, a call, an item, a closed epoch.
    peer = opened()
    peer.session.offer("text", "old")
    peer.session.offer("text", "older")
    peer.session.number(bytearray(5))
    peer.flush()
    peer.turn("thinking", 3)
    peer.session.close(peer.session.observed)
    peer.call("c", 4)
    peer.events()
    return peer


def test_client_never_replays_after_resume_failed():
    peer = busy()
    peer.cut()
    peer.session.opened(peer.now)
    peer.flush()
    peer.receive("error", 0, code="RESUME_FAILED", recoverable=False)
    assert ended(peer)["code"] == "RESUME_FAILED"


def test_client_asks_for_a_new_session_at_once_but_not_again_and_again():
    peer = busy()
    for _ in range(6):
        peer.cut()
    waits = []
    for _ in range(4):
        peer.session.opened(peer.now)
        peer.receive("error", 0, code="RESUME_FAILED", recoverable=False)
        peer.cut(4404)
        peer.session.again("renew", peer.now)
        start = peer.now
        while not peer.session.wants_link(peer.now):
            peer.now += 1
        waits.append(peer.now - start)
    assert waits[0] <= 250
    assert waits[1:] == sorted(waits[1:])
    assert waits[1] > 250  # a server that says so to a new session is asked less and less often


def test_client_handles_resume_failed_whatever_its_seq_and_state():
    for seq in (0, 1, 2, 3, 4_000_000_000):  # also one that looks like a duplicate
        peer = busy()
        peer.receive("error", seq, code="RESUME_FAILED", recoverable=False)
        assert ended(peer)["code"] == "RESUME_FAILED"
    peer = busy()
    peer.cut()
    peer.open(resumedFrom=2)  # ready first, then the error: the other reading of §5.4
    peer.receive("error", 3, code="RESUME_FAILED", recoverable=False)
    assert ended(peer)["code"] == "RESUME_FAILED"


def test_client_ends_a_resume_that_asks_for_what_is_gone_or_was_never_sent():
    for handled in (0, 3, 4_294_967_295):
        peer = busy()
        peer.receive("ack", 0, upTo=1)
        peer.cut()
        peer.open(resumedFrom=handled)
        assert ended(peer)["code"] == "RESUME_FAILED"


def test_client_ends_a_resume_that_is_answered_as_something_else():
    for fields in ({}, {"resumedFrom": 2, "sessionId": "other"}, {"sessionId": "other"}):
        peer = busy()
        peer.cut()
        peer.open(**fields)
        assert ended(peer)["code"] == "RESUME_FAILED"


def test_client_ends_when_a_new_session_claims_to_have_handled_something():
    peer = Peer()
    peer.session.offer("text", "a")
    peer.open(resumedFrom=1)
    assert ended(peer)["code"] == "RESUME_FAILED"


def test_client_resumes_after_a_reboot():
    peer = Peer()
    peer.session.restore("s-1", 17, 5, 3)
    hello = peer.open(resumedFrom=6)[0]
    assert (hello["sessionId"], hello["resumeFrom"]) == ("s-1", 17)
    peer.session.result({"callId": "c", "epoch": 3, "ok": True, "output": None})
    assert [m["seq"] for m in peer.flush()] == [7]
    peer.seq = 17
    peer.turn("idle", 3)
    assert peer.names() == ["ready", "turn.state"]


def test_client_ends_when_the_server_refuses_the_same_message_as_too_large_twice():
    peer = opened()
    peer.session.offer("text", "big")
    peer.flush()
    peer.cut(1009)
    peer.open(resumedFrom=0)
    peer.flush()
    assert peer.names() == ["ready"]
    peer.cut(1009)
    assert [event["code"] for event in peer.events()] == ["TOO_LARGE"]
    peer.session.again("renew", peer.now)
    assert "sessionId" not in peer.open()[0]
    assert peer.flush() == []


def test_client_ends_the_session_when_seq_is_used_up():
    peer = Peer()
    peer.session.restore("s-1", 0, 4_294_967_294, 0)
    peer.open(resumedFrom=4_294_967_294)
    peer.session.offer("text", "last")
    assert peer.flush()[0]["seq"] == 4_294_967_295
    assert peer.events()[-1]["type"] == "ready"
    peer.session.offer("text", "one more")
    assert ended(peer)["code"] == "SEQ_EXHAUSTED"


# --- the epoch gate (§6.2)


def test_client_answers_a_call_of_a_closed_epoch_without_running_it():
    peer = opened()
    peer.turn("thinking", 4)
    assert peer.session.close(peer.session.observed)
    peer.session.interrupt(4, "user")
    peer.call("late", 4)
    peer.call("later", 3)
    assert peer.names() == ["turn.state"]
    sent = peer.flush()
    assert [m["type"] for m in sent] == ["interrupt", "tool.result", "tool.result"]
    assert sent[0]["epoch"] == 4
    assert (sent[1]["callId"], sent[1]["epoch"], sent[1]["ok"], sent[1]["code"]) == (
        "late",
        4,
        False,
        "INTERRUPTED",
    )
    assert sent[2]["callId"] == "later"
    peer.call("new", 5)
    assert peer.names() == ["tool.call"]


def test_client_closes_by_interrupted_whatever_the_order():
    peer = opened()
    peer.say("interrupted", epoch=7)  # before anything of the turn was seen
    peer.call("c", 7)
    peer.receive("audio.start", 0, itemId="i", epoch=6)
    assert peer.names() == ["interrupted"]
    assert not played(peer.session)
    assert peer.flush()[0]["code"] == "INTERRUPTED"
    peer.say("interrupted", epoch=7)  # no further effect
    peer.say("interrupted", epoch=2)
    assert peer.names() == []
    assert not peer.session.close(peer.session.observed)


def test_client_plays_the_current_item_of_an_open_epoch_only():
    peer = opened()
    assert not played(peer.session)  # no item yet
    peer.receive("audio.start", 0, itemId="i", epoch=2)
    assert played(peer.session)
    peer.receive("audio.start", 0, itemId="j", epoch=3)
    assert played(peer.session)
    peer.session.close(peer.session.observed)
    assert not played(peer.session)
    peer.receive("audio.start", 0, itemId="k", epoch=3)
    assert not played(peer.session)
    peer.receive("audio.start", 0, itemId="l", epoch=4)
    assert played(peer.session)
    assert peer.names() == ["audio.start", "audio.start", "audio.start"]


def test_client_drops_the_item_when_the_user_speaks():
    peer = opened()
    peer.receive("audio.start", 0, itemId="i", epoch=2)
    peer.turn("listening", 3)
    assert not played(peer.session)
    peer.receive("audio.start", 0, itemId="j", epoch=3)
    assert played(peer.session)


def test_client_discards_previews_of_a_closed_epoch():
    peer = opened()
    peer.say("tool.call.delta", callId="c", epoch=1, preview=None)
    peer.say("interrupted", epoch=1)
    peer.say("tool.call.delta", callId="c", epoch=1, preview=None)
    peer.say("tool.stream", callId="c", name="n", turnId="t", epoch=1, phase="start")
    assert peer.names() == ["tool.call.delta", "interrupted"]


def test_client_observes_epochs_by_three_types_only():
    peer = opened()
    peer.say("transcript", role="user", text="x", final=True, epoch=50)
    peer.say("tool.call.delta", callId="c", epoch=60, preview=None)
    assert not peer.session.close(peer.session.observed)
    peer.turn("thinking", 1)
    assert peer.session.observed == 1
    peer.receive("audio.start", 0, itemId="i", epoch=2)
    assert peer.session.observed == 2
    peer.call("c", 3)
    assert peer.session.observed == 3


def test_client_ignores_malformed_audio():
    peer = opened()
    peer.receive("audio.start", 0, itemId="i", epoch=2)
    for bad in (b"", b"\2\0\0\0", b"\1\0\0\0\0x"):
        assert not peer.session.receive_audio(bytearray(bad), len(bad))
    assert peer.session.invalid == 3


# --- limits and the full outbox (decisions 7, 17)


def test_client_refuses_text_and_context_before_the_slots_of_calls_are_touched():
    peer = opened()
    count = 0
    while peer.session.offer("text", "x"):
        count += 1
    assert count == 32 - 4 - 8
    assert not peer.session.offer("context", None)
    for i in range(4):
        peer.call(f"c{i}", 1)
    peer.session.close(peer.session.observed)
    peer.session.playback("i", 100)
    peer.session.interrupt(1, "user")
    for i in range(4):
        peer.session.result(
            {"callId": f"c{i}", "epoch": 1, "ok": False, "code": "INTERRUPTED", "message": ""}
        )
    sent = [m["type"] for m in peer.flush()]
    assert sent == ["text"] * 20 + ["playback", "interrupt"] + ["tool.result"] * 4
    assert "stalled" not in peer.names()
    peer.receive("ack", 0, upTo=10)
    assert peer.session.offer("text", "x")


def test_client_takes_no_call_without_a_slot_for_its_result():
    peer = opened()
    for i in range(32):
        peer.call(f"c{i}", 1)
    assert peer.names() == ["tool.call"] * 32
    peer.call("one too many", 1)
    assert peer.names() == ["stalled"]
    assert peer.session.streams.handled == 32  # not acknowledged: the resume brings it again
    peer.session.playback("i", 1)  # no slot is left for it
    assert peer.session.streams.free() == 32
    for i in range(32):
        peer.session.result({"callId": f"c{i}", "epoch": 1, "ok": True, "output": i})
    peer.flush()
    peer.cut()
    peer.open(resumedFrom=32)
    assert peer.session.streams.free() == 32
    peer.receive("tool.call", 33, callId="one too many", name="n", arguments={}, turnId="t", epoch=1)
    assert peer.names() == ["ready", "tool.call"]


def test_client_takes_nothing_behind_a_call_that_it_has_no_slot_for():
    peer = opened()
    for i in range(33):
        peer.call(f"c{i}", 1)
    peer.turn("acting", 1)
    peer.raw(b'{"v":1,"seq":35,"type":"turn.state"}')
    assert peer.names()[32:] == ["invalid", "stalled"]
    assert peer.session.streams.handled == 32
    peer.cut()
    peer.open(resumedFrom=0)
    peer.session.result({"callId": "c0", "epoch": 1, "ok": True, "output": 0})
    peer.flush()
    peer.receive("ack", 0, upTo=1)
    peer.seq = 32
    peer.call("c32", 1)
    assert peer.names()[-1] == "tool.call"


def test_client_is_told_that_its_outbox_is_full_once():
    peer = opened()
    for i in range(33):
        peer.call(f"c{i}", 1)
    peer.events()
    peer.call("c32", 1)
    peer.session.playback("i", 1)
    assert peer.names() == []


def test_client_answers_a_result_too_large_as_failed():
    peer = opened(size=400)
    peer.call("c", 1)
    peer.session.result({"callId": "c", "epoch": 1, "ok": True, "output": "x" * 400})
    sent = peer.flush()[0]
    assert (sent["seq"], sent["ok"], sent["code"]) == (1, False, "FAILED")
    assert "too large" in sent["message"]
    peer.call("d", 1)
    peer.session.result({"callId": "d", "epoch": 1, "ok": True, "output": float("inf")})
    assert peer.flush()[0]["code"] == "FAILED"
    assert peer.session.pending == 0


def test_client_keeps_to_the_servers_limit():
    peer = Peer(size=4000)
    peer.open(limits={"messageBytes": 1024})
    raises(ProtocolError, peer.session.offer, "text", "x" * 1000)
    assert peer.session.offer("text", "x" * 900)
    peer.call("c", 1)
    peer.session.result({"callId": "c", "epoch": 1, "ok": True, "output": "x" * 1000})
    assert [m["seq"] for m in peer.flush()] == [1, 2]
    assert peer.sent[-1]["ok"] is False


def test_client_ignores_limits_it_cannot_use():
    for limits in (
        None,
        5,
        "x",
        [],
        {},
        {"messageBytes": "9"},
        {"messageBytes": 0},
        {"messageBytes": -5},
        {"messageBytes": 3},
    ):
        peer = Peer()
        peer.open(limits=limits)
        assert peer.names() == ["ready"]
        assert peer.session.offer("text", "x" * 500)


def test_client_works_past_every_edge_of_seq():
    for start in (0x3FFFFFFD, 0x7FFFFFFD, 0xFFFFFFF0):
        peer = Peer()
        peer.session.restore("s-1", start, start, 0)
        peer.open(resumedFrom=start)
        peer.seq = start
        for _ in range(6):
            peer.say("text", text="x")
            peer.session.offer("text", "y")
        assert peer.names() == ["ready"] + ["text"] * 6
        assert [m["seq"] for m in peer.flush()] == [start + i for i in range(1, 7)]
        peer.now += 250
        assert peer.flush()[0]["upTo"] == start + 6
        peer.receive("ack", 0, upTo=start + 4)
        peer.cut()
        assert peer.open(resumedFrom=start + 5)[0]["resumeFrom"] == start + 6
        assert [m["seq"] for m in peer.flush()] == [start + 6]


# --- exactly once, whatever is cut


class Server:
    # The server's side of a session, as far as the streams go. Frames in flight are lost when the connection is cut.
    def __init__(self):
        self.last = self.seq = 0
        self.kept = []
        self.handled = []

    def send(self, text):
        self.seq += 1
        self.kept.append({"v": 1, "seq": self.seq, "type": "text", "text": text})
        return self.kept[-1]

    def take(self, message):
        if message["type"] == "ack":
            self.kept = [kept for kept in self.kept if kept["seq"] > message["upTo"]]
        elif message["seq"] > self.last:
            assert message["seq"] == self.last + 1, "a gap"
            self.last = message["seq"]
            self.handled.append(message["text"])

    def ready(self, hello):
        if "sessionId" not in hello:
            return dict(READY, v=1, seq=0, type="ready")
        assert not self.kept or self.kept[0]["seq"] <= hello["resumeFrom"] + 1
        return dict(READY, v=1, seq=0, type="ready", resumedFrom=self.last)


def test_client_loses_and_doubles_nothing_over_random_cuts():
    state = [7]

    def random(n):
        state[0] = (state[0] * 1103515245 + 12345) & 0x3FFFFFFF
        return (state[0] >> 8) % n

    peer = Peer()
    server = Server()
    heard = []
    said = cuts = told = 0
    while cuts < 300:
        peer.session.opened(peer.now)
        down = [server.ready(peer.flush()[0])]  # on their way to the client
        down += server.kept
        up = []
        for _ in range(random(25)):
            peer.now += random(100)
            what = random(5)
            if what == 0 and peer.session.offer("text", str(said)):
                said += 1
            elif what == 1:
                down.append(server.send(str(told)))
                told += 1
            elif what == 2:
                up += peer.flush()
            elif what == 3 and up:
                server.take(up.pop(0))
                if random(3) == 0:
                    down.append({"v": 1, "seq": 0, "type": "ack", "upTo": server.last})
            elif down:
                peer.raw(json.dumps(down.pop(0)).encode())
            heard += [event["text"] for event in peer.events() if event["type"] == "text"]
        peer.cut()
        cuts += 1
        peer.sent.clear()
    peer.session.opened(peer.now)
    down = [server.ready(peer.flush()[0])]
    for message in down + server.kept:
        peer.raw(json.dumps(message).encode())
    for message in peer.flush():
        server.take(message)
    heard += [event["text"] for event in peer.events() if event["type"] == "text"]
    assert said > 100
    assert told > 100
    assert heard == [str(i) for i in range(told)]
    assert server.handled == [str(i) for i in range(said)]
    assert peer.session.streams.gaps == 0
