# JSON values against the subset of JSON Schema that tools declare (vRT §7.1). Nothing is repaired: a value fits, or the
# first rule that it breaks is named. A schema with a word outside the subset is refused when it is declared, so that no
# rule is ever skipped in silence. Recursion is bounded by the depth of schemas (here) and of values (`canonical`).
import json

from micropython import const

from vrt.errors import ConfigError

_TEXT = const(200)  # characters of a message to the model
_SCHEMA_DEPTH = const(6)
_VALUE_DEPTH = const(16)

_KINDS = (
    (type(None), "null"),
    (bool, "boolean"),
    (str, "string"),
    (int, "integer"),
    ((list, tuple), "array"),
    (dict, "object"),
)
_NAMES = ("null", "boolean", "integer", "number", "string", "array", "object")
_NOTES = ("title", "description", "default", "examples")  # they rule nothing: a default is not filled in
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems")
_BOUNDS = (
    ("minimum", "at least", lambda value, limit: value >= limit),
    ("maximum", "at most", lambda value, limit: value <= limit),
    ("exclusiveMinimum", "more than", lambda value, limit: value > limit),
    ("exclusiveMaximum", "less than", lambda value, limit: value < limit),
    ("multipleOf", "a multiple of", lambda value, limit: value % limit == 0),
)


def kind(value):
    # The JSON type of a value; "integer" for any number without a fraction. None: JSON has no such value.
    for cls, name in _KINDS:
        if isinstance(value, cls):
            return name
    if isinstance(value, float) and value - value == 0:  # not infinite (1e999), not NaN
        return "number" if value % 1 else "integer"
    return None


def same(a, b):
    # Equality as JSON Schema has it: 1 equals 1.0, and true is not a number.
    what = kind(a)
    if what != kind(b):
        return False
    if what == "array":
        return len(a) == len(b) and all(same(a[i], b[i]) for i in range(len(a)))
    if what == "object":
        return len(a) == len(b) and all(key in b and same(a[key], b[key]) for key in a)
    return a == b


def canonical(value, depth=_VALUE_DEPTH):
    # The one JSON text of a value: members sorted, no blanks. ValueError: not JSON, or nested deeper than `depth`.
    what = kind(value)
    if what is None:
        raise ValueError("JSON has no such " + type(value).__name__)
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


def check_schema(schema, where, depth=0):
    # ConfigError when the schema uses what `problem` does not know, or says what cannot be meant.
    if kind(schema) != "object":
        raise ConfigError(f"{where}: a schema is a dict, not {schema!r}")
    if depth > _SCHEMA_DEPTH:
        raise ConfigError(f"{where}: schemas nest {_SCHEMA_DEPTH} deep at most")
    properties = schema.get("properties", {})
    if kind(properties) != "object" or not all(kind(name) == "string" for name in properties):
        raise ConfigError(f"{where}: 'properties' is a dict of schemas by name")
    for word, rule in schema.items():
        fits = _fits(word, rule, properties)
        if fits is None:
            raise ConfigError(f"{where}: the keyword {word!r} is not supported; {_advice()}")
        if not fits:
            raise ConfigError(f"{where}: {word!r} cannot be {rule!r}")
    for name in properties:
        check_schema(properties[name], f"{where}.{name}", depth + 1)
    if "items" in schema:
        check_schema(schema["items"], where + "[]", depth + 1)
    others = {word: schema[word] for word in schema if word != "enum"}
    for value in schema.get("enum", ()):
        broken = problem(others, value, "it")
        if broken:
            raise ConfigError(f"{where}: the enum has {value!r}, but {broken}")


def _fits(word, rule, properties):
    # Whether the rule is one that the word can have; None: an unknown word.
    what = kind(rule)
    if word in _NOTES or word in ("properties", "items"):  # both are looked into by the caller
        return True
    if word in _COUNTS or word == "multipleOf":
        return what == "integer" and rule >= (word == "multipleOf")
    if word == "type":
        return bool(rule) and all(one in _NAMES for one in _types(rule))
    if word == "required":  # a name without a schema is a slip of the pen
        fits = what == "array" and all(kind(name) == "string" and name in properties for name in rule)
    elif word == "enum":
        fits = what == "array" and len(rule) > 0 and all(kind(one) for one in rule)
    elif word == "additionalProperties":
        fits = what == "boolean"
    elif word == "const":
        fits = what is not None
    else:
        fits = what in ("integer", "number") if any(word == bound[0] for bound in _BOUNDS) else None
    return fits


def _types(rule):
    return rule if isinstance(rule, (list, tuple)) else (rule,)


def _advice():
    words = ("type", "enum", "const", "properties", "required", "additionalProperties", "items")
    return "these are: " + ", ".join(words + _COUNTS + tuple([bound[0] for bound in _BOUNDS]) + _NOTES)


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
    types = _types(schema.get("type", _NAMES))
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
        for word, text, holds in _BOUNDS:
            if word in schema and not holds(value, schema[word]):
                broken = f"must be {text} {schema[word]}"
                break
    return broken, at


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
