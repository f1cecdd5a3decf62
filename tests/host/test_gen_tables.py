"""The device's tables are fresh, and the generator stops at what they cannot express."""

import copy
import importlib.util

import pytest
from vrt import app, conversation, sound
from vrt.protocol import grammar, session, tables
from vrt_host.protocol import wire
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


def rows():
    return dict(line.split(" ", 1) for line in tables.SERVER.strip().split("\n"))


def test_tables_say_what_the_schemas_say():
    kinds = ("STRING", "ID", "U32", "BOOL", "ENUM", "FORMAT", "WORDS", "TOKENS")
    string, id_, u32, boolean, enum, format_, words, tokens = (gen_tables.KINDS.index(k) for k in kinds)
    codes = "INTERRUPTED|REJECTED|INVALID|TIMEOUT|FAILED"
    made = rows()
    assert made["interrupted"] == f"1 {u32}+epoch {string}-reason"
    formats = f"{format_}+input=pcm16|pcmu|opus {format_}+output=pcm16|pcmu|opus"
    assert made["ready"].startswith(f"0 {id_}+sessionId {formats} ")
    assert made["ready"].endswith(f" {tokens}-capabilities=az.-")
    assert made["error"].startswith(f"2 {words}+code=AZ_ ")
    phase, *added = made["tool.stream"].split(" /")
    assert phase.endswith(
        f"{enum}+phase=start|arguments-delta|arguments-complete|progress|settled|cancelled|failed"
    )
    assert added[-2] == f"settled {boolean}+ok {enum}?code={codes}"
    assert len(added) == 5  # the others add nothing
    assert "limits" not in made["ready"]


def test_tables_know_every_server_message():
    assert set(rows()) == {path.stem for path in wire.schema_folder().glob("server/*.json")}


def test_numbers_in_the_code_are_those_of_the_schemas():
    common = gen_tables.load("common.json")["$defs"]
    closes = {entry["title"]: entry["const"] for entry in common["closeCode"]["oneOf"]}
    kinds = {entry["title"]: entry["const"] for entry in common["audioKind"]["oneOf"]}
    assert common["maxDepth"]["const"] == grammar._MAX_DEPTH
    assert session._HEADER_BYTES == sound._HEADER == common["audioHeaderBytes"]["const"]
    assert kinds == {"INPUT": session._INPUT, "OUTPUT": session._OUTPUT}
    assert app._CLOSE_REPLACED == conversation._CLOSE_REPLACED == closes["REPLACED"]
    assert closes["NORMAL"] == conversation._CLOSE_NORMAL
    assert common["version"]["const"] == 1  # as wire.py and session.py write it


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
