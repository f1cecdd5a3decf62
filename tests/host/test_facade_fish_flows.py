"""The conversations of schema/peers/fish/flows, step by step, with the facade as the server and its agent, in rooms of a LiveKit server.

The model behind it does what the flow's server does. Flows in which nobody joins or leaves later share one session, as a room is
dear: each is told again how that began. Left out are flows that are for a client alone.
"""

import asyncio
import contextlib
import json

import pytest
import pytest_asyncio
from fish_client import DASHBOARD, Client, livekit_process, serving  # noqa: F401  (a fixture)
from host_client import DEADLINE_S
from peers.vectors import Script, load
from test_guest import Brain
from vrt_host.agents.base import (
    Audio,
    AudioBegin,
    Call,
    Transcript,
    TurnBegin,
    TurnEnd,
)
from vrt_host.facades.fish_tools import ClientTool

pytestmark = pytest.mark.asyncio(loop_scope="module")
SPEED = 100
FLOWS = load("fish").flows
OUT = {
    "tools.two": "calls at a time are an agent's choice: a guest has one at a time (vRT §7.1)",
    "session.late": "the model starts when the user comes; test_facade_fish_rooms.py has who comes late",
}
PLAYED = [name for name, flow in FLOWS.items() if flow.get("player") != "server" and name not in OUT]
ALONE = ("session.hangup", "session.agent-ends", "tools.quiet")
LIFECYCLE = ("tool.started", "tool.completed", "tool.failed")
TOOLS = (
    DASHBOARD,
    {"name": "note", "description": "Notes it.", "expects_response": False},
    {"name": "no_such_tool", "description": "The client has it not."},
)


class Model(Brain):
    """Does what the server of `flow` does, once; after that it only answers."""

    turns = 0
    flow = None
    tool = None

    def plays(self, flow):
        self.flow = flow["id"]
        called = [
            step["message"]
            for step in flow["steps"]
            if step.get("message", {}).get("type") == "client_tool.call"
        ]
        self.tool = called[0] if called else None

    def user_text(self, text):
        self.turns += 1
        turn = f"t{self.turns}"
        self.port.emit(TurnBegin(turn))
        if self.tool is not None:
            name = self.tool["toolName"]["$like"]
            if not self.tool["expectsResponse"]:
                name = "note"
            elif self.flow == "tools.timeout":
                name = "slow"
            self.tool = None
            self.port.emit(Call(turn, turn, name, {} if name != "open_dashboard" else {"tab": "billing"}))
        else:
            self._says(turn, end=self.flow != "turn.interrupt")

    def user_audio(self, payload):
        if self.flow == "turn.voice" and any(payload):
            self.flow = None
            self.port.emit(TurnBegin("voice", "listening"))
            self.port.emit(Transcript("voice", "user", "lock the", False))
            self.port.emit(Transcript("voice", "user", "lock the door", True))
            self._says("voice")

    def tool_result(self, turn, result):
        super().tool_result(turn, result)
        self._says(turn)

    def _says(self, turn, *, end=True):
        self.port.emit(AudioBegin(turn, turn))
        self.port.emit(Transcript(turn, "agent", "You have twelve dollars.", True, turn))
        self.port.emit(Audio(turn, turn, bytes(9600 if end else 480_000)))
        if end:
            self.port.emit(TurnEnd(turn))


class Player:
    """The client's side, in one session."""

    def __init__(self, host, model):
        self.host, self.model = host, model
        self.client = None
        self._stack = contextlib.AsyncExitStack()

    async def join(self, **asked):
        _, self.session = await self.host.create(**{**asked, "agent_id": "a"})
        self.client = await self._stack.enter_async_context(Client(self.session))
        await self.client.listening()

    async def leave(self):
        await self._stack.aclose()

    async def play(self, name):
        """Play a flow; AssertionError for whatever the facade does otherwise."""
        flow = FLOWS[name]
        self._script = script = Script(flow, "client")
        self._listed = {step.get("message", {}).get("type") for step in flow["steps"]}
        self._open = any(step.get("open") for step in flow["steps"])
        self.model.plays(flow)
        if self.client is None:
            asked = next(step["message"] for step in flow["steps"] if step.get("as") == "session_request")
            await self.join(**asked)
        self.client.came.clear()
        self.client.taken = 0
        self._speaking = contextlib.AsyncExitStack()
        began = [("session", self.session), ("join", None), ("state", "listening")]
        async with self._speaking:
            while not script.done:
                turn = script.next()
                if turn is not None:
                    await self._does(*turn)
                elif began:
                    self._sees(*began.pop(0))
                else:
                    self._sees(*await self.client.next())

    async def _does(self, kind, value, step):
        client = self.client
        if kind == "wait_ms":
            await asyncio.sleep(value / 1000 / SPEED)
        elif kind == "leave":
            await client.has("left")  # nobody sees it who has left
            await self.leave()
            self._sees("left", None)
        elif kind == "join":
            if self.model.flow == "turn.voice":
                await self._speaking.enter_async_context(client.speaking())
            if self.model.flow == "session.agent-ends":
                self.host.stop.set()
        elif "as" not in step:
            await client.raw(json.dumps(value) if isinstance(value, dict) else value)

    def _sees(self, kind, value):
        script = self._script
        wrong = None
        if kind == "session":
            wrong = script.saw("message", value, "session")
        elif kind == "join":
            wrong = script.saw("join", "server")
        elif kind == "left":
            wrong = script.saw("leave", "server")
        elif kind == "state":
            script.saw("message", {"lk.agent.state": value}, "agent_state")  # it can be thinking more often
        elif kind == "segment":
            wrong = script.saw("message", value, "transcription")
        elif kind == "event" and (value["type"] not in LIFECYCLE or value["type"] in self._listed):
            wrong = script.saw("message", value)
        elif kind == "words" and self._open:
            self._open = False
            sender, segment, said = value
            told = {"sender": sender, "attributes": {"lk.segment_id": segment}, "chunks": [said]}
            wrong = script.saw("message", told, "transcription")
        assert wrong is None, f"{kind} {value}: {wrong}"


@contextlib.asynccontextmanager
async def playing(livekit, folder):
    model = Model()
    async with serving(livekit, model, tmp_path=folder, tools=TOOLS) as host:
        slow = ClientTool.model_construct(name="slow", description="", timeout=31 / SPEED)
        host.facade.tools["slow"] = slow
        player = Player(host, model)
        try:
            yield player
        finally:
            await player.leave()


@pytest_asyncio.fixture(name="player", scope="module", loop_scope="module")
async def one_session(livekit, tmp_path_factory):
    async with playing(livekit, tmp_path_factory.mktemp("fish")) as player:
        yield player


@pytest.mark.parametrize("name", [name for name in PLAYED if name not in ALONE])
async def test_the_facade_plays_its_part(name, player):
    async with asyncio.timeout(2 * DEADLINE_S):
        await player.play(name)


@pytest.mark.parametrize("name", ALONE)
async def test_the_facade_plays_its_part_in_a_session_of_its_own(name, livekit, tmp_path):
    async with asyncio.timeout(2 * DEADLINE_S), playing(livekit, tmp_path) as player:
        await player.play(name)
