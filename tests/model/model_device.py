"""The device: the real firmware but for its link, sound and flash, and a world in which its tools have effects."""

from collections import Counter

from faulty_wire import DeviceLink
from model_host import NEW_TYPE
from test_journal import PowerCut
from vrt import diff, tools
from vrt.app import App
from vrt.config import checked
from vrt.log import Log
from vrt.tools import Tool
from vrt.tools.confirm import Confirm
from vrt.tools.journal import Journal
from vrt.tools.registry import Registry

TICKS = 0x3FFFFFFF
FRAME_MS = 20
HEADER = 5
CONFIG = {"url": "ws://host/", "listen": "open", "duplex": "full", "ping_ms": 2000, "stats_ms": 0}
KEY = {"key": {"type": "string"}}  # of each tool: the agent's name for the call
PCMU = {"encoding": "pcmu", "sampleRate": 8000}


class ModelSpeaker:
    """Plays frames of 20 ms in real time. `played(payload)` is told each frame that it takes."""

    frames = dropped = underruns = stalls = 0

    def __init__(self, played):
        self.played = played
        self.playing = False
        self.queue = []  # [item, payload, ms left]
        self.heard = Counter()  # item -> ms
        self.item = None
        self._at = 0

    def begin(self, item):
        self.item = item
        return True

    def write(self, buf, start, n):
        payload = bytes(buf[start : start + n])
        self.played(payload)
        self.queue.append([self.item, payload, FRAME_MS])
        self.playing = True
        return n

    def poll(self, now):
        left, self._at = diff(now, self._at), now
        while self.queue and left > 0:
            piece = self.queue[0]
            part = min(left, piece[2])
            left -= part
            piece[2] -= part
            self.heard[piece[0]] += part
            if not piece[2]:
                self.queue.pop(0)
        ended = self.playing and not self.queue
        self.playing = bool(self.queue)
        return ended

    def flush(self):
        cut = dict.fromkeys(item for item, _, _ in self.queue)
        self.queue.clear()
        self.playing = False
        return [(item, self.heard[item]) for item in cut]


class ModelMic:
    dropped = overruns = stalls = 0

    def __init__(self):
        self.voiced = self.live = self.filled = False
        self.frame = None


class ModelSound:
    half = False
    sent = 0
    probe = None  # nothing is measured before it connects

    def __init__(self, played):
        self.speaker = ModelSpeaker(played)
        self.mic = ModelMic()
        self.playing = False
        self.prefer = {"input": PCMU, "output": PCMU}
        self._voice = False

    def adopt(self, ready):
        pass

    def begin(self, item):
        return self.speaker.begin(item)

    def listen(self, live, turn, now):
        self.mic.live = live

    def hear(self, now):
        mic = self.mic
        changed, self._voice = self._voice != mic.voiced, mic.voiced
        return changed

    def play(self, buf, n, now):
        self.speaker.write(buf, HEADER, n - HEADER)

    def send(self, link, session, tail, now):
        frame, self.mic.frame = self.mic.frame, None
        if session.state == "open":
            session.number(frame)
            link.send_audio(frame, len(frame))

    def flush(self):
        return self.speaker.flush()


class ModelDevice:
    """`board` and world of one device; both live on when it restarts."""

    NAME = "model"
    storage = "/"

    def __init__(self, wire, witness, disk, wraps_ms):
        """Its ticks wrap `wraps_ms` after each start."""
        self.wire = wire
        self.witness = witness
        self.disk = disk
        self.boots = 0
        self.slots = 32  # of its outbox
        self.wraps_ms = wraps_ms
        self.skew_ms = 0
        self.down_since = None  # when the button was pressed
        self.voice = False  # somebody speaks
        self.boot()

    def boot(self):
        """Switched on: everything in RAM is new, and ticks begin again."""
        tools.running = None
        self.boots += 1
        self.disk.steps = None
        self._zero = self.wire.now - TICKS + self.wraps_ms
        self.link = DeviceLink(self.wire)
        journal = Journal("/calls")
        log = Log(self.event)
        registry = Registry(journal, Confirm(), event=log.event)
        registry.add(self._tools())
        self.sound = ModelSound(self.witness.played)
        self.app = App(
            self,
            checked(CONFIG),
            link=self.link,
            sound=self.sound,
            tools=registry,
            journal=journal,
            log=log,
            random=lambda n: n // 2,
        )
        self.app.session.streams.slots = self.slots
        self.witness.booted(self)

    def step(self):
        mic = self.sound.mic
        mic.voiced = self.voice
        mic.frame = bytearray(25) if self.voice else None
        try:
            self.app.step((self.wire.now + self.skew_ms - self._zero) & TICKS)
        except PowerCut:
            self.boot()

    def limit_outbox(self, slots):
        """A smaller one is filled sooner."""
        self.slots = self.app.session.streams.slots = slots

    def send_unknown(self):
        """Sends a message of a type that the host does not know."""
        session = self.app.session
        if session.state == "open" and session.room():
            session.streams.add({"type": NEW_TYPE})

    # --- the board

    def button(self):
        return self.down_since is not None

    def led(self, state):
        pass

    def event(self, what, **fields):
        self.witness.event(what, fields)

    # --- the tools

    def _tools(self):
        def made(function, **options):
            return Tool(self._noted(function), function.__name__, "For the test.", KEY, **options)

        def look():
            return 1

        def light():
            return 2

        def fail():
            raise ValueError("broken")

        def flood():
            return "x" * 2000

        def slow():
            for _ in range(8):
                yield 100
            return 3

        def late():
            yield 60_000

        def lock():
            return 4

        def dose():
            for _ in range(5):
                yield 100
            return 5

        def unlock():
            yield 60
            return 6

        return [
            made(look, effect="none"),
            made(light),
            made(fail),
            made(flood),
            made(slow),
            made(late, timeout_ms=1500),
            made(lock, effect="irreversible"),
            made(dose, effect="irreversible"),
            made(unlock, effect="irreversible", confirm="button", timeout_ms=4000),
        ]

    def _noted(self, function):
        """The tool, with its start and its end noted by the witness."""

        def run(key):
            call = tools.current()
            self.witness.started(call)
            value = function()
            if hasattr(value, "throw"):
                return generate(call, value)
            self.witness.committed(call, value)
            return value

        def generate(call, steps):
            value = yield from steps
            self.witness.committed(call, value)
            return value

        return run


TOOLS = ["look", "light", "fail", "flood", "slow", "late", "lock", "dose", "unlock"]
IRREVERSIBLE = ["lock", "dose", "unlock"]
