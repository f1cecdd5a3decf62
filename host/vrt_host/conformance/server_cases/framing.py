"""Frames, directions, versions, and what is too much (vRT §2, §3.1, §9.1, §11)."""

from __future__ import annotations

import json
from typing import Any

from vrt_host.conformance.checks import Sheet, Unmet, must, should, shown
from vrt_host.conformance.client import ECHO, Server
from vrt_host.conformance.run import scenario
from vrt_host.protocol import wire
from vrt_host.protocol.wire import Message

LATER: Message = {"later": {"x": [1, {"y": None}], "": 0}, "toString": 1, "__proto__": None}
"""Members of no revision, at some depth."""
MANY = 400
"""Tools in one hello."""
DEEP = 100_000
"""Levels of nesting."""
USUAL_BYTES, MOST_BYTES = 1 << 20, 1 << 24
"""Of a frame, for servers that announce nothing, and the most that is tried."""


@scenario(
    must("server.framing.fragments", "§2.1", "a message may come in several WebSocket fragments"),
    must("server.framing.not-utf-8", "§2.1", "a text frame that is not UTF-8 ends the connection (RFC 6455)"),
)
async def frames(server: Server, sheet: Sheet) -> None:
    async with server.session(pings=False) as device:
        await device.line.text(['{"v":1,"seq":', '0,"type":"pi', 'ng"}'])
        await sheet.holds("server.framing.fragments", device.line.until("pong"))
    async with server.line() as line:
        await line.text(b'{"v":1,"seq":0,"type":"ping","x":"\xff"}')
        await sheet.holds("server.framing.not-utf-8", line.until_closed())


@scenario(
    must("server.framing.unknown-members-ignored", "§2.2", "unknown members, at any depth, change nothing")
)
async def unknown_members(server: Server, sheet: Sheet) -> None:
    server.needs("count")
    async with server.session(tools=[{**ECHO, **LATER}], **LATER) as device:
        await device.send("context", context={"a": 1}, **LATER)
        await device.send("text", text="test count", **LATER)
        text = await sheet.holds("server.framing.unknown-members-ignored", device.line.until("text", "error"))
        ok = text is not None and text.get("text") == "1"
        sheet.settle(
            "server.framing.unknown-members-ignored", ok, f"'test count' was answered with {shown(text)}"
        )


@scenario(must("server.errors.type-of-other-direction", "§2.3", "the server's own types are unknown to it"))
async def directions(server: Server, sheet: Sheet) -> None:
    folder = wire.schema_folder()
    mine = {path.stem for path in folder.glob("client/*.json")}
    async with server.session() as device:
        for path in sorted(folder.glob("server/*.json")):
            if path.stem in mine:
                continue
            example = json.loads(path.read_text("utf-8"))["examples"][0]
            await device.line.text(json.dumps({**example, "seq": 1}))
            await sheet.holds(
                "server.errors.type-of-other-direction", device.line.until("error", code="UNKNOWN_TYPE")
            )


@scenario(
    must(
        "server.sessions.other-version-refused",
        "§3.1",
        "a hello of another version is answered UNSUPPORTED_VERSION",
    ),
    must(
        "server.sessions.no-session-for-other-version",
        "§3.1",
        "a hello of another version opens no session; one of version 1 does after it",
    ),
)
async def versions(server: Server, sheet: Sheet) -> None:
    async with server.line() as line:
        await line.text(json.dumps({"v": 2, "seq": 0, "type": "hello", **server.credential}))
        answer = await line.until("ready", "error")
        refused = answer.get("code") == "UNSUPPORTED_VERSION" and answer["v"] == 1 and answer["seq"] == 0
        sheet.settle("server.sessions.other-version-refused", refused, shown(answer))
        await line.send({"v": 1, "seq": 0, "type": "hello", **server.credential})
        answers = [await line.until("ready", "error")]
        await line.sync()
        opened = line.seen("ready")
        once = len(opened) == 1 and answer["type"] != "ready"
        sheet.settle(
            "server.sessions.no-session-for-other-version",
            once,
            f"{len(opened)} sessions; {shown(answers[0])}",
        )


@scenario(
    must("server.errors.invalid-not-acted-on", "§9.1", "an invalid message has no effect"),
    must("server.errors.invalid-survived", "§9.1", "a session goes on after invalid messages"),
)
async def invalid_messages_in_a_session(server: Server, sheet: Sheet) -> None:
    """Their numbers are those that come next: whether they count is left open, and a gap is no reason to stop."""
    server.needs("count", "call", "context")
    async with server.session(tools=[ECHO]) as device:
        await device.send("context", context="before")
        turn = await device.begin("call")
        call = await device.line.until("tool.call")
        for message in (
            {"type": "text", "text": ["test text"]},
            {"type": "interrupt", "epoch": turn["epoch"], "reason": "because"},
            {"type": "context"},
            {
                "type": "tool.result",
                "callId": call["callId"],
                "epoch": turn["epoch"],
                "ok": False,
                "code": "NO",
            },
        ):
            device.seq += 1
            await device.line.text(json.dumps({"v": 1, "seq": device.seq, **message}))
            await device.line.until("error", code="INVALID_FIELD")
        await device.result(call)
        done = await sheet.holds("server.errors.invalid-survived", device.finish(turn))
        if done is None:
            raise Unmet("the session did not go on")
        count, context = await device.ask("count"), await device.ask("context")
        acted = device.line.seen("interrupted")
        ok = done == "done" and (count, context) == ("2", '"before"') and not acted
        sheet.settle(
            "server.errors.invalid-not-acted-on",
            ok,
            f"{done!r}, {count} texts, context {context}, {len(acted)} interrupted",
        )


@scenario(
    should(
        "server.errors.too-large-answered",
        "§11",
        "a message that is too big is answered or ends the connection",
    ),
    should(
        "server.audio.too-large-answered",
        "§11",
        "an audio frame that is too big is answered or ends the connection",
    ),
    should(
        "server.errors.too-deep-answered",
        "§11",
        "a message that nests too deeply is answered or ends the connection",
    ),
    should("server.sessions.many-tools-answered", "§11", "a hello with very many tools is answered"),
    must("server.errors.too-much-survived", "§9.1", "what is too much does not bring the server down"),
)
async def too_much(server: Server, sheet: Sheet) -> None:
    """What is not refused has to be handled, and so acknowledged; of audio nothing is heard but the next pong."""
    async with server.session() as device:
        limits = device.ready.get("limits")
        text = "x" * (1000 + _limit(limits, "messageBytes"))
        await device.line.text(json.dumps({"v": 1, "seq": 1, "type": "context", "context": text}))
        await sheet.holds("server.errors.too-large-answered", device.line.outcome("error", "ack"))
    async with server.session() as device:
        await device.line.audio(0, bytes(1000 + _limit(limits, "audioBytes")))
        await device.line.send({"v": 1, "seq": 0, "type": "ping"})
        await sheet.holds("server.audio.too-large-answered", device.line.outcome("error", "pong"))
    async with server.session() as device:
        deep = "[" * DEEP + "]" * DEEP
        await device.line.text('{"v":1,"seq":1,"type":"context","context":' + deep + "}")
        await sheet.holds("server.errors.too-deep-answered", device.line.outcome("error", "ack"))
    async with server.line() as line:
        tools = [{"name": f"tool-{number}"} for number in range(MANY)]
        await line.send({"v": 1, "seq": 0, "type": "hello", **server.credential, "tools": tools})
        await sheet.holds("server.sessions.many-tools-answered", line.until("ready", "error"))
    async with server.line() as line:
        await line.send({"v": 1, "seq": 0, "type": "hello", **server.credential})
        await sheet.holds("server.errors.too-much-survived", line.until("ready"))


def _limit(limits: Any, member: str) -> int:
    """What the server announces, as far as it can be; a greater one than we can try counts as ours."""
    told = limits.get(member) if isinstance(limits, dict) else None
    if not isinstance(told, (int, float)) or not 0 < told <= MOST_BYTES:
        return USUAL_BYTES
    return int(told)
