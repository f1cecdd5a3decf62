"""Recognisers, synthesisers and voice activity detectors by name, each behind one small interface.

| | recogniser | synthesiser |
|---|---|---|
| offline | `moonshine` | `piper`, `espeak` |
| a Wyoming server | `wyoming` | `wyoming` |
| an endpoint of OpenAI's dialect | `openai` | `openai` |

The offline ones are loaded once in a process, by `load`, and shared by all sessions.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from vrt_host.agents.provider import ProviderError
from vrt_host.errors import UsageError
from vrt_host.speech import models, tts
from vrt_host.speech.codec import Samples
from vrt_host.speech.loudness import Loudness
from vrt_host.speech.vad import RATE, Silero, SileroModel, Vad

RecogniserName = Literal["moonshine", "wyoming", "openai"]
SynthesiserName = Literal["piper", "espeak", "wyoming", "openai", "none"]
VadName = Literal["silero", "loudness"]

Sound = AsyncIterator[tuple[int, Samples]]
"""(rate in Hz, the next samples)."""

_BETWEEN_CLAUSES_S = 0.05
_BETWEEN_SENTENCES_S = 0.2
_T = TypeVar("_T")


class Utterance(Protocol):
    """One utterance being recognised."""

    def feed(self, samples: Samples) -> None:
        """The next samples at 16 kHz."""

    async def text(self) -> str:
        """It has ended: what was said, empty for nothing. Raises `ProviderError`."""

    def cancel(self) -> None:
        """It is of no use any more."""


@dataclass(frozen=True, slots=True)
class Recogniser:
    """Makes an `Utterance` for each; `check` raises `ProviderError` when that would be in vain."""

    utterance: Callable[[], Utterance]
    check: Callable[[], Awaitable[None]] | None = None
    close: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class Synthesiser:
    """Speaks clauses: `speak(text)` raises `ProviderError`."""

    speak: Callable[[str], Sound]
    check: Callable[[], Awaitable[None]] | None = None
    close: Callable[[], Awaitable[None]] | None = None


class Collected:
    """An utterance for a recogniser that wants it whole."""

    def __init__(self, transcribe: Callable[[Samples], Awaitable[str]]) -> None:
        self._transcribe = transcribe
        self._samples: list[Samples] = []

    def feed(self, samples: Samples) -> None:
        self._samples.append(samples)

    async def text(self) -> str:
        return await self._transcribe(np.concatenate(self._samples))

    def cancel(self) -> None:
        self._samples.clear()


# --- what is loaded once

_lock = threading.Lock()
_loaded: dict[str, Any] = {}
_WORKERS = 2


def _once(name: str, make: Callable[[], _T]) -> _T:
    with _lock:
        if name not in _loaded:
            _loaded[name] = make()
        made: _T = _loaded[name]
        return made


def load(name: str) -> None:
    """Load what the part of that name shares between sessions. Blocks for seconds; raises `UsageError`."""
    if name == "moonshine":
        _moonshine()
    elif name in _WORKER_MODULES:
        _voice(name)
    elif name == "silero":
        _silero()


def _silero() -> SileroModel:
    return _once("silero", SileroModel)


def _moonshine() -> Any:
    def make() -> Any:
        try:
            from vrt_host.speech.asr_free import Moonshine  # noqa: PLC0415  (it needs onnxruntime)
        except ModuleNotFoundError as error:
            raise UsageError(f"the recogniser moonshine needs {error.name}: {models.INSTALL}") from None
        made = Moonshine()
        # The first run of a network is three times as slow as the others.
        made.transcribe(np.random.default_rng(0).standard_normal(RATE, np.float32) * np.float32(0.01))
        return made

    return _once("moonshine", make)


_WORKER_MODULES = {"piper": tts.PIPER, "espeak": tts.ESPEAK}


def _voice(name: str) -> tts.VoiceProcess:
    def make() -> tts.VoiceProcess:
        try:
            return tts.VoiceProcess(_WORKER_MODULES[name])
        except tts.SpeechError as error:
            raise UsageError(f"the synthesiser {name} does not start ({error}): {models.INSTALL}") from None

    return _once(name, make)


def threads(name: str, count: int = _WORKERS) -> ThreadPoolExecutor:
    """The threads of the process for work of one kind."""
    return _once(f"threads {name}", lambda: ThreadPoolExecutor(count, f"vrt-{name}"))


# --- by name


def vad(name: VadName) -> Vad:
    """A detector for one stream; raises `UsageError`."""
    return Silero(_silero()) if name == "silero" else Loudness()


def recogniser(
    name: RecogniserName, *, url: str, key: str, model: str | None, language: str | None, timeout_s: float
) -> Recogniser:
    """For one session, on its event loop; raises `UsageError`. `url` and what follows is for servers."""
    if name == "wyoming":
        module = _wyoming()
        server = module.Wyoming(url, "asr", timeout_s)
        return Recogniser(lambda: module.WyomingUtterance(server, model, language), server.check)
    if name == "openai":
        from vrt_host.speech import openai_api  # noqa: PLC0415

        client = openai_api.client(url, key, timeout_s)
        endpoint = openai_api.Transcriptions(client, model or "whisper-1", language)
        return Recogniser(lambda: Collected(endpoint.transcribe), close=client.close)
    moonshine = _moonshine()

    async def transcribe(samples: Samples) -> str:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(threads("recognise"), moonshine.transcribe, samples)
        return str(found.text)

    return Recogniser(lambda: Collected(transcribe))


def synthesiser(
    name: SynthesiserName, *, url: str, key: str, model: str | None, voice: str | None, timeout_s: float
) -> Synthesiser | None:
    """For one session, on its event loop; None for `none`. Raises `UsageError`."""
    if name == "none":
        return None
    if name == "wyoming":
        module = _wyoming()
        server = module.Wyoming(url, "tts", timeout_s)
        return Synthesiser(module.WyomingVoice(server, voice).speak, server.check)
    if name == "openai":
        from vrt_host.speech import openai_api  # noqa: PLC0415

        client = openai_api.client(url, key, timeout_s)
        return Synthesiser(
            openai_api.SpeechEndpoint(client, model or "gpt-4o-mini-tts", voice or "alloy").speak,
            close=client.close,
        )
    return Synthesiser(lambda text: _spoken(_voice(name), text))


async def _spoken(voice: tts.VoiceProcess, text: str) -> Sound:
    """By an offline voice, whose clauses have no silence around them."""
    loop = asyncio.get_running_loop()
    try:
        samples = await loop.run_in_executor(threads("speak", 1), voice.render, text)
    except tts.SpeechError as error:
        raise ProviderError("refused", str(error), advice="see the lines before this one") from error
    pause = _BETWEEN_SENTENCES_S if text.rstrip()[-1:] in ".!?" else _BETWEEN_CLAUSES_S
    yield voice.rate, np.pad(samples, (0, int(pause * voice.rate)))


def _wyoming() -> Any:
    try:
        from vrt_host.speech import wyoming  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UsageError(
            f'a Wyoming server needs the package {error.name!r}: pip install "vrt-edge[chat]"'
        ) from None
    return wyoming
