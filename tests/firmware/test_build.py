import gc
import os
import sys

from fake_device import Disk
from fake_wlan import AccessPoint, FakeWlan
from serial_peer import FakePort
from support import raises
from test_main import Board
from vrt import tools
from vrt.errors import ConfigError


def started(board):
    from vrt.build import start  # noqa: PLC0415  (a start forgets it)

    return start(board)


def test_a_device_is_built_and_forgets_what_built_it():
    with Disk():
        app = started(Board(url="ws://host:1/", safe_boot_ms=0))
    assert app.session.state == "connecting"
    assert len(app.tools.tools) > 1  # the board's own tools
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


def test_a_device_on_a_cable_needs_a_board_with_a_port_and_nothing_of_the_network():
    board = Board(url="serial:", safe_boot_ms=0)
    assert "no port" in str(raises(ConfigError, started, board))
    held = sys.modules.pop("vrt.links.ws", None)
    for encoding, piece in (("pcmu", 240), ("pcm16", 1010)):
        board = Board(url="serial:", safe_boot_ms=0, input=encoding)
        port = FakePort()
        board.serial = lambda port=port: port
        with Disk():
            app = started(board)
        assert "vrt.links.ws" not in sys.modules
        assert (app.link.piece, len(app.link.rx)) == (piece, 2048 + 4)
        app.link.open(0)
        assert app.link.sock is port
    if held:
        sys.modules["vrt.links.ws"] = held


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
        os.remove("vrt-test-tools.json")
        tools.declared.clear()  # what they say is on that flash
        sys.modules.pop("tools", None)
    assert app.config["id"] == "copy"
    assert board.events[0]["code"] == "CONFIG"
    assert "the copy from before is used" in board.events[0]["message"]


class Silence:
    # A console at which nobody is.
    def read(self):
        return None

    def write(self, data):
        pass

    def close(self):
        pass


class Wireless(Board):
    # A board with Wi-Fi, at a place with an access point.
    def __init__(self, **raw):
        from vrt.setup import onboard  # noqa: PLC0415  (a start forgets it)

        super().__init__(safe_boot_ms=0, **raw)
        onboard.time = self.clock
        onboard.Console = Silence
        self.station = FakeWlan(AccessPoint())
        self.asked = 0

    def wlan(self):
        self.asked += 1
        return self.station

    def wait(self, sock, ms):
        super().wait(sock, ms)
        self.station.advance(ms)


def test_a_board_with_wifi_is_on_it_before_it_is_built():
    board = Wireless(url="ws://host:1/", wifi_ssid="home", wifi_password="secret-key")
    with Disk():
        app = started(board)
    assert app.wifi.up
    assert app.wifi.wlan is board.station
    assert app.wifi.forget is not None
    assert not app.wifi.tls
    told = board.events[0]
    assert (told["event"], told["state"], told["ip"], told["rssi"]) == ("wifi", "up", "192.168.1.50", -55)
    for name in ("vrt.setup.onboard", "vrt.setup.improv", "vrt.setup.settings"):
        assert name not in sys.modules, name


def test_a_board_without_credentials_is_set_up_or_stopped():
    board = Wireless(url="ws://host:1/")
    board.held_at = 5000
    with Disk():
        assert started(board) is None
    assert board.lights == ["setup"]


def test_wifi_is_left_alone_when_the_link_is_another():
    board = Wireless(url="serial:")
    raises(ConfigError, started, board)  # this one has no port
    assert board.asked == 0


def test_a_wrong_configuration_is_told_on_wifi_too():
    board = Wireless(wifi_ssid="home")
    assert '"url" is missing' in str(raises(ConfigError, started, board))
    board = Wireless(url="ws://host:1/", wifi_ssid="home", wifi_password=12345678)
    assert "12345678" not in str(raises(ConfigError, started, board))


def test_an_update_waits_for_a_network():
    from vrt.setup import fetch  # noqa: PLC0415  (a start forgets it)

    class Slots:
        trial = ""

    asked, kept = [], fetch.make
    for there in (True, False):
        board = Wireless(url="ws://host:1/", wifi_ssid="home", wifi_password="secret-key", update_key="key")
        board.station.points[0].on = there
        sys.modules["vrt.setup.fetch"] = fetch
        fetch.make = lambda board, config, slots: asked.append(1)
        sys.modules["slots"] = Slots
        try:
            with Disk():
                assert started(board).wifi.up == there
        finally:
            del sys.modules["slots"]
            fetch.make = kept
    assert asked == [1]


def test_what_only_the_start_needs_is_shed():
    class Parent:
        def __init__(self):
            self.used = True

    class Part(Parent):
        restore = load = add = Parent.__init__

        def __init__(self):
            super().__init__()
            self.kept = True

        def step(self):
            return self.kept and self.used

    from vrt.build import shed  # noqa: PLC0415  (a start forgets it)

    app = Part()
    for name in ("link", "log", "sound", "session", "conversation", "tools"):
        setattr(app, name, app)
    app.streams = app.button = app.journal = app.confirm = app  # type: ignore  (one part is all of them)
    shed(app)
    assert Part.__init__ is Parent.__init__ is Part.restore is Part.load is Part.add is None
    assert app.step()
