# Which copy of the firmware starts, over every state of the file that says so.
import json
import sys

import slots
from support import raises
from test_update import content, done, flash


def booted(state):
    # What `choose` takes at the next start, and what the file says then.
    flash(state)
    slot = slots.choose()
    found = slot, slots.trial, slots.read()
    done()
    return found


def test_board_without_a_state_starts_a():
    assert booted(None) == ("a", "", ("a", "", ""))


def test_steady_state_stays():
    assert booted("b ") == ("b", "", ("b", "", ""))
    assert booted("a 0.2.0") == ("a", "", ("a", "", "0.2.0"))


def test_update_is_tried_once():
    assert booted("b? 0.2.0") == ("b", "0.2.0", ("b", "!", "0.2.0"))


def test_trial_that_was_not_confirmed_goes_back_and_is_remembered():
    assert booted("b! 0.2.0") == ("a", "", ("a", "", "0.2.0"))
    assert booted("a! 0.2.0") == ("b", "", ("b", "", "0.2.0"))


def test_state_that_makes_no_sense_starts_a():
    for state in ("", "c ", "b# 1", "\x00\x00"):
        assert booted(state)[0] == "a", state


def test_confirmed_trial_stays():
    flash("b? 0.2.0")
    slots.choose()
    slots.confirm()
    assert slots.read() == ("b", "", "")
    assert slots.trial == ""
    assert slots.choose() == "b"
    done()


watched = []  # what the watchdog was set to, in ms


def boot(state, code, files=(), look=None):
    # Runs the firmware in b/, `code`; returns how it ended. The reset of the board is a SystemExit("reset"). files: (path, text)
    # that are on the flash; look: called while the flash is still there.
    class Machine:
        @staticmethod
        def reset():
            raise SystemExit("reset")

        @staticmethod
        def WDT(timeout):
            watched.append(timeout)

    import os  # noqa: PLC0415

    flash(state)
    os.mkdir("b")
    with open("b/main.py", "w") as file:
        file.write("def main():\n    " + code + "\n")
    for path, text in files:
        with open(path, "w") as file:
            file.write(text)
    before = list(sys.path), sys.modules.get("main"), sys.modules.get("machine")
    sys.modules.pop("main", None)
    sys.modules["machine"] = Machine  # type: ignore[assignment]
    try:
        slots.boot()
    except BaseException as error:  # how it ends is what is asked
        return error
    finally:
        if look:
            look()
        sys.path[:] = before[0]
        for name, module in zip(("main", "machine"), before[1:]):
            sys.modules.pop(name, None)
            if module:
                sys.modules[name] = module
        done()
    return None


def test_firmware_on_trial_that_ends_starts_the_board_again():
    for code in ("raise SystemExit(1)", "raise ValueError('no')", "import nothing_of_that_name"):
        ended = boot("b? 2.0", code)
        assert isinstance(ended, SystemExit), code
        assert ended.args == ("reset",), code


def test_firmware_on_trial_that_hangs_before_it_watches_itself_is_reset():
    watched.clear()
    boot("b? 2.0", "pass")
    assert watched == [600_000]
    watched.clear()
    boot("b", "pass")
    assert not watched


def crash_log(code, files=()):
    # What the crash log says after firmware on trial ended by `code`, and the lines that were printed.
    found = []
    lines = []
    slots.print = lambda *words: lines.append(" ".join([str(word) for word in words]))
    try:
        boot("b? 2.0", code, files, lambda: found.append(content("crash.json")))
    finally:
        del slots.print
    return json.loads(found[0]), lines


def test_firmware_on_trial_that_does_not_start_is_told_in_one_line_and_written_down():
    log, lines = crash_log("import nothing_of_that_name")
    assert len(lines) == 1, lines
    assert lines[0].startswith("vrt: update 2.0 did not start: "), lines
    assert "nothing_of_that_name" in lines[0]
    assert lines[0].endswith("; the board goes back to the firmware in a/"), lines
    (entry,) = log["crashes"]
    assert entry["error"].startswith("update 2.0 did not start: ")
    assert (log["told"], log["early"], entry["firmware"]) == (False, 0, "2.0")
    if hasattr(sys, "print_exception"):
        assert entry["at"] == "b/main.py:2"


def test_what_the_crash_log_had_before_the_trial_stays():
    old = {"error": "old", "at": "", "reset": "", "firmware": "1.0", "uptime_s": 1, "heap_free": None}
    full = json.dumps({"early": 2, "told": True, "crashes": [old, old, old, old]})
    log, _ = crash_log("raise ValueError('no')", [("crash.json", full)])
    assert [entry["firmware"] for entry in log["crashes"]] == ["1.0", "1.0", "1.0", "2.0"]
    assert (log["early"], log["told"]) == (2, False)
    for damaged in ("", "[]", "{", '{"crashes": 7}'):
        log, _ = crash_log("raise ValueError('no')", [("crash.json", damaged)])
        assert [entry["firmware"] for entry in log["crashes"]] == ["2.0"], damaged


def test_crash_that_the_firmware_on_trial_wrote_down_itself_is_not_written_twice():
    own = {"early": 1, "told": False, "crashes": [{"error": "ValueError: no", "at": "", "firmware": "2.0"}]}
    log, lines = crash_log("raise ValueError('no')", [("crash.json", json.dumps(own))])
    assert log == own
    assert len(lines) == 1, lines


def test_flash_that_takes_no_crash_log_does_not_keep_the_board_from_going_back():
    import os  # noqa: PLC0415

    def full():
        os.rmdir("crash.json.new")

    code = "import os; os.mkdir('crash.json.new'); raise ValueError('no')"
    ended = boot("b? 2.0", code, look=full)
    assert isinstance(ended, SystemExit)
    assert ended.args == ("reset",)


def test_firmware_that_ends_in_its_slot_ends_as_it_does():
    assert isinstance(boot("b ", "raise ValueError('no')"), ValueError)
    assert boot("b ", "pass") is None


def test_ctrl_c_stops_firmware_on_trial_too():
    assert isinstance(boot("b? 2.0", "raise KeyboardInterrupt"), KeyboardInterrupt)


def test_state_that_cannot_be_written_is_said():
    flash()
    import os  # noqa: PLC0415

    os.mkdir("slot.new")
    raises(OSError, slots.write, "b", "", "")
    os.rmdir("slot.new")
    done()
