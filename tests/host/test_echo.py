"""The echo agent, through a real server."""

import asyncio

import pytest
from host_client import hosting
from vrt_host.agents.echo import EchoAgent

PCMU = {"encoding": "pcmu"}
FORMATS = [
    ({"encoding": "pcmu"}, {"encoding": "pcmu", "sampleRate": 8000}),
    ({"encoding": "pcm16"}, {"encoding": "pcm16", "sampleRate": 24000}),
    ({"encoding": "pcm16", "sampleRate": 16000}, {"encoding": "pcm16", "sampleRate": 16000}),
    ({"encoding": "opus"}, {"encoding": "opus", "sampleRate": 48000}),
    ({"encoding": "pcm16", "sampleRate": 11025}, {"encoding": "pcm16", "sampleRate": 24000}),
    (None, {"encoding": "pcm16", "sampleRate": 24000}),
]


@pytest.mark.parametrize("text", ["hello", "", "é \U0001f600", "x" * 5000])
async def test_text_comes_back_in_one_turn(text):
    async with hosting() as host, host.client() as client:
        await client.hello()
        await client.send("text", text=text)
        first = await client.until("turn.state", state="thinking")
        answer = await client.until("text")
        last = await client.until("turn.state", state="idle")
    assert answer["text"] == f"Echo: {text}"
    assert answer["final"] is True
    assert first["turnId"] == answer["turnId"] == last["turnId"]


@pytest.mark.parametrize(("asked", "given"), FORMATS)
async def test_formats_are_those_that_the_client_prefers_if_it_can(asked, given):
    async with hosting() as host, host.client() as client:
        wishes = {} if asked is None else {"input": asked, "output": asked}
        ready = await client.hello(**wishes)
    assert ready["input"] == ready["output"] == given


async def test_frames_come_back_unchanged_as_one_item():
    payloads = [bytes([number]) * (100 + number) for number in range(20)]
    async with hosting() as host, host.client() as client:
        await client.hello(input=PCMU, output=PCMU)
        for number, payload in enumerate(payloads):
            await client.audio(payload, number)
        await client.until("audio.start")
        assert await client.audio_until(20) == payloads
    assert [event["event"] for event in host.events].count("audio.out") == 20


async def test_empty_frame_is_ignored():
    async with hosting() as host, host.client() as client:
        await client.hello(input=PCMU, output=PCMU)
        await client.audio(b"")
        await client.audio(b"x")
        assert await client.audio_until(1) == [b"x"]


async def test_turn_ends_after_a_pause_and_the_next_frame_begins_another():
    async with hosting(lambda: EchoAgent(pause=0.05)) as host, host.client() as client:
        await client.hello(input=PCMU, output=PCMU)
        epochs = []
        for _ in range(2):
            await client.audio(b"x" * 160)
            epochs.append((await client.until("audio.start"))["epoch"])
            await client.until("turn.state", state="idle")
    assert epochs == [1, 2]


async def test_text_interrupts_the_audio_turn_and_audio_goes_on_in_a_new_one():
    async with hosting() as host, host.client() as client:
        await client.hello(input=PCMU, output=PCMU)
        await client.audio(b"x" * 160)
        await client.until("audio.start")
        await client.send("text", text="hi")
        assert (await client.until("interrupted"))["epoch"] == 1
        assert (await client.until("text"))["text"] == "Echo: hi"
        await client.audio(b"y" * 160)
        start = await client.until("audio.start")
        assert start["epoch"] == 4
        assert await client.next() == b"y" * 160


async def test_timer_ends_with_the_agent():
    agents = []

    def make():
        agents.append(EchoAgent(pause=0.01))
        return agents[-1]

    async with hosting(make) as host, host.client() as client:
        await client.hello(input=PCMU, output=PCMU)
        await client.audio(b"x" * 160)
        await client.until("audio.start")
    assert agents[0]._timer is None
    assert not asyncio.all_tasks() - {asyncio.current_task()}
