# The heap of the running client, for tools/bench_size.py: the firmware's own start, until its session is open, on MicroPython.
# Reports it as the event `size` of the board: with MODULES, what each module took when it was imported, without what it
# imported itself; else what is in use after a collection, and how much of it is buffers.
# mypy: ignore-errors
# ruff: noqa: PLC0415  (the imports are what is measured)
import builtins
import gc
import sys
from array import array

MODULES = False

taken = {}
_open = []  # of the imports that are under way: what their own imports took
_import = builtins.__import__


def measured(name, *rest):
    if name in sys.modules:
        return _import(name, *rest)
    gc.collect()
    before = gc.mem_alloc()
    _open.append(0)
    try:
        return _import(name, *rest)
    finally:
        gc.collect()
        took = gc.mem_alloc() - before
        inner = _open.pop()
        if _open:
            _open[-1] += took
        taken[name] = taken.get(name, 0) + took - inner


def buffers(root):
    # Bytes of all bytearrays, arrays and ring buffers that can be reached from an object of the firmware's.
    seen = set()
    found = {}
    queue = [(root, "app")]
    while queue:
        one, path = queue.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        kind = type(one).__name__
        if isinstance(one, bytearray):
            found[path] = found.get(path, 0) + len(one)
        elif isinstance(one, array):
            found[path] = found.get(path, 0) + len(one) * (2 if repr(one[:0])[7] in "hH" else 4)
        elif kind == "RingIO":
            found[path] = one.any() + _room(one) + 1
        elif isinstance(one, (list, tuple)):
            queue.extend([(inner, path + "[]") for inner in one])
        elif isinstance(one, dict):
            queue.extend([(inner, path + "{}") for inner in one.values()])
        elif hasattr(one, "__dict__") and not isinstance(one, type):
            queue.extend([(inner, path + "." + name) for name, inner in one.__dict__.items()])
    return found


def _room(ring):
    # How much more a ring takes.
    n = 0
    while ring.write(b"\0"):
        n += 1
    return n


def main():
    gc.collect()
    before = gc.mem_alloc()
    if MODULES:
        builtins.__import__ = measured
    import board
    from vrt.build import start

    app = start(board)
    del start
    builtins.__import__ = _import
    sleep = board.wait
    steps = 0

    def wait(link, ms):
        nonlocal steps
        steps += app.session.state == "open"
        if steps == 50:
            board.wait = sleep
            gc.collect()
            used = gc.mem_alloc() - before
            board.event("size", used=used, modules=taken, buffers=buffers(app))
        return sleep(link, ms)

    board.wait = wait
    app.run()


main()
