"""What AITP's messages mean for turns: `aitp_dialogue.Dialogue` in a conversation that the test plays (aitp_stage.py)."""

import pytest
from aitp_stage import Stage
from vrt_host.agents import aitp_turns
from vrt_host.agents.base import (
    AgentError,
    Audio,
    AudioEnd,
    Call,
    Text,
    Transcript,
    TurnBegin,
    TurnEnd,
    TurnState,
)


@pytest.fixture(name="stage")
def stage_of_test():
    return Stage()


# --- text


def test_text_is_answered_in_one_turn(stage):
    stage.types()
    stage.answers("One ", done=False)
    stage.answers("two.")
    assert stage.sent == [("USER_INPUT", {"modality": "text", "content": "Hello"})]
    assert stage.said == "One two."
    assert stage.all(Text)[-1].final
    assert len(stage.all(TurnBegin)) == len(stage.all(TurnEnd)) == 1
    assert not stage.dialogue.waiting


def test_text_of_8000_characters_is_sent_and_a_longer_one_is_not(stage):
    """8 000 characters (code: server-hardening-limits.md)."""
    stage.types("x" * 8_000)
    stage.answers()
    stage.types("x" * 8_001)
    assert len(stage.types_sent()) == 1
    assert "8,001" in stage.all(AgentError)[0].message
    stage.types("\U0001f642" * 4_001)  # two characters each, where the server counts
    assert len(stage.types_sent()) == 1
    assert stage.all(AgentError)[-1].turn == stage.all(TurnBegin)[-1].turn


def test_answer_that_does_not_come_within_30_s_is_given_up(stage):
    """30 000 ms for the model's answer (code: aitp.constants.ts); `waiting` asks for more."""
    stage.types()
    stage.later(29)
    stage.event("waiting", "All lines are busy.")
    stage.later(29)
    assert stage.all(AgentError) == []
    assert stage.all(TurnState)[-1].state == "thinking"
    stage.later(2)
    assert "30 s" in stage.all(AgentError)[0].message


def test_answer_that_stops_in_the_middle_ends_without_an_error(stage):
    stage.types()
    stage.answers("One", done=False)
    stage.later(31)
    assert stage.all(AgentError) == []
    assert len(stage.all(TurnEnd)) == 1


def test_text_that_interrupts_waits_until_the_server_is_done(stage):
    """One model's turn at a time (code: server-hardening-limits.md)."""
    stage.types("One")
    stage.answers("I ", done=False)
    stage.types("Two")
    assert stage.types_sent() == ["USER_INPUT", "VOICE_INTERRUPT"]
    stage.answers("go on", done=False)
    stage.types("Three")
    stage.answers("and on.")
    assert stage.sent[2:] == [("USER_INPUT", {"modality": "text", "content": "Two\n\nThree"})]
    assert stage.said == "I "
    stage.answers("Right.")
    assert stage.said == "I Right."


def test_server_that_confirms_an_interruption_gets_the_next_text_at_once(stage):
    stage.types("One")
    stage.types("Two")
    stage.state("interrupted", reason="barge_in")
    assert stage.types_sent() == ["USER_INPUT", "VOICE_INTERRUPT", "USER_INPUT"]
    stage.answers("Right.")
    assert stage.said == "Right."
    assert len(stage.all(TurnBegin)) == 2


def test_server_that_says_nothing_to_an_interruption_is_waited_for_30_s(stage):
    stage.types("One")
    stage.types("Two")
    stage.later(29)
    assert len(stage.sent) == 2
    stage.later(2)
    assert stage.sent[-1][1]["content"] == "Two"


def test_texts_that_are_too_long_together_are_sent_one_after_the_other(stage):
    stage.types("One")
    stage.types("\U0001f642" * 3_500)
    stage.types("y" * 3_500)
    stage.state("interrupted")
    assert [len(payload["content"]) for type_, payload in stage.sent if type_ == "USER_INPUT"] == [
        3,
        3_500,
        3_500,
    ]


# --- voice


def test_spoken_turn_goes_from_listening_to_the_end(stage):
    """page: 10. to 14.; live voice says twice that a turn is over."""
    stage.dialogue.speech_began()
    stage.transcript("user", "Turn on ")
    stage.transcript("user", "the light.")
    stage.dialogue.speech_ended("vad")
    stage.sounds()
    stage.transcript("agent", "It is on.")
    stage.answers("", done=True)
    stage.state("turn_complete")
    assert stage.sent == [("VOICE_INPUT_END", {"reason": "vad"})]
    assert [event.state for event in stage.all(TurnBegin)] == ["listening"]
    heard = [event for event in stage.all(Transcript) if event.role == "user"]
    assert [(one.text, one.final) for one in heard[-2:]] == [
        ("Turn on the light.", False),
        ("Turn on the light.", True),
    ]
    told = [(event.text, event.final) for event in stage.all(Transcript) if event.role == "agent"]
    assert told == [("It is on.", False), ("", True)]
    assert len(stage.all(Audio)) == len(stage.all(AudioEnd)) == len(stage.all(TurnEnd)) == 1


def test_second_end_of_a_turn_does_not_end_the_next_one(stage):
    stage.types()
    stage.answers("One.")
    stage.types()
    stage.state("turn_complete")
    stage.answers("Two.", done=False)
    assert len(stage.all(TurnEnd)) == 1
    stage.answers("")
    assert len(stage.all(TurnEnd)) == 2


def test_empty_answer_ends_its_turn_after_3_s(stage):
    stage.types()
    stage.answers("")
    assert stage.all(TurnEnd) == []
    stage.later(3.2)
    assert len(stage.all(TurnEnd)) == 1
    assert stage.all(AgentError) == []


def test_speech_that_is_not_answered_ends_quietly_after_12_s(stage):
    stage.dialogue.speech_began()
    stage.dialogue.speech_ended("vad")
    stage.later(11)
    assert stage.all(TurnEnd) == []
    stage.later(2)
    assert len(stage.all(TurnEnd)) == 1
    assert stage.all(AgentError) == []


def test_noise_is_no_turn_and_the_server_is_not_told(stage):
    stage.dialogue.speech_began()
    stage.dialogue.speech_ended(None)
    assert stage.sent == []
    assert len(stage.all(TurnEnd)) == 1


def test_user_who_goes_on_after_a_pause_interrupts_nobody(stage):
    """VOICE_INTERRUPT: while the agent was talking (page: 12. VOICE_INTERRUPT)."""
    for _ in range(2):
        stage.dialogue.speech_began()
        stage.settle()
        stage.dialogue.speech_ended("vad")
    stage.sounds()
    stage.state("turn_complete")
    assert stage.types_sent() == ["VOICE_INPUT_END"] * 2
    assert len(stage.all(Audio)) == 1


def test_user_who_speaks_while_the_agent_does_interrupts_it(stage):
    """barge_in (page: 12. VOICE_INTERRUPT); what is late is dropped."""
    stage.types()
    stage.sounds()
    stage.dialogue.speech_began()
    stage.settle()
    stage.dialogue.speech_ended("vad")
    assert stage.sent[1:] == [
        ("VOICE_INTERRUPT", {"reason": "barge_in"}),
        ("VOICE_INPUT_END", {"reason": "vad"}),
    ]
    stage.sounds()
    stage.state("interrupted", reason="barge_in")
    stage.sounds()
    stage.state("turn_complete")
    assert [event.turn for event in stage.all(Audio)] == ["turn-1", stage.all(TurnBegin)[-1].turn]
    assert stage.types_sent().count("VOICE_INTERRUPT") == 1


def test_answer_that_still_plays_is_interrupted_though_the_server_is_done(stage):
    stage.types()
    stage.sounds()
    stage.state("turn_complete")
    stage._alive = "turn-1"
    stage.types("Stop")
    assert stage.types_sent() == ["USER_INPUT", "VOICE_INTERRUPT", "USER_INPUT"]
    stage.state("interrupted", reason="barge_in")
    stage.answers("Right.")
    assert stage.said == "Right."
    assert len(stage.all(TurnBegin)) == 2


def test_server_that_hears_the_user_first_begins_a_turn(stage):
    stage.types()
    stage.sounds()
    stage.state("interrupted")
    stage.state("waiting_for_input")
    assert [event.state for event in stage.all(TurnBegin)] == ["thinking", "listening"]
    assert "VOICE_INTERRUPT" not in stage.types_sent()
    stage.sounds()
    assert len(stage.all(Audio)) == 1
    stage.transcript("user", "And now?")
    stage.later(1.5)
    stage.sounds()
    assert stage.all(Audio)[-1].turn == stage.all(TurnBegin)[-1].turn


def test_interruption_of_nothing_is_nothing(stage):
    stage.state("interrupted")
    stage.types()
    stage.state("interrupted")
    stage.answers()
    assert stage.said == "Yes."


def test_text_that_is_not_answered_yet_is_not_interrupted_by_speech(stage):
    stage.types()
    stage.dialogue.speech_began()
    stage.dialogue.speech_ended("user_stop")
    stage.answers()
    assert stage.types_sent() == ["USER_INPUT", "VOICE_INPUT_END"]
    assert len(stage.all(TurnBegin)) == 1


def test_whole_message_of_speech_is_heard_read_and_then_spoken(stage):
    """code: OwlLayerServer.ts: `[Transcription]`, the text with done, then its sound."""
    recording = {"modality": "audio", "content": "AAAA", "mimeType": "audio/wav"}
    stage.dialogue.speech_began()
    stage.dialogue.speech_ended("vad", recording)
    stage.answers("[Transcription] Hello", done=False)
    stage.answers("Hi.")
    assert stage.sent == [("USER_INPUT", recording)]
    assert stage.all(TurnEnd) == []
    stage.later(3)
    stage.sounds()
    stage.later(1.2)
    assert len(stage.all(TurnEnd)) == len(stage.all(TurnBegin)) == len(stage.all(Audio)) == 1
    assert stage.all(Transcript)[-1].text == "Hello"
    assert stage.all(Transcript)[-1].final
    assert stage.said == "Hi."


def test_sound_of_an_answer_in_one_piece_is_played(stage):
    """audioData (code: aitp.validator.ts)."""
    stage.types()
    stage.server("AGENT_RESPONSE", chunk="Hi.", done=True, modality="audio", audioData="AAAAAA==")
    assert stage.all(Audio)[0].payload == b"\0" * 4
    assert len(stage.all(TurnEnd)) == 1


def test_what_the_server_says_unasked_is_a_turn_that_ends_with_2_s_of_quiet(stage):
    stage.sounds()
    stage.later(1.5)
    stage.sounds()
    stage.later(1.5)
    assert stage.all(TurnEnd) == []
    stage.later(1)
    assert len(stage.all(TurnBegin)) == len(stage.all(TurnEnd)) == 1


def test_what_the_server_says_unasked_stays_interrupted(stage):
    """Nothing is owed whose end could be waited for: it is over after a pause."""
    stage.sounds()
    stage.interrupts()
    for _ in range(5):
        stage.later(0.2)
        stage.sounds()
    assert len(stage.all(TurnBegin)) == 1
    assert stage.types_sent() == ["VOICE_INTERRUPT"]
    stage.later(0.5)
    stage.sounds()
    assert len(stage.all(TurnBegin)) == 2


def test_text_is_not_answered_by_the_rest_of_what_was_said_unasked(stage):
    stage.sounds()
    stage.types("Stop")
    stage.sounds()
    assert stage.types_sent() == ["VOICE_INTERRUPT"]
    stage.state("interrupted")
    assert stage.types_sent() == ["VOICE_INTERRUPT", "USER_INPUT"]
    stage.answers("All right.")
    assert (stage.said, len(stage.all(TurnBegin)), len(stage.all(Audio))) == ("All right.", 2, 1)


def test_text_waits_shortly_for_a_server_that_confirms_no_interruption(stage):
    stage.sounds()
    stage.types("Stop")
    stage.later(0.2)
    assert stage.types_sent() == ["VOICE_INTERRUPT"]
    stage.later(0.2)
    assert stage.types_sent() == ["VOICE_INTERRUPT", "USER_INPUT"]


def test_sound_that_cannot_be_played_is_told_once(stage):
    stage.types()
    for _ in range(3):
        stage.sounds("audio/mpeg")
    stage.answers()
    assert ["audio/mpeg" in error.message for error in stage.all(AgentError)] == [True]
    assert stage.said == "Yes."


# --- calls


def test_call_runs_once_and_its_result_is_told_once(stage):
    """page: 5. TOOL_CALL, 6. TOOL_RESULT."""
    stage.types()
    stage.call(door="front")
    stage.call(door="front")
    [call] = stage.all(Call)
    assert (call.name, call.arguments) == ("lock", {"door": "front"})
    stage.result({"locked": True})
    assert stage.sent[1:] == [
        ("TOOL_RESULT", {"callId": "tc_1", "status": "success", "result": {"locked": True}})
    ]
    stage.answers("It is locked.")
    assert len(stage.all(TurnBegin)) == len(stage.all(TurnEnd)) == 1


def test_result_without_output_is_null(stage):
    stage.call()
    stage.result()
    assert stage.last("TOOL_RESULT") == {"callId": "tc_1", "status": "success", "result": None}


@pytest.mark.parametrize("code", ["FAILED", "REJECTED", "INVALID", "TIMEOUT"])
def test_call_that_does_not_succeed_is_an_error(stage, code):
    stage.call()
    stage.result(code=code, message="no")
    assert stage.last("TOOL_RESULT")["status"] == "error"
    assert stage.last("TOOL_RESULT")["error"] == f"{code}: no"


def test_turn_is_not_over_while_a_call_runs(stage):
    stage.types()
    stage.call()
    stage.answers("I look.")
    stage.later(40)
    assert stage.all(TurnEnd) == []
    stage.result()
    stage.later(4)
    assert stage.all(TurnEnd) == []
    stage.answers("There it is.")
    assert len(stage.all(TurnEnd)) == 1


def test_server_that_gave_up_a_call_says_nothing_to_its_late_result(stage):
    """10 000 ms for a result (code: ToolRouter.ts): one message, and the turn ends."""
    stage.types()
    stage.call()
    stage.answers("It took too long.")
    stage.result()
    stage.later(5.2)
    assert len(stage.all(TurnEnd)) == 1
    assert stage.types_sent().count("TOOL_RESULT") == 1
    assert stage.all(AgentError) == []


def test_server_hears_of_an_interruption_before_it_gets_the_results(stage):
    stage.types()
    stage.call()
    stage.result(code="INTERRUPTED", message="the turn was interrupted")
    stage.interrupts()
    assert stage.types_sent() == ["USER_INPUT", "VOICE_INTERRUPT", "TOOL_RESULT"]
    stage.answers("Never mind.")
    assert stage.said == ""


def test_call_in_an_answer_that_was_interrupted_does_not_run(stage):
    stage.types()
    stage.interrupts()
    stage.call()
    assert stage.all(Call) == []
    assert stage.last("TOOL_RESULT")["error"].startswith("INTERRUPTED")


def test_what_the_server_says_to_a_time_out_is_heard(stage):
    stage.types()
    stage.call()
    stage.result(code="TIMEOUT")
    stage.interrupts()
    stage.answers("There was no answer.")
    assert "VOICE_INTERRUPT" not in stage.types_sent()
    assert stage.said == "There was no answer."


# --- events


def test_error_before_an_answer_ends_its_turn(stage):
    stage.types()
    stage.event("error", "AI service error")
    [error] = stage.all(AgentError)
    assert (error.message, error.recoverable, error.turn) == ("AI service error", True, "turn-1")
    stage.types()
    assert stage.types_sent() == ["USER_INPUT", "USER_INPUT"]


def test_error_in_an_answer_does_not_stop_what_comes(stage):
    stage.types()
    stage.answers("One ", done=False)
    stage.event("error", "Too many messages")
    assert stage.all(AgentError)[0].turn is None
    stage.answers("two.")
    assert stage.said == "One two."


def test_error_that_ends_an_answer_ends_its_turn(stage):
    stage.types()
    stage.answers("One ", done=False)
    stage.event("error", "AI service error")
    stage.later(3.2)
    assert len(stage.all(TurnEnd)) == 1


def test_error_about_the_microphone_ends_no_answer_to_a_text(stage):
    stage.event("error", "Audio mode unavailable")
    stage.types()
    for _ in range(3):
        stage.later(8)
        stage.event("error", "Audio mode unavailable")
    stage.answers()
    assert stage.said == "Yes."
    assert len(stage.all(AgentError)) == 1
    stage.types()
    stage.event("error", "AI service error")
    assert stage.all(AgentError)[-1].turn is not None


def test_error_of_nothing_is_told(stage):
    stage.event("error")
    assert stage.all(AgentError)[0].turn is None


def test_disconnect_ends_the_session(stage):
    stage.event("disconnect", "Closed for tonight.")
    [error] = stage.all(AgentError)
    assert error.recoverable is False
    assert "Closed for tonight." in error.message


@pytest.mark.parametrize("kind", ["approval_required", "reload", "redirect"])
def test_event_that_a_device_cannot_follow_is_in_the_log(stage, kind):
    stage.event(kind, "To another page", url="/x")
    assert stage.notes == [f"the server says {kind}: To another page {{'url': '/x'}}"]
    assert stage.events == []


def test_tools_that_the_server_ignores_are_named(stage, caplog):
    tool = {"name": "lock\n", "description": "d"}
    stage.event("tools_effective", ignoredClientTools=[tool, 5])
    stage.event("tools_effective", ignoredClientTools=[tool, 5])  # as after each change of the context
    stage.event("tools_effective", ignoredClientTools=5)
    assert "does not call the device's: lock\\n" in caplog.text
    assert len(caplog.records) == 1


def test_transcript_of_nobody_is_ignored(stage):
    stage.transcript("narrator", "x")
    stage.transcript("user", "")
    stage.event("transcript", text="x")
    assert stage.events == []


def test_words_of_the_user_get_half_a_second_before_a_call_may_see_them(stage):
    stage.transcript("user", "Yes")
    stage.call()
    assert not any(event.final for event in stage.all(Transcript))
    stage.later(0.3)
    stage.transcript("user", ", but not now")
    stage.later(0.3)
    assert not any(event.final for event in stage.all(Transcript))
    stage.later(0.3)
    assert [event.text for event in stage.all(Transcript) if event.final] == ["Yes, but not now"]


# --- connections


def test_lost_connection_ends_a_turn_that_was_being_answered(stage):
    stage.types()
    stage.answers("One", done=False)
    assert stage.dialogue.lost() == "turn-1"
    stage.dialogue.connected()
    stage.types("Two")
    assert stage.types_sent() == ["USER_INPUT", "USER_INPUT"]
    before = [(one["role"], one["text"]) for one in stage.dialogue.history.before()]
    assert before == [("user", "Hello"), ("agent", "One")]


def test_text_that_did_not_arrive_is_sent_again(stage):
    stage.types()
    payload = stage.last("USER_INPUT")
    assert stage.dialogue.lost([payload]) is None
    stage.dialogue.connected()
    assert stage.sent == [("USER_INPUT", payload)] * 2
    assert stage.dialogue.history.before() == []
    stage.answers()
    assert len(stage.all(TurnEnd)) == 1


def test_text_typed_without_a_connection_is_sent_with_the_next_one(stage):
    stage.dialogue.lost()
    stage.types()
    assert stage.sent == []
    stage.later(60)
    stage.dialogue.connected()
    assert stage.types_sent() == ["USER_INPUT"]


def test_text_is_given_up_when_there_is_no_connection_to_be_had(stage):
    stage.dialogue.lost()
    stage.types()
    assert stage.dialogue.unreachable() == "turn-1"
    assert stage.dialogue.unreachable() is None
    stage.dialogue.connected()
    assert stage.sent == []


def test_result_that_comes_after_its_connection_is_told_in_the_context(stage):
    stage.types()
    stage.call()
    assert stage.dialogue.lost() is None
    stage.dialogue.connected()
    stage.result({"locked": True})
    assert stage.types_sent() == ["USER_INPUT"]
    assert stage.contexts == 1
    assert {"role": "tool", "text": "lock: {'locked': True}"} in stage.dialogue.history.before()
    [error] = stage.all(AgentError)
    assert "lock" in error.message
    assert error.turn == "turn-1"


def test_call_of_another_connection_is_another_call(stage):
    stage.call()
    stage.result()
    stage.dialogue.lost()
    stage.dialogue.connected()
    stage.call()
    assert len(stage.all(Call)) == 2


def test_inputs_that_wait_are_bounded(stage, caplog):
    stage.dialogue.lost()
    for number in range(aitp_turns._INPUTS + 2):
        stage.types(f"{number}")
    stage.dialogue.connected()
    assert stage.last("USER_INPUT")["content"].split("\n\n")[0] == "2"
    assert "the oldest is dropped" in caplog.text


def test_words_of_a_turn_without_end_are_bounded(stage):
    stage.types()
    for _ in range(50):
        stage.answers("x" * 1_000, done=False)
    assert len(stage.dialogue._turn.said) == 4_000
    stage.answers("", done=True)
    for _ in range(50):
        stage.transcript("user", "x" * 1_000)
    assert len(stage.all(Transcript)[-1].text) == 8_000


def test_history_is_bounded(stage):
    for number in range(200):
        stage.types(f"{number} " + "x" * 500)
        stage.answers()
    stage.dialogue.lost()
    stage.dialogue.connected()
    before = stage.dialogue.history.before()
    assert sum(len(one["text"]) for one in before) <= 16_000
    assert before[-2]["text"].startswith("199 ")
