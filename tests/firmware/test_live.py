# When a running device takes an update, and when a version on trial stays.
from support import raises
from vrt.setup import fetch, live

OFFER = {"version": "9.0.0", "port": 1}


class Restarted(Exception):
    pass


class Slots:
    def __init__(self, trial=""):
        self.trial = trial

    def read(self):
        return "a", "!" if self.trial else "", self.trial

    def confirm(self):
        self.trial = ""


class Device:
    # What Live sees of the app, and its board.
    def __init__(self, trial="", key="update.pub", now=0):
        self.conversation = self.session = self.tools = self.sound = self.log = self
        self.offer = None
        self.state = "open"
        self.active = self.playing = False
        self.queue = []
        self.done = []
        self.slots = Slots(trial)
        self.live = live.Live(self.slots, self, {"update_key": key}, now)

    def event(self, kind, **fields):
        self.done.append((kind, fields))

    def safe(self):
        self.done.append("safe")

    def close(self):
        self.done.append("silent")

    def restart(self):
        self.done.append("restart")
        raise Restarted

    def step(self, now):
        self.live.step(self, now)


def wanting(answer):
    # The offers that are looked at, while `wanted` answers so.
    asked = []

    def wanted(offer, slots):
        asked.append(offer)
        return answer

    fetch.wanted = wanted
    return asked


_wanted = fetch.wanted
_forget = live.forget


def looked(test):
    # Runs it with a `wanted` of its own, in a module that stays.
    live.forget = lambda *names: None
    try:
        test()
    finally:
        live.forget = _forget
        fetch.wanted = _wanted


def test_offer_is_taken_when_the_device_is_calm():
    def test():
        asked = wanting(True)
        device = Device()
        device.step(0)
        device.offer = OFFER
        device.step(100)
        device.step(29_999)
        assert asked == []
        raises(Restarted, device.step, 30_000)
        assert asked == [OFFER]
        assert device.done == ["safe", "silent", "restart"]

    looked(test)


def test_offer_waits_for_whatever_goes_on():
    def test():
        asked = wanting(True)
        for name, value in (("active", True), ("queue", [1]), ("playing", True), ("state", "parked")):
            device = Device()
            device.offer = OFFER
            before = getattr(device, name)
            setattr(device, name, value)
            device.step(100_000)
            setattr(device, name, before)
            device.step(129_999)
            assert asked == [], name
            raises(Restarted, device.step, 130_000)
            asked.clear()

    looked(test)


def test_offer_that_is_not_wanted_is_looked_at_once():
    def test():
        asked = wanting(False)
        device = Device()
        device.offer = OFFER
        for now in range(0, 200_000, 10_000):
            device.step(now)
        assert asked == [OFFER]

    looked(test)


def test_device_without_a_key_takes_nothing():
    def test():
        asked = wanting(True)
        device = Device(key="")
        device.offer = OFFER
        device.step(100_000)
        assert asked == []

    looked(test)


def test_trial_ends_well_when_the_session_is_open():
    device = Device(trial="9.0.0")
    device.state = "connecting"
    device.step(179_999)
    assert device.slots.trial == "9.0.0"
    device.state = "open"
    device.step(179_999)
    assert device.slots.trial == ""
    device.step(1_000_000)
    assert device.done == [("update", {"state": "stays", "version": "9.0.0"})]


def test_trial_that_does_not_reach_its_host_in_three_minutes_goes_back():
    device = Device(trial="9.0.0", now=0x3FFFFFFF)  # the clock wraps meanwhile
    device.state = "connecting"
    device.step(179_998)
    raises(Restarted, device.step, 179_999)
    assert device.done == [
        ("update", {"state": "goes back", "version": "9.0.0"}),
        "safe",
        "silent",
        "restart",
    ]
