# The simulated board, on MicroPython's unix port. Its hardware is another process, `vrt sim`, reached over one socket; the
# messages are described there (vrt_host/sim/hardware.py). What a board offers is what boards/sim/README.md lists.
# Reading and writing sound allocates nothing.
# ruff: noqa: PLW0603  (this module is the board: an object beside it would be one more on the heap)
import json
import os
import select
import socket
import time
from array import array

import micropython
from micropython import const

NAME = "sim"
storage = "./"  # where the firmware keeps its files

# Kinds of messages.
_WRITE = const(0x57)  # W
_READ = const(0x52)  # R
_TAKEN = const(0x77)  # w
_HEARD = const(0x72)  # r
_BUTTON = const(0x62)  # b

_STAGED = const(768)
_RX = const(0)
_TX = const(1)


# --- what the firmware may call


def microphone():
    return I2S(_RX, _rx)


def speaker():
    return I2S(_TX, _tx)


def button():
    return _pressed


def led(state):
    global _shown
    if state != _shown:
        _shown = state
        event("led", state=state)


def output(name):
    return _outputs[name]


def safe():
    # Every output takes its safe level: the firmware ends.
    for one in _outputs.values():
        one.value(one.safe)


def wait(link, ms):
    # Sleeps until the link or the hardware has something, at most ms. Callbacks run meanwhile; that a write is done is no
    # reason to return, since there is no hurry to make the next one. Returns whether the link has something.
    global _link
    if link is not _link:
        if _link is not None:
            _poller.unregister(_link)
        if link is not None:
            _poller.register(link, select.POLLIN)
        _link = link
    end = time.ticks_add(time.ticks_ms(), ms)
    readable = False
    while ms >= 0:
        woken = True
        for item in _poller.ipoll(ms):
            if item[0] is not _sock:
                readable = True
            else:
                woken = _receive()
        if readable or woken:
            break
        ms = time.ticks_diff(end, time.ticks_ms())
    return readable


def event(what, **fields):
    fields["event"] = what
    _send(b"E", 0, json.dumps(fields))


def config():
    with open(storage + "config.json") as file:
        return json.load(file)


class I2S:
    # machine.I2S of the ESP32 port, 16 bits mono, in its IRQ mode only: `write` and `readinto` return at once; one transfer
    # runs, one waits, and a third is lost although the call returns its size; the handler runs when one is done.
    def __init__(self, mode, made):
        global _generation
        _generation = (_generation + 1) & 255
        self.mode = mode
        self.generation = made["generation"] = _generation
        self.handler = None
        self.running = self.waiting = None  # the buffers of those transfers
        _open[mode] = self
        _send(b"O", mode, json.dumps(made))

    def irq(self, handler):
        self.handler = handler

    def write(self, buf):
        return self.transfer(_WRITE, buf)

    def readinto(self, buf):
        return self.transfer(_READ, buf)

    def deinit(self):
        if _open[self.mode] is self:
            _open[self.mode] = None
            _send(b"X", self.mode, "")

    def transfer(self, kind, buf):
        if self.handler is None:
            raise OSError("the simulated I2S has no blocking mode: call irq first")
        if _open[self.mode] is not self:
            raise OSError("this I2S is closed")
        n = 2 * len(buf) if isinstance(buf, array) else len(buf)
        if self.running is None:
            self.running = buf
        elif self.waiting is None:
            self.waiting = buf
        else:
            return n
        _staged[0] = kind
        _staged[1] = n
        if kind == _READ:
            _put(_staged, 4)
        elif isinstance(buf, array) and n <= _STAGED:
            _samples[2 : 2 + n // 2] = buf
            _put(_staged, n + 4)
        else:
            _put(_staged, 4)
            _put(buf, n)
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


def _put(data, n):
    try:  # noqa: SIM105  (no contextlib here)
        _sock.write(data, n)
    except OSError:
        pass  # the simulator is gone, as the next `wait` will see; this may be in a callback


def _send(kind, argument, text):
    data = text.encode()
    data = kind + bytes((argument, len(data) & 255, len(data) >> 8)) + data
    _put(data, len(data))


def _receive():
    # One message, which is there or on its way. False when the firmware has nothing to do about it.
    global _pressed
    try:
        n = _sock.readinto(_head)
    except OSError:
        n = 0
    if n != 4:
        raise SystemExit  # the simulator is gone
    kind = _head[0]
    if kind == _BUTTON:
        _pressed = _head[1] == 1
        return True
    i2s = _open[kind == _TAKEN]
    if i2s is None or i2s.generation != _head[1]:  # for one that was closed meanwhile
        if kind == _HEARD:
            _sock.read(_head[2] | _head[3] << 8)
        return False
    if kind == _HEARD:
        _sock.readinto(i2s.running)
    # That transfer is done; the handler runs from the scheduler, as on a board.
    i2s.running = i2s.waiting
    i2s.waiting = None
    micropython.schedule(i2s.handler, i2s)
    return kind == _HEARD


# --- at the start; what only that needs is given back


def _converter(made, frame_bytes):
    # What opens it, and how much sound its DMA holds, rounded up, by the block rule of the ESP32 port.
    blocks = max(2, made["ibuf"] // (256 * frame_bytes))
    return {"rate": made["rate"], "ibuf": made["ibuf"]}, -(-blocks * 256 * 1000 // made["rate"])


_host, _port, _nonce = (os.getenv("VRT_SIM") or "").split(":")
_sock = socket.socket()
_sock.connect(socket.getaddrinfo(_host, int(_port))[0][-1])
_sock.setsockopt(6, 1, 1)  # TCP_NODELAY
_poller = select.poll()
_poller.register(_sock, select.POLLIN)
_head = bytearray(4)  # of the message that comes
_staged = array("h", bytes(4 + _STAGED))  # a header and 16 ms of a write, to leave in one piece
_samples = memoryview(_staged)  # an array's own slices allocate
_open = [None, None]  # the I2S objects, by mode
_generation = 0  # of the one opened last
_pressed = False
_shown = "off"  # by the LED
_link = None  # the socket that `wait` watches too
_send(b"H", 0, _nonce)

with open(__file__.rsplit("/", 1)[0] + "/board.json") as _file:
    _board = json.load(_file)
_rx, _rx_ms = _converter(_board["microphone"], 8)
_tx, _tx_ms = _converter(_board["speaker"], 2)
DESCRIPTION = {
    "id": _board["id"],
    "mic_rate": _rx["rate"],
    "mic_dma_ms": _rx_ms,
    "dac_rate": _tx["rate"],
    "dma_ms": _tx_ms,
    "duplex": _board["duplex"],
}
_outputs = {name: Output(name, made["safe"]) for name, made in _board["outputs"].items()}
del _host, _port, _nonce, _file, _board, _converter, _rx_ms, _tx_ms
