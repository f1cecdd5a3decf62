"""One side of a flow of `schema/peers/<name>/flows`, played against a real other side, message by message."""

import asyncio
import json

from peers.process import DEADLINE_S
from peers.vectors import errors, fill, frame, load, match


class Closed(Exception):
    """The other side closed the connection."""

    def __init__(self, code, reason=""):
        super().__init__(code, reason)
        self.code, self.reason = code, reason


class Play:
    """Plays `side` of a flow of `name`; AssertionError for whatever the other side does otherwise.

    `wire` has `send(frame)`, `receive()` (a frame, or raises `Closed`) and `close(code, reason)`. Every frame that comes is
    judged by the schema. `passing(message)` says what may come in between; waits are `speed` times shorter.
    """

    def __init__(self, name, flow, side, wire, *, passing=lambda message: False, speed=1):
        self.name = name
        self.flow = load(name).flows[flow]
        self.side = side
        self.other = "server" if side == "client" else "client"
        self.wire = wire
        self.passing = passing
        self.speed = speed
        self.bound = {}
        self.kept = None
        """A frame that came and belongs to a later step, or a `Closed`."""

    async def run(self):
        for number, step in enumerate(self.flow["steps"]):
            where = f"step {number} of {self.flow['id']}"
            if "wait_ms" in step:
                await asyncio.sleep(step["wait_ms"] / 1000 / self.speed)
            elif step["from"] == self.side:
                await self._act(step)
            elif "close" in step:
                came = await self._next()
                assert isinstance(came, Closed), f"{where}: {came} came before the close"
                assert (came.code, came.reason) == (step["close"], step.get("reason", came.reason)), where
            else:
                came = await self._take(step)
                optional = step.get("may") or step.get("many")
                assert came or optional, f"{where}: {step['message']} did not come, but {self.kept!r}"

    async def _act(self, step):
        if "close" in step:
            await self.wire.close(step["close"], step.get("reason", ""))
        elif not step.get("may"):
            made = frame(step)
            if not isinstance(made, str | bytes):
                made = json.dumps(fill(made, self.bound, self.flow.get("examples")))
            await self.wire.send(made)

    async def _take(self, step):
        """All that this step allows; whether there was any."""
        count = 0
        while not count or step.get("many"):
            message = await self._next()
            if isinstance(message, Closed) or not match(step["message"], message, self.bound):
                self.kept = message
                break
            count += 1
        return count > 0

    async def _next(self):
        if self.kept is not None:
            kept, self.kept = self.kept, None
            return kept
        while True:
            try:
                async with asyncio.timeout(DEADLINE_S):
                    came = await self.wire.receive()
            except Closed as closed:
                return closed
            message = json.loads(came) if isinstance(came, str) else came
            assert errors(self.name, self.other, message) == []
            if not self.passing(message):
                return message
