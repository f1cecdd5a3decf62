"""agents/transcode.py: what is agreed on, and the conversion where agent and client differ; through the real server."""

import asyncio
import importlib
import itertools

import numpy as np
import pytest
from host_client import DEADLINE_S, hosting
from vrt_host.agents.base import (
    PCM16_24K,
    PCMU,
    Abilities,
    Agent,
    Audio,
    AudioBegin,
    AudioEnd,
    Format,
    TurnBegin,
    TurnEnd,
)
from vrt_host.agents.echo import EchoAgent
from vrt_host.agents.transcode import Way, negotiate, to_json
from vrt_host.protocol import opus as packets
from vrt_host.speech import opus
from vrt_host.speech.codec import codec
from vrt_host.speech.convert import Converter

OPUS = Format("opus", 48_000)
PCM16_16K = Format("pcm16", 16_000)
FORMATS = (PCMU, PCM16_24K, PCM16_16K, Format("pcm16", 22_050), OPUS)


@pytest.fixture(name="libopus", scope="module")
def _libopus():
    pytest.importorskip("opuslib_next", reason="the extra `opus` is not installed")


def noise(rate, seconds=1.0):
    """Noise of speech's band."""
    spectrum = np.fft.rfft(np.random.default_rng(3).standard_normal(int(rate * seconds)))
    hertz = np.fft.rfftfreq(int(rate * seconds), 1 / rate)
    spectrum[(hertz < 200) | (hertz > 3000)] = 0
    shaped = np.fft.irfft(spectrum)
    return (0.3 * shaped / np.abs(shaped).max()).astype(np.float32)


def written(format_, samples):
    """Payloads of 20 ms."""
    if format_ == OPUS:
        return opus.Encoder(48_000).encode(samples)
    octets = codec(format_.encoding).encode(samples)
    size = format_.bytes_per_second // 50
    return [octets[start : start + size] for start in range(0, len(octets), size)]


def read(format_, payloads):
    """The samples."""
    decoder = opus.Decoder(48_000) if format_ == OPUS else codec(format_.encoding)
    return np.concatenate([decoder.decode(payload) for payload in payloads])


def lag_ms(sent, sent_rate, got, got_rate):
    """How much later sound is in `got`; both are brought to 8 kHz of the envelope's detail."""
    grid = np.arange(200, 800, 0.25)
    at = np.interp(grid, np.arange(len(sent)) * 1000 / sent_rate, sent)
    lags = np.arange(-20, 30, 0.25)
    scores = [at @ np.interp(grid + lag, np.arange(len(got)) * 1000 / got_rate, got) for lag in lags]
    return float(lags[int(np.argmax(scores))])


# --- what is agreed on


@pytest.mark.parametrize(
    ("asked", "able", "client", "agent"),
    [
        # The agent takes it: unchanged.
        ({"encoding": "pcmu"}, (PCM16_24K, PCMU), PCMU, PCMU),
        ({"encoding": "pcmu", "sampleRate": 8000}, (PCM16_24K, PCMU), PCMU, PCMU),
        ({"encoding": "pcm16"}, (PCMU, PCM16_24K), PCM16_24K, PCM16_24K),
        ({"encoding": "pcm16", "sampleRate": 16000}, (PCM16_16K, PCM16_24K), PCM16_16K, PCM16_16K),
        ({"encoding": "opus"}, (PCMU, OPUS), OPUS, OPUS),
        ({"encoding": "opus", "sampleRate": 16000}, (PCMU, OPUS), OPUS, OPUS),
        # It does not: pcm16 at 24 kHz, unchanged if it takes that.
        ({"encoding": "pcmu", "sampleRate": 16000}, (PCMU, PCM16_24K), PCM16_24K, PCM16_24K),
        ({"encoding": "opus"}, (PCMU, PCM16_24K), PCM16_24K, PCM16_24K),
        ({"encoding": "pcm16", "sampleRate": 11025}, (PCMU, PCM16_24K), PCM16_24K, PCM16_24K),
        ({"encoding": "pcm16", "sampleRate": 16000}, (OPUS,), PCM16_24K, OPUS),
        ({"encoding": "pcm16"}, (OPUS, PCM16_16K), PCM16_24K, PCM16_16K),
        (None, (PCMU, PCM16_24K), PCM16_24K, PCM16_24K),
        (None, (PCMU,), PCM16_24K, PCMU),
        (None, (OPUS,), PCM16_24K, OPUS),
        # A small board's heap has room for nothing else.
        ({"encoding": "pcmu"}, (OPUS,), PCMU, OPUS),
        ({"encoding": "pcmu"}, (OPUS, PCM16_24K), PCMU, PCM16_24K),
        ({"encoding": "pcmu"}, (PCM16_16K,), PCMU, PCM16_16K),
    ],
)
def test_format_is_the_client_s_if_the_agent_takes_it(asked, able, client, agent):
    hello = {} if asked is None else {"input": asked, "output": asked}
    assert negotiate(hello, Abilities(inputs=able, outputs=able)) == (Way(client, agent),) * 2


def test_output_of_an_agent_with_one_format_for_both_is_converted():
    hello = {"input": {"encoding": "opus"}, "output": {"encoding": "pcmu"}}
    echo = EchoAgent.abilities
    assert negotiate(hello, echo) == (Way(OPUS, OPUS), Way(PCMU, OPUS))
    assert negotiate({"input": {"encoding": "pcmu"}}, echo) == (Way(PCMU, PCMU), Way(PCM16_24K, PCMU))


# --- conversion


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(FORMATS, 2)))
def test_sound_keeps_its_length_place_and_energy_in_every_pair_of_formats(libopus, source, target):
    sent = noise(source.sample_rate)
    converter = Converter((source.encoding, source.sample_rate), (target.encoding, target.sample_rate))
    payloads = [part for payload in written(source, sent) for part in converter.feed(payload)]
    payloads += converter.end()
    assert all(payloads)
    got = read(target, payloads)
    rate = target.sample_rate
    slack = 0.020 if target == OPUS else 0.001  # what does not fill a packet waits
    assert rate * (1 - slack) - 2 <= len(got) <= rate + 2
    least, most = (
        (0.5, 14.0) if OPUS in (source, target) else (-0.5, 0.5)
    )  # look-ahead of 6.5 ms, twice in a test
    assert least <= lag_ms(sent, source.sample_rate, got, rate) <= most
    assert (got**2).mean() == pytest.approx((sent**2).mean(), rel=0.3)
    assert converter.faults == 0


@pytest.mark.parametrize("target", FORMATS)
def test_conversion_gives_the_same_however_the_payloads_are_cut(libopus, target):
    octets = b"".join(written(PCM16_24K, noise(24_000, 0.4)))

    def convert(sizes):
        converter, at, parts = Converter(("pcm16", 24_000), (target.encoding, target.sample_rate)), 0, []
        for size in sizes:
            parts += converter.feed(octets[at : at + size])
            at += size
        return read(target, parts + converter.end())

    whole = convert([len(octets)])
    cut = convert([1, 959, 3, 0, 2000, 7777, len(octets)])
    assert np.allclose(whole, cut, atol=0.02)  # a mu-law step of a loud sample is 0.016


def test_stream_that_ended_begins_anew():
    converter = Converter(("pcm16", 24_000), ("pcm16", 16_000))
    first = converter.feed(b"\1\2" * 1001) + converter.end()
    assert converter.feed(b"\1\2" * 1001) + converter.end() == first


# --- through the server


class Studio(Agent):
    """Takes and gives what its `abilities` say. A text names what of `plays` to play, one item each; `heard` is its input."""

    name = "studio"

    def __init__(self, formats, plays=None):
        self.abilities = Abilities(inputs=formats, outputs=formats)
        self.plays = plays or {}
        self.heard = []
        self.arrived = asyncio.Event()
        self.interruptions = []

    async def start(self, session, port):
        self.port = port
        self.session = session

    def user_text(self, text):
        turn = f"turn-{len(self.interruptions)}-{text}"
        self.port.emit(TurnBegin(turn))
        for name in text.split():
            self.port.emit(AudioBegin(turn, name))
            for payload in self.plays[name]:
                self.port.emit(Audio(turn, name, payload, whole=True))
        if "open" not in text:
            self.port.emit(AudioEnd(turn, name))
            self.port.emit(TurnEnd(turn))

    def user_audio(self, payload):
        self.heard.append(payload)
        self.arrived.set()

    async def until(self, count):
        """Wait for so many payloads of input."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.heard) < count:
                self.arrived.clear()
                await self.arrived.wait()

    def interrupted(self, turn, heard):
        self.interruptions.append(heard)

    def tool_result(self, turn, result):
        pass


async def played(client, count=None):
    """Payloads of the turn, by item, and how many items there were."""
    items = []
    while True:
        message = await client.next()
        if isinstance(message, bytes):
            items[-1].append(message)
            if count is not None and sum(map(len, items)) == count:
                return items
        elif message["type"] == "audio.start":
            items.append([])
        elif message["type"] == "turn.state" and message["state"] == "idle":
            return items


def fits(format_):
    return {"input": to_json(format_), "output": to_json(format_), "limits": {"bufferMs": 10_000}}


@pytest.mark.parametrize("client_format", [PCMU, PCM16_24K, None])
async def test_agent_with_opus_alone_serves_every_client(libopus, client_format):
    sound = noise(48_000, 0.6)
    studio = Studio((OPUS,), {"a": written(OPUS, sound), "b": written(OPUS, -sound)})
    given = client_format or PCM16_24K
    async with hosting(lambda: studio) as host, host.client() as client:
        wishes = {"limits": {"bufferMs": 10_000}} if client_format is None else fits(client_format)
        ready = await client.hello(**wishes)
        assert ready["input"] == ready["output"] == to_json(given)
        assert (studio.session.input, studio.session.output) == (OPUS, OPUS)
        await client.send("text", text="a b")
        items = await played(client)
        assert len(items) == 2
        for payloads, sent in zip(items, (sound, -sound), strict=True):
            got = read(given, payloads)
            assert len(got) == 0.6 * given.sample_rate
            assert (got**2).mean() == pytest.approx((sent**2).mean(), rel=0.3)
            assert {len(payload) for payload in payloads} == {
                given.bytes_per_second // 50
            }  # cut and paced as usual
        spoken = noise(given.sample_rate, 0.6)
        for number, payload in enumerate(written(given, spoken)):
            await client.audio(payload, number)
        await studio.until(30)
    assert all(packets.seconds(packet) == 0.020 for packet in studio.heard)
    assert (read(OPUS, studio.heard) ** 2).mean() == pytest.approx((spoken**2).mean(), rel=0.3)


@pytest.mark.parametrize("formats", [(OPUS,), (PCMU, OPUS)])
async def test_client_that_prefers_opus_gets_the_agent_s_packets_untouched(monkeypatch, formats):
    monkeypatch.setattr(opus, "load", lambda: pytest.fail("nothing is decoded"))
    sent = [
        bytes((toc << 3, 7)) + bytes(range(toc)) for toc in (1, 3, 13, 19, 31)
    ]  # also nonsense stays as it is
    studio = Studio(formats, {"a": sent})
    async with hosting(lambda: studio) as host, host.client() as client:
        ready = await client.hello(**fits(OPUS))
        assert ready["input"] == ready["output"] == {"encoding": "opus", "sampleRate": 48000}
        await client.send("text", text="a")
        assert await played(client) == [sent]
        for number, packet in enumerate(sent):
            await client.audio(packet, number)
        await studio.until(len(sent))
    assert studio.heard == sent


async def test_client_that_prefers_opus_gets_none_from_an_agent_that_has_none():
    async with hosting(lambda: Studio((PCM16_16K,))) as host, host.client() as client:
        ready = await client.hello(**fits(OPUS))
    assert ready["input"] == ready["output"] == {"encoding": "pcm16", "sampleRate": 24000}


async def test_rates_are_converted_both_ways():
    sound = noise(16_000, 0.5)
    studio = Studio((PCM16_16K,), {"a": written(PCM16_16K, sound), "b": written(PCM16_16K, sound[:1600])})
    async with hosting(lambda: studio) as host, host.client() as client:
        await client.hello(**fits(PCMU))
        await client.send("text", text="a b")  # the agent does not end the first
        assert [len(read(PCMU, payloads)) for payloads in await played(client)] == [4000, 800]
        spoken = noise(8_000, 0.5)
        for number, payload in enumerate(written(PCMU, spoken)):
            await client.audio(payload, number)
        await studio.until(25)
    got = read(PCM16_16K, studio.heard)
    assert 7900 <= len(got) <= 8000
    assert (got**2).mean() == pytest.approx((spoken**2).mean(), rel=0.1)


async def test_broken_packets_are_silence_and_counted(libopus, caplog):
    good = written(OPUS, noise(48_000, 0.1))
    broken = [b"", b"\x03", bytes((1 << 3 | 1, 0))]  # the last: two frames of 20 ms
    studio = Studio((OPUS,), {"a": [*good, *broken, *good]})
    async with hosting(lambda: studio) as host:
        async with host.client() as client:
            await client.hello(**fits(PCMU))
            await client.send("text", text="a")
            (payloads,) = await played(client)
        got = read(PCMU, payloads)
        assert len(got) == 8 * (100 + 20 + 20 + 40 + 100)
        assert not got[800:1440].any()
        assert (got[1600:] ** 2).mean() > 1e-3
        assert sum(event.get("code") == "BAD_PACKET" for event in host.events) == 3
    assert "3 audio packets could not be decoded" in caplog.text


async def test_broken_packets_that_come_back_from_the_client_are_silence_too(libopus):
    good = written(OPUS, noise(48_000, 0.1))
    hello = {"input": to_json(OPUS), "output": to_json(PCMU), "limits": {"bufferMs": 10_000}}
    async with hosting(lambda: EchoAgent(pause=0.05)) as host, host.client() as client:
        await client.hello(**hello)
        for number, packet in enumerate([*good, b"\x03", *good]):
            await client.audio(packet, number)
        (payloads,) = await played(client)
        await client.send("text", text="still there")
        await client.until("text")
    assert len(read(PCMU, payloads)) == 8 * 220


async def test_item_that_is_interrupted_leaves_nothing_behind(libopus):
    sound = noise(48_000, 1.0)
    studio = Studio((OPUS,), {"open": written(OPUS, sound), "b": written(OPUS, noise(48_000, 0.1))})
    async with hosting(lambda: studio) as host, host.client() as client:
        await client.hello(**{**fits(PCMU), "limits": {"bufferMs": 100}})
        await client.send("text", text="open")
        await client.until("audio.start")
        await client.audio_until(2)
        await client.send("text", text="b")
        await client.until("interrupted")
        await client.until("audio.start")
        got = read(PCMU, (await played_rest(client))[0])
    assert len(got) == 800
    assert (got**2).mean() > 1e-3
    assert [one.item for one in studio.interruptions[0]] == ["open"]
    assert studio.interruptions[0][0].played_ms <= 1000


async def played_rest(client):
    """Payloads of the item that has begun."""
    payloads = []
    while True:
        message = await client.next()
        if isinstance(message, bytes):
            payloads.append(message)
        elif message["type"] == "turn.state" and message["state"] == "idle":
            return [payloads]


@pytest.mark.parametrize("direction", ["input", "output"])
async def test_agent_that_needs_libopus_is_refused_by_name_without_it(monkeypatch, direction):
    load = importlib.import_module

    def fail(name):
        if name == "opuslib_next":
            raise ModuleNotFoundError(name)
        return load(name)

    monkeypatch.setattr(importlib, "import_module", fail)
    studio = Studio((PCM16_24K,))
    studio.abilities = Abilities(**{f"{direction}s": (OPUS,)})
    async with hosting(lambda: studio) as host, host.client() as client:
        await client.send("hello")
        error = await client.until("error")
        assert await client.closed() == 1011
    assert error["code"] == "START_FAILED"
    assert "studio" in error["message"]
    assert 'pip install "vrt-edge[opus]"' in error["message"]
    assert "\n" not in error["message"]


async def test_session_without_a_conversion_has_none(monkeypatch):
    monkeypatch.setattr("vrt_host.runner.Transcoder", lambda *_: pytest.fail("nothing to convert"))
    studio = Studio((PCMU, PCM16_24K))
    async with hosting(lambda: studio) as host, host.client() as client:
        await client.hello(**fits(PCMU))
        await client.audio(b"\x55" * 33)
        await studio.until(1)
    assert studio.heard == [b"\x55" * 33]
