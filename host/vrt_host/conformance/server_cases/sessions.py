"""Opening a session: the table of §5.1, hello and ready (§5.2), capabilities (§3.3), context (§5.5)."""

from __future__ import annotations

import json
import uuid

from vrt_host.conformance.checks import Sheet, may, must, should, shown
from vrt_host.conformance.client import ECHO, Server
from vrt_host.conformance.line import Closed
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server_cases.ids import ENOUGH, LEAST_BITS, WANTED_BITS, random_bits
from vrt_host.protocol import wire
from vrt_host.protocol.wire import Message

PING: Message = {"v": 1, "seq": 0, "type": "ping"}
STREAMS, GLOBAL_IDS = "tool-stream-v1", "global-tool-ids-v1"
NOBODY_S = "x-nobody-knows.this-1"


def hello(server: Server, **members: object) -> Message:
    """A hello with the credential."""
    return {"v": 1, "seq": 0, "type": "hello", **server.credential, **members}


@scenario(
    must("server.sessions.ping-before-hello", "§4.4", "a ping before hello is answered"),
    must(
        "server.sessions.no-session-before-hello",
        "§5.1",
        "another message before hello is answered NO_SESSION, seq 0",
    ),
    must("server.sessions.audio-before-hello", "§5.1", "audio before hello is ignored"),
    must(
        "server.sessions.invalid-before-hello",
        "§5.1",
        "an invalid message before hello is answered with its code",
    ),
    must(
        "server.sessions.hello-after-no-session",
        "§5.1",
        "after all that, hello opens a session on the same connection",
    ),
)
async def before_hello(server: Server, sheet: Sheet) -> None:
    early: tuple[Message, ...] = (
        {"seq": 1, "type": "text", "text": "test text"},
        {"seq": 2, "type": "interrupt", "epoch": 1, "reason": "user"},
        {"seq": 3, "type": "playback", "itemId": "i", "playedMs": 1},
        {"seq": 4, "type": "tool.result", "callId": "c", "epoch": 1, "ok": True, "output": None},
        {"seq": 5, "type": "context", "context": "early"},
        {"seq": 0, "type": "ack", "upTo": 0},
    )
    async with server.line() as line:
        await line.send(PING)
        await sheet.holds("server.sessions.ping-before-hello", line.until("pong"))
        for message in early:
            await line.text(json.dumps({"v": 1, **message}))
            error = await sheet.holds("server.sessions.no-session-before-hello", line.until("error"))
            right = error is not None and (error.get("code"), error["seq"]) == ("NO_SESSION", 0)
            sheet.settle(
                "server.sessions.no-session-before-hello", right, f"{shown(message)}: {shown(error)}"
            )
        place = line.place
        await line.audio(0, bytes(160))
        await line.text("[]")
        malformed = await sheet.holds(
            "server.sessions.invalid-before-hello", line.until("error", code="MALFORMED", recoverable=True)
        )
        errors = line.seen("error", since=place)
        ignored = (
            malformed is not None and len(errors) < 2
        )  # what is not answered at all was not seen to be ignored
        sheet.settle("server.sessions.audio-before-hello", ignored, f"then came {shown(errors)}")
        await line.send(hello(server))
        await sheet.holds("server.sessions.hello-after-no-session", line.until("ready"))


@scenario(
    must("server.sessions.ping-while-opening", "§4.4", "a ping right behind hello is answered"),
    must(
        "server.sessions.kept-while-opening",
        "§5.1",
        "messages that come before ready are handled after it, in order",
    ),
)
async def right_behind_hello(server: Server, sheet: Sheet) -> None:
    async with server.line() as line:
        await line.send(hello(server, context=0))
        for seq in range(1, 9):
            await line.send({"v": 1, "seq": seq, "type": "context", "context": seq})
        await line.send({"v": 1, "seq": 9, "type": "text", "text": "test context"})
        await sheet.holds("server.sessions.ping-while-opening", line.sync())
        server.needs("context")
        text = await line.until("text")
        sheet.settle(
            "server.sessions.kept-while-opening", text["text"] == "8", f"expected context 8: {shown(text)}"
        )


@scenario(
    must(
        "server.sessions.duplicate-hello-while-opening",
        "§5.1",
        "a hello right behind the first is answered DUPLICATE_HELLO",
    ),
    must("server.sessions.duplicate-hello", "§5.1", "a hello in an open session is answered DUPLICATE_HELLO"),
    must("server.sessions.duplicate-hello-harmless", "§5.1", "a second hello changes nothing in the session"),
)
async def second_hello(server: Server, sheet: Sheet) -> None:
    async with server.line() as line:
        await line.send(hello(server))
        await line.send(hello(server))
        duplicate = line.until("error", code="DUPLICATE_HELLO", recoverable=True)
        await sheet.holds("server.sessions.duplicate-hello-while-opening", duplicate)
        if not line.seen("ready"):
            await line.until("ready")
        place = line.place
        await line.send(hello(server, sessionId=str(uuid.uuid4())))
        answer = await line.until("error")
        right = answer["code"] == "DUPLICATE_HELLO" and answer["recoverable"] and answer["seq"] > 0
        sheet.settle("server.sessions.duplicate-hello", right, shown(answer))
        await line.send({"v": 1, "seq": 1, "type": "context", "context": None})
        await line.sync()
        harm = line.seen("ready", "error", since=place)[1:] or line.closed
        sheet.settle("server.sessions.duplicate-hello-harmless", not harm, shown(harm))


@scenario(
    must(
        "server.sessions.start-failed",
        "§5.1",
        "START_FAILED with seq 0 and close 1011, when a session cannot start",
    )
)
async def start_failed(server: Server, sheet: Sheet) -> None:
    server.needs("refuse")
    async with server.line() as line:
        await line.send(hello(server, context="test refuse"))
        answer = await line.until("ready", "error")
        closed = None if answer["type"] == "ready" else await line.until_closed()
        right = (answer.get("code"), answer.get("recoverable"), answer["seq"]) == ("START_FAILED", False, 0)
        right &= isinstance(closed, Closed) and closed.code == 1011
        sheet.settle("server.sessions.start-failed", right, f"{shown(answer)}, then {closed}")


@scenario(
    must("server.sessions.opens", "§5.2", "a hello without sessionId opens a session"),
    must(
        "server.sessions.ready-without-resumed-from",
        "§5.2",
        "resumedFrom is absent unless the session is resumed",
    ),
    must("server.sessions.session-ids-unguessable", "§5.2", "session ids cannot be guessed"),
    should("server.sessions.session-id-length", "§5.2", "session ids have about 122 random bits"),
)
async def session_ids(server: Server, sheet: Sheet) -> None:
    ids = []
    for _ in range(ENOUGH):
        async with server.line() as line:
            await line.send(hello(server))
            ready = await sheet.holds("server.sessions.opens", line.until("ready"))
            if ready is not None:
                ids.append(ready["sessionId"])
                sheet.settle(
                    "server.sessions.ready-without-resumed-from", "resumedFrom" not in ready, shown(ready)
                )
    bits = random_bits(ids)
    told = f"about {bits} bits: {shown(ids[:3])}"
    sheet.settle("server.sessions.session-ids-unguessable", bits >= LEAST_BITS, told)
    sheet.settle("server.sessions.session-id-length", bits >= WANTED_BITS, told)


@scenario(
    must(
        "server.sessions.capabilities-of-the-offer",
        "§3.3",
        "capabilities in effect are offered ones, each once",
    ),
    must("server.sessions.unknown-capability-ignored", "§3.3", "a token that nobody knows is ignored"),
    must(
        "server.sessions.registered-capabilities", "§3.4", "a token in effect is registered, or a private one"
    ),
    must("server.sessions.no-capability-without-offer", "§3.3", "without an offer none are in effect"),
    must(
        "server.resume.capabilities-repeated",
        "§3.3",
        "a resumed ready repeats the set; what a resuming hello offers is ignored",
    ),
    may("server.streams.supported", "§7.5", "the server supports tool-stream-v1"),
    may("server.tools.global-ids-supported", "§6.3", "the server supports global-tool-ids-v1"),
)
async def capabilities(server: Server, sheet: Sheet) -> None:
    path = wire.schema_folder() / "capabilities.json"
    registered = {entry["token"] for entry in json.loads(path.read_text("utf-8"))["capabilities"]}
    offered = [STREAMS, NOBODY_S, GLOBAL_IDS, "nobody.knows-this", STREAMS]
    async with server.session(capabilities=offered) as device:
        effect = device.ready.get("capabilities", [])
        right = set(effect) <= set(offered) and len(set(effect)) == len(effect)
        sheet.settle("server.sessions.capabilities-of-the-offer", right, shown(device.ready))
        sheet.settle(
            "server.sessions.unknown-capability-ignored", NOBODY_S not in effect, shown(device.ready)
        )
        unregistered = [token for token in effect if not (token in registered or token.startswith("x-"))]
        sheet.settle("server.sessions.registered-capabilities", not unregistered, shown(unregistered))
        for token, check in (
            (STREAMS, "server.streams.supported"),
            (GLOBAL_IDS, "server.tools.global-ids-supported"),
        ):
            sheet.settle(check, token in effect)
        device.cut()
        resumed = (await device.resume(capabilities=[])).get("capabilities", [])
        sheet.settle(
            "server.resume.capabilities-repeated",
            sorted(resumed) == sorted(effect),
            f"{effect}, then {resumed}",
        )
    async with server.session() as device:
        effect = device.ready.get("capabilities", [])
        sheet.settle("server.sessions.no-capability-without-offer", not effect, shown(device.ready))
        device.cut()
        resumed = (await device.resume(capabilities=offered)).get("capabilities", [])
        sheet.settle("server.resume.capabilities-repeated", not resumed, f"none, then {resumed}")


@scenario(
    must("server.sessions.context-of-hello", "§5.5", "hello.context is the first context"),
    must(
        "server.sessions.context-in-order", "§5.5", "each context message replaces the one before, in order"
    ),
    must("server.sessions.context-cleared", "§5.5", "null clears it"),
)
async def context(server: Server, sheet: Sheet) -> None:
    server.needs("context")
    async with server.session(context={"doc": 1}) as device:
        first = await device.ask_json("context")
        sheet.settle("server.sessions.context-of-hello", first == {"doc": 1}, f"it is {shown(first)}")
        for number in range(10):
            await device.send("context", context=[number])
        last = await device.ask_json("context")
        sheet.settle("server.sessions.context-in-order", last == [9], f"expected [9], got {shown(last)}")
        await device.send("context", context=None)
        none = await device.ask_json("context")
        sheet.settle("server.sessions.context-cleared", none is None, f"it is {shown(none)}")
    async with server.session() as device:
        none = await device.ask_json("context")
        sheet.settle("server.sessions.context-of-hello", none is None, f"without one it is {shown(none)}")


@scenario(
    should("server.sessions.bad-tool-declined", "§5.2", "a tool that cannot be used is declined alone"),
    must("server.tools.undeclared-not-called", "§7.1", "a tool that was not declared is never called"),
)
async def tools(server: Server, sheet: Sheet) -> None:
    async with server.line() as line:
        odd = {"name": "no tool could have\nthis name", "parameters": {"type": "nonsense"}}
        await line.send(hello(server, tools=[odd, ECHO]))
        await sheet.holds("server.sessions.bad-tool-declined", line.until("ready"))
    server.needs("call")
    async with server.session(tools=[]) as device:
        end = await device.begin("call")
        while end["type"] == "turn.state" and end["state"] != "idle":
            end = await device.line.until("turn.state", "tool.call")
        sheet.settle("server.tools.undeclared-not-called", end["type"] == "turn.state", shown(end))
