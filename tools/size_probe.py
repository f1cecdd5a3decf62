# The heap of the running client, for tools/bench_size.py: the firmware's own start, until its session is open, on MicroPython.
# Reports it as the event `size` of the board: with MODULES, what each module took when it was imported, without what it imported
# itself; else what is in use after a collection, and how much of it is buffers, by the way to them from the App. With DESCRIPTION,
# the board.json of a real board, sound is that board's, and SLOT is a folder with its files: then also what the simulated board
# took, and what the real one takes instead, on chips that are played here. Parts between `if` and `end` are left out where nobody
# asks for them, and what is left is called by words that MicroPython knows: other names would fill the table that counts here.
# mypy: ignore-errors
# ruff: noqa: E402, PLC0415  (the imports are what is measured, and some are left out)
import gc
from array import array

from micropython import RingIO

DESCRIPTION = ""
SLOT = ""
MODULES = ""


def map(object):
    # Bytes of all bytearrays, arrays and ring buffers that can be reached from an object of the firmware's.
    seen = set()
    found = {}
    queue = [(object, "")]
    while queue:
        one, path = queue.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        kind = type(one)
        if kind is bytearray:
            found[path] = found.get(path, 0) + len(one)
        elif kind is array:
            found[path] = found.get(path, 0) + len(one) * (2 if repr(one[:0])[7].encode() in b"hH" else 4)
        elif kind is RingIO:
            found[path] = one.any() + 1
            while one.write(b"\0"):  # how much more it takes
                found[path] += 1
        elif kind in (list, tuple):
            queue.extend([(inner, path + "[]") for inner in one])
        elif kind is dict:
            queue.extend([(inner, path + "{}") for inner in one.values()])
        elif hasattr(one, "__dict__") and kind is not type:
            queue.extend([(inner, path + "." + name) for name, inner in one.__dict__.items()])
    return found


# if MODULES
import builtins
import sys

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
        taken[name] = max(taken.get(name, 0), took - inner)


# end
# if DESCRIPTION
import builtins
import io
import json
import sys  # noqa: F811  (of the two parts one is left at most)


class Played:
    # Whatever `machine` and its like have: names lead to itself, calls to nothing.
    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        return self._nothing

    def _nothing(self, *_, **__):
        return 0


class I2C(Played):
    def readfrom_mem_into(self, address, register, buf):
        buf[0] = _IDS.get((address, register), 0)


_IDS = {(0x18, 0xFD): 0x83, (0x18, 0xFE): 0x11, (0x40, 0x3D): 0x72, (0x40, 0x3E): 0x10}  # of the codecs


class Pin(Played):
    IN, OUT, PULL_UP, PULL_DOWN = range(4)


class I2S(Played):
    RX, TX, MONO, STEREO = range(4)


def described(path, *mode):
    # The simulated board's own file, with the sound of the real one, but for the DAC's rate: the simulator's is the highest.
    file = _plain_open(path, *mode)
    if not path.endswith("/board.json") or path.startswith(SLOT):
        return file
    made, real = json.load(file), json.loads(DESCRIPTION)
    for name in ("microphone", "speaker"):
        made[name]["ibuf"] = real[name]["ibuf"]
    made["duplex"] = real["duplex"]
    return io.StringIO(json.dumps(made))


def hardware():
    # What a real board's own modules take, and what it has that the simulated one has not: Wi-Fi, and two slots.
    class machine:
        pass

    machine.Pin, machine.I2C, machine.I2S = Pin, I2C, I2S
    neopixel = Played()
    neopixel.NeoPixel = Played
    sys.modules["machine"] = machine
    sys.modules["neopixel"] = neopixel
    sys.path.append(SLOT)
    gc.collect()
    before = gc.mem_alloc()
    import espboard
    import slots  # noqa: F401
    import vrt.links.wifi
    import vrt.setup.forget
    import vrt.setup.live  # noqa: F401

    espboard.start(SLOT + "/")
    kept = espboard.microphone(), espboard.speaker()  # noqa: F841
    gc.collect()
    return gc.mem_alloc() - before


# end
def main():
    played = 0
    # if DESCRIPTION
    builtins.open = described
    # end
    gc.collect()
    before = gc.mem_alloc()
    # if MODULES
    builtins.__import__ = measured
    # end
    import board

    # if DESCRIPTION
    gc.collect()
    played = gc.mem_alloc() - before
    # end
    from vrt.build import shed, start

    app = start(board)
    shed(app)
    del shed, start
    sleep = board.wait
    steps = 0

    def wait(self, args):
        nonlocal steps
        steps += app.session.state == "open"
        if steps == 50:
            board.wait = sleep
            gc.collect()
            used = gc.mem_alloc() - before
            made = {"used": used, "buffers": map(app)}
            # if MODULES
            builtins.__import__ = _import
            made["modules"] = taken
            # end
            # if DESCRIPTION
            made["used"] = used - played + hardware()
            # end
            board.event("size", **made)
        return sleep(self, args)

    board.wait = wait
    app.run()


# if DESCRIPTION
_plain_open = open
# end
main()
