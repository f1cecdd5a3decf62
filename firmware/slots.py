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
_CRASHES = "crash.json"
_HANG_MS = 600_000  # that firmware on trial has until it watches itself; one that hangs before is not kept

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
        if trial:
            _watch()
        import main  # noqa: PLC0415  (the slot's)

        main.main()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if not trial:
            raise
        _failed(error)
        import machine  # noqa: PLC0415  (no simulator has it)

        machine.reset()


def _watch():
    try:
        from machine import WDT  # noqa: PLC0415  (no simulator has it)
    except ImportError:
        return
    WDT(timeout=_HANG_MS)


def _failed(error):
    # The version on trial ended by itself: one line says so, and the crash log (vrt/setup/crash.py) has it for the host and
    # `vrt doctor`, unless the firmware wrote it down itself.
    text = f"update {trial} did not start: {type(error).__name__}: {error}"
    print(f"vrt: {text}; the board goes back to the firmware in {other(read()[0])}/")
    try:
        import json  # noqa: PLC0415

        try:
            with open(_CRASHES) as file:
                log = json.loads(file.read())
            crashes = log["crashes"]
            if crashes and crashes[-1]["firmware"] == trial:
                return
        except (OSError, ValueError, KeyError, TypeError):
            log = {}
            crashes = []
        entry = {"error": text[:160], "at": _place(error), "reset": "", "firmware": trial}
        entry["uptime_s"] = entry["heap_free"] = None
        crashes.append(entry)
        log.setdefault("early", 0)
        log["crashes"] = crashes[-4:]
        log["told"] = False
        with open(_CRASHES + ".new", "w") as file:
            file.write(json.dumps(log))
        os.rename(_CRASHES + ".new", _CRASHES)
    except Exception as why:  # such as a full flash: going back matters more
        print("vrt: not written down:", why)


def _place(error):
    # The last "file:line" of its traceback, where the runtime tells it.
    if not hasattr(sys, "print_exception"):
        return ""
    import io  # noqa: PLC0415

    out = io.StringIO()
    sys.print_exception(error, out)  # pyright: ignore[reportArgumentType]
    for line in reversed(out.getvalue().split("\n")):  # pyright: ignore[reportAttributeAccessIssue]
        parts = line.split('"')
        if len(parts) == 3:
            return parts[1] + ":" + parts[2].split(",")[1].split()[-1]
    return ""
