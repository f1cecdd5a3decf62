"""The agent `aitp` in the conversations of schema/peers/aitp, message by message: a server that keeps to a flow, and the user that it wants."""

import asyncio
import contextlib
import json

import pytest
from agent_stage import Port
from peers import vectors
from peers.plan import quiet, tone
from peers.process import DEADLINE_S
from vrt_host.agents import aitp_link
from vrt_host.agents.aitp import Aitp, Options
from vrt_host.agents.base import (
    AgentError,
    AudioBegin,
    Call,
    Format,
    SessionInfo,
    Text,
    Tool,
    ToolResult,
    TurnBegin,
)
from vrt_host.errors import AgentStartError
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

FLOWS = vectors.load("aitp").flows
LEFT_OUT = {"text.busy"}
"""It holds a text back until the answer before it is over."""
FAILING = {"text.failure", "text.noise-server", "voice.unavailable"}
"""In which the device is told that something is wrong."""
REFUSED = {
    "handshake.version",
    "handshake.key",
    "handshake.timeout",
    "handshake.timeout-other",
    "close.capacity",
}
"""Which end before there is a session."""
PCM = Format("pcm16", 16_000)
TOOLS = (
    Tool("add_to_cart", "Add it.", {"type": "object", "properties": {"quantity": {"type": "integer"}}}),
    Tool("process_payment", "Pay.", confirm="button", effect="irreversible"),
)


def played():
    """The flows that a server can play against a client of ours."""
    return [name for name, flow in FLOWS.items() if flow.get("player") != "client" and name not in LEFT_OUT]


class Script:
    """One flow, played by the server."""

    def __init__(self, flow, agent, port):
        self._steps = list(flow["steps"])
        self._examples = flow.get("examples")
        self._agent, self._port = agent, port
        self._bound = {}
        self._frame = None
        self._any = []
        """Patterns of what may come any number of times."""
        self._updates = 0
        self.done = asyncio.get_running_loop().create_future()

    async def talk(self, socket):
        try:
            if not self.done.done():
                await self._play(socket)
                self.done.set_result(None)
            await socket.wait_closed()
        except BaseException as error:
            if not self.done.done():
                self.done.set_exception(error)
            raise

    async def _play(self, socket):
        for step in self._steps:
            if "wait_ms" in step:
                continue
            if step.get("many") and step["from"] == "client":
                self._any.append(step["message"])
                continue
            if "close" in step and step["from"] == "server":
                await socket.close(step["close"], step.get("reason", ""))
            elif "close" in step:
                await self._closes(socket, step)
            elif step["from"] == "server":
                await socket.send(self._made(step))
            else:
                await self._expect(socket, step)

    def _made(self, step):
        return step.get("text") or json.dumps(vectors.fill(step["message"], self._bound, self._examples))

    async def _closes(self, socket, step):
        if step["close"] == 1000:
            closing = asyncio.create_task(self._agent.close())
        with contextlib.suppress(ConnectionClosed):
            while True:
                await socket.recv()
        assert (socket.close_code, socket.close_reason) == (step["close"], step["reason"])
        if step["close"] == 1000:
            await closing

    async def _expect(self, socket, step):
        """The client's next message is this one, if the user does what it takes."""
        pattern = step["message"]
        if self._frame is None:
            await self._provoke(pattern)
        while True:
            if self._frame is None:
                self._frame = json.loads(await socket.recv())
                assert vectors.errors("aitp", "client", self._frame) == []
            wrong = vectors.difference(pattern, self._frame, self._bound)
            if wrong is None:
                self._frame = None
                return
            if not any(vectors.match(one, self._frame, self._bound) for one in self._any):
                assert step.get("may"), wrong
                return
            self._frame = None

    async def _provoke(self, pattern):
        payload, agent = pattern["payload"], self._agent
        match pattern["type"]:
            case "USER_INPUT" if payload["modality"] == "text":
                await self._port.until(self._port.idle)
                agent.user_text("Add 2 to my cart")
            case "USER_INPUT" | "AUDIO_STREAM":
                pause = 0.0 if any("VOICE_INTERRUPT" in json.dumps(step) for step in self._steps) else 0.7
                agent.user_audio(tone(0.4, "pcm16", 16_000) + quiet(pause, "pcm16", 16_000))
            case "CONTEXT_UPDATE":
                self._updates += 1
                if self._updates > 1:
                    agent.context({"page": "another"})
            case "VOICE_INTERRUPT":
                await self._port.until(lambda: self._port.all(AudioBegin))
                agent.interrupted(self._port.all(TurnBegin)[-1].turn, [])
            case "TOOL_RESULT" if payload["status"] != "pending_approval":
                await self._answer(ok=payload["status"] == "success", code="FAILED")
            case "APPROVAL_RESPONSE":
                failed = "error" in payload
                await self._answer(
                    ok=payload["approved"] and not failed, code="FAILED" if failed else "REJECTED"
                )

    async def _answer(self, *, ok, code):
        if any("refund" in json.dumps(step) for step in self._steps):
            await self._port.until(lambda: any("Yes or no?" in text.text for text in self._port.all(Text)))
            await self._port.ends()
            self._agent.user_text("Yes, please." if ok else "No.")
            return
        await self._port.until(lambda: self._port.all(Call))
        call = self._port.all(Call)[-1]
        message = "" if ok else "No stock"
        result = ToolResult(call.call, ok, {"added": True} if ok else None, None if ok else code, message)
        self._agent.tool_result(call.turn, result)


@pytest.mark.parametrize("name", played())
async def test_client_keeps_to_the_flow(name, monkeypatch):
    """Every step, its section in the flow."""
    flow = FLOWS[name]
    if any(step.get("close") == 4000 for step in flow["steps"]):
        monkeypatch.setattr(aitp_link, "HANDSHAKE_S", 0.2)
    port = Port()
    script = None

    async def talk(socket):
        await script.talk(socket)

    async with asyncio.timeout(DEADLINE_S), serve(talk, "127.0.0.1", 0) as server:
        voice = "message" if name == "text.audio" else "live"
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        agent = port.agent = Aitp(Options(url=url, voice=voice, reconnect_delay_ms=20))
        script = Script(flow, agent, port)
        session = SessionInfo(TOOLS, None, PCM, PCM)
        try:
            if name in REFUSED:
                with pytest.raises(AgentStartError, match=r"^aitp: "):
                    await agent.start(session, port)
            else:
                await agent.start(session, port)
            await script.done
            if name in FAILING:
                await port.until(lambda: port.all(AgentError))
            if any('"done": true' in json.dumps(step) for step in flow["steps"]):
                await port.ends(2 if "refund" in json.dumps(flow) else 1)
        finally:
            await agent.close()
        assert bool(port.all(AgentError)) == (name in FAILING)
