"""speech/vad.py and speech/listener.py: where speech begins, pauses and ends."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest
from vrt_host.errors import UsageError
from vrt_host.speech import models
from vrt_host.speech.listener import (
    AGREED_MS,
    COMPLETE_MS,
    LONGEST_MS,
    OPEN_MS,
    PAUSE_MS,
    End,
    Guess,
    Listener,
    Onset,
    Pause,
)
from vrt_host.speech.vad import RATE, WINDOW, WINDOW_MS, Activity, Silero, SileroModel

SPEECH = Path(__file__).parents[1] / "speech"


@pytest.fixture(scope="module")
def silero():
    return SileroModel()


def recording(name: str) -> np.ndarray:
    with wave.open(str(SPEECH / "voices" / name)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def noise(seconds: float, rms: float, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(int(seconds * RATE)) * rms).astype(np.float32)


# --- the detector


def test_silero_finds_speech_between_noises(silero):
    sentence = next(
        one for one in json.loads((SPEECH / "corpus.json").read_text()) if one["kind"] == "command"
    )
    speech = recording(sentence["file"])
    samples = np.concatenate(
        [noise(1, 0.003), speech + noise(len(speech) / RATE, 0.003, 1)[: len(speech)], noise(1, 0.003, 2)]
    )
    probable = np.array(Silero(silero).feed(samples))
    time = (np.arange(len(probable)) + 1) * WINDOW / RATE
    begin, end = 1 + sentence["start_ms"] / 1000, 1 + sentence["end_ms"] / 1000
    assert probable[time < begin].max() < 0.35
    assert probable[(time > begin + 0.2) & (time < end - 0.2)].min() > 0.5
    assert probable[time > end + 0.15].max() < 0.35


def test_silero_gives_the_same_however_the_stream_is_cut(silero):
    samples = recording("joe--unlock-the-back-door.wav")
    whole = Silero(silero).feed(samples)
    stream = Silero(silero)
    parts = [one for at in range(0, len(samples), 317) for one in stream.feed(samples[at : at + 317])]
    assert len(whole) == len(samples) // WINDOW
    assert parts == pytest.approx(whole, abs=1e-4)
    stream.reset()
    assert stream.feed(samples) == pytest.approx(whole, abs=1e-4)


def test_silero_takes_nothing_for_nothing(silero):
    assert list(Silero(silero).feed(np.zeros(0, np.float32))) == []


# --- the models' files


def test_model_that_is_not_installed_names_what_to_install():
    with pytest.raises(
        UsageError, match=r"hearing needs the package 'no_such_package'.*pip install 'vrt-edge\[local\]'"
    ):
        models.locate(models.Model("no_such_package", "x", ""), use="hearing")


def test_model_that_was_changed_is_refused():
    changed = models.Model(models.SILERO.package, models.SILERO.path, "0" * 64)
    with pytest.raises(UsageError, match="not the file we know"):
        models.locate(changed, use="hearing")


def test_model_that_is_missing_in_its_package_is_named():
    with pytest.raises(UsageError, match=r"has no data/other\.onnx"):
        models.locate(models.Model(models.SILERO.package, "data/other.onnx", ""), use="hearing")


# --- speech and silence


def test_activity_begins_with_two_windows_in_a_row():
    activity = Activity()
    assert [activity.push(p) for p in (0.9, 0.1, 0.9, 0.4, 0.6)] == [False] * 5
    assert activity.push(0.6)
    assert activity.speaking
    assert activity.voiced_ms == 2 * WINDOW_MS


def test_activity_has_hysteresis():
    activity = Activity()
    for p in (0.9, 0.9, 0.4):
        activity.push(p)
    assert activity.silence_ms == 0  # weak speech goes on
    activity.push(0.3)
    activity.push(0.4)
    assert activity.silence_ms == 2 * WINDOW_MS  # but does not start again
    activity.push(0.5)
    assert activity.silence_ms == 0
    assert activity.voiced_ms == 4 * WINDOW_MS


# --- utterances


class FakeVad:
    """Speech is what is loud."""

    def __init__(self) -> None:
        self.pending = np.zeros(0, np.float32)

    def feed(self, samples: np.ndarray) -> list[float]:
        self.pending = np.concatenate([self.pending, samples])
        count = len(self.pending) // WINDOW
        windows, self.pending = self.pending[: count * WINDOW], self.pending[count * WINDOW :]
        return [float(window.max() > 0.1) for window in windows.reshape(count, WINDOW)]

    def reset(self) -> None:
        self.pending = self.pending[:0]


class FakeGrammar:
    """Hears what the test says, and remembers what it was fed."""

    def __init__(self) -> None:
        self.text = ""
        self.fed: list[np.ndarray] = []
        self.begun = self.learnt = 0

    def begin(self, lead: np.ndarray, learn: bool = False, more: bool = False) -> None:
        self.begun += 1
        self.more = more
        self.learnt += learn
        self.fed = [lead]

    def feed(self, samples: np.ndarray) -> None:
        self.fed.append(samples)

    def partial(self) -> str:
        return self.text

    def finish(self) -> str:
        return self.text


@pytest.fixture
def grammar():
    return FakeGrammar()


@pytest.fixture
def listener(grammar):
    return Listener(FakeVad(), grammar, lambda text: text.endswith("!"))


def loud(ms: int) -> np.ndarray:
    return np.full(ms * RATE // 1000, 0.5, np.float32)


def quiet(ms: int) -> np.ndarray:
    return np.zeros(ms * RATE // 1000, np.float32)


def windows(ms: int) -> int:
    """`ms`, rounded to whole windows."""
    return ms // WINDOW_MS * WINDOW_MS


def test_listener_hands_the_audio_before_the_onset_to_the_grammar(listener, grammar):
    lead = np.arange(30 * WINDOW, dtype=np.float32) / RATE / 100
    events = listener.feed(np.concatenate([lead, loud(2 * WINDOW_MS), quiet(WINDOW_MS)]))
    assert events == [Onset()]
    assert grammar.begun == 1
    assert np.array_equal(grammar.fed[0][: 9 * WINDOW], lead[-9 * WINDOW :])
    assert np.array_equal(
        grammar.fed[0][9 * WINDOW :], np.concatenate([loud(2 * WINDOW_MS), quiet(WINDOW_MS)])
    )


def test_listener_begins_the_grammar_when_it_can_tell_how_loud_the_user_is(listener, grammar):
    listener.feed(loud(160))
    assert grammar.begun == 0
    listener.feed(loud(WINDOW_MS))
    assert grammar.begun == 1
    assert sum(map(len, grammar.fed)) == 192 * 16
    listener.feed(loud(WINDOW_MS))
    assert sum(map(len, grammar.fed)) == 224 * 16


def test_listener_lets_the_grammar_learn_from_what_was_understood(listener, grammar):
    sentence = np.concatenate([loud(640), quiet(1500)])
    listener.feed(sentence)
    listener.understood = True
    listener.feed(sentence)
    assert grammar.learnt == 1
    listener.feed(sentence)
    assert (grammar.begun, grammar.learnt) == (3, 1)


@pytest.mark.parametrize(
    ("understood", "apart", "more"), [(True, 1000, True), (True, 2500, False), (False, 1000, False)]
)
def test_listener_lets_a_sentence_go_on_after_a_pause(listener, grammar, understood, apart, more):
    listener.feed(np.concatenate([loud(640), quiet(windows(OPEN_MS))]))
    listener.feed(quiet(2 * WINDOW_MS))
    assert not listener.speaking
    listener.understood = understood
    listener.feed(np.concatenate([quiet(apart), loud(640)]))
    assert (grammar.begun, grammar.more) == (2, more)


def test_listener_ends_an_open_sentence_late(listener, grammar):
    grammar.text = "turn on"
    assert listener.feed(loud(640)) == [Onset()]
    assert listener.feed(quiet(windows(OPEN_MS) - WINDOW_MS)) == []
    (end,) = listener.feed(quiet(2 * WINDOW_MS))
    assert isinstance(end, End)
    assert (end.grammar, end.pause, end.voiced_ms) == ("turn on", None, 640)
    assert not listener.speaking


def test_listener_guesses_before_the_pause_and_once(listener, grammar):
    grammar.text = "turn on!"
    events = listener.feed(loud(640))
    assert events == [Onset(), Guess("turn on!")]
    grammar.text = "turn on it!"
    assert listener.feed(loud(320)) == [Guess("turn on it!")]


def test_listener_hands_out_a_whole_sentence_at_its_pause(listener, grammar):
    grammar.text = "turn on!"
    listener.feed(loud(640))
    assert listener.feed(quiet(PAUSE_MS - WINDOW_MS)) == []
    (pause,) = listener.feed(quiet(WINDOW_MS))
    assert isinstance(pause, Pause)
    assert pause.grammar == "turn on!"
    assert len(pause.audio) == 640 * 16 + PAUSE_MS * 16
    assert listener.feed(quiet(windows(COMPLETE_MS) - PAUSE_MS)) == []
    (end,) = listener.feed(quiet(WINDOW_MS))
    assert end.pause == pause.number
    assert end.grammar == "turn on!"


def test_listener_ends_early_what_both_recognisers_heard(listener, grammar):
    grammar.text = "turn on!"
    listener.feed(loud(640))
    (pause,) = listener.feed(quiet(PAUSE_MS))
    assert listener.confirm(pause.number) == []  # not yet: the user may go on
    assert listener.feed(quiet(AGREED_MS - PAUSE_MS - WINDOW_MS)) == []
    (end,) = listener.feed(quiet(WINDOW_MS))
    assert end.pause == pause.number


def test_listener_ends_at_once_when_the_word_comes_late(listener, grammar):
    grammar.text = "turn on!"
    listener.feed(loud(640))
    (pause,) = listener.feed(quiet(PAUSE_MS))
    assert listener.feed(quiet(AGREED_MS - PAUSE_MS)) == []
    (end,) = listener.confirm(pause.number)
    assert isinstance(end, End)
    assert listener.confirm(pause.number) == []


def test_listener_forgets_the_pause_when_the_user_goes_on(listener, grammar):
    grammar.text = "turn on!"
    listener.feed(loud(640))
    (first,) = listener.feed(quiet(PAUSE_MS))
    listener.feed(loud(320))
    assert listener.confirm(first.number) == []
    (second,) = listener.feed(quiet(AGREED_MS))
    assert second.number == first.number + 1
    assert listener.confirm(first.number) == []
    assert isinstance(listener.confirm(second.number)[0], End)


def test_listener_waits_for_the_grammar_that_lags(listener, grammar):
    grammar.text = "turn"
    listener.feed(loud(640))
    assert listener.feed(quiet(PAUSE_MS + WINDOW_MS)) == []
    grammar.text = "turn on!"
    assert isinstance(listener.feed(quiet(WINDOW_MS))[0], Pause)


def test_listener_caps_an_utterance_and_then_waits_for_silence(listener, grammar):
    events = listener.feed(loud(LONGEST_MS + 3000))
    assert [type(event) for event in events] == [Onset, End]
    assert len(events[1].audio) / 16 <= LONGEST_MS + WINDOW_MS
    assert listener.feed(loud(2000)) == []  # it never paused: not for us
    listener.feed(quiet(100))
    assert listener.feed(loud(200))[0] == Onset()


def test_listener_ends_when_the_microphone_is_switched_off(listener, grammar):
    grammar.text = "turn on"
    assert listener.stall() == []
    listener.feed(loud(640))
    (end,) = listener.stall()
    assert end.voiced_ms == 640
    assert listener.stall() == []


def test_listener_gives_the_same_however_the_stream_is_cut(grammar):
    samples = np.concatenate(
        [quiet(500), loud(700), quiet(150), loud(400), quiet(1500), loud(300), quiet(1000)]
    )
    seen = []
    for size in (WINDOW, 317, 160, len(samples)):
        listener = Listener(FakeVad(), grammar, lambda text: False)
        events = [
            event for at in range(0, len(samples), size) for event in listener.feed(samples[at : at + size])
        ]
        seen.append(
            [
                (type(event), getattr(event, "voiced_ms", 0), len(getattr(event, "audio", ())))
                for event in events
            ]
        )
    assert seen[0] == seen[1] == seen[2] == seen[3]
    assert [kind for kind, *_ in seen[0]] == [Onset, End, Onset, End]
