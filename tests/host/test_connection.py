"""One connection: the table of §5.1 input by input, its timers, and whole sessions over links that break."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vrt_host.connection import Connection, Input
from vrt_host.connection import State as Stage
from vrt_host.errors import LocalError
from vrt_host.protocol import audio, wire
from vrt_host.session import AudioFrame, Close, Fault, Hello, Limits, Message, Session, State

PCMU = {"encoding": "pcmu", "sampleRate": 8000}
LIMITS = Limits(early_messages=3, early_bytes=200, message_bytes=1000, audio_bytes=100)
HELLO = '{"v":1,"seq":0,"type":"hello"}'
PING = '{"v":1,"seq":0,"type":"ping"}'
KNOWN = {
    entry["const"]
    for entry in json.loads((wire.schema_folder() / "common.json").read_text("utf-8"))["$defs"][
        "knownErrorCode"
    ]["oneOf"]
}
FRAME = audio.encode(audio.INPUT, 0, b"abc")


def text(seq, words="hi"):
    return json.dumps({"v": 1, "seq": seq, "type": "text", "text": words})


def sent(connection):
    """What the connection sends now, each control message checked against its schema."""
    result = []
    for frame in connection.data_to_send():
        if isinstance(frame, str):
            message = json.loads(frame)
            wire.check(message, "server")
            result.append(message)
        else:
            result.append(frame)
    return result


def errors(connection):
    result = [(m["code"], m["recoverable"], m["seq"]) for m in sent(connection) if m["type"] == "error"]
    assert {code for code, _, _ in result} <= KNOWN
    return result


def opening(limits=LIMITS, hello=HELLO):
    connection = Connection(limits, 0.0)
    connection.receive_text(hello, 0.0)
    (event,) = connection.events()
    assert isinstance(event, Hello)
    return connection


def opened(limits=LIMITS, **options):
    connection = opening(limits)
    session = Session(
        "s-1",
        options.pop("principal", None),
        connection._hello,
        input=PCMU,
        output=PCMU,
        limits=limits,
        **options,
    )
    assert connection.accept(session, 0.0)
    assert sent(connection)[0]["type"] == "ready"
    return connection, session


def resuming(session, resume_from=0, principal=None, now=0.0, limits=LIMITS):
    hello = {"v": 1, "seq": 0, "type": "hello", "sessionId": "s-1", "resumeFrom": resume_from}
    connection = Connection(limits, now)
    connection.receive_text(json.dumps(hello), now)
    connection.events()
    return connection, connection.resume(session, principal, now)


# --- awaiting hello


def test_server_awaiting_hello_answers_pings():
    connection = Connection(LIMITS, 0.0)
    for _ in range(2):
        connection.receive_text(PING, 0.0)
    assert sent(connection) == [{"v": 1, "seq": 0, "type": "pong"}] * 2
    assert connection.events() == []


@pytest.mark.parametrize("frame", [text(1), '{"v":1,"seq":0,"type":"ack","upTo":0}'])
def test_server_awaiting_hello_refuses_other_messages_and_goes_on_waiting(frame):
    connection = Connection(LIMITS, 0.0)
    connection.receive_text(frame, 0.0)
    assert errors(connection) == [("NO_SESSION", False, 0)]
    assert connection.closing is None
    connection.receive_text(HELLO, 0.0)
    assert isinstance(connection.events()[-1], Hello)


def test_server_awaiting_hello_ignores_audio():
    connection = Connection(LIMITS, 0.0)
    connection.receive_audio(FRAME, 0.0)
    assert (sent(connection), connection.events()) == ([], [])


def test_server_awaiting_hello_closes_after_10_seconds_whatever_pings_come():
    connection = Connection(Limits(), 5.0)
    assert connection.deadline == 15.0
    connection.receive_text(PING, 14.0)
    connection.tick(14.9)
    assert connection.closing is None
    connection.tick(15.0)
    assert connection.closing.code == 1008
    assert connection.deadline is None


# --- opening


def test_server_opening_keeps_messages_and_hands_them_out_after_ready():
    connection = opening()
    connection.receive_text(text(1, "a"), 0.0)
    connection.receive_text('{"v":1,"seq":0,"type":"ack","upTo":0}', 0.0)
    connection.receive_text(text(2, "b"), 0.0)
    assert (sent(connection), connection.events()) == ([], [])
    session = Session("s-1", None, connection._hello, input=PCMU, output=PCMU)
    assert connection.accept(session, 0.0)
    assert [event.message["text"] for event in connection.events()] == ["a", "b"]
    assert sent(connection)[0]["type"] == "ready"


def test_server_opening_answers_pings_and_ignores_audio():
    connection = opening()
    connection.receive_text(PING, 0.0)
    connection.receive_audio(FRAME, 0.0)
    assert [message["type"] for message in sent(connection)] == ["pong"]
    assert connection.events() == []


def test_server_opening_refuses_a_second_hello_and_goes_on():
    connection = opening()
    connection.receive_text(HELLO, 0.0)
    assert errors(connection) == [("DUPLICATE_HELLO", True, 0)]
    assert [type(event) for event in connection.events()] == [Fault]
    assert connection.accept(Session("s", None, Hello({}), input=PCMU, output=PCMU), 0.0)


@pytest.mark.parametrize(
    "frames", [[text(n) for n in range(1, 5)], [text(1, "x" * 300)], [text(1, "ü" * 80)]]
)
def test_server_opening_closes_when_too_much_comes_early(frames):
    connection = opening()
    for frame in frames:
        connection.receive_text(frame, 0.0)
    assert errors(connection) == [("OVERFLOW", False, 0)]
    assert connection.closing.code == 1008
    assert not connection.accept(Session("s", None, Hello({}), input=PCMU, output=PCMU), 0.0)


@pytest.mark.parametrize(("code", "close"), [("UNAUTHORIZED", 4401), ("START_FAILED", 1011)])
def test_server_opening_refuses_with_error_and_close(code, close):
    connection = opening()
    connection.refuse(code, "because")
    assert sent(connection) == [
        {"v": 1, "seq": 0, "type": "error", "code": code, "recoverable": False, "message": "because"}
    ]
    assert connection.closing == Close(close, "because")
    connection.refuse(code, "again")
    assert sent(connection) == []


def test_server_opening_drops_a_session_whose_link_is_gone():
    connection = opening()
    connection.receive_eof(0.0)
    session = Session("s", None, Hello({}), input=PCMU, output=PCMU)
    assert not connection.accept(session, 0.0)
    assert not connection.resume(session, None, 0.0)
    connection.refuse("START_FAILED", "late")
    assert sent(connection) == []
    assert session.state is State.PARKED


def test_server_opening_reports_a_session_that_ended_first():
    connection = opening()
    session = Session("s", None, Hello({}), input=PCMU, output=PCMU)
    session.close()
    assert not connection.accept(session, 0.0)
    assert errors(connection) == [("START_FAILED", False, 0)]


def test_server_answers_a_hello_only_once_and_only_if_there_was_one():
    session = Session("s", None, Hello({}), input=PCMU, output=PCMU)
    with pytest.raises(LocalError):
        Connection(LIMITS, 0.0).accept(session, 0.0)
    with pytest.raises(LocalError):
        Connection(LIMITS, 0.0).refuse("UNAUTHORIZED", "no")
    connection, session = opened()
    with pytest.raises(LocalError):
        connection.resume(session, None, 0.0)


# --- open


def test_server_open_hands_out_each_message_once():
    connection, session = opened()
    for seq in (1, 2, 2, 1, 3):
        connection.receive_text(text(seq, str(seq)), 0.0)
    assert [event.message["text"] for event in connection.events()] == ["1", "2", "3"]
    assert session.counters()["duplicates"] == 2


def test_server_open_accepts_a_gap_and_reports_it():
    connection, session = opened()
    connection.receive_text(text(5), 0.0)
    fault, message = connection.events()
    assert (fault.code, type(message)) == ("GAP", Message)
    assert session.counters()["missing"] == 4


def test_server_open_passes_audio():
    connection, session = opened()
    connection.receive_audio(FRAME, 0.0)
    connection.receive_audio(audio.encode(audio.INPUT, 2, b""), 0.0)
    assert connection.events() == [AudioFrame(b"abc"), AudioFrame(b"")]
    assert session.counters()["audio_lost"] == 1


def test_server_open_refuses_a_second_hello_with_a_numbered_error():
    connection, _ = opened()
    connection.receive_text(HELLO, 0.0)
    assert errors(connection) == [("DUPLICATE_HELLO", True, 1)]
    connection.receive_text(text(1), 0.0)
    assert isinstance(connection.events()[-1], Message)


def test_server_open_forgets_what_is_acknowledged():
    connection, session = opened()
    session.send("text", text="a")
    connection.receive_text('{"v":1,"seq":0,"type":"ack","upTo":1}', 0.0)
    assert session.outbox.after(0) is None
    assert connection.events() == []


def test_server_open_sends_what_the_session_sends_and_wakes_for_it():
    woken = []
    connection = Connection(LIMITS, 0.0, lambda: woken.append(1))
    connection.receive_text(HELLO, 0.0)
    session = Session("s-1", None, connection.events()[0], input=PCMU, output=PCMU)
    connection.accept(session, 0.0)
    connection.data_to_send()
    del woken[:]
    session.send("text", text="a")
    session.send("text", text="b")
    assert woken == [1]  # once until it is taken
    assert [message["text"] for message in sent(connection)] == ["a", "b"]
    session.close(1001, "bye")
    assert len(woken) == 2
    assert connection.closing == Close(1001, "bye")


# --- any state: invalid input

INVALID = [
    ("[1,]", "MALFORMED"),
    (b"\xff", "MALFORMED"),
    ('{"v":2,"seq":1,"type":"text","text":"a"}', "UNSUPPORTED_VERSION"),
    ('{"v":1,"seq":1,"type":"pong"}', "UNKNOWN_TYPE"),
    ('{"v":1,"seq":1,"type":"__proto__"}', "UNKNOWN_TYPE"),
    ('{"v":1,"seq":1,"type":"text"}', "INVALID_FIELD"),
    ('{"v":1,"seq":0,"type":"hello","tools":7}', "INVALID_FIELD"),
    (text(1, "x" * 1000), "TOO_LARGE"),
]
INVALID_AUDIO = [
    (b"", "MALFORMED"),
    (b"\x01\0\0\0", "MALFORMED"),
    (b"\x02\0\0\0\0a", "MALFORMED"),
    (b"\1" * 101, "TOO_LARGE"),
]


@pytest.mark.parametrize("stage", ["awaiting", "opening", "open"])
@pytest.mark.parametrize(("frame", "code"), INVALID)
def test_server_answers_an_invalid_message_and_goes_on(stage, frame, code):
    connection = {
        "awaiting": lambda: Connection(LIMITS, 0.0),
        "opening": opening,
        "open": lambda: opened()[0],
    }[stage]()
    connection.receive_text(frame, 0.0)
    assert errors(connection) == [(code, True, 1 if stage == "open" else 0)]
    assert [event.code for event in connection.events()] == [code]
    assert connection.closing is None


@pytest.mark.parametrize("stage", ["awaiting", "opening", "open"])
@pytest.mark.parametrize(("frame", "code"), INVALID_AUDIO)
def test_server_answers_invalid_audio_and_goes_on(stage, frame, code):
    connection = {
        "awaiting": lambda: Connection(LIMITS, 0.0),
        "opening": opening,
        "open": lambda: opened()[0],
    }[stage]()
    connection.receive_audio(frame, 0.0)
    assert errors(connection) == [(code, True, 1 if stage == "open" else 0)]
    assert [event.code for event in connection.events()] == [code]


@pytest.mark.parametrize(
    ("frame", "last"),
    [
        ('{"v":1,"seq":1,"type":"later"}', 1),
        ('{"v":1,"seq":1,"type":"text"}', 1),
        (text(1, "x" * 1000), 1),
        ('{"v":2,"seq":1,"type":"text","text":"a"}', 0),
        ('{"v":1,"seq":9,"type":"ping"}', 0),
        ('{"v":1,"seq":true,"type":"text","text":"a"}', 0),
    ],
)
def test_server_disposes_of_an_invalid_message_that_has_a_number(frame, last):
    connection, session = opened(Limits(message_bytes=1000, ack_s=0.25))
    connection.receive_text(frame, 0.0)
    assert session.inbox.last == last
    sent(connection)
    connection.tick(1.0)
    assert [m.get("upTo") for m in sent(connection)] == ([last] if last else [])


def test_server_answers_an_invalid_message_also_when_its_number_is_old():
    connection, session = opened()
    for _ in range(3):
        connection.receive_text('{"v":1,"seq":1,"type":"text"}', 0.0)
    assert [code for code, _, _ in errors(connection)] == ["INVALID_FIELD"] * 3
    assert session.counters()["duplicates"] == 2


def test_server_survives_every_vector_in_a_row():
    connection, _ = opened(Limits())
    expected = []
    for path in sorted(wire.schema_folder().glob("examples/client/*.json")):
        for case in json.loads(path.read_text("utf-8")):
            connection.receive_text(case["text"] if "text" in case else json.dumps(case["json"]), 0.0)
            if case["expect"] != "valid":
                expected.append(case["expect"])
    got = [event.code for event in connection.events() if isinstance(event, Fault)]
    assert [code for code in got if code not in ("GAP", "DUPLICATE_HELLO")] == expected
    assert len(expected) > 400
    assert connection.closing is None


# --- acknowledgements


def acknowledgements(connection):
    return [message["upTo"] for message in sent(connection) if message["type"] == "ack"]


def test_server_acknowledges_250_ms_after_the_first_message():
    connection, _ = opened(Limits())
    connection.receive_text(text(1), 1.0)
    connection.receive_text(text(2), 1.2)
    assert connection.deadline == 1.25
    connection.tick(1.2)
    assert acknowledgements(connection) == []
    connection.tick(1.25)
    assert acknowledgements(connection) == [2]
    assert connection.deadline == 1.2 + 45.0
    connection.tick(9.0)
    assert acknowledgements(connection) == []


def test_server_acknowledges_after_32_messages_at_once():
    connection, _ = opened(Limits())
    for seq in range(1, 32):
        connection.receive_text(text(seq), 0.0)
    assert acknowledgements(connection) == []
    connection.receive_text(text(32), 0.0)
    assert acknowledgements(connection) == [32]


def test_server_acknowledges_duplicates_again_and_only_once_for_many():
    connection, _ = opened(Limits())
    for seq in range(1, 33):
        connection.receive_text(text(seq), 0.0)
    acknowledgements(connection)
    for seq in range(1, 33):
        connection.receive_text(text(seq), 0.0)
    assert acknowledgements(connection) == [32]


def test_server_waits_for_its_data_to_be_taken_once_an_acknowledgement_is_due():
    connection, _ = opened(Limits())
    connection.receive_text(text(1), 0.0)
    connection.tick(0.25)
    assert connection.deadline == 45.0
    assert acknowledgements(connection) == [1]


def test_server_acknowledges_by_ready_what_came_before_a_resume():
    connection, session = opened(Limits())
    connection.receive_text(text(1), 0.0)
    connection.receive_eof(0.0)
    connection, ok = resuming(session, limits=Limits())
    assert ok
    assert sent(connection)[0]["resumedFrom"] == 1
    assert connection.deadline == 45.0


def test_server_does_not_acknowledge_for_a_session_that_moved_on():
    older, session = opened(Limits())
    older.receive_text(text(1), 0.0)
    older.receive_text(text(1), 0.0)
    newer, ok = resuming(session, limits=Limits())
    assert ok
    newer.receive_text(text(2), 0.0)
    assert acknowledgements(older) == []
    newer.tick(1.0)
    assert acknowledgements(newer) == [2]


# --- ends


@pytest.mark.parametrize("stage", ["awaiting", "opening", "open"])
def test_server_closes_a_silent_connection(stage):
    limits = Limits(heartbeat_s=45.0, hello_s=1000.0)
    make = {
        "awaiting": lambda: Connection(limits, 0.0),
        "opening": lambda: opening(limits),
        "open": lambda: opened(limits)[0],
    }
    connection = make[stage]()
    for now, hear in ((10.0, connection.heard), (20.0, lambda now: connection.receive_text(PING, now))):
        hear(now)
        assert connection.deadline == now + 45.0
    connection.receive_audio(FRAME, 30.0)
    connection.receive_text("[", 40.0)
    connection.tick(84.9)
    assert connection.closing is None
    connection.tick(85.0)
    assert connection.closing.code == 4408
    connection.receive_eof(86.0)
    connection.tick(1000.0)
    assert connection.closing.code == 4408


def test_server_parks_the_session_of_a_silent_connection():
    connection, session = opened(Limits())
    connection.tick(45.0)
    assert session.state is State.PARKED
    assert session.deadline == 75.0
    connection.receive_eof(50.0)
    assert session.deadline == 75.0


def test_server_parks_the_session_of_a_lost_connection():
    connection, session = opened()
    connection.receive_eof(7.0)
    assert (session.state, session.deadline) == (State.PARKED, 37.0)
    assert connection.closing.code == 1006
    session.send("text", text="a")
    assert sent(connection) == []


@pytest.mark.parametrize(
    "receive",
    [
        lambda connection: connection.receive_text(text(1), 0.0),
        lambda connection: connection.receive_text(HELLO, 0.0),
        lambda connection: connection.receive_text(PING, 0.0),
        lambda connection: connection.receive_text("[", 0.0),
        lambda connection: connection.receive_audio(FRAME, 0.0),
        lambda connection: connection.receive_audio(b"", 0.0),
        lambda connection: connection.receive_eof(0.0),
        lambda connection: connection.receive_too_large(0.0),
        lambda connection: connection.end(Close(1001, "again")),
        lambda connection: connection.tick(1000.0),
    ],
)
def test_server_ignores_all_on_a_closed_connection(receive):
    connection, session = opened()
    session.close(1000, "done")
    connection.data_to_send()
    receive(connection)
    assert (sent(connection), connection.events()) == ([], [])
    assert connection.closing == Close(1000, "done")


def test_server_closes_a_peer_that_does_not_read_and_keeps_its_session():
    connection, session = opened(Limits(waiting_bytes=1000))
    for _ in range(20):
        session.send("text", text="x" * 100)
    assert connection.closing.code == 1008
    assert sent(connection) == []
    session.send("text", text="more")
    assert sent(connection) == []
    connection.receive_eof(3.0)
    assert session.deadline == 33.0
    newer, ok = resuming(session)
    assert ok
    assert [message["seq"] for message in sent(newer)] == list(range(22))


def test_server_ends_a_connection_without_a_session():
    connection = Connection(LIMITS, 0.0)
    connection.end(Close(1001, "going away"))
    assert connection.closing.code == 1001
    connection, _ = opened()
    with pytest.raises(LocalError):
        connection.end(Close(1001, "going away"))


def test_server_ends_a_session_whose_message_is_too_large_for_the_link_twice():
    connection, session = opened()
    connection.receive_too_large(0.0)
    assert session.state is State.PARKED
    connection, ok = resuming(session)
    assert ok
    connection.receive_too_large(1.0)
    assert session.state is State.CLOSED
    connection, ok = resuming(session)
    assert not ok
    assert errors(connection) == [("RESUME_FAILED", False, 0)]
    Connection(LIMITS, 0.0).receive_too_large(0.0)


# --- resuming


def test_server_resumes_a_parked_session():
    connection, session = opened()
    session.send("text", text="a")
    session.send("text", text="b")
    connection.receive_text(text(1), 0.0)
    connection.receive_eof(0.0)
    session.send("text", text="c")
    connection, ok = resuming(session, resume_from=1, now=29.0)
    assert ok
    ready, *rest = sent(connection)
    assert (ready["type"], ready["resumedFrom"], ready["sessionId"]) == ("ready", 1, "s-1")
    assert [(m["seq"], m["text"]) for m in rest] == [(2, "b"), (3, "c")]
    connection.receive_text(text(1), 30.0)
    connection.receive_text(text(2), 30.0)
    assert [event.message["seq"] for event in connection.events()] == [2]


def test_server_replaces_an_older_connection():
    older, session = opened()
    newer, ok = resuming(session)
    assert ok
    assert older.closing.code == 4000
    older.receive_eof(1.0)
    assert session.state is State.CONNECTED
    session.send("text", text="a")
    assert sent(older) == []
    assert len(sent(newer)) == 2


@pytest.mark.parametrize("reason", ["unknown", "foreign", "expired"])
def test_server_refuses_a_resume_without_telling_why(reason):
    connection, session = opened(principal="anna")
    if reason == "expired":
        connection.receive_eof(0.0)
    newer, ok = resuming(
        None if reason == "unknown" else session, principal="ben" if reason == "foreign" else "anna", now=30.0
    )
    assert not ok
    assert sent(newer) == [
        {
            "v": 1,
            "seq": 0,
            "type": "error",
            "code": "RESUME_FAILED",
            "recoverable": False,
            "message": "the session cannot be resumed",
        }
    ]
    assert newer.closing.code == 4404
    if reason == "foreign":
        assert session.state is State.CONNECTED
        assert connection.closing is None


def test_server_closes_a_session_that_cannot_be_resumed_from_there():
    older, session = opened()
    newer, ok = resuming(session, resume_from=1)
    assert not ok
    assert errors(newer) == [("RESUME_FAILED", False, 0)]
    assert (newer.closing.code, older.closing.code) == (4404, 4404)
    assert session.state is State.CLOSED


def test_server_keeps_early_messages_of_a_resume_in_order_behind_ready():
    connection, session = opened()
    connection.receive_eof(0.0)
    connection = opening(hello='{"v":1,"seq":0,"type":"hello","sessionId":"s-1"}')
    connection.receive_text(text(1), 0.0)
    assert connection.resume(session, None, 0.0)
    assert [event.message["seq"] for event in connection.events()] == [1]


def test_server_obeys_a_listener_that_closes_the_session_when_it_connects():
    session = None

    def close(state):
        if state is State.CONNECTED:
            session.close(1001, "no")

    connection = opening()
    session = Session("s-1", None, connection._hello, input=PCMU, output=PCMU, on_state=close)
    assert not connection.accept(session, 0.0)
    assert connection.closing == Close(1001, "no")
    assert [message["type"] for message in sent(connection)] == ["ready"]


# --- the table itself


def test_table_has_an_entry_for_whatever_a_peer_can_cause():
    by_peer = {Input.HELLO, Input.PING, Input.CONTROL, Input.AUDIO, Input.INVALID, Input.LOST, Input.ENDED}
    for stage, input_ in itertools.product(Stage, by_peer):
        assert (stage, input_) in Connection.TABLE
    assert {input_ for _, input_ in Connection.TABLE} == set(Input)


def test_table_never_leaves_closed_and_reaches_every_state():
    assert all(
        after is Stage.CLOSED
        for (before, _), (_, after) in Connection.TABLE.items()
        if before is Stage.CLOSED
    )
    assert {after for _, after in Connection.TABLE.values()} == set(Stage)


def test_a_missing_entry_is_our_error():
    with pytest.raises(LocalError, match="impossible while awaiting hello"):
        Connection(LIMITS, 0.0)._step(Input.OPENED, None)


# --- whole sessions over links that break


class Device:
    """A client by the letter of §4 and §5.4, and the server's side of its links, with frames in flight between."""

    def __init__(self):
        self.now = 0.0
        self.session = None
        self.connection = None
        self.ready = False
        self.failed = False
        self.last_seq = 0
        self.next_seq = 1
        self.kept = []
        self.up = []
        self.down = []
        self.heard = []
        self.told = []

    def connect(self):
        if self.connection is not None:
            return
        hello = {"v": 1, "seq": 0, "type": "hello"}
        if self.session is not None and self.session.state is not State.CLOSED:
            hello |= {"sessionId": "s-1", "resumeFrom": self.last_seq}
        self.connection = Connection(Limits(), self.now)
        self.up = [json.dumps(hello)]
        self.down = []

    def cut(self):
        """The link breaks: what is in flight is lost, and the server learns of it now."""
        if self.connection is not None:
            self.connection.receive_eof(self.now)
            self.connection, self.ready, self.up, self.down = None, False, [], []

    def silent_cut(self):
        """The device sees the break and the server does not."""
        self.connection, self.ready, self.up, self.down = None, False, [], []

    def say(self):
        frame = text(self.next_seq, f"up {self.next_seq}")
        self.kept.append((self.next_seq, frame))
        self.next_seq += 1
        if self.ready:
            self.up.append(frame)

    def hear(self):
        if self.session is not None:
            self.session.send("text", text=f"down {self.session.outbox.last + 1}")
            self.collect()

    def collect(self):
        if self.connection is not None:
            self.down += self.connection.data_to_send()

    def deliver_up(self):
        if self.connection is None or not self.up:
            return
        self.connection.receive_text(self.up.pop(0), self.now)
        for event in self.connection.events():
            if isinstance(event, Hello):
                if event.session_id is None:
                    self.session = Session("s-1", None, event, input=PCMU, output=PCMU)
                    assert self.connection.accept(self.session, self.now)
                else:
                    assert self.connection.resume(self.session, None, self.now)
            else:
                assert isinstance(event, Message), event
                self.told.append(event.message["text"])
        self.collect()

    def deliver_down(self):
        if self.connection is None or not self.down:
            return
        message = json.loads(self.down.pop(0))
        if message["type"] == "ready":
            self.ready = True
            if "resumedFrom" in message:
                self.kept = [(seq, frame) for seq, frame in self.kept if seq > message["resumedFrom"]]
            self.up += [frame for _, frame in self.kept]
        elif message["type"] == "ack":
            self.kept = [(seq, frame) for seq, frame in self.kept if seq > message["upTo"]]
        elif message["seq"] > self.last_seq:
            assert message["seq"] == self.last_seq + 1
            self.last_seq = message["seq"]
            self.heard.append(message["text"])

    def acknowledge(self):
        if self.ready:
            self.up.append(json.dumps({"v": 1, "seq": 0, "type": "ack", "upTo": self.last_seq}))

    def wait(self):
        self.now += 0.3
        if self.connection is not None:
            self.connection.tick(self.now)
            self.collect()

    def settle(self):
        for _ in range(3):
            self.connect()
            self.wait()
            while self.up or self.down:
                self.deliver_up()
                self.deliver_down()


ACTIONS = ["connect", "cut", "silent_cut", "say", "hear", "deliver_up", "deliver_down", "acknowledge", "wait"]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(ACTIONS), max_size=80))
def test_every_message_arrives_once_and_in_order_over_links_that_break(actions):
    device = Device()
    device.connect()
    device.deliver_up()  # a client that has never heard `ready` has no session to resume
    device.deliver_down()
    for action in actions:
        getattr(device, action)()
    device.settle()
    assert device.told == [f"up {n}" for n in range(1, device.next_seq)]
    assert device.heard == [f"down {n}" for n in range(1, device.session.outbox.last + 1)]
    assert device.kept == []
