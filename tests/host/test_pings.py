"""How far audio may run ahead."""

from vrt_host.links.pings import Pings


def test_audio_goes_two_pings_far_and_no_further():
    flow = Pings()
    assert not flow.due
    for turn in range(2):
        for _ in range(10):
            assert flow.admit(0.02)
        assert not flow.admit(0.02)
        assert flow.due == (turn == 0)
        if turn == 0:
            flow.asked()
            assert flow.waiting
    flow.answered()
    assert flow.due
    flow.asked()
    assert flow.admit(0.02)


def test_one_long_frame_is_let_through():
    flow = Pings()
    assert flow.admit(3.0)
    assert not flow.admit(0.01)
