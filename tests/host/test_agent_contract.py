"""What every agent has to do: turns, calls and interruptions, through a real host, for a device that keeps the rules.

An agent of somebody else's model has the provider's server in a process of its own (`tests/peers`). What only such an
agent can meet is in `test_agent_contract_provider.py`.
"""

import pytest
from peers.contract import (
    CALL,
    LOCK,
    MARK,
    SHORT,
    answered,
    case_of_agent,  # noqa: F401  (a fixture)
    ends_well,
    over,
    subject_of_module,  # noqa: F401  (a fixture)
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


# --- turns


@over()
async def test_text_is_answered_in_one_turn(case):
    await case.plan([SHORT])
    async with case.session() as device:
        await device.types()
        await device.rests()
        assert device.said()
        assert len({one["turnId"] for one in device.all("turn.state")}) == 1
        await ends_well(case, device)


@over(slow=True)
async def test_speech_is_answered_with_audio(case):
    await case.plan([SHORT])
    async with case.session() as device:
        device.answering = True
        await device.hears(case.subject.voice())
        await device.sounds()
        await device.interrupts()
        await device.told("interrupted")
        await ends_well(case, device)
        if case.peer is not None:
            await case.peer.seen("speech_started")
            await case.peer.seen("committed")


@over()
async def test_text_during_an_answer_ends_it(case):
    await case.plan([{"say": "This is long.", "seconds": 20}])
    async with case.session() as device:
        await case.talks(device)
        await device.types()
        await device.told("interrupted", reason="user")
        await answered(case, device)
        assert device.late == []
        assert device.all("error") == []


# --- calls


@over(tools=True, slow=True)
async def test_call_runs_and_its_result_is_answered(case):
    await case.plan([CALL], [SHORT])
    async with case.session() as device:
        await device.types("Lock the front door.")
        call = await device.calls("lock", **LOCK)
        await device.answers(call, {"state": MARK})
        await answered(case, device)
        assert call["turnId"] == device.all("turn.state")[-1]["turnId"]
        assert device.heard or device.said()
        if case.peer is not None:
            assert MARK in (await case.peer.seen("result"))["output"]
        await ends_well(case, device)


@over(tools=True)
@pytest.mark.parametrize("code", ["FAILED", "REJECTED", "INVALID"])
async def test_call_that_does_not_succeed_is_answered_too(case, code):
    await case.plan([CALL], [{"say": "It did not work.", "seconds": 0.06}])
    async with case.session() as device:
        await device.types("Lock the front door.")
        await device.answers(await device.calls("lock", **LOCK), code=code)
        await answered(case, device)
        assert device.heard or device.said()
        if case.peer is not None:
            assert code in (await case.peer.seen("result"))["output"]
        await ends_well(case, device)


@over(tools=True)
async def test_call_without_an_answer_in_time_ends_its_turn_and_not_the_session(case):
    await case.plan([{"call": "house"}], [{"say": "There was no answer.", "seconds": 0.06}])
    async with case.session() as device:
        await device.types("Check the house.")
        call = await device.calls("house")
        await device.told("interrupted", epoch=call["epoch"])
        await device.answers(call, "too late")
        await case.at_provider("TIMEOUT")
        await answered(case, device)
        assert device.heard or device.said(), "the user was not told"
        await ends_well(case, device)


@over(tools=True)
async def test_two_calls_of_a_turn_run_in_their_order(case):
    light = {"call": "light", "arguments": '{"state": "on"}'}
    await case.plan([CALL, light], [SHORT])
    async with case.session() as device:
        await device.types("Lock the front door and turn on the light.")
        first = await device.calls("lock", **LOCK)
        second = await device.calls("light", state="on")
        assert first["turnId"] == second["turnId"]
        assert [one["name"] for one in device.all("tool.call")] == ["lock", "light"]
        await device.answers(first, {"state": "locked"})
        await device.answers(second, {"state": MARK})
        await answered(case, device)
        await case.at_provider(MARK)
        if case.peer is not None:
            assert case.peer.count("result") == 2
        await ends_well(case, device)


@over(tools=True, planned=True)
async def test_call_after_a_call_belongs_to_the_same_turn(case):
    await case.plan([CALL], [{"call": "light", "arguments": '{"state": "on"}'}], [SHORT])
    async with case.session() as device:
        await device.types("Lock the front door.")
        first = await device.calls("lock", **LOCK)
        await device.answers(first)
        second = await device.calls("light", state="on")
        await device.answers(second)
        await device.rests()
        assert first["turnId"] == second["turnId"]
        assert len(device.all("turn.state", state="idle")) == 1
        await ends_well(case, device)


@over(tools=True, planned=True)
@pytest.mark.parametrize(
    ("call", "code"),
    [
        ({"call": "fly", "arguments": "{}"}, "FAILED"),
        ({"call": "lock", "arguments": '{"door": "front", "state": "lo'}, "INVALID"),
        ({"call": "lock", "arguments": '["front"]'}, "INVALID"),
        ({"call": "lock", "arguments": '{"door": "front", "door": "back", "state": "locked"}'}, "INVALID"),
        ({"call": "lock", "arguments": "{'door': 'front', 'state': 'locked'}"}, "INVALID"),
    ],
    ids=["unknown", "cut", "list", "twice", "quotes"],
)
async def test_call_that_cannot_be_is_refused_and_never_repaired(case, call, code):
    if call["arguments"] != "{}" and not case.subject.free:
        return  # its protocol carries an object
    await case.plan([call], [SHORT])
    async with case.session() as device:
        await device.types()
        await device.rests()
        assert device.all("tool.call") == []
        assert device.heard
        if case.peer is not None:
            assert code in (await case.peer.seen("result"))["output"]
        await ends_well(case, device)


# --- interruptions


@over(planned=True)
async def test_interruption_before_the_first_sound(case):
    await case.plan([{"wait": "gate"}, {"say": "It is too late.", "seconds": 1}])
    async with case.session() as device:
        await device.types()
        await device.begins()
        if case.peer is not None:
            await case.peer.seen("waiting")
        await device.interrupts()
        await device.told("interrupted")
        if case.peer is not None:
            await case.peer.release("gate")
        await ends_well(case, device)
        assert "late" not in device.said()


@over()
async def test_interruption_while_it_speaks(case):
    await case.plan([{"say": "This is long.", "seconds": 20}])
    async with case.session() as device:
        await case.talks(device)
        await device.sounds(200)
        await device.interrupts(played_ms=140)
        await device.told("interrupted")
        await ends_well(case, device)
        if case.subject.interruption == "truncate" and case.peer is not None:
            await case.peer.seen("truncate", ms=140)


@over(tools=True, planned=True)
async def test_interruption_while_it_speaks_after_the_model_has_ended(case):
    """The end of what the model sent is not the end of what is heard."""
    await case.plan([{"say": "This is not so long.", "seconds": 3}])
    async with case.session() as device:
        await device.types()
        await device.sounds(900)  # a third of a second after all of it was sent
        await device.interrupts(played_ms=300)
        await device.told("interrupted")
        await ends_well(case, device)
        if case.subject.interruption == "truncate" and case.peer is not None:
            await case.peer.seen("truncate", ms=300)


@over(tools=True)
async def test_interruption_while_a_call_runs(case):
    await case.plan([CALL])
    async with case.session() as device:
        await device.types("Lock the front door.")
        call = await device.calls("lock", **LOCK)
        await device.interrupts()
        await device.told("interrupted")
        await device.answers(call, code="INTERRUPTED")
        await device.answers(call, {"state": "too late"})
        await ends_well(case, device)
        assert len(device.all("tool.call")) == 1


@over(provider=True, slow=True)
async def test_speech_ends_what_is_said_before_the_device_does(case):
    await case.plan([{"say": "This is long.", "seconds": 20}], [SHORT])
    async with case.session() as device:
        await case.talks(device)
        await device.sounds(200)
        await device.speaks()
        await device.told("interrupted")
        await device.rests()
        await ends_well(case, device)


@over(provider=True)
async def test_device_ends_what_is_said_before_the_speech_comes(case):
    await case.plan([{"say": "This is long.", "seconds": 20}], [SHORT])
    async with case.session() as device:
        await case.talks(device)
        await device.sounds(200)
        await device.interrupts("speech", played_ms=100)
        await device.speaks()
        await device.told("interrupted")
        await device.rests()
        assert len(device.all("interrupted")) == 1
        await ends_well(case, device)


# --- what a model may do


@over(tools=True, planned=True)
@pytest.mark.parametrize("seconds", [90, None], ids=["long", "endless"])
async def test_reply_much_faster_than_real_time_or_without_an_end_is_bounded(case, seconds):
    await case.plan([{"say": "This is very long.", "seconds": seconds}])
    async with case.session() as device:
        await device.types()
        await device.sounds(900)
        await device.sends("ping")
        await device.told("pong")
        assert device.all("error") == []
        await device.interrupts()
        await device.told("interrupted")
        await ends_well(case, device)


@over()
async def test_context_is_taken_and_told_as_data(case):
    async with case.session(context={"room": f"{MARK}-first"}) as device:
        await device.sends("context", context={"room": f"{MARK}-second"})
        await ends_well(case, device)
        await case.at_provider(f"{MARK}-first")
        await case.at_provider(f"{MARK}-second")
