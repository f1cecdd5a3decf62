# The serial link of real boards, as a port (see vrt/links/serial.py), on which `board.wait` can sleep.
import io
import select
import sys

import machine
import micropython
from machine import Pin
from micropython import const

_POLL = const(3)  # requests to ioctl
_READ = const(1)
_WRITE = const(4)
_BAUD = const(921600)
_BUFFER = const(4096)


def stream(entry):
    # `entry`: the member `serial` of board.json.
    if entry["kind"] == "usb":
        return Console()
    return Uart(entry)


class Uart(io.IOBase):
    # A port of its own.
    window = 3072  # bytes that it takes while nobody reads, and some are on their way

    def __init__(self, entry):
        # timeout=0: reading does not wait, and writing only when so much is on its way already. The buffers hold what comes and
        # goes during a slow step.
        tx, rx = Pin(entry["tx"]), Pin(entry["rx"])
        self.uart = uart = machine.UART(
            entry["unit"], _BAUD, tx=tx, rx=rx, rxbuf=_BUFFER, txbuf=_BUFFER, timeout=0
        )
        self.readinto = uart.readinto
        self.write = uart.write
        self.close = uart.deinit

    def ioctl(self, request, argument):
        if request != _POLL:
            return 0
        return argument & (_READ | _WRITE if self.uart.any() else _WRITE)


class Console(io.IOBase):
    # The port of the REPL. It gives bytes one at a time, because reading several would wait for all of them; MicroPython keeps
    # 260 while nobody reads.
    window = 256

    def __init__(self):
        self.source = sys.stdin.buffer
        self.sink = sys.stdout.buffer
        self.ready = select.poll()
        self.ready.register(sys.stdin, _READ)
        self.one = bytearray(1)

    # Few locals and no more calls than these: a larger call takes memory.

    def readinto(self, buf, n):
        i = 0
        while i < n and self.any():
            self.source.readinto(self.one, 1)
            buf[i] = self.one[0]
            i += 1
        return i or None

    def any(self):
        for _ in self.ready.ipoll(0):
            return True
        return False

    def write(self, buf, start, n):
        return self.sink.write(buf, start, n)

    def interrupt(self, on):
        # Whether Ctrl-C stops the program.
        micropython.kbd_intr(3 if on else -1)

    def ioctl(self, request, argument):
        if request != _POLL:
            return 0
        return argument & (_READ | _WRITE if self.any() else _WRITE)

    def close(self):
        self.interrupt(True)
        self.ready.unregister(sys.stdin)
