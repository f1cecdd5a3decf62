# A message that is valid and too heavy for the heap, such as one of a thousand empty arrays (§11): what is left of it is parsed.
# Nearly never needed, and forgotten by wire.decode.
from micropython import const

from vrt.protocol.grammar import string_end, weigh
from vrt.protocol.tables import SERVER

_LONG = const(24)  # bytes that no name or type in the tables has


def trim(buf, n, most):
    # Rewrites the JSON text buf[0:n] and returns its new length. Of an object stay the members that its type has in the
    # tables, where unknown ones are ignored anyway (§2.2); of these, null stands for each that weighs more than what is
    # left of `most`, and lists that may be absent are. Anything else is no message, and becomes 0.
    i = _skip(buf, 0)
    if buf[i] != 0x7B:
        buf[0] = 0x30
        return 1
    row = b"+v +seq +type +limits "
    for name, at, end in _members(buf, i):
        if name == b"type" and end - at < _LONG:
            known = SERVER.encode()
            start = known.find(b"\n" + bytes(buf[at + 1 : end - 1]) + b" ") + 1
            if start:
                row += known[start : known.find(b"\n", start)] + b" "
    out = i + 1
    more = False
    for name, at, end in _members(buf, i):
        weight = weigh(memoryview(buf)[at:end], end - at)
        if not _has(row, name) or (name in (b"capabilities", b"limits") and weight > most):
            continue
        head = (b',"' if more else b'"') + name + b'":'
        more = True
        if weight <= max(most, 1):
            most -= weight
        else:
            head += b"null" if end - at > 3 else b"0"  # never longer than it was
            weight = 0
        buf[out : out + len(head)] = head
        out += len(head)
        for k in range(at, end if weight else at):  # byte by byte: a copy may find no room
            buf[out] = buf[k]
            out += 1
    buf[out] = 0x7D
    return out + 1


def _has(row, name):
    # Whether a line of the tables has a field of that name.
    return any(sign + name + stop in row for sign in (b"+", b"-", b"?") for stop in (b" ", b"="))


def _members(buf, i):
    # Of the object that begins at i: each member's name as it is written, and where its value begins and ends. What is before
    # the member in hand may be written over.
    i = _skip(buf, i + 1)
    while buf[i] != 0x7D:
        if buf[i] == 0x2C:
            i = _skip(buf, i + 1)
        at = string_end(buf, i + 1, len(buf))
        name = bytes(buf[i + 1 : at - 1]) if at - i < _LONG else b""
        at = i = _skip(buf, _skip(buf, at) + 1)
        depth = 0
        while True:
            c = buf[i]
            if c == 0x22:
                i = string_end(buf, i + 1, len(buf))
            elif c | 0x20 == 0x7B:
                depth += 1
                i += 1
            elif c | 0x20 == 0x7D and depth:
                depth -= 1
                i += 1
            elif depth:
                i += 1
            else:
                while buf[i] > 0x20 and buf[i] != 0x2C and buf[i] != 0x7D:
                    i += 1
            if not depth:
                break
        yield name, at, i
        i = _skip(buf, i)


def _skip(buf, i):
    # Behind blanks.
    while buf[i] <= 0x20:
        i += 1
    return i
