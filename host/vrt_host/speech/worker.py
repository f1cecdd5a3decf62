"""What the synthesiser processes have in common: the protocol on their standard input and output.

The synthesisers are GPL, so each runs as a process of its own, started by `tts.py`; this module is all that they
share with the host. Requests are lines of JSON on standard input, one at a time:

    {"say": TEXT}        answered by {"audio": N} and N bytes of 16-bit mono PCM, any number of times, then {"end": true}
    {"phonemes": WORD}   answered by {"ipa": TEXT}

Any request may be answered by {"error": TEXT} instead. The first line, sent unasked, is {"ready": NAME, "rate": HZ} or
{"error": TEXT}. The process ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol


class Synthesiser(Protocol):
    """What a worker runs."""

    name: str
    rate: int

    def say(self, text: str) -> Iterator[bytes]:
        """16-bit little-endian PCM, as it becomes ready."""

    def phonemes(self, word: str) -> str:
        """The word in IPA."""


def serve(make: Callable[[], Synthesiser]) -> None:
    """Load a synthesiser and answer requests until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the host, whose end closes standard input
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    try:
        synthesiser = make()
    except Exception as error:  # whatever is wrong with a foreign package, the host names it
        _send(out, {"error": f"{type(error).__name__}: {error}"})
        return
    _send(out, {"ready": synthesiser.name, "rate": synthesiser.rate})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            if "say" in request:
                for pcm in synthesiser.say(request["say"]):
                    _send(out, {"audio": len(pcm)}, pcm)
                _send(out, {"end": True})
            else:
                _send(out, {"ipa": synthesiser.phonemes(request["phonemes"])})
        except Exception as error:
            _send(out, {"error": f"{type(error).__name__}: {error}"})


def _send(out: BinaryIO, header: dict[str, object], data: bytes = b"") -> None:
    out.write(json.dumps(header).encode() + b"\n" + data)
    out.flush()
