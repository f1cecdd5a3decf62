# The serial link, on a fake port that takes and gives what it likes.
import sys

import micropython
from peer import Dice
from serial_peer import FakePort, answer, frame, frames
from support import SkipTest, raises
from vrt.errors import ProtocolError
from vrt.links import AUDIO, CLOSED, NONE, OPEN, TEXT
from vrt.links.serial import SerialLink


def connected(now=1000, window=16384, **sizes):
    port = FakePort()
    link = SerialLink(lambda: port, **sizes)
    link.open(now)
    port.inbox = answer(port.wrote, window)
    port.wrote = b""
    assert link.poll(now) == OPEN
    assert link.writable
    return link, port


def ended(link, port, now):
    assert link.poll(now) == CLOSED
    assert link.sock is None
    assert port.closed
    assert not link.writable
    assert not link.send_audio(b"late", 4)
    assert link.poll(now) == NONE
    return link.close_code, link.close_reason


def test_link_asks_every_second_until_the_host_answers():
    port = FakePort()
    link = SerialLink(lambda: port)
    link.open(0x3FFFFFFF - 500)  # the ticks turn over
    assert link.sock is port
    assert len(frames(port.wrote)) == 1
    assert b'"window":300' in frames(port.wrote)[0][2]
    for later in range(0, 100_000, 100):
        assert link.poll((0x3FFFFFFF - 500 + later) & 0x3FFFFFFF) == NONE
    assert len(frames(port.wrote)) == 100
    assert len(set(frames(port.wrote))) == 1, "one nonce"
    assert not link.writable
    assert not link.send_text(b"early", 5)
    port.inbox = b"\r\n>>> noise" + answer(port.wrote) + frame("C", 0, b"at once")
    assert link.poll(50) == OPEN
    assert link.last_rx == 50
    assert link.unread()
    assert link.poll(51) == TEXT
    assert link.rx[: link.n] == b"at once"
    assert not link.unread()


def test_link_draws_a_nonce_for_each_connection():
    port = FakePort()
    link = SerialLink(lambda: port)
    link.open(0)
    first = port.wrote
    old = answer(first)
    again = FakePort()
    link._port = lambda: again
    link.open(1)
    assert port.closed
    assert frames(again.wrote) != frames(first)
    again.inbox = old
    assert link.poll(2) == NONE
    again.inbox = answer(again.wrote)
    assert link.poll(3) == OPEN


def test_link_gives_the_port_to_whoever_types_until_it_is_open():
    port = FakePort()
    link = SerialLink(lambda: port)
    link.open(0)
    assert port.stops is True
    port.inbox = answer(port.wrote)
    assert link.poll(1) == OPEN
    assert port.stops is False
    port.inbox = frame("X", 0, b"\x03\xeebye")
    assert ended(link, port, 2) == (1006, "bye")
    assert port.stops is True


def test_link_uses_a_port_that_nobody_else_has():
    class Uart:
        def __init__(self):
            self.port = FakePort()
            self.readinto, self.write, self.close = self.port.readinto, self.port.write, self.port.close

    uart = Uart()
    link = SerialLink(lambda: uart)
    link.open(0)
    assert b'"window":256' in frames(uart.port.wrote)[0][2]
    uart.port.inbox = answer(uart.port.wrote)
    assert link.poll(1) == OPEN
    link.close(1000)
    uart.port.inbox = frame("X", 0, b"\x03\xe8")
    assert link.poll(2) == CLOSED
    assert uart.port.closed


def test_link_tells_of_a_port_that_cannot_be_opened():
    def no_port():
        raise OSError(19)

    link = SerialLink(no_port)
    link.open(0)
    assert link.poll(1) == CLOSED
    assert link.close_code == 1006
    assert link.close_reason == "port: " + str(OSError(19))


def test_link_moves_messages_byte_by_byte():
    def one_and_none():
        turns = [1, None, 0]

        def turn():
            turns.append(turns.pop(0))
            return turns[-1]

        return turn

    port = FakePort()
    port.give = one_and_none()
    port.take = one_and_none()
    link = SerialLink(lambda: port)
    link.open(0)
    now = 0
    while link.out_n:
        now += 1
        assert link.poll(now) == NONE
    port.inbox = (
        answer(port.wrote)
        + frame("C", 0, b"\xe2\x82\xac")
        + frame("A", 1, bytes(200))
        + frame("P", 1, b"\x09")
    )
    port.inbox += frame("c", 1, b"in ") + frame("C", 2, b"parts")
    port.wrote = b""
    heard = []
    sent = 0
    for later in range(3000):
        event = link.poll(now + later)
        if event in (TEXT, AUDIO):
            heard.append((event, bytes(link.rx[: link.n])))
        elif event:
            heard.append(event)
        if sent < 3 and link.writable:
            assert link.send_text(b"m%d" % sent, 2)
            sent += 1
    assert heard == [OPEN, (TEXT, b"\xe2\x82\xac"), (AUDIO, bytes(200)), (TEXT, b"in parts")]
    said = frames(port.wrote)
    assert [one for one in said if one[0] == "C"] == [("C", 0, b"m0"), ("C", 1, b"m1"), ("C", 2, b"m2")]
    assert [kind for kind, _, _ in said if kind == "Q"] == ["Q"]


class Answers:
    # A host that takes what the device sends apart as it comes, and answers its pings.
    def __init__(self, port):
        self.port = port
        self.count = 0  # of our texts
        self.said = []
        self._text = b""
        self._texts = 0

    def step(self):
        wrote = self.port.wrote
        end = 0
        while True:  # frames begin and end with a delimiter
            stop = wrote.find(b"\xc0", end + 1) + 1
            if not stop:
                break
            for kind, count, payload in frames(wrote[end:stop]):
                assert count == self._texts & 255
                if kind == "P":
                    self.port.inbox += frame("Q", self.count, payload)
                elif kind in "Cc":
                    self._texts += 1
                    self._text += payload
                if kind in "CA":
                    self.said.append((kind, self._text if kind == "C" else payload))
                    self._text = self._text if kind == "A" else b""
            end = stop
        self.port.wrote = wrote[end:]


def test_link_keeps_every_message_whole_over_any_port():
    for seed in range(8):
        dice = Dice(seed)
        link, port = connected(rx=800, tx=300, window=2000)
        host = Answers(port)
        port.give = lambda dice=dice: (None, 1, 2, 7, 700)[dice.roll(5)]
        port.take = lambda dice=dice: (None, 0, 1, 3, 100, 700)[dice.roll(6)]
        sent, heard, said = [], [], []
        for now in range(1000, 2400):
            if now == 1600:
                port.give = port.take = lambda: 10000
            kind = dice.roll(8) if now < 1600 else 9
            payload = dice.bytes(dice.roll(300)) if kind < 4 else b""
            if kind == 0:
                sent.append((AUDIO, payload))
                port.inbox += frame("A", host.count, payload)
            elif kind == 1:
                sent.append((TEXT, payload))
                port.inbox += (b"", b"log\n")[dice.roll(2)] + frame("C", host.count, payload)
                host.count += 1
            elif kind < 4:
                free = link.writable
                if (link.send_text if kind == 2 else link.send_audio)(payload, len(payload)):
                    said.append(("C" if kind == 2 else "A", payload))
                else:
                    assert kind == 3 or not free, "writable and not taken"
            event = link.poll(now)
            assert event in (NONE, AUDIO, TEXT), link.close_reason
            if event:
                heard.append((event, bytes(link.rx[: link.n])))
            host.step()
        assert heard == sent, seed
        assert host.said == said, seed


def test_link_writes_a_frame_at_once():
    link, port = connected()
    writes = []
    port.take = lambda: writes.append(1) or 1000000
    assert link.send_text(b"t" * 300, 300)
    assert link.send_audio(b"a" * 165, 165)
    assert len(writes) == 2
    assert frames(port.wrote) == [("C", 0, b"t" * 300), ("A", 1, b"a" * 165)]
    raises(ProtocolError, link.send_audio, bytes(2000), 2000)


def test_link_asks_whether_a_text_came():
    link, port = connected()
    assert link.send_text(b"x", 1)
    for now in range(1000, 1520, 20):
        assert link.poll(now) == NONE
    assert frames(port.wrote) == [("C", 0, b"x"), ("P", 1, b"\x01")]
    port.inbox = frame("Q", 0, b"\x01")
    port.wrote = b""
    for now in range(1520, 9000, 20):
        assert link.poll(now) == NONE
    assert port.wrote == b""


def test_link_reads_a_flood_in_portions():
    link, port = connected(chunk=64)
    port.inbox = bytes(range(5, 100)) * 100
    assert link.poll(1001) == NONE
    assert link.busy
    assert link.unread()
    assert len(port.inbox) == 95 * 100 - 8 * 64
    assert link.last_rx == 1000, "noise is no sign of life"


def test_link_answers_a_ping_and_a_close():
    link, port = connected()
    port.inbox = frame("P", 0, b"\x07") + frame("X", 0, b"\x11\x3bno heartbeat")
    assert ended(link, port, 1001) == (4411, "no heartbeat")
    assert frames(port.wrote) == [("Q", 0, b"\x07"), ("X", 0, b"\x11\x3b")]


def test_link_closes():
    link, port = connected()
    link.close(4000)
    assert not link.writable
    port.inbox = frame("C", 0, b"late")
    assert link.poll(1500) == NONE
    port.inbox = frame("X", 0, b"\x0f\xa0")
    assert ended(link, port, 2999) == (1006, "closed")
    assert frames(port.wrote) == [("X", 0, b"\x0f\xa0")]
    link, port = connected()
    link.close(4000)
    assert link.poll(2999) == NONE
    assert ended(link, port, 3000) == (1006, "timeout")
    link.close(1000)


def test_link_is_closed_while_it_asks():
    port = FakePort()
    link = SerialLink(lambda: port)
    link.open(0)
    link.close(1000)
    assert ended(link, port, 1) == (1006, "closed")


def test_link_loses_a_connection_with_a_lost_message():
    link, port = connected()
    port.inbox = frame("C", 0, b"one") + frame("C", 1, b"two")[:-3] + b"\xc0" + frame("A", 2, b"x")
    assert link.poll(1001) == TEXT
    assert ended(link, port, 1002) == (1006, "a control frame was lost")
    assert frames(port.wrote) == [("X", 0, b"\x03\xeea control frame was lost")]


def test_link_loses_a_port_that_vanishes():
    for how in ("read", "write"):
        link, port = connected()
        if how == "read":
            port.give = lambda: OSError(5)
            why = str(OSError(5))
        else:
            port.take = lambda: OSError(5)
            assert link.send_audio(b"x", 1)
            why = "it takes nothing"
        assert ended(link, port, 1001) == (1006, "port: " + why)


def test_link_gives_up_a_host_that_reads_nothing():
    link, port = connected(window=400)
    while link.send_audio(bytes(60), 60):
        pass
    assert frames(port.wrote)[-1][0] == "P"
    port.wrote = b""
    now = 1000
    while link.poll(now) == NONE:
        assert not link.writable
        now += 20
    assert now == 11000
    assert link.close_reason == "timeout"
    assert [kind for kind, _, _ in frames(port.wrote)] == ["P"] * 9, "once a second"


def test_link_gives_up_a_port_that_takes_nothing():
    for nothing in (None, 0):
        link, port = connected()
        port.take = lambda nothing=nothing: nothing
        assert link.send_audio(bytes(60), 60)
        assert not link.send_audio(bytes(60), 60)
        assert link.poll(2000) == NONE
        assert link.poll(11999) == NONE
        assert ended(link, port, 12000) == (1006, "timeout")


def exchange(link, port, rounds, lock):
    # Frames each way. Returns all the bytes allocated meanwhile.
    up = bytearray(165)
    before = micropython.mem_total()
    if lock:
        micropython.heap_lock()
    try:
        for _ in range(rounds):
            port.at = 0
            assert link.poll(2000) == AUDIO
            assert link.send_audio(up, 165)
            if link.asked:
                link.asked = link._ahead = 0
    finally:
        if lock:
            micropython.heap_unlock()
    return micropython.mem_total() - before


class Loop:
    # A port that gives the same frame whenever it is rewound, and allocates nothing either.
    def __init__(self, data):
        self.data = bytearray(data)
        self.at = len(data)

    def readinto(self, buf, n):
        if self.at:
            return None
        self.at = len(self.data)
        buf[0 : self.at] = self.data
        return self.at

    def write(self, buf, at, n):
        return n

    def close(self):
        pass


def test_link_allocates_nothing_for_a_frame():
    if sys.implementation.name != "micropython":
        raise SkipTest("no heap to measure")
    link, _ = connected(rx=2048, tx=498)
    down = frame("A", 0, bytes(80) + b"u" * 85)
    link.chunk = bytearray(len(down))
    link.sock = port = Loop(down)
    exchange(link, port, 50, True)
    assert exchange(link, port, 200, False) == exchange(link, port, 100, False)
