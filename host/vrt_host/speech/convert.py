"""One stream of audio payloads from one format to another: decode, convert the rate, encode (vRT §8.2)."""

from __future__ import annotations

from vrt_host.speech import opus
from vrt_host.speech.codec import Samples, codec
from vrt_host.speech.resample import Resampler


class Converter:
    """Keeps a stream's state; what comes out is in step with what went in, a few milliseconds held back until `end`."""

    def __init__(self, source: tuple[str, int], target: tuple[str, int]) -> None:
        """Formats as (encoding, sample rate); raises `UsageError` when one is Opus and there is no libopus."""
        (from_, rate_in), (to, rate_out) = source, target
        if from_ == "opus":
            rate_in = opus.rate_for(rate_out)
        if to == "opus":
            rate_out = opus.rate_for(rate_in)
        self._decoder = opus.Decoder(rate_in) if from_ == "opus" else codec(from_)
        self._encoder = opus.Encoder(rate_out) if to == "opus" else codec(to)
        self._resampler = Resampler(rate_in, rate_out)

    @property
    def faults(self) -> int:
        """Packets that could not be decoded and became silence of their length."""
        return self._decoder.faults if isinstance(self._decoder, opus.Decoder) else 0

    def feed(self, payload: bytes) -> list[bytes]:
        """What the next payload brings, in payloads of any length (packets: one each), none of them empty."""
        return self._encode(self._resampler.process(self._decoder.decode(payload)))

    def end(self) -> list[bytes]:
        """The rest of the stream; the next payload begins another."""
        return self._encode(self._resampler.end())

    def _encode(self, samples: Samples) -> list[bytes]:
        if isinstance(self._encoder, opus.Encoder):
            return self._encoder.encode(samples)
        return [self._encoder.encode(samples)] if len(samples) else []
