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
    # Until it is stopped. Whatever goes wrong is in the log, on the LED, and raised again.
    from vrt.build import start
    from vrt.errors import ConfigError

    app = None
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
        raise
    finally:
        board.safe()
        if app:
            app.sound.close()


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
