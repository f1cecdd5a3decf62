# The WebSocket client without I/O, fed cut at every byte.
import sys

import micropython
from peer import (
    BINARY,
    CLOSE,
    ENTROPY,
    FIRST_BINARY,
    FIRST_TEXT,
    LAST,
    MIDDLE,
    PING,
    PONG,
    TEXT,
    Dice,
    close,
    frame,
    unmask,
)
from support import SkipTest, raises
from vrt.errors import ProtocolError
from vrt.links import AUDIO, NONE, websocket
from vrt.links import TEXT as TEXT_EVENT
from vrt.links.websocket import WebSocket

CONTROL = 5  # an event of its own


class Client:
    # A WebSocket and what came out of it: `events` as (event, message), `wrote` as the bytes of its frames.
    def __init__(self, rx=256, tx=256, chunk=64):
        self.ws = WebSocket(rx, tx, chunk)
        self.events = []
        self.wrote = b""
        self.blocked = False

    def flush(self):
        ws = self.ws
        while ws.out_n and not self.blocked:
            self.wrote += bytes(memoryview(ws.tx)[ws.out_at : ws.out_at + ws.out_n])
            ws.sent(ws.out_n)

    def feed(self, stream, step=64):
        # In pieces of at most `step` bytes.
        at = 0
        while at < len(stream):
            n = min(step, self.ws.want, len(stream) - at)
            assert n > 0
            for index in range(n):  # without a copy: the 32-bit build has 1 MB and does not collect
                self.ws.chunk[index] = stream[at + index]
            at += n
            self.drain(n)
        return self

    def drain(self, n):
        ws = self.ws
        for _ in range(200):
            event = ws.next_event(n)
            n = 0
            self.flush()
            if event in (TEXT_EVENT, AUDIO):
                self.events.append((event, bytes(memoryview(ws.rx)[: ws.n])))
            elif event not in (NONE, CONTROL):
                self.events.append((event, None))
            if ws.want:
                return
        raise AssertionError("no end of one chunk")

    def send(self, opcode, payload):
        length = self.ws.frame(opcode, payload, len(payload))
        self.wrote += bytes(memoryview(self.ws.tx)[:length])
        if self.ws.rest:
            self.ws.out_n = length
            self.ws.sent(length)
            self.flush()
        return length

    def keep(self, length, done):
        # The socket took only `done` bytes of the frame.
        self.wrote = bytes(self.ws.tx[:done])
        self.ws.out_n = length
        self.ws.sent(done)

    def frames(self):
        return unmask(self.wrote)

    def open(self):
        self.ws.start(ENTROPY[16:])
        assert self.take() == ([], [])
        assert self.ws.writable
        return self

    def take(self):
        # What came out since the last time: the events, and the frames that were written.
        events, wrote = self.events, self.wrote
        self.events = []
        self.wrote = b""
        return events, unmask(wrote)


def opened(**sizes):
    return Client(**sizes).open()


def failed(stream, code):
    # The client answers the stream with that close code, hears nothing more, and keeps the code.
    client = Client(chunk=512)
    for step in (1, 64, 512):
        client.open()
        client.feed(frame(TEXT, b"before") + stream + frame(TEXT, b"later") + b"\xff" * 40, step)
        assert client.take() == ([(TEXT_EVENT, b"before")], [(CLOSE, bytes((code >> 8, code & 255)))])
        assert client.ws.close_code == code
        assert client.ws.closing
        assert not client.ws.writable


# Messages


def conversation():
    # A stream of everything that is allowed, the events and the pongs that must come of it.
    text = "gr\xfc\xdfe \u20ac \U0001f600".encode()
    stream = (
        frame(TEXT, text)
        + frame(BINARY, b"\xff\xfe" * 70)
        + frame(TEXT)
        + frame(FIRST_TEXT, text[:3])
        + frame(PING, b"one")
        + frame(MIDDLE)
        + frame(MIDDLE, text[3:9])
        + frame(PONG, b"unasked")
        + frame(LAST, text[9:])
        + frame(FIRST_BINARY, b"\x00")
        + frame(LAST)
        + frame(PING)
        + frame(BINARY)
        + frame(BINARY, bytes(range(126)))
    )
    events = [
        (TEXT_EVENT, text),
        (AUDIO, b"\xff\xfe" * 70),
        (TEXT_EVENT, b""),
        (TEXT_EVENT, text),
        (AUDIO, b"\x00"),
        (AUDIO, b""),
        (AUDIO, bytes(range(126))),
    ]
    return stream, events, [(PONG, b"one"), (PONG, b"")]


def test_client_receives_messages_cut_at_every_byte():
    stream, events, pongs = conversation()
    client = opened(chunk=512)
    for cut in range(len(stream) + 1):
        client.feed(stream[:cut], 512)
        client.feed(stream[cut:], 512)
        assert client.take() == (events, pongs), cut


def test_client_receives_messages_in_pieces_of_every_size():
    stream, events, pongs = conversation()
    client = opened()
    for step in range(1, 65):
        client.feed(stream, step)
        assert client.take() == (events, pongs), step


def test_client_receives_every_form_of_length():
    client = opened(rx=65537, chunk=4096)
    for n in (125, 126, 127, 255, 256, 65535, 65537):
        payload = b"\x5a" * n
        client.feed(frame(BINARY, payload), 4096)
        assert client.take() == ([(AUDIO, payload)], []), n


def test_client_receives_a_length_longer_than_it_needs():
    client = opened()
    client.feed(b"\x82\x7e\x00\x02ab" + b"\x82\x7f" + b"\0" * 7 + b"\x01c")
    assert client.events == [(AUDIO, b"ab"), (AUDIO, b"c")]


def test_client_reads_no_further_than_a_frame():
    # What a socket would do with `want`: one read for a frame as long as the one before, and never one beyond
    # a frame that has begun.
    client = opened(rx=256, chunk=256)
    client.feed(frame(BINARY, bytes(165)), 256)
    assert client.ws.want == 169
    client.feed(frame(BINARY, bytes(200))[:10])
    assert client.ws.want == 194


def test_client_throws_away_what_does_not_fit():
    client = opened(rx=256)
    big = bytes(257)
    client.feed(frame(BINARY, big) + frame(BINARY, b"fits"))
    assert client.events == [(AUDIO, b"fits")]
    assert client.ws.dropped == 1
    fragments = (
        frame(FIRST_TEXT, b"a" * 200) + frame(PING, b"p") + frame(MIDDLE, b"b" * 57) + frame(LAST, b"c")
    )
    client.feed(fragments + frame(TEXT, b"d" * 256))
    assert client.events[1:] == [(TEXT_EVENT, b"d" * 256)]
    assert client.ws.dropped == 2
    assert client.frames() == [(PONG, b"p")]
    client.feed(frame(TEXT, b"a" * 300) + frame(BINARY, b"x" * 300) + frame(TEXT, b"e"))
    assert client.events[2:] == [(TEXT_EVENT, b"e")]
    assert client.ws.dropped == 4


def test_client_counts_dropped_messages_over_connections():
    client = opened(rx=256)
    client.feed(frame(BINARY, bytes(300)))
    client.ws.receive_eof()
    client.open()
    assert client.ws.dropped == 1


def test_client_fails_at_a_message_beyond_reason():
    for bit in range(30, 63):
        failed(b"\x82\x7f" + ((1 << bit) + 3).to_bytes(8, "big"), 1009)
    # The sum of fragments counts too.
    failed(frame(FIRST_BINARY, b"ab") + b"\x80\x7f" + ((1 << 30) - 2).to_bytes(8, "big"), 1009)


def test_client_fails_at_wrong_frames():
    # test_frames.py has every wrong first byte.
    for first in (0xC1, 0xA2, 0x91, 0x83, 0x8B, 0x09, 0x80):
        failed(bytes((first, 0)), 1002)
    for first in (TEXT, BINARY, CLOSE, PING, PONG):
        failed(bytes((first, 0x80, 1, 2, 3, 4)), 1002)
    for first in (CLOSE, PING, PONG):
        failed(bytes((first, 126, 0, 126)) + bytes(126), 1002)
        failed(bytes((first, 127)) + bytes(8), 1002)
    failed(b"\x82\x7f\x80" + bytes(7), 1002)
    failed(frame(FIRST_TEXT, b"a") + frame(TEXT, b"b"), 1002)
    failed(frame(FIRST_TEXT, b"a") + frame(FIRST_BINARY, b"b"), 1002)
    failed(frame(FIRST_TEXT, b"") + frame(FIRST_TEXT, b""), 1002)


def test_client_reads_what_comes_before_a_wrong_frame():
    client = opened().feed(frame(TEXT, b"good") + b"\xf1\x00")
    assert client.events == [(TEXT_EVENT, b"good")]
    assert client.ws.close_reason == "protocol error"


def test_client_fails_at_text_that_is_not_utf8():
    for bad in (
        b"\x80",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"ab\xff",
        b"\xe2\x82",
    ):
        failed(frame(TEXT, bad), 1007)
        failed(frame(FIRST_TEXT, bad[:1]) + frame(LAST, bad[1:]), 1007)
        failed(frame(TEXT, b"a" * 300 + bad), 1007)  # also in what would be thrown away
        client = opened().feed(frame(BINARY, bad))
        assert client.events == [(AUDIO, bad)]


def test_client_fails_at_the_first_wrong_byte():
    client = opened()
    client.feed(b"\x81\x05\xce\xba\xff")
    assert client.ws.close_code == 1007


# Control frames


def test_client_answers_each_ping_once():
    client = opened()
    for n in (0, 1, 125):
        client.feed(frame(PING, b"x" * n))
    assert client.frames() == [(PONG, b""), (PONG, b"x"), (PONG, b"x" * 125)]
    assert client.events == []


def test_client_answers_the_latest_ping_after_a_stall():
    client = opened()
    client.blocked = True
    client.feed(frame(PING, b"first") + frame(PING, b"second") + frame(PING, b"third"))
    client.blocked = False
    client.flush()
    assert client.frames() == [(PONG, b"first"), (PONG, b"third")]


def test_client_answers_a_ping_before_the_next_message():
    client = opened()
    length = client.ws.frame(2, b"audio", 5)
    client.keep(length, 3)
    client.blocked = True
    client.feed(frame(PING, b"now"))
    assert not client.ws.writable
    assert client.ws.frame(2, b"more!", 5) == 0
    client.blocked = False
    client.flush()
    assert client.frames() == [(BINARY, b"audio"), (PONG, b"now")]
    assert client.ws.writable
    assert client.send(2, b"more!")


def test_client_writes_out_a_half_sent_frame_byte_by_byte():
    client = opened()
    payload = Dice(1).bytes(200)
    length = client.ws.frame(1, payload, 200)
    client.keep(length, 0)
    while client.ws.out_n:
        assert not client.ws.writable
        client.wrote += bytes(client.ws.tx[client.ws.out_at : client.ws.out_at + 1])
        client.ws.sent(1)
    assert client.frames() == [(TEXT, payload)]
    assert client.ws.writable


def test_client_sends_a_long_message_in_pieces():
    client = opened(tx=130)  # pieces of 128 bytes
    for n in (128, 129, 131, 132, 255, 256, 257, 1000):
        payload = Dice(n).bytes(n)
        assert client.send(1, payload)
        assert client.take() == ([], [(TEXT, payload)]), n
        assert client.ws.writable
    assert len(client.ws.tx) == 144


def test_client_writes_out_a_long_message_byte_by_byte():
    client = opened(tx=128)
    payload = Dice(2).bytes(300)
    client.keep(client.ws.frame(1, payload, 300), 0)
    client.blocked = True
    client.feed(frame(PING, b"now"))
    client.ws.close(4000)
    while client.ws.out_n:
        assert not client.ws.writable
        client.wrote += bytes(client.ws.tx[client.ws.out_at : client.ws.out_at + 1])
        client.ws.sent(1)
    assert client.frames() == [(TEXT, payload), (PONG, b"now"), (CLOSE, b"\x0f\xa0")]


def test_client_drops_the_rest_of_a_long_message_with_the_connection():
    client = opened(tx=128)
    client.keep(client.ws.frame(1, bytes(300), 300), 5)
    client.ws.cannot_send()
    assert (client.ws.out_n, client.ws.rest) == (0, None)
    client.wrote = b""
    client.keep(client.open().ws.frame(1, bytes(300), 300), 5)
    client.ws.receive_eof()
    client.wrote = b""
    client.open()
    assert client.send(2, b"x")
    assert client.frames() == [(BINARY, b"x")]


def test_client_sends_masked_messages():
    client = opened(tx=300)
    for n in (0, 1, 2, 3, 4, 125, 126, 165, 300):  # test_frames.py has the longer ones
        payload = Dice(n).bytes(n)
        assert client.send(1 + n % 2, payload)
        assert client.take() == ([], [(BINARY if n % 2 else TEXT, payload)])


def test_client_refuses_to_send_what_is_not_there():
    client = opened()
    raises(ProtocolError, client.ws.frame, 2, bytes(10), 11)
    raises(ProtocolError, client.ws.frame, 2, bytes(10), -1)


# Closing


def test_client_echoes_a_close():
    for code in (
        1000,
        1001,
        1002,
        1003,
        1007,
        1008,
        1009,
        1010,
        1011,
        1012,
        1013,
        1014,
        3000,
        3999,
        4000,
        4401,
        4999,
    ):
        client = opened().feed(close(code, b"why"), 1)
        assert client.frames() == [(CLOSE, bytes((code >> 8, code & 255)))]
        assert (client.ws.close_code, client.ws.close_reason) == (code, "why")
        client.feed(frame(PING, b"x") + frame(TEXT, b"x") + close(1000))
        client.ws.receive_eof()
        assert (client.ws.close_code, client.ws.close_reason) == (code, "why")
        assert len(client.frames()) == 1
        assert client.events == []


def test_client_echoes_a_close_without_code():
    client = opened().feed(frame(CLOSE))
    assert client.frames() == [(CLOSE, b"")]
    assert (client.ws.close_code, client.ws.close_reason) == (1005, "closed")


def test_client_fails_at_a_wrong_close():
    failed(frame(CLOSE, b"\x03"), 1002)
    for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535):
        failed(close(code), 1002)
    failed(close(1000, b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80"), 1007)
    failed(close(1000, b"\xe2\x82"), 1007)


def test_client_closes():
    client = opened()
    client.ws.close(1000)
    client.flush()
    assert client.ws.closing
    assert not client.send(1, b"late")
    client.ws.close(1001)
    client.feed(frame(TEXT, b"unheard") + frame(PING, b"unanswered") + close(1000, b"bye"))
    assert client.frames() == [(CLOSE, b"\x03\xe8")]
    assert client.events == []
    assert (client.ws.close_code, client.ws.close_reason) == (1000, "bye")


def test_client_closes_after_what_is_half_sent():
    client = opened()
    length = client.ws.frame(1, b"last words", 10)
    client.keep(length, 7)
    client.blocked = True
    client.feed(frame(PING, b"p"))
    client.ws.close(4000)
    client.blocked = False
    client.flush()
    assert client.frames() == [(TEXT, b"last words"), (PONG, b"p"), (CLOSE, b"\x0f\xa0")]


def test_client_refuses_to_send_a_wrong_close_code():
    client = opened()
    for code in (0, 999, 1005, 1006, 1015, 2999, 5000):
        raises(ProtocolError, client.ws.close, code)
    assert client.wrote == b""
    assert client.ws.writable


def test_client_loses_the_connection():
    client = opened().feed(frame(TEXT, b"half")[:4])
    client.ws.receive_eof()
    assert (client.ws.close_code, client.ws.close_reason) == (1006, "eof")
    assert client.events == []
    assert not client.ws.writable


def test_client_that_cannot_send_still_reads():
    client = opened()
    client.ws.cannot_send()
    assert client.ws.want == 1
    assert not client.ws.writable
    assert client.ws.frame(2, b"x", 1) == 0
    client.feed(frame(TEXT, b"UNAUTHORIZED"))
    assert client.ws.want == 1, "a longer read could lose what it has"
    client.feed(frame(PING, b"p") + close(4401, b"who are you"))
    client.ws.receive_eof("reset")
    assert client.events == [(TEXT_EVENT, b"UNAUTHORIZED")]
    assert client.wrote == b""
    assert (client.ws.close_code, client.ws.close_reason) == (4401, "who are you")
    client = opened()
    client.ws.cannot_send()
    client.ws.receive_eof()
    assert (client.ws.close_code, client.ws.close_reason) == (1006, "reset")


def test_client_that_cannot_send_drops_what_waits():
    client = opened()
    client.keep(client.ws.frame(1, b"half", 4), 2)
    client.blocked = True
    client.feed(frame(PING, b"p"))
    client.ws.close(1000)
    client.ws.cannot_send()
    client.ws.sent(2)
    assert client.ws.out_n == 0


def test_client_starts_afresh():
    client = opened(rx=256)
    client.feed(frame(FIRST_TEXT, b"\xe2\x82") + b"\x80\x7e\x01")
    client.ws.receive_eof()
    stream, events, pongs = conversation()
    client.open()
    client.feed(stream)
    assert client.events == events
    assert client.frames() == pongs


# The rules of the house


def test_frames_allocate_nothing():
    if sys.implementation.name != "micropython":
        raise SkipTest("heap lock")
    client = opened(rx=256, chunk=512)
    ws = client.ws
    stream = (
        frame(BINARY, bytes(165)) + frame(PING, b"p") + frame(FIRST_TEXT, b"\xe2\x82") + frame(LAST, b"\xac")
    )
    ws.chunk[: len(stream)] = stream
    n = len(stream)
    audio = bytearray(165)
    client = None
    micropython.heap_lock()
    try:
        for _ in range(50):
            heard = 0
            event = ws.next_event(n)
            while True:
                heard += event
                if ws.out_n:
                    ws.sent(ws.out_n)
                if ws.want:
                    break
                event = ws.next_event(0)
            sent = ws.frame(2, audio, 165)
            ws.out_n = sent - 100
            ws.out_at = 100
            ws.sent(sent - 100)
    finally:
        micropython.heap_unlock()
    assert heard == AUDIO + CONTROL + TEXT_EVENT
    assert ws.n == 3
    assert sent == 173


def test_modules_do_no_io():
    folder = websocket.__file__.rpartition("/")[0]
    for name in ("websocket", "frames", "frames_plain", "upgrade", "url"):
        with open(folder + "/" + name + ".py") as file:
            for line in file:
                words = line.split()
                if words and words[0] in ("import", "from"):
                    assert words[1] in (
                        "array", "binascii", "hashlib", "micropython", "sys", "vrt", "vrt.errors", "vrt.links",
                        "vrt.links.frames", "vrt.links.frames_plain", "vrt.links.tls",
                    ), (name, line)  # fmt: skip
