"""Speech synthesis: text to samples, by a process of its own.

`Voice` is the interface; `VoiceProcess` the one implementation, which runs a worker module (`worker.py` gives the
protocol). The synthesisers we know are GPL and stay outside of this process for good.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from vrt_host.errors import VrtError
from vrt_host.speech import models
from vrt_host.speech.codec import Samples, from_pcm16

log = logging.getLogger(__name__)

PIPER = "vrt_host.speech.piper_worker"
ESPEAK = "vrt_host.speech.espeak_worker"

_START_S = 60.0
_ANSWER_S = 20.0
"""A worker that says nothing for so long hangs and is ended."""
_SILENT = 0.005
"""Full scale 1.0: what is softer at the ends of a text is cut off."""
_LEAD_S, _TAIL_S = 0.01, 0.08
_FIRST_CHARS = 30
"""About 1.6 s: a first clause of this length is rendered in 80 ms."""
_CLAUSE_CHARS = 120
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=\S)")
_CLAUSE_END = re.compile(r"(?<=[,;:])\s+(?=\S)|\s+(?=(?:and|but|because|which|so|then)\s)")


class SpeechError(VrtError):
    """The voice does not work; the answer has to go without it."""


class Voice(Protocol):
    """Turns text into speech. Blocks, and may be called from any thread."""

    name: str
    rate: int

    def render(self, text: str) -> Samples:
        """A clause, spoken, at `rate`, without silence around it; raises `SpeechError`."""

    def phonemes(self, word: str) -> str:
        """The word in IPA; empty when it cannot be said."""

    def close(self) -> None:
        """Free everything."""


class VoiceProcess:
    """A worker, started by the constructor and again by the next request when it has died."""

    def __init__(self, module: str, *, start_s: float = _START_S, answer_s: float = _ANSWER_S) -> None:
        """Start `module`; raises `SpeechError` with its reason when it cannot work."""
        self._module = module
        self._start_s, self._answer_s = start_s, answer_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        with self._lock:
            ready = self._start()
        self.name = str(ready["ready"])
        self.rate = int(ready["rate"])
        atexit.register(self.close)

    def render(self, text: str) -> Samples:
        with self._lock:
            self._ask({"say": text})
            pcm = []
            while not (answer := self._answer(self._answer_s)).get("end"):
                pcm.append(self._read(int(answer["audio"])))
        return trimmed(from_pcm16(np.frombuffer(b"".join(pcm), "<i2")), self.rate)

    def phonemes(self, word: str) -> str:
        with self._lock:
            self._ask({"phonemes": word})
            return str(self._answer(self._answer_s)["ipa"])

    def close(self) -> None:
        atexit.unregister(self.close)
        self._closed = True
        self._end()  # without the lock: a request in another thread then fails at once

    def _start(self) -> dict[str, Any]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal is for the host, also while the worker only loads
        )
        try:
            return self._answer(self._start_s)
        except SpeechError:
            self._end()
            raise

    def _ask(self, request: dict[str, str]) -> None:
        if self._closed:
            raise SpeechError(f"{self._module} was closed")
        if self._process is None:
            log.warning("%s has ended; it is started again", self._module)
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._lost() from error

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        process = self._process
        if process is None:
            raise SpeechError(f"{self._module} was closed")
        assert process.stdout is not None
        guard = threading.Timer(
            timeout_s, process.kill
        )  # a pipe has no timeout: the end of its writer is one
        guard.daemon = True
        guard.start()
        try:
            line = process.stdout.readline()
        finally:
            guard.cancel()
        if not line.endswith(b"\n"):
            raise self._lost()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SpeechError(f"{self._module}: {answer['error']}")
        return answer

    def _read(self, count: int) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        data = self._process.stdout.read(count)
        if len(data) < count:
            raise self._lost()
        return data

    def _lost(self) -> SpeechError:
        self._end()
        return SpeechError(f"{self._module} ended unexpectedly")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # what was still to be written has no reader
                        pipe.close()


def open_voice(modules: Sequence[str] = (PIPER, ESPEAK)) -> Voice | None:
    """The first of these synthesisers that works. A poorer one, or none at all, is said in the log, with the reason."""
    reasons = []
    for module in modules:
        try:
            voice = VoiceProcess(module)
        except SpeechError as error:
            reasons.append(str(error))
            continue
        if reasons:
            log.warning(
                "the voice is %s, a poorer one (%s); %s", voice.name, "; ".join(reasons), models.INSTALL
            )
        else:
            log.info("the voice is %s", voice.name)
        return voice
    log.warning("there is no voice, answers are text (%s); %s", "; ".join(reasons), models.INSTALL)
    return None


def trimmed(samples: Samples, rate: int) -> Samples:
    """Without the silence before and after, which would be heard as slowness."""
    loud = np.flatnonzero(np.abs(samples) > _SILENT)
    if not len(loud):
        return samples[:0]
    return samples[max(0, loud[0] - int(_LEAD_S * rate)) : loud[-1] + int(_TAIL_S * rate)]


def clauses(text: str) -> list[str]:
    """The text in pieces to be rendered one after the other, the first of them short: it is what the user waits for."""
    pieces: list[str] = []
    for sentence in _SENTENCE_END.split(text.strip()):
        limit = _CLAUSE_CHARS if pieces else _FIRST_CHARS
        piece = ""
        for part in _CLAUSE_END.split(sentence):
            if piece and len(piece) + 1 + len(part) > limit:
                pieces.append(piece)
                piece, limit = part, _CLAUSE_CHARS
            else:
                piece = f"{piece} {part}" if piece else part
        if piece:
            pieces.append(piece)
    return pieces
