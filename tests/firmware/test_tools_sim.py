# The simulated house, through the registry as a call from the host would go.
import sys

from test_journal import Disk
from vrt import tools
from vrt.tools.confirm import Confirm
from vrt.tools.journal import Journal
from vrt.tools.registry import Registry


class Pin:
    def __init__(self):
        self.level = 0
        self.stuck = False

    def value(self, *level):
        if level and not self.stuck:
            self.level = int(level[0])
        return self.level


class House:
    # A board, a loop and the registry with boards/sim/tools.py in it.
    def __init__(self):
        self.pins = {"front_lock": Pin(), "back_lock": Pin(), "light": Pin()}
        self.now = 0
        self.down = False
        self.progress = []
        self.disk = Disk()

    def __enter__(self):
        self.disk.__enter__()
        self._before = list(tools.declared)
        del tools.declared[:]
        sys.modules.pop("tools", None)
        self.registry = Registry(Journal("/calls"), Confirm(), event=self.event)
        self.registry.load(self)
        self.registry.begin("session-1")
        return self

    def __exit__(self, *error):
        sys.modules.pop("tools", None)
        tools.declared[:] = self._before
        self.disk.__exit__()

    def output(self, name):
        return self.pins[name]

    def event(self, event, **fields):
        if event == "progress":
            self.progress.append((self.now, fields["text"]))

    def ask(self, name, arguments=None, hold=False):
        # The result of a call; `hold`: the user holds the button as soon as it is asked for.
        call = {
            "callId": f"c{self.now}",
            "turnId": "t",
            "epoch": 1,
            "name": name,
            "arguments": arguments or {},
        }
        self.registry.call(call, self.now)
        for _ in range(2000):
            self.registry.step(self.now, self.down)
            self.down = hold and self.registry.confirm.asking
            self.now += 10
            if self.registry.results:
                return self.registry.results.pop()
        raise AssertionError("no result")


def test_house_declares_its_tools():
    with House() as house:
        declared = {tool.declaration["name"]: tool.declaration for tool in house.registry.tools}
        assert sorted(declared) == ["check_house", "door_state", "light", "lock"]
        assert declared["lock"]["confirm"] == "button"
        assert declared["lock"]["confirmWhen"] == {"state": ["unlocked"]}
        assert declared["lock"]["effect"] == "irreversible"
        assert [declared[name]["effect"] for name in ("light", "door_state", "check_house")] == [
            "reversible",
            "none",
            "none",
        ]
        assert all(tool["phrases"] for tool in declared.values())


def test_unlocking_needs_the_button():
    with House() as house:
        result = house.ask("lock", {"door": "front", "state": "unlocked"})
        assert result["code"] == "REJECTED"
        assert house.pins["front_lock"].level == 0
        result = house.ask("lock", {"door": "front", "state": "unlocked"}, hold=True)
        assert result["output"] == {"door": "front", "state": "unlocked"}
        assert (house.pins["front_lock"].level, house.pins["back_lock"].level) == (1, 0)


def test_locking_does_not_ask():
    with House() as house:
        house.pins["back_lock"].level = 1
        assert house.ask("lock", {"door": "back", "state": "locked"})["ok"]
        assert house.pins["back_lock"].level == 0


def test_lock_that_does_not_move_is_not_reported_as_moved():
    with House() as house:
        house.pins["front_lock"].level = 1
        house.pins["front_lock"].stuck = True
        result = house.ask("lock", {"door": "front", "state": "locked"})
        assert result["code"] == "FAILED"
        assert result["message"] == "the front door did not move, it is unlocked"


def test_light_switches():
    with House() as house:
        assert house.ask("light", {"state": "on"})["output"] == {"state": "on"}
        assert house.registry.context() == {
            "state": {"front_door": "locked", "back_door": "locked", "light": "on"}
        }
        assert house.ask("light", {"state": "off"})["output"] == {"state": "off"}
        assert house.ask("light", {"state": "toggle"})["code"] == "INVALID"


def test_question_about_a_door_answers_the_truth():
    with House() as house:
        assert house.ask("door_state", {"door": "back"})["output"] == {"state": "locked"}
        house.pins["back_lock"].level = 1
        assert house.ask("door_state", {"door": "back"})["output"] == {"state": "unlocked"}


def test_house_check_takes_six_seconds_and_tells_how_far_it_is():
    with House() as house:
        house.pins["back_lock"].level = 1
        result = house.ask("check_house")
        assert 6000 <= house.now < 6300
        assert result["output"] == {"front_door": "locked", "back_door": "unlocked", "light": "off"}
        assert [text for _, text in house.progress] == [
            "looking at the front door",
            "looking at the back door",
            "looking at the light",
        ]
