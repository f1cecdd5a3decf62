# The loop on a whole device: the link, the order of what is sent, and that audio allocates nothing.
import gc
import json
import sys

import micropython
import vrt.app
from fake_device import LOUD, Device, opened
from support import SkipTest
from vrt import diff, links
from vrt.app import App, random
from vrt.protocol.wire import encode


def test_device_introduces_itself():
    device = Device(id="kitchen")
    hello = device.open()
    assert hello["auth"] == {"token": "s3cret"}
    assert hello["device"]["id"] == "kitchen"
    assert hello["device"]["board"] == "fake"
    assert hello["limits"] == {"messageBytes": 2048, "audioBytes": 2048, "queuedCalls": 8, "bufferMs": 600}
    assert hello["input"] == {"encoding": "pcmu", "sampleRate": 8000}
    assert hello["output"] == {"encoding": "pcmu", "sampleRate": 8000}
    assert sorted([tool["name"] for tool in hello["tools"]]) == ["light", "slow", "unlock"]
    assert [name for name in device.names() if name != "stats"] == ["connecting", "ready"]
    assert device.board.lights == ["connecting", "idle"]


def test_device_says_less_when_it_resumes():
    device = opened()
    device.link.cut()
    device.run(1000)
    hello = device.sent("hello")[-1]
    assert hello["sessionId"] == "session-one-and-only"
    assert "tools" not in hello
    assert "context" not in hello
    assert hello["auth"] == {"token": "s3cret"}
    device.ready(resumedFrom=0)
    device.run(20)
    assert device.last("ready")["resumed"] is True


def test_the_log_holds_no_secret():
    device = opened()
    device.link.cut()
    device.run(500)
    device.receive("error", code="UNAUTHORIZED", recoverable=False, message="no")
    device.run(50)
    text = repr(device.board.events)
    assert "s3cret" not in text
    assert "session-one-and-only" not in text


def test_a_message_that_the_link_dropped_is_told_once():
    device = opened()
    device.link.dropped = 2
    device.run(200)
    assert [event["code"] for event in device.board.events if event["event"] == "error"] == ["TOO_LARGE"]
    device.link.dropped = 3
    device.run(200)
    assert [event["code"] for event in device.board.events if event["event"] == "error"] == ["TOO_LARGE"] * 2


def test_device_connects_again_and_again():
    device = Device()
    device.link.up = False
    device.run(120_000)
    tries = device.link.opened
    assert 12 < tries < 25
    assert device.board.lights == ["connecting"]
    assert device.last("lost")["reason"] == "refused"
    device.link.up = True
    device.run(10_000)
    device.ready()
    device.run(50)
    assert device.board.lights[-1] == "idle"


def test_device_fails_5000_times_to_connect_without_haste_or_growth():
    class Idle:  # to collect 10,000 times would take the most of the time
        def collect(self):
            pass

    device = Device()
    app = device.app
    app.session.random = random  # the device's own
    vrt.app.gc = Idle()
    device.link.up = False
    used = []
    shortest, longest, last = 1 << 29, 0, device.now
    try:
        for tried in range(1, 5001):
            while device.link.opened < tried:
                device.now = (device.now + 250) & 0x3FFFFFFF
                app.step(device.now)
            if tried > 10:
                shortest = min(shortest, diff(device.now, last))
                longest = max(longest, diff(device.now, last))
            last = device.now
            del device.board.events[:]
            if tried in (1000, 5000) and hasattr(gc, "mem_alloc"):
                gc.collect()
                used.append(gc.mem_alloc())
    finally:
        vrt.app.gc = gc
    assert 5000 <= shortest <= 5500  # half of 10 s, and a step more
    assert 9500 <= longest <= 10_250  # all of it
    assert not used or used[1] - used[0] < 500, used
    device.link.up = True
    device.run(10_000)
    device.ready()
    device.run(50)
    assert device.board.lights[-1] == "idle"


def test_device_reconnects_quickly_after_a_good_connection():
    device = opened()
    device.run(6000)
    device.link.cut()
    device.run(270)
    assert device.link.opened == 2
    assert device.last("lost")["reason"] == "eof"


def test_device_closes_a_dead_connection():
    device = opened()
    device.link.last_rx = device.now
    device.run(37_000)
    assert device.link.closes == []
    assert len(device.sent("ping")) == 2
    device.run(600)
    assert device.link.closes == [4000]
    device.run(1000)
    assert device.sent("hello")[-1]["sessionId"] == "session-one-and-only"


def test_device_pings_sooner_where_the_server_has_less_patience():
    for beat, least, most in (
        (6000, 14, 16),
        (45_000, 1, 2),
        (1, 28, 31),
        (0, 1, 2),
        ("6000", 1, 2),
        (None, 1, 2),
    ):
        device = Device()
        device.open(limits={"heartbeatMs": beat})
        for _ in range(30):
            device.run(1000)
            device.receive("pong")
        assert least <= len(device.sent("ping")) <= most, (beat, len(device.sent("ping")))


def test_device_stays_with_a_server_that_answers():
    device = opened()
    for _ in range(12):
        device.run(10_000)
        device.receive("pong")
    assert device.link.closes == []


def test_device_works_across_the_wrap_of_ticks():
    device = Device(now=0x3FFFFFFF - 500)
    device.open()
    device.speak()
    device.run(1000)
    assert device.names()[-1] == "played"
    device.link.cut()
    device.run(1000)
    assert len(device.sent("hello")) == 2


# --- what is invalid, and what never ends


def test_device_goes_on_after_anything_invalid():
    device = opened()
    for data in (b"", b"{", b"[]", b'{"v":1}', b'{"v":1,"seq":0,"type":"ready"}', b"\xff", b"[" * 4000):
        device.link.inbox.append((links.TEXT, data))
    for data in (b"", b"\2\0\0\0", b"\1\0\0\0\0x", b"\2\0\0\0\0x"):
        device.link.inbox.append((links.AUDIO, data))
    device.run(50)
    assert device.names().count("error") == 7
    assert device.link.closes == []
    device.turn("thinking", 1)
    device.run(20)
    assert device.last("turn")["state"] == "thinking"


def test_a_flood_of_messages_does_not_hold_the_loop():
    device = opened()
    for i in range(100):
        device.receive("pong", x=i)
    device.step()
    assert len(device.link.inbox) == 92


def test_nothing_starts_before_what_comes_behind_audio_is_read():
    for before in range(12):
        device = opened()
        device.turn("speaking", 1)
        device.item("i1", 1)
        device.call("light", 1, state="on")
        device.audio(before)
        device.say("interrupted", epoch=1)
        device.link.unread = lambda: False  # what is in the socket is not known
        device.run(100)
        assert device.done == [], before


def test_nothing_starts_while_a_long_message_is_read():
    device = opened()
    device.call("light", 1, state="on")
    device.link.unread = lambda: True
    device.run(100)
    assert device.done == []
    device.link.unread = lambda: False
    device.run(100)
    assert device.done == ["light on"]


def test_a_number_that_json_has_not_is_invalid_and_never_logged():
    device = opened()
    for seq, number in ((1, "1e999"), (2, "-1e999"), (3, "[1E400]")):
        text = '{"v":1,"seq":%d,"type":"tool.call","callId":"c%d","name":"light","turnId":"t","epoch":1,"arguments":{"state":%s}}'
        device.link.inbox.append((links.TEXT, (text % (seq, seq, number)).encode()))
    device.run(50)
    assert [result["code"] for result in device.sent("tool.result")] == ["INVALID"] * 3
    assert device.names().count("call") == 3
    assert "inf" not in json.dumps([event.get("arguments") for event in device.board.events])


def test_a_hello_that_does_not_fit_any_more_goes_without_what_is_unknown():
    device = Device()
    size = len(encode(device.open(), 4096))
    device.call("slow", 1, call="c" * 100)
    device.run(300)
    device.boot()
    device.app.session.streams.size = size + 100
    device.run(100)
    device.receive("error", code="RESUME_FAILED", recoverable=False)
    device.run(1000)
    assert "sessionId" not in device.sent("hello")[-1]
    assert "context" not in device.sent("hello")[-1]
    device.ready(sessionId="another-one")
    device.run(100)
    assert device.sent("context")[0]["context"]["unknownCalls"]


def test_a_call_that_comes_twice_has_one_result_and_takes_one_slot():
    device = opened()
    for _ in range(40):
        device.call("slow", 1)
    device.run(3000)
    assert device.link.closes == []
    assert len(device.sent("tool.result")) == 1
    assert device.app.session.pending == 0


def test_a_session_that_is_new_is_taken_for_new_whatever_the_server_calls_it():
    device = opened()
    device.call("light", 1, state="on")
    device.run(50)
    device.receive("error", code="RESUME_FAILED", recoverable=False)
    device.run(1000)
    device.seq = 0
    device.ready(sessionId="another-one", resumedFrom=0)
    device.call("light", 1, state="on")
    device.run(100)
    assert device.done == ["light on"] * 2


def test_device_gives_up_a_turn_that_shows_no_sign_of_life():
    device = opened()
    device.turn("speaking", 1)
    for _ in range(5):
        device.run(11_000)
        device.receive("pong")  # the connection lives
    assert device.board.lights[-1] == "thinking"
    device.run(6000)
    assert device.board.lights[-1] == "idle"
    assert device.last("error")["code"] == "STUCK"


def test_device_closes_when_nothing_is_acknowledged():
    device = opened()
    while not device.link.closes and device.seq < 50:
        device.call("light", 1, call=f"c{device.seq}", state="on")
        device.run(20)
    assert device.link.closes == [4000]
    assert device.last("error")["code"] == "OUTBOX_FULL"
    assert len(device.sent("tool.result")) == 32
    device.run(1000)
    device.ready(resumedFrom=32)
    device.run(20)
    assert device.app.session.streams.free() == 32


def test_nothing_starts_behind_a_call_that_was_not_taken():
    device = opened()
    for number in range(25):  # their results leave 7 slots
        device.call("nothing", 1, call=f"n{number}")
    device.run(100)
    for number in range(8):
        device.call("light", 1, call=f"c{number}", state="on")
    device.say("interrupted", epoch=1)
    device.run(500)
    assert device.last("error")["code"] == "OUTBOX_FULL"
    assert device.done == []


# --- the uplink


def test_control_goes_before_audio():
    device = opened(listen="open", duplex="full")
    device.board.hear(LOUD)
    device.run(200)
    device.link.stall(True)
    device.run(40)
    device.link.order.clear()
    device.call("light", 1, state="on")
    device.run(100)
    device.app.session.offer("text", "hello")
    device.link.stall(False)
    device.step()
    assert device.link.order[:2] == ["tool.result", "text"]
    assert device.link.order[2] == "audio"


def test_control_goes_before_audio_on_a_link_that_is_nearly_always_busy():
    device = opened(listen="open", duplex="full")
    device.run(200)
    device.link.slow_ms = 12
    device.link.order.clear()
    now = device.now
    for i in range(40):
        now += 3
        device.board.heard.odd = True
        device.board.heard.step()  # a frame waits all the time
        device.app.step(now)
        if i == 10:
            device.app.session.offer("text", "hello")
            before = len(device.link.order)
    assert device.link.order.index("text") == before


def test_a_stalled_uplink_drops_the_oldest_frames_and_counts_them():
    device = opened(listen="open", duplex="full")
    device.run(300)
    last = int.from_bytes(device.link.frames[-1][1:5], "big")
    device.link.frames.clear()
    device.link.stall(True)
    made = device.app.sound.mic.frames
    device.run(1000)
    made = device.app.sound.mic.frames - made
    assert 48 <= made <= 51
    device.link.stall(False)
    device.step()
    assert len(device.link.frames) <= 5  # what the slots held
    assert made - 5 <= device.app.sound.mic.dropped <= made
    numbers = [int.from_bytes(frame[1:5], "big") for frame in device.link.frames]
    assert numbers == list(range(last + 1, last + 1 + len(numbers)))  # what was dropped had no number yet


def test_no_audio_is_sent_before_ready_or_without_a_connection():
    device = Device(listen="open", duplex="full")
    device.run(500)
    assert device.link.frames == []
    device.ready()
    device.run(200)
    assert device.link.frames
    device.link.up = False
    device.link.cut()
    device.run(50)
    device.link.frames.clear()
    device.run(500)
    assert device.link.frames == []
    device.link.up = True
    device.run(5000)
    device.ready(resumedFrom=0)
    device.run(200)
    assert 3 <= len(device.link.frames) <= 11  # fresh ones, nothing that has waited


# --- nothing is allocated for audio


class QuietI2S:
    # At 16 kHz; time passes when it is told to, and nothing is allocated.
    def irq(self, handler):
        self.handler = handler
        self.buf = None
        self.owed = 0  # samples

    def readinto(self, buf):
        self.buf = buf

    write = readinto

    def pass_10_ms(self):
        self.owed += 160
        if self.buf is not None and self.owed >= len(self.buf):
            self.owed -= len(self.buf)
            self.buf = None
            self.handler(self)

    def deinit(self):
        pass


class QuietLink:
    # An audio frame when the test says so, and room for every frame.
    def __init__(self):
        self.rx = bytearray(b"\2\0\0\0\0" + b"\x10" * 160)
        self.n = 165
        self.writable = True
        self.due = False
        self.sent = 0
        self.last_rx = self.dropped = 0
        self.sock = None

    def poll(self, now):
        due = self.due
        self.due = False
        return links.AUDIO if due else links.NONE

    def unread(self):
        return self.due

    def send_audio(self, buf, n):
        self.sent += 1
        return True


class Quiet:
    # A device in the middle of a conversation on those, so that nothing but the firmware could allocate.
    def __init__(self):
        device = opened(listen="open", duplex="full")
        device.board.hear(50)
        device.run(300)
        device.speak()
        device.run(300)  # until nothing is to be acknowledged
        self.now = device.now
        self.app = device.app
        self.app.link = self.link = QuietLink()
        self.mic, self.speaker = QuietI2S(), QuietI2S()
        for end, i2s in ((self.app.sound.mic, self.mic), (self.app.sound.speaker, self.speaker)):
            end.i2s = i2s
            i2s.irq(end._advance)
            i2s.readinto(end._buffers[0])

    def run(self, count):
        # Rounds of 10 ms: every second time a frame comes, and about then one goes.
        for i in range(count):
            self.now += 10
            self.speaker.pass_10_ms()
            self.mic.pass_10_ms()
            if i & 1:
                self.link.due = True
            self.app.step(self.now)


def test_audio_both_ways_allocates_nothing():
    if sys.implementation.name != "micropython":
        raise SkipTest("no heap lock")
    quiet = Quiet()
    quiet.run(20)
    sent, received = quiet.link.sent, quiet.app.sound.speaker.frames
    micropython.heap_lock()
    try:
        quiet.run(200)
    finally:
        micropython.heap_unlock()
    assert 99 <= quiet.link.sent - sent <= 101
    assert quiet.app.sound.speaker.frames - received == 100
    assert quiet.app.sound.playing


class NoWifi:
    led = "wifi"


class Shown:
    # As much of an App as decides what the LED shows.
    def __init__(
        self,
        *,
        state="open",
        asking=False,
        playing=False,
        active=False,
        live=False,
        mute=False,
        refused="START_FAILED",
        no_wifi=False,
    ):
        self.session = self.tools = self.conversation = self.sound = self.mic = self.board = self
        self.confirm = self
        self.state = state
        self.asking = asking
        self.playing = playing
        self.active = active
        self.live = live
        self.config = {"mute": mute}
        self.refused = refused
        self.wifi = NoWifi if no_wifi else None
        self._shown = ""

    def led(self, state):
        assert state == self._shown


def light(**changes):
    shown = Shown(**changes)
    App._report(shown)
    return shown._shown


def test_light_shows_what_matters_most():
    assert light() == "idle"
    assert light(mute=True) == "muted"
    assert light(live=True) == "listening"
    assert light(live=True, active=True) == "thinking"
    assert light(playing=True, active=True, live=True) == "speaking"
    assert light(asking=True, playing=True) == "confirm"
    for state in ("connecting", "waiting", "closed"):
        assert light(state=state, live=True) == "connecting"
        assert light(state=state, asking=True) == "confirm"  # a hold would confirm
    assert light(no_wifi=True, asking=True) == "confirm"
    assert light(state="failed") == "error"
    assert light(state="failed", refused="UNAUTHORIZED") == "denied"
    assert light(state="failed", no_wifi=True) == "wifi"


def test_light_follows_the_turn():
    device = opened()
    for state in ("thinking", "acting", "speaking"):
        device.turn(state, 1)
        device.run(20)
        assert device.board.lights[-1] == "thinking"
    device.turn("listening", 2)
    device.run(20)
    assert device.board.lights[-1] == "idle"


def test_random_is_in_range():
    assert {random(3) for _ in range(200)} == {0, 1, 2}
