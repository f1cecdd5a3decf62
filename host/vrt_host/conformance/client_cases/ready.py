"""Every shape of a `ready` (vRT §5.2)."""

from __future__ import annotations

import uuid

from vrt_host.conformance.checks import Sheet, Unmet, must, shown
from vrt_host.conformance.client_cases.errors import vectors
from vrt_host.conformance.client_cases.stage import Stage
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server import PCMU, Session

SHAPES = (
    "unknown-members",
    "version-zero-fraction",
    "seq-zero-fraction",
    "session-id",
    "capabilities",
    "limits",
)
"""Of the vectors: what opens any session, whatever formats the client can use."""


@scenario(
    must("client.sessions.every-ready-opens", "§5.1", "every valid ready opens the session"),
    must("client.resume.session-id-opaque", "§6.3", "the sessionId means nothing; a resume names it as it was given"),
)  # fmt: skip
async def ready_comes_in_every_shape(stage: Stage, sheet: Sheet) -> None:
    for case in vectors({}, valid=True):
        name = case["id"].removeprefix("server.ready.")
        if name == case["id"] or not name.startswith(SHAPES):
            continue
        connection, hello = await stage.fresh()
        ready = {**case["json"], "input": PCMU, "output": PCMU}
        if "session-id" not in name:
            ready["sessionId"] = str(uuid.uuid4())
        ready.pop("resumedFrom", None)
        session = Session(ready["sessionId"])
        session.open(
            connection, hello, **{key: ready[key] for key in ready if key not in ("v", "seq", "type")}
        )
        try:
            await stage.barrier(session)
        except Unmet as unmet:
            sheet.settle("client.sessions.every-ready-opens", False, f"{shown(ready)}: {unmet}")
            continue
        sheet.settle("client.sessions.every-ready-opens", True)
        if name == "session-id-any-text":
            connection, hello = await stage.cut(session)
            session.resume(connection, hello)
            await stage.barrier(session)
            same = hello["sessionId"] == ready["sessionId"]
            sheet.settle("client.resume.session-id-opaque", same, shown(hello))


SCENARIOS = (ready_comes_in_every_shape,)
