"""A WebSocket link between a recording receiver and a real client."""

import asyncio
import contextlib

import pytest
from host_client import DEADLINE_S
from vrt_host.links.websocket import MAX_PINGS_UNREAD, SMALL, WebSocketLink
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.frames import Frame, Opcode


class Receiver:
    """Notes what the link reports; `count` waits for so many reports, `flush` not counted."""

    def __init__(self):
        self.reports = []
        self.flushes = 0
        self._changed = asyncio.Event()

    def _note(self, *report):
        self.reports.append(report)
        self._changed.set()

    def text(self, frame):
        self._note("text", frame)

    def audio(self, frame):
        self._note("audio", frame)

    def heard(self):
        self._note("heard")

    def flush(self):
        self.flushes += 1
        self._changed.set()

    def lost(self, *, too_large):
        self._note("lost", too_large)

    async def count(self, number):
        await self.when(lambda: len(self.reports) >= number)

    async def when(self, holds):
        async with asyncio.timeout(DEADLINE_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


@contextlib.asynccontextmanager
async def linked(attach=True, **options):
    """A link with a receiver, and its client."""
    links = asyncio.Queue()

    async def on_link(link):
        links.put_nowait(link)
        await link.wait_closed()

    options = {"compression": None, "ping_interval": None, "close_timeout": 0.2, **options}
    async with serve(on_link, "127.0.0.1", 0, create_connection=WebSocketLink, **options) as server:
        server.next_link = links.get
        port = server.sockets[0].getsockname()[1]
        async with connect(
            f"ws://127.0.0.1:{port}", proxy=None, ping_interval=None, compression=None
        ) as client:
            async with asyncio.timeout(DEADLINE_S):
                link = await links.get()
            receiver = Receiver()
            if attach:
                link.attach(receiver)
            yield link, receiver, client
            client.transport.abort()


async def received(client):
    async with asyncio.timeout(DEADLINE_S):
        return await client.recv()


async def test_frames_are_reported_in_order_and_flushed():
    async with linked() as (link, receiver, client):
        await client.send("text")
        await client.send(b"audio")
        await client.send("")
        await receiver.count(3)
        assert receiver.reports == [("text", "text"), ("audio", b"audio"), ("text", "")]
        await receiver.when(lambda: receiver.flushes >= 2)
        assert link.peer.startswith("127.0.0.1:")


async def test_frames_before_attach_wait_for_it():
    async with linked(attach=False) as (link, receiver, client):
        await client.send("one")
        await client.send(b"two")
        async with asyncio.timeout(DEADLINE_S):
            await (await client.ping())  # by the pong, the frames before it have arrived
        link.attach(receiver)
        await receiver.count(2)
        assert receiver.reports[:2] == [("text", "one"), ("audio", b"two")]


async def test_transport_s_own_frames_are_signs_of_life():
    async with linked() as (_, receiver, client):
        await client.ping()
        await client.pong()
        await receiver.count(2)
        assert receiver.reports == [("heard",), ("heard",)]


async def test_fragments_are_signs_of_life_and_make_one_message():
    async def parts():
        for part in (b"a", b"b", b"c"):
            yield part

    async with linked() as (_, receiver, client):
        await client.send(parts())
        await receiver.when(lambda: receiver.reports[-1:] == [("audio", b"abc")])
        assert ("heard",) in receiver.reports


def frame(opcode, payload, fin=True):
    return Frame(opcode, payload, fin).serialize(mask=True)


STREAM = (
    (frame(Opcode.BINARY, b""), [("audio", b"")]),
    (frame(Opcode.BINARY, b"x"), [("audio", b"x")]),
    (frame(Opcode.TEXT, "é".encode()), [("text", "é")]),
    (frame(Opcode.BINARY, bytes(range(125))), [("audio", bytes(range(125)))]),
    (frame(Opcode.BINARY, bytes(126)), [("audio", bytes(126))]),
    (
        b"\x82\xfe\x00\x02abcd" + bytes((0x61 ^ 1, 0x62 ^ 2)),
        [("audio", b"\1\2")],
    ),  # a longer length than needed
    (frame(Opcode.PING, b"p"), [("heard",)]),
    (frame(Opcode.BINARY, b"ab", fin=False), [("heard",)]),
    (frame(Opcode.PONG, b""), [("heard",)]),
    (frame(Opcode.CONT, b"c", fin=False), [("heard",)]),
    (frame(Opcode.CONT, b"", fin=True), [("audio", b"abc")]),
    (frame(Opcode.BINARY, bytes(SMALL)), [("audio", bytes(SMALL))]),
    (frame(Opcode.BINARY, bytes(70_000)), [("audio", bytes(70_000))]),
    (frame(Opcode.BINARY, b"last"), [("audio", b"last")]),
)


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 64, 1000, 1 << 20])
async def test_frames_are_the_same_however_they_are_cut(step):
    sent = b"".join(data for data, _ in STREAM)
    expected = [report for _, reports in STREAM for report in reports]
    async with linked() as (link, receiver, _):
        for start in range(0, len(sent), step):
            link.data_received(sent[start : start + step])
        assert receiver.reports == expected


@pytest.mark.parametrize("size", [5, 2000])
@pytest.mark.parametrize("wrong", ["message inside a message", "reserved bit", "continuation of nothing"])
async def test_what_the_standard_forbids_is_a_protocol_error(size, wrong):
    payload = bytes(size)
    data = {
        "message inside a message": frame(Opcode.TEXT, b"a", fin=False) + frame(Opcode.BINARY, payload),
        "reserved bit": b"\xc2" + frame(Opcode.BINARY, payload)[1:],
        "continuation of nothing": frame(Opcode.CONT, payload),
    }[wrong]
    async with linked() as (_, receiver, client):
        client.transport.write(data + frame(Opcode.BINARY, b"unheard"))
        await receiver.when(lambda: receiver.reports[-1:] == [("lost", False)])
        await client.wait_closed()
        assert ("audio", b"unheard") not in receiver.reports
        assert client.close_code == 1002


async def test_client_that_does_not_wait_for_the_handshake_is_heard():
    async with linked() as (link, _, _):
        reader, writer = await asyncio.open_connection(*link.local_address)
        inner = b"\x82\x81\0\0\0\0x"  # a frame inside a frame, to be taken for one when the place is lost
        whole, half = frame(Opcode.BINARY, b"one"), b"\x82\x87\0\0\0\0" + inner
        writer.write(
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            + whole
            + half[:6]
        )
        async with asyncio.timeout(DEADLINE_S):
            await reader.readuntil(b"\r\n\r\n")
            other = await link.server.next_link()
        receiver = Receiver()
        other.attach(receiver)
        writer.write(half[6:] + frame(Opcode.BINARY, b"three"))
        await receiver.count(3)
        writer.close()
        assert receiver.reports == [("audio", b"one"), ("audio", inner), ("audio", b"three")]


async def test_what_is_written_arrives():
    frames = ["é", b"\x00", "x", b"", *(bytes(size) for size in (125, 126, SMALL, SMALL + 1, 70_000)), "end"]
    async with linked() as (link, _, client):
        link.write(frames)
        assert [await received(client) for _ in frames] == frames


async def test_audio_is_held_while_an_older_ping_is_unanswered():
    async with linked() as (link, receiver, _):
        asked = []
        link._flow.waiting = True
        for _ in range(10):
            assert link.admit(0.02)
        assert not link.admit(0.02)
        link.write([b"x"])
        assert not link.admit(0.02)
        link._flow.answered()  # as its pong does
        link.write([])
        assert link.admit(0.02)
        asked.append(link._asked)
        await receiver.count(1)  # the client's pong
        assert asked == [b"1"]
        assert link._asked is None


async def test_end_closes_with_code_and_reason_and_reports_nothing():
    async with linked() as (link, receiver, client):
        link.write(["last"])
        link.end(4408, "heartbeat timeout " * 20)
        link.end(1000, "again")
        link.write(["too late"])
        assert await received(client) == "last"
        await client.wait_closed()
        assert client.close_code == 4408
        assert client.close_reason.startswith("heartbeat timeout")
        assert receiver.reports == []


async def test_peer_that_closes_is_reported_once():
    async with linked() as (_, receiver, client):
        await client.send("last words")
        await client.close(1000)
        await receiver.when(lambda: receiver.reports[-1] == ("lost", False))
        assert receiver.reports == [("text", "last words"), ("heard",), ("lost", False)]


async def test_peer_that_vanishes_is_reported_once():
    async with linked() as (link, receiver, client):
        client.transport.abort()
        await receiver.count(1)
        await link.wait_closed()
        assert receiver.reports == [("lost", False)]


async def test_peer_that_closes_and_stays_is_cut_off():
    async with linked() as (link, receiver, client):
        client.protocol.send_close(1000)
        client.send_data()
        client.transport.pause_reading()  # it never ends the TCP connection
        await receiver.count(1)
        async with asyncio.timeout(DEADLINE_S):
            await link.wait_closed()


async def test_frame_that_is_too_large_is_said_so():
    async with linked(max_size=100) as (_, receiver, client):
        await client.send("x" * 101)
        await receiver.count(1)
        assert receiver.reports == [("lost", True)]


@pytest.mark.parametrize("piece", [3, 1000])
async def test_audio_frame_that_is_too_large_is_said_so(piece):
    async with linked(max_size=100) as (link, receiver, _):
        data = frame(Opcode.BINARY, bytes(100)) + frame(Opcode.BINARY, bytes(101))
        for start in range(0, len(data), piece):
            link.data_received(data[start : start + piece])
        assert receiver.reports == [("audio", bytes(100)), ("lost", True)]


async def test_frames_after_one_that_is_not_utf8_are_ignored():
    async with linked() as (_, receiver, client):
        for frame in (b"\xff", b"good"):
            client.protocol.send_text(frame)
        client.send_data()
        await receiver.count(1)
        await client.wait_closed()
        assert receiver.reports == [("lost", False)]
        assert client.close_code == 1007


async def test_unmasked_frame_is_a_protocol_error():
    async with linked() as (_, receiver, client):
        client.transport.write(b"\x81\x01x")
        await receiver.count(1)
        await client.wait_closed()
        assert receiver.reports == [("lost", False)]
        assert client.close_code == 1002


async def test_peer_that_asks_without_reading_is_cut_off():
    async with linked() as (link, receiver, client):
        client.transport.pause_reading()
        link.write([b"x" * 8_000_000])  # more than the sockets take, so that the rest waits
        assert not link.writable
        for _ in range(MAX_PINGS_UNREAD + 1):
            await client.ping()
        await receiver.when(lambda: ("lost", False) in receiver.reports)
