import gc
import os
import sys

from fake_device import Disk
from support import raises
from test_main import Board
from vrt.errors import ConfigError


def started(board):
    from vrt.build import start  # noqa: PLC0415  (a start forgets it)

    return start(board)


def test_a_device_is_built_and_forgets_what_built_it():
    with Disk():
        app = started(Board(url="ws://host:1/", safe_boot_ms=0))
    assert app.session.state == "connecting"
    assert len(app.tools.declare()) > 1  # the board's own tools
    assert len(app.link.rx) == 2048
    assert app.sound.input == app.sound.output == ("pcmu", 8000)
    for name in ("vrt.build", "vrt.config", "vrt.tools.declaration"):
        assert name not in sys.modules, name
    if hasattr(gc, "threshold"):
        assert 0 < gc.threshold() < gc.mem_free() // 2


def test_a_device_can_be_built_twice():
    for size in (1024, 2048):
        with Disk():
            app = started(Board(url="ws://host:1/", safe_boot_ms=0, message_bytes=size))
        assert len(app.link.rx) == size


def test_a_certificate_that_cannot_be_read_is_named():
    with Disk():
        board = Board(url="wss://host/", safe_boot_ms=0, ca="nowhere.pem")
        assert "nowhere.pem" in str(raises(ConfigError, started, board))


def test_damaged_settings_are_taken_from_the_copy_and_it_is_told():
    board = Board(url="ws://host:1/", safe_boot_ms=0)

    def damaged():
        raise ValueError("syntax error in JSON")

    board.config = damaged
    board.storage = "vrt-test-"
    assert "syntax error" in str(raises(ConfigError, started, board))
    with open("vrt-test-config.old", "w") as file:
        file.write('{"url":"ws://host:1/","safe_boot_ms":0,"id":"copy"}')
    try:
        with Disk():
            app = started(board)
    finally:
        os.remove("vrt-test-config.json")
    assert app.config["id"] == "copy"
    assert board.events[0]["code"] == "CONFIG"
    assert "the copy from before is used" in board.events[0]["message"]
