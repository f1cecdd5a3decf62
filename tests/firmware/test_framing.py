# The device's side of the serial line, and that both sets of its kernels do the same.
import json
import sys
from array import array

import micropython
from peer import Dice
from serial_peer import frame, frames
from support import SkipTest, raises
from vrt.errors import ProtocolError
from vrt.links import AUDIO, NONE, OPEN, TEXT, framing, stuffing_plain
from vrt.links.framing import Framing
from vrt.links.opening import question

CONTROL = 5
COUNT, HAVE, LIMIT, NOISE, SENT, FROM, TO, SLOTS = 6, 2, 10, 11, 12, 13, 14, 15
KINDS = "OYCcAPQX"
EXAMPLES = (__file__.rsplit("/", 1)[0] if "/" in __file__ else ".") + "/../../schema/examples/serial/"

try:
    from vrt.links import stuffing
except SyntaxError:
    stuffing = None


def both():
    # The kernels that this runtime has; on CPython the shim lets viper's be imported, and there they mean nothing.
    if stuffing and sys.implementation.name == "micropython":
        return (stuffing_plain, stuffing)
    return (stuffing_plain,)


def vectors():
    try:
        with open(EXAMPLES + "frames.json") as file:
            return json.load(file)
    except OSError:
        raise SkipTest("no file system with schema/examples/serial") from None


def taken(kernels, pieces, limit=300):
    # The frames that come out of the stream, and how much of it was noise.
    state = array("i", bytes(4 * SLOTS))
    state[LIMIT] = limit
    msg = bytearray(limit + 4)
    out = []
    for piece in pieces:
        n = len(piece)
        while True:
            kind = kernels.feed(state, piece, n, msg)
            n = 0
            if not kind:
                break
            if chr(kind) in KINDS:
                out.append((chr(kind), state[COUNT], bytes(msg[: min(limit, state[HAVE])])))
            else:
                state[NOISE] += 1
    return out, state[NOISE]


def test_vectors():
    for case in vectors():
        data = bytes([int(case["hex"][at : at + 2], 16) for at in range(0, len(case["hex"]), 2)])
        expected = [(one["kind"], one["count"], unhex(one["payload"])) for one in case["frames"]]
        for kernels in both():
            assert taken(kernels, [data]) == (expected, case["noise"]), case["id"]
            assert taken(kernels, [bytes((byte,)) for byte in data]) == (expected, case["noise"]), case["id"]


def unhex(text):
    return bytes([int(text[at : at + 2], 16) for at in range(0, len(text), 2)])


STREAM = (
    b"boot: \xff\r\n"
    + frame("C", 0, b"hello")
    + b"log line\n"
    + frame("A", 1, bytes((0, 1, 2, 3, 4, 0xC0, 0xDB, 0x20)))
    + frame("P", 1)[1:]
)
FOUND = [("C", 0, b"hello"), ("A", 1, bytes((0, 1, 2, 3, 4, 0xC0, 0xDB, 0x20))), ("P", 1, b"")]


def test_kernels_take_frames_split_at_every_byte():
    for kernels in both():
        for cut in range(len(STREAM) + 1):
            assert taken(kernels, [part for part in (STREAM[:cut], STREAM[cut:]) if part]) == (FOUND, 2), cut


def test_kernels_take_no_frame_with_a_wrong_byte():
    whole = frame("C", 3, b"lock the door") + frame("P", 4)
    good = [("C", 3, b"lock the door"), ("P", 4, b"")]
    for kernels in both():
        for at in range(len(whole)):
            for change in (1, 0x20, 0x80, 0xFF, whole[at] ^ 0xC0, whole[at] ^ 0xDB):
                damaged = whole[:at] + bytes((whole[at] ^ change,)) + whole[at + 1 :]
                found, _ = taken(kernels, [b"\xc0" + damaged + b"\xc0"])
                if damaged != whole:
                    assert set(found) < set(good) or found == good, (at, change)
                    if whole[at] != 0xC0:
                        assert len(found) == 1, (at, change)


def test_kernels_make_what_they_take():
    for kernels in both():
        for payload in (b"", bytes(range(256)), b"\xc0" * 60, b"\xdb\xfb\x20\0", b"x" * 57, bytes(120)):
            for count in (0, 1, 2, 0xC0, 255):
                state = array("i", bytes(4 * SLOTS))
                state[SENT] = count
                state[FROM] = 3
                state[TO] = 3 + len(payload)
                room = bytearray(2 * len(payload) + 14)
                n = kernels.build(room, 0x41, b"..." + payload + b"...", state)
                assert bytes(room[:n]) == frame("A", count, payload)
                assert taken(kernels, [bytes(room[:n])]) == ([("A", count, payload)], 0)


def test_kernels_are_equal_on_random_streams():
    if len(both()) < 2:
        raise SkipTest("no viper emitter")
    for seed in range(60):
        dice = Dice(seed)
        stream = b""
        for _ in range(10):
            one = frame("CcAPQXOYz"[dice.roll(9)], dice.roll(256), dice.bytes(dice.roll(70)))
            if dice.roll(3) == 0:
                at = dice.roll(len(one))
                one = one[:at] + dice.bytes(1 + dice.roll(3)) + one[at + dice.roll(2) :]
            stream += one + (b"", b"noise\n", dice.bytes(5))[dice.roll(3)]
        pieces = []
        while stream:
            n = 1 + dice.roll(64)
            pieces.append(stream[:n])
            stream = stream[n:]
        assert taken(stuffing_plain, pieces, 40) == taken(stuffing, pieces, 40), seed


# The connection


def line(rx=200, tx=100, window=0):
    side = Framing(rx, tx, 600)
    side.nonce = b"00c0ffee"
    if window:
        hears(side, opened(window))
    return side


def opened(window, nonce="00c0ffee", v=1):
    said = {"v": v, "nonce": nonce, "window": window}
    return frame("Y", 0, json.dumps(said).encode())


def hears(side, data):
    # The events of these bytes, with the messages.
    events = []
    side.chunk[: len(data)] = data
    n = len(data)
    while n or side.left():
        event = side.next_event(n)
        n = 0
        if event in (TEXT, AUDIO):
            events.append((event, bytes(side.rx[: side.n])))
        elif event != NONE:
            events.append(event)
    return events


def says(side):
    # What it has to send, as frames.
    out = b""
    while side.out_n:
        out += bytes(side.tx[side.out_at : side.out_at + side.out_n])
        side.sent(side.out_n)
    return frames(out)


def test_device_asks_for_a_connection():
    side = line()
    side.knock(question(side.nonce, 300))
    kind, count, payload = says(side)[0]
    assert (kind, count) == ("O", 0)
    assert json.loads(payload) == {"v": 1, "nonce": "00c0ffee", "window": 300}
    assert not side.writable
    assert not side.frame(1, b"early", 5)
    assert hears(side, frame("C", 0, b"early") + frame("X", 0, b"\x03\xee")) == [CONTROL, CONTROL]
    for wrong in (
        opened(1000, "deadbeef"),
        opened(1000, v=2),
        opened(63),
        opened("64"),
        frame("Y", 0, b"{"),
        frame("Y", 0, b"[]"),
        frame("Y", 0, b'{"v":1,"nonce":1,"window":1000}'),
        frame("O", 0, opened(1000)),
    ):
        assert hears(side, wrong) == [CONTROL]
        assert not side.writable
    assert hears(side, opened(1000)) == [OPEN]
    assert side.writable
    assert hears(side, opened(1000)) == [CONTROL], "an answer to the second question"


def test_device_hears_messages_in_parts():
    side = line(window=1000)
    data = (
        frame("C", 0, b"one")
        + frame("c", 1, b"tw")
        + frame("P", 2, b"\x07")
        + frame("C", 2, b"o")
        + frame("A", 3, b"\x02abc")
    )
    assert hears(side, data) == [(TEXT, b"one"), CONTROL, CONTROL, (TEXT, b"two"), (AUDIO, b"\x02abc")]
    assert says(side) == [("Q", 0, b"\x07")]


def test_device_counts_256_texts():
    side = line(window=1000)
    for count in range(520):
        assert hears(side, frame("C", count, b"x")) == [(TEXT, b"x")]


def test_device_notices_a_lost_text_by_whatever_follows():
    for kind in "CcAPQ":
        side = line(window=1000)
        assert hears(side, frame("C", 0, b"one")) == [(TEXT, b"one")]
        assert hears(side, frame(kind, 2, b"three")) == [CONTROL], kind
        assert (side.lost, side.close_code, side.close_reason) == (True, 1006, "a control frame was lost")
        assert says(side) == [("X", 0, b"\x03\xeea control frame was lost")]
        assert not side.writable
        assert hears(side, frame("C", 1, b"two")) == [CONTROL]


def test_device_throws_away_what_is_too_large():
    side = line(rx=100, window=1000)
    assert hears(side, frame("C", 0, bytes(100))) == [(TEXT, bytes(100))]
    data = (
        frame("C", 1, bytes(101)) + frame("c", 2, bytes(60)) + frame("c", 3, bytes(41)) + frame("C", 4, b"")
    )
    assert hears(side, data + frame("A", 5, bytes(101)) + frame("C", 5, b"end")) == [CONTROL] * 5 + [
        (TEXT, b"end")
    ]
    assert side.dropped == 3
    assert hears(side, frame("A", 6, bytes(100))) == [(AUDIO, bytes(100))]


def test_device_takes_no_audio_inside_a_text():
    side = line(window=1000)
    data = frame("c", 0, b"to") + frame("A", 1, b"audio") + frame("C", 1, b"day")
    assert hears(side, data) == [CONTROL, CONTROL, (TEXT, b"today")]
    assert side.dropped == 1


def test_device_sends_text_in_parts_and_audio_whole():
    side = line(tx=100, window=5000)
    assert side.frame(1, b"short...", 5)
    assert not side.writable
    assert says(side) == [("C", 0, b"short")]
    text = bytes(range(250))
    assert side.frame(1, text, 250)
    assert not side.frame(2, b"audio", 5)
    assert says(side) == [("c", 1, text[:100]), ("c", 2, text[100:200]), ("C", 3, text[200:])]
    assert side.frame(2, b"\xc0" * 100, 100)
    assert says(side) == [("A", 4, b"\xc0" * 100)]
    assert side.frame(1, b"", 0)
    assert says(side) == [("C", 4, b"")]
    raises(ProtocolError, side.frame, 2, bytes(101), 101)
    raises(ProtocolError, side.frame, 1, b"abc", 4)


def test_device_goes_no_further_than_the_window():
    for window in (64, 100, 256, 1000):
        dice = Dice(window)
        side = line(tx=100, window=window)
        ahead = since = 0
        asked = b""
        for turn in range(100):
            if side.writable:
                if turn % 3:
                    side.frame(2, dice.bytes(40), 40)
                else:
                    side.frame(1, dice.bytes(90), 90)
            while side.out_n:
                n = side.out_n
                kind, _, number = frames(bytes(side.tx[:n]))[0]
                assert not (ahead + since) or ahead + since + n <= window, "more than the host takes"
                since += n
                if kind == "P":
                    assert not asked
                    asked = number
                    ahead, since = since, 0
                side.sent(n)
            if not side.writable:
                assert asked, "it waits for nothing"
                assert hears(side, frame("Q", 0, b"\xff") + frame("Q", 0)) == [CONTROL, CONTROL]
                assert not side.writable, "that was another ping's"
                assert hears(side, frame("Q", 0, asked)) == [CONTROL]
                asked = b""
                ahead = 0
        assert side.writable or side.rest or side.out_n


def test_device_asks_again():
    side = line(tx=100, window=100)
    assert side.frame(2, bytes(50), 50)
    first = says(side)
    assert [kind for kind, _, _ in first] == ["A", "P"]
    side.ask()
    second = says(side)
    assert [kind for kind, _, _ in second] == ["P"]
    assert second[0][2] != first[1][2]
    assert hears(side, frame("Q", 0, first[1][2])) == [CONTROL]
    assert side.asked
    assert hears(side, frame("Q", 0, second[0][2])) == [CONTROL]
    assert not side.asked


def test_device_closes():
    side = line(window=1000)
    side.close(4000)
    assert says(side) == [("X", 0, b"\x0f\xa0")]
    assert not side.writable
    assert hears(side, frame("C", 0, b"late") + frame("A", 1, b"late")) == [CONTROL, CONTROL]
    assert not side.lost
    assert hears(side, frame("X", 9, b"\x0f\xa0")) == [CONTROL]
    assert (side.lost, side.close_code, side.close_reason) == (True, 1006, "closed")


def test_device_is_closed():
    for payload, code, reason in (
        (b"\x10\x84bye", 4228, "bye"),
        (b"\x10\x84", 4228, ""),
        (b"\x10\x84\xff", 4228, "closed"),
        (b"\x10", 1006, "closed"),
        (b"", 1006, "closed"),
    ):
        side = line(window=1000)
        assert hears(side, frame("X", 7, payload)) == [CONTROL]
        assert (side.lost, side.close_code, side.close_reason) == (True, code, reason)
        assert says(side) == ([("X", 0, payload[:2])] if len(payload) > 1 else [])


def test_device_sends_its_close_behind_a_text():
    side = line(tx=100, window=1000)
    assert side.frame(1, bytes(150), 150)
    side.close(1000)
    assert [kind for kind, _, _ in says(side)] == ["c", "C", "X"]


def test_device_begins_anew():
    side = line(window=1000)
    assert side.frame(1, b"one", 3)
    assert hears(side, frame("C", 0, b"one") + frame("c", 1, b"half") + frame("A", 2, b"x")[:5])
    side.reset()
    side.nonce = b"00c0ffee"
    assert hears(side, opened(500) + frame("C", 0, b"two")) == [OPEN, (TEXT, b"two")]
    assert side.frame(1, b"two", 3)
    assert says(side) == [("C", 0, b"two")]


def exchange(side, down, up, rounds, lock):
    # Frames each way. Returns all the bytes allocated meanwhile.
    n = len(down)
    side.chunk[:n] = down
    before = micropython.mem_total()
    if lock:
        micropython.heap_lock()
    try:
        for _ in range(rounds):
            assert side.next_event(n) == AUDIO
            assert side.frame(2, up, 165)
            while side.out_n:
                side.sent(side.out_n)
            if side.asked:
                side.asked = side._ahead = 0
    finally:
        if lock:
            micropython.heap_unlock()
    return micropython.mem_total() - before


def test_device_allocates_nothing_for_a_frame():
    if not hasattr(micropython, "mem_total"):
        raise SkipTest("no heap to measure")
    side = line(rx=300, tx=200, window=1000)
    down = frame("A", 0, bytes(165))
    up = bytearray(165)
    exchange(side, down, up, 50, True)
    if len(both()) > 1:  # the state of a call of the plain kernels is too large for the stack
        assert exchange(side, down, up, 200, False) == exchange(side, down, up, 100, False)


def test_kernels_are_the_fast_ones_where_there_are_any():
    if len(both()) < 2:
        raise SkipTest("no viper emitter")
    assert framing.feed is stuffing.feed
