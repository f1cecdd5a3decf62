"""The free recogniser: Moonshine tiny (English), run on the whole utterance once it pauses.

It writes whatever was said, so it is the one that refuses what is no command. The model's files are used directly;
the package's own code is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from numpy.typing import NDArray

from vrt_host.errors import UsageError
from vrt_host.speech import models
from vrt_host.speech.codec import Samples
from vrt_host.speech.vad import RATE

_USE = "speech recognition"
_LAYERS, _HEADS, _DEPTH = 6, 8, 36
_BEGIN, _END = 1, 2
_SPACE = "\u2581"  # how the vocabulary writes the blank before a word
_TOKENS_PER_SECOND = 6.5
"""Speech is slower than this; a decoder that runs on is looping (the model's authors give the same bound)."""
_MIN_SAMPLES = RATE // 4
_THREADS = 2

_STOPS = (b".", b",", b"?", b"!")
NEAR = 2.0
"""Measured: `docs/local.md`."""
_MOST_NEAR = 4
"""Of them at one place."""

_Cache = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Transcription:
    """What was said."""

    text: str
    """With case and punctuation; empty for silence."""
    against: float = math.inf
    """How much less likely the draft is than the text: the logarithm of the ratio, 0 when they are the same words."""
    others: tuple[str, ...] = ()
    """The draft with another beginning of a word where that is nearly as likely: by `NEAR`, a logarithm."""


class FreeRecogniser(Protocol):
    """Recognises anything. One object serves all streams, from any thread."""

    def transcribe(self, samples: Samples, draft: str = "") -> Transcription:
        """The text of a whole utterance at 16 kHz. Blocks.

        `draft` is a guess of it. The text must not depend on the draft, `against` does.
        """


class Moonshine:
    """Loaded once in a process. 80 ms for a command, half of that when the draft is right."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = _THREADS, 1
        # Threads that spin between two tokens would take the second core from the synthesiser.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._encoder, self._decoder = (
            onnxruntime.InferenceSession(
                str(models.locate(model, use=_USE)), options, providers=["CPUExecutionProvider"]
            )
            for model in (models.MOONSHINE_ENCODER, models.MOONSHINE_DECODER)
        )
        self._cached = [
            out.name.replace("present", "past_key_values") for out in self._decoder.get_outputs()[1:]
        ]
        self._vocabulary = _read_vocabulary(models.locate(models.MOONSHINE_TOKENS, use=_USE))
        self._ids = {token: index for index, token in enumerate(self._vocabulary)}

    def transcribe(self, samples: Samples, draft: str = "") -> Transcription:
        if len(samples) < _MIN_SAMPLES:
            samples = np.pad(samples, (0, _MIN_SAMPLES - len(samples)))
        audio = samples[None, :]
        mask = np.ones(audio.shape, np.int64)
        (states,) = self._encoder.run(None, {"input_values": audio, "attention_mask": mask})
        fixed = {"encoder_hidden_states": states, "encoder_attention_mask": mask}
        limit = 2 + int(len(samples) / RATE * _TOKENS_PER_SECOND)

        # The decoder checks a whole draft in one step. It is quantised, so that what is fed together leaks into each
        # other's last digits: only a draft that is right to its last word is kept.
        words = self._encode(draft[:1].upper() + draft[1:])[: limit - 2]
        ids = [_BEGIN, *words]
        likely, cache = self._step(fixed, ids, _empty_cache())
        of_draft = float(sum(likely[place, token] for place, token in enumerate(words)))
        others = self._others(words, likely)
        if words and list(likely[:-1].argmax(axis=1)) != words:
            ids = ids[:1]
            likely, cache = self._step(fixed, ids, _empty_cache())
        chances = [float(likely[place, token]) for place, token in enumerate(ids[1:])]
        while True:
            ids.append(int(likely[-1].argmax()))
            chances.append(float(likely[-1, ids[-1]]))
            if ids[-1] == _END or len(ids) >= limit:
                break
            likely, cache = self._step(fixed, ids[-1:], cache)
        of_text = sum(chance for index, chance in zip(ids[1:], chances, strict=True) if self._is_word(index))
        return Transcription(
            self._decode(ids),
            max(0.0, of_text - of_draft) if words else math.inf,
            others,
        )

    def _others(self, words: list[int], likely: NDArray[np.float32]) -> tuple[str, ...]:
        found = []
        for place, token in enumerate(words):
            near = np.argpartition(likely[place], -_MOST_NEAR)[-_MOST_NEAR:]
            rest = place + 1
            while rest < len(words) and not self._vocabulary[words[rest]].startswith(_SPACE.encode()):
                rest += 1
            found += [
                self._decode([*words[:place], int(other), *words[rest:]])
                for other in near
                if other != token
                and self._is_word(int(other))
                and likely[place, other] > likely[place, token] - NEAR
            ]
        return tuple(found)

    def _decode(self, ids: list[int]) -> str:
        text = b"".join(self._vocabulary[index] for index in ids if index > _END)
        return text.decode("utf-8", "replace").replace(_SPACE, " ").strip()

    def _is_word(self, index: int) -> bool:
        return index > _END and self._vocabulary[index] not in _STOPS

    def _step(
        self, fixed: dict[str, NDArray[np.generic]], ids: list[int], cache: _Cache
    ) -> tuple[NDArray[np.float32], _Cache]:
        """Feed tokens; the log probability of every next token after each of them, and the cache that holds them."""
        filled = cache[self._cached[0]].shape[2] > 0
        logits, *present = self._decoder.run(
            None,
            {
                **fixed,
                **cache,
                "input_ids": np.array([ids], np.int64),
                "use_cache_branch": np.array([filled]),
            },
        )
        fresh = dict(zip(self._cached, present, strict=True))
        if filled:  # this branch of the network leaves the encoder's share empty
            fresh = {name: cache[name] if ".encoder." in name else value for name, value in fresh.items()}
        scores = logits[0] - logits[0].max(axis=1, keepdims=True)
        return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)), fresh

    def _encode(self, text: str) -> list[int]:
        """Tokens of a text: neighbours are joined, oldest join first, which is the order of the vocabulary."""
        if not text:
            return []
        parts = [char.encode() for char in _SPACE + text.replace(" ", _SPACE)]
        while True:
            joins = [
                (self._ids[pair], place)
                for place in range(len(parts) - 1)
                if (pair := parts[place] + parts[place + 1]) in self._ids
            ]
            if not joins:
                break
            place = min(joins)[1]
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return [self._ids[part] for part in parts] if all(part in self._ids for part in parts) else []


def _empty_cache() -> _Cache:
    nothing = np.zeros((1, _HEADS, 0, _DEPTH), np.float32)
    return {
        f"past_key_values.{layer}.{part}.{kind}": nothing
        for layer in range(_LAYERS)
        for part in ("decoder", "encoder")
        for kind in ("key", "value")
    }


def _read_vocabulary(path: Path) -> list[bytes]:
    """Tokens in order, each with its length before it (one byte, or two from 128 on: low seven bits first)."""
    data = path.read_bytes()
    tokens = []
    at = 0
    try:
        while at < len(data):
            size, at = data[at], at + 1
            if size >= 128:
                size, at = size - 128 + data[at] * 128, at + 1
            tokens.append(data[at : at + size])
            at += size
    except IndexError:
        raise UsageError(f"{path} ends in the middle of a token; reinstall it: {models.INSTALL}") from None
    return tokens
