# Whether arguments keep the rules of their tool's schema (vRT §7.1): see arguments.py. Needed for a moment in each call, and
# forgotten again.
import json

from micropython import const

from vrt.tools.arguments import canonical, kind

_TEXT = const(200)  # characters of a message to the model


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
