"""Declared tools, and the arguments they take."""

import json

import pytest
from vrt_host.tools import MAX_SCHEMA, MAX_SCHEMAS, MAX_TOOLS, ArgumentsError, DeclaredTools

LOCK = {
    "name": "lock",
    "description": "Lock a door.",
    "parameters": {
        "type": "object",
        "properties": {"door": {"enum": ["front", "back"]}, "times": {"type": "integer", "minimum": 1}},
        "required": ["door"],
        "additionalProperties": False,
    },
    "timeoutMs": 5000.0,
    "confirm": "button",
    "confirmWhen": {"door": ["front"]},
    "effect": "irreversible",
    "phrases": ["lock the {door} door"],
}


def declared(*declarations):
    return DeclaredTools(declarations)


def arguments(declaration, given):
    tools = declared(declaration)
    return tools.arguments(tools.get(declaration["name"]), given)


def test_declaration_becomes_a_tool():
    (tool,) = declared(LOCK).tools
    assert (tool.name, tool.description, tool.timeout_ms) == ("lock", "Lock a door.", 5000)
    assert (tool.effect, tool.phrases) == ("irreversible", ["lock the {door} door"])
    assert tool.asks({"door": "front"})
    assert not tool.asks({"door": "back"})


def test_declaration_without_extra_members_has_their_defaults():
    (tool,) = declared({"name": "x"}).tools
    assert (tool.timeout_ms, tool.confirm, tool.effect, list(tool.phrases)) == (
        30_000,
        None,
        "reversible",
        [],
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": "a b"}, "letters"),
        ({"name": "x" * 65}, "letters"),
        ({"name": "lock\n"}, "letters"),
        ({"parameters": {"type": "objekt"}}, "JSON Schema"),
        ({"parameters": {"properties": []}}, "JSON Schema"),
        ({"confirm": "shout"}, "confirm"),
        ({"confirm": ["button"]}, "confirm"),
        ({"confirmWhen": {"door": "front"}}, "confirmWhen"),
        ({"confirmWhen": 1}, "confirmWhen"),
        ({"effect": "explosive"}, "effect"),
        ({"timeoutMs": 0}, "timeoutMs"),
        ({"timeoutMs": True}, "timeoutMs"),
        ({"timeoutMs": "5"}, "timeoutMs"),
        ({"timeoutMs": float("inf")}, "timeoutMs"),
        ({"phrases": "lock it"}, "phrases"),
    ],
)
def test_declaration_that_cannot_be_used_is_declined_alone(change, reason):
    tools = declared(LOCK | change, {"name": "other"})
    assert [tool.name for tool in tools.tools] == ["other"]
    assert len(tools.declined) == 1
    assert reason in tools.declined[0]
    assert tools.get("lock") is None


def test_declarations_beyond_the_limit_are_declined():
    tools = declared(*({"name": f"t{number}"} for number in range(MAX_TOOLS + 2)))
    assert len(tools.tools) == MAX_TOOLS
    assert len(tools.declined) == 2


def test_schema_that_takes_long_to_check_is_declined():
    large = {"name": "large", "parameters": {"anyOf": [{}] * MAX_SCHEMA}}
    tools = declared(large, LOCK)
    assert [tool.name for tool in tools.tools] == ["lock"]
    assert "1002 values" in tools.declined[0]
    enum = {"enum": [""] * (MAX_SCHEMA - 2)}
    each = declared(*({"name": f"t{number}", "parameters": enum} for number in range(6)))
    assert len(each.tools) == MAX_SCHEMAS // MAX_SCHEMA


@pytest.mark.parametrize(
    "given", ['{"door": "front"}', {"door": "front"}, ' {"door":"front"}\n', '{"door":"front","times":3}']
)
def test_good_arguments_are_taken_as_they_are(given):
    expected = json.loads(given) if isinstance(given, str) else given
    assert arguments(LOCK, given) == expected


@pytest.mark.parametrize("given", ["", "  \n", "{}", {}])
def test_no_arguments_are_taken_where_none_are_required(given):
    assert arguments({"name": "x"}, given) == {}
    assert arguments({"name": "x", "parameters": {"type": "object"}}, given) == {}


@pytest.mark.parametrize(
    "given",
    [
        "",
        "{}",
        '{"door":"fro',
        '{"door": "front"',
        "{'door': 'front'}",
        '{"door":"front",}',
        '{"door":"front"} {"door":"back"}',
        "[]",
        "null",
        '"x"',
        "3",
        '{"door":"side"}',
        '{"door":"front","window":1}',
        '{"door":"front","times":0}',
        '{"door":"front","times":"3"}',
        '{"door":"front","times":true}',
        '{"door":"front","times":NaN}',
        '{"door":"front","times":1e999}',
        '{"door":"front","door":"back"}',
        '{"door":"\\ud800"}',
        '{"door":' + "[" * 100_000,
        '{"times":' + "9" * 5000 + ',"door":"front"}',
        '{"times":' + "9" * 400 + ',"door":"front"}',
        {"door": "front", "times": 10**400},
        {"door": object()},
        {"door": "front", "times": float("inf")},
        {"door": "\ud800"},
    ],
)
def test_bad_arguments_are_refused_with_the_schema(given):
    with pytest.raises(ArgumentsError) as caught:
        arguments(LOCK, given)
    message = str(caught.value)
    assert '"enum": ["front", "back"]' in message
    assert "lock" in message
    assert len(message) < 3000
    message.encode()


def test_arguments_for_a_tool_without_parameters_are_refused():
    with pytest.raises(ArgumentsError):
        arguments({"name": "x"}, '{"a": 1}')


def test_arguments_that_are_too_long_are_refused():
    anything = {"name": "x", "parameters": {"type": "object"}}
    for given in ('{"a": "' + "x" * 70_000 + '"}', {"a": "é" * 40_000}):
        with pytest.raises(ArgumentsError, match="too long"):
            arguments(anything, given)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/never-fetched"},
        {"properties": {"a": {"pattern": "(a+)+$"}}},
        {"patternProperties": {"(a+)+$": {}}, "additionalProperties": False},
        {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}},
        {"items": {"uniqueItems": True}},
    ],
)
def test_schema_that_could_keep_the_host_busy_is_left_to_the_device(schema):
    given = {"a": "a" * 40 + "!", "b": 1}
    assert (
        arguments({"name": "x", "parameters": {"type": "object", "required": ["b"], **schema}}, given)
        == given
    )
    with pytest.raises(ArgumentsError):
        arguments({"name": "x", "parameters": {"type": "object", "required": ["b"], **schema}}, {"a": "x"})


def test_parameter_that_is_named_like_a_keyword_is_checked():
    schema = {"type": "object", "properties": {"pattern": {"enum": ["stripes"]}}}
    with pytest.raises(ArgumentsError):
        arguments({"name": "x", "parameters": schema}, {"pattern": "dots"})
