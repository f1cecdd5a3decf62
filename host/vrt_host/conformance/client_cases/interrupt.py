"""The user interrupts: the client closes the epoch itself, then says so (vRT §6.2)."""

from __future__ import annotations

from typing import Any

from vrt_host.conformance.checks import Sheet, may, must, shown
from vrt_host.conformance.client_cases.gate import code, interrupted
from vrt_host.conformance.client_cases.stage import ANSWER_S, Stage
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server import Message, Session


async def interrupt(stage: Stage, session: Session, **call: Any) -> Message:
    """Have the client interrupt; returns its `interrupt`."""
    said = len(_interrupts(session))
    session.call("test.interrupt", {"reason": "user"}, **call)
    await session.until(lambda: len(_interrupts(session)) > said, stage.s(ANSWER_S), "interrupt")
    return _interrupts(session)[-1]


def _interrupts(session: Session) -> list[Message]:
    return [message for message in session.received if message["type"] == "interrupt"]


@scenario(
    must("client.interrupt.running-call-interrupted", "§7.2", "the call that runs when the user interrupts is answered INTERRUPTED"),
    must("client.interrupt.queued-call-interrupted", "§6.2", "a call that waits when the user interrupts is answered INTERRUPTED"),
    must("client.interrupt.queued-call-not-started", "§6.2", "and is never started"),
    must("client.interrupt.closes-at-once", "§6.2", "the epoch is closed without waiting for the server: a call that comes late is not started"),
    must("client.interrupt.once", "§6.2", "one interruption is one interrupt"),
    must("client.interrupt.echo-ignored", "§6.2", "the server's interrupted for the same epoch has no further effect"),
    may("client.interrupt.said-before-results", "§6.2", "interrupt is said before the results of the calls that it cut"),
)  # fmt: skip
async def the_user_interrupts_with_calls_waiting(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.slow", "test.interrupt")
    session.turn()
    before = await stage.slow(session)
    session.call("test.slow", {"ms": 200})
    running = session.call("test.interrupt", {})
    queued = [session.call("test.slow", {"ms": 0}) for _ in range(2)]
    await session.until(lambda: bool(_interrupts(session)), stage.s(ANSWER_S), "interrupt")
    late = session.call("test.slow", {"ms": 0})
    await interrupted(stage, sheet, session, "client.interrupt.running-call-interrupted", running)
    await interrupted(stage, sheet, session, "client.interrupt.queued-call-interrupted", *queued)
    await interrupted(stage, sheet, session, "client.interrupt.closes-at-once", late)
    closed = session.epoch
    session.turn()
    newer = session.call("test.slow", {"ms": 200})
    session.interrupted(closed, "user")
    result = await session.result(newer, stage.s(ANSWER_S))
    sheet.settle("client.interrupt.echo-ignored", code(result) == "ok", shown(result))
    hidden = await stage.slow(session) - before - 4  # the first, the interruption, the newer one, this one
    sheet.settle("client.interrupt.queued-call-not-started", hidden <= 0, f"{hidden} started all the same")
    said = _interrupts(session)
    sheet.settle("client.interrupt.once", len(said) == 1, shown(said))
    cut = [session.received.index(result) for result in session.results(running, *queued)]
    told = session.received.index(said[0]) < min(cut)
    sheet.settle("client.interrupt.said-before-results", told, "the results came first")


@scenario(
    must("client.interrupt.names-observed-epoch", "§6.2", "interrupt names the highest epoch of turn.state, audio.start and tool.call"),
)  # fmt: skip
async def the_user_interrupts_what_was_observed(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.interrupt")
    check = "client.interrupt.names-observed-epoch"
    session.epoch = 3
    said = await interrupt(stage, session)
    sheet.settle(check, said["epoch"] == 3, f"tool.call had 3: {shown(said)}")
    session.epoch = 5
    session.turn()
    said = await interrupt(stage, session, epoch=5)
    sheet.settle(check, said["epoch"] == 6, f"turn.state had 6: {shown(said)}")
    session.epoch = 8
    session.item("item-observed")
    said = await interrupt(stage, session, epoch=7)
    sheet.settle(check, said["epoch"] == 8, f"audio.start had 8: {shown(said)}")
    session.epoch = 9
    session.turn("listening")
    session.say("tool.call.delta", callId="preview", epoch=30, preview={}, name="test.slow", turnId="turn-30")
    session.say("text", text="of a later turn", epoch=31, turnId="turn-31", final=True)
    said = await interrupt(stage, session)
    sheet.settle(check, said["epoch"] == 10, f"other messages than those three do not count: {shown(said)}")


SCENARIOS = (the_user_interrupts_with_calls_waiting, the_user_interrupts_what_was_observed)
