"""Profiles: what is known, what is refused, and which pins are a mistake."""

import copy
import json

import pytest
from test_mpy import compiled
from vrt_host.device import pins
from vrt_host.device.profiles import checked, dumps, find, load, profiles, unsupported
from vrt_host.errors import UsageError
from vrt_host.resources import root

BOARDS = root() / "boards"
REAL = {name: profile for name, profile in profiles().items() if profile.data["mcu"] != "unix"}
SHARED = [
    *sorted(BOARDS.glob("*.py")),
    *sorted((root() / "firmware" / "vrt" / "audio" / "codecs").glob("*.py")),
]


@pytest.fixture
def board():
    return copy.deepcopy(REAL["bread-compact-s3"].data)


@pytest.fixture
def codec():
    return copy.deepcopy(REAL["esp32-s3-box-3"].data)


@pytest.fixture
def classic():
    return copy.deepcopy(REAL["bread-compact-esp32"].data)


def test_every_folder_is_a_profile_under_its_id():
    known = profiles()
    assert set(known) == {path.parent.name for path in BOARDS.glob("*/board.json")}
    assert all(profile.id == name for name, profile in known.items())
    assert "sim" in known
    assert len(REAL) >= 8


@pytest.mark.parametrize("name", REAL)
def test_real_boards_say_where_they_come_from(name):
    data = REAL[name].data
    assert data["status"] == "untested"
    assert data["source"]
    assert data["notes"]
    assert pins.check(data)[0] == []
    assert max(pins.dma_ms(data["microphone"], 8), pins.dma_ms(data["speaker"], 2)) <= 64
    assert (BOARDS / name / "board.json").read_text("utf-8") == dumps(data)


@pytest.mark.parametrize("name", REAL)
def test_what_shares_a_codec_is_half_duplex_and_the_others_are_full(name):
    data = REAL[name].data
    assert (data["duplex"] == "half") == ("codec" in data["microphone"])


@pytest.mark.parametrize("entry", unsupported().values(), ids=lambda entry: entry.id)
def test_a_board_that_cannot_work_is_refused_with_reason_and_alternative(entry):
    with pytest.raises(UsageError) as refused:
        find(entry.id)
    assert entry.reason in str(refused.value)
    assert entry.instead in REAL
    assert entry.instead in str(refused.value)
    assert entry.id not in REAL


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bread-compact-s4", "did you mean bread-compact-s3"),
        ("ESP32-S3-BOX-3", "did you mean esp32-s3-box-3"),
        ("zzz", "`vrt boards` lists them"),
        ("./nowhere", "no board.json in ./nowhere"),
    ],
)
def test_an_unknown_board_is_told_with_what_is_near(name, said):
    with pytest.raises(UsageError, match=r"^no board") as refused:
        find(name)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_board_is_found_by_its_folder(tmp_path, board):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "board.json").write_text(json.dumps(board | {"id": "mine"}))
    assert find(str(folder)).id == "mine"
    (folder / "board.json").write_text(json.dumps(board))
    with pytest.raises(UsageError, match="name of its folder"):
        load(folder)
    (folder / "board.json").write_text("{")
    with pytest.raises(UsageError, match="cannot read"):
        load(folder)


def errors(data):
    return "\n".join(pins.check(data)[0])


def warnings(data):
    return "\n".join(pins.check(data)[1])


@pytest.mark.parametrize(
    ("pin", "said"),
    [
        (22, "the ESP32-S3 has no such pin"),
        (30, "it belongs to the flash chip"),
        (35, "it belongs to the octal PSRAM"),
        (7, "the pin is used for speaker sd already"),
    ],
)
def test_a_pin_that_cannot_be_used_is_an_error(board, pin, said):
    board["outputs"]["light"]["pin"] = pin
    assert errors(board) == f"GPIO {pin} (output light): {said}"
    with pytest.raises(UsageError, match="output light"):
        checked(board, BOARDS / board["id"])


def test_pins_of_octal_psram_are_free_without_it(board):
    board["outputs"]["light"]["pin"] = 35
    board["memory"]["psram"] = "quad"
    assert errors(board) == ""


@pytest.mark.parametrize("pin", [0, 3, 45, 46])
def test_strapping_pins_of_the_s3_are_warned_of(board, pin):
    del board["button"]
    assert "strapping" not in warnings(board)
    board["outputs"]["light"]["pin"] = pin
    assert f"GPIO {pin} (output light): a strapping pin" in warnings(board)
    assert errors(board) == ""


@pytest.mark.parametrize("pin", [0, 2, 5, 12, 15])
def test_strapping_pins_of_the_classic_chip_are_warned_of(classic, pin):
    del classic["button"], classic["led"]
    assert "strapping" not in warnings(classic)
    classic["outputs"]["light"]["pin"] = pin
    assert f"GPIO {pin} (output light): a strapping pin" in warnings(classic)


@pytest.mark.parametrize("pin", [19, 20])
def test_usb_pins_are_warned_of(board, pin):
    board["outputs"]["light"]["pin"] = pin
    assert "it is USB" in warnings(board)


def test_console_pins_are_warned_of(board, classic):
    board["outputs"]["light"]["pin"] = 43
    classic["outputs"]["light"]["pin"] = 1
    assert "serial console" in warnings(board)
    assert "serial console" in warnings(classic)


def test_input_only_pins_take_microphone_data_and_buttons_without_pull(classic):
    classic["microphone"]["pins"]["sd"] = 34
    classic["button"] = {"pin": 35, "active": 0, "pull": None}
    assert errors(classic) == ""
    classic["button"]["pull"] = "up"
    assert "GPIO 35 (button): the pin has no pull resistor" in errors(classic)
    classic["outputs"]["light"]["pin"] = 36
    assert "GPIO 36 (output light): the pin can only be read, not driven" in errors(classic)


def test_flash_and_psram_of_the_classic_chip(classic):
    classic["outputs"]["light"]["pin"] = 9
    assert "flash" in errors(classic)
    classic["outputs"]["light"]["pin"] = 16
    assert errors(classic) == ""
    classic["memory"]["psram"] = "quad"
    assert "PSRAM" in errors(classic)
    classic["outputs"]["light"]["pin"] = 18
    classic["memory"]["psram"] = "octal"
    assert "no octal PSRAM" in errors(classic)


def test_shared_clocks_need_half_duplex(board, codec):
    assert errors(codec) == ""
    codec["speaker"]["pins"]["sd"] = codec["microphone"]["pins"]["sd"]
    assert "the pin is used for microphone sd already" in errors(codec)
    codec["duplex"] = "full"
    assert "the pin is used for microphone sck already" in errors(codec)
    board["speaker"]["pins"]["sck"] = board["microphone"]["pins"]["sck"]
    assert "speaker sck" in errors(board)
    board["duplex"] = "half"
    assert errors(board) == ""
    board["speaker"]["pins"]["sck"] = board["microphone"]["pins"]["ws"]
    assert "speaker sck" in errors(board)


def test_full_duplex_needs_two_units(board):
    board["speaker"]["unit"] = 0
    assert "an I2S unit each" in errors(board)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data["microphone"].update(rate=48000), "16000 Hz"),
        (lambda data: data["speaker"].update(rate=48000), "16000 or 24000 Hz"),
        (lambda data: data["speaker"].update(bits=32), "16 bits"),
        (lambda data: data.pop("i2c"), "i2c: is missing"),
        (lambda data: data["microphone"]["pins"].pop("mck"), "needs its master clock"),
        (lambda data: data["speaker"]["pins"].update(mck=9), "no master clock"),
        (lambda data: data["microphone"].pop("codec"), "only the microphone codec es7210"),
    ],
)
def test_sound_that_the_firmware_cannot_make_is_an_error(codec, change, said):
    change(codec)
    assert said in errors(codec)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"bits": 256}, "has 8 outputs"),
        ({"held": 256}, "has 8 outputs"),
        ({"held": 2}, "the same output"),
        ({"address": 0x20}, "an address from 67 to 68"),
        ({"expander": "tca9555", "address": 0x27, "bits": 0x8000}, ""),
        ({"expander": "tca9555", "address": 0x20, "bits": 0x10000}, "has 16 outputs"),
        ({"expander": "tca9555", "address": 0x43}, "an address from 32 to 39"),
    ],
)
def test_an_expander_has_its_own_outputs_and_addresses(codec, change, said):
    base = {"expander": "pi4ioe5v6408", "address": 0x43, "bits": 2, "on": 1}
    codec["speaker"]["amplifier"] = {**base, **change}
    assert said in errors(codec)
    assert bool(said) == bool(errors(codec))


def test_one_codec_has_one_pair_of_clocks(codec):
    codec["microphone"]["codec"] = "es8311"
    codec["microphone"]["pins"].pop("mck", None)
    assert errors(codec) == ""
    codec["speaker"]["pins"]["sck"] = 21
    assert "one es8311 has one sck" in errors(codec)


def test_the_microphones_slot_is_either(board):
    board["microphone"]["slot"] = "right"
    assert errors(board) == ""


def test_a_deep_dma_is_warned_of(board):
    assert "DMA" not in warnings(board)
    board["speaker"]["ibuf"] = 8192
    assert "speaker: its DMA holds 171 ms" in warnings(board)


def test_a_uarts_pins_count(board):
    board["serial"] = {"kind": "uart", "unit": 1, "tx": 18, "rx": 17}
    assert "serial tx" in errors(board)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("microphone", "pins"), {"sck": 1, "ws": 2}),
        (("microphone", "pins", "sck"), 49),
        (("microphone", "codec"), "wm8960"),
        (("speaker", "amplifier"), {"pin": 3}),
        (("speaker", "amplifier"), {"expander": "aw9523", "address": 88, "bits": 1, "on": 1}),
        (("led",), {"kind": "rgb", "pins": [1, 2], "active": 0}),
        (("led",), {"kind": "gpio", "pin": 2}),
        (("button",), {"pin": 0, "active": 0}),
        (("memory",), {"flash_mb": 3, "psram": "none"}),
        (("micropython",), "esp32"),
        (("url",), "http://example.org"),
        (("link",), "bluetooth"),
        (("notes",), "one"),
        (("outputs", "light", "pin"), "18"),
    ],
)
def test_a_description_that_does_not_fit_is_refused_in_one_line(board, path, value):
    *parents, last = path
    place = board
    for name in parents:
        place = place[name]
    place[last] = value
    with pytest.raises(UsageError) as refused:
        checked(board, BOARDS / board["id"])
    assert str(refused.value).count("\n") == 0
    assert path[0] in str(refused.value)


@pytest.mark.parametrize(
    "missing",
    ["vendor", "assembly", "memory", "micropython", "link", "source", "microphone.pins", "speaker.unit"],
)
def test_a_real_board_must_say_all_that_is_built_from(board, missing):
    *parents, last = missing.split(".")
    place = board
    for name in parents:
        place = place[name]
    del place[last]
    with pytest.raises(UsageError, match=last):
        checked(board, BOARDS / board["id"])


@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.name)
def test_what_boards_share_compiles_for_their_chips(path, tmp_path):
    assert compiled(path, tmp_path / "out.mpy", "-march=xtensawin") == ""
