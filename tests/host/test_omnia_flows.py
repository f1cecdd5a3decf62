"""The agent `omnia` in the conversations of schema/peers/omnia/flows, message by message: the test is the facade, over a real socket."""

import asyncio
import base64
import contextlib
import json
from urllib.parse import parse_qsl

import pytest
from agent_stage import started
from aiohttp import WSMsgType, web
from peers import vectors
from peers.plan import tone
from peers.process import DEADLINE_S
from vrt_host.agents import omnia_sender
from vrt_host.agents.base import AgentError, Call, Text, Tool, ToolResult, Transcript
from vrt_host.agents.omnia import OmniaAgent, Options
from vrt_host.agents.omnia_sound import INPUT, OUTPUT

AUDIO = tone(0.1, "pcm16", 16_000)
FILE = "data:image/jpeg;name=photo.jpg;base64," + base64.b64encode(b"four").decode()
RETRIED = ("SESSION_EXPIRED", "TURN_IN_PROGRESS", "RATE_LIMITED")
"""After these the agent sends by itself what was not taken."""
NOT_OURS = {
    "text.own": "our agent leaves out the id of the connection's own session, which the page allows, too",
    "audio.last": "our agent never sets IsLast: it hangs up",
}
FLOWS = {
    id_: flow
    for id_, flow in vectors.load("omnia").flows.items()
    if flow.get("player") != "client" and id_ not in NOT_OURS
}


class Facade:
    """Plays the server's steps of a flow, and has the agent play the client's."""

    def __init__(self, flow, folder):
        self.flow = flow
        self.bound = {
            name: values for name, values in flow.get("examples", {}).items() if isinstance(values, str)
        }
        self.errors = []
        self.said = []
        self._connections = asyncio.Queue()
        self._uploads = asyncio.Queue()
        self._frames = asyncio.Queue()
        self._socket = None
        self._transports = {}
        self._folder = folder
        self._expected_retry = False

    async def __aenter__(self):
        app = web.Application()
        app.router.add_get("/ws", self._connected)
        app.router.add_put("/{path:.*}", self._put)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _connected(self, request):
        socket = web.WebSocketResponse(max_msg_size=1 << 25)
        await socket.prepare(request)
        self._transports[socket] = request.transport
        await self._connections.put((dict(parse_qsl(request.query_string)), socket))
        async for message in socket:
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                assert vectors.errors("omnia", "client", message.data) == []
                await self._frames.put(message.data)
        await self._frames.put((socket, socket.close_code))
        return socket

    async def _put(self, request):
        await self._uploads.put((request.path_qs, dict(request.headers), await request.read()))
        return web.Response(status=204)

    # --- the agent

    def options(self):
        steps = self.flow["steps"]
        query = next(step["message"] for step in steps if step.get("as") == "query")
        tools = {
            step["message"]["tool_call"]["name"]["$like"]
            for step in steps
            if step.get("message", {}).get("type") == "tool_call"
        }
        given = {
            "base_url": f"http://127.0.0.1:{self.port}",
            "agent": "my-agent",
            "binary": "binary" in query,
        }
        for name in ("namespace", "memory_facet"):
            if name in query:
                given[name] = vectors.fill(query[name], {})
        if any(step.get("message", {}).get("type") == "credential_refresh" for step in steps):
            given["credential_file"] = self._folder / "token"
            given["credential_file"].write_text("first")
        return Options(**given), [] if self.flow["id"] == "tools.declined" else [Tool(name) for name in tools]

    async def play(self):
        options, tools = self.options()
        self.agent = OmniaAgent(options)
        async with asyncio.timeout(DEADLINE_S), contextlib.AsyncExitStack() as stack:
            starting = asyncio.create_task(
                stack.enter_async_context(started(self.agent, tools=tools, format_=INPUT, output=OUTPUT))
            )
            for number, step in enumerate(self.flow["steps"]):
                if self.agent._closed:  # what may come after that is another client's
                    break
                self._number = number
                if step["from"] == "server" if "from" in step else False:
                    await self._serve(step)
                    if step.get("message", {}).get("type") == "connected" and not starting.done():
                        self.port_ = await starting
                elif "wait_ms" in step:
                    await self._socket.ping()
                    assert self._frames.empty(), "nothing was to be sent"
                else:
                    await self._expect(step)
            await self._settle()

    async def _settle(self):
        """What was told has arrived."""
        for code in self.errors:
            await self._told(code)
        for text in self.said:
            await self.port_.until(lambda text=text: text in self._heard())

    async def _told(self, code):
        await self.port_.until(lambda: any(code in one.message for one in self.port_.all(AgentError)))

    def _heard(self):
        return "".join(event.text for event in [*self.port_.all(Text), *self.port_.all(Transcript)])

    # --- the server's steps

    async def _serve(self, step):
        if step.get("close") == 1006:
            self._transports[self._socket].abort()
        elif "close" in step:
            await self._socket.close(code=step["close"], message=step.get("reason", "").encode())
        elif "frame" in step:
            decoded = vectors.fill(step["frame"], self.bound, self.flow.get("examples"))
            await self._socket.send_bytes(vectors.encode_omni(decoded))
        elif "hex" in step:
            await self._socket.send_bytes(vectors.frame(step))
        elif "text" in step:
            await self._socket.send_str(step["text"])
        else:
            message = vectors.fill(step["message"], self.bound, self.flow.get("examples"))
            if message["type"] == "upload_ready":
                message["upload_ready"] |= {
                    "upload_url": f"http://127.0.0.1:{self.port}/media/upload/{message['upload_ready']['upload_id']}",
                    "expires_at": "2099-01-09T12:00:00Z",
                }
                self.bound["url"] = message["upload_ready"]["upload_url"]
            self._note(message)
            await self._socket.send_str(json.dumps(message))

    def _note(self, message):
        if message["type"] == "error":
            following = [
                step for step in self.flow["steps"][self._number + 1 :] if step.get("from") == "client"
            ]
            code = message["error"]["code"]
            self._expected_retry = code in RETRIED and bool(following)
            inline = (
                message["error"]["message"] == "media storage is not enabled"
            )  # the file goes with the message
            if not (self._expected_retry or inline):
                self.errors.append(code)
        elif message["type"] == "chunk" and not message.get("role"):
            self.said.append(message["content"])

    # --- the client's steps

    async def _expect(self, step):
        if step.get("as") == "query":
            query, self._socket = await self._connections.get()
            assert vectors.errors("omnia", "query", query) == []
            assert vectors.difference(step["message"], query, self.bound) is None
        elif "http" in step:
            wanted = step["http"]
            path, headers, data = await self._uploads.get()
            assert data == b"four"
            assert self.bound["url"].endswith(path)
            assert vectors.difference(wanted["headers"], headers, self.bound) is None
        elif "close" in step:
            while True:
                frame = await self._frames.get()
                if isinstance(frame, tuple):
                    assert frame[1] == step["close"]
                    return
        elif "frame" in step:
            self.agent.user_audio(AUDIO)
            await self._matching(step, "frame")
        else:
            await self._stimulate(step["message"])
            await self._matching(step, "message")

    async def _stimulate(self, message):
        """Have the agent send this, once it knows what came before."""
        kind = message["type"]
        for code in self.errors:
            await self._told(code)
        retried, self._expected_retry = self._expected_retry, False
        if kind == "message" and not retried:
            if vectors.fill(message.get("session_id", "$-"), {}) == "sess-old":
                self.agent._dialogue.sender.session = "sess-old"
            if "parts" not in message:
                self.agent.user_text("Hello")
        elif kind == "upload_request":
            self.agent.context({"photo": FILE})
            self.agent.user_text("Hello")
        elif kind in ("tool_result", "tool_call_nack"):
            await self._answer(message)
        elif kind == "credential_refresh":
            (self._folder / "token").write_text("second")
        elif kind == "hangup":
            self._closing = asyncio.create_task(self.agent.close())

    async def _answer(self, message):
        """The user and the device answer a call; one of an unknown tool is declined by itself."""
        if self.flow["id"] == "tools.declined":
            return
        if "consent" in self.flow["id"]:
            await self.port_.until(lambda: self.port_.all(Text))
            self.agent.user_text("Yes." if message["type"] == "tool_result" else "No.")
        if message["type"] == "tool_result":
            await self.port_.until(lambda: self.port_.all(Call))
            [call] = self.port_.all(Call)
            failed = "error" in message["tool_result"]
            result = ToolResult(call.call, not failed, {"a": 1}, "FAILED" if failed else None, "it broke")
            self.agent.tool_result(call.turn, result)

    async def _matching(self, step, what):
        """The next frame of that kind that is as the step has it; an acknowledgement, and audio, may come before it."""
        if step.get("may"):
            return
        while True:
            frame = await self._frames.get()
            if isinstance(frame, tuple):
                assert frame[0] is not self._socket, "the connection was closed"
                continue
            if isinstance(frame, bytes) != (what == "frame"):
                assert isinstance(frame, bytes), frame
                continue
            value = vectors.decode_omni(frame) if what == "frame" else json.loads(frame)
            if what == "message" and value["type"] == "tool_call_ack" != step["message"]["type"]:
                continue
            assert vectors.difference(step[what], value, self.bound) is None
            return


@pytest.mark.parametrize("id_", FLOWS)
async def test_conversation_goes_as_its_vector_says(id_, tmp_path, monkeypatch):
    monkeypatch.setattr(omnia_sender, "RATE_S", (0.01, 0.01))
    monkeypatch.setattr("vrt_host.agents.omnia_credential.WATCH_S", 0.01)
    async with Facade(FLOWS[id_], tmp_path) as facade:
        await facade.play()
