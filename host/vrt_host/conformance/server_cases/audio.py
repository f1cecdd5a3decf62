"""Audio frames, formats, items (vRT §8)."""

from __future__ import annotations

import asyncio

from vrt_host.conformance.checks import Sheet, must, should, shown
from vrt_host.conformance.client import Server
from vrt_host.conformance.run import scenario
from vrt_host.conformance.server_cases.sessions import hello
from vrt_host.conformance.server_cases.sound import PCM16, PCMU, silence, sound_ms
from vrt_host.protocol.wire import Message

SHORT_MS = (600, 1800)
"""What the profile's "say" may take: about a second."""
ODD: Message = {"encoding": "pcm16", "sampleRate": 7919}
"""What no model takes."""
U32 = 1 << 32


@scenario(
    must("server.audio.input-heard", "§5.1", "input audio is passed to the session, frame for frame"),
    must("server.audio.input-seq-wraps", "§8.1", "the seq of input audio wraps, and gaps in it are no fault"),
    must("server.audio.empty-payload", "§8.1", "a frame with an empty payload is valid"),
    must("server.audio.before-ready-ignored", "§8.1", "input audio before ready is ignored"),
)
async def input_audio(server: Server, sheet: Sheet) -> None:
    """Silence, so that no turn begins; the profile counts the bytes that arrived."""
    server.needs("audio")
    async with server.session() as device:
        payload = silence(device.ready["input"])
        for check, numbers in (
            ("server.audio.input-heard", (0, 1, 2)),
            ("server.audio.input-seq-wraps", (U32 - 2, U32 - 1, 0, 1, 500, 7)),
        ):
            before = await device.ask_json("audio")
            for number in numbers:
                await device.line.audio(number, payload)
            passed = await device.ask_json("audio") - before
            wanted = len(numbers) * len(payload)
            errors = device.line.seen("error")
            sheet.settle(
                check,
                passed == wanted and not errors,
                f"{wanted} bytes sent, {passed} passed; {shown(errors)}",
            )
        await device.line.audio(8, b"")
        await device.line.sync()
        sheet.settle(
            "server.audio.empty-payload", not device.line.seen("error"), shown(device.line.seen("error"))
        )
    async with server.line() as line:
        await line.audio(0, payload)
        await line.send(hello(server))
        await line.until("ready")
        await line.send({"v": 1, "seq": 1, "type": "text", "text": "test audio"})
        text = await line.until("text")
        sheet.settle(
            "server.audio.before-ready-ignored", text["text"] == "0", f"{text['text']} bytes were passed"
        )


@scenario(
    must(
        "server.audio.item-of-turn",
        "§8.3",
        "an item is announced with the epoch of its turn, and its frames follow",
    ),
    must("server.audio.output-format", "§5.2", "output audio has the format that ready states"),
)
async def output_audio(server: Server, sheet: Sheet) -> None:
    """Its length tells whether the bytes are those of the format: the next best one is three times as large."""
    server.needs("say")

    async def play(preference: Message) -> None:
        async with server.session(output=preference, limits={"bufferMs": 5000}) as device:
            turn = await device.begin("say")
            start = await device.line.until("audio.start")
            right = start["epoch"] == turn["epoch"] and start.get("turnId", turn["turnId"]) == turn["turnId"]
            sheet.settle("server.audio.item-of-turn", right, f"{shown(turn)}, then {shown(start)}")
            await sheet.holds("server.audio.item-of-turn", device.line.until_audio())
            await device.finish(turn, within=2 * server.pace.answer_s)
            least, most = SHORT_MS
            ms = sound_ms(device)
            told = f"{ms:.0f} ms in {shown(device.ready['output'])}"
            sheet.settle("server.audio.output-format", least <= ms <= most, told)

    try:
        async with asyncio.TaskGroup() as group:
            for preference in (PCMU, PCM16):
                group.create_task(play(preference))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


@scenario(
    should(
        "server.audio.default-format", "§8.2", "pcm16 at 24000 Hz is accepted, also when the rate is absent"
    ),
    should(
        "server.audio.otherwise-pcm16", "§8.2", "a preference that cannot be met becomes pcm16 at 24000 Hz"
    ),
)
async def formats(server: Server, sheet: Sheet) -> None:
    for preference in (PCM16, {"encoding": "pcm16"}):
        async with server.session(input=preference, output=preference) as device:
            chosen = [device.ready["input"], device.ready["output"]]
            right = all(_is_default(one) for one in chosen)
            sheet.settle("server.audio.default-format", right, f"{shown(preference)} became {shown(chosen)}")
    async with server.session(input=ODD, output=ODD) as device:
        chosen = [device.ready["input"], device.ready["output"]]
        right = all(_is_default(one) or one == ODD for one in chosen)
        sheet.settle("server.audio.otherwise-pcm16", right, f"{shown(ODD)} became {shown(chosen)}")


def _is_default(format_: Message) -> bool:
    return (format_["encoding"], format_.get("sampleRate", 24_000)) == ("pcm16", 24_000)
