import asyncio
import contextlib

import pytest
from vrt_host.harness.proxy import Proxy


class Echo:
    """A server that sends back what it gets, and a proxy before it."""

    def __init__(self):
        self.events = []
        self.ends = []
        self.received = 0
        self._changed = asyncio.Event()

    async def serve(self, reader, writer):
        try:
            while data := await reader.read(1 << 16):
                self.received += len(data)
                self._changed.set()
                writer.write(data)
                await writer.drain()
            self.ends.append("fin")
        except ConnectionError:
            self.ends.append("reset")
        finally:
            writer.close()
            self._changed.set()

    def observe(self, event, **fields):
        self.events.append((event, fields))
        self._changed.set()

    def names(self):
        return [event for event, _ in self.events]

    async def until(self, condition):
        async with asyncio.timeout(5):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def rig():
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with server, Proxy("127.0.0.1", server.sockets[0].getsockname()[1], observer=echo.observe) as proxy:
        echo.proxy = proxy
        yield echo


@contextlib.asynccontextmanager
async def client(proxy):
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def exchange(reader, writer, data):
    writer.write(data)
    async with asyncio.timeout(5):
        return await reader.readexactly(len(data))


async def test_proxy_passes_bytes_both_ways_and_counts_them(rig):
    async with client(rig.proxy) as (reader, writer):
        data = bytes(range(256)) * 400
        assert await exchange(reader, writer, data) == data
        assert (rig.proxy.bytes("up"), rig.proxy.bytes("down"), rig.proxy.connections) == (
            102_400,
            102_400,
            1,
        )
    await rig.until(lambda: "closed" in rig.names())
    assert rig.ends == ["fin"]
    assert rig.names() == ["connected", "closed"]


async def test_proxy_passes_a_half_close_on_and_still_carries_the_answer(rig):
    async with client(rig.proxy) as (reader, writer):
        writer.write(b"last words")
        writer.write_eof()
        async with asyncio.timeout(5):
            assert await reader.read(100) == b"last words"
            assert await reader.read(100) == b""


async def test_proxy_cuts_by_reset(rig):
    async with client(rig.proxy) as (reader, writer):
        await exchange(reader, writer, b"x")
        assert rig.proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), 5)
    await rig.until(lambda: rig.ends)
    assert rig.ends == ["reset"]
    assert ("cut", {"how": "reset", "connections": 1}) in rig.events


async def test_proxy_cuts_cleanly(rig):
    async with client(rig.proxy) as (reader, writer):
        await exchange(reader, writer, b"x")
        rig.proxy.cut(reset=False)
        assert await asyncio.wait_for(reader.read(1), 5) == b""
    await rig.until(lambda: rig.ends)
    assert rig.ends == ["fin"]


async def test_proxy_passes_a_reset_of_the_device_on(rig):
    async with client(rig.proxy) as (reader, writer):
        await exchange(reader, writer, b"x")
        writer.get_extra_info("socket").setsockopt(
            1, 13, b"\x01\0\0\0\0\0\0\0"
        )  # SO_LINGER, zero: close resets
        writer.transport.abort()
    await rig.until(lambda: rig.ends)
    assert rig.ends == ["reset"]


async def test_proxy_cut_without_a_connection_says_so(rig):
    assert rig.proxy.cut() == 0
    assert rig.events == []


async def test_proxy_cuts_a_stalled_connection(rig):
    async with client(rig.proxy) as (reader, writer):
        await exchange(reader, writer, b"x")
        rig.proxy.stall()
        writer.write(b"held")
        rig.proxy.cut()
        await rig.until(lambda: "closed" in rig.names())
    rig.proxy.flow()


async def test_proxy_holds_one_direction_and_lets_go_in_order(rig):
    async with client(rig.proxy) as (reader, writer):
        await exchange(reader, writer, b"x")
        rig.proxy.stall("down")
        writer.write(b"one")
        await rig.until(lambda: rig.received == 4)
        writer.write(b"two")
        await rig.until(lambda: rig.received == 7)
        assert rig.proxy.bytes("down") == 1
        rig.proxy.flow("down")
        assert await asyncio.wait_for(reader.readexactly(6), 5) == b"onetwo"
    assert rig.names() == ["connected", "stalled", "flowing"]


async def test_proxy_splits_into_pieces(rig):
    rig.proxy.split(3, "down")
    async with client(rig.proxy) as (reader, writer):
        assert await exchange(reader, writer, b"0123456789") == b"0123456789"


async def test_proxy_throttles_to_a_rate(rig):
    rig.proxy.throttle(2_000, "up")
    async with client(rig.proxy) as (reader, writer):
        started = asyncio.get_running_loop().time()
        for _ in range(4):
            await exchange(reader, writer, bytes(50))
        assert asyncio.get_running_loop().time() - started >= 3 * 50 / 2_000  # the pause follows each piece


async def test_proxy_refuses_while_told_to(rig):
    rig.proxy.refusing = True
    with pytest.raises(ConnectionError):
        async with client(rig.proxy) as (reader, writer):
            await exchange(reader, writer, b"x")
    rig.proxy.refusing = False
    async with client(rig.proxy) as (reader, writer):
        assert await exchange(reader, writer, b"x") == b"x"
    assert "refused" in rig.names()


async def test_proxy_resets_when_nobody_listens_behind_it():
    events = []
    async with Proxy(
        "127.0.0.1", 1, observer=lambda event, **fields: events.append((event, fields))
    ) as proxy:
        with pytest.raises(ConnectionError):
            async with client(proxy) as (reader, writer):
                await exchange(reader, writer, b"x")
    assert events[0][0] == "refused"
    assert "why" in events[0][1]
