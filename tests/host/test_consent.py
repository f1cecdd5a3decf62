"""A call that is confirmed by voice, made by an agent whose word does not count: only the user's yes to that very call lets it out."""

import pytest
from turn_stage import Stage, only
from vrt_host.agents.base import Call, Text, Tool, Transcript, TurnBegin, TurnEnd
from vrt_host.consent import ANSWER_S, TRANSCRIPT_S, question

VAULT = {
    "name": "vault",
    "confirm": "voice",
    "confirmWhen": {"state": ["open"]},
    "parameters": {"type": "object", "properties": {"state": {}, "number": {}}},
}
ARGUMENTS = {"state": "open", "number": 2}
QUESTION = "Shall I do this: vault, state open, number 2?"


class House:
    """A stage whose agent has been refused, asks, and is answered."""

    def __init__(self, **members):
        self.stage = Stage({"tools": [{**VAULT, **members}]}, interruption="cancel")
        self.number = 0

    def call(self, turn, **arguments):
        self.number += 1
        self.stage.emit(Call(turn, f"c{self.number}", "vault", {**ARGUMENTS, **arguments}))

    def asked(self, words=QUESTION, how=Transcript):
        said = Text("t1", words) if how is Text else Transcript("t1", "agent", words, final=True)
        self.stage.emit(TurnBegin("t1"))
        self.call("t1")
        assert self.codes() == ["REJECTED"]
        self.stage.emit(said, TurnEnd("t1"))
        assert self.stage.kinds()[-1] == "idle"

    def user(self, turn, words):
        self.stage.emit(Transcript(turn, "user", words, final=True))

    def began(self, turn):
        self.stage.emit(TurnBegin(turn, "listening"))

    def codes(self):
        return [told[2].code for told in self.stage.agent.take() if told[0] == "tool_result"]

    def sent(self):
        return len(only(self.stage.take(), "tool.call"))


def answered(words, **members):
    house = House(**members)
    house.asked()
    house.began("t2")
    house.user("t2", words)
    return house


def test_question_names_the_tool_and_all_its_arguments():
    tool = Tool("garage.door_left")
    assert question(tool, {}) == "Shall I do this: garage door left?"
    assert question(tool, {"open_to": 0.5, "zones": ["a_b", 2], "quiet": True}) == (
        "Shall I do this: garage door left, open to 0.5, zones 1 a b 2 2, quiet yes?"
    )


def test_refusal_tells_the_model_what_to_ask():
    house = House()
    house.stage.emit(TurnBegin("t1"))
    house.call("t1")
    ((_, _, result),) = house.stage.agent.take()
    assert f'"{QUESTION}"' in result.message
    assert house.sent() == 0


@pytest.mark.parametrize("words", ["Yes.", "yes, please!", "Yeah", "Confirm."])
def test_plain_yes_lets_the_call_out_once(words):
    house = answered(words)
    house.call("t2")
    house.call("t2")
    assert house.sent() == 1
    assert house.codes() == ["REJECTED"]  # the second: one yes is for one call


@pytest.mark.parametrize(
    "words", ["No.", "yes and the back door", "", "maybe", "not yes", "Yes? What was that?", "open it"]
)
def test_all_else_is_no_yes(words):
    house = answered(words)
    house.call("t2")
    assert house.sent() == 0
    assert house.codes() == ["REJECTED"]


@pytest.mark.parametrize("changed", [{"number": 3}, {"number": "2"}, {"number": 2.0}, {"more": 1}])
def test_yes_is_for_the_arguments_that_were_named(changed):
    house = answered("yes")
    house.call("t2", **changed)
    assert house.sent() == 0


def test_yes_is_for_its_own_turn():
    house = answered("yes")
    house.stage.emit(TurnEnd("t2"), TurnBegin("t3"))
    house.call("t3")
    assert house.sent() == 0


def test_yes_after_other_words_comes_too_late():
    house = answered("what time is it")
    house.user("t2", "yes")
    house.call("t2")
    assert house.sent() == 0


@pytest.mark.parametrize(
    "words",
    ["Do you like music?", "", "Shall I do this: vault, state open, number 3?", "Shall I do this: vault?"],
)
def test_yes_to_another_question_is_none(words):
    house = House()
    house.asked(words)
    house.began("t2")
    house.user("t2", "yes")
    house.call("t2")
    assert house.sent() == 0


@pytest.mark.parametrize(
    "words", ["Sure. Shall I do this: Vault, state: open, number two?", QUESTION.upper()]
)
@pytest.mark.parametrize("how", [Text, Transcript])
def test_question_is_heard_however_it_is_written(words, how):
    house = House()
    house.asked(words, how)
    house.began("t2")
    house.user("t2", "yes")
    house.call("t2")
    assert house.sent() == 1


def test_yes_before_the_question_was_heard_out_is_none():
    house = House()
    house.stage.emit(TurnBegin("t1"))
    house.call("t1")
    house.stage.emit(Transcript("t1", "agent", QUESTION, final=True))
    house.began("t2")
    house.user("t2", "yes")
    house.call("t2")
    assert house.sent() == 0


def test_yes_that_comes_after_a_while_is_none():
    house = House()
    house.asked()
    house.stage.run_until(house.stage.now + ANSWER_S + 1)
    house.began("t2")
    house.user("t2", "yes")
    house.call("t2")
    assert house.sent() == 0


@pytest.mark.parametrize(("words", "sent"), [("yes", 1), ("yes, and sing", 0)])
def test_typed_yes_is_one(words, sent):
    house = House()
    house.asked()
    house.stage.say("text", text=words)
    house.stage.emit(TurnBegin("t2"))
    house.call("t2")
    assert house.sent() == sent


def test_typed_text_before_an_old_turn_says_nothing_in_a_later_one():
    house = House()
    house.stage.say("text", text="yes")
    house.asked()
    house.stage.emit(TurnBegin("t2"))
    house.call("t2")
    assert house.sent() == 0


@pytest.mark.parametrize(("words", "sent", "codes"), [("Yes.", 1, []), ("No.", 0, ["REJECTED"])])
def test_call_that_is_quicker_than_the_transcript_waits_for_it(words, sent, codes):
    house = House()
    house.asked()
    house.began("t2")
    house.call("t2")
    house.stage.emit(TurnEnd("t2"))
    assert (house.sent(), house.codes()) == (0, [])
    assert house.stage.manager.deadline(house.stage.now) == house.stage.now + TRANSCRIPT_S
    house.user("t2", words)
    assert (house.sent(), house.codes()) == (sent, codes)


def test_call_does_not_wait_for_a_transcript_for_ever():
    house = House()
    house.asked()
    house.began("t2")
    house.call("t2")
    house.stage.run_until(house.stage.now + TRANSCRIPT_S + 0.1)
    assert (house.sent(), house.codes()) == (0, ["REJECTED"])


def test_call_that_waits_dies_with_its_turn():
    house = House()
    house.asked()
    house.began("t2")
    house.call("t2")
    house.began("t3")
    house.user("t3", "yes")
    assert (house.sent(), house.codes()) == (0, ["INTERRUPTED"])
    house.call("t3")
    assert house.sent() == 1  # that yes was heard, in its own turn


def test_call_that_does_not_ask_needs_no_yes():
    house = House()
    house.stage.emit(TurnBegin("t1"))
    house.call("t1", state="closed")
    assert house.sent() == 1
