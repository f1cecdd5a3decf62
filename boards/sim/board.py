# The simulated board, on MicroPython's unix port. Its hardware is another process, `vrt sim`, reached over one socket; the
# messages are described there (vrt_host/sim/hardware.py). What a board offers is what boards/sim/README.md lists.
# Reading and writing sound allocates nothing.
# ruff: noqa: PLW0603  (this module is the board: an object beside it would be one more on the heap)
import json
import os
import select
import socket
import sys
import time
from array import array

import micropython
from micropython import const

storage = "./"  # where the firmware keeps its files

# Kinds of messages.
_WRITE = const(0x57)  # W
_READ = const(0x52)  # R
_TAKEN = const(0x77)  # w
_HEARD = const(0x72)  # r
_BUTTON = const(0x62)  # b

_RX = const(0)
_TX = const(1)


# --- what the firmware may call


def microphone():
    return I2S(_RX)


def speaker():
    return I2S(_TX)


def button():
    return _pressed


def led(state):
    global _shown
    if state != _shown:
        _shown = state
        event("led", state=state)


def output(name):
    return _pin[name]


def safe():
    # Every output takes its safe level: the firmware ends.
    for one in _pin.values():
        one.value(one.safe)


def wait(link, wait_ms):
    # Sleeps until the link or the hardware has something, at most so long. Callbacks run meanwhile; that a write is done is
    # no reason to return, since there is no hurry to make the next one. Returns whether the link has something.
    global _host, _events
    if link is not _host:
        _host = link
        _events = select.poll()
        _events.register(_socket, 1)  # POLLIN
        if link is not None or _uart:
            _events.register(getattr(link or _uart, "polled", link), 1)
    start = time.ticks_ms()
    left = wait_ms
    readable = False
    while left >= 0:
        woken = True
        for item in _events.ipoll(left):
            if item[0] is not _socket:
                readable = True
                if link is None:
                    _uart.drain()
            else:
                woken = _receive()
        if readable or woken:
            break
        left = wait_ms - time.ticks_diff(time.ticks_ms(), start)
    return readable


def event(kind, **fields):
    fields["event"] = kind
    line = json.dumps(fields)  # first: it may find no memory, and the mark promises a line
    if _uart is None:
        sys.stdout.write("\x1e")  # its place among what is printed, which goes another way
    _send(b"E", 0, line)


def config():
    with open(storage + "config.json") as file:
        return json.load(file)


class I2S:
    # machine.I2S of the ESP32 port, 16 bits mono, in its IRQ mode only: `write` and `readinto` return at once; one transfer
    # runs, one waits, and a third is lost although the call returns its size; the handler runs when one is done.
    def __init__(self, unit):
        global _count
        _count = (_count + 1) & 255
        self.unit = unit
        self.generation = _count
        self.function = None
        self.running = self.waiting = None  # the buffers of those transfers
        _open[unit] = self  # type: ignore[arg-type]
        entry = _board[unit]
        made = {"rate": entry["rate"], "ibuf": entry["ibuf"], "generation": _count}
        _send(b"O", unit, json.dumps(made))

    def irq(self, function):
        self.function = function

    def write(self, buf):
        return self._start(_WRITE, buf)

    def readinto(self, buf):
        return self._start(_READ, buf)

    def deinit(self):
        if _open[self.unit] is self:
            _open[self.unit] = None
            _send(b"X", self.unit, "")

    def _start(self, kind, buf):
        if self.function is None:
            raise OSError("the simulated I2S has no blocking mode: call irq first")
        if _open[self.unit] is not self:
            raise OSError("this I2S is closed")
        n = 2 * len(buf) if isinstance(buf, array) else len(buf)
        if self.running is None:
            self.running = buf
        elif self.waiting is None:
            self.waiting = buf
        else:
            return n
        _work[0] = kind
        _work[1] = 0
        _work[2] = n & 255
        _work[3] = n >> 8
        _write(_work, 4)
        if kind == _WRITE:
            _write(buf, n)
        return n


class Output:
    # A relay, a lock, a light: a pin with an effect in the world. It takes its safe level when it is made.
    def __init__(self, name, safe):
        self.name = name
        self.safe = safe
        self.level = None
        self.value(safe)

    def value(self, level=None):
        if level is None:
            return self.level
        level = 1 if level else 0
        if level != self.level:
            self.level = level
            event("output", name=self.name, value=level)
        return None


# --- the socket


def _write(buf, n):
    try:  # noqa: SIM105  (no contextlib here)
        _socket.write(buf, n)  # type: ignore[call-arg]  (the stubs know one argument)
    except OSError:
        pass  # the simulator is gone, as the next `wait` will see; this may be in a callback


def _send(kind, number, text):
    data = text.encode()
    data = kind + bytes((number, len(data) & 255, len(data) >> 8)) + data
    _write(data, len(data))


def _receive():
    # One message, which is there or on its way. False when the firmware has nothing to do about it.
    global _pressed
    try:
        n = _socket.readinto(_work)
    except OSError:
        n = 0
    if n != 4:
        raise SystemExit  # the simulator is gone
    kind = _work[0]
    if kind == _BUTTON:
        _pressed = _work[1] == 1
        return True
    i2s = _open[kind == _TAKEN]
    if i2s is None or i2s.generation != _work[1]:  # for one that was closed meanwhile
        if kind == _HEARD:
            _socket.read(_work[2] | _work[3] << 8)
        return False
    if kind == _HEARD:
        _socket.readinto(i2s.running)
    # That transfer is done; the handler runs from the scheduler, as on a board, before the next message is read.
    i2s.running = i2s.waiting
    i2s.waiting = None
    micropython.schedule(i2s.function, i2s)
    return kind == _HEARD


# --- at the start


def start():
    # Locals, because they take nothing of the heap.
    global NAME, DESCRIPTION, _board, _socket, _pin, _uart, serial

    def dma_ms(entry, size):
        # How much sound it holds in frames of so many bytes, rounded up, by the block rule of the ESP32 port.
        blocks = max(2, entry["ibuf"] // (256 * size))
        return -(-blocks * 256 * 1000 // entry["rate"])

    if os.getenv("VRT_SIM_SERIAL"):
        import uart  # noqa: PLC0415  (memory that other links do not need)

        _uart = uart.make()
        serial = _uart.open  # type: ignore[assignment]
    host, port, nonce = (os.getenv("VRT_SIM") or "").split(":")
    _socket = socket.socket()
    _socket.connect(socket.getaddrinfo(host, int(port))[0][-1])
    _socket.setsockopt(6, 1, 1)  # TCP_NODELAY
    _send(b"H", 0, nonce)
    with open(__file__.rsplit("/", 1)[0] + "/board.json") as file:
        made = json.load(file)
    rx, tx = _board = made["microphone"], made["speaker"]
    NAME = made["id"]
    DESCRIPTION = {
        "id": NAME,
        "mic_rate": rx["rate"],
        "mic_dma_ms": dma_ms(rx, 8),
        "dac_rate": tx["rate"],
        "dma_ms": dma_ms(tx, 2),
        "duplex": made["duplex"],
    }
    _pin = {}
    for name, entry in made["outputs"].items():
        _pin[name] = Output(name, entry["safe"])


NAME = ""  # the board's
DESCRIPTION = {}
_board = ()  # what its file says of the microphone and of the speaker
_socket = None  # to the hardware
_uart = None  # the serial port, on a board that has one; it is the console's, too
_events = None  # poll() of that and of the link
_pin = {}  # Output by name
_work = bytearray(4)  # the header of the message in hand
_open = [None, None]  # the I2S objects, by unit
_count = 0  # of those ever opened, in 8 bits
_pressed = False
_shown = "off"  # by the LED
_host = 0  # the link's socket or None, as `wait` was told; at first neither
start()
del start  # its memory is wanted
