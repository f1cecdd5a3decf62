"""`vrt demo`, run once as a user runs it; its four scenes are checked again here, from the record it leaves."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from lettering import faults, texts
from vrt_host import cli
from vrt_host.agents import registry
from vrt_host.harness import scenes, sentences, story, timeline
from vrt_host.harness.recorder import load
from vrt_host.sim import wav
from vrt_host.speech.words import normalise

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-m", "vrt_host", "demo", "--out", str(out), "--heap", "128k"],
        capture_output=True,
        text=True,
        timeout=280,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    data = (out / "conversation.wav").read_bytes()
    events = load(out / "events.jsonl")
    return SimpleNamespace(
        out=out,
        said=done.stdout,
        events=events,
        summary=json.loads((out / "summary.json").read_text("utf-8")),
        rate=wav.decode(data)[1],
        sound=np.frombuffer(data[44:], "<i2").reshape(-1, 2),
        scenes=[event["t"] for event in events if event["event"] == "scene"] + [float("inf")],
    )


def pick(demo, scene, source, name, /, **fields):
    """The events of a scene (from 1; 0: of the whole run), in the order of time."""
    start, end = (demo.scenes[scene - 1], demo.scenes[scene]) if scene else (0, float("inf"))
    return [
        event
        for event in demo.events
        if start <= event["t"] < end
        and (event["source"], event["event"]) == (source, name)
        and all(event.get(key) == value for key, value in fields.items())
    ]


def one(demo, scene, source, name, /, **fields):
    found = pick(demo, scene, source, name, **fields)
    assert len(found) == 1, (name, fields, found)
    return found[0]


def loud(demo, side, start, end):
    """Seconds of the samples in a span that are audible."""
    first = max(0, int(start * demo.rate))
    part = demo.sound[first : int(end * demo.rate), side]
    return (first + np.flatnonzero(np.abs(part.astype(int)) > 30)) / demo.rate


def test_demo_shows_every_scene_and_ends_with_a_summary(demo):
    titles = [scene["title"] for scene in demo.summary["scenes"]]
    assert len(titles) == 4
    assert all(title in demo.said for title in titles)
    assert "PASSED" in demo.said.splitlines()[-1]
    assert demo.summary["ok"] is True
    assert all(scene["ok"] and scene["steps"] for scene in demo.summary["scenes"])
    assert not [event for event in demo.events if event["event"] == "step" and not event["ok"]]
    assert not pick(demo, 0, "device", "traceback")


def test_demo_draws_a_picture_on_which_no_two_texts_meet(demo):
    made = story.picture(demo.events, demo.events[-1]["t"])
    figure = timeline.compose(made).figure
    assert faults(figure) == []
    written = [text.replace("\n", " ") for text, _ in texts(figure)]
    told = [scene.title for scene in made.scenes] + [scene.note for scene in made.scenes]
    told += [mark.text for mark in made.marks] + [mark.text for zoom in made.zooms for mark in zoom.marks]
    told += [band.text for band in made.said] + ["REJECTED", "INTERRUPTED", "check_house()", "lost"]
    assert len(told) > 20
    assert [text for text in told if text not in written] == []
    begun = [band.text[:12] for band in made.spoken if band.end - band.start > 1]
    assert [text for text in begun if not any(line.startswith(text) for line in written)] == []


def test_demo_shows_as_heard_what_was_acted_on(demo):
    def words(text):
        return [word for word in normalise(text) if word not in ("the", "it", "that", "now", "please")]

    heard = pick(demo, 0, "device", "transcript", role="user", final=True)
    assert [words(event["text"]) for event in heard] == [words(text) for text in sentences.SENTENCES]


def test_demo_keeps_a_record_that_people_can_see_and_hear(demo):
    picture = (demo.out / "timeline.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert int.from_bytes(picture[16:20], "big") == 1800
    assert demo.rate == 24_000
    assert len(demo.sound) / demo.rate > demo.events[-1]["t"] - 1
    times = [event["t"] for event in demo.events]
    assert times == sorted(times)
    for said in pick(demo, 0, "demo", "says"):
        heard = loud(demo, 0, said["start"] - 0.5, said["end"] + 0.3)
        assert abs(heard[0] - said["speech_start"]) < 0.1
        assert abs(heard[-1] - said["speech_end"]) < 0.1


def test_demo_runs_on_a_heap_of_128_kib(demo):
    sizes = {event["heap_used"] + event["heap_free"] for event in pick(demo, 0, "device", "stats")}
    assert max(sizes) <= 128 * 1024


def test_demo_streams_at_real_time(demo):
    ready, last = one(demo, 0, "device", "ready", resumed=False), demo.events[-1]
    away = sum(demo.summary["resumed_ms"]) / 1000
    expected = 50 * (last["t"] - ready["t"] - away)
    assert 0.9 * expected < demo.summary["frames"]["up"] < 1.02 * expected
    assert demo.summary["losses"]["underruns"] == 0 or demo.summary["simulator_late"]["times"] > 0


def test_demo_keeps_no_secret_in_its_log(demo):
    text = (demo.out / "events.jsonl").read_text("utf-8")
    hello = next(
        event
        for event in pick(demo, 1, "host", "message.in", type="hello")
        or pick(demo, 0, "host", "message.in", type="hello")
    )
    assert "auth" not in hello["message"]
    ids = {event["message"]["sessionId"] for event in pick(demo, 0, "host", "message.out", type="ready")}
    assert all(len(one) < 12 for one in ids), ids
    assert '"token"' not in text


def test_demo_unlocks_only_when_the_button_was_held_after_the_question(demo):
    call = one(demo, 1, "device", "call", name="lock")
    assert call["arguments"] == {"door": "front", "state": "unlocked"}
    asked = one(demo, 1, "device", "confirm_asked", call=call["call"])
    down, up = (one(demo, 1, "hardware", "button", down=level) for level in (True, False))
    opened = one(demo, 1, "hardware", "output", name="front_lock", value=1)
    assert asked["t"] < down["t"]
    assert 1.0 <= opened["t"] - down["t"] <= up["t"] - down["t"] + 0.1
    assert one(demo, 1, "hardware", "led", state="confirm")["t"] < down["t"]
    assert one(demo, 1, "device", "result", call=call["call"])["ok"] is True
    answer = pick(demo, 1, "device", "transcript", role="agent")[-1]
    assert "unlocked" in answer["text"]
    assert len(loud(demo, 1, answer["t"], answer["t"] + 5)) > demo.rate // 4


def test_demo_leaves_the_back_door_shut_when_nobody_confirms(demo):
    call = one(demo, 2, "device", "call", name="lock")
    assert call["arguments"] == {"door": "back", "state": "unlocked"}
    result = one(demo, 2, "device", "result", call=call["call"])
    assert result["code"] == "REJECTED"
    assert 14.5 < result["t"] - one(demo, 2, "device", "confirm_asked", call=call["call"])["t"] < 16.5
    assert not pick(demo, 2, "device", "call_start")
    assert not pick(demo, 2, "hardware", "button")
    assert not pick(demo, 0, "hardware", "output", name="back_lock", value=1)
    assert [
        event["text"]
        for event in pick(demo, 2, "device", "transcript", role="agent")
        if event["t"] > result["t"]
    ]
    assert len(loud(demo, 1, result["t"], result["t"] + 6)) > demo.rate // 4


def test_demo_is_silent_at_once_when_it_is_interrupted(demo):
    noticed = one(demo, 3, "device", "interrupt", reason="speech")
    stop = pick(demo, 3, "demo", "says")[-1]
    assert 0 <= noticed["t"] - stop["speech_start"] < 1
    depth = one(demo, 0, "hardware", "i2s", mode="tx", rate=24_000)["depth_ms"] / 1000
    assert depth <= 0.064
    assert len(loud(demo, 1, noticed["t"] - 0.3, noticed["t"])), "nothing was to be interrupted"
    starts = [event["t"] for event in pick(demo, 3, "device", "audio_start") if event["t"] > noticed["t"]]
    after = loud(demo, 1, noticed["t"], min([*starts, noticed["t"] + 1.5]))
    late = (
        0.005 if demo.summary["simulator_late"]["times"] == 0 else 0.05
    )  # this test's own clock is that of a busy machine
    assert not len(after) or after[-1] - noticed["t"] <= 0.020 + depth + late


def test_demo_tells_the_host_what_was_heard(demo):
    noticed = one(demo, 3, "device", "interrupt", reason="speech")
    playback = one(demo, 3, "host", "message.in", type="playback")["message"]
    item = one(demo, 3, "device", "audio_start", item=playback["itemId"])
    heard = loud(demo, 1, item["t"], noticed["t"] + 0.2)
    span, pauses = heard[-1] - heard[0], np.diff(heard)
    starved = pauses[
        pauses > 0.2
    ].sum()  # of a busy machine: not counted as played, as pauses of the voice are
    assert span - starved - 0.2 < playback["playedMs"] / 1000 < span + 0.2


def test_demo_never_runs_the_call_that_was_queued(demo):
    check, light = (
        one(demo, 3, "device", "call", name="check_house"),
        pick(demo, 3, "device", "call", name="light")[-1],
    )
    assert light["arguments"] == {"state": "off"}
    noticed = one(demo, 3, "device", "interrupt", reason="speech")
    for call in (check, light):
        assert call["t"] < noticed["t"]
        assert one(demo, 3, "device", "result", call=call["call"])["code"] == "INTERRUPTED"
        assert one(demo, 3, "host", "call.settled", id=call["call"])["code"] == "INTERRUPTED"
    assert pick(demo, 3, "device", "call_start", call=check["call"])
    assert not pick(demo, 0, "device", "call_start", call=light["call"])
    assert [event["value"] for event in pick(demo, 0, "hardware", "output", name="light")] == [0, 1]


def test_demo_runs_a_call_once_over_a_cut_connection(demo):
    call = one(demo, 4, "device", "call", name="check_house")
    start = one(demo, 4, "device", "call_start", call=call["call"])
    cut = one(demo, 4, "proxy", "cut")
    ready = one(demo, 4, "device", "ready", resumed=True)
    result = one(demo, 4, "device", "result", call=call["call"])
    settled = one(demo, 4, "host", "call.settled", id=call["call"])
    assert start["t"] < cut["t"] < ready["t"] < result["t"] <= settled["t"] + 0.05
    assert (result["ok"], settled["ok"]) == (True, True)
    assert ready["session"] == one(demo, 0, "device", "ready", resumed=False)["session"]
    told = [
        event["text"]
        for event in pick(demo, 4, "device", "transcript", role="agent")
        if event["t"] > result["t"]
    ]
    assert "front door is unlocked" in " ".join(told)


def test_demo_prints_its_figures(demo):
    made = demo.summary
    assert len(made["first_sound_ms"]) >= 5
    assert made["interruptions"][0]["notice_to_silence"] <= 20 + made["dma_depth_ms"] + 50
    assert [call["outcome"] for call in made["calls"]] == [
        *("done", "REJECTED", "done", "INTERRUPTED", "INTERRUPTED", "done")
    ]
    assert made["heap"]["used"] < made["heap"]["size"]
    for name in ("last word to first sound", "interruption to silence", "heap", "audio frames"):
        assert name in demo.said


def test_demo_says_what_did_not_happen_and_keeps_the_record(monkeypatch, tmp_path, capsys):
    """The same demo with an agent that never answers."""
    script = tmp_path / "script.json"
    script.write_text('{"rules": []}')
    deaf = registry.factory("scripted", script=script)
    monkeypatch.setattr(registry, "factory", lambda name: deaf)
    monkeypatch.setattr(scenes, "HEARD_S", 0.5)
    out = tmp_path / "out"
    assert cli.main(["demo", "--out", str(out), "--heap", "128k"]) == 1
    said = capsys.readouterr().out
    verdict = said.splitlines()[-1]
    assert verdict.startswith("FAILED  after 1 step in")
    assert "scene 1, “the host calls lock(door=front, state=unlocked)” did not happen: waited" in verdict
    assert "for device call name=lock" in verdict
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert summary["ok"] is False
    assert summary["failure"] in verdict
    assert {path.name for path in out.iterdir()} == {
        "conversation.wav",
        "events.jsonl",
        "summary.json",
        "timeline.png",
    }
