"""agents/openai_session.py and what it is made of: a Realtime model's events, frame by frame, and what is answered to them."""

import base64

import pytest
from vrt_host.agents.base import (
    PCMU,
    Audio,
    AudioBegin,
    AudioEnd,
    Call,
    Heard,
    Text,
    Tool,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
    TurnState,
)
from vrt_host.agents.model_tools import ToolNames
from vrt_host.agents.openai_history import declarations, heard_part
from vrt_host.agents.openai_session import Dialogue
from vrt_host.agents.provider import ProviderError

TOOLS = [Tool("lock"), Tool("a.b"), Tool("a b" * 40)]
SECOND = base64.b64encode(bytes(8000)).decode()
GONE = ProviderError("gone", "the server closed the connection")


class Stage:
    """A dialogue, what it emitted, what it sent since it was last asked, and what it told of errors."""

    def __init__(self, *, transcribed=False):
        self.events, self._sent, self.told, self.noted, self.timers = [], [], [], [], []
        self.lines = []
        self.dialogue = Dialogue(
            self.events.append,
            ToolNames(TOOLS),
            PCMU,
            later=lambda seconds, work: self.timers.append(work),
            told=self.tell,
            noted=lambda error: self.noted.append(error.said),
        )
        self.dialogue.ready(self._sent.append, transcribed=transcribed)

    def tell(self, error, turn):
        self.told.append((error.kind, turn))
        self.lines.append(error.line("openai"))

    def sent(self, *kinds):
        """The messages since the last time, of these kinds if some are given."""
        sent, self._sent[:] = list(self._sent), []
        return [one for one in sent if not kinds or one["type"] in kinds]

    def again(self):
        self.dialogue.ready(self._sent.append, transcribed=False)

    def hear(self, kind, **members):
        self.dialogue.feed({"type": kind, "event_id": "e", **members})

    def all(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    # --- frames in the server's shapes

    def created(self, id_="r1", turn=None):
        metadata = None if turn is None else {"turn": turn}
        self.hear("response.created", response={"id": id_, "status": "in_progress", "metadata": metadata})

    def done(self, id_="r1", status="completed", **members):
        self.hear("response.done", response={"id": id_, "status": status, "output": [], **members})

    def audio(self, id_="r1", item="i1", delta=SECOND):
        at = {"response_id": id_, "item_id": item, "output_index": 0, "content_index": 0}
        self.hear("response.output_audio.delta", delta=delta, **at)

    def audio_done(self, id_="r1", item="i1"):
        self.hear("response.output_audio.done", response_id=id_, item_id=item, content_index=0)

    def says(self, words, id_="r1", item="i1"):
        self.hear("response.output_audio_transcript.delta", delta=words, response_id=id_, item_id=item)

    def call(self, id_="r1", call="c1", name="lock", arguments="{}"):
        item = {"id": f"item-{call}", "type": "function_call", "call_id": call, "name": name}
        self.hear("response.output_item.added", response_id=id_, item={**item, "arguments": ""})
        of = {"response_id": id_, "item_id": item["id"], "call_id": call}
        self.hear("response.function_call_arguments.delta", delta=arguments, **of)
        self.hear("response.function_call_arguments.done", name=name, arguments=arguments, **of)
        self.hear("response.output_item.done", response_id=id_, item={**item, "arguments": arguments})

    def speech(self, item="u1", *, commit=True):
        self.hear("input_audio_buffer.speech_started", item_id=item, audio_start_ms=0)
        if commit:
            self.hear("input_audio_buffer.speech_stopped", item_id=item, audio_end_ms=900)
            self.hear("input_audio_buffer.committed", item_id=item)


@pytest.fixture(name="stage")
def a_stage():
    return Stage()


@pytest.fixture(name="answering")
def answering_a_text(stage):
    """The model answers a text: response r1, one second of audio in i1."""
    stage.dialogue.user_text("Hello")
    stage.created(turn="turn-1")
    stage.says("one two three four")
    stage.audio()
    stage.sent()
    return stage


# --- turns and responses


def test_spoken_turn_begins_with_the_servers_ear(stage):
    stage.speech()
    stage.created()
    stage.audio()
    stage.audio_done()
    stage.done()
    assert [type(event) for event in stage.events] == [
        TurnBegin,
        TurnState,
        AudioBegin,
        Audio,
        AudioEnd,
        TurnEnd,
    ]
    assert stage.events[0] == TurnBegin("turn-1", "listening")
    assert stage.sent() == [], "the server answers by itself"


def test_second_response_waits_for_the_end_of_the_first(answering):
    answering.dialogue.interrupted("turn-1", [])
    answering.dialogue.user_text("And now?")
    assert answering.sent("response.create") == []
    answering.done(status="cancelled")
    assert answering.sent("response.create")[0]["response"]["metadata"] == {"turn": "turn-2"}


def test_response_that_the_server_began_first_is_let_pass(stage):
    stage.dialogue.user_text("Hello")
    about = stage.sent("response.create")[0]["event_id"]
    code = "conversation_already_has_active_response"
    stage.hear("error", error={"type": "invalid_request_error", "code": code, "event_id": about})
    assert stage.told == []
    stage.created("r0", turn="an old one")
    stage.done("r0")
    assert len(stage.sent("response.create")) <= 1


def test_response_without_metadata_belongs_to_what_was_asked(stage):
    stage.dialogue.user_text("Hello")
    stage.created()
    stage.audio()
    assert stage.all(Audio)[0].turn == "turn-1"


def test_response_of_an_interrupted_turn_is_cancelled_as_it_begins(stage):
    stage.dialogue.user_text("Hello")
    stage.dialogue.interrupted("turn-1", [])
    assert stage.sent("response.cancel") == []
    stage.created(turn="turn-1")
    assert [one["response_id"] for one in stage.sent("response.cancel")] == ["r1"]
    stage.audio()
    assert stage.all(Audio) == []


def test_utterance_whose_turn_was_ended_by_something_else_is_answered_in_a_new_one(stage):
    stage.speech(commit=False)
    stage.dialogue.interrupted("turn-1", [])
    stage.hear("input_audio_buffer.speech_stopped", item_id="u1", audio_end_ms=900)
    stage.hear("input_audio_buffer.committed", item_id="u1")
    stage.created()
    stage.audio()
    assert stage.all(Audio)[0].turn == "turn-2"
    assert stage.sent("response.cancel") == []


def test_answer_to_speech_that_was_interrupted_before_it_began_is_not_wanted(stage):
    stage.speech()
    stage.dialogue.interrupted("turn-1", [])
    stage.created()
    assert len(stage.sent("response.cancel")) == 1
    assert len(stage.all(TurnBegin)) == 1


def test_response_out_of_nothing_has_a_turn_of_its_own(stage):
    stage.created()
    stage.audio()
    assert stage.all(TurnBegin) == [TurnBegin("turn-1", "thinking")]
    assert stage.all(Audio)[0].turn == "turn-1"


def test_utterance_that_the_server_did_not_hear_begin_has_a_turn_and_its_text():
    """It was silent for so long that the server asks by itself, or it tells only the end."""
    stage = Stage(transcribed=True)
    for number in (1, 2):
        of = {"item_id": f"u{number}"}
        stage.hear("input_audio_buffer.timeout_triggered", audio_start_ms=0, audio_end_ms=6000, **of)
        stage.hear("input_audio_buffer.committed", previous_item_id=None, **of)
        stage.hear("conversation.item.input_audio_transcription.completed", transcript="Hm.", **of)
        stage.created(f"r{number}")
        stage.audio(f"r{number}", item=f"i{number}")
        stage.done(f"r{number}")
    assert [one.turn for one in stage.all(TurnBegin)] == ["turn-1", "turn-2"]
    assert [(one.turn, one.text) for one in stage.all(Transcript)] == [("turn-1", "Hm."), ("turn-2", "Hm.")]
    assert [one.turn for one in stage.all(TurnEnd)] == ["turn-1", "turn-2"]


def test_turn_waits_for_the_text_of_what_was_said_but_not_for_ever():
    stage = Stage(transcribed=True)
    stage.speech()
    stage.created()
    stage.done()
    assert stage.all(TurnEnd) == []
    of = {"item_id": "u1", "content_index": 0}
    stage.hear("conversation.item.input_audio_transcription.delta", delta="Good ", **of)
    stage.hear("conversation.item.input_audio_transcription.delta", delta="day", **of)
    stage.hear("conversation.item.input_audio_transcription.completed", transcript="Good day", **of)
    assert [one.text for one in stage.all(Transcript)] == ["Good ", "Good day", "Good day"]
    assert len(stage.all(TurnEnd)) == 1
    for work in stage.timers:
        work()
    assert len(stage.all(TurnEnd)) == 1
    stage.speech("u2")
    stage.created("r2")
    stage.done("r2")
    stage.timers[-1]()
    assert len(stage.all(TurnEnd)) == 2


def test_nobody_is_told_that_an_answer_that_failed_is_tried_again(answering):
    error = {"type": "server_error", "message": "Sorry."}
    answering.done(status="failed", status_details={"type": "failed", "error": error})
    assert answering.lines == ["openai: Sorry; say it again"]


@pytest.mark.parametrize("code", [None, "rate_limit_exceeded"])
def test_failed_response_is_told_with_its_turn(answering, code):
    error = {"type": "server_error", "code": code, "message": "no"}
    answering.done(status="failed", status_details={"type": "failed", "error": error})
    assert answering.told == [("rate" if code else "gone", "turn-1")]
    assert answering.all(TurnEnd) == []


def test_written_answer_comes_as_text(stage):
    stage.dialogue.user_text("Hello")
    stage.created()
    of = {"response_id": "r1", "item_id": "i1", "content_index": 0}
    stage.hear("response.output_text.delta", delta="Good", **of)
    stage.hear("response.output_text.delta", delta=" day", **of)
    stage.hear("response.output_text.done", text="Good day", **of)
    stage.done()
    assert [one.text for one in stage.all(Text)] == ["Good", " day", ""]
    assert stage.all(Text)[-1].final
    assert stage.all(TurnEnd)


def test_old_names_are_understood(stage):
    stage.dialogue.user_text("Hello")
    stage.created()
    of = {"response_id": "r1", "item_id": "i1", "content_index": 0}
    stage.hear("response.audio_transcript.delta", delta="Hi", **of)
    stage.hear("response.audio.delta", delta=SECOND, **of)
    assert stage.all(Audio)
    assert stage.all(Transcript)[0].text == "Hi"


# --- interruption


@pytest.mark.parametrize(("heard", "ms"), [(400, 400), (5000, 1000), (0, 0)])
def test_interruption_cancels_and_truncates_at_what_was_heard(answering, heard, ms):
    answering.dialogue.interrupted("turn-1", [Heard("i1", heard)])
    cancel, truncate = answering.sent()
    assert (cancel["type"], cancel["response_id"]) == ("response.cancel", "r1")
    assert truncate["type"] == "conversation.item.truncate"
    assert (truncate["item_id"], truncate["content_index"], truncate["audio_end_ms"]) == ("i1", 0, ms)


def test_what_was_not_heard_is_truncated_at_nothing(answering):
    answering.audio_done()
    answering.audio(item="i2")
    answering.dialogue.interrupted("turn-1", [Heard("i1", 1000)])
    assert [
        (one["item_id"], one["audio_end_ms"]) for one in answering.sent("conversation.item.truncate")
    ] == [("i2", 0)]


def test_interruption_after_the_response_truncates_and_cancels_nothing(answering):
    answering.audio_done()
    answering.done()
    answering.dialogue.interrupted("turn-1", [Heard("i1", 300)])
    assert [one["type"] for one in answering.sent()] == ["conversation.item.truncate"]


def test_speech_lets_the_server_cancel(answering):
    answering.speech(commit=False)
    answering.dialogue.interrupted("turn-1", [Heard("i1", 300)])
    answering.audio()
    answering.done(status="cancelled")
    assert [one["type"] for one in answering.sent()] == ["conversation.item.truncate"]
    assert len(answering.all(Audio)) == 1, "what came late was dropped"


@pytest.mark.parametrize("about", ["late-1", "late-item-3"])
def test_errors_about_what_came_too_late_are_nobodys(answering, about):
    answering.hear("error", error={"type": "invalid_request_error", "code": "x", "event_id": about})
    answering.hear("error", error={"code": "response_cancel_not_active"})
    assert answering.told == []


def test_end_of_a_response_that_got_lost_does_not_hold_up_the_next(answering):
    answering.dialogue.interrupted("turn-1", [])
    answering.dialogue.user_text("And now?")
    answering.sent()
    answering.hear("error", error={"code": "response_cancel_not_active", "event_id": "late-1"})
    assert len(answering.sent("response.create")) == 1


# --- calls


def test_model_goes_on_once_it_has_all_results_and_the_response_is_done(stage):
    stage.dialogue.user_text("Lock")
    stage.created(turn="turn-1")
    stage.call(call="c1", arguments='{"a": 1')
    stage.call(call="c2", name=declarations(ToolNames(TOOLS))[1]["name"])
    assert [(one.call, one.name, one.arguments) for one in stage.all(Call)] == [
        ("c1", "lock", '{"a": 1'),
        ("c2", "a.b", "{}"),
    ]
    stage.sent()
    stage.dialogue.tool_result("turn-1", ToolResult("c1", True, {"door": "front"}))
    [result] = stage.sent()
    assert result["item"] == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": '{"ok": true, "output": {"door": "front"}}',
    }
    stage.done()
    assert stage.sent() == []
    stage.dialogue.tool_result("turn-1", ToolResult("c2", False, code="FAILED", message="jammed"))
    output, ask = stage.sent()
    assert output["item"]["output"] == '{"ok": false, "code": "FAILED", "message": "jammed"}'
    assert ask["response"]["metadata"] == {"turn": "turn-1"}
    assert stage.all(TurnEnd) == []


def test_results_before_the_end_of_the_response_wait_for_it(stage):
    stage.dialogue.user_text("Lock")
    stage.created(turn="turn-1")
    stage.call()
    stage.sent()
    stage.dialogue.tool_result("turn-1", ToolResult("c1", True))
    assert stage.sent("response.create") == []
    stage.done()
    assert len(stage.sent("response.create")) == 1


def test_interrupted_calls_are_settled_for_the_model_and_answered_by_nothing(stage):
    stage.dialogue.user_text("Lock")
    stage.created(turn="turn-1")
    stage.call()
    stage.done()
    stage.sent()
    stage.dialogue.tool_result("turn-1", ToolResult("c1", False, code="INTERRUPTED"))
    stage.dialogue.interrupted("turn-1", [])
    assert [one["type"] for one in stage.sent()] == ["conversation.item.create"]


def test_call_that_comes_after_an_interruption_gets_a_result_too(answering):
    answering.dialogue.interrupted("turn-1", [])
    answering.sent()
    answering.call()
    assert answering.all(Call), "the turn manager answers it"
    answering.dialogue.tool_result("turn-1", ToolResult("c1", False, code="INTERRUPTED"))
    assert len(answering.sent("conversation.item.create")) == 1


def test_call_is_found_wherever_the_server_tells_it(stage):
    stage.dialogue.user_text("Lock")
    stage.created(turn="turn-1")
    item = {"id": "x", "type": "function_call", "call_id": "c1", "name": "lock", "arguments": "{}"}
    stage.done(output=[{**item, "status": "completed"}])
    assert len(stage.all(Call)) == 1
    assert stage.all(TurnEnd) == []


def test_call_that_was_cut_off_is_none(answering):
    item = {"id": "x", "type": "function_call", "call_id": "c1", "name": "lock", "arguments": '{"a'}
    answering.hear("response.output_item.done", response_id="r1", item={**item, "status": "incomplete"})
    answering.done(status="cancelled", output=[{**item, "status": "incomplete"}])
    assert answering.all(Call) == []


def test_user_is_told_of_a_call_that_took_too_long(stage):
    stage.dialogue.user_text("Lock")
    stage.created(turn="turn-1")
    stage.call()
    stage.done()
    stage.dialogue.tool_result("turn-1", ToolResult("c1", False, code="TIMEOUT", message="too long"))
    stage.sent()
    stage.dialogue.interrupted("turn-1", [])
    stage.created("r2", turn="turn-1")  # what was asked for just before
    stage.done("r2", "cancelled")
    assert stage.all(TurnBegin)[-1].turn == "turn-2"
    assert stage.sent("response.create")[-1]["response"]["metadata"] == {"turn": "turn-2"}


def test_call_that_was_cut_off_while_it_was_written_is_none(answering):
    of = {"response_id": "r1", "item_id": "x", "call_id": "c1"}
    item = {"id": "x", "type": "function_call", "call_id": "c1", "name": "lock", "arguments": '{"a'}
    answering.hear("response.output_item.added", response_id="r1", item={**item, "arguments": ""})
    answering.hear("response.function_call_arguments.done", name="lock", arguments='{"a', **of)
    answering.hear("response.output_item.done", response_id="r1", item={**item, "status": "incomplete"})
    answering.done(status="incomplete", status_details={"reason": "max_output_tokens"})
    assert answering.all(Call) == []
    assert answering.told == [("refused", None)], "the user is told why there is half an answer"
    assert len(answering.all(TurnEnd)) == 1


@pytest.mark.parametrize(("arguments", "early"), [('{"a": 1}', True), ('{"a": 1', False), ("7", False)])
def test_call_that_only_its_arguments_tell_is_made(answering, arguments, early):
    """At once if they are complete, else at the response's end, which says that they were not cut off."""
    of = {"response_id": "r1", "item_id": "x", "call_id": "c1"}
    answering.hear("response.function_call_arguments.done", name="lock", arguments=arguments, **of)
    assert len(answering.all(Call)) == early
    answering.done()
    assert [(one.call, one.arguments) for one in answering.all(Call)] == [("c1", arguments)]
    assert answering.all(TurnEnd) == []


@pytest.mark.parametrize(("written", "arguments"), [("", "{}"), ({"a": 1}, '{"a": 1}'), ('{"a', '{"a')])
def test_arguments_are_handed_on_as_they_are(answering, written, arguments):
    item = {"id": "x", "type": "function_call", "call_id": "c1", "name": "lock", "arguments": written}
    answering.hear("response.output_item.added", response_id="r1", item={"id": "x", "type": "function_call"})
    answering.hear("response.output_item.done", response_id="r1", item=item)
    answering.done(output=[item])
    assert [one.arguments for one in answering.all(Call)] == [arguments]


def test_call_that_cannot_be_understood_does_not_hold_up_the_turn(answering):
    with pytest.raises(ProviderError):
        answering.done(output=[{"type": "function_call", "id": "x", "status": "completed"}])
    assert len(answering.all(TurnEnd)) == 1
    answering.sent()
    answering.dialogue.user_text("And now?")
    assert len(answering.sent("response.create")) == 1


# --- what the server does not say


@pytest.mark.parametrize("asked", ["text", "speech", "speech that is not committed"])
def test_answer_that_does_not_begin_is_not_waited_for_without_end(stage, asked):
    if asked == "text":
        stage.dialogue.user_text("Hello")
    else:
        stage.speech(commit=asked == "speech")
        stage.hear("input_audio_buffer.speech_stopped", item_id="u1", audio_end_ms=900)
    stage.timers[-1]()
    assert stage.told == [("gone", "turn-1")]
    stage.sent()
    stage.dialogue.user_text("And now?")
    assert len(stage.sent("response.create")) == 1, "what was asked before is not waited for"


def test_answer_that_is_being_made_is_waited_for(answering):
    for work in list(answering.timers):
        work()
    assert answering.told == []
    answering.done()
    for work in list(answering.timers):
        work()
    assert answering.told == []


def test_end_of_what_the_server_cancelled_is_not_waited_for_without_end(answering):
    answering.speech(commit=False)
    answering.dialogue.interrupted("turn-1", [])
    answering.dialogue.user_text("And now?")
    assert answering.sent("response.create") == []
    *_, end, whole = answering.timers
    end()
    assert len(answering.sent("response.create")) == 1
    whole()
    assert answering.told == [("gone", "turn-3")]


def test_end_of_what_was_cancelled_may_come_late(answering):
    answering.dialogue.interrupted("turn-1", [])
    answering.dialogue.user_text("And now?")
    for work in list(answering.timers[-2:-1]):
        work()
    [ask] = answering.sent("response.create")
    code = "conversation_already_has_active_response"
    answering.hear("error", error={"code": code, "message": "x", "event_id": ask["event_id"]})
    assert answering.sent("response.create") == []
    answering.done(status="cancelled")
    assert len(answering.sent("response.create")) == 1
    assert answering.told == []


def test_text_without_a_connection_is_not_kept_waiting(stage):
    stage.dialogue.lost(GONE)
    stage.dialogue.user_text("Hello")
    stage.timers[-1]()
    assert stage.told == [("gone", "turn-1")]
    stage.again()
    assert stage.sent("response.create") == []


def test_next_connection_gives_an_answer_its_time_anew(stage):
    stage.dialogue.user_text("Hello")
    early = stage.timers[-1]
    stage.dialogue.lost(GONE)
    stage.again()
    early()
    assert stage.told == []


@pytest.mark.parametrize("kind", ["server_error", "rate_limit_error"])
def test_fault_of_the_servers_own_ends_what_it_owes(stage, kind):
    stage.speech()
    stage.hear("error", error={"type": kind, "code": None, "message": "Sorry.", "event_id": None})
    assert stage.told == [("gone" if kind == "server_error" else "rate", "turn-1")]


def test_error_that_does_not_say_what_it_is_about_is_of_what_was_asked_unless_that_begins(stage):
    error = {"type": "invalid_request_error", "message": "No.", "event_id": None}
    stage.dialogue.user_text("Hello")
    stage.hear("error", error=error)
    stage.timers[-1]()
    assert stage.told == [("refused", "turn-1")]
    stage.dialogue.user_text("And now?")
    stage.hear("error", error=error)
    doubt = stage.timers[-1]
    stage.created(turn="turn-2")
    stage.done()
    doubt()
    assert stage.told[1:] == [("refused", None)]


@pytest.mark.parametrize("code", ["conversation_already_has_active_response", None])
def test_utterance_that_the_server_could_not_answer_is_answered_later(answering, code):
    answering.speech()  # before it the server began a response that nobody wants any more
    message = "Conversation already has an active response in progress: r1."
    answering.hear("error", error={"type": "invalid_request_error", "code": code, "message": message})
    assert answering.sent("response.create") == []
    answering.done(status="cancelled")
    assert answering.sent("response.create")[0]["response"]["metadata"] == {"turn": "turn-2"}
    assert answering.told == []


def test_response_that_the_server_began_with_a_result_is_the_one_that_was_asked_for(stage):
    stage.dialogue.user_text("Lock")
    stage.created(turn="turn-1")
    stage.call()
    stage.done()
    stage.dialogue.tool_result("turn-1", ToolResult("c1", True))
    about = stage.sent("response.create")[-1]["event_id"]
    stage.created("r2")
    code = "conversation_already_has_active_response"
    stage.hear("error", error={"type": "invalid_request_error", "code": code, "event_id": about})
    stage.audio("r2")
    stage.done("r2")
    assert stage.sent("response.create") == []
    assert len(stage.all(TurnEnd)) == 1


def test_response_that_ends_before_it_begins_is_told(stage):
    stage.dialogue.user_text("Hello")
    error = {"type": "requests", "code": "rate_limit_exceeded", "message": "Too many."}
    stage.done(
        status="failed", status_details={"type": "failed", "error": error}, metadata={"turn": "turn-1"}
    )
    assert stage.told == [("rate", "turn-1")]
    stage.sent()
    stage.dialogue.user_text("And now?")
    assert len(stage.sent("response.create")) == 1


def test_end_that_is_told_twice_is_one(stage):
    stage.dialogue.user_text("Lock")
    stage.created(turn="turn-1")
    stage.created(turn="turn-1")
    stage.call()
    stage.call()
    stage.done()
    stage.dialogue.tool_result("turn-1", ToolResult("c1", True))
    stage.done()
    assert len(stage.all(Call)) == 1
    assert stage.all(TurnEnd) == []
    stage.created("r2", turn="turn-1")
    stage.done("r2")
    stage.done("r2")
    assert len(stage.all(TurnEnd)) == 1
    assert len(stage.sent("response.create")) == 2


def test_speech_that_is_told_twice_is_one_utterance(stage):
    stage.speech(commit=False)
    stage.speech()
    assert len(stage.all(TurnBegin)) == 1


def test_what_is_null_is_no_word(answering):
    of = {"response_id": "r1", "item_id": "i1", "content_index": 0}
    answering.hear("response.output_audio_transcript.delta", delta="", **of)
    answering.hear("response.output_audio_transcript.done", transcript=None, **of)
    answering.hear("response.output_audio_transcript.done", transcript="one two three four", **of)
    said = [(one.text, one.final) for one in answering.all(Transcript)]
    assert said == [("one two three four", False), ("", True)]
    answering.speech()
    answering.hear("conversation.item.input_audio_transcription.completed", item_id="u1", transcript=None)
    assert answering.all(Transcript)[-1].text == ""


def test_text_that_comes_whole_is_shown(stage):
    stage.dialogue.user_text("Hello")
    stage.created()
    of = {"response_id": "r1", "item_id": "i1", "content_index": 0}
    stage.hear("response.output_text.done", text="Good day", **of)
    assert [(one.text, one.final) for one in stage.all(Text)] == [("Good day", True)]


def test_transcription_that_failed_is_noted_and_not_waited_for():
    stage = Stage(transcribed=True)
    stage.speech()
    stage.created()
    stage.done()
    error = {"type": "transcription_error", "code": "audio_unintelligible", "message": "It\nis noise."}
    stage.hear("conversation.item.input_audio_transcription.failed", item_id="u1", error=error)
    assert len(stage.all(TurnEnd)) == 1
    assert "It\nis noise." in stage.noted[0]
    assert stage.told == []


def test_answer_that_was_not_heard_at_all_is_not_in_the_history(stage):
    stage.dialogue.user_text("Hello")
    stage.created(turn="turn-1")
    stage.says("one two")
    stage.sent()
    stage.dialogue.interrupted("turn-1", [])
    assert [one.get("audio_end_ms") for one in stage.sent()] == [None, 0]
    stage.dialogue.lost(GONE)
    stage.again()
    assert [one["item"]["content"][0]["text"] for one in stage.sent()] == ["Hello"]


# --- context and history


def test_context_is_data_and_is_replaced(stage):
    stage.dialogue.context({"room": "hall"})
    [one] = stage.sent()
    assert one["item"]["role"] == "user"
    assert one["item"]["content"] == [{"type": "input_text", "text": '[device data] {"room": "hall"}'}]
    stage.dialogue.context({"room": "attic"})
    deleted, two = stage.sent()
    assert (deleted["type"], deleted["item_id"]) == ("conversation.item.delete", one["item"]["id"])
    assert two["item"]["id"] != one["item"]["id"]


def test_next_session_is_told_what_was_said_and_heard(answering):
    answering.dialogue.context("data")
    answering.audio_done()
    answering.done()
    answering.dialogue.interrupted("turn-1", [Heard("i1", 500)])
    answering.dialogue.lost(GONE)
    answering.sent()
    answering.again()
    texts = [one["item"]["content"][0]["text"] for one in answering.sent()]
    assert texts == ['[device data] "data"', "Hello", "one two"]
    assert answering.told == []


def test_result_that_comes_without_a_connection_is_told_with_its_call(stage):
    stage.dialogue.user_text("Lock")
    stage.created(turn="turn-1")
    stage.call()
    stage.done()
    stage.dialogue.lost(GONE)
    assert stage.told == [("gone", None)], "the turn goes on"
    stage.sent()
    stage.dialogue.tool_result("turn-1", ToolResult("c1", True, "done"))
    assert stage.sent() == []
    stage.again()
    kinds = [one["item"]["type"] if "item" in one else one["type"] for one in stage.sent()]
    assert kinds == ["message", "function_call", "function_call_output", "response.create"]


def test_result_for_a_session_that_did_not_make_the_call_brings_the_call(stage):
    stage.dialogue.user_text("Lock")
    stage.created(turn="turn-1")
    stage.call()
    stage.dialogue.lost(GONE)
    stage.again()
    stage.sent()
    stage.dialogue.tool_result("turn-1", ToolResult("c1", True, "done"))
    kinds = [one["item"]["type"] if "item" in one else one["type"] for one in stage.sent()]
    assert kinds == ["function_call", "function_call_output", "response.create"]


def test_unanswered_text_is_asked_again_once(stage):
    stage.dialogue.user_text("Hello")
    stage.dialogue.lost(GONE)
    assert stage.told == []
    stage.again()
    assert len(stage.sent("response.create")) == 2
    stage.dialogue.lost(GONE)
    assert stage.told == [("gone", "turn-1")]
    stage.again()
    assert stage.sent("response.create") == []


def test_unanswered_text_is_given_up_when_there_is_no_connection_for_long(stage):
    stage.dialogue.user_text("Hello")
    stage.dialogue.lost(GONE)
    stage.timers[-1]()
    assert stage.told == [("gone", "turn-1")]


def test_words_that_only_the_server_had_are_said_again(stage):
    stage.speech(commit=False)
    assert stage.dialogue.lost(GONE) is True
    stage.again()
    stage.speech("u2")
    assert stage.dialogue.lost(GONE) is True
    stage.again()
    stage.speech("u3")
    stage.created("r3")
    stage.audio("r3")
    assert stage.dialogue.lost(GONE) is False


def test_refusal_of_the_next_session_ends_the_turn(stage):
    stage.dialogue.user_text("Hello")
    stage.dialogue.lost(ProviderError("refused", "no"))
    assert stage.told == [("refused", "turn-1")]
    assert stage.dialogue.resting


def test_half_an_answer_is_told_as_lost(answering):
    answering.dialogue.lost(GONE)
    assert answering.told == [("gone", "turn-1")]


def test_history_is_bounded(stage):
    for number in range(200):
        stage.dialogue.user_text(f"{number} " + "x" * 1000)
        stage.dialogue.interrupted(f"turn-{number + 1}", [])
    stage.dialogue.lost(GONE)
    stage.sent()
    stage.again()
    texts = [one["item"]["content"][0]["text"] for one in stage.sent()]
    assert 10 < len(texts) < 30
    assert texts[-1].startswith("199 ")


@pytest.mark.parametrize(
    ("heard", "part"), [(0, ""), (400, "one"), (500, "one two"), (999, "one two three"), (1000, "one two three four")]
)  # fmt: skip
def test_heard_part_is_whole_words(heard, part):
    assert heard_part("one two three four", heard, 1000) == part


# --- frames that are wrong


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.created"},
        {"type": "response.created", "response": []},
        {"type": "response.output_audio.delta", "response_id": "r1", "item_id": "i1", "delta": "?"},
        {"type": "response.output_audio.delta", "response_id": "r1", "item_id": "i1", "delta": 7},
        {"type": "response.output_item.done", "response_id": "r1", "item": 7},
        {"type": "response.done", "response": None},
        {"type": "response.output_item.done", "response_id": "r1", "item": {"type": "function_call", "id": "x"}},
        {"type": "conversation.item.input_audio_transcription.completed"},
    ],
)  # fmt: skip
def test_malformed_event_is_one_error_and_no_end(answering, event):
    with pytest.raises(ProviderError) as raised:
        answering.dialogue.feed(event)
    assert raised.value.kind == "malformed"
    answering.audio()
    assert len(answering.all(Audio)) == 2


def test_unknown_event_is_ignored(answering):
    count = len(answering.events)
    answering.hear("response.dreams.delta", delta=7)
    answering.hear("ping", timestamp=1)
    assert len(answering.events) == count


def test_tool_names_are_such_as_the_model_may_call():
    names = ToolNames(TOOLS)
    allowed = [one["name"] for one in declarations(names)]
    assert allowed[0] == "lock"
    assert len(set(allowed)) == 3
    assert all(
        len(name) <= 64 and name.replace("_", "").replace("-", "").isascii() and " " not in name
        for name in allowed
    )
    assert [names.own(name) for name in allowed] == [tool.name for tool in TOOLS]
    assert names.own("fly") == "fly"
