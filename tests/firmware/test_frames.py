# The kernels of the WebSocket client, and that both sets of them do the same.
import sys
from array import array

from peer import BINARY, FIRST_TEXT, LAST, MIDDLE, PING, PONG, TEXT, Dice, close, frame, unmask
from support import SkipTest
from vrt.links import frames_plain, websocket

POS, LIMIT, N, UTF8, WANT, LAST_SIZE, KEY, DONE, PIECE = 0, 9, 8, 11, 13, 14, 15, 17, 18


try:
    from vrt.links import frames
except SyntaxError:
    frames = None


def viper():
    # The kernels in machine code; on CPython the shim lets them be imported, and there they mean nothing.
    if not frames or sys.implementation.name != "micropython":
        raise SkipTest("no viper emitter")
    return frames


def new_state(limit):
    state = array("i", bytes(4 * 19))
    state[LIMIT] = limit
    state[WANT] = state[LAST_SIZE] = 2
    state[KEY] = 0x1234
    state[KEY + 1] = 0x5678
    state[PIECE] = 0x100000
    return state


def feed_all(kernels, stream, dice, limit):
    # Everything that comes out of the stream, cut at random, and what is left in the state and the buffers.
    state = new_state(limit)
    chunk = bytearray(64)
    msg = bytearray(limit)
    ctl = bytearray(125)
    out = []
    at = 0
    while at < len(stream):
        n = min(1 + dice.roll(64), len(stream) - at)
        chunk[:n] = stream[at : at + n]
        at += n
        given = n
        while True:
            got = kernels.feed(state, chunk, given, msg, ctl)
            given = 0
            out.append((got, list(state), bytes(msg), bytes(ctl)) if got >= 0 else got)
            if got < 0:
                return out
            if state[WANT]:
                break
    return out


def random_stream(dice):
    # Mostly valid: messages, fragments and control frames, some of them damaged.
    stream = b""
    for _ in range(12):
        kind = dice.roll(9)
        payload = dice.bytes(dice.roll(40))
        text = ("a\xe9\u20ac\U0001f600" * dice.roll(9)).encode()
        if kind < 2:
            stream += frame(BINARY, payload)
        elif kind < 4:
            stream += frame(TEXT, text)
        elif kind == 4:
            cut = dice.roll(len(text) + 1)
            stream += (
                frame(FIRST_TEXT, text[:cut]) + frame(PING, payload) + frame(MIDDLE) + frame(LAST, text[cut:])
            )
        elif kind == 5:
            stream += frame(PONG if dice.roll(2) else PING, payload)
        elif kind == 6:
            stream += frame(BINARY, dice.bytes(dice.roll(400)))
        elif kind == 7:
            stream += close(1000, payload)
        elif dice.roll(6) == 0:
            stream += dice.bytes(3)
    return stream


def test_feed_viper_equals_plain():
    kernels = viper()
    for seed in range(150):
        stream = random_stream(Dice(seed))
        for limit in (0, 37, 100, 256):
            got = feed_all(kernels, stream, Dice(seed), limit)
            assert got == feed_all(frames_plain, stream, Dice(seed), limit), (seed, limit)


def test_build_viper_equals_plain():
    kernels = viper()
    dice = Dice(5)
    mine, twin = new_state(0), new_state(0)
    for n in (0, 1, 2, 3, 4, 5, 6, 7, 8, 124, 125, 126, 127, 165, 4096, 65535, 65536, 65537):
        payload = bytearray(dice.bytes(n))
        one = bytearray(n + 14)
        other = bytearray(n + 14)
        assert kernels.build(one, 0x82, payload, n, mine) == frames_plain.build(other, 0x82, payload, n, twin)
        assert (one, mine) == (other, twin), n


def test_build_viper_in_pieces_equals_plain():
    kernels = viper()
    dice = Dice(8)
    for piece in (128, 132, 1000):
        mine, twin = new_state(0), new_state(0)
        mine[PIECE] = twin[PIECE] = piece
        for n in (0, 127, 128, 129, 131, 132, 133, 264, 1000, 1001, 3000):
            payload = bytearray(dice.bytes(n))
            one = bytearray(piece + 14)
            other = bytearray(piece + 14)
            for _ in range(1 + max(n - 1, 0) // piece):
                end = kernels.build(one, 0x81, payload, n, mine)
                assert end == frames_plain.build(other, 0x81, payload, n, twin)
                assert (one, mine) == (other, twin), (piece, n)
            assert mine[DONE] == 0


def test_build_viper_takes_any_alignment():
    kernels = viper()
    whole = memoryview(bytearray(Dice(6).bytes(300)))
    for start in range(8):
        for n in (0, 3, 130, 131):
            tx = bytearray(n + 14)
            length = kernels.build(tx, 0x82, whole[start : start + n], n, new_state(0))
            assert unmask(bytes(tx[:length])) == [(0x82, bytes(whole[start : start + n]))]


def test_utf8_viper_equals_plain():
    kernels = viper()
    dice = Dice(7)
    for _ in range(3000):
        data = bytes(
            [(0x41, 0x80, 0xBF, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, dice.roll(256))[dice.roll(9)] for _ in range(5)]
        )
        state = 0
        for start, end in ((0, 2), (2, 2), (2, 5)):
            new = kernels.utf8(data, start, end, state)
            assert new == frames_plain.utf8(data, start, end, state), data
            if new < 0:
                break
            state = new


def test_feed_refuses_every_wrong_first_byte():
    chunk = bytearray(2)
    state = new_state(0)
    fresh = new_state(0)
    for first in range(256):
        for index in range(len(state)):
            state[index] = fresh[index]
        chunk[0] = first
        right = first in (0x01, 0x02, 0x81, 0x82, 0x88, 0x89, 0x8A)
        got = websocket.feed(state, chunk, 2, bytearray(0), bytearray(0))
        assert got == -1002 if not right else got >= 0, first


def well_formed(data, n):
    # Whether data[0:n] is one character of more than one byte, by RFC 3629.
    first = data[0]
    needed = 1 if 0xC0 <= first < 0xE0 else 2 if 0xE0 <= first < 0xF0 else 3 if 0xF0 <= first < 0xF8 else 0
    if needed + 1 != n or not needed:
        return False
    value = first & (0x3F >> needed)
    for index in range(1, n):
        if data[index] & 0xC0 != 0x80:
            return False
        value = value << 6 | data[index] & 0x3F
    return (0x80, 0x800, 0x10000)[needed - 1] <= value <= 0x10FFFF and not 0xD800 <= value <= 0xDFFF


def test_utf8_accepts_what_the_standard_does():
    utf8 = websocket.utf8
    data = bytearray(5)
    for first in range(256):
        data[0] = first
        assert (utf8(data, 0, 1, 0) == 0) == (first < 0x80)
        for second in (0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF):
            data[1] = second
            for third in (0x41, 0x80, 0xBF, 0xC0):
                data[2] = third
                for fourth in (0x41, 0x80, 0xBF):
                    data[3] = fourth
                    for n in (2, 3, 4):
                        if first >= 0x80:
                            end = n
                            while end > 2 and data[end - 1] < 0x80:
                                end -= 1  # ASCII after it changes nothing
                            assert (utf8(data, 0, n, 0) == 0) == well_formed(data, end), bytes(data[:n])


def test_utf8_goes_on_across_every_cut():
    utf8 = websocket.utf8
    data = "a\xe9\u20ac\U0001f600\ud7ff\ue000\U0010ffff".encode()
    for cut in range(len(data)):
        state = utf8(data, 0, cut, 0)
        assert state >= 0
        assert utf8(data, cut, len(data), state) == 0
        assert utf8(data, cut, len(data) - 1, state) > 0


def test_build_masks_with_a_new_key_each_time():
    state = new_state(0)
    tx = bytearray(20)
    keys = set()
    for _ in range(1000):
        length = websocket.build(tx, 0x81, b"\0\0\0\0", 4, state)
        keys.add(bytes(tx[length - 4 : length]))
    assert len(keys) == 1000


def test_build_uses_the_shortest_length():
    tx = bytearray(65550)
    for n, head in ((0, b"\x80"), (125, b"\xfd"), (126, b"\xfe\x00\x7e"), (65535, b"\xfe\xff\xff")):
        assert websocket.build(tx, 0x82, bytes(n), n, new_state(0)) == 1 + len(head) + 4 + n
        assert bytes(tx[: 1 + len(head)]) == b"\x82" + head
    payload = bytes(65536)
    assert websocket.build(tx, 0x82, payload, 65536, new_state(0)) == 65550
    assert unmask(tx) == [(0x82, payload)]
