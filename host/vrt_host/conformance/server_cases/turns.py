"""Turns, epochs and interruption (vRT §6.1, §6.2, §6.3, §8.4)."""

from __future__ import annotations

from vrt_host.conformance.checks import Sheet, must, should, shown
from vrt_host.conformance.client import ECHO, Device, Server
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server_cases.sound import TONE_MS, sound_ms, until_sound, voice
from vrt_host.protocol.wire import Message

HEARD_MS = 240
"""What the device says that it played."""
ENOUGH_MS = 300
"""How much has to be sent before."""


@scenario(
    must("server.turns.text-answered", "§6.3", "a text is user input, and starts a turn"),
    must("server.turns.ends-idle", "§6.1", "a turn reports its states, the last of them idle"),
    must("server.turns.first-epoch", "§6.1", "the epoch has risen from 0 when the first turn starts"),
    must("server.turns.new-turn", "§6.1", "each turn has a turnId of its own and a higher epoch"),
    should("server.turns.acting", "§6.1", "the state is acting while a tool runs"),
)
async def turns(server: Server, sheet: Sheet) -> None:
    server.needs("text", "call")
    async with server.session(tools=[ECHO]) as device:
        first = await device.begin("text")
        sheet.settle("server.turns.first-epoch", first["epoch"] >= 1, shown(first))
        said = await sheet.holds("server.turns.ends-idle", device.finish(first))
        sheet.settle("server.turns.text-answered", said == "ok", f"'test text' was answered with {said!r}")
        second = await device.begin("call")
        new = second["epoch"] > first["epoch"] and second["turnId"] != first["turnId"]
        sheet.settle("server.turns.new-turn", new, f"{shown(first)}, then {shown(second)}")
        call = await device.line.until("tool.call")
        acting = device.line.seen("turn.state", turnId=second["turnId"], state="acting")
        if not acting:  # it may follow the call
            await device.line.sync()
            acting = device.line.seen("turn.state", turnId=second["turnId"], state="acting")
        sheet.settle("server.turns.acting", bool(acting), "no state acting came with the call")
        await device.result(call)
        await sheet.holds("server.turns.ends-idle", device.finish(second))


async def _ended(device: Device, turn: Message) -> Message:
    """How a turn ends: idle, or interrupted."""
    while True:
        message = await device.line.until("turn.state", "interrupted")
        if message["type"] == "interrupted" or (message["turnId"], message["state"]) == (
            turn["turnId"],
            "idle",
        ):
            return message


@scenario(
    must("server.turns.interrupt-answered", "§6.2", "interrupt during a response is answered by interrupted"),
    must("server.turns.interrupted-epoch", "§6.2", "interrupted carries the epoch of the response"),
    must("server.turns.next-turn-is-open", "§6.2", "the next turn is above the closed epoch"),
    must(
        "server.turns.idle-interrupt-ignored", "§6.2", "without a response in flight, interrupt has no effect"
    ),
)
async def interrupt(server: Server, sheet: Sheet) -> None:
    server.needs("think", "text", "count")
    async with server.session() as device:
        turn = await device.begin("think")
        await device.send("interrupt", epoch=turn["epoch"], reason="keyboard")
        interrupted = await sheet.holds("server.turns.interrupt-answered", device.line.until("interrupted"))
        if interrupted is not None:
            right = interrupted["epoch"] == turn["epoch"]
            sheet.settle("server.turns.interrupted-epoch", right, f"{shown(turn)}, then {shown(interrupted)}")
        following = await device.begin("text")
        higher = following["epoch"] > turn["epoch"]
        sheet.settle("server.turns.next-turn-is-open", higher, f"{shown(turn)}, then {shown(following)}")
        await device.finish(following)
        place = device.line.skip()
        await device.send("interrupt", epoch=following["epoch"], reason="user")
        await device.send("interrupt", epoch=turn["epoch"], reason="user")
        count = await device.ask("count")
        more = device.line.seen("interrupted", since=place)
        told = f"{shown(more)}, {count} texts"
        sheet.settle("server.turns.idle-interrupt-ignored", not more and count == "3", told)


@scenario(
    should(
        "server.turns.late-interrupt-ignored",
        "§6.2",
        "an interrupt of an earlier epoch does not stop a newer response",
    )
)
async def late_interrupt(server: Server, sheet: Sheet) -> None:
    """As a resume may bring it: the epoch that it closes is closed already."""
    server.needs("think", "call")
    async with server.session(tools=[ECHO]) as device:
        old = await device.begin("think")
        await device.send("interrupt", epoch=old["epoch"], reason="user")
        await device.line.until("interrupted")
        new = await device.begin("call")
        call = await device.line.until("tool.call")
        await device.send("interrupt", epoch=old["epoch"], reason="user")
        await device.result(call)
        end = await _ended(device, new)
        sheet.settle("server.turns.late-interrupt-ignored", end["type"] == "turn.state", shown(end))


@scenario(
    must("server.turns.text-interrupts-first", "§6.3", "a text during a response interrupts it first"),
    should(
        "server.turns.text-reason", "§6.3", "the reason of an interruption by text is user, when one is given"
    ),
    must(
        "server.turns.idle-text-interrupts-nothing",
        "§6.3",
        "a text while nothing is in flight interrupts nothing",
    ),
)
async def text_input(server: Server, sheet: Sheet) -> None:
    server.needs("think", "text")
    async with server.session() as device:
        await device.ask("text")
        await device.ask("text")
        sheet.settle(
            "server.turns.idle-text-interrupts-nothing",
            not device.line.seen("interrupted"),
            "interrupted came",
        )
        turn = await device.begin("think")
        place = device.line.skip()
        following = await device.begin("text")
        since = device.line.frames[place:]
        interrupted = device.line.seen("interrupted", since=place)
        first = bool(interrupted) and since.index(interrupted[0]) < since.index(following)
        first = first and interrupted[0]["epoch"] == turn["epoch"]
        sheet.settle(
            "server.turns.text-interrupts-first", first, f"{shown(interrupted)} before {shown(following)}"
        )
        if interrupted:
            reason = interrupted[0].get("reason", "user")
            sheet.settle("server.turns.text-reason", reason == "user", shown(interrupted[0]))


@scenario(
    must(
        "server.tools.pending-call-settled-by-interrupt",
        "§6.2",
        "an interruption settles the pending calls as INTERRUPTED",
    ),
    must("server.tools.late-result-ignored", "§7.2", "a result that comes after the interruption is ignored"),
)
async def interrupted_calls(server: Server, sheet: Sheet) -> None:
    server.needs("calls", "outcome")
    async with server.session(tools=[ECHO]) as device:
        turn = await device.begin("calls")
        calls = [await device.line.until("tool.call") for _ in range(3)]
        await device.send("interrupt", epoch=turn["epoch"], reason="user")
        await device.line.until("interrupted")
        outcome = await device.ask("outcome")
        sheet.settle(
            "server.tools.pending-call-settled-by-interrupt",
            outcome == "INTERRUPTED",
            f"the outcome is {outcome!r}",
        )
        for call in calls:
            await device.result(call)
        later = await device.ask("outcome")
        sheet.settle(
            "server.tools.late-result-ignored",
            later == outcome,
            f"the outcome was {outcome!r}, then {later!r}",
        )


@scenario(
    must(
        "server.turns.truncated-to-playback",
        "§6.2",
        "the conversation is truncated to what the device says it played",
    ),
    should(
        "server.turns.playback-at-most-sent",
        "§8.4",
        "what is said to be played counts only as far as it was sent",
    ),
    should(
        "server.turns.playback-of-unknown-item", "§8.4", "playback of an item that is not known is ignored"
    ),
)
async def playback(server: Server, sheet: Sheet) -> None:
    server.needs("long", "heard")
    for said, check in (
        (HEARD_MS, "server.turns.truncated-to-playback"),
        (999_999, "server.turns.playback-at-most-sent"),
    ):
        async with server.session() as device:
            turn = await device.begin("long")
            start = await device.line.until("audio.start")
            await until_sound(device, ENOUGH_MS)
            if check == "server.turns.truncated-to-playback":
                await device.send("playback", itemId="no such item", playedMs=100)
            await device.send("playback", itemId=start["itemId"], playedMs=said)
            await device.send("interrupt", epoch=turn["epoch"], reason="speech")
            await device.line.until("interrupted")
            sent_ms = sound_ms(device)
            heard = await device.ask_json("heard")
            wanted = min(said, round(sent_ms))
            close = isinstance(heard, (int, float)) and abs(heard - wanted) <= 1
            sheet.settle(check, close, f"said {said} ms of {sent_ms:.0f} ms sent; the server took {heard}")
            if check == "server.turns.truncated-to-playback":
                sheet.settle("server.turns.playback-of-unknown-item", close, f"the server took {heard}")


@scenario(
    must(
        "server.turns.speech-interrupts",
        "§6.2",
        "the server interrupts a response when it hears the user speak",
    ),
    should("server.turns.listening", "§6.1", "the turn of a user who speaks begins with listening"),
)
async def speech(server: Server, sheet: Sheet) -> None:
    server.needs("speech", "long")
    async with server.session() as device:
        turn = await device.begin("long")
        await device.line.until("audio.start")
        for number, payload in enumerate(voice(device.ready["input"])):
            await device.line.audio(number, payload)
        interrupted = await sheet.holds(
            "server.turns.speech-interrupts", device.line.until("interrupted", epoch=turn["epoch"])
        )
        if interrupted is None:
            sheet.not_testable("server.turns.listening", f"nothing came of {TONE_MS} ms of voice")
            return
        state = await device.line.until("turn.state")
        sheet.settle("server.turns.listening", state["state"] == "listening", shown(state))
