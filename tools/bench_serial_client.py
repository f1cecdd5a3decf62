# The device's half of tools/bench_serial.py, on MicroPython: trades audio frames with the peer, one at a time, and prints the CPU
# microseconds and the heap bytes of one.
#   micropython tools/bench_serial_client.py floor|link PORT FRAMES UP DOWN
# floor: a blocking socket that moves the same bytes, UP and DOWN of them, and does nothing else. link: the firmware's serial link,
# to which the socket is its port.
# mypy: ignore-errors
import gc
import select
import socket
import sys
import time

_here = sys.path[0] or "."
sys.path.insert(0, _here + "/../firmware")

import micropython  # noqa: E402
from micropython import const  # noqa: E402
from vrt.links import AUDIO, OPEN  # noqa: E402
from vrt.links.serial import SerialLink  # noqa: E402

_WINDOWS = const(8)


class Floor:
    def __init__(self, sock, up, down):
        self.sock = sock
        self.up = bytearray(up)
        self.down = bytearray(down)

    def trade(self, frames):
        write = self.sock.write
        readinto = self.sock.readinto
        up = self.up
        down = self.down
        for _ in range(frames):
            write(up)
            readinto(down)


class Port:
    window = 4096

    def __init__(self, sock):
        sock.setblocking(False)
        self.readinto = sock.readinto
        self.write = sock.write
        self.close = sock.close


class Link:
    def __init__(self, sock, up, down):
        port = Port(sock)
        self.link = SerialLink(lambda: port, 2048, 240)
        self.link.open(time.ticks_ms())
        while self.link.poll(time.ticks_ms()) != OPEN:
            pass
        self.up = bytearray(5) + bytes([(7 * n + 20) & 127 | 16 for n in range(160)])
        self.up[0] = 1

        self.waiter = select.poll()
        self.waiter.register(sock, select.POLLIN)

    def trade(self, frames):
        poll = self.link.poll
        send = self.link.send_audio
        unread = self.link.unread
        wait = self.waiter.ipoll
        ticks = time.ticks_ms
        up = self.up
        for _ in range(frames):
            send(up, 165)
            while True:
                if not unread():
                    for _ in wait(1000):
                        pass
                if poll(ticks()) == AUDIO:
                    break


def main():
    kind, port, frames, up, down = sys.argv[1:]
    sock = socket.socket()
    sock.connect(socket.getaddrinfo("127.0.0.1", int(port))[0][-1])
    sock.setsockopt(6, 1, 1)
    side = (Floor if kind == "floor" else Link)(sock, int(up), int(down))
    frames = int(frames)
    side.trade(1)
    gc.collect()
    total = micropython.mem_total  # all that was ever allocated, given back or not
    first = total()
    side.trade(frames)
    second = total()
    side.trade(2 * frames)
    third = total()
    # Whatever else the machine does only adds to the time: the least of several counts.
    least = 1e9
    for _ in range(_WINDOWS):
        started = time.clock()
        side.trade(frames)
        least = min(least, time.clock() - started)
    # What a call of trade takes by itself cancels out.
    print(least * 1e6 / frames, (third - second - (second - first)) / frames)


main()
