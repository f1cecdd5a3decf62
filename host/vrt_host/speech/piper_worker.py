"""The Piper synthesiser, as a process: `python -m vrt_host.speech.piper_worker`. Piper is GPL; nothing imports this."""

from __future__ import annotations

import json
from collections.abc import Iterator

from vrt_host.speech import models
from vrt_host.speech.worker import serve

_USE = "the Piper voice"
_THREADS = 2


class Piper:
    """The voice "joe": a man, American English."""

    name = "piper (en_US-joe-medium)"

    def __init__(self) -> None:
        # Here, so that `serve` reports what is missing.
        import onnxruntime  # type: ignore[import-untyped]  # noqa: PLC0415
        from piper.config import PiperConfig, SynthesisConfig  # noqa: PLC0415
        from piper.voice import PiperVoice  # noqa: PLC0415

        with models.locate(models.PIPER_CONFIG, use=_USE).open(encoding="utf-8") as file:
            config = PiperConfig.from_dict(json.load(file))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = _THREADS, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = onnxruntime.InferenceSession(
            str(models.locate(models.PIPER_VOICE, use=_USE)), options, providers=["CPUExecutionProvider"]
        )
        self._voice = PiperVoice(session=session, config=config)
        self._synthesis = SynthesisConfig(volume=0.7)  # full scale would clip when it is resampled
        self.rate = config.sample_rate

    def say(self, text: str) -> Iterator[bytes]:
        for chunk in self._voice.synthesize(text, self._synthesis):
            yield chunk.audio_int16_bytes

    def phonemes(self, word: str) -> str:
        return "".join(phoneme for sentence in self._voice.phonemize(word) for phoneme in sentence)


if __name__ == "__main__":
    serve(Piper)
