# One control message to bytes and back (vRT §2.2, §9.1). Never on the audio path: it may allocate. Texts are taken apart
# as bytes: MicroPython keeps every text of one character that it makes from another, as a name, for ever.
import json
import sys

from micropython import const

from vrt import once
from vrt.errors import ProtocolError
from vrt.protocol.grammar import weigh
from vrt.protocol.tables import SERVER

_WEIGHT = const(128)  # of a message that is parsed as it is (§11), where the buffer is not a large one
# MicroPython's parser reads a view of the receive buffer, CPython's wants bytes.
_text = memoryview if sys.implementation.name == "micropython" else bytes


class WireError(ProtocolError):
    # A message of the peer's that is invalid: `code` as §9.1 classifies it, `seq` its place in the stream, 0 if it has none.
    def __init__(self, code, text, seq):
        super().__init__(text)
        self.code = code
        self.seq = seq


def decode(buf, n):
    # The control message in buf[0:n] as a dict whose u32 members are ints. Raises WireError. May rewrite the buffer.
    weight = weigh(buf, n)
    if not weight:
        raise WireError("MALFORMED", "not JSON", 0)
    most = max(_WEIGHT, len(buf) >> 4)
    if weight > most:
        n = once("vrt.protocol.trim").trim(buf, n, most)
    if buf.find(b"\\ud", 0, n) >= 0 or buf.find(b"\\uD", 0, n) >= 0:
        n = once("vrt.protocol.surrogates").join(buf, n)
    try:
        message = json.loads(_text(memoryview(buf)[:n]))  # type: ignore[arg-type]  (the stubs know no views)
    except ValueError as error:  # such as a number the runtime cannot hold
        raise WireError("MALFORMED", str(error), 0) from None
    if type(message) is not dict:
        raise WireError("MALFORMED", "no object", 0)
    if not _is_u32(message.get("v")) or message["v"] != 1:
        raise WireError("UNSUPPORTED_VERSION", "v", 0)
    seq = message.get("seq")
    known = _is_u32(seq)
    place = int(seq) if known else 0  # type: ignore
    kind = message.get("type")
    start = SERVER.find(f"\n{kind} ")
    row = SERVER[start + 1 : SERVER.find("\n", start + 1)].split(" ")
    if start < 0 or row[0] != kind:  # a type that holds blanks may be found, and is none
        raise WireError("UNKNOWN_TYPE", "type", place)
    seq_class = row[1]
    if seq_class == "0":
        place = 0  # transient: whatever its seq says, it has no place in the stream
    # §4.1: a transient message has seq 0, a sequenced one another; a sessionless one may have both
    bad = "seq"
    if known and (seq_class == "2" or (seq > 0) == (seq_class == "1")):  # type: ignore
        message["seq"] = int(seq)  # type: ignore
        bad = _bad_field(message, row)
    if bad:
        raise WireError("INVALID_FIELD", f"{kind}: {bad}", place)
    return message


def _bad_field(message, row):
    # The first member that breaks its row of the tables, or None.
    wanted = True
    for field in row[2:]:
        name, _, allowed = field[2:].partition("=")
        kind, need = field[:2].encode()
        kind -= 48
        if kind == -1:  # "/": what follows belongs to one phase; `phase` itself was checked before
            wanted = message["phase"] == field[1:]
        elif not wanted:
            continue
        elif name not in message:
            if need == 43 or (need == 63 and not message["ok"]):  # "+" and "?"
                return name
        elif not _fits(kind, message[name], allowed):
            return name
        elif kind == 3:
            message[name] = int(message[name])
    return None


def _fits(kind, value, allowed):  # noqa: C901, PLR0911, PLR0912  (an answer for each kind)
    # Whether a member is of its kind, as tables.py numbers them.
    if kind == 3:
        return _is_u32(value)
    if kind == 4:
        return type(value) is bool
    if kind == 6:
        if type(value) is not dict or not _fits(5, value.get("encoding"), allowed):
            return False
        value = value.get("sampleRate", 1)
        return type(value) in (int, float) and value > 0 and value % 1 == 0
    if kind == 8:
        for token in value if type(value) is list else (None,):
            if not _fits(7, token, allowed) or len(token) > 64:  # type: ignore
                return False
        return True
    if type(value) is not str:
        return kind == 0
    if kind == 2:
        return 0 < len(value) <= 256
    if kind == 5:
        return value in allowed.split("|")
    if kind != 7:
        return True
    first, last, *joints = allowed.encode()
    between = True  # or at the start: a joint may not come next
    for char in value.encode():
        if char in joints:
            if between:
                return False
            between = True
        elif first <= char <= last or 48 <= char <= 57:
            between = False
        else:
            return False
    return not between


def _is_u32(value):
    # 1.0 counts, true does not.
    return type(value) in (int, float) and 0 <= value <= 0xFFFFFFFF and value % 1 == 0


def encode(message, limit):
    # The message as bytes. Raises ProtocolError when they are more than `limit`, or when it holds what JSON has no word for,
    # such as nan or an object.
    try:
        data = json.dumps(message, separators=(",", ":")).encode()
    except (TypeError, ValueError, RuntimeError) as error:  # CPython; RuntimeError: nested without end
        raise ProtocolError(f"not JSON: {error}") from None
    n = len(data)
    if n > limit:
        raise ProtocolError(f"message too large: {n} bytes of {limit}")
    if not weigh(data, n):
        raise ProtocolError("not JSON")
    return data
