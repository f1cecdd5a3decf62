"""Calls: what is sent, what comes back, in how much time, and what is shown of them."""

import json

import pytest
from turn_stage import STATUS, Stage, call, only
from vrt_host.agents.base import (
    Call,
    CallBegin,
    CallDelta,
    OwnCall,
    OwnProgress,
    OwnResult,
    ToolResult,
    TurnBegin,
    TurnEnd,
)
from vrt_host.calls import CallQueue, PendingCall

# --- calls


def test_call_has_a_public_id_and_its_result_comes_back_under_the_agent_s_key():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(key="call_0", name="lock", arguments='{"door": "front"}'))
    messages = stage.take()
    (sent,) = only(messages, "tool.call")
    assert sent["callId"] != "call_0"
    assert len(sent["callId"]) >= 32
    assert (sent["name"], sent["arguments"], sent["epoch"]) == ("lock", {"door": "front"}, 1)
    assert sent["turnId"] == messages[0]["turnId"]
    stage.say("tool.result", callId=sent["callId"], epoch=1, ok=True, output={"locked": True})
    stage.say("tool.result", callId=sent["callId"], epoch=1, ok=False, code="FAILED", message="again")
    assert stage.agent.take() == [("tool_result", "t", ToolResult("call_0", True, {"locked": True}))]


def test_call_that_failed_on_the_device_comes_back_with_code_and_message():
    stage = Stage()
    stage.emit(TurnBegin("t"), call())
    call_id = stage.take()[-1]["callId"]
    stage.say(
        "tool.result", callId=call_id, epoch=1, ok=False, code="REJECTED", message="the user refused it"
    )
    expected = ToolResult("c", False, code="REJECTED", message="the user refused it")
    assert stage.agent.take() == [("tool_result", "t", expected)]


def test_call_with_a_key_used_before_in_another_turn_is_another_call():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(), TurnBegin("u"), call("u"))
    calls = only(stage.take(), "tool.call")
    assert len({sent["callId"] for sent in calls}) == 2


def test_call_emitted_twice_runs_once():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(), call())
    assert stage.kinds() == ["thinking", "acting", "tool.call"]


def test_call_of_a_dead_turn_is_answered_interrupted():
    stage = Stage()
    stage.emit(TurnBegin("t"), TurnBegin("u"), call("t"))
    assert "tool.call" not in stage.kinds()
    ((_, turn, result),) = [entry for entry in stage.agent.take() if entry[0] == "tool_result"]
    assert (turn, result.call, result.code) == ("t", "c", "INTERRUPTED")


def test_call_of_an_unknown_tool_fails_without_being_sent():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(name="reboot"))
    assert stage.kinds() == ["thinking"]
    ((_, _, result),) = stage.agent.take()
    assert result.code == "FAILED"
    assert "reboot" in result.message
    assert "lock, status" in result.message


@pytest.mark.parametrize("arguments", ['{"door":"fro', "[]", "null", '"x"', "", "{}", '{"door":"side"}'])
def test_call_with_bad_arguments_is_invalid_with_the_schema_in_the_message(arguments):
    stage = Stage()
    stage.emit(TurnBegin("t"), call(name="lock", arguments=arguments))
    assert stage.kinds() == ["thinking"]
    ((_, _, result),) = stage.agent.take()
    assert result.code == "INVALID"
    assert '"enum": ["front", "back"]' in result.message


VAULT = {
    "name": "vault",
    "confirm": "voice",
    "confirmWhen": {"state": ["open"]},
    "parameters": {"type": "object", "properties": {"state": {}}},
}


@pytest.mark.parametrize(
    ("arguments", "confirmed", "sent"),
    [({"state": "open"}, False, 0), ({"state": "open"}, True, 1), ({"state": "closed"}, False, 1)],
)
def test_call_that_is_confirmed_by_voice_is_sent_after_a_yes_alone(arguments, confirmed, sent):
    stage = Stage({"tools": [VAULT]})
    stage.emit(TurnBegin("t"), Call("t", "c", "vault", arguments, confirmed))
    assert stage.kinds().count("tool.call") == sent
    if not sent:
        ((_, _, result),) = stage.agent.take()
        assert result.code == "REJECTED"
        assert "plain yes" in result.message


def test_spoken_yes_is_for_one_call_and_not_for_the_next():
    stage = Stage({"tools": [VAULT]})
    yes = Call("t", "c1", "vault", {"state": "open"}, confirmed=True)
    stage.emit(TurnBegin("t"), yes, Call("t", "c2", "vault", {"state": "open"}))
    assert stage.kinds().count("tool.call") == 1
    assert [result.call for _, _, result in stage.agent.take()] == ["c2"]


def test_call_too_large_for_the_device_fails_and_the_next_one_goes_out():
    big = {"name": "big", "parameters": {"type": "object"}}
    stage = Stage({"tools": [big, STATUS], "limits": {"messageBytes": 1024}})
    stage.emit(TurnBegin("t"), call(name="big", arguments={"x": "y" * 2000}), call(key="d"))
    assert [sent["name"] for sent in only(stage.take(), "tool.call")] == ["status"]
    ((_, _, result),) = stage.agent.take()
    assert (result.call, result.code) == ("c", "FAILED")
    assert "1024" in result.message


def test_calls_beyond_the_device_s_queue_wait_for_a_result():
    stage = Stage({"limits": {"queuedCalls": 2}})
    stage.emit(TurnBegin("t"), *(call(key=str(number)) for number in range(4)))
    sent = only(stage.take(), "tool.call")
    assert len(sent) == 2
    stage.say("tool.result", callId=sent[0]["callId"], epoch=1, ok=True, output=None)
    assert stage.kinds() == ["tool.call"]


def test_result_of_a_call_that_still_waits_here_is_ignored():
    stage = Stage({"limits": {"queuedCalls": 1}, "capabilities": ["tool-stream-v1"]})
    stage.emit(TurnBegin("t"), call(), call(key="d"))
    shown = [one["callId"] for one in only(stage.take(), "tool.stream") if one["phase"] == "start"]
    stage.say("tool.result", callId=shown[1], epoch=1, ok=True, output="never asked")
    assert stage.agent.take() == []
    stage.say("tool.result", callId=shown[0], epoch=1, ok=True, output=None)
    assert [one["callId"] for one in only(stage.take(), "tool.call")] == [shown[1]]


def test_call_issued_and_interrupted_while_parked_is_never_sent():
    stage = Stage()
    stage.emit(TurnBegin("t"))
    seen = stage.take()
    stage.park()
    stage.emit(call(), TurnBegin("u"), call("u", "d"))
    stage.connect(seen)
    calls = only(stage.take(), "tool.call")
    assert [one["epoch"] for one in calls] == [stage.manager.epoch]


def test_agent_that_makes_too_many_calls_loses_its_turn():
    stage = Stage(per_turn=3)
    stage.emit(TurnBegin("t"), *(call(key=str(number), name="nobody") for number in range(5)))
    assert stage.kinds() == ["thinking", "error", "interrupted 1 server"]
    results = [entry[2] for entry in stage.agent.take() if entry[0] == "tool_result"]
    assert [(result.call, result.code) for result in results] == [
        *((str(number), "FAILED") for number in range(3)),
        *((str(number), "INTERRUPTED") for number in (3, 4)),
    ]


def test_call_without_a_result_times_out_and_closes_its_epoch():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(name="lock", arguments={"door": "back"}), call(key="d"))
    stage.take()
    stage.run_until(106.9)
    assert stage.kinds() == []
    stage.run_until(107.1)  # 5 s of its own and 2 s more
    assert stage.kinds() == ["interrupted 1 server"]
    told = [(entry[0], getattr(entry[2], "code", None)) for entry in stage.agent.take()]
    assert told == [("tool_result", "TIMEOUT"), ("tool_result", "INTERRUPTED"), ("interrupted", None)]


def test_call_s_time_starts_when_the_one_before_has_its_result():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(), call(key="d", name="lock", arguments={"door": "back"}))
    first = only(stage.take(), "tool.call")[0]["callId"]
    stage.run_until(110)
    stage.say("tool.result", callId=first, epoch=1, ok=True, output=None)
    stage.run_until(116.9)
    assert stage.kinds() == []
    stage.run_until(117.1)
    assert stage.kinds() == ["interrupted 1 server"]


def test_call_s_time_stands_still_while_the_session_is_parked():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(name="lock", arguments={"door": "back"}))
    stage.run_until(104)
    stage.park()
    stage.run_until(120)
    stage.connect()
    stage.run_until(122.9)
    assert stage.kinds() == []
    stage.run_until(123.1)
    assert stage.kinds() == ["interrupted 1 server"]


def test_call_issued_while_parked_has_its_whole_time_after_the_resume():
    stage = Stage()
    stage.emit(TurnBegin("t"))
    stage.park()
    stage.emit(call(name="lock", arguments={"door": "back"}))
    stage.run_until(120)
    stage.connect()
    stage.run_until(126.9)
    assert "interrupted" not in stage.kinds()
    stage.run_until(127.1)
    assert stage.kinds() == ["interrupted 1 server"]


# --- what is shown of a call


def test_previews_show_the_arguments_as_they_are_written():
    stage = Stage()
    stage.emit(
        TurnBegin("t"),
        CallBegin("t", "c", "status"),
        CallDelta("t", "c", "{"),
        CallDelta("t", "c", "}"),
        call(),
    )
    messages = stage.take()
    deltas = only(messages, "tool.call.delta")
    assert [m["preview"] for m in deltas] == [{"argumentsDelta": "{"}, {"argumentsDelta": "}"}]
    assert {m["callId"] for m in deltas} == {only(messages, "tool.call")[0]["callId"]}


STREAMS = {"capabilities": ["tool-stream-v1"]}


def phases(stage):
    return [
        message.get("phase", message["type"])
        for message in stage.take()
        if message["type"] in ("tool.stream", "tool.call", "tool.call.delta")
    ]


def test_tool_stream_goes_from_start_to_settled():
    stage = Stage(STREAMS)
    stage.emit(TurnBegin("t"), CallBegin("t", "c", "status"), CallDelta("t", "c", "{}"), call())
    call_id = stage.link.frames and json.loads(stage.link.frames[-1])["callId"]
    assert phases(stage) == ["start", "arguments-delta", "arguments-complete", "tool.call"]
    stage.say("tool.result", callId=call_id, epoch=1, ok=True, output=None)
    assert phases(stage) == ["settled"]
    stage.say("interrupt", epoch=1, reason="user")
    assert phases(stage) == []


def test_tool_stream_ends_cancelled_when_the_turn_is_interrupted():
    stage = Stage(STREAMS)
    stage.emit(TurnBegin("t"), CallBegin("t", "begun", "status"), call())
    stage.take()
    stage.say("interrupt", epoch=1, reason="user")
    assert phases(stage) == ["cancelled", "cancelled"]


def test_tool_stream_ends_failed_when_the_call_was_never_issued():
    stage = Stage(STREAMS)
    stage.emit(TurnBegin("t"), CallBegin("t", "c", "status"), TurnEnd("t"))
    assert phases(stage) == ["start", "failed"]
    stage.emit(TurnBegin("u"), call("u", name="lock", arguments="{"))
    assert phases(stage) == ["start", "failed"]


def test_tool_stream_of_an_unknown_tool_is_settled():
    stage = Stage(STREAMS)
    stage.emit(TurnBegin("t"), call(name="reboot"))
    assert phases(stage) == ["start", "settled"]


def own(*progress, code=None):
    """A tool of the agent's own at work, from its call to its end."""
    yield OwnCall("t", "w", "search", {"for": "a"})
    yield from (OwnProgress("t", "w", value) for value in progress)
    yield OwnResult("t", "w", code)


def test_tool_stream_of_the_agent_s_own_tool_has_progress_and_no_call():
    stage = Stage(STREAMS)
    stage.emit(TurnBegin("t"), *own({"hits": 1}), OwnProgress("t", "w", "too late"), *own("again"))
    messages = stage.take()
    assert [m["state"] for m in only(messages, "turn.state")] == ["thinking", "acting"]
    streams = only(messages, "tool.stream")
    assert [m["phase"] for m in streams] == ["start", "arguments-complete", "progress", "settled"]
    assert [streams[1]["arguments"], streams[2]["progress"], streams[3]["ok"]] == [
        {"for": "a"},
        {"hits": 1},
        True,
    ]
    assert len({m["callId"] for m in streams}) == 1
    assert only(messages, "tool.call") == []


def test_tool_stream_of_the_agent_s_own_tool_ends_in_every_case():
    stage = Stage(STREAMS)
    stage.emit(TurnBegin("t"), *own(code="FAILED"), OwnCall("t", "x", "search", {}), TurnEnd("t"))
    ends = [m for m in only(stage.take(), "tool.stream") if m["phase"] == "settled"]
    assert [(m["ok"], m["code"]) for m in ends] == [(False, "FAILED"), (False, "FAILED")]
    stage.emit(TurnBegin("u"), OwnCall("u", "y", "search", {}))
    stage.say("interrupt", epoch=2, reason="user")
    assert phases(stage) == ["start", "arguments-complete", "cancelled"]
    stage.emit(OwnResult("u", "y"), OwnProgress("u", "unknown", 1), OwnResult("u", "unknown"))
    assert phases(stage) == []


def test_preview_of_the_agent_s_own_tool_is_its_progress():
    stage = Stage()
    stage.emit(TurnBegin("t"), *own({"hits": 1}, {"hits": 2}))
    deltas = only(stage.take(), "tool.call.delta")
    assert [(m["name"], m["preview"]) for m in deltas] == [("search", {"hits": 1}), ("search", {"hits": 2})]


def test_queue_s_timer_follows_the_first_call():
    queue = CallQueue(window=8)
    queue.thaw(0.0)
    one, two = (PendingCall(name, name, "status", {}, 10.0) for name in "ab")
    for pending in (one, two):
        queue.add(pending)
        queue.sent(queue.next_to_send(), 0.0)
    assert queue.due == 10.0
    assert queue.settle("b", 3.0) is two  # out of order: the first one's time goes on
    assert queue.due == 10.0
    assert queue.settle("b", 3.0) is None
    assert queue.overdue(9.9) is None
    assert queue.overdue(10.0) is one
    queue.settle("a", 10.0)
    assert queue.due is None


def test_queue_s_timer_does_not_start_twice_when_it_is_frozen_twice():
    queue = CallQueue(window=8)
    queue.thaw(0.0)
    queue.add(PendingCall("a", "a", "status", {}, 10.0))
    queue.sent(queue.next_to_send(), 0.0)
    queue.freeze(4.0)
    queue.freeze(8.0)
    queue.thaw(20.0)
    queue.thaw(30.0)
    assert queue.due == 26.0
