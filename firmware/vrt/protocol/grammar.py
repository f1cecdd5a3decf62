# Whether a text is JSON at all. MicroPython's parser takes much that is not ([1,] {"a" 1} 01), lets broken UTF-8 and raw
# control bytes through and runs out of memory on deep nesting (§11), so it only sees what has passed here.
from micropython import const

from vrt.protocol.tables import MAX_DEPTH

# What may come next.
_VALUE = const(0)
_VALUE_OR_END = const(1)
_KEY = const(2)
_KEY_OR_END = const(3)
_COLON = const(4)
_AFTER = const(5)


def is_json(buf, n):  # noqa: PLR0912  (one branch for each thing that may come next)
    # Whether buf[0:n] is one JSON text (RFC 8259) in UTF-8, at most MAX_DEPTH deep.
    i = depth = objects = 0  # `objects`: a bit for each level, 1 for an object, the innermost lowest
    want = _VALUE
    while 0 <= i < n:
        c = buf[i]
        i += 1
        if c in b" \n\r\t":
            continue
        if c in b"]}":
            if want == _AFTER:
                fits = depth and c == (0x7D if objects & 1 else 0x5D)
            else:
                fits = want == (_KEY_OR_END if c == 0x7D else _VALUE_OR_END)
            if not fits:
                return False
            depth -= 1
            objects >>= 1
            want = _AFTER
        elif want == _AFTER:
            if c != 0x2C or not depth:  # ,
                return False
            want = _KEY if objects & 1 else _VALUE
        elif want == _COLON:
            if c != 0x3A:
                return False
            want = _VALUE
        elif c == 0x22:
            i = _string_end(buf, i, n)
            want = _COLON if want >= _KEY else _AFTER
        elif want >= _KEY or (depth == MAX_DEPTH and c in b"[{"):
            return False
        elif c in b"[{":
            depth += 1
            objects = objects << 1 | (c == 0x7B)
            want = _KEY_OR_END if c == 0x7B else _VALUE_OR_END
        else:
            i = _scalar_end(buf, i - 1, n)
            want = _AFTER
    return i == n and want == _AFTER and depth == 0


def _string_end(buf, i, n):
    # Behind the closing quote of the string whose text begins at i; -1 when it has none or is broken.
    escaped = False
    digits = more = low = high = (
        0  # what must follow: hex digits of \u, continuation bytes, the next one from low to high
    )
    while i < n:
        c = buf[i]
        i += 1
        if digits:
            digits -= 1
            if c not in b"0123456789abcdefABCDEF":
                break
        elif more:
            more -= 1
            if not low <= c <= high:
                break
            low = 0x80
            high = 0xBF
        elif escaped:
            escaped = False
            if c == 0x75:  # u
                digits = 4
            elif c not in b'"\\/bfnrt':
                break
        elif c == 0x22:
            return i
        elif c == 0x5C:
            escaped = True
        elif c < 0x20 or 0x80 <= c < 0xC2 or c > 0xF4:
            break
        elif c >= 0x80:  # RFC 3629: no overlong form, no surrogate, nothing above 10FFFF
            more = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
            low = 0xA0 if c == 0xE0 else 0x90 if c == 0xF0 else 0x80
            high = 0x9F if c == 0xED else 0x8F if c == 0xF4 else 0xBF
    return -1


def _scalar_end(buf, i, n):
    # Behind the number, `true`, `false` or `null` at i; -1 when there is none.
    for word in (b"true", b"false", b"null"):
        if buf[i] == word[0]:
            end = i + len(word)
            return end if end <= n and buf[i:end] == word else -1
    if buf[i] == 0x2D:
        i += 1
    if i < n and buf[i] == 0x30:
        i += 1
    else:
        i = _digits_end(buf, i, n)
    if 0 < i < n and buf[i] == 0x2E:
        i = _digits_end(buf, i + 1, n)
    if 0 < i < n and buf[i] in b"eE":
        i += 1
        if i < n and buf[i] in b"+-":
            i += 1
        i = _digits_end(buf, i, n)
    return i


def _digits_end(buf, i, n):
    start = i
    while i < n and 0x30 <= buf[i] <= 0x39:
        i += 1
    return i if i > start else -1


def join_surrogates(buf, n):
    # Writes escaped surrogates (\ud83d\ude00) in the JSON of buf[0:n] as the character they mean, a lone one as U+FFFD;
    # returns the new length. MicroPython would make broken characters of them, which no peer takes in a result.
    i = buf.find(b"\\", 0, n) if buf.find(b"\\u", 0, n) >= 0 else -1
    while i >= 0:
        unit = _unit(buf, i)
        end = i + (2 if unit < 0 else 6)
        if 0xD800 <= unit < 0xE000:
            low = _unit(buf, end) if unit < 0xDC00 else -1
            char = 0xFFFD
            if 0xDC00 <= low < 0xE000:
                char = 0x10000 + ((unit - 0xD800) << 10) + low - 0xDC00
                end += 6
            char = chr(char).encode()
            start = i
            i += len(char)
            buf[start:i] = char
            buf[i : i + n - end] = buf[end:n]
            n -= end - i
        else:
            i = end
        i = buf.find(b"\\", i, n)
    return n


def _unit(buf, i):
    # The number in the \uXXXX at i, -1 when something else is there.
    return int(bytes(buf[i + 2 : i + 6]), 16) if buf[i : i + 2] == b"\\u" else -1
