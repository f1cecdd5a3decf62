import asyncio
import sys
import types

import numpy as np
import pytest
from vrt_host.errors import UsageError
from vrt_host.sim.microphone import Microphone


class Stream:
    """Stands in for sounddevice's InputStream."""

    made = None

    def __init__(self, **options):
        Stream.made = self
        self.options = options
        self.calls = []

    def start(self):
        self.calls.append("start")

    def stop(self):
        self.calls.append("stop")

    def close(self):
        self.calls.append("close")


def package(stream):
    module = types.ModuleType("sounddevice")
    module.PortAudioError = type("PortAudioError", (Exception,), {})
    module.InputStream = stream(module) if isinstance(stream, types.FunctionType) else stream
    return module


async def test_microphone_hands_over_copies_on_the_event_loop(monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", package(Stream))
    heard = asyncio.Queue()
    with Microphone(heard.put_nowait):
        made = Stream.made
        assert made.options["samplerate"] == 16_000
        assert made.options["blocksize"] == 320
        block = np.full((320, 1), 7, np.int16)
        await asyncio.to_thread(made.options["callback"], block, 320, None, None)
        block[:] = 0  # the library uses its buffer again
        sound = await asyncio.wait_for(heard.get(), 5)
    assert sound.shape == (320,)
    assert set(sound.tolist()) == {7}
    assert made.calls == ["start", "stop", "close"]


async def test_microphone_says_which_package_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(UsageError, match=r"pip install sounddevice.*--say"):
        Microphone(print)


async def test_microphone_says_when_there_is_none(monkeypatch):
    def failing(module):
        def make(**options):
            raise module.PortAudioError("Error querying device -1")

        return make

    monkeypatch.setitem(sys.modules, "sounddevice", package(failing))
    with pytest.raises(UsageError, match=r"no usable microphone here \(Error querying device -1\)"):
        Microphone(print)


async def test_microphone_says_when_the_library_is_missing(monkeypatch, tmp_path):
    (tmp_path / "sounddevice.py").write_text("raise OSError('PortAudio library not found')")
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="PortAudio library not found; install PortAudio"):
        Microphone(print)
