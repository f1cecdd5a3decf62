"""The Omnia facade and clients that mean no good, or have bad luck: what they cost others, and what is left of them."""

import asyncio
import base64
import contextlib
import json
import socket
import struct
import threading

import pytest
from host_client import DEADLINE_S
from omnia_client import PCM16_16K, answers, serving, until
from peers.vectors import encode_omni
from pydantic import ValidationError
from test_guest import Brain
from vrt_host.agents.base import Abilities, AgentError, Text, TurnBegin, TurnEnd
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig
from vrt_host.facades import (
    omnia,
    omnia_archive,
    omnia_frames,
    omnia_messages,
    omnia_session,
    omnia_socket,
)


class Ears(Brain):
    """Hears, and says what a test says."""

    abilities = Abilities(inputs=(PCM16_16K,), outputs=(PCM16_16K,))


@pytest.fixture
def owned(tmp_path):
    """Options of a host with a token, and of its clients."""
    file = TokenFile(tmp_path / "t.json")
    token = file.add("web")
    return {"config": ServerConfig(port=0, tokens=file.path), "token": token}, file


def quiet(caplog):
    return [one.getMessage() for one in caplog.records if one.levelname in ("WARNING", "ERROR")] == []


async def raw(host, more=b""):
    """A WebSocket by hand; `more` comes with the request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", host.facade.port)
    key = base64.b64encode(bytes(16)).decode()
    writer.write(
        f"GET /ws?agent=a HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    writer.write(more)
    return reader, writer


def masked(kind, payload):
    """A frame of a client's."""
    size = len(payload)
    head = bytes([0x80 | kind]) + (
        bytes([0x80 | size]) if size < 126 else bytes([0xFE]) + struct.pack(">H", size)
    )
    return head + bytes(4) + payload


def sound(payload, *, last=False):
    flags = ["is_last"] if last else []
    head = {"message_type": 1, "sequence": 0, "media_id": "00" * 12, "metadata": {}}
    return encode_omni({"flags": flags, "payload": payload.hex(), **head})


# --- what one client costs the others


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"parts": [1] * 101}, "parts: list should have at most 100 items"),
        ({"parts": [{"type": "text", "text": ""}] * 101}, "parts: list should have at most 100 items"),
        ({"content": "", "consent_grants": [1] * 101}, "consent_grants: list should have at most 100 items"),
        ({"content": "", "metadata": {str(n): n for n in range(33)}}, "metadata has more than 32 keys"),
    ],
)
def test_not_all_that_is_wrong_with_a_message_is_looked_for(monkeypatch, members, words):
    """Two million wrong parts in 16 MiB took minutes, and nobody else was served."""
    counts, first = [], omnia_messages.first

    def counted(error: ValidationError):
        counts.append(error.error_count())
        return first(error)

    monkeypatch.setattr(omnia_messages, "first", counted)
    with pytest.raises(omnia_messages.InvalidError, match=words):
        omnia_messages.decode(json.dumps({"type": "message", **members}))
    assert counts == [1]


async def test_a_long_message_is_read_aside_and_in_its_turn(monkeypatch):
    read, decode = [], omnia_messages.decode
    monkeypatch.setattr(
        omnia_messages, "decode", lambda text: (read.append(threading.current_thread()), decode(text))[1]
    )
    async with serving(Brain(answers)) as host, host.omnia(agent="a", connected=True) as client:
        await client.send("message", content="x", other="y" * omnia.LONG_CHARS)
        await client.send("telepathy")
        kinds = [(await client.next())["type"] for _ in range(2)]
        assert sorted(kinds) == ["chunk", "error"]  # the answer begins before, or behind what came after
        assert [one is threading.main_thread() for one in read] == [False, True]


def test_metadata_of_a_frame_that_are_too_long_are_not_looked_at():
    most = omnia_frames.METADATA_BYTES
    for size, told in ((most, {"sample_rate": 8000}), (most + 1, {})):
        text = json.dumps({"sample_rate": 8000}).encode().ljust(size)
        data = omnia_frames._HEADER.pack(b"OMNI", 1, 0, 1, len(text), 0, 0, bytes(12)) + text
        assert omnia_frames.decode(data).metadata == told


async def test_a_client_that_sends_much_at_once_and_reads_is_answered(monkeypatch):
    monkeypatch.setattr(omnia, "QUEUED", 100)
    count = 600
    async with serving() as host:
        reader, writer = await raw(host, masked(1, b"{") * count)
        text = b""
        async with asyncio.timeout(DEADLINE_S):
            while text.count(b'"error":') < count:
                more = await reader.read(65_536)
                assert more  # else it was cut off
                text += more
        assert b"RATE_LIMITED" in text
        writer.close()


async def test_much_sound_in_one_frame_is_taken_piece_by_piece():
    """One frame of 16 MiB at 8 kHz took ten seconds."""
    turns = 0

    class Counts(Ears):
        def user_audio(self, payload):
            super().user_audio(payload)
            at.add(turns)

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    at, brain = set(), Counts()
    async with serving(brain) as host, host.omnia(agent="a", connected=True) as client:
        await client.audio(bytes(320))
        await brain.until(lambda: brain.audio)
        counting = asyncio.create_task(others())
        await client.audio(bytes(range(256)) * 4096, last=True)  # 1 MiB
        await brain.until(lambda: len(brain.audio) == 320 + (1 << 20) + 32_000)
        counting.cancel()
        assert len(at) >= (1 << 20) // omnia.AUDIO_BYTES
        assert brain.audio[320 : 320 + (1 << 20)] == bytes(range(256)) * 4096


async def test_who_only_pings_and_does_not_read_is_cut_off(monkeypatch, caplog):
    monkeypatch.setattr(omnia_socket, "WRITE_S", 0.1)
    async with serving() as host:
        reader, writer = await raw(host)
        await until(lambda: host.facade._clients, lambda: reader.read(1))
        reader._transport.pause_reading()
        [client] = host.facade._clients
        for one, size in ((writer, socket.SO_RCVBUF), (client._request, socket.SO_SNDBUF)):
            one.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, size, 4096)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(DEADLINE_S):
                while host.facade._clients:
                    writer.write(masked(9, b"p" * 125) * 1000)
                    await writer.drain()
        assert not host.facade._clients
        writer.transport.abort()
    assert quiet(caplog)


async def test_what_is_no_http_fills_no_log(caplog):
    """An address may hold a token that has no place there."""
    requests = (
        b"GET /ws?access_token=vrt_secret" + b"x" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /ws HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\n\n",
    )
    async with serving() as host:
        for request in requests:
            reader, writer = await asyncio.open_connection("127.0.0.1", host.facade.port)
            writer.write(request)
            async with asyncio.timeout(DEADLINE_S):
                assert b" 400 " in await reader.readuntil(b"\r\n")
            writer.close()
    assert quiet(caplog)
    assert "secret" not in caplog.text


async def test_connections_leave_nothing_behind():
    async with serving(*[Ears(answers) for _ in range(90)]) as host:
        tasks = len(asyncio.all_tasks())
        for number in range(90):
            async with host.omnia(agent="a", connected=True) as client:
                if number % 3 == 0:
                    await client.say("x")
                    await client.answer()
                elif number % 3 == 1:
                    await client.audio(bytes(640))
                    await client.until("session_config")
                    await client.send("hangup")
                if number % 2:
                    client.ws.transport.abort()
        facade = host.facade
        await until(lambda: not (facade._clients or facade.host._seats or facade.host._runners))
        assert facade._calls == 0
        await until(lambda: len(asyncio.all_tasks()) <= tasks)


# --- sessions


async def test_a_call_whose_first_frame_comes_with_the_close_is_parked_and_can_be_resumed():
    brain = Ears()
    async with serving(brain, calls=1) as host:
        reader, writer = await raw(host, masked(2, sound(bytes(640))) + masked(8, struct.pack(">H", 1000)))
        async with asyncio.timeout(DEADLINE_S):
            came = await reader.read()
        writer.close()
        session = came.partition(b'"session_id":"')[2].partition(b'"')[0].decode()
        async with host.omnia(agent="a", resume=session, connected=True) as client:
            assert client.connected["connected"]["resumed"] is True
            await client.audio(bytes(640))
            await brain.until(lambda: len(brain.audio) == 1280)


async def test_a_call_is_over_when_the_answer_to_its_last_frame_fails():
    brain = Ears()
    async with serving(brain, calls=1) as host, host.omnia(agent="a", connected=True) as client:
        await client.audio(bytes(640), last=True)
        await brain.until(lambda: brain.audio)
        brain.port.emit(TurnBegin("t"))
        brain.port.emit(AgentError("no", turn="t"))
        assert (await client.until("error"))["error"]["code"] == "INTERNAL_ERROR"
        assert host.facade.begins()  # its place is free


async def lost(client, brain):
    """The client is gone, and its call parked."""
    client.ws.transport.abort()
    await client.ws.wait_closed()


async def test_an_owner_who_comes_back_with_a_message_ends_the_parked_call(owned, monkeypatch):
    monkeypatch.setattr(omnia_session, "PARK_S", 0.3)
    options, _ = owned
    brain = Brain(lambda agent, text: agent.port.emit(TurnBegin("t")))
    first = Ears()
    async with serving(first, brain, calls=1, **options) as host:
        async with host.omnia(agent="a", connected=True) as client:
            await client.audio(bytes(640))
            await first.until(lambda: first.audio)
            await lost(client, first)
        await until(lambda: not host.facade._clients)
        async with host.omnia(agent="a", connected=True) as again:
            await again.say("x", session_id=client.id)
            async with asyncio.timeout(DEADLINE_S):
                await first.closed.wait()
            assert host.facade._calls == 0
            await brain.until(lambda: hasattr(brain, "port"))
            over = asyncio.Event()
            asyncio.get_running_loop().call_later(2 * omnia_session.PARK_S, over.set)
            await over.wait()  # the time of a parked call
            brain.port.emit(Text("t", "Here."))
            brain.port.emit(TurnEnd("t"))
            assert await again.answer() == "Here."


async def test_a_call_belongs_to_one_connection(owned):
    options, _ = owned
    brain = Ears()
    async with (
        serving(brain, **options) as host,
        host.omnia(agent="a", connected=True) as old,
        host.omnia(agent="a", connected=True) as other,
    ):
        await old.audio(bytes(640))
        await brain.until(lambda: brain.audio)
        await other.say("x", session_id=old.id)
        assert (await other.error())[0] == "TURN_IN_PROGRESS"
        async with host.omnia(agent="a", resume=old.id, connected=True) as new:
            await old.until("session_config")
            await old.audio(b"\x01" * 640)
            assert await old.error() == ("INVALID_MESSAGE", omnia_session.ELSEWHERE)
            await new.audio(b"\x02" * 640)
            await brain.until(lambda: len(brain.audio) == 1280)
            assert 1 not in brain.audio


async def test_a_call_does_not_begin_in_a_turn_of_another_connection(owned):
    options, _ = owned
    brain = Ears(lambda agent, text: agent.port.emit(TurnBegin("t")))
    async with (
        serving(brain, **options) as host,
        host.omnia(agent="a", connected=True) as one,
        host.omnia(agent="a", connected=True) as two,
    ):
        await two.say("x", session_id=one.id)
        await brain.until(lambda: hasattr(brain, "port"))
        await one.audio(bytes(640))
        assert (await one.error())[0] == "TURN_IN_PROGRESS"
        brain.port.emit(Text("t", "Yes."))
        brain.port.emit(TurnEnd("t"))
        assert await two.answer() == "Yes."


async def test_the_answer_that_came_too_late_does_not_answer_the_next_message(monkeypatch):
    monkeypatch.setattr(omnia_session, "FIRST_S", 0.1)
    late = Brain()
    async with serving(late, Brain(answers)) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("x")
        assert (await client.error())[0] == "PROVIDER_TIMEOUT"
        async with asyncio.timeout(DEADLINE_S):
            await late.closed.wait()
        await client.say("y")
        assert await client.answer() == "You said y."


async def test_who_is_told_that_a_session_expired_goes_on_in_the_connections_own(owned):
    """Page, Session expiration: without session_id it joins the connection's own session, whatever that has been through."""
    options, _ = owned
    brains = [Brain(answers) for _ in range(omnia.SESSIONS + 2)]
    async with (
        serving(*brains, context_ttl=1e-9, **options) as host,
        host.omnia(agent="a", connected=True) as client,
    ):
        names = [client.id, *(f"s{number}" for number in range(omnia.SESSIONS))]
        for name in names:  # the last one takes the first one's agent
            await client.say(name, session_id=name)
            await client.answer()
        async with asyncio.timeout(DEADLINE_S):
            await brains[0].closed.wait()
        await client.say("again")
        assert (await client.until("done"))["session_id"] == client.id
        assert brains[-1].session.context is None


async def test_who_opens_many_sessions_makes_nobody_elses_be_forgotten(owned, monkeypatch):
    monkeypatch.setattr(omnia_archive, "MOST", 6)
    options, file = owned
    greedy = file.add("greedy")
    brain = Brain(answers)
    async with serving(brain, Brain(answers), **options) as host:
        async with host.omnia(agent="a", connected=True) as client:
            await client.say("mine", session_id="mine")
            await client.answer()
        async with asyncio.timeout(DEADLINE_S):
            await brain.closed.wait()
        async with host.omnia(agent="a", token=greedy, connected=True) as many:
            for number in range(20):
                await many.say("", session_id=f"g{number}")
                await many.until("done")
        assert len(host.facade.archive._sessions) == 6
        async with host.omnia(agent="a", token=greedy, connected=True) as stranger:
            await stranger.say("x", session_id="mine")
            assert (await stranger.error())[0] == "SESSION_EXPIRED"  # it is still there, and another's
