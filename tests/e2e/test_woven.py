"""The firmware that a board gets does what its sources do: real MicroPython plays the same scene with either."""

import asyncio
import json

from vrt_host.device.compiler import Compiler
from vrt_host.harness.proxy import Proxy
from vrt_host.sim.board import SimBoard

DEADLINE_S = 90

CALLS = [
    {"tool": "light", "arguments": {"state": "on"}},
    {"tool": "door_state", "arguments": {"door": "front"}},
    {"tool": "lock", "arguments": {"door": "front", "state": "locked"}},  # goes through the journal
    {"tool": "lock", "arguments": {"door": "back", "state": "unlocked"}},  # is refused by a short press
]
SCRIPT = {
    "rules": [
        {
            "on": {"start": True},
            "do": [
                *(step for call in CALLS for step in ({"call": call}, {"waitResult": True})),
                {"say": {"text": "That was all.", "toneMs": 300}},
            ],
        },
        {"on": {"interruption": True}, "do": [{"text": "Stopped."}]},
    ]
}
# Of each event what is the same whenever it happens.
TOLD = {
    "ready": ("resumed",),
    "call": ("name", "arguments"),
    "confirm_asked": ("name",),
    "confirm": ("outcome",),
    "result": ("name", "ok", "code", "result"),
    "transcript": ("role", "text"),
    "audio_start": (),
    "played": (),
    "lost": ("reason", "code"),
    "output": ("name", "value"),
    "error": ("code", "message"),
}


def shown(event):
    made = {name: event.get(name) for name in TOLD[event["event"]]}
    if made.get("result"):
        made["result"] = {
            key: value for key, value in made["result"].items() if key not in ("callId", "epoch")
        }
    return event["event"], made


async def scene(url):
    """What the board tells of a conversation, of calls, one of them refused, and of a connection that is cut."""
    told = []
    port = int(url.rstrip("/").rpartition(":")[2])
    async with (
        asyncio.timeout(DEADLINE_S),
        Proxy("127.0.0.1", port) as proxy,
        SimBoard(url=f"ws://127.0.0.1:{proxy.port}/", heap="512k", config={"listen": "button"}) as board,
    ):
        async for event in board.events():
            assert event["event"] != "traceback", event
            if event["event"] in TOLD:
                told.append(shown(event))
            if event["event"] == "confirm_asked":
                await board.press(0.2)
            elif event["event"] == "played":
                proxy.cut()
            elif told[-1:] == [("ready", {"resumed": True})]:
                return told
    raise AssertionError("the board ended before it was back")


async def test_woven_firmware_does_what_its_sources_do(serve, monkeypatch):
    woven = await scene(serve(SCRIPT))
    monkeypatch.setattr(Compiler, "find", lambda *_: Compiler("", "", "", "none, for this test"))
    plain = await scene(serve(SCRIPT))
    assert [name for name, _ in woven].count("result") == len(CALLS), woven
    assert json.dumps(woven, indent=1) == json.dumps(plain, indent=1)
