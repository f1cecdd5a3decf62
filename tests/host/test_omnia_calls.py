"""agents/omnia_{calls,dialogue}.py: calls, questions before them, and files of their results, with a clock that is turned by hand."""

import base64
import json

import pytest
from omnia_stage import GONE, Stage, call, sound
from vrt_host.agents.base import (
    Call,
    Text,
    Tool,
    TurnBegin,
    TurnEnd,
)
from vrt_host.agents.omnia_dialogue import HEARD_S, LISTEN_S
from vrt_host.agents.omnia_messages import (
    Chunk,
    Done,
    GivenUp,
    Interrupt,
)
from vrt_host.agents.omnia_question import QUIET_S
from vrt_host.consent import ANSWER_S

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


@pytest.mark.parametrize("code", [None, "FAILED", "REJECTED"])
def test_call_that_comes_again_after_its_result_is_answered_again_and_not_run(code):
    """`tool_call.id` is a call's own (page, Tool call); a model's ids may begin anew with its next answer."""
    stage = Stage()
    stage.types()
    stage.comes(call(door="front"))
    stage.settles("call-1", 1, code=code)
    answer = stage.sent[-1]
    stage.comes(call(door="front"))
    assert stage.sent[-2:] == [answer, answer]
    assert len(stage.all(Call)) == 1
    stage.comes(call(door="back"))
    assert len(stage.all(Call)) == 2
    stage.settles("call-2", 1)
    stage.comes(Done(None))
    stage.types()
    stage.comes(call(door="back"))
    assert len(stage.all(Call)) == 3


def test_call_of_an_answer_that_was_interrupted_may_be_made_again():
    stage = Stage()
    stage.comes(Chunk("light", user=True), call(id_="call_0"))
    stage.settles("call-1", 1)
    stage.comes(sound(), Interrupt(), Chunk("again", user=True), call(id_="call_0"))
    assert len(stage.all(Call)) == 2


def test_calls_that_are_remembered_are_few():
    stage = Stage()
    stage.types()
    for number in range(1, 100):
        stage.comes(call(id_=f"tc-{number}"))
        stage.settles(f"call-{number}", number)
    assert len(stage.dialogue._calls._answered) == 64


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


def test_yes_that_goes_on_is_none_whatever_the_agent_says_meanwhile():
    stage = asked(typed=False)
    stage.passes(QUIET_S)
    stage.comes(Chunk("yes", user=True), sound(), Chunk(" but only the back door", user=True))
    stage.passes(HEARD_S)
    assert stage.all(Call) == []
    assert stage.types_sent() == ["tool_call_ack", "tool_call_nack"]


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


def test_question_of_an_answer_that_failed_is_open_no_more():
    stage = asked()
    stage.fails("INTERNAL_ERROR")
    stage.types("Yes.")
    assert stage.all(Call) == []
    stage = asked(typed=False)
    stage.audio = True
    stage.passes(QUIET_S)
    stage.fails("DUPLEX_ERROR")
    stage.comes(Chunk("yes", user=True))
    stage.passes(HEARD_S)
    assert stage.all(Call) == []


def test_second_question_is_declined():
    stage = asked()
    stage.comes(call(id_="tc-2", consent="And the window?"))
    assert stage.sent[-1]["tool_call_nack"]["call_id"] == "tc-2"


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
    stage.dialogue.sender.uploaded([], ["(no)"])
    stage.fails("SESSION_EXPIRED")
    assert len(stage.uploads) == 3
    stage.dialogue.sender.uploaded([], ["(no)"])
    assert stage.texts()[-1].count("(no)") == 1


# --- what an agent that speaks may do


def test_done_while_a_spoken_call_runs_does_not_end_its_turn():
    stage = Stage()
    stage.comes(Chunk("lock it", user=True), call(), sound(), Done(None))
    assert stage.all(TurnEnd) == []
    stage.settles("call-1", 1)
    stage.comes(sound(), Chunk("Locked.", user=False), Done(None))
    assert len(stage.all(TurnBegin)) == len(stage.all(TurnEnd)) == 1


def test_spoken_turn_whose_result_nobody_answers_ends():
    stage = Stage()
    stage.comes(Chunk("lock it", user=True), call(), Done(None))
    stage.passes(LISTEN_S + 1)
    assert stage.all(TurnEnd) == []
    stage.settles("call-1", 1)
    stage.passes(LISTEN_S + 1)
    assert len(stage.all(TurnEnd)) == 1


def test_spoken_question_outlives_the_end_of_what_was_said():
    stage = asked(typed=False)
    stage.comes(sound(), Done(None))
    stage.passes(QUIET_S)
    assert len(stage.all(TurnEnd)) == 1
    stage.comes(Chunk("yes", user=True))
    stage.passes(HEARD_S)
    [made] = stage.all(Call)
    stage.settles(made.call, 1)
    stage.comes(sound(), Done(None))
    assert stage.all(TurnEnd)[-1].turn == made.turn


def test_words_that_were_said_before_a_question_are_no_answer_to_it():
    """Where transcripts are late, the first one that comes belongs to what led to the question."""
    stage = Stage()
    stage.comes(call(consent="May I unlock the door?"), sound())
    stage.passes(QUIET_S)
    stage.comes(Chunk("Yes", user=True))
    stage.passes(HEARD_S)
    assert stage.all(Call) == []
    stage.comes(Chunk(" Yes, please", user=True))
    stage.passes(HEARD_S)
    assert len(stage.all(Call)) == 1


def test_question_of_an_answer_that_is_complete_is_open_no_more():
    stage = asked()
    stage.comes(Done("I did it otherwise."))
    assert stage.sent[-1]["type"] == "tool_call_nack"
    stage.types("Yes.")
    assert stage.all(Call) == []
