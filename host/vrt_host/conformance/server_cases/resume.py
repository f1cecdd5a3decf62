"""Resuming a session (vRT §5.4), and what ends one (§5.6)."""

from __future__ import annotations

import contextlib
import uuid

from vrt_host.conformance.checks import NotTestable, Sheet, Unmet, may, must, shown
from vrt_host.conformance.client import ECHO, Device, Server
from vrt_host.conformance.line import Closed
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
    failed = (answer.get("code"), answer.get("recoverable")) == ("RESUME_FAILED", False)
    return failed and closed is not None and closed.code == 4404


@scenario(
    must(
        "server.resume.unacknowledged-resent",
        "§5.4",
        "what was never acknowledged is resent from seq 1 when resumeFrom is absent",
    ),
    must(
        "server.resume.resends-in-order",
        "§5.4",
        "what is above resumeFrom is resent in order, and nothing else",
    ),
    must("server.resume.nothing-missed", "§5.4", "when nothing was missed, nothing is resent"),
    must("server.resume.seq-continues", "§4.1", "the first new message after a resume has the next seq"),
    must("server.resume.resumed-from-last", "§5.4", "resumedFrom is the last seq that the server handled"),
)
async def resends(server: Server, sheet: Sheet) -> None:
    """The watch compares what comes again, and its numbers, with what came before."""
    server.needs("text")
    async with server.session() as device:
        await device.ask("text")
        await device.ask("text")
        for check, part in (
            ("server.resume.unacknowledged-resent", 0.0),
            ("server.resume.resends-in-order", 0.5),
            ("server.resume.nothing-missed", 1.0),
        ):
            device.cut()
            last = device.last
            resume_from = int(part * last)
            ready = await device.resume(resumeFrom=resume_from or None)
            right = ready["resumedFrom"] == device.seq
            sheet.settle("server.resume.resumed-from-last", right, f"handled {device.seq}: {shown(ready)}")
            await device.ask("text")
            came = [one["seq"] for one in device.line.frames if isinstance(one, dict) and one["seq"]]
            wanted = list(range(resume_from + 1, device.last + 1))
            told = f"resumeFrom {resume_from or 'absent'}: {came} came"
            sheet.settle(check, came == wanted, told)
            sheet.settle("server.resume.seq-continues", last + 1 in came, told)


@scenario(
    must(
        "server.resume.unknown-session",
        "§5.4",
        "a resume of an unknown session gets RESUME_FAILED, seq 0, and close 4404",
    ),
    must("server.resume.unknown-opens-nothing", "§5.4", "a resume of an unknown session gets no ready"),
)
async def unknown_session(server: Server, sheet: Sheet) -> None:
    for session in (str(uuid.uuid4()), "x", "\N{LOCK}" * 256):
        async with server.line() as line:
            hello = {"v": 1, "seq": 0, "type": "hello", **server.credential, "sessionId": session}
            await line.send(hello)
            answer = await line.until("ready", "error")
            closed = None if answer["type"] == "ready" else await line.until_closed()
            right = is_refusal(answer, closed) and answer["seq"] == 0
            sheet.settle("server.resume.unknown-session", right, f"{shown(answer)}, then {closed}")
            sheet.settle("server.resume.unknown-opens-nothing", not line.seen("ready"), "ready came")


@scenario(
    must(
        "server.resume.beyond-last-sent",
        "§5.4",
        "a resumeFrom beyond the last seq sent gets RESUME_FAILED and close 4404",
    ),
    must(
        "server.resume.beyond-last-ends-session",
        "§5.4",
        "a resumeFrom beyond the last seq sent closes the session",
    ),
    must(
        "server.resume.beyond-last-ends-older-connection",
        "§5.4",
        "a session closed in this way takes along the connection that it had",
    ),
)
async def ahead(server: Server, sheet: Sheet) -> None:
    async with server.session() as device:
        older = device.line
        answer, closed = await refused(device, resumeFrom=device.last + 1)
        sheet.settle(
            "server.resume.beyond-last-sent", is_refusal(answer, closed), f"{shown(answer)}, then {closed}"
        )
        answer, closed = await refused(device)
        sheet.settle(
            "server.resume.beyond-last-ends-session", is_refusal(answer, closed), f"{shown(answer)}, {closed}"
        )
        await sheet.holds("server.resume.beyond-last-ends-older-connection", older.until_closed())


@scenario(
    must(
        "server.resume.discarded-messages",
        "§5.4",
        "a resume from below an ack resends everything, or is RESUME_FAILED",
    ),
    must(
        "server.resume.discarded-ends-session",
        "§5.4",
        "a resume that fails for discarded messages closes the session",
    ),
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
                    "server.resume.discarded-messages",
                    came[:last] == list(range(1, last + 1)),
                    f"{came} came",
                )
                sheet.not_testable(
                    "server.resume.discarded-ends-session", "the server keeps what was acknowledged"
                )
                return
            answer = end
        end_of_it = await device.line.until_closed()
        told = f"{shown(answer)}, then {end_of_it}"
        sheet.settle("server.resume.discarded-messages", is_refusal(answer, end_of_it), told)
        answer, closed = await refused(device)
        right = is_refusal(answer, closed)
        sheet.settle("server.resume.discarded-ends-session", right, f"{shown(answer)}, then {closed}")


@scenario(
    must(
        "server.resume.replaces-older-connection",
        "§5.4",
        "a resume of a connected session closes the older connection with 4000",
    ),
    must(
        "server.resume.late-close-harmless",
        "§5.4",
        "the end of the older connection does not touch the session",
    ),
)
async def replaced(server: Server, sheet: Sheet) -> None:
    """The second time the older connection does not answer the close, and is lost after the new one is at work."""
    server.needs("text")
    async with server.session() as device:
        older = device.line
        await device.resume()
        closed = await sheet.holds("server.resume.replaces-older-connection", older.until_closed())
        if closed is not None:
            sheet.settle("server.resume.replaces-older-connection", closed.code == 4000, str(closed))
        older = device.line
        older.pause(True)
        await device.resume()
        await device.ask("text")
        older.cut()
        for _ in range(ROUND_TRIPS):
            await device.line.sync()
        await sheet.holds("server.resume.late-close-harmless", device.ask("text"))


@scenario(
    must(
        "server.resume.handled-once",
        "§5.4",
        "what a client resends and the server has handled is ignored",
    ),
    must(
        "server.resume.in-order-across-cuts",
        "§5.4",
        "across cuts each message is handled exactly once, in order",
    ),
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
        sheet.settle("server.resume.handled-once", count == "2", f"2 texts were sent, {count} handled")
        begun = len(device.turns) + 5
        for number in range(5):
            for part in range(3):
                await device.send("context", context=[number, part])
            await device.send("text", text="test text")
            device.cut()
            await device.resume()
        with contextlib.suppress(
            Unmet
        ):  # else a turn of these that is late would be taken for the next text's
            while len(device.turns) < begun:
                await device.line.until("turn.state")
        context, count = await device.ask_json("context"), await device.ask("count")
        told = f"context {shown(context)} instead of [4, 2], {count} texts instead of 9"
        sheet.settle("server.resume.in-order-across-cuts", (context, count) == ([4, 2], "9"), told)


@scenario(
    must("server.resume.call-resent", "§5.4", "a call that the device did not get is resent"),
    must(
        "server.resume.pending-call-carried-over",
        "§5.4",
        "a pending call is carried over, and takes its result",
    ),
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
        sheet.settle(
            "server.resume.pending-call-carried-over", outcome == 'ok "a"', f"the outcome is {outcome!r}"
        )


@scenario(
    must(
        "server.resume.formats-carried-over",
        "§5.4",
        "the formats carry over; what a resuming hello prefers is ignored",
    ),
    must("server.resume.tools-carried-over", "§5.4", "tools are those declared when the session opened"),
    must("server.resume.epoch-carried-over", "§5.4", "the epoch carries over"),
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
        sheet.settle(
            "server.resume.formats-carried-over", same, f"{shown(device.ready)}, then {shown(ready)}"
        )
        again = await device.begin("call")
        higher = again["epoch"] > turn["epoch"]
        sheet.settle("server.resume.epoch-carried-over", higher, f"{shown(turn)}, then {shown(again)}")
        await sheet.holds("server.resume.tools-carried-over", device.line.until("tool.call"))


@scenario(
    may("server.resume.audio-goes-on", "§5.4", "the rest of an item goes on after a resume"),
    must("server.resume.audio-starts-anew", "§8.3", "audio goes on after a resume with a new audio.start"),
    must("server.resume.audio-not-resent", "§8.1", "no frame of audio is sent again"),
)
async def audio_after_resume(server: Server, sheet: Sheet) -> None:
    server.needs("long")
    async with server.session() as device:
        await device.begin("long")
        await until_sound(device, 400)
        older = device.line
        device.cut()
        await device.resume()
        sent = {frame.seq for frame in older.sound()}
        if await sheet.holds("server.resume.audio-goes-on", device.line.until_audio()) is None:
            raise NotTestable("no audio came after the resume")
        first = device.line.sound()[0]
        place = device.line.frames.index(first)
        started = any(start in device.line.frames[:place] for start in device.line.seen("audio.start"))
        sheet.settle("server.resume.audio-starts-anew", started, "no audio.start came before the first frame")
        again = first.seq in sent and first.seq > 0  # a count that begins anew says nothing
        sheet.settle(
            "server.resume.audio-not-resent", not again, f"frame {first.seq} came on both connections"
        )


@scenario(
    must(
        "server.resume.parked-when-closed",
        "§5.6",
        "a connection that closes normally leaves its session resumable",
    ),
)
async def closed_connection(server: Server, sheet: Sheet) -> None:
    async with server.session() as device:
        await device.line.close(1000)
        await sheet.holds("server.resume.parked-when-closed", device.resume())


@scenario(
    must(
        "server.errors.unrecoverable-ends",
        "§9.2",
        "after an error that is not recoverable the server closes the connection",
    ),
    must("server.resume.ended-session", "§5.4", "a session that the server closed cannot be resumed"),
)
async def ended_session(server: Server, sheet: Sheet) -> None:
    server.needs("end")
    async with server.session() as device:
        await device.send("text", text="test end")
        await device.line.until("error", recoverable=False)
        await sheet.holds("server.errors.unrecoverable-ends", device.line.until_closed())
        answer, closed = await refused(device)
        sheet.settle(
            "server.resume.ended-session", is_refusal(answer, closed), f"{shown(answer)}, then {closed}"
        )


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
