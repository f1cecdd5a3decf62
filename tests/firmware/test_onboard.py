# Setting up a device over its console, on a fake Wi-Fi: time passes while the board waits.
import json

from fake_device import Device
from fake_flash import Flash
from fake_wlan import AccessPoint, FakeWlan
from support import raises
from test_improv import CANNOT_CONNECT, CURRENT, IS_PROVISIONED, IS_PROVISIONING, IS_READY, NETWORKS, NO_ERROR
from test_main import Board
from vrt.links.wifi import Wifi
from vrt.setup import forget, onboard, settings
from vrt.setup.improv import packet

FILE = "/nowhere/config.json"


def credentials(ssid, password):
    data = bytes((len(ssid),)) + ssid.encode() + bytes((len(password),)) + password.encode()
    return packet(3, bytes((1, len(data))) + data)


class Console:
    # What comes at which time, [ms, bytes], and what was said.
    def __init__(self, board, *script):
        self.board = board
        self.script = list(script)
        self.inbox = b""
        self.said = []
        self.closed = False

    def read(self):
        while self.script and self.script[0][0] <= self.board.clock.now:
            self.inbox += self.script.pop(0)[1]
        if not self.inbox:
            return None
        byte, self.inbox = self.inbox[0], self.inbox[1:]
        return byte

    def write(self, data):
        self.said.append(bytes(data[1:-1]))

    def close(self):
        self.closed = True


class Site:
    # A board at a place with these access points, and somebody at its console.
    def __init__(self, *points, ssid="", password="", script=(), held_at=None):
        self.board = board = Board()
        self.wlan = FakeWlan(*points)
        board.wait = self.wait
        board.held_at = held_at
        made = {"url": "ws://h/", "token": "s3cret"}
        if ssid:
            made.update(wifi_ssid=ssid, wifi_password=password)
        self.flash = Flash(settings, {FILE: json.dumps(made)})
        self.console = Console(board, *script)
        self.wifi = Wifi(self.wlan, ssid, password, board.event, lambda n: n // 2)
        onboard.time = board.clock

    def wait(self, sock, ms):
        assert ms > 0
        self.board.clock.now += ms
        self.wlan.advance(ms)
        assert self.board.clock.now < 1_000_000, "it never ends"

    def run(self):
        with self.flash:
            return onboard.onboard(self.board, self.wifi, self.console)

    def config(self):
        return json.loads(self.flash.files[FILE])


def test_a_known_network_is_joined_and_nothing_is_offered():
    site = Site(AccessPoint(), ssid="home", password="secret-key")
    assert site.run()
    assert site.wifi.up
    assert site.board.lights == ["wifi"]
    assert site.board.clock.now < 4000
    assert not site.console.closed


def test_a_device_without_credentials_waits_for_some():
    script = ([600_000, CURRENT], [601_000, credentials("home", "secret-key")])
    site = Site(AccessPoint(), script=script)
    assert site.run()
    assert site.wifi.up
    assert site.board.lights == ["setup"]
    assert site.console.said[:4] == [NO_ERROR, IS_READY, NO_ERROR, IS_PROVISIONING]
    assert site.console.said[4] == IS_PROVISIONED
    assert site.console.closed
    config = site.config()
    assert (config["wifi_ssid"], config["wifi_password"]) == ("home", "secret-key")
    assert (config["url"], config["token"]) == ("ws://h/", "s3cret")
    assert site.board.clock.now < 610_000


def test_a_wrong_password_is_told_and_another_may_follow():
    script = ([1000, credentials("home", "not-the-key")], [30_000, credentials("home", "secret-key")])
    site = Site(AccessPoint(), script=script)
    assert site.run()
    said = site.console.said
    assert said.index(CANNOT_CONNECT) < said.index(IS_PROVISIONED)
    assert site.config()["wifi_password"] == "secret-key"
    assert "not-the-key" not in repr(site.board.events) + repr(site.flash.files)


def test_a_hidden_network_can_be_given():
    site = Site(AccessPoint(hidden=True), script=([1000, credentials("home", "secret-key")],))
    assert site.run()
    assert site.wifi.up


def test_credentials_stay_until_others_have_worked():
    # The known network is away; somebody offers a wrong one; then the known one comes back.
    point = AccessPoint()
    point.on = False
    site = Site(point, ssid="home", password="secret-key", script=([21_000, credentials("away", "x" * 8)],))
    before = dict(site.flash.files)
    plain = site.wait

    def wait(sock, ms):
        point.on = site.board.clock.now > 50_000
        plain(sock, ms)

    site.board.wait = wait
    assert site.run()
    assert CANNOT_CONNECT in site.console.said
    assert site.wifi.up
    assert site.wifi.ssid == "home"
    assert site.flash.files == before


def test_setting_up_is_offered_for_a_minute_when_the_network_is_away():
    site = Site(ssid="home", password="secret-key")
    assert site.run()
    assert not site.wifi.up
    assert 79_000 < site.board.clock.now < 83_000
    assert site.board.lights == ["wifi", "setup"]
    assert site.board.events[-1]["reason"] == "no such network"


def test_networks_can_be_listed_while_the_known_one_is_away():
    site = Site(AccessPoint("other"), ssid="home", script=([21_000, NETWORKS],))
    site.run()
    assert any(b"\x05other" in packet for packet in site.console.said)
    assert not site.wifi.up


def test_nobody_is_cut_off_in_the_midst_of_it():
    # Who looks for networks every now and then and takes his time to type is heard to the end.
    script = [[21_000 + 20_000 * n, NETWORKS] for n in range(6)]
    script.append([150_000, credentials("other", "secret-key")])
    site = Site(AccessPoint("other"), ssid="home", script=script)
    assert site.run()
    assert IS_PROVISIONED in site.console.said
    assert site.config()["wifi_ssid"] == "other"


def test_a_failure_is_told_before_the_client_gives_up():
    # A network that never answers: clients wait 30 s.
    point = AccessPoint()
    point.dhcp = False
    site = Site(point, script=([1000, credentials("home", "secret-key")],), held_at=100_000)
    told = []
    plain = site.console.write

    def write(data):
        told.append(site.board.clock.now)
        plain(data)

    site.console.write = write
    assert not site.run()
    assert told[site.console.said.index(CANNOT_CONNECT)] < 1000 + 28_000


def test_the_button_stops_it():
    assert not Site(held_at=5000).run()
    assert not Site(ssid="home", held_at=5000).run()


def test_ctrl_c_stops_it_but_not_inside_a_packet():
    site = Site(script=([1000, CURRENT], [2000, b"\r\x03"]))
    raises(KeyboardInterrupt, site.run)
    assert site.console.said == [NO_ERROR, IS_READY]
    assert site.console.closed


def test_a_packet_that_breaks_off_does_not_hold_up_the_next():
    site = Site(held_at=5000, script=([1000, CURRENT[:-2]], [3000, CURRENT]))
    site.run()
    assert site.console.said == [NO_ERROR, IS_READY]


def test_a_flash_that_is_full_is_told_and_wifi_is_up_all_the_same():
    site = Site(AccessPoint(), script=([1000, credentials("home", "secret-key")],))

    def refuse(path, mode="r"):
        raise OSError(28)

    site.flash.open = refuse
    assert site.run()
    assert site.board.events[-1]["code"] == "CONFIG"
    assert "secret-key" not in repr(site.board.events)


# --- forgetting


class Held:
    # A device whose button can be held for long.
    def __init__(self, **settings_):
        self.device = device = Device(**settings_)
        device.open()
        self.wlan = FakeWlan(AccessPoint())
        self.restarted = 0
        board = device.board
        board.safe = board.restart = self.restart
        board.wait = lambda sock, ms: setattr(board, "down", False)
        device.app.wifi = wifi = Wifi(self.wlan, "home", "secret-key", device.app.log.event, lambda n: n // 2)
        wifi.forget = forget.Forget(board)
        made = {"url": "ws://h/", "wifi_ssid": "home", "wifi_password": "secret-key"}
        self.flash = Flash(settings, {FILE: json.dumps(made), "/nowhere/config.old": json.dumps(made)})
        self.run(3000)
        assert device.board.lights[-1] == "idle"

    def restart(self):
        self.restarted += 1

    def run(self, ms):
        with self.flash:
            for _ in range(ms // 10):
                self.wlan.advance(10)
                self.device.run(10)
                self.device.link.frames.clear()  # what is said in ten seconds is much
                self.device.link.order.clear()

    def hold(self, ms):
        self.device.board.down = True
        self.run(ms)


def test_ten_seconds_of_holding_forget_wifi():
    held = Held()
    held.hold(2500)
    assert "forget" not in held.device.board.lights
    held.hold(1000)
    assert held.device.board.lights[-1] == "forget"
    held.hold(6000)
    assert held.restarted == 0
    held.hold(1000)
    assert held.restarted == 2  # safe and restart
    assert held.device.last("wifi")["state"] == "forgotten"
    assert "secret-key" not in repr(held.flash.files)
    assert json.loads(held.flash.files[FILE]) == {"url": "ws://h/"}


def test_letting_go_keeps_wifi():
    held = Held()
    for _ in range(3):
        held.hold(9000)
        held.device.board.down = False
        held.run(2000)
        assert held.device.board.lights[-1] != "forget"
    assert held.restarted == 0


def test_who_talks_does_not_forget():
    held = Held()
    for _ in range(5):
        held.device.board.hear(8000)
        held.hold(160)
        held.device.board.hear(10)
        held.hold(80)
    held.hold(15_000)  # a long pause
    assert held.restarted == 0
    assert "forget" not in held.device.board.lights


def test_a_turn_or_a_call_is_no_time_to_forget():
    held = Held()
    held.device.turn("thinking", 1)
    held.hold(15_000)
    assert held.restarted == 0


def test_who_is_heard_by_the_host_does_not_forget():
    held = Held()
    held.device.turn("listening", 1)
    held.hold(15_000)
    assert held.restarted == 0


def test_the_button_that_confirms_does_not_forget():
    held = Held()
    held.device.call("unlock", 1)
    held.run(100)
    assert held.device.board.lights[-1] == "confirm"
    held.hold(12_000)
    assert held.restarted == 0
