"""The epoch gate: no call of a closed epoch starts, whatever comes when (vRT §6.2)."""

from __future__ import annotations

from vrt_host.conformance.checks import Sheet, may, must, shown
from vrt_host.conformance.client_cases.stage import ANSWER_S, Stage, proves
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server import Message, Session

LONG_S = 6.0
"""A call of this length is still running when something else happens to it."""


def code(result: Message) -> str:
    """How a call ended: its failure code, or `ok`."""
    return "ok" if result.get("ok") is True else str(result.get("code"))


async def interrupted(stage: Stage, sheet: Sheet, session: Session, check: str, *calls: str) -> None:
    """These calls end as INTERRUPTED."""
    for result in await session.all_results(calls, stage.s(LONG_S + ANSWER_S)):
        sheet.settle(check, code(result) == "INTERRUPTED", shown(result))


@scenario(
    must("client.gate.running-call-interrupted", "§7.2", "a running call whose epoch closes is answered INTERRUPTED"),
    must("client.gate.running-call-cancelled", "§6.2", "it is told to stop, so that the next call need not wait for it"),
    must("client.gate.queued-call-interrupted", "§6.2", "a queued call whose epoch closes is answered INTERRUPTED"),
    must("client.gate.queued-call-not-started", "§6.2", "and is never started"),
    must("client.gate.newer-epoch-runs", "§6.2", "a queued call of a newer epoch is not concerned, and runs"),
)  # fmt: skip
async def an_epoch_closes_with_a_call_running_and_others_queued(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.slow")
    session.turn()
    before = await stage.slow(session)
    running = session.call("test.slow", {"ms": stage.ms(LONG_S)})
    queued = [session.call("test.slow", {"ms": 0}) for _ in range(2)]
    old = session.epoch
    session.turn()
    newer = session.call("test.slow", {"ms": 0})
    await stage.running(session, running)
    session.interrupted(old)
    cancelled = not await stage.holds(session, lambda: bool(session.results(newer)), LONG_S / 2)
    sheet.settle("client.gate.running-call-cancelled", cancelled, "the next call waits for it")
    await interrupted(stage, sheet, session, "client.gate.running-call-interrupted", running)
    await interrupted(stage, sheet, session, "client.gate.queued-call-interrupted", *queued)
    result = await session.result(newer, stage.s(LONG_S + ANSWER_S))
    sheet.settle("client.gate.newer-epoch-runs", code(result) == "ok", shown(result))
    after = await stage.slow(session)
    hidden = after - before - 3  # what ran, the newer one, and the last one that tells
    sheet.settle("client.gate.queued-call-not-started", hidden <= 0, f"{hidden} started all the same")


@scenario(
    must("client.gate.late-call-interrupted", "§6.2", "a call that comes after its epoch closed is answered INTERRUPTED"),
    must("client.gate.late-call-not-started", "§6.2", "and is never started"),
    must("client.gate.lower-epochs-closed", "§6.1", "all epochs below a closed one are closed"),
    must("client.gate.future-epoch-closed", "§6.2", "interrupted closes an epoch that was not seen yet"),
    must("client.gate.above-is-open", "§6.2", "what is above the closed epoch runs"),
)  # fmt: skip
async def calls_come_after_their_epoch_closed(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.slow")
    session.epoch = 10
    session.turn()
    before = await stage.slow(session)
    session.interrupted()
    late = session.call("test.slow", {"ms": 0})
    lower = session.call("test.slow", {"ms": 0}, epoch=session.epoch - 1)
    await interrupted(stage, sheet, session, "client.gate.late-call-interrupted", late)
    await interrupted(stage, sheet, session, "client.gate.lower-epochs-closed", lower)
    session.interrupted(session.epoch + 5)  # the turns in between were never announced
    future = session.call("test.slow", {"ms": 0}, epoch=session.epoch + 4)
    await interrupted(stage, sheet, session, "client.gate.future-epoch-closed", future)
    session.epoch += 5
    session.turn()
    with proves(sheet, "client.gate.above-is-open"):
        after = await stage.slow(session)
    hidden = after - before - 1
    sheet.settle("client.gate.late-call-not-started", hidden <= 0, f"{hidden} started all the same")


@scenario(
    must("client.gate.second-interrupted-ignored", "§6.2", "interrupted for a closed epoch has no further effect"),
)  # fmt: skip
async def an_epoch_is_closed_again(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.slow")
    session.epoch = 5
    session.turn()
    session.interrupted()
    closed = session.epoch
    session.turn()
    running = session.call("test.slow", {"ms": stage.ms(0.8)})
    queued = session.call("test.slow", {"ms": 0})
    await stage.running(session, running)
    session.interrupted(closed)
    session.interrupted(closed - 2)
    for result in await session.all_results((running, queued), stage.s(ANSWER_S)):
        sheet.settle("client.gate.second-interrupted-ignored", code(result) == "ok", shown(result))
    late = session.call("test.slow", {"ms": 0}, epoch=closed)
    result = await session.result(late, stage.s(ANSWER_S))
    reopened = f"the epoch {closed} is open again: {shown(result)}"
    sheet.settle("client.gate.second-interrupted-ignored", code(result) == "INTERRUPTED", reopened)


@scenario(
    must("client.gate.closed-over-a-resume", "§5.4", "an epoch that was closed before a resume is closed after it"),
    must("client.gate.resent-call-interrupted", "§6.2", "a call that is resent after the interrupted of its epoch is answered INTERRUPTED"),
    must("client.gate.resent-call-not-started", "§6.2", "and is never started"),
)  # fmt: skip
async def calls_are_resent_after_a_resume(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.slow")
    session.turn()
    before = await stage.slow(session)
    session.interrupted()
    await stage.barrier(session)
    connection, hello = await stage.cut(session)
    # What the client missed: a call of the epoch that it knows to be closed, and another turn that came to its end.
    old = session.epoch
    session.epoch += 1
    session.number("interrupted", epoch=session.epoch, reason="server")
    resent = _missed_call(session, "missed-1", session.epoch)
    closed = _missed_call(session, "missed-2", old)
    session.resume(connection, hello)
    await interrupted(stage, sheet, session, "client.gate.closed-over-a-resume", closed)
    await interrupted(stage, sheet, session, "client.gate.resent-call-interrupted", resent)
    session.turn()
    hidden = await stage.slow(session) - before - 1
    sheet.settle("client.gate.resent-call-not-started", hidden <= 0, f"{hidden} started all the same")


@scenario(
    must("client.gate.interrupted-behind-a-resent-call", "§7.2", "a resent call whose interrupted comes right behind it has one result, INTERRUPTED"),
    may("client.gate.reads-on-before-it-starts", "§6.2", "no resent call starts before all that was resent has been read"),
)  # fmt: skip
async def an_interrupted_is_resent_behind_its_call(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.slow")
    session.turn()
    before = await stage.slow(session)
    connection, hello = await stage.cut(session)
    session.epoch += 1
    call = _missed_call(session, "missed", session.epoch, stage.ms(LONG_S))
    session.number("interrupted", epoch=session.epoch, reason="server")
    session.resume(connection, hello)
    check = "client.gate.interrupted-behind-a-resent-call"
    await interrupted(stage, sheet, session, check, call)
    session.turn()
    hidden = await stage.slow(session) - before - 1
    sheet.settle("client.gate.reads-on-before-it-starts", hidden <= 0, "it was started, and then cancelled")


def _missed_call(session: Session, call: str, epoch: int, ms: int = 0) -> str:
    """A call that is said at the next resume only."""
    turn, arguments = f"turn-{epoch}", {"ms": ms}
    session.number("tool.call", callId=call, name="test.slow", arguments=arguments, turnId=turn, epoch=epoch)
    return call


SCENARIOS = (
    an_epoch_closes_with_a_call_running_and_others_queued,
    calls_come_after_their_epoch_closed,
    an_epoch_is_closed_again,
    calls_are_resent_after_a_resume,
    an_interrupted_is_resent_behind_its_call,
)
