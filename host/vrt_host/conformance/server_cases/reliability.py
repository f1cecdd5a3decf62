"""Numbers, acknowledgements, duplicates, gaps, pings (vRT §4)."""

from __future__ import annotations

import asyncio

from vrt_host.conformance.checks import Sheet, Unmet, must, should
from vrt_host.conformance.client import Server
from vrt_host.conformance.run import scenario

BURST = 70
"""Messages at once, more than two times 32."""
ACK_S = 1.0
"""What "250 ms" may become on the way, before the factor."""
U32_MAX = 0xFFFF_FFFF


@scenario(
    should("server.acks.bounded-delay", "§4.2", "a message is acknowledged within a bounded delay"),
    should("server.acks.of-many", "§4.2", "many messages are acknowledged to the last one"),
)
async def acknowledgements(server: Server, sheet: Sheet) -> None:
    loop = asyncio.get_running_loop()
    async with server.session() as device:
        began = loop.time()
        await device.send("context", context=1)
        if await sheet.holds("server.acks.bounded-delay", device.acknowledged(ACK_S)):
            sheet.note("server.acks.bounded-delay", f"after {1000 * (loop.time() - began):.0f} ms")
        for number in range(BURST):
            await device.send("context", context=number)
        await sheet.holds("server.acks.of-many", device.acknowledged())


@scenario(
    must("server.duplicates.ignored", "§4.3", "a message whose seq was handled is not handled again"),
    should("server.duplicates.acknowledged", "§4.3", "... and is acknowledged again"),
)
async def duplicates(server: Server, sheet: Sheet) -> None:
    """A context that is out of date, and a text that would be counted."""
    server.needs("text", "count", "context")
    async with server.session() as device:
        await device.send("context", context="old")
        await device.send("context", context="new")
        await device.ask("text")
        await device.acknowledged()
        place = device.line.skip()
        for message in device.sent:
            await device.line.send(message)
        await sheet.holds("server.duplicates.acknowledged", device.line.until("ack", upTo=device.seq))
        context, count = await device.ask_json("context"), await device.ask_json("count")
        turns = len({state["turnId"] for state in device.line.seen("turn.state", since=place)})
        ok = (context, count, turns) == ("new", 3, 2)
        told = f"expected context new, 3 texts, 2 turns; got {context}, {count}, {turns}"
        sheet.settle("server.duplicates.ignored", ok, told)


@scenario(must("server.seq.survives-gap", "§4.3", "a gap does not bring the server down"))
async def gap(server: Server, sheet: Sheet) -> None:
    """There is no recovery from one, so that the session may end; the server may not."""
    async with server.session() as device:
        await device.send("context", context=1)
        device.seq += 1000
        await device.send("context", context=2)
        await device.line.send({"v": 1, "seq": 0, "type": "ping"})
        await sheet.holds("server.seq.survives-gap", device.line.outcome("pong"))
    async with server.line() as line:
        await sheet.holds("server.seq.survives-gap", line.sync())


@scenario(must("server.acks.beyond-last", "§4.2", "an ack beyond the last seq acknowledges everything"))
async def ack_beyond_last(server: Server, sheet: Sheet) -> None:
    server.needs("text")
    async with server.session() as device:
        await device.ask("text")
        place = device.line.place
        await device.send("ack", upTo=U32_MAX)
        await device.line.sync()
        errors = device.line.seen("error", since=place)
        if errors:
            raise Unmet(f"it was answered with {errors[0]}")
        device.cut()
        await device.resume()
        await sheet.holds("server.acks.beyond-last", device.ask("text"))


@scenario(must("server.heartbeat.pong", "§4.4", "every ping is answered by one pong"))
async def pings(server: Server, sheet: Sheet) -> None:
    async with server.session(pings=False) as device:
        for _ in range(5):
            await device.line.send({"v": 1, "seq": 0, "type": "ping"})
        await device.line.sync()
        pongs = len(device.line.seen("pong"))
        sheet.settle("server.heartbeat.pong", pongs == 6, f"6 pings, {pongs} pongs")
