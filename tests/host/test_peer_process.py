"""What the tests of the adapters stand on: a peer's process, its plan, its ear."""

import asyncio
import json

import numpy as np
import pytest
from peers.plan import EnergyVad, checked, chunks, encoded, quiet, samples, tone
from peers.process import DEADLINE_S, PeerProcess


class Line:
    """A client of the example peer."""

    def __init__(self, reader, writer):
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, peer):
        return cls(*await asyncio.open_connection("127.0.0.1", peer.port))

    async def say(self, text):
        self._writer.write(text.encode() + b"\n")
        await self._writer.drain()

    async def next(self):
        async with asyncio.timeout(DEADLINE_S):
            return json.loads(await self._reader.readline())

    async def ended(self):
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self._reader.read() == b""
            except ConnectionError:
                return True
            finally:
                self._writer.close()


async def test_peer_plays_what_is_planned_reports_and_holds():
    async with PeerProcess("example", rate=16000) as peer:
        line = await Line.to(peer)
        await peer.respond([{"wait": "gate"}, {"say": "Yes.", "seconds": 0.25}], [{"call": "lock"}])
        await line.say("one")
        await peer.seen("waiting", name="gate")
        await peer.release("gate")
        assert await line.next() == ["Yes.", [1600, 1600, 800]]
        await line.say("two")
        assert await line.next() == {"call": "lock", "arguments": "{}", "id": None}
        await line.say("three")
        assert await line.next() == ["All right.", [1600, 1600]]
        assert [(await peer.seen("text"))["text"] for _ in range(3)] == ["one", "two", "three"]
        await peer.do("add", one=2, other=3)
        assert (await peer.seen("sum"))["value"] == 5
        with pytest.raises(AssertionError, match="unexpected keyword"):
            await peer.do("drop", now=True)

        await peer.refuse("key")
        assert await (await Line.to(peer)).ended()
        await peer.seen("refused", why="key")
        await peer.respond([{"text": "stale"}])
        await peer.release("gate")
        await peer.reset()
        assert await line.ended()
        assert peer.reports == []
        line = await Line.to(peer)
        await peer.respond([{"wait": "gate"}])
        await line.say("four")
        await peer.seen("waiting", name="gate")
        await peer.drop()
        assert await line.ended()


@pytest.mark.parametrize("said", ["wrong", "fault"])
async def test_peer_that_saw_or_made_a_fault_fails_the_test(said):
    with pytest.raises(AssertionError, match=r"a wrong line|RuntimeError"):  # noqa: PT012  (on leaving)
        async with PeerProcess("example") as peer:
            line = await Line.to(peer)
            await line.say(said)
            await peer.seen("invalid")
            await peer.drop()
            await line.ended()


def test_plan_refuses_parts_that_no_peer_knows():
    assert checked({"say": "x"}) == {"say": "x", "seconds": 0.2, "pace": 0, "deaf": 0}
    for part in ({}, {"say": "x", "text": "y"}, {"say": 1}, {"text": "x", "pace": 1}, {"fault": "fire"}):
        with pytest.raises(ValueError, match=r"part|unknown|fault"):
            checked(part)


@pytest.mark.parametrize("encoding", ["pcmu", "pcm16"])
def test_sound_is_coded_to_the_nearest_value(encoding):
    values = np.arange(-32768, 32768, 7)
    back = samples(encoded(values, encoding), encoding)
    assert np.all(
        np.abs(back - np.clip(values, -32124, 32124))
        <= (np.abs(values) / 32 + 4 if encoding == "pcmu" else 700)
    )
    if encoding == "pcm16":
        assert np.array_equal(back, values)
    assert quiet(0.001, "pcmu", 8000) == b"\xff" * 8


@pytest.mark.parametrize(("encoding", "rate"), [("pcmu", 8000), ("pcm16", 16000), ("pcm16", 24000)])
def test_vad_finds_where_speech_begins_and_ends_in_the_audios_own_time(encoding, rate):
    ear = EnergyVad(encoding, rate)
    audio = quiet(0.1, encoding, rate) + tone(0.3, encoding, rate) + quiet(0.39, encoding, rate)
    audio += tone(0.2, encoding, rate) + quiet(0.5, encoding, rate)
    found = []
    for start in range(0, len(audio), 333):
        found += ear.feed(audio[start : start + 333])
    assert found == [("start", 100), ("stop", 1400)]
    assert ear.now_ms == 1480
    assert not ear.speaking


async def test_chunks_without_end_let_the_loop_run():
    seen = 0
    async for chunk in chunks(checked({"say": "", "seconds": None}), "pcm16", 24000):
        assert len(chunk) == 4800
        seen += 1
        if seen == 100:
            break
