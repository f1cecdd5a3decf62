"""The tools a device declared in `hello`, and the check of a call's arguments against them (vRT §7, decisions 16).

Arguments are checked here as well as on the device, so that a model that wrote nonsense hears of it without a
round trip. Nothing is ever repaired: what is not right is refused, with the schema in the message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match

from vrt_host.agents.base import Json, Tool
from vrt_host.protocol.wire import loads

DEFAULT_TIMEOUT_MS = 30_000
MAX_TIMEOUT_MS = 3_600_000
MAX_TOOLS = 128
MAX_SCHEMA = 1000
"""Values in the parameters of one tool: checking a schema takes about a millisecond for each, at worst."""
MAX_SCHEMAS = 4000
"""Values in those of all tools."""
MAX_ARGUMENTS = 64 * 1024
"""Characters of arguments that are looked at."""
_SHOWN = 1500
"""Characters of a schema that an error message quotes."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# What a stranger's schema could use to keep the host busy for ever: references can double the work with every level
# (and would be fetched), patterns can backtrack. Such a schema is left to the device, which has to check anyway.
_COSTLY = frozenset(
    {
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "pattern",
        "patternProperties",
        "uniqueItems",
        "unevaluatedItems",
    }
    | {"unevaluatedProperties", "contains"}
)
_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_DATA = frozenset({"enum", "const", "default", "examples"})


class ArgumentsError(ValueError):
    """Arguments that a tool does not take; the text is for the model and carries the schema."""


class _TooMuchError(ValueError):
    """A declaration beyond a limit of this host's (§11)."""


class DeclaredTools:
    """The tools of one session: what may be called and with what."""

    def __init__(self, declarations: Iterable[Mapping[str, Json]]) -> None:
        """Take over the `tools` of a `hello` that its schema has passed; what cannot be used is declined alone."""
        self.declined: list[str] = []
        """One line for each tool that will never be called, for the log."""
        self.beyond_limits: list[str] = []
        """Those of them that are declined because of a limit: the client is told as well (§11)."""
        self._tools: dict[str, tuple[Tool, Draft202012Validator]] = {}
        self._values = 0
        for count, declaration in enumerate(declarations):
            try:
                if count >= MAX_TOOLS:
                    raise _TooMuchError(f"only {MAX_TOOLS} tools are taken")
                self._add(declaration)
            except (ValueError, RecursionError) as error:
                self.declined.append(f"{declaration['name'][:64]!r}: {str(error)[:200]}")
                if isinstance(error, _TooMuchError):
                    self.beyond_limits.append(self.declined[-1])

    @property
    def tools(self) -> list[Tool]:
        """What an agent may call."""
        return [tool for tool, _ in self._tools.values()]

    def get(self, name: str) -> Tool | None:
        """The tool of that name, None when the device did not declare it."""
        found = self._tools.get(name)
        return None if found is None else found[0]

    def arguments(self, tool: Tool, given: str | Mapping[str, Json]) -> dict[str, Json]:
        """The arguments as a JSON object that the tool takes; raises `ArgumentsError`.

        Empty text stands for no arguments where none is required (models write it so) and for nothing else.
        """
        validator = self._tools[tool.name][1]
        try:
            value = _parse(given)
            if not isinstance(value, dict):
                raise ValueError("they are not a JSON object")  # noqa: TRY301, TRY004
            problem = best_match(validator.iter_errors(value))
        except (ValueError, RecursionError) as error:
            raise ArgumentsError(_refusal(tool, _reason(error))) from None
        if problem is not None:
            raise ArgumentsError(_refusal(tool, f"{problem.json_path}: {problem.message[:300]}"))
        return value

    def _add(self, declaration: Mapping[str, Json]) -> None:
        name = declaration["name"]
        if not _NAME.fullmatch(name):
            raise ValueError("its name is not 1 to 64 letters, digits, '_', '.' or '-'")
        parameters = declaration.get("parameters")
        values = _values(parameters)
        if values > MAX_SCHEMA or self._values + values > MAX_SCHEMAS:
            raise _TooMuchError(
                f"its parameters hold {values} values; {MAX_SCHEMA} are taken for a tool, {MAX_SCHEMAS} for all"
            )
        self._values += values
        try:
            Draft202012Validator.check_schema(parameters or {})
        except SchemaError as error:
            raise ValueError(
                f"its parameters are not a JSON Schema: {error.json_path}: {error.message}"
            ) from None
        tool = Tool(
            name,
            declaration.get("description", ""),
            parameters,
            _timeout(declaration.get("timeoutMs", DEFAULT_TIMEOUT_MS)),
            _one_of(declaration, "confirm", (None, "button", "voice"), None),
            _confirm_when(declaration.get("confirmWhen")),
            _one_of(declaration, "effect", ("none", "reversible", "irreversible"), "reversible"),
            _phrases(declaration.get("phrases", [])),
        )
        self._tools[name] = (tool, Draft202012Validator(_checked_here(parameters)))


def _checked_here(parameters: Mapping[str, Json] | None) -> dict[str, Json]:
    """The part of a tool's schema that the host checks; that arguments are an object holds for all."""
    if parameters is None:
        return {"type": "object", "additionalProperties": False}
    if not _costly(parameters):
        return dict(parameters)
    return {"required": parameters.get("required", [])}


def _values(schema: Json) -> int:
    """How many values a schema holds, itself included."""
    if isinstance(schema, dict):
        return 1 + sum(map(_values, schema.values()))
    return 1 + sum(map(_values, schema)) if isinstance(schema, list) else 1


def _costly(schema: Json) -> bool:
    """Whether checking against `schema` can take very long."""
    if isinstance(schema, list):
        return any(map(_costly, schema))
    if not isinstance(schema, dict):
        return False
    for keyword, value in schema.items():
        if keyword in _COSTLY:
            return True
        if keyword in _DATA:
            continue
        if _costly(list(value.values()) if keyword in _NAMED and isinstance(value, dict) else value):
            return True
    return False


def _parse(given: str | Mapping[str, Json]) -> Json:
    """Arguments as a value that can be sent; raises `ValueError`, also for what JSON text cannot carry."""
    if not isinstance(given, str):
        value: Json = dict(given)
    elif not given.strip():
        value = {}
    elif len(given) > MAX_ARGUMENTS:
        raise ValueError("they are too long")
    else:
        value = json.loads(given, object_pairs_hook=_object, parse_constant=_constant)
    # Numbers beyond a double, lone surrogates and non-JSON values of an adapter would pass every schema, or break the
    # check, and fail when sent.
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except TypeError as error:
        raise ValueError(str(error)) from None
    if len(text.encode()) > MAX_ARGUMENTS:
        raise ValueError("they are too long")
    loads(text)
    return value


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """An object; a repeated name says two things at once, and taking either would be a guess."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name is given twice in one object")
    return value


def _constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _reason(error: Exception) -> str:
    """Why arguments were not understood, in words for a model."""
    if isinstance(error, json.JSONDecodeError):
        return f"they are not JSON: {error.msg} at character {error.pos}"
    if isinstance(error, RecursionError):
        return "they are nested too deeply"
    if isinstance(error, UnicodeEncodeError):
        return "they hold text that is not Unicode"
    return str(error)[:300]


def _refusal(tool: Tool, reason: str) -> str:
    schema = json.dumps(tool.parameters or _checked_here(None), ensure_ascii=False)
    if len(schema) > _SHOWN:
        schema = schema[:_SHOWN] + "..."
    return f"the arguments of {tool.name} are not valid: {reason}. The tool was not run. Its schema: {schema}"


def _timeout(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= MAX_TIMEOUT_MS:
        raise ValueError(f"timeoutMs is not a number from 1 to {MAX_TIMEOUT_MS}")
    return int(value)


def _one_of(declaration: Mapping[str, Json], member: str, allowed: tuple[Any, ...], default: Any) -> Any:
    value = declaration.get(member, default)
    if (value is not None and not isinstance(value, str)) or value not in allowed:
        names = ", ".join(str(name) for name in allowed if name)
        raise ValueError(f"{member} is not one of {names}")
    return value


def _confirm_when(value: Json) -> dict[str, list[Json]] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(values, list) for values in value.values()):
        raise ValueError("confirmWhen does not map names of arguments to lists of values")
    return value


def _phrases(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise ValueError("phrases is not a list")  # noqa: TRY004
    return value
