# The whole firmware is built on every real board, and told when a chip of it is missing.
import sys

from fake_machine import booted, codec_chips, described
from support import raises
from test_board_real import profiles
from vrt.build import build
from vrt.config import checked
from vrt.errors import ConfigError


class Tools:  # what a board without tools of its own has: an empty module
    pass


def built(name, chips=None, **settings):
    # The App on that board; its board and machine.
    board, machine = booted(name, codec_chips() if chips is None else chips)
    board.storage = "/nowhere/"
    settings["url"] = "ws://127.0.0.1:9/"
    config = checked(settings, board.DESCRIPTION["duplex"])
    before = sys.modules.get("tools")
    sys.modules["tools"] = Tools  # type: ignore[assignment]
    try:
        return build(board, config), board, machine
    finally:
        if before is None:
            del sys.modules["tools"]
        else:
            sys.modules["tools"] = before


def test_the_firmware_is_built_on_every_board():
    for name in profiles():
        app, board, machine = built(name)
        assert app.board is board
        assert app.sound.mic is not None
        assert app.sound.speaker is not None
        app.sound.listen(True, False, 0)
        unit = described(name)["microphone"]["unit"]
        assert machine.open[unit].mode == machine.I2S.RX
        assert machine.open[unit].clocks[0] == described(name)["microphone"]["pins"]["sck"]
        board.safe()
        app.sound.close()
        assert machine.open == {}


def test_full_duplex_is_refused_where_a_codec_shares_its_clocks():
    for name in profiles():
        if described(name)["duplex"] == "half":
            assert "duplex" in str(raises(ConfigError, built, name, duplex="full"))
        else:
            built(name, duplex="full")


def test_a_board_whose_codec_is_missing_does_not_start():
    text = str(raises(ConfigError, built, "m5-atoms3r-echo-base", {}))
    assert "SDA 38, SCL 39" in text
