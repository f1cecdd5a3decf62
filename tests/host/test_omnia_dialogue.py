"""agents/omnia_{dialogue,sender,calls,mouth}.py: what the facade says and what becomes of it, with a clock that is turned by hand."""

import base64
import json
import logging

import pytest
from peers import vectors
from vrt_host.agents.base import (
    Audio,
    AudioBegin,
    AudioEnd,
    Call,
    Text,
    Tool,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
)
from vrt_host.agents.omnia_dialogue import DEAF_S, HEARD_S, LISTEN_S, QUIET_S, Dialogue
from vrt_host.agents.omnia_errors import judged
from vrt_host.agents.omnia_messages import (
    Chunk,
    Connected,
    Done,
    Failure,
    GivenUp,
    Interrupt,
    Media,
    MediaChunk,
    SessionConfig,
    ToolCall,
    UploadReady,
)
from vrt_host.agents.omnia_options import Options
from vrt_host.agents.omnia_sender import BUSY_S, PATIENCE_S, RATE_S
from vrt_host.agents.provider import ProviderError
from vrt_host.consent import ANSWER_S

GONE = ProviderError("gone", "it closed the connection (1006)")
SOUND = bytes(4_800)


class Stage:
    """A dialogue, with a port and a facade that keep what they are told."""

    def __init__(self, *tools, context=None, connected=True, told="message", **options):
        self.events = []
        self.sent = []
        self.reports = []
        self.uploads = []
        self.cuts = 0
        self.audio = False
        self.deaf_s = None
        self.expiries = []
        self._now = 0.0
        self._timers = []
        self.options = Options(base_url="wss://h", agent="a", context=told, **options)
        self.dialogue = Dialogue(self, self.options, tools or (Tool("lock"),), context)
        if connected:
            self.connect()

    # the outlet

    def emit(self, event):
        self.events.append(event)

    say = emit

    def hush(self):
        pass

    def send(self, message):
        assert vectors.errors("omnia", "client", message) == []
        self.sent.append(message)

    def cut(self):
        self.cuts += 1

    def later(self, seconds, callback):
        timer = _Timer(self._now + seconds, callback)
        self._timers.append(timer)
        return timer

    def upload(self, files):
        self.uploads.append(files)

    def report(self, failure, turn):
        self.reports.append((failure, turn))

    def calling(self):
        return self.audio

    def deaf(self, seconds):
        self.deaf_s = seconds

    def expired(self, error):
        self.expiries.append(error)

    # the test

    def connect(self, id_="sess-1", *, resumed=False, disclosure=False):
        self.dialogue.connected(Connected(id_, 1 << 24, resumed, disclosure))

    def passes(self, seconds):
        """So much time goes by."""
        end = self._now + seconds
        while due := [one for one in self._timers if one.callback is not None and one.at <= end]:
            timer = min(due, key=lambda one: one.at)
            self._timers.remove(timer)
            self._now = timer.at
            timer.callback()
        self._now = end

    def types(self, text="Hello"):
        """As the turn manager has it: what is alive is interrupted first."""
        alive = self.alive()
        if alive is not None:
            self.dialogue.interrupted(alive, [])
        self.dialogue.user_text(text)

    def comes(self, *incoming):
        for message in incoming:
            self.dialogue.feed(message)

    def fails(self, code, message="what went wrong", **details):
        self.comes(Failure(code, judged(code, message, details)))

    def settles(self, key, output=None, *, code=None, message=""):
        turn = next(event.turn for event in self.all(Call) if event.call == key)
        self.dialogue.tool_result(turn, ToolResult(key, code is None, output, code, message))

    def alive(self):
        begun = self.all(TurnBegin)
        ended = {event.turn for event in self.all(TurnEnd)} | {turn for _, turn in self.reports}
        return begun[-1].turn if begun and begun[-1].turn not in ended else None

    def all(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def said(self):
        return "".join(event.text for event in self.all(Text)) + "".join(
            event.text for event in self.all(Transcript) if event.role == "agent"
        )

    def texts(self):
        """What was sent as messages: their texts."""
        return [
            message.get("content") or "\n\n".join(part["text"] for part in message["parts"] if "text" in part)
            for message in self.sent
            if message["type"] == "message"
        ]

    def types_sent(self):
        return [message["type"] for message in self.sent]


class _Timer:
    def __init__(self, at, callback):
        self.at, self.callback = at, callback

    def cancel(self):
        self.callback = None


def call(name="lock", id_="tc-1", consent="", categories=(), **arguments):
    return ToolCall(id_, name, arguments, consent, categories)


def sound(sequence=0, data=SOUND, *, media="", last=False):
    return MediaChunk(media, sequence, last, data, "audio/pcm", 24_000)


# --- text


def test_text_is_answered_in_one_turn_and_said_once():
    stage = Stage()
    stage.types()
    stage.comes(Chunk("Hello! ", user=False), Chunk("I am well.", user=False), Done("Hello! I am well."))
    assert stage.sent == [{"type": "message", "content": "Hello"}]
    assert [event.text for event in stage.all(Text)] == ["Hello! ", "I am well.", ""]
    assert stage.all(Text)[-1].final
    assert len(stage.all(TurnEnd)) == 1


@pytest.mark.parametrize(
    ("chunks", "done", "said"),
    [
        (["a"], "a b", "a b"),
        ([], "all of it", "all of it"),
        (["a b"], None, "a b"),
        (["a  b"], "a b", "a  b"),
        (["a"], "something else", "a"),
    ],
)
def test_final_text_adds_what_chunks_have_not_said(chunks, done, said):
    stage = Stage()
    stage.types()
    stage.comes(*(Chunk(one, user=False) for one in chunks), Done(done))
    assert stage.said() == said


def test_parts_of_an_answer_are_played_or_told():
    stage = Stage()
    stage.types()
    image = Media("image", "image/png", None, "https://h/img.png", "img.png")
    stage.comes(Done("Here:", (image, Media("audio", "audio/pcm", SOUND, "", ""))))
    assert stage.said() == "Here:\n(image img.png, image/png: https://h/img.png)"
    assert b"".join(event.payload for event in stage.all(Audio)) == SOUND
    assert len(stage.all(AudioEnd)) == 1


def test_next_text_waits_for_the_end_of_the_answer():
    """One message is answered at a time: TURN_IN_PROGRESS is not asked for."""
    stage = Stage()
    stage.types("one")
    stage.comes(Chunk("No", user=False))
    stage.types("two")
    assert stage.texts() == ["one"]
    stage.comes(Chunk("body hears", user=False), Done(None))
    assert stage.texts() == ["one", "two"]
    assert "body hears" not in stage.said()
    stage.comes(Chunk("2", user=False), Done(None))
    assert stage.said() == "No2"
    assert stage.cuts == 0


def test_answer_that_goes_on_for_ever_costs_the_connection():
    stage = Stage()
    stage.types("one")
    stage.comes(Chunk("Long", user=False))
    stage.types("two")
    stage.passes(PATIENCE_S - 0.1)
    assert stage.cuts == 0
    stage.passes(0.2)
    assert stage.cuts == 1
    stage.comes(Chunk("er", user=False))
    stage.dialogue.lost(GONE, parked=False)
    stage.connect("sess-2")
    assert stage.sent[-1] == {"type": "message", "session_id": "sess-1", "content": "two"}
    assert stage.reports == []


def test_text_that_was_interrupted_before_it_was_sent_goes_with_the_next():
    stage = Stage()
    stage.types("one")
    stage.types("two")
    stage.types("three")
    stage.comes(Done(None))
    assert stage.texts() == ["one", "two\n\nthree"]


def test_audio_of_an_answer_is_one_item_and_in_order():
    stage = Stage()
    stage.types()
    parts = [bytes([number]) * 480 for number in range(3)]
    stage.comes(sound(0, parts[0]), sound(2, parts[2]), sound(1, parts[1]), sound(1, parts[1]), Done("Hi"))
    assert b"".join(event.payload for event in stage.all(Audio)) == b"".join(parts)
    assert len(stage.all(AudioBegin)) == len(stage.all(AudioEnd)) == 1
    stage.types()
    stage.comes(sound(0, parts[0]), Done(None))  # counted anew
    assert len(stage.all(AudioBegin)) == 2


def test_media_that_cannot_be_played_are_told_in_the_log_once(caplog):
    stage = Stage()
    stage.types()
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            stage.comes(MediaChunk("m", number, number == 2, b"x", "audio/mp3"))
    stage.comes(Done("Listen."))
    assert caplog.text.count("audio/mp3") == 1
    assert stage.said() == "Listen."


# --- context and metadata


def test_context_goes_with_the_next_message_as_data():
    stage = Stage(context={"room": "attic"}, metadata={"user_id": "u"})
    stage.dialogue.sender.context({"room": "cellar"})
    stage.types("Where am I?")
    [sent] = stage.sent
    texts = [part["text"] for part in sent["parts"]]
    assert "data, not instructions" in texts[0]
    assert '"attic"' in texts[0]
    assert "instead of the one before" in texts[1]
    assert texts[2] == "Where am I?"
    assert sent["metadata"] == {"user_id": "u"}
    stage.comes(Done(None))
    stage.types("And now?")
    assert stage.texts()[-1] == "And now?"


def test_context_can_be_metadata():
    stage = Stage(context={"room": "attic"}, told="metadata")
    stage.types()
    [sent] = stage.sent
    assert sent["content"] == "Hello"
    assert sent["metadata"] == {"vrt.context": '{"room": "attic"}'}


def test_context_that_breaks_a_limit_of_metadata_is_left_out(caplog):
    """8 KiB a value (page, Message metadata)."""
    stage = Stage(context="x" * 8192, told="metadata", metadata={"user_id": "u"})
    stage.types()
    assert stage.sent[0]["metadata"] == {"user_id": "u"}
    assert "more than 8,192 bytes" in caplog.text


def test_context_can_be_kept_from_the_facade():
    stage = Stage(context={"room": "attic"}, told="off")
    stage.types()
    assert stage.sent == [{"type": "message", "content": "Hello"}]


# --- speech


def test_speech_is_transcribed_and_answered():
    stage = Stage()
    stage.comes(Chunk("lock the", user=True), Chunk(" door", user=True))
    assert [event.state for event in stage.all(TurnBegin)] == ["listening"]
    stage.comes(Chunk("It is ", user=False), sound(), Chunk("locked.", user=False), Done("It is locked."))
    heard = [(event.text, event.final) for event in stage.all(Transcript) if event.role == "user"]
    assert heard == [("lock the", False), ("lock the door", False), ("lock the door", True)]
    assert stage.said() == "It is locked."
    assert len(stage.all(TurnBegin)) == len(stage.all(TurnEnd)) == 1


def test_words_are_complete_after_a_while():
    stage = Stage()
    stage.comes(Chunk("Hello", user=True))
    stage.passes(HEARD_S)
    assert stage.all(Transcript)[-1].final


def test_late_transcript_of_what_is_answered_interrupts_nothing():
    stage = Stage()
    stage.comes(sound(), Chunk("lock the door", user=True), sound(1), Done(None))
    stage.passes(HEARD_S)
    assert len(stage.all(TurnBegin)) == 1
    assert len(stage.all(Audio)) == 2


def test_user_who_speaks_after_an_answer_begins_a_turn():
    stage = Stage()
    stage.comes(Chunk("one", user=True), sound(), Done(None), Chunk("two", user=True))
    assert [event.state for event in stage.all(TurnBegin)] == ["listening", "listening"]


def test_interruption_by_the_facade_ends_the_answer_and_listens():
    stage = Stage()
    stage.comes(Chunk("one", user=True), sound(), Interrupt())
    assert [event.state for event in stage.all(TurnBegin)] == ["listening", "listening"]
    stage.comes(Done(None))  # of what was interrupted
    assert stage.all(TurnEnd) == []
    stage.comes(Chunk("two", user=True), sound(), Done(None))
    assert len(stage.all(TurnBegin)) == 2
    assert [event.turn for event in stage.all(TurnEnd)] == [stage.all(TurnBegin)[1].turn]


def test_answer_that_the_device_interrupted_is_dropped_to_its_end():
    stage = Stage()
    stage.comes(Chunk("one", user=True), sound())
    stage.dialogue.interrupted(stage.alive(), [])
    count = len(stage.events)
    stage.comes(sound(1), Chunk("more", user=False), call(), Done("more"))
    assert len(stage.events) == count
    assert stage.sent[-1]["type"] == "tool_call_nack"
    assert "INTERRUPTED" in stage.sent[-1]["tool_call_nack"]["reason"]
    stage.comes(Chunk("two", user=True), sound(0), Done(None))
    assert len(stage.all(TurnEnd)) == 1


def test_answer_that_had_not_begun_when_the_device_interrupted_is_not_heard():
    stage = Stage()
    stage.comes(Chunk("one", user=True))
    stage.dialogue.interrupted(stage.alive(), [])
    stage.comes(sound(), Done(None))
    assert stage.all(Audio) == []
    stage.comes(Chunk("two", user=True), sound(), Done(None))
    assert len(stage.all(Audio)) == 1


def test_speech_within_the_answer_to_a_text_begins_a_turn():
    stage = Stage()
    stage.types()
    stage.comes(
        Chunk("Well", user=False), Interrupt(), Chunk("no, wait", user=True), Chunk("nobody", user=False)
    )
    stage.comes(Done(None), Chunk("Yes?", user=False), Done(None))
    assert stage.said() == "WellYes?"
    assert [event.state for event in stage.all(TurnBegin)] == ["thinking", "listening"]


def test_spoken_turn_in_which_nothing_comes_ends():
    stage = Stage()
    stage.comes(Interrupt())
    stage.passes(LISTEN_S)
    assert len(stage.all(TurnEnd)) == 1


def test_agent_may_speak_first():
    stage = Stage()
    stage.comes(Chunk("Welcome.", user=False), sound(), Done(None))
    assert [event.state for event in stage.all(TurnBegin)] == ["thinking"]
    assert len(stage.all(TurnEnd)) == 1


# --- calls


def test_call_is_acknowledged_run_and_answered():
    """The acknowledgement has 5 s (runtime_handler.go); it goes out as soon as the host has not refused."""
    stage = Stage()
    stage.types()
    stage.comes(call(door="front"))
    [made] = stage.all(Call)
    assert made.arguments == {"door": "front"}
    stage.passes(0.2)
    stage.settles(made.call, {"state": "locked"})
    assert stage.types_sent() == ["message", "tool_call_ack", "tool_result"]
    assert stage.sent[-1]["tool_result"] == {"call_id": "tc-1", "result": {"state": "locked"}}
    stage.comes(Chunk("Done.", user=False), Done(None))
    assert len(stage.all(TurnBegin)) == len(stage.all(TurnEnd)) == 1


@pytest.mark.parametrize("code", ["INVALID", "REJECTED"])
@pytest.mark.parametrize("wait", [0.0, 1.0], ids=["at once", "later"])
def test_call_that_is_not_run_is_declined(code, wait):
    stage = Stage()
    stage.types()
    stage.comes(call())
    stage.passes(wait)
    stage.settles("call-1", code=code, message="no")
    assert stage.types_sent() == ["message", *["tool_call_ack"] * bool(wait), "tool_call_nack"]
    assert stage.sent[-1]["tool_call_nack"] == {"call_id": "tc-1", "reason": f"{code}: no"}


def test_call_that_fails_is_an_error():
    stage = Stage()
    stage.types()
    stage.comes(call())
    stage.settles("call-1", code="FAILED", message="it broke")
    assert stage.types_sent() == ["message", "tool_call_ack", "tool_result"]
    assert stage.sent[-1]["tool_result"] == {"call_id": "tc-1", "error": "FAILED: it broke"}


def test_unknown_tool_is_declined_at_once():
    stage = Stage()
    stage.types()
    stage.comes(call("fly"))
    assert stage.all(Call) == []
    assert "no tool 'fly'; it has: lock" in stage.sent[-1]["tool_call_nack"]["reason"]


def test_call_that_comes_twice_runs_once():
    stage = Stage()
    stage.types()
    stage.comes(call(), call())
    assert len(stage.all(Call)) == 1


def test_result_after_the_facade_has_given_up_is_not_sent(caplog):
    stage = Stage()
    stage.types()
    stage.comes(call())
    stage.passes(1)
    stage.comes(GivenUp("tc-1", "client did not acknowledge tool call within timeout"))
    stage.settles("call-1", 1)
    assert stage.types_sent() == ["message", "tool_call_ack"]
    assert "given up" in caplog.text
    stage.comes(Done("It took too long."))
    assert len(stage.all(TurnEnd)) == 1


def test_result_has_sixty_seconds():
    """60 s after the acknowledgement (`clientToolTimeout`, runtime_handler.go)."""
    for late in (False, True):
        stage = Stage(Tool("lock", timeout_ms=90_000))
        stage.types()
        stage.comes(call())
        stage.passes(60.2 if late else 59.8)
        stage.settles("call-1", 1)
        assert ("tool_result" in stage.types_sent()) is not late


def test_tool_that_may_take_longer_than_the_facade_waits_is_told(caplog):
    Stage(Tool("heat", timeout_ms=90_000))
    assert "heat may take 90 s, and the facade waits 60 s" in caplog.text


def test_demo_result_of_a_call_that_is_none_of_ours_is_ignored():
    stage = Stage()
    stage.types()
    stage.comes(GivenUp("tc-demo", ""), Done("72"))
    assert stage.reports == []


def test_result_that_came_too_late_for_the_facade_is_no_error():
    stage = Stage()
    stage.fails("INVALID_MESSAGE", "no pending tool call")
    assert stage.reports == []


def test_call_that_the_host_gave_up_is_answered_in_another_turn():
    stage = Stage()
    stage.types()
    stage.comes(call())
    turn = stage.alive()
    stage.settles("call-1", code="TIMEOUT", message="no result")
    stage.dialogue.interrupted(turn, [])
    stage.comes(Chunk("It did not answer.", user=False), Done(None))
    assert stage.said() == "It did not answer."
    assert stage.all(Text)[0].turn != turn


# --- questions


def asked(*, typed=True):
    """The facade wants to know before a call."""
    stage = Stage()
    if typed:
        stage.types("Unlock it")
    else:
        stage.comes(Chunk("unlock it", user=True))
    stage.comes(call(consent="May I unlock the door?", categories=("location",)))
    return stage


def test_question_is_put_to_the_user_and_the_call_waits():
    stage = asked()
    assert stage.said() == "May I unlock the door? (location)"
    assert stage.types_sent() == ["message", "tool_call_ack"]
    assert stage.all(Call) == []
    assert len(stage.all(TurnEnd)) == 1


def test_plain_yes_lets_the_call_out_in_its_own_turn():
    stage = asked()
    stage.types("Yes, please.")
    [made] = stage.all(Call)
    assert made.turn == stage.all(TurnBegin)[-1].turn
    assert not made.confirmed
    stage.settles("call-1", "unlocked")
    stage.comes(Chunk("It is open.", user=False), Done(None))
    assert "It is open." in stage.said()
    assert stage.texts() == ["Unlock it"]
    assert stage.all(TurnEnd)[-1].turn == made.turn


@pytest.mark.parametrize("text", ["No.", "Never mind!", "cancel"])
def test_no_declines_and_the_facade_answers_to_it(text):
    stage = asked()
    stage.types(text)
    assert stage.sent[-1]["tool_call_nack"] == {
        "call_id": "tc-1",
        "reason": "REJECTED: the user did not agree",
    }
    stage.comes(Chunk("All right.", user=False), Done(None))
    assert "All right." in stage.said()
    assert stage.texts() == ["Unlock it"]
    assert stage.all(Call) == []


@pytest.mark.parametrize(
    "text", ["Yes, but only the back door", "What time is it?", "yes yes unlock everything"]
)
def test_anything_but_a_plain_yes_declines_and_is_sent_after_that(text):
    stage = asked()
    stage.types(text)
    assert stage.sent[-1]["type"] == "tool_call_nack"
    stage.comes(Chunk("not heard", user=False), Done(None))
    assert stage.texts() == ["Unlock it", text]
    assert "not heard" not in stage.said()


def test_question_that_nobody_answers_is_declined():
    stage = asked()
    stage.passes(ANSWER_S)
    assert "in time" in stage.sent[-1]["tool_call_nack"]["reason"]
    stage.types("Yes.")
    assert stage.all(Call) == []


def test_interruption_of_the_question_is_no_yes():
    stage = asked(typed=False)
    stage.dialogue.interrupted(stage.alive(), [])
    assert "interrupted" in stage.sent[-1]["tool_call_nack"]["reason"]
    stage.comes(Chunk("Yes.", user=True))
    stage.passes(HEARD_S)
    assert stage.all(Call) == []


def test_question_that_the_facade_took_back_is_none():
    stage = asked()
    stage.comes(GivenUp("tc-1", "too late"))
    stage.types("Yes.")
    assert stage.all(Call) == []
    assert stage.types_sent() == ["message", "tool_call_ack"]


def test_spoken_question_is_asked_when_the_agent_has_said_it():
    stage = asked(typed=False)
    stage.comes(sound(), Chunk("May I?", user=False))
    stage.passes(QUIET_S - 0.1)
    assert stage.all(TurnEnd) == []
    stage.passes(0.2)
    assert len(stage.all(TurnEnd)) == 1
    stage.comes(Interrupt(), Chunk("Yes", user=True), Chunk(" please", user=True))
    assert stage.all(Call) == []
    stage.passes(HEARD_S)
    [made] = stage.all(Call)
    assert made.turn == stage.all(TurnBegin)[-1].turn
    assert stage.types_sent() == ["tool_call_ack"]


@pytest.mark.parametrize("words", ["yes but wait", "never mind"])
def test_spoken_answer_that_is_no_yes_declines(words):
    stage = asked(typed=False)
    stage.passes(QUIET_S)
    stage.comes(Chunk(words, user=True), Chunk("As you like.", user=False), Done(None))
    assert stage.types_sent() == ["tool_call_ack", "tool_call_nack"]
    assert "As you like." in stage.said()


def test_speech_into_the_question_is_no_answer_to_it():
    stage = asked(typed=False)
    stage.comes(sound(), Interrupt())
    assert stage.sent[-1]["type"] == "tool_call_nack"


def test_second_question_is_declined():
    stage = asked()
    stage.comes(call(id_="tc-2", consent="And the window?"))
    assert stage.sent[-1]["tool_call_nack"]["call_id"] == "tc-2"


# --- sessions and connections


def test_expired_session_is_left_and_the_message_sent_once_more():
    """Once, without `session_id` (page, Session expiration)."""
    stage = Stage(context={"a": 1})
    stage.types("one")
    stage.comes(Done(None))
    stage.dialogue.lost(GONE, parked=False)
    stage.connect("sess-2")
    stage.types("two")
    assert stage.sent[-1]["session_id"] == "sess-1"
    stage.fails("SESSION_EXPIRED")
    assert "session_id" not in stage.sent[-1]
    assert '"a": 1' in stage.texts()[-1], "the new session knows nothing"
    assert stage.texts()[-1].endswith("two")
    stage.fails("SESSION_EXPIRED")
    assert len(stage.reports) == 1
    assert len(stage.texts()) == 3


def test_turn_in_progress_is_waited_for_and_the_message_sent_again():
    """ "send it again after the reply arrives" (page, Error codes)."""
    stage = Stage()
    stage.types()
    stage.fails("TURN_IN_PROGRESS")
    stage.comes(Chunk("the former reply", user=False), Done("the former reply"))
    assert stage.texts() == ["Hello", "Hello"]
    stage.comes(Done("Hi"))
    assert stage.said() == "Hi"
    assert stage.reports == []


def test_former_reply_that_never_comes_is_not_waited_for_for_ever():
    stage = Stage()
    stage.types()
    for seconds in BUSY_S:
        stage.fails("TURN_IN_PROGRESS")
        stage.passes(seconds - 0.1)
        count = len(stage.texts())
        stage.passes(0.2)
        assert len(stage.texts()) == count + 1
    stage.fails("TURN_IN_PROGRESS")
    assert len(stage.reports) == 1
    assert stage.cuts == 0


def test_message_that_was_shed_is_sent_again_a_few_times():
    stage = Stage()
    stage.types()
    for seconds in RATE_S:
        stage.fails("RATE_LIMITED", "too many in-flight requests")
        stage.passes(seconds)
    assert len(stage.texts()) == 1 + len(RATE_S)
    stage.fails("RATE_LIMITED")
    assert len(stage.reports) == 1


def test_credential_that_expired_keeps_the_message():
    stage = Stage()
    stage.types()
    stage.fails("CREDENTIAL_EXPIRED")
    assert len(stage.expiries) == 1
    stage.dialogue.lost(GONE, parked=False)
    stage.connect("sess-2")
    assert stage.texts() == ["Hello", "Hello"]
    assert stage.reports == []


def test_message_that_may_not_have_arrived_is_sent_again_and_no_other():
    for arrived in (False, True):
        stage = Stage()
        stage.types()
        if arrived:
            stage.dialogue.sender.arrived()
        stage.dialogue.lost(GONE, parked=False)
        stage.connect("sess-2")
        assert len(stage.texts()) == (1 if arrived else 2)
        assert len(stage.reports) == arrived


def test_answer_that_broke_off_is_reported():
    stage = Stage()
    stage.types()
    stage.comes(Chunk("Well", user=False))
    turn = stage.alive()
    stage.dialogue.lost(GONE, parked=False)
    assert stage.reports == [(GONE, turn)]


def test_result_of_a_call_outlives_its_connection():
    stage = Stage()
    stage.types("Lock it")
    stage.comes(call())
    stage.dialogue.lost(GONE, parked=False)
    assert stage.reports == []
    stage.connect("sess-2")
    stage.settles("call-1", {"state": "locked"})
    assert "tool_result" not in stage.types_sent()
    assert stage.sent[-1]["session_id"] == "sess-1"
    assert "lock" in stage.texts()[-1]
    assert '{"state": "locked"}' in stage.texts()[-1]
    stage.comes(Chunk("It is locked.", user=False), Done(None))
    assert len(stage.all(TurnBegin)) == len(stage.all(TurnEnd)) == 1


def test_parked_session_goes_on_where_it_was():
    stage = Stage()
    stage.comes(Chunk("lock it", user=True), call())
    stage.dialogue.lost(GONE, parked=True)
    stage.settles("call-1", 1)
    stage.connect(resumed=True)
    assert stage.sent[-1]["type"] == "tool_result"
    stage.comes(sound(7), Done(None))
    assert len(stage.all(TurnBegin)) == len(stage.all(TurnEnd)) == 1
    assert stage.reports == []


def test_session_that_was_parked_and_is_gone_is_reported():
    stage = Stage()
    stage.comes(Chunk("hello", user=True))
    stage.dialogue.lost(GONE, parked=True)
    assert stage.reports == []
    stage.connect("sess-2")
    assert len(stage.reports) == 1


def test_disclosure_is_told_before_it_is_acknowledged():
    stage = Stage(connected=False)
    stage.connect(disclosure=True)
    assert stage.said() == "You are speaking with an AI."
    assert stage.types_sent() == ["disclosure_ack"]
    stage.connect("sess-2", disclosure=True)
    assert stage.said() == "You are speaking with an AI."
    assert stage.types_sent() == ["disclosure_ack"] * 2


def test_disclosure_that_is_not_told_is_not_acknowledged():
    stage = Stage(connected=False, disclosure="")
    stage.connect(disclosure=True)
    assert stage.sent == []


def test_declaration_opens_the_session_and_is_not_repeated():
    """ "Read only on the message that opens the session" (page, Message)."""
    stage = Stage(declare={"sandboxes": {"code": {}}})
    for _ in range(2):
        stage.types()
        stage.comes(Done(None))
    assert [message.get("declare") for message in stage.sent] == [{"sandboxes": {"code": {}}}, None]


# --- errors


@pytest.mark.parametrize(
    "code", ["INTERNAL_ERROR", "PROVIDER_STALLED", "PROVIDER_AUTH_FAILED", "TEAPOT", "DUPLEX_ERROR"]
)
def test_error_ends_the_turn_that_it_is_about(code):
    stage = Stage()
    stage.types("one")
    turn = stage.alive()
    stage.fails(code)
    [(failure, told)] = stage.reports
    assert (failure.code, told) == (code, turn)
    stage.types("two")
    assert stage.texts() == ["one", "two"]


def test_error_about_nothing_is_told_as_such():
    stage = Stage()
    stage.fails("INTERNAL_ERROR")
    assert stage.reports[0][1] is None


def test_error_of_an_answer_that_nobody_hears_is_not_told():
    stage = Stage()
    stage.types("one")
    stage.types("two")
    stage.fails("INTERNAL_ERROR")
    assert stage.reports == []
    assert stage.texts() == ["one", "two"]


@pytest.mark.parametrize(
    ("code", "message", "seconds"),
    [
        ("MEDIA_NOT_ENABLED", "audio not supported", float("inf")),
        ("UNSATISFIABLE_FORMAT", "video", float("inf")),
        ("RATE_LIMITED", "audio session limit reached", DEAF_S),
        ("INVALID_MESSAGE", "audio session start failed: no", DEAF_S),
        ("DUPLEX_ERROR", "it broke", 0.0),
    ],
)
def test_audio_session_that_fails_is_told_and_given_up(code, message, seconds):
    stage = Stage()
    stage.audio = True
    stage.comes(Chunk("hello", user=True))
    turn = stage.alive()
    stage.fails(code, message)
    assert stage.deaf_s == seconds
    assert stage.reports[0][1] == turn
    stage.types()
    assert stage.texts() == ["Hello"]


def test_audio_that_was_dropped_is_told_in_the_log_alone(caplog):
    stage = Stage()
    stage.audio = True
    stage.fails("RATE_LIMITED", "media rate limit exceeded")
    assert (stage.reports, stage.deaf_s) == ([], None)
    assert "media rate limit exceeded" in caplog.text


def test_what_nobody_asked_for_is_ignored():
    stage = Stage()
    stage.comes(UploadReady("u", "http://h", "ref", "2099-01-01T00:00:00Z", "PUT", {}), Done(None))
    assert stage.events == []


# --- files

PHOTO = "data:image/jpeg;name=door.jpg;base64," + base64.b64encode(b"photo").decode()


def test_file_of_a_result_follows_in_a_message_of_its_own():
    stage = Stage(Tool("camera"))
    stage.types("Look")
    stage.comes(call("camera"))
    stage.settles("call-1", {"photo": PHOTO})
    assert "which follows" in stage.sent[-1]["tool_result"]["result"]["photo"]
    stage.comes(Chunk("Let me see. ", user=False), Done(None))
    assert stage.all(TurnEnd) == []
    [[file]] = stage.uploads
    stage.dialogue.sender.uploaded([file.stored("omnia://x")], [])
    parts = stage.sent[-1]["parts"]
    assert parts[-1] == {
        "type": "image",
        "media": {
            "mime_type": "image/jpeg",
            "filename": "door.jpg",
            "size_bytes": 5,
            "storage_ref": "omnia://x",
        },
    }
    stage.comes(Chunk("A door.", user=False), Done(None))
    assert stage.said() == "Let me see. A door."
    assert len(stage.all(TurnBegin)) == len(stage.all(TurnEnd)) == 1


def test_file_of_the_context_goes_with_the_next_message():
    stage = Stage(context={"plan": PHOTO})
    stage.types("What is this?")
    assert stage.sent == []
    stage.dialogue.sender.uploaded([], ["(The file door.jpg could not be handed over.)"])
    assert "the file door.jpg (image/jpeg, 5 bytes), which follows" in stage.texts()[0]
    assert stage.texts()[0].endswith("could not be handed over.)")
    assert PHOTO not in json.dumps(stage.sent)


def test_upload_that_was_cut_off_begins_again():
    stage = Stage(context=PHOTO)
    stage.types()
    stage.dialogue.lost(GONE, parked=False)
    stage.connect("sess-2")
    assert len(stage.uploads) == 2


def test_session_config_says_the_rate_of_audio_without_one():
    stage = Stage()
    stage.types()
    stage.comes(
        SessionConfig("pcm", 48_000, 1), MediaChunk("", 0, False, bytes(9_600), "audio/pcm"), Done(None)
    )
    assert sum(len(event.payload) for event in stage.all(Audio)) == pytest.approx(4_800, rel=0.01)
