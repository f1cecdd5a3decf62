import asyncio
import io

import pytest
from rich.console import Console
from vrt_host.harness.live import View
from vrt_host.harness.recorder import Recorder
from vrt_host.harness.stage import Stage, StepFailed


@pytest.fixture
def stage():
    return Stage(Recorder(), View(Console(file=io.StringIO(), width=200)))


def written(stage):
    return stage.view.console.file.getvalue()


async def test_stage_sees_a_step_and_tells_it(stage):
    with stage.scene("The door") as scene:
        waiting = asyncio.create_task(
            stage.expect(
                "it opens",
                "device",
                "output",
                within=5,
                name="lock",
                value=lambda value: value > 0,
                detail=lambda event: f"level {event['value']}",
            )
        )
        await asyncio.sleep(0)
        stage.recorder.add("host", "output", name="lock", value=1)
        stage.recorder.add("device", "output", name="lock", value=0)
        stage.recorder.add("device", "output", name="lamp", value=1)
        stage.recorder.add("device", "output", name="lock", value=2)
        assert (await waiting)["value"] == 2
    assert (scene.ok, scene.steps, stage.steps) == (True, ["it opens"], 1)
    assert "1  The door" in written(stage)
    assert "✓ it opens  level 2" in written(stage)


async def test_stage_looks_from_the_scene_or_an_event_on(stage):
    stage.recorder.add("device", "x", n=1)
    with stage.scene("one"):
        stage.recorder.add("device", "x", n=2)
        second = await stage.expect("x", "device", "x", within=1)
        stage.recorder.add("device", "x", n=3)
        third = await stage.expect("x", "device", "x", within=1, after=second)
        assert (second["n"], third["n"]) == (2, 3)
        assert stage.seen("device", "x", n=lambda n: n > 1) == [second, third]


async def test_stage_does_not_wait_for_a_dead_board(stage):
    with stage.scene("one"):
        stage.recorder.add("device", "exit", asked=True)
        waiting = asyncio.create_task(stage.expect("it opens", "hardware", "output", within=60))
        await asyncio.sleep(0)
        stage.recorder.add("device", "traceback", text="Traceback:\n  File x\nMemoryError: none left")
        stage.recorder.add("device", "exit", code=1, asked=False)
        with pytest.raises(StepFailed, match="the board stopped: MemoryError: none left"):
            await waiting


async def test_stage_says_where_what_and_what_was_seen_instead(stage):
    async def scene():
        with stage.scene("one"):
            stage.recorder.add("device", "led", state="confirm")
            await stage.expect("the lock opens", "hardware", "output", within=0.01, value=1)

    with pytest.raises(StepFailed) as caught:
        await scene()
    line = str(caught.value)
    assert line.startswith(
        "scene 1, “the lock opens” did not happen: waited 0.01 s for hardware output value=1; "
    )
    assert "device led state=confirm" in line
    assert "\n" not in line
    assert stage.scenes[0].ok is False
    assert "✗ the lock opens" in written(stage)
    assert stage.recorder.events[-1] == {**stage.recorder.events[-1], "event": "scene.end", "ok": False}


async def test_stage_says_when_nothing_was_seen(stage):
    with pytest.raises(StepFailed, match="seen: nothing"), stage.scene("one"):
        await stage.expect("it", "host", "x", within=0.01)


def test_stage_checks_a_condition_now(stage):
    with stage.scene("one"):
        stage.check("it is shut", True, "open")
        with pytest.raises(StepFailed, match="scene 1, “it ran once” did not happen: saw 2 runs"):
            stage.check("it ran once", False, "2 runs")
    assert [event["ok"] for event in stage.recorder.events if event["event"] == "step"] == [True, False]


def test_stage_leaves_a_scene_that_broke_down_unfinished(stage):
    with pytest.raises(RuntimeError), stage.scene("one") as scene:
        raise RuntimeError
    assert scene.ok is None
    assert scene.end is not None
