"""The hardware's side of the simulator's socket, spoken to as a board would, without a MicroPython."""

import asyncio
import contextlib
import json
import struct
import time

import numpy as np
import pytest
from vrt_host.sim.converters import Echo
from vrt_host.sim.hardware import Hardware

BYTES_10_MS = 480
DEADLINE_S = 20


class Board:
    """The board's end of the socket."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def send(self, kind, argument=0, payload=b"", size=None):
        self.writer.write(
            struct.pack("<cBH", kind, argument, len(payload) if size is None else size) + payload
        )

    def open(self, tx, **changes):
        fields = {"rate": 24_000, "ibuf": 2048} if tx else {"rate": 16_000, "ibuf": 8192}
        self.send(b"O", tx, json.dumps({**fields, "generation": 7, **changes}).encode())

    def event(self, what, **fields):
        self.send(b"E", 0, json.dumps({"event": what, **fields}).encode())

    async def next(self):
        async with asyncio.timeout(DEADLINE_S):
            kind, argument, size = struct.unpack("<cBH", await self.reader.readexactly(4))
            return kind, argument, await self.reader.readexactly(size)

    async def ended(self):
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await self.reader.read() == b""
        finally:
            self.writer.close()


async def dial(hardware, nonce=None):
    host, port, own = hardware.address.split(":")
    board = Board(*await asyncio.open_connection(host, int(port)))
    board.send(b"H", 0, (nonce or own).encode())
    return board


async def booted(hardware, button=0):
    """A board that the hardware takes for one, switched off again."""
    board = await dial(hardware)
    taken = await board.next() == (b"b", button, b"")
    board.writer.close()
    return taken


@contextlib.asynccontextmanager
async def powered(**options):
    """A hardware with a board, and the list of events."""
    async with Hardware(**options) as hardware:
        events = []
        hardware.listen(events.append)
        board = await dial(hardware)
        assert await board.next() == (b"b", 0, b"")
        yield hardware, board, events
        board.writer.close()


async def seen(events, name, count=1):
    """The count-th event of that name, once it is there."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = [event for event in events if event["event"] == name]
            if len(found) >= count:
                return found[count - 1]
            await asyncio.sleep(0.002)


async def test_hardware_takes_one_board_that_knows_the_nonce():
    async with powered() as (hardware, board, events):
        assert await (await dial(hardware, "0" * 16)).ended()
        assert await (await dial(hardware)).ended()
        board.event("hello")
        assert (await seen(events, "hello"))["source"] == "device"
        board.writer.close()
        assert await seen(events, "board", 2) == {**events[-1], "on": False}
        assert await booted(hardware)


async def test_hardware_turns_away_what_is_no_board():
    async with Hardware() as hardware:
        host, port, _ = hardware.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(DEADLINE_S):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()


async def test_hardware_takes_a_write_when_its_last_sample_is_in_the_dma():
    async with powered() as (hardware, board, events):
        board.open(1)
        assert (await seen(events, "i2s"))["depth_ms"] == 42.7
        begin = time.monotonic()
        sound = np.arange(1, 24_001, dtype=np.int16)
        for k in range(100):
            board.send(b"W", 0, sound[240 * k : 240 * (k + 1)].tobytes())
            assert await board.next() == (b"w", 7, b"")
        # 1 s of sound needs 1 s, less the DMA's depth, whatever else this machine does.
        assert time.monotonic() - begin > 0.95
        await seen(events, "sound", 2)
        hardware.settle()
        played = hardware.speaker.samples
        assert played[played != 0].tolist() == sound.tolist()
        on, off = [event for event in events if event["event"] == "sound"]
        # An hour or a second: sample n is played n / 24000 s after the first, unless it was not there in time.
        gaps = int(np.flatnonzero(played)[-1] - np.flatnonzero(played)[0]) + 1 - len(sound)
        assert off["t"] - on["t"] == pytest.approx((len(sound) + gaps) / 24_000)


async def test_hardware_gives_what_the_microphone_hears_at_its_time():
    async with powered() as (hardware, board, events):
        board.open(0)
        await seen(events, "i2s")
        start, end = hardware.say(np.arange(1, 3201, dtype=np.int16))
        heard = b""
        while len(heard) < 16_000:
            board.send(b"R", 0, size=640)
            kind, generation, payload = await board.next()
            assert (kind, generation, len(payload)) == (b"r", 7, 640)
            heard += payload
        samples = np.frombuffer(heard, np.int16)
        assert samples[samples != 0].tolist() == list(range(1, 3201))
        assert hardware.adc.lost_samples == 0
        # The recording says when.
        assert hardware.microphone.between(start, end).tolist() == list(range(1, 3201))


async def test_hardware_microphone_hears_what_the_speaker_plays():
    async with powered(echo=Echo(loss_db=6, delay_ms=4)) as (hardware, board, events):
        board.open(1)
        board.open(0)
        await seen(events, "i2s", 2)
        tone = (8_000 * np.sin(2 * np.pi * 500 * np.arange(4_800) / 24_000)).astype(np.int16)
        for start in range(0, len(tone), 240):
            board.send(b"W", 0, tone[start : start + 240].tobytes())
        heard = b""
        while len(heard) < 32_000:
            board.send(b"R", 0, size=640)
            kind = b""
            while kind != b"r":
                kind, _, payload = await board.next()
            heard += payload
        started = next(event["t"] for event in events if event["event"] == "sound")
        picked = hardware.microphone.between(started + 0.01, started + 0.15)
        assert 3_900 < picked.max() < 4_100
        assert not hardware.microphone.between(0, started + 0.0025).any()


async def test_hardware_reports_led_outputs_and_the_firmware():
    async with powered() as (hardware, board, events):
        board.event("led", state="listening")
        board.event("output", name="light", value=1)
        board.event("state", t=5, source="x", session="open")
        assert (await seen(events, "led"))["state"] == hardware.led == "listening"
        assert (await seen(events, "output"))["value"] == hardware.outputs["light"] == 1
        state = await seen(events, "state")
        assert (state["source"], state["session"]) == ("device", "open")
        assert 0 < state["t"] < hardware.now


async def test_hardware_button_is_told_once_for_each_change():
    async with powered() as (hardware, board, events):
        hardware.press()
        hardware.press()
        hardware.press(False)
        assert [await board.next(), await board.next()] == [(b"b", 1, b""), (b"b", 0, b"")]
        await hardware.hold(0.01)
        assert [event["down"] for event in events if event["event"] == "button"] == [True, False, True, False]
        hardware.press()
        board.writer.close()
        await seen(events, "board", 2)
        assert await booted(hardware, button=1)


@pytest.mark.parametrize(
    "bad",
    [
        (b"W", 0, b"ab"),
        (b"R", 0, b""),
        (b"?", 0, b""),
        (b"E", 0, b"{"),
        (b"E", 0, b"[]"),
        (b"E", 0, b"{}"),
        (b"E", 0, b'{"event": "output", "name": "x", "value": "y"}'),
        (b"O", 1, b'{"rate": 8000, "ibuf": 2048, "generation": 1}'),
        (b"O", 1, b'{"rate": 24000}'),
    ],
    ids=lambda bad: f"{bad[0].decode()}-{bad[2].decode()[:12]}",
)
async def test_hardware_drops_a_board_that_makes_no_sense_and_says_why(bad):
    async with powered() as (hardware, board, events):
        board.send(*bad)
        assert await board.ended()
        assert (await seen(events, "broken"))["reason"]
        assert await booted(hardware)


async def test_hardware_closed_i2s_answers_no_more():
    async with powered() as (hardware, board, events):
        board.open(1)
        board.send(b"W", 0, bytes(9600))  # more than the DMA holds
        board.send(b"X", 1)
        await seen(events, "i2s", 2)
        assert hardware.dac is None
        board.open(1, generation=8)
        board.send(b"W", 0, bytes(480))
        assert await board.next() == (b"w", 8, b"")


async def test_hardware_at_another_speed_keeps_its_own_time():
    async with powered(speed=20.0) as (hardware, board, _):
        board.open(1)
        begin = time.monotonic()
        for _ in range(200):
            board.send(b"W", 0, np.ones(240, np.int16).tobytes())
            await board.next()
        assert time.monotonic() - begin > (2.0 - 0.05) / 20  # 2 s of sound, less the DMA
        before = hardware.now
        hardware.settle()
        end = hardware.speaker.start + len(hardware.speaker.samples) / 24_000
        assert before < end < hardware.now + 0.011  # a block has begun that is not over
        before = time.monotonic()
        assert before - 1e-6 < hardware.monotonic(hardware.now) < time.monotonic() + 1e-6


async def test_hardware_silence_is_what_starvation_sounds_like():
    async with powered() as (hardware, board, events):
        board.open(1)
        board.send(b"W", 0, np.full(700, 1000, np.int16).tobytes())
        await seen(events, "sound", 2)
        hardware.settle()
        played = hardware.speaker.samples
        assert np.count_nonzero(played) == 700
        assert hardware.dac.starved == 1
