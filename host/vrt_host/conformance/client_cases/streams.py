"""Tool streams (vRT §7.5), for a client that offers `tool-stream-v1`."""

from __future__ import annotations

from vrt_host.conformance.checks import NotTestable, Sheet, must, shown
from vrt_host.conformance.client_cases.stage import Stage
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server import Message

TOKEN = "tool-stream-v1"
ENDS: tuple[Message, ...] = (
    {"phase": "settled", "ok": True},
    {"phase": "settled", "ok": False, "code": "FAILED"},
    {"phase": "cancelled"},
    {"phase": "failed", "message": "the model stopped"},
)


@scenario(
    must("client.streams.runs-nothing", "§7.5", "tool.stream runs nothing, not even at arguments-complete"),
    must("client.streams.phases-survived", "§7.5", "every phase is taken"),
)
async def a_call_is_streamed(stage: Stage, sheet: Sheet) -> None:
    connection, hello = await stage.fresh()
    session = stage.made()
    if TOKEN not in hello.get("capabilities", ()):
        session.open(connection, hello)
        raise NotTestable(f"the client does not offer {TOKEN}")
    session.capabilities = [TOKEN]
    session.open(connection, hello)
    stage.needs(session, "test.slow")
    session.turn()
    before = await stage.slow(session)
    call: Message = {"name": "test.slow", "turnId": f"turn-{session.epoch}", "epoch": session.epoch}
    for number, end in enumerate(ENDS):
        streamed: Message = {"callId": f"streamed-{number}", **call}
        session.say("tool.stream", **streamed, phase="start")
        session.say("tool.stream", **streamed, phase="arguments-delta", delta='{"ms": 0}')
        session.say("tool.stream", **streamed, phase="arguments-complete", arguments={"ms": 0})
        session.say("tool.stream", **streamed, phase="progress", progress={"half": True})
        session.say("tool.stream", **streamed, **end)
    hidden = await stage.slow(session) - before - 1
    sheet.settle("client.streams.phases-survived", True)
    answers = session.results(*(f"streamed-{number}" for number in range(len(ENDS))))
    sheet.settle(
        "client.streams.runs-nothing", hidden <= 0 and not answers, f"{hidden} started; {shown(answers)}"
    )


SCENARIOS = (a_call_is_streamed,)
