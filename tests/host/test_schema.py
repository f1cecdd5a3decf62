"""The schemas, the registry and the vectors are themselves in order."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from vrt_host.protocol import wire

SCHEMA = wire.schema_folder()
MESSAGES = sorted(SCHEMA.glob("client/*.json")) + sorted(SCHEMA.glob("server/*.json"))
SCHEMAS = [*MESSAGES, *sorted(SCHEMA.glob("*.schema.json"))]
SERIAL = sorted(SCHEMA.glob("examples/serial/*.json"))
VECTORS = [path for path in sorted(SCHEMA.glob("examples/*/*.json")) if path not in SERIAL]
APPENDIX_A = {
    "client": "hello text interrupt playback tool.result context ack ping",
    "server": "ready audio.start turn.state transcript text tool.call.delta tool.call tool.stream interrupted ack pong error",
}


def name(path):
    return path.relative_to(SCHEMA).as_posix()


def load(path):
    return json.loads(path.read_text("utf-8"))


def retrieve(uri):
    return Resource.from_contents(load(Path(uri.removeprefix("file://"))))


def validator(path):
    """The schema as any tool would use it: references resolved by the files' places."""
    return Draft202012Validator({"$ref": path.as_uri()}, registry=Registry(retrieve=retrieve))


def vectors(expect):
    for path in VECTORS:
        for case in load(path):
            if case["expect"] == expect:
                yield path, case


@pytest.mark.parametrize("path", [SCHEMA / "common.json", *SCHEMAS], ids=name)
def test_schema_is_one(path):
    schema = load(path)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"]
    assert schema["description"]


@pytest.mark.parametrize("path", SCHEMAS, ids=name)
def test_schema_accepts_its_examples(path):
    examples = load(path)["examples"]
    assert examples
    for example in examples:
        validator(path).validate(example)


@pytest.mark.parametrize("path", MESSAGES, ids=name)
def test_message_schema_names_type_and_section_and_stays_open(path):
    schema = load(path)
    assert schema["properties"]["type"]["const"] == path.stem
    assert schema["title"] == f"{path.stem} ({path.parent.name})"
    assert "§" in schema["description"] or "Appendix" in schema["description"]
    assert {"v", "seq", "type"} <= set(schema["required"])
    assert '"additionalProperties": false' not in path.read_text("utf-8").split('"examples"')[0]
    for example in schema["examples"]:
        wire.check(example, path.parent.name)


@pytest.mark.parametrize("sender", APPENDIX_A)
def test_every_message_has_a_schema(sender):
    assert {path.stem for path in (SCHEMA / sender).glob("*.json")} == set(APPENDIX_A[sender].split())


def test_extra_members_of_ours_are_never_a_reason_to_refuse():
    hello = load(SCHEMA / "client/hello.json")["properties"]
    ready = load(SCHEMA / "server/ready.json")["properties"]
    tool = hello["tools"]["items"]["properties"]
    extras = [hello["limits"], hello["device"], ready["limits"]]
    extras += [tool[member] for member in ("timeoutMs", "confirm", "confirmWhen", "effect", "phrases")]
    assert all(set(extra) == {"description", "examples"} for extra in extras)


def test_registry_matches_its_schema():
    registry = load(SCHEMA / "capabilities.json")
    validator(SCHEMA / "capabilities.schema.json").validate(registry)
    tokens = [entry["token"] for entry in registry["capabilities"]]
    assert len(set(tokens)) == len(tokens)
    assert wire.gated() == {"tool.stream": "tool-stream-v1"}


@pytest.mark.parametrize(
    "change",
    [{"token": "x-mine"}, {"token": "Mine"}, {"status": "new"}, {"since": "2.0"}, {"section": "7.5"}],
)
def test_registry_schema_refuses(change):
    entry = load(SCHEMA / "capabilities.json")["capabilities"][0]
    check = validator(SCHEMA / "capabilities.schema.json")
    assert check.is_valid({"capabilities": [entry]})
    assert not check.is_valid({"capabilities": [entry | change]})


@pytest.mark.parametrize("path", VECTORS, ids=name)
def test_vectors_match_their_schema(path):
    cases = load(path)
    validator(SCHEMA / "examples.schema.json").validate(cases)
    assert all(("hex" in case) == (path.parent.name == "binary") for case in cases)


def test_vectors_of_the_serial_framing_match_their_schema():
    assert SERIAL
    for path in SERIAL:
        validator(SCHEMA / "serial.schema.json").validate(load(path))
    valid = [bool(case["frames"]) and not case["noise"] for path in SERIAL for case in load(path)]
    assert sum(valid) >= 10
    assert valid.count(False) >= 10


def test_vectors_have_unique_ids_under_their_file():
    ids = [case["id"] for path in [*VECTORS, *SERIAL] for case in load(path)]
    assert len(set(ids)) == len(ids)
    for path in [*VECTORS, *SERIAL]:
        assert all(case["id"].startswith(path.parent.name + ".") for case in load(path))


def test_vectors_fit_into_4096_bytes():
    for path in VECTORS:
        for case in load(path):
            frame = (
                case["hex"] if "hex" in case else case["text"] if "text" in case else json.dumps(case["json"])
            )
            assert len(frame.encode()) <= 4096, case["id"]


@pytest.mark.parametrize("path", MESSAGES, ids=name)
def test_vectors_have_as_many_invalid_as_valid_cases_for_a_message(path):
    cases = load(SCHEMA / "examples" / path.parent.name / path.name)
    valid = sum(case["expect"] == "valid" for case in cases)
    assert 0 < valid <= len(cases) - valid


def test_vectors_that_are_valid_match_the_schema_of_their_type():
    # The decoder checks compiled schemas; this is the plain reading of the files.
    checked = 0
    for path, case in vectors("valid"):
        if "json" in case:
            validator(SCHEMA / path.parent.name / f"{case['json']['type']}.json").validate(case["json"])
            checked += 1
    assert checked > 200


def test_vectors_that_have_an_invalid_field_break_the_schema_of_their_type():
    checked = 0
    for path, case in vectors("INVALID_FIELD"):
        # A schema cannot say that names are unique, and Python's `$` overlooks a newline; the decoder does neither.
        beyond = case["id"] == "client.hello.tool-name-twice" or case["id"].endswith("-newline")
        if "json" in case and not beyond:
            schema = SCHEMA / path.parent.name / f"{case['json']['type']}.json"
            assert not validator(schema).is_valid(case["json"]), case["id"]
            checked += 1
    assert checked > 400
