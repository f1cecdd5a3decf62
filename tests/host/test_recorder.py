import asyncio
import json

import pytest
from vrt_host.harness.recorder import NotSeen, Recorder, load


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_recorder_stamps_with_its_clock_or_the_time_given():
    clock = Clock()
    recorder = Recorder(clock=clock)
    clock.now = 101.5
    assert recorder.add("host", "ready", session="s")["t"] == 1.5
    assert recorder.add("hardware", "led", at=100.25, state="idle") == {
        "t": 0.25,
        "source": "hardware",
        "event": "led",
        "state": "idle",
    }
    assert recorder.now == 1.5


def test_recorder_keeps_its_own_members_when_fields_share_their_names():
    recorder = Recorder(clock=Clock())
    entry = recorder.add("device", "log", t=7, source="x")
    assert (entry["t"], entry["source"]) == (0.0, "device")


def test_recorder_writes_each_event_at_once_and_sorts_on_close(tmp_path):
    clock = Clock()
    path = tmp_path / "deep" / "events.jsonl"
    recorder = Recorder(path, clock=clock)
    clock.now = 102.0
    recorder.add("host", "late", text="hürra", odd={1}.__class__)
    recorder.add("device", "early", at=101.0)
    assert [json.loads(line)["event"] for line in path.read_text("utf-8").splitlines()] == ["late", "early"]
    recorder.close()
    recorder.close()
    assert [event["event"] for event in load(path)] == ["early", "late"]
    assert load(path)[1]["text"] == "hürra"
    assert recorder.events == [{**event, "odd": set} if "odd" in event else event for event in load(path)]


async def test_recorder_waits_for_an_event_to_come_or_finds_it_there():
    recorder = Recorder()
    waiting = asyncio.create_task(recorder.wait_for(lambda event: event["event"] == "b", within=5))
    await asyncio.sleep(0)
    recorder.add("host", "a")
    await asyncio.sleep(0)
    assert not waiting.done()
    recorder.add("host", "b", number=1)
    assert (await waiting)["number"] == 1
    assert (await recorder.wait_for(lambda event: event["event"] == "a", within=0))["event"] == "a"


async def test_recorder_ignores_what_came_before_the_mark():
    recorder = Recorder()
    recorder.add("host", "a", number=1)
    place = recorder.mark()
    recorder.add("host", "a", number=2)
    assert (await recorder.wait_for(lambda event: event["event"] == "a", within=1, after=place))[
        "number"
    ] == 2


async def test_recorder_says_what_it_saw_instead():
    recorder = Recorder()
    recorder.add("host", "before")
    place = recorder.mark()
    recorder.add("host", "other")
    with pytest.raises(NotSeen, match=r"within 0\.01 s") as caught:
        await recorder.wait_for(lambda event: False, within=0.01, after=place)
    assert [event["event"] for event in caught.value.since] == ["other"]


async def test_recorder_serves_several_waiters():
    recorder = Recorder()
    wanted = [
        asyncio.create_task(recorder.wait_for(lambda event: event["event"] == "x", within=5))
        for _ in range(3)
    ]
    await asyncio.sleep(0)
    recorder.add("host", "y")
    await asyncio.sleep(0)
    recorder.add("host", "x")
    assert {event["event"] for event in await asyncio.gather(*wanted)} == {"x"}


def test_recorder_tells_its_listeners():
    recorder, heard = Recorder(), []
    recorder.add("host", "unheard")
    recorder.listen(heard.append)
    recorder.add("host", "heard")
    assert [event["event"] for event in heard] == ["heard"]
