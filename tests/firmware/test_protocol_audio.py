import json

from support import SkipTest
from vrt.protocol.session import Session

EXAMPLES = (__file__.rsplit("/", 1)[0] if "/" in __file__ else ".") + "/../../schema/examples/binary/"


def session():
    return Session(64, None, None, 4, 15_000)


def takes(one, buf, n):
    # Whether the session counts it as a frame, whether or not it plays it.
    before = one.invalid
    one.receive_audio(buf, n)
    return one.invalid == before


def frame(kind, seq, payload=b""):
    return bytearray(bytes([kind]) + bytes([seq >> shift & 0xFF for shift in (24, 16, 8, 0)]) + payload)


def test_sender_numbers_frames_from_zero():
    sender = session()
    out = bytearray(b"......payload")
    for seq in range(300):
        sender.number(out)
        assert out == frame(1, seq) + b".payload", seq


def test_sender_counts_past_small_integers_and_wraps():
    sender = session()
    out = bytearray(5)
    for start, follows in (
        (0x3FFFFFFF, 0x40000000),
        (0x7FFFFFFF, 0x80000000),
        (0xFFFFFFFF, 0),
        (0x00FFFFFF, 0x01000000),
    ):
        sender.seq[:] = frame(1, start)[1:5]
        sender.number(out)
        assert out == frame(1, start)
        sender.number(out)
        assert out == frame(1, follows)


def test_receiver_takes_output_frames_only():
    receiver = session()
    assert takes(receiver, frame(2, 0, b"x"), 6)
    assert takes(receiver, frame(2, 1), 5)  # an empty payload is valid
    for bad in (b"", b"\x02", b"\x02\0\0\0", frame(1, 0, b"x"), frame(0, 0), frame(3, 0), frame(0xFF, 0)):
        assert not takes(receiver, bad, len(bad))
    assert receiver.invalid == 7


def test_receiver_looks_at_no_more_than_the_length_says():
    assert not takes(session(), frame(2, 0, b"stale"), 4)


def test_receiver_counts_missing_frames():
    receiver = session()
    for seq in (10, 11, 15, 16):
        receiver.receive_audio(frame(2, seq), 5)
    assert receiver.missing == 3


def test_receiver_follows_the_wrap():
    receiver = session()
    for seq in (0x1FFFFFFE, 0x1FFFFFFF, 0x20000000, 0x3FFFFFFF, 0x40000000):
        receiver.receive_audio(frame(2, seq), 5)
    receiver = session()
    for seq in (0xFFFFFFFE, 0xFFFFFFFF, 0, 1):
        assert takes(receiver, frame(2, seq), 5)
    assert receiver.missing == 0


def test_receiver_does_not_count_a_new_beginning_as_loss():
    receiver = session()
    receiver.receive_audio(frame(2, 500), 5)
    receiver.receive_audio(frame(2, 0), 5)
    assert receiver.missing == 0
    receiver.opened(0)
    receiver.receive_audio(frame(2, 90), 5)
    assert receiver.missing == 0


def vectors(name):
    try:
        with open(EXAMPLES + name) as file:
            return json.load(file)
    except OSError:
        raise SkipTest("no file system with schema/examples/binary") from None


def test_vectors_of_output_frames():
    for case in vectors("output.json"):
        data = bytes.fromhex(case["hex"])
        assert takes(session(), data, len(data)) == (case["expect"] == "valid"), case["id"]


def test_vectors_of_input_frames():
    count = 0
    for case in vectors("input.json"):
        if case["expect"] == "valid":
            frame = bytearray(5) + bytes.fromhex(case["payload"])
            sender = session()
            sender.seq[:] = case["seq"].to_bytes(4, "big")
            sender.number(frame)
            assert frame == bytes.fromhex(case["hex"]), case["id"]
            count += 1
    assert count > 2
