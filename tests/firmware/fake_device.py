# A whole device on fakes: board, I2S, flash and link; what is between them is real. The test moves the time by 10 ms steps.
import gc
import json
from array import array

from test_journal import Disk
from vrt import links, tools
from vrt.app import App
from vrt.config import checked
from vrt.log import Log
from vrt.protocol.wire import encode
from vrt.sound import Sound
from vrt.tools import Tool
from vrt.tools.confirm import Confirm
from vrt.tools.journal import Journal
from vrt.tools.registry import Registry

if hasattr(gc, "freeze"):  # the device collects garbage often, and CPython's is everybody's
    gc.freeze()

STEP_MS = 10
LOUD = 8000


class Speaker:
    # Plays 10 ms a step at 16 kHz, from a DMA of 32 ms.
    def __init__(self):
        self.waiting = []
        self.held = []  # [samples, how many of them until the rest is silence]
        self.loud = False  # whether what sounded in this step was more than silence

    def irq(self, handler):
        self.handler = handler

    def write(self, buf):
        self.waiting.append(buf)
        return 2 * len(buf)

    def step(self):
        left = 160
        self.loud = False
        while left and self.held:
            piece = self.held[0]
            n = min(left, piece[0])
            left -= n
            piece[0] -= n
            self.loud = self.loud or piece[1] > 0
            piece[1] -= n
            if not piece[0]:
                self.held.pop(0)
        while self.waiting and sum([piece[0] for piece in self.held]) + len(self.waiting[0]) <= 512:
            buf = self.waiting.pop(0)
            loud = len(buf)
            while loud and not buf[loud - 1]:
                loud -= 1
            self.held.append([len(buf), loud])
            self.handler(self)

    def deinit(self):
        pass


class Microphone:
    # Hears a tone of `volume`; a frame of 20 ms each second step.
    def __init__(self, board):
        self.board = board
        self.buf = None
        self.odd = False

    def irq(self, handler):
        self.handler = handler

    def readinto(self, buf):
        self.buf = buf
        return 640

    def step(self):
        self.odd = not self.odd
        if self.odd or self.buf is None:
            return
        buf, self.buf = self.buf, None
        buf[:] = self.board.tone
        self.handler(self)

    def deinit(self):
        pass


class FakeBoard:
    NAME = "fake"
    storage = "/nowhere/"  # so that what no test replaces is not written

    def __init__(self, raw):
        self.raw = raw
        self.DESCRIPTION = {
            "mic_rate": 16000,
            "mic_dma_ms": 20,
            "dac_rate": 16000,
            "dma_ms": 32,
            "duplex": "full",
        }
        self.down = False
        self.lights = []
        self.events = []
        self.hear(0)

    def hear(self, volume):
        # What is to be heard from now on.
        self.tone = array("h", [volume if i & 4 else -volume for i in range(320)])

    def config(self):
        return self.raw

    def microphone(self):
        self.heard = Microphone(self)
        return self.heard

    def speaker(self):
        self.played = Speaker()
        return self.played

    def button(self):
        return self.down

    def led(self, state):
        self.lights.append(state)

    def event(self, what, **fields):
        fields["event"] = what
        json.dumps(fields)  # the log is JSON
        self.events.append(fields)


class FakeLink:
    # `up`: whether the host answers. What was sent is in `texts` (decoded) and `frames`, in both in `order`.
    def __init__(self, size=4096):
        self.rx = bytearray(size)
        self.n = 0
        self.inbox = []
        self.texts = []
        self.frames = []
        self.order = []
        self.writable = False
        self.up = True
        self.stalled = False
        self.slow_ms = 0  # how long it is busy with one message
        self._now = self._sent_at = 0
        self.opened = 0
        self.closes = []
        self.close_code = 0
        self.close_reason = ""
        self.last_rx = 0
        self.dropped = 0
        self.sock = None

    def open(self, now):
        self.opened += 1
        self.last_rx = now
        if self.up:
            self.inbox.append((links.OPEN, b""))
        else:
            self.cut("refused")

    def cut(self, reason="eof", code=1006):
        self.inbox.clear()
        self.inbox.append((links.CLOSED, b""))
        self.close_code = code
        self.close_reason = reason

    def poll(self, now):
        if not self.inbox:
            if self.slow_ms:
                self._now = now
                self.writable = now - self._sent_at >= self.slow_ms
            return links.NONE
        event, data = self.inbox.pop(0)
        self.writable = event != links.CLOSED and not self.stalled
        self.last_rx = now
        self.n = len(data)
        self.rx[: self.n] = data
        return event

    def unread(self):
        return len(self.inbox) > 0

    def send_text(self, buf, n):
        if not self.writable:
            return False
        self.texts.append(json.loads(bytes(buf[:n])))
        self.order.append(self.texts[-1]["type"])
        self._sent()
        return True

    def send_audio(self, buf, n):
        if not self.writable:
            return False
        self.frames.append(bytes(buf[:n]))
        self.order.append("audio")
        self._sent()
        return True

    def _sent(self):
        if self.slow_ms:
            self._sent_at = self._now
            self.writable = False

    def stall(self, yes):
        self.stalled = yes
        self.writable = not yes

    def close(self, code):
        self.closes.append(code)
        self.cut("closed", code)
        self.writable = False


class Device:
    def __init__(self, disk=None, now=1000, **settings):
        self.now = now
        self.disk = disk or Disk()
        self.raw = {"url": "ws://host/", "token": "s3cret", "stats_ms": 0}
        self.raw.update(settings)
        self.board = FakeBoard(self.raw)
        self.done = []  # what the tools did
        self.seq = 0
        self.frame = 0
        self.loud_at = -1  # ticks at which something was last heard
        self.boot()

    def boot(self):
        # Switched on. Everything in RAM is new.
        tools.running = None
        with self.disk:
            config = checked(self.raw, "full")
            self.link = FakeLink()
            journal = Journal("/calls")
            log = Log(self.board.event)
            registry = Registry(journal, Confirm(), event=log.event)
            registry.add(
                [
                    Tool(self.light, "light", "Switch the light.", {"state": {"enum": ["on", "off"]}}),
                    Tool(self.slow, "slow", "Take two seconds.", effect="irreversible"),
                    Tool(self.unlock, "unlock", "Unlock.", effect="irreversible", confirm="button"),
                ]
            )
            sound = Sound(self.board, config)
            sound.half, sound.fresh = config["duplex"] == "half", False  # the echo has been measured
            self.app = App(
                self.board,
                config,
                link=self.link,
                sound=sound,
                tools=registry,
                journal=journal,
                log=log,
                random=lambda n: n // 2,
            )

    # the tools

    def light(self, state):
        self.done.append("light " + state)
        return {"state": state}

    def slow(self):
        self.done.append("slow begins")
        for _ in range(20):
            yield 100
        self.done.append("slow ends")
        return 1

    def unlock(self):
        self.done.append("unlock")
        return True

    # time

    def run(self, ms):
        with self.disk:
            for _ in range(ms // STEP_MS):
                self.step()

    def step(self):
        self.now = (self.now + STEP_MS) & 0x3FFFFFFF
        self.board.heard.step()
        self.board.played.step()
        if self.board.played.loud:
            self.loud_at = self.now
        self.app.step(self.now)

    # the user

    def press(self, ms):
        self.board.down = True
        self.run(ms)
        self.board.down = False

    # the host

    def receive(self, kind, seq=0, **fields):
        fields["v"] = 1
        fields["seq"] = seq
        fields["type"] = kind
        self.link.inbox.append((links.TEXT, encode(fields, 4096)))

    def say(self, kind, **fields):
        self.seq += 1
        self.receive(kind, self.seq, **fields)

    def turn(self, state, epoch):
        self.say("turn.state", turnId=f"t{epoch}", epoch=epoch, state=state)

    def call(self, name, epoch, call="c1", **arguments):
        self.say("tool.call", callId=call, name=name, arguments=arguments, turnId=f"t{epoch}", epoch=epoch)

    def item(self, item, epoch):
        self.receive("audio.start", itemId=item, epoch=epoch)

    def audio(self, count):
        # `count` frames of 20 ms, loud.
        for _ in range(count):
            self.link.inbox.append((links.AUDIO, b"\2" + self.frame.to_bytes(4, "big") + b"\x10" * 160))
            self.frame += 1

    def ready(self, **fields):
        made = {
            "sessionId": "session-one-and-only",
            "input": {"encoding": "pcmu"},
            "output": {"encoding": "pcmu"},
        }
        made.update(fields)
        self.receive("ready", **made)

    def open(self, **fields):
        # From nothing to an open session; returns the hello.
        self.run(20)
        hello = self.link.texts[-1]
        assert hello["type"] == "hello"
        self.ready(**fields)
        self.run(20)
        return hello

    def speak(self, item="i1", epoch=1, count=10):
        # The agent speaks: it is heard when this returns.
        self.turn("speaking", epoch)
        self.item(item, epoch)
        self.audio(count)
        self.run(100)
        assert self.app.sound.playing

    # what came of it

    def names(self):
        return [event["event"] for event in self.board.events]

    def last(self, name):
        found = [event for event in self.board.events if event["event"] == name]
        assert found, (name, self.names())
        return found[-1]

    def sent(self, kind):
        return [message for message in self.link.texts if message["type"] == kind]

    def stream(self):
        # The sequenced messages sent, by type.
        return [message["type"] for message in self.link.texts if message["seq"]]

    def silent(self):
        # Whether nothing sounded in the last step.
        return self.loud_at != self.now


def opened(**settings):
    device = Device(**settings)
    device.open()
    return device
