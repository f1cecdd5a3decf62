"""An OwlLayer server as a process (AITP 1.0.0): its order of messages, its sessions, its refusals.

Every frame both ways is judged by the vectors' schema. Beyond `process`:
- `be(...)`: see `_SETTINGS`; `expire()`: it shuts down; `event(kind, message, data)`: a SYSTEM_EVENT;
  `frame(text)`: anything; `state(event)`: a VOICE_STATE_EVENT; `ask(id, message)`: a tool of its own waits for the user's approval;
- reports `init(payload)`, `context(payload)`, `pending(id)`, `approval_request(payload)`, `approval(id, approved, payload)` of such a tool,
  `input_end(reason)`, `recording(mime, bytes)`, `frames(count)` of a second with too many, `closed_by(code, reason)`.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import time
from collections import deque

from websockets.exceptions import ConnectionClosed

from peers import vectors
from peers.plan import EnergyVad, chunks
from peers.process import main
from peers.sockets import SocketPeer

PATH = "/owllayer"
_SETTINGS = {
    "version": "1.0.0",
    "capabilities": ["text", "audio", "tools"],
    "max_tools": None,
    "early": False,
    "ack": True,
    "live": True,
    "vad": "client",
    "heard": "What is said.",
    "rate": 24_000,
    "twice": True,
    "asked": True,
}
"""The version and abilities that it tells; whether it confirms before it is greeted, and at all; whether it can be interrupted; who
finds that an utterance has ended; what every utterance is taken for; its audio's rate; whether it says twice that a turn is over; whether a key is needed."""
_CLOSES = {
    "key": (1008, "Unauthorized: {key}"),
    "expired": (1008, "invalid lineToken"),
    "quota": (1008, "Connection limit of the key"),
    "model": (1011, "no model"),
    "format": (1003, "unsupported data"),
    "rate": (1013, "Server at capacity"),
    "version": (1008, "Protocol version mismatch"),
}
_WORDS = {
    "quota": "API key usage limit exceeded.",
    "version": "Incompatible protocol version: 1.0.0 (server: 2.0.0)",
}
_FAULTS = {"error": "AI service error", "rate": "Too many messages"}


class _Session:
    def __init__(self, peer, socket):
        self.peer = peer
        self.socket = socket
        self._vad = EnergyVad("pcm16", 16_000)
        self._response = None
        self._part = None
        self._playing = set()
        self._sounded = False
        self._calls = {}
        self._gone = set()
        self._asked = {}
        self._ids = itertools.count(1)
        self._sent = deque()

    async def run(self):
        settings = self.peer.settings
        key = self.socket.request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not key and settings["asked"]:
            self.peer.tell("invalid", why="no key")
        if self.socket.request.path != PATH:
            self.peer.tell("invalid", why=f"the path {self.socket.request.path}")
        refusal = self.socket.refusal
        if refusal is None and settings["early"]:
            await self._acknowledge()
        init = await self._receive()
        if init["type"] != "HANDSHAKE_INIT":
            self.peer.tell("invalid", why=f"{init['type']} instead of HANDSHAKE_INIT")
        self.peer.tell("init", payload={**init["payload"], "apiKey": "..."})
        if init["payload"]["apiKey"] != (key or "anonymous"):
            self.peer.tell("invalid", why="two keys")
        if refusal is not None:
            if refusal in _WORDS:
                await self.event("error", _WORDS[refusal])
            code, words = _CLOSES[refusal]
            await self.socket.close(code, words.format(key=key))
            return
        if not settings["early"] and settings["ack"]:
            await self._acknowledge()
        try:
            while True:
                await self._on_frame(await self._receive())
        except ConnectionClosed as error:
            if error.rcvd is not None and error.rcvd_then_sent:
                self.peer.tell("closed_by", code=error.rcvd.code, reason=error.rcvd.reason)
            raise

    def end(self):
        for task in self._playing:
            task.cancel()

    async def _acknowledge(self):
        settings = self.peer.settings
        limit = {} if settings["max_tools"] is None else {"maxActiveTools": settings["max_tools"]}
        await self.send(
            "HANDSHAKE_ACK",
            sessionId=f"ses_{next(self.peer.ids)}",
            serverVersion="0.4.0",
            protocolVersion=settings["version"],
            capabilities=settings["capabilities"],
            **limit,
        )

    async def _receive(self):
        frame = await self.socket.recv()
        for why in vectors.errors("aitp", "client", frame):
            self.peer.tell("invalid", why=f"{why}: {frame[:300]}")
        message = json.loads(frame)
        self._sent.append(
            message["timestamp"]
        )  # by the client's clock: a busy machine delivers late, and then all at once
        while message["timestamp"] - self._sent[0] > 1_000:
            self._sent.popleft()
        if len(self._sent) > 100:
            self.peer.tell("invalid", why="more than 100 messages in a second")
        return message

    async def send(self, type_, *, judged=True, **payload):
        frame = {
            "id": f"msg_{next(self._ids)}",
            "type": type_,
            "timestamp": round(1000 * time.time()),
            "payload": payload,
        }
        if judged and (type_ != "AUDIO_STREAM" or not self._sounded):
            self._sounded = self._sounded or type_ == "AUDIO_STREAM"  # one is like the other
            assert vectors.errors("aitp", "server", frame) == []
        await self.text(json.dumps(frame))

    async def text(self, text):
        with contextlib.suppress(ConnectionClosed):
            await self.socket.send(text)

    async def event(self, kind, message=None, **data):
        more = {} if message is None else {"message": message}
        await self.send("SYSTEM_EVENT", kind=kind, **more, **({"data": data} if data else {}))

    # --- what comes

    async def _on_frame(self, frame):
        await getattr(self, f"_on_{frame['type']}")(frame["payload"])

    async def _on_HANDSHAKE_INIT(self, payload):
        self.peer.tell("invalid", why="a second handshake")

    async def _on_CONTEXT_UPDATE(self, payload):
        self.peer.tell("context", payload=payload)
        if len(payload["activeTools"]) > (self.peer.settings["max_tools"] or 30):
            self.peer.tell("invalid", why="too many tools")
        tools = [
            {"name": tool["name"], "description": tool["description"]} for tool in payload["activeTools"]
        ]
        ignored = [tool for tool in tools if tool["name"] in self.peer.own]
        data = {"effectiveTools": tools, "serverTools": ignored, "clientTools": tools}
        await self.event(
            "tools_effective", "Effective tool surface updated", **data, ignoredClientTools=ignored
        )

    async def _on_USER_INPUT(self, payload):
        if self._response is not None or self._calls:
            self.peer.tell("invalid", why="an input while it answers")
            await self.event("error", "still answering")
            return
        if payload["modality"] == "audio":
            sound = base64.b64decode(payload["content"])
            self.peer.tell(
                "recording", mime=payload["mimeType"], bytes=len(sound), head=sound[:4].decode("latin-1")
            )
            self.peer.tell("committed")
            await self.send(
                "AGENT_RESPONSE", chunk=f"[Transcription] {self.peer.settings['heard']}", done=False
            )
        else:
            self.peer.tell("text", text=payload["content"])
        self._respond()

    async def _on_AUDIO_STREAM(self, payload):
        if payload["mimeType"] != "audio/pcm;rate=16000":
            self.peer.tell("invalid", why=f"audio of the type {payload['mimeType']}")
        if not self.peer.settings["live"]:
            await self.event("error", "Audio mode unavailable")
            return
        for what, at in self._vad.feed(base64.b64decode(payload["data"])):
            if what == "start":
                self.peer.tell("speech_started", ms=at)
                if self.peer.settings["vad"] == "server" and self._response is not None:
                    await self._interrupt()
            else:
                self.peer.tell("speech_stopped", ms=at)
                if self.peer.settings["vad"] == "server":
                    await self._commit()

    async def _on_VOICE_INPUT_END(self, payload):
        self.peer.tell("input_end", reason=payload["reason"])
        if self.peer.settings["live"] and self.peer.settings["vad"] == "client":
            await self._commit()

    async def _commit(self):
        self.peer.tell("committed")
        for word in self.peer.settings["heard"].split(" "):
            await self.event("transcript", role="user", text=f" {word}")
        self._respond()

    async def _on_VOICE_INTERRUPT(self, payload):
        self.peer.tell("cancel")
        if self.peer.settings["live"]:
            await self._interrupt(reason="barge_in")

    async def _on_TOOL_RESULT(self, payload):
        id_ = payload["callId"]
        if payload["status"] == "pending_approval":
            self.peer.tell("pending", id=id_)
            if self._calls.get(id_) != "open":
                self.peer.tell("invalid", why=f"{id_} is not open, and waits for the user")
            return
        await self._settle(payload, "open")

    async def _on_APPROVAL_REQUEST(self, payload):
        self.peer.tell("approval_request", payload=payload)
        if self._calls.get(payload["callId"]) != "open":
            self.peer.tell("invalid", why="an approval of no call")
        else:
            self._calls[payload["callId"]] = "approval"

    async def _on_APPROVAL_RESPONSE(self, payload):
        id_ = payload["callId"]
        if id_ in self._asked:
            del self._asked[id_]
            self.peer.tell("approval", id=id_, approved=payload["approved"], payload=payload)
            self._respond()
        else:
            await self._settle(payload, "approval")

    async def _settle(self, payload, state):
        id_ = payload["callId"]
        known = id_ in self._gone or self._calls.get(id_) == state
        if not known:
            self.peer.tell("invalid", why=f"a result of no call that is {state}: {payload}")
        self.peer.tell(
            "result",
            id=id_,
            output=json.dumps(payload),
            status=payload.get("status"),
            approved=payload.get("approved"),
        )
        if self._calls.pop(id_, None) is not None and not self._calls:
            self._respond()

    # --- what the model does

    async def _interrupt(self, **reason):
        self._gone |= self._calls.keys()
        self._calls.clear()
        response, self._response = self._response, None
        if response is not None:
            part = self._part or {}
            playing = list(self._playing)
            for task in playing:
                task.cancel()
            await asyncio.gather(*playing, return_exceptions=True)
            for _ in range(part.get("deaf", 0)):
                await self._sound(b"\x01\x01" * 240)
        await self.send("VOICE_STATE_EVENT", event="interrupted", **reason)

    def _respond(self):
        """Play the next response, behind the one that plays."""
        before, parts = self._response, deque(self.peer.next_response())
        self._response = asyncio.create_task(self._play(before, parts))
        self._playing.add(self._response)
        self._response.add_done_callback(self._played)

    def _played(self, task):
        self._playing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.peer.tell("invalid", why=repr(error))

    async def _play(self, before, parts):
        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        while parts:
            self._part = part = parts.popleft()
            if "wait" in part:
                await self.peer.wait(part["wait"])
            elif "say" in part:
                await self._say(part)
            elif "text" in part:
                await self.send("AGENT_RESPONSE", chunk=part["text"], done=False)
            elif "call" in part:
                await self._call(part)
            elif not await self._fault(part["fault"]):
                self._response = None
                return
        if self._response is not asyncio.current_task():
            return  # the results have come meanwhile
        self._response = None
        if self._calls:
            return  # the turn goes on with the results
        await self.send("AGENT_RESPONSE", chunk="", done=True)
        if self.peer.settings["twice"]:
            await self.send("VOICE_STATE_EVENT", event="turn_complete")

    async def _say(self, part):
        said = False
        async for chunk in chunks(part, "pcm16", self.peer.settings["rate"]):
            await self._sound(chunk)
            if not said:
                said = True
                await self.event("transcript", role="agent", text=part["say"])

    async def _sound(self, chunk):
        mime = f"audio/pcm;rate={self.peer.settings['rate']}"
        await self.send("AUDIO_STREAM", data=base64.b64encode(chunk).decode(), mimeType=mime)

    async def _call(self, part):
        id_ = part["id"] or f"tc_{next(self._ids)}"
        self._calls[id_] = "open"
        await self.send("TOOL_CALL", callId=id_, name=part["call"], args=json.loads(part["arguments"]))

    async def _fault(self, kind):
        """Whether the response goes on."""
        if kind == "disconnect":
            self.socket.transport.abort()
        elif kind == "malformed":
            await self.text('{"id": "msg_1", "type": "AGENT_RESPONSE", "payload": {"chu')
            return True
        elif kind == "unknown":
            await self.send("SOMETHING_NEW", judged=False, a=1)
            return True
        elif kind == "expired":
            await self.socket.close(1001, "Server shutting down")
        else:
            await self.event("error", _FAULTS[kind])
        return False

    async def ask(self, id, message):
        self._asked[id] = True
        await self.event("approval_required", message)
        await self.send(
            "APPROVAL_REQUEST",
            callId=id,
            toolName="refund",
            risk="critical",
            args={"amount": 5},
            message=message,
        )


class AitpPeer(SocketPeer):
    session = _Session
    defaults = _SETTINGS

    def __init__(self):
        super().__init__()
        self.own = ()
        """Names of tools that are the server's own."""

    def request(self, connection, request):
        return None

    def on_own(self, names):
        self.own = names

    async def on_expire(self):
        for session in list(self.sessions):
            await session.socket.close(1001, "Server shutting down")

    async def on_close(self, code, reason=""):
        for session in list(self.sessions):
            await session.socket.close(code, reason)

    async def on_event(self, kind, message=None, data=None):
        for session in self.sessions:
            await session.event(kind, message, **(data or {}))

    async def on_state(self, event):
        for session in self.sessions:
            await session.send("VOICE_STATE_EVENT", event=event)

    async def on_frame(self, text):
        for session in self.sessions:
            await session.text(text)

    async def on_send(self, kind, payload):
        for session in self.sessions:
            await session.send(kind, **payload)

    async def on_ask(self, id, message):
        for session in self.sessions:
            await session.ask(id, message)

    def on_reset(self):
        super().on_reset()
        self.own = ()


if __name__ == "__main__":
    main(AitpPeer)
