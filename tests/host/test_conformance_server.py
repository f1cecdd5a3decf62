"""The suite's raw server, against a client that has nothing to do with ours."""

import asyncio
import contextlib
import json

import pytest
from vrt_host.conformance import server
from vrt_host.conformance.checks import Unmet
from vrt_host.conformance.server import Session, resume_from, tool_names
from vrt_host.conformance.websocket import WebSocketListener
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidMessage

SOON_S = 5


@contextlib.asynccontextmanager
async def meeting():
    """A connection as both ends have it: (the raw server's, the client's, the listener)."""
    async with (
        WebSocketListener() as listener,
        connect(listener.url + "x?y", compression=None, proxy=None, ping_interval=None) as client,
    ):
        yield await asyncio.wait_for(listener.accept(), SOON_S), client, listener


def message(type_, seq=0, **members):
    return json.dumps({"v": 1, "seq": seq, "type": type_, **members})


async def receive(client):
    frame = await asyncio.wait_for(client.recv(), SOON_S)
    return json.loads(frame) if isinstance(frame, str) else frame


async def test_connection_says_frames_as_they_are_and_hears_every_frame():
    async with meeting() as (connection, client, listener):
        assert connection.link.target == "/x?y"
        assert len(listener.attempts) == 1
        connection.text('{"v":1')
        connection.say("nothing", seq=7, a=None)
        connection.audio(b"\x01")
        connection.audio(b"", seq=9)
        assert await client.recv() == '{"v":1'
        assert await receive(client) == {"v": 1, "seq": 7, "type": "nothing", "a": None}
        assert await receive(client) == b"\x02\x00\x00\x00\x00\x01"
        assert await receive(client) == b"\x02\x00\x00\x00\x09"
        await client.send("not JSON")
        await client.send([message("hello")[:9], message("hello")[9:]])
        await client.send(b"\x01")
        assert (await connection.message("hello", SOON_S))["seq"] == 0
        await connection.until(lambda: bool(connection.audio_heard()), SOON_S, "audio")
        assert [(frame.sent, frame.kind) for frame in connection.frames] == [
            *[(True, "text")] * 2,
            *[(True, "binary")] * 2,
            *[(False, "text")] * 2,
            (False, "binary"),
        ]
        assert [frame.t for frame in connection.frames] == sorted(frame.t for frame in connection.frames)


async def test_connection_waits_for_members_and_names_what_came_instead():
    async with meeting() as (connection, client, _):
        await client.send(message("text", 1, text="one"))
        await client.send(message("text", 2, text="two"))
        assert (await connection.message("text", SOON_S, text="two"))["seq"] == 2
        with pytest.raises(Unmet, match=r"waited 0.01 s for text .*'absent'.*; it said .*two"):
            await connection.message("text", 0.01, absent=None)
        assert connection.heard("text", "ping") == connection.heard()


async def test_connection_tells_how_the_client_closed_it():
    async with meeting() as (connection, client, _):
        await client.close(4000, "dead")
        assert await connection.end(SOON_S) == 4000
        assert [frame.kind for frame in connection.frames] == ["close", "end"]
        with pytest.raises(Unmet, match="closed the connection before ping"):
            await connection.message("ping", SOON_S)


async def test_connection_closes_and_cuts():
    async with meeting() as (connection, client, _):
        connection.refuse("UNAUTHORIZED", 4401)
        assert (await receive(client))["code"] == "UNAUTHORIZED"
        with pytest.raises(ConnectionClosed) as closed:
            await client.recv()
        assert closed.value.rcvd.code == 4401
    async with meeting() as (connection, client, _):
        connection.cut()
        with pytest.raises(ConnectionClosedError) as closed:
            await client.recv()
        assert closed.value.rcvd is None
        assert await connection.end(SOON_S) == 1006


async def test_client_that_floods_is_cut_off_and_named(monkeypatch):
    monkeypatch.setattr(server, "MOST_FRAMES", 50)
    async with meeting() as (connection, client, _):
        with contextlib.suppress(ConnectionClosed):
            for _ in range(1000):
                await client.send("x")
        with pytest.raises(Unmet, match="cut off before hello: more than 50 frames"):
            await connection.message("hello", SOON_S)
        await asyncio.wait_for(client.wait_closed(), SOON_S)


async def test_link_splits_fragments_and_pings():
    async with meeting() as (connection, client, _):
        connection.link.frame("text", b'{"v": "\xc3\xbc"}', (0, 8, 1))
        assert await receive(client) == {"v": "ü"}
        connection.link.fragment_around_ping(b'{"v": 2}', b"between")
        assert await receive(client) == {"v": 2}
        pong = await connection.frame(lambda frame: frame.kind == "pong", SOON_S, "pong")
        assert pong.data == b"between"
        await connection.link.trickle(b'{"v": 3}', 0)
        assert await receive(client) == {"v": 3}


async def test_link_that_is_dead_sends_nothing():
    async with meeting() as (connection, client, _):
        connection.link.dead = True
        connection.say("pong")
        answer = await client.ping()
        await connection.frame(lambda frame: frame.kind == "ping", SOON_S, "ping")
        connection.link.dead = False
        connection.say("ready")
        assert (await receive(client))["type"] == "ready"
        assert not answer.done()


async def test_link_tells_of_a_client_that_does_not_mask():
    async with WebSocketListener() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(listener.url.split(":")[2][:-1]))
        writer.write(
            b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        connection = await asyncio.wait_for(listener.accept(), SOON_S)
        writer.write(b"\x81\x02{}")
        assert await reader.readuntil(b"\r\n\r\n")
        await asyncio.wait_for(reader.read(), SOON_S)
        writer.close()
        assert await connection.end(SOON_S) == 1006
        assert "mask" in str(connection.frames[-1])


async def test_listener_leaves_nobody_connected_who_never_became_a_websocket():
    async with WebSocketListener() as listener:
        knock = asyncio.ensure_future(listener.knock())
        await asyncio.sleep(0)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(listener.url.split(":")[2][:-1]))
        await asyncio.wait_for(knock, SOON_S)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), SOON_S) == b""
    writer.close()


async def test_listener_notes_who_knocks_while_it_refuses():
    async with WebSocketListener() as listener:
        listener.refusing = True
        with pytest.raises((ConnectionError, InvalidMessage)):
            await connect(listener.url, proxy=None)
        assert len(listener.attempts) == 1


async def test_session_numbers_acknowledges_and_answers_pings():
    async with meeting() as (connection, client, _):
        session = Session("s")
        await client.send(message("hello"))
        session.open(connection, await connection.message("hello", SOON_S), input={"encoding": "opus"})
        ready = await receive(client)
        assert (ready["sessionId"], ready["input"]["encoding"]) == ("s", "opus")
        assert "resumedFrom" not in ready
        call = session.call("light", {}, epoch=session.turn())
        assert [(await receive(client))["seq"] for _ in range(2)] == [1, 2]
        await client.send(message("ping"))
        assert (await receive(client))["type"] == "pong"
        await client.send(message("ack", upTo=2))
        result = message("tool.result", 1, callId=call, epoch=1, ok=True, output=None)
        await client.send(result)
        await client.send(result)
        assert (await session.result(call, SOON_S))["seq"] == 1
        assert [(await receive(client))["upTo"] for _ in range(2)] == [1, 1]
        assert (session.acked, session.last, len(session.received)) == (2, 1, 1)


async def test_session_goes_on_over_another_connection():
    async with WebSocketListener() as listener:
        options = {"compression": None, "proxy": None, "ping_interval": None}
        session = Session("s")
        async with connect(listener.url, **options) as client:
            connection = await listener.accept()
            session.open(connection, {})
            session.turn()
            session.say("text", text="a")
            await client.send(message("text", 1, text="b"))
            await session.until(lambda: session.last == 1, SOON_S, "text")
        session.acks = session.pongs = False
        async with connect(listener.url, **options) as client:
            again = await listener.accept()
            session.resume(again, {"sessionId": "s", "resumeFrom": 1})
            assert (await receive(client))["resumedFrom"] == 1
            assert await receive(client) == {"v": 1, "seq": 2, "type": "text", "text": "a"}
            await client.send(message("ping"))
            await client.send(message("text", 2, text="c"))
            await session.until(lambda: session.last == 2, SOON_S, "text")
            session.interrupted()
            assert (await receive(client))["type"] == "interrupted"


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        (None, []),
        ("x", []),
        ({"a": 1}, []),
        ([1, {"name": 2}, {"name": "b"}, {}], ["b"]),
        ([{"name": "a"}], ["a"]),
    ],
)
def test_tools_that_are_none_are_left_out(tools, names):
    assert tool_names({"tools": tools}) == names


@pytest.mark.parametrize(("hello", "last"), [({}, 0), ({"resumeFrom": 3}, 3), ({"resumeFrom": "3"}, 0)])
def test_client_that_cannot_say_what_it_has_has_nothing(hello, last):
    assert resume_from(hello) == last
