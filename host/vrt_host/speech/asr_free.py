"""The free recogniser: Moonshine tiny (English), run on the whole utterance once it pauses.

It writes whatever was said, so it is the one that refuses what is no command. The model's files are used directly;
the package's own code is not.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
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

_Cache = dict[str, NDArray[np.float32]]


class Moonshine:
    """Loaded once in a process; `transcribe` may run in several threads at once."""

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
        self._cached = [out.name.replace("present", "past_key_values") for out in self._decoder.get_outputs()[1:]]
        self._vocabulary = _read_vocabulary(models.locate(models.MOONSHINE_TOKENS, use=_USE))
        self._ids = {token: index for index, token in enumerate(self._vocabulary)}

    def transcribe(self, samples: Samples, draft: str = "") -> str:
        """What was said, with case and punctuation; empty for silence. Blocks for about 80 ms.

        `draft` is a guess of the answer. It changes nothing but the time: the decoder checks all of it in one step
        and goes on by itself from the first token that it would have written otherwise.
        """
        if len(samples) < _MIN_SAMPLES:
            samples = np.pad(samples, (0, _MIN_SAMPLES - len(samples)))
        audio = samples[None, :]
        mask = np.ones(audio.shape, np.int64)
        (states,) = self._encoder.run(None, {"input_values": audio, "attention_mask": mask})
        fixed = {"encoder_hidden_states": states, "encoder_attention_mask": mask}
        limit = 2 + int(len(samples) / RATE * _TOKENS_PER_SECOND)

        ids = [_BEGIN, *self._encode(draft)][:limit]
        chosen, cache = self._step(fixed, ids, _empty_cache())
        agreed = 0
        while agreed < len(ids) - 1 and chosen[agreed] == ids[agreed + 1]:
            agreed += 1
        ids = [*ids[: agreed + 1], int(chosen[agreed])]
        cache = {name: kept[:, :, : agreed + 1] if ".decoder." in name else kept for name, kept in cache.items()}
        while ids[-1] != _END and len(ids) < limit:
            chosen, cache = self._step(fixed, ids[-1:], cache)
            ids.append(int(chosen[-1]))
        text = b"".join(self._vocabulary[index] for index in ids if index > _END)
        return text.decode("utf-8", "replace").replace(_SPACE, " ").strip()

    def _step(
        self, fixed: dict[str, NDArray[np.generic]], ids: list[int], cache: _Cache
    ) -> tuple[NDArray[np.int64], _Cache]:
        """Feed tokens; the likeliest next one after each of them, and the cache that holds them."""
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
        return logits[0].argmax(axis=1), fresh

    def _encode(self, text: str) -> list[int]:
        """Tokens of a text, longest first; a text that the vocabulary cannot spell gives none."""
        rest = (_SPACE + text.replace(" ", _SPACE)).encode() if text else b""
        ids = []
        while rest:
            for size in range(min(len(rest), 24), 0, -1):
                index = self._ids.get(rest[:size])
                if index is not None:
                    ids.append(index)
                    rest = rest[size:]
                    break
            else:
                return []
        return ids


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
