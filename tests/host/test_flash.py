"""`vrt flash` with the real esptool, against a mock of the chip's ROM on a pseudo-terminal."""

import contextlib
import os
import pty
import subprocess
import sys
import tty
from pathlib import Path

import device_profiles
import esp_image
import pytest
from vrt_host import cli
from vrt_host.device import flash, image_file, ports
from vrt_host.device.image import make
from vrt_host.errors import UsageError

MOCK = Path(sys.executable).parent / "esp32-mock-bootloader"


class Chips:
    """A port behind which each run of esptool finds a fresh mock: one that is used again reports false checksums."""

    def __init__(self, folder: Path, chip: str) -> None:
        self.port = folder / "port"
        self.chip = chip
        self.folder = folder
        self.running: list[subprocess.Popen[str]] = []
        self.verbs: list[str] = []
        self.monkeypatch: pytest.MonkeyPatch

    def fresh(self) -> None:
        self.stop()
        process = subprocess.Popen(
            [MOCK, "run", "--pty", "--chip", self.chip, "--exit-on-disconnect", "--timeout", "100"],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        assert process.stdout is not None
        path = process.stdout.readline().strip()
        new = self.folder / "new"
        new.symlink_to(path)
        new.rename(self.port)

    def stop(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self.running.clear()


@pytest.fixture
def chips(tmp_path, monkeypatch):
    made = Chips(tmp_path, "esp32s3")
    made.monkeypatch = monkeypatch
    real = flash._run

    def run(port, options, verb, progress):
        made.fresh()
        made.verbs.append(verb[0])
        return real(port, options, verb, progress)

    monkeypatch.setattr(flash, "_run", run)
    monkeypatch.setattr(ports, "check", lambda port: None)  # it would count as the mock's only client
    monkeypatch.setenv("ESP32_MOCK_BOOTLOADER_STATE_DIR", str(tmp_path / "mock"))
    yield made
    made.stop()


@pytest.fixture
def board(tmp_path, monkeypatch):
    return device_profiles.install(monkeypatch, device_profiles.made(tmp_path / "board"))


def vrt(capsys, *words):
    code = cli.main(["flash", "test-board", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_flash_writes_the_image_after_it_has_asked_for_the_chip(chips, board, tmp_path, capsys):
    image = esp_image.write(tmp_path)
    code, out, err = vrt(capsys, "--port", chips.port, "--micropython", image)
    assert (code, err) == (0, "")
    assert chips.verbs == ["flash-id", "write-flash"]
    assert "ESP32-S3 with 4 MB of flash" in out
    assert "the board's files stay" in out
    assert "100 %" in out
    assert (
        f"MicroPython 1.28.0 is on the board and was read back; next: vrt deploy test-board --port {chips.port}"
        in out
    )


def test_flash_erases_only_when_asked(chips, board, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        flash,
        "_run",
        lambda port, options, verb, progress: (
            seen.append(verb) or "Chip type: ESP32-S3\nDetected flash size: 4MB"
        ),
    )
    image = image_file.read(esp_image.write(tmp_path), board)
    for erase in (False, True):
        flash.flash("/dev/x", board, image, erase=erase, say=print, progress=print)
    assert [verb for verb in seen if verb[0] == "write-flash"] == [
        ["write-flash", "0x0", str(image.path)],
        ["write-flash", "--erase-all", "0x0", str(image.path)],
    ]


def test_image_that_brings_files_says_that_it_replaces_those_of_the_board(board, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(flash, "_run", lambda *_: "Chip type: ESP32-S3\nDetected flash size: 4MB")
    monkeypatch.setattr(ports, "check", lambda port: None)
    image = image_file.read(esp_image.write(tmp_path), board)
    path = tmp_path / "whole.bin"
    path.write_bytes(make(image, {"main.py": b"1"}, 4 << 20))
    flash.flash("/dev/x", board, image_file.read(path, board), erase=False, say=said.append, progress=print)
    assert (
        "writing whole.bin, which brings its own files: those on the board, settings too, are replaced"
        in said
    )


def test_flash_erases_a_real_rom(chips, board, tmp_path, capsys):
    code, out, _ = vrt(capsys, "--port", chips.port, "--micropython", esp_image.write(tmp_path), "--erase")
    assert code == 0
    assert "after all of the flash was erased" in out


def test_classic_chip_is_written_behind_its_first_page(chips, tmp_path, monkeypatch, capsys):
    device_profiles.install(
        monkeypatch,
        device_profiles.made(
            tmp_path / "b", mcu="esp32", micropython="ESP32_GENERIC", memory={"flash_mb": 4, "psram": "none"}
        ),
    )
    chips.chip = "esp32"
    image = esp_image.write(tmp_path, "esp32")
    code, _, err = vrt(capsys, "--port", chips.port, "--micropython", image)
    assert (code, err) == (0, "")
    assert image_file.read(image, device_profiles.made(tmp_path / "b", mcu="esp32")).offset == 0x1000


def test_flash_refuses_another_chip_before_it_writes(chips, board, tmp_path, capsys):
    chips.chip = "esp32c3"
    code, _, err = vrt(capsys, "--port", chips.port, "--micropython", esp_image.write(tmp_path))
    assert code == 1
    assert "is ESP32-C3, and test-board has ESP32-S3: nothing was written" in err
    assert chips.verbs == ["flash-id"]


@pytest.mark.parametrize(("assembly", "code"), [("board", 1), ("wired", 0)])
def test_flash_refuses_too_little_flash_before_it_writes(chips, tmp_path, capsys, assembly, code):
    """A board has what its maker gave it; to one that is wired from a module the image must fit."""
    monkeypatch = chips.monkeypatch
    memory = {"flash_mb": 8, "psram": "octal"}
    device_profiles.install(
        monkeypatch, device_profiles.made(tmp_path / "b", memory=memory, assembly=assembly)
    )
    found, _, err = vrt(capsys, "--port", chips.port, "--micropython", esp_image.write(tmp_path))
    assert found == code
    if code:
        assert "has 4 MB of flash, and test-board has 8 MB: nothing was written" in err
        assert chips.verbs == ["flash-id"]


def test_wired_board_needs_flash_for_the_image(chips, tmp_path, monkeypatch, capsys):
    memory = {"flash_mb": 8, "psram": "octal"}
    device_profiles.install(
        monkeypatch, device_profiles.made(tmp_path / "b", memory=memory, assembly="wired")
    )
    image = esp_image.write(tmp_path, flash=8, vfs=True)
    code, _, err = vrt(capsys, "--port", chips.port, "--micropython", image)
    assert (code, chips.verbs) == (1, ["flash-id"])
    assert "has 4 MB of flash" in err


@pytest.mark.parametrize(("built", "found"), [(8, 4), (4, 8), (8, 16)])
def test_image_with_files_for_another_size_of_flash_is_refused(tmp_path, monkeypatch, built, found):
    """MicroPython would not mount them."""
    board = device_profiles.made(tmp_path / "b", memory={"flash_mb": 4, "psram": "octal"}, assembly="wired")
    monkeypatch.setattr(flash, "_run", lambda *_: f"Chip type: ESP32-S3\nDetected flash size: {found}MB")
    monkeypatch.setattr(ports, "check", lambda port: None)
    base = image_file.read(esp_image.write(tmp_path), board)
    path = tmp_path / "whole.bin"
    path.write_bytes(make(base, {"main.py": b"1"}, built << 20))
    image = image_file.read(path, board)
    assert (image.exact, image.end) == (True, built << 20)
    with pytest.raises(flash.Wrong) as error:
        flash.flash("/dev/x", board, image, erase=False, say=print, progress=print)
    assert f"has {found} MB of flash" in str(error.value)
    assert f"{built} MB" in str(error.value)
    assert "nothing was written" in str(error.value)


def test_unplugged_while_it_writes(chips, board, tmp_path, monkeypatch, capsys):
    """The mock ends in the middle of the image; esptool and the port tell."""
    image = esp_image.write(tmp_path, size=1_000_000)

    def pull(percent):
        chips.running[-1].kill()
        chips.running[-1].wait()
        # The port goes with the board; its terminal's number would be the next test's.
        Path(chips.port).unlink(missing_ok=True)

    monkeypatch.setattr("vrt_host.device.progress.Progress.show", lambda self, percent: pull(percent))
    code, _, err = vrt(capsys, "--port", chips.port, "--micropython", image)
    assert code == 1, err
    assert "was unplugged: plug it in; what is half written does no harm, run the same command again" in err
    assert len(err.splitlines()) == 1


def test_without_a_file_it_says_which_one_and_from_where(board, capsys):
    code, _, err = vrt(capsys)
    assert code == 2
    assert err == (
        "vrt flash: give --micropython FILE: test-board needs ESP32_GENERIC_S3-SPIRAM_OCT-DATE-vVERSION.bin, version 1.27 or "
        "newer (the .bin, not the .app-bin), from the page ESP32_GENERIC_S3 under micropython.org/download, in its list "
        '"SPIRAM_OCT"\n'
    )


def damaged(data):
    table = bytearray(data)
    table[0x8000 + 5] ^= 1
    return bytes(table)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not a MicroPython image for ESP chips"),
        (b"PK" + bytes(100), "is not a MicroPython image for ESP chips"),
        (esp_image.make("esp32"), "is for ESP32, and test-board has ESP32-S3"),
        (esp_image.make("esp32c3"), "is for ESP32-C3, and test-board has ESP32-S3"),
        (esp_image.make(said=b"Tasmota"), "is for this chip, but is no MicroPython"),
        (
            esp_image.make(said=b"MicroPython v1.24.0 on 2024-10-25"),
            "is MicroPython 1.24.0, which is too old",
        ),
        (esp_image.make()[0x10000:], "has no partition table (an image for updates?)"),
        (esp_image.make(flash=8, vfs=True), "is for 8 MB of flash, and test-board has 4"),
        (esp_image.make()[:-1], "was not loaded down to its end"),
        (esp_image.make()[:70_000], "was not loaded down to its end"),
        (esp_image.make()[:-50] + b"?" + esp_image.make()[-49:], "is damaged"),
        (damaged(esp_image.make()), "is damaged (its partition table)"),
    ],
    ids=[
        "empty",
        "zip",
        "classic",
        "c3",
        "other firmware",
        "old",
        "app-bin",
        "larger",
        "cut",
        "cut early",
        "changed",
        "damaged",
    ],
)
def test_flash_refuses_other_files_before_it_opens_the_port(board, tmp_path, capsys, content, reason):
    path = tmp_path / "file.bin"
    path.write_bytes(content)
    code, _, err = vrt(capsys, "--port", "/dev/none", "--micropython", path)
    assert code == 2
    assert reason in err
    assert len(err.splitlines()) == 1


def test_missing_file_and_missing_psram(board, tmp_path, capsys):
    code, _, err = vrt(capsys, "--port", "/dev/none", "--micropython", tmp_path / "none.bin")
    assert code == 2
    assert "none.bin: No such file or directory; test-board needs ESP32_GENERIC_S3-SPIRAM_OCT" in err
    path = tmp_path / "quad.bin"
    path.write_bytes(esp_image.make(octal=b"\0Generic ESP32S3 module\0"))
    assert (
        "does not say that it is for octal PSRAM" in image_file.doubts(image_file.read(path, board), board)[0]
    )
    assert image_file.doubts(image_file.read(esp_image.write(tmp_path), board), board) == []


def test_simulated_board_cannot_be_flashed(tmp_path, monkeypatch, capsys):
    device_profiles.install(monkeypatch, device_profiles.made(tmp_path / "b", mcu="unix"))
    code, _, err = vrt(capsys)
    assert (code, err) == (2, "vrt flash: test-board has no chip to flash: `vrt sim` runs it\n")


def test_port_that_is_not_there(board, tmp_path, capsys):
    code, _, err = vrt(capsys, "--port", tmp_path / "ttyUSB0", "--micropython", esp_image.write(tmp_path))
    assert code == 2
    assert "ttyUSB0; there is: " in err


def test_interruption_says_what_to_do(board, tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(flash, "flash", interrupted)
    code, out, err = vrt(capsys, "--port", "/dev/x", "--micropython", esp_image.write(tmp_path))
    assert (code, out) == (130, "")
    assert err == "vrt flash: interrupted; what is half written does no harm: run the same command again\n"


def test_file_that_is_no_port(board, tmp_path, capsys):
    code, _, err = vrt(capsys, "--port", "/dev/null", "--micropython", esp_image.write(tmp_path))
    assert code == 2
    assert "/dev/null is no serial port; there is:" in err


def test_port_that_is_in_use(board, tmp_path, capsys):
    master, slave = pty.openpty()
    tty.setraw(slave)
    port = os.ttyname(slave)
    with ports.serial.Serial(port, exclusive=True):
        code, _, err = vrt(capsys, "--port", port, "--micropython", esp_image.write(tmp_path))
    os.close(master)
    os.close(slave)
    assert code == 2
    assert f"{port} is in use by another program" in err


def test_port_without_permission_names_the_group():
    said = ports.explain("/dev/ttyUSB0", PermissionError(13, "Permission denied"))
    assert said.kind == "permission"
    assert "sudo usermod -a -G dialout $USER" in said.text


def test_chip_that_does_not_answer_gets_the_buttons_explained(board, tmp_path, capsys):
    master, slave = pty.openpty()
    tty.setraw(slave)
    real = flash.command
    try:
        flash_words = [*real(), "--connect-attempts", "1"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flash, "command", lambda: flash_words)
            code, _, err = vrt(
                capsys, "--port", os.ttyname(slave), "--micropython", esp_image.write(tmp_path)
            )
    finally:
        os.close(master)
        os.close(slave)
    assert code == 1
    assert "does not answer: hold BOOT" in err


def test_pyserial_is_asked_for_by_name(monkeypatch, capsys):
    monkeypatch.setattr(ports, "serial", None)
    for command in ("monitor", "provision"):
        assert cli.main([command]) == 2
        assert "pyserial is not installed: pip install 'vrt-edge[device]'" in capsys.readouterr().err


def test_esptool_is_asked_for_by_name(monkeypatch):
    monkeypatch.setattr(flash.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"esptool is not installed: pip install 'vrt-edge\[device\]'"):
        flash.command()


@pytest.mark.parametrize(
    ("found", "named", "chosen"),
    [
        ([], None, "no serial port is here"),
        ([("/dev/ttyACM0", "USB JTAG (Espressif)")], None, "/dev/ttyACM0"),
        (
            [("/dev/a", "CP2102"), ("/dev/b", "CH340")],
            None,
            "name one with --port:\n  /dev/a  CP2102\n  /dev/b  CH340",
        ),
        ([], "COM7", "COM7"),
    ],
)
def test_port_is_the_only_one_or_named(monkeypatch, found, named, chosen):
    monkeypatch.setattr(ports, "listed", lambda: found)
    with contextlib.nullcontext() if "/" in chosen[:2] or named else pytest.raises(UsageError) as error:
        assert ports.choose(named) == chosen
    assert error is None or chosen in str(error.value)
