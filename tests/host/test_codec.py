"""speech/codec.py: mu-law and PCM."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vrt_host.errors import UsageError
from vrt_host.speech.codec import Pcm16, Pcmu, codec, from_pcm16, to_pcm16


def reference_ulaw(sample: int) -> int:
    """G.711 by the book, bit by bit, on the 14 upper bits."""
    value = sample >> 2
    sign = 0x80 if value < 0 else 0
    magnitude = min(abs(value), 8158) + 33
    exponent = magnitude.bit_length() - 6
    mantissa = (magnitude >> (exponent + 1)) & 15
    return ~(sign | (exponent << 4) | mantissa) & 0xFF


def test_pcmu_encodes_every_sample_like_g711():
    samples = np.arange(-32768, 32768, dtype=np.int32).astype(np.int16)
    assert Pcmu().encode(from_pcm16(samples)) == bytes(reference_ulaw(int(sample)) for sample in samples)


def test_pcmu_decodes_every_code_to_a_sample_of_that_code():
    codes = bytes(range(256))
    samples = Pcmu().decode(codes)
    again = Pcmu().encode(samples)
    zeros = {0x7F: 0xFF}  # both are zero
    assert again == bytes(zeros.get(code, code) for code in codes)
    assert to_pcm16(Pcmu().decode(b"\x00\x80\xff")).tolist() == [-32124, 32124, 0]


def test_pcm16_is_little_endian():
    assert to_pcm16(Pcm16().decode(b"\x01\x00\xff\x7f\x00\x80")).tolist() == [1, 32767, -32768]
    assert Pcm16().encode(from_pcm16(np.array([1, 32767, -32768], np.int16))) == b"\x01\x00\xff\x7f\x00\x80"


@given(st.binary(max_size=64), st.integers(0, 64))
def test_pcm16_decoded_in_two_parts_gives_the_same(payload, cut):
    whole = Pcm16().decode(payload)
    parts = Pcm16()
    both = np.concatenate([parts.decode(payload[:cut]), parts.decode(payload[cut:])])
    assert np.array_equal(whole, both)


def test_pcm16_forgets_half_a_sample_on_reset():
    stream = Pcm16()
    stream.decode(b"\x01")
    stream.reset()
    assert to_pcm16(stream.decode(b"\x02\x00")).tolist() == [2]


@pytest.mark.parametrize("encoding", ["pcmu", "pcm16"])
def test_codec_clips_what_is_out_of_range(encoding):
    stream = codec(encoding)
    loud = stream.decode(stream.encode(np.array([2.0, -2.0], np.float32)))
    assert loud[0] > 0.97
    assert loud[1] < -0.97


def test_codec_of_another_encoding_says_which_ones_there_are():
    with pytest.raises(UsageError, match=r"'opus'.*pcmu or pcm16"):
        codec("opus")
