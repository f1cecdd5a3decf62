"""`vrt harness`, up to the device; tests/e2e/test_harness.py has the rest."""

import json
import socket

import pytest
from vrt_host.cli import main
from vrt_host.harness.capture import Capture
from vrt_host.harness.scenario import shipped

READY = {"v": 1, "seq": 0, "type": "ready", "sessionId": "abcdefgh-1", "input": {"encoding": "pcmu"}, "output": {"encoding": "pcmu"}}  # fmt: skip


@pytest.fixture
def capture(tmp_path):
    """A capture of one session."""
    path = tmp_path / "day.jsonl"
    with Capture(path, by="a test", stopped=print) as capture:
        number = capture.connected("192.0.2.7:5000")
        capture.text(number, "host", json.dumps(READY))
        capture.audio(number, "host", bytes(165))
        capture.end(number, "device", 4000)
    return path


def test_list_shows_every_shipped_scenario(capsys):
    assert main(["harness", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        path.stem for path in shipped()
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "give a scenario"),
        (["late-call", "--replay", "x"], "give a scenario"),
        (["--show", "x", "--replay", "x"], "give a scenario"),
        (["nothing-like-it"], "nothing-like-it is no file and no shipped scenario"),
        (["late-call", "late-call"], "two scenarios have the name late-call"),
        (["late-call", "--device", "serial:/dev/null"], "/dev/null is no serial port"),
        (["late-call", "--device", "serial:"], "write sim, listen:PORT"),
        (["late-call", "--device", "listen:"], "write sim, listen:PORT"),
        (["late-call", "--device", "listen:0"], "write sim, listen:PORT"),
        (["late-call", "--device", "listen:70000"], "write sim, listen:PORT"),
        (["late-call", "--device", "listen:192.0.2.1:8765"], "cannot listen at 192.0.2.1:8765"),
        (["late-call", "--device", "listen:²"], "write sim, listen:PORT"),
        (
            ["late-call", "--device", "listen:a..b:8765"],
            "cannot listen at a..b:8765: this is no name of a host",
        ),
        (["late-call", "--device", "usb"], "write sim, listen:PORT"),
        (["late-call", "--tools", "house"], "--tools is for --replay"),
        (["late-call", "--session", "a"], "--session is for a capture"),
        (["late-call", "--picture", "/"], "cannot draw /: it is a folder"),
        (["late-call", "--html", "/"], "cannot write /: it is a folder"),
        (["late-call", "--factor", "0"], "--factor 0"),
        (["late-call", "host-away", "--picture", "x.png"], "--picture draws one scenario"),
        (["late-call", "--record", "/no/such/folder/x.jsonl"], "cannot record to /no/such/folder/x.jsonl"),
        (["--replay", "/no/such/file"], "cannot read /no/such/file"),
        (["--show", "/no/such/file"], "cannot read /no/such/file"),
    ],
)
def test_bad_input_is_refused_in_one_line(words, reason, capsys):
    assert main(["harness", *words]) == 2
    out, err = capsys.readouterr()
    said = err.splitlines()
    assert len(said) == 1
    assert "passed" not in out  # it is told before anything is played
    assert said[0].startswith("vrt harness: ")
    assert reason in said[0]


def test_mistake_in_a_scenario_is_told_with_its_place(tmp_path, capsys):
    path = tmp_path / "mine.json"
    path.write_text(
        '{"title": "t", "why": "w", "section": "§1", "steps": [{"open": {}}, {"opn": 1}]}', "utf-8"
    )
    assert main(["harness", str(path)]) == 2
    assert capsys.readouterr().err.startswith("vrt harness: mine.json: steps[1]: ")


def test_port_that_is_taken_is_said(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["harness", "late-call", "--device", f"listen:127.0.0.1:{port}"]) == 2
    assert f"cannot listen at 127.0.0.1:{port}" in capsys.readouterr().err


def test_show_prints_the_frames_and_draws_them(capture, tmp_path, capsys):
    picture = tmp_path / "day.png"
    assert main(["harness", "--show", str(capture), "--picture", str(picture)]) == 0
    said = capsys.readouterr().out
    assert "192.0.2.7:5000" in said
    assert '"type": "ready"' in said
    assert "connection 1 ends, code 4000" in said
    assert "4 lines, of which 1 are audio and not shown" in said
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_session_that_is_not_there_is_told_with_those_that_are(capture, capsys):
    assert main(["harness", "--show", str(capture), "--session", "zz"]) == 2
    assert "the capture has no session 'zz'; it has abcdefgh" in capsys.readouterr().err


def test_replay_to_a_board_without_such_tools_is_refused(capture, capsys):
    assert main(["harness", "--replay", str(capture), "--tools", "none.py"]) == 2
    assert "the tools must be house, conformance or a file" in capsys.readouterr().err


def test_picture_that_cannot_be_written_is_said(capture, capsys):
    assert main(["harness", "--show", str(capture), "--picture", "/proc/none/x.png"]) == 2
    assert "cannot draw /proc/none/x.png" in capsys.readouterr().err
