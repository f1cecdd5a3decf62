import gc
import sys

from fake_device import Device
from fake_wlan import AccessPoint, FakeWlan
from support import SkipTest
from vrt.links import wifi as module
from vrt.links.wifi import Wifi, explain
from vrt.setup import clock

STEP = 50


class Station:
    # Wi-Fi on a fake, with a clock that starts close to its wrap.
    def __init__(self, *points, password="secret-key", ssid="home", **more):
        self.wlan = FakeWlan(*points)
        self.events = []
        self.now = 0x3FFFFFFF - 3000
        self.wifi = Wifi(self.wlan, ssid, password, self.event, lambda n: n // 2, **more)

    def event(self, kind, **fields):
        fields["event"] = kind
        self.events.append(fields)

    def run(self, ms, step=STEP):
        for _ in range(ms // step):
            self.now = (self.now + step) & 0x3FFFFFFF
            self.wlan.advance(step)
            self.wifi.poll(self.now)
        return self.wifi.up


def test_wifi_joins_and_says_so():
    station = Station(AccessPoint())
    assert station.run(3000)
    up = {"event": "wifi", "state": "up", "ip": "192.168.1.50", "rssi": -55, "idf_block": None}
    assert station.events == [up]
    assert (station.wlan.reconnects, station.wlan.pm) == (0, 0)
    station.run(600_000, 500)
    assert len(station.events) == len(station.wlan.connects) == 1


def test_wifi_leaves_what_was_joined_before():
    # A soft reset leaves the driver connected; the news of it comes late and is none about the new connection.
    for left_ms in (50, 400):
        station = Station(AccessPoint())
        station.wlan.left_ms = left_ms
        station.wlan.active(True)
        station.wlan.connect("home", "secret-key")
        station.wlan.advance(1500)
        station.wlan.advance(300)
        assert station.wlan.isconnected()
        assert station.run(3000)
        assert [event["state"] for event in station.events] == ["up"]


def test_the_access_point_is_gone_for_five_minutes():
    point = AccessPoint()
    station = Station(point)
    station.run(5000)
    assert not station.wifi.gone
    point.on = False
    assert not station.run(300_000)
    assert station.wifi.gone
    tries = len(station.wlan.connects)
    assert 6 < tries < 20
    assert [event["reason"] for event in station.events[1:]] == [
        "the access point is gone",
        "no such network",
    ]
    point.on = True
    assert station.run(65_000)
    assert station.events[-1]["state"] == "up"
    assert station.wifi.reason == ""


def test_the_failure_of_one_try_is_not_that_of_the_next():
    # The driver goes on saying why the last one failed until there is an address.
    point = AccessPoint()
    point.on = False
    for cause in (201, 202):
        station = Station(point, password="not-the-key" if cause == 202 else "secret-key")
        station.wlan.wrong = 202
        point.on = cause == 202
        station.run(2500)
        assert station.wlan.status() == cause
        assert station.wifi.reason in ("no such network", "wrong password")
        point.on = True
        station.wifi.password = "secret-key"
        station.wlan.dhcp_ms = 9000  # and a network that takes its time
        assert station.run(14_000)
        assert len(station.wlan.connects) == 2


def test_a_failure_that_comes_again_is_one():
    station = Station()
    station.run(30_000)
    assert 3 <= len(station.wlan.connects) <= 5
    assert station.wifi.failures >= 2


def test_each_wait_is_longer_up_to_a_minute_and_has_jitter():
    station = Station()
    station.run(400_000)
    waits = [b - a - 1500 for a, b in zip(station.wlan.connects, station.wlan.connects[1:])]
    assert 700 < waits[0] < 900
    assert all(b >= a - STEP for a, b in zip(waits, waits[1:]))
    assert max(waits) < 60_000
    station.wifi.random = lambda n: 0
    station.run(400_000)
    assert station.wlan.connects[-1] - station.wlan.connects[-2] < max(waits)


def test_a_wrong_password_is_named_and_never_shown():
    station = Station(AccessPoint(), password="not-the-key")
    assert not station.run(60_000)
    assert station.events == [{"event": "wifi", "state": "down", "reason": "wrong password"}]
    assert "not-the-key" not in repr(station.events) + station.wifi.reason


def test_a_network_that_is_not_there_is_named():
    station = Station(AccessPoint("other"))
    station.run(30_000)
    assert station.wifi.reason == "no such network"


def test_a_hidden_network_is_joined_by_its_name():
    station = Station(AccessPoint(hidden=True))
    assert station.run(5000)
    assert station.wlan.scans == 0


def test_an_open_network_takes_no_password():
    station = Station(AccessPoint(password=""), password="")
    assert station.run(5000)
    assert station.wlan.asked == ("home", None)


def test_no_address_is_told_from_no_answer():
    point = AccessPoint()
    point.dhcp = False
    station = Station(point)
    assert not station.run(20_600)
    assert station.wifi.reason == "no IP address"
    assert not station.wlan.point  # left, before it is tried again
    point.dhcp = True
    assert station.run(10_000)


def test_the_driver_does_not_try_underneath():
    station = Station()
    tries = []
    station.wlan._try = lambda: (tries.append(1), station.wlan._lost(201))
    station.run(60_000)
    assert len(tries) == len(station.wlan.connects)


def test_a_driver_that_raises_is_asked_again():
    station = Station(AccessPoint())
    real = station.wlan.active

    def broken(on):
        raise OSError("WiFi Out of Memory")

    station.wlan.active = broken
    station.run(1000)
    assert station.wifi.reason == "the driver says WiFi Out of Memory"
    station.wlan.active = real
    assert station.run(10_000)


def test_five_thousand_failures_take_no_memory():
    if not hasattr(gc, "mem_alloc"):
        raise SkipTest("no gc.mem_alloc")
    station = Station()
    station.event = station.wifi.event = lambda kind, **fields: None
    station.run(100_000, 500)

    def fail(count):
        begun = wlan.count
        while wlan.count - begun < count:
            station.now = (station.now + 500) & 0x3FFFFFFF
            station.wifi.poll(station.now)
        gc.collect()
        return gc.mem_alloc()

    wlan = station.wifi.wlan = Refusing()
    before = fail(100)
    assert fail(5000) <= before
    assert station.wifi.failures == 6


class Refusing:
    # A driver that remembers nothing.
    def __init__(self):
        self.count = 0

    def active(self, on):
        pass

    def config(self, **values):
        pass

    def connect(self, ssid, key):
        self.count += 1

    def disconnect(self):
        pass

    def status(self, what=None):
        if what:
            raise OSError("Wifi Not Connected")
        return 201


def test_every_status_has_words():
    for status, words in (
        (202, "wrong password"),
        (204, "wrong password"),
        (210, "wrong password"),
        (201, "no such network"),
        (212, "no such network"),
        (200, "the access point is gone"),
        (203, "error 203"),
    ):
        assert explain(status) == words


# --- what TLS needs


class FakeEsp32:
    HEAP_DATA = 4

    def __init__(self, *largest):
        self.largest = largest

    def idf_heap_info(self, capabilities):
        assert capabilities == 4
        return [(100_000, 2 * n, n, n) for n in self.largest]


class Time:
    def __init__(self, year):
        self.year = year

    def gmtime(self):
        return (self.year, 1, 1, 0, 0, 0, 0, 1)


def with_modules(function, year=2026, esp32=None):
    kept = module.time
    module.time = Time(year)
    if esp32:
        sys.modules["esp32"] = esp32
    try:
        return function()
    finally:
        module.time = kept
        sys.modules.pop("esp32", None)


def joined(**more):
    station = Station(AccessPoint(), **more)
    station.run(5000)
    return station


def test_nothing_opens_before_wifi_is_up():
    assert Station(AccessPoint()).wifi.obstacle(0) == ""
    assert joined().wifi.obstacle(0) is None


def test_tls_needs_a_piece_of_the_systems_heap():
    station = joined(tls=True)

    def obstacle():
        return station.wifi.obstacle(station.now)

    assert with_modules(obstacle) is None  # no such heap here
    assert with_modules(obstacle, esp32=FakeEsp32(240, 35_512)) is None
    assert with_modules(obstacle, esp32=FakeEsp32(240, 9000)) == "tls_no_memory"
    assert station.events[-1]["code"] == "TLS_NO_MEMORY"
    assert "9000" in station.events[-1]["message"]
    plain = joined()
    assert with_modules(lambda: plain.wifi.obstacle(0), esp32=FakeEsp32(0)) is None


def test_tls_needs_the_time():
    station = joined(tls=True, ntp="nowhere")

    class Clock:
        done = False

        def poll(self, now):
            return self.done

    held = station.wifi._clock = Clock()
    assert with_modules(lambda: station.wifi.obstacle(0), 2000) == ""
    held.done = True
    assert with_modules(lambda: station.wifi.obstacle(0), 2000) is None
    assert station.wifi._clock is None
    assert "vrt.setup.clock" not in sys.modules
    sys.modules["vrt.setup.clock"] = clock


# --- in the device


class Wireless:
    # A device on Wi-Fi.
    def __init__(self, *points, **more):
        self.device = Device()
        self.wlan = FakeWlan(*points)
        app = self.device.app
        app.wifi = Wifi(self.wlan, "home", "secret-key", app.log.event, lambda n: n // 2, **more)
        self.device.link.sock = object()

    def run(self, ms):
        for _ in range(ms // 10):
            self.wlan.advance(10)
            self.device.run(10)

    def open(self):
        self.run(3000)
        self.device.open()


def test_the_device_connects_once_wifi_is_there():
    wireless = Wireless(AccessPoint())
    device = wireless.device
    wireless.run(1500)
    assert device.link.opened == 0
    assert device.board.lights == ["wifi"]
    wireless.run(1500)
    assert device.link.opened == 1
    assert device.board.lights == ["wifi", "connecting"]
    device.open()
    assert device.board.lights[-1] == "idle"


def test_the_largest_block_of_the_systems_heap_is_in_the_log_from_the_start_on():
    wireless = Wireless(AccessPoint())
    device = wireless.device
    esp32 = FakeEsp32(240, 35_512)
    with_modules(wireless.open, esp32=esp32)
    assert device.last("wifi")["idf_block"] == 35_512
    device.app.config["stats_ms"] = 10_000
    esp32.largest = (240, 9000)  # it goes to pieces while the device runs
    with_modules(lambda: wireless.run(11_000), esp32=esp32)
    assert device.last("stats")["idf_block"] == 9000


def test_the_light_tells_that_a_press_would_answer_also_without_a_link():
    point = AccessPoint()
    wireless = Wireless(point)
    wireless.open()
    device = wireless.device
    device.call("unlock", 1)
    wireless.run(100)
    assert device.board.lights[-1] == "confirm"
    point.on = False
    wireless.run(1000)
    assert device.link.closes == [4000]
    assert device.board.lights[-1] == "confirm"
    wireless.run(15_000)  # nobody answers
    assert device.board.lights[-1] == "wifi"


def test_the_link_goes_with_wifi_and_comes_back_with_it():
    point = AccessPoint()
    wireless = Wireless(point)
    wireless.open()
    device = wireless.device
    point.on = False
    wireless.run(200)
    assert device.link.closes == [4000]
    wireless.run(300_000)
    assert device.link.closes == [4000]
    assert device.link.opened == 1
    assert device.board.lights[-1] == "wifi"
    point.on = True
    wireless.run(65_000)
    assert device.link.opened == 2
    assert device.sent("hello")[-1]["sessionId"] == "session-one-and-only"


def test_a_link_without_memory_for_tls_is_tried_ever_later():
    wireless = Wireless(AccessPoint(), tls=True)
    device = wireless.device
    esp32 = FakeEsp32(9000)
    with_modules(lambda: wireless.run(120_000), esp32=esp32)
    lost = [event for event in device.board.events if event["event"] == "lost"]
    assert 10 < len(lost) < 30
    assert lost[-1]["reason"] == "tls_no_memory"
    assert device.link.opened == 0
    esp32.largest = (20_000,)
    with_modules(lambda: wireless.run(11_000), esp32=esp32)
    assert device.link.opened == 1
