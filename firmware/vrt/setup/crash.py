# What the device remembers of its crashes, on flash and without a secret, and what keeps it from restarting for ever. Imported
# at the start and by a crash, and forgotten.
#
# The file is JSON: {"early": crashes in a row that came soon after the start, "told": whether the host knows of the last,
# "crashes": the last of them, newest last, [{"error", "at": "vrt/app.py:101", "uptime_s", "reset", "heap_free", "firmware"}]}.
import gc
import io
import json
import os
import sys
import time

from micropython import const

from vrt import VERSION, diff, forget

_FILE = "crash.json"
_KEPT = const(4)
_TEXT = const(160)  # characters of an error
_EARLY_MS = const(300_000)  # so long after the start nothing is early any more
_MOST = const(3)  # early ones in a row; then the device rests
_REST_MS = const(600_000)
_UP_MS = const(20_000)  # for the button to come up again, which would stop the start
_SECRETS = ("token", "wifi_password")


def look(board):
    # At the start: writes down what the chip says of the one before. Returns None when there is nothing to tell, else what the
    # App shall have as its `crash`. Rests first when it must; not for somebody at the console, whose start is a soft reset.
    log = _load(board)
    cause = _reset(board)
    if cause == "watchdog":
        text = "Watchdog: the program hung, perhaps in a tool, or the system under it failed"
        _add(board, log, text, "", None)
        _save(board, log)
    elif cause == "soft" and log["early"]:
        log["early"] = 0
        _save(board, log)
    if log["early"] >= _MOST:
        rest(board)
    if log["told"] and not log["early"]:
        return None
    return Crash(board, log)


def ended(board, error, began, again):
    # The device has crashed: writes it down and tells it. began: ticks of the start. again: it will start anew; else the prompt
    # waits, and there is no row to count.
    gc.collect()
    log = _load(board)
    text = clean(board, f"{type(error).__name__}: {error}")
    trace = ""
    if hasattr(sys, "print_exception"):
        out = io.BytesIO()
        sys.print_exception(error, out)  # pyright: ignore[reportArgumentType]
        trace = clean(board, out.getvalue().decode())  # pyright: ignore[reportAttributeAccessIssue]
    uptime = diff(time.ticks_ms(), began)
    _add(board, log, text, _place(trace), uptime, again=again)
    board.event("error", code="CRASH", message=text)
    print(trace)
    _save(board, log)


def rest(board):
    # The outputs have their safe levels, the LED shows an error, Ctrl-C leads to the prompt. After a while, or when the button is
    # pressed, there is another try.
    board.safe()
    board.led("error")
    text = f"{_MOST} crashes in a row soon after the start: another try in {_REST_MS // 60_000} minutes, or by the button"
    board.event("error", code="CRASHES", message=text)
    print("vrt:", text + "; Ctrl-C stops it")
    begun = time.ticks_ms()
    while diff(time.ticks_ms(), begun) < _REST_MS and not board.button():
        board.wait(None, 100)
    begun = time.ticks_ms()
    while board.button() and diff(time.ticks_ms(), begun) < _UP_MS:
        board.wait(None, 100)


def clean(board, text):
    # Without the values of secret settings.
    try:
        config = board.config()
        for name in _SECRETS:
            if config.get(name):
                text = text.replace(str(config[name]), "(hidden)")
    except (OSError, ValueError, AttributeError):
        pass
    return text


class Crash:
    # Beside the App, from a start after a crash until the host knows of it and the device has run for a while.
    def __init__(self, board, log):
        self.board = board
        self.since = time.ticks_ms()
        self.early = log["early"]
        last = log["crashes"][-1] if log["crashes"] else None
        # For the host, in hello.device.
        self.text = (
            last["error"] + (" at " + last["at"] if last["at"] else "") if last and not log["told"] else ""
        )

    def step(self, app, now):
        if self.text and app.session.state == "open":
            app.log.event("crash", text=self.text, early=self.early)
            self.text = ""
            self._mark("told", True)
        if self.early and diff(now, self.since) >= _EARLY_MS:
            self.early = 0
            self._mark("early", 0)
        if not (self.early or self.text):
            app.crash = None
            forget("vrt.setup.crash")

    def _mark(self, name, value):
        log = _load(self.board)
        log[name] = value
        _save(self.board, log)


def _place(trace):
    # The last "file:line" of a traceback; where no lines are known, as in the firmware's own modules, "module:function".
    place = ""
    for line in trace.split("\n"):
        parts = line.split('"')
        if len(parts) == 3 and parts[0].strip() == "File":
            _, number, name = parts[2].split(",")
            at = number.split(" ")[-1]
            place = "/".join(parts[1].split("/")[-2:]) + ":" + (name.split(" ")[-1] if at == "1" else at)
    return place


def _reset(board):
    return board.reset_cause() if hasattr(board, "reset_cause") else ""


def _add(board, log, text, place, uptime, *, again=True):
    # uptime: ms; None: unknown, which counts as early; negative: beyond the clock's span.
    early = again and (uptime is None or 0 <= uptime < _EARLY_MS)
    log["early"] = log["early"] + 1 if early else 0
    log["told"] = False
    entry = {"error": text[:_TEXT], "at": place, "reset": _reset(board), "firmware": VERSION}
    entry["uptime_s"] = None if uptime is None or uptime < 0 else uptime // 1000
    entry["heap_free"] = gc.mem_free() if hasattr(gc, "mem_free") else None
    log["crashes"] = (log["crashes"] + [entry])[-_KEPT:]


def _load(board):
    try:
        with open(board.storage + _FILE) as file:
            log = json.loads(file.read())
        crashes = log["crashes"]
        texts = [isinstance(one["error"], str) and isinstance(one["at"], str) for one in crashes]
        if isinstance(log["early"], int) and isinstance(crashes, list) and "told" in log and all(texts):
            return log
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return {"early": 0, "told": True, "crashes": []}


def _save(board, log):
    path = board.storage + _FILE
    try:
        with open(path + ".new", "w") as file:
            file.write(json.dumps(log))
        os.rename(path + ".new", path)
    except OSError as error:
        board.event("error", code="CRASH_LOG", message=str(error))
