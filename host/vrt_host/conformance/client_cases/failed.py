"""A session cannot go on: nothing of it comes into another one (vRT §5.4)."""

from __future__ import annotations

from vrt_host.conformance.checks import Sheet, may, must, shown
from vrt_host.conformance.client_cases.resume import numbers
from vrt_host.conformance.client_cases.stage import ANSWER_S, NOTHING, Stage, proves
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server import Session


async def with_results_to_resend(stage: Stage) -> tuple[Session, set[str]]:
    """A session in which some messages were acknowledged, and the results of the calls that are returned were not."""
    session = await stage.session()
    session.turn()
    for _ in range(3):
        await stage.barrier(session)
    session.acks = False
    calls = [session.call(NOTHING, {}) for _ in range(3)]
    await session.all_results(calls, stage.s(ANSWER_S))
    return session, set(calls)


async def nothing_old(stage: Stage, sheet: Sheet, check: str, old: set[str]) -> None:
    """In the next session comes no result of these calls."""
    session = await stage.session()
    session.turn()
    await stage.barrier(session)
    found = [result for result in session.results() if result["callId"] in old]
    sheet.settle(check, not found, f"of the session before: {shown(found)}")


@scenario(
    must("client.resume.beyond-last-sent", "§5.4", "a resumedFrom beyond what was sent fails the resume, and the client closes the connection"),
    must("client.resume.beyond-replays-nothing", "§5.4", "nothing old is sent then, in no session"),
)  # fmt: skip
async def the_server_claims_more_than_was_sent(stage: Stage, sheet: Sheet) -> None:
    session, old = await with_results_to_resend(stage)
    connection, _ = await stage.cut(session)
    session.bind(connection)
    connection.say("ready", sessionId=session.id, **session.formats, resumedFrom=session.last + 100)
    with proves(sheet, "client.resume.beyond-last-sent"):
        await connection.end(stage.s(ANSWER_S))
    check = "client.resume.beyond-replays-nothing"
    sheet.settle(check, not numbers(connection), f"it sent {numbers(connection)}")
    await nothing_old(stage, sheet, check, old)


@scenario(
    must("client.resume.discarded-messages", "§5.4", "a resumedFrom below what was discarded fails the resume; who has it all sends it all"),
)  # fmt: skip
async def the_server_has_lost_what_it_acknowledged(stage: Stage, sheet: Sheet) -> None:
    session, _ = await with_results_to_resend(stage)
    connection, _ = await stage.cut(session)
    connection.say("ready", sessionId=session.id, **session.formats, resumedFrom=0)
    session.bind(connection)
    await stage.holds(session, lambda: connection.ended or len(numbers(connection)) >= session.last, 3)
    sent = numbers(connection)
    kept = sent == list(range(1, session.last + 1)) or (connection.ended and not sent)
    told = f"it sent {sent} of {session.last}, and {'closed' if connection.ended else 'kept'} the connection"
    sheet.settle("client.resume.discarded-messages", kept, told)


@scenario(
    must("client.resume.refused-is-over", "§5.1", "after RESUME_FAILED the session is not asked for again"),
    must("client.resume.refused-replays-nothing", "§5.4", "nothing old is sent then, in no session"),
    may("client.resume.opens-anew", "§5.4", "a new session is opened"),
)  # fmt: skip
async def a_resume_is_refused(stage: Stage, sheet: Sheet) -> None:
    session, old = await with_results_to_resend(stage)
    connection, _ = await stage.cut(session)
    connection.refuse("RESUME_FAILED", 4404)
    back = await stage.stay_away(stage.s(5))
    over = back is None or back[1].get("sessionId") != session.id
    sheet.settle("client.resume.refused-is-over", over, f"it came back with {shown(back and back[1])}")
    sheet.settle("client.resume.opens-anew", back is not None, "it stays away for 5 s")
    await nothing_old(stage, sheet, "client.resume.refused-replays-nothing", old)


@scenario(
    must("client.resume.failed-in-session", "§5.1", "RESUME_FAILED ends an open session too, and with a number of its stream"),
    must("client.resume.failed-replays-nothing", "§5.4", "nothing old is sent then, in no session"),
)  # fmt: skip
async def a_resume_fails_after_its_ready(stage: Stage, sheet: Sheet) -> None:
    session, old = await with_results_to_resend(stage)
    connection, hello = await stage.cut(session)
    session.last -= len(old)
    session.resume(connection, hello)
    session.say("error", code="RESUME_FAILED", recoverable=False, message="said by a test")
    connection.close(4404)
    back = await stage.stay_away(stage.s(5))
    over = back is None or back[1].get("sessionId") != session.id
    sheet.settle("client.resume.failed-in-session", over, f"it came back with {shown(back and back[1])}")
    await nothing_old(stage, sheet, "client.resume.failed-replays-nothing", old)


SCENARIOS = (
    the_server_claims_more_than_was_sent,
    the_server_has_lost_what_it_acknowledged,
    a_resume_is_refused,
    a_resume_fails_after_its_ready,
)
