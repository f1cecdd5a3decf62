"""The conversations of schema/peers/aitp/flows, message by message, with the facade as the server.

The agent behind it does what the flow's server does. Left out are flows that only a server or only a client can show, and
`text.audio`: its speech comes behind its text there, and here at once.
"""

import asyncio
import base64
import contextlib

import pytest
from peers.play import Closed, play
from peers.vectors import load
from test_facade_aitp import call, serving
from test_guest import LOCK, Brain, board
from vrt_host.agents.base import Audio, AudioBegin, Text, Transcript, TurnBegin, TurnEnd
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig
from vrt_host.facades import aitp_session
from vrt_host.lending import Lending
from websockets.exceptions import ConnectionClosed

SPEED = 50
SOUND = base64.b64encode(bytes(3200)).decode()


class Wire:
    """An AITP client's socket for the player."""

    def __init__(self, ws):
        self.ws = ws
        self.close = ws.close

    async def send(self, frame):
        await self.ws.send(frame.replace("AAAAAA==", SOUND))  # two samples are too few to convert

    async def receive(self):
        try:
            return await self.ws.recv()
        except ConnectionClosed as error:
            raise Closed(error.rcvd.code, error.rcvd.reason) from None


def says(agent, *chunks):
    for chunk in chunks:
        agent.port.emit(Text("t", chunk))
    agent.port.emit(TurnEnd("t"))


class Player(Brain):
    """The model of a flow: calls what it calls, says what it says."""

    def __init__(self, flow):
        super().__init__(self._answer)
        server = [
            step["message"] for step in flow["steps"] if step.get("from") == "server" and "message" in step
        ]
        self.asks = next((one["payload"] for one in server if one["type"] == "TOOL_CALL"), None)
        self.borrows = any(one["type"] == "APPROVAL_REQUEST" for one in server)
        self.waits = flow["id"] == "text.busy"
        self.release = asyncio.Event()
        self.turns = 0

    def _answer(self, agent, text):
        self.turns += 1
        if self.turns == 1 and self.borrows:
            call(self, "lock")
        elif self.turns == 1 and self.asks is not None:
            call(self, "add_to_cart", arguments='{"quantity": 2}')  # what the flows declare
        elif self.waits:
            self.port.emit(TurnBegin("t"))
            self.port.emit(Text("t", "I"))
            self.task = asyncio.create_task(self._later())
        else:
            self.port.emit(TurnBegin("t"))
            says(self, "I have ", "done it.")

    async def _later(self):
        await self.release.wait()
        says(self, "done it.")

    def user_audio(self, payload):
        super().user_audio(payload)
        if not self.turns:
            self.turns = 1
            self.port.emit(TurnBegin("t", "listening"))
            if self.flow == "voice":
                self.port.emit(Transcript("t", "user", "Add two", True))
            self.port.emit(AudioBegin("t", "i"))
            seconds = 0.1 if self.flow == "voice" else 20
            self.port.emit(Audio("t", "i", bytes(round(seconds * self.session.output.bytes_per_second))))
            if self.flow == "voice":
                self.port.emit(Transcript("t", "agent", "Done.", True))
            self.port.emit(TurnEnd("t"))

    def tool_result(self, turn, result):
        super().tool_result(turn, result)
        says(self, "done it.")


PLAYED = [
    *("approval.yes", "approval.no", "approval.failed", "approval.slow", "approval.server-yes"),
    *("approval.server-no", "handshake", "handshake.version", "handshake.key", "close.client"),
    *("close.shutdown", "text", "text.long", "text.busy", "text.noise", "tools.success", "tools.error"),
    *("tools.late", "tools.stranger", "tools.many", "tools.context", "voice", "voice.barge-in"),
]
NOT_PLAYED = {
    "handshake.early-ack": "a server that confirms before it is greeted; ours does not",
    "handshake.timeout": "a server that says nothing",
    "handshake.timeout-other": "a server that says something else",
    "close.capacity": "shown by test_facade_aitp: connections of a key",
    "text.failure": "a model that fails: shown by test_facade_aitp",
    "text.audio": "the speech comes at once",
    "text.noise-server": "a server's noise",
    "tools.unknown": "the model calls what there is not: refused by the host itself",
    "voice.interrupted": "a model that notices first: shown for all agents by the contract",
    "voice.unavailable": "a server without voice",
}


def test_every_flow_is_played_or_has_a_reason():
    assert sorted([*PLAYED, *NOT_PLAYED]) == sorted(load("aitp").flows)


@pytest.mark.parametrize("name", PLAYED)
async def test_the_facade_plays_its_part(name, monkeypatch, tmp_path):
    monkeypatch.setattr(aitp_session, "CALL_S", 10 / SPEED)
    monkeypatch.setattr(aitp_session, "APPROVAL_S", 120 / SPEED)
    flow = load("aitp").flows[name]
    config = None
    if name == "handshake.key":
        TokenFile(tmp_path / "t.json").add("web")
        config = ServerConfig(port=0, tokens=tmp_path / "t.json")
    brains = [Player(flow) for _ in range(3)]
    for brain in brains:
        brain.flow = name

    heard = []

    def passing(message):
        """What the facade tells besides: in words, why it closes."""
        if message["type"] == "SYSTEM_EVENT" and "still answering" in message["payload"].get("message", ""):
            for brain in brains:
                brain.release.set()
        if name == "voice.barge-in" and message["type"] == "AUDIO_STREAM":
            heard.append(message)  # more is under way before it is interrupted
            return len(heard) > 1
        closes = name in ("handshake.key", "close.shutdown")
        return closes and message["payload"].get("kind") in ("error", "disconnect")

    async with contextlib.AsyncExitStack() as stack:
        lending = Lending(["porch"])
        host = await stack.enter_async_context(serving(*brains, config=config, lending=lending))
        if "server" in name:
            porch = await stack.enter_async_context(host.client())
            await board(porch, LOCK)
            running = asyncio.create_task(locks(porch))
            stack.callback(running.cancel)
        client = await stack.enter_async_context(host.aitp())
        wire = Wire(client.ws)
        if name == "close.shutdown":
            asyncio.get_running_loop().call_later(0.2, host.stop.set)
        await play("aitp", name, "client", wire, passing=passing, speed=SPEED)


async def locks(porch):
    """The board does what it is told."""
    asked = await porch.until("tool.call")
    members = {"callId": asked["callId"], "epoch": asked["epoch"]}
    await porch.send("tool.result", **members, ok=True, output="locked")
