"""Fish Audio as a process: its sessions, and in each room an agent that plays what is planned.

The rooms are real (`fish_sdk`: LiveKit's official SDK and a server of ours), or with `rooms="line"` those of `fish_line`. Every packet,
request and answer is judged by `schema/peers/fish`. Beyond `process`:
- `be(...)`: see `_SETTINGS`; `answer(status, body)`: of the next request for a session, whatever it is;
- `send(message)`, `send_raw(text)`, `words(sender, segment, text, final)`, `state(state)`: into all rooms;
- `cut()`: signalling is lost, which the SDK mends; `drop()`: rooms are gone; `leave(reason)`: the agents end their sessions;
- reports `session(body, key)`, `text(text, audio)`, `interrupt`, `hangup`, `activity`, `speech_started`, `speech_stopped`, `committed`.
"""

import asyncio
import contextlib
import importlib
import itertools
import json
import os
import re

from aiohttp import web

from peers import vectors
from peers.plan import EnergyVad, chunks
from peers.process import Peer, main

_SETTINGS = {
    "heard": "What is said.",
    "state": "listening",
    "waits_s": 30,
    "expects": True,
    "absent": False,
    "expires": "2099-01-01T00:00:00Z",
    "own": None,
    "url": None,
}
"""What every utterance is taken for; the agent's state when it has come; how long it waits for a result; whether it wants one; whether
it does not come; the join deadline; a tool of its own that it runs before each answer; another `livekit_url`."""
_REFUSED = {
    "key": (401, {"message": "invalid API key {key}"}),
    "model": (404, {"message": "agent not found"}),
    "format": (422, {"error": "timezone is not known"}),
    "rate": (429, {"message": "too many sessions"}),
    "quota": (402, {"message": "insufficient balance"}),
    "version": (409, {"message": "SDK too old", "code": "unsupported_transport"}),
}
RATE = 48_000
_FAULTS = {"error": "provider_error", "rate": "internal_error"}
_RESTS = 0.06
"""Between what was said and what comes next, as any model needs."""


class _Talk:
    """The agent in one room."""

    def __init__(self, peer, name, user, *, tool_events):
        self.peer, self.name, self.user = peer, name, user
        self._tool_events = tool_events
        self._room = peer.rooms.room(name, user, self._on_data)
        self._inbox = asyncio.Queue()
        self._tasks = set()
        self._play = None
        self._deaf = 0
        self._stream = None
        self._waiting = {}
        self._segments = itertools.count(1)
        self._over = self.joined = False

    def _spawn(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task):
        self._tasks.discard(task)
        if not self._over and not task.cancelled() and (error := task.exception()) is not None:
            self.peer.tell("invalid", why=repr(error))

    async def join(self):
        await self._room.join()
        await self.state(self.peer.settings["state"])
        self.joined = True
        self._spawn(self._hear())
        await self._work()

    async def connected(self):
        """It is in the room, as far as it is on its way there."""
        await self._room.connected()

    async def end(self):
        if self._over:
            return
        self._over = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._room.leave()

    # --- out

    async def state(self, state):
        await self._room.state(state)

    async def send(self, message):
        wrong = vectors.errors("fish", "server", message)
        assert not wrong, wrong
        await self.raw(json.dumps(message))

    async def raw(self, text):
        await self._room.send(text)

    async def words(self, text, *, sender="agent", final, segment=None):
        """A segment that is complete at once."""
        attributes = {"lk.segment_id": segment or f"SG_{next(self._segments)}"}
        user = sender == "user"
        if user:
            attributes["lk.transcription_final"] = "true" if final else "false"
        stream = await self._room.stream(attributes, user=user)
        await stream.write(text)
        await stream.aclose()

    # --- in

    def _on_data(self, data):
        if wrong := vectors.errors("fish", "client", data):
            self.peer.tell("invalid", why=f"{wrong}: {data[:300]}")
            return
        self._inbox.put_nowait(json.loads(data))

    async def _work(self):
        while True:
            message = await self._inbox.get()
            match message["type"]:
                case "user.message":
                    self.peer.tell("text", text=message["text"], audio=message.get("audio"))
                    await self._interrupt()
                    self._respond(aloud=message.get("audio", True))
                case "user.interrupt":
                    self.peer.tell("interrupt")
                    await self._interrupt()
                case "user.hangup":
                    self.peer.tell("hangup")
                    self.peer.leave(self, "user_hangup")
                case "user.activity":
                    self.peer.tell("activity")
                case "client_tool.result":
                    self._on_result(message)

    def _on_result(self, message):
        failed = message.get("isError", False)
        output = str(message.get("result")) if failed else json.dumps(message.get("result"))
        waiter = self._waiting.pop(message["callId"], None)
        self.peer.tell("result", id=message["callId"], output=output, known=waiter is not None)
        if waiter is not None and not waiter.done():
            waiter.set_result((failed, output))

    async def _hear(self):
        vad = EnergyVad("pcm16", RATE, loud_ms=60)
        segment = ""
        while True:
            for what, at in vad.feed(await self._room.frames.get()):
                heard = self.peer.settings["heard"]
                if what == "start":
                    self.peer.tell("speech_started", ms=at)
                    segment = f"SG_{next(self._segments)}"
                    await self.words(heard.split()[0], sender="user", final=False, segment=segment)
                    await self._interrupt()
                else:
                    self.peer.tell("speech_stopped", ms=at)
                    self.peer.tell("committed")
                    await self.words(heard, sender="user", final=True, segment=segment)
                    self._respond(aloud=True)

    async def _interrupt(self):
        """What is said ends, a few chunks later; the segment has only what was spoken."""
        play, self._play = self._play, None
        if play is None or play.done():
            return
        play.cancel()
        await asyncio.gather(play, return_exceptions=True)
        self._waiting.clear()
        for _ in range(self._deaf):
            async for chunk in chunks({"seconds": 0.1, "pace": 0}, "pcm16", RATE):
                await self._room.sound(chunk)
        await self._room.falls_silent()
        await self._close_segment()
        await self.state("listening")
        await asyncio.sleep(_RESTS)

    # --- what the agent does

    def _respond(self, *, aloud):
        self._play = self._spawn(self._respond_now(aloud))

    async def _respond_now(self, aloud):
        await self.state("thinking")
        while True:
            calls = []
            if (own := self.peer.settings["own"]) is not None:
                await self._run_own(own)
            for part in self.peer.next_response():
                if "wait" in part:
                    await self.peer.wait(part["wait"])
                elif "say" in part and aloud:
                    await self._say(part)
                elif "say" in part or "text" in part:
                    await self.words(part.get("say") or part["text"], final=True)
                elif "call" in part:
                    calls.append(await self._call(part))
                elif not await self._fault(part["fault"]):
                    return
            if not calls:
                break
            await asyncio.gather(*calls)
        await self.state("listening")

    async def _say(self, part):
        self._deaf = part["deaf"]
        await self.state("speaking")
        self._stream = await self._room.stream({"lk.segment_id": f"SG_{next(self._segments)}"})
        words = re.findall(r"[^,.]+[,.]*", part["say"])
        async for chunk in chunks(part | {"pace": 0}, "pcm16", RATE):
            if words:
                await self._stream.write(words.pop(0))
            await self._room.sound(chunk)
        if words:
            await self._stream.write("".join(words))
        await self._room.played()
        await self._room.falls_silent()
        await self._close_segment()
        self._deaf = 0

    async def _close_segment(self):
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose(attributes={"lk.transcription_final": "true"})

    async def _run_own(self, name):
        if not self._tool_events:
            return
        about = {
            "callId": f"own-{next(self.peer.ids)}",
            "toolName": name,
            "toolSource": "webhook",
            "nodeId": "main",
        }
        await self.send({"type": "tool.started", **about, "input": '{"city": "Bonn"}'})
        await self.send({"type": "tool.completed", **about, "output": '{"sunny": true}'})

    async def _call(self, part):
        id_ = part["id"] or f"call-{next(self.peer.ids)}"
        try:
            params = json.loads(part["arguments"])
        except ValueError:
            params = None
        if not isinstance(params, dict):
            params = {"raw": part["arguments"]}
        expects = self.peer.settings["expects"]
        self._waiting[id_] = answered = asyncio.get_running_loop().create_future()
        about = {"callId": id_, "toolName": part["call"], "toolSource": "client", "nodeId": "main"}
        if self._tool_events:
            await self.send({"type": "tool.started", **about, "input": json.dumps(params)})
        call = {"callId": id_, "toolName": part["call"], "params": params, "expectsResponse": expects}
        await self.send({"type": "client_tool.call", **call})
        if not expects:
            self._waiting.pop(id_)
            answered.set_result((False, "null"))
        return self._spawn(self._wait(id_, answered, about))

    async def _wait(self, id_, answered, about):
        try:
            async with asyncio.timeout(self.peer.settings["waits_s"]):
                failed, output = await answered
        except TimeoutError:
            self._waiting.pop(id_, None)
            failed, output = True, "Timed out"
        if self._tool_events:
            end = (
                {"type": "tool.failed", "error": output}
                if failed
                else {"type": "tool.completed", "output": "1"}
            )
            await self.send({**about, **end})

    async def _fault(self, kind):
        """Whether it goes on."""
        if kind == "disconnect":
            self.peer.over(self)
            return False
        if kind == "malformed":
            await self.raw("{")
            return True
        if kind == "unknown":
            await self.raw('{"type": "agent.telepathy"}')
            return True
        if kind == "expired":
            self.peer.leave(self, "conversation_timeout")
            return False
        await self.send({"type": "error", "code": _FAULTS[kind]})
        await self.state("listening")
        return False


class FishPeer(Peer):
    """The service."""

    def __init__(self, rooms="sdk"):
        super().__init__()
        self.ids = itertools.count(1)
        self.on_be()
        self._answers = []
        self._talks = {}
        self._tasks = set()
        self.rooms = importlib.import_module(f"peers.fish_{rooms}").Rooms(RATE, self.tell)

    async def serve(self):
        application = web.Application()
        await self.rooms.serve(application)
        application.router.add_post("/v1/agent/sessions", self._create)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        port = self._runner.addresses[0][1]
        self._url = self.rooms.url or f"ws://127.0.0.1:{port}/line"
        return port

    def _spawn(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create(self, request):
        body = await request.json()
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if wrong := vectors.errors("fish", "session_request", body):
            self.tell("invalid", why=f"{wrong}: {body}")
        self.tell("session", body=body, key=bool(key))
        if self._answers:
            status, answer = self._answers.pop(0)
            return web.json_response(answer, status=status)
        kind = self.refusal()
        if kind in _REFUSED:
            status, refusal = _REFUSED[kind]
            assert not vectors.errors("fish", "session_error", refusal)
            return web.json_response(
                {name: text.replace("{key}", key) for name, text in refusal.items()}, status=status
            )
        number = next(self.ids)
        name, user = f"room-{number}", f"user-{number}"
        session = {
            "session_id": f"s-{number}",
            "expires_at": "2020-01-01T00:00:00Z" if kind == "expired" else self.settings["expires"],
            "max_duration_seconds": 1800,
            "transport": "livekit",
            "livekit_url": self.settings["url"] or self._url,
            "token": self.rooms.token(name, user),
        }
        assert not vectors.errors("fish", "session", session)
        if not (kind or self.settings["absent"]):
            talk = _Talk(self, name, user, tool_events=body.get("tool_events", True))
            self._talks[name] = talk
            talk._spawn(talk.join())
        return web.json_response(session, status=201)

    async def _end(self, talk):
        if self._talks.pop(talk.name, None) is not None:
            await talk.end()

    async def _cut_off(self, talk):
        await self.rooms.shut(talk.name)
        await self._end(talk)

    def over(self, talk):
        """Its room is gone, without a farewell."""
        self._spawn(self._cut_off(talk))

    def leave(self, talk, reason):
        """The agent ends the session."""
        self._spawn(self._leave(talk, reason))

    async def _leave(self, talk, reason):
        if talk.joined:
            with contextlib.suppress(ConnectionError):  # the room may be gone already
                await talk.send({"type": "session.ended", "reason": reason})
        await self._end(talk)

    def on_be(self, **settings):
        """Settings, until `reset`."""
        self.settings = {**_SETTINGS, **settings}

    def on_answer(self, status, body):
        self._answers.append((status, body))

    async def on_send(self, message):
        for talk in self._talks.values():
            await talk.send(message)

    async def on_send_raw(self, text):
        for talk in self._talks.values():
            await talk.raw(text)

    async def on_state(self, state):
        for talk in self._talks.values():
            await talk.state(state)

    async def on_words(self, sender, segment, text, final):
        for talk in self._talks.values():
            await talk.words(text, sender=sender, segment=segment, final=final)

    def on_cut(self):
        for talk in self._talks.values():
            self.rooms.cut(talk.name, talk.user)

    async def on_leave(self, reason="agent_hangup"):
        for talk in list(self._talks.values()):
            await self._leave(talk, reason)

    def on_drop(self):
        for talk in list(self._talks.values()):
            self.over(talk)

    async def on_reset(self):
        talks = list(self._talks.values())
        for talk in talks:  # who is told so does not call again before there is something to say
            await talk.connected()
            await self.rooms.delete(talk.name)
            await self._end(talk)
        super().on_reset()
        self.on_be()
        self._answers.clear()


if __name__ == "__main__":
    main(FishPeer)
    os._exit(0)  # threads of LiveKit's SDK may outlive the interpreter
