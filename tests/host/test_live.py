import io

import numpy as np
from rich.console import Console
from vrt_host.harness.live import View, console


def plain(width=80):
    return Console(file=io.StringIO(), width=width, force_terminal=False)


def terminal(width=160):
    return Console(
        file=io.StringIO(), width=width, force_terminal=True, color_system=None, legacy_windows=False
    )


def written(view):
    return view.console.file.getvalue()


def tone(level):
    return (level * np.sin(np.arange(2_000))).astype(np.int16)


def test_view_prints_plain_lines_without_a_terminal():
    with View(plain()) as view:
        view.title("1  A scene", "why")
        view.say(1.5, "user", "“unlock [the] front door”")
        view.passed(2.0, "it opens", "0.4 s")
        view.failed(3.0, "it closes")
        view.heard(3.0, tone(9_000), tone(0))
    assert written(view) == (
        "\n1  A scene  why\n"
        "   1.50  user     “unlock [the] front door”\n"
        "   2.00  ✓ it opens  0.4 s\n"
        "   3.00  ✗ it closes\n"
    )


def test_view_shows_what_a_device_says_without_its_control_characters():
    with View(plain()) as view:
        view.say(1, "board", "\x1b[2Jtold")
        view.failed(1, "\x9b31m")
        view.note("\ud800")
    shown = written(view)
    assert all(line.isprintable() for line in shown.splitlines())
    assert "\\x1b[2Jtold" in shown


def test_view_does_not_break_long_lines_without_a_terminal():
    with View(plain(40)) as view:
        view.say(1, "host", "word " * 40)
        view.note("word " * 40)
    assert written(view).count("\n") == 2


def test_view_shows_a_status_bar_on_a_terminal_and_takes_it_away():
    with View(terminal()) as view:
        view.light, view.turn, view.connected, view.call = "confirm", "acting", True, "lock(door=front)"
        view.heard(12.34, tone(20_000), tone(300))
        view._live.refresh()
        shown = written(view)
        assert "12.3 s" in shown
        assert "● confirm" in shown
        assert "acting" in shown
        assert "lock(door=front)" in shown
        assert "not connected" not in shown.split("12.3 s")[1]
        view.connected = False
        view._live.refresh()
        assert "not connected" in written(view)
    assert written(view).endswith("\x1b[2K") or "\x1b[?25h" in written(view)


def test_view_meters_follow_the_loudness():
    view = View(plain())
    for level in (0, 100, 3_000, 30_000):
        view.heard(0, tone(level), tone(0))
    heights = [" ▁▂▃▄▅▆▇█".index(char) for char in view._mic][-4:]
    assert heights[0] == 0
    assert heights == sorted(set(heights))
    assert set(view._speaker) == {" "}
    view.heard(0, np.zeros(0, np.int16), tone(0))


def test_view_tables_keep_brackets():
    view = View(plain())
    view.table("figures", [("heap [KiB]", "90", "of 128")])
    assert "heap [KiB]" in written(view)


def test_view_replaces_what_the_output_cannot_write(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    view = View(console())
    view.passed(1, "“yes”")
    view.console.file.flush()
    assert raw.getvalue() == b"   1.00  ? ?yes?\n"
