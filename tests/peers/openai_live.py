"""OpenAI Live as a process: sound at the pace of time, silence included, and only while it gets sound; no turns; a backend for tools.

Every frame both ways is judged by the SDK's own types. Speech stops what is said; so does a typed text. Beyond `process`:
- `be(expires_s, heard)`: see `_SETTINGS`; `expire()`: the sessions have reached their age and end;
- reports `history(role, text)`, `instructions(text)`, `errors(code)`, `farewell`.
"""

import asyncio
import base64
import json
import time
from collections import deque

from openai.types.live import ClientEvent, ServerEvent
from websockets.exceptions import ConnectionClosed

from peers.openai_types import classes, wrong
from peers.plan import EnergyVad, quiet, tone
from peers.process import main
from peers.sockets import OpenAIPeer

_CLIENT, _SERVER = classes(ClientEvent), classes(ServerEvent)
_SETTINGS = {"expires_s": 3600.0, "heard": "What is said."}
"""How long a session lives; what every utterance is taken for."""
_EVENTS = {
    "model": ("model_not_found", "The model `{model}` does not exist or you do not have access to it.", "session.model"),
    "quota": ("insufficient_quota", "You exceeded your current quota.", None),
    "format": ("invalid_value", "Invalid value: 'audio/pcmu'.", "session.audio.format"),
    "version": ("unknown_parameter", "Unknown parameter: 'session.delegation'.", "session.delegation"),
}  # fmt: skip
_CHUNK_S = 0.04
_HUSH_S = 0.24
"""How long it is silent, at the least, between what it was saying and what it says next."""

_ONSET_MS = 100
"""So much speech it takes until it is taken for speech: a board's own ear is quicker."""


class _Session:
    def __init__(self, peer, socket):
        self.peer = peer
        self.socket = socket
        self._tasks = []
        self._fed_s = self._played_s = 0.0
        self._sound = deque()
        """What it says: chunks of sound, and texts that go before them."""
        self._more, self._gone = asyncio.Event(), asyncio.Event()
        self._response = None
        self._deaf = 0
        self._calls = {}
        self._left = {}
        """Calls that nobody waits for any more; they may have their results."""
        self._working = False
        """The backend is making a response."""
        self._waiting = False
        """A response waits for the results of its calls."""
        self._asked = False
        """The backend has been told something that it has not answered."""
        self._delegation = None
        """What it works at, if the voice gave it that; it goes on with it when it has the results."""

    async def run(self):
        start = await self._receive()
        if start["type"] != "session.start":
            self.peer.tell("invalid", why=f"{start['type']} before session.start")
            return
        self.config = start["session"]
        if (refusal := self.socket.refusal) is not None:
            code, words, param = _EVENTS[refusal]
            await self.error(code, words.format(model=self.config["model"]), param=param)
            await self.socket.close(1008, code)
            return
        format_ = self.config["audio"]["format"]
        self._encoding, self._rate = ("pcmu" if format_["type"] == "audio/pcmu" else "pcm16"), format_["rate"]
        self._bytes = self._rate * (1 if self._encoding == "pcmu" else 2)
        self._vad = EnergyVad(self._encoding, self._rate, loud_ms=_ONSET_MS)
        self.peer.tell("setup", session=self.config)
        for message in self.config.get("input", ()):
            self.peer.tell("history", role=message["role"], text=message["content"][0]["text"])
        await self.send("session.started", session=self._shown())
        self._start(self._speak())
        while True:
            frame = await self._receive()
            await getattr(self, "_on_" + frame["type"].replace(".", "_"))(frame)

    def _start(self, work):
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    def _ended(self, task):
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ConnectionClosed):
            self.peer.tell("invalid", why=repr(error))

    def end(self):
        for task in self._tasks:
            task.cancel()

    def _shown(self):
        shown = {name: value for name, value in self.config.items() if name != "input"}
        return {
            "id": "live_1",
            "status": "active",
            "expires_at": int(time.time() + self.peer.settings["expires_s"]),
            **shown,
        }

    async def expire(self):
        usage = {"seconds": 3600}
        await self.send("session.closed", reason="expired", session=self._shown(), usage=usage)
        await self.socket.close()

    async def _receive(self):
        frame = json.loads(await self.socket.recv())
        if (why := wrong(frame, _CLIENT)) is not None:
            self.peer.tell("invalid", why=why)
        return frame

    async def send(self, kind, **members):
        frame = {"type": kind, **members}
        if kind != "session.output_audio.delta":
            frame["event_id"] = f"event_{next(self.peer.ids)}"
        if (why := wrong(frame, _SERVER)) is not None:
            self.peer.tell("invalid", why=f"of the peer itself: {why}")
        await self.socket.send(json.dumps(frame))

    async def error(self, code, message, *, param=None, about=None, kind="invalid_request_error"):
        self.peer.tell("errors", code=code)
        error = {"type": kind, "code": code, "message": message, "param": param, "client_event_id": about}
        await self.send("error", error=error)

    def _at(self):
        return {"start_ms": round(self._played_s * 1000), "end_ms": round(self._played_s * 1000)}

    # --- what comes

    async def _on_session_input_audio_append(self, frame):
        payload = base64.b64decode(frame["audio"], validate=True)
        self._fed_s += len(payload) / self._bytes
        self._more.set()
        for what, at in self._vad.feed(payload):
            if what == "start":
                self.peer.tell("speech_started", ms=at)
                await self._stop()
            else:
                self.peer.tell("speech_stopped", ms=at)
                self.peer.tell("committed")
                for word in self.peer.settings["heard"].split():
                    await self.send("session.input_transcript.delta", delta=f" {word}", **self._at())
                await self._respond()

    async def _append(self, frame, kind, **fields):
        if len(frame["content"]) > 1200:
            self.peer.tell("invalid", why="more than 500 tokens")
        self.peer.tell(kind, text=frame["content"], **fields)
        await self.send(frame["type"] + "ed", **self._at())

    async def _on_session_thinking_append(self, frame):
        await self._append(frame, "context")

    async def _on_session_instructions_append(self, frame):
        await self._append(frame, "instructions")

    async def _on_session_close(self, frame):
        self.peer.tell("farewell")
        usage = {"seconds": 1}
        await self.send("session.closed", reason="close_requested", session=self._shown(), usage=usage)
        await self.socket.close()

    async def _on_response_item_create(self, frame):
        item = frame["item"]
        if item["type"] == "function_call_output":
            if self._calls.pop(item["call_id"], None) is self._left.pop(item["call_id"], None):
                self.peer.tell("invalid", why=f"a result of no call: {item}")
            self.peer.tell("result", id=item["call_id"], output=item["output"])
        else:
            text = item["content"][0]["text"]
            if text.startswith("[device data]"):
                self.peer.tell("context", text=text)
            else:
                self.peer.tell("text", text=text)
        self._asked = True

    async def _on_response_create(self, frame):
        if self._working:
            code = "response_already_active"
            await self.error(code, "There is a response already.", about=frame.get("event_id"))
            return
        if self._calls and self._waiting:
            code = "missing_results"
            await self.error(code, "Results are missing.", about=frame.get("event_id"))
            return
        goes_on, self._waiting = self._waiting, False
        if not goes_on:
            self._delegation = None
            await self._stop()
        await self._respond(backend=True)

    # --- what the model does

    async def _stop(self):
        """It stops to speak."""
        if self._response is not None and not self._waiting:
            self._response.cancel()
            await asyncio.gather(self._response, return_exceptions=True)
        self._waiting = False
        self._left |= self._calls
        self._calls.clear()
        rest = [one for one in self._sound if isinstance(one, bytes)][: self._deaf]
        self._sound.clear()
        self._sound.extend(rest)
        self._deaf = 0
        self._hush()

    def _hush(self):
        silent = quiet(_CHUNK_S, self._encoding, self._rate)
        self._sound.extend([silent] * round(_HUSH_S / _CHUNK_S))

    async def _respond(self, *, backend=False):
        before = self._response
        self._response = self._start(self._play(before, self.peer.next_response(), backend))

    async def _play(self, before, parts, backend):
        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        if backend or any("call" in part for part in parts):
            await self._work(parts, asked=backend)
        for part in parts:
            if "wait" in part:
                await self.peer.wait(part["wait"])
            elif "say" in part:
                await self._say(part["say"], part["seconds"], part["deaf"])
            elif "text" in part:
                await self._say(part["text"], 0.1, 0)
            elif "fault" in part:
                await self._fault(part["fault"])

    async def _work(self, parts, *, asked):
        """The backend calls tools, all that are in this response, and then waits for their results."""
        if not asked:
            self._delegation = f"delegation_{next(self.peer.ids)}"
            delegation = {"id": self._delegation, "type": "delegation", "target": "responses"}
            await self.send("session.delegation.created", delegation=delegation, offset_ms=0)
        id_ = self._delegation

        async def event(kind, **members):
            await self.send("response.event", event={"type": kind, **members}, delegation_id=id_)

        self._working = True
        response = {"id": f"resp_{next(self.peer.ids)}"}
        await event("response.created", response=response)
        await event("response.in_progress", response=response)
        thought = {"id": f"rs_{next(self.peer.ids)}", "type": "reasoning", "summary": []}
        await event("response.output_item.added", item=thought)
        await event("response.output_item.done", item=thought)
        self._waiting = any("call" in part for part in parts)
        for part in [part for part in parts if "call" in part]:
            call, item_id = part["id"] or f"call_{next(self.peer.ids)}", f"fc_{next(self.peer.ids)}"
            self._calls[call] = part["call"]
            item = {"type": "function_call", "id": item_id, "call_id": call, "name": part["call"]}
            await event("response.output_item.added", item={**item, "arguments": "", "status": "in_progress"})
            text = part["arguments"]
            for start in range(0, len(text), 8):
                delta = text[start : start + 8]
                await event("response.function_call_arguments.delta", item_id=item_id, delta=delta)
            await event("response.function_call_arguments.done", item_id=item_id, arguments=text)
            await event("response.output_item.done", item={**item, "arguments": text, "status": "completed"})
        self._working = False
        await event("response.completed", response=response)

    async def _say(self, text, seconds, deaf):
        chunk = tone(_CHUNK_S, self._encoding, self._rate)
        total = None if seconds is None else round(seconds * self._bytes)
        self._deaf = deaf
        self._sound.append(text)
        while total is None or total > 0:
            piece = chunk if total is None else chunk[:total]
            total = None if total is None else total - len(piece)
            self._sound.append(piece)
            while sum(isinstance(one, bytes) for one in self._sound) > 25 + deaf:
                await self._next()
        while self._sound:
            await self._next()
        self._deaf = 0
        self._hush()

    async def _next(self):
        """Until a chunk has gone out."""
        self._gone.clear()
        await self._gone.wait()

    async def _speak(self):
        """Sound goes out as time goes by, as far as sound has come in."""
        silent = quiet(_CHUNK_S, self._encoding, self._rate)
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            while self._fed_s < self._played_s + _CHUNK_S:
                self._more.clear()
                await self._more.wait()
            due = max(due + _CHUNK_S, loop.time() - _CHUNK_S)
            await asyncio.sleep(max(0.0, due - loop.time()))
            self._played_s += _CHUNK_S
            while self._sound and isinstance(self._sound[0], str):
                text = self._sound.popleft()
                await self.send("session.output_transcript.delta", delta=text, **self._at())
            chunk = self._sound.popleft() if self._sound else silent
            await self.send("session.output_audio.delta", delta=base64.b64encode(chunk).decode())
            self._gone.set()

    async def _fault(self, kind):
        if kind == "disconnect":
            self.socket.transport.abort()
        elif kind == "malformed":
            await self.socket.send('{"type": "session.output_audio.delta", "delta": ')
        elif kind == "unknown":
            await self.socket.send(json.dumps({"type": "session.something_new", "event_id": "1", "a": 1}))
        elif kind == "expired":
            await self.expire()
        elif kind == "rate":
            await self.error("rate_limit_exceeded", "Too many requests.", kind="requests")
        else:
            await self.error("server_error", "The server had an error.", kind="server_error")


class LivePeer(OpenAIPeer):
    session = _Session
    defaults = _SETTINGS

    def fits(self, path):
        return path == "/v1/live/sessions"


if __name__ == "__main__":
    main(LivePeer)
