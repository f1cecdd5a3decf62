import json

from support import raises
from vrt.errors import ProtocolError
from vrt.protocol.stream import Streams


def outgoing(slots=4, size=200):
    return Streams(size, slots)


def restored(last):
    out = outgoing()
    out.reset(0, last)
    out.restored = True
    return out


def send_all(out):
    # Sends what waits, as one connection would; returns the seqs.
    seqs = []
    while out.next < len(out.kept):
        seqs.append(json.loads(out.kept[out.next])["seq"])
        out.advance()
    return seqs


def add(out, count):
    for _ in range(count):
        out.add({"type": "text", "text": "x"})


def test_outgoing_numbers_from_one_in_order():
    out = outgoing()
    add(out, 3)
    assert send_all(out) == [1, 2, 3]
    add(out, 1)
    assert send_all(out) == [4]
    assert out.free() == 0


def test_outgoing_ack_frees_slots_and_keeps_the_order():
    out = outgoing()
    add(out, 4)
    send_all(out)
    out.ack(2)
    assert out.free() == 2
    out.ack(2)  # again, and lower: nothing
    out.ack(1)
    assert out.free() == 2
    out.next = 0
    assert send_all(out) == [3, 4]


def test_outgoing_ack_beyond_the_last_means_everything_sent():
    out = outgoing()
    add(out, 2)
    send_all(out)
    add(out, 1)
    out.ack(4_000_000_000)
    assert out.free() == 3  # the third was not sent yet and stays
    assert send_all(out) == [3]


def test_outgoing_ack_while_half_is_resent():
    out = outgoing(8)
    add(out, 5)
    send_all(out)
    out.next = 0
    out.advance()  # 1 is out again
    out.ack(3)
    assert send_all(out) == [4, 5]


def test_outgoing_resume_sends_again_what_the_peer_lacks_before_anything_new():
    out = outgoing(8)
    add(out, 4)
    send_all(out)
    out.next = 0
    add(out, 1)
    assert out.resume(2)
    assert out.acked == 2
    assert send_all(out) == [3, 4, 5]


def test_outgoing_resume_fails_for_what_is_gone_or_was_never_sent():
    out = outgoing(8)
    add(out, 3)
    send_all(out)
    out.ack(2)
    assert not out.resume(1)  # 2 is gone
    assert not out.resume(4)  # never sent
    add(out, 1)
    assert not out.resume(4)  # numbered, but no connection has carried it
    assert out.resume(3)
    assert send_all(out) == [4]


def test_outgoing_restored_takes_the_peers_word_for_what_came_after():
    out = restored(5)
    assert not out.resume(4)  # 5 was given out and is not kept
    assert out.resume(7)  # two more were sent after the last note
    add(out, 1)
    assert send_all(out) == [8]
    out.next = 0
    assert not out.resume(9)  # from here on as ever


def test_outgoing_reset_forgets_everything():
    out = outgoing()
    add(out, 3)
    send_all(out)
    out.reset(0, 0)
    assert send_all(out) == []
    add(out, 1)
    assert send_all(out) == [1]


def test_outgoing_checks_the_size_before_it_numbers():
    out = outgoing(size=100)
    error = raises(ProtocolError, out.add, {"type": "text", "text": "x" * 100})
    assert "too large" in str(error)
    out.limit = 60
    error = raises(ProtocolError, out.add, {"type": "text", "text": "x" * 30})
    assert "of 60" in str(error)
    add(out, 1)
    assert send_all(out) == [1]


def test_outgoing_keeps_what_was_said_not_what_it_became():
    out = outgoing()
    message = {"type": "context", "context": {"a": 1}}
    out.add(message)
    message["context"]["a"] = 2
    assert json.loads(out.kept[0])["context"] == {"a": 1}


def test_outgoing_numbers_to_the_end_and_not_beyond():
    for last in (0x3FFFFFFE, 0x7FFFFFFE, 0xFFFFFFFE):
        out = restored(last)
        assert out.resume(last)
        add(out, 1)
        assert send_all(out) == [last + 1]
        out.ack(last + 1)
        assert out.free() == out.slots
    assert out.last == 0xFFFFFFFF


def test_incoming_takes_each_message_once():
    inbox = Streams(200, 4)
    assert inbox.take(1, 0)
    assert inbox.take(2, 0)
    assert not inbox.take(2, 0)
    assert not inbox.take(1, 0)
    assert inbox.handled == 2
    assert inbox.gaps == 0


def test_incoming_accepts_and_counts_a_gap():
    inbox = Streams(200, 4)
    inbox.take(1, 0)
    assert inbox.take(5, 0)
    assert inbox.gaps == 3
    assert not inbox.take(4, 0)  # what comes late after a gap is a duplicate


def test_incoming_acknowledges_in_time_for_250_ms():
    inbox = Streams(200, 4)
    assert not inbox.ack_due(10_000)
    inbox.take(1, 1000)
    inbox.take(2, 1170)
    assert not inbox.ack_due(1179)
    assert inbox.ack_due(1180)
    inbox.owed = 0
    assert not inbox.ack_due(60_000)
    inbox.take(2, 2000)  # a duplicate is acknowledged again
    assert inbox.ack_due(2250)


def test_incoming_acknowledges_after_32_messages():
    inbox = Streams(200, 4)
    for seq in range(1, 32):
        inbox.take(seq, 0)
    assert not inbox.ack_due(0)
    inbox.take(32, 0)
    assert inbox.ack_due(0)


def test_incoming_follows_seq_past_small_integers():
    inbox = Streams(200, 4)
    inbox.reset(0x3FFFFFFE, 0)
    for seq in (0x3FFFFFFF, 0x40000000, 0x40000001):
        assert inbox.take(seq, 0)
    inbox.reset(0xFFFFFFFE, 0)
    assert inbox.take(0xFFFFFFFF, 0)
    assert not inbox.take(0xFFFFFFFF, 0)
    assert inbox.gaps == 0


def test_long_messages_take_more_slots():
    streams = Streams(16384, 32)
    for size, slots in ((100, 1), (500, 2), (1000, 4), (1500, 6), (10_000, 8)):
        before = streams.free()
        streams.add({"type": "text", "text": "x" * (size - 50)})
        assert before - streams.free() == slots, size
    streams.sent = streams.last
    streams.ack(5)
    assert streams.free() == 32
