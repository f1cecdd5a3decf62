"""Gemini Live as a process (`BidiGenerateContent` over a WebSocket): its order of events, its sessions, its refusals.

Every frame both ways is judged by the SDK's own types. Beyond `process`:
- `goaway(seconds)`: the connection will end; `expire()`: it ends now, for its age; `forget()`: no session can be resumed any more;
- `cancel_calls()`: open calls are taken back; `be(heard, signals, resumable)`: see `_SETTINGS`;
- reports `history(turns)` of a session that begins with a conversation, `resumed(handle, said)`, `stream_end`.
"""

import asyncio
import base64
import contextlib
import http
import itertools
import json
from collections import deque

import pydantic
from google.genai import types
from websockets.exceptions import ConnectionClosed

from peers.plan import EnergyVad, chunks
from peers.process import main
from peers.sockets import SocketPeer

PATH = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"
_SETTINGS = {"heard": "What is said.", "signals": False, "resumable": True}
"""What every utterance is taken for; whether the service tells when speech begins and ends; whether it gives handles."""
_CLOSES = {
    "key": (1007, "API key not valid. Please pass a valid API key, not {key}."),
    "expired": (1007, "API key expired. Please renew the API key."),
    "model": (1008, "models/{model} is not found for API version v1beta, or is not supported for bidiGenerateContent."),
    "format": (1007, "Request contains an invalid argument."),
    "quota": (1011, "You exceeded your current quota, please check your plan and billing details."),
}  # fmt: skip
_FAULTS = {
    "error": (1011, "Internal error encountered."),
    "rate": (1011, "Resource has been exhausted (e.g. check quota)."),
    "expired": (1011, "Deadline expired before operation could complete."),
}


def judge(frame):
    """Raise what is wrong with a client's frame. The SDK has one member of `setup` as a type of its own."""
    setup = dict(frame.get("setup", {}))
    types.RealtimeInputConfig.model_validate(setup.pop("realtimeInputConfig", {}))
    types.LiveClientMessage.model_validate({**frame, "setup": setup} if setup else frame)


class _Session:
    def __init__(self, peer, socket):
        self.peer = peer
        self.socket = socket
        self.said = []
        """What the session knows: all that the model was told."""
        self._vad = EnergyVad("pcm16", 16_000)
        self._response = None
        self._part = None
        self._calls = {}
        self._gone = set()
        self._ids = itertools.count(1)
        self._seeding = False

    async def run(self):
        key = self.socket.request.headers.get("x-goog-api-key")
        setup = await self._receive()
        self.setup = setup.get("setup")
        if not key or self.setup is None:
            self.peer.tell("invalid", why="no key, or no setup")
            return
        self.peer.tell("setup", setup=self.setup)
        model = self.setup["model"].removeprefix("models/")
        if self.socket.refusal is not None:
            code, words = _CLOSES[self.socket.refusal]
            await self.socket.close(code, words.format(key=key, model=model))
            return
        self._old = "gemini-2" in model
        self._waits = self._old or "3.1" in model
        handle = self.setup.get("sessionResumption", {}).get("handle")
        if handle is not None and handle not in self.peer.handles:
            await self.socket.close(1007, "Request contains an invalid argument.")
            return
        if handle is not None:
            owner, said = self.peer.handles[handle]
            if owner in self.peer.sessions:
                self.peer.tell("invalid", why="a session that still has a connection is resumed on another")
                await self.socket.close(1011, "Internal error encountered.")
                return
            self.said = list(said)
            self.peer.tell("resumed", handle=handle, said=self.said)
        declared = [one["functionDeclarations"] for one in self.setup.get("tools", [])]
        self._blocking = not any(tool.get("behavior") == "NON_BLOCKING" for one in declared for tool in one)
        self._seeding = self.setup.get("historyConfig", {}).get("initialHistoryInClientContent", False)
        await self.send({"setupComplete": {}})
        while True:
            await self._on_frame(await self._receive())

    def end(self):
        if self._response is not None:
            self._response.cancel()

    async def _receive(self):
        text = await self.socket.recv()
        frame = json.loads(text)
        try:
            judge(frame)
        except pydantic.ValidationError as error:
            self.peer.tell("invalid", why=str(error))
        return frame

    async def send(self, frame, *, judged=True):
        if judged:
            types.LiveServerMessage.model_validate(frame)
        with contextlib.suppress(ConnectionClosed):
            await self.socket.send(json.dumps(frame).encode())

    async def content(self, **members):
        await self.send({"serverContent": members})

    # --- what comes

    async def _on_frame(self, frame):
        [(kind, value)] = frame.items()
        if self._seeding and kind != "clientContent":
            self.peer.tell("invalid", why=f"{kind} before the history that was announced")
        handler = getattr(self, f"_on_{kind}", None)
        if handler is None:
            self.peer.tell("invalid", why=f"{kind} in the midst of a session")
        else:
            await handler(value)

    async def _on_clientContent(self, value):
        turns = [(turn["role"], "".join(part["text"] for part in turn["parts"])) for turn in value["turns"]]
        if self._seeding or not value["turnComplete"]:
            if self._seeding:
                self._seeding = not value["turnComplete"]
            elif not self._old:
                self.peer.tell("invalid", why="content in the midst of a session, of a model that takes none")
            elif self._response is not None:
                await self._interrupt()  # as documented, by any content
            self.peer.tell("history", turns=turns)
            for _, text in turns:
                self.said.append(text)
                if text.startswith("Context from the application"):
                    self.peer.tell("context", text=text)
            return
        if not self._old:
            self.peer.tell("invalid", why="content in the midst of a session, of a model that takes none")
            await self.socket.close(1007, "Request contains an invalid argument.")
            return
        await self._on_text(turns[-1][1])

    async def _on_contextUpdate(self, value):
        if self._old or "3.1" in self.setup["model"]:
            self.peer.tell("invalid", why="a model that knows no contextUpdate")
        text = "\n".join(part["text"] for part in value["systemInstruction"]["parts"])
        self.said.append(text)
        self.peer.tell("context", text=text)

    async def _on_realtimeInput(self, value):
        [(kind, said)] = value.items()
        if self._waits and self._calls and self._blocking:
            self.peer.tell("invalid", why=f"{kind}, to a model that waits for results")
            await self.socket.close(1008, "Operation is not implemented, or supported, or enabled.")
        elif kind == "text":
            await self._on_text(said)
        elif kind == "audio":
            if said["mimeType"] != "audio/pcm;rate=16000":
                self.peer.tell("invalid", why=f"audio of the type {said['mimeType']}")
            for what, at in self._vad.feed(base64.b64decode(said["data"])):
                await (self._speech_starts(at) if what == "start" else self._speech_stops(at))
        elif kind == "audioStreamEnd":
            self.peer.tell("stream_end")
            if self._vad.speaking:
                self._vad.speaking = False
                await self._speech_stops(self._vad.now_ms)
        else:
            self.peer.tell("invalid", why=f"realtimeInput.{kind}")

    async def _on_text(self, text):
        self.said.append(text)
        self.peer.tell("text", text=text)
        await self._interrupt()
        self._respond()

    async def _speech_starts(self, at):
        self.peer.tell("speech_started", ms=at)
        if self.peer.settings["signals"]:
            await self.send({"voiceActivity": {"voiceActivityType": "ACTIVITY_START"}})
        await self._interrupt()

    async def _speech_stops(self, at):
        self.peer.tell("speech_stopped", ms=at)
        self.peer.tell("committed")
        if self.peer.settings["signals"]:
            await self.send({"voiceActivity": {"voiceActivityType": "ACTIVITY_END"}})
        for word in self.peer.settings["heard"].split(" "):
            await self.content(inputTranscription={"text": f" {word}"})
        self._respond()

    async def _on_toolResponse(self, value):
        for answer in value["functionResponses"]:
            id_ = answer.get("id")
            if self._calls.pop(id_, None) != answer["name"]:
                words = "a call that was taken back" if id_ in self._gone else "no open call"
                self.peer.tell("invalid", why=f"a result of {words}: {answer}")
                return
            output = json.dumps(answer["response"])
            self.said.append(output)
            self.peer.tell("result", id=id_, output=output, silent="scheduling" in answer)
        if not self._calls and not all(answer.get("scheduling") for answer in value["functionResponses"]):
            self._respond()

    # --- what the model does

    async def _interrupt(self):
        """New input: what the model does ends, and calls that block are taken back."""
        if self._calls and self._blocking:
            await self.take_back()
        response, self._response = self._response, None
        if response is None:
            return
        part = self._part or {}
        response.cancel()
        await asyncio.gather(response, return_exceptions=True)
        for _ in range(part.get("deaf", 0)):
            await self._sound(b"\x01\x01" * 240)
        await self.content(interrupted=True)
        await self.content(turnComplete=True)

    async def take_back(self):
        if self._calls:
            ids = list(self._calls)
            self._gone |= self._calls.keys()
            self._calls.clear()
            self.peer.tell("calls_cancelled", ids=ids)
            await self.send({"toolCallCancellation": {"ids": ids}})
            self._response = self._response or asyncio.create_task(asyncio.sleep(0))

    def _respond(self):
        """Play the next response, behind the one that plays."""
        before, parts = self._response, deque(self.peer.next_response())
        self._response = asyncio.create_task(self._play(before, parts))
        self._response.add_done_callback(self._played)

    def _played(self, task):
        if not task.cancelled() and (error := task.exception()) is not None:
            self.peer.tell("invalid", why=repr(error))

    async def _play(self, before, parts):
        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        if self.peer.settings["resumable"]:
            await self.send({"sessionResumptionUpdate": {"resumable": False}})
        while parts:
            self._part = part = parts.popleft()
            if "wait" in part:
                await self.peer.wait(part["wait"])
            elif "say" in part:
                await self._say(part)
            elif "text" in part:
                await self.content(modelTurn={"role": "model", "parts": [{"text": part["text"]}]})
            elif "fault" in part:
                await self._fault(part["fault"])
            elif "call" in part:
                calls = [part]
                while parts and "call" in parts[0]:
                    calls.append(parts.popleft())
                if not await self._call(calls):
                    return
        if self._calls and self._blocking:
            return  # the turn goes on with the results
        if self._response is not asyncio.current_task():
            return  # the results have come meanwhile
        self._response = None
        await self.content(generationComplete=True)
        await self._complete()

    async def _complete(self, **members):
        await self.send(
            {
                "serverContent": {"turnComplete": True, **members},
                "usageMetadata": {"promptTokenCount": 10, "responseTokenCount": 5, "totalTokenCount": 15},
            }
        )
        if self.peer.settings["resumable"]:
            handle = f"handle-{len(self.peer.handles) + 1}"
            self.peer.handles[handle] = self, list(self.said)
            await self.send({"sessionResumptionUpdate": {"newHandle": handle, "resumable": True}})

    async def _say(self, part):
        words = part["say"].split(" ")
        said = False
        async for chunk in chunks(part, "pcm16", 24_000):
            if not said:
                said = True
                for number, word in enumerate(words):
                    await self.content(outputTranscription={"text": word if not number else f" {word}"})
            await self._sound(chunk)

    async def _sound(self, chunk):
        data = base64.b64encode(chunk).decode()
        await self.content(
            modelTurn={"parts": [{"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": data}}]}
        )

    async def _call(self, parts):
        calls = []
        for part in parts:
            id_ = part["id"] or f"function-call-{next(self._ids)}"
            try:
                arguments = json.loads(part["arguments"])
            except ValueError:
                arguments = None
            if not isinstance(arguments, dict):
                # Broken arguments never leave the server.
                self._response = None
                await self._complete(turnCompleteReason="MALFORMED_FUNCTION_CALL")
                return False
            calls.append({"id": id_, "name": part["call"], "args": arguments})
        self._calls |= {call["id"]: call["name"] for call in calls}
        await self.send({"toolCall": {"functionCalls": calls}})
        return True

    async def _fault(self, kind):
        if kind == "disconnect":
            self.socket.transport.abort()
        elif kind == "malformed":
            await self.socket.send(b'{"serverContent": {"modelTurn"')
        elif kind == "unknown":
            await self.send({"somethingNew": {"a": 1}}, judged=False)
        else:
            await self.socket.close(*_FAULTS[kind])


class GeminiPeer(SocketPeer):
    session = _Session
    defaults = _SETTINGS

    def __init__(self):
        super().__init__()
        self.handles = {}
        """Handle -> the connection that gave it, and what the session knew."""

    def request(self, connection, request):
        if connection.refusal == "version":
            return connection.respond(http.HTTPStatus.NOT_FOUND, "")
        if connection.refusal == "rate":
            words = {"error": {"code": 429, "message": "Too many requests.", "status": "RESOURCE_EXHAUSTED"}}
            return connection.respond(http.HTTPStatus.TOO_MANY_REQUESTS, json.dumps(words))
        if request.path != PATH:
            self.tell("invalid", why=f"the path {request.path}")
            return connection.respond(http.HTTPStatus.NOT_FOUND, "")
        return None

    async def on_goaway(self, seconds=10):
        for session in self.sessions:
            await session.send({"goAway": {"timeLeft": f"{seconds}s"}})

    async def on_expire(self):
        for session in list(self.sessions):
            await session.socket.close(*_FAULTS["expired"])

    def on_forget(self):
        self.handles.clear()

    async def on_cancel_calls(self):
        for session in self.sessions:
            await session.take_back()


if __name__ == "__main__":
    main(GeminiPeer)
