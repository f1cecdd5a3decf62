"""The board beside its own loudspeaker: real firmware, a microphone that hears what the speaker plays."""

import asyncio
import contextlib
import json

import numpy as np
import pytest
from vrt_host.agents.echo import EchoAgent
from vrt_host.agents.script import load
from vrt_host.agents.scripted import ScriptedAgent
from vrt_host.config import ServerConfig
from vrt_host.server import serve
from vrt_host.sim import wav
from vrt_host.sim.board import SimBoard
from vrt_host.sim.converters import Echo
from vrt_host.sim.hardware import Hardware
from vrt_host.speech.codec import codec

DEADLINE_S = 20
LOUD_ROOM = Echo(loss_db=-6, delay_ms=15, room_ms=300)
"""The speaker beside the microphone: its echo is twice as loud as itself."""
HUSHED = 0.005
"""Of full scale, mean: what is quieter is no speech."""


class Rig:
    """A host with an agent that notes what it hears, and a board in front of it."""

    def __init__(self, make):
        self._make = make
        self.heard = []
        """(time on the hardware's clock, level of 0 to 1) of each payload that came to the agent."""
        self.events = []
        self.hardware = None

    def agent(self):
        agent = self._make()
        listen, pcmu = agent.user_audio, codec("pcmu")

        def user_audio(payload):
            samples = pcmu.decode(payload)
            self.heard.append((self.hardware.now, float(np.abs(samples).mean())))
            listen(payload)

        agent.user_audio = user_audio
        return agent

    @contextlib.asynccontextmanager
    async def board(self, **options):
        ready, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
        task = asyncio.create_task(serve(ServerConfig(port=0), self.agent, ready=ready.set_result, stop=stop))
        config = {"stats_ms": 0, **options.pop("config", {})}
        echo, noise = options.pop("echo", None), options.pop("noise_rms", 0)
        self.hardware = Hardware(echo=echo, noise_rms=noise, seed=1)
        try:
            async with SimBoard(
                url=f"ws://127.0.0.1:{await ready}/", hardware=self.hardware, config=config, **options
            ) as board:
                board.listen(self.events.append)
                await self.next("ready")
                yield board
                assert self.faults() == []
        finally:
            stop.set()
            await task

    def faults(self):
        """What must not happen to a board."""
        return [
            event
            for event in self.events
            if event["event"] == "traceback" or event.get("code") in ("MEMORY", "UNTOLD", "CRASH")
        ]

    def named(self, name, **fields):
        return [
            event
            for event in self.events
            if event["event"] == name and all(event.get(key) == value for key, value in fields.items())
        ]

    async def next(self, name, count=1, **fields):
        """The count-th event of that name with these fields, once it is there."""
        for _ in range(DEADLINE_S * 100):
            found = self.named(name, **fields)
            if len(found) >= count:
                return found[count - 1]
            await asyncio.sleep(0.01)
        raise AssertionError(f"no {name} {fields} among {self.events}")

    async def until(self, t):
        """Wait for that time on the hardware's clock."""
        await asyncio.sleep(max(0.0, t - self.hardware.now))

    def loudest(self, start, end=float("inf")):
        """The level of the loudest frame that came to the agent in that time."""
        return max((level for t, level in self.heard if start <= t < end), default=0.0)


def sentence(seconds=0.6, level=6000):
    """A voice of 150 Hz with overtones, in syllables."""
    t = np.arange(int(16_000 * seconds)) / 16_000
    wave = sum(np.sin(2 * np.pi * 150 * k * t + k * k) / k for k in range(1, 12))
    return (level * wave / 2 * (np.abs(np.sin(2 * np.pi * 2 * t)) > 0.1)).astype(np.int16)


def scripted(folder, *actions, voiced_ms=200):
    """An agent that does so after every sentence it hears; anything a little loud is one."""
    path = folder / "script.json"
    on = {"audio": {"voicedMs": voiced_ms, "silenceMs": 200, "level": HUSHED}}
    path.write_text(json.dumps({"rules": [{"on": on, "do": list(actions)}]}))
    script = load(path)
    return lambda: ScriptedAgent(script)


REPLY = {"say": {"text": "A reply.", "toneMs": 1500}}


@pytest.mark.parametrize(
    ("actions", "config"),
    [
        ([REPLY], {}),
        ([REPLY], {"buffer_ms": 3000}),  # all of it at once: four times faster than it is played, and more
        ([{"waitMs": 6000}, REPLY], {}),  # the first audio comes late
        ([REPLY, {"waitMs": 2700}, REPLY], {}),  # it pauses for as long as it may
    ],
    ids=["paced", "at-once", "late", "pausing"],
)
async def test_half_duplex_reply_is_never_the_next_question(tmp_path, actions, config):
    rig = Rig(scripted(tmp_path, *actions))
    async with rig.board(echo=LOUD_ROOM, heap="192k", config={"duplex": "half", **config}) as board:
        _, end = board.say(sentence())
        await rig.next("turn", state="idle")
        played = await rig.next("played", count=actions.count(REPLY))
        await rig.until(played["t"] + 2.5)
        assert len(rig.named("turn", state="thinking")) == 1
        assert rig.loudest(0, end + 0.2) > HUSHED  # the user was heard
        assert rig.loudest(end + 0.3) < HUSHED  # and nobody else
        assert [t for t, _ in rig.heard if t > played["t"] + 0.5]  # the microphone is on again
        assert not rig.named("interrupt")


async def test_half_duplex_sends_nothing_from_the_first_sample_to_the_tail_after_the_last(tmp_path):
    rig = Rig(scripted(tmp_path, REPLY))
    async with rig.board(echo=LOUD_ROOM, config={"duplex": "half"}) as board:
        board.say(sentence())
        first = await rig.next("sound", on=True)
        last = await rig.next("sound", on=False)
        await rig.until(last["t"] + 1)
        between = [t for t, _ in rig.heard if first["t"] + 0.1 < t < last["t"] + 0.25]
        assert between == []


async def test_half_duplex_button_interrupts_and_then_hears_the_user_alone(tmp_path):
    rig = Rig(scripted(tmp_path, {"say": {"text": "A long reply.", "toneMs": 8000}}))
    async with rig.board(echo=LOUD_ROOM, config={"duplex": "half", "listen": "button"}) as board:
        board.hardware.press()
        _, end = board.say(sentence())
        await rig.until(end + 0.1)
        board.hardware.press(False)
        await rig.next("sound", on=True)
        await rig.until(rig.hardware.now + 1)
        board.hardware.press()
        pressed = rig.hardware.now
        silent = await rig.next("sound", on=False)
        assert silent["t"] - pressed < 0.25
        await rig.until(silent["t"] + 0.6)
        assert rig.loudest(pressed) < HUSHED
        _, end = board.say(sentence())
        await rig.until(end + 0.1)
        board.hardware.press(False)
        await rig.next("turn", state="thinking", count=2)
        assert rig.loudest(pressed) > HUSHED


async def test_half_duplex_echo_agent_does_not_talk_to_itself():
    rig = Rig(EchoAgent)
    async with rig.board(echo=LOUD_ROOM, config={"duplex": "half"}) as board:
        _, end = board.say(sentence(1.0))
        await rig.until(end + 5)
        assert rig.loudest(0, end) > HUSHED
        assert rig.loudest(end + 1) < HUSHED


# --- full duplex: only on a path that has been proven


def talking(folder, seconds):
    """What a script says for so long: as loud as speech gets."""
    wav.save(folder / "reply.wav", sentence(seconds, level=20_000), 16_000)
    return {"say": {"text": "A long reply.", "wav": "reply.wav"}}


@pytest.mark.parametrize(
    "echo", [None, Echo(38, 2), Echo(42, 60, room_ms=200)], ids=["none", "38-dB", "42-dB-in-a-room"]
)
async def test_full_duplex_on_a_proven_path_hears_a_voice_and_never_its_own(tmp_path, echo):
    rig = Rig(scripted(tmp_path, talking(tmp_path, 5), voiced_ms=300))
    async with rig.board(echo=echo, noise_rms=10) as board:
        told = await rig.next("echo")
        assert told["duplex"] == "full"
        assert told["loss_db"] > 36
        assert told["t"] < (await rig.next("ready"))["t"]
        _, end = board.say(sentence())
        begun = await rig.next("sound", on=True, count=2)  # the first is the probe's
        await rig.until(begun["t"] + 3)
        during = [t for t, _ in rig.heard if t > begun["t"]]
        assert len(during) > 100  # the microphone is on
        assert rig.loudest(end + 0.3) < HUSHED
        assert not rig.named("interrupt")
        onset, end = board.say(sentence(level=4000))
        assert (await rig.next("interrupt"))["reason"] == "speech"
        silent = await rig.next("sound", on=False, count=2)
        assert silent["t"] - onset < 0.5
        await rig.next("turn", state="thinking", count=2)
        assert rig.loudest(onset, end + 0.2) > HUSHED  # and the host hears it


@pytest.mark.parametrize("echo", [Echo(32, 2), Echo(6, 80, room_ms=200)], ids=["32-dB", "6-dB-in-a-room"])
async def test_full_duplex_on_an_unproven_path_is_half_duplex(tmp_path, echo):
    rig = Rig(scripted(tmp_path, talking(tmp_path, 2), voiced_ms=300))
    async with rig.board(echo=echo) as board:
        told = await rig.next("echo")
        assert told["duplex"] == "half"
        assert abs(told["loss_db"] - echo.loss_db) <= 3
        _, end = board.say(sentence())
        first = await rig.next("sound", on=True, count=2)
        last = await rig.next("sound", on=False, count=2)
        await rig.until(last["t"] + 2)
        assert not [t for t, _ in rig.heard if first["t"] + 0.1 < t < last["t"] + 0.25]
        assert rig.loudest(end + 0.3) < HUSHED
        assert len(rig.named("turn", state="thinking")) == 1
        assert not rig.named("interrupt")


VOLUME = """
from vrt.tools import tool
from vrt.volume import volume

@tool("Set the speaker's volume.", {"percent": {"type": "integer", "minimum": 0, "maximum": 100}}, name="volume")
def louder(percent):
    return {"percent": volume(percent)}
"""


async def test_volume_is_set_by_a_tool_and_the_echo_measured_again(tmp_path):
    tools = tmp_path / "tools.py"
    tools.write_text(VOLUME)
    rig = Rig(
        scripted(
            tmp_path,
            REPLY,
            {"call": {"tool": "volume", "arguments": {"percent": 50}}},
            {"waitResult": True},
            REPLY,
        )
    )
    async with rig.board(echo=Echo(45, 5), tools=tools, config={"buffer_ms": 200}) as board:
        await rig.next("echo", duplex="full")
        board.say(sentence())
        result = await rig.next("result")
        assert result["result"]["output"] == {"percent": 50}
        await rig.next("echo", count=2, duplex="full")
        played = rig.hardware.speaker.samples.astype(int)
        assert 9_500 < np.abs(played).max() < 10_200  # a tone of 0.3, at full volume
        sounds = rig.named("sound", on=True)
        last = rig.hardware.speaker.between(sounds[-2]["t"] + 0.5, sounds[-2]["t"] + 1).astype(int)
        assert 2_300 < np.abs(last).max() < 2_600  # and at a quarter of it
