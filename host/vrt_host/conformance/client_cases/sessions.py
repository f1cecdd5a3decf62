"""Sessions are opened and refused (vRT §5.1 to §5.3)."""

from __future__ import annotations

from vrt_host.conformance.checks import Sheet, may, must, should, shown
from vrt_host.conformance.client_cases.resume import HOLD_S
from vrt_host.conformance.client_cases.stage import Stage
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server import Message

AWAY_S = 2.0
"""How soon a client that was refused would be back, if it took no notice."""


@scenario(
    must("client.sessions.opens", "§5.1", "hello asks for a session, and ready opens it"),
    must("client.sessions.waits-for-ready", "§5.1", "nothing sequenced and no audio is sent before ready"),
    must("client.sessions.unknown-capability-ignored", "§3.3", "a capability in ready that the client does not know is ignored"),
    must("client.sessions.recoverable-error-waits", "§5.1", "an error before ready that is recoverable does not end the waiting"),
    may("client.sessions.second-ready-survived", "§5.1", "a second ready does no harm"),
)  # fmt: skip
async def a_session_is_opened_late(stage: Stage, sheet: Sheet) -> None:
    connection, hello = await stage.fresh()
    connection.refuse("A_CODE_OF_A_LATER_REVISION", recoverable=True)
    await stage.rest(HOLD_S)
    early = [frame for frame in connection.frames if not frame.sent and _binds(frame.kind, frame.message)]
    sheet.settle("client.sessions.waits-for-ready", not early, f"{len(early)}, such as {early and early[0]}")
    session = stage.made()
    session.capabilities = ["x-nobody-knows-this", "later-v9"]
    session.open(connection, hello)
    session.turn()
    await stage.barrier(session)
    sheet.settle("client.sessions.opens", True)
    sheet.settle("client.sessions.recoverable-error-waits", True)
    sheet.settle("client.sessions.unknown-capability-ignored", True)
    connection.say("ready", sessionId=session.id, **session.formats)
    await stage.barrier(session)
    sheet.settle("client.sessions.second-ready-survived", session.connection is connection)


def _binds(kind: str, message: Message | None) -> bool:
    return kind == "binary" or bool(message and message.get("seq"))


async def _refused(stage: Stage, sheet: Sheet, check: str, code: str, close: int) -> None:
    connection, hello = await stage.fresh()
    connection.refuse(code, close)
    back = await stage.stay_away(stage.s(AWAY_S))
    same = back is not None and back[1].get("auth") == hello.get("auth")
    sheet.settle(check, not same, f"it was back at once, unchanged: {shown(back and back[1])}")
    if back is None:
        await stage.restart()


@scenario(
    should("client.sessions.stays-away-when-unauthorized", "§5.3", "after UNAUTHORIZED the same credential is not tried again"),
)  # fmt: skip
async def the_credential_is_refused(stage: Stage, sheet: Sheet) -> None:
    await _refused(stage, sheet, "client.sessions.stays-away-when-unauthorized", "UNAUTHORIZED", 4401)


@scenario(
    should("client.sessions.stops-when-refused", "§9.2", "after an unknown error that is not recoverable the same hello is not sent again at once"),
)  # fmt: skip
async def the_session_is_refused_for_an_unknown_reason(stage: Stage, sheet: Sheet) -> None:
    await _refused(stage, sheet, "client.sessions.stops-when-refused", "NOT_TODAY", 1008)


SCENARIOS = (a_session_is_opened_late,)
ENDINGS = (the_credential_is_refused, the_session_is_refused_for_an_unknown_reason)
"""After these the client may have stopped."""
