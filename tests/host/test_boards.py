"""Every board's description is what the schema says, and the schema refuses what is none."""

import copy
import json

import pytest
from jsonschema import Draft202012Validator, ValidationError
from vrt_host.resources import root
from vrt_host.sim.hardware import DAC_RATE
from vrt_host.sim.wav import MIC_RATE

BOARDS = root() / "boards"
SCHEMA = json.loads((BOARDS / "board.schema.json").read_text())
SIM = json.loads((BOARDS / "sim" / "board.json").read_text())


def test_schema_is_a_schema():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in BOARDS.glob("*/board.json")), ids=lambda path: path.name
)
def test_board_fits_the_schema_and_its_folder(folder):
    described = json.loads((folder / "board.json").read_text())
    Draft202012Validator(SCHEMA).validate(described)
    assert described["id"] == folder.name
    assert (folder / "board.py").exists()
    assert (folder / "README.md").exists()


def test_microphone_of_the_waveshare_is_in_the_slot_that_its_source_names():
    described = json.loads((BOARDS / "waveshare-touch-lcd-1.85" / "board.json").read_text())
    assert described["microphone"]["slot"] == "right"  # I2S_STD_SLOT_RIGHT in esp32-s3-touch-lcd-1.85.cc


def test_simulated_board_has_the_rates_of_the_simulated_hardware():
    assert SIM["speaker"]["rate"] == DAC_RATE
    assert SIM["microphone"]["rate"] == MIC_RATE


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("id",), "Lolin S3"),
        (("status",), "works"),
        (("duplex",), "both"),
        (("speaker", "rate"), 44100),
        (("speaker", "ibuf"), 100),
        (("microphone", "bits"), 24),
        (("outputs", "light", "safe"), 2),
        (("outputs", "light", "levels"), ["off"]),
        (("outputs", "Front Lock"), {"safe": 0, "levels": ["a", "b"]}),
        (("pins",), {}),
    ],
)
def test_schema_refuses(path, value):
    changed = copy.deepcopy(SIM)
    *parents, last = path
    place = changed
    for name in parents:
        place = place[name]
    place[last] = value
    with pytest.raises(ValidationError):
        Draft202012Validator(SCHEMA).validate(changed)


@pytest.mark.parametrize("missing", sorted(SCHEMA["required"]))
def test_schema_requires(missing):
    with pytest.raises(ValidationError):
        Draft202012Validator(SCHEMA).validate({name: SIM[name] for name in SIM if name != missing})
