# The device's half of tools/bench_link.py, on MicroPython: trades audio frames with the peer, one at a time,
# and prints the CPU microseconds and the heap bytes of one.
#   micropython tools/bench_link_client.py floor|link PORT FRAMES
# floor: a blocking socket that moves the same bytes and does nothing else. link: the firmware's WebSocket
# link.
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
from vrt.links import AUDIO, CLOSED, OPEN  # noqa: E402
from vrt.links.ws import WebSocketLink  # noqa: E402

_MESSAGE = const(165)  # 20 ms of 8 kHz mu-law and its header
_UP = const(173)  # as a masked frame
_DOWN = const(169)
_WINDOWS = const(8)


class Floor:
    def __init__(self, port):
        self.sock = socket.socket()
        self.sock.connect(socket.getaddrinfo("127.0.0.1", port)[0][-1])
        self.sock.setsockopt(6, 1, 1)
        self.up = bytearray(_UP)
        self.down = bytearray(_DOWN)

    def trade(self, frames):
        write = self.sock.write
        readinto = self.sock.readinto
        up = self.up
        down = self.down
        for _ in range(frames):
            write(up)
            readinto(down)


class Link:
    def __init__(self, port):
        self.link = WebSocketLink(f"ws://127.0.0.1:{port}/")
        self.link.open(time.ticks_ms())
        while self.poll() != OPEN:
            pass
        self.up = bytearray(_MESSAGE)
        self.waiter = select.poll()
        self.waiter.register(self.link.sock, select.POLLIN)

    def poll(self):
        event = self.link.poll(time.ticks_ms())
        if event == CLOSED:
            raise SystemExit("closed: " + self.link.close_reason)
        return event

    def trade(self, frames):
        send = self.link.send_audio
        poll = self.link.poll
        unread = self.link.unread
        wait = self.waiter.ipoll
        ticks = time.ticks_ms
        up = self.up
        for _ in range(frames):
            if not send(up, _MESSAGE):
                raise SystemExit("not sent")
            while True:
                if not unread():
                    for _ in wait(1000):
                        pass
                event = poll(ticks())
                if event == AUDIO:
                    break
                if event == CLOSED:
                    raise SystemExit("closed: " + self.link.close_reason)


def main():
    kind, port, frames = sys.argv[1:]
    frames = int(frames)
    trader = (Link if kind == "link" else Floor)(int(port))
    trader.trade(1)
    gc.collect()
    total = micropython.mem_total  # all that was ever allocated, given back or not
    first = total()
    trader.trade(frames)
    second = total()
    trader.trade(2 * frames)
    third = total()
    # Whatever else the machine does only adds to the time: the least of several counts.
    least = 1e9
    for _ in range(_WINDOWS):
        started = time.clock()
        trader.trade(frames)
        least = min(least, time.clock() - started)
    # What a call of trade takes by itself cancels out.
    print(least * 1e6 / frames, (third - second - (second - first)) / frames)


main()
