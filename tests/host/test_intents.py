"""agents/intents.py and what it is made of: templates, phrases, replies, agreement. No tool here is known to the code."""

from __future__ import annotations

import json
import re

import pytest
from vrt_host.agents import replies
from vrt_host.agents.agreement import Fuzzy, limit
from vrt_host.agents.base import Tool, ToolResult
from vrt_host.agents.intents import Intents, complete
from vrt_host.agents.templates import Choices, Numbers, TemplateError, example, jsgf, match_all, parse

LOCK = Tool(
    "lock",
    parameters={
        "type": "object",
        "properties": {"door": {"enum": ["front", "back"]}, "state": {"enum": ["locked", "unlocked"]}},
        "required": ["door", "state"],
    },
    confirm="button",
    confirm_when={"state": ["unlocked"]},
    effect="irreversible",
    phrases=[
        {"say": "lock [the] {door} door", "set": {"state": "locked"}, "reply": "The {door} door is locked."},
        {
            "say": "unlock [the] {door} door",
            "set": {"state": "unlocked"},
            "ask": "Button, for the {door} door.",
        },
    ],
)
KETTLE = Tool(
    "kettle",
    parameters={
        "type": "object",
        "properties": {
            "degrees": {"type": "integer", "minimum": 40, "maximum": 100, "multipleOf": 5},
            "keep": {"type": "boolean"},
            "tea": {"enum": ["earl_grey", "mint"]},
        },
        "required": ["degrees"],
    },
    phrases=[
        {
            "say": [
                "heat [the] water to {degrees} degrees",
                "turn keep warm {keep} and heat to {degrees}",
                "make {tea} tea",
            ],
            "words": {"degrees": {"boiling": 100}},
            "reply": "Heating to {degrees}.",
        },
        {"say": "(boil|cook) [the] water", "set": {"degrees": 100}},
        {"say": "heat to {degrees}"},
    ],
)


def sounds(word: str) -> list[list[str]]:
    """Every word sounds as it is spelled."""
    return [list(word)]


def calls(intents: Intents, text: str) -> list[tuple[str, dict]] | None:
    meaning = intents.parse(text)
    if meaning is None or meaning.control:
        return None
    return [(command.tool.name, dict(command.arguments)) for command in meaning.commands]


# --- templates


@pytest.mark.parametrize(
    ("template", "matches", "fails"),
    [
        ("turn on", ["turn on"], ["turn", "turn on on", "on turn", ""]),
        ("(a|b c) d", ["a d", "b c d"], ["a b c d", "d"]),
        ("[very] [very] loud", ["loud", "very loud", "very very loud"], ["very", "very very very loud"]),
        ("x [y|z]", ["x", "x y", "x z"], ["x y z"]),
        ("{n} pieces", ["three pieces", "minus two pieces"], ["nine pieces", "pieces", "two three pieces"]),
        ("What's up", ["what is up"], ["what up"]),
        ("zone 1", ["zone one"], ["zone"]),
        ("twenty-one", ["twenty one"], ["twenty"]),
    ],
)
def test_template_matches(template, matches, fails):
    node = parse(template, {"n": Numbers(-2, 5)})
    for text in matches:
        assert list(match_all(node, text.split())), text
    for text in fails:
        assert not list(match_all(node, text.split())), text


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("(a|b", "not closed"),
        ("a)", "closes nothing"),
        ("[a", "not closed"),
        ("[a)", "not closed"),
        ("turn {other}", "no parameter 'other'"),
        ("turn {n", "no partner"),
        ("[a]", "saying nothing"),
        ("", "saying nothing"),
        ("(|a)", "saying nothing"),
        ("дверь", "no English word"),
        ("!", "no English word"),
        ("(" * 20 + "a" + ")" * 20, "nested deeper"),
        ("a " * 300, "longer than"),
    ],
)
def test_template_says_what_is_wrong(template, reason):
    with pytest.raises(TemplateError, match=reason):
        parse(template, {"n": Numbers(0, 5)})


def test_template_with_many_options_is_matched_in_no_time():
    node = parse("[a] " * 60 + "b", {})
    assert list(match_all(node, ["a"] * 50 + ["b"]))
    assert not list(match_all(node, ["a"] * 61 + ["b"]))


def test_template_that_names_a_slot_twice_wants_it_twice_alike():
    node = parse("from {n} to {n}", {"n": Numbers(0, 9)})
    assert list(match_all(node, ["from", "two", "to", "two"]))
    assert not list(match_all(node, ["from", "two", "to", "three"]))


def test_template_as_a_grammar_and_as_an_example():
    node = parse("(turn|switch) [the] {n} (lamps|lights) [please|now]", {"n": Choices({"two": 2, "ten": 10})})
    assert jsgf(node, lambda values: "s0") == "(turn | switch) [the] <s0> (lamps | lights) [please | now]"
    assert example(node) == "turn the two lamps"


# --- phrases


def test_intents_fill_slots_from_the_schema():
    intents = Intents([LOCK, KETTLE])
    assert intents.warnings == [
        "tool 'kettle': 'make {tea} tea' cannot be used: it may leave 'degrees' unsaid, which is required"
    ]
    assert calls(intents, "Lock the front door.") == [("lock", {"door": "front", "state": "locked"})]
    assert calls(intents, "please unlock back door") == [("lock", {"door": "back", "state": "unlocked"})]
    assert calls(intents, "Heat the water to boiling degrees") == [("kettle", {"degrees": 100})]
    assert calls(intents, "heat to 85") == [("kettle", {"degrees": 85})]
    assert calls(intents, "heat to eighty five") == [("kettle", {"degrees": 85})]
    assert calls(intents, "cook water") == [("kettle", {"degrees": 100})]
    assert calls(intents, "turn keep warm on and heat to boiling") == [
        ("kettle", {"degrees": 100, "keep": True})
    ]
    for wrong in ("heat to 87", "heat to thirty five", "heat to 105", "lock the side door", "lock", ""):
        assert calls(intents, wrong) is None


def test_intents_take_two_commands_and_politeness():
    intents = Intents([LOCK, KETTLE])
    both = [("lock", {"door": "front", "state": "locked"}), ("kettle", {"degrees": 100})]
    for text in (
        "Lock the front door and boil the water.",
        "could you lock the front door, and then boil the water please?",
        "Please lock the front door then boil the water!",
    ):
        assert calls(intents, text) == both, text
    meaning = intents.parse("could you please lock the front door and then boil the water please")
    assert [command.text for command in meaning.commands] == ["lock the front door", "boil the water"]


@pytest.mark.parametrize(
    ("text", "control"),
    [
        ("Stop!", "stop"),
        ("never mind", "stop"),
        ("yes", "yes"),
        ("Yes, please.", "yes"),
        ("No, thank you.", "no"),
        ("What can you do?", "help"),
    ],
)
def test_intents_know_their_own_words(text, control):
    for tools in ([], [LOCK]):
        assert Intents(tools).parse(text).control == control


def test_intents_of_a_tool_that_takes_our_word_give_it_the_tool():
    assert calls(Intents([Tool("halt", phrases=["stop"])]), "stop") == [("halt", {})]


def test_intents_yes_that_names_something_else_is_no_yes():
    assert Intents([LOCK]).parse("yes lock the front door") is None


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        (Tool("check_house"), {"check the house": {}, "please check house": {}}),
        (Tool("temperature", effect="none"), {"what is the temperature": {}, "read temperature": {}}),
        (Tool("get-humidity", effect="none"), {"tell me the humidity": {}, "get the humidity": {}}),
        (Tool("waterPlants"), {"water the plants": {}}),
        (
            Tool("fan", parameters={"properties": {"on": {"type": "boolean"}}, "required": ["on"]}),
            {"turn the fan on": {"on": True}, "switch off the fan": {"on": False}},
        ),
        (
            Tool(
                "set_thermostat",
                parameters={"properties": {"degrees": {"type": "number", "minimum": 5, "maximum": 30}},
                            "required": ["degrees"]},
            ),
            {"set the thermostat to twenty one": {"degrees": 21}, "set thermostat degrees to 9": {"degrees": 9}},
        ),
        (
            Tool(
                "move_arm",
                parameters={
                    "properties": {"joint": {"enum": ["left_elbow", "wrist"]}, "angle": {"type": "integer"}},
                    "required": ["joint", "angle"],
                },
            ),
            {"move the arm left elbow angle to 90": {"joint": "left_elbow", "angle": 90}},
        ),
        (Tool("beep", parameters={"properties": {"kind": {"const": "long"}}, "required": ["kind"]}), {"beep": {"kind": "long"}}),
    ],
)  # fmt: skip
def test_intents_of_a_tool_without_phrases_come_from_its_name(tool, said):
    intents = Intents([tool])
    assert intents.warnings == []
    for text, arguments in said.items():
        assert calls(intents, text) == [(tool.name, arguments)], text


@pytest.mark.parametrize(
    ("phrases", "warning"),
    [
        ([5], "a string or an object"),
        ([{"reply": "x"}], "a string or an object"),
        ([{"say": 5}], "a template or a list"),
        ([{"say": "go", "sing": 1}], "no member 'sing'"),
        ([{"say": "go (now"}], "'go (now' cannot be used"),
        ([{"say": "go {depth}"}], "no parameter 'depth'"),
        ([{"say": "go", "set": 3}], "\"set\" is an object"),
        ([{"say": "go", "words": {"x": 3}}], "\"words\" of 'x'"),
        ([{"say": "go", "reply": "{speed}"}], "'reply' refers to {speed}"),
        ([{"say": "go", "ask": "{output.x}"}], "'ask' refers to {output.x}"),
        ([{"say": "go", "while": 7}], "'while' is a text"),
        (["go"] * 60, "only the first 50"),
    ],
)  # fmt: skip
def test_intents_warn_of_a_bad_phrase_and_go_on(phrases, warning):
    intents = Intents(
        [Tool("robot", phrases=[*phrases, "walk"] if len(phrases) < 50 else ["walk", *phrases]), LOCK]
    )
    assert len(intents.warnings) == 1
    assert intents.warnings[0].startswith("tool 'robot': ")
    assert warning in intents.warnings[0]
    assert calls(intents, "walk") == [("robot", {})]
    assert calls(intents, "lock front door") == [("lock", {"door": "front", "state": "locked"})]


def test_intents_of_free_text_parameters_say_so():
    intents = Intents(
        [Tool("play", parameters={"properties": {"song": {"type": "string"}}, "required": ["song"]})]
    )
    assert "'song' is free text" in intents.warnings[0]


@pytest.mark.parametrize(
    "schema",
    [{"properties": 3}, {"properties": {"a": 4}, "required": 7}, {"properties": {"a": {"enum": "x"}}}],
)
def test_intents_survive_a_strange_schema(schema):
    assert Intents([Tool("odd", parameters=schema, phrases=["do it"])]).parse("do it") is not None


# --- the grammar


def test_grammar_holds_every_word_with_its_sounds():
    grammar = Intents([LOCK, KETTLE]).pronounce(sounds)
    assert grammar.jsgf.startswith("#JSGF V1.0;")
    for word in ("lock", "front", "sixty", "boiling", "please", "then", "stop", "on", "off"):
        assert grammar.pronunciations[word] == [list(word)]
    assert "eighty five" in grammar.jsgf
    assert "eighty seven" not in grammar.jsgf


def test_grammar_leaves_out_what_nobody_can_pronounce_and_names_it():
    intents = Intents([Tool("robot", phrases=["activate xqzt", "walk"])])
    grammar = intents.pronounce(lambda word: [] if word == "xqzt" else sounds(word))
    assert "xqzt" not in grammar.jsgf
    assert "'xqzt'" in intents.warnings[0]
    assert calls(intents, "walk") == [("robot", {})]
    assert calls(intents, "activate xqzt") is None


def test_grammar_of_a_wide_range_is_not_a_list():
    tool = Tool("wait", parameters={"properties": {"s": {"type": "integer", "minimum": 0, "maximum": 86_400}}, "required": ["s"]},
                phrases=["wait {s} seconds"])  # fmt: skip
    intents = Intents([tool])
    grammar = intents.pronounce(sounds)
    assert len(grammar.jsgf) < 4000
    assert "thousand" in grammar.pronunciations
    assert calls(intents, "wait one thousand two hundred and five seconds") == [("wait", {"s": 1205})]
    assert calls(intents, "wait ninety thousand seconds") is None


def test_grammar_without_tools_still_has_our_own_words():
    grammar = Intents([]).pronounce(sounds)
    assert "never mind" in grammar.jsgf
    assert set(re.findall(r"[a-z]+", grammar.more.partition("=")[2].replace("sentence", ""))) == set(
        grammar.pronunciations
    )


# --- agreement of two recognisers

LIGHT = Tool(
    "light",
    parameters={"properties": {"state": {"enum": ["on", "off"]}}, "required": ["state"]},
    phrases=["turn {state} the light", "turn the light {state}"],
)


@pytest.mark.parametrize(
    ("grammar", "free", "agree"),
    [
        ("lock the front door", "Lock the front door.", True),
        ("lock the front door", "Look the front door", True),  # sounds alike
        ("lock the front door and", "Lock front door", True),  # the grammar heard a joint in the silence
        ("please lock the front door", "lock the front door", True),
        ("lock the front door", "Lock the back door.", False),
        ("unlock the front door", "Lock the front door.", False),
        ("lock the front door", "Unlock the front door.", False),
        ("unlock the front door", "Un lock the front door.", True),
        ("unlock the front door", "Unlocked the front door.", True),
        ("lock the front door", "And lock the front door.", False),
        ("and lock the front door", "And lock the front door.", True),  # it goes on from the sentence before
        ("and then lock the front door", "Lock the front door.", True),
        ("and lock the front door", "And turn on the light.", False),
        ("turn on the light", "You turn on the light.", False),
        ("could you turn on the light", "You turn on the light.", False),
        ("turn on the light", "Not turn on the light.", False),
        ("lock the front door", "Not lock the front door.", False),
        ("turn on the light", "Turn the light.", False),
        ("turn on the light", "On the light.", False),
        ("turn on the light", "Is the light on?", False),
        ("turn the light on", "Is the light on?", False),
        ("turn on the light", "Do not turn on the light.", False),
        ("turn on the light", "Don't turn on the light.", False),
        ("turn on the light", "Never turn on the light", False),
        ("turn on the light", "Turn on the lights in the whole house", False),
        ("turn on the light", "Turn of the light", False),  # nearer to "off"
        ("turn off the light", "Turn of the light", True),
        ("turn on the light", "Did you turn on the light?", False),
        ("lock the front door", "The front door is made of oak", False),
        ("lock the front door", "", False),
        ("", "Lock the front door.", False),
        ("lock the", "Lock the front door.", False),
        ("heat to eighty five", "Heat to 85.", True),
        ("heat to eighty five", "He to 85", True),
        ("heat to eighty", "Heat to 85.", False),
        ("stop", "Stop.", True),
        ("stop", "Shop.", False),
        ("lock the front door and then turn off the light", "Lock the front door and then turn of the light", True),
        ("lock the front door and then turn on the light", "Lock the front door, then turn off the light", False),
    ],
)  # fmt: skip
def test_agreement(grammar, free, agree):
    intents = Intents([LOCK, KETTLE, LIGHT])
    meaning = intents.agree(grammar, free, sounds)
    assert (meaning is not None) == agree
    if meaning is not None:
        assert meaning.same(intents.parse(complete(grammar)))


def test_agreement_by_likelihood_when_the_text_is_garbled():
    intents = Intents([LOCK, LIGHT])
    garbled = "Learn on as tall night"
    assert intents.agree("turn on the light", garbled, sounds) is None
    assert intents.agree("turn on the light", garbled, sounds, against=2.0) is not None
    assert intents.agree("turn on the light", garbled, sounds, against=5.5) is None
    assert (
        intents.agree("unlock the front door", "And mock a front floor", sounds, against=7.0) is not None
    )  # it asks
    assert (
        intents.agree("unlock the front door", "And mock a back floor", sounds, against=1.0) is None
    )  # which door?
    assert intents.agree("turn on the light", "Turn off the light", sounds, against=0.0) is None
    assert intents.agree("could you turn on the light", garbled, sounds, against=1.0) is None  # did you?


def test_fuzzy_costs_nothing_for_the_same_words_and_is_infinite_for_others():
    words = ["turn", "on", "the", "light"]
    assert Fuzzy(words, sounds).cost(words) == 0
    assert Fuzzy(["turn", "on", "light"], sounds).cost(words) <= limit(words)
    assert Fuzzy(["turn", "on", "the", "sun"], sounds).cost(words) == float("inf")
    assert Fuzzy([], sounds).cost(words) == float("inf")


# --- what is said


def command(intents: Intents, text: str):
    return intents.parse(text).commands[0]


@pytest.mark.parametrize(
    ("text", "result", "said"),
    [
        ("lock the back door", ToolResult("c", True, {"ok": 1}), "The back door is locked."),
        ("heat to 85", ToolResult("c", True), "Done."),
        ("heat to 85", ToolResult("c", True, {"power": 900, "lid": "not_closed"}), "Power: 900, lid: not closed."),
        ("heat to 85", ToolResult("c", True, "half_full"), "Half full."),
        ("unlock the back door", ToolResult("c", False, code="REJECTED"), "Not confirmed, so I did not unlock the back door."),
        ("lock the back door", ToolResult("c", False, code="REJECTED"), "The device refused to lock the back door."),
        ("lock the back door", ToolResult("c", False, code="TIMEOUT"), "That took too long. I cannot say whether it was done."),
        ("lock the back door", ToolResult("c", False, code="FAILED", message="outcome unknown"), "Something went wrong. I cannot say whether it was done, please check."),
        ("lock the back door", ToolResult("c", False, code="FAILED", message="OSError: 5"), "I tried to lock the back door, but it failed."),
        ("lock the back door", ToolResult("c", False, code="INVALID"), "The device does not know how to lock the back door."),
    ],
)  # fmt: skip
def test_reply_comes_from_the_result(text, result, said):
    assert replies.reply(command(Intents([LOCK, KETTLE]), text), result) == said


def test_reply_with_fields_of_the_result():
    tool = Tool(
        "scale",
        effect="none",
        phrases=[{"say": "weigh", "reply": "It is {output.kg} kilos on {output.place.name}."}],
    )
    weigh = command(Intents([tool]), "weigh")
    assert replies.foreseen(weigh) is None
    told = replies.reply(weigh, ToolResult("c", True, {"kg": 2.5, "place": {"name": "the_table"}}))
    assert told == "It is 2.5 kilos on the table."
    assert replies.reply(weigh, ToolResult("c", True, {"kg": 2.5})) == "Kg: 2.5."  # not what it did not say
    failed = replies.reply(weigh, ToolResult("c", False, code="FAILED", message="x"))
    assert failed == "I tried to weigh, but it failed."


def test_ask_and_question_name_the_deed():
    intents = Intents(
        [LOCK, Tool("door_bell", confirm="button", phrases=["ring the bell", "is the bell there"])]
    )
    assert replies.ask(command(intents, "unlock the front door")) == "Button, for the front door."
    assert (
        replies.ask(command(intents, "please ring the bell"))
        == "Hold the button for one second to ring the bell."
    )
    assert replies.ask(command(intents, "is the bell there")) == "Hold the button for one second to do that."
    assert replies.question([command(intents, "ring the bell")]) == "Shall I ring the bell? Say yes to go on."


BOLT = Tool(
    "bolt",
    parameters={"properties": {"state": {"enum": ["locked", "unlocked"]}}, "required": ["state"]},
    phrases=[
        "set the bolt to {state}",
        {"say": "let me in", "set": {"state": "unlocked"}},
        {"say": "good night", "set": {"state": "locked"}},
    ],
)


@pytest.mark.parametrize(
    ("tool", "text", "aloud", "device"),
    [
        (LOCK, "unlock the front door", False, True),
        (LOCK, "lock the front door", False, False),
        (Tool("gate", phrases=["open the gate"]), "open the gate", True, False),
        (Tool("gate", phrases=["unlock it"]), "unlock it", True, False),
        (Tool("curtain", phrases=["open the curtains"]), "open the curtains", False, False),
        (Tool("gate", confirm="button", confirm_when={"x": [1]}, phrases=["open the gate"]), "open the gate", False, False),
        (Tool("pay", confirm="voice", phrases=["pay the bill"]), "pay the bill", True, False),
        (Tool("gates", effect="none", phrases=["which gates are open", "unlocked doors"]), "unlocked doors", False, False),
        (Tool("gates", phrases=["which gates are open"]), "which gates are open", False, False),
        (BOLT, "let me in", True, False),
        (BOLT, "good night", False, False),
        (BOLT, "set the bolt to unlocked", True, False),
        (BOLT, "set the bolt to locked", False, False),
        (Tool("unlock_shed", phrases=["let me into the shed"]), "let me into the shed", True, False),
        (Tool("open_gate", phrases=["i am here"]), "i am here", True, False),
        (Tool("openWindow", phrases=["fresh air"]), "fresh air", False, False),
    ],
)  # fmt: skip
def test_command_that_opens_the_house_is_asked_about(tool, text, aloud, device):
    asked = command(Intents([tool]), text)
    assert (asked.asks_aloud, asked.asks_device) == (aloud, device)


def test_replies_name_what_can_be_said():
    intents = Intents([LOCK, KETTLE, LIGHT])
    text = replies.not_understood(intents.examples(3))
    assert text == (
        "I did not understand that. You can say: lock the front door, or heat the water to boiling "
        "degrees, or turn on the light."
    )
    assert "no tools" in replies.can_say(Intents([]).examples())


def test_everything_here_is_plain_json():
    """The phrases come from a device, as JSON: nothing in them may need more."""
    assert json.loads(json.dumps(LOCK.phrases)) == LOCK.phrases


@pytest.mark.parametrize("free", ["Water the plants for thirty minutes.", "Water the plants for 30 minutes"])
def test_agreement_needs_the_number_that_was_said(free):
    """The grammar knows only what is within bounds, and takes what sounds most like it."""
    minutes = {"type": "integer", "minimum": 1, "maximum": 20}
    schema = {"type": "object", "properties": {"minutes": minutes}, "required": ["minutes"]}
    plants = Tool("water", parameters=schema, phrases=["water the plants for {minutes} minutes"])
    intents = Intents([plants])
    heard = "water the plants for thirteen minutes"
    assert intents.agree(heard, free, sounds, against=1.0) is None
    assert intents.agree(heard, "Water the plans for thirteen minutes", sounds) is not None


def test_number_out_of_bounds_in_a_typed_text():
    intents = Intents([KETTLE, Tool("count", parameters={"properties": {"n": {"type": "integer"}}})])
    beyond = intents.beyond("heat to 47")
    assert replies.out_of_range(beyond) == (
        "I heard 47, but the number must be between 40 and 100, in steps of 5."
    )
    for text in ("heat to 45", "heat to", "heat", "", "yes", "heat to 9999999999"):
        assert intents.beyond(text) is None
