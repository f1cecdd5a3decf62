"""The laptop's microphone as the simulated board's, through the optional package `sounddevice`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import numpy as np

from vrt_host.errors import UsageError
from vrt_host.sim.wav import MIC_RATE, Samples

_OTHERWISE = "or speak through --say TEXT or --wav FILE"


class Microphone:
    """Calls `sink` on the event loop with 20 ms of 16 kHz sound at a time. Use as a context manager."""

    def __init__(self, sink: Callable[[Samples], object]) -> None:
        """Raises `UsageError`, in one line, when there is no package, no library or no microphone."""
        try:
            import sounddevice  # type: ignore[import-untyped]  # noqa: PLC0415  (optional)
        except ImportError:
            raise UsageError(
                f"--mic needs the package sounddevice: `pip install sounddevice`, {_OTHERWISE}"
            ) from None
        except OSError as error:  # the wheel for Linux comes without the library
            raise UsageError(
                f"--mic: {error}; install PortAudio (Debian, Ubuntu: `apt install libportaudio2`), {_OTHERWISE}"
            ) from None
        loop = asyncio.get_running_loop()

        def hear(block: Any, _frames: int, _time: object, _status: object) -> None:
            sound = np.array(block[:, 0], np.int16)
            loop.call_soon_threadsafe(sink, sound)

        try:
            self._stream = sounddevice.InputStream(
                samplerate=MIC_RATE, channels=1, dtype="int16", blocksize=MIC_RATE // 50, callback=hear
            )
        except (sounddevice.PortAudioError, ValueError) as error:
            raise UsageError(f"--mic: no usable microphone here ({error}); {_OTHERWISE}") from None

    def __enter__(self) -> Self:
        self._stream.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.stop()
        self._stream.close()
