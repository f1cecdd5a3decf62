"""The load of tools/bench_host.py: light clients in a process of their own, which say what came of it as JSON.

    python tools/host_load.py MODE vrt:PORT:PID bare:PORT:PID --sessions N --rounds N --seconds S

    echo    each session has one audio frame under way: the next goes out when it comes back. What a server can do
    pace    each session sends an audio frame every 20 ms, whatever comes back: how long one takes
    text    each session has one message under way, as `echo`
    ping    the same with vRT pings, which have no number and no turn
    hold    sessions that do nothing; for memory

All sessions stay open; in each round every server is at work for so many seconds, one after the other, so that what else
the machine does weighs on all. A `bare` one is tools/echo_server.py: it wants no hello. CPU time and memory of the servers
are read from /proc, whose CPU time leaves out what a hypervisor took away.

A client is a transport and thirty lines: with the library's own, the load would cost more than the server. It keeps to the
protocol: hello before all, a pong for each ping, an acknowledgement for every 32 messages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

PAYLOAD = bytes(range(160))
FRAME_S = 0.020
ACK_EVERY = 32
WARM_S = 0.3
DRAIN_S = 20.0
"""How long the last frames of a window may take to come back."""

HELLO = {
    "seq": 0,
    "type": "hello",
    "input": {"encoding": "pcmu", "sampleRate": 8000},
    "output": {"encoding": "pcmu", "sampleRate": 8000},
    "limits": {"messageBytes": 4096, "bufferMs": 86_400_000},  # pacing is on and never the limit
}


def framed(opcode: int, payload: bytes) -> bytes:
    """A client's frame; its mask is zeros, which costs the server what any other does."""
    size = len(payload)
    head = bytes((opcode, 0x80 | size)) if size < 126 else bytes((opcode, 0xFE)) + size.to_bytes(2, "big")
    return head + bytes(4) + payload


def control(**members: Any) -> bytes:
    """A text frame with a vRT message."""
    return framed(0x81, json.dumps({"v": 1, **members}, separators=(",", ":")).encode())


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process's main thread has taken so far; only that one works, here and there."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def memory_kib(pid: int) -> int:
    """KiB that belong to a process alone."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in rollup if line.startswith("Private_"))


class Load:
    """One server and its sessions."""

    def __init__(self, mode: str, target: str) -> None:
        self.mode = mode
        self.name, port, pid = target.split(":")
        self.port, self.pid = int(port), int(pid)
        self.bare = self.name == "bare"
        self.clients: list[Client] = []
        self.sending = False
        self.under_way = 0
        self.drained = asyncio.Event()
        self.delays: list[float] = []
        """Seconds that each frame took which came back in this window."""
        self.broken: str | None = None
        self.windows: list[dict[str, float]] = []

    async def open(self, sessions: int) -> None:
        """Connect, one after the other."""
        loop = asyncio.get_running_loop()
        for _ in range(sessions):
            _, client = await loop.create_connection(lambda: Client(self), "127.0.0.1", self.port)
            await asyncio.wait_for(client.ready, DRAIN_S)
            self.clients.append(client)

    async def window(self, seconds: float) -> None:
        """Let the server work, and count what it does within so many seconds."""
        self.sending = True
        pacing = asyncio.create_task(self._send())
        await asyncio.sleep(WARM_S)
        self.delays = []
        begin = time.perf_counter(), cpu_s(self.pid), time.process_time()
        await asyncio.sleep(seconds)
        end = time.perf_counter(), cpu_s(self.pid), time.process_time()
        wall_s, server_s, own_s = (after - before for after, before in zip(end, begin, strict=True))
        delays = sorted(self.delays)
        made = {"done": len(delays), "wall_s": wall_s, "server_s": server_s, "own_s": own_s}
        made["memory_kib"] = memory_kib(self.pid)
        if delays:
            made["p50_ms"] = 1000 * delays[len(delays) // 2]
            made["p99_ms"] = 1000 * delays[len(delays) * 99 // 100]
        self.sending = False
        made["late_ms"] = 1000 * await pacing
        if self.under_way and not self.broken:
            self.drained.clear()
            await asyncio.wait_for(self.drained.wait(), DRAIN_S)
        if self.broken:
            raise ConnectionError(self.broken)
        self.windows.append(made)

    async def _send(self) -> float:
        """Begin; with `pace`, go on. Returns how late the latest frame was sent, in seconds."""
        late = 0.0
        if self.mode == "pace":
            step = FRAME_S / len(self.clients)
            begin = time.perf_counter()
            number = 0
            while self.sending:
                due = begin + number * step - time.perf_counter()
                if due > 0 or number % len(self.clients) == 0:  # once in a round of all, however late it is
                    await asyncio.sleep(max(0.0, due))
                    late = max(late, time.perf_counter() - begin - number * step)
                self.clients[number % len(self.clients)].send()
                number += 1
        elif self.mode != "hold":
            for client in self.clients:
                client.send()
        return late


class Client(asyncio.Protocol):
    """One connection, and its session unless the server is bare."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._buffer = bytearray()
        self._upgraded = False
        self._number = 0
        self._heard = self._owed = 0
        self._sent: deque[float] = deque()
        """When each frame was sent that has not come back."""
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        """Ask for a WebSocket."""
        self._transport = transport
        transport.write(
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """No server should do this."""
        self._load.broken = f"{self._load.name} closed a connection: {exc or bytes(self._buffer[:100])!r}"
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(self._load.broken))

    def data_received(self, data: bytes) -> None:
        """Take all frames of one read, and answer them in one write."""
        buffer = self._buffer
        buffer += data
        if not self._upgraded:
            head, end, rest = bytes(buffer).partition(b"\r\n\r\n")
            if not end:
                return
            if b" 101 " not in head:
                self._transport.abort()
                return
            self._upgraded = True
            buffer[:] = rest
            if self._load.bare:
                self.ready.set_result(None)
            else:
                self._transport.write(control(**HELLO))
        out: list[bytes] = []
        at = 0
        while len(buffer) - at >= 2:
            size, start = buffer[at + 1], at + 2
            if size == 126:
                start = at + 4
                size = int.from_bytes(buffer[at + 2 : start], "big")
            if len(buffer) < start + size:
                break
            self._frame(buffer[at], bytes(buffer[start : start + size]), out)
            at = start + size
        del buffer[:at]
        if out:
            self._transport.write(b"".join(out))

    def send(self) -> None:
        """Send the next frame."""
        self._transport.write(self._next())

    def _next(self) -> bytes:
        mode, bare = self._load.mode, self._load.bare
        self._sent.append(time.perf_counter())
        self._load.under_way += 1
        if mode == "ping" and not bare:
            return control(seq=0, type="ping")
        self._number += 1
        if mode in ("echo", "pace"):
            return framed(0x82, b"\x01" + self._number.to_bytes(4, "big") + PAYLOAD)
        return control(seq=self._number, type="text", text="What is the state of the door?")

    def _frame(self, first: int, payload: bytes, out: list[bytes]) -> None:
        if first == 0x89:
            out.append(framed(0x8A, payload))
        elif first == 0x82 or self._load.bare:
            self._back(out)
        elif first == 0x81:
            self._message(json.loads(payload), out)

    def _message(self, message: dict[str, Any], out: list[bytes]) -> None:
        kind = message["type"]
        if kind == "ready":
            self.ready.set_result(None)
        elif kind == "error":
            self._load.broken = f"the server says {message['code']}: {message.get('message')}"
        elif kind == "pong" or (kind == "text" and self._load.mode == "text"):
            self._back(out)
        if message["seq"]:
            self._heard = message["seq"]
            self._owed += 1
            if self._owed == ACK_EVERY:
                self._owed = 0
                out.append(control(seq=0, type="ack", upTo=self._heard))

    def _back(self, out: list[bytes]) -> None:
        """What was sent first has come back."""
        load = self._load
        load.delays.append(time.perf_counter() - self._sent.popleft())
        load.under_way -= 1
        if not load.under_way:
            load.drained.set()
        if load.sending and load.mode != "pace":
            out.append(self._next())


async def run(args: argparse.Namespace) -> dict[str, Any]:
    """The windows of each server."""
    loads = [Load(args.mode, target) for target in args.targets]
    for load in loads:
        await load.open(args.sessions)
    for _ in range(args.rounds):
        for load in loads:
            await load.window(args.seconds)
    return {load.name: load.windows for load in loads}


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("echo", "pace", "text", "ping", "hold"))
    parser.add_argument("targets", nargs="+", metavar="NAME:PORT:PID")
    parser.add_argument("--sessions", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--core", type=int, help="the core to run on")
    args = parser.parse_args()
    if args.core is not None:
        os.sched_setaffinity(0, {args.core})
    print(json.dumps(asyncio.run(run(args))), flush=True)
    os._exit(0)  # the connections are not worth a farewell


if __name__ == "__main__":
    main()
