# A device's tools with a log of what they did: what the registry's tests run on.
from test_journal import Disk
from vrt import tools
from vrt.tools import Tool
from vrt.tools.confirm import Confirm
from vrt.tools.journal import Journal
from vrt.tools.registry import Registry

DOOR = {"door": {"enum": ["front", "back"]}}
LOCK = dict(DOOR, state={"enum": ["locked", "unlocked"]})


class World:
    # A device's tools, its flash and clock, and a log of the effects its tools had.
    def __init__(self, disk, **options):
        self.disk = disk
        self.done = []
        self.events = []
        self.now = 1000
        self.down = False
        self.options = options
        self.start()

    def start(self):
        # Switched on: everything in RAM is new.
        tools.running = None
        self.journal = Journal("/calls")
        self.registry = Registry(self.journal, Confirm(), event=self._event, **self.options)
        self.registry.add(
            [
                Tool(
                    self.lock,
                    "lock",
                    "Lock or unlock a door.",
                    LOCK,
                    effect="irreversible",
                    confirm="button",
                    confirm_when={"state": ["unlocked"]},
                ),
                Tool(self.light, "light", "Switch the light.", {"state": {"enum": ["on", "off"]}}),
                Tool(self.look, "look", "Look around.", effect="none"),
                Tool(self.slow, "slow", "Take a while.", {}, effect="irreversible", timeout_ms=5000),
            ]
        )

    def _event(self, event, **fields):
        self.events.append((event, fields))

    def lock(self, door, state):
        self.done.append((door, state))
        return {"door": door, "state": state}

    def light(self, state):
        self.done.append(("light", state))

    def look(self):
        return "fine"

    def slow(self):
        self.done.append("begun")
        try:
            yield "half way"
            yield 1000
            self.done.append("committed")
            yield
        finally:
            self.done.append("closed")
        return 42

    def call(self, call_id, name, arguments, epoch=1):
        self.registry.call(
            {"callId": call_id, "name": name, "arguments": arguments, "turnId": "turn-1", "epoch": epoch},
            self.now,
        )

    def run(self, ms, every=50):
        for _ in range(ms // every):
            self.registry.step(self.now, self.down)
            self.now += every

    def press(self, ms):
        self.down = True
        self.run(ms)
        self.down = False
        self.run(50)

    def results(self):
        found = list(self.registry.results)
        self.registry.results.clear()
        for result in found:
            assert ("output" in result) == result["ok"]
            assert ("code" in result and len(result["message"]) > 3) != result["ok"]
        return found

    def codes(self):
        return [(result["callId"], result.get("code", "ok")) for result in self.results()]


class world:
    def __init__(self, **options):
        self.disk = Disk()
        self.options = options

    def __enter__(self):
        self.disk.__enter__()
        made = World(self.disk, **self.options)
        made.registry.begin("session-1")
        return made

    def __exit__(self, *error):
        self.disk.__exit__()
