"""The two terminals of a simulated board's serial port."""

import asyncio
import os
import termios

import pytest
from host_client import DEADLINE_S
from vrt_host.errors import UsageError
from vrt_host.protocol.framing import PING, encode
from vrt_host.sim.cable import Cable


@pytest.fixture
async def cable(tmp_path):
    made = Cable(tmp_path / "port", printed := [].append)
    made.heard = printed.__self__
    yield made
    made.close()
    assert not made.path.exists()


async def until(holds):
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110  (a terminal tells nobody here)
            await asyncio.sleep(0.01)


def opened(cable):
    fd = os.open(cable.path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    made = termios.tcgetattr(fd)
    made[0] = made[1] = made[3] = 0
    termios.tcsetattr(fd, termios.TCSANOW, made)
    return fd


def taken(fd):
    try:
        return os.read(fd, 65536)
    except BlockingIOError:
        return b""


async def test_bytes_of_all_values_pass_as_they_are(cable):
    fd = opened(cable)
    await until(lambda: cable.attached)
    os.write(fd, bytes(range(256)))
    got = bytearray()
    await until(lambda: got.extend(os.read(cable.slave, 999)) or len(got) == 256)
    assert got == bytes(range(256)), "a read that finds nothing returns"
    os.write(cable.slave, bytes(range(256)))
    got.clear()
    await until(lambda: got.extend(taken(fd)) or len(got) == 256)
    assert got == bytes(range(256))
    os.close(fd)


async def test_what_nobody_reads_is_lost_and_the_next_one_has_the_port(cable):
    os.write(cable.slave, b"to nobody\n")
    await until(lambda: cable.heard == [b"to nobody\n"])
    for _ in range(3):
        fd = opened(cable)
        await until(lambda: cable.attached)
        os.write(cable.slave, b"x")
        got = bytearray()
        await until(lambda fd=fd, got=got: got.extend(taken(fd)) or got)
        assert got == b"x"
        os.close(fd)
        await until(lambda: not cable.attached)


async def test_what_is_printed_is_told_without_the_frames(cable):
    os.write(cable.slave, b"line 1\n" + encode(PING, 0, b"\x07") + b"line 2\n>>> ")
    await until(lambda: len(cable.heard) == 2)
    assert cable.heard == [b"line 1\n", b"line 2\n"]
    assert cable.prompt == "friendly"
    os.write(cable.slave, b"\r\nraw REPL; CTRL-B to exit\r\n>")
    await until(lambda: cable.prompt == "raw")
    cable.ended()
    assert cable.prompt == ""
    assert b"".join(cable.heard).endswith(b"CTRL-B to exit\r\n>")


async def test_line_may_be_spoiled(cable):
    fd = opened(cable)
    await until(lambda: cable.attached)
    cable.spoil = lambda way, data: way.encode() + data.upper()
    os.write(fd, b"a")
    got = bytearray()
    await until(lambda: got.extend(os.read(cable.slave, 99)) or got)
    assert got == b"downA"
    os.write(cable.slave, b"b")
    got.clear()
    await until(lambda: got.extend(taken(fd)) or len(got) >= 3)
    assert got == b"upB"
    os.close(fd)


async def test_a_flood_to_a_board_that_does_not_read_is_bounded(cable):
    for _ in range(100):
        cable.type(bytes(10_000))
    await asyncio.sleep(0)
    assert len(cable._board._waiting) <= 64 * 1024


async def test_place_of_the_port_must_be_free(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="name a new file"):
        Cable(tmp_path / "file", print)
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "old").symlink_to("/nowhere")
    cable = Cable(tmp_path / "old", print)
    assert os.readlink(tmp_path / "old") == cable.device
    cable.close()
