# Values against the subset of JSON Schema: what fits, what is named when it does not, what is refused at declaration.
import json
import sys

from support import SkipTest, raises
from vrt.errors import ConfigError
from vrt.tools.arguments import canonical, kind
from vrt.tools.declaration import check_schema
from vrt.tools.rules import problem

LOCK = {
    "type": "object",
    "properties": {"door": {"enum": ["front", "back"]}, "state": {"enum": ["locked", "unlocked"]}},
    "required": ["door", "state"],
    "additionalProperties": False,
}


def same(a, b):
    return canonical(a) == canonical(b)


def say(schema, value):
    check_schema(schema, "tool x")
    return problem(schema, value)


def test_value_that_fits_has_no_problem():
    assert say(LOCK, {"door": "front", "state": "locked"}) is None
    assert say({}, {"anything": [1, None]}) is None
    assert say({"type": ["string", "null"]}, None) is None
    assert say({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, [1, 2]) is None
    assert say({"type": "object", "properties": {"a": {}}}, {"b": 1}) is None


def test_problem_names_the_path_and_the_rule():
    cases = (
        ({"door": "front"}, "arguments.state: is required"),
        ({"door": "frond", "state": "locked"}, 'arguments.door: must be one of ["front", "back"]'),
        ({"door": "Front", "state": "locked"}, 'arguments.door: must be one of ["front", "back"]'),
        ({"door": " front", "state": "locked"}, 'arguments.door: must be one of ["front", "back"]'),
        ({"door": None, "state": "locked"}, 'arguments.door: must be one of ["front", "back"]'),
        (
            {"door": "front", "state": "locked", "force": True},
            'arguments: has no member "force"; its members: door, state',
        ),
    )
    for value, text in cases:
        assert say(LOCK, value) == text, (value, say(LOCK, value))


def test_arguments_that_are_no_object_are_refused():
    for value in ([], None, "x", "", 0, True, '{"door":"front","state":"locked"}', [{"door": "front"}]):
        assert say(LOCK, value) == "arguments: must be object", value
        assert say({"type": "object", "properties": {}, "additionalProperties": False}, value), value


def test_problem_names_the_place_in_depth():
    schema = {
        "type": "object",
        "properties": {
            "rooms": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}
        },
    }
    assert say(schema, {"rooms": [{"n": 1}, {"n": "2"}]}) == "arguments.rooms[1].n: must be integer"


def test_numbers():
    integer = {"type": "integer", "minimum": 0, "maximum": 10, "multipleOf": 5}
    for value in (0, 5, 10, 10.0):
        assert say(integer, value) is None, value
    assert say(integer, -5) == "arguments: must be at least 0"
    assert say(integer, 15) == "arguments: must be at most 10"
    assert say(integer, 3) == "arguments: must be a multiple of 5"
    assert say(integer, 2.5) == "arguments: must be integer"
    assert say(integer, True) == "arguments: must be integer"
    assert say(integer, "5") == "arguments: must be integer"
    between = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    assert say(between, 0.5) is None
    assert say(between, 0) == "arguments: must be more than 0"
    assert say(between, 1) == "arguments: must be less than 1"
    assert say({"type": "number"}, float("inf")) == "arguments: must be number"
    assert say({"type": "number"}, float("nan")) == "arguments: must be number"
    assert say({"type": "integer"}, 2**70) is None


def test_counts():
    text = {"type": "string", "minLength": 2, "maxLength": 3}
    assert say(text, "äö") is None
    assert say(text, "ä") == "arguments: must have at least 2 characters"
    assert say(text, "äöüß") == "arguments: must have at most 3 characters"
    some = {"type": "array", "minItems": 1, "maxItems": 2}
    assert say(some, []) == "arguments: must have at least 1 items"
    assert say(some, [1, 2, 3]) == "arguments: must have at most 2 items"
    assert say({"minLength": 3}, [1]) is None  # a rule of texts says nothing of lists
    assert say({"maxItems": 0}, "abc") is None
    assert say({"minimum": 3}, "1") is None


def test_equality_is_that_of_json():
    assert same(1, 1.0)
    assert not same(1, True)
    assert not same(0, False)
    assert not same(None, False)
    assert not same("1", 1)
    assert same([1, {"a": None}], [1.0, {"a": None}])
    assert not same({"a": 1}, {"a": True})
    assert not same({"a": 1}, {"b": 1})
    assert not same([1], [1, 1])
    assert say({"enum": [1]}, True)
    assert say({"const": {"a": [1]}}, {"a": [1]}) is None
    assert say({"const": False}, 0) == "arguments: must be false"


def test_message_is_bounded():
    long = {"enum": ["x" * 100, "y" * 100, "z" * 100]}
    text = say(long, 1)
    assert len(text) == 200
    assert text.endswith("...")
    assert len(say(LOCK, {"door": "front", "state": "locked", "q" * 5000: 1})) <= 200


def test_schema_outside_the_subset_is_refused_by_name():
    for word in (
        "pattern",
        "format",
        "anyOf",
        "oneOf",
        "$ref",
        "uniqueItems",
        "patternProperties",
        "minlength",
        "not",
        "",
    ):
        error = raises(ConfigError, check_schema, {"type": "string", word: 1}, "tool lock.door")
        assert repr(word) in str(error), error
        assert "not supported" in str(error)
        assert "tool lock.door" in str(error)
        assert "maxLength" in str(error), "it says what is supported"


def test_schema_that_cannot_be_meant_is_refused():
    for schema in (
        None,
        [],
        "string",
        {"type": "text"},
        {"type": []},
        {"type": None},
        {"type": [["string"]]},
        {"enum": []},
        {"enum": "ab"},
        {"enum": [set()]},
        {"const": float("inf")},
        {"minLength": -1},
        {"minLength": True},
        {"maxItems": 1.5},
        {"minimum": "1"},
        {"minimum": True},
        {"multipleOf": 0},
        {"multipleOf": 0.1},
        {"properties": []},
        {"properties": {1: {}}},
        {"properties": {"a": 1}},
        {"required": "a", "properties": {"a": {}}},
        {"required": ["b"], "properties": {"a": {}}},
        {"required": [["a"]], "properties": {"a": {}}},
        {"required": ["a"]},
        {"additionalProperties": {}},
        {"additionalProperties": 1},
        {"items": []},
        {"items": {"type": "nothing"}},
        {"type": "string", "enum": ["a", 1]},
        {"maxLength": 1, "enum": ["ab"]},
    ):
        raises(ConfigError, check_schema, schema, "tool x")


def test_schema_depth_is_bounded():
    schema = {}
    for _ in range(6):
        schema = {"items": schema}
    check_schema(schema, "tool x")
    raises(ConfigError, check_schema, {"items": schema}, "tool x")


def test_canonical_text_is_one_for_equal_values():
    assert (
        canonical({"b": [1, None, True], "a": {"d": "x", "c": 1.5}})
        == '{"a":{"c":1.5,"d":"x"},"b":[1,null,true]}'
    )
    assert canonical(()) == "[]"
    assert canonical({}) == "{}"
    assert json.loads(canonical({"ä\n\u2028": "\x00"})) == {"ä\n\u2028": "\x00"}


def test_canonical_refuses_what_is_not_json():
    for value in (
        float("nan"),
        float("-inf"),
        b"x",
        {1: 2},
        {None: 1},
        set(),
        object(),
        [object()],
        {"a": {"b": b""}},
    ):
        raises(ValueError, canonical, value)


def test_canonical_depth_is_bounded():
    value = 1
    for _ in range(16):
        value = [value]
    assert canonical(value).count("[") == 16
    raises(ValueError, canonical, [value])
    round_and_round = {}
    round_and_round["self"] = round_and_round
    raises(ValueError, canonical, round_and_round)


def test_kind_knows_every_json_type():
    values = (None, True, 1, 1.0, 1.5, "", [], (), {}, b"", float("inf"))
    names = [
        "null",
        "boolean",
        "integer",
        "integer",
        "number",
        "string",
        "array",
        "array",
        "object",
        None,
        None,
    ]
    assert [kind(value) for value in values] == names


def test_subset_agrees_with_a_full_validator():
    # Random schemas and values, against the host's library.
    if sys.implementation.name == "micropython":
        raise SkipTest("no jsonschema, which is on the host only")
    import random  # noqa: PLC0415  (without Random on MicroPython)

    import jsonschema  # noqa: PLC0415

    choose = random.Random(7)
    leaves = (
        None,
        True,
        False,
        0,
        1,
        1.0,
        -3,
        2.5,
        10,
        "",
        "a",
        "abc",
        "äö",
        [],
        [1],
        ["a", "a", 2],
        {},
        {"a": 1},
        {"b": "x"},
    )

    def value(depth):
        pick = choose.random()
        if depth and pick < 0.2:
            return [value(depth - 1) for _ in range(choose.randrange(4))]
        if depth and pick < 0.5:
            return {name: value(depth - 1) for name in "abc" if choose.random() < 0.5}
        return choose.choice(leaves)

    def schema(depth):
        made = {}
        rules = {
            "type": lambda: choose.choice(
                ("null", "boolean", "integer", "number", "string", "array", "object", ["null", "string"])
            ),
            "enum": lambda: [value(1) for _ in range(1 + choose.randrange(3))],
            "const": lambda: value(1),
            "minimum": lambda: choose.choice((0, 1, 2.5)),
            "maximum": lambda: choose.choice((0, 1, 2.5)),
            "exclusiveMinimum": lambda: choose.choice((0, 1)),
            "exclusiveMaximum": lambda: choose.choice((0, 10)),
            "multipleOf": lambda: choose.choice((1, 2, 5)),
            "minLength": lambda: choose.randrange(3),
            "maxLength": lambda: choose.randrange(3),
            "minItems": lambda: choose.randrange(3),
            "maxItems": lambda: choose.randrange(3),
            "additionalProperties": lambda: choose.random() < 0.5,
        }
        for word in choose.sample(sorted(rules), choose.choice((0, 1, 1, 2, 3))):
            made[word] = rules[word]()
        if depth and choose.random() < 0.6:
            made["properties"] = {name: schema(depth - 1) for name in "ab" if choose.random() < 0.7}
            made["required"] = [name for name in sorted(made["properties"]) if choose.random() < 0.5]
        if depth and choose.random() < 0.3:
            made["items"] = schema(depth - 1)
        return made

    compared = fitting = 0
    while compared < 4000:
        one = schema(2)
        try:
            check_schema(one, "x")
        except ConfigError:
            continue
        validator = jsonschema.Draft202012Validator(one)
        for _ in range(5):
            tried = value(2)
            fits = validator.is_valid(tried)
            assert (problem(one, tried) is None) == fits, (one, tried)
            compared += 1
            fitting += fits
    assert compared * 0.1 < fitting < compared * 0.9
