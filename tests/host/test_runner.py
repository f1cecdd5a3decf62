"""A session at work: formats, the timer, and what an agent is made to wait for."""

import asyncio

from host_client import DEADLINE_S, hosting
from vrt_host.agents.base import (
    Agent,
    Audio,
    AudioBegin,
    AudioEnd,
    TurnBegin,
)
from vrt_host.config import TurnLimits
from vrt_host.runner import Alarm, printable


def test_peer_s_text_is_one_bounded_line():
    shown = printable("a\nb\x1b[31m\u202e\ud800" + "x" * 1000, 60)
    assert len(shown) <= 63
    assert shown.isascii()
    assert shown.isprintable()


def test_token_in_a_peer_s_text_is_hidden_also_when_it_is_cut():
    assert printable('"vrt_abc-DEF_123" is wrong', 100) == '"vrt_***" is wrong'
    assert printable("x" * 90 + "vrt_abcdefghijklm", 100).endswith("xvrt_***")


async def test_alarm_rings_at_the_earliest_time_it_was_given():
    loop = asyncio.get_running_loop()
    rung = asyncio.Event()
    alarm = Alarm(loop, rung.set)
    alarm.set(loop.time() + 3600)
    alarm.set(loop.time())
    alarm.set(loop.time() + 3600)
    alarm.set(None)
    async with asyncio.timeout(DEADLINE_S):
        await rung.wait()
    alarm.set(float("inf"))
    alarm.cancel()


class Speaker(Agent):
    """Speaks for 10 s and waits when it is told to; `progress` are the seconds emitted."""

    name = "speaker"

    def __init__(self):
        self.progress = 0.0
        self.task = None

    async def start(self, session, port):
        self.port = port

    def user_text(self, text):
        self.task = asyncio.get_running_loop().create_task(self._speak())

    async def _speak(self):
        self.port.emit(TurnBegin("t"))
        self.port.emit(AudioBegin("t", "i"))
        for _ in range(20):
            self.port.emit(Audio("t", "i", bytes(4000)))
            self.progress += 0.5
            await self.port.drain()
        self.port.emit(AudioEnd("t", "i"))

    def user_audio(self, payload):
        pass

    def interrupted(self, turn, heard):
        pass

    def tool_result(self, turn, result):
        pass

    async def close(self):
        if self.task:
            await self.task  # drain lets go when the session ends


async def test_agent_that_drains_is_never_far_ahead_and_is_let_go_at_the_end():
    made = []

    def make():
        made.append(Speaker())
        return made[-1]

    limits = TurnLimits(drain_s=1.0)
    async with hosting(make, turn_limits=limits) as host, host.client() as client:
        await client.hello(output={"encoding": "pcmu"}, limits={"bufferMs": 200})
        await client.send("text", text="speak")
        await client.until("audio.start")
        await client.audio_until(15)
        sent = 0.02 * [event["event"] for event in host.events].count("audio.out")
        assert 0 < made[0].progress - sent <= 1.6  # a second, and the half that it emits before it looks
    assert made[0].task.done()
