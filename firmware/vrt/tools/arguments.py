# JSON values against the subset of JSON Schema that tools declare (vRT §7.1). Nothing is repaired: a value fits, or the
# first rule that it breaks is named. A schema with a word outside the subset is refused when it is declared (see
# `declaration`), so that no rule is ever skipped in silence, and recursion ends with the schema's own depth.
import json

from micropython import const

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
