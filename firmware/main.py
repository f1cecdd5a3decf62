# Starts the device. Before it does, there is time to stop it: with Ctrl-C, or the button held.
# ruff: noqa: PLC0415  (nothing is imported before it is known that this runtime can run it)
import sys


def problem(implementation):
    # Why this runtime cannot be used, or None. Ones older than 1.27 allocate in slice assignment, which the audio paths do
    # for every frame.
    version = tuple(implementation.version[:2])
    if implementation.name != "micropython" or version >= (1, 27):
        return None
    found = ".".join([str(number) for number in version])
    return f"vRT Edge needs MicroPython 1.27 or newer, not {found}: flash one from micropython.org/download"


def run(board):
    # Until it is stopped. Whatever goes wrong is in the log and on the LED, and every output takes its safe level. When the
    # running device crashes, a board that can does restart, and the safe-boot window is the time to stop it; else the error
    # is raised again.
    from vrt.build import start
    from vrt.errors import ConfigError

    app = crash = None
    try:
        app = start(board)
        del start  # its module shall not stay in the heap
        if app:
            app.run()
    except ConfigError as error:
        board.event("error", code="CONFIG", message=str(error))
        board.led("error")
        print("vrt:", error)
        raise SystemExit(1) from None
    except Exception as error:
        board.event("error", code="CRASH", message=f"{type(error).__name__}: {error}")
        board.led("error")
        if not app or not hasattr(board, "restart"):
            raise
        crash = error
    finally:
        board.safe()
        if app:
            app.sound.close()
    if crash:
        if hasattr(sys, "print_exception"):
            sys.print_exception(crash)
        board.restart()


def main():
    why = problem(sys.implementation)
    if why:
        print(why)
        raise SystemExit(1)
    import micropython

    if hasattr(micropython, "alloc_emergency_exception_buf"):
        micropython.alloc_emergency_exception_buf(100)
    import board

    run(board)


if __name__ == "__main__":
    main()
