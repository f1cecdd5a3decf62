# Whether a text is JSON at all. MicroPython's parser takes much that is not ([1,] {"a" 1} 01), lets broken UTF-8 and raw
# control bytes through and runs out of memory on deep nesting (§11), so it only sees what has passed here.
from micropython import const

_MAX_DEPTH = const(32)
# What may come next.
_VALUE = const(0)
_VALUE_OR_END = const(1)
_KEY = const(2)
_KEY_OR_END = const(3)
_COLON = const(4)
_AFTER = const(5)


def weigh(buf, n):  # noqa: PLR0912  (one branch for each thing that may come next)
    # Whether buf[0:n] is one JSON text (RFC 8259) in UTF-8, at most 32 levels deep: 0, or what its values weigh on the heap:
    # each text, array or object 2, anything else 1.
    i = depth = objects = weight = 0  # `objects`: a bit for each level, 1 for an object, the innermost lowest
    want = _VALUE
    while 0 <= i < n:
        c = buf[i]
        i += 1
        bracket = c | 0x20  # { for [, } for ]
        if c == 0x20 or (c < 0x20 and 0x2600 >> c & 1):  # blank, or tab, LF, CR
            continue
        if bracket == 0x7D:
            if want == _AFTER:
                fits = depth and (c == 0x7D) == objects & 1
            else:
                fits = want == (_KEY_OR_END if c == 0x7D else _VALUE_OR_END)
            if not fits:
                return 0
            depth -= 1
            objects >>= 1
            want = _AFTER
        elif want == _AFTER:
            if c != 0x2C or not depth:  # ,
                return 0
            want = _KEY if objects & 1 else _VALUE
        elif want == _COLON:
            if c != 0x3A:
                return 0
            want = _VALUE
        elif c == 0x22:
            i = string_end(buf, i, n)
            weight += 2
            want = _COLON if want >= _KEY else _AFTER
        elif want >= _KEY:
            return 0
        elif bracket == 0x7B:
            if depth == _MAX_DEPTH:
                return 0
            depth += 1
            weight += 2
            objects = objects << 1 | (c == 0x7B)
            want = _KEY_OR_END if c == 0x7B else _VALUE_OR_END
        else:
            i = _scalar_end(buf, i - 1, n)
            weight += 1
            want = _AFTER
    return weight if i == n and want == _AFTER and depth == 0 else 0


def string_end(buf, i, n):
    # Behind the closing quote of the string whose text begins at i; -1 when it has none or is broken.
    digits = more = low = high = (
        0  # must follow: hex digits of \u, continuation bytes, the next one from low to high
    )
    while i < n:
        c = buf[i]
        i += 1
        if digits:
            digits -= 1
            if not (0x30 <= c <= 0x39 or 0x61 <= c | 0x20 <= 0x66):
                break
        elif more:
            more -= 1
            if not low <= c <= high:
                break
            low = 0x80
            high = 0xBF
        elif c == 0x22:
            return i
        elif c == 0x5C:
            c = buf[i] if i < n else 0
            i += 1
            if c == 0x75:  # u
                digits = 4
            elif c not in b'"\\/bfnrt':
                break
        elif c < 0x20 or 0x80 <= c < 0xC2 or c > 0xF4:
            break
        elif c >= 0x80:  # RFC 3629: no overlong form, no surrogate, nothing above 10FFFF
            more = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
            low = 0xA0 if c == 0xE0 else 0x90 if c == 0xF0 else 0x80
            high = 0x9F if c == 0xED else 0x8F if c == 0xF4 else 0xBF
    return -1


def _scalar_end(buf, i, n):
    # Behind the number, `true`, `false` or `null` at i; -1 when there is none.
    end = i
    while end < n and 0x20 < buf[end] < 0x7F and buf[end] != 0x2C and buf[end] | 0x20 != 0x7D:
        end += 1
    text = bytes(buf[i:end]).decode()
    number, e, power = text.lower().partition("e")
    whole, dot, fraction = number.partition(".")
    if whole[:1] == "-":
        whole = whole[1:]
    if power[:1] in ("+", "-"):
        power = power[1:]
    if whole.isdigit() and (whole == "0" or whole[:1] != "0"):
        fits = (fraction.isdigit() or not dot) and (power.isdigit() or not e)
    else:
        fits = text in ("true", "false", "null")
    return end if fits else -1
