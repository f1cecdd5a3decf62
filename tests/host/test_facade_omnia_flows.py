"""The conversations of schema/peers/omnia/flows, message by message, with the facade as the server.

The agent behind it does what the flow's server does. Left out are flows that are for a client alone.
"""

import asyncio
import contextlib
import json

import pytest
from omnia_client import PCM16_16K, serving
from peers.play import Closed, play
from peers.vectors import decode_omni, encode_omni, load
from test_guest import Brain, call
from vrt_host.agents.base import Abilities, Audio, AudioBegin, Text, Transcript, TurnBegin, TurnEnd
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig
from vrt_host.facades import omnia, omnia_session
from websockets.exceptions import ConnectionClosed

SPEED = 100
FLOWS = load("omnia").flows
PLAYED = [name for name, flow in FLOWS.items() if flow.get("player") != "server"]


OPTIONS = {
    "text.disclosure": {"ai_disclosure": True},
    "audio.disabled": {"calls": 0},
    "tools.silence": {"ack_timeout": 5 / SPEED},
    "tools.slow": {"client_tool_timeout": 60 / SPEED},
}
PATCHED = {
    "audio.full": [(omnia.OmniaFacade, "begins", lambda self: False)],
    "audio.resume-late": [(omnia_session, "PARK_S", 10 / SPEED)],  # less than 15: it begins a little later
    "session.4401": [(omnia, "PING_S", 0.1)],
}


class Wire:
    """Omnia's clients' sockets for the player, one after the other."""

    def __init__(self, host, stack):
        self._host, self._stack = host, stack
        self._ws = None

    async def send(self, frame):
        if isinstance(frame, bytes):
            with contextlib.suppress(ValueError):  # two samples are too few to be heard
                decoded = decode_omni(frame)
                if decoded["message_type"] == 1:
                    frame = encode_omni({**decoded, "payload": "00" * 3200})
        elif (message := _parsed(frame)) is not None and "agent" in message:
            client = await self._stack.enter_async_context(self._host.omnia(**message))
            self._ws = client.ws
            return
        await self._ws.send(frame)

    async def receive(self):
        try:
            return await self._ws.recv()
        except ConnectionClosed as error:
            raise Closed(error.rcvd.code, error.rcvd.reason) from None

    async def close(self, code, reason):
        if code == 1006:
            self._ws.transport.abort()
            await self._ws.wait_closed()
        else:
            await self._ws.close(code, reason)


def _parsed(text):
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class Model(Brain):
    """The model of a flow: calls what it calls, says what it says."""

    abilities = Abilities(inputs=(PCM16_16K,), outputs=(PCM16_16K,))

    def __init__(self, flow):
        super().__init__(self._answer)
        sent = [step["message"] for step in flow["steps"] if "message" in step]
        called = [one["tool_call"]["name"]["$like"] for one in sent if one.get("type") == "tool_call"]
        self.tool = called[0] if called else None
        self.waits = flow["id"] == "text.busy"
        self.release = asyncio.Event()
        self.turns = 0

    def _answer(self, agent, text):
        self.turns += 1
        if self.turns == 1 and self.tool is not None:
            call(self, self.tool, arguments='{"location": "Rome"}' if self.tool == "weather" else "{}")
        elif self.waits:
            self.port.emit(TurnBegin("t"))
            self.port.emit(Text("t", "Hel"))
            self.task = asyncio.create_task(self._later())
        else:
            self.port.emit(TurnBegin(f"t{self.turns}"))
            self._says(f"t{self.turns}")

    async def _later(self):
        await self.release.wait()
        self._says("t")

    def _says(self, turn):
        for word in ("Hello! ", "There."):
            self.port.emit(Text(turn, word))
        self.port.emit(TurnEnd(turn))

    def user_audio(self, payload):
        super().user_audio(payload)
        self.turns += 1
        if self.turns == 1:
            self.port.emit(TurnBegin("v", "listening"))
            self.port.emit(Transcript("v", "user", "lock the door", True))
            self.port.emit(Transcript("v", "agent", "Locked.", True))
            self.port.emit(AudioBegin("v", "i"))
            self.port.emit(Audio("v", "i", bytes(6400)))
            self.port.emit(TurnEnd("v"))

    def tool_result(self, turn, result):
        super().tool_result(turn, result)
        self._says(turn)


@pytest.mark.parametrize("name", PLAYED)
async def test_the_facade_plays_its_part(name, monkeypatch, tmp_path):
    for module, constant, value in PATCHED.get(name, ()):
        monkeypatch.setattr(module, constant, value)
    options = OPTIONS.get(name, {})
    tokens = config = None
    if name in ("session.credential", "session.4401"):
        tokens = TokenFile(tmp_path / "t.json")
        options = {"token": tokens.add("web")}
        config = ServerConfig(port=0, tokens=tokens.path)
    brains = [Model(FLOWS[name]) for _ in range(3)]

    def passing(message):
        if name == "text.busy" and message["type"] == "error":
            for brain in brains:
                brain.release.set()
        if message["type"] == "connected":
            if tokens is not None:
                tokens.revoke("web")
            if name == "session.shutdown":
                host.stop.set()
        return name == "session.4401" and message["type"] == "error"

    async with contextlib.AsyncExitStack() as stack:
        host = await stack.enter_async_context(serving(*brains, config=config, tmp_path=tmp_path, **options))
        if name == "session.expired":
            host.facade.archive.get("sess-old", "somebody", None, maker=object(), joins=False)
        await play("omnia", name, "client", Wire(host, stack), passing=passing, speed=SPEED)
