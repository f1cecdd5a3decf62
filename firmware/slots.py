# Which of two copies of the firmware runs: the folders a/ and b/ on the flash. This module and main.py, which calls boot(),
# lie beside them and are never updated over the air.
#
# The file `slot` says which: STATE VERSION. `a`: that one; VERSION is of an update that failed, if one did. `b? 0.2.0`: that
# one is tried at the next start. `b! 0.2.0`: it is being tried; a start that finds this goes back to the other one. confirm()
# ends the trial well. The file is replaced by a rename, which is one step on littlefs, so that no power cut leaves half of it.
import os
import sys

_FILE = "slot"
_NEW = "slot.new"

trial = ""  # the version that is being tried, while it is


def read():
    # (slot, mark, version): "a" or "b"; "", "?" or "!"; a text, empty when there is none.
    try:
        with open(_FILE) as file:
            state, _, version = file.read().partition(" ")
    except OSError:
        state = version = ""
    if state[:1] not in ("a", "b") or state[1:] not in ("", "?", "!"):
        return "a", "", ""
    return state[:1], state[1:], version


def write(slot, mark, version):
    with open(_NEW, "w") as file:
        file.write(f"{slot}{mark} {version}")
    os.rename(_NEW, _FILE)


def other(slot):
    return "b" if slot == "a" else "a"


def choose():
    # The slot to start now; notes that a trial begins, or has failed.
    global trial  # noqa: PLW0603
    slot, mark, version = read()
    trial = ""
    if mark == "?":
        write(slot, "!", version)
        trial = version
    elif mark == "!":
        slot = other(slot)
        write(slot, "", version)
    return slot


def confirm():
    # The version on trial works: it stays.
    global trial  # noqa: PLW0603
    write(read()[0], "", "")
    trial = ""


def boot():
    # Runs the chosen firmware. When one on trial ends by itself, the board starts again, with the other.
    sys.path.insert(0, choose())
    sys.modules.pop("main", None)  # the file that called us may go by that name
    try:
        import main  # noqa: PLC0415  (the slot's)

        main.main()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if not trial:
            raise
        if hasattr(sys, "print_exception"):
            sys.print_exception(error)
        import machine  # noqa: PLC0415  (no simulator has it)

        machine.reset()
