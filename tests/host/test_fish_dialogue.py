"""The conversation of the agent `fish` without a room: the flows of schema/peers/fish, and what they do not have."""

import json

import pytest
from peers import vectors
from peers.plan import quiet, tone
from vrt_host.agents import fish_dialogue, fish_messages, fish_own, fish_sound, fish_turn
from vrt_host.agents.base import (
    AgentError,
    Audio,
    AudioBegin,
    AudioEnd,
    Call,
    OwnCall,
    OwnResult,
    Text,
    Tool,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
    TurnState,
)
from vrt_host.agents.fish_dialogue import Dialogue
from vrt_host.agents.fish_options import Options
from vrt_host.agents.fish_room import Mended, Over, Packet, Sound, State, Words
from vrt_host.agents.provider import ProviderError

LOUD = tone(0.01, "pcm16", 48_000)
QUIET = quiet(0.01, "pcm16", 48_000)
CALL = {"type": "client_tool.call", "callId": "c", "toolName": "lock", "params": {}, "expectsResponse": True}
STARTED = {"type": "tool.started", "callId": "c", "toolName": "w", "toolSource": "mcp", "input": "{}"}
COMPLETED = {"type": "tool.completed", "callId": "c", "toolName": "w", "toolSource": "mcp", "output": "{}"}
BROKEN = [
    b"",
    b"\xff",
    b"{",
    b"[]",
    b"1",
    b"{}",
    b'{"type": 1}',
    b"[" * 100_000,
    *(
        json.dumps({name: value for name, value in message.items() if name != left_out}).encode()
        for message in (CALL, STARTED, COMPLETED, {"type": "error", "code": "provider_error"})
        for left_out in message
        if left_out not in ("type", "output")
    ),
    *(
        json.dumps(CALL | wrong).encode()
        for wrong in ({"callId": 1}, {"params": []}, {"params": None}, {"expectsResponse": "yes"})
    ),
    *(json.dumps(CALL | {"params": {"x": float(number)}}).encode() for number in ("nan", "inf", "-inf")),
    b'{"type": "session.ended"}',
]
"""Packets that are not of the protocol: of every kind."""
STILL, LATE = round(100 * fish_dialogue.SETTLE_S), round(100 * fish_dialogue.LATE_S)


class Timer:
    def __init__(self, at, callback):
        self.at, self.callback = at, callback

    def cancel(self):
        self.callback = None


class Room:
    """The dialogue's surroundings, with a clock that the test moves; interrupts a turn that another one ends, as the turn manager does."""

    def __init__(self, *tools, **options):
        self.time = 0.0
        self.timers, self.events, self.sent = [], [], []
        self.alive = None
        self.wants = False
        options = Options(agent_id="a", **options)
        self.dialogue = Dialogue(self, options, [Tool(name) for name in tools])
        self.dialogue.joined()
        self.number = 0

    def now(self):
        return self.time

    def emit(self, event):
        self.events.append(event)
        if isinstance(event, TurnEnd):
            self.alive = None
        if isinstance(event, TurnBegin):
            before, self.alive = self.alive, event.turn
            if before is not None:
                self.dialogue.interrupted(before)

    def send(self, message):
        assert vectors.errors("fish", "client", fish_messages.encode(message)) == []
        self.sent.append(message)

    def later(self, seconds, callback):
        self.timers.append(Timer(self.time + seconds, callback))
        return self.timers[-1]

    def report(self, error, turn):
        self.events.append(error.event("fish", turn))
        if turn is not None and turn == self.alive:
            self.alive = None

    def wanted(self):
        self.wants = True

    def ended(self):
        self.events.append("ended")

    def passes(self, seconds):
        """Time."""
        until = self.time + seconds
        while due := [one for one in self.timers if one.callback and one.at <= until]:
            first = min(due, key=lambda one: one.at)
            self.time = max(self.time, first.at)
            callback, first.callback = first.callback, None
            callback()
        self.time = until

    def all(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def feeds(self, *happenings):
        for one in happenings:
            self.dialogue.feed(Packet(json.dumps(one).encode()) if isinstance(one, dict) else one)

    def types(self, text="Hello."):
        self.interrupts()
        self.dialogue.user_text(text)

    def interrupts(self):
        turn, self.alive = self.alive, None
        if turn is not None:
            self.dialogue.interrupted(turn)

    def says(self, *pieces, segment="SG_1", rests=True):
        self.feeds(State("thinking"), State("speaking"), Words(segment, False, ""))
        self.feeds(*(Words(segment, False, piece) for piece in pieces))
        if rests:
            self.feeds(Words(segment, False, "", closed=True), State("listening"))

    def gives(self, call, output=None, code=None):
        result = ToolResult(call.call, code is None, output, code, "words" if code else "")
        self.dialogue.tool_result(call.turn, result)

    def ends_own(self, id_):
        about = {"toolName": "weather", "toolSource": "mcp", "nodeId": "main"}
        self.feeds({"type": "tool.completed", "callId": id_, "output": "1", **about})

    def calls(self, name="lock", id_="c", **more):
        call = {
            "type": "client_tool.call",
            "callId": id_,
            "toolName": name,
            "params": {},
            "expectsResponse": True,
        }
        self.feeds(call | more)


def ready(*tools, **options):
    room = Room(*tools, **options)
    room.feeds(State("listening"))
    return room


# --- the flows


NOT_HERE = {
    "session.transport": "test_fish: creation of sessions",
    "session.expired": "test_fish: creation of sessions",
    "session.no-agent": "test_fish_room: joining",
    "session.hangup": "test_fish_room: ends",
    "turn.activity": "nothing that a device does is typing",
}
FLOWS = {
    id_: flow
    for id_, flow in vectors.load("fish").flows.items()
    if flow.get("player") != "client" and id_ not in NOT_HERE
}


@pytest.mark.parametrize("id_", FLOWS)
def test_flow(id_):
    flow = FLOWS[id_]
    expected = [step for step in flow["steps"] if "from" in step and step["from"] == "client"]
    tools = {
        step["message"]["toolName"]["$like"]
        for step in flow["steps"]
        if step.get("message", {}).get("type") == "client_tool.call"
    } - {"no_such_tool"}
    muted = any(step.get("message", {}).get("audio") is False for step in expected)
    room = Room(*tools, typed_audio=not muted, tool_events="tool_events" not in json.dumps(flow))
    script = vectors.Script(flow, "server")
    told = 0
    while not script.done:
        turn = script.next()
        if turn is not None:
            kind, value, step = turn
            server_does(room, kind, value, step)
            continue
        step = next(
            step
            for step in flow["steps"][script._at :]
            if (step.get("from") or step.get("join") or step.get("leave")) == "client"
        )
        if step.get("as") == "session_request":
            assert script.saw("message", room.dialogue._options.request(None), "session_request") is None
        elif "join" in step or "leave" in step:
            assert script.saw("join" if "join" in step else "leave", "client") is None
        else:
            if len(room.sent) == told:
                client_does(room, vectors.fill(step["message"], dict(script.bound)))
            assert len(room.sent) > told, f"nothing was sent for {step}"
            assert script.saw("message", room.sent[told]) is None, room.sent[told]
            told += 1
    assert len(room.sent) == told, room.sent
    for call in room.all(Call):
        room.gives(call)  # one of which nobody wants to know
    assert len(room.sent) == told
    room.passes(40)
    assert room.alive is None, "the turn does not end"


def server_does(room, kind, value, step):
    if kind == "text":
        room.feeds(Packet(value.encode() if isinstance(value, str) else value))
    elif kind == "message" and step.get("as") == "agent_state":
        room.feeds(State(value["lk.agent.state"]))
    elif kind == "message" and step.get("as") == "transcription":
        segment, user = value["attributes"]["lk.segment_id"], value["sender"] == "user"
        if user:
            final = value["attributes"].get("lk.transcription_final") == "true"
            room.feeds(Words(segment, True, "".join(value["chunks"]), final))
            return
        room.feeds(Words(segment, False, ""), *(Words(segment, False, one) for one in value["chunks"]))
        if not step.get("open"):
            room.feeds(Words(segment, False, "", closed=True))
    elif kind == "message" and step.get("as") is None:
        room.feeds(value)


def client_does(room, message):
    match message["type"]:
        case "user.message":
            room.types("What's my balance?")
        case "user.interrupt":
            room.interrupts()
        case "client_tool.result":
            open_ = [one for one in room.all(Call) if one.call in room.dialogue._calls]
            by_id = [one for one in open_ if room.dialogue._calls[one.call].id == message["callId"]]
            room.gives((by_id or open_)[0], {"opened": True}, "FAILED" if message.get("isError") else None)


# --- turns


def test_text_waits_for_the_agents_first_state():
    room = Room()
    room.types(" Hello. ")
    room.dialogue.user_text("   ")
    assert room.sent == []
    room.feeds(State("initializing"))
    assert room.sent == [{"type": "user.message", "text": "Hello."}]
    room.feeds(State("listening"), State("listening"))  # which it would be without it, too
    room.passes(fish_dialogue.ANSWER_S - 1)
    assert room.alive == "turn-1"
    room.says("Yes.")
    room.passes(fish_dialogue.LATE_S)
    assert [one.turn for one in room.all(TurnEnd)] == ["turn-1"]


def test_sound_begins_with_the_first_that_is_loud_and_ends_with_the_turn():
    room = ready()
    room.types()
    room.feeds(Sound(LOUD))
    assert room.all(AudioBegin) == []
    room.says("Yes.")
    room.feeds(Sound(QUIET), Sound(LOUD), *[Sound(QUIET)] * STILL)
    assert [type(one) for one in room.events[-4:]] == [Audio, AudioEnd, Transcript, TurnEnd]
    assert [one.payload for one in room.all(Audio)] == [LOUD]


def test_pause_of_less_than_300_ms_is_heard_and_what_waits_to_be_read_is_none():
    room = ready()
    room.types()
    room.says("Yes.", rests=False)
    room.feeds(Sound(LOUD), Words("SG_1", False, "", closed=True), State("listening"))
    room.passes(fish_dialogue.LATE_S - 0.1)
    room.feeds(*[Sound(QUIET)] * (STILL - 1), Sound(LOUD))
    assert b"".join(one.payload for one in room.all(Audio)) == LOUD + (STILL - 1) * QUIET + LOUD
    room.feeds(*[Sound(QUIET)] * (STILL - 1))
    assert room.all(TurnEnd) == []
    room.passes(fish_dialogue.LATE_S - 0.1)
    assert room.all(TurnEnd) == []
    room.passes(0.2)  # a track that gives nothing, not even quiet
    assert len(room.all(TurnEnd)) == 1


def test_sound_that_comes_late_is_waited_for():
    room = ready()
    room.types()
    room.says("Yes.")
    room.feeds(*[Sound(QUIET)] * (LATE - 1))
    assert room.all(TurnEnd) == []
    room.feeds(Sound(QUIET))
    assert len(room.all(TurnEnd)) == 1


@pytest.mark.parametrize("closed", [True, False])
def test_what_is_said_before_a_call_is_over_while_the_call_runs(closed):
    """Else the device, which plays silence, would not take a press of its button for a confirmation."""
    room = ready("lock")
    room.types()
    room.calls()
    room.says("Hold the button.", rests=False)
    room.feeds(*[Sound(LOUD), Sound(QUIET)] * 3)
    assert room.all(AudioEnd) == []
    if closed:
        room.feeds(Words("SG_1", False, "", closed=True))
    room.feeds(*[Sound(QUIET)] * STILL)
    assert len(room.all(AudioEnd)) == 1
    room.feeds(*[Sound(QUIET)] * STILL)
    assert sum(len(one.payload) for one in room.all(Audio)) == 5 * len(LOUD)
    room.gives(room.all(Call)[0], 1)
    room.says("It is open.", segment="SG_2" if closed else "SG_1")
    room.feeds(*[Sound(QUIET)] * (LATE - 1), Sound(LOUD), *[Sound(QUIET)] * STILL)
    assert [type(one) for one in room.events[-3:]] == [AudioEnd, Transcript, TurnEnd]
    assert len(room.all(AudioBegin)) == 2


@pytest.mark.parametrize("sign", [State("speaking"), Words("SG_2", False, "Yes.")])
def test_sound_of_what_is_said_next_in_a_turn_is_waited_for_too(sign):
    room = ready("lock")
    room.types()
    room.calls()
    room.says("Wait.", rests=False)
    room.feeds(Sound(LOUD), Words("SG_1", False, "", closed=True), *[Sound(QUIET)] * STILL)
    room.gives(room.all(Call)[0], 1)
    room.feeds(sign, Words("SG_2", False, "", closed=True), State("listening"))
    room.feeds(*[Sound(QUIET)] * (LATE - 1))
    assert room.all(TurnEnd) == []
    room.feeds(Sound(LOUD), *[Sound(QUIET)] * STILL)
    assert len(room.all(AudioBegin)) == 2
    assert len(room.all(TurnEnd)) == 1


def test_agent_that_tells_no_words_may_pause():
    room = ready()
    room.feeds(State("speaking"), Sound(LOUD), *[Sound(QUIET)] * 2 * LATE, Sound(LOUD))
    assert room.all(AudioEnd) == []
    room.feeds(State("idle"), *[Sound(QUIET)] * STILL)
    assert [type(one) for one in room.events[-2:]] == [AudioEnd, TurnEnd]


def test_sound_of_which_nothing_comes_is_given_up_after_1_5_s():
    room = ready()
    room.types()
    room.says("Yes.")
    room.passes(fish_dialogue.LATE_S - 0.1)
    assert room.all(TurnEnd) == []
    room.passes(0.2)
    assert len(room.all(TurnEnd)) == 1


def test_what_comes_after_an_interruption_is_nobodys_and_the_next_text_waits_for_its_end():
    room = ready("lock")
    room.types()
    room.says("This is ", rests=False)
    room.types("Stop.")
    room.feeds(Words("SG_1", False, "over."), Sound(LOUD))
    room.calls()
    assert [one["type"] for one in room.sent] == ["user.message", "user.interrupt", "client_tool.result"]
    assert "INTERRUPTED" in room.sent[-1]["result"]
    room.feeds(State("listening"))
    assert room.sent[-1]["type"] != "user.message"
    room.feeds(Words("SG_1", False, "", closed=True))
    assert room.sent[-1]["text"] == "Stop."
    assert "over" not in "".join(one.text for one in room.all(Transcript))


def test_agent_that_does_not_rest_after_an_interruption_is_not_waited_for():
    room = ready()
    room.types()
    room.says("This is ", rests=False)
    room.types("Stop.")
    room.passes(fish_dialogue.MUTED_S)
    assert room.sent[-1]["text"] == "Stop."


def test_rest_of_what_was_interrupted_is_not_heard_when_the_agent_goes_on_with_it():
    room = ready()
    room.types()
    room.says("This is ", rests=False)
    room.passes(3)
    room.types("Stop.")
    room.passes(fish_dialogue.MUTED_S)
    room.feeds(Sound(LOUD), State("listening"), Words("SG_1", False, "", closed=True), Sound(LOUD))
    room.says("Yes.", segment="SG_2", rests=False)
    room.feeds(Sound(LOUD))
    assert room.all(AudioBegin) == []


@pytest.mark.parametrize("gap", [0, 4])
def test_rest_of_what_was_interrupted_is_not_heard_in_the_next_answer(gap):
    room = ready()
    room.types()
    room.says("This is ", rests=False)
    room.feeds(Sound(LOUD))
    room.types("Stop.")
    room.feeds(State("listening"), Words("SG_1", False, "", closed=True))
    room.says("Yes.", segment="SG_2", rests=False)
    heard = len(room.all(Audio))
    room.feeds(Sound(LOUD))
    assert len(room.all(Audio)) == heard
    room.feeds(*[Sound(QUIET)] * gap, *[Sound(LOUD)] * (0 if gap else round(100 * fish_sound.RESIDUE_S) - 1))
    assert len(room.all(Audio)) == heard
    room.feeds(Sound(LOUD))
    assert len(room.all(Audio)) == heard + 1


def test_user_is_heard_piece_by_piece_and_answered_in_the_same_turn():
    room = ready()
    room.feeds(Words("U", True, "lock the"), Words("U", True, "lock the door", True))
    room.says("Done.")
    room.passes(2)
    assert [(one.text, one.final) for one in room.all(Transcript) if one.role == "user"] == [
        ("lock the", False),
        ("lock the door", True),
    ]
    assert len(room.all(TurnBegin)) == 1
    assert room.alive is None


def test_barge_in_begins_a_turn_and_words_that_come_late_do_not():
    room = ready()
    room.says("Good ", rests=False)
    room.feeds(Words("U", True, "Hi.", True))
    assert len(room.all(TurnBegin)) == 1
    assert room.all(TurnState) == []
    room.feeds(Words("U2", True, "Wait"))
    assert len(room.all(TurnBegin)) == 2


def test_answer_in_text_alone_is_text():
    room = ready(typed_audio=False)
    room.types()
    assert room.sent == [{"type": "user.message", "text": "Hello.", "audio": False}]
    room.feeds(
        State("thinking"), Words("SG", False, "Yes."), Words("SG", False, "", closed=True), State("idle")
    )
    room.passes(fish_dialogue.SETTLE_S)
    assert [(one.text, one.final) for one in room.all(Text)] == [("Yes.", False), ("", True)]


def test_turn_without_an_answer_is_given_up_after_30_s():
    room = ready()
    room.types()
    room.passes(fish_dialogue.ANSWER_S - 1)
    assert room.all(AgentError) == []
    room.passes(1)
    assert "30 s" in room.all(AgentError)[0].message


def test_what_was_lost_while_the_connection_was_mended_is_told():
    room = ready()
    room.types()
    room.feeds(Mended())
    assert "for a moment" in room.all(AgentError)[0].message


# --- calls


def test_call_that_comes_twice_runs_once_and_one_that_wants_no_answer_gets_none():
    room = ready("lock")
    room.calls(expectsResponse=False)
    room.calls(expectsResponse=False)
    (call,) = room.all(Call)
    room.gives(call, 1)
    room.calls()  # once more, when it is settled
    assert room.all(Call) == [call]
    assert room.sent == []
    room.dialogue.over(lost())
    room.dialogue.joined()  # another session, with ids of its own
    room.calls()
    assert len(room.all(Call)) == 2


def test_ids_of_64_calls_and_ends_are_remembered():
    room = ready("lock")
    for number in range(99):
        room.calls(id_=f"c{number}")
        room.ends_own(f"o{number}")
    assert len(room.dialogue._called) == fish_dialogue._CALLED == 64
    assert len(room.dialogue._own._ended) == fish_own._REMEMBERED == 64


def test_interruption_before_within_and_after_a_call():
    room = ready("lock")
    room.types()
    room.feeds(State("thinking"))
    room.interrupts()
    room.calls(id_="before")
    room.feeds(State("listening"))
    room.types()
    room.calls(id_="within")
    room.gives(room.all(Call)[0], code="INTERRUPTED")  # by the turn manager
    room.interrupts()
    room.feeds(State("listening"))
    room.types()
    room.calls(id_="after")
    room.gives(room.all(Call)[1], 1)
    room.interrupts()
    room.says("It is locked.", rests=False)
    assert room.alive is None
    sent = [(one["type"], one.get("callId")) for one in room.sent if one["type"] != "user.message"]
    assert sent == [
        ("user.interrupt", None),
        ("client_tool.result", "before"),
        ("client_tool.result", "within"),
        ("user.interrupt", None),
        ("client_tool.result", "after"),
        ("user.interrupt", None),
    ]
    failed = [one["result"].split(":")[0] for one in room.sent if one.get("isError")]
    assert failed == ["INTERRUPTED"] * 2


def test_result_after_30_s_is_not_sent():
    """Page, client_tool.call: 30 s, which the agent waits by default; 1 to 120 s, as is configured there."""
    for given, waits_s in (({}, 30), ({"tool_timeout_s": 1}, 1), ({"tool_timeout_s": 120}, 120)):
        room = ready("lock", **given)
        room.calls(id_="in time")
        room.passes(waits_s)
        room.gives(room.all(Call)[0], 1)
        room.calls(id_="late")
        room.passes(waits_s + 0.1)
        room.gives(room.all(Call)[1], 1)
        assert [one["callId"] for one in room.sent] == ["in time"]


@pytest.mark.parametrize(("size", "fails"), [(59_946, False), (59_947, True)])
def test_result_has_60000_bytes(size, fails):
    """`toolDispatcher.ts`: 60,000 bytes of the whole message."""
    room = ready("lock")
    room.calls()
    room.gives(room.all(Call)[0], "a" * size)
    assert room.sent[0].get("isError", False) is fails
    assert not fails or "too large" in room.sent[0]["result"]


def test_tool_that_the_device_has_not_is_an_error():
    room = ready("lock")
    room.calls("fly")
    assert room.sent[0]["isError"] is True
    assert "not registered" in room.sent[0]["result"]
    assert room.all(Call) == []


def test_payload_of_more_than_4_kb_is_shown_as_far_as_it_was_sent():
    """Page, "Tool lifecycle": cut at the source at 4 KB, so that it is no JSON any more."""
    room = ready()
    room.types()
    cut = json.dumps({"text": "a" * 5_000})[:4_096]
    room.feeds(STARTED | {"nodeId": "main", "input": cut, "inputTruncated": True})
    (shown,) = room.all(OwnCall)
    assert shown.arguments == {"input": cut}


def test_own_tools_are_shown_in_a_turn_and_what_is_cut_is_shown_as_it_is():
    room = ready()
    about = {"toolName": "weather", "toolSource": "mcp", "nodeId": "main"}
    room.feeds({"type": "tool.started", "callId": "0", "input": "{}", **about})
    room.types()
    room.feeds({"type": "tool.started", "callId": "1", "input": '{"a": [', "inputTruncated": True, **about})
    room.feeds({"type": "tool.failed", "callId": "1", "error": "no", **about})
    room.feeds({"type": "tool.failed", "callId": "1", "error": "no", **about})  # there is one end of each
    room.ends_own("2")
    assert [one.arguments for one in room.all(OwnCall)] == [{"input": '{"a": ['}, {}]
    assert [one.code for one in room.all(OwnResult)] == ["FAILED", None]


def test_tools_of_the_device_and_of_the_background_are_not_shown_and_each_session_has_its_own_ids():
    room = ready()
    room.types()
    for source in ("client", "background"):
        room.feeds(STARTED | {"callId": source, "toolSource": source, "nodeId": "main"})
    assert room.all(OwnCall) == []
    room.ends_own("1")
    room.dialogue.over(lost())
    room.dialogue.joined()
    room.types()
    room.ends_own("1")
    assert len(room.all(OwnCall)) == 2


def test_why_a_tool_failed_is_cut_at_2000_characters():
    room = ready("lock")
    room.calls()
    call = room.all(Call)[0]
    room.dialogue.tool_result(call.turn, ToolResult(call.call, False, None, "FAILED", "a" * 9_000))
    assert len(room.sent[0]["result"]) == 2_000


def test_call_that_is_overdue_is_answered_in_another_turn():
    """The host ends a turn whose call took too long; what the agent says to that is to be heard."""
    room = ready("lock")
    room.types()
    room.calls()
    room.gives(room.all(Call)[0], code="TIMEOUT")
    room.interrupts()
    assert "user.interrupt" not in [one["type"] for one in room.sent]
    room.says("It takes long.")
    assert room.alive == "turn-2"
    room.passes(fish_dialogue.LATE_S)
    assert room.alive is None


def test_malformed_packets_are_told_once_and_unknown_ones_never():
    room = ready()
    room.feeds({"type": "agent.telepathy"}, State("dreaming"))
    assert room.all(AgentError) == []
    for data in BROKEN:
        room.feeds(Packet(data))
    assert len(room.all(AgentError)) == 1
    room.types()
    assert room.sent[-1]["type"] == "user.message"


@pytest.mark.parametrize("data", BROKEN)
def test_each_kind_of_malformed_packet_is_told_and_nothing_comes_of_it(data):
    room = ready("lock")
    room.feeds(Packet(data))
    (error,) = room.events
    assert "malformed" in error.message or "it sent a" in error.message
    assert error.recoverable
    assert room.sent == []


def test_session_that_the_agent_says_it_ends_is_left():
    room = ready()
    room.feeds({"type": "session.ended", "reason": "a new one"})
    assert room.events == ["ended"]


@pytest.mark.parametrize("code", ["provider_error", "internal_error", "later"])
def test_error_ends_the_turn_and_not_the_session(code):
    room = ready()
    room.types()
    room.feeds({"type": "error", "code": code})
    (error,) = room.all(AgentError)
    assert error.recoverable
    assert error.turn == "turn-1"


# --- sessions


def lost(hung_up=False):
    return Over(ProviderError("gone", "it is over"), hung_up)


def test_next_session_is_told_what_was_said_and_the_context():
    room = ready()
    room.types("Remember 5501.")
    room.says("I ", "will.")
    room.passes(2)
    room.dialogue.over(lost())
    room.dialogue.context({"room": "hall"})
    room.dialogue.joined()
    room.types("And?")
    room.feeds(State("listening"))
    text = room.sent[-1]["text"]
    assert text.startswith("(What was said before")
    assert "Remember 5501." in text
    assert "I will." in text
    assert '{"room": "hall"}' in text
    assert text.endswith("And?")
    assert room.all(AgentError) == []


def test_text_of_which_no_sign_came_is_said_to_the_next_session_once():
    room = ready()
    room.types("Lost?")
    room.dialogue.over(lost())
    assert room.dialogue.waiting
    room.dialogue.joined()
    room.feeds(State("listening"))
    assert room.sent[-1]["text"].endswith("Lost?")
    room.dialogue.over(lost())
    assert len(room.all(AgentError)) == 1


def test_text_that_the_agent_has_begun_to_answer_is_not_said_again():
    room = ready()
    room.types()
    room.feeds(State("thinking"))
    room.dialogue.over(lost())
    assert not room.dialogue.waiting
    assert len(room.all(AgentError)) == 1
    room.dialogue.joined()
    room.types("And?")
    room.feeds(State("listening"))
    assert room.sent[-1]["text"].count("Hello.") == 1  # as what was said before


def test_result_after_the_end_of_a_session_is_told_to_the_next():
    room = ready("lock")
    room.types()
    room.calls()
    room.dialogue.over(lost())
    room.gives(room.all(Call)[0], {"state": "locked"})
    assert room.wants
    room.dialogue.joined()
    room.feeds(State("listening"))
    assert "locked" in room.sent[-1]["text"]
    room.says("It is.")
    room.passes(2)
    assert room.alive is None


def test_answer_that_broke_off_is_told_and_one_after_which_the_agent_hung_up_is_complete():
    for hung_up in (False, True):
        room = ready()
        room.types()
        room.says("Bye.", rests=False)
        room.dialogue.over(lost(hung_up))
        assert len(room.all(AgentError)) == (not hung_up)
        assert len(room.all(TurnEnd)) == hung_up


def test_what_waits_for_the_next_session_is_bounded():
    room = Room()
    for number in range(99):
        room.dialogue.context(number)
        room.types(f"Text {number}.")
    assert len(room.dialogue._held) == fish_dialogue._HELD
    assert len(room.dialogue._untold) == fish_dialogue._TOLD
    room = ready()
    for number in range(99):
        room.feeds(Words(f"U{number}", True, f"Text {number}.", True))
    assert room.dialogue._said.told().count("user: ") == fish_turn._SAID


def test_text_of_more_than_60000_bytes_is_not_sent():
    room = ready()
    room.types("a" * 60_000)
    assert room.sent == []
    assert "60,000" in room.all(AgentError)[0].message


def test_user_who_goes_on_before_an_answer_stays_in_the_same_turn():
    room = ready()
    room.feeds(Words("U1", True, "Lock the door.", True), Words("U2", True, "And the window.", True))
    assert len(room.all(TurnBegin)) == 1


def test_state_of_before_a_result_does_not_end_the_turn():
    room = ready("lock")
    room.types()
    room.calls()
    room.gives(room.all(Call)[0], 1)
    room.passes(fish_dialogue.ANSWER_S - 1)
    assert room.all(TurnEnd) == []
    room.says("Done.")
    room.passes(2)
    assert len(room.all(TurnEnd)) == 1
