"""Tool calls, their results, and previews (vRT §7.1 to §7.4)."""

from __future__ import annotations

import json

from vrt_host.conformance.checks import NotTestable, Sheet, may, must, should, shown
from vrt_host.conformance.client import ECHO, Server
from vrt_host.conformance.run import scenario

OUTPUTS = (None, "a", "", 0, -1.5, True, [1, []], {"a": {"b": None}}, "\N{LOCK} ü")
CODES = ("REJECTED", "INVALID", "FAILED")
TIMEOUT_MS = 300
"""What the tool declares for servers that heed it."""
TIMEOUT_S = 6.0
"""How long a server may take to give up the profile's call, before the factor."""


@scenario(
    must(
        "server.tools.call-names-turn",
        "§7.1",
        "a call carries the turnId and the epoch of the turn that issued it",
    ),
    must(
        "server.tools.output-arrives",
        "§7.2",
        "the output of a call arrives as it was sent, whatever JSON it is",
    ),
    must("server.tools.failure-arrives", "§7.2", "the code of a call that failed arrives"),
)
async def results(server: Server, sheet: Sheet) -> None:
    server.needs("call", "outcome")
    async with server.session(tools=[ECHO]) as device:
        for output in OUTPUTS:
            turn = await device.begin("call")
            call = await device.line.until("tool.call")
            told = (call["turnId"], call["epoch"]) == (turn["turnId"], turn["epoch"])
            sheet.settle("server.tools.call-names-turn", told, f"{shown(turn)}, then {shown(call)}")
            await device.result(call, ok=True, output=output)
            await device.finish(turn)
            outcome = await device.ask("outcome")
            sheet.settle(
                "server.tools.output-arrives", _is_ok(outcome, output), f"sent {shown(output)}, got {outcome}"
            )
        for code in CODES:
            turn = await device.begin("call")
            call = await device.line.until("tool.call")
            await device.result(call, ok=False, code=code, message="no")
            await device.finish(turn)
            outcome = await device.ask("outcome")
            sheet.settle("server.tools.failure-arrives", outcome == code, f"sent {code}, got {outcome}")


def _is_ok(outcome: str, output: object) -> bool:
    """Whether the profile's word for an outcome is that of this output."""
    word, _, text = outcome.partition(" ")
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return word == "ok" and value == output and type(value) is type(output)


@scenario(
    must("server.tools.unknown-result-ignored", "§7.2", "a result of an unknown call is ignored"),
    must("server.tools.second-result-ignored", "§7.2", "a second result of a call is ignored"),
    must(
        "server.tools.earlier-result-ignored",
        "§6.3",
        "a result of an earlier call does not answer a later one",
    ),
    may("server.tools.wrong-epoch-ignored", "§7.2", "a result with another epoch than its call is ignored"),
)
async def ignored_results(server: Server, sheet: Sheet) -> None:
    """Each ignored one is a success with an output of its own, so that the outcome tells what counted."""
    server.needs("call", "outcome")
    async with server.session(tools=[ECHO]) as device:
        turn = await device.begin("call")
        call = await device.line.until("tool.call")
        await device.result({**call, "callId": "no such call"}, ok=True, output="unknown")
        await device.result(call, ok=True, output="first")
        await device.result(call, ok=True, output="second")
        await device.finish(turn)
        outcome = await device.ask("outcome")
        sheet.settle(
            "server.tools.unknown-result-ignored", outcome != 'ok "unknown"', f"the outcome is {outcome}"
        )
        sheet.settle(
            "server.tools.second-result-ignored", outcome == 'ok "first"', f"the outcome is {outcome}"
        )
        turn = await device.begin("call")
        later = await device.line.until("tool.call")
        await device.result(call, ok=True, output="earlier")
        await device.result(later, ok=True, output="later")
        await device.finish(turn)
        outcome = await device.ask("outcome")
        sheet.settle(
            "server.tools.earlier-result-ignored", outcome == 'ok "later"', f"the outcome is {outcome}"
        )
        turn = await device.begin("call")
        call = await device.line.until("tool.call")
        await device.result(call, epoch=call["epoch"] + 1, ok=True, output="wrong epoch")
        await device.result(call, ok=True, output="right epoch")
        await device.finish(turn)
        outcome = await device.ask("outcome")
        sheet.settle(
            "server.tools.wrong-epoch-ignored", outcome == 'ok "right epoch"', f"the outcome is {outcome}"
        )


@scenario(
    may("server.tools.timeout", "§7.2", "a call without a result is settled as TIMEOUT"),
    must("server.tools.result-after-timeout-ignored", "§7.2", "a result that comes after that is ignored"),
    should(
        "server.tools.timeout-closes-epoch",
        "§6.2",
        "a timeout closes the epoch, so that the call cannot start later",
    ),
)
async def timeout(server: Server, sheet: Sheet) -> None:
    server.needs("timeout", "outcome")
    async with server.session(tools=[{**ECHO, "timeoutMs": TIMEOUT_MS}]) as device:
        turn = await device.begin("timeout")
        call = await device.line.until("tool.call")
        within = TIMEOUT_S
        while True:
            end = await device.line.until("interrupted", "turn.state", within=within)
            if end["type"] == "interrupted" or end["state"] == "idle":
                break
        closed = end["type"] == "interrupted" and end["epoch"] == turn["epoch"]
        sheet.settle("server.tools.timeout-closes-epoch", closed, shown(end))
        outcome = await device.ask("outcome")
        sheet.settle("server.tools.timeout", outcome == "TIMEOUT", f"the outcome is {outcome!r}")
        await device.result(call)
        later = await device.ask("outcome")
        sheet.settle(
            "server.tools.result-after-timeout-ignored",
            later == outcome,
            f"the outcome was {outcome!r}, then {later!r}",
        )


@scenario(
    should(
        "server.tools.previews-make-arguments",
        "§7.4",
        "the argumentsDelta of previews add up to the arguments",
    ),
    must("server.tools.preview-alone-calls-nothing", "§7.4", "a call that the model gave up is not sent"),
)
async def previews(server: Server, sheet: Sheet) -> None:
    server.needs("stream", "broken")
    async with server.session(tools=[ECHO]) as device:
        turn = await device.begin("stream")
        call = await device.line.until("tool.call")
        deltas = [one["preview"] for one in device.line.seen("tool.call.delta", callId=call["callId"])]
        await device.result(call)
        await device.finish(turn)
        place = device.line.skip()
        await device.ask("broken")
        called = device.line.seen("tool.call", since=place)
        sheet.settle("server.tools.preview-alone-calls-nothing", not called, shown(called))
        if not deltas:
            raise NotTestable("the server sent no previews")
        parts = [one.get("argumentsDelta") if isinstance(one, dict) else None for one in deltas]
        text = "".join(part for part in parts if isinstance(part, str))
        right = _loads(text) == call["arguments"]
        sheet.settle(
            "server.tools.previews-make-arguments", right, f"{shown(text)} for {shown(call['arguments'])}"
        )


def _loads(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
