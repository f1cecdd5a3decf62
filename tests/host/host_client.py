"""A vRT client for tests of the server: plain messages over a real WebSocket, every wait with a deadline."""

import asyncio
import contextlib
import json
import os

from vrt_host.agents.echo import EchoAgent
from vrt_host.config import ServerConfig
from vrt_host.server import serve
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

DEADLINE_S = 10 * float(os.environ.get("VRT_TESTS_TIMEOUT_FACTOR", "1"))


class Closed(Exception):
    """The server closed the link; `code` is the close code."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


class Client:
    def __init__(self, ws):
        self.ws = ws
        self.seq = 0
        self.last = 0
        self.ready = None

    async def send(self, type_, **members):
        """A control message; sequenced ones get the next number."""
        if type_ in ("hello", "ack", "ping"):
            seq = 0
        else:
            self.seq += 1
            seq = self.seq
        await self.raw(json.dumps({"v": 1, "seq": seq, "type": type_, **members}))

    async def raw(self, frame):
        await self.ws.send(frame)

    async def audio(self, payload, seq=0):
        await self.raw(b"\x01" + seq.to_bytes(4, "big") + payload)

    async def next(self):
        """The next message, or an audio payload; raises `Closed`."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                frame = await self.ws.recv()
            except ConnectionClosed as error:
                raise Closed(error.rcvd.code if error.rcvd else 1006) from None
        if isinstance(frame, bytes):
            return frame[5:]
        message = json.loads(frame)
        self.last = max(self.last, message["seq"])
        return message

    async def until(self, type_, **members):
        """The next message of a type and with these members; others are passed over."""
        while True:
            message = await self.next()
            if isinstance(message, dict) and message["type"] == type_ and members.items() <= message.items():
                return message

    async def audio_until(self, count):
        """The next payloads, passing over messages."""
        payloads = []
        while len(payloads) < count:
            message = await self.next()
            if isinstance(message, bytes):
                payloads.append(message)
        return payloads

    async def hello(self, **members):
        await self.send("hello", **members)
        self.ready = await self.until("ready")
        return self.ready

    async def closed(self):
        """The close code, passing over everything before."""
        while True:
            try:
                await self.next()
            except Closed as closed:
                return closed.code


class Host:
    """A server in this loop. `events` is its event log."""

    def __init__(self, port, events, stop, task):
        self.port = port
        self.events = events
        self.stop = stop
        self.task = task

    @contextlib.asynccontextmanager
    async def client(self, scheme="ws", **options):
        options = {"compression": None, "proxy": None, "ping_interval": None, "max_queue": None, **options}
        async with connect(f"{scheme}://127.0.0.1:{self.port}", **options) as ws:
            yield Client(ws)

    async def event(self, name, **fields):
        """Wait until the event log holds such an event."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for event in self.events:
                    if event["event"] == name and fields.items() <= event.items():
                        return event
                self.events.arrived.clear()
                await self.events.arrived.wait()


class Events(list):
    """An observer."""

    def __init__(self):
        super().__init__()
        self.arrived = asyncio.Event()

    def __call__(self, event):
        self.append(event)
        self.arrived.set()


@contextlib.asynccontextmanager
async def hosting(agents=EchoAgent, *, config=None, **options):
    """A running host."""
    events, stop = Events(), asyncio.Event()
    port = asyncio.get_running_loop().create_future()
    options.setdefault("observer", events)
    task = asyncio.create_task(
        serve(config or ServerConfig(port=0), agents, ready=port.set_result, stop=stop, **options)
    )
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait({task, port}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        host = Host(await port, events, stop, task)
        try:
            yield host
        finally:
            stop.set()
    async with asyncio.timeout(DEADLINE_S):
        await host.task
