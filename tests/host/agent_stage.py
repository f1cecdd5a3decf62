"""What the tests of adapters share: a port that keeps what an agent emits, and servers that say what a test wants."""

import asyncio
import contextlib
import json

from peers.process import DEADLINE_S
from vrt_host.agents.base import PCMU, AgentError, SessionInfo, TurnBegin, TurnEnd
from websockets.asyncio.server import serve


class Port:
    """Keeps events; interrupts a turn that a new one ends, as the turn manager does."""

    def __init__(self):
        self.agent = None
        self.events = []
        self.full = False
        self._alive = None
        self._news = asyncio.Event()

    def emit(self, event):
        self.events.append(event)
        if isinstance(event, TurnEnd) and event.turn == self._alive:
            self._alive = None
        begins = isinstance(event, TurnBegin)
        if begins or (isinstance(event, AgentError) and event.turn == self._alive is not None):
            old, self._alive = self._alive, event.turn if begins else None
            if old is not None:
                asyncio.get_running_loop().call_soon(self.agent.interrupted, old, [])
        self._news.set()

    async def drain(self):
        await self.until(lambda: not self.full)

    def fill(self, full):
        self.full = full
        self._news.set()

    def idle(self):
        return self._alive is None

    def all(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, true):
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not true():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"it did not come; there came {self.events}") from None

    async def ends(self, count=1):
        await self.until(lambda: len(self.all(TurnEnd)) >= count)


async def logged(caplog, text):
    """Wait for something in the log."""
    async with asyncio.timeout(DEADLINE_S):
        while text not in caplog.text:  # noqa: ASYNC110  (a line in the log wakes nobody)
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def started(agent, *, tools=(), context=None, format_=PCMU, output=None):
    """The agent at work; its port. Its output is in `format_` too, unless `output` is another."""
    port = Port()
    port.agent = agent
    try:
        await agent.start(SessionInfo(tools, context, format_, output or format_), port)
        yield port
    finally:
        await agent.close()


@contextlib.asynccontextmanager
async def answering(*frames, close=None, status=None, body=b"", location=None, then=None):
    """A server that sends these frames to whoever connects; its port, and what it was sent."""
    received = []

    def refuse(connection, request):
        received.append(request)
        if status is None:
            return None
        response = connection.respond(status, "")
        response.body = body
        del response.headers["Content-Length"]
        response.headers["Content-Length"] = str(len(body))
        if location is not None:
            response.headers["Location"] = location
        return response

    async def talk(socket):
        for frame in frames:
            await socket.send(frame if isinstance(frame, str) else json.dumps(frame))
        if close is not None:
            await socket.close(*close)
        async for text in socket:
            received.append(json.loads(text))
            if then is not None:
                for frame in then(received[-1]):
                    await socket.send(json.dumps(frame))

    async with serve(talk, "127.0.0.1", 0, process_request=refuse) as server:
        yield server.sockets[0].getsockname()[1], received
