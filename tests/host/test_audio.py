"""Audio frames: the vectors of both kinds, and the wrap of their numbers."""

import json

import pytest
from vrt_host.protocol import audio, wire

CASES = [
    pytest.param(kind, case, id=case["id"])
    for name, kind in (("input", audio.INPUT), ("output", audio.OUTPUT))
    for case in json.loads((wire.schema_folder() / f"examples/binary/{name}.json").read_text("utf-8"))
]


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_decoder_reads_vector(kind, case):
    frame = bytes.fromhex(case["hex"])
    if case["expect"] == "valid":
        assert audio.decode(frame, kind) == (case["seq"], bytes.fromhex(case["payload"]))
        assert audio.encode(kind, case["seq"], bytes.fromhex(case["payload"])) == frame
    else:
        with pytest.raises(wire.WireError) as caught:
            audio.decode(frame, kind)
        assert (caught.value.code, caught.value.seq) == (case["expect"], 0)


def test_encoder_wraps_the_number():
    assert audio.encode(audio.OUTPUT, 2**32 - 1, b"") == b"\x02\xff\xff\xff\xff"
    assert audio.encode(audio.OUTPUT, 2**32, b"a") == b"\x02\x00\x00\x00\x00a"


@pytest.mark.parametrize("kind", [audio.INPUT, audio.OUTPUT])
def test_decoder_raises_nothing_else_on_any_header(kind):
    for first in range(256):
        frame = bytes([first, 1, 2, 3, 4, 5])
        for length in range(len(frame) + 1):
            try:
                audio.decode(frame[:length], kind)
            except wire.WireError:
                assert length < 5 or first != kind
            else:
                assert length >= 5
                assert first == kind
