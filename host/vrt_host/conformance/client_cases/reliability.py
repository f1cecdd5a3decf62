"""Numbers, acknowledgements, duplicates and gaps (vRT §4.1 to §4.3)."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from vrt_host.conformance.checks import Sheet, must, should
from vrt_host.conformance.client_cases.stage import ANSWER_S, NOTHING, Stage
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server import Session

ACK_S = 0.25
ACK_MESSAGES = 32
TRIES = 5


@scenario(
    should("client.reliability.acknowledges", "§4.2", "sequenced messages are acknowledged within a bounded delay"),
    should("client.reliability.acknowledges-in-250-ms", "§4.2", "an ack comes within 250 ms of the first message that wants it"),
    should("client.reliability.acknowledges-after-32", "§4.2", "an ack comes after every 32 messages"),
)  # fmt: skip
async def messages_want_to_be_acknowledged(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    session.turn()
    await stage.barrier(session)
    waits = []
    for _ in range(TRIES):
        began = asyncio.get_running_loop().time()
        _murmur(session)
        await session.until(lambda: session.acked >= session.seq, stage.s(ANSWER_S), f"ack of {session.seq}")
        waits.append(asyncio.get_running_loop().time() - began)
    sheet.settle("client.reliability.acknowledges", True)
    # The best of a few: what lies between is the machine's, not the client's.
    took = f"it took {1000 * min(waits):.0f} ms"
    sheet.settle("client.reliability.acknowledges-in-250-ms", min(waits) <= ACK_S + stage.s(0.1), took)
    first = session.acked
    for _ in range(3 * ACK_MESSAGES):
        _murmur(session)
    await session.until(lambda: session.acked >= session.seq, stage.s(ANSWER_S), f"ack of {session.seq}")
    assert session.connection is not None
    acks = [first, *(ack["upTo"] for ack in session.connection.heard("ack") if ack["upTo"] > first)]
    steps = [after - before for before, after in pairwise(acks)]
    # Who looks at the count now and then only, and not at every message, acknowledges a few more.
    kept = max(steps) <= ACK_MESSAGES * 3 // 2
    sheet.settle("client.reliability.acknowledges-after-32", kept, f"96 messages at once: acks of {steps}")


def _murmur(session: Session) -> None:
    session.say("transcript", role="user", text="so it goes", final=False, turnId=f"turn-{session.epoch}")


@scenario(
    must("client.reliability.duplicate-not-handled", "§4.3", "a message that comes again is not handled again"),
    should("client.reliability.duplicate-acknowledged", "§4.3", "but acknowledged again"),
)  # fmt: skip
async def a_call_comes_twice(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.slow")
    session.turn()
    before = await stage.slow(session)
    done = session.call("test.slow", {"ms": 0})
    said = session.kept[-1]
    await session.result(done, stage.s(ANSWER_S))
    await stage.barrier(session)
    await stage.rest(2 * ACK_S)
    acks, answers = _acks(session), len(session.results(done))
    session.again(said)
    again = not await stage.holds(session, lambda: _acks(session) > acks, 2)
    sheet.settle("client.reliability.duplicate-acknowledged", again, "no ack within 2 s")
    running = session.call("test.slow", {"ms": 200})
    session.again(session.kept[-1])
    await session.result(running, stage.s(ANSWER_S))
    hidden = await stage.slow(session) - before - 3
    more = len(session.results(done)) - answers
    kept = hidden <= 0 and more <= 0
    sheet.settle(
        "client.reliability.duplicate-not-handled", kept, f"{hidden} started again, {more} answered again"
    )


def _acks(session: Session) -> int:
    assert session.connection is not None
    return len(session.connection.heard("ack"))


@scenario(
    must("client.reliability.gap-survived", "§4.3", "a gap in the numbers does not end the client"),
)  # fmt: skip
async def numbers_are_missing(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    session.turn()
    connection = session.connection
    for step in (2, 5, 1000):
        call, seq = f"after-a-gap-of-{step}", session.seq + step
        turn = {"turnId": f"turn-{session.epoch}", "epoch": session.epoch}
        session.say("tool.call", seq=seq, callId=call, name=NOTHING, arguments={}, **turn)
    await stage.barrier(session)
    sheet.settle("client.reliability.gap-survived", session.connection is connection)


@scenario(
    must("client.reliability.ack-beyond-last", "§4.2", "an ack beyond the last seq sent acknowledges everything sent, and no more"),
)  # fmt: skip
async def more_is_acknowledged_than_was_sent(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    session.turn()
    await stage.barrier(session)
    assert session.connection is not None
    session.connection.say("ack", upTo=0xFFFF_FFFF)
    await stage.barrier(session)
    session.acks = False
    await stage.barrier(session)
    held = session.last
    connection, hello = await stage.cut(session)
    session.last -= 1  # what came after that ack was sent, and nobody acknowledged it
    session.resume(connection, hello)
    await session.until(lambda: session.last >= held, stage.s(ANSWER_S), f"seq {held} again")
    await stage.barrier(session)
    sheet.settle("client.reliability.ack-beyond-last", True)


SCENARIOS = (
    messages_want_to_be_acknowledged,
    a_call_comes_twice,
    numbers_are_missing,
    more_is_acknowledged_than_was_sent,
)
