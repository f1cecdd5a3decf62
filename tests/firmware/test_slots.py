# Which copy of the firmware starts, over every state of the file that says so.
import sys

import slots
from support import raises
from test_update import done, flash


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


def boot(state, code):
    # Runs the firmware in b/, `code`; returns how it ended. The reset of the board is a SystemExit("reset").
    class Machine:
        @staticmethod
        def reset():
            raise SystemExit("reset")

    import os  # noqa: PLC0415

    flash(state)
    os.mkdir("b")
    with open("b/main.py", "w") as file:
        file.write("def main():\n    " + code + "\n")
    before = list(sys.path), sys.modules.get("main"), sys.modules.get("machine")
    sys.modules.pop("main", None)
    sys.modules["machine"] = Machine  # type: ignore[assignment]
    try:
        slots.boot()
    except BaseException as error:  # how it ends is what is asked
        return error
    finally:
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
