# JSON values against the subset of JSON Schema that tools declare (vRT §7.1). Nothing is repaired: a value fits, or the
# first rule that it breaks is named. A schema with a word outside the subset is refused when it is declared (see
# `declaration`), so that no rule is ever skipped in silence, and recursion ends with the schema's own depth.
import json

from micropython import const

_TEXT = const(200)  # characters of a message to the model
_VALUE_DEPTH = const(16)

_KINDS = (
    (type(None), "null"),
    (bool, "boolean"),
    (str, "string"),
    (int, "integer"),
    ((list, tuple), "array"),
    (dict, "object"),
)
KINDS = ("null", "boolean", "integer", "number", "string", "array", "object")
BOUNDS = (  # what a number below, at and above the limit means
    ("minimum", "at least", False, True, True),
    ("maximum", "at most", True, True, False),
    ("exclusiveMinimum", "more than", False, False, True),
    ("exclusiveMaximum", "less than", True, False, False),
)


def kind(value):
    # The JSON type of a value; "integer" for any number without a fraction. None: JSON has no such value.
    for cls, name in _KINDS:
        if isinstance(value, cls):
            return name
    if isinstance(value, float) and value - value == 0:  # not infinite (1e999), not NaN
        return "number" if value % 1 else "integer"
    return None


def canonical(value, depth=_VALUE_DEPTH):
    # The one JSON text of a value: members sorted, no blanks, integers without a fraction. ValueError: not JSON, or
    # nested deeper than `depth`.
    what = kind(value)
    if what is None:
        raise ValueError("JSON has no such " + type(value).__name__)
    if what == "integer":
        return str(int(value))
    if what not in ("array", "object"):
        return json.dumps(value)
    if depth == 0:
        raise ValueError("nested too deeply")
    if what == "array":
        return "[" + ",".join([canonical(one, depth - 1) for one in value]) + "]"
    if not all(isinstance(key, str) for key in value):
        raise ValueError("JSON names members by text only")
    members = [json.dumps(key) + ":" + canonical(value[key], depth - 1) for key in sorted(value)]
    return "{" + ",".join(members) + "}"


def same(a, b):
    # Equality as JSON Schema has it: 1 equals 1.0, and true is not a number.
    return canonical(a) == canonical(b)


def listed(one_or_more):
    return one_or_more if isinstance(one_or_more, (list, tuple)) else (one_or_more,)


def problem(schema, value, path="arguments"):
    # The first rule of a checked schema that the value breaks, as text for the model: "arguments.door: must be ...".
    broken, at = _broken(schema, value)
    if broken is None:
        return None
    text = f"{path}{at}: {broken}"
    return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."


def _broken(schema, value):
    # (text, path) of the first broken rule; the text is None when there is none.
    what = kind(value)
    types = listed(schema.get("type", KINDS))
    broken, at = None, ""
    if what not in types and not (what == "integer" and "number" in types):
        broken = "must be " + " or ".join(types)
    elif "enum" in schema and not any(same(value, one) for one in schema["enum"]):
        broken = "must be one of " + json.dumps(schema["enum"])
    elif "const" in schema and not same(value, schema["const"]):
        broken = "must be " + json.dumps(schema["const"])
    elif what == "array":
        broken, at = _broken_item(schema, value)
    elif what == "object":
        broken, at = _broken_member(schema, value)
    elif what == "string":
        broken = _broken_count(schema, len(value), "Length", "characters")
    elif what in ("integer", "number"):
        broken = _broken_bound(schema, value)
    return broken, at


def _broken_bound(schema, value):
    for word, text, below, at, above in BOUNDS:
        limit = schema.get(word, value)
        if word in schema and not (below if value < limit else above if value > limit else at):
            return f"must be {text} {limit}"
    if value % schema.get("multipleOf", 1) and "multipleOf" in schema:
        return f"must be a multiple of {schema['multipleOf']}"
    return None


def _broken_count(schema, count, suffix, unit):
    if count < schema.get("min" + suffix, 0):
        return "must have at least {} {}".format(schema["min" + suffix], unit)
    if count > schema.get("max" + suffix, count):
        return "must have at most {} {}".format(schema["max" + suffix], unit)
    return None


def _broken_item(schema, value):
    broken = _broken_count(schema, len(value), "Items", "items")
    if broken is None and "items" in schema:
        for i, one in enumerate(value):
            broken, at = _broken(schema["items"], one)
            if broken:
                return broken, f"[{i}]{at}"
    return broken, ""


def _broken_member(schema, value):
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return "is required", "." + name
    for name in value:
        if name in properties:
            broken, at = _broken(properties[name], value[name])
            if broken:
                return broken, f".{name}{at}"
        elif schema.get("additionalProperties") is False:
            known = ", ".join(sorted(properties)) or "none"
            return f"has no member {json.dumps(name[:40])}; its members: {known}", ""
    return None, ""
