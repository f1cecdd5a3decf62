"""What an agent of somebody else's model has to do when the provider refuses, breaks, leaves or talks on."""

import gc
from collections import deque

import numpy as np
import pytest
from peers.contract import (
    CALL,
    LOCK,
    MARK,
    SHORT,
    case_of_agent,  # noqa: F401  (a fixture)
    ends_well,
    over,
    subject_of_module,  # noqa: F401  (a fixture)
)
from peers.plan import quiet, tone
from peers.subjects import KEY

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOST = "remember-5501"
"""What the user said before a connection was lost."""


async def ended_or_told(device):
    """The turn ends, or an error says why not; the session lives."""
    await device.until(lambda: device.all("turn.state", state="idle") or device.all("error"))
    assert all(error["recoverable"] for error in device.all("error")), device.log
    assert device.close_code is None


async def goes_on(case, device):
    """After what was reported, the next text is answered."""
    device.forget()
    await ends_well(case, device)


def one_line(case, error):
    """The error names the agent and says something, without the key."""
    text = error["message"]
    assert case.subject.name in text
    assert KEY not in text
    assert len(text.splitlines()) == 1
    assert len(text) > len(case.subject.name) + 20


# --- refused


@over(provider=True)
@pytest.mark.parametrize("kind", ["key", "model", "format", "quota", "expired", "version"])
async def test_refusal_that_stays_is_told_in_one_line(case, kind):
    await case.peer.refuse(kind, times=9)
    async with case.session(ready=False) as device:
        if device.all("ready"):  # it connects when it has something to say
            await device.types()
        await device.until(lambda: device.all("error"))
        error = device.all("error")[0]
        one_line(case, error)
        assert error["recoverable"] is False
        await device.closed()
    assert case.peer.count("refused") <= 3, "trying again cannot help"


@over(provider=True)
async def test_refusal_that_passes_is_tried_again(case):
    await case.peer.refuse("rate")
    async with case.session(ready=False) as device:
        if device.all("ready"):
            await device.types()
            await ended_or_told(device)
            await goes_on(case, device)
        else:
            error = device.all("error")[0]
            one_line(case, error)
    async with case.session() as device:
        await ends_well(case, device)


@over(provider=True)
async def test_refusal_after_a_lost_connection_ends_the_session(case):
    async with case.session() as device:
        await ends_well(case, device)
        await case.peer.refuse("key", times=9)
        await case.peer.drop()
        await device.types()
        await device.until(lambda: device.all("error", recoverable=False))
        one_line(case, device.all("error", recoverable=False)[0])
        await device.closed()


# --- lost connections


@over(provider=True)
async def test_connection_lost_between_turns_is_not_noticed(case):
    async with case.session(context={"room": MARK}) as device:
        await device.types(f"Please {LOST}.")
        await device.rests()
        await case.peer.drop()
        reports = len(case.peer.reports)
        await ends_well(case, device)
        await case.peer.mentioned(LOST, since=reports)
        await case.peer.mentioned(MARK, since=reports)


@over(provider=True)
async def test_connection_lost_before_the_first_sound(case):
    await case.plan([{"fault": "disconnect"}])
    async with case.session() as device:
        await device.types(f"Please {LOST}.")
        await case.peer.seen("closed")
        reports = len(case.peer.reports)
        await ended_or_told(device)
        await goes_on(case, device)
        await case.peer.mentioned(LOST, since=reports)


@over(provider=True, slow=True)
async def test_connection_lost_in_the_middle_of_an_answer(case):
    await case.plan(
        [{"say": "It breaks off. Here", "seconds": 0.3}, {"wait": "gate"}, {"fault": "disconnect"}]
    )
    async with case.session() as device:
        await device.types()
        await device.sounds(100)
        await case.peer.release("gate")
        await ended_or_told(device)
        await goes_on(case, device)


@over(provider=True)
async def test_result_of_a_call_outlives_the_connection(case):
    await case.plan([CALL])
    async with case.session() as device:
        await device.types("Lock the front door.")
        call = await device.calls("lock", **LOCK)
        await case.peer.drop()
        reports = len(case.peer.reports)
        await device.answers(call, {"state": MARK})
        await ended_or_told(device)
        device.forget()
        await ends_well(case, device)
        await case.peer.mentioned(MARK, since=reports)


def held(agent):
    """The bytes of data that an agent keeps: what is reachable from it through the host's own objects and containers."""
    total, seen, left = 0, set(), [agent]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, bytes | bytearray):
            total += len(one)
        elif isinstance(one, np.ndarray):
            total += one.nbytes
        elif isinstance(one, dict | list | tuple | set | deque) or (
            type(one).__module__.startswith("vrt_host.") and not isinstance(one, type)
        ):
            left += gc.get_referents(one)
    return total


@over(provider=True)
async def test_users_audio_is_bounded_while_there_is_no_connection(case, monkeypatch):
    """Of half a minute the newest 12 s are kept at most, as the device sends them."""
    make, made = case.subject.agents, []
    monkeypatch.setattr(case.subject, "agents", lambda: made.append(make()) or made[-1])
    speech = tone(0.3, "pcm16", 24_000) + quiet(0.7, "pcm16", 24_000)
    async with case.session(input={"encoding": "pcm16", "sampleRate": 24_000}) as device:
        await ends_well(case, device)
        await case.peer.refuse("rate", times=10_000)
        await case.peer.drop()
        for number in range(30):
            for start in range(0, len(speech), 960):
                await device._client.audio(speech[start : start + 960], 50 * number + start // 960)
            if number == 0:
                await case.peer.seen("refused")
        await device.sends("ping")
        await device.told("pong")
        assert device.close_code is None
        assert held(made[-1]) <= 12 * 48_000


# --- strange, broken and late events


@over(provider=True)
@pytest.mark.parametrize("fault", ["malformed", "unknown"])
async def test_event_that_makes_no_sense_is_survived(case, fault):
    await case.plan([{"fault": fault}, {"say": "Still here.", "seconds": 0.06}])
    async with case.session() as device:
        await device.types()
        await ended_or_told(device)
        if fault == "unknown":
            assert "Still here." in device.said()
            assert device.all("error") == []
        assert len(device.all("error")) <= 1
        await goes_on(case, device)


@over(provider=True)
@pytest.mark.parametrize("fault", ["error", "rate", "expired"])
async def test_fault_of_the_providers_own_is_told_and_survived(case, fault):
    await case.plan([{"fault": fault}])
    async with case.session() as device:
        await device.types()
        await ended_or_told(device)
        for error in device.all("error"):
            one_line(case, error)
        await goes_on(case, device)


@over(provider=True, slow=True)
async def test_what_comes_late_is_dropped(case):
    await case.plan([{"say": "This is over.", "seconds": 8, "pace": 4, "deaf": 20}], [SHORT])
    async with case.session() as device:
        await device.types()
        await device.sounds(200)
        await device.interrupts()
        await device.told("interrupted")
        told, heard = len(device.log), set(device.heard)
        await device.types()
        await device.rests()
        assert not [one for one in device.log[told:] if "over" in one.get("text", "")]
        later = [size for item, size in device.heard.items() if item not in heard]
        assert sum(later) <= 8 * 60 + 800, "what was heard is longer than the answer"
        await ends_well(case, device)
