"""The vectors of other systems' protocols are in order: each breaks the rule that it names, and no rule is without one."""

import contextlib
import json
import re
from collections import defaultdict

import pytest
from jsonschema import Draft202012Validator
from peers import vectors

SECTION = re.compile(r"(page|code): \S")

# What the pages name, message by message; facts of the public code, where the page is silent, stand after the bar.
MEMBERS = {
    "aitp": {
        "HANDSHAKE_INIT": "apiKey userAgent viewport sdkVersion protocolVersion",
        "HANDSHAKE_ACK": "sessionId serverVersion protocolVersion capabilities maxActiveTools",
        "CONTEXT_UPDATE": "url title activeTools context name description parameters type properties required risk"
        " | enum items",
        "USER_INPUT": "modality content mimeType meta sessionId | token",
        "TOOL_CALL": "callId name args",
        "TOOL_RESULT": "callId status result error",
        "APPROVAL_REQUEST": "callId toolName risk args message",
        "APPROVAL_RESPONSE": "callId approved result error",
        "AGENT_RESPONSE": "chunk done | modality audioData",
        "AUDIO_STREAM": "data mimeType",
        "VOICE_INPUT_END": "reason",
        "VOICE_INTERRUPT": "reason",
        "VOICE_STATE_EVENT": "event | reason",
        "SYSTEM_EVENT": "kind message data role text"
        " | effectiveTools serverTools clientTools ignoredClientTools",
    },
    "omnia": {
        "message": "content parts session_id metadata declare text media data url storage_ref mime_type filename"
        " size_bytes width height detail duration_ms sample_rate channels sandboxes mounts role id"
        " | consent_grants session_consent_grants",
        "upload_request": "session_id upload_request filename mime_type size_bytes",
        "tool_result": "tool_result call_id result error id",
        "tool_call_ack": "tool_call_ack call_id | session_id",
        "tool_call_nack": "tool_call_nack call_id reason",
        "hangup": "| session_id",
        "disclosure_ack": "",
        "credential_refresh": "token",
        "connected": "session_id connected capabilities binary_frames max_payload_size protocol_version resumed"
        " ai_disclosure memory_facet | timestamp",
        "chunk": "content role",
        "done": "content session_id parts text media url mime_type width height",
        "tool_call": "tool_call id name arguments consent_message categories",
        "upload_ready": "session_id upload_ready upload_id upload_url storage_ref expires_at method headers",
        "media_chunk": "session_id media_chunk media_id sequence is_last data mime_type",
        "interrupt": "",
        "session_config": "session_config codec sample_rate channels",
        "error": "error code message details warnings type handle reason",
        "query": "agent namespace binary resume memory_facet",
        "request_upload": "session_id filename mime_type size_bytes",
        "media_info": "storage_ref filename mime_type size_bytes created_at expires_at",
        "frame": "flags message_type sequence media_id metadata payload"
        " session_id mime_type total_chunks sample_rate channels codec",
    },
    "fish": {
        "client_tool.call": "callId toolName params expectsResponse",
        "tool.started": "callId toolName toolSource input inputTruncated | nodeId",
        "tool.completed": "callId toolName toolSource output outputTruncated | nodeId",
        "tool.failed": "callId toolName toolSource error | nodeId",
        "error": "code",
        "session.ended": "| reason",
        "user.message": "text audio",
        "user.activity": "",
        "user.interrupt": "",
        "user.hangup": "",
        "client_tool.result": "callId result isError",
        "session_request": "agent_id tool_events | name timezone client_timezone world_context overrides first_message"
        " first_message_prompt system_prompt voice_id language dynamic_variables end_user_id metadata",
        "session": "session_id expires_at max_duration_seconds transport livekit_url token",
        "session_error": "| message error code",
        "transcription": "lk.segment_id lk.transcription_final | sender attributes chunks trailer",
        "agent_state": "lk.agent.state",
    },
}
ENVELOPE = {"aitp": "id type timestamp payload"}
"""What all messages have."""


def judged_as(case):
    return case.get("as", case["direction"])


def members(value):
    """The names of all members, at any depth."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield name
            yield from members(member)
    elif isinstance(value, list):
        for item in value:
            yield from members(item)


def rules(schema, path="#"):
    """Every rule of a schema that a message can break: its place, with the member's name for one that is required."""
    if isinstance(schema, list):
        for at, part in enumerate(schema):
            yield from rules(part, f"{path}/{at}")
    if not isinstance(schema, dict):
        return
    for word, value in schema.items():
        here = f"{path}/{word}"
        if word in ("properties", "$defs"):
            for name, part in value.items():
                yield from rules(part, f"{here}/{name}")
        elif word == "required":
            yield from (((id(schema), word, name), f"{here}/{name}") for name in value)
        elif word in ("allOf", "then", "else", "items", "additionalProperties", "propertyNames", "contains"):
            yield from rules(value, here)
        elif word not in ("$schema", "$comment", "title", "description", "$ref", "if", "minContains"):
            yield (id(schema), word, ""), here


def broken(name, part, message):
    """The rules that a message breaks, as `rules` has them."""
    for error in vectors.validator(name, part).iter_errors(message):
        missing = re.match(r"'(.*)' is a required", error.message)[1] if error.validator == "required" else ""
        yield id(error.schema), error.validator, missing


@pytest.mark.parametrize("name", vectors.NAMES)
def test_schema_is_one_and_cites_sections(name):
    schema = vectors.load(name).schema
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"]
    for part, definition in schema["$defs"].items():
        cited = "$comment" in definition and SECTION.match(definition["$comment"])
        assert cited or part in ("names", "properties"), part
    assert '"additionalProperties": false' not in json.dumps(schema)


def unfit(name):
    """The invalid vectors that can be read, each with its part of the schema and its value."""
    for case in vectors.load(name).invalid:
        with contextlib.suppress(ValueError, RecursionError):
            yield case, *vectors.taken_apart(name, judged_as(case), vectors.frame(case))


def found(name, case):
    return vectors.errors(name, judged_as(case), vectors.frame(case))


@pytest.mark.parametrize("name", vectors.NAMES)
def test_valid_vectors_pass(name):
    assert {case["id"]: found(name, case) for case in vectors.load(name).valid if found(name, case)} == {}


@pytest.mark.parametrize("name", vectors.NAMES)
def test_invalid_vectors_fail(name):
    assert [case["id"] for case in vectors.load(name).invalid if not found(name, case)] == []


@pytest.mark.parametrize("name", vectors.NAMES)
def test_invalid_message_breaks_one_rule(name):
    """So a receiver that refuses it refuses it for the reason that is told."""
    for case, part, message in unfit(name):
        found = list(broken(name, part, message))
        assert len(found or vectors.beyond(name, message)) == 1, case["id"]


@pytest.mark.parametrize("name", vectors.NAMES)
def test_every_rule_is_broken_by_a_vector(name):
    loaded = vectors.load(name)
    hit = {rule for _, part, message in unfit(name) for rule in broken(name, part, message)}
    assert [path for rule, path in rules(loaded.schema) if rule not in hit] == []


@pytest.mark.parametrize("name", vectors.NAMES)
def test_every_member_of_the_page_is_in_the_schema_and_in_a_valid_vector(name):
    loaded = vectors.load(name)
    seen = defaultdict(set)
    for case in loaded.valid:
        part, message = vectors.taken_apart(name, judged_as(case), vectors.frame(case))
        kind = message["type"] if part in ("client", "server") else part
        seen[kind].update(members(message))
    for kind, listed in MEMBERS[name].items():
        expected = {*listed.split(), *ENVELOPE.get(name, "").split()} - {"|"}
        assert expected <= seen[kind], kind
    kinds = {
        kind
        for side in ("client", "server")
        for kind in loaded.schema["$defs"][side]["properties"]["type"]["enum"]
    }
    assert kinds <= MEMBERS[name].keys()


def test_binary_vectors_are_as_they_are_decoded():
    cases = [case for case in vectors.load("omnia").valid if "hex" in case]
    assert cases
    for case in cases:
        data = vectors.frame(case)
        assert vectors.decode_omni(data) == case["decoded"], case["id"]
        again = vectors.encode_omni(case["decoded"])
        assert data.startswith(again), case["id"]
        assert (data == again) == ("trailing" not in case["id"]), case["id"]


def test_broken_binary_frames_are_refused_in_the_facades_words():
    start = "invalid binary frame: "
    told = [
        case
        for case in vectors.load("omnia").invalid
        if case.get("answer", {}).get("message", "").startswith(start)
    ]
    assert len(told) >= 10
    for case in told:
        assert found("omnia", case) == [case["answer"]["message"].removeprefix(start)], case["id"]


@pytest.mark.parametrize("name", vectors.NAMES)
def test_vectors_are_well_formed(name):
    loaded = vectors.load(name)
    for kind in ("valid", "invalid"):
        listed = getattr(loaded, kind)
        assert len({case["id"] for case in listed}) == len(listed)
        for case in listed:
            assert SECTION.match(case["section"]), case["id"]
            assert case["direction"] in ("client", "server")
            assert len(case.keys() & {"message", "text", "hex"}) == 1, case["id"]
            assert (kind == "invalid") == ("why" in case), case["id"]
            assert case.get("receiver", "accepts") in ("accepts", "ignores", "answers"), case["id"]


FLOWS = [(name, flow) for name in vectors.NAMES for flow in vectors.load(name).flows]


@pytest.mark.parametrize(("name", "flow"), FLOWS)
def test_flow_is_valid(name, flow):
    """Filled in from one end to the other, every step is a right frame of its side, and matches its own pattern."""
    flow = vectors.load(name).flows[flow]
    assert SECTION.match(flow["section"])
    assert flow["title"]
    assert flow.get("player") in (None, "client", "server")
    bound = {}
    for step in flow["steps"]:
        if "wait_ms" in step:
            assert step.keys() == {"wait_ms"}
        elif step.keys() in ({"join"}, {"leave"}):
            assert set(step.values()) <= {"client", "server"}
        elif "http" in step:
            assert set(vectors.fill(step["http"], bound)) == {"method", "url", "headers", "status"}
        elif "close" in step:
            assert 1000 <= step["close"] <= 4999
            assert step["from"] in ("client", "server")
        else:
            pattern = step.get("message") or step.get("frame")
            sent = vectors.fill(pattern, bound, flow.get("examples")) if pattern else vectors.frame(step)
            frame = vectors.encode_omni(sent) if "frame" in step else sent
            found = vectors.errors(name, step.get("as", step["from"]), frame)
            assert bool(found) == step.get("invalid", False), (step, found)
            if pattern:
                assert vectors.difference(pattern, sent, bound) is None


@pytest.mark.parametrize(("name", "flow"), FLOWS)
def test_both_sides_of_a_flow_can_be_played(name, flow):
    flow = vectors.load(name).flows[flow]
    sides = {side: vectors.Script(flow, side) for side in ("client", "server")}
    for _ in flow["steps"]:
        for side, other in (("client", "server"), ("server", "client")):
            while acted := sides[side].next():
                kind, value, step = acted
                if kind != "wait_ms":
                    assert sides[other].saw(kind, value, step.get("as")) is None
    assert all(script.done for script in sides.values())
    assert sides["client"].bound == sides["server"].bound


# --- the runner itself

TURN = {
    "id": "turn",
    "steps": [
        {"from": "client", "message": {"say": "$text"}},
        {"from": "server", "may": True, "message": {"wait": 1}},
        {"from": "server", "many": True, "message": {"part": "$*"}},
        {"from": "server", "message": {"whole": "$text"}},
        {"from": "client", "close": 1000},
    ],
}


def test_script_takes_what_is_due():
    script = vectors.Script(TURN, "client")
    assert script.next() == ("message", {"say": "text-1"}, TURN["steps"][0])
    assert script.next() is None
    for message in ({"part": 1}, {"part": 2}, {"wait": 1}, {"part": 3}):
        assert script.saw("message", message) is None
    assert not script.done
    assert script.saw("message", {"whole": "text-1"}) is None
    assert script.saw("message", {"part": 4}) is None
    assert script.next()[:2] == ("close", 1000)
    assert script.done


@pytest.mark.parametrize(
    ("kind", "value", "part"),
    [
        ("message", {"whole": "text-2"}, None),
        ("message", {"whole": "text-1"}, "query"),
        ("message", {"other": 1}, None),
        ("close", 1000, None),
    ],
)
def test_script_refuses_what_is_not_due(kind, value, part):
    script = vectors.Script(TURN, "client")
    assert script.saw("message", {"part": 1}).startswith("turn: nothing was due")
    script.next()
    assert script.saw(kind, value, part).startswith("turn: ")
    assert script.saw("message", {"whole": "text-1"}) is None
    assert script.saw("message", {"whole": "text-1"})
    assert script.saw("message", {"wait": 1}) is None
    assert script.saw("message", {"wait": 1})


@pytest.mark.parametrize(
    ("pattern", "message", "bound"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, {}),
        ({"a": "$*"}, {"a": None}, {}),
        ({"a": "$x", "b": ["$x"]}, {"a": 5, "b": [5]}, {"x": 5}),
        ({"a": {"$near": [1, 3]}}, {"a": 3}, {}),
        ({"a": {"$like": "text"}}, {"a": ""}, {}),
        ({"a": "$-"}, {"b": 1}, {}),
        ({"a": "$ 5"}, {"a": "$ 5"}, {}),
    ],
)
def test_pattern_matches(pattern, message, bound):
    learnt = {}
    assert vectors.match(pattern, message, learnt)
    assert learnt == bound


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ({"a": 1}, {}),
        ({"a": 1}, {"a": True}),
        ({"a": "$*"}, {}),
        ({"a": "$x", "b": "$x"}, {"a": 1, "b": 2}),
        ({"a": "$x", "b": "$x"}, {"a": 1, "b": True}),
        ({"a": {"$near": [1, 3]}}, {"a": 3.1}),
        ({"a": {"$near": [0, 3]}}, {"a": True}),
        ({"a": {"$like": 1}}, {"a": "1"}),
        ({"a": "$-"}, {"a": None}),
        ({"a": ["$*"]}, {"a": []}),
        ([1], {"0": 1}),
    ],
)
def test_pattern_does_not_match(pattern, message):
    bound = {}
    assert not vectors.match(pattern, message, bound)
    assert vectors.difference(pattern, message, bound).startswith("$")
    assert bound == {}


def test_filling_keeps_what_is_known():
    bound = {"call": 7}
    pattern = {
        "a": "$call",
        "b": "$new",
        "c": "$new",
        "d": "$-",
        "e": {"$near": [2, 3]},
        "f": [{"$like": {}}],
    }
    assert vectors.fill(pattern, bound, {"call": 8}) == {
        "a": 7,
        "b": "new-1",
        "c": "new-1",
        "e": 2,
        "f": [{}],
    }
    assert bound == {"call": 7, "new": "new-1"}
    assert vectors.fill(["$url", "$*"], bound, {"url": "http://host"}) == ["http://host", "anything"]


def test_unknown_part_is_a_mistake_of_the_test():
    with pytest.raises(ValueError, match="has no 'sever'"):
        vectors.errors("aitp", "sever", {})


def test_frames_that_are_no_messages_are_refused():
    assert vectors.errors("aitp", "client", '{"a": NaN}') == ["NaN is no JSON"]
    assert vectors.errors("aitp", "client", b"{}") == ["the protocol has no binary frames"]
    assert vectors.errors("aitp", "client", [])
