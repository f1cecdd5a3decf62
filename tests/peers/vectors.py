"""The vectors of `schema/peers/<name>` for everybody who judges frames by them; the format is in its README.md.

Nothing here knows an adapter or a facade. `python -m peers.vectors NAME client|server FILE` prints what is wrong with a message.
"""

import json
import re
import struct
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

FOLDER = Path(__file__).parents[2] / "schema/peers"
NAMES = ("aitp", "omnia", "fish")
_NAME = re.compile(r"\$[a-zA-Z]\w*\Z")
_SHOWN = 200


@dataclass(frozen=True)
class Vectors:
    """All vectors of one protocol, written out: no `$repeat` is left."""

    schema: dict
    valid: list
    invalid: list
    flows: dict
    """By their ids."""


def _written_out(value):
    """`{"$repeat": [value, times]}` as the text or the list that it stands for, at any depth."""
    if isinstance(value, list):
        return [_written_out(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$repeat" not in value:
        return {name: _written_out(member) for name, member in value.items()}
    piece, times = value["$repeat"]
    return (piece if isinstance(piece, str) else [piece]) * times


def _read(path):
    return _written_out(json.loads(path.read_text("utf-8")))


@cache
def load(name):
    """The vectors of `aitp`, `omnia` or `fish`. They are shared: do not change them."""
    folder = FOLDER / name
    flows = [flow for path in sorted(folder.glob("flows/*.json")) for flow in _read(path)]
    schema = json.loads((folder / "messages.schema.json").read_text("utf-8"))
    return Vectors(
        schema,
        _read(folder / "valid.json"),
        _read(folder / "invalid.json"),
        {flow["id"]: flow for flow in flows},
    )


def frame(case):
    """What a vector puts on the wire, or a step without patterns: text, bytes, or a message not yet written as JSON."""
    if "hex" in case:
        pieces = case["hex"] if isinstance(case["hex"], list) else [case["hex"]]
        return bytes.fromhex("".join(pieces))
    return case["text"] if "text" in case else case["message"]


# --- judging


def _pattern(_, pattern, value, __):
    # Python's `$` also matches before a trailing newline; that of JSON Schema (ECMA-262) does not.
    if isinstance(value, str) and not re.search(re.sub(r"\$\Z", r"\\Z", pattern), value):
        yield ValidationError(f"{value[:_SHOWN]!r} does not match {pattern}")


_Validator = extend(Draft202012Validator, {"pattern": _pattern})


@cache
def validator(name, part):
    """A JSON Schema validator of one entry of the `$defs`."""
    schema = load(name).schema
    if part not in schema["$defs"]:
        raise ValueError(f"{name} has no {part!r}; it has {', '.join(schema['$defs'])}")
    return _Validator({**schema, "$ref": f"#/$defs/{part}"})


def _no_constant(text):
    raise ValueError(f"{text} is no JSON")


def parse(frame):
    """The value of a JSON text, or `ValueError`. More than the standard says is refused: NaN, bytes that are not UTF-8."""
    return json.loads(frame.decode() if isinstance(frame, bytes) else frame, parse_constant=_no_constant)


def errors(name, direction, frame):
    """What is wrong with a frame, a line each; nothing if it is right.

    `frame` is a message; or a text frame as it came (str); or a binary frame or a packet (bytes).
    `direction` says whose frame: `client` or `server`; or any other entry of the schema's `$defs`.
    """
    try:
        part, message = taken_apart(name, direction, frame)
    except (ValueError, RecursionError) as error:
        return [str(error)[:_SHOWN]]
    found = validator(name, part).iter_errors(message)
    return [f"{error.json_path}: {error.message[:_SHOWN]}" for error in found] or beyond(name, message)


def taken_apart(name, direction, frame):
    """The entry of `$defs` that judges a frame, and the value to be judged; or `ValueError`."""
    if isinstance(frame, bytes | bytearray):
        if name == "omnia":
            return "frame", decode_omni(bytes(frame))
        if name == "aitp":
            raise ValueError("the protocol has no binary frames")
        frame = bytes(frame)
    return direction, parse(frame) if isinstance(frame, str | bytes) else frame


def _size(value):
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def beyond(name, message):
    """What no schema can say of a message that is right otherwise: sizes in bytes, and what members have to do with each other."""
    found = {}
    if name == "aitp" and message["type"] == "CONTEXT_UPDATE":
        found["context has more than 64 KB"] = _size(message["payload"].get("context", {})) > 65_536
    if name == "omnia" and message.get("type") == "message":
        metadata = {key: len(value.encode()) for key, value in message.get("metadata", {}).items()}
        total = sum(metadata.values()) + sum(len(key) for key in metadata)
        found["a value of metadata has more than 8 KiB"] = any(size > 8_192 for size in metadata.values())
        found["metadata has more than 32 KiB"] = total > 32_768
        found["declare has more than 16 KiB"] = _size(message.get("declare", {})) > 16_384
    if name == "omnia" and "message_type" in message and "chunked" in message["flags"]:
        found["sequence is beyond total_chunks"] = message["sequence"] >= message["metadata"]["total_chunks"]
    if name == "fish" and message.get("type") == "client_tool.result":
        found["a result has more than 60,000 bytes"] = _size(message) > 60_000
    if name == "fish" and message.get("type") in ("tool.started", "tool.completed"):
        member = "input" if message["type"] == "tool.started" else "output"
        found[f"{member} is no JSON"] = not message.get(f"{member}Truncated") and not _is_json(
            message[member]
        )
    return [words for words, so in found.items() if so]


def _is_json(text):
    try:
        parse(text)
    except (ValueError, RecursionError):
        return False
    return True


# --- Omnia's binary frames (page, "Binary frame structure")

OMNI_FLAGS = {"compressed": 1, "chunked": 2, "is_last": 4}
_OMNI = struct.Struct(">4sBBHIII12s")


def decode_omni(data):
    """Header, metadata and payload of a binary frame as the vectors' `decoded`; or `ValueError` in the facade's words.

    Bytes beyond the declared lengths are left out. Metadata that is not JSON is None.
    """
    if len(data) < _OMNI.size:
        raise ValueError("invalid header size")
    magic, version, flags, kind, metadata, payload, sequence, media = _OMNI.unpack_from(data)
    if magic != b"OMNI":
        raise ValueError("invalid magic bytes")
    if version != 1:
        raise ValueError(f"unsupported binary protocol version: got {version}, expected 1")
    start = _OMNI.size + metadata
    if start > len(data):
        raise ValueError("metadata length exceeds frame size")
    if start + payload > len(data):
        raise ValueError("payload length exceeds frame size")
    try:
        told = parse(data[_OMNI.size : start])
    except (ValueError, RecursionError):
        told = None
    return {
        "flags": [name for name, mask in OMNI_FLAGS.items() if flags & mask],
        "message_type": kind,
        "sequence": sequence,
        "media_id": media.hex(),
        "metadata": told,
        "payload": data[start : start + payload].hex(),
    }


def encode_omni(decoded):
    """The frame of a `decoded`, its metadata written without spaces."""
    metadata = json.dumps(decoded["metadata"], separators=(",", ":"), ensure_ascii=False).encode()
    if decoded["metadata"] is None:
        metadata = b""
    payload, media = bytes.fromhex(decoded["payload"]), bytes.fromhex(decoded["media_id"])
    flags = sum(OMNI_FLAGS[name] for name in decoded["flags"])
    sizes = (len(metadata), len(payload))
    head = _OMNI.pack(b"OMNI", 1, flags, decoded["message_type"], *sizes, decoded["sequence"], media)
    return head + metadata + payload


# --- patterns of flows


def match(pattern, message, bound):
    """Whether a message is as a step of a flow has it; if so, `bound` (name -> value) learns the pattern's new names.

    A message may have members that the pattern does not name.
    """
    return difference(pattern, message, bound) is None


def difference(pattern, message, bound):
    """Like `match`, but the first place where the two differ, in words; None if they match."""
    learnt = dict(bound)
    found = _difference(pattern, message, learnt, "$")
    if found is None:
        bound.update(learnt)
    return found


def _kind(value):
    """The JSON type of a value."""
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    return "number" if isinstance(value, int | float) else type(value).__name__


def _special(pattern):
    return next(iter(pattern)) if isinstance(pattern, dict) and len(pattern) == 1 else None


def _difference(pattern, value, bound, path):  # noqa: PLR0911  (one case a line)
    if pattern == "$*":
        return None
    if isinstance(pattern, str) and _NAME.match(pattern):
        pattern = bound.setdefault(pattern[1:], value)
    elif _special(pattern) == "$near":
        low, high = pattern["$near"]
        near = _kind(value) == "number" and low <= value <= high
        return None if near else f"{path}: {value!r} is not within {low} and {high}"
    elif _special(pattern) == "$like":
        if _kind(pattern["$like"]) == _kind(value):
            return None
        return f"{path}: {value!r} is not like {pattern['$like']!r}"
    if _kind(pattern) != _kind(value):
        return f"{path}: {value!r} instead of {pattern!r}"
    if isinstance(pattern, dict):
        return _difference_of_members(pattern, value, bound, path)
    if isinstance(pattern, list):
        if len(pattern) != len(value):
            return f"{path}: {len(value)} items instead of {len(pattern)}"
        pairs = enumerate(zip(pattern, value, strict=True))
        found = (_difference(part, item, bound, f"{path}[{at}]") for at, (part, item) in pairs)
        return next((one for one in found if one), None)
    return None if pattern == value else f"{path}: {value!r} instead of {pattern!r}"


def _difference_of_members(pattern, value, bound, path):
    for name, part in pattern.items():
        if part == "$-":
            if name in value:
                return f"{path}.{name}: there is one"
        elif name not in value:
            return f"{path}.{name}: missing"
        elif found := _difference(part, value[name], bound, f"{path}.{name}"):
            return found
    return None


def fill(pattern, bound, examples=None):
    """The message to send for a step: known names become their values; new ones get one, which `bound` learns.

    `examples` are values for new names: a flow has some where any text would not do.
    """
    if isinstance(pattern, list):
        return [fill(item, bound, examples) for item in pattern]
    if isinstance(pattern, str) and _NAME.match(pattern):
        name = pattern[1:]
        return bound.setdefault(name, (examples or {}).get(name, f"{name}-1"))
    if not isinstance(pattern, dict):
        return "anything" if pattern == "$*" else pattern
    special = _special(pattern)
    if special in ("$near", "$like"):
        return pattern["$like"] if special == "$like" else pattern["$near"][0]
    return {name: fill(part, bound, examples) for name, part in pattern.items() if part != "$-"}


class Script:
    """One side of a flow, played against the other side: what it does next, and whether what it sees is what the flow has there.

    An optional step of the other side that was passed can still come: with `may` once, with `many` any number of times.
    """

    KINDS = ("message", "frame", "text", "hex", "close", "http", "join", "leave", "wait_ms")

    def __init__(self, flow, side):
        self.flow, self.side, self.bound = flow, side, {}
        self._at = 0
        self._passed = []

    def _theirs(self, step):
        return "wait_ms" not in step and (step.get("from") or step.get("join") or step["leave"]) != self.side

    @staticmethod
    def _optional(step):
        return step.get("may") or step.get("many")

    def next(self):
        """The next step of this side as (kind, value, step), its names filled in; None while the other side is to act.

        An optional step is played once. `wait_ms`: neither side does anything for so long.
        """
        for at in range(self._at, len(self.flow["steps"])):
            step = self.flow["steps"][at]
            if not self._theirs(step):
                self._pass(at)
                self._at = at + 1
                kind = next(kind for kind in self.KINDS if kind in step)
                if kind in ("text", "hex"):
                    return kind, frame(step), step
                return kind, fill(step[kind], self.bound, self.flow.get("examples")), step
            if not self._optional(step):
                break
        return None

    def saw(self, kind, value, part=None):
        """What the other side did: None if it is a step that is due, else what is wrong, in words.

        `kind` is one of a step's: `message`; `frame`, with what `decode_omni` made of it; `close`, with its code...
        `part` is the step's `as`, where it has one.
        """
        wrong = "nothing was due"
        for at in range(self._at, len(self.flow["steps"])):
            step = self.flow["steps"][at]
            if not self._theirs(step):
                if "wait_ms" in step or self._optional(step):
                    continue
                break
            found = self._compare(step, kind, value, part)
            if found is None:
                self._pass(at)
                self._at = at if step.get("many") else at + 1
                return None
            wrong = found
            if not self._optional(step):
                break
        for step in self._passed:
            if self._compare(step, kind, value, part) is None:
                if not step.get("many"):
                    self._passed.remove(step)
                return None
        return f"{self.flow['id']}: {wrong}"

    def _pass(self, at):
        passed = self.flow["steps"][self._at : at]
        self._passed += [step for step in passed if self._theirs(step) and self._optional(step)]

    def _compare(self, step, kind, value, part):
        if kind not in step or step.get("as") != part:
            return f"{kind} {str(value)[:_SHOWN]} instead of {str(step)[:_SHOWN]}"
        if kind in ("text", "hex"):
            return None if value == frame(step) else "another frame"
        return difference(step[kind], value, self.bound)

    @property
    def done(self):
        """Whether nothing is left that must come or be done."""
        return all(self._theirs(step) and self._optional(step) for step in self.flow["steps"][self._at :])


if __name__ == "__main__":
    print("\n".join(errors(sys.argv[1], sys.argv[2], Path(sys.argv[3]).read_text("utf-8"))))
