"""Output audio: frames, items and the speaker's clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vrt_host.agents.base import PCM16_24K, PCMU, Format
from vrt_host.playout import Item, Playout

SILK_20_MS, SILK_60_MS, CELT_2_5_MS = 1 << 3, 3 << 3, 28 << 3
"""First bytes of Opus packets of one frame (RFC 6716 §3.1)."""


class Recorder:
    """A session's audio side. `linked` False: no link; a new link has no item open."""

    def __init__(self):
        self.starts = []
        self.frames = []
        self.linked = True
        self.open = False

    def start_audio(self, item_id, epoch, turn_id):
        if not self.linked:
            return False
        self.starts.append((item_id, epoch, turn_id))
        self.open = True
        return True

    def send_audio(self, payload):
        if not self.linked or not self.open:
            return False
        self.frames.append(payload)
        return True


def make(format_=PCMU, buffer_s=0.6, **options):
    out = Recorder()
    return out, Playout(out, format_, buffer_s=buffer_s, **options)


def item(key="i"):
    return Item(key, "turn", 7)


@given(st.lists(st.binary(max_size=400), max_size=20))
def test_payloads_of_any_length_come_out_as_frames_of_20_ms(payloads):
    out, playout = make(buffer_s=1000)
    one = item()
    playout.begin(one)
    for payload in payloads:
        playout.push(one, payload)
    playout.end(one)
    playout.pump(0.0)
    assert b"".join(out.frames) == b"".join(payloads)
    assert all(len(frame) == 160 for frame in out.frames[:-1])


def test_half_a_sample_at_the_end_is_dropped():
    out, playout = make(PCM16_24K)
    one = item()
    playout.begin(one)
    playout.push(one, bytes(961))
    playout.end(one)
    playout.pump(0.0)
    assert [len(frame) for frame in out.frames] == [960]


def test_whole_frames_stay_whole_and_in_order():
    out, playout = make()
    one = item()
    playout.begin(one)
    playout.push(one, b"a" * 50)
    playout.push(one, b"b" * 333, whole=True)
    playout.push(one, b"c" * 7, whole=True)
    playout.push(one, b"", whole=True)
    playout.pump(0.0)
    assert out.frames == [b"a" * 50, b"b" * 333, b"c" * 7]


def test_frames_are_cut_to_what_the_device_takes_in_whole_samples():
    out, playout = make(PCM16_24K, frame_limit=101)
    one = item()
    playout.begin(one)
    playout.push(one, bytes(300))
    playout.push(one, bytes(150), whole=True)
    playout.pump(0.0)
    assert [len(frame) for frame in out.frames] == [100, 100, 100, 100]


def test_opus_packets_are_never_cut_and_too_large_ones_not_sent():
    out, playout = make(Format("opus", 48_000), frame_limit=100)
    one = item()
    playout.begin(one)
    for size in (30, 101, 100):
        playout.push(one, bytes((SILK_20_MS,)).ljust(size, b"x"))
    playout.pump(0.0)
    assert [len(frame) for frame in out.frames] == [30, 100]
    assert playout.due == pytest.approx(0.04)
    assert playout.dropped == 1


def test_what_is_no_opus_packet_is_not_sent():
    out, playout = make(Format("opus", 48_000))
    one = item()
    playout.begin(one)
    for packet in (b"", b"\x03", b"\x03\x00"):  # the second lacks its count of frames, the third has none
        playout.push(one, packet)
    playout.pump(0.0)
    assert (out.frames, playout.dropped, playout.due) == ([], 3, 0.0)


def test_opus_packets_are_paced_by_their_own_length():
    out, playout = make(Format("opus", 48_000), buffer_s=0.1)
    one = item()
    playout.begin(one)
    for toc in (CELT_2_5_MS, SILK_60_MS, SILK_60_MS, SILK_20_MS):
        playout.push(one, bytes((toc, 1)))
    assert playout.queued_s == pytest.approx(0.1425)
    playout.pump(0.0)
    assert len(out.frames) == 2
    assert playout.due == pytest.approx(0.0625)
    assert playout.deadline(0.0) == pytest.approx(0.0225)
    playout.pump(0.0225)
    assert len(out.frames) == 3


def test_opus_packet_longer_than_the_buffer_goes_out_when_nothing_else_is_due():
    out, playout = make(Format("opus", 48_000), buffer_s=0.04)
    one = item()
    playout.begin(one)
    for _ in range(2):
        playout.push(one, bytes((SILK_60_MS,)))
    playout.pump(0.0)
    assert len(out.frames) == 1
    assert playout.deadline(0.0) == pytest.approx(0.06)
    playout.pump(0.06)
    assert len(out.frames) == 2


def test_clock_is_one_for_items_in_a_row():
    out, playout = make()
    first, second = item("a"), item("b")
    playout.begin(first)
    playout.push(first, bytes(4800))  # 600 ms
    playout.begin(second)
    playout.push(second, bytes(1600))
    playout.pump(0.0)
    assert len(out.frames) == 30
    assert first.ended
    playout.pump(0.1)
    assert len(out.frames) == 35
    assert [start[0] for start in out.starts] == [first.id, second.id]
    assert first.played(0.3) == pytest.approx(0.3)
    assert second.played(0.3) == 0.0
    assert second.played(0.65) == pytest.approx(0.05)


def test_pause_of_the_agent_is_a_pause_of_the_speaker():
    _, playout = make()
    one = item()
    playout.begin(one)
    playout.push(one, bytes(160))
    playout.pump(0.0)
    playout.push(one, bytes(160))
    playout.pump(5.0)
    assert playout.due == pytest.approx(5.02)
    assert one.played(5.01) == pytest.approx(0.03)


def test_never_more_than_the_buffer_is_in_flight():
    out, playout = make(buffer_s=0.1)
    one = item()
    playout.begin(one)
    playout.push(one, bytes(8000))
    now, sent = 0.0, []
    while playout.deadline(now) is not None:
        playout.pump(now)
        sent.append((now, len(out.frames) * 0.02))
        now = max(now, playout.deadline(now) or now)
    assert len(out.frames) == 50
    assert all(seconds - at <= 0.1 + 1e-6 for at, seconds in sent)
    assert now == pytest.approx(0.9, abs=0.01)


def test_buffer_smaller_than_a_frame_still_plays():
    out, playout = make(buffer_s=0.001)
    one = item()
    playout.begin(one)
    playout.push(one, bytes(320))
    playout.pump(0.0)
    assert len(out.frames) == 1
    playout.pump(playout.deadline(0.0))
    assert len(out.frames) == 2


def test_rest_of_an_item_goes_on_under_a_new_id_on_a_new_link():
    out, playout = make(buffer_s=0.04)
    one = item()
    playout.begin(one)
    playout.push(one, bytes(800))
    playout.pump(0.0)
    out.linked = out.open = False
    playout.pump(1.0)
    assert playout.held
    assert playout.deadline(1.0) is None
    out.linked = True
    playout.pump(2.0)
    assert len(out.frames) == 4
    assert len({start[0] for start in out.starts}) == 2
    assert [segment.sent for segment in one.segments] == pytest.approx([0.04, 0.04])


def test_link_that_changes_between_two_frames_is_announced_to_again():
    out, playout = make(buffer_s=0.04)
    one = item()
    playout.begin(one)
    playout.push(one, bytes(800))
    playout.pump(0.0)
    out.open = False  # another link, and nobody said so
    playout.pump(0.05)
    assert len(out.starts) == 2
    assert len(out.frames) == 4


def test_item_announced_without_a_frame_leaves_no_trace():
    out, playout = make(admit=lambda seconds: False)
    one = item()
    playout.begin(one)
    playout.push(one, bytes(160))
    playout.pump(0.0)
    out.open = False
    playout.clear(0.0)
    assert one.played(1.0) == 0.0
    assert not playout.busy(1.0)


def test_clear_forgets_what_waits_and_what_is_due():
    out, playout = make()
    one = item()
    playout.begin(one)
    playout.push(one, bytes(80_000))
    playout.pump(0.0)
    playout.clear(0.1)
    assert (playout.queued_s, playout.empty, playout.busy(0.1)) == (0.0, True, False)
    playout.pump(9.0)
    assert len(out.frames) == 30
