# The kernels of the serial link: taking frames apart and making them (docs/serial.md), with their CRC-32. viper: compiled to
# machine code, so the .mpy depends on the chip. stuffing_plain.py holds the same two functions for a runtime without the
# emitter; framing.py chooses. Nothing here allocates, and nothing checks the bounds of a buffer: the caller does.
#
# All state is one array('i') of non-negative numbers, laid out alike in these three modules.
# ruff: noqa: C901, PLR0912, PLR0915, PLR1714 (viper: a call, such as `in`, costs more than all its branches)
from array import array

import micropython
from micropython import const

_POS = const(0)  # next unread byte of the chunk
_END = const(1)  # bytes in the chunk
_HAVE = const(2)  # bytes of the frame so far, unescaped
_ESC = const(3)  # 1 behind an escape
_BAD = const(4)  # 1 when this is no frame
_KIND = const(5)
_COUNT = const(6)  # of the frame that came last
_HIGH = const(7)  # the CRC so far, in halves: whole 32-bit words are no small integers on the boards
_LOW = const(8)
_BASE = const(9)  # where the payload goes in the message: behind its earlier parts
_LIMIT = const(10)  # size of the message buffer, which has 4 bytes more
_NOISE = const(11)  # what was no frame
_SENT = const(12)  # the count that goes with the next frame
_FROM = const(13)  # of the buffer that is sent: the payload is buf[FROM:TO]
_TO = const(14)
_LONGEST = const(0x100000)

# CRC-32 (IEEE 802.3) of the 16 values of four bits: low and high halves.
TABLE = array("H")
for _value in range(16):
    _high, _low = 0, _value
    for _ in range(4):
        _bit = _low & 1
        _low = _low >> 1 | (_high & 1) << 15
        _high >>= 1
        if _bit:
            _high ^= 0xEDB8
            _low ^= 0x8320
    TABLE.append(_low)
    TABLE.append(_high)


@micropython.viper
def feed(state, chunk, n: int, msg) -> int:
    # Takes the n bytes that are new in chunk, or with n 0 those that are left of it, up to the end of a frame. Returns its kind,
    # with the payload in msg from BASE on and HAVE its bytes; 0: there is none yet.
    st = ptr32(state)
    src = ptr8(chunk)
    dst = ptr8(msg)
    table = ptr16(TABLE)
    pos = 0
    end = n
    if n == 0:
        pos = st[_POS]
        end = st[_END]
    have = st[_HAVE]
    esc = st[_ESC]
    bad = st[_BAD]
    base = st[_BASE] - 2
    room = st[_LIMIT] + 4
    crc = st[_HIGH] << 16 | st[_LOW]
    if st[_KIND] == 0:  # a frame was handed out: the next one begins
        have = 0
        crc = -1
        st[_KIND] = 1
    result = 0
    while pos < end and result == 0:
        byte = int(src[pos])
        pos += 1
        if byte == 0xC0:
            if have + esc + bad:
                if bad + esc == 0 and have > 5 and crc & 0xFFFF == 0x20E3 and crc >> 16 & 0xFFFF == 0xDEBB:
                    result = st[_KIND]
                    have -= 6
                else:
                    st[_NOISE] = (st[_NOISE] + 1) & 0x3FFFFFFF
                    have = 0
                    crc = -1
                esc = 0
                bad = 0
        elif bad:
            pass
        elif byte == 0xDB:
            bad = esc
            esc = 1
        elif byte < 5 and byte != 2:
            bad = 1
        else:
            if esc:
                esc = 0
                byte ^= 0x20
                if (byte > 4 and byte != 0xC0 and byte != 0xDB) or byte == 2:
                    bad = 1
            crc ^= byte
            at = (crc & 15) << 1
            crc = (crc >> 4 & 0xFFFFFFF) ^ (int(table[at + 1]) << 16 | int(table[at]))
            at = (crc & 15) << 1
            crc = (crc >> 4 & 0xFFFFFFF) ^ (int(table[at + 1]) << 16 | int(table[at]))
            if have == 0:
                st[_KIND] = byte
                if byte == 0:
                    bad = 1
            elif have == 1:
                st[_COUNT] = byte
            elif base + have < room:
                dst[base + have] = byte
            have += 1
            if have == _LONGEST:
                bad = 1
    st[_POS] = pos
    st[_END] = end
    st[_HAVE] = have
    st[_ESC] = esc
    st[_BAD] = bad
    st[_HIGH] = crc >> 16 & 0xFFFF
    st[_LOW] = crc & 0xFFFF
    if result:
        st[_KIND] = 0
    return result


@micropython.viper
def build(frame, kind: int, buf, state) -> int:
    # Makes frame[0:result] the frame that carries buf[FROM:TO]; it has room for twice that and 14 more.
    st = ptr32(state)
    src = ptr8(buf)
    dst = ptr8(frame)
    table = ptr16(TABLE)
    start = st[_FROM]
    n = st[_TO] - start
    crc = -1
    dst[0] = 0xC0
    at = 1
    i = -2
    while i < n + 4:
        if i < n:
            if i == -2:
                byte = kind
            elif i == -1:
                byte = st[_SENT]
            else:
                byte = int(src[start + i])
            crc ^= byte
            slot = (crc & 15) << 1
            crc = (crc >> 4 & 0xFFFFFFF) ^ (int(table[slot + 1]) << 16 | int(table[slot]))
            slot = (crc & 15) << 1
            crc = (crc >> 4 & 0xFFFFFFF) ^ (int(table[slot + 1]) << 16 | int(table[slot]))
        else:
            byte = crc & 255 ^ 255
            crc >>= 8
        i += 1
        if (byte < 5 and byte != 2) or byte == 0xC0 or byte == 0xDB:
            dst[at] = 0xDB
            at += 1
            byte ^= 0x20
        dst[at] = byte
        at += 1
    dst[at] = 0xC0
    return at + 1
