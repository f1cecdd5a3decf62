"""Silence on the line, and a server that is not there (vRT §4.4, §5.1)."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from vrt_host.conformance.checks import NotTestable, Sheet, Unmet, may, should
from vrt_host.conformance.client_cases.link import websocket
from vrt_host.conformance.client_cases.reliability import ACK_S
from vrt_host.conformance.client_cases.stage import COME_S, Stage, proves
from vrt_host.conformance.run import scenario

PING_S = 15.0
"""The ping interval that is recommended: a third of the server's patience."""
LONG_S = 300.0
"""For what takes ping intervals."""
DEAD = 2.5
"""Ping intervals of silence after which a connection is dead."""
REFUSED = 2
"""Tries that are refused before the client gets in."""
STORM = 8
STORM_S = 1.0
"""More tries than that in the first second are a storm."""
SPREAD_S = 0.02
"""Pauses that differ by less are the same for every client."""


@scenario(
    should("client.reliability.pings-when-quiet", "§4.4", "a client that has sent nothing for its ping interval pings"),
    should("client.reliability.ping-interval", "§4.4", "a ping interval is 15 s at most"),
    seconds=LONG_S,
)  # fmt: skip
async def nothing_is_said(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    session.turn()
    await stage.barrier(session)
    await stage.rest(2 * ACK_S)
    connection = session.connection
    assert connection is not None
    began = len(connection.frames)
    quiet_since = connection.frames[-1].t

    def said(kind: str) -> int:
        return sum(frame.kind == kind and not frame.sent for frame in connection.frames[began:])

    within = 1.6 * stage.ping_s
    await stage.holds(session, lambda: said("text") > 0 or said("binary") > 10, within)
    if said("binary"):
        raise NotTestable("the client sends audio all the time; switch its microphone off")
    pinged = said("text") > 0
    interval = connection.frames[-1].t - quiet_since
    sheet.settle("client.reliability.pings-when-quiet", pinged, f"nothing within {stage.s(within):g} s")
    sheet.settle(
        "client.reliability.ping-interval", pinged and interval < PING_S * 1.1, f"after {interval:.1f} s"
    )


@scenario(
    should("client.reliability.silent-connection-left", "§4.4", "a connection that was silent for 2.5 ping intervals is closed"),
    should("client.resume.after-silence", "§4.4", "and its session resumed"),
    seconds=LONG_S,
)  # fmt: skip
async def nothing_is_heard(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    connection, link = websocket(session)
    session.turn()
    await stage.barrier(session)
    link.dead = True
    within = (
        stage.s((DEAD + 1.0) * stage.ping_s) + 2.5
    )  # and some time for a closing handshake that nobody answers
    try:
        with proves(sheet, "client.reliability.silent-connection-left"):
            await connection.end(within)
    finally:
        connection.cut()
    connection, hello = await stage.back(session)
    session.resume(connection, hello)
    await stage.barrier(session)
    sheet.settle("client.resume.after-silence", True)


@scenario(
    should("client.resume.no-storm", "§5.1", "a server that is away is not stormed"),
    should("client.resume.backs-off", "§5.1", "the pauses between tries grow"),
    should("client.resume.comes-back", "§5.1", "the client comes back when the server does, and resumes"),
)  # fmt: skip
async def the_server_is_away(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    websocket(session)  # on a serial line, asking every second troubles nobody
    session.turn()
    await stage.barrier(session)
    connection, listener = session.connection, stage.listener
    assert connection is not None
    before = len(listener.attempts)
    listener.refusing = True
    connection.cut()
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(stage.s(COME_S)):
            while len(listener.attempts) < before + REFUSED or listener.attempts[-1] < began + STORM_S:
                await listener.knock()
    except TimeoutError:
        tries = len(listener.attempts) - before
        raise Unmet(f"{tries} tries within {stage.s(COME_S):g} s") from None
    finally:
        listener.refusing = False
    connection, hello = await stage.back(session)
    times = [began, *listener.attempts[before:]]
    early = sum(time < began + STORM_S for time in times[1:])
    sheet.settle("client.resume.no-storm", early <= STORM, f"{early} tries in the first {STORM_S:g} s")
    pauses = [after - before for before, after in pairwise(times)]
    told = ", ".join(f"{pause:.2f} s" for pause in pauses)
    sheet.settle("client.resume.backs-off", pauses[-1] > 1.5 * min(pauses), f"pauses of {told}")
    session.resume(connection, hello)
    await stage.barrier(session)
    sheet.settle("client.resume.comes-back", True)


@scenario(
    may("client.resume.jitter", "§5.1", "the pause before a try differs from one time to the next"),
)
async def connections_are_lost_alike(stage: Stage, sheet: Sheet) -> None:
    pauses = []
    for _ in range(3):
        session = await stage.session()
        session.turn()
        await stage.barrier(session)
        began = asyncio.get_running_loop().time()
        await stage.cut(session)
        pauses.append(stage.listener.attempts[-1] - began)
    told = ", ".join(f"{pause:.3f} s" for pause in pauses)
    sheet.settle("client.resume.jitter", max(pauses) - min(pauses) > SPREAD_S, f"pauses of {told}")


SCENARIOS = (nothing_is_said, nothing_is_heard, the_server_is_away, connections_are_lost_alike)
