"""The wiring pictures: every pin is in them, no label covers another, and they are fresh."""

import copy
import importlib.util
import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from vrt_host.device import board_pages, pins, wiring
from vrt_host.device.profiles import Profile, profiles
from vrt_host.resources import root

REAL = {name: profile for name, profile in profiles().items() if profile.data["mcu"] != "unix"}
SVG = "{http://www.w3.org/2000/svg}"

spec = importlib.util.spec_from_file_location("gen_boards", root() / "tools" / "gen_boards.py")
gen_boards = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gen_boards)


def labels(svg):
    """(text, left, top, right, bottom) of every label, each character as wide as `wiring.CHAR` at its size."""
    for element in ET.fromstring(svg).iter(f"{SVG}text"):
        size = float(element.get("font-size", wiring.FONT))
        width = len(element.text) * wiring.CHAR * size / wiring.FONT
        x, y = float(element.get("x")), float(element.get("y"))
        left = x - width * {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor")]
        yield element.text, left, y - size, left + width, y + size * 0.25


def with_everything():
    """A board that has one of each kind of part."""
    data = copy.deepcopy(REAL["elatoai-devkit-s3"].data)
    data["serial"] = {"kind": "uart", "unit": 1, "tx": 17, "rx": 18}
    data["led"] = {"kind": "ws2812", "pin": 9, "count": 12}
    data["held"] = {"power": {"pin": 21, "level": 1}}
    data["outputs"] = {
        "front_lock": {"safe": 0, "levels": ["locked", "unlocked"], "pin": 38},
        "light": {"safe": 0, "levels": ["off", "on"], "pin": 39},
    }
    assert pins.check(data)[0] == []
    return Profile(root() / "boards" / data["id"], data, ())


PROFILES = [*REAL.values(), with_everything()]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: f"{profile.id}-{len(profile.data)}")
def test_no_label_covers_another_or_leaves_the_picture(profile):
    svg = wiring.picture(profile)
    *_, width, height = (float(number) for number in re.search(r'viewBox="([^"]+)"', svg)[1].split())
    found = list(labels(svg))
    assert len(found) > 8
    for text, left, top, right, bottom in found:
        assert left >= 0, text
        assert top >= 0, text
        assert right <= width, text
        assert bottom <= height, text
    for one, other in itertools.combinations(found, 2):
        apart = one[3] <= other[1] or other[3] <= one[1] or one[4] <= other[2] or other[4] <= one[2]
        assert apart, f"{one[0]!r} and {other[0]!r}"


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: f"{profile.id}-{len(profile.data)}")
def test_every_pin_is_in_the_picture(profile):
    shown = [text for text, *_ in labels(wiring.picture(profile))]
    for use in pins.uses(profile.data):
        assert f"GPIO {use.pin}" in shown, use


def test_wires_that_are_there_already_are_dotted():
    def wires(name):
        paths = ET.fromstring(wiring.picture(REAL[name])).iter(f"{SVG}path")
        found = [path.get("stroke-dasharray") for path in paths if "H" in path.get("d")]
        return len(found), sum(mark is not None for mark in found)

    total, dotted = wires("esp32-s3-box-3")
    assert total == dotted > 10
    total, dotted = wires("bread-compact-s3")
    assert dotted == 2  # button and LED of the module
    assert total > 12


def test_parts_that_are_wired_get_power_and_ground():
    left, right = wiring.parts(REAL["bread-compact-s3"])
    microphone, speaker = left[0], right[0]
    assert {pin.part: pin.chip for pin in microphone.pins} == {
        "VDD": "3V3",
        "GND": "GND",
        "L/R": "GND",  # the left slot
        "SCK": "GPIO 5",
        "WS": "GPIO 4",
        "SD": "GPIO 6",
    }
    assert {pin.part: pin.chip for pin in speaker.pins if pin.kind} == {
        "VIN": "5V",
        "GND": "GND",
        "BCLK": "GPIO 15",
        "LRC": "GPIO 16",
        "DIN": "GPIO 7",
    }


def test_a_microphone_in_the_right_slot_is_wired_so():
    profile = REAL["bread-compact-s3"]
    data = copy.deepcopy(profile.data)
    data["microphone"]["slot"] = "right"
    left, _ = wiring.parts(Profile(profile.folder, data, ()))
    assert [(pin.chip, pin.kind) for pin in left[0].pins if pin.part == "L/R"] == [("3V3", "3V3")]


def test_pictures_and_pages_are_fresh():
    assert gen_boards.main(["--check"]) == 0


def test_a_stale_page_is_found_and_mended(tmp_path, monkeypatch, capsys):
    page = tmp_path / "README.md"
    page.write_text("# Mine\n")
    monkeypatch.setattr(gen_boards, "generate", lambda: {page: "new\n"})
    monkeypatch.setattr(gen_boards, "root", lambda: tmp_path)
    assert gen_boards.main(["--check"]) == 1
    assert "README.md is stale" in capsys.readouterr().err
    assert page.read_text() == "# Mine\n"
    assert gen_boards.main([]) == 0
    assert page.read_text() == "new\n"
    assert gen_boards.main(["--check"]) == 0


def test_what_a_person_wrote_into_a_page_stays():
    before = "# Board\n\nMy words.\n"
    once = board_pages.spliced(before, "made\n")
    assert once.startswith("# Board\n\nMy words.\n\n")
    with_tail = once + "\nMore words.\n"
    twice = board_pages.spliced(with_tail, "made anew\n")
    assert "My words." in twice
    assert twice.endswith("\nMore words.\n")
    assert "made\n" not in twice
    assert board_pages.spliced(twice, "made anew\n") == twice


@pytest.mark.parametrize("name", REAL)
def test_a_boards_page_says_that_it_is_untested_and_warns(name):
    text = (root() / "boards" / name / "README.md").read_text("utf-8")
    assert "**Untested**" in text
    assert "(wiring.svg)" in text
    for line in (*REAL[name].warnings, *REAL[name].data["notes"], REAL[name].data["source"]):
        assert line in text


def test_the_page_of_all_boards_lists_them():
    text = (root() / "boards" / "README.md").read_text("utf-8")
    assert all(f"`{name}`" in text for name in REAL)
    assert "PDM" in text
