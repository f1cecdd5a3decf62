"""The four scenes of `vrt demo` with an agent: real firmware on a simulated board, a user who speaks, the provider's peer.

The scenes check themselves (`harness/scenes.py`); the peer answers by `PLAN`, one response each time its protocol has the
model respond. The tools are the simulated house's, in a greater hurry.
"""

import asyncio
import json
from pathlib import Path

from vrt_host.errors import VrtError
from vrt_host.harness import live, scenes, sentences
from vrt_host.harness.live import View
from vrt_host.harness.recorder import Recorder
from vrt_host.harness.rig import Rig
from vrt_host.harness.stage import Stage, StepFailed
from vrt_host.harness.user import User

HOUSE = Path(__file__).parents[2] / "boards" / "sim" / "tools.py"
HURRY = {
    'confirm="button",': 'confirm="button", timeout_ms=5000,',  # so long it waits for the button
    "yield 2000": "yield 900",
}
CHECK = {"call": "check_house"}


def lock(door):
    return {"call": "lock", "arguments": json.dumps({"door": door, "state": "unlocked"})}


def light(state):
    return {"call": "light", "arguments": json.dumps({"state": state})}


ASKS = {"say": "Hold the button for one second.", "seconds": 0.8}
PLAN = [
    [lock("front"), ASKS],
    [{"say": "The front door is unlocked.", "seconds": 0.5}],
    [lock("back"), ASKS],
    [{"say": "You did not confirm it, so the back door stays locked.", "seconds": 0.5}],
    [light("on")],
    [{"say": "The light is on.", "seconds": 0.5}],
    [CHECK, light("off"), {"say": "I check the house now, which takes a while.", "seconds": 10}],
]
"""Of scenes 1 to 3. A model may or may not have understood the "stop" that ends them: its answer is not planned."""
LAST = [[CHECK], [{"say": "The front door is unlocked, and the light is on.", "seconds": 0.5}]]
"""Of scene 4."""


async def play(kind, folder):
    """All scenes with a subject; what went wrong, or None."""
    recorder = Recorder()
    stage = Stage(recorder, View(live.console(quiet=True)))
    try:
        async with kind(folder) as subject:
            await subject.plan(*PLAN)
            planned = []

            def on_event(event):
                if (event["source"], event["event"], event.get("number")) == ("demo", "scene", 4):
                    planned.append(asyncio.create_task(subject.plan(*LAST)))

            recorder.listen(on_event)
            async with Rig(recorder, subject.agents, heap="128k", tools=folder / "tools.py") as rig:
                user = User(rig.board, recorder)
                await stage.expect("the board opens a session", "device", "ready", within=20)
                await scenes.Conversation(stage, rig, user, sentences.load(), queues=kind.queues).play()
                await user.close()
                await asyncio.gather(*planned)
    except (AssertionError, VrtError, StepFailed) as error:
        return repr(error)
    wrong = [event for event in recorder.events if event["event"] in ("traceback", "agent.error")]
    played = [scene.ok for scene in stage.scenes]
    return None if played == [True] * 4 and not wrong else (played, wrong)


async def all_played(kinds, folder):
    """All scenes with each of the subjects, by their names, side by side: most of their time is real time. What went wrong, by name."""
    tools = HOUSE.read_text("utf-8")
    for old, new in HURRY.items():
        assert old in tools
        tools = tools.replace(old, new)
    for name in kinds:
        (folder / name).mkdir()
        (folder / name / "tools.py").write_text(tools)
    went = await asyncio.gather(*(play(kind, folder / name) for name, kind in kinds.items()))
    return {name: fault for name, fault in zip(kinds, went, strict=True) if fault is not None}
