import numpy as np
from vrt_host.harness import sentences
from vrt_host.harness.user import speech_edges


def test_sentences_are_all_recorded():
    files = {path.stem for path in sentences.FOLDER.glob("*.wav")}
    assert set(sentences.SENTENCES.values()) <= files


def test_sentences_are_loud_and_clear_and_have_no_long_silence():
    for text, sound in sentences.load().items():
        first, last = speech_edges(sound)
        assert np.abs(sound.astype(int)).max() > 8_000, text
        assert first < 0.1 * 16_000, text
        assert 0.2 * 16_000 < last - first < 4 * 16_000, text
