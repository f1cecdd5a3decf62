"""Calls and their results (vRT §7)."""

from __future__ import annotations

import json
from typing import Any

from vrt_host.conformance.checks import Sheet, must, should, shown
from vrt_host.conformance.client_cases.gate import code
from vrt_host.conformance.client_cases.stage import ANSWER_S, NOTHING, Stage, proves
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server import Message, Session

IDS = (
    "0",
    " ",
    "CALL-1",
    "call-1 ",
    "__proto__",
    "constructor",
    "x" * 256,
    ' ü/\\"\u0001\u2028',
    "\N{KEY}\N{KEY}",
)
"""Identifiers that mean nothing."""


@scenario(
    must("client.tools.every-call-answered", "§7.2", "every call has a result"),
    must("client.tools.one-at-a-time", "§7.1", "a call starts only after the one before has its result"),
    must("client.tools.in-order", "§7.1", "calls run in the order in which they came"),
    must("client.reliability.ack-before-work-is-done", "§4.2", "a call is acknowledged before it is done"),
)  # fmt: skip
async def calls_queue(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.slow")
    session.turn()
    before = await stage.slow(session)
    calls = [session.call("test.slow", {"ms": ms}) for ms in (stage.ms(0.8), 0, 100, 0)]
    seq = next(message["seq"] for message in session.kept if message.get("callId") == calls[0])
    early = await stage.holds(session, lambda: session.acked >= seq or bool(session.results(calls[0])), 2)
    acked = not early and not session.results(calls[0])
    sheet.settle("client.reliability.ack-before-work-is-done", acked, "its result came first")
    with proves(sheet, "client.tools.every-call-answered"):
        results = await session.all_results(calls, stage.s(ANSWER_S))
    order = list(dict.fromkeys(result["callId"] for result in session.results(*calls)))
    sheet.settle("client.tools.in-order", order == calls, f"called {calls}, answered {order}")
    started = [result.get("output", {}).get("started", 0) - before for result in results]
    sheet.settle(
        "client.tools.one-at-a-time", started == [1, 2, 3, 4], f"started by the end of each: {started}"
    )


@scenario(
    must("client.tools.unknown-tool-is-failed", "§7.3", "a call of a tool that the client does not have is FAILED"),
    must("client.tools.exact-tool-names", "§7.3", "names of tools are exact, and nothing is inherited"),
)  # fmt: skip
async def tools_that_are_not_there(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    session.turn()
    result = await session.result(session.call(NOTHING, {}), stage.s(ANSWER_S))
    sheet.settle("client.tools.unknown-tool-is-failed", code(result) == "FAILED", shown(result))
    names = ("", "toString", "__proto__", "__init__", "TEST.SLOW", "test.slow ")
    calls = [session.call(name, {"ms": 0}) for name in names]
    for name, result in zip(names, await session.all_results(calls, stage.s(ANSWER_S)), strict=True):
        sheet.settle("client.tools.exact-tool-names", code(result) == "FAILED", f"{name!r}: {shown(result)}")


@scenario(
    must("client.tools.failure-is-failed", "§7.3", "a tool that fails is FAILED, and the next call runs"),
    should("client.tools.failure-has-message", "§7.2", "a failure tells why in a message"),
)  # fmt: skip
async def a_tool_fails(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.fail")
    session.turn()
    result = await session.result(session.call("test.fail", {}), stage.s(ANSWER_S))
    await stage.barrier(session)
    sheet.settle("client.tools.failure-is-failed", code(result) == "FAILED", shown(result))
    told = isinstance(result.get("message"), str) and bool(result["message"])
    sheet.settle("client.tools.failure-has-message", told, shown(result))


@scenario(
    should("client.tools.invalid-arguments", "§7.1", "arguments that do not fit the declared parameters are INVALID"),
    should("client.tools.invalid-runs-nothing", "§7.1", "and the tool is not started with them"),
)  # fmt: skip
async def arguments_that_do_not_fit(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.slow")
    session.turn()
    before = await stage.slow(session)
    wrong: tuple[Any, ...] = (
        {},
        {"ms": "soon"},
        {"ms": -1},
        {"ms": 1.5},
        {"ms": None},
        {"ms": True},
        [],
        None,
        "{}",
        0,
    )
    results = []
    for arguments in wrong:  # one by one, for a short queue
        results.append(await session.result(session.call("test.slow", arguments), stage.s(ANSWER_S)))
    for arguments, result in zip(wrong, results, strict=True):
        wanted = code(result) == "INVALID"
        sheet.settle("client.tools.invalid-arguments", wanted, f"{json.dumps(arguments)}: {shown(result)}")
    hidden = await stage.slow(session) - before - 1
    sheet.settle("client.tools.invalid-runs-nothing", hidden <= 0, f"{hidden} started all the same")


@scenario(
    must("client.tools.null-output", "§7.2", "a tool that returned nothing has the output null"),
    must("client.framing.text-as-said", "§2.1", "a text of the user's comes as it was said"),
)  # fmt: skip
async def the_user_says_something(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.say")
    session.turn()
    texts = ("Hello.", 'Grüße, \N{KEY} \\ " \t\u2028', "")
    results = []
    for text in texts:
        results.append(await session.result(session.call("test.say", {"text": text}), stage.s(ANSWER_S)))
    for result in results:
        null = code(result) == "ok" and "output" in result and result["output"] is None
        sheet.settle("client.tools.null-output", null, shown(result))
    await session.until(lambda: len(_texts(session)) >= len(texts), stage.s(ANSWER_S), "text")
    heard = tuple(_texts(session))
    sheet.settle("client.framing.text-as-said", heard == texts, f"{texts!r} came as {heard!r}")


def _texts(session: Session) -> list[str]:
    return [str(message["text"]) for message in session.received if message["type"] == "text"]


@scenario(
    must("client.tools.identifiers-opaque", "§6.3", "identifiers mean nothing: whatever they are, the call runs and is answered with them"),
)  # fmt: skip
async def identifiers_of_all_kinds(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    session.turn()
    for call in IDS:
        session.call(NOTHING, {}, id_=call)
    with proves(sheet, "client.tools.identifiers-opaque"):
        await session.all_results(IDS, stage.s(ANSWER_S))


@scenario(
    must("client.tools.preview-runs-nothing", "§7.4", "a preview runs nothing"),
)  # fmt: skip
async def previews(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    stage.needs(session, "test.slow")
    session.turn()
    before = await stage.slow(session)
    preview: Message = {
        "callId": "previewed",
        "epoch": session.epoch,
        "turnId": f"turn-{session.epoch}",
        "name": "test.slow",
    }
    session.say("tool.call.delta", **preview, preview={"argumentsDelta": '{"ms":'})
    session.say("tool.call.delta", **preview, preview={"argumentsDelta": "0}"})
    session.say("tool.call.delta", **preview, preview={"arguments": {"ms": 0}, "done": True})
    hidden = await stage.slow(session) - before - 1
    answers = session.results("previewed")
    sheet.settle(
        "client.tools.preview-runs-nothing",
        hidden <= 0 and not answers,
        f"{hidden} started; {shown(answers)}",
    )


SCENARIOS = (
    calls_queue,
    tools_that_are_not_there,
    a_tool_fails,
    arguments_that_do_not_fit,
    the_user_says_something,
    identifiers_of_all_kinds,
    previews,
)
