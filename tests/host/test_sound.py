import numpy as np
import pytest
from vrt_host.harness import sound
from vrt_host.sim.hardware import Hardware


@pytest.fixture
def hardware():
    made = Hardware()
    made._origin = 1_000.0
    return made


def first_and_last(samples):
    loud = np.flatnonzero(np.abs(samples) > 4_000)
    return loud[0] / sound.RATE, (loud[-1] + 1) / sound.RATE


def test_sound_puts_both_sides_at_their_times(hardware):
    hardware.microphone.append(0.5, np.full(16_000, 8_000, np.int16).tobytes())
    hardware.speaker.append(2.0, np.full(12_000, 9_000, np.int16).tobytes())
    user, speaker = sound.conversation(
        hardware, 999.0, 5.0
    )  # the recorder began a second before the hardware
    assert len(user) == len(speaker) == 5 * sound.RATE
    assert first_and_last(user) == pytest.approx((1.5, 2.5), abs=0.002)
    assert first_and_last(speaker) == pytest.approx((3.0, 3.5))


def test_sound_cuts_what_is_outside(hardware):
    hardware.speaker.append(0.0, np.full(48_000, 9_000, np.int16).tobytes())
    _, speaker = sound.conversation(hardware, 1_000.5, 1.0)
    assert len(speaker) == sound.RATE
    assert speaker.min() == 9_000


def test_sound_of_a_board_that_never_started_is_silence(hardware):
    user, speaker = sound.conversation(hardware, 1_000.0, 0.1)
    assert not user.any()
    assert not speaker.any()
    assert len(sound.conversation(hardware, 1_000.0, 0.0)[0]) == 0
