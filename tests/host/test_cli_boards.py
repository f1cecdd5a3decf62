"""`vrt boards`: what it lists, says of one, and writes for a new one."""

import json
import os
import subprocess
import sys

import pytest
from vrt_host.cli import main
from vrt_host.commands import boards
from vrt_host.device.profiles import load, profiles, unsupported

WIRED = ["--mcu", "esp32s3", "--mic", "5,4,6", "--speaker", "15,16,7"]


def run(*words):
    try:
        return main(["boards", *map(str, words)])
    except SystemExit as end:
        return end.code


def refused(capsys, *words):
    """The one line that a refusal prints."""
    assert run(*words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def test_the_list_has_every_board_and_those_that_cannot_work(capsys):
    assert run() == 0
    printed = capsys.readouterr().out
    for name, profile in profiles().items():
        assert name in printed
        assert profile.data["status"] in printed
    for entry in unsupported().values():
        assert entry.reason in printed
        assert entry.instead in printed
    assert "\x1b" not in printed


def test_the_list_for_programs(capsys):
    assert run("--json") == 0
    made = json.loads(capsys.readouterr().out)
    by_id = {entry["id"]: entry for entry in made["boards"]}
    assert set(by_id) == set(profiles())
    box = by_id["esp32-s3-box-3"]
    assert (box["duplex"], box["codec"], box["button"], box["led"]) == ("half", ["es7210", "es8311"], 0, None)
    assert box["psram"] == "octal"
    assert all(0 < entry["heap"]["code_bytes"] < entry["heap"]["running_bytes"] for entry in by_id.values())
    assert any("strapping" in warning for warning in box["warnings"])
    assert {entry["id"] for entry in made["unsupported"]} == set(unsupported())


def test_one_board_is_told_with_its_pins_and_warnings(capsys):
    assert run("bread-compact-esp32") == 0
    printed = capsys.readouterr().out
    for said in (
        "untested",
        "ESP32_GENERIC",
        " 32 microphone sd",
        "warning: GPIO 2 (LED)",
        "note: ",
        "full",
        "(estimate)",
    ):
        assert said in printed
    assert run("sim") == 0
    assert "vrt sim" in capsys.readouterr().out
    assert run("esp32-s3-box-3", "--json") == 0
    assert json.loads(capsys.readouterr().out)["board"]["i2c"]["sda"] == 8


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bread-compact"], "did you mean"),
        (["m5-atom-echo"], "PDM"),
        (["sim", "esp32-s3-box-3"], "one board at a time"),
        (["new"], "wants one id"),
        (["new", "a", "b"], "wants one id"),
        (["new", "My Board", *WIRED], "small letters"),
        (["new", "sim", *WIRED], "there already"),
        (["new", "mine", "--mic", "5,4,6"], "--mcu"),
        (["new", "mine", "--mcu", "esp32s3", "--mic", "5,4,6"], "--speaker"),
        (["new", "mine", *WIRED, "--mic", "5,4"], "--mic wants 3 GPIO numbers"),
        (["new", "mine", *WIRED, "--button", "x"], "--button wants a GPIO number"),
        (["new", "mine", *WIRED, "--button", "1:2"], "--button wants PIN"),
        (["new", "mine", *WIRED, "--led", "neon:4"], "--led wants KIND:PINS"),
        (["new", "mine", *WIRED, "--led", "rgb:4"], "--led wants 3 GPIO numbers"),
        (["new", "mine", *WIRED, "--output", "lamp"], "--output wants NAME=PIN"),
        (["new", "mine", *WIRED, "--output", "Lamp=1"], "Lamp"),
        (["new", "mine", *WIRED, "--output", "lamp=8", "--output", "lamp=9"], "lamp stands there twice"),
        (["new", "mine", *WIRED, "--name", "My\nboard"], "--name is one line"),
        (["new", "mine", *WIRED, "--button", "35", "--psram", "octal"], "PSRAM"),
        (["new", "mine", *WIRED, "--button", "6"], "used for microphone sd already"),
        (["new", "mine", *WIRED, "--mcu", "esp32", "--psram", "octal"], "has no octal PSRAM"),
        (["new", "m5-atom-echo", *WIRED], "is known"),
        (["new", "mine", *WIRED, "--url", "here"], "url"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_and_writes_nothing(words, said, capsys, tmp_path):
    extra = [] if "sim" in words else ["--folder", tmp_path]
    assert said in refused(capsys, *words, *(extra if words[0] == "new" else []))
    assert list(tmp_path.iterdir()) == []


def test_a_new_board_is_a_folder_that_can_be_used(capsys, tmp_path):
    assert (
        run(
            *(
                "new",
                "shed",
                *WIRED,
                "--flash",
                "16",
                "--psram",
                "octal",
                "--amplifier",
                "10:0",
                "--button",
                "0",
            ),
            *("--led", "rgb:1,2,3", "--led-active", "0", "--output", "lamp=18", "--name", "The shed"),
            *("--folder", tmp_path / "boards"),
        )
        == 0
    )
    printed = capsys.readouterr()
    folder = tmp_path / "boards" / "shed"
    assert printed.out == f"{folder}\n"
    assert "warning: GPIO 3 (LED blue)" in printed.err
    profile = load(folder)
    assert profile.name == "The shed"
    assert profile.data["micropython"] == "ESP32_GENERIC_S3-SPIRAM_OCT"
    assert profile.data["speaker"]["amplifier"] == {"pin": 10, "on": 0}
    assert profile.data["button"] == {"pin": 0, "active": 0, "pull": "up", "on_module": True}
    assert profile.data["led"] == {"kind": "rgb", "pins": [1, 2, 3], "active": 0}
    assert profile.data["outputs"] == {"lamp": {"safe": 0, "levels": ["off", "on"], "pin": 18}}
    assert {path.name for path in folder.iterdir()} == {"board.json", "board.py", "README.md", "wiring.svg"}
    assert "espboard.start(__file__)" in (folder / "board.py").read_text()
    assert "![Wiring](wiring.svg)" in (folder / "README.md").read_text()
    assert run(folder) == 0
    before = (folder / "board.json").read_text()
    capsys.readouterr()
    assert "there already" in refused(capsys, "new", "shed", *WIRED, "--folder", folder.parent)
    assert (folder / "board.json").read_text() == before


def test_a_board_that_is_known_by_its_file_is_written_as_ours_are():
    shipped = (profiles()["bread-compact-s3"].folder / "board.py").read_text()
    assert shipped == boards.board_pages.BOARD_PY


def test_what_is_missing_is_asked_for_on_a_terminal(tmp_path):
    """Wrong answers are asked again; nothing is written before the last yes."""
    pty = pytest.importorskip("pty", reason="no terminals here")
    answers = ["esp32", "none", "4", "26,25", "26,25,32", "14,27,33", "0", "gpio:2", "yes"]
    main_end, terminal = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-m", "vrt_host", "boards", "new", "asked", "--folder", str(tmp_path)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        close_fds=True,
    )
    os.close(terminal)
    os.write(main_end, "".join(f"{answer}\n" for answer in answers).encode())
    shown = b""
    while True:
        try:
            piece = os.read(main_end, 4096)
        except OSError:  # the program has ended
            break
        if not piece:
            break
        shown += piece
    assert program.wait(timeout=60) == 0, shown.decode()
    os.close(main_end)
    assert b"wants 3 GPIO numbers" in shown
    data = load(tmp_path / "asked").data
    assert data["mcu"] == "esp32"
    assert data["microphone"]["pins"] == {"sck": 26, "ws": 25, "sd": 32}
    assert data["led"] == {"kind": "gpio", "pin": 2, "active": 1}
