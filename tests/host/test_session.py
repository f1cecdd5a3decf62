"""One session, seen from the turn manager, over a link that only records."""

import json

import pytest
from vrt_host.errors import LocalError
from vrt_host.protocol import audio, wire
from vrt_host.session import Close, Hello, Limits, PeerLimits, Session, State, in_effect

PCMU = {"encoding": "pcmu", "sampleRate": 8000}


class FakeLink:
    def __init__(self):
        self.frames = []
        self.closed = None

    def carry(self, frame):
        self.frames.append(frame)

    def end(self, close):
        self.closed = close

    def take(self):
        frames, self.frames = self.frames, []
        return [json.loads(frame) if isinstance(frame, str) else frame for frame in frames]


def make(hello=None, principal=None, on_state=None, **changes):
    message = {"v": 1, "seq": 0, "type": "hello", **(hello or {})}
    options = {"input": PCMU, "output": PCMU, "limits": Limits(**changes), "on_state": on_state}
    return Session("s-1", principal, Hello(message), **options)


def connect(session, resume_from=None, now=0.0):
    link = FakeLink()
    assert session.bind(link, resume_from, now)
    return link


def states(session):
    seen = []
    session._on_state = seen.append
    return seen


# --- sending


def test_send_numbers_from_1_and_every_message_is_valid():
    session = make()
    link = connect(session)
    assert session.send("text", text="a", final=True, turnId="t", epoch=1)
    assert session.send("turn.state", turnId="t", epoch=1, state="idle")
    assert session.error("AGENT_ERROR", "no answer")
    ready, *rest = link.take()
    assert ready == {
        "v": 1,
        "seq": 0,
        "type": "ready",
        "sessionId": "s-1",
        "input": PCMU,
        "output": PCMU,
        "capabilities": [],
        "limits": {
            "messageBytes": 262144,
            "audioBytes": 65536,
            "resumeWindowMs": 30000,
            "heartbeatMs": 45000,
        },
    }
    assert [message["seq"] for message in rest] == [1, 2, 3]
    assert rest[2] == {
        "v": 1,
        "seq": 3,
        "type": "error",
        "code": "AGENT_ERROR",
        "recoverable": True,
        "message": "no answer",
    }
    for message in (ready, *rest):
        wire.check(message, "server")


def test_send_before_ready_is_delivered_right_after_it():
    session = make()
    assert session.send("text", text="early")
    link = connect(session)
    assert session.send("text", text="late")
    assert [message.get("text") for message in link.take()] == [None, "early", "late"]


def test_send_while_parked_is_delivered_by_the_resume():
    session = make()
    connect(session)
    session.park(1.0)
    assert session.send("text", text="meanwhile")
    link = connect(session, resume_from=0, now=2.0)
    ready, message = link.take()
    assert ready["resumedFrom"] == 0
    assert (message["seq"], message["text"]) == (1, "meanwhile")


def test_send_repeats_byte_for_byte():
    session = make()
    first = connect(session)
    session.send("tool.call", callId="c", name="lock", arguments={"b": 1, "a": "ü"}, turnId="t", epoch=1)
    session.park(0)
    second = connect(session, resume_from=0)
    assert first.frames[1] == second.frames[1]


def test_send_on_a_closed_session_does_nothing():
    session = make()
    session.close()
    assert not session.send("text", text="a")
    assert not session.error("AGENT_ERROR", "a")
    assert not session.start_audio("i", 1, "t")
    assert not session.send_audio(b"a")


def test_send_refuses_a_gated_type_unless_its_capability_is_in_effect():
    members = {"callId": "c", "name": "n", "turnId": "t", "epoch": 1, "phase": "start"}
    session = make()
    with pytest.raises(LocalError, match="tool-stream-v1"):
        session.send("tool.stream", **members)
    session.capabilities = ("tool-stream-v1",)
    assert session.send("tool.stream", **members)


def test_send_of_something_that_is_no_json_uses_no_number():
    session = make()
    with pytest.raises(LocalError):
        session.send("text", text=float("nan"))
    with pytest.raises(wire.TooLargeError):
        session.send("tool.call", arguments=json.loads("[" * 40 + "]" * 40))
    session.send("text", text="a")
    assert connect(session).take()[1]["seq"] == 1


def test_send_closes_the_session_when_the_numbers_are_used_up():
    session = make()
    link = connect(session)
    session.outbox.last = 4294967294
    assert session.send("text", text="the last")
    assert link.take()[-1]["seq"] == 4294967295
    assert not session.send("text", text="one more")
    assert session.state is State.CLOSED
    assert link.closed.code == 1000
    assert link.take() == []


# --- sizes


@pytest.mark.parametrize("text", ["a", "ü", '"'])
def test_send_takes_messages_up_to_the_device_s_limit_to_the_byte(text):
    session = make({"limits": {"messageBytes": 1000}})
    room = session.room("text", text="")
    one = wire.size(json.dumps(text, ensure_ascii=False)) - 2
    assert session.room("text", text=text) == room - one
    fitting = text * (room // one) + "x" * (room % one)
    link = connect(session)
    assert session.send("text", text=fitting)
    assert wire.size(link.frames[-1]) == 1000
    with pytest.raises(wire.TooLargeError, match="1001 bytes"):
        session.send("text", text=fitting + "x")
    session.send("text", text="next")
    assert [message["seq"] for message in link.take()] == [0, 1, 2]


def test_send_has_no_limit_when_the_device_announced_none():
    session = make()
    assert session.room("text", text="a") is None
    assert session.send("text", text="a" * 10**6)


def test_error_always_fits():
    session = make({"limits": {"messageBytes": 512}})
    link = connect(session)
    assert session.error("AGENT_ERROR", "\0" * 10_000)
    assert wire.size(link.frames[-1]) <= 512


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (None, PeerLimits()),
        ("all", PeerLimits()),
        ([4096], PeerLimits()),
        ({}, PeerLimits()),
        ({"messageBytes": True, "audioBytes": "9", "queuedCalls": None, "bufferMs": []}, PeerLimits()),
        ({"messageBytes": 0, "audioBytes": -1, "queuedCalls": 0.5}, PeerLimits()),
        (
            {"messageBytes": 4096, "audioBytes": 2048.0, "queuedCalls": 4, "bufferMs": 600, "x": 1},
            PeerLimits(4096, 2048, 4, 600),
        ),
        ({"messageBytes": 1, "audioBytes": 1, "queuedCalls": 1, "bufferMs": 1}, PeerLimits(512, 64, 1, 20)),
    ],
)
def test_peer_limits_take_what_is_usable(limits, expected):
    assert PeerLimits.of(limits) == expected


# --- audio


def test_audio_needs_a_link_and_an_item_on_it():
    session = make()
    assert not session.start_audio("i", 1, "t")
    link = connect(session)
    assert not session.send_audio(b"a")
    assert session.start_audio("i", 1, "t")
    assert session.send_audio(b"a")
    assert session.send_audio(b"")
    assert link.take()[1:] == [
        {"v": 1, "seq": 0, "type": "audio.start", "itemId": "i", "epoch": 1, "turnId": "t"},
        audio.encode(audio.OUTPUT, 0, b"a"),
        audio.encode(audio.OUTPUT, 1, b""),
    ]
    session.park(0)
    assert not session.send_audio(b"b")
    link = connect(session, resume_from=0)
    assert not session.send_audio(b"b")
    session.start_audio("j", 1, "t")
    session.send_audio(b"b")
    assert link.take()[-1] == audio.encode(audio.OUTPUT, 2, b"b")


def test_audio_takes_payloads_up_to_the_device_s_limit():
    session = make({"limits": {"audioBytes": 165}})
    connect(session)
    session.start_audio("i", 1, "t")
    assert session.send_audio(b"x" * 160)
    with pytest.raises(wire.TooLargeError):
        session.send_audio(b"x" * 161)


@pytest.mark.parametrize(
    ("seqs", "lost"),
    [
        ([0, 1, 2], 0),
        ([5, 6], 0),
        ([0, 3], 2),
        ([2**32 - 1, 0], 0),
        ([2**32 - 2, 1], 2),
        ([9, 0, 1], 0),
        ([3, 3], 0),
    ],
)
def test_audio_counts_frames_that_were_lost(seqs, lost):
    session = make()
    for seq in seqs:
        session.audio_arrived(seq)
    assert session.counters()["audio_lost"] == lost


# --- binding, parking, ending


def test_bind_and_park_and_close_are_told_once_each():
    session = make()
    seen = states(session)
    link = connect(session)
    assert session.deadline is None
    session.park(10.0)
    assert session.deadline == 40.0
    connect(session, resume_from=0, now=20.0)
    assert session.deadline is None
    session.close()
    session.close()
    assert seen == [State.CONNECTED, State.PARKED, State.CONNECTED, State.CLOSED]
    assert link.closed is None


def test_close_ends_the_link_with_its_code():
    session = make()
    link = connect(session)
    session.close(1001, "going away")
    assert link.closed == Close(1001, "going away")


def test_resume_window_ends_the_session():
    session = make(resume_window_s=30.0)
    connect(session)
    session.park(100.0)
    session.tick(129.9)
    assert session.state is State.PARKED
    session.tick(130.0)
    assert session.state is State.CLOSED
    assert session.deadline is None


def test_resumable_only_by_its_principal_and_in_time():
    session = make(principal="anna")
    connect(session)
    assert session.resumable("anna", 0)  # connected: a newer connection may replace the older
    session.park(0)
    assert not session.resumable("ben", 1)
    assert not session.resumable(None, 1)
    assert session.resumable("anna", 29)
    assert not session.resumable("ben", 31)
    assert session.state is State.PARKED  # a foreigner cannot even end it
    assert not session.resumable("anna", 31)
    assert session.state is State.CLOSED


def test_bind_replaces_an_older_link():
    session = make()
    older = connect(session)
    session.send("text", text="a")
    seen = states(session)
    newer = connect(session, resume_from=0)
    assert older.closed.code == 4000
    assert seen == [State.PARKED, State.CONNECTED]
    session.send("text", text="b")
    assert [message["seq"] for message in newer.take()] == [0, 1, 2]
    assert len(older.take()) == 2


def test_bind_repeats_what_a_listener_sends_while_the_older_link_goes():
    session = make()
    connect(session)
    session._on_state = lambda state: session.send("text", text=state.value)
    link = connect(session, resume_from=0)
    assert [(m["seq"], m.get("text")) for m in link.take()] == [(0, None), (1, "parked"), (2, "connected")]


def test_bind_gives_up_when_a_listener_closes_the_session():
    session = make()
    older = connect(session)
    session._on_state = lambda state: session.close() if state is State.PARKED else None
    assert not session.bind(FakeLink(), 0, 0.0)
    assert older.closed.code == 4000


@pytest.mark.parametrize("resume_from", [0, 1, 2, 4, 4294967295])
def test_bind_closes_a_session_that_cannot_resend(resume_from):
    session = make(kept_messages=1)
    older = connect(session)
    for text in "abc":
        session.send("text", text=text)
    if resume_from == 2:
        assert connect(session, resume_from=2).take()[1]["text"] == "c"
        return
    link = FakeLink()
    assert not session.bind(link, resume_from, 0.0)
    assert link.frames == []
    assert session.state is State.CLOSED
    assert older.closed.code == 4404


def test_bind_takes_resume_from_as_an_acknowledgement():
    session = make()
    connect(session)
    session.send("text", text="a")
    session.send("text", text="b")
    connect(session, resume_from=1)
    assert session.outbox.after(0) is None
    assert session.outbox.after(1) is not None


def test_bind_of_a_closed_session_fails():
    session = make()
    session.close()
    assert not session.bind(FakeLink(), None, 0.0)


def test_too_large_twice_in_one_place_ends_the_session():
    session = make()
    connect(session)
    session.too_large()
    session.inbox.take(1, 0)
    session.too_large()
    assert session.state is State.CONNECTED
    session.too_large()
    assert session.state is State.CLOSED


def test_in_effect_are_the_offered_ones_that_are_supported_each_once():
    assert in_effect(["b", "x-new", "a", "b"], {"a", "b", "c"}) == ("b", "a")
    assert in_effect([], {"a"}) == ()


def test_hello_reads_its_members():
    hello = Hello({"v": 1, "seq": 0, "type": "hello"})
    assert (hello.session_id, hello.resume_from, hello.token) == (None, 0, None)
    hello = Hello({"type": "hello", "sessionId": "s", "resumeFrom": 4, "auth": {"token": "t"}})
    assert (hello.session_id, hello.resume_from, hello.token) == ("s", 4, "t")
