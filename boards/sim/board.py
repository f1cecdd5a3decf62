# The simulated board, on MicroPython's unix port. Its hardware is another process, `vrt sim`, reached over one socket; the
# messages are described there (vrt_host/sim/hardware.py). What a board offers is what boards/sim/README.md lists.
# Reading and writing sound allocates nothing.
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


def _depth_ms(converter, frame_bytes):
    # How much sound the DMA holds, rounded up, by the block rule of the ESP32 port.
    blocks = max(2, converter["ibuf"] // (256 * frame_bytes))
    return -(-blocks * 256 * 1000 // converter["rate"])


with open(__file__.rsplit("/", 1)[0] + "/board.json") as _file:
    _board = json.load(_file)

DESCRIPTION = {
    "id": _board["id"],
    "mic_rate": _board["microphone"]["rate"],
    "mic_dma_ms": _depth_ms(_board["microphone"], 8),
    "dac_rate": _board["speaker"]["rate"],
    "dma_ms": _depth_ms(_board["speaker"], 2),
    "duplex": _board["duplex"],
}


class _Simulator:
    # The socket to the hardware, and who waits for what on it.
    def __init__(self, address):
        host, port, nonce = address.split(":")
        self.sock = socket.socket()
        self.sock.connect(socket.getaddrinfo(host, int(port))[0][-1])
        self.sock.setsockopt(6, 1, 1)  # TCP_NODELAY
        self._head = bytearray(4)
        self._staged = array("h", bytes(4 + 768))  # a header and 16 ms of a write, to leave in one piece
        self._samples = memoryview(self._staged)  # an array's own slices allocate
        self.pressed = False
        self.led = "off"
        self.link = None  # the socket that `wait` watches too
        self.i2s = [None, None]  # the open ones, by mode
        self.send(b"H", 0, nonce)

    def _put(self, data, n):
        try:  # noqa: SIM105  (no contextlib here)
            self.sock.write(data, n)
        except OSError:
            pass  # the simulator is gone, as the next `wait` will see; this may be in a callback

    def send(self, kind, argument, payload):
        data = kind + bytes((argument, len(payload) & 255, len(payload) >> 8)) + payload
        self._put(data, len(data))

    def event(self, fields):
        self.send(b"E", 0, json.dumps(fields).encode())

    def ask(self, kind, n):
        # A header alone.
        head = self._head
        head[0] = kind
        head[1] = 0
        head[2] = n & 255
        head[3] = n >> 8
        self._put(head, 4)

    def write(self, buf, n):
        # n bytes of sound; allocates nothing when they are an array("h").
        if isinstance(buf, array) and n + 4 <= 2 * len(self._staged):
            staged = self._staged
            staged[0] = _WRITE
            staged[1] = n
            self._samples[2 : 2 + n // 2] = buf
            self._put(staged, n + 4)
        else:
            self.ask(_WRITE, n)
            self._put(buf, n)

    def receive(self):
        # One message, which is there or on its way. False when the firmware has nothing to do about it.
        head = self._head
        try:
            n = self.sock.readinto(head)
        except OSError:
            n = 0
        if n != 4:
            raise SystemExit  # the simulator is gone
        kind = head[0]
        if kind == _BUTTON:
            self.pressed = head[1] == 1
            return True
        i2s = self.i2s[kind == _TAKEN]
        late = i2s is None or i2s.generation != head[1]  # for one that was closed meanwhile
        if kind == _HEARD:
            if late:
                self.sock.read(head[2] | head[3] << 8)
            else:
                self.sock.readinto(i2s.running())
        if late:
            return False
        i2s.done()
        return kind == _HEARD


_sim = _Simulator(os.getenv("VRT_SIM") or "")
_poller = select.poll()
_poller.register(_sim.sock, select.POLLIN)


class I2S:
    # machine.I2S of the ESP32 port, 16 bits mono, in its IRQ mode only: `write` and `readinto` return at once; one transfer
    # runs, one waits, and a third is lost although the call returns its size; the handler runs when one is done.
    RX = 0
    TX = 1
    MONO = 0
    STEREO = 1
    _opened = 0

    def __init__(self, id, *, sck, ws, sd, mode, bits, format, rate, ibuf):
        if bits != 16 or format != I2S.MONO:
            raise ValueError("the simulated I2S is 16 bits, mono")
        self._mode = mode
        self._handler = None
        self._buffers = [None, None]  # the running transfer's, the waiting one's
        I2S._opened += 1
        self.generation = I2S._opened & 255
        _sim.i2s[mode] = self
        _sim.send(
            b"O", mode, json.dumps({"rate": rate, "ibuf": ibuf, "generation": self.generation}).encode()
        )

    def irq(self, handler):
        self._handler = handler

    def write(self, buf):
        n = 2 * len(buf) if isinstance(buf, array) else len(buf)
        if self._queue(buf):
            _sim.write(buf, n)
        return n

    def readinto(self, buf):
        n = 2 * len(buf) if isinstance(buf, array) else len(buf)
        if self._queue(buf):
            _sim.ask(_READ, n)
        return n

    def deinit(self):
        if _sim.i2s[self._mode] is self:
            _sim.i2s[self._mode] = None
            _sim.send(b"X", self._mode, b"")

    def _queue(self, buf):
        if self._handler is None:
            raise OSError("the simulated I2S has no blocking mode: call irq first")
        if _sim.i2s[self._mode] is not self:
            raise OSError("this I2S is closed")
        buffers = self._buffers
        if buffers[1] is not None:
            return False
        buffers[0 if buffers[0] is None else 1] = buf
        return True

    def running(self):
        return self._buffers[0]

    def done(self):
        # The running transfer is done; the handler runs from the scheduler, as on a board.
        buffers = self._buffers
        buffers[0] = buffers[1]
        buffers[1] = None
        micropython.schedule(self._handler, self)


class _Output:
    # A relay, a lock, a light: a pin with an effect in the world. It takes its safe level when it is made.
    def __init__(self, name, safe):
        self._name = name
        self.safe = safe
        self._value = None
        self.value(safe)

    def value(self, level=None):
        if level is None:
            return self._value
        level = 1 if level else 0
        if level != self._value:
            self._value = level
            _sim.event({"event": "output", "name": self._name, "value": level})
        return None


def _i2s(mode, rate, bits, ibuf):
    return I2S(mode, sck=None, ws=None, sd=None, mode=mode, bits=bits, format=I2S.MONO, rate=rate, ibuf=ibuf)


def microphone():
    return _i2s(I2S.RX, *_rx)


def speaker():
    return _i2s(I2S.TX, *_tx)


def button():
    return _sim.pressed


def led(state):
    if state != _sim.led:
        _sim.led = state
        _sim.event({"event": "led", "state": state})


def output(name):
    return _outputs[name]


def safe():
    # Every output takes its safe level: the firmware ends.
    for one in _outputs.values():
        one.value(one.safe)


def wait(link, ms):
    # Sleeps until the link or the hardware has something, at most ms. Callbacks run meanwhile; that a write is done is no
    # reason to return, since there is no hurry to make the next one. Returns whether the link has something.
    if link is not _sim.link:
        if _sim.link is not None:
            _poller.unregister(_sim.link)
        if link is not None:
            _poller.register(link, select.POLLIN)
        _sim.link = link
    end = time.ticks_add(time.ticks_ms(), ms)
    readable = False
    while ms >= 0:
        woken = True
        for item in _poller.ipoll(ms):
            if item[0] is not _sim.sock:
                readable = True
            else:
                woken = _sim.receive()
        if readable or woken:
            break
        ms = time.ticks_diff(end, time.ticks_ms())
    return readable


def event(what, **fields):
    fields["event"] = what
    _sim.event(fields)


def config():
    with open(storage + "config.json") as file:
        return json.load(file)


_rx, _tx = [(made["rate"], made["bits"], made["ibuf"]) for made in (_board["microphone"], _board["speaker"])]
_outputs = {name: _Output(name, entry["safe"]) for name, entry in _board["outputs"].items()}
del _board, _file  # their memory is wanted
