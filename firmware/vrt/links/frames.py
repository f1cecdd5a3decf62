# The kernels of the WebSocket client: taking frames apart (RFC 6455 section 5), masking, checking UTF-8 (RFC
# 3629). viper: compiled to machine code, so the .mpy depends on the chip (little-endian, all of them).
# frames_plain.py holds the same three functions for a runtime without the emitter; websocket.py chooses.
# Nothing here allocates, and nothing checks the bounds of a buffer: the caller does.
#
# All state is one array('i') of non-negative numbers, laid out alike in these three modules.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915, PLR1730 (viper: a call, such as min(), costs more than all its branches)
import micropython
from micropython import const

_POS = const(0)  # next unread byte of the chunk
_END = const(1)  # bytes in the chunk
_HAVE = const(2)  # bytes of the header seen, 0 between frames
_NEED = const(3)  # bytes the header has, as far as is known
_BODY = const(4)  # 1 while inside a payload
_LEFT = const(5)  # bytes of the payload still to come
_BYTE0 = const(6)  # first byte of the frame: FIN and opcode
_KIND = const(7)  # opcode of the message being assembled, 0 between messages
_N = const(8)  # bytes of the message so far
_LIMIT = const(9)  # size of the message buffer
_SKIP = const(10)  # 1 while a message that does not fit is thrown away
_UTF8 = const(11)  # state of the UTF-8 check, 0 at a character's end
_CTL = const(12)  # bytes of the control payload so far
_WANT = const(13)  # how many bytes to read next, 0 while the chunk has more
_LAST = const(14)  # whole length of the latest data frame
# The mask generator, in two 16-bit halves: whole 32-bit words are no small integers on the boards.
_KEY_HIGH = const(15)
_KEY_LOW = const(16)
_DONE = const(17)  # bytes of a payload that are masked while it goes out in pieces, 0 when all are
_PIECE = const(18)  # how many go out at once, a multiple of 4


@micropython.viper
def utf8(buf, start: int, end: int, state: int) -> int:
    # Checks buf[start:end] as the continuation of `state` (0 at the beginning); returns the new state, 0 at a
    # character's end, or -1. A state holds how many bytes are missing and the range of the next:
    # needed | low << 8 | high << 16.
    src = ptr8(buf)
    needed = state & 7
    low = (state >> 8) & 255
    high = state >> 16
    while start < end:
        byte = int(src[start])
        start += 1
        if needed:
            if byte < low or byte > high:
                return -1
            needed -= 1
            low = 0x80
            high = 0xBF
        elif byte >= 0x80:
            if byte < 0xC2 or byte > 0xF4:
                return -1
            low = 0x80
            high = 0xBF
            if byte < 0xE0:
                needed = 1
            elif byte < 0xF0:
                needed = 2
                if byte == 0xE0:
                    low = 0xA0  # no overlong form
                elif byte == 0xED:
                    high = 0x9F  # no surrogates
            else:
                needed = 3
                if byte == 0xF0:
                    low = 0x90
                elif byte == 0xF4:
                    high = 0x8F  # nothing above U+10FFFF
    if needed:
        return needed | (low << 8) | (high << 16)
    return 0


@micropython.viper
def feed(state, chunk, n: int, msg, ctl) -> int:
    # Eats chunk[0:n], or with n 0 goes on with it, up to the end of a message or control frame. Returns 0
    # when all is eaten, 1 or 2 with a text or binary message in msg[0:N], 3 after one that did not fit, 8, 9
    # or 10 with a control payload in ctl[0:CTL], or minus a close code.
    st = ptr32(state)
    src = ptr8(chunk)
    dst = ptr8(msg)
    pos = 0
    end = n
    if n == 0:
        pos = int(st[_POS])
        end = int(st[_END])
    result = 0
    while result == 0:
        first = int(st[_BYTE0])
        left = int(st[_LEFT])
        if int(st[_BODY]) == 0:
            if pos == end:
                break
            byte = int(src[pos])
            pos += 1
            have = int(st[_HAVE]) + 1
            st[_HAVE] = have
            if have == 1:
                opcode = byte & 15
                # 5.2: no extension gave a meaning to the reserved bits and opcodes
                if byte & 0x70 or opcode > 10 or (opcode > 2 and opcode < 8):
                    return -1002
                if opcode & 8:
                    if byte < 0x80:  # 5.5: a control frame is whole
                        return -1002
                elif opcode:
                    if int(st[_KIND]):  # 5.4: messages do not interleave
                        return -1002
                elif int(st[_KIND]) == 0:  # 5.4: there is nothing to continue
                    return -1002
                st[_BYTE0] = byte
                st[_NEED] = 2
                st[_LEFT] = 0
                continue
            if have == 2:
                if byte & 0x80:  # 5.1: a server does not mask
                    return -1002
                if byte > 125 and first & 8:  # 5.5: control is short
                    return -1002
                if byte == 126:
                    st[_NEED] = 4
                elif byte == 127:
                    st[_NEED] = 10
                else:
                    st[_LEFT] = byte
            else:
                # A length in a longer form than it needs is taken: it is the sender's fault and harms nobody.
                if have == 3 and byte & 0x80 and int(st[_NEED]) == 10:
                    return -1002
                if left >= 0x400000:  # 2**30 and more
                    return -1009
                st[_LEFT] = (left << 8) | byte
            if have < int(st[_NEED]):
                continue
            st[_HAVE] = 0
            st[_BODY] = 1
            left = int(st[_LEFT])
            if first & 8:
                st[_CTL] = 0
            else:
                st[_LAST] = left + have
                if first & 15:
                    st[_KIND] = first & 15
                    st[_N] = 0
                    st[_SKIP] = 0
                    st[_UTF8] = 0
                total = int(st[_N]) + left
                if total > 0x3FFFFFFF:
                    return -1009
                if total > int(st[_LIMIT]):
                    st[_SKIP] = 1
        take = end - pos
        if take > left:
            take = left
        stop = pos + take
        if first & 8:
            ctl_dst = ptr8(ctl)
            at = int(st[_CTL])
            st[_CTL] = at + take
            while pos < stop:
                ctl_dst[at] = src[pos]
                at += 1
                pos += 1
        else:
            at = int(st[_N])
            st[_N] = at + take
            if int(st[_KIND]) == 1 and take:
                check = int(utf8(chunk, pos, stop, int(st[_UTF8])))
                if check < 0:
                    return -1007
                st[_UTF8] = check
            if int(st[_SKIP]):
                pos = stop
            if not (int(src) | int(dst) | pos | at) & 3:  # so it is for an audio frame: copy whole words
                src4 = ptr32(chunk)
                dst4 = ptr32(msg)
                while pos < stop - 3:
                    dst4[at >> 2] = src4[pos >> 2]
                    at += 4
                    pos += 4
            while pos < stop:
                dst[at] = src[pos]
                at += 1
                pos += 1
        left -= take
        st[_LEFT] = left
        if left:
            break
        st[_BODY] = 0
        if first & 8:
            result = first & 15
        elif first & 0x80:
            result = int(st[_KIND])
            st[_KIND] = 0
            if int(st[_UTF8]):  # 8.1: the text ends inside a character
                return -1007
            if int(st[_SKIP]):
                result = 3
    st[_POS] = pos
    st[_END] = end
    # A frame is read in one call: the rest of this one, or as much as the latest had (a read for more than
    # there is costs the socket a second, empty one).
    if pos < end:
        st[_WANT] = 0
    elif int(st[_BODY]):
        st[_WANT] = left
    else:
        st[_WANT] = st[_LAST]
    return result


@micropython.viper
def build(frame, first: int, payload, n: int, state) -> int:
    # Writes a masked frame of payload[0:n]; `first` is its first byte. Of a long payload only the first piece, and
    # at each further call (DONE is not 0) the next, which is frame[8:]. Returns where it ends, at most at PIECE + 14.
    st = ptr32(state)
    dst = ptr8(frame)
    src = ptr8(payload)
    high = int(st[_KEY_HIGH])
    low = int(st[_KEY_LOW])
    pos = int(st[_DONE])
    stop = pos + int(st[_PIECE])
    at = 4
    if pos == 0:
        # xorshift32, 13 17 5
        high ^= ((high << 13) | (low >> 3)) & 0xFFFF
        low ^= (low << 13) & 0xFFFF
        low ^= high >> 1
        high ^= ((high << 5) | (low >> 11)) & 0xFFFF
        low ^= (low << 5) & 0xFFFF
        st[_KEY_HIGH] = high
        st[_KEY_LOW] = low
        dst[0] = first
        if n < 126:
            dst[1] = 0x80 | n
            at = 2
        elif n < 0x10000:
            dst[1] = 0xFE
            dst[2] = n >> 8
            dst[3] = n
        else:
            dst[1] = 0xFF
            at = 2
            while at < 6:
                dst[at] = 0
                at += 1
            dst[6] = n >> 24
            dst[7] = n >> 16
            dst[8] = n >> 8
            dst[9] = n
            at = 10
    if stop < n:
        st[_DONE] = stop
    else:
        stop = n
        st[_DONE] = 0
    key = at
    dst[key] = high >> 8
    dst[key + 1] = high
    dst[key + 2] = low >> 8
    dst[key + 3] = low
    at += 4
    if not (int(src) | int(dst) | at) & 3:  # so it is for an audio frame: mask whole words
        src4 = ptr32(payload)
        dst4 = ptr32(frame)
        word = int(dst4[key >> 2])
        while pos < stop - 3:
            dst4[at >> 2] = src4[pos >> 2] ^ word
            at += 4
            pos += 4
    while pos < stop:
        dst[at] = src[pos] ^ dst[key + (pos & 3)]
        at += 1
        pos += 1
    return at
