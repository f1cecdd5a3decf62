# vRT Edge, the device: a vRT 1.3 client for MicroPython 1.27 or newer (see app.py for how it hangs together).
import sys

VERSION = "0.1.0"


def diff(now, since):
    # Milliseconds from `since` to `now`: ticks of `time.ticks_ms()`, compared only so. The clock wraps at 2**30 on the boards;
    # masking makes every port's ticks the same and keeps all values small integers. Good for intervals below 6 days either way.
    return (((now - since) & 0x3FFFFFFF) ^ 0x20000000) - 0x20000000


def use(name):
    # The module of that name, imported now: what is seldom needed, since an import statement would keep the name in the heap.
    __import__(name)
    return sys.modules[name]


def forget(*names):
    # Takes modules that are needed at the start, or now and then, out of memory again; whoever needs one imports it afresh.
    for name in names:
        package, _, last = name.rpartition(".")
        sys.modules.pop(name, None)
        if hasattr(sys.modules[package], last):
            delattr(sys.modules[package], last)


def once(name):
    # `use` and `forget` in one, for one call: `once("vrt.hello").hello(...)`. What runs seldom costs the heap nothing in between.
    # It is read from flash each time, so it is nothing that audio waits for.
    module = use(name)
    forget(name)
    return module
