"""Audio both ways, for a client that has it (vRT §8)."""

from __future__ import annotations

import asyncio
import json

from vrt_host.conformance.checks import NotTestable, Sheet, Unmet, must, should, shown
from vrt_host.conformance.client_cases.stage import ANSWER_S, Stage
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server import FRAME_MS, PCM16, PCMU, Message, Session, tool_names
from vrt_host.conformance.watch_client import bytes_per_second
from vrt_host.protocol import wire

MEASURE_S = 1.0
"""How much input audio is measured."""
PART_S = 0.3
"""After so long, part of an item has been played."""
LEAD_MS = 200
"""How far an item is ahead of the clock: it is never played to its end."""
STALE_MS = 600
"""Of what must not be played: more than is played meanwhile, and less than any client holds."""


def playbacks(session: Session) -> dict[str, float]:
    """What the client says it played of each item."""
    found = (message for message in session.received if message["type"] == "playback")
    return {message["itemId"]: message["playedMs"] for message in found}


async def _input(stage: Stage, sheet: Sheet, check: str, form: Message) -> None:
    """The client's frames come at the rate of the format."""
    stage.formats["input"] = form
    session = await stage.session()
    stage.formats["input"] = PCMU
    session.turn()
    await stage.barrier(session)
    connection = session.connection
    assert connection is not None
    try:
        await connection.until(
            lambda: stage.mute or len(connection.audio_heard()) > 1, stage.s(1), "input audio"
        )
    except Unmet:
        stage.mute = True
    if stage.mute:
        raise NotTestable("the client sends no audio; let its microphone be live")
    await stage.rest(MEASURE_S)
    frames = connection.audio_heard()
    seconds = frames[-1].t - frames[0].t
    octets = sum(len(frame.data) - 5 for frame in frames[1:])
    wanted = bytes_per_second(form)
    rate = octets / seconds if seconds else 0
    told = f"{rate:.0f} bytes/s where {form} has {wanted}"
    sheet.settle(check, 0.7 * wanted < rate < 1.4 * wanted, told)


@scenario(
    must("client.audio.input-format", "§5.2", "audio is sent in the format of ready.input"),
)  # fmt: skip
async def the_user_speaks(stage: Stage, sheet: Sheet) -> None:
    await _input(stage, sheet, "client.audio.input-format", PCMU)


@scenario(
    must("client.audio.input-pcm16-24000", "§8.2", "a client that sends audio can send pcm16 at 24000 Hz"),
)  # fmt: skip
async def the_user_speaks_pcm16(stage: Stage, sheet: Sheet) -> None:
    await _input(stage, sheet, "client.audio.input-pcm16-24000", PCM16)


async def _part(session: Session, item: str) -> None:
    """Part of an item has been played when this returns, and the rest waits."""
    session.item(item)
    session.tone(LEAD_MS)
    clock = asyncio.get_running_loop().time
    began, frames = clock(), 0
    while frames * FRAME_MS < 1000 * PART_S:
        await asyncio.sleep(FRAME_MS / 1000)
        due = int(1000 * (clock() - began)) // FRAME_MS
        session.tone((due - frames) * FRAME_MS)
        frames = due


async def _silent(stage: Stage, session: Session, item: str) -> bool:
    """Whether the client reports no part of an item, when playback has stopped."""
    return await stage.holds(session, lambda: item in playbacks(session), 1)


@scenario(
    should(
        "client.audio.playback-reports-part",
        "§8.4",
        "an item that is cut is reported, with what was played of it",
    ),
    should(
        "client.audio.playback-before-interrupt",
        "§8.4",
        "on the user's interruption playback comes before interrupt",
    ),
    should("client.audio.stops-when-listening", "§8.4", "turn.state listening stops playback"),
    must("client.audio.last-start-counts", "§8.3", "frames belong to the item of the last audio.start"),
    must("client.audio.closed-epoch-not-played", "§6.2", "audio of a closed epoch is not played"),
    must("client.audio.frames-without-item", "§8.3", "frames before any audio.start are not played"),
)
async def the_agent_speaks(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    session.turn("speaking")
    await _part(session, "cut")
    session.interrupted()
    stage.reports = not await _silent(stage, session, "cut")
    if "output" in session.hello:
        played = playbacks(session).get("cut", 0)
        sheet.settle("client.audio.playback-reports-part", played > 0, f"{played} ms after {PART_S:g} s")
    if not stage.reports:
        raise NotTestable("the client reports no playback, and nothing else shows what it plays")
    await _closed_epoch(stage, sheet, session)
    await _two_items(stage, sheet, session)
    await _listening(stage, sheet, session)
    await _without_item(stage, sheet, session)
    await _user_interrupts(stage, sheet, session)


async def _closed_epoch(stage: Stage, sheet: Sheet, session: Session) -> None:
    """Frames of the item that was cut, and an item that begins in the closed epoch."""
    session.tone(100)
    session.item("late")
    session.tone(STALE_MS)
    session.turn("speaking")
    await _part(session, "after")
    session.interrupted()
    await session.until(lambda: "after" in playbacks(session), stage.s(ANSWER_S), "playback of `after`")
    played = playbacks(session)
    kept = "late" not in played and played["after"] > 0
    sheet.settle(
        "client.audio.closed-epoch-not-played", kept, f"{shown(played)}: what is closed was played first"
    )


async def _two_items(stage: Stage, sheet: Sheet, session: Session) -> None:
    session.turn("speaking")
    session.item("short")
    session.tone(100)
    await _part(session, "long")
    session.interrupted()
    await session.until(lambda: "long" in playbacks(session), stage.s(ANSWER_S), "playback of `long`")
    played = playbacks(session)
    kept = played["long"] > 0 and played.get("short", 0) <= 100
    sheet.settle("client.audio.last-start-counts", kept, shown(played))


async def _listening(stage: Stage, sheet: Sheet, session: Session) -> None:
    session.turn("speaking")
    await _part(session, "spoken-over")
    session.turn("listening")
    stops = not await _silent(stage, session, "spoken-over")
    sheet.settle("client.audio.stops-when-listening", stops, "no playback of the item that was cut")


async def _without_item(stage: Stage, sheet: Sheet, session: Session) -> None:
    """A resumed connection begins without an item (§8.3)."""
    session.turn("speaking")
    session.item("before-the-cut")
    await stage.barrier(session)
    connection, hello = await stage.cut(session)
    session.resume(connection, hello)
    session.tone(STALE_MS)
    session.turn("speaking")
    await _part(session, "resumed")
    session.interrupted()
    await session.until(lambda: "resumed" in playbacks(session), stage.s(ANSWER_S), "playback of `resumed`")
    played = playbacks(session)
    kept = "before-the-cut" not in played and played["resumed"] > 0
    sheet.settle("client.audio.frames-without-item", kept, shown(played))


async def _user_interrupts(stage: Stage, sheet: Sheet, session: Session) -> None:
    check = "client.audio.playback-before-interrupt"
    if "test.interrupt" not in tool_names(session.hello):
        sheet.not_testable(check, "the client has no tool test.interrupt")
        return
    session.turn("speaking")
    await _part(session, "interrupted")
    session.call("test.interrupt", {})

    def types() -> list[str]:
        return [message["type"] for message in session.received]

    await session.until(lambda: "interrupt" in types(), stage.s(ANSWER_S), "interrupt")
    before = [message.get("itemId") for message in session.received[: types().index("interrupt")]]
    sheet.settle(check, "interrupted" in before, "interrupt came first")


@scenario(
    must("client.audio.output-pcm16-24000", "§8.2", "a client that plays audio can play pcm16 at 24000 Hz"),
)  # fmt: skip
async def the_agent_speaks_pcm16(stage: Stage, sheet: Sheet) -> None:
    stage.formats["output"] = PCM16
    session = await stage.session()
    stage.formats["output"] = PCMU
    if not stage.reports:
        raise NotTestable("the client reports no playback of its own format")
    session.turn("speaking")
    await _part(session, "wide")
    session.interrupted()
    await session.until(lambda: "wide" in playbacks(session), stage.s(ANSWER_S), "playback")
    played = playbacks(session)["wide"]
    sheet.settle("client.audio.output-pcm16-24000", played > 0, f"{played} ms after {PART_S:g} s")


@scenario(
    must("client.audio.malformed-frame", "§8.1", "malformed audio frames are dropped, and the client goes on"),
    must("client.audio.valid-frames", "§8.1", "valid frames of every shape are taken, empty ones too"),
)  # fmt: skip
async def frames_of_every_shape(stage: Stage, sheet: Sheet) -> None:
    session = await stage.session()
    connection = session.connection
    assert connection is not None
    session.turn("speaking")
    session.item("shapes")
    path = wire.schema_folder() / "examples" / "binary" / "output.json"
    for valid, check in (
        (False, "client.audio.malformed-frame"),
        (True, "client.audio.valid-frames"),
    ):
        for case in json.loads(path.read_text("utf-8")):
            if (case["expect"] == "valid") == valid:
                connection.binary(bytes.fromhex(case["hex"]))
        await stage.barrier(session)
        sheet.settle(check, not connection.ended)


SCENARIOS = (
    the_user_speaks,
    the_user_speaks_pcm16,
    the_agent_speaks,
    the_agent_speaks_pcm16,
    frames_of_every_shape,
)
