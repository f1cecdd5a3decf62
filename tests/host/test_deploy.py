"""`vrt deploy` with the real mpremote against MicroPython on a pseudo-terminal, its flash a littlefs."""

import json
import subprocess
import sys

import device_profiles
import pytest
from fake_board import FakeBoard, content, mounted, operations
from vrt_host import cli
from vrt_host.device import build, deploy, repl
from vrt_host.errors import VrtError

MINE = {"config.json": b'{"url": "ws://10.0.0.2:8765/"}', "calls": b"the journal", "ca.pem": b"a certificate"}
STARTS = "print('the board starts')\nraise ValueError\n"


@pytest.fixture
def profile(tmp_path, monkeypatch):
    """A board, and a small firmware for it."""
    world = tmp_path / "world"
    for name, text in {
        "main.py": "def main():\n    import board\n",
        "vrt/__init__.py": "x = 1\n",
        "vrt/app.py": "y = " + repr("long " * 2000) + "\n",
        "vrt/links/ws.py": "z = 3\n",
    }.items():
        (world / "firmware" / name).parent.mkdir(parents=True, exist_ok=True)
        (world / "firmware" / name).write_text(text)
    (world / "firmware" / "slots.py").write_bytes((build.root() / "firmware" / "slots.py").read_bytes())
    (world / "boards").mkdir()
    made = whole(tmp_path, monkeypatch)
    monkeypatch.setattr(build, "root", lambda: world)
    return made


def whole(tmp_path, monkeypatch):
    """A board with the real firmware."""
    made = device_profiles.made(tmp_path / "board", mcu="unix")
    (made.folder / "board.py").write_text(STARTS)
    return device_profiles.install(monkeypatch, made)


def run(profile, board, **options):
    with repl.Repl(board.port, stay=True) as prompt:
        return deploy.deploy(prompt, profile, **options)


def of(slot, files):
    return {path[2:]: data for path, data in files.items() if path.startswith(f"{slot}/")}


def running(files):
    """What starts on a flash with these files: the content of the slot that slots.py chooses, or "" when nothing of ours does."""
    if files.get("main.py") != build.MAIN or "slots.mpy" not in files:
        return ""
    state = files.get("slot", b"a ").decode()
    slot = state[0]
    if state[1] == "?":  # what is tried next must be what came as an update, untouched
        assert of(slot, files) == {"main.mpy": b"an update"}
    if state[1] in "?!":
        slot = "b" if slot == "a" else "a"
    return of(slot, files)


def test_deploy_brings_everything_to_an_empty_board_and_starts_it(tmp_path, monkeypatch, capsys):
    profile = whole(tmp_path, monkeypatch)
    with FakeBoard(tmp_path, files=MINE) as board:
        code = cli.main(["deploy", "test-board", "--port", board.port])
        said = capsys.readouterr()
        board.wait_for(b"the board starts")
        files = board.files()
    assert (code, said.err) == (0, "")
    made = build.files(profile, arch="x64")
    assert of("a", files) == made.slot
    assert {path: files[path] for path in made.root} == made.root
    assert files["slot"] == b"a "
    assert {path: files[path] for path in MINE} == MINE
    assert f"is in slot a: {len(made.slot)} files sent" in said.out
    assert "  100 %\n" in said.out
    assert not [path for path in files if path.endswith(".new")]


def test_deploy_again_changes_nothing(profile, tmp_path, capsys):
    with FakeBoard(tmp_path) as board:
        run(profile, board)
        before = board.log.stat().st_size
        assert cli.main(["deploy", "test-board", "--port", board.port, "--stay"]) == 0
        assert board.log.stat().st_size == before
    assert "is on the board already" in capsys.readouterr().out


def test_deploy_sends_only_what_changed(profile, tmp_path):
    tools = tmp_path / "mine.py"
    tools.write_text("x = 1\n")
    with FakeBoard(tmp_path, files=MINE) as board:
        run(profile, board)
        result = run(profile, board, tools=tools)
        files = board.files()
    assert result.sent == ["tools.mpy", build.LISTING]
    assert len(result.copied) == len(build.files(profile, tools=tools, arch="x64").slot) - 2
    assert result.slot == "b"
    assert running(files) == build.files(profile, tools=tools, arch="x64").slot
    assert (
        running({**files, "slot": b"a "}) == build.files(profile, arch="x64").slot
    )  # the one before is there
    assert {path: files[path] for path in MINE} == MINE


def test_users_tools_stay_until_others_are_named(profile, tmp_path, capsys):
    tools = tmp_path / "mine.py"
    tools.write_text("x = 1\n")
    with FakeBoard(tmp_path) as board:
        run(profile, board, tools=tools)
        assert not run(profile, board).changed
        (profile.folder / "board.py").write_text("y = 2\n" + STARTS)
        code = cli.main(["deploy", "test-board", "--port", board.port, "--stay"])
        said = capsys.readouterr()
        kept = running(board.files())
        tools.write_text("x = 2\n")
        run(profile, board, tools=tools)
        new = running(board.files())
    assert (code, said.err) == (0, "")
    assert "your tools stay" in said.out
    listing = json.loads(kept[build.LISTING])
    assert listing["tools"] == "own"
    assert listing["files"] == {
        path: digest for path, digest in build.digests(kept).items() if path != build.LISTING
    }
    assert "tools.py" not in kept
    assert new["tools.mpy"] != kept["tools.mpy"]


def test_what_mpremote_sees_is_what_was_built(profile, tmp_path):
    with FakeBoard(tmp_path) as board:
        run(profile, board)
        words = [
            sys.executable,
            "-m",
            "mpremote",
            "connect",
            board.port,
            "resume",
            "sha256sum",
            ":a/main.mpy",
        ]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    wanted = build.digests(build.files(profile, arch="x64").slot)["main.mpy"]
    assert wanted in done.stdout


def test_own_main_is_kept(profile, tmp_path, capsys):
    with FakeBoard(tmp_path, files={"main.py": b"print('mine')\n"}) as board:
        assert cli.main(["deploy", "test-board", "--port", board.port]) == 0
        board.wait_for(b"the board starts")
        assert board.files()["main.before.py"] == b"print('mine')\n"
    assert "kept as main.before.py" in capsys.readouterr().out


# --- cuts


def flash_before(profile, folder, state):
    """A flash with the firmware `profile` has now in slot a, and `state` in the file that names the slot."""
    files = build.files(profile, arch="x64")
    made = {f"a/{path}": data for path, data in files.slot.items()}
    if state[1:2] in ("?", "!"):  # an update: not ours to judge, and not whole for all we know
        made["b/main.mpy"] = b"an update"
    return {**MINE, **made, **files.root, "slot": state.encode()}


@pytest.mark.parametrize("state", ["", "a ", "b? 0.2.0", "b! 0.2.0"])
def test_power_cut_at_every_write_leaves_the_old_firmware_or_the_new(profile, tmp_path, state):
    """Every prefix of what is written to the flash, and every one with its last write half done."""
    before = flash_before(profile, tmp_path, state) if state else MINE
    old = running(before) if state else ""
    tools = tmp_path / "mine.py"
    tools.write_text("x = 1\n")
    with FakeBoard(tmp_path, files=before) as board:
        flash = bytearray(board.image.read_bytes())
        run(profile, board, tools=tools)
        writes = operations(board.log.read_bytes())
        assert running(board.files()) == build.files(profile, tools=tools, arch="x64").slot
    new = build.files(profile, tools=tools, arch="x64").slot
    assert len(writes) > 100
    seen = []
    for n, (address, data) in enumerate(writes):
        for part in (data[: len(data) // 2], data):
            flash[address : address + len(part)] = part
            files = starts(bytes(flash))
            assert files in (old, new), f"write {n} of {len(writes)} leaves neither"
            seen.append(files == new)
    assert seen == sorted(seen)  # once new, always new
    assert seen[-1]
    assert not seen[0]


def starts(image):
    """`running` on that flash; the settings must be there as well."""
    files = content(mounted(image))
    assert {path: files[path] for path in MINE} == MINE
    return running(files)


# --- what goes wrong


@pytest.mark.parametrize("step", [3, 7, 10, 13])
def test_unplugged_board_has_its_firmware_and_the_next_deploy_goes_on(
    profile, tmp_path, monkeypatch, capsys, step
):
    before = flash_before(profile, tmp_path, "a ")
    old = running(before)
    (profile.folder / "board.py").write_text("y = 2\n" + STARTS)
    count = 0

    with monkeypatch.context() as patch, FakeBoard(tmp_path, files=before) as board:
        real = repl.Repl.run

        def run_or_pull(self, code, **options):
            nonlocal count
            count += 1
            if count == step:
                board.unplug()
            return real(self, code, **options)

        patch.setattr(repl.Repl, "run", run_or_pull)
        code = cli.main(["deploy", "test-board", "--port", board.port])
    said = capsys.readouterr()
    assert code == 1
    assert "was unplugged; run it again, the board has its old firmware or the new one" in said.err
    assert len(said.err.splitlines()) == 1
    assert running(board.files()) == old
    there = set(of("b", board.files()))
    with FakeBoard(tmp_path) as board:
        result = run(profile, board)
        assert running(board.files()) == build.files(profile, arch="x64").slot
    assert not there & set(result.copied)  # what had come is not brought again


def test_deploy_refuses_another_chip(profile, tmp_path, capsys):
    profile.data["mcu"] = "esp32s3"
    with FakeBoard(tmp_path, files=MINE) as board:
        code = cli.main(["deploy", "test-board", "--port", board.port])
        assert board.files() == MINE
    assert code == 1
    assert "and test-board has another chip: nothing was written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("machine", "chips"),
    [
        ("Generic ESP32S3 module with Octal-SPIRAM with ESP32S3", ["esp32s3"]),
        ("Generic ESP32 module with ESP32", ["esp32"]),
        ("M5Stack Atom with ESP32-PICO-D4", ["esp32"]),
        ("ESP32C3 module with ESP32C3", []),
        ("ESP32-P4 with ESP32P4", []),
        ("linux [GCC 14.2.1] version", ["unix"]),
    ],
)
def test_chip_is_known_by_what_micropython_says(machine, chips):
    assert [mcu for mcu in ("esp32", "esp32s3", "unix") if deploy.fits(machine, mcu)] == chips


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"name": "circuitpython"}, "runs circuitpython, not MicroPython"),
        ({"version": [1, 26, 1]}, r"has MicroPython 1\.26\.1, and 1\.27 is needed"),
    ],
)
def test_other_pythons_are_refused(profile, tmp_path, monkeypatch, said, reason):
    real = repl.Repl.ask
    monkeypatch.setattr(
        repl.Repl, "ask", lambda self, code, **options: {**real(self, code, **options), **said}
    )
    with FakeBoard(tmp_path, files=MINE) as board:
        with pytest.raises(VrtError, match=reason):
            run(profile, board)
        assert board.files() == MINE


def test_interruption_leaves_the_old_firmware_and_says_so(profile, tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with FakeBoard(tmp_path, files=MINE) as board:
        monkeypatch.setattr(repl.Repl, "write", interrupted)
        assert cli.main(["deploy", "test-board", "--port", str(board.port)]) == 130
        assert board.files() == MINE
    assert capsys.readouterr().err == (
        "vrt deploy: interrupted; run it again, the board has its old firmware or the new one\n"
    )


def test_board_without_a_file_system_is_told_to_be_erased(profile, tmp_path):
    """As one is whose files were made by a MicroPython that saw another size of flash."""
    with FakeBoard(tmp_path) as board, repl.Repl(board.port, stay=True) as prompt:
        prompt.run("import vfs\nvfs.umount('/')")
        with pytest.raises(VrtError, match=r"no file system that MicroPython can use .*`vrt flash --erase`"):
            deploy.deploy(prompt, profile)


def test_full_flash_is_said_before_anything_is_written(profile, tmp_path):
    with FakeBoard(tmp_path, files={**MINE, "song.wav": bytes(240 * 4096)}) as board:
        with pytest.raises(VrtError, match=r"KB of flash free, and \d+ KB are needed: remove files"):
            run(profile, board)
        assert set(board.files()) == {*MINE, "song.wav"}


def test_file_that_does_not_read_back_is_not_switched_to(profile, tmp_path, monkeypatch):
    before = flash_before(profile, tmp_path, "a ")
    old = running(before)
    (profile.folder / "board.py").write_text("y = 2\n" + STARTS)
    real = repl.Repl.write

    def write(self, path, data, progress=None):
        real(self, path, data[:-1] + b"?" if path == "b/board.mpy" else data, progress)

    monkeypatch.setattr(repl.Repl, "write", write)
    with FakeBoard(tmp_path, files=before) as board:
        with pytest.raises(VrtError, match="does not read back"):
            run(profile, board)
        assert running(board.files()) == old


def test_error_of_the_board_is_one_line(profile, tmp_path):
    with FakeBoard(tmp_path) as board, repl.Repl(board.port) as prompt:
        with pytest.raises(repl.BoardError, match=r"the board says: OSError: \[Errno 2\] ENOENT$") as error:
            prompt.run("open('none')")
        assert error.value.kind == "OSError"
        assert prompt.ask("print(6 * 7)") == 42


def test_program_that_runs_is_stopped(profile, tmp_path):
    with FakeBoard(tmp_path, files={"main.py": b"print('busy')\nwhile True:\n    pass\n"}) as board:
        board.wait_for(b"busy")
        assert run(profile, board).changed


def test_firmware_that_refuses_to_start_leaves_the_board_at_its_prompt(profile, tmp_path):
    """As without settings. The ESP32 port would start main.py again after a SystemExit."""
    (profile.folder / "board.py").write_text("print('no settings')\nraise SystemExit(1)\n")
    with FakeBoard(tmp_path) as board:
        assert cli.main(["deploy", "test-board", "--port", board.port]) == 0
        board.wait_for(b"no settings\nMicroPython")  # the banner of its prompt
        assert b"no settings\nMPY: soft reboot" not in board.printed


def test_board_that_does_not_listen_is_asked_for_a_reset(profile, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(repl, "KNOCK_S", 0.3)
    monkeypatch.setattr(repl, "LISTEN_S", 0.3)
    with FakeBoard(tmp_path, deaf=True) as board:
        code = cli.main(["deploy", "test-board", "--port", board.port])
    said = capsys.readouterr()
    assert code == 1
    assert "does not listen: resetting it; if nothing happens, press its RESET" in said.out
    assert (
        f"no MicroPython prompt at {board.port}: press RESET on the board while this command runs" in said.err
    )


def test_board_that_listens_only_while_it_starts_is_caught_there(profile, tmp_path, monkeypatch, capsys):
    """As with the serial link, which takes Ctrl-C for data: a reset opens the safe-boot window."""
    monkeypatch.setattr(repl, "LISTEN_S", 0.3)
    with FakeBoard(tmp_path, deaf=True) as board:
        monkeypatch.setattr(repl.Repl, "_reset", lambda self: setattr(board, "deaf", False))
        assert run(profile, board).changed
    assert "does not listen" in capsys.readouterr().out
