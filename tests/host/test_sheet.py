import pytest
from lettering import faults, texts
from vrt_host.harness.sheet import Sheet

SENTENCE = "the quick brown fox jumps over the lazy dog, and over and over again"


@pytest.fixture
def sheet():
    return Sheet(800, 200)


def test_sheet_writes_at_a_place_in_pixels(sheet):
    box = sheet.write(100, 50, "hello", size=12)
    assert box.x0 == pytest.approx(100, abs=3)
    assert (box.y0 + box.y1) / 2 == pytest.approx(200 - 50, abs=3)
    right = sheet.write(700, 50, "hello", size=12, ha="right")
    assert right.x1 == pytest.approx(700, abs=3)
    assert right.width == pytest.approx(box.width, abs=1)


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_sheet_breaks_a_text_and_shortens_it_to_its_room(sheet, lines):
    box = sheet.write(10, 100, SENTENCE, room=150, lines=lines, size=10)
    ((written, _),) = texts(sheet.figure)
    assert box.width <= 150
    assert len(written.split("\n")) == lines
    assert written.endswith("…")
    assert SENTENCE.startswith(written.rstrip("…").replace("\n", " "))


def test_sheet_shortens_nothing_that_has_room(sheet):
    sheet.write(10, 100, SENTENCE, room=700, size=10)
    assert [text for text, _ in texts(sheet.figure)] == [SENTENCE]


@pytest.mark.parametrize("options", [{"room": 20}, {"room": 0}, {"room": -5}, {"room": 150, "whole": True}])
def test_sheet_leaves_out_what_would_say_nothing(sheet, options):
    assert sheet.write(10, 100, SENTENCE, size=10, **options) is None
    assert texts(sheet.figure) == []


def test_sheet_keeps_the_first_of_two_texts_that_meet(sheet):
    assert sheet.write(100, 100, "first", size=12)
    assert sheet.write(120, 102, "second", size=12) is None
    assert sheet.write(100, 130, "below", size=12)
    assert [text for text, _ in texts(sheet.figure)] == ["first", "below"]
    assert faults(sheet.figure) == []


@pytest.mark.parametrize(("x", "y"), [(-5, 100), (790, 100), (100, 2), (100, 198)])
def test_sheet_cuts_nothing_off(sheet, x, y):
    assert sheet.write(x, y, "at the edge", size=12) is None
    assert texts(sheet.figure) == []


def test_sheet_writes_nothing_for_nothing(sheet):
    assert sheet.write(10, 10, "", room=100) is not None
    assert texts(sheet.figure) == []
