"""OpenAI Realtime (GA) as a process: its order of events, one response at a time, its errors, its sessions that end.

Every frame both ways is judged by the SDK's own types. Beyond `process`:
- `be(expires_s, heard, transcript, metadata)`: see `_SETTINGS`; `expire()`: the sessions have reached their age and end;
- reports `errors(code)` that the client was answered with, and `history(role, text)` of messages that are not typed by a user.
"""

import asyncio
import base64
import json
import time
from collections import deque
from urllib.parse import parse_qs, urlsplit

from openai.types.realtime import RealtimeClientEvent, RealtimeServerEvent
from websockets.exceptions import ConnectionClosed

from peers.openai_types import classes, wrong
from peers.plan import EnergyVad, chunks
from peers.process import main
from peers.sockets import OpenAIPeer

_CLIENT, _SERVER = classes(RealtimeClientEvent), classes(RealtimeServerEvent)
_SETTINGS = {"expires_s": 3600.0, "heard": "What is said.", "transcript": True, "metadata": True}
"""How long a session lives; what every utterance is taken for; whether its text is told; whether metadata comes back."""
_EVENTS = {
    "model": (
        "model_not_found",
        "The model `{model}` does not exist or you do not have access to it.",
        "model",
    ),
    "quota": ("insufficient_quota", "You exceeded your current quota.", None),
    "format": ("invalid_value", "Invalid value: 'audio/pcmu'.", "session.audio.input.format.type"),
}
_AGE = "Your session hit the maximum duration of 60 minutes."

_ONSET_MS = 100
"""So much speech it takes until it is taken for speech: a board's own ear is quicker."""


class _Session:
    def __init__(self, peer, socket):
        self.peer = peer
        self.socket = socket
        self.config = {
            "type": "realtime",
            "model": parse_qs(urlsplit(socket.request.path).query)["model"][0],
            "output_modalities": ["audio"],
            "audio": {
                "input": {"format": {"type": "audio/pcm", "rate": 24000}},
                "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "alloy"},
            },
            "tools": [],
        }
        self._items = {}
        self._produced_ms = {}
        """Of the assistant's audio items."""
        self._calls = {}
        self._response = None
        self._task = None
        self._deaf = 0
        self._said = None
        """The item in which it speaks, where that is, and its text: they end also when it is cancelled."""
        self._utterance = None

    async def run(self):
        refusal = self.socket.refusal
        if refusal == "version":
            old = {"id": "sess_1", "input_audio_format": "pcm16", "modalities": ["audio", "text"]}
            await self.socket.send(json.dumps({"type": "session.created", "event_id": "1", "session": old}))
        else:
            await self.send("session.created", session=self._shown())
        if refusal in ("model", "quota"):
            await self._refuse(refusal)
            return
        while True:
            frame = json.loads(await self.socket.recv())
            if (why := wrong(frame, _CLIENT)) is not None:
                self.peer.tell("invalid", why=why)
            if refusal == "format" and frame["type"] == "session.update":
                await self._refuse(refusal)
                return
            await getattr(self, "_on_" + frame["type"].replace(".", "_"))(frame)

    async def _refuse(self, kind):
        code, words, param = _EVENTS[kind]
        await self.error(code, words.format(model=self.config["model"]), param=param)
        await self.socket.close(4000, f"invalid_request_error.{code}")

    async def expire(self):
        await self.error("session_expired", _AGE)
        await self.socket.close(1001, "session_expired")

    def end(self):
        if self._task is not None:
            self._task.cancel()

    def _shown(self):
        life = {"expires_at": int(time.time() + self.peer.settings["expires_s"])}
        if self.peer.settings["expires_s"] < 1:
            life = {"expires_at": 1}
        return {"id": "sess_1", "object": "realtime.session", **life, **self.config}

    async def send(self, kind, **members):
        frame = {"type": kind, "event_id": f"event_{next(self.peer.ids)}", **members}
        if (why := wrong(frame, _SERVER)) is not None:
            self.peer.tell("invalid", why=f"of the peer itself: {why}")
        await self.socket.send(json.dumps(frame))

    async def error(self, code, message, *, param=None, about=None, kind="invalid_request_error"):
        self.peer.tell("errors", code=code)
        error = {"type": kind, "code": code, "message": message, "param": param, "event_id": about}
        await self.send("error", error=error)

    # --- what comes

    async def _on_session_update(self, frame):
        session = frame["session"]
        for way in ("input", "output"):
            self.config["audio"][way] |= session.get("audio", {}).get(way, {})
        self.config |= {name: value for name, value in session.items() if name != "audio"}
        if not self.peer.settings["transcript"]:
            self.config["audio"]["input"]["transcription"] = None
        format_ = self.config["audio"]["input"]["format"]
        self._wire = {"audio/pcmu": ("pcmu", 8000), "audio/pcm": ("pcm16", 24_000)}
        self._vad = EnergyVad(*self._wire[format_["type"]], loud_ms=_ONSET_MS)
        self.peer.tell("setup", session=self.config)
        await self.send("session.updated", session=self._shown())

    async def _on_input_audio_buffer_append(self, frame):
        for what, at in self._vad.feed(base64.b64decode(frame["audio"], validate=True)):
            if what == "start":
                self.peer.tell("speech_started", ms=at)
                self._utterance = f"item_{next(self.peer.ids)}"
                await self.send(
                    "input_audio_buffer.speech_started", audio_start_ms=at, item_id=self._utterance
                )
                await self._cancel("turn_detected")
            else:
                self.peer.tell("speech_stopped", ms=at)
                await self.send("input_audio_buffer.speech_stopped", audio_end_ms=at, item_id=self._utterance)
                await self._commit()

    async def _commit(self):
        item = self._utterance
        self.peer.tell("committed")
        await self.send("input_audio_buffer.committed", item_id=item, previous_item_id=None)
        content = [{"type": "input_audio", "transcript": None}]
        await self._add({"id": item, "type": "message", "role": "user", "content": content})
        await self._respond({})
        if self.config["audio"]["input"].get("transcription"):
            heard = self.peer.settings["heard"]
            kind = "conversation.item.input_audio_transcription"
            at = {"item_id": item, "content_index": 0}
            for word in heard.split():
                await self.send(f"{kind}.delta", delta=f" {word}", **at)
            usage = {"type": "duration", "seconds": 1}
            await self.send(f"{kind}.completed", transcript=heard, usage=usage, **at)

    async def _on_conversation_item_create(self, frame):
        item = {"id": f"item_{next(self.peer.ids)}", **frame["item"]}
        if item["type"] == "message":
            text = item["content"][0]["text"]
            if text.startswith("[device data]"):
                self.peer.tell("context", text=text)
            elif item["role"] == "user":
                self.peer.tell("text", text=text)
            else:
                self.peer.tell("history", role=item["role"], text=text)
        elif item["type"] == "function_call":
            self._calls[item["call_id"]] = item["name"]
        elif self._calls.pop(item["call_id"], None) is None:
            self.peer.tell("invalid", why=f"a result of no call: {item}")
        else:
            self.peer.tell("result", id=item["call_id"], output=item["output"])
        await self._add(item)

    async def _on_conversation_item_delete(self, frame):
        if self._items.pop(frame["item_id"], None) is None:
            await self.error("item_not_found", "There is no such item.", about=frame.get("event_id"))
        else:
            await self.send("conversation.item.deleted", item_id=frame["item_id"])

    async def _on_conversation_item_truncate(self, frame):
        item, ms = frame["item_id"], frame["audio_end_ms"]
        produced = self._produced_ms.get(item)
        if produced is None or frame["content_index"] != 0:
            await self.error("invalid_truncate", "There is no audio there.", about=frame.get("event_id"))
            return
        if ms > produced:
            words = f"Audio content of {produced}ms is already shorter than {ms}ms"
            await self.error("invalid_value", words, about=frame.get("event_id"))
            self.peer.tell("invalid", why=words)
            return
        self._produced_ms[item] = ms
        self.peer.tell("truncate", item=item, ms=ms)
        await self.send("conversation.item.truncated", item_id=item, content_index=0, audio_end_ms=ms)

    async def _on_response_create(self, frame):
        if self._response is not None:
            code, words = "conversation_already_has_active_response", "There is an active response already."
            await self.error(code, words, about=frame.get("event_id"))
            return
        await self._respond(frame.get("response", {}))

    async def _on_response_cancel(self, frame):
        self.peer.tell("cancel")
        named = frame.get("response_id")
        if self._response is None or named not in (None, self._response["id"]):
            words = "Cancellation failed: no active response found"
            await self.error("response_cancel_not_active", words, about=frame.get("event_id"))
            return
        await self._cancel("client_cancelled")

    # --- what the model does

    async def _add(self, item):
        self._items[item["id"]] = item
        shown = {**item, "status": "completed"}
        await self.send("conversation.item.added", item=shown, previous_item_id=None)
        await self.send("conversation.item.done", item=shown, previous_item_id=None)

    async def _respond(self, asked):
        metadata = asked.get("metadata") if self.peer.settings["metadata"] else None
        self._response = {
            "object": "realtime.response",
            "id": f"resp_{next(self.peer.ids)}",
            "status": "in_progress",
            "output": [],
            "metadata": metadata,
        }
        self._deaf = 0
        await self.send("response.created", response=self._response)
        self._task = asyncio.create_task(self._play(self._response, deque(self.peer.next_response())))
        self._task.add_done_callback(self._played)

    def _played(self, task):
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ConnectionClosed):
            self.peer.tell("invalid", why=repr(error))

    async def _cancel(self, reason):
        if self._response is None:
            return
        response, self._response = self._response, None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for _ in range(self._deaf):
            await self._sound(self._said[1], b"\x01" * 240)
        if self._said is not None:
            await self._end_saying(response, "incomplete")
        await self._done(response, "cancelled", {"type": "cancelled", "reason": reason})

    async def _done(self, response, status, details=None):
        self._response = None
        await self.send("response.done", response={**response, "status": status, "status_details": details})

    async def _play(self, response, parts):
        failed = None
        for part in parts:
            if "wait" in part:
                await self.peer.wait(part["wait"])
            elif "say" in part:
                await self._say(response, part)
            elif "text" in part:
                await self._write(response, part["text"])
            elif "call" in part:
                await self._call(response, part)
            else:
                failed = await self._fault(part["fault"]) or failed
        if failed is not None:
            await self._done(response, "failed", {"type": "failed", "error": failed})
        else:
            await self._done(response, "completed")
            names = ("requests", "tokens")
            limits = [{"name": name, "limit": 100, "remaining": 99, "reset_seconds": 1} for name in names]
            await self.send("rate_limits.updated", rate_limits=limits)

    async def _begin(self, response, item):
        item = {"id": f"item_{next(self.peer.ids)}", **item}
        self._items[item["id"]] = item
        at = {"response_id": response["id"], "output_index": len(response["output"])}
        shown = {**item, "status": "in_progress"}
        await self.send("response.output_item.added", item=shown, **at)
        await self.send("conversation.item.added", item=shown, previous_item_id=None)
        return item, at

    async def _finish(self, response, item, at, status="completed"):
        shown = {**item, "status": status}
        response["output"].append(shown)
        await self.send("conversation.item.done", item=shown, previous_item_id=None)
        await self.send("response.output_item.done", item=shown, **at)

    async def _say(self, response, part):
        message = {"type": "message", "role": "assistant", "content": []}
        item, at = await self._begin(response, message)
        outer, at = at, {**at, "item_id": item["id"], "content_index": 0}
        self._produced_ms[item["id"]] = 0
        self._said, self._deaf = (item, at, outer, part["say"]), part["deaf"]
        await self.send("response.content_part.added", part={"type": "audio", "transcript": ""}, **at)
        spoken = False
        encoding, rate = self._wire[self.config["audio"]["output"]["format"]["type"]]
        async for chunk in chunks(part, encoding, rate):
            if not spoken:
                spoken = True
                await self.send("response.output_audio_transcript.delta", delta=part["say"], **at)
            await self._sound(at, chunk)
            self._produced_ms[item["id"]] += len(chunk) * 1000 // (rate * (2 if encoding == "pcm16" else 1))
        await self._end_saying(response, "completed")

    async def _end_saying(self, response, status):
        (item, at, outer, text), self._said = self._said, None
        await self.send("response.output_audio.done", **at)
        await self.send("response.output_audio_transcript.done", transcript=text, **at)
        await self.send("response.content_part.done", part={"type": "audio", "transcript": text}, **at)
        item = {**item, "content": [{"type": "output_audio", "transcript": text}]}
        await self._finish(response, item, outer, status)

    async def _sound(self, at, chunk):
        await self.send("response.output_audio.delta", delta=base64.b64encode(chunk).decode(), **at)

    async def _write(self, response, text):
        item, at = await self._begin(response, {"type": "message", "role": "assistant", "content": []})
        outer, at = at, {**at, "item_id": item["id"], "content_index": 0}
        await self.send("response.content_part.added", part={"type": "text", "text": ""}, **at)
        await self.send("response.output_text.delta", delta=text, **at)
        await self.send("response.output_text.done", text=text, **at)
        await self.send("response.content_part.done", part={"type": "text", "text": text}, **at)
        await self._finish(response, {**item, "content": [{"type": "output_text", "text": text}]}, outer)

    async def _call(self, response, part):
        call = part["id"] or f"call_{next(self.peer.ids)}"
        self._calls[call] = part["call"]
        item = {"type": "function_call", "call_id": call, "name": part["call"], "arguments": ""}
        item, at = await self._begin(response, item)
        of = {**at, "item_id": item["id"], "call_id": call}
        text = part["arguments"]
        for start in range(0, len(text), 8):
            delta = {"delta": text[start : start + 8], "obfuscation": "x"}
            await self.send("response.function_call_arguments.delta", **delta, **of)
        await self.send("response.function_call_arguments.done", name=part["call"], arguments=text, **of)
        await self._finish(response, {**item, "arguments": text}, at)

    async def _fault(self, kind):
        if kind == "disconnect":
            self.socket.transport.abort()
        elif kind == "malformed":
            await self.socket.send('{"type": "response.output_audio.delta", "delta": ')
        elif kind == "unknown":
            await self.socket.send(json.dumps({"type": "response.something_new", "event_id": "1", "a": 1}))
        elif kind == "expired":
            await self.expire()
        elif kind == "rate":
            return {"type": "requests", "code": "rate_limit_exceeded", "message": "Too many requests."}
        else:
            words = "The server had an error while processing your request."
            await self.error(None, words, kind="server_error")
            return {"type": "server_error", "code": None, "message": words}
        return None


class RealtimePeer(OpenAIPeer):
    session = _Session
    defaults = _SETTINGS

    def fits(self, path):
        url = urlsplit(path)
        return url.path == "/v1/realtime" and "model" in parse_qs(url.query)


if __name__ == "__main__":
    main(RealtimePeer)
