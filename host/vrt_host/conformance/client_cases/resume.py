"""A connection is lost and the session goes on (vRT §5.4)."""

from __future__ import annotations

from itertools import pairwise

from vrt_host.conformance.checks import Sheet, must, should, shown
from vrt_host.conformance.client_cases.stage import ANSWER_S, Stage, proves
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server import Connection

HOLD_S = 0.4
"""How long a `ready` is held back, to see whether the client waits for it."""


def numbers(connection: Connection, *, early: bool = False) -> list[int]:
    """The seq of each numbered message that the client sent on a connection, after the first word to it or before."""
    spoken = False
    found = []
    for frame in connection.frames:
        spoken = spoken or frame.sent
        if not frame.sent and frame.message and frame.message.get("seq") and spoken is not early:
            found.append(frame.message["seq"])
    return found


@scenario(
    must("client.resume.reconnects", "§5.1", "a lost connection is made anew, and asks for its session"),
    must("client.resume.resume-from-last", "§5.4", "resumeFrom is the last seq that was handled"),
    should("client.resume.no-context-in-hello", "§5.5", "hello.context only opens a session"),
    must("client.resume.waits-for-ready", "§5.1", "nothing sequenced is sent before ready"),
    must("client.resume.unacknowledged-resent", "§5.4", "what the server has not handled is sent again"),
    must("client.resume.resends-in-order", "§5.4", "in order, and before anything new"),
    must("client.resume.handled-once", "§5.4", "what both sides send again is handled exactly once"),
)
async def a_connection_is_lost_with_messages_unacknowledged(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    session.turn()
    await stage.barrier(session)
    session.acks = False
    for _ in range(3):
        await stage.barrier(session)
    known, said = session.last, session.seq
    calls = [message["callId"] for message in session.kept if message["type"] == "tool.call"]
    answers = len(session.results(*calls))
    connection, hello = await stage.cut(session)
    sheet.settle("client.resume.reconnects", True)
    last = hello.get("resumeFrom", 0)
    sheet.settle("client.resume.resume-from-last", last == said, f"{last} instead of {said}")
    sheet.settle("client.resume.no-context-in-hello", "context" not in hello, shown(hello))
    await stage.rest(HOLD_S)
    told = numbers(connection, early=True)
    sheet.settle("client.resume.waits-for-ready", not told, f"seq {told} came before")
    session.acks = True
    session.last = handled = known - 2
    session.resume(connection, {"resumeFrom": said - 3})  # as if the client's last ack had been lost as well
    what = f"message from {handled + 1} on"
    with proves(sheet, "client.resume.unacknowledged-resent"):
        await session.until(lambda: session.last >= known, stage.s(ANSWER_S), what)
    await stage.barrier(session)
    sent = numbers(connection)
    ordered = sent[0] == handled + 1 and all(after == before + 1 for before, after in pairwise(sent))
    sheet.settle("client.resume.resends-in-order", ordered, f"after resumedFrom {handled} came {sent}")
    more = len(session.results(*calls)) - answers
    sheet.settle("client.resume.handled-once", more <= 0, f"{more} calls were answered again")


@scenario(
    must("client.resume.seq-continues", "§4.1", "the numbers of both streams go on after a resume, and after the next"),
    should("client.resume.nothing-known-resent", "§5.4", "what the server has handled is not sent again"),
)  # fmt: skip
async def a_connection_is_lost_again_and_again(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    session.turn()
    await stage.barrier(session)
    session.acks = False
    await stage.barrier(session)
    for _ in range(2):
        handled, said = session.last, session.seq
        connection, hello = await stage.cut(session)
        session.resume(connection, hello)
        await stage.barrier(session)
        sent = numbers(connection)
        told = (
            f"hello {shown(hello)}, then {sent}; the server had {handled} of the client's and had sent {said}"
        )
        goes_on = hello.get("resumeFrom") == said and sent[-1] == handled + len(
            [n for n in sent if n > handled]
        )
        sheet.settle("client.resume.seq-continues", goes_on, told)
        sheet.settle("client.resume.nothing-known-resent", sent[0] > handled, told)


@scenario(
    must("client.resume.pending-call-carried-over", "§5.4", "a call that runs while the connection is lost has its one result afterwards"),
)  # fmt: skip
async def a_connection_is_lost_with_a_call_running(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.slow")
    session.turn()
    await stage.barrier(session)
    call = session.call("test.slow", {"ms": 300})
    await stage.running(session, call)
    connection, hello = await stage.cut(session)
    session.resume(connection, hello)
    result = await session.result(call, stage.s(ANSWER_S))
    sheet.settle("client.resume.pending-call-carried-over", result.get("ok") is True, shown(result))


@scenario(
    must("client.resume.error-decides", "§9.3", "a close code without its error ends nothing: the session is resumed"),
)  # fmt: skip
async def the_connection_is_closed_with_a_code_alone(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    for code in (4401, 4404):
        session.turn()
        await stage.barrier(session)
        assert session.connection is not None
        session.connection.close(code)
        connection, hello = await stage.arrive()
        kept = hello.get("sessionId") == session.id
        sheet.settle("client.resume.error-decides", kept, f"after {code} alone: {shown(hello)}")
        if not kept:
            return
        session.resume(connection, hello)


SCENARIOS = (
    a_connection_is_lost_with_messages_unacknowledged,
    a_connection_is_lost_again_and_again,
    a_connection_is_lost_with_a_call_running,
    the_connection_is_closed_with_a_code_alone,
)
