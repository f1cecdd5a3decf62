"""The rooms of the peer `fish`, as a line: WebSockets in place of LiveKit, for what does not depend on rooms. `fish_user` is the other end.

Each frame to the user is what happens in a room: a JSON object `{kind: ...}`, or sound. From the user: a `client-event`, or sound.
Sound is `FAST` times as fast as time, so that a test need not wait for it.
"""

import asyncio
import json

from aiohttp import WSMsgType, web

from peers.plan import quiet

FAST = 4
LEFT, DELETED, SHUT = 4001, 4002, 4003
"""Close codes."""


class Rooms:
    """All of them. `told(kind)` hears of users who come and go."""

    def __init__(self, rate, told):
        self._rate = rate
        self._told = told
        self._rooms = {}
        self.url = None
        """It is the peer's own."""

    async def serve(self, application):
        application.router.add_get("/line", self._join)

    def token(self, room, identity):
        return f"a-token-for-{room}"

    def room(self, name, user, on_data):
        self._rooms[name] = room = _Room(on_data, self._rate)
        return room

    async def _join(self, request):
        room = self._rooms[request.headers["Authorization"].removeprefix("Bearer a-token-for-")]
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._told("connected")
        room.socket.set_result(socket)
        async for frame in socket:
            if frame.type is WSMsgType.BINARY:
                room.frames.put_nowait(frame.data)
            elif frame.type is WSMsgType.TEXT:
                room.on_data(frame.data.encode())
        self._told("closed")
        return socket

    async def delete(self, name):
        await self._rooms[name].leave(DELETED)

    async def shut(self, name):
        await self._rooms[name].leave(SHUT)


class _Room:
    """The agent's end of one."""

    def __init__(self, on_data, rate):
        self.on_data = on_data
        self._rate = rate
        self.frames = asyncio.Queue()
        self.socket = asyncio.get_running_loop().create_future()

    async def join(self):
        await asyncio.shield(self.socket)

    async def connected(self):
        pass

    async def leave(self, code=LEFT):
        if self.socket.done():
            await self.socket.result().close(code=code)

    async def _tell(self, **frame):
        await (await asyncio.shield(self.socket)).send_str(json.dumps(frame))

    async def state(self, state):
        await self._tell(state=state)
        if state == "listening":
            for _ in range(20):  # a track goes on
                await self.falls_silent()

    async def send(self, text):
        await self._tell(packet=text)

    async def stream(self, attributes, *, user=False):
        stream = _Stream(self._tell, attributes, user)
        await stream.write("")
        return stream

    async def sound(self, chunk):
        await (await asyncio.shield(self.socket)).send_bytes(chunk)
        await asyncio.sleep(len(chunk) / 2 / self._rate / FAST)

    async def played(self):
        pass

    async def falls_silent(self):
        await (await asyncio.shield(self.socket)).send_bytes(quiet(0.1, "pcm16", self._rate))


class _Stream:
    """A segment."""

    def __init__(self, tell, attributes, user):
        self._tell, self._user = tell, user
        self._segment = attributes["lk.segment_id"]
        self._final = attributes.get("lk.transcription_final") == "true"
        self._text = ""

    async def write(self, text):
        self._text += text
        if not self._user:
            await self._tell(words=[self._segment, False, text])

    async def aclose(self, attributes=None):
        if self._user:
            await self._tell(words=[self._segment, True, self._text, self._final])
        else:
            await self._tell(words=[self._segment, False, "", False, True])
