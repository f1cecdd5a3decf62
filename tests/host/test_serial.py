"""Serial links and their ports: a board on a terminal, and the receiver that a server would be."""

import asyncio
import contextlib
import errno
import json
import logging
import os
import pty

import pytest
import serial
from host_client import DEADLINE_S
from serial_board import Board
from test_websocket import Receiver
from vrt_host.agents.echo import EchoAgent
from vrt_host.config import ServerConfig
from vrt_host.errors import UsageError
from vrt_host.links import serial as links
from vrt_host.links.serial import SerialPort
from vrt_host.protocol.framing import AUDIO, CLOSE, PART, TEXT, encode
from vrt_host.server import serve
from vrt_host.session import Limits


class Server:
    """Who gets the links of a port."""

    def __init__(self):
        self.links = asyncio.Queue()
        self.gone = asyncio.Queue()

    def opened(self, link):
        receiver = Receiver()
        link.attach(receiver)
        self.links.put_nowait((link, receiver))

    async def link(self):
        async with asyncio.timeout(DEADLINE_S):
            return await self.links.get()

    async def end(self):
        async with asyncio.timeout(DEADLINE_S):
            return await self.gone.get()


@contextlib.asynccontextmanager
async def plugged(path, **options):
    """A port with a server, which looks for it quickly."""
    server = Server()
    port = SerialPort(str(path), server.opened, server.gone.put_nowait, **{"max_message": 100_000, **options})
    await port.open()
    try:
        yield server, port
    finally:
        await port.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(links, "LOOK_S", 0.02)
    monkeypatch.setattr(links, "LONGEST_LOOK_S", 0.05)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "port"


async def test_link_carries_messages_both_ways(path):
    with Board(path) as board:
        async with plugged(path) as (server, _):
            board.write(b"rst:0x1 (POWERON)\r\n")
            await board.open()
            link, receiver = await server.link()
            assert link.peer == board.port
            board.say(TEXT, b"h\xc3\xa9")
            board.audio(b"\x01\x00")
            await receiver.count(2)
            assert receiver.reports == [("text", "hé"), ("audio", b"\x01\x00")]
            assert receiver.flushes > 0
            link.write(["one", b"\xc0\x00", "x" * 3000])
            assert await board.next(TEXT) == b"one"
            assert await board.next(AUDIO) == b"\xc0\x00"
            long = b""
            while not long.endswith(b"x" * 3000):
                long += await board.next(PART, TEXT)
            assert board.pings > 0, "more than the board's window"
            link.end(1001, "bye")
            link.end(1000, "again")
            link.write(["late"])
            assert await board.next(CLOSE) == b"\x03\xe9bye"
            board.say(CLOSE, b"\x03\xe9")
            assert await server.end() is link
            assert ("lost", False) not in receiver.reports


async def test_audio_is_held_while_an_older_ping_is_unanswered(path):
    with Board(path) as board:
        async with plugged(path) as (server, _):
            await board.open(window=16_000)
            board.answers = False
            link, receiver = await server.link()
            for _ in range(2):
                for _ in range(10):
                    assert link.admit(0.02)
                    link.write([bytes(165)])
            assert not link.admit(0.02)
            for _ in range(20):
                await board.next(AUDIO)
            await board.until(lambda: board.pings)
            assert board.pings == 1
            flushes = receiver.flushes
            board.say(ord("Q"), b"\x01")
            await receiver.when(lambda: receiver.flushes > flushes and ("heard",) in receiver.reports)
            assert link.admit(0.02)


async def test_link_is_not_writable_while_the_board_does_not_read(path):
    with Board(path) as board:
        async with plugged(path) as (server, _):
            await board.open(window=300)
            board.answers = False
            link, receiver = await server.link()
            assert link.writable
            link.write(["x" * 1000])
            assert not link.writable
            await board.until(lambda: board.pings)
            board.answers = True
            board.say(ord("Q"), b"\x01")
            await receiver.when(lambda: link.writable)


async def test_ping_is_sent_again_until_the_board_is_given_up(path, monkeypatch):
    monkeypatch.setattr(links, "ASK_AGAIN_S", 0.05)
    monkeypatch.setattr(links, "BROKEN_S", 0.3)
    with Board(path) as board:
        async with plugged(path) as (server, _):
            await board.open(window=300)
            board.answers = False
            link, receiver = await server.link()
            link.write(["x" * 1000])
            await receiver.when(lambda: ("lost", False) in receiver.reports)
            assert await server.end() is link
            assert board.pings >= 5
            assert await board.next(CLOSE) == b"\x03\xeeno connection"


async def test_message_that_is_lost_last_in_line_shows(path, monkeypatch):
    monkeypatch.setattr(links, "PROBE_S", 0.05)
    with Board(path) as board:
        async with plugged(path) as (server, _):
            await board.open()
            link, _ = await server.link()
            link.write(["one"])
            await board.next(TEXT)
            await board.until(lambda: board.pings == 1)
            board.cable.spoil = lambda way, data: b"" if way == "down" else data
            link.write(["two"])
            board.cable.spoil = None
            await board.until(lambda: board.pings == 2)
            assert board.counts[-1] == 2


async def test_board_that_closes_is_reported_once(path):
    with Board(path) as board:
        async with plugged(path) as (server, _):
            await board.open()
            link, receiver = await server.link()
            board.say(CLOSE, b"\x0f\xa0")
            assert await server.end() is link
            assert receiver.reports == [("lost", False)]
            assert link.code == 4000
            assert not link.writable
            link.write(["late"])
            link.end(1000, "late")


async def test_board_that_starts_again_has_a_new_link(path):
    with Board(path) as board:
        async with plugged(path) as (server, _):
            await board.open()
            link, receiver = await server.link()
            await board.open()
            assert await server.end() is link
            assert receiver.reports == [("lost", False)]
            _, second = await server.link()
            board.say(TEXT, b"new")
            await second.count(1)


async def test_text_that_is_no_utf_8_closes_with_1007(path):
    with Board(path) as board:
        async with plugged(path) as (server, _):
            await board.open()
            _, receiver = await server.link()
            board.say(TEXT, b"\xff")
            await receiver.count(1)
            assert receiver.reports == [("lost", False)]
            assert (await board.next(CLOSE))[:2] == b"\x03\xef"


async def test_message_that_is_too_large_is_reported(path):
    with Board(path) as board:
        async with plugged(path, max_message=1000) as (server, _):
            await board.open()
            _, receiver = await server.link()
            board.say(TEXT, bytes(1001))
            await receiver.count(1)
            assert receiver.reports == [("lost", True)]
            assert (await board.next(CLOSE))[:2] == b"\x03\xf1"


async def test_board_that_does_not_answer_a_close_is_forgotten(path, monkeypatch):
    monkeypatch.setattr(links, "CLOSE_TIMEOUT_S", 0.1)
    with Board(path) as board:
        async with plugged(path) as (server, port):
            await board.open()
            link, _ = await server.link()
            link.end(1001, "bye")
            assert await server.end() is link
            assert not port.side.open


async def test_port_is_waited_for_and_comes_back(path, caplog):
    caplog.set_level(logging.INFO, "vrt_host.links.serial")
    async with plugged(path) as (server, _):
        assert caplog.messages == [f"{path}: waiting for this port; it is not there yet"]
        for turn in range(2):
            with Board(path) as board:
                await board.open()
                _, receiver = await server.link()
            await server.end()
            assert receiver.reports == [("lost", False)]
            assert caplog.messages[1 + 2 * turn :][0] == f"{path}: the port is there"
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_board_with_a_connection_from_before_hears_that_there_is_none(path):
    with Board(path) as board:
        async with plugged(path):
            assert await board.next(CLOSE) == b"\x03\xeeno connection"
            board.audio(b"x")
            assert await board.next(CLOSE) == b"\x03\xeeno connection"


async def test_console_of_a_board_is_logged_as_far_as_it_goes(path, caplog, monkeypatch):
    monkeypatch.setattr(links, "LINES_LOGGED", 2)
    caplog.set_level(logging.DEBUG, "vrt_host.links.serial")
    with Board(path) as board:
        async with plugged(path) as (server, _):
            await board.open()
            _, receiver = await server.link()
            board.write(b"heap \x1b[31m23000\r\n\r\nline 2\r\nline 3\r\n")
            board.say(TEXT, b"end")
            await receiver.count(1)
            lines = [line for line in caplog.messages if "heap" in line or "line" in line]
            assert lines == [f"{path}: heap \\x1b[31m23000", f"{path}: line 2"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (serial.SerialException(errno.EACCES, "could not open port"), "dialout"),
        (serial.SerialException(errno.EBUSY, "could not open port"), "in use"),
        (serial.SerialException("Could not exclusively lock port x: [Errno 11]"), "in use"),
        (serial.SerialException("Could not configure port: (25, '')"), "no serial port"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (ValueError("invalid URL"), "invalid URL"),
    ],
)
async def test_port_that_cannot_be_used_is_told_at_the_start(path, monkeypatch, error, words):
    async def fail(*_, **__):
        raise error

    monkeypatch.setattr(links, "create_serial_connection", fail)
    with pytest.raises(UsageError) as told:
        await SerialPort(str(path), print, print, max_message=1).open()
    assert words in str(told.value)
    assert str(path) in str(told.value)
    assert "\n" not in str(told.value)


async def test_port_that_is_none_and_a_port_in_use_are_told():
    with pytest.raises(UsageError, match="no serial port"):
        await SerialPort(os.devnull, print, print, max_message=1).open()
    master, slave = pty.openpty()
    held = serial.Serial(os.ttyname(slave), exclusive=True)
    try:
        with pytest.raises(UsageError, match="in use"):
            await SerialPort(os.ttyname(slave), print, print, max_message=1).open()
    finally:
        held.close()
        os.close(master)
        os.close(slave)


async def test_port_in_use_later_is_told_once(path, caplog):
    caplog.set_level(logging.INFO, "vrt_host.links.serial")
    async with plugged(path):
        path.symlink_to(os.devnull)
        async with asyncio.timeout(DEADLINE_S):
            while len(caplog.messages) < 2:  # noqa: ASYNC110  (a log wakes nobody)
                await asyncio.sleep(0.01)
        path.unlink()
        with Board(path) as board:
            await board.open()
    told = [line for line in caplog.messages if "no serial port" in line]
    assert len(told) == 1


async def test_server_serves_a_board_on_a_port(path):
    stop = asyncio.Event()
    ready = asyncio.get_running_loop().create_future()
    config = ServerConfig(port=0, serial=(str(path),))
    serving = asyncio.create_task(
        serve(config, EchoAgent, limits=Limits(message_bytes=600), ready=ready.set_result, stop=stop)
    )
    with Board(path) as board:
        await ready
        await board.open()
        board.text("hello")
        first = await board.message("ready")
        board.text("text", seq=1, text="x" * 700)
        assert (await board.message("error"))["code"] == "TOO_LARGE"
        board.write(encode(AUDIO, 9, b"a control frame was lost before this"))
        await board.next(CLOSE)
        await board.open()
        board.text("hello", sessionId=first["sessionId"], resumeFrom=0)
        assert (await board.message("ready"))["resumedFrom"] == 1
        board.say(TEXT, json.dumps({"v": 1, "seq": 2, "type": "text", "text": "x" * 2000}).encode())
        assert (await board.next(CLOSE))[:2] == b"\x03\xf1"
        await board.open()
        board.text("hello", sessionId=first["sessionId"], resumeFrom=0)
        assert (await board.message("ready"))["resumedFrom"] == 1
        stop.set()
        assert (await board.next(CLOSE))[:2] == b"\x03\xe9"
        await serving
