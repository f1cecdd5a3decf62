"""The device's end of a session, as a test plays it: a vRT client that keeps the rules of an interruption by itself."""

import asyncio
import contextlib
import json

from host_client import DEADLINE_S
from websockets.exceptions import ConnectionClosed

from peers.plan import quiet, tone

PCMU = {"encoding": "pcmu", "sampleRate": 8000}
FRAME_BYTES = 160
"""20 ms of mu-law."""

_DOORS = {"type": "object", "required": ["door", "state"], "additionalProperties": False}
_DOORS["properties"] = {"door": {"enum": ["front", "back"]}, "state": {"enum": ["locked", "unlocked"]}}
_STATE = {"type": "object", "properties": {"state": {"enum": ["on", "off"]}}, "required": ["state"]}
TOOLS = [
    {
        "name": "lock",
        "description": "Lock or unlock a door.",
        "parameters": {**_DOORS},
        "phrases": [
            {
                "say": "lock [the] {door} door",
                "set": {"state": "locked"},
                "reply": "The {door} door is locked.",
            }
        ],
    },
    {
        "name": "light",
        "description": "Switch the light.",
        "parameters": _STATE,
        "phrases": [{"say": "turn {state} the light", "reply": "The light is {state}."}],
    },
    {
        "name": "house",
        "description": "Check the house.",
        "effect": "none",
        "timeoutMs": 1,
        "phrases": [{"say": "check the house", "reply": "All is well."}],
    },
]
"""What the device declares. `house` is given up at once when it is not answered."""


class Device:
    """One session. Use `opened`."""

    def __init__(self, client):
        self._client = client
        self.log = []
        """Every message of the host, in order."""
        self.heard = {}
        """Public id of an audio item -> bytes of it that came."""
        self.closed_epoch = -1
        self.late = []
        """Items of which audio came after the host had said that they are over: there must be none."""
        self.answering = False
        """Answer each call at once."""
        self._told_closed = -1
        self._observed = 0
        self._item = None
        self._epochs = {}
        self._taken = set()
        self._old = []
        self._news = asyncio.Event()
        self.close_code = None

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, host, *, ready=True, **hello):
        """A session of `host`, up to `ready`; without `ready`: up to that, or to the error that comes instead."""
        async with host.client() as client:
            device = cls(client)
            reading = asyncio.create_task(device._read())
            try:
                await client.send("hello", **{"tools": TOOLS, "input": PCMU, "output": PCMU, **hello})
                await device.until(lambda: device.all("ready") or (not ready and device.all("error")))
                yield device
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    # --- what the user and the device do

    async def types(self, text="No."):
        await self._client.send("text", text=text)

    async def hears(self, audio, *, quiet_s=0.6):
        """The microphone takes in mu-law audio, faster than real time, and quiet behind it."""
        audio += quiet(quiet_s, "pcmu", 8000)
        for start in range(0, len(audio), FRAME_BYTES):
            await self._client.audio(audio[start : start + FRAME_BYTES], start // FRAME_BYTES)

    async def speaks(self, seconds=0.3):
        """A loud tone, which every peer takes for speech."""
        await self.hears(tone(seconds, "pcmu", 8000))

    async def interrupts(self, reason="user", *, played_ms=None):
        """Interrupt what was observed last; tell what was played of it, by default all that came."""
        epoch = self._observed
        if epoch > self.closed_epoch:
            self.closed_epoch = epoch
            await self._client.send("interrupt", epoch=epoch, reason=reason)
            await self._report(epoch, played_ms)
        return epoch

    async def answers(self, call, output=None, *, code=None):
        """The result of a call."""
        how = {"ok": True, "output": output} if code is None else {"ok": False, "code": code, "message": code}
        await self._client.send("tool.result", callId=call["callId"], epoch=call["epoch"], **how)

    async def sends(self, type_, **members):
        await self._client.send(type_, **members)

    # --- what comes

    async def told(self, type_, **members):
        """The next message of a type with these members; each is given out once."""
        return await self._when(
            lambda message: message["type"] == type_ and members.items() <= message.items()
        )

    async def calls(self, name, **arguments):
        """The call of that name, with its arguments."""
        call = await self.told("tool.call", name=name)
        assert call["arguments"] == arguments
        return call

    async def begins(self):
        """A turn of the agent's begins."""
        return await self._when(
            lambda message: message["type"] == "turn.state" and message["state"] != "idle"
        )

    async def sounds(self, ms=1):
        """So much audio of one item has come; returns the item's public id."""
        await self.until(lambda: any(size >= 8 * ms for size in self.heard.values()))
        return next(item for item, size in reversed(self.heard.items()) if size >= 8 * ms)

    async def rests(self):
        """The turn ends."""
        return await self.told("turn.state", state="idle")

    async def error(self):
        """The next error."""
        return await self.told("error")

    async def closed(self):
        """The link is closed; the code."""
        await self.until(lambda: self.close_code is not None)
        return self.close_code

    def forget(self):
        """Look only at what comes from now on."""
        self._old += self.log
        self.log.clear()

    def all(self, type_, **members):
        """What has come of a type, given out or not."""
        return [one for one in self.log if one["type"] == type_ and members.items() <= one.items()]

    def said(self):
        """What the agent said or wrote, all together."""
        spoken = [one["text"] for one in self.log if one["type"] == "text" or one.get("role") == "agent"]
        return " ".join(spoken)

    async def _when(self, match):
        found = None

        def search():
            nonlocal found
            found = next((one for one in self.log if id(one) not in self._taken and match(one)), None)
            return found is not None

        await self.until(search)
        self._taken.add(id(found))
        return found

    async def until(self, true):
        """Wait until what has come makes it true."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not true():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"it did not come; there came {self.log}") from None

    async def _read(self):
        try:
            while True:
                frame = await self._client.ws.recv()
                if isinstance(frame, bytes):
                    self.heard[self._item] += len(frame) - 5
                    if self._epochs[self._item] <= self._told_closed:
                        self.late.append(self._item)
                else:
                    await self._on_message(json.loads(frame))
                self._news.set()
        except ConnectionClosed as error:
            self.close_code = error.rcvd.code if error.rcvd else 1006
            self._news.set()

    async def _on_message(self, message):
        self.log.append(message)
        if message["type"] in ("turn.state", "audio.start", "tool.call"):
            self._observed = max(self._observed, message["epoch"])
        if message["type"] == "audio.start":
            self._item = message["itemId"]
            self._epochs[self._item] = message["epoch"]
            self.heard.setdefault(self._item, 0)
        elif message["type"] == "tool.call" and self.answering:
            await self.answers(message)
        elif message["type"] == "interrupted":
            self._told_closed = message["epoch"]
            if message["epoch"] > self.closed_epoch:
                self.closed_epoch = message["epoch"]
                await self._report(message["epoch"], None)

    async def _report(self, epoch, played_ms):
        for item, item_epoch in self._epochs.items():
            if item_epoch == epoch:
                played = self.heard[item] // 8 if played_ms is None else played_ms
                await self._client.send("playback", itemId=item, playedMs=played)
