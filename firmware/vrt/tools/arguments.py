# JSON values against the subset of JSON Schema that tools declare (vRT §7.1). Nothing is repaired: a value fits, or the
# first rule that it breaks is named. A schema with a word outside the subset is refused when it is declared (see
# `declaration`), so that no rule is ever skipped in silence, and recursion ends with the schema's own depth.
import json

from micropython import const

_TEXT = const(200)  # characters of a message to the model
_VALUE_DEPTH = const(16)


def kind(value):  # noqa: PLR0911  (an answer for each kind)
    # The JSON type of a value; "integer" for any number without a fraction. None: JSON has no such value.
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (list, tuple)):
        return "array"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, (int, float)) and value - value == 0:  # not infinite (1e999), not NaN
        return "number" if value % 1 else "integer"
    return None


def canonical(value, depth=_VALUE_DEPTH):
    # The one JSON text of a value: members sorted, no blanks, integers without a fraction. ValueError: not JSON, or
    # nested deeper than `depth`. Equal texts are JSON Schema's equality: 1 equals 1.0, and true is not a number.
    what = kind(value)
    if what is None:
        raise ValueError("JSON has no " + type(value).__name__)
    if depth < 0:
        raise ValueError("nested too deeply")
    if what == "integer":
        return str(int(value))
    if what == "array":
        return "[" + ",".join([canonical(one, depth - 1) for one in value]) + "]"  # type: ignore
    if what != "object":
        return json.dumps(value)
    members = []
    for name in value:
        if not isinstance(name, str):
            raise ValueError("JSON names members by text")  # noqa: TRY004  (one error for all)
        members.append(json.dumps(name) + ":" + canonical(value[name], depth - 1))
    return "{" + ",".join(sorted(members)) + "}"


def problem(schema, value, path="arguments"):  # noqa: C901, PLR0912  (a branch for each rule)
    # The first rule of a checked schema that the value breaks, as text for the model: "arguments.door: must be ...".
    what = kind(value)
    types = schema.get("type") or what or "JSON"
    if isinstance(types, str):
        types = (types,)
    broken = None
    inner = []
    if what not in types and (what != "integer" or "number" not in types):
        broken = "must be " + " or ".join(types)
    elif "enum" in schema and canonical(value) not in [canonical(one) for one in schema["enum"]]:
        broken = "must be one of " + json.dumps(schema["enum"])
    elif "const" in schema and canonical(value) != canonical(schema["const"]):
        broken = "must be " + json.dumps(schema["const"])
    elif what == "object":
        known = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value and not broken:
                broken, path = "is required", path + "." + name
        for name in value:
            if name in known:
                inner.append((known[name], value[name], path + "." + name))
            elif not broken and schema.get("additionalProperties") is False:
                broken = f"has no member {json.dumps(name[:40])}; its members: {', '.join(sorted(known)) or 'none'}"
    elif what == "array":
        broken = _broken_limit(schema, len(value), "Items", "items")
        if "items" in schema:
            for i, one in enumerate(value):
                inner.append((schema["items"], one, f"{path}[{i}]"))
    elif what == "string":
        broken = _broken_limit(schema, len(value), "Length", "characters")
    elif value is not None and not isinstance(value, bool):
        broken = _broken_limit(schema, value, "imum", "")
    if broken:
        text = path + ": " + broken
        return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."
    for one in inner:
        text = problem(*one)
        if text:
            return text
    return None


def _broken_limit(schema, value, suffix, unit):
    # The rules of a number, or of how many characters or items there are.
    if value < schema.get("min" + suffix, value):
        word = "min" + suffix
        text = "at least"
    elif value > schema.get("max" + suffix, value):
        word = "max" + suffix
        text = "at most"
    elif unit:
        return None
    elif "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        word = "exclusiveMinimum"
        text = "more than"
    elif "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
        word = "exclusiveMaximum"
        text = "less than"
    elif "multipleOf" in schema and value % schema["multipleOf"]:
        word = "multipleOf"
        text = "a multiple of"
    else:
        return None
    return f"must have {text} {schema[word]} {unit}" if unit else f"must be {text} {schema[word]}"
