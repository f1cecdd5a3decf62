"""The agent `fish` with a line in place of its LiveKit room: the user's end of `fish_line`."""

import asyncio
import contextlib
import json

from vrt_host.agents import fish_messages as messages
from vrt_host.agents.fish import FishAgent, Options
from vrt_host.agents.fish_room import Over, Packet, Sound, State, Words
from vrt_host.agents.provider import ProviderError
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from peers.fish_line import SHUT

__all__ = ["LineAgent", "Options"]


class LineRoom:
    """What `FishRoom` is."""

    def __init__(self):
        self.events = asyncio.Queue()
        self._out = asyncio.Queue()
        self._socket = None
        self._tasks = []

    async def open(self, ticket, timeout_s):
        try:
            self._socket = await connect(
                ticket.url, additional_headers={"Authorization": f"Bearer {ticket.token}"}, proxy=None
            )
        except OSError as error:
            raise ProviderError("unreachable", str(error)) from None
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]

    def hear(self, payload):
        self._out.put_nowait(payload)

    def send(self, message):
        self._out.put_nowait(messages.encode(message).decode())

    def give_up(self):
        self.events.put_nowait(Over(ProviderError("gone", "the agent has ended the session"), True))

    async def close(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._socket is not None:
            with contextlib.suppress(ConnectionClosed):
                await self._socket.send(json.dumps(messages.HANGUP))
            await self._socket.close()

    async def _write(self):
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self._socket.send(await self._out.get())

    async def _read(self):
        try:
            while True:
                self.events.put_nowait(_happening(await self._socket.recv()))
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else SHUT
            self.events.put_nowait(Over(ProviderError("gone", "its room is over"), code != SHUT))


def _happening(frame):
    if isinstance(frame, bytes):
        return Sound(frame)
    match json.loads(frame):
        case {"state": state}:
            return State(state)
        case {"packet": text}:
            return Packet(text.encode())
        case {"words": words}:
            return Words(*words)
    raise AssertionError(frame)


class LineAgent(FishAgent):
    room = LineRoom
