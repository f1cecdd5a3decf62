# What a declaration may say, and what its author is told when it is wrong.
from support import raises
from vrt import tools
from vrt.errors import ConfigError
from vrt.tools import Tool

DOOR = {"door": {"enum": ["front", "back"]}}


def nothing(**arguments):
    return arguments


def refused(*words, name="x", description="Do it.", parameters=None, **options):
    # The text of the ConfigError; it names the tool and holds all `words`.
    text = str(raises(ConfigError, Tool, nothing, name, description, parameters, **options))
    for word in words:
        assert word in text, text
    return text


def test_short_form_is_a_whole_schema():
    made = Tool(nothing, "lock", "Lock.", {"state": {"type": "boolean"}, "door": {"type": "string"}})
    assert made.declaration["parameters"] == {
        "type": "object",
        "properties": {"state": {"type": "boolean"}, "door": {"type": "string"}},
        "required": ["door", "state"],
        "additionalProperties": False,
    }


def test_short_form_may_have_a_parameter_named_type():
    made = Tool(nothing, "x", "Do it.", {"type": {"enum": ["a"]}, "properties": {"type": "string"}})
    assert sorted(made.declaration["parameters"]["properties"]) == ["properties", "type"]


def test_whole_schema_is_taken_as_it_is():
    schema = {"type": "object", "properties": {"door": {"type": "string"}}}
    assert Tool(nothing, "x", "Do it.", schema).declaration["parameters"] == schema
    assert Tool(nothing, "x", "Do it.", {"type": "object"}).declaration["parameters"] == {
        "type": "object",
        "properties": {},
    }


def test_declaration_leaves_out_what_is_not_said():
    assert Tool(nothing, "x", "Do it.").declaration == {
        "name": "x",
        "description": "Do it.",
        "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
        "timeoutMs": 30000,
        "effect": "reversible",
    }


def test_illegal_names_are_refused():
    for name in ("", " ", "a b", "a/b", "türe", "x" * 65, "<lambda>", "a\n", None, 1):
        refused("illegal name", name=name)
    for name in ("a", "A_b.c-9", "x" * 64, "-"):
        assert Tool(nothing, name, "Do it.").declaration["name"] == name


def test_wrong_members_are_refused_and_say_what_to_do():
    refused("tool x", "description", description="")
    refused("description", description=None)
    refused("effect", "'irreversible'", effect="permanent")
    refused("effect", effect=None)
    for timeout_ms in (0, -1, 1.5, True, "30", 3600001):
        refused("timeout_ms", timeout_ms=timeout_ms)
    refused("confirm", "'button'", confirm="yes")
    refused("tool x", "dict", parameters=[1])
    refused("tool x.door", "'pattern' is not supported", parameters={"door": {"pattern": "a"}})
    refused("tool x.door", parameters={"door": "string"})
    refused("'require'", parameters={"type": "object", "require": []})


def test_unknown_option_is_refused():
    raises(TypeError, Tool, nothing, "x", "Do it.", confirms="button")


def test_reader_cannot_ask():
    refused("true effect", effect="none", confirm="button")


def test_confirm_when_must_be_able_to_work():
    def when(rule, parameters=DOOR, **options):
        return refused("confirm_when", parameters=parameters, confirm="button", confirm_when=rule, **options)

    assert "add confirm" in refused("confirm_when", parameters=DOOR, confirm_when={"door": ["front"]})
    when({})
    when(["front"])
    assert "no parameter" in when({"dor": ["front"]})
    assert "no call can have" in when({"door": ["side"]})
    assert "list of values" in when({"door": "front"})
    assert "list of values" in when({"door": []})
    # What a call may leave out, or spell in another way, would run without the confirmation that was meant.
    optional = {"type": "object", "properties": DOOR}
    assert "make it required" in when({"door": ["front"]}, optional)
    assert "enum" in when({"door": ["front"]}, {"door": {"type": "string"}})
    assert "no call can have" in when({"on": [1]}, {"on": {"type": "boolean"}})


def test_timeout_leaves_time_for_a_confirmation():
    refused("3000", confirm="button", timeout_ms=2999)
    assert Tool(nothing, "x", "Do it.", confirm="button", timeout_ms=3000).declaration["confirm"] == "button"


def test_asks_as_declared():
    always = Tool(nothing, "x", "Do it.", DOOR, confirm="button")
    never = Tool(nothing, "x", "Do it.", DOOR)
    front = Tool(nothing, "x", "Do it.", DOOR, confirm="button", confirm_when={"door": ["front"]})
    level = Tool(
        nothing, "x", "Do it.", {"n": {"type": "integer"}}, confirm="button", confirm_when={"n": [0, 100]}
    )
    for door in ("front", "back"):
        assert always.asks({"door": door})
        assert not never.asks({"door": door})
        assert front.asks({"door": door}) == (door == "front")
    assert level.asks({"n": 100})
    assert level.asks({"n": 100.0})
    assert not level.asks({"n": 99})


def test_phrases_are_checked_for_slips():
    good = [
        "lock the {door} door",
        {"say": ["(lock|close) {door}", "x"], "set": {"door": "front"}, "words": {"door": {"main": "front"}}},
        {"say": "x", "reply": "{output.anything}", "ask": "?", "while": "..."},
    ]
    assert Tool(nothing, "x", "Do it.", DOOR, phrases=good).declaration["phrases"] == good
    for bad, words in (
        ("lock", "no list"),
        (["lock {dor}"], "'dor', which is no parameter"),
        ([{"say": "x", "set": {"dor": 1}}], "'dor'"),
        ([{"say": "x", "set": {"door": "side"}}], "no call can have"),
        ([{"say": "x", "words": {"door": {"main": "side"}}}], "no call can have"),
        ([{"say": "x", "words": {"dor": {"main": "front"}}}], "'dor'"),
        ([{"say": "x", "words": {"door": ["front"]}}], "words"),
        ([{"say": "x", "set": ["door"]}], "set"),
        ([{"say": "x", "replay": "y"}], '"replay"'),
        ([{"say": "x", "reply": 1}], "reply"),
        ([{}], "say"),
        ([{"say": []}], "say"),
        ([{"say": [1]}], "say"),
        ([{"say": 1}], "say"),
        ([""], "say"),
        ([1], "phrase"),
    ):
        refused(words, parameters=DOOR, phrases=bad)


def test_decorator_declares_and_returns_the_function():
    before = list(tools.declared)
    try:

        @tools.tool("Do it.", DOOR, effect="none")
        def probe(door):
            return door

        assert probe("front") == "front"
        assert tools.declared[-1].declaration["name"] == "probe"
        assert tools.declared[-1].function is probe
        error = raises(ConfigError, tools.tool("Do it again."), probe)
        assert "probe is declared twice" in str(error)
        tools.tool("Do it again.", name="probe2")(probe)
        assert tools.declared[-1].declaration["name"] == "probe2"
        assert len(tools.declared) == len(before) + 2
    finally:
        tools.declared[:] = before
