"""Tool streams (vRT §7.5) and identifiers for all sessions (§6.3)."""

from __future__ import annotations

import json

from vrt_host.conformance.checks import NotTestable, Sheet, must, should, shown
from vrt_host.conformance.client import ECHO, Device, Server
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server_cases.ids import ENOUGH, WANTED_BITS, random_bits
from vrt_host.conformance.watch_turns import TERMINAL
from vrt_host.protocol.wire import Message

STREAMS, GLOBAL_IDS = "tool-stream-v1", "global-tool-ids-v1"


def streaming(server: Server) -> Device:
    """A session that offers both capabilities."""
    return server.session(tools=[ECHO], capabilities=[STREAMS, GLOBAL_IDS])


def _in_effect(device: Device, token: str) -> None:
    if token not in device.ready.get("capabilities", ()):
        raise NotTestable(f"the server does not support {token}")


def _streams(device: Device, since: int = 0) -> dict[str, list[Message]]:
    """What came of each call."""
    calls: dict[str, list[Message]] = {}
    for message in device.line.seen("tool.stream", since=since):
        calls.setdefault(message["callId"], []).append(message)
    return calls


async def _settled(device: Device, place: int) -> dict[str, list[Message]]:
    """Wait for the terminal phase of each call that has begun."""
    while True:
        calls = _streams(device, place)
        if all(messages[-1]["phase"] in TERMINAL for messages in calls.values()):
            return calls
        await device.line.until("tool.stream")


def _phases(calls: dict[str, list[Message]]) -> list[list[str]]:
    return [[message["phase"] for message in messages] for messages in calls.values()]


@scenario(
    must("server.streams.every-call", "§7.5", "every call has a stream"),
    must("server.streams.one-terminal", "§7.5", "every call has exactly one terminal phase"),
    must("server.streams.complete-arguments", "§7.5", "arguments-complete carries the arguments of the call"),
    must("server.streams.deltas-make-arguments", "§7.5", "the fragments are the JSON text of the arguments"),
    must(
        "server.streams.settled-tells-code",
        "§7.5",
        "settled tells whether the call succeeded and, if not, its code",
    ),
)
async def device_tools(server: Server, sheet: Sheet) -> None:
    server.needs("call", "stream")
    async with streaming(server) as device:
        _in_effect(device, STREAMS)
        for words, result in (
            ("call", {"ok": True, "output": "a"}),
            ("stream", {"ok": True, "output": None}),
            ("call", {"ok": False, "code": "REJECTED", "message": "no"}),
        ):
            place = device.line.skip()
            turn = await device.begin(words)
            call = await device.line.until("tool.call")
            await device.result(call, **result)
            await device.finish(turn)
            device.line.rewind(place)
            stream = (await _settled(device, place)).get(call["callId"], [])
            sheet.settle("server.streams.every-call", bool(stream), f"none for {shown(call)}")
            ends = [one for one in stream if one["phase"] in TERMINAL]
            sheet.settle("server.streams.one-terminal", len(ends) == 1, f"{words}: {_phases({'': stream})}")
            complete = [one["arguments"] for one in stream if one["phase"] == "arguments-complete"]
            told = f"{shown(complete)} for {shown(call['arguments'])}"
            sheet.settle("server.streams.complete-arguments", complete == [call["arguments"]], told)
            text = "".join(one["delta"] for one in stream if one["phase"] == "arguments-delta")
            if text:
                sheet.settle(
                    "server.streams.deltas-make-arguments", _is_json(text, call["arguments"]), shown(text)
                )
            if ends:
                right = (ends[0]["phase"], ends[0].get("ok"), ends[0].get("code"))
                wanted = ("settled", result["ok"], result.get("code"))
                sheet.settle(
                    "server.streams.settled-tells-code", right == wanted, f"{shown(result)}: {shown(ends[0])}"
                )


def _is_json(text: str, value: object) -> bool:
    try:
        read: object = json.loads(text)
    except ValueError:
        return False
    return read == value


@scenario(
    must(
        "server.streams.cancelled-by-interrupt",
        "§7.5",
        "the calls of an interrupted turn are cancelled, each once",
    ),
    must(
        "server.streams.failed-when-not-issued",
        "§7.5",
        "a call that the model gave up ends with failed, and is not sent",
    ),
)
async def given_up(server: Server, sheet: Sheet) -> None:
    server.needs("calls", "broken")
    async with streaming(server) as device:
        _in_effect(device, STREAMS)
        turn = await device.begin("calls")
        for _ in range(3):
            await device.line.until("tool.call")
        await device.send("interrupt", epoch=turn["epoch"], reason="user")
        await device.line.until("interrupted")
        device.line.rewind(0)
        calls = await _settled(device, 0)
        ends = [[phase for phase in phases if phase in TERMINAL] for phases in _phases(calls)]
        sheet.settle(
            "server.streams.cancelled-by-interrupt", ends == [["cancelled"]] * 3, f"{_phases(calls)}"
        )
        place = device.line.skip()
        await device.ask("broken")
        device.line.rewind(place)
        calls = await _settled(device, place)
        ends = [phases[-1:] for phases in _phases(calls)]
        called = device.line.seen("tool.call", since=place)
        right = ends == [["failed"]] and not called
        sheet.settle(
            "server.streams.failed-when-not-issued", right, f"{_phases(calls)}, called: {shown(called)}"
        )


@scenario(
    must("server.streams.own-tools", "§7.5", "a tool of the server's own has a stream, progress and one end"),
    must("server.streams.settled-without-output", "§7.5", "the output of a server tool is never included"),
)
async def own_tools(server: Server, sheet: Sheet) -> None:
    server.needs("work")
    async with streaming(server) as device:
        _in_effect(device, STREAMS)
        await device.ask("work")
        device.line.rewind(0)
        calls = await _settled(device, 0)
        phases = [[phase for phase in one if phase != "arguments-delta"] for one in _phases(calls)]
        right = len(phases) == 1 and (phases[0][:2], phases[0][-1]) == (
            ["start", "arguments-complete"],
            "settled",
        )
        right = right and set(phases[0][2:-1]) == {"progress"} and not device.line.seen("tool.call")
        sheet.settle("server.streams.own-tools", right, f"{phases}")
        outputs = [
            one for messages in calls.values() for one in messages if "output" in one or "result" in one
        ]
        sheet.settle("server.streams.settled-without-output", not outputs, shown(outputs))


@scenario(
    must("server.resume.identifiers-kept", "§6.3", "a call that is resent has the same callId and turnId")
)
async def identifiers_kept(server: Server, sheet: Sheet) -> None:
    server.needs("call")
    async with streaming(server) as device:
        _in_effect(device, GLOBAL_IDS)
        await device.begin("call")
        call = await device.line.until("tool.call")
        device.cut()
        await device.resume(resumeFrom=call["seq"] - 1)
        again = await device.line.until("tool.call")
        same = (again["callId"], again["turnId"]) == (call["callId"], call["turnId"])
        sheet.settle("server.resume.identifiers-kept", same, f"{shown(call)}, then {shown(again)}")


@scenario(
    should("server.turns.turn-id-length", "§6.3", "a turnId has about 122 random bits"),
    should("server.tools.call-id-length", "§6.3", "a callId has about 122 random bits"),
)
async def identifiers(server: Server, sheet: Sheet) -> None:
    server.needs("call")
    async with streaming(server) as device:
        _in_effect(device, GLOBAL_IDS)
        for _ in range(ENOUGH):
            turn = await device.begin("call")
            await device.result(await device.line.until("tool.call"))
            await device.finish(turn)
        calls = device.line.seen("tool.call")
        for member, check in (
            ("turnId", "server.turns.turn-id-length"),
            ("callId", "server.tools.call-id-length"),
        ):
            ids = [call[member] for call in calls]
            bits = random_bits(ids)
            sheet.settle(check, bits >= WANTED_BITS, f"about {bits} bits: {shown(ids[:3])}")
