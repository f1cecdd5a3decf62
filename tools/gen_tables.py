"""Generates `firmware/vrt/protocol/tables.py`, what the device knows of the messages, from `schema/`.

    python tools/gen_tables.py            writes the file
    python tools/gen_tables.py --check    exits 1 when it is stale

A part of a schema that the tables cannot express stops the generator: then teach it, or the device would not check it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "schema"
TABLES = ROOT / "firmware" / "vrt" / "protocol" / "tables.py"

KINDS = ("JSON", "STRING", "ID", "U32", "BOOL", "ENUM", "FORMAT", "WORDS", "TOKENS")
"""What a member may be; the value on the device is the index."""

CLASSES = {"transient": 0, "sequenced": 1, "sessionless": 2}
REFS = {
    "json": "JSON",
    "id": "ID",
    "u32": "U32",
    "format": "FORMAT",
    "capabilities": "TOKENS",
    "errorCode": "WORDS",
}
WORDS = {"capabilities": "az.-", "errorCode": "AZ_"}
"""What the patterns of these definitions allow."""
NOTES = {"title", "description", "examples", "$schema"}
OPTIONAL, REQUIRED, WHEN_NOT_OK = 0, 1, 2
REQUIREMENTS = "-+?"

Schema = dict[str, Any]
Field = tuple[str, int, int, tuple[str, ...] | None]

HEADER = """\
# What the device knows of the wire: generated from schema/ by tools/gen_tables.py, not edited.
#
# SERVER has a line for each type of server message: the type, its seq class and its fields, parted by blanks. It is one text,
# taken apart for each message, because tuples would fill 9 KiB of a small heap, and a dictionary of texts 3. Each field is
# kind, requirement, name and, after "=", what is allowed.
#   kind      JSON 0 any value         STRING 1               ID 2 string of 1 to 256 characters (code points)
#             U32 3 integer 0..2^32-1, 1.0 counts, true does not       BOOL 4       ENUM 5 one of what is allowed, parted by "|"
#             FORMAT 6 object: encoding one of what is allowed, sampleRate absent or an integer > 0
#             WORDS 7 string: words of digits and letters, joined by single joints; allowed: first letter, last one, joints
#             TOKENS 8 array of WORDS of at most 64 characters
#   required  - may be absent, + must be present (null included, for JSON), ? must be present when ok is false.
#             A member that is present must be of its kind in each case.
#   /PHASE    what follows, up to the next of these, belongs to that phase of a tool.stream alone (§7.5).
# seq class   0 transient: seq is 0.  1 sequenced: seq is 1..2^32-1.  2 sessionless: seq is 0..2^32-1 (§4.1)
"""


def load(path: str) -> Schema:
    """A schema by its path below `schema/`."""
    value: Schema = json.loads((SCHEMA / path).read_text("utf-8"))
    return value


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Generate the device's tables from schema/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the file is stale")
    check = parser.parse_args(arguments).check
    text = generate()
    if not check:
        TABLES.write_text(text, "utf-8")
    elif not TABLES.is_file() or TABLES.read_text("utf-8") != text:
        print(f"{TABLES.relative_to(ROOT)} is stale: run python tools/gen_tables.py", file=sys.stderr)
        return 1
    return 0


def generate() -> str:
    """The text of `tables.py`."""
    common = load("common.json")["$defs"]
    lines = [HEADER, "SERVER = (", r'    "\n"']
    for path in messages("server"):
        schema = load(f"server/{path.name}")
        row = ""
        if path.stem == "tool.stream":
            for name, added in phases(schema, common):
                row += f" /{name}{compact(added)}" if added else ""
            del schema["allOf"]
        row = f"{path.stem} {seq_class(schema)}{compact(fields(schema, common))}{row}"
        lines.append(rf'    "{row}\n"')
    return "\n".join([*lines, ")"]) + "\n"


def messages(direction: str) -> list[Path]:
    return sorted((SCHEMA / direction).glob("*.json"))


def seq_class(schema: Schema) -> int:
    return CLASSES[reference(schema["properties"]["seq"])]


def reference(schema: Schema) -> str:
    """The name of the common definition that a property refers to."""
    return str(schema["$ref"]).removeprefix("../common.json#/$defs/")


def fields(schema: Schema, common: Schema) -> tuple[Field, ...]:
    """The fields of a message beyond `v`, `seq` and `type`, or those that a phase adds."""
    known = NOTES | {"type", "required", "properties", "if", "then"}
    title = schema.get("title", "a phase")
    if unknown := schema.keys() - known:
        raise SystemExit(f"{title}: the tables cannot express {sorted(unknown)}")
    always = schema.get("required", [])
    when_not_ok: list[str] = []
    if "if" in schema:
        if schema["if"] != {"properties": {"ok": {"const": False}}} or schema.get("then", {}).keys() != {
            "required"
        }:
            raise SystemExit(f"{title}: the tables can only express what is required when ok is false")
        when_not_ok = schema["then"]["required"]
    result = []
    for name, member in schema.get("properties", {}).items():
        if name in ("v", "seq", "type") or not member.keys() - NOTES:
            continue  # checked before the fields, or free
        need = REQUIRED if name in always else WHEN_NOT_OK if name in when_not_ok else OPTIONAL
        kind, extra = kind_of(name, member, common)
        result.append((name, kind, need, extra))
    return tuple(result)


def kind_of(name: str, member: Schema, common: Schema) -> tuple[int, tuple[str, ...] | None]:
    """A member's kind, and the allowed strings where it has some."""
    bare = {key: value for key, value in member.items() if key not in NOTES}
    if bare.keys() == {"$ref"}:
        target = common[reference(bare)]
        if "enum" in target:
            return KINDS.index("ENUM"), tuple(target["enum"])
        kind = REFS.get(reference(bare))
        if kind is not None:
            if kind == "FORMAT":
                return KINDS.index(kind), tuple(target["properties"]["encoding"]["enum"])
            words = WORDS.get(reference(bare))
            return KINDS.index(kind), None if words is None else (words,)
    if bare.keys() == {"enum"}:
        return KINDS.index("ENUM"), tuple(bare["enum"])
    if bare in ({"type": "string"}, {"type": "boolean"}):
        return KINDS.index("STRING" if bare["type"] == "string" else "BOOL"), None
    raise SystemExit(f"{name}: the tables cannot express {bare}")


def phases(stream: Schema, common: Schema) -> list[tuple[str, tuple[Field, ...]]]:
    """What each phase of a tool.stream adds (§7.5), in the order of the enumeration."""
    added: dict[str, tuple[Field, ...]] = {}
    for rule in stream["allOf"]:
        if rule.keys() != {"if", "then"}:
            raise SystemExit(f"tool.stream: the tables cannot express {rule}")
        added[rule["if"]["properties"]["phase"]["const"]] = fields(rule["then"], common)
    names: list[str] = stream["properties"]["phase"]["enum"]
    if unknown := added.keys() - set(names):
        raise SystemExit(f"tool.stream: no such phases: {sorted(unknown)}")
    return [(name, added.get(name, ())) for name in names]


def compact(added: tuple[Field, ...]) -> str:
    """Fields as text, each after a blank."""
    made = ""
    for name, kind, need, extra in added:
        made += f" {kind}{REQUIREMENTS[need]}{name}" + ("" if extra is None else "=" + "|".join(extra))
    return made


if __name__ == "__main__":
    sys.exit(main())
