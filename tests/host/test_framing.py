"""The serial line: frames, and the host's side of a connection, also against the device's."""

import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vrt import links
from vrt.links.framing import Framing
from vrt.links.opening import question
from vrt_host.protocol import framing, wire
from vrt_host.protocol.framing import (
    AUDIO,
    CLOSE,
    OPEN,
    OPENED,
    PART,
    PING,
    PONG,
    TEXT,
    Decoder,
    Frame,
    HostSide,
    encode,
)

CASES = [
    pytest.param(case, id=case["id"])
    for path in sorted(wire.schema_folder().glob("examples/serial/*.json"))
    for case in json.loads(path.read_text("utf-8"))
]


def whole(found):
    return [one for one in found if isinstance(one, Frame)]


def taken(*pieces):
    decoder = Decoder()
    return whole([one for piece in pieces for one in decoder.feed(piece)]), decoder.noise


@pytest.mark.parametrize("case", CASES)
def test_vectors(case):
    data = bytes.fromhex(case["hex"])
    expected = [
        Frame(ord(one["kind"]), one["count"], bytes.fromhex(one["payload"])) for one in case["frames"]
    ]
    for cut in range(len(data)):
        assert taken(data[:cut], data[cut:]) == (expected, case["noise"])
    assert taken(*(data[at : at + 1] for at in range(len(data)))) == (expected, case["noise"])
    if not case["noise"]:
        for frame in expected:
            assert encode(*frame)[1:-1] in data


@given(st.sampled_from(sorted(framing.KINDS)), st.integers(0, 600), st.binary(max_size=400))
def test_frames_come_back(kind, count, payload):
    data = encode(kind, count, payload)
    assert not set(data[1:-1]) & {0, 1, 3, 4, 0xC0}
    assert taken(data) == ([Frame(kind, count & 255, payload)], 0)


@given(st.lists(st.binary(min_size=1, max_size=40)), st.data())
def test_decoder_takes_noise_apart_alike_however_it_is_cut(parts, data):
    stream = b"".join(parts) + b"\xc0" + encode(TEXT, 1, b"after") + b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert taken(*pieces) == taken(stream)
    assert Frame(TEXT, 1, b"after") in taken(stream)[0]


def test_decoder_notices_every_wrong_byte():
    data = encode(TEXT, 7, b'{"v":1,"seq":4,"type":"ack","upTo":3}')
    for at in range(1, len(data) - 1):
        for value in range(256):
            if value != data[at]:
                assert taken(data[:at] + bytes((value,)) + data[at + 1 :])[0] == [], (at, value)


def test_decoder_hands_out_what_is_printed_line_by_line():
    decoder = Decoder()
    assert decoder.feed(b"boot\nheap 2") == [b"boot\n"]
    assert decoder.feed(b"3000\n") == [b"heap 23000\n"]
    frame = encode(PING, 0)
    assert decoder.feed(b">>> " + frame) == [b">>> ", Frame(PING, 0, b"")]
    assert decoder.feed(b"x" * 600) == [b"x" * 256] * 2
    assert decoder.rest() == b"x" * 88
    assert decoder.rest() == b""


def test_decoder_keeps_no_more_than_a_frame_has():
    decoder = Decoder()
    found = decoder.feed(b"\xc0C" + b"z" * 300_000)
    assert len(b"".join(found)) > 299_000
    assert decoder.feed(b"\xc0" + encode(PING, 0))[-1] == Frame(PING, 0, b"")
    assert taken(encode(AUDIO, 0, bytes(framing.MAX_PAYLOAD)))[0][0].payload == bytes(framing.MAX_PAYLOAD)
    assert taken(encode(AUDIO, 0, bytes(framing.MAX_PAYLOAD + 1))) == ([], 1)


# The host's side


def asks(nonce="00c0ffee", window=1000, v=1):
    return encode(OPEN, 0, json.dumps({"v": v, "nonce": nonce, "window": window}).encode())


def connected(window=1000, max_message=4096):
    side = HostSide(max_message)
    side.receive_data(asks(window=window))
    assert [event.kind for event in side.events()] == ["open"]
    side.data_to_send()
    return side


def said(side):
    frames = whole(Decoder().feed(side.data_to_send()))
    return [(chr(frame.kind), frame.number, frame.payload) for frame in frames]


def happened(side):
    return [(event.kind, event.data) for event in side.events()]


def test_host_answers_a_device():
    side = HostSide(4096)
    assert not side.open
    side.receive_data(b"rst:0x1\r\n" + asks())
    assert happened(side) == [("noise", b"rst:0x1\r\n"), ("open", b"")]
    [(kind, count, payload)] = said(side)
    assert (kind, count) == ("Y", 0)
    assert json.loads(payload) == {"v": 1, "nonce": "00c0ffee", "window": framing.WINDOW}
    assert side.open
    side.receive_data(asks())
    assert happened(side) == [], "it asked twice before it heard the answer"
    assert [kind for kind, _, _ in said(side)] == ["Y"]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b'{"v":1}',
        b'{"v":2,"nonce":"00c0ffee","window":1000}',
        b'{"v":1,"nonce":"00C0FFEE","window":1000}',
        b'{"v":1,"nonce":7,"window":1000}',
        b'{"v":1,"nonce":"00c0ffee","window":63}',
        b'{"v":1,"nonce":"00c0ffee","window":true}',
        b"[" * 5000,
    ],
)
def test_host_does_not_open_for_what_it_does_not_understand(payload):
    side = HostSide(4096)
    side.receive_data(encode(OPEN, 0, payload))
    assert [event.kind for event in side.events()] == ["noise"]
    assert said(side) == []
    assert not side.open


def test_host_hears_messages():
    side = connected()
    side.receive_data(encode(TEXT, 0, b"one") + b"log\n" + encode(PART, 1, b"tw") + encode(PING, 2, b"\x09"))
    side.receive_data(encode(TEXT, 2, b"o") + encode(AUDIO, 3, b"\x01"))
    assert happened(side) == [
        ("text", b"one"),
        ("noise", b"log\n"),
        ("heard", b""),
        ("heard", b""),
        ("text", b"two"),
        ("audio", b"\x01"),
    ]
    assert said(side) == [("Q", 0, b"\x09")]


@pytest.mark.parametrize("kind", [TEXT, PART, AUDIO, PING])
def test_host_notices_a_lost_text_by_whatever_follows(kind):
    side = connected()
    side.receive_data(encode(TEXT, 0, b"one") + encode(kind, 2, b"three"))
    assert happened(side) == [("text", b"one"), ("lost", b"a control frame was lost")]
    assert said(side) == [("X", 0, b"\x03\xeea control frame was lost")]
    assert not side.open
    side.receive_data(encode(TEXT, 3, b"x"))
    assert happened(side) == said(side) == []


def test_host_has_a_new_connection_when_the_device_starts_again():
    side = connected()
    side.send_text(b"old")
    side.receive_data(encode(PART, 0, b"half"))
    side.events()
    side.data_to_send()
    side.receive_data(asks("deadbeef"))
    assert happened(side) == [("lost", b"the device has started again"), ("open", b"")]
    side.receive_data(encode(TEXT, 0, b"new"))
    assert happened(side) == [("text", b"new")]
    side.send_text(b"new")
    assert said(side)[1:] == [("C", 0, b"new")]


def test_host_says_that_there_is_no_connection_once_in_a_while():
    side = HostSide(4096)
    side.greet()
    assert said(side) == [("X", 0, b"\x03\xeeno connection")]
    answers = 0
    for _ in range(130):
        side.receive_data(encode(AUDIO, 9, b"x"))
        answers += len(said(side))
    assert answers == 3
    assert happened(side) == []
    side.receive_data(encode(CLOSE, 0, b"\x03\xeeno connection") + encode(OPENED, 0, b"{}"))
    assert said(side) == [], "an echo of its own is no reason to answer"


def test_host_is_closed():
    side = connected()
    side.receive_data(encode(CLOSE, 5, b"\x0f\xa0gone"))
    assert [(event.kind, event.data, event.code) for event in side.events()] == [("lost", b"gone", 4000)]
    assert said(side) == [("X", 0, b"\x0f\xa0gone")]


def test_host_asks_again():
    side = connected(window=100)
    side.send_text(b"x" * 60)
    side.send_text(b"y" * 60)
    first = said(side)[-1]
    side.ping()
    assert said(side) == []
    side.ping(again=True)
    second = said(side)[-1]
    assert (first[0], second[0]) == ("P", "P")
    side.receive_data(encode(PONG, 0, first[2]))
    assert side.asked
    side.receive_data(encode(PONG, 0, second[2]))
    assert said(side)[0][0] == "c"


def test_host_knows_that_a_text_may_be_lost_without_a_trace():
    side = connected()
    assert not side.loose
    side.send_audio(b"x")
    assert not side.loose
    side.send_text(b"x")
    assert side.loose
    side.ping()
    assert not side.loose


def test_host_closes_behind_what_it_said():
    side = connected(window=100)
    for number in range(4):
        side.send_text(b"number %d" % number * 3)
    side.close(4401, "x" * 200)
    assert not side.open
    side.receive_data(encode(TEXT, 0, b"late"))
    heard = said(side)
    while side.blocked:
        side.receive_data(encode(PONG, 0, bytes((side.asked,))))
        heard += said(side)
    assert [kind for kind, _, _ in heard if kind in "cCX"] == ["C", "C", "C", "C", "X"]
    assert heard[-1][2] == b"\x11\x31" + b"x" * 120
    assert not [event for event in side.events() if event.kind == "text"]
    side.receive_data(encode(CLOSE, 0, b"\x11\x31"))
    assert [event.kind for event in side.events()] == ["lost"]


def test_host_cuts():
    side = connected()
    side.cut()
    assert [event.kind for event in side.events()] == ["lost"]
    assert said(side) == [("X", 0, b"\x03\xeeno connection")]


def test_host_refuses():
    side = HostSide(4096)
    side.refusing = True
    side.receive_data(asks())
    assert side.waits
    assert said(side) == happened(side) == []


def test_host_loses_a_device_whose_message_is_too_large():
    side = connected(max_message=100)
    side.receive_data(encode(PART, 0, bytes(60)) + encode(TEXT, 1, bytes(41)))
    assert side.too_large
    assert [event.kind for event in side.events()] == ["heard", "lost"]
    assert said(side)[0][2][:2] == b"\x03\xf1"
    side.receive_data(asks("deadbeef"))
    assert not side.too_large


def test_host_loses_its_port():
    side = connected()
    side.receive_data(encode(TEXT, 0, b"one") + b"\xc0C")
    side.send_text(b"x")
    side.receive_eof()
    assert happened(side) == [("text", b"one"), ("noise", b"C"), ("lost", b"the port is gone")]
    assert side.data_to_send() == b""


@pytest.mark.parametrize("window", [64, 100, 256, 1000, 16384])
def test_host_goes_no_further_than_the_window(window):  # noqa: PLR0912  (a device of its own)
    dice = random.Random(window)
    side = connected(window=window)
    texts, audio = [], []
    read = ahead = since = 0
    heard, parts, sounds = [], b"", []
    for step in range(400):
        if step < 200:
            payload = dice.randbytes(dice.randrange(300))
            if dice.random() < 0.5:
                texts.append(payload)
                side.send_text(payload)
            else:
                payload = payload[: window // 2 - 30]
                audio.append(payload)
                side.send_audio(payload)
        for part in re.findall(rb"\xc0[^\xc0]+\xc0", side.data_to_send()):
            [frame] = whole(Decoder().feed(part))
            assert not ahead + since or ahead + since + len(part) <= window
            since += len(part)
            if frame.kind == PING:
                ahead, since, read = since, 0, read + 1
            elif frame.kind == AUDIO:
                sounds.append(frame.payload)
            else:
                parts += frame.payload
                if frame.kind == TEXT:
                    heard.append(parts)
                    parts = b""
        if side.asked and dice.random() < 0.7:
            side.receive_data(encode(PONG, 0, bytes((side.asked,))))
            ahead = 0
    while side.blocked:
        side.receive_data(encode(PONG, 0, bytes((side.asked,))))
        for frame in whole(Decoder().feed(side.data_to_send())):
            if frame.kind == AUDIO:
                sounds.append(frame.payload)
            elif frame.kind in (TEXT, PART):
                parts += frame.payload
                if frame.kind == TEXT:
                    heard.append(parts)
                    parts = b""
    assert heard == texts
    assert sounds == audio
    assert read > 0


# Both sides


class Device:
    """The firmware's framing on CPython, with what it hears."""

    def __init__(self, window=300):
        self.side = Framing(500, 120, 100)
        self.window = window
        self.heard = []
        self.ended = 0
        self.number = 0
        self.ask()

    def ask(self):
        self.number += 1
        self.side.reset()
        self.side.nonce = b"%08x" % self.number
        self.side.knock(question(self.side.nonce, self.window))

    def receive(self, data):
        side = self.side
        for at in range(0, len(data), 100):
            part = data[at : at + 100]
            side.chunk[: len(part)] = part
            n = len(part)
            while n or side.left():
                event = side.next_event(n)
                n = 0
                if event in (links.TEXT, links.AUDIO):
                    self.heard.append(bytes(side.rx[: side.n]))

    def say(self):
        side, out = self.side, b""
        while side.out_n:
            out += bytes(side.tx[side.out_at : side.out_at + side.out_n])
            side.sent(side.out_n)
        if side.lost:
            self.ended += 1
            self.ask()
        return out


@pytest.mark.parametrize("seed", range(20))
def test_both_sides_lose_nothing_without_noticing(seed):  # noqa: C901, PLR0912  (two sides and a line)
    """Over a line that damages bytes, what is heard of a connection is a beginning of what was said on it."""
    dice = random.Random(seed)
    device, host = Device(), HostSide(4096)
    said_down, said_up, heard_up = [[]], [[]], [[]]
    heard_down = [[]]
    for step in range(1500):
        damage = 0.0004 if step < 1200 else 0

        def spoil(data, damage=damage):
            return bytes(byte ^ 1 << dice.randrange(8) if dice.random() < damage else byte for byte in data)

        if heard_up[-1] and host.open and not host.blocked and dice.random() < 0.5:  # it never speaks first
            text = b"down %d" % step + dice.randbytes(dice.randrange(200))
            host.send_text(text)
            said_down[-1].append(text)
        text = b"up %d" % step + dice.randbytes(dice.randrange(300))
        if dice.random() < 0.5 and device.side.frame(1, text, len(text)):
            said_up[-1].append(text)
        ends = device.ended
        up = device.say()
        if device.ended != ends:
            said_up.append([])
            heard_down.append([])
        host.receive_data(spoil(up))
        for event in host.events():
            if event.kind == "text":
                heard_up[-1].append(event.data)
            elif event.kind == "open":
                said_down.append([])
                heard_up.append([])
        device.receive(spoil(host.data_to_send()))
        heard_down[-1] += device.heard
        device.heard = []
        if step % 10 == 0:  # what the clock does
            if host.asked:
                host.ping(again=True)
            if device.side.asked:
                device.side.ask()
            if not device.side.open_:
                device.side.knock(question(device.side.nonce, device.window))
    for heard, sent in ((heard_up, said_up), (heard_down, said_down)):
        texts = [one for lot in sent for one in lot]
        for lot in heard:
            if lot:
                at = texts.index(lot[0])
                assert texts[at : at + len(lot)] == lot
        assert sum(map(len, heard)) > 100
    assert device.ended > 3
