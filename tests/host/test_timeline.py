import itertools
import warnings

import matplotlib.image
import numpy as np
import pytest
from lettering import faults, texts
from vrt_host.harness import timeline
from vrt_host.harness.picture import Band, CallBar, Mark, Picture, Scene, Zoom


def colour(kind):
    code = timeline.COLOURS[kind]
    return np.array([int(code[at : at + 2], 16) for at in (1, 3, 5)])


def painted(image, kind):
    """How many pixels have exactly the colour of `kind`."""
    return int((np.abs(np.rint(image[:, :, :3] * 255).astype(int) - colour(kind)).sum(axis=2) == 0).sum())


def render(picture, tmp_path):
    path = tmp_path / "deep" / "t.png"
    timeline.draw(picture, path)
    return matplotlib.image.imread(path)


def loud(seconds, rate=24_000):
    return (8_000 * np.sin(np.arange(int(seconds * rate)) / 10)).astype(np.int16)


def test_timeline_is_1800_pixels_wide_and_grows_by_scene(tmp_path):
    one = render(Picture("a", scenes=[Scene(0, 5, "one", True)]), tmp_path)
    two = render(Picture("a", scenes=[Scene(0, 5, "one", True), Scene(5, 30, "two", False)]), tmp_path)
    assert one.shape[1] == two.shape[1] == 1800
    assert two.shape[0] > one.shape[0] + 200


def test_timeline_draws_an_empty_recording(tmp_path):
    assert render(Picture(""), tmp_path).shape[1] == 1800


@pytest.mark.parametrize(("outcome", "kind"), [("ok", "ok"), ("REJECTED", "REJECTED"), ("FAILED", "failed")])
def test_timeline_shows_how_a_call_ended(tmp_path, outcome, kind):
    def seen(calls):
        image = render(Picture("", scenes=[Scene(0, 9, "", None)], calls=calls), tmp_path)
        return painted(image, kind), painted(image, "running"), painted(image, "confirm")

    without = seen([])
    ran = seen([CallBar(1, 2, 5, "lock()", outcome)])
    asked = seen([CallBar(1, None, 5, "lock()", outcome, [(1.5, 5)])])
    assert ran[0] > without[0]
    assert ran[1] > without[1] + 500
    assert asked[1] == without[1]
    assert asked[2] > without[2] + 500


def test_timeline_shows_a_lost_connection_only_in_its_scene(tmp_path):
    link = [Band(0, 2, "connected", "up"), Band(2, 3, "lost", "down"), Band(3, 99, "connected", "up")]
    with_cut = render(Picture("", scenes=[Scene(0, 9, "", True)], link=link), tmp_path)
    after_it = render(Picture("", scenes=[Scene(4, 9, "", True)], link=link), tmp_path)
    assert painted(with_cut, "down") > painted(after_it, "down") + 500


def test_timeline_draws_sound_where_it_was(tmp_path):
    image = render(Picture("", scenes=[Scene(0, 4, "", None)], user=loud(2), speaker=loud(0)), tmp_path)
    blue = np.abs(np.rint(image[:, :, :3] * 255).astype(int) - [0x2B, 0x6C, 0xB0]).sum(axis=2) < 60
    columns = blue.sum(axis=0)
    middle = (140 + 1782) // 2
    assert columns[200 : middle - 60].mean() > 10 * columns[middle + 60 : 1700].mean()


def test_timeline_enlarges_a_span_beside_a_short_scene_only(tmp_path):
    zoom = Zoom(
        1,
        1.5,
        "enlarged",
        [Mark(1.1, "speech", "x"), Mark(1.2, "notice", "expired"), Mark(1.4, "silent", "ok")],
    )
    scenes = [Scene(0, 4, "short", True), Scene(4, 24, "long", True)]
    base = painted(render(Picture("", scenes=scenes), tmp_path), "expired")
    assert painted(render(Picture("", scenes=scenes, zooms=[zoom]), tmp_path), "expired") > base
    late = Zoom(5, 5.5, "enlarged", zoom.marks)
    assert painted(render(Picture("", scenes=scenes, zooms=[late]), tmp_path), "expired") == base


def test_timeline_takes_any_text_as_it_is(tmp_path):
    words = "it costs $5, {or} $6_a \\frac 漢字 " * 20
    picture = Picture(
        words,
        scenes=[Scene(0, 3, words, True, words)],
        said=[Band(0.1, 1, words, "user"), Band(1.2, 2, words, "user")],
        led=[Band(0, 3, words, "idle")],
        calls=[CallBar(1, 1, 1, words, words)],
        outputs={"front_lock": [Band(0, 1, "locked", "safe"), Band(1, 3, words, "changed")]},
        presses=[Band(1, 2, "held", "press")],
        marks=[Mark(1, words, "interrupt"), Mark(1.01, "b", "cut"), Mark(2.99, "c", "resume")],
    )
    assert render(picture, tmp_path).shape[1] == 1800
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        assert faults(timeline.compose(picture).figure) == []


@pytest.mark.parametrize("span", [0.8, 3, 12, 150])
def test_timeline_keeps_texts_apart_however_crowded(span):
    """Everything happens at once, in scenes of very different lengths."""
    steps = np.linspace(0, span, 25)
    bands = [Band(a, b, "a state that lasts", "idle") for a, b in itertools.pairwise(steps)]
    words = [
        Band(a, a + span / 9, f"“Sentence {n} is being said.”", "user") for n, a in enumerate(steps[::4])
    ]
    marks = [Mark(at, f"mark {n} of several", "cut") for n, at in enumerate(steps)]
    picture = Picture(
        "A title " * 30,
        "and what it means " * 30,
        scenes=[
            Scene(0, span, "A scene " * 20, True, "a note " * 20),
            Scene(0, 20, "another", None, "short"),
        ],
        said=words,
        spoken=words[::-1],
        led=bands,
        turns=bands,
        presses=bands,
        link=bands,
        outputs={"a_rather_long_name_of_an_output": bands},
        calls=[CallBar(at, at, at + span / 50, "call(of=tool)", "INTERRUPTED") for at in steps],
        marks=marks,
        zooms=[Zoom(0.1, 0.1 + span / 3, "enlarged " * 20, marks[:6])],
    )
    sheet = timeline.compose(picture)
    assert faults(sheet.figure) == []
    written = [text for text, _ in texts(sheet.figure)]
    for name in ("board light", "turn", "tool calls", "connection", "speaker", "user"):
        assert name in written


def test_timeline_ends_a_caption_with_its_scene():
    said = [Band(2, 4, "“A sentence that is much longer than what is left of its scene.”", "user")]
    sheet = timeline.compose(Picture("", scenes=[Scene(0, 4, "", True), Scene(0, 20, "", True)], said=said))
    ends = [box.x1 for text, box in texts(sheet.figure) if text.startswith("“A")]
    assert ends[0] <= 140 + (1782 - 140) * 4 / 20
    assert len(ends) == 2


def test_timeline_keeps_calls_that_overlap_apart():
    queued, running, later = (
        CallBar(1, None, 5, "b", "ok"),
        CallBar(0, 0, 5, "a", "ok"),
        CallBar(8, 8, 9, "c", "ok"),
    )
    assert timeline._stack([queued, later, running]) == [[running, later], [queued]]
    assert timeline._stack([]) == []
