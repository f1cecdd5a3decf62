# The device's half of tools/bench_link.py, on MicroPython: trades FRAMES audio frames with the peer, one at a time,
# and prints the CPU microseconds and the heap bytes of each.
#   micropython tools/bench_link_client.py floor|link PORT FRAMES
# floor: a blocking socket that moves the same bytes and does nothing else. link: the firmware's WebSocket link.
import gc
import select
import socket
import sys
import time

_here = sys.path[0] or "."
sys.path.insert(0, _here + "/../firmware")

from micropython import const  # noqa: E402
from vrt.links import AUDIO, CLOSED, OPEN  # noqa: E402
from vrt.links.ws import WebSocketLink  # noqa: E402

_MESSAGE = const(165)  # 20 ms of 8 kHz mu-law and its header
_UP = const(173)  # as a masked frame
_DOWN = const(169)


def floor(port, frames):
    sock = socket.socket()
    sock.connect(socket.getaddrinfo("127.0.0.1", port)[0][-1])
    sock.setsockopt(6, 1, 1)
    up = bytearray(_UP)
    down = bytearray(_DOWN)
    write = sock.write
    readinto = sock.readinto
    gc.collect()
    before = gc.mem_alloc()
    started = time.clock()
    for _ in range(frames):
        write(up)
        readinto(down)
    return time.clock() - started, gc.mem_alloc() - before


def link(port, frames):
    link = WebSocketLink(f"ws://127.0.0.1:{port}/")
    link.open(time.ticks_ms())
    while True:
        event = link.poll(time.ticks_ms())
        if event == OPEN:
            break
        if event == CLOSED:
            raise SystemExit(link.close_reason)
    up = bytearray(_MESSAGE)
    wait = select.poll()
    wait.register(link.sock, select.POLLIN)
    for _ in wait.ipoll(0):  # makes its tuple once
        pass
    send = link.send_audio
    poll = link.poll
    unread = link.unread
    sleep = wait.ipoll
    ticks = time.ticks_ms
    gc.collect()
    before = gc.mem_alloc()
    started = time.clock()
    for _ in range(frames):
        send(up, _MESSAGE)
        while True:
            if not unread():
                for _ in sleep(1000):
                    pass
            event = poll(ticks())
            if event == AUDIO:
                break
            if event == CLOSED:
                raise SystemExit(link.close_reason)
    return time.clock() - started, gc.mem_alloc() - before


def main():
    kind, port, frames = sys.argv[1:]
    frames = int(frames)
    seconds, allocated = (link if kind == "link" else floor)(int(port), frames)
    print(seconds * 1e6 / frames, allocated / frames)


main()
