# Starts the device. Before it does, there is time to stop it: with Ctrl-C, or the button held.
# ruff: noqa: PLC0415  (nothing is imported before it is known that this runtime can run it)
import os
import sys
import time


def problem(implementation):
    # Why this runtime cannot be used, or None. Ones older than 1.27 allocate in slice assignment, which the audio paths do
    # for every frame.
    version = tuple(implementation.version[:2])
    if implementation.name != "micropython" or version >= (1, 27):
        return None
    found = ".".join([str(number) for number in version])
    return f"vRT Edge needs MicroPython 1.27 or newer, not {found}: flash one from micropython.org/download"


def run(board, for_good=False):
    # Until it is stopped. `for_good`: no other device is started by this program, and what only a start needs may go. Whatever
    # goes wrong is in the log and on the LED, and every output takes its safe level. When the running device crashes, a board
    # that can does restart, and the safe-boot window is the time to stop it; else the error is raised again.
    before = crashes(board)
    began = time.ticks_ms()  # after the rest that many crashes in a row lead to
    from vrt.build import shed, start
    from vrt.errors import ConfigError

    app = crash = None
    try:
        app = start(board)
        if app and for_good:
            shed(app)
        del shed, start  # their module shall not stay in the heap
        if app:
            app.crash = before  # pyright: ignore[reportAttributeAccessIssue]
            if hasattr(board, "watchdog"):
                board.watchdog(30_000)  # without a look at the hardware: then the board starts again
            app.run()
    except ConfigError as error:
        board.event("error", code="CONFIG", message=str(error))
        board.led("error")
        print("vrt:", error)
        raise SystemExit(1) from None
    except Exception as error:
        board.led("error")
        crash = error
    finally:
        board.safe()
        if app and hasattr(board, "watchdog"):
            board.watchdog(3_600_000)  # for somebody at the prompt: it cannot be switched off
        if app:
            app.sound.close()
            if app.link.sock:
                app.link.sock.close()  # a serial port is the REPL's again
    if crash:
        again = app is not None and hasattr(board, "restart")
        app = before = None  # there may be no memory for what follows
        tell(board, crash, began, again)
        if not again:
            raise crash
        board.restart()


def tell(board, crash, began, again):
    try:
        from vrt.setup.crash import ended

        ended(board, crash, began, again)
    except Exception as error:  # such as a heap that is still full
        board.event(
            "error",
            code="CRASH",
            message=type(crash).__name__ + ", not written down: " + type(error).__name__,
        )


def crashes(board):
    # What the device remembers of crashes, if there is something; see setup/crash.py.
    try:
        if not (hasattr(board, "reset_cause") and board.reset_cause() == "watchdog"):
            os.stat(board.storage + "crash.json")
    except OSError:
        return None
    from vrt.setup.crash import look

    return look(board)


def main():
    why = problem(sys.implementation)
    if why:
        print(why)
        raise SystemExit(1)
    import micropython

    if hasattr(micropython, "alloc_emergency_exception_buf"):
        micropython.alloc_emergency_exception_buf(100)
    import board

    run(board, for_good=True)


if __name__ == "__main__":
    main()
