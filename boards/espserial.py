# The serial link of real boards, as a stream: readinto(buf, n) gives how many bytes there were, or None; write(buf, start, n) how
# many it took, or None; close() gives the port back. `board.wait` can sleep on it.
import io
import select
import sys

import machine
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
    def __init__(self, entry):
        # timeout=0: reading does not wait. The buffers hold what comes and goes during a slow step.
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
    # The port of the REPL. It gives bytes one at a time, because reading several would wait for all of them.
    def __init__(self):
        self.source = sys.stdin.buffer
        self.sink = sys.stdout.buffer
        self.ready = select.poll()
        self.ready.register(sys.stdin, _READ)
        self.one = bytearray(1)

    def readinto(self, buf, n):
        one = self.one
        source = self.source
        ready = self.ready
        for i in range(n):
            for _ in ready.ipoll(0):
                break
            else:
                return i or None
            source.readinto(one, 1)
            buf[i] = one[0]
        return n

    def write(self, buf, start, n):
        return self.sink.write(buf, start, n)

    def ioctl(self, request, argument):
        if request != _POLL:
            return 0
        found = argument & _WRITE
        for _ in self.ready.ipoll(0):
            found |= argument & _READ
        return found

    def close(self):
        self.ready.unregister(sys.stdin)
