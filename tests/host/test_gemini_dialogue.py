"""agents/gemini_dialogue.py: messages of the model's in, events of the agent's out, in orders that no peer of ours plays."""

import base64
import json

import pytest
from pydantic import SecretStr
from vrt_host.agents import gemini_messages as messages
from vrt_host.agents.base import (
    AgentError,
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
)
from vrt_host.agents.gemini_dialogue import Dialogue
from vrt_host.agents.gemini_live import Options
from vrt_host.agents.gemini_messages import function_name, parse
from vrt_host.agents.model_tools import ToolNames

SOUND = base64.b64encode(b"\x01\x01" * 2400).decode()
AUDIO = {"modelTurn": {"parts": [{"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": SOUND}}]}}
TOOLS = [Tool("lock"), Tool("light")]


class Outlet:
    """Keeps what a dialogue makes; `said` is what was queued and not forgotten."""

    def __init__(self):
        self.events = []
        self.said = []
        self.sent = []

    def emit(self, event):
        self.events.append(event)

    def say(self, event):
        self.said.append(event)

    def hush(self):
        self.said.clear()

    def send(self, frame):
        self.sent.append(frame)


class Stage:
    """A dialogue whose device interrupts what a new turn ends, as the turn manager does."""

    def __init__(self, model="gemini-3.8-live", context=None, **options):
        chosen = Options(api_key=SecretStr("k"), model=model, **options)
        self.out = Outlet()
        self.dialogue = Dialogue(
            self.out,
            speaks=messages.dialect(chosen),
            tools=ToolNames(TOOLS, function_name),
            instructions="Be brief.",
            context=context,
        )
        self.dialogue.connected(anew=True)

    def feed(self, **content):
        self.dialogue.feed(parse(json.dumps({"serverContent": content})))

    def message(self, **message):
        self.dialogue.feed(parse(json.dumps(message)))

    def calls(self, *names):
        made = [{"id": f"id-{number}", "name": name, "args": {}} for number, name in enumerate(names)]
        self.message(toolCall={"functionCalls": made})
        return self.all(Call)[-len(names) :]

    def all(self, kind):
        return [event for event in self.out.events + self.out.said if isinstance(event, kind)]

    @property
    def turn(self):
        return self.all(TurnBegin)[-1].turn

    def speech(self):
        """Turns of the audio that will be heard."""
        return [event.turn for event in self.out.said if isinstance(event, Audio)]

    def results(self):
        return [one["toolResponse"]["functionResponses"] for one in self.out.sent if "toolResponse" in one]


@pytest.fixture
def stage():
    return Stage()


def settled(call, code=None):
    return ToolResult(call.call, code is None, {"state": "on"} if code is None else None, code, code or "")


# --- turns


def test_spoken_turn_has_the_users_words_and_the_models(stage):
    stage.feed(inputTranscription={"text": " Turn on"})
    stage.feed(inputTranscription={"text": " the light."})
    stage.feed(outputTranscription={"text": "It is"})
    stage.feed(**AUDIO)
    stage.feed(outputTranscription={"text": " on."})
    stage.feed(generationComplete=True)
    stage.feed(outputTranscription={"text": " Bye."})
    stage.feed(turnComplete=True)
    assert [event.state for event in stage.all(TurnBegin)] == ["listening"]
    user = [(one.text, one.final) for one in stage.all(Transcript) if one.role == "user"]
    assert user == [("Turn on", False), ("Turn on the light.", False), ("Turn on the light.", True)]
    agent = [one.text for one in stage.all(Transcript) if one.role == "agent"]
    assert "".join(agent) == "It is on. Bye."
    kinds = [type(event) for event in stage.out.said if not isinstance(event, Transcript)]
    assert kinds == [AudioBegin, Audio, AudioEnd, TurnEnd]
    assert stage.dialogue.history.turns() == [("user", "Turn on the light."), ("model", "It is on. Bye.")]


def test_typed_turn_is_written_too(stage):
    stage.dialogue.user_text("Hello")
    stage.feed(outputTranscription={"text": "Hi."}, **AUDIO)
    stage.feed(turnComplete=True)
    assert [event.text for event in stage.all(Text)] == ["Hi.", ""]
    assert stage.out.sent == [{"realtimeInput": {"text": "Hello"}}]


def test_answer_of_text_alone_is_no_answer_lost(stage):
    stage.dialogue.user_text("Hello")
    stage.feed(outputTranscription={"text": "Hi."})
    stage.feed(turnComplete=True)
    assert "Hi." in [event.text for event in stage.all(Transcript)]


def test_sample_cut_in_two_messages_is_whole(stage):
    for data in (b"\x01\x02\x03", b"\x04"):
        part = {"inlineData": {"mimeType": "audio/pcm", "data": base64.b64encode(data).decode()}}
        stage.feed(modelTurn={"parts": [part]})
    assert b"".join(event.payload for event in stage.all(Audio)) == b"\x01\x02\x03\x04"
    assert all(len(event.payload) % 2 == 0 for event in stage.all(Audio))


def test_turn_goes_on_while_the_model_says_that_more_is_to_come(stage):
    stage.dialogue.user_text("Think")
    stage.feed(**AUDIO)
    stage.feed(turnComplete=True, interactionStatus="IN_PROGRESS")
    assert stage.all(TurnEnd) == []
    stage.feed(**AUDIO)
    stage.feed(turnComplete=True, interactionStatus="IDLE")
    assert len(stage.all(TurnEnd)) == len(stage.all(TurnBegin)) == 1


def test_late_words_of_the_user_interrupt_nothing(stage):
    stage.feed(inputTranscription={"text": "Turn it"})
    stage.feed(**AUDIO)
    stage.feed(inputTranscription={"text": " on."})
    stage.feed(turnComplete=True)
    assert len(stage.all(TurnBegin)) == 1
    assert [one.text for one in stage.all(Transcript) if one.final and one.role == "user"][
        -1
    ] == "Turn it on."
    assert stage.dialogue.history.turns()[0] == ("user", "Turn it on.")


def test_words_behind_the_answer_are_new_ones_only_after_a_sound(stage):
    stage.feed(inputTranscription={"text": "Turn it on."})
    stage.feed(**AUDIO)
    stage.feed(turnComplete=True)
    stage.feed(inputTranscription={"text": " Please."})
    assert len(stage.all(TurnBegin)) == 1
    stage.dialogue.hears = True
    stage.feed(inputTranscription={"text": "And off."})
    assert len(stage.all(TurnBegin)) == 2


def test_answer_that_is_refused_is_told(stage):
    stage.dialogue.user_text("Hello")
    stage.feed(turnComplete=True, turnCompleteReason="PROHIBITED_INPUT_CONTENT")
    [error] = stage.all(AgentError)
    assert error.recoverable
    assert error.turn == stage.turn
    assert "prohibited_input_content" in error.message


# --- interruptions


def test_server_interrupts_and_the_next_answer_is_heard(stage):
    stage.dialogue.user_text("Talk")
    stage.feed(**AUDIO)
    first = stage.turn
    stage.feed(inputTranscription={"text": "Wait"})
    stage.feed(interrupted=True)
    assert stage.all(TurnBegin)[-1].state == "listening"
    assert stage.speech() == []
    stage.dialogue.interrupted(first, [])
    stage.feed(turnComplete=True)
    stage.feed(inputTranscription={"text": " a moment."})
    stage.feed(**AUDIO)
    stage.feed(turnComplete=True)
    assert stage.speech() == [stage.turn]
    assert len(stage.all(TurnBegin)) == 2
    assert stage.dialogue.history.turns()[-1][1].endswith("Wait a moment.")


def test_device_interrupts_and_late_events_are_dropped_until_the_boundary(stage):
    stage.dialogue.user_text("Talk")
    stage.feed(**AUDIO)
    stage.dialogue.interrupted(stage.turn, [])
    stage.dialogue.user_text("Something else")
    stage.feed(outputTranscription={"text": "late"}, **AUDIO)
    stage.feed(interrupted=True)
    stage.feed(turnComplete=True)
    assert stage.speech() == []
    stage.feed(**AUDIO)
    stage.feed(turnComplete=True)
    assert stage.speech() == [stage.turn]
    assert len(stage.all(TurnBegin)) == 2
    assert not [one for one in stage.all(Transcript) if "late" in one.text]


@pytest.mark.parametrize("ends", [{"generationComplete": True}, {"turnComplete": True}])
def test_answer_that_is_all_there_leaves_nothing_dead(stage, ends):
    stage.dialogue.user_text("Talk")
    stage.feed(**AUDIO)
    stage.feed(**ends)
    stage.dialogue.interrupted(stage.turn, [])
    stage.dialogue.user_text("Next")
    if "generationComplete" in ends:
        stage.feed(turnComplete=True)  # the first one's
    stage.feed(**AUDIO)
    stage.feed(turnComplete=True)
    assert stage.speech() == [stage.turn]
    assert len(stage.all(TurnEnd)) == 1


def test_interruption_of_nothing_is_ignored(stage):
    stage.dialogue.user_text("Talk")
    stage.feed(**AUDIO)
    stage.feed(turnComplete=True)
    stage.feed(interrupted=True)
    assert len(stage.all(TurnBegin)) == 1
    assert stage.speech()


def test_speech_after_an_early_interruption_is_answered(stage):
    """The server may answer both utterances at once, and end nothing before."""
    stage.feed(inputTranscription={"text": "Turn on"})
    stage.dialogue.interrupted(stage.turn, [])
    stage.feed(inputTranscription={"text": " the fan."})
    stage.feed(**AUDIO)
    stage.feed(turnComplete=True)
    assert stage.speech() == [stage.turn]


def test_question_whose_answer_may_have_been_dropped_is_asked_again(stage):
    stage.dialogue.user_text("One")
    stage.dialogue.interrupted(stage.turn, [])
    stage.dialogue.user_text("Two")
    stage.feed(**AUDIO)
    stage.feed(turnComplete=True)
    assert stage.speech() == []
    assert stage.dialogue.doubtful
    stage.dialogue.insist()
    assert stage.out.sent[-1] == {"realtimeInput": {"text": "Two"}}
    assert not stage.dialogue.doubtful
    stage.feed(**AUDIO)
    assert stage.speech() == [stage.turn]


def test_signal_of_speech_ends_the_answer_before_the_server_does(stage):
    stage.dialogue.user_text("Talk")
    stage.feed(**AUDIO)
    first = stage.turn
    stage.message(voiceActivity={"voiceActivityType": "ACTIVITY_START"})
    assert stage.all(TurnBegin)[-1].state == "listening"
    stage.dialogue.interrupted(first, [])
    stage.feed(**AUDIO)
    assert stage.speech() == []
    stage.feed(interrupted=True)
    stage.feed(turnComplete=True)
    stage.feed(**AUDIO)
    assert stage.speech() == [stage.turn]
    assert len(stage.all(TurnBegin)) == 2


def test_what_was_heard_is_what_is_remembered(stage):
    stage.dialogue.user_text("Talk")
    stage.feed(outputTranscription={"text": "One two three four."}, **AUDIO)
    [begin] = stage.all(AudioBegin)
    stage.feed(turnComplete=True)
    stage.dialogue.interrupted(stage.turn, [Heard(begin.item, 50)])  # of 100
    assert stage.dialogue.history.turns()[-1] == ("model", "One two ...")


# --- calls


def test_results_of_one_message_go_back_in_one(stage):
    stage.dialogue.user_text("Do")
    lock, light = stage.calls("lock", "light")
    stage.dialogue.tool_result(stage.turn, settled(light))
    assert stage.results() == []
    stage.dialogue.tool_result(stage.turn, settled(lock, "FAILED"))
    [results] = stage.results()
    assert [(one["id"], one["response"]["ok"]) for one in results] == [("id-1", True), ("id-0", False)]
    stage.feed(**AUDIO)
    stage.feed(turnComplete=True)
    assert len(stage.all(TurnBegin)) == len(stage.all(TurnEnd)) == 1


def test_end_of_what_made_a_call_may_come_behind_its_result(stage):
    stage.dialogue.user_text("Do")
    stage.feed(**AUDIO)
    [call] = stage.calls("lock")
    stage.dialogue.tool_result(stage.turn, settled(call))
    stage.feed(generationComplete=True)
    stage.feed(turnComplete=True)
    assert stage.all(TurnEnd) == []
    stage.feed(**AUDIO)
    stage.feed(turnComplete=True)
    assert stage.speech() == [stage.turn, stage.turn]
    assert len(stage.all(TurnEnd)) == len(stage.all(TurnBegin)) == 1


@pytest.mark.parametrize(
    ("parted", "status", "at_once"),
    [(False, None, False), (True, None, True), (False, "IDLE", True), (True, "REQUIRES_ACTION", False)],
)
def test_model_that_says_nothing_to_a_result_ends_its_turn(stage, parted, status, at_once):
    stage.dialogue.user_text("Do")
    [call] = stage.calls("lock")
    if parted:
        stage.feed(turnComplete=True, interactionStatus="REQUIRES_ACTION")
    stage.dialogue.tool_result(stage.turn, settled(call))
    stage.feed(turnComplete=True, interactionStatus=status)
    assert len(stage.all(TurnEnd)) == at_once
    if not at_once:
        assert stage.dialogue.doubtful
        stage.dialogue.insist()
    assert len(stage.all(TurnEnd)) == 1
    assert stage.dialogue.at_rest


def test_sound_behind_a_call_belongs_to_the_turn(stage):
    stage.dialogue.user_text("Do")
    stage.feed(**AUDIO)
    [call] = stage.calls("lock")
    stage.feed(**AUDIO)
    stage.feed(generationComplete=True)
    stage.feed(turnComplete=True)
    stage.dialogue.tool_result(stage.turn, settled(call))
    stage.feed(**AUDIO)
    stage.feed(turnComplete=True)
    assert stage.speech() == 3 * [stage.turn]
    assert len(stage.all(TurnEnd)) == len(stage.all(TurnBegin)) == 1


def test_call_that_is_sent_twice_runs_once(stage):
    stage.dialogue.user_text("Do")
    [call] = stage.calls("lock")
    stage.calls("lock")
    assert stage.all(Call) == [call]
    stage.dialogue.tool_result(stage.turn, settled(call))
    assert len(stage.results()) == 1
    stage.calls("lock")
    assert stage.all(Call) == [call]
    assert stage.results()[0] == stage.results()[1]
    stage.calls("light")  # the same id for another call
    assert [one.name for one in stage.all(Call)] == ["lock", "light"]


def test_call_that_is_not_taken_back_with_another_is_answered(stage):
    stage.dialogue.user_text("Do")
    calls = stage.calls("lock", "light")
    first = stage.turn
    stage.message(toolCallCancellation={"ids": ["id-0"]})
    for call in calls:
        stage.dialogue.tool_result(first, settled(call, "INTERRUPTED"))
    stage.dialogue.interrupted(first, [])
    stage.dialogue.insist()
    assert [[one["id"] for one in answer] for answer in stage.results()] == [["id-1"]]


@pytest.mark.parametrize("parted", [False, True])
def test_model_that_hears_nothing_during_a_call_is_told_of_the_interruption(parted):
    stage = Stage("gemini-3.1-flash-live-preview")
    stage.dialogue.user_text("Do")
    [call] = stage.calls("lock")
    if parted:
        stage.feed(turnComplete=True)
    assert stage.dialogue.deaf
    stage.dialogue.tool_result(stage.turn, settled(call, "INTERRUPTED"))
    stage.dialogue.interrupted(stage.turn, [])
    assert not stage.dialogue.deaf
    [[result]] = stage.results()
    assert result["response"]["code"] == "INTERRUPTED"
    stage.feed(**AUDIO)  # what it says to that
    stage.feed(turnComplete=True)
    assert stage.speech() == []
    stage.dialogue.user_text("Next")
    stage.feed(**AUDIO)
    assert stage.speech() == [stage.turn]


def test_calls_that_the_server_took_back_get_no_result(stage):
    stage.dialogue.user_text("Do")
    turn = stage.turn
    [call] = stage.calls("lock")
    stage.message(toolCallCancellation={"ids": ["id-0"]})
    assert stage.all(TurnBegin)[-1].state == "listening"
    stage.dialogue.tool_result(turn, settled(call, "INTERRUPTED"))
    stage.dialogue.interrupted(turn, [])
    assert stage.results() == []
    stage.dialogue.user_text("Next")
    assert not stage.dialogue.doubtful


def test_interrupted_result_is_sent_only_to_a_server_that_waits_for_it(stage):
    stage.dialogue.user_text("Do")
    [call] = stage.calls("lock")
    stage.dialogue.tool_result(stage.turn, settled(call, "INTERRUPTED"))
    stage.dialogue.interrupted(stage.turn, [])
    assert stage.results() == []
    stage.dialogue.user_text("What now?")
    assert stage.dialogue.doubtful
    stage.dialogue.insist()
    [[result]] = stage.results()
    assert result["response"]["code"] == "INTERRUPTED"


def test_call_that_does_not_block_is_answered_silently():
    stage = Stage(tool_calls="non_blocking")
    stage.dialogue.user_text("Do")
    [call] = stage.calls("lock")
    stage.feed(turnComplete=True)
    assert stage.all(TurnEnd) == []  # its call is open
    stage.feed(interrupted=True)  # of nothing
    assert len(stage.all(TurnBegin)) == 1
    stage.dialogue.tool_result(stage.turn, settled(call, "INTERRUPTED"))
    stage.dialogue.interrupted(stage.turn, [])
    [[result]] = stage.results()
    assert result["scheduling"] == "SILENT"
    stage.dialogue.user_text("Next")
    stage.feed(**AUDIO)
    assert stage.speech() == [stage.turn]


def test_call_in_a_dead_answer_is_refused_and_not_run(stage):
    stage.dialogue.user_text("Do")
    stage.dialogue.interrupted(stage.turn, [])
    stage.message(toolCall={"functionCalls": [{"id": "x", "name": "lock", "args": {}}]})
    assert stage.all(Call) == []
    [[result]] = stage.results()
    assert result["response"]["code"] == "INTERRUPTED"


def test_what_the_model_says_of_an_overdue_call_is_heard(stage):
    stage.dialogue.user_text("Do")
    first = stage.turn
    [call] = stage.calls("lock")
    stage.dialogue.tool_result(first, settled(call, "TIMEOUT"))
    stage.dialogue.interrupted(first, [])
    stage.feed(**AUDIO)
    assert stage.speech() == [stage.turn]
    assert stage.turn != first


def test_malformed_call_ends_its_turn(stage):
    stage.dialogue.user_text("Do")
    stage.feed(turnComplete=True, turnCompleteReason="MALFORMED_FUNCTION_CALL")
    [error] = stage.all(AgentError)
    assert error.turn == stage.turn
    assert error.recoverable


# --- context and connections


def test_context_goes_by_the_message_that_the_model_takes():
    new = Stage()
    new.dialogue.context({"door": "open"})
    parts = new.out.sent[0]["contextUpdate"]["systemInstruction"]["parts"]
    assert parts[0] == {"text": "Be brief."}
    assert parts[1]["text"].startswith(messages.CONTEXT)
    later = Stage("gemini-3.1-flash-live-preview")
    later.dialogue.context({"door": "open"})
    assert later.out.sent == []
    later.dialogue.user_text("Hello")
    assert later.out.sent[0]["realtimeInput"]["text"].startswith(messages.CONTEXT)


def test_context_as_content_waits_for_the_end_of_an_answer():
    stage = Stage("gemini-2.5-flash")
    stage.dialogue.user_text("Talk")
    stage.feed(**AUDIO)
    stage.dialogue.context({"door": "open"})
    assert len(stage.out.sent) == 1  # it would interrupt
    stage.feed(turnComplete=True)
    assert stage.out.sent[1]["clientContent"]["turnComplete"] is False


def test_loss_of_the_connection_names_the_turn_that_ends(stage):
    stage.feed(inputTranscription={"text": "Hello"})
    stage.feed(**AUDIO)
    assert stage.dialogue.lost() == stage.turn
    assert stage.dialogue.lost() is None
    assert stage.dialogue.history.turns()[0] == ("user", "Hello")


def test_loss_before_an_answer_asks_again_once(stage):
    stage.dialogue.user_text("Hello")
    assert stage.dialogue.lost() is None
    assert stage.out.sent == 2 * [{"realtimeInput": {"text": "Hello"}}]
    assert stage.dialogue.lost() == stage.turn


def test_loss_behind_the_answer_costs_nothing(stage):
    stage.dialogue.user_text("Hello")
    stage.feed(**AUDIO)
    stage.feed(generationComplete=True)
    assert stage.dialogue.lost() is None
    assert len(stage.all(TurnEnd)) == 1


def test_result_is_told_to_the_session_after(stage):
    stage.dialogue.user_text("Do")
    [call] = stage.calls("lock")
    assert stage.dialogue.lost() is None
    stage.dialogue.connected(anew=True)
    stage.dialogue.tool_result(stage.turn, settled(call))
    [_, told] = stage.out.sent
    assert told["realtimeInput"]["text"].startswith(messages.RESULT)
    assert '"state":"on"' in told["realtimeInput"]["text"]
    stage.feed(**AUDIO)
    stage.feed(turnComplete=True)
    assert len(stage.all(TurnBegin)) == len(stage.all(TurnEnd)) == 1
    assert '"state":"on"' in stage.dialogue.history.turns()[0][1]


def test_spoken_turn_without_an_answer_is_given_up(stage):
    stage.feed(inputTranscription={"text": "hm"})
    assert stage.dialogue.waiting
    stage.dialogue.give_up_waiting()
    assert len(stage.all(TurnEnd)) == 1
    assert stage.dialogue.at_rest
