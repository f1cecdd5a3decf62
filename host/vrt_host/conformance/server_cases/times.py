"""Rules about times: the heartbeat (§4.4) and the resume window (§5.1), as long as the server announces them."""

from __future__ import annotations

import asyncio

from vrt_host.conformance.checks import NotTestable, Sheet, must, shown
from vrt_host.conformance.client import Device, Server
from vrt_host.conformance.run import scenario

HEARTBEAT_S, WINDOW_S = 45.0, 30.0
"""What is recommended, for servers that announce nothing."""
NOTICE_S, MARGIN_S = 0.3, 1.0
"""How much later a server usually notices that a time is over, and may notice it; before the factor."""
ROUNDS = 6
"""Signs of life in the time of a heartbeat."""
SILENCE = bytes(160)


def _time(server: Server, device: Device, member: str, usual_s: float) -> float:
    """How long it is, in seconds; raises `NotTestable` when that is more than our patience."""
    limits = device.ready.get("limits")
    told = limits.get(member) if isinstance(limits, dict) else None
    seconds = told / 1000 if isinstance(told, (int, float)) and told > 0 else usual_s
    if seconds > server.patience_s:
        where = "announced" if told else "recommended"
        raise NotTestable(
            f"{seconds:g} s ({where}) are more than the patience of {server.patience_s:g} s; see --patience"
        )
    return seconds


@scenario(
    must(
        "server.reliability.heartbeat-timeout",
        "§4.4",
        "a connection on which nothing comes is closed with 4408",
    ),
    must(
        "server.resume.after-heartbeat-timeout", "§4.4", "after a heartbeat timeout the session is resumable"
    ),
    must("server.reliability.any-frame-counts", "§4.4", "a frame of any kind keeps a connection open"),
)
async def heartbeat(server: Server, sheet: Sheet) -> None:
    """The silent one does not even read, so that no WebSocket ping of the server's is answered."""
    async with (
        server.session(pings=False) as silent,
        server.session(pings=False) as pinging,
        server.session(pings=False) as sounding,
    ):
        seconds = _time(server, silent, "heartbeatMs", HEARTBEAT_S)
        silent.line.pause(True)
        for number in range(ROUNDS):
            await asyncio.sleep((seconds + server.pace.s(NOTICE_S)) / ROUNDS)
            await pinging.send("ping")
            await sounding.line.audio(number, SILENCE)
        silent.line.pause(False)
        over = silent.line.until_closed(MARGIN_S)
        closed = await sheet.holds("server.reliability.heartbeat-timeout", over)
        if closed is not None:
            sheet.settle("server.reliability.heartbeat-timeout", closed.code == 4408, str(closed))
        await sheet.holds("server.resume.after-heartbeat-timeout", silent.resume())
        for device in (pinging, sounding):
            await sheet.holds("server.reliability.any-frame-counts", device.line.sync())


@scenario(
    must("server.resume.within-window", "§5.1", "a parked session is resumable within the resume window"),
    must("server.resume.window-ends", "§5.1", "a parked session is closed when the resume window is over"),
)
async def resume_window(server: Server, sheet: Sheet) -> None:
    async with server.session() as early, server.session() as late:
        seconds = _time(server, late, "resumeWindowMs", WINDOW_S)
        early.cut()
        late.cut()
        await asyncio.sleep(seconds / 2)
        await sheet.holds("server.resume.within-window", early.resume())
        await asyncio.sleep(seconds / 2 + server.pace.s(MARGIN_S))
        answer = await late.rejoin()
        sheet.settle("server.resume.window-ends", answer.get("code") == "RESUME_FAILED", shown(answer))
        await sheet.holds("server.resume.within-window", early.line.sync())
