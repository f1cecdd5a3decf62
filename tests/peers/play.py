"""One side of a flow of `schema/peers/<name>/flows`, played against a real other side, message by message."""

import asyncio
import json

from peers.process import DEADLINE_S
from peers.vectors import Script, decode_omni, encode_omni, errors, load


class Closed(Exception):
    """The other side closed the connection."""

    def __init__(self, code, reason=""):
        super().__init__(code, reason)
        self.code, self.reason = code, reason


async def play(name, flow, side, wire, *, passing=lambda message: False, speed=1):
    """Play `side` of a flow of `name`; AssertionError for whatever the other side does otherwise.

    `wire` has `send(frame)`, `receive()` (a frame, or raises `Closed`) and `close(code, reason)`. Every frame that comes is
    judged by the schema. `passing(message)` says what may come in between; waits are `speed` times shorter.
    """
    script = Script(load(name).flows[flow], side)
    other = "server" if side == "client" else "client"
    while not script.done:
        turn = script.next()
        if turn is None:
            kind, value = await _receive(name, other, wire, passing)
            assert (wrong := script.saw(kind, value)) is None, f"{flow}: {value}: {wrong}"
            continue
        kind, value, step = turn
        if kind == "wait_ms":
            await asyncio.sleep(value / 1000 / speed)
        elif kind == "close":
            await wire.close(value, step.get("reason", ""))
        elif kind == "frame":
            await wire.send(encode_omni(value))
        else:
            await wire.send(value if isinstance(value, str | bytes) else json.dumps(value))


async def _receive(name, other, wire, passing):
    """What the other side does next, as a script sees it: kind and value."""
    while True:
        try:
            async with asyncio.timeout(DEADLINE_S):
                came = await wire.receive()
        except Closed as closed:
            return "close", closed.code
        assert errors(name, other, came) == []
        if isinstance(came, bytes):
            return "frame", decode_omni(came)
        message = json.loads(came)
        if not passing(message):
            return "message", message
