import numpy as np
import pytest
from vrt_host.errors import UsageError
from vrt_host.sim import say, wav
from vrt_host.sim.say import Utterance
from vrt_host.speech.tts import SpeechError


class Beeper:
    """A voice: 0.1 s of tone for each word, nothing for what has none."""

    name = "beeper"
    rate = 22_050

    def __init__(self):
        self.said = []
        self.closed = False

    def render(self, text):
        self.said.append(text)
        if "broken" in text:
            raise SpeechError("the worker ended")
        count = 0 if text.startswith("?") else len(text.split())
        return (0.1 * np.sin(np.arange(int(count * 0.1 * self.rate)) / 8)).astype(np.float32)

    def close(self):
        self.closed = True


def test_say_speaks_texts_at_the_microphones_rate():
    voice = Beeper()
    made = say.speak(["unlock it", "really?"], lambda: voice)
    assert voice.said == ["unlock it.", "really?"]
    assert voice.closed
    assert made["unlock it"].dtype == np.int16
    assert len(made["unlock it"]) == pytest.approx(3_200, abs=2)
    assert np.abs(made["unlock it"]).max() == pytest.approx(16_384, rel=0.05)


def test_say_keeps_the_order_of_texts_and_files(tmp_path):
    path = tmp_path / "a.wav"
    wav.save(path, np.full(500, 7, np.int16), 16_000)
    made = say.sounds(
        [Utterance(text="one"), Utterance(wav=path, at=1.0), Utterance(text="one two")], voices=Beeper
    )
    assert [len(sound) for sound in made] == pytest.approx([1_600, 500, 3_200], abs=2)


def test_say_needs_no_voice_for_files_alone(tmp_path):
    path = tmp_path / "a.wav"
    wav.save(path, np.full(500, 7, np.int16), 16_000)
    assert len(say.sounds([Utterance(wav=path)], voices=lambda: pytest.fail("a voice was started"))) == 1
    assert say.sounds([]) == []


@pytest.mark.parametrize(
    ("text", "voices", "reason"),
    [
        ("hello", lambda: None, "needs a voice.*vrt-edge.*--wav"),
        ("broken", Beeper, "the worker ended.*--wav"),
        ("?", Beeper, "cannot say it"),
    ],
)
def test_say_tells_in_one_line_what_to_do_without_sound(text, voices, reason):
    with pytest.raises(UsageError, match=reason) as caught:
        say.speak([text], voices)
    assert "\n" not in str(caught.value)
