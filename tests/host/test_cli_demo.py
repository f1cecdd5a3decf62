"""`vrt demo` up to the moment when it starts; tests/e2e/test_demo.py has the rest."""

import pytest
from vrt_host import cli
from vrt_host.commands import demo


@pytest.fixture(autouse=True)
def no_demo(monkeypatch):
    made = []

    class Nothing:
        def __init__(self, heap, out, recorder):
            made.append((heap, out))
            recorder.close()

        async def play(self):
            return 0

    monkeypatch.setattr(demo, "_Demo", Nothing)
    return made


def test_demo_takes_a_heap_and_a_folder(no_demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo"]) == 0
    assert cli.main(["demo", "--heap", "160K", "--out", "x/y"]) == 0
    assert [(heap, str(out)) for heap, out in no_demo] == [("128k", "build/demo"), ("160k", "x/y")]
    assert (tmp_path / "x/y/events.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [(["--heap", "much"], "not a heap size"), (["--out", "{file}/x"], "choose another --out")],
)
def test_demo_refuses_bad_input_in_one_line(no_demo, tmp_path, capsys, words, reason):
    (tmp_path / "file").write_text("")
    assert cli.main(["demo", *(word.format(file=tmp_path / "file") for word in words)]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("vrt demo: ")
    assert said.err.count("\n") == 1
    assert reason in said.err
    assert no_demo == []


def test_demo_help_says_what_it_shows(capsys):
    with pytest.raises(SystemExit):
        cli.main(["demo", "--help"])
    said = capsys.readouterr().out
    for word in ("vrt demo --heap", "timeline.png", "conversation.wav", "events.jsonl", "summary.json"):
        assert word in said
