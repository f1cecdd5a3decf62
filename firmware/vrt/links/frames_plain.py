# The plain twin of frames.py: the same three functions, the same state, the same results, for a runtime
# without the viper emitter. Slower by an order of magnitude and, on 32 bits, still free of big integers.
# ruff: noqa: C901, PLR0912 (it follows its twin)
from micropython import const

_POS = const(0)
_END = const(1)
_HAVE = const(2)
_NEED = const(3)
_BODY = const(4)
_LEFT = const(5)
_BYTE0 = const(6)
_KIND = const(7)
_N = const(8)
_LIMIT = const(9)
_SKIP = const(10)
_UTF8 = const(11)
_CTL = const(12)
_WANT = const(13)
_LAST = const(14)
_KEY_HIGH = const(15)
_KEY_LOW = const(16)
_DONE = const(17)
_PIECE = const(18)

# Second bytes that RFC 3629 narrows, as low | high << 8, by first byte.
_NARROW = {0xE0: 0xBFA0, 0xED: 0x9F80, 0xF0: 0xBF90, 0xF4: 0x8F80}


def utf8(buf, start, end, state):
    for pos in range(start, end):
        byte = buf[pos]
        if state:
            if not (state >> 8) & 255 <= byte <= state >> 16:
                return -1
            needed = (state & 7) - 1
            state = needed | 0xBF8000 if needed else 0
        elif byte >= 0x80:
            if not 0xC2 <= byte <= 0xF4:
                return -1
            needed = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
            state = needed | _NARROW.get(byte, 0xBF80) << 8
    return state


def _first_byte(st, byte):
    # Returns 0, or minus the close code for a first byte that cannot come here.
    opcode = byte & 15
    if byte & 0x70 or 2 < opcode < 8 or opcode > 10:
        return -1002
    if opcode & 8:
        if byte < 0x80:
            return -1002
    elif (opcode == 0) == (st[_KIND] == 0):
        return -1002
    st[_BYTE0] = byte
    st[_NEED] = 2
    st[_LEFT] = 0
    return 0


def _length_byte(st, byte):
    # Returns 0, or minus the close code.
    control = st[_BYTE0] & 8
    if st[_HAVE] == 2:
        if byte & 0x80 or (control and byte > 125):
            return -1002
        st[_NEED] = 4 if byte == 126 else 10 if byte == 127 else 2
        st[_LEFT] = byte if byte < 126 else 0
    else:
        if st[_HAVE] == 3 and st[_NEED] == 10 and byte & 0x80:
            return -1002
        if st[_LEFT] >= 0x400000:
            return -1009
        st[_LEFT] = st[_LEFT] << 8 | byte
    return 0


def _begin_payload(st):
    # The header is whole. Returns 0, or minus the close code.
    st[_BODY] = 1
    first = st[_BYTE0]
    if first & 8:
        st[_CTL] = 0
    else:
        st[_LAST] = st[_LEFT] + st[_HAVE]
        if first & 15:
            st[_KIND] = first & 15
            st[_N] = st[_SKIP] = st[_UTF8] = 0
        if st[_LEFT] > 0x3FFFFFFF - st[_N]:
            return -1009
        if st[_N] + st[_LEFT] > st[_LIMIT]:
            st[_SKIP] = 1
    st[_HAVE] = 0
    return 0


def _end_frame(st):
    # The payload is whole. Returns 0 (go on), what feed returns, or minus the close code.
    st[_BODY] = 0
    first = st[_BYTE0]
    if first & 8:
        return first & 15
    if first < 0x80:
        return 0
    kind = st[_KIND]
    st[_KIND] = 0
    if st[_UTF8]:
        return -1007
    return 3 if st[_SKIP] else kind


def feed(st, chunk, n, msg, ctl):
    pos = 0 if n else st[_POS]
    end = n or st[_END]
    result = 0
    while result == 0:
        if not st[_BODY]:
            if pos == end:
                break
            st[_HAVE] += 1
            error = (_first_byte if st[_HAVE] == 1 else _length_byte)(st, chunk[pos])
            pos += 1
            if not error and st[_HAVE] >= 2 and st[_HAVE] == st[_NEED]:
                error = _begin_payload(st)
            if error:
                return error
            if not st[_BODY]:
                continue
        take = min(end - pos, st[_LEFT])
        stop = pos + take
        if st[_BYTE0] & 8:
            for at in range(st[_CTL], st[_CTL] + take):
                ctl[at] = chunk[pos]
                pos += 1
            st[_CTL] += take
        else:
            if st[_KIND] == 1:
                check = utf8(chunk, pos, stop, st[_UTF8])
                if check < 0:
                    return -1007
                st[_UTF8] = check
            if not st[_SKIP]:
                for at in range(st[_N], st[_N] + take):
                    msg[at] = chunk[pos]
                    pos += 1
            pos = stop
            st[_N] += take
        st[_LEFT] -= take
        if st[_LEFT]:
            break
        result = _end_frame(st)
        if result < 0:
            return result
    st[_POS] = pos
    st[_END] = end
    st[_WANT] = 0 if pos < end else st[_LEFT] if st[_BODY] else st[_LAST]
    return result


def build(frame, first, payload, n, st):
    high = st[_KEY_HIGH]
    low = st[_KEY_LOW]
    start = st[_DONE]
    at = 4
    if not start:
        high ^= (high << 13 | low >> 3) & 0xFFFF
        low ^= low << 13 & 0xFFFF
        low ^= high >> 1
        high ^= (high << 5 | low >> 11) & 0xFFFF
        low ^= low << 5 & 0xFFFF
        st[_KEY_HIGH] = high
        st[_KEY_LOW] = low
        at = _head(frame, first, n)
    stop = min(start + st[_PIECE], n)
    st[_DONE] = stop if stop < n else 0
    frame[at] = high >> 8
    frame[at + 1] = high & 255
    frame[at + 2] = low >> 8
    frame[at + 3] = low & 255
    for pos in range(start, stop):
        frame[at + 4 + pos - start] = payload[pos] ^ frame[at + (pos & 3)]
    return at + 4 + stop - start


def _head(frame, first, n):
    # The header without the key; returns its length.
    frame[0] = first
    if n < 126:
        frame[1] = 0x80 | n
        return 2
    extra = 2 if n < 0x10000 else 8
    frame[1] = 0xFE if extra == 2 else 0xFF
    rest = n
    for at in range(1 + extra, 1, -1):
        frame[at] = rest & 255
        rest >>= 8
    return 2 + extra
