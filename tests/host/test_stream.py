"""The numbered streams: what is kept and resent, what is new, what is owed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vrt_host.protocol.stream import Inbox, Outbox


def outbox(count, messages=1024, octets=10**6):
    box = Outbox(messages, octets)
    for number in range(1, count + 1):
        box.keep(f"m{number}")
    return box


def test_outbox_numbers_from_1_and_returns_what_comes_after():
    box = outbox(3)
    assert box.last == 3
    assert box.after(0) == ["m1", "m2", "m3"]
    assert box.after(2) == ["m3"]
    assert box.after(3) == []


def test_outbox_knows_nothing_of_what_was_never_sent():
    assert outbox(3).after(4) is None
    assert outbox(0).after(0) == []
    assert outbox(0).after(1) is None


def test_outbox_forgets_what_is_acknowledged():
    box = outbox(5)
    box.acknowledge(3)
    assert box.after(3) == ["m4", "m5"]
    assert box.after(2) is None
    box.acknowledge(1)  # an old acknowledgement changes nothing
    assert box.after(3) == ["m4", "m5"]


@pytest.mark.parametrize("up_to", [5, 6, 4294967295])
def test_outbox_takes_an_acknowledgement_beyond_the_last_as_everything(up_to):
    box = outbox(5)
    box.acknowledge(up_to)
    assert box.after(5) == []
    assert box.after(4) is None
    box.keep("m6")
    assert box.after(5) == ["m6"]


def test_outbox_discards_the_oldest_beyond_its_messages():
    box = outbox(1030, messages=1024)
    assert box.discarded == 6
    assert box.after(5) is None
    assert len(box.after(6)) == 1024


def test_outbox_discards_the_oldest_beyond_its_bytes():
    box = Outbox(1024, 10)
    for frame in ("12345", "ü€", "1"):  # 5, 5 and 1 bytes
        box.keep(frame)
    assert box.after(1) == ["ü€", "1"]
    assert box.after(0) is None
    box.acknowledge(2)
    box.keep("123456789")
    assert box.after(2) == ["1", "123456789"]
    box.keep("x" * 11)
    assert box.after(4) is None
    assert box.after(5) == []


def test_outbox_is_exhausted_after_the_last_number():
    box = Outbox(4, 100)
    box.last = 4294967294
    assert not box.exhausted
    box.keep("the last")
    assert box.exhausted
    assert box.after(4294967294) == ["the last"]


def test_outbox_holds_nothing_when_cleared():
    box = outbox(3)
    box.clear()
    assert box.after(3) == []
    assert box.after(2) is None


@given(st.lists(st.one_of(st.just("keep"), st.integers(0, 60)), max_size=60), st.integers(1, 20))
def test_outbox_agrees_with_a_plain_list(steps, messages):
    box = Outbox(messages, 10**6)
    sent = []
    first = 1  # the first number still kept
    for step in steps:
        if step == "keep":
            sent.append(f"m{len(sent) + 1}")
            box.keep(sent[-1])
            first = max(first, len(sent) - messages + 1)
        else:
            box.acknowledge(step)
            first = max(first, min(step, len(sent)) + 1)
        for seq in range(len(sent) + 2):
            expected = sent[seq:] if first - 1 <= seq <= len(sent) else None
            assert box.after(seq) == expected


def test_inbox_takes_each_number_once():
    box = Inbox(0.25, 32)
    assert box.take(1, 0)
    assert box.take(2, 0)
    assert not box.take(2, 0)
    assert not box.take(1, 0)
    assert (box.last, box.duplicates, box.missing) == (2, 2, 0)


def test_inbox_accepts_and_counts_a_gap():
    box = Inbox(0.25, 32)
    assert box.take(4, 0)
    assert not box.take(3, 0)
    assert box.take(4294967295, 0)
    assert (box.last, box.missing) == (4294967295, 3 + 4294967290)


def test_inbox_owes_nothing_at_first_and_after_acknowledging():
    box = Inbox(0.25, 32)
    assert box.due_at is None
    box.take(1, 10.0)
    box.acknowledged()
    assert box.due_at is None


def test_inbox_owes_within_the_delay_from_the_first():
    box = Inbox(0.25, 32)
    box.take(1, 10.0)
    box.take(2, 10.2)
    assert box.due_at == 10.25
    box.acknowledged()
    box.take(3, 11.0)
    assert box.due_at == 11.25


def test_inbox_owes_at_once_after_so_many():
    box = Inbox(0.25, 3)
    box.take(1, 0)
    box.take(2, 0)
    assert box.due_at == 0.25
    box.take(3, 0)
    assert box.due_at == float("-inf")


def test_inbox_owes_at_once_after_a_duplicate():
    box = Inbox(0.25, 32)
    box.take(1, 0)
    box.acknowledged()
    box.take(1, 5.0)
    assert box.due_at == float("-inf")
    box.acknowledged()
    assert box.due_at is None
