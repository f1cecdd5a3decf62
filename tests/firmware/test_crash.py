import json
import sys

import main
from fake_device import Device
from fake_flash import Cut, Flash
from support import SkipTest, raises
from test_main import Broken, Restarting, with_start
from vrt.errors import ConfigError
from vrt.setup import crash

FILE = "/nowhere/crash.json"


class Chip(Restarting):
    # A board that knows why it started, and has a watchdog. What it restarts is seen by `starts`.
    def __init__(self, flash, cause="power", **raw):
        super().__init__(url="ws://h/", token="s3cret-token", wifi_password="s3cret-key", **raw)
        self.flash = flash
        self.cause = cause
        self.dog = []
        self.press_ms = 300

    def button(self):
        return super().button() and self.clock.now < self.held_at + self.press_ms

    def reset_cause(self):
        return self.cause

    def watchdog(self, ms):
        self.dog.append(ms)

    def log(self):
        return json.loads(self.flash.files[FILE])

    def codes(self):
        return [event.get("code") for event in self.events]


class Crashing(Broken):
    def __init__(self, board, after_ms=1000, text="oops"):
        super().__init__()
        self.board = board
        self.after_ms = after_ms
        self.text = text

    def run(self):
        self.board.clock.now += self.after_ms
        raise ValueError(self.text)


def flash(**more):
    return Flash(crash, more.get("files", {}))


def boot(flash, cause="reset", **more):
    # One start that ends in a crash; returns its board.
    board = Chip(flash, cause)
    app = Crashing(board, **more)
    kept, main.os = main.os, flash
    try:
        with_start(lambda board: app, board, flash)
    finally:
        main.os = kept
    board.app = app
    return board


def test_a_crash_is_written_down():
    memory = flash()
    board = boot(memory, "power")
    log = board.log()
    assert (log["early"], log["told"]) == (1, False)
    entry = log["crashes"][0]
    assert entry["error"] == "ValueError: oops"
    assert (entry["reset"], entry["uptime_s"]) == ("power", 1)
    assert board.restarted == 1
    assert board.codes() == ["CRASH"]
    assert board.app.crash is None  # at its start there was nothing to tell


def test_the_place_of_a_crash_is_known_on_micropython():
    if not hasattr(sys, "print_exception"):
        raise SkipTest("no sys.print_exception")
    place = boot(flash()).log()["crashes"][0]["at"]
    assert place.split(":")[0].endswith("firmware/test_crash.py"), place
    assert int(place.split(":")[1]) > 40


def test_the_last_few_crashes_are_kept_and_each_is_bounded():
    memory = flash()
    for number in range(9):
        boot(memory, text=f"number {number} " + "x" * 1000, after_ms=400_000)
    log = boot(memory).log()
    assert [entry["error"][:20] for entry in log["crashes"]][:2] == [
        "ValueError: number 6",
        "ValueError: number 7",
    ]
    assert len(log["crashes"]) == 4
    assert len(memory.files[FILE]) < 1500


def test_no_secret_is_written_down_or_shown():
    memory = flash()
    board = boot(memory, text="cannot join with s3cret-key and s3cret-token")
    assert "s3cret" not in memory.files[FILE] + repr(board.events)
    assert "(hidden)" in board.log()["crashes"][0]["error"]


def test_crashes_soon_after_the_start_never_end_in_a_loop():
    memory = flash()
    for _ in range(2):
        board = boot(memory)
        assert board.codes() == ["CRASH"]
        assert board.clock.now < 5000
    assert boot(memory).codes() == ["CRASH"]
    board = boot(memory)  # one rest, before it starts again: what crashes may be the start
    assert board.codes() == ["CRASHES", "CRASH"]
    assert 600_000 < board.clock.now < 605_000  # a long pause, and then another try
    assert board.restarted == 1
    assert board.made_safe >= 2
    assert board.lights[-1] == "error"
    assert set(board.dog[1:]) == {3_600_000}
    assert boot(memory).codes() == ["CRASHES", "CRASH"]  # from then on each time


def test_who_mends_it_at_the_cable_waits_for_no_rest():
    # A soft reset is somebody's at the console: nothing else makes one.
    memory = flash()
    for _ in range(3):
        boot(memory)
    board = boot(memory, "soft")
    assert board.codes() == ["CRASH"]
    assert board.clock.now < 5000
    assert board.log()["early"] == 1


def test_a_crash_that_ends_at_the_prompt_begins_no_row():
    # Such as an error in the user's tools: the board does not start again by itself, so it cannot do so for ever.
    def broken(board):
        raise NameError("tols")

    memory = flash()
    for _ in range(5):
        board = Chip(memory)
        kept, main.os = main.os, memory
        try:
            raises(NameError, with_start, broken, board, memory)
        finally:
            main.os = kept
        assert (board.restarted, board.codes()) == (0, ["CRASH"])
        assert board.clock.now < 5000
    log = board.log()
    assert (log["early"], log["told"], len(log["crashes"])) == (0, False, 4)


def test_a_press_ends_the_rest():
    memory = flash()
    for _ in range(2):
        boot(memory)
    board = Chip(memory)
    board.held_at = 60_000
    with memory:
        kept = crash._load(board)
        kept["early"] = 3
        crash._save(board, kept)
        crash.look(board)
    assert 60_000 <= board.clock.now < 61_000 + board.press_ms


def test_the_press_that_ends_the_rest_does_not_stop_the_start():
    from vrt.build import cancelled  # noqa: PLC0415

    memory = flash(files={FILE: json.dumps({"early": 3, "told": True, "crashes": []})})
    board = Chip(memory)
    board.held_at = 60_000
    with memory:
        crash.look(board)
    assert not board.button()
    assert not cancelled(board, 2000)


def test_a_button_that_stays_down_holds_the_start_up_only_for_a_while():
    memory = flash(files={FILE: json.dumps({"early": 3, "told": True, "crashes": []})})
    board = Chip(memory)
    board.held_at, board.press_ms = 0, 10_000_000
    with memory:
        crash.look(board)
    assert 20_000 <= board.clock.now < 21_000


def test_crashes_after_a_long_run_are_no_loop():
    memory = flash()
    for _ in range(6):
        board = boot(memory, after_ms=300_000)
        assert board.codes() == ["CRASH"]
    assert board.log()["early"] == 0


def test_a_hang_is_known_by_the_cause_of_the_reset():
    memory = flash()
    with memory:
        kept, main.os = main.os, memory
        try:
            found = main.crashes(Chip(memory, "watchdog"))
        finally:
            main.os = kept
    assert "Watchdog" in found.text
    entry = json.loads(memory.files[FILE])["crashes"][0]
    assert (entry["reset"], entry["uptime_s"]) == ("watchdog", None)
    assert json.loads(memory.files[FILE])["early"] == 1


def test_hangs_never_end_in_a_loop():
    memory = flash()
    for number in range(1, 4):
        board = Chip(memory, "watchdog")
        with memory:
            crash.look(board)
        assert (board.codes() == ["CRASHES"]) == (number == 3)


def test_the_watchdog_watches_what_runs():
    board = boot(flash())
    assert board.dog == [30_000, 3_600_000]
    quiet = Chip(flash())
    with_start(lambda board: None, quiet, quiet.flash)
    assert quiet.dog == []


def test_nothing_is_imported_where_nothing_crashed():
    memory = flash()
    kept, main.os = main.os, memory
    try:
        assert main.crashes(Chip(memory)) is None
    finally:
        main.os = kept
    assert memory.files == {}


class App:
    # As much of an App as a Crash needs.
    def __init__(self, state="connecting"):
        self.session = self.log = self
        self.state = state
        self.told = []
        self.crash = None

    def event(self, kind, **fields):
        assert kind == "crash"
        self.told.append(fields)


def test_the_host_is_told_once_and_the_count_ends_after_a_while():
    memory = flash()
    boot(memory)
    board = Chip(memory)
    with memory:
        app = App()
        app.crash = found = crash.look(board)
        assert found.text.startswith("ValueError: oops")
        found.step(app, 1000)
        assert app.told == []
        app.state = "open"
        found.step(app, 2000)
        found.step(app, 3000)
        assert [fields["text"][:16] for fields in app.told] == ["ValueError: oops"]
        assert board.log()["told"]
        assert app.crash is found
        assert crash.look(board).text == ""  # nothing to tell, but it counts
        found.step(app, 300_000)
        assert app.crash is None
        assert board.log()["early"] == 0
        sys.modules["vrt.setup.crash"] = crash
        assert crash.look(board) is None


def test_a_power_cut_leaves_a_log_that_can_be_read():
    before = boot(flash()).flash.files[FILE]
    for cut in range(10_000):
        memory = Flash(crash, {FILE: before}, cut)
        board = Chip(memory)
        with memory:
            try:
                crash.ended(board, ValueError("again"), 0, False)
                break
            except Cut:
                memory.left = -1
            assert len(crash._load(board)["crashes"]) == 1
    assert 100 < cut < 9999
    assert len(board.log()["crashes"]) == 2


def test_a_log_that_is_damaged_begins_anew():
    for text in (
        "",
        "[]",
        "{}",
        '{"early":"x","crashes":[],"told":true}',
        '{"early":1,"crashes":5,"told":true}',
        '{"early":1,"crashes":[5],"told":true}',
        '{"early":0,"crashes":[{"error":"of another version"}],"told":false}',
        '{"early":0,"crashes":[{"error":5,"at":""}],"told":false}',
    ):
        board = boot(Flash(crash, {FILE: text}))
        assert len(board.log()["crashes"]) == 1


def test_a_flash_that_refuses_costs_the_record_alone():
    def refuse(path, mode="r"):
        raise OSError(28)

    memory = flash()
    memory.open = refuse
    board = boot(memory)
    assert board.codes() == ["CRASH", "CRASH_LOG"]
    assert board.restarted == 1


def test_a_wrong_configuration_is_no_crash():
    def wrong(board):
        raise ConfigError("url is wrong")

    memory = flash()
    raises(SystemExit, with_start, wrong, Chip(memory), memory)
    assert memory.files == {}


def test_the_host_hears_of_it_in_the_hello():
    memory = flash()
    boot(memory)
    device = Device()
    with memory:
        device.app.crash = crash.look(Chip(memory))
        hello = device.open()
    assert hello["device"]["crash"].startswith("ValueError: oops")
    assert device.last("crash")["early"] == 1
    sys.modules["vrt.setup.crash"] = crash
    assert "crash" not in Device().open()["device"]
