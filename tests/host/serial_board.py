"""A board on a cable, for tests of the host: it says and hears frames, every wait with a deadline."""

import asyncio
import json
import os

from host_client import DEADLINE_S
from vrt_host.protocol.framing import AUDIO, OPEN, OPENED, PING, PONG, TEXT, Decoder, Frame, encode
from vrt_host.sim.cable import Cable


class Board:
    """Use as a context manager; `port` is what the host opens."""

    def __init__(self, path):
        self.port = str(path)
        self.cable = Cable(path, lambda data: None)
        self.frames = []
        """What came, but for pings, which are answered while `answers`."""
        self.pings = 0
        self.counts = []
        """Of the pings: what the host says to have sent."""
        self.answers = True
        self.received = self.sent = 0
        self._nonce = 0
        self._decoder = Decoder()
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(self.cable.slave, self._read)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        asyncio.get_running_loop().remove_reader(self.cable.slave)
        self.cable.close()

    def write(self, data):
        os.write(self.cable.slave, data)

    def say(self, kind, payload=b""):
        self.write(encode(kind, self.sent, payload))
        self.sent += kind == TEXT

    def text(self, type_, *, seq=0, **members):
        self.say(TEXT, json.dumps({"v": 1, "seq": seq, "type": type_, **members}).encode())

    def audio(self, payload):
        self.say(AUDIO, payload)

    async def open(self, window=2000):
        """Ask until the host answers."""
        self._nonce += 1
        self.sent = self.received = 0
        said = {"v": 1, "nonce": f"{self._nonce:08x}", "window": window}
        async with asyncio.timeout(DEADLINE_S):
            while True:
                self.say(OPEN, json.dumps(said).encode())
                try:
                    async with asyncio.timeout(0.1):
                        return await self.next(OPENED)
                except TimeoutError:
                    continue

    async def next(self, *kinds):
        """The payload of the next frame of a kind; others are passed over."""
        while True:
            await self.until(lambda: self.frames)
            frame = self.frames.pop(0)
            if frame.kind in kinds:
                return frame.payload

    async def until(self, holds):
        """Wait until something holds; it is looked at after every frame."""
        async with asyncio.timeout(DEADLINE_S):
            while not holds():
                self._news.clear()
                await self._news.wait()

    async def message(self, type_):
        """The next message of a type."""
        while True:
            message = json.loads(await self.next(TEXT))
            if message["type"] == type_:
                return message

    def _read(self):
        for frame in self._decoder.feed(os.read(self.cable.slave, 65536)):
            if not isinstance(frame, Frame):
                continue
            if frame.kind == PING:
                self.pings += 1
                self.counts.append(frame.number)
                if self.answers:
                    self.say(PONG, frame.payload)
            else:
                self.frames.append(frame)
            self._news.set()
