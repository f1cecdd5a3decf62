# Starts the device. Before it does, there is time to stop it: with Ctrl-C, or the button held.
# ruff: noqa: PLC0415  (nothing is imported before it is known that this runtime can run it)
import gc
import sys
import time


def refusal(implementation):
    # Why this runtime cannot be used, or None. Ones older than 1.27 allocate in slice assignment, which the audio paths do
    # for every frame.
    version = tuple(implementation.version[:2])
    if implementation.name != "micropython" or version >= (1, 27):
        return None
    found = ".".join([str(number) for number in version])
    return f"vRT Edge needs MicroPython 1.27 or newer, not {found}: flash one from micropython.org/download"


def stopped(board, wait_ms):
    # The safe-boot window: True when the button is held in it.
    if wait_ms:
        print("vrt: starts in", wait_ms, "ms; Ctrl-C or the button held now stops it")
    start = time.ticks_ms()
    while time.ticks_diff(time.ticks_ms(), start) < wait_ms:
        if board.button():
            print("vrt: stopped by the button")
            return True
        board.wait(None, 10)
    return False


def start(board):
    # The device, or None when it was stopped.
    from vrt.config import checked

    config = checked(board.config(), board.DESCRIPTION["duplex"])
    if stopped(board, config["safe_boot_ms"]):
        return None
    # While the code comes in, what it leaves behind is collected often: so it packs closely, and the rest of the heap
    # stays in one piece for the buffers.
    if hasattr(gc, "threshold"):
        gc.threshold(gc.mem_free() // 32)
    from vrt.build import build

    app = build(board, config)
    if hasattr(gc, "threshold"):
        gc.threshold(-1)
    return app


def run(board):
    # Until it is stopped. Whatever goes wrong is in the log, on the LED, and raised again.
    from vrt.errors import ConfigError

    app = None
    try:
        app = start(board)
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
    why = refusal(sys.implementation)
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
