# One control message to bytes and back (vRT §2.2, §9.1). Never on the audio path: it may allocate.
import io
import json
import sys

from vrt.errors import ProtocolError
from vrt.protocol.grammar import is_json, join_surrogates
from vrt.protocol.tables import PHASES, SERVER

# MicroPython's parser reads a view of the receive buffer, CPython's wants bytes.
_text = memoryview if sys.implementation.name == "micropython" else bytes


class WireError(ProtocolError):
    # A message of the peer's that is invalid: `code` as §9.1 classifies it, `seq` its place in the stream, 0 if it has none.
    def __init__(self, code, text, seq=0):
        super().__init__(text)
        self.code = code
        self.seq = seq


def decode(buf, n):
    # The control message in buf[0:n] as a dict whose u32 members are ints. Raises WireError. May rewrite the buffer.
    if not is_json(buf, n):
        raise WireError("MALFORMED", "not JSON")
    n = join_surrogates(buf, n)
    try:
        message = json.loads(_text(memoryview(buf)[:n]))  # type: ignore[arg-type]  (the stubs know no views)
    except ValueError as error:  # such as a number the runtime cannot hold
        raise WireError("MALFORMED", str(error)) from None
    if not isinstance(message, dict):
        raise WireError("MALFORMED", "not an object")
    version = message.get("v")
    if isinstance(version, bool) or not isinstance(version, (int, float)) or version != 1:
        raise WireError("UNSUPPORTED_VERSION", "v is not 1")
    seq = message.get("seq", -1)
    known = _is_u32(seq)
    place = int(seq) if known else 0
    kind = message.get("type", "")
    entry = SERVER.get(kind) if isinstance(kind, str) else None
    if entry is None:
        raise WireError("UNKNOWN_TYPE", "unknown type", place)
    seq_class = entry[0]
    if seq_class == "0":
        place = 0  # transient: whatever its seq says, it has no place in the stream
    # §4.1: a transient message has seq 0, a sequenced one another; a sessionless one may have both
    if not known or (seq_class == "0" and seq) or (seq_class == "1" and not seq):
        raise WireError("INVALID_FIELD", kind + ": seq", place)
    message["seq"] = int(seq)
    bad = _bad_field(message, entry)
    if not bad and kind == "tool.stream":
        bad = _bad_field(message, PHASES[message["phase"]])
    if bad:
        raise WireError("INVALID_FIELD", kind + ": " + bad, place)
    return message


def _bad_field(message, row):
    # The first member that breaks its row of the tables, or None.
    for field in row.split(" ")[1:]:
        name, _, allowed = field[2:].partition("=")
        need = field[1]
        if name not in message:
            if need == "+" or (need == "?" and not message.get("ok")):
                return name
        elif not _fits(field[0], message[name], allowed):
            return name
        elif field[0] == "3":
            message[name] = int(message[name])
    return None


def _fits(kind, value, allowed):  # noqa: PLR0911  (an answer for each kind)
    # Whether a member is of its kind, as tables.py numbers them.
    if kind == "3":
        return _is_u32(value)
    if kind == "4":
        return isinstance(value, bool)
    if kind == "6":
        if not isinstance(value, dict) or value.get("encoding") not in allowed.split("|"):
            return False
        rate = value.get("sampleRate", 1)
        return _is_whole(rate) and rate > 0
    if kind == "7":
        for token in value if isinstance(value, list) else (None,):
            if not isinstance(token, str) or len(token) > 64 or not _is_words(token, "az", ".-"):
                return False
        return True
    if not isinstance(value, str):
        return kind == "0"
    if kind == "2":
        return 0 < len(value) <= 256
    if kind == "5":
        return value in allowed.split("|")
    return kind != "8" or _is_words(value, "AZ", "_")


def _is_whole(value):
    # 1.0 counts, true does not.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value % 1 == 0


def _is_u32(value):
    return _is_whole(value) and 0 <= value <= 0xFFFFFFFF


def _is_words(value, letters, joints):
    # Runs of letters, from one to another, and digits, joined by single joints.
    fresh = True
    for char in value:
        if char not in joints:
            if not (letters[0] <= char <= letters[1] or "0" <= char <= "9"):
                return False
            fresh = False
        elif fresh:
            return False
        else:
            fresh = True
    return not fresh


class _Writer(io.IOBase):
    # What json.dump writes into: a buffer of fixed size. MicroPython hands over bytes, CPython text.
    def __init__(self, buf):
        self.buf = buf
        self.n = 0

    def write(self, data):
        if isinstance(data, str):
            data = data.encode()
        end = self.n + len(data)
        if end > len(self.buf):
            raise ProtocolError(f"message too large: more than {len(self.buf)} bytes")
        self.buf[self.n : end] = data
        self.n = end
        return len(data)


def encode(message, buf):
    # Writes the message into buf, which keeps its size, and returns its length in bytes.
    # Raises ProtocolError when it does not fit or holds what JSON has no word for, such as nan or an object.
    writer = _Writer(buf)
    try:
        json.dump(message, writer, separators=(",", ":"))  # type: ignore[call-overload]  (nor this stream)
    except (TypeError, ValueError, RuntimeError) as error:  # CPython; RuntimeError: nested without end
        raise ProtocolError("not JSON: " + str(error)) from None
    if not is_json(buf, writer.n):
        raise ProtocolError("not JSON")
    return writer.n
