"""An Omnia facade as a process: its WebSocket, its media routes, and an agent behind it that plays what is planned.

Every frame both ways is judged by `schema/peers/omnia`. Beyond `process`:
- `be(...)`: see `_SETTINGS`; `fail(code, message, details, times)`: so many of the next messages are answered with an error;
- `forget()`: the sessions that there are have expired; `close(code, reason)`: connections are closed;
- `send(message)`, `send_raw(text or hex)`: to all connections, the second whatever it is;
- reports `query`, `history(said)` of a session that is named again, `ack`, `audio(metadata)` of the first frame of a call, `hangup`,
  `upload`, `refresh`, `disclosure`, `parked`, `resumed`, `early` of a message that came before the answer to the last one.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import time

from aiohttp import WSMsgType, web

from peers import vectors
from peers.plan import EnergyVad, chunks
from peers.process import Peer, main

_SETTINGS = {
    "heard": "What is said.",
    "config": None,
    "disclosure": False,
    "storage": "local",
    "grace_s": 15,
    "audio": True,
    "consent": None,
    "silent": False,
    "accepts": None,
    "waits_s": 60,
}
"""What every utterance is taken for; a `session_config`; whether the agent declares itself; `local`, `cloud` or no storage; how long
a call is parked; whether there is audio; a question before each call; whether barge-ins go unnoticed; the only credential that is
accepted; how long a call's result is waited for."""
_REFUSED = {
    "key": (401, "unauthorized: {key}"),
    "model": (404, "no such agent"),
    "format": (400, "memory_facet is malformed"),
    "rate": (503, "connection limit reached"),
}
RATE = 24_000
_FAULTS = {
    "error": ("INTERNAL_ERROR", "internal server error"),
    "rate": ("RATE_LIMITED", "too many in-flight requests"),
    "expired": ("SESSION_EXPIRED", "session context has expired; start a new session"),
}


class _Talk:
    """A session while somebody is connected to it, or it is parked."""

    def __init__(self, peer, id_, said):
        self.peer = peer
        self.id = id_
        self.said = said
        self.socket = None
        self.binary = False
        self.refusal = None
        self.vad = None
        self.hung_up = False
        self.resumed = False
        self._next = 0
        self._sequence = itertools.count()
        self._task = None
        self._speaking = False
        """Whether what plays answers speech."""
        self._heard_until = 0.0
        self._waiting = {}

    # --- out

    async def send(self, type_, **members):
        message = {"type": type_, "session_id": self.id, **members}
        wrong = vectors.errors("omnia", "server", message)
        assert not wrong, wrong
        await self.raw(json.dumps(message))

    async def raw(self, data):
        with contextlib.suppress(ConnectionError, RuntimeError):
            if self.socket is not None and not self.socket.closed:
                await (self.socket.send_str if isinstance(data, str) else self.socket.send_bytes)(data)

    async def error(self, code, message, **more):
        await self.send("error", error={"code": code, "message": message, **more})

    # --- in

    async def on_text(self, text):
        wrong = vectors.errors("omnia", "client", text)
        if wrong:
            self.peer.tell("invalid", why=f"{wrong}: {text[:300]}")
            return
        message = json.loads(text)
        await getattr(self, f"_on_{message['type']}")(message)

    async def on_frame(self, data):
        wrong = vectors.errors("omnia", "client", data)
        if wrong:
            self.peer.tell("invalid", why=f"{wrong}")
            return
        frame = vectors.decode_omni(data)
        metadata = frame["metadata"]
        gap = frame["sequence"] - self._next
        if gap < 0 or (gap and not self.resumed):  # what was under way when a connection was lost never comes
            self.peer.tell("invalid", why=f"frame {frame['sequence']} instead of {self._next}")
        self._next = frame["sequence"] + 1
        if not self.peer.settings["audio"]:
            self._next = 0
            await self.error("MEDIA_NOT_ENABLED", "audio not supported")
            return
        if self.vad is None:
            if not {"codec", "sample_rate", "channels"} <= metadata.keys():
                self.peer.tell("invalid", why=f"the first frame of a call says {metadata}")
                return
            self.peer.tell("audio", metadata=metadata)
            rate = metadata["sample_rate"]
            if (config := self.peer.settings["config"]) is not None:
                await self.send("session_config", session_config=config)
                rate = config["sample_rate"]
            self.vad = EnergyVad("pcm16", rate)
            self.width = (1 if config is None else config["channels"]) * 2
        self.peer.heard_bytes += len(frame["payload"]) // 2
        for what, at in self.vad.feed(bytes.fromhex(frame["payload"])):
            await (self._speech_starts(at) if what == "start" else self._speech_stops(at))

    async def _on_message(self, message):
        peer = self.peer
        named = message.get("session_id", self.id)
        if named in peer.expired:
            await self.error("SESSION_EXPIRED", "session context has expired; start a new session")
            return
        if named != self.id:
            self.said = peer.archive.setdefault(named, [])
            self.id = named
            peer.tell("history", said=self.said)
        if self._task is not None and not self._speaking:
            peer.tell("early")
            await self.error("TURN_IN_PROGRESS", "the session's previous turn is still running")
            return
        parts = message.get("parts", [])
        texts = [part["text"] for part in parts if part["type"] == "text"]
        text = "\n\n".join(texts) if texts else message.get("content", "")
        media = [part["media"] for part in parts if part["type"] != "text"]
        peer.tell(
            "text", text=text, media=media, metadata=message.get("metadata"), declare=message.get("declare")
        )
        if self.refusal == "quota":
            await self.error("PROVIDER_AUTH_FAILED", "openai gpt-5 refused the credentials (401)")
            return
        if peer.failures:
            await self.error(**peer.failures.pop(0))
            return
        self.said.append(text)
        self._respond(speaking=False)

    async def _on_upload_request(self, message):
        asked = message["upload_request"]
        storage = self.peer.settings["storage"]
        if not storage:
            await self.error("MEDIA_NOT_ENABLED", "media storage is not enabled")
            return
        id_ = f"upl-{next(self.peer.ids)}"
        ref = f"omnia://sessions/{self.id}/media/{id_}"
        self.peer.uploads[id_] = asked | {"ref": ref}
        host, path = "127.0.0.1", f"/media/upload/{id_}"
        if storage != "local":
            host, path = "localhost", f"/bucket/{id_}?signature=abc"
        await self.send(
            "upload_ready",
            upload_ready={
                "upload_id": id_,
                "upload_url": f"http://{host}:{self.peer.port}{path}",
                "storage_ref": ref,
                "expires_at": "2099-01-09T12:00:00Z",
                "method": "PUT",
                "headers": {"Content-Type": asked["mime_type"], "x-ms-blob-type": "BlockBlob"},
            },
        )

    async def _on_tool_call_ack(self, message):
        self.peer.tell("ack", id=message["tool_call_ack"]["call_id"])

    async def _on_tool_call_nack(self, message):
        said = message["tool_call_nack"]
        self.peer.tell("nack", id=said["call_id"], reason=said["reason"])
        await self._settled(said["call_id"], said["reason"], quietly=True)

    async def _on_tool_result(self, message):
        said = message["tool_result"]
        await self._settled(said["call_id"], said.get("error", json.dumps(said.get("result"))))

    async def _settled(self, id_, output, *, quietly=False):
        self.peer.tell("result", id=id_, output=output)
        self.said.append(output)
        waiter = self._waiting.pop(id_, None)
        if waiter is not None:
            waiter.set_result(output)
        elif not quietly:
            await self.error("INVALID_MESSAGE", "no pending tool call")

    async def _on_hangup(self, message):
        self.peer.tell("hangup")
        self.hung_up = True

    async def _on_disclosure_ack(self, message):
        self.peer.tell("disclosure")

    async def _on_credential_refresh(self, message):
        self.peer.tell("refresh", token=message["token"])

    # --- speech

    async def _speech_starts(self, at):
        self.peer.tell("speech_started", ms=at)
        active = self._speaking and self._task is not None
        if self.peer.settings["silent"] or not (active or time.monotonic() < self._heard_until):
            return
        if active:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._waiting.clear()
            for _ in range(self._deaf):
                await self._sound(b"\x01\x01" * 240)
        self._heard_until = 0.0
        await self.send("interrupt")

    async def _speech_stops(self, at):
        self.peer.tell("speech_stopped", ms=at)
        self.peer.tell("committed")
        words = self.peer.settings["heard"]
        self.said.append(words)
        for number, word in enumerate(words.split(" ")):
            await self.send("chunk", content=word if not number else f" {word}", role="user")
        self._respond(speaking=True)

    # --- what the agent does

    def _respond(self, *, speaking):
        before = self._task
        self._speaking = speaking
        self._deaf = 0
        self._task = asyncio.create_task(self._play(before))
        self._task.add_done_callback(self._played)

    def _played(self, task):
        if self._task is task:
            self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self.peer.tell("invalid", why=repr(error))

    def end(self):
        if self._task is not None:
            self._task.cancel()

    async def _play(self, before):
        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        whole = ""
        while True:
            calls = []
            for part in self.peer.next_response():
                if "wait" in part:
                    await self.peer.wait(part["wait"])
                elif "say" in part:
                    whole += part["say"] + " "
                    await self._say(part)
                elif "text" in part:
                    whole += part["text"]
                    await self.send("chunk", content=part["text"])
                elif "call" in part:
                    calls.append(await self._call(part))
                elif not await self._fault(part["fault"]):
                    return
            if not calls:
                break
            if any(output.startswith("INTERRUPTED") for output in await asyncio.gather(*calls)):
                break  # to that the agent has nothing to say: what is planned answers the user's next words
        self._task = None
        await self.send("done", content=whole)

    async def _say(self, part):
        self._deaf = part["deaf"]
        await self.send("chunk", content=part["say"] + " ")
        async for chunk in chunks(part, "pcm16", RATE):
            self._heard_until = max(time.monotonic(), self._heard_until) + len(chunk) / 2 / RATE
            await self._sound(chunk)
            await asyncio.sleep(0)

    async def _sound(self, chunk):
        sequence = next(self._sequence)
        if not self.binary:
            data = base64.b64encode(chunk).decode()
            members = {"media_id": "", "sequence": sequence, "is_last": False, "data": data}
            await self.send("media_chunk", media_chunk={**members, "mime_type": f"audio/pcm;rate={RATE}"})
            return
        metadata = {"session_id": self.id, "mime_type": "audio/pcm", "sample_rate": RATE}
        decoded = {"flags": [], "message_type": 1, "sequence": sequence, "media_id": "00" * 12}
        frame = vectors.encode_omni({**decoded, "metadata": metadata, "payload": chunk.hex()})
        if not sequence:
            assert not vectors.errors("omnia", "server", frame)
        await self.raw(frame)

    async def _call(self, part):
        id_ = part["id"] or f"tc-{next(self.peer.ids)}"
        try:
            arguments = json.loads(part["arguments"])
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            arguments = {"raw": part["arguments"]}
        call = {"id": id_, "name": part["call"], "arguments": arguments}
        if self.peer.settings["consent"] is not None:
            call["consent_message"] = self.peer.settings["consent"]
            call["categories"] = ["location"]
        self._waiting[id_] = answered = asyncio.get_running_loop().create_future()
        await self.send("tool_call", tool_call=call)
        return asyncio.create_task(self._wait(id_, answered))

    async def _wait(self, id_, answered):
        try:
            async with asyncio.timeout(self.peer.settings["waits_s"]):
                return await answered
        except TimeoutError:
            self._waiting.pop(id_, None)
            said = "client did not acknowledge tool call within timeout"
            await self.send("tool_result", tool_result={"id": id_, "error": said})
            return said

    async def _fault(self, kind):
        """False when the turn is over with that."""
        if kind == "disconnect":
            self.peer.cut(self.socket)
        elif kind == "malformed":
            await self.raw('{"type": "chunk", "content": ')
            return True
        elif kind == "unknown":
            await self.raw('{"type": "telepathy", "content": [1]}')
            return True
        else:
            self._task = None
            await self.error(*_FAULTS[kind])
        return False


class OmniaPeer(Peer):
    def __init__(self):
        super().__init__()
        self.ids = itertools.count(1)
        self._talks = set()
        self._transports = {}
        self.on_be()
        self.on_clear()

    def on_clear(self):
        self.archive = {}
        self.expired = set()
        self.parked = {}
        self.uploads = {}
        self.failures = []
        self.heard_bytes = 0

    async def serve(self):
        app = web.Application(client_max_size=1 << 25)
        app.router.add_get("/ws", self._connected)
        app.router.add_put("/media/upload/{id}", self._put)
        app.router.add_put("/bucket/{id}", self._put)
        app.router.add_post("/media/confirm-upload/{id}", self._confirm)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self.port

    async def _connected(self, request):
        query = dict(request.query)
        if wrong := vectors.errors("omnia", "query", query):
            self.tell("invalid", why=f"{wrong}: {query}")
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if key and key in str(request.rel_url):
            self.tell("invalid", why="the credential is in the address")
        refusal = self.refusal()
        accepts = self.settings["accepts"]
        if refusal in _REFUSED or (accepts is not None and key != accepts):
            status, words = _REFUSED[refusal or "key"]
            return web.Response(status=status, text=words.format(key=key))
        self.transports.add(request.transport)
        socket = web.WebSocketResponse(max_msg_size=1 << 25)
        self._transports[socket] = request.transport
        await socket.prepare(request)
        self.tell("connected", query=query, key=key)
        talk = self.parked.pop(query.get("resume"), None)
        resumed = talk is not None
        if resumed:
            talk.resumed = True
            self.tell("resumed", id=talk.id, said=talk.said)
        else:
            id_ = f"sess-{next(self.ids)}"
            talk = _Talk(self, id_, self.archive.setdefault(id_, []))
        talk.socket, talk.binary, talk.refusal = socket, query.get("binary") == "true", refusal
        self._talks.add(talk)
        try:
            await self._talk(talk, resumed=resumed)
        finally:
            self._talks.discard(talk)
            self.transports.discard(request.transport)
            del self._transports[socket]
            if talk.vad is not None and not talk.hung_up and self.settings["grace_s"]:
                talk.socket = None
                self.parked[talk.id] = talk
                self.tell("parked", id=talk.id)
            else:
                talk.end()
            self.tell("closed")
        return socket

    async def _talk(self, talk, *, resumed):
        hello = {"binary_frames": talk.binary, "max_payload_size": 1 << 24, "protocol_version": 1}
        connected = {"capabilities": hello, "resumed": resumed}
        if self.settings["disclosure"]:
            connected["ai_disclosure"] = True
        if talk.refusal == "version":
            hello["protocol_version"] = 2
            await talk.raw(json.dumps({"type": "connected", "session_id": talk.id, "connected": connected}))
        else:
            await talk.send("connected", connected=connected)
        if talk.refusal == "expired":
            await talk.socket.close(code=4401, message=b"credential expired")
        async for message in talk.socket:
            if message.type is WSMsgType.TEXT:
                await talk.on_text(message.data)
            elif message.type is WSMsgType.BINARY:
                await talk.on_frame(message.data)

    async def _put(self, request):
        upload = self.uploads.get(request.match_info["id"])
        data = await request.read()
        if upload is None or len(data) != upload["size_bytes"]:
            self.tell("invalid", why=f"an upload of {len(data)} bytes to {request.path}")
            return web.Response(status=404)
        self.tell(
            "upload",
            name=upload["filename"],
            type=request.headers["Content-Type"],
            blob=request.headers.get("x-ms-blob-type"),
            data=base64.b64encode(data).decode(),
            key=request.headers.get("Authorization"),
        )
        return web.Response(status=204)

    async def _confirm(self, request):
        self.tell("confirmed", id=request.match_info["id"], key=request.headers.get("Authorization"))
        return web.json_response({})

    def cut(self, socket):
        if (transport := self._transports.get(socket)) is not None:
            transport.abort()

    def on_be(self, **settings):
        """Settings, until `reset`."""
        assert settings.keys() <= _SETTINGS.keys()
        self.settings = {**_SETTINGS, **settings}

    def on_fail(self, code, message="what went wrong", details=None, times=1):
        failure = {"code": code, "message": message} | ({} if details is None else {"details": details})
        self.failures += [failure] * times

    def on_forget(self):
        self.expired |= self.archive.keys()

    async def on_close(self, code, reason=""):
        for talk in list(self._talks):
            await talk.socket.close(code=code, message=reason.encode())

    async def on_send(self, message):
        for talk in self._talks:
            members = {name: value for name, value in message.items() if name != "type"}
            await talk.send(message["type"], **members)

    async def on_send_raw(self, text=None, hex_=None):
        for talk in self._talks:
            await talk.raw(text if text is not None else bytes.fromhex(hex_))

    def on_drop(self):
        super().on_drop()
        for talk in self.parked.values():
            talk.end()

    def on_reset(self):
        super().on_reset()
        self.on_be()
        for talk in [*self._talks, *self.parked.values()]:
            talk.end()
            talk.hung_up = True
        self.on_clear()


if __name__ == "__main__":
    main(OmniaPeer)
