"""Resuming a session (vRT §5.4), and what ends one (§5.6)."""

from __future__ import annotations

import uuid

from vrt_host.conformance.checks import Sheet, may, must, shown
from vrt_host.conformance.client import ECHO, Closed, Device, Server
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server_cases.sound import PCM16, PCMU, until_sound
from vrt_host.protocol.wire import Message

ROUND_TRIPS = 5
"""After which a server has noticed that another connection is gone."""


async def refused(device: Device, **members: object) -> tuple[Message, Closed | None]:
    """A resume that has to fail: the RESUME_FAILED, before or after `ready`, and how the connection ends."""
    answer = await device.rejoin(resend=False, **members)
    if answer["type"] == "ready":
        answer = await device.line.until("error")
    return answer, None if answer["code"] != "RESUME_FAILED" else await device.line.until_closed()


def is_refusal(answer: Message, closed: Closed | None) -> bool:
    """Whether it failed as it should."""
    failed = (answer["code"], answer["recoverable"]) == ("RESUME_FAILED", False)
    return failed and closed is not None and closed.code == 4404


@scenario(
    must("server.resume.absent", "§5.4", "without resumeFrom everything is resent, from seq 1"),
    must("server.resume.partial", "§5.4", "what is above resumeFrom is resent, and nothing else"),
    must("server.resume.nothing-missed", "§5.4", "when nothing was missed, nothing is resent"),
    must("server.resume.resumed-from", "§5.4", "resumedFrom is the last seq that the server handled"),
)
async def resends(server: Server, sheet: Sheet) -> None:
    """The watch compares what comes again, and its numbers, with what came before."""
    server.needs("text")
    async with server.session() as device:
        await device.ask("text")
        await device.ask("text")
        await device.acknowledged()
        for check, part in (
            ("server.resume.absent", 0.0),
            ("server.resume.partial", 0.5),
            ("server.resume.nothing-missed", 1.0),
        ):
            device.cut()
            resume_from = int(part * device.last)
            ready = await device.resume(resumeFrom=resume_from or None)
            right = ready["resumedFrom"] == device.seq
            sheet.settle("server.resume.resumed-from", right, f"handled {device.seq}: {shown(ready)}")
            await device.ask("text")
            came = [one["seq"] for one in device.line.frames if isinstance(one, dict) and one["seq"]]
            wanted = list(range(resume_from + 1, device.last + 1))
            sheet.settle(check, came == wanted, f"resumeFrom {resume_from or 'absent'}: {came} came")
            await device.acknowledged()


@scenario(
    must("server.resume.unknown", "§5.4", "a resume of an unknown session: RESUME_FAILED, seq 0, close 4404"),
    must("server.resume.unknown-opens-nothing", "§5.4", "... and no ready"),
)
async def unknown_session(server: Server, sheet: Sheet) -> None:
    for session in (str(uuid.uuid4()), "x", "\N{LOCK}" * 256):
        async with server.line() as line:
            hello = {"v": 1, "seq": 0, "type": "hello", **server.credential, "sessionId": session}
            await line.send(hello)
            answer = await line.until("error")
            closed = await line.until_closed()
            right = is_refusal(answer, closed) and answer["seq"] == 0
            sheet.settle("server.resume.unknown", right, f"{shown(answer)}, then {closed}")
            sheet.settle("server.resume.unknown-opens-nothing", not line.seen("ready"), "ready came")


@scenario(
    must("server.resume.ahead", "§5.4", "a resumeFrom that was never sent: RESUME_FAILED, close 4404"),
    must("server.resume.ahead-ends-session", "§5.4", "... and the session is closed"),
    must("server.resume.ahead-ends-older", "§5.4", "... with the connection that it had"),
)
async def ahead(server: Server, sheet: Sheet) -> None:
    async with server.session() as device:
        older = device.line
        answer, closed = await refused(device, resumeFrom=device.last + 1)
        sheet.settle("server.resume.ahead", is_refusal(answer, closed), f"{shown(answer)}, then {closed}")
        answer, closed = await refused(device)
        sheet.settle(
            "server.resume.ahead-ends-session", is_refusal(answer, closed), f"{shown(answer)}, {closed}"
        )
        await sheet.holds("server.resume.ahead-ends-older", older.until_closed())


@scenario(
    must(
        "server.resume.discarded",
        "§5.4",
        "a resume from below an ack resends everything, or is RESUME_FAILED",
    ),
    must("server.resume.discarded-ends-session", "§5.4", "... in which case the session is closed"),
)
async def discarded(server: Server, sheet: Sheet) -> None:
    server.needs("text")
    async with server.session() as device:
        await device.ask("text")
        await device.ack()
        await device.line.sync()
        device.cut()
        last = device.last
        answer = await device.rejoin(resumeFrom=0)
        if answer["type"] == "ready":
            end = await device.line.until("error", "turn.state")
            while end["type"] != "error" and end["seq"] < last:
                end = await device.line.until("error", "turn.state")
            if end["type"] == "turn.state":
                came = [one["seq"] for one in device.line.frames if isinstance(one, dict) and one["seq"]]
                sheet.settle(
                    "server.resume.discarded", came[:last] == list(range(1, last + 1)), f"{came} came"
                )
                sheet.not_testable(
                    "server.resume.discarded-ends-session", "the server keeps what was acknowledged"
                )
                return
            answer = end
        end_of_it = await device.line.until_closed()
        told = f"{shown(answer)}, then {end_of_it}"
        sheet.settle("server.resume.discarded", is_refusal(answer, end_of_it), told)
        answer, closed = await refused(device)
        right = is_refusal(answer, closed)
        sheet.settle("server.resume.discarded-ends-session", right, f"{shown(answer)}, then {closed}")


@scenario(
    must(
        "server.resume.replaces",
        "§5.4",
        "a resume of a connected session closes the older connection with 4000",
    ),
    must("server.resume.late-close", "§5.4", "the end of the older connection does not touch the session"),
)
async def replaced(server: Server, sheet: Sheet) -> None:
    """The second time the older connection does not answer the close, and is lost after the new one is at work."""
    server.needs("text")
    async with server.session() as device:
        older = device.line
        await device.resume()
        closed = await sheet.holds("server.resume.replaces", older.until_closed())
        if closed is not None:
            sheet.settle("server.resume.replaces", closed.code == 4000, f"closed with {closed}")
        older = device.line
        older.pause(True)
        await device.resume()
        await device.ask("text")
        older.cut()
        for _ in range(ROUND_TRIPS):
            await device.line.sync()
        await sheet.holds("server.resume.late-close", device.ask("text"))


@scenario(
    must(
        "server.resume.client-duplicates",
        "§5.4",
        "what a client resends and the server has handled is ignored",
    ),
    must("server.resume.exactly-once", "§5.4", "across cuts each message is handled exactly once, in order"),
)
async def client_stream(server: Server, sheet: Sheet) -> None:
    server.needs("text", "count", "context")
    async with server.session() as device:
        await device.ask("text")
        device.cut()
        await device.resume(resend=False)
        for message in device.sent:
            await device.line.send(message)
        count = await device.ask("count")
        sheet.settle("server.resume.client-duplicates", count == "2", f"2 texts were sent, {count} handled")
        for number in range(5):
            for part in range(3):
                await device.send("context", context=[number, part])
            await device.send("text", text="test text")
            device.cut()
            await device.resume()
        context, count = await device.ask_json("context"), await device.ask("count")
        told = f"context {shown(context)} instead of [4, 2], {count} texts instead of 9"
        sheet.settle("server.resume.exactly-once", (context, count) == ([4, 2], "9"), told)


@scenario(
    must("server.resume.call-resent", "§5.4", "a call that the device did not get is resent"),
    must("server.resume.pending-call", "§5.4", "a pending call is carried over, and takes its result"),
)
async def pending_call(server: Server, sheet: Sheet) -> None:
    server.needs("call", "outcome")
    async with server.session(tools=[ECHO]) as device:
        turn = await device.begin("call")
        call = await device.line.until("tool.call")
        device.cut()
        await device.resume(resumeFrom=call["seq"] - 1)
        again = await sheet.holds("server.resume.call-resent", device.line.until("tool.call"))
        if again is not None:
            sheet.settle("server.resume.call-resent", again == call, f"{shown(call)}, then {shown(again)}")
        device.cut()
        await device.result(call)
        await device.resume()
        await device.line.until("turn.state", turnId=turn["turnId"], state="idle")
        outcome = await device.ask("outcome")
        sheet.settle("server.resume.pending-call", outcome == 'ok "a"', f"the outcome is {outcome!r}")


@scenario(
    must("server.resume.formats", "§5.4", "the formats carry over; what a resuming hello prefers is ignored"),
    must("server.resume.tools", "§5.4", "tools are those declared when the session opened"),
    must("server.resume.epoch", "§5.4", "the epoch carries over"),
)
async def carried_over(server: Server, sheet: Sheet) -> None:
    server.needs("call")
    async with server.session(tools=[ECHO], input=PCMU, output=PCMU) as device:
        turn = await device.begin("call")
        await device.result(await device.line.until("tool.call"))
        await device.finish(turn)
        device.cut()
        ready = await device.resume(tools=[], input=PCM16, output=PCM16)
        same = all(ready[name] == device.ready[name] for name in ("input", "output"))
        sheet.settle("server.resume.formats", same, f"{shown(device.ready)}, then {shown(ready)}")
        again = await device.begin("call")
        higher = again["epoch"] > turn["epoch"]
        sheet.settle("server.resume.epoch", higher, f"{shown(turn)}, then {shown(again)}")
        await sheet.holds("server.resume.tools", device.line.until("tool.call"))


@scenario(
    may(
        "server.resume.audio-goes-on",
        "§5.4",
        "the rest of an item goes on after a resume, under a new audio.start",
    )
)
async def audio_after_resume(server: Server, sheet: Sheet) -> None:
    server.needs("long")
    async with server.session() as device:
        await device.begin("long")
        await until_sound(device, 100)
        device.cut()
        await device.resume()
        await sheet.holds("server.resume.audio-goes-on", device.line.until_audio())


@scenario(
    must("server.sessions.parks", "§5.6", "a connection that closes normally leaves its session resumable"),
)
async def closed_connection(server: Server, sheet: Sheet) -> None:
    async with server.session() as device:
        await device.line.close(1000)
        await sheet.holds("server.sessions.parks", device.resume())


@scenario(
    must(
        "server.sessions.ends",
        "§9.2",
        "after an error that is not recoverable the server closes the connection",
    ),
    must("server.sessions.ended", "§5.4", "a session that the server closed cannot be resumed"),
)
async def ended_session(server: Server, sheet: Sheet) -> None:
    server.needs("end")
    async with server.session() as device:
        await device.send("text", text="test end")
        await device.line.until("error", recoverable=False)
        await sheet.holds("server.sessions.ends", device.line.until_closed())
        answer, closed = await refused(device)
        sheet.settle("server.sessions.ended", is_refusal(answer, closed), f"{shown(answer)}, then {closed}")


@scenario(must("server.errors.recoverable-goes-on", "§9.2", "after a recoverable error the session goes on"))
async def recoverable_error(server: Server, sheet: Sheet) -> None:
    server.needs("error", "text")
    async with server.session() as device:
        turn = await device.begin("error")
        if not device.line.seen("error"):
            await device.line.until("error", recoverable=True)
        device.line.rewind(0)
        await device.finish(turn)
        await sheet.holds("server.errors.recoverable-goes-on", device.ask("text"))
