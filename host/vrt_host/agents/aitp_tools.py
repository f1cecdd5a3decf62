"""The device's tools as AITP declares them ("3. CONTEXT_UPDATE"): its dialect of schemas, and how risky a call is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from vrt_host.agents.aitp_messages import Frame, Risk
from vrt_host.agents.base import Json, Tool

_TYPES = {
    "object": "OBJECT",
    "string": "STRING",
    "number": "NUMBER",
    "integer": "NUMBER",
    "boolean": "BOOLEAN",
    "array": "ARRAY",
}
_SAID = frozenset({"type", "description", "title", "$schema", "$comment", "examples"})
_DEEPEST = 8
"""Below that a schema is told in words."""


def declaration(tool: Tool) -> Frame:
    """One tool. What the dialect cannot say is in words in a description; the device checks every call all the same."""
    schema = dict(tool.parameters or {})
    made = _object(schema, 0)
    rest = _rest(schema, made)
    description = _joined(tool.description or tool.name, rest)
    return {
        "name": tool.name,
        "description": description,
        "parameters": {"properties": {}, **made, "type": "OBJECT"},
        "risk": risk(tool),
    }


def risk(tool: Tool) -> Risk:
    """How risky a call is: what asks the user is `high`, and `critical` if nothing can take it back."""
    if tool.confirm is not None:
        return "critical" if tool.effect == "irreversible" else "high"
    return "none" if tool.effect == "none" else "low"


def _property(schema: Json, depth: int) -> Frame:
    if not isinstance(schema, Mapping):
        return {
            "type": "STRING",
            "description": "any JSON value" if schema is not False else "no value is allowed",
        }
    kinds = schema.get("type")
    listed = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    kind = next((one for one in listed if one in _TYPES), None) or _guessed(schema)
    made: Frame = {"type": _TYPES[kind]}
    if kind == "object" and depth < _DEEPEST:
        made |= _object(schema, depth + 1)
    elif kind == "array" and depth < _DEEPEST and isinstance(schema.get("items"), Mapping):
        made["items"] = _property(schema["items"], depth + 1)
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if kind == "string" and (texts := _texts(values)):
        made["enum"] = texts
    words = " or ".join(map(str, listed)) if len(listed) > 1 else "whole number" if kind == "integer" else ""
    described = schema.get("description")
    text = described if isinstance(described, str) else ""
    description = _joined(text, words, _rest(schema, made))
    return {**made, "description": description} if description else made


def _object(schema: Mapping[str, Json], depth: int) -> Frame:
    properties = schema.get("properties")
    made: Frame = {}
    if isinstance(properties, Mapping):
        made["properties"] = {str(name): _property(one, depth) for name, one in properties.items()}
    if required := _texts(schema.get("required")):
        made["required"] = required
    return made


def _guessed(schema: Mapping[str, Json]) -> str:
    """The type of what does not name one."""
    if "properties" in schema:
        return "object"
    if "items" in schema:
        return "array"
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values:
        if all(isinstance(one, bool) for one in values):
            return "boolean"
        if all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
            return "number"
    return "string"


def _rest(schema: Mapping[str, Json], made: Frame) -> str:
    """What of a schema is not said yet, as JSON."""
    said = {*_SAID, *(name for name in ("properties", "required", "items") if name in made)}
    if "enum" in made:
        said |= {"enum", "const"}
    rest = {name: value for name, value in schema.items() if name not in said}
    if rest.get("additionalProperties") is False:
        del rest["additionalProperties"]
    return f"JSON Schema: {json.dumps(rest, ensure_ascii=False)}" if rest else ""


def _texts(values: Json) -> list[str]:
    """The values, if they are texts and nothing else."""
    return values if isinstance(values, list) and all(isinstance(one, str) for one in values) else []


def _joined(*texts: str) -> str:
    """Sentences and remarks in one description."""
    first, *others = [text for text in texts if text] or [""]
    return first + "".join(f" ({text})" for text in others)


def named(tools: Iterable[Tool]) -> str:
    """Their names, for a line of the log."""
    return ", ".join(tool.name for tool in tools)
