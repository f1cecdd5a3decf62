"""`vrt image`: what is in the file, by littlefs-python and by MicroPython's own file system."""

import errno
import json
from pathlib import Path

import device_profiles
import esp_image
import littlefs
import pytest
from fake_board import BLOCK, FakeBoard, content
from vrt_host import cli
from vrt_host.device import build, image, image_file
from vrt_host.errors import UsageError

VFS = 0x200000  # of the test image, with 4 MB of flash


@pytest.fixture
def board(tmp_path, monkeypatch):
    made = device_profiles.install(monkeypatch, device_profiles.made(tmp_path / "board"))
    (made.folder / "board.py").write_text("print('the board starts')\nraise ValueError\n")
    monkeypatch.chdir(tmp_path)
    return made


def vrt(capsys, *words):
    code = cli.main(["image", "test-board", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_image_is_micropython_and_a_file_system_where_its_table_says(board, tmp_path, capsys):
    base = esp_image.write(tmp_path)
    code, out, err = vrt(capsys, "--micropython", base)
    assert (code, err) == (0, "")
    assert "to be written at 0x0: MicroPython 1.28.0, and at 0x200000 the files" in out
    made = (tmp_path / "test-board-0.1.0.bin").read_bytes()
    assert made[: base.stat().st_size] == base.read_bytes()
    assert set(made[base.stat().st_size : VFS]) == {0xFF}
    assert len(made) % BLOCK == 0

    system = littlefs.LittleFS(
        block_size=BLOCK, block_count=(0x400000 - VFS) // BLOCK, mount=False
    )  # its own parameters
    system.context.buffer[: len(made) - VFS] = made[VFS:]
    system.mount()
    files = content(system)
    whole = build.files(board)
    assert files == {**{f"a/{path}": data for path, data in whole.slot.items()}, **whole.root, "slot": b"a "}


def test_image_of_a_classic_chip_begins_behind_its_first_page(tmp_path, monkeypatch):
    board = device_profiles.made(
        tmp_path / "b", mcu="esp32", micropython="ESP32_GENERIC", memory={"flash_mb": 4, "psram": "none"}
    )
    base = image_file.read(esp_image.write(tmp_path, "esp32"), board)
    made = image.make(base, {"x": b"1"}, 4 << 20)
    assert image.read(made[VFS - 0x1000 :], 512) == {"x": b"1"}
    assert json.loads(image.manifest(base, "x.bin"))["builds"] == [
        {"chipFamily": "ESP32", "parts": [{"path": "x.bin", "offset": 0x1000}]}
    ]


def test_micropython_mounts_it_and_starts_what_is_in_it(board, tmp_path, capsys):
    """With what an old file system left behind the end of the file."""
    assert vrt(capsys, "--micropython", esp_image.write(tmp_path), "--out", "out.bin")[0] == 0
    system = (tmp_path / "out.bin").read_bytes()[VFS:]
    (tmp_path / "flash").write_bytes(system.ljust(0x200000, b"\x5a"))
    with FakeBoard(tmp_path) as fake:
        fake.wait_for(b"the board starts")
        assert fake.files()["slot"] == b"a "


def test_manifest_is_for_esp_web_tools(board, tmp_path, capsys):
    assert vrt(capsys, "--micropython", esp_image.write(tmp_path), "--out", tmp_path / "o.bin")[0] == 0
    assert json.loads((tmp_path / "o.manifest.json").read_text()) == {
        "name": "vRT Edge",  # the first of `info` in firmware/vrt/setup/onboard.py
        "version": "0.1.0",
        "new_install_prompt_erase": True,
        "builds": [{"chipFamily": "ESP32-S3", "parts": [{"path": "o.bin", "offset": 0}]}],
    }


def test_image_can_be_flashed_and_tells_that_it_brings_files(board, tmp_path, monkeypatch, capsys):
    base = image_file.read(esp_image.write(tmp_path), board)
    assert not base.with_files
    path = tmp_path / "o.bin"
    path.write_bytes(image.make(base, {"x": b"1"}, 4 << 20))
    assert image_file.read(path, board).with_files
    monkeypatch.setattr("vrt_host.device.flash.flash", lambda *_, **__: None)
    for file, then in ((base.path, "vrt deploy test-board"), (path, "vrt provision")):
        assert cli.main(["flash", "test-board", "--port", "/dev/x", "--micropython", str(file)]) == 0
        assert f"next: {then} --port /dev/x" in capsys.readouterr().out
    with pytest.raises(UsageError, match="has a file system already"):
        image.make(image_file.read(path, board), {}, 4 << 20)


def test_image_refuses_in_one_line(board, tmp_path, capsys):
    base = esp_image.write(tmp_path)
    assert vrt(capsys)[0] == 2
    code, _, err = vrt(capsys, "--micropython", base, "--out", base)
    assert code == 2
    assert "is the MicroPython image itself" in err
    code, _, err = vrt(capsys, "--micropython", base, "--out", tmp_path / "no" / "o.bin")
    assert code == 2
    assert "cannot write" in err
    with pytest.raises(UsageError, match=r"do not fit into 40 KB of flash"):
        image.filesystem({"x": bytes(50_000)}, 10)


@pytest.mark.parametrize("mb", [4, 8, 16])
def test_files_take_the_rest_of_the_flash_as_micropython_does_since_1_26(board, tmp_path, capsys, mb):
    code, out, err = vrt(capsys, "--micropython", esp_image.write(tmp_path), "--out", "o.bin", "--flash", mb)
    assert (code, err) == (0, "")
    assert f"on {(mb << 10) - 2048:,} KB of littlefs" in out
    assert f"for chips with {mb} MB of flash alone" in out
    made = (tmp_path / "o.bin").read_bytes()
    assert "main.py" in image.read(made[VFS:], ((mb << 20) - VFS) // BLOCK)


def test_partition_for_files_that_is_in_the_table_is_taken(board, tmp_path, capsys):
    """As in images before 1.26, and in those of one's own."""
    base = esp_image.write(tmp_path, vfs=True)
    code, out, _ = vrt(capsys, "--micropython", base, "--out", "o.bin", "--flash", 16)
    assert code == 0
    assert "on 2,048 KB of littlefs" in out
    assert "alone" not in out
    assert not image_file.read(tmp_path / "o.bin", board).exact


def test_flash_without_room_for_files_is_refused(board, tmp_path):
    base = image_file.read(esp_image.write(tmp_path), board)
    with pytest.raises(UsageError, match="needs 3 MB of flash, and there are 2 MB"):
        image.make(base, {}, 2 << 20)


def test_disk_that_is_full_leaves_no_half_of_an_image(board, tmp_path, capsys, monkeypatch):
    base = esp_image.write(tmp_path)
    real = Path.write_bytes

    def write(path, data):
        real(path, data[:1000])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write)
    code, _, err = vrt(capsys, "--micropython", base, "--out", tmp_path / "o.bin")
    assert (code, err) == (2, f"vrt image: cannot write {tmp_path / 'o.bin'}: No space left on device\n")
    assert not list(tmp_path.glob("o.*"))
