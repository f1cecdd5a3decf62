"""The suite's server on a serial line, with a board that says what a client says."""

import asyncio

import pytest
from host_client import DEADLINE_S
from serial_board import Board
from vrt_host.conformance.checks import NotTestable
from vrt_host.conformance.serial import SerialListener, SerialWire
from vrt_host.protocol.framing import CLOSE, TEXT


@pytest.fixture
def path(tmp_path):
    return tmp_path / "port"


async def accepted(listener):
    async with asyncio.timeout(DEADLINE_S):
        return await listener.accept()


async def test_connection_says_and_hears_frames(path):
    with Board(path) as board:
        async with SerialListener(str(path)) as listener:
            assert listener.url == f"serial:{path}"
            await board.open()
            connection = await accepted(listener)
            assert len(listener.attempts) == 1
            board.text("hello")
            assert (await connection.message("hello", DEADLINE_S))["v"] == 1
            board.audio(b"\x01sound")
            board.say(TEXT, b"\xff no utf-8")
            await connection.until(lambda: len(connection.frames) == 3, DEADLINE_S, "all")
            assert [frame.kind for frame in connection.frames] == ["text", "binary", "text"]
            connection.say("pong")
            assert (await board.message("pong"))["seq"] == 0
            connection.close(4404, "over")
            assert await board.next(CLOSE) == b"\x11\x34over"
            board.say(CLOSE, b"\x11\x34")
            assert await connection.end(DEADLINE_S) == 4404
            connection.say("pong")


async def test_connection_that_is_cut_ends_with_1006(path):
    with Board(path) as board:
        async with SerialListener(str(path)) as listener:
            await board.next(CLOSE)  # that there is no connection
            for cut in (lambda connection: connection.cut(), lambda _: SerialWire(listener).cut()):
                await board.open()
                connection = await accepted(listener)
                cut(connection)
                assert await board.next(CLOSE) == b"\x03\xeeno connection"
                assert await connection.end(DEADLINE_S) == 1006


async def test_nobody_gets_in_while_it_refuses(path):
    with Board(path) as board:
        async with SerialListener(str(path)) as listener:
            wire = SerialWire(listener)
            wire.refusing = True
            asking = asyncio.create_task(board.open())
            async with asyncio.timeout(DEADLINE_S):
                for _ in range(3):
                    await listener.knock()
            assert not asking.done()
            wire.refusing = False
            await accepted(listener)
            await asking


async def test_line_cannot_be_slowed_down(path):
    with Board(path):
        async with SerialListener(str(path)) as listener:
            wire = SerialWire(listener)
            for slow in (wire.stall, wire.flow, lambda: wire.throttle(100), lambda: wire.split(1)):
                with pytest.raises(NotTestable):
                    slow()
