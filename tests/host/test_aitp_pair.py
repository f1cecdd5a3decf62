"""Our AITP client against our AITP server: a board, a host, its agent `aitp`, another host's facade, and an agent behind that."""

import contextlib

import pytest
from host_client import hosting
from peers.device import TOOLS, Device
from peers.plan import tone
from peers.subjects import SUBJECTS
from vrt_host.agents import aitp_turns
from vrt_host.agents.aitp import Aitp, Options
from vrt_host.facades import aitp as facades

PAY = {
    "name": "pay",
    "description": "Pay.",
    "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]},
    "confirm": "button",
    "effect": "irreversible",
}
CALL = {"call": "light", "arguments": '{"state": "on"}'}
PAYS = {"call": "pay", "arguments": '{"amount": 5}'}


@contextlib.asynccontextmanager
async def chain(folder, *responses):
    """The board's end; the agent at the other end answers as planned."""
    behind = SUBJECTS["scripted"](folder)
    await behind.plan(*responses)
    facade = facades.AitpFacade(facades.Options(port=0))
    async with hosting(behind.agents, facades=[facade]):
        options = Options(url=f"ws://127.0.0.1:{facade.port}")
        async with hosting(lambda: Aitp(options)) as host, Device.opened(host, tools=[*TOOLS, PAY]) as device:
            yield device
            assert device.all("error") == []
            assert device.late == []


async def test_text_is_answered_with_a_call(tmp_path):
    async with chain(tmp_path, [CALL], [{"say": "It is on."}]) as device:
        await device.types()
        await device.answers(await device.calls("light", state="on"), {"state": "on"})
        await device.rests()
        assert device.said().strip() == "It is on."
        assert len({one["turnId"] for one in device.all("turn.state")}) == 1


async def test_speech_is_answered(tmp_path):
    async with chain(tmp_path, [{"say": "Yes?"}]) as device:
        await device.speaks(0.5)
        await device.sounds(150)
        await device.rests()
        assert device.all("turn.state")[0]["state"] == "listening"


@pytest.mark.parametrize("code", [None, "REJECTED", "FAILED"])
async def test_board_asks_its_user_and_the_agent_learns_the_answer(tmp_path, code):
    async with chain(tmp_path, [PAYS], [{"say": "That is that."}]) as device:
        await device.types()
        call = await device.calls("pay", amount=5)
        await device.answers(call, {"paid": True}, code=code)
        await device.rests()
        assert device.said().strip() == "That is that."


async def test_speech_ends_the_answer_at_the_other_end(tmp_path, monkeypatch):
    monkeypatch.setattr(aitp_turns, "LATE_S", 0.0)  # the user's words come faster than time
    async with chain(tmp_path, [{"say": "This is long.", "seconds": 20}], [{"say": "Yes?"}]) as device:
        await device.speaks(0.5)
        await device.sounds(200)
        await device.hears(tone(0.3, "pcmu", 8000), quiet_s=0)
        await device.told("interrupted", reason="speech")
        await device.speaks(0.5)
        await device.until(lambda: len(device.heard) > 1)
        await device.rests()


async def test_text_ends_the_answer_at_the_other_end(tmp_path):
    async with chain(tmp_path, [{"say": "This is long.", "seconds": 20}]) as device:
        await device.speaks(0.5)
        await device.sounds(200)
        heard = len(device.heard)
        await device.types()
        await device.told("interrupted", reason="user")
        await device.until(lambda: device.all("text"))
        assert len(device.heard) == heard


async def test_interruption_while_a_call_runs(tmp_path):
    async with chain(tmp_path, [CALL], [{"say": "Yes?"}]) as device:
        await device.types()
        call = await device.calls("light", state="on")
        await device.interrupts()
        await device.told("interrupted")
        await device.answers(call, code="INTERRUPTED")
        await device.types()
        await device.rests()
        assert len(device.all("tool.call")) == 1
