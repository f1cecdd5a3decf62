"""Control messages as text: decoding with the classification of vRT §9.1, checking by schema, encoding (§2.2)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from vrt_host.errors import LocalError, RemoteError
from vrt_host.resources import root

Json = Any
Message = dict[str, Json]
Direction = Literal["client", "server"]
"""Whose messages: what the client sends, or what the server sends."""

U32_MAX = 0xFFFF_FFFF
MAX_LISTED = 256
"""Tools, and capabilities, that a hello may list (§11): checking takes time, and nobody is authenticated yet."""
SHOWN = 200
"""Characters of a peer's data that an error message may carry."""


class WireError(RemoteError):
    """An invalid control message or audio frame. `seq` is the place it takes in the sender's stream, 0 if none."""

    def __init__(self, code: str, message: str, seq: int = 0) -> None:
        super().__init__(code, message)
        self.seq = seq


class TooLargeError(LocalError):
    """The peer could not take this message or frame: too long, or nested too deeply. Nothing was sent."""


def decode(frame: str | bytes, sender: Direction) -> Message:
    """The message in a text frame, checked against its schema, or `WireError`.

    Members that a schema makes integers are `int`s in it, and no string holds a lone surrogate.
    """
    message, beyond = _parse(frame)
    version = message.get("v")
    if isinstance(version, bool) or version != 1:
        raise WireError("UNSUPPORTED_VERSION", "this side speaks v 1")
    seq = _readable(message.get("seq"))
    name = message.get("type")
    kind = _kinds(sender).get(name) if isinstance(name, str) else None
    if kind is None:
        raise WireError("UNKNOWN_TYPE", f"a {sender} sends no message of type {_shown(name)}", seq)
    if kind.transient:
        seq = 0  # whatever it claims, it has no place in the stream (§4.1)
    if beyond:
        raise WireError("INVALID_FIELD", "a number is out of range", seq)
    for problem in kind.problems(message):
        raise WireError("INVALID_FIELD", problem, seq)
    for member in kind.integers & message.keys():
        message[member] = int(message[member])  # 1.0 is an integer (§2.2 binds senders only)
    return message


def position(frame: str | bytes, sender: Direction) -> int:
    """The place a frame takes in its sender's stream, valid or not; 0 if it takes none or cannot be read."""
    try:
        seq: int = decode(frame, sender)["seq"]
    except WireError as error:
        return error.seq
    return seq


def encode(message: Mapping[str, Json]) -> str:
    """The text of a message. A lone surrogate becomes U+FFFD; what JSON cannot say raises `LocalError`."""
    _check_sendable(message, 1)
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise LocalError(f"this message is not JSON: {error}") from error
    return well_formed(text)


def transient(type_: str, /, **members: Json) -> str:
    """The text of a message that has no number: a transient one, or an error without a session (§4.1)."""
    return encode({"v": 1, "seq": 0, "type": type_, **members})


def check(message: Message, sender: Direction) -> None:
    """Raises `LocalError` unless the sender may send this message; for tests and tools, not for each message."""
    try:
        decode(encode(message), sender)
    except WireError as error:
        raise LocalError(f"{error.code}: {error}") from error


def size(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def cut(text: str, room: int) -> tuple[str, str]:
    """Splits a text so that the first part takes at most `room` bytes inside a JSON string.

    The first part is empty if not even one character fits.
    """
    text = well_formed(text)
    used = place = 0
    for step in (1024, 32, 1):  # each character has its own form, so that many can be measured at once
        while place < len(text):
            octets = size(json.dumps(text[place : place + step], ensure_ascii=False)) - 2
            if used + octets > room:
                break
            used += octets
            place += step
    return text[:place], text[place:]


def loads(text: str) -> Json:
    """The value of a JSON text, read strictly (RFC 8259): no NaN, no number beyond a double. Raises `ValueError`."""
    if _too_deep(text):
        raise ValueError("nested too deeply")
    value = _STRICT.decode(text)
    return _well_formed_value(value) if _SURROGATE.search(text) else value


def well_formed(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD, so that it can be encoded."""
    return text if text.isascii() else _LONE.sub("\ufffd", text)


# --- text to value


class _BeyondError(ValueError):
    """A number that a double cannot hold."""


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise _BeyondError("a number is out of range")
    return value


def _whole(number: str) -> int:
    if len(number) > 308:
        _finite(number)
    return int(number)


def _no_constant(name: str) -> Json:
    raise json.JSONDecodeError(f"{name} is not JSON", name, 0)


_STRICT = json.JSONDecoder(parse_int=_whole, parse_float=_finite, parse_constant=_no_constant)
_LOOSE = json.JSONDecoder(parse_int=float, parse_constant=_no_constant)
_LONE = re.compile("[\ud800-\udfff]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# A string that never ends is one token too, or looking for its end from each quote would take quadratic time.
_NO_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[^][{}"]+', re.DOTALL)


def _parse(frame: str | bytes) -> tuple[Message, bool]:
    """The object in a frame, and whether a number in it is beyond a double (JSON all the same, so not MALFORMED)."""
    beyond = False
    try:
        text = frame if isinstance(frame, str) else frame.decode()
        if _too_deep(text):
            raise WireError("MALFORMED", f"nested deeper than {MAX_DEPTH} levels, or not JSON")
        try:
            value = _STRICT.decode(text)
        except json.JSONDecodeError:
            raise
        except ValueError:  # beyond a double
            value = _LOOSE.decode(text)
            beyond = True
    except ValueError as error:
        raise WireError("MALFORMED", f"not JSON: {str(error)[:SHOWN]}") from error
    if not isinstance(value, dict):
        raise WireError("MALFORMED", "not a JSON object")
    return (_well_formed_value(value) if _SURROGATE.search(text) else value), beyond


def _too_deep(text: str) -> bool:
    """Whether a text nests more than it may, or has many brackets that do not match, which is no JSON either."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return False
    brackets = _NO_BRACKETS.sub("", text).replace("{", "[").replace("}", "]")
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace("[]", "")  # the innermost level of each
    return bool(brackets)


def _well_formed_value(value: Json) -> Json:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_well_formed_value(item) for item in value]
    if isinstance(value, dict):
        return {well_formed(key): _well_formed_value(item) for key, item in value.items()}
    return value


def _check_sendable(value: Json, depth: int) -> None:
    # json.dumps turns other keys into strings, and so could emit a name twice (§2.2).
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise LocalError("a member's name is not a string")
        children: Iterator[Json] = iter(value.values())
    elif isinstance(value, (list, tuple)):
        children = iter(value)
    else:
        return
    if depth > MAX_DEPTH:
        raise TooLargeError(f"nested deeper than {MAX_DEPTH} levels")
    for child in children:
        _check_sendable(child, depth + 1)


# --- value to message


def _readable(seq: Json) -> int:
    if (
        isinstance(seq, bool)
        or not isinstance(seq, (int, float))
        or not 0 <= seq <= U32_MAX
        or seq != int(seq)
    ):
        return 0
    return int(seq)


def _shown(value: Json) -> str:
    return repr(value)[:SHOWN]


def _pattern(_: Any, pattern: str, value: Json, __: Any) -> Iterator[ValidationError]:
    # Python's `$` also matches before a trailing newline; that of JSON Schema (ECMA-262) does not.
    if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), value):
        yield ValidationError(f"{_shown(value)} does not match {pattern}")


Validator: type[Any] = extend(Draft202012Validator, {"pattern": _pattern})  # type: ignore[no-untyped-call]
"""JSON Schema 2020-12, where a final `$` means the very end."""


class _Kind:
    """What a type of message may hold: a schema compiled once, its references put in place."""

    def __init__(self, schema: Message) -> None:
        self._validator = Validator(schema)
        properties = schema["properties"]
        self.transient = properties["seq"].get("const") == 0
        self.integers = frozenset(
            name for name, member in properties.items() if member.get("type") == "integer"
        )

    def problems(self, message: Message) -> Iterator[str]:
        """What the schema forbids, and what it cannot say (§5.2)."""
        hello = message["type"] == "hello"
        if hello:
            for name in ("tools", "capabilities"):
                if isinstance(message.get(name), list) and len(message[name]) > MAX_LISTED:
                    yield f"{name}: more than {MAX_LISTED}"
        for error in self._validator.iter_errors(message):
            where = ".".join(str(step) for step in error.absolute_path)
            yield f"{where}: {error.message}"[:SHOWN] if where else error.message[:SHOWN]
        if hello:
            names = [tool["name"] for tool in message.get("tools", ())]
            if len(set(names)) < len(names):
                yield "tools: a name is declared twice"


def schema_folder() -> Path:
    return root() / "schema"


@cache
def _document(name: str) -> Message:
    value: Message = json.loads((schema_folder() / name).read_text("utf-8"))
    return value


@cache
def _kinds(sender: Direction) -> Mapping[str, _Kind]:
    names = sorted(path.stem for path in (schema_folder() / sender).glob("*.json"))
    return {name: _Kind(_in_place(_document(f"{sender}/{name}.json"))) for name in names}


def _in_place(schema: Json) -> Json:
    """The schema with each reference to a common definition replaced by it: resolving costs more than checking."""
    if isinstance(schema, list):
        return [_in_place(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    merged = {key: _in_place(value) for key, value in schema.items() if key != "$ref"}
    if "$ref" in schema:
        definition = _document("common.json")["$defs"][schema["$ref"].rpartition("/")[2]]
        merged.update(_in_place(definition))
    return merged


@cache
def gated() -> Mapping[str, str]:
    """The message types that exist only under a capability, and its token (§3.4)."""
    entries = _document("capabilities.json")["capabilities"]
    return {name: entry["token"] for entry in entries for name in entry["messages"]}


MAX_DEPTH: int = _document("common.json")["$defs"]["maxDepth"]["const"]
"""Levels of nesting that a message may have, itself being the first (§11)."""
