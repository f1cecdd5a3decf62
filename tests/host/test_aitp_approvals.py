"""Approvals of the agent `aitp`, both ways: a device that asks its user, and a server that wants the user's yes."""

import pytest
from aitp_stage import Stage
from vrt_host.agents.base import AgentError, TurnBegin, TurnEnd
from vrt_host.consent import ANSWER_S


@pytest.fixture(name="stage")
def stage_of_test():
    return Stage()


# --- approvals of the device


def test_tool_that_asks_its_user_is_announced_and_approved(stage):
    """page: 3. Human Approval: pending_approval and APPROVAL_REQUEST at once, APPROVAL_RESPONSE with the result."""
    stage.types()
    stage.call("pay", amount=5)
    assert stage.types_sent() == ["USER_INPUT", "TOOL_RESULT", "APPROVAL_REQUEST"]
    assert stage.last("TOOL_RESULT")["status"] == "pending_approval"
    request = stage.last("APPROVAL_REQUEST")
    assert (request["callId"], request["toolName"], request["risk"], request["args"]) == (
        "tc_1",
        "pay",
        "critical",
        {"amount": 5},
    )
    assert request["message"] == "Shall I do this: pay, amount 5?"
    stage.result({"paid": True})
    assert stage.sent[3:] == [
        ("APPROVAL_RESPONSE", {"callId": "tc_1", "approved": True, "result": {"paid": True}})
    ]


@pytest.mark.parametrize(
    ("code", "approved", "error"),
    [
        ("REJECTED", False, "Action denied by user"),
        ("FAILED", True, "FAILED: no"),
        ("TIMEOUT", False, "TIMEOUT: no"),
        ("INTERRUPTED", False, "INTERRUPTED: no"),
    ],
)
def test_refusal_is_never_a_success(stage, code, approved, error):
    stage.types()
    stage.call("pay", amount=5)
    stage.result(code=code, message="no")
    assert stage.last("APPROVAL_RESPONSE") == {"callId": "tc_1", "approved": approved, "error": error}
    assert stage.types_sent().count("TOOL_RESULT") == 1


def test_call_that_is_refused_at_once_is_not_asked_about(stage):
    """Arguments are checked before the user is asked (code: OwlLayerClient.ts)."""
    held, stage.settle = stage.settle, lambda: None
    stage.call("pay", amount="x")
    stage.settle = held
    stage.result(code="INVALID", message="no")
    assert stage.types_sent() == ["TOOL_RESULT"]
    assert stage.last("TOOL_RESULT")["status"] == "error"


def test_tool_confirmed_by_voice_is_not_announced(stage):
    """The host refuses it with the sentence to ask (consent.py)."""
    stage.call("unlock")
    stage.result(code="REJECTED", message="the user has to be asked first")
    assert stage.types_sent() == ["TOOL_RESULT"]


def test_pending_results_can_be_left_out():
    stage = Stage(pending_results=False)
    stage.call("pay")
    assert stage.types_sent() == ["APPROVAL_REQUEST"]


# --- approvals of the server


def asks(stage, id_="tc_9", message="Refund 5 USD?"):
    stage.event("approval_required", message)
    stage.server(
        "APPROVAL_REQUEST",
        callId=id_,
        toolName="refund",
        risk="critical",
        args={"amount": 5},
        message=message,
    )


def asked(stage):
    stage.types("Give the money back")
    asks(stage)
    assert stage.said == "Refund 5 USD? (Yes or no?)"
    assert stage.idle()
    assert stage.types_sent() == ["USER_INPUT"]


@pytest.mark.parametrize(("text", "approved"), [("Yes, please.", True), ("No.", False)])
def test_typed_answer_decides_and_is_no_input(stage, text, approved):
    """page: 3. Human Approval: never assumed."""
    asked(stage)
    stage.types(text)
    answer = stage.last("APPROVAL_RESPONSE")
    assert (answer["callId"], answer["approved"]) == ("tc_9", approved)
    assert answer.get("error") == (None if approved else "Action denied by user")
    assert stage.types_sent().count("USER_INPUT") == 1
    stage.answers("All right.")
    assert stage.said.endswith("All right.")
    assert len(stage.all(TurnEnd)) == 2


@pytest.mark.parametrize("text", ["Yes, but only 3 USD", "Turn on the light", "yes yes unless it rains"])
def test_anything_but_a_plain_yes_refuses_and_is_asked_after_that(stage, text):
    asked(stage)
    stage.types(text)
    assert stage.last("APPROVAL_RESPONSE")["approved"] is False
    assert stage.types_sent()[-1] == "APPROVAL_RESPONSE"
    stage.answers("I do not.")
    assert stage.last("USER_INPUT")["content"] == text
    assert len(stage.all(TurnEnd)) == 1
    stage.answers("It is on.")
    assert len(stage.all(TurnEnd)) == 2


def test_text_is_not_held_for_ever_when_the_server_says_nothing_to_a_refusal(stage):
    asked(stage)
    stage.types("Turn on the light")
    stage.later(4.5)
    assert stage.types_sent()[-1] == "APPROVAL_RESPONSE"
    stage.later(1)
    assert stage.types_sent()[-1] == "USER_INPUT"


@pytest.mark.parametrize(("words", "approved"), [(["Yes", "."], True), (["Yes", " but not now"], False)])
def test_spoken_answer_decides_once_it_is_complete(stage, words, approved):
    asked(stage)
    stage.dialogue.speech_began()
    stage.transcript("user", words[0])
    stage.later(0.7)
    stage.transcript("user", words[1])
    stage.dialogue.speech_ended("vad")
    assert "APPROVAL_RESPONSE" not in stage.types_sent()
    stage.later(1.2)
    assert stage.last("APPROVAL_RESPONSE")["approved"] is approved


def test_spoken_answer_is_complete_after_a_second_where_the_server_finds_its_end(stage):
    asked(stage)
    stage.later(2.1)
    stage.transcript("user", "Yes")
    stage.later(0.8)
    stage.transcript("user", " but not now")
    stage.later(0.8)
    assert "APPROVAL_RESPONSE" not in stage.types_sent()
    stage.later(0.4)
    assert stage.last("APPROVAL_RESPONSE")["approved"] is False


def test_yes_before_the_question_is_no_answer_to_it(stage):
    stage.dialogue.speech_began()
    stage.transcript("user", "Yes")
    stage.dialogue.speech_ended("vad")
    asks(stage)
    stage.later(3)
    assert "Refund" in stage.said
    assert "APPROVAL_RESPONSE" not in stage.types_sent()


def test_words_that_come_late_are_no_answer_where_this_host_hears_when_they_were_said():
    """A transcript of what was said before the question: neither a yes nor a no to it."""
    stage = Stage(ears=True)
    stage.dialogue.speech_began()
    stage.transcript("user", "Refund it,")
    stage.dialogue.speech_ended("vad")
    asks(stage)
    stage.later(3)
    stage.transcript("user", " yes.")
    stage.later(5)
    assert "APPROVAL_RESPONSE" not in stage.types_sent()
    stage.dialogue.speech_began()
    stage.transcript("user", "Yes.")
    stage.dialogue.speech_ended("vad")
    stage.later(1.2)
    assert stage.last("APPROVAL_RESPONSE")["approved"] is True


def test_words_that_this_host_hears_late_are_of_one_turn_where_nothing_was_asked():
    stage = Stage(ears=True)
    stage.transcript("user", "Turn it")
    stage.dialogue.speech_began()
    stage.transcript("user", " off.")
    assert len(stage.all(TurnBegin)) == 1


def test_words_within_2_s_are_no_answer_where_only_the_server_hears(stage):
    """_QUESTION_S."""
    stage.transcript("user", "Refund it,")
    asks(stage)
    stage.later(1.9)
    stage.transcript("user", " yes.")
    stage.later(5)
    assert "APPROVAL_RESPONSE" not in stage.types_sent()
    stage.transcript("user", "Yes.")
    stage.later(1.2)
    assert stage.last("APPROVAL_RESPONSE")["approved"] is True


def test_question_has_20_s_from_when_it_was_heard_out(stage):
    asked(stage)
    stage._alive = stage.all(TurnEnd)[-1].turn  # what came before it still plays
    stage.later(25)
    stage._alive = None
    stage.later(19)
    assert stage.types_sent() == ["USER_INPUT"]
    stage.later(2)
    assert stage.last("APPROVAL_RESPONSE")["approved"] is False


def test_question_is_refused_20_s_after_it_was_heard(stage):
    """ANSWER_S."""
    assert ANSWER_S == 20
    asked(stage)
    stage.later(19.8)
    assert stage.types_sent() == ["USER_INPUT"]
    stage.later(0.5)
    assert stage.last("APPROVAL_RESPONSE")["approved"] is False
    stage.types("Yes")
    assert stage.last("USER_INPUT")["content"] == "Yes"


def test_interruption_of_the_question_refuses(stage):
    asked(stage)
    stage._alive = stage.all(TurnEnd)[-1].turn
    stage.types("Yes")
    assert stage.last("APPROVAL_RESPONSE")["approved"] is False


def test_interruption_of_what_the_server_says_to_it_refuses(stage):
    asked(stage)
    stage.sounds()
    stage.types("Yes")
    assert stage.last("APPROVAL_RESPONSE")["approved"] is False


def test_yes_to_what_the_server_says_to_it_approves(stage):
    asked(stage)
    stage.sounds()
    stage.answers("")
    stage.later(19)
    stage.types("Yes")
    assert stage.last("APPROVAL_RESPONSE")["approved"] is True


@pytest.mark.parametrize("words", ["Yes", "No"])
def test_yes_to_what_the_server_writes_after_the_question_is_none_to_it(stage, words):
    """The question is the last thing that is asked, or it is not answered."""
    asked(stage)
    stage.answers("Shall I turn on the light,", done=False)
    stage.later(1)
    stage.answers(" too?")
    stage.types(words)
    assert stage.types_sent() == ["USER_INPUT", "USER_INPUT"]
    assert stage.said.count("Yes or no?") == 1
    stage.answers("As you wish.")
    stage.later(0.2)
    assert stage.said.endswith("As you wish.Refund 5 USD? (Yes or no?)")
    stage.types(words)
    assert stage.last("APPROVAL_RESPONSE")["approved"] is (words == "Yes")


def test_two_questions_are_asked_one_after_the_other(stage):
    asked(stage)
    asks(stage, "tc_10", "Refund 7 USD?")
    assert "7 USD" not in stage.said
    stage.types("Yes")
    stage.later(0.2)
    assert "Refund 7 USD? (Yes or no?)" in stage.said
    stage.types("No")
    answers = [payload for type_, payload in stage.sent if type_ == "APPROVAL_RESPONSE"]
    assert [(one["callId"], one["approved"]) for one in answers] == [("tc_9", True), ("tc_10", False)]


def test_question_that_comes_twice_is_asked_and_answered_once(stage):
    """A refusal of the second one would be taken for one of the first."""
    asked(stage)
    asks(stage)
    stage.types("Yes")
    asks(stage)
    stage.later(30)
    answers = [payload for type_, payload in stage.sent if type_ == "APPROVAL_RESPONSE"]
    assert [(one["callId"], one["approved"]) for one in answers] == [("tc_9", True)]
    assert stage.said.count("Yes or no?") == 1


def test_question_without_words_names_the_tool(stage):
    asks(stage, message=" ")
    assert stage.said == "refund (Yes or no?)"


def test_question_in_an_answer_that_was_interrupted_is_refused(stage):
    stage.types()
    stage.interrupts()
    asks(stage)
    assert stage.last("APPROVAL_RESPONSE")["approved"] is False
    assert stage.said == ""


def test_question_waits_for_a_call_that_runs(stage):
    stage.types()
    stage.call()
    asks(stage)
    assert stage.said == ""
    stage.result()
    stage.later(0.2)
    assert "Refund" in stage.said


def test_yes_is_for_the_question_and_for_nothing_before_it(stage):
    stage.types("Yes")
    asks(stage)
    stage.later(1)
    assert "APPROVAL_RESPONSE" not in stage.types_sent()


def test_lost_connection_forgets_the_question(stage):
    asked(stage)
    stage.dialogue.lost()
    assert "a yes does nothing now" in stage.all(AgentError)[0].message
    stage.dialogue.connected()
    stage.types("Yes")
    assert stage.types_sent() == ["USER_INPUT", "USER_INPUT"]
    asks(stage)  # another server's, with the same name
    assert stage.said.count("Yes or no?") == 2
