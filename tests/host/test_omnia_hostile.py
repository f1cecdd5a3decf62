"""The agent `omnia` and facades that mean no good, over real sockets: ends, refusals and answers that no facade gives."""

import asyncio
import contextlib
import gc
import json
import weakref
from socket import SO_RCVBUF, SO_SNDBUF, SOL_SOCKET
from types import SimpleNamespace

import pytest
from agent_stage import started
from aiohttp import web
from peers import vectors
from peers.plan import tone
from peers.process import DEADLINE_S
from pydantic import SecretStr
from vrt_host.agents import omnia, omnia_credential, omnia_files, omnia_link, omnia_sender
from vrt_host.agents.base import AgentError, Call, Text, Tool, ToolResult, TurnBegin
from vrt_host.agents.omnia import INPUT, OUTPUT, OmniaAgent, Options
from vrt_host.agents.omnia_sound import Microphone
from vrt_host.agents.provider import Backoff
from vrt_host.errors import AgentStartError
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

KEY = "a-secret-that-nobody-may-see"
SPEECH = tone(0.3, "pcm16", 16_000)
DONE = {"type": "done", "content": "Well."}


def hello(session="s", *, resumed=False):
    capabilities = {"binary_frames": True, "max_payload_size": 1 << 24, "protocol_version": 1}
    connected = {"capabilities": capabilities} | ({"resumed": True} if resumed else {})
    return {"type": "connected", "session_id": session, "connected": connected}


class Quick(Backoff):
    def next(self, error=None):
        super().next(error)
        return 0.01


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(OmniaAgent, "backoff", Quick)


class Facade:
    """One connection of it: what a test says, and what the agent sent."""

    def __init__(self, socket):
        self.socket = socket
        self.path = socket.request.path

    async def says(self, *messages):
        for message in messages:
            data = message if isinstance(message, str | bytes) else json.dumps(message)
            await self.socket.send(data)

    async def hears(self, *types):
        """The next message of these types; a frame of audio is `audio`."""
        while True:
            data = await self.socket.recv()
            assert vectors.errors("omnia", "client", data) == []
            message = (
                {"type": "audio", **vectors.decode_omni(data)}
                if isinstance(data, bytes)
                else json.loads(data)
            )
            if message["type"] in types:
                return message

    async def answers(self):
        """Every message, for ever."""
        while True:
            await self.hears("message")
            await self.says(DONE)


@contextlib.asynccontextmanager
async def facade(*talks, refuse=lambda path: None):
    """A facade with so many connections, each led by one of `talks`; the last of them leads all that come after, too."""
    seen = SimpleNamespace(paths=[], faults=[], connections=0)

    def request(connection, asked):
        seen.paths.append(asked.path)
        status = refuse(asked.path)
        return None if status is None else connection.respond(status, "no")

    async def talk(socket):
        lead = talks[min(seen.connections, len(talks) - 1)]
        seen.connections += 1
        try:
            await lead(Facade(socket))
        except ConnectionClosed:
            pass
        except AssertionError as error:
            seen.faults.append(error)
        finally:
            socket.transport.abort()

    async with serve(talk, "127.0.0.1", 0, process_request=request) as server:
        seen.port = server.sockets[0].getsockname()[1]
        yield seen
    assert seen.faults == []


@contextlib.asynccontextmanager
async def talking(to, *, context=None, **given):
    given = {"api_key": SecretStr(KEY), **given}
    options = Options(base_url=f"http://127.0.0.1:{to.port}", **given)
    agent = OmniaAgent(options)
    async with (
        asyncio.timeout(DEADLINE_S),
        started(agent, tools=[Tool("lock")], context=context, format_=INPUT, output=OUTPUT) as port,
    ):
        yield agent, port


async def until(true):
    while not true():  # noqa: ASYNC110  (nobody tells; `talking` has the deadline)
        await asyncio.sleep(0)


def said(port):
    return "".join(event.text for event in port.all(Text))


async def usual(connection):
    await connection.says(hello())
    await connection.answers()


# --- ends


@pytest.mark.parametrize("code", [1000, 1001, 1006, 1008, 1009, 1011, 4000])
async def test_facade_that_ends_each_connection_is_not_dialled_in_a_loop(code, monkeypatch):
    waits, asleep = [], asyncio.Event()

    class Slow(Backoff):
        def next(self, error=None):
            waits.append(super().next(error))
            if len(waits) == 2:
                asleep.set()
            return 0 if len(waits) < 2 else 3600

    async def end(connection):
        await connection.says(hello())
        if code != 1006:
            await connection.socket.close(code, "no")

    monkeypatch.setattr(OmniaAgent, "backoff", Slow)
    async with facade(end) as there, talking(there) as (_, port):
        await asleep.wait()
        assert port.events == []
        assert there.connections == 2
        assert waits[0] <= 0.5 < waits[1] <= 1


async def test_connection_that_lasted_begins_the_waits_anew(monkeypatch):
    """10 s are enough, and so is an answer."""
    monkeypatch.setattr(omnia, "_STEADY_S", 0)
    enough = asyncio.Event()

    async def end(connection):
        await connection.says(hello())

    async def stay(connection):
        enough.set()
        await usual(connection)

    async with facade(*[end] * 5, stay) as there, talking(there) as (agent, port):
        await enough.wait()
        assert agent._waits.failures == 1
        agent.user_text("Hello")
        await port.ends()
        assert agent._waits.failures == 0


async def test_silence_within_an_answer_is_ended_by_the_next_text(monkeypatch):
    """The host ends a turn in which nothing comes (`limits.agent_silence`); what is said next is answered."""
    monkeypatch.setattr(omnia_sender, "PATIENCE_S", 0.01)
    asked = asyncio.Event()

    async def silent(connection):
        await connection.says(hello())
        await connection.hears("message")
        asked.set()
        await connection.socket.wait_closed()

    async with facade(silent, usual) as there, talking(there) as (agent, port):
        agent.user_text("Hello")
        await asked.wait()
        agent.interrupted(port.all(TurnBegin)[0].turn, [])
        agent.user_text("Are you there?")
        await port.until(lambda: "Well." in said(port))


async def test_own_time_limit_is_the_only_one_for_a_connection(monkeypatch):
    """`connect_timeout_s` may be more than the 10 s that the WebSocket library has by itself."""
    given = {}

    class Spy(omnia_link.Dial):
        def __init__(self, url, **options):
            given.update(options)
            super().__init__(url, **options)

    monkeypatch.setattr(omnia_link, "Dial", Spy)
    async with facade(usual) as there, talking(there):
        assert given["open_timeout"] is None


async def test_sender_that_fails_ends_the_session(monkeypatch, caplog):
    async with facade(usual) as there, talking(there) as (agent, port):

        def fail(*_):
            raise RuntimeError("ours")

        monkeypatch.setattr(Microphone, "frame", fail)
        agent.user_audio(SPEECH)
        await port.until(lambda: port.all(AgentError))
        assert not port.all(AgentError)[0].recoverable
    assert "the omnia agent failed" in caplog.text


@pytest.mark.parametrize("id_", ["x" * 513, "a b", "\ud800", ""])
async def test_name_of_a_session_that_could_not_be_used_is_refused(id_):
    async def strange(connection):
        await connection.says(hello(id_))
        await connection.socket.wait_closed()

    async with facade(strange) as there:
        with pytest.raises(AgentStartError, match="session_id"):
            async with talking(there):
                pass


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "done", "content": None},
        {"type": "done", "parts": [{"type": "image"}]},
        {"type": "error", "error": {"code": 5, "message": "x"}},
        {"type": "error"},
    ],
)
async def test_end_of_an_answer_that_is_malformed_ends_it(broken):
    async def strange(connection):
        await connection.says(hello())
        await connection.hears("message")
        await connection.says(broken, broken)
        await connection.answers()

    async with facade(strange) as there, talking(there) as (agent, port):
        agent.user_text("Hello")
        await port.until(lambda: len(port.all(AgentError)) == 2)
        assert [(error.turn, error.recoverable) for error in port.all(AgentError)] == [
            ("turn-1", True),
            (None, True),
        ]
        agent.user_text("And now?")
        await port.until(lambda: "Well." in said(port))
        assert len(port.all(AgentError)) == 2


async def test_facade_that_does_not_read_is_left_all_the_same(monkeypatch):
    monkeypatch.setattr(omnia, "GOODBYE_S", 0.01)
    monkeypatch.setattr(omnia_link, "GOODBYE_S", 0.01)
    left = asyncio.Event()

    async def deaf(connection):
        await connection.says(hello())
        await connection.hears("audio")
        connection.socket.transport.pause_reading()
        connection.socket.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_RCVBUF, 4096)
        await left.wait()

    async with facade(deaf) as there, talking(there) as (agent, _):
        agent.user_audio(SPEECH)
        await until(agent.calling)
        link = agent._link
        link._socket.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, 4096)
        for _ in range(10):
            agent.send({"type": "tool_result", "tool_result": {"call_id": "x", "result": "y" * 900_000}})
        await until(lambda: link._socket.transport.get_write_buffer_size() > 1 << 16)
        await agent.close()
        assert link._socket.transport.is_closing()
        left.set()


async def test_sessions_leave_nothing_behind():
    async def leave(connection):
        await connection.says(hello())
        with contextlib.suppress(ConnectionClosed):
            await connection.hears("message")
            await connection.says({"type": "tool_call", "tool_call": {"id": "tc", "name": "lock"}})
            await connection.hears("tool_call_ack")

    async def stay(connection):
        await connection.says(hello())
        await connection.socket.wait_closed()

    before = asyncio.all_tasks()
    agents = []
    async with facade(*[leave, stay, usual] * 8) as there:
        for number in range(20):
            async with talking(there, context=PHOTO if number % 4 else None) as (agent, port):
                agent.user_audio(SPEECH)
                agent.user_text("Hello")
                for _ in range(number):  # until then it has come so far
                    await asyncio.sleep(0)
            agents.append(weakref.ref(agent))
            del agent, port
    assert asyncio.all_tasks() == before
    gc.collect()
    assert [one() for one in agents if one() is not None] == []


async def test_second_greeting_changes_nothing():
    """`connected` comes once per connection (page, Connected)."""
    other = hello("s-2", resumed=True)
    newer = hello("s-3")
    newer["connected"]["capabilities"]["protocol_version"] = 2
    messages = []

    async def twice(connection):
        await connection.says(hello(), other, newer)
        messages.append(await connection.hears("message"))
        await connection.says(DONE)
        await connection.answers()

    async with facade(twice) as there, talking(there) as (agent, port):
        agent.user_text("Hello")
        await port.until(lambda: "Well." in said(port))
        assert all(one.recoverable for one in port.all(AgentError))
    assert messages == [{"type": "message", "content": "Hello"}]


# --- what is parked


def calling(*afterwards):
    """A connection that is lost within an audio session; what comes before that."""

    async def talk(connection):
        await connection.says(hello())
        await connection.hears("audio")
        for step in afterwards:
            await step(connection)

    return talk


@pytest.mark.parametrize("status", [400, 403, 404, 410])
async def test_resume_that_is_refused_begins_anew(status, caplog):
    frames = []

    async def next_(connection):
        await connection.says(hello("s-2"))
        frames.append(await connection.hears("audio"))
        await connection.answers()

    async with (
        facade(calling(), next_, refuse=lambda path: status if "resume=" in path else None) as there,
        talking(there) as (agent, port),
    ):
        agent.user_audio(SPEECH)
        await until(lambda: there.connections == 2 and agent._link)
        agent.user_audio(SPEECH)
        await until(lambda: frames)
        agent.user_text("Hello")
        await port.until(lambda: "Well." in said(port))
        assert all(error.recoverable for error in port.all(AgentError))
    assert frames[0]["sequence"] == 0
    assert ["resume=" in path for path in there.paths] == [False, True, False]


@pytest.mark.parametrize(
    "answer",
    [
        hello("s-2", resumed=True),
        hello("s"),
        {"type": "error", "error": {"code": "SESSION_EXPIRED", "message": "x"}},
    ],
)
async def test_resume_that_is_answered_otherwise_begins_anew(answer):
    frames = asyncio.Queue()

    async def next_(connection):
        await connection.says(answer)
        await frames.put(await connection.hears("audio"))

    async def last(connection):
        await connection.says(hello("s-3"))
        await frames.put(await connection.hears("audio"))

    async with facade(calling(), next_, last) as there, talking(there) as (agent, _):
        agent.user_audio(SPEECH)
        await until(lambda: there.connections == 2)
        agent.user_audio(SPEECH)
        frame = await frames.get()
        assert (frame["sequence"], frame["metadata"]["codec"]) == (0, "pcm")


async def test_resume_that_nobody_asked_for_is_none(monkeypatch):
    monkeypatch.setattr(omnia, "GRACE_S", 0)
    frames = asyncio.Queue()

    async def next_(connection):
        await connection.says(hello(resumed=True))
        await frames.put(await connection.hears("audio"))
        await connection.answers()

    async with facade(calling(), next_) as there, talking(there) as (agent, _):
        agent.user_audio(SPEECH)
        await until(lambda: there.connections == 2)
        agent.user_audio(SPEECH)
        assert (await frames.get())["sequence"] == 0


@pytest.mark.parametrize("kind", ["tool_call_nack", "tool_call_ack", "tool_result"])
async def test_what_was_said_of_a_call_is_said_again_where_it_may_be_lost(kind):
    """It was sent, and the connection ended before the facade can have read it."""
    sent, told = asyncio.Event(), []
    call = {"id": "tc-1", "name": "fly" if kind == "tool_call_nack" else "lock", "arguments": {}}

    async def deaf(connection):
        connection.socket.transport.pause_reading()
        await connection.says({"type": "tool_call", "tool_call": call})
        await sent.wait()

    async def next_(connection):
        await connection.says(hello(resumed=True))
        told.append(await connection.hears("tool_call_nack", "tool_call_ack", "tool_result"))
        if kind == "tool_result":
            told.append(await connection.hears("tool_result"))
        await connection.answers()

    async with facade(calling(deaf), next_) as there, talking(there) as (agent, port):
        agent.user_audio(SPEECH)
        if kind == "tool_result":
            await port.until(lambda: port.all(Call))
            agent.tool_result(port.all(Call)[0].turn, ToolResult("call-1", True, 1))
        await until(lambda: kind in [one["type"] for one in agent._unconfirmed])
        sent.set()
        await until(lambda: told and told[-1]["type"] == kind)
    assert told[-1][kind]["call_id"] == "tc-1"


async def test_only_what_has_arrived_is_forgotten():
    async with facade(usual) as there, talking(there) as (agent, _):
        messages = [{"type": "tool_result", "tool_result": {"call_id": "1", "result": 1}} for _ in range(3)]
        agent._unconfirmed += messages
        agent._confirmed(messages[1])
        assert [one is messages[2] for one in agent._unconfirmed] == [True]
        agent._confirmed(messages[0])
        assert len(agent._unconfirmed) == 1
        agent._unconfirmed.clear()


# --- uploads

PHOTO = "data:image/jpeg;name=door.jpg;base64,AAAA"


@contextlib.asynccontextmanager
async def storage(answer):
    """Where a file is put; its address, and the requests that came."""
    came = []

    async def take(request):
        came.append(
            (request.method, request.path_qs, request.headers.get("Authorization"), await request.read())
        )
        return await answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", came
    finally:
        await runner.cleanup()


async def stored(_):
    return web.Response(status=204)


def ready(url="http://127.0.0.1:1/x", **more):
    given = {
        "upload_id": "u",
        "upload_url": url,
        "storage_ref": "omnia://x",
        "expires_at": "2099-01-01T00:00:00Z",
    }
    return {"type": "upload_ready", "upload_ready": given | more}


def error(code, message="no"):
    return {"type": "error", "error": {"code": code, "message": message}}


def taking(*answers, texts):
    """A connection whose requests for an upload are answered so, one after the other; then it answers messages."""

    async def talk(connection):
        await connection.says(hello())
        for answer in answers:
            await connection.hears("upload_request")
            await connection.says(*(answer if isinstance(answer, list) else [answer]))
        while True:
            texts.append(await connection.hears("message"))
            await connection.says(DONE)

    return talk


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ready("http://127.0.0.1:99999999/x"), "Port out of range"),
        (ready("http://[::1/x"), "Invalid IPv6"),
        (ready("http://user:word@127.0.0.1/x"), "nothing but the address"),
        (ready(method="DELETE"), "the upload's method was not used: DELETE"),
        (ready(method="PUT /y HTTP/1.1"), "the upload's method was not used"),
        (ready(headers={"a\r\nb": "c"}), "the upload did not succeed"),
        (ready(headers={"a": "\ud800"}), "the upload did not succeed"),
    ],
)
async def test_upload_that_cannot_be_costs_the_file_alone(answer, told):
    texts = []
    async with facade(taking(answer, texts=texts)) as there, talking(there, context=PHOTO) as (agent, port):
        agent.user_text("Who is there?")
        await port.until(lambda: "Well." in said(port))
        [failure] = port.all(AgentError)
        assert (told in failure.message, failure.recoverable) == (True, True), failure
    assert "could not be handed over" in json.dumps(texts)


async def test_refusal_of_an_upload_that_never_ends_is_not_read_to_its_end():
    async def refuse(request):
        answer = web.StreamResponse(status=507)
        await answer.prepare(request)
        while True:
            await answer.write(b"no room " * 1000)

    texts = []
    async with (
        storage(refuse) as (url, _),
        facade(taking(ready(f"{url}/media/upload/u"), texts=texts)) as there,
        talking(there, context=PHOTO) as (agent, port),
    ):
        agent.user_text("Who is there?")
        await port.until(lambda: "Well." in said(port))
        assert "the upload was refused: no room" in port.all(AgentError)[0].message


async def test_upload_that_is_sent_elsewhere_goes_nowhere():
    async def elsewhere(request):
        raise web.HTTPTemporaryRedirect(f"http://127.0.0.1:{request.url.port}/other")

    async with (
        storage(elsewhere) as (url, came),
        facade(taking(ready(f"{url}/media/upload/u"), texts=[])) as there,
        talking(there, context=PHOTO) as (agent, port),
    ):
        agent.user_text("Who is there?")
        await port.until(lambda: "Well." in said(port))
        assert "HTTP status 307" in port.all(AgentError)[0].message
        assert [(path, key) for _, path, key, _ in came] == [("/media/upload/u", None)]


async def test_facade_with_tls_has_no_file_put_in_the_clear():
    """Not on this computer either: it is the facade that says where, and the computer's own services are none of its business."""
    file = omnia_files.File("a", "a/b", b"x")
    answer = omnia_files.UploadReady("u", "http://127.0.0.1:1/x", "r", "2099-01-01T00:00:00Z", "PUT", {})
    for insecure, told in ((False, "an address like https"), (True, "did not succeed")):
        with pytest.raises(omnia_files.ProviderError, match=told):
            await omnia_files.put(file, answer, "https://h/", KEY, insecure=insecure, timeout_s=1)


async def test_upload_is_confirmed_under_its_own_name_whatever_that_is(monkeypatch):
    confirmed = []

    async def put(file, answer, confirm, *_, **__):
        confirmed.append(confirm)
        return "omnia://x"

    monkeypatch.setattr(omnia_files, "put", put)
    async with (
        facade(taking(ready(upload_id="../../x?y#\ud800"), texts=[])) as there,
        talking(there, context=PHOTO) as (agent, port),
    ):
        agent.user_text("Who is there?")
        await port.until(lambda: "Well." in said(port))
    assert confirmed == [f"http://127.0.0.1:{there.port}/media/confirm-upload/..%2F..%2Fx%3Fy%23%3F"]


@pytest.mark.parametrize(
    "other",
    [
        error("DUPLEX_ERROR"),
        error("RATE_LIMITED", "media rate limit exceeded"),
        error("MEDIA_NOT_ENABLED", "audio not supported"),
        error("INVALID_MESSAGE", "no pending tool call"),
        error("PROVIDER_STALLED"),
    ],
)
async def test_error_about_something_else_is_no_answer_to_an_upload(other):
    texts = []
    async with (
        storage(stored) as (url, came),
        facade(taking([other, ready(f"{url}/media/upload/u")], texts=texts)) as there,
        talking(there, context=PHOTO) as (agent, port),
    ):
        agent.user_text("Who is there?")
        await port.until(lambda: "Well." in said(port))
        assert came[0] == ("PUT", "/media/upload/u", None, bytes(3))
    assert "omnia://x" in json.dumps(texts)


@pytest.mark.parametrize("code", ["RATE_LIMITED", "TURN_IN_PROGRESS"])
async def test_upload_that_was_shed_is_asked_for_again(code, monkeypatch):
    monkeypatch.setattr(omnia, "RATE_S", (0.01, 0.01))
    for tries in (2, 3):
        texts = []
        async with storage(stored) as (url, _):
            answers = [*[error(code)] * tries, *([ready(f"{url}/media/upload/u")] if tries == 2 else [])]
            async with (
                facade(taking(*answers, texts=texts)) as there,
                talking(there, context=PHOTO) as (agent, port),
            ):
                agent.user_text("Who is there?")
                await port.until(lambda: "Well." in said(port))
                assert len(port.all(AgentError)) == tries - 2


async def test_upload_for_a_session_that_has_expired_goes_to_the_next():
    async with storage(stored) as (url, _):
        asked, texts = [], []

        async def lost(connection):
            await connection.says(hello("s-1"))
            await connection.hears("message")
            await connection.says(DONE)

        async def next_(connection):
            await connection.says(hello("s-2"))
            for answer in (error("SESSION_EXPIRED"), ready(f"{url}/media/upload/u")):
                asked.append(await connection.hears("upload_request"))
                await connection.says(answer)
            texts.append(await connection.hears("message"))
            await connection.says(DONE)
            await connection.socket.wait_closed()

        async with facade(lost, next_) as there, talking(there) as (agent, port):
            agent.user_text("Hello")
            await port.ends()
            agent.context(PHOTO)
            agent.user_text("Who is there?")
            await port.ends(2)
            assert port.all(AgentError) == []
    assert [one.get("session_id") for one in (*asked, *texts)] == ["s-1", None, None]
    assert "omnia://x" in json.dumps(texts)


async def test_upload_that_comes_after_the_credential_has_expired_goes_out_with_the_next(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(omnia_credential, "WATCH_S", 0.01)
    token = tmp_path / "token"
    token.write_text("first")
    async with storage(stored) as (url, _):
        texts = []

        async def expired(connection):
            await connection.says(hello())
            await connection.hears("upload_request")
            token.write_text("second")
            await connection.says(error("CREDENTIAL_EXPIRED"))
            await connection.socket.wait_closed()

        async with (
            facade(expired, taking(ready(f"{url}/media/upload/u"), texts=texts)) as there,
            talking(there, context=PHOTO, api_key=None, credential_file=token) as (agent, port),
        ):
            agent.user_text("Who is there?")
            await port.until(lambda: "Well." in said(port))
            assert port.all(AgentError) == []
    assert "omnia://x" in json.dumps(texts)


async def test_upload_that_the_facade_could_not_even_be_asked_for_is_told_at_once():
    small = hello()
    small["connected"]["capabilities"]["max_payload_size"] = 100

    async def talk(connection):
        await connection.says(small)
        await connection.answers()

    async with facade(talk) as there, talking(there, context=PHOTO) as (agent, port):
        agent.user_text("Who is there?")
        await port.until(lambda: port.all(AgentError))
        assert "the facade takes 100" in port.all(AgentError)[0].message
