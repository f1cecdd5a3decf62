"""Numbers, acknowledgements, duplicates, gaps, pings (vRT §4)."""

from __future__ import annotations

import asyncio
import contextlib

from vrt_host.conformance.checks import NotTestable, Sheet, Unmet, must, should, shown
from vrt_host.conformance.client import Device, Server
from vrt_host.conformance.run import scenario

BURST = 70
"""Messages at once, more than two times 32."""
TRIES = 3
DELAY_S, AT_ONCE_S = 0.25, 0.0
WAY_S = 0.2
"""What may be added to these on the way, before the factor."""
U32_MAX = 0xFFFF_FFFF


@scenario(
    should("server.reliability.acknowledges", "§4.2", "a message is acknowledged within a bounded delay"),
    should("server.reliability.acknowledges-many", "§4.2", "many messages are acknowledged to the last one"),
)
async def acknowledgements(server: Server, sheet: Sheet) -> None:
    async with server.session() as device:
        await sheet.holds("server.reliability.acknowledges", _acknowledged(device, 1))
        await sheet.holds("server.reliability.acknowledges-many", _acknowledged(device, BURST))


@scenario(
    should(
        "server.reliability.acknowledges-in-250-ms", "§4.2", "a message is acknowledged after 250 ms at most"
    ),
    should(
        "server.reliability.acknowledges-after-32", "§4.2", "32 messages are acknowledged sooner than that"
    ),
    alone=True,
)
async def acknowledgement_times(server: Server, sheet: Sheet) -> None:
    """The best of a few tries counts: a busy machine is no fault of the server's."""
    async with server.session() as device:
        for check, count, most_s in (
            ("server.reliability.acknowledges-in-250-ms", 1, DELAY_S),
            ("server.reliability.acknowledges-after-32", 32, AT_ONCE_S),
        ):
            best = min([await _acknowledged(device, count) for _ in range(TRIES)])
            sheet.note(check, f"after {1000 * best:.0f} ms")
            sheet.settle(check, best <= most_s + server.pace.s(WAY_S), f"after {1000 * best:.0f} ms")


async def _acknowledged(device: Device, count: int) -> float:
    """Seconds until so many messages are acknowledged."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(count):
        await device.send("context", context=number)
    await device.acknowledged()
    return loop.time() - began


@scenario(
    must(
        "server.reliability.ack-before-work-is-done",
        "§4.2",
        "an ack does not wait for what a message started",
    )
)
async def ack_of_work(server: Server, sheet: Sheet) -> None:
    server.needs("think")
    async with server.session() as device:
        await device.send("context", context=1)
        try:
            await device.acknowledged()
        except Unmet:
            raise NotTestable("the server acknowledges nothing") from None
        turn = await device.begin("think")
        await device.acknowledged()
        over = device.line.seen("turn.state", turnId=turn["turnId"], state="idle")
        sheet.settle("server.reliability.ack-before-work-is-done", not over, shown(over))


@scenario(
    must(
        "server.reliability.duplicate-not-handled",
        "§4.3",
        "a message whose seq was handled is not handled again",
    ),
    should("server.reliability.duplicate-acknowledged", "§4.3", "a duplicate is acknowledged again"),
)
async def duplicates(server: Server, sheet: Sheet) -> None:
    """A context that is out of date, and a text that would be counted."""
    server.needs("text", "count", "context")
    async with server.session() as device:
        await device.send("context", context="old")
        await device.send("context", context="new")
        await device.ask("text")
        with contextlib.suppress(Unmet):
            await device.acknowledged()
        place = device.line.skip()
        for message in device.sent:
            await device.line.send(message)
        await sheet.holds("server.reliability.duplicate-acknowledged", _acknowledged_again(device))
        context, count = await device.ask_json("context"), await device.ask_json("count")
        turns = len({state["turnId"] for state in device.line.seen("turn.state", since=place)})
        ok = (context, count, turns) == ("new", 3, 2)
        told = f"expected context new, 3 texts, 2 turns; got {context}, {count}, {turns}"
        sheet.settle("server.reliability.duplicate-not-handled", ok, told)


async def _acknowledged_again(device: Device) -> None:
    while (await device.line.until("ack"))["upTo"] < device.seq:
        pass


@scenario(must("server.reliability.gap-survived", "§4.3", "a gap does not bring the server down"))
async def gap(server: Server, sheet: Sheet) -> None:
    """There is no recovery from one, so that the session may end; the server may not."""
    async with server.session() as device:
        await device.send("context", context=1)
        device.seq += 1000
        await device.send("context", context=2)
        await device.line.send({"v": 1, "seq": 0, "type": "ping"})
        await sheet.holds("server.reliability.gap-survived", device.line.outcome("pong"))
    async with server.line() as line:
        await line.send({"v": 1, "seq": 0, "type": "hello", **server.credential})
        await sheet.holds("server.reliability.gap-survived", line.until("ready"))


@scenario(
    must("server.reliability.ack-beyond-last", "§4.2", "an ack beyond the last seq acknowledges everything")
)
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
        await sheet.holds("server.reliability.ack-beyond-last", device.ask("text"))


@scenario(must("server.reliability.pong-for-every-ping", "§4.4", "every ping is answered by one pong"))
async def pings(server: Server, sheet: Sheet) -> None:
    async with server.session(pings=False) as device:
        for _ in range(5):
            await device.line.send({"v": 1, "seq": 0, "type": "ping"})
        await device.line.sync()
        pongs = len(device.line.seen("pong"))
        sheet.settle("server.reliability.pong-for-every-ping", pongs == 6, f"6 pings, {pongs} pongs")
