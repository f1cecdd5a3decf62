"""The device's tables are fresh, and the generator stops at what they cannot express."""

import copy
import importlib.util

import pytest
from vrt.protocol import tables
from vrt_host.protocol import audio, wire
from vrt_host.resources import root

PATH = root() / "tools" / "gen_tables.py"
spec = importlib.util.spec_from_file_location("gen_tables", PATH)
gen_tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gen_tables)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(gen_tables, "ROOT", tmp_path)
    monkeypatch.setattr(gen_tables, "TABLES", tmp_path / "tables.py")
    return tmp_path / "tables.py"


def test_tables_are_fresh():
    assert gen_tables.main(["--check"]) == 0


@pytest.mark.parametrize("content", [None, "", "# stale\n"])
def test_check_fails_when_stale_and_writes_nothing(content, elsewhere, capsys):
    if content is not None:
        elsewhere.write_text(content, "utf-8")
    assert gen_tables.main(["--check"]) == 1
    assert "stale" in capsys.readouterr().err
    assert (elsewhere.read_text("utf-8") if elsewhere.exists() else None) == content


def test_check_passes_after_writing(elsewhere):
    assert gen_tables.main([]) == 0
    assert gen_tables.main(["--check"]) == 0


def test_tables_say_what_the_schemas_say():
    kinds = ("STRING", "ID", "U32", "BOOL", "ENUM", "FORMAT")
    string, id_, u32, boolean, enum, format_ = (gen_tables.KINDS.index(kind) for kind in kinds)
    codes = "INTERRUPTED|REJECTED|INVALID|TIMEOUT|FAILED"
    assert tables.SERVER["interrupted"] == f"1 {u32}+epoch {string}-reason"
    formats = f"{format_}+input=pcm16|pcmu|opus {format_}+output=pcm16|pcmu|opus"
    assert tables.SERVER["ready"].startswith(f"0 {id_}+sessionId {formats} ")
    assert tables.SERVER["error"][0] == "2"
    assert tables.PHASES["settled"] == f" {boolean}+ok {enum}?code={codes}"
    assert tables.PHASES["cancelled"] == ""
    assert "limits" not in tables.SERVER["ready"]
    assert (tables.HEADER_BYTES, tables.INPUT, tables.OUTPUT) == (
        audio.HEADER_BYTES,
        audio.INPUT,
        audio.OUTPUT,
    )
    assert tables.MAX_DEPTH == wire.MAX_DEPTH
    assert tables.CLOSE_RESUME_FAILED == 4404


def test_tables_know_every_server_message():
    assert set(tables.SERVER) == {path.stem for path in wire.schema_folder().glob("server/*.json")}


@pytest.mark.parametrize(
    "member",
    [
        {"type": "number"},
        {"type": "string", "minLength": 3},
        {"$ref": "../common.json#/$defs/u32", "maximum": 9},
        {"$ref": "../common.json#/$defs/version"},
        {"type": "array", "items": {"type": "string"}},
    ],
)
def test_generator_refuses_a_member_that_tables_cannot_express(member):
    schema = copy.deepcopy(gen_tables.load("server/text.json"))
    schema["properties"]["new"] = member
    with pytest.raises(SystemExit, match="new: the tables cannot express"):
        gen_tables.fields(schema, gen_tables.load("common.json")["$defs"])


@pytest.mark.parametrize("rule", ["oneOf", "dependentRequired", "if"])
def test_generator_refuses_a_rule_that_tables_cannot_express(rule):
    schema = gen_tables.load("server/text.json") | {rule: {}}
    with pytest.raises(SystemExit, match=r"text \(server\): the tables can"):
        gen_tables.fields(schema, gen_tables.load("common.json")["$defs"])


def test_generator_refuses_rules_on_a_message_without_phases(monkeypatch):
    read = gen_tables.load

    def load(path):
        return read(path) | ({"allOf": [{"required": ["turnId"]}]} if path == "server/text.json" else {})

    monkeypatch.setattr(gen_tables, "load", load)
    with pytest.raises(SystemExit, match="allOf"):
        gen_tables.generate()


def test_generator_refuses_a_phase_with_another_condition():
    stream = copy.deepcopy(gen_tables.load("server/tool.stream.json"))
    common = gen_tables.load("common.json")["$defs"]
    stream["allOf"][3]["then"]["if"] = {"properties": {"ok": {"const": True}}}
    with pytest.raises(SystemExit, match="ok is false"):
        gen_tables.phases(stream, common)
    stream["allOf"] = [{"required": ["delta"]}]
    with pytest.raises(SystemExit, match="cannot express"):
        gen_tables.phases(stream, common)
    stream["allOf"] = [{"if": {"properties": {"phase": {"const": "ended"}}}, "then": {}}]
    with pytest.raises(SystemExit, match="no such phases"):
        gen_tables.phases(stream, common)
