"""The turn manager: turns, epochs, text, interruption, audio and faults."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from turn_stage import FRAME, FakeLink, Stage, call, only, speak, word
from vrt_host.agents.base import (
    AgentError,
    Audio,
    AudioBegin,
    AudioEnd,
    Call,
    CallBegin,
    CallDelta,
    Heard,
    Text,
    Transcript,
    TurnBegin,
    TurnEnd,
    TurnState,
)
from vrt_host.protocol import wire
from vrt_host.session import State

# --- turns and epochs


def test_turn_goes_from_its_first_state_to_idle():
    stage = Stage()
    stage.emit(TurnBegin("t"), Text("t", "hello", final=True), TurnEnd("t"))
    messages = stage.take()
    assert [word(message) for message in messages] == ["thinking", "text", "idle"]
    assert {message["epoch"] for message in messages} == {1}
    assert len({message["turnId"] for message in messages}) == 1
    assert stage.manager.idle


def test_turn_state_is_sent_only_when_it_changes():
    stage = Stage()
    stage.emit(TurnBegin("t"), TurnState("t", "thinking"), TurnState("t", "acting"), TurnState("t", "acting"))
    assert stage.kinds() == ["thinking", "acting"]


def test_turn_begun_twice_is_begun_once():
    stage = Stage()
    stage.emit(TurnBegin("t"), TurnBegin("t"))
    assert stage.kinds() == ["thinking"]
    assert stage.manager.epoch == 1


def test_epoch_rises_at_a_start_and_at_an_interruption():
    stage = Stage()
    stage.emit(TurnBegin("t"))
    stage.say("interrupt", epoch=1, reason="user")
    assert stage.manager.epoch == 2
    stage.emit(TurnBegin("u"))
    assert [(word(m), m["epoch"]) for m in stage.take()] == [
        ("thinking", 1),
        ("interrupted 1 user", 1),
        ("thinking", 3),
    ]


def test_events_of_a_turn_that_never_began_are_dropped():
    stage = Stage()
    stage.emit(
        Text("t", "x"), TurnState("t", "acting"), *speak("t", 1), CallBegin("t", "c", "status"), TurnEnd("t")
    )
    assert stage.kinds() == []


def test_events_of_an_interrupted_turn_are_dropped_also_when_they_were_queued_before():
    stage = Stage()
    stage.emit(TurnBegin("t"))
    stage.take()
    stage.manager.emit(Text("t", "said before the interruption arrived"))
    stage.say("interrupt", epoch=1, reason="user")
    assert stage.kinds() == ["text", "interrupted 1 user"]
    stage.emit(Text("t", "late"), TurnState("t", "speaking"), *speak("t", 1), TurnEnd("t"))
    assert stage.kinds() == []


def test_events_of_an_ended_turn_are_dropped_while_its_audio_plays():
    stage = Stage()
    stage.emit(TurnBegin("t"), *speak("t", 1), TurnEnd("t"), Text("t", "late"))
    assert "text" not in stage.kinds()


def test_id_of_a_turn_says_nothing_of_the_agent_s_key():
    stage = Stage()
    stage.emit(TurnBegin("secret-turn"))
    assert "secret" not in json.dumps(stage.take())


def test_idle_waits_for_the_last_sample():
    stage = Stage()
    stage.emit(TurnBegin("t"), *speak("t", 0.1), TurnEnd("t"))
    assert "idle" not in stage.kinds()
    assert not stage.manager.idle
    stage.run_until(100.099)
    assert stage.kinds() == []
    stage.run_until(100.101)
    assert stage.kinds() == ["idle"]
    assert stage.manager.deadline(stage.now) is None


def test_idle_waits_for_the_calls():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(), TurnEnd("t"))
    messages = stage.take()
    assert [word(m) for m in messages] == ["thinking", "acting", "tool.call"]
    stage.say("tool.result", callId=messages[-1]["callId"], epoch=1, ok=True, output=None)
    assert stage.kinds() == ["idle"]


def test_turn_that_waits_for_a_call_asks_for_no_tick_before_its_deadline():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(), TurnEnd("t"))
    assert stage.manager.deadline(stage.now) == 132.0


def test_agent_may_go_on_in_an_ended_turn_from_inside_tool_result():
    stage = Stage()
    stage.agent.answers["tool_result"] = lambda turn, result: stage.manager.emit(TurnState(turn, "thinking"))
    stage.emit(TurnBegin("t"), call(), TurnEnd("t"))
    call_id = stage.take()[-1]["callId"]
    stage.say("tool.result", callId=call_id, epoch=1, ok=True, output=None)
    stage.emit(Text("t", "done", final=True), TurnEnd("t"))
    assert stage.kinds() == ["thinking", "text", "idle"]


def test_agent_may_speak_in_an_ended_turn_while_a_call_is_open():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(), TurnEnd("t"), Text("t", "please hold the button"))
    assert stage.kinds()[-1] == "text"


# --- text


def test_text_and_transcripts_carry_their_turn():
    stage = Stage()
    stage.emit(
        TurnBegin("t", "listening"),
        Transcript("t", "user", "open", False),
        Transcript("t", "user", "open the door", True),
        AudioBegin("t", "i"),
        Transcript("t", "agent", "which one", True, "i"),
        Audio("t", "i", FRAME),
    )
    messages = stage.take()
    transcripts = only(messages, "transcript")
    assert [(m["role"], m["text"], m["final"]) for m in transcripts] == [
        ("user", "open", False),
        ("user", "open the door", True),
        ("agent", "which one", True),
    ]
    assert {(m["turnId"], m["epoch"]) for m in transcripts} == {(messages[0]["turnId"], 1)}
    assert transcripts[2]["itemId"] == only(messages, "audio.start")[0]["itemId"]
    assert "itemId" not in transcripts[0]


def test_empty_text_is_sent_only_to_end_one():
    stage = Stage()
    stage.emit(TurnBegin("t"), Text("t", ""), Text("t", "", final=True))
    assert [m["final"] for m in only(stage.take(), "text")] == [True]


@pytest.mark.parametrize("letter", ["a", "é", "\U0001f600", '"', "\x01"])
def test_text_too_long_for_the_device_is_split(letter):
    stage = Stage({"limits": {"messageBytes": 512}})
    text = letter * 1000
    stage.emit(TurnBegin("t"), Text("t", text, final=True), Transcript("t", "agent", text, True))
    frames = [frame for frame in stage.link.frames if isinstance(frame, str)]
    assert max(wire.size(frame) for frame in frames) <= 512
    messages = stage.take()
    for kind in ("text", "transcript"):
        parts = only(messages, kind)
        assert "".join(part["text"] for part in parts) == text
        assert [part["final"] for part in parts] == [False] * (len(parts) - 1) + [True]


def test_user_transcript_too_long_for_the_device_is_cut_and_marked():
    stage = Stage({"limits": {"messageBytes": 512}})
    stage.emit(TurnBegin("t"), Transcript("t", "user", "é" * 1000, True))
    (message,) = only(stage.take(), "transcript")
    assert message["text"].endswith("é…")
    assert len(message["text"]) > 50


# --- interruption


def test_interrupt_closes_the_epoch_and_settles_each_call_once():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(key="one"), call(key="two"))
    ids = [m["callId"] for m in only(stage.take(), "tool.call")]
    stage.say("interrupt", epoch=1, reason="keyboard")
    assert stage.kinds() == ["interrupted 1 keyboard"]
    told = stage.agent.take()
    assert [(entry[0], entry[2].call, entry[2].code) for entry in told[:2]] == [
        ("tool_result", "one", "INTERRUPTED"),
        ("tool_result", "two", "INTERRUPTED"),
    ]
    assert told[2:] == [("interrupted", "t", [])]
    for call_id in ids:
        stage.say("tool.result", callId=call_id, epoch=1, ok=False, code="INTERRUPTED", message="")
        stage.say("tool.result", callId=call_id, epoch=1, ok=True, output="too late")
    assert stage.agent.take() == []


def test_interrupt_without_a_response_does_nothing():
    stage = Stage()
    stage.say("interrupt", epoch=0, reason="user")
    stage.emit(TurnBegin("t"), TurnEnd("t"))
    stage.take()
    stage.say("interrupt", epoch=1, reason="user")
    assert stage.kinds() == []
    assert stage.manager.epoch == 1
    assert stage.agent.take() == []


def test_interrupt_of_an_older_epoch_leaves_a_newer_response_alone():
    stage = Stage()
    stage.emit(TurnBegin("t"))
    stage.say("interrupt", epoch=1, reason="user")
    stage.emit(TurnBegin("u"))
    stage.take()
    stage.say("interrupt", epoch=1, reason="user")
    stage.say("interrupt", epoch=2, reason="user")
    assert stage.kinds() == []
    stage.say("interrupt", epoch=3, reason="user")
    assert stage.kinds() == ["interrupted 3 user"]


def test_interrupt_above_the_current_epoch_closes_only_the_current_one():
    stage = Stage()
    stage.emit(TurnBegin("t"))
    stage.say("interrupt", epoch=4_000_000_000, reason="user")
    assert stage.kinds() == ["thinking", "interrupted 1 user"]
    stage.emit(TurnBegin("u"), Text("u", "alive"))
    assert stage.kinds() == ["thinking", "text"]


def test_speech_that_the_agent_detects_interrupts():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(), *speak("t", 1))
    stage.take()
    stage.emit(TurnBegin("u", "listening"))
    assert stage.kinds() == ["interrupted 1 speech", "listening"]


def test_turn_that_was_complete_when_the_next_began_was_not_interrupted():
    stage = Stage()
    stage.emit(TurnBegin("t"), Text("t", "hello", final=True), TurnEnd("t"), TurnBegin("u"))
    assert stage.kinds() == ["thinking", "text", "idle", "thinking"]


def test_turn_that_the_agent_begins_interrupts_for_no_user_s_reason():
    stage = Stage()
    stage.emit(TurnBegin("t"), TurnBegin("u"))
    assert stage.kinds() == ["thinking", "interrupted 1 server", "thinking"]


def test_text_of_the_client_interrupts_before_the_agent_hears_of_it():
    stage = Stage()
    stage.agent.answers["user_text"] = lambda text: stage.manager.emit(TurnBegin("u"))
    stage.emit(TurnBegin("t"), call())
    stage.take()
    stage.say("text", text="stop that")
    assert stage.kinds() == ["interrupted 1 user", "thinking"]
    assert [entry[0] for entry in stage.agent.take()] == ["tool_result", "interrupted", "user_text"]


def test_error_of_the_agent_in_a_turn_ends_the_turn():
    stage = Stage()
    stage.emit(TurnBegin("t"), call())
    stage.take()
    stage.emit(AgentError("the model is gone", turn="t"))
    messages = stage.take()
    assert [word(m) for m in messages] == ["error", "interrupted 1 server"]
    assert (messages[0]["code"], messages[0]["recoverable"]) == ("AGENT_ERROR", True)
    assert [entry[0] for entry in stage.agent.take()] == ["tool_result", "interrupted"]


def test_error_of_the_agent_in_a_dead_turn_is_dropped():
    stage = Stage()
    stage.emit(AgentError("late", turn="t"), AgentError("late", recoverable=False, turn="t"))
    assert stage.kinds() == []


def test_error_of_the_agent_without_a_turn_leaves_the_turn_alone():
    stage = Stage()
    stage.emit(TurnBegin("t"), AgentError("hm", code="MODEL_SLOW"), TurnEnd("t"))
    assert stage.kinds() == ["thinking", "error", "idle"]


def test_error_with_a_code_that_vrt_does_not_know_the_form_of_has_ours():
    stage = Stage()
    stage.emit(AgentError("hm", code="rate limit"))
    assert only(stage.take(), "error")[0]["code"] == "AGENT_ERROR"


def test_error_that_is_not_recoverable_ends_the_session():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(), AgentError("broken", recoverable=False))
    messages = stage.take()
    assert only(messages, "error")[0]["recoverable"] is False
    assert stage.link.closed.code == 1011
    assert stage.session.state is State.CLOSED
    assert [entry[0] for entry in stage.agent.take()] == ["tool_result", "interrupted"]
    stage.emit(TurnBegin("u"))
    assert stage.kinds() == []


# --- what was heard


def test_playback_before_the_interrupt_is_what_was_heard():
    stage = Stage()
    stage.emit(TurnBegin("t"), *speak("t", 2))
    item = only(stage.take(), "audio.start")[0]["itemId"]
    stage.run_until(100.5)
    stage.say("playback", itemId=item, playedMs=312.5)
    stage.say("interrupt", epoch=1, reason="speech")
    assert stage.agent.take() == [("interrupted", "t", [Heard("i", 312)])]


def test_playback_is_clamped_to_what_was_sent():
    stage = Stage()
    stage.emit(TurnBegin("t"), *speak("t", 0.1))
    item = only(stage.take(), "audio.start")[0]["itemId"]
    stage.say("playback", itemId=item, playedMs=99_999)
    stage.say("interrupt", epoch=1, reason="speech")
    assert stage.agent.take() == [("interrupted", "t", [Heard("i", 100)])]


def test_playback_counts_once_and_only_of_known_items():
    stage = Stage()
    stage.emit(TurnBegin("t"), *speak("t", 1))
    item = only(stage.take(), "audio.start")[0]["itemId"]
    stage.say("playback", itemId="nobody", playedMs=10)
    stage.say("playback", itemId=item, playedMs=40)
    stage.say("playback", itemId=item, playedMs=80)
    stage.say("interrupt", epoch=1, reason="speech")
    assert stage.agent.take() == [("interrupted", "t", [Heard("i", 40)])]


def test_interruption_waits_for_playback_and_holds_back_what_the_client_says():
    stage = Stage()
    stage.emit(TurnBegin("t"), *speak("t", 2))
    item = only(stage.take(), "audio.start")[0]["itemId"]
    stage.run_until(100.2)
    stage.say("text", text="stop")
    stage.say("context", context={"a": 1})
    assert only(stage.take(), "interrupted")  # the device is told at once
    assert stage.agent.take() == []
    stage.now = 100.25
    stage.say("playback", itemId=item, playedMs=180)
    assert stage.agent.take() == [
        ("interrupted", "t", [Heard("i", 180)]),
        ("user_text", "stop"),
        ("context", {"a": 1}),
    ]


def test_interruption_takes_the_clock_when_playback_does_not_come():
    stage = Stage()
    stage.emit(TurnBegin("t"), *speak("t", 2))
    stage.run_until(100.2)
    stage.say("text", text="stop")
    stage.run_until(100.49)
    assert stage.agent.take() == []
    stage.run_until(100.51)
    assert stage.agent.take() == [("interrupted", "t", [Heard("i", 200)]), ("user_text", "stop")]


def test_interruption_waits_for_nothing_when_all_was_heard_or_nothing_was_sent():
    stage = Stage()
    stage.emit(TurnBegin("t"), *speak("t", 0.1))
    stage.run_until(101)
    stage.say("interrupt", epoch=1, reason="user")
    assert stage.agent.take() == [("interrupted", "t", [Heard("i", 100)])]
    stage.emit(TurnBegin("u"), AudioBegin("u", "j"))
    stage.say("interrupt", epoch=3, reason="user")
    assert stage.agent.take() == [("interrupted", "u", [])]


def test_interruption_waits_for_nothing_when_the_agent_cannot_truncate():
    stage = Stage(interruption="cancel")
    stage.emit(TurnBegin("t"), *speak("t", 2))
    stage.say("interrupt", epoch=1, reason="user")
    assert [entry[0] for entry in stage.agent.take()] == ["interrupted"]


def test_second_interruption_does_not_wait_for_the_first():
    stage = Stage()
    stage.emit(TurnBegin("t"), *speak("t", 2))
    stage.say("text", text="one")
    stage.emit(TurnBegin("u", "listening"))
    stage.say("text", text="two")
    assert [entry[:2] for entry in stage.agent.take()] == [
        ("interrupted", "t"),
        ("user_text", "one"),
        ("interrupted", "u"),
        ("user_text", "two"),
    ]


def test_client_that_floods_a_waiting_interruption_ends_the_wait():
    stage = Stage(held=3)
    stage.emit(TurnBegin("t"), *speak("t", 2))
    for number in range(4):
        stage.say("context", context=number) if number else stage.say("text", text="x")
    assert [entry[0] for entry in stage.agent.take()] == [
        "interrupted",
        "user_text",
        "context",
        "context",
        "context",
    ]


# --- audio


def test_audio_is_announced_cut_and_paced():
    stage = Stage()
    stage.emit(TurnBegin("t"), *speak("t", 1.0), AudioEnd("t", "i"), TurnEnd("t"))
    messages = stage.take()
    assert [word(m) for m in messages] == ["thinking", "speaking", "audio.start"] + ["a"] * 30
    assert {len(m) for m in messages if isinstance(m, bytes)} == {160}
    start = messages[2]
    assert (start["epoch"], start["turnId"]) == (1, messages[0]["turnId"])
    stage.run_until(100.1)
    assert stage.kinds() == ["a"] * 5
    stage.run_until(102)
    assert stage.kinds() == ["a"] * 15 + ["idle"]


def test_audio_of_an_interrupted_turn_is_forgotten():
    stage = Stage()
    stage.emit(TurnBegin("t"), *speak("t", 5))
    stage.take()
    stage.say("interrupt", epoch=1, reason="user")
    stage.run_until(110)
    assert stage.kinds() == ["interrupted 1 user"]
    stage.emit(TurnBegin("u"), *speak("u", 0.02))
    assert stage.kinds() == ["thinking", "speaking", "audio.start", "a"]


def test_audio_outside_of_an_item_is_dropped():
    stage = Stage()
    stage.emit(
        TurnBegin("t"),
        Audio("t", "i", FRAME),
        AudioBegin("t", "i"),
        AudioEnd("t", "i"),
        Audio("t", "i", FRAME),
    )
    assert stage.kinds() == ["thinking"]


def test_audio_goes_on_under_a_new_item_after_a_resume():
    stage = Stage()
    stage.emit(TurnBegin("t"), *speak("t", 2), TurnEnd("t"))
    first = only(stage.take(), "audio.start")[0]["itemId"]
    stage.run_until(100.2)
    before = len(stage.take())
    stage.park()
    stage.run_until(105)
    stage.link = FakeLink()
    assert stage.session.bind(stage.link, stage.session.outbox.last, stage.now)
    stage.tick()
    messages = stage.take()
    assert [word(m) for m in messages] == ["ready", "audio.start"] + ["a"] * 30
    second = messages[1]["itemId"]
    assert second != first
    stage.run_until(106)
    stage.say("playback", itemId=second, playedMs=500)
    stage.say("interrupt", epoch=1, reason="user")
    sent_before = 30 + before
    assert stage.agent.take() == [("interrupted", "t", [Heard("i", sent_before * 20 + 500)])]


def test_audio_waits_while_the_link_has_no_room():
    room = [3]

    def admit(seconds):
        room[0] -= 1
        return room[0] >= 0

    stage = Stage(admit=admit)
    stage.emit(TurnBegin("t"), *speak("t", 1))
    assert stage.kinds().count("a") == 3
    assert stage.manager.deadline(stage.now) > stage.now + 10  # only the watch over the agent is left
    room[0] = 1
    stage.tick()
    assert stage.kinds() == ["a"]


def test_agent_too_far_ahead_loses_its_turn():
    stage = Stage(agent_audio_s=2.0)
    stage.emit(TurnBegin("t"), *speak("t", 3))
    assert stage.kinds() == ["thinking", "speaking", "error", "interrupted 1 server"]


def test_agent_that_begins_too_many_items_loses_its_turn():
    stage = Stage(per_turn=3)
    stage.emit(TurnBegin("t"), *(AudioBegin("t", str(number)) for number in range(4)))
    assert stage.kinds() == ["thinking", "error", "interrupted 1 server"]


# --- faults


def test_agent_that_raises_ends_its_session(caplog):
    stage = Stage()

    def fail(*args):
        raise RuntimeError("a bug")

    stage.agent.answers["user_text"] = fail
    stage.say("text", text="x")
    (error,) = only(stage.take(), "error")
    assert (error["code"], error["recoverable"]) == ("AGENT_ERROR", False)
    assert "a bug" not in error["message"]
    assert "a bug" in caplog.text
    assert stage.session.state is State.CLOSED


def test_agent_that_raises_when_it_is_interrupted_ends_its_session():
    stage = Stage()

    def fail(*args):
        raise RuntimeError("a bug")

    stage.agent.answers["interrupted"] = fail
    stage.emit(TurnBegin("t"))
    stage.say("interrupt", epoch=1, reason="user")
    assert stage.session.state is State.CLOSED


def test_agent_that_emits_without_end_ends_its_session():
    stage = Stage(events=50)
    for _ in range(51):
        stage.manager.emit(TurnState("t", "thinking"))
    stage.tick()
    assert stage.kinds() == ["error"]
    assert stage.session.state is State.CLOSED


def test_agent_that_answers_every_result_with_another_call_gives_way():
    stage = Stage()
    count = [0]

    def again(turn, result):
        count[0] += 1
        stage.manager.emit(call(turn, f"again-{count[0]}", name="unknown"))

    stage.agent.answers["tool_result"] = again
    stage.emit(TurnBegin("t"), call(name="unknown"))
    assert count[0] == 1
    assert stage.manager.pending
    stage.tick()
    assert count[0] == 2


def test_agent_that_falls_silent_is_given_up():
    stage = Stage(agent_silence=30.0)
    stage.emit(TurnBegin("t"), *speak("t", 1))
    stage.run_until(130.9)
    assert "error" not in stage.kinds()
    stage.run_until(131.1)
    assert stage.kinds() == ["error", "interrupted 1 server"]


def test_agent_may_be_silent_while_a_call_is_open():
    stage = Stage(agent_silence=2.0)
    stage.emit(TurnBegin("t"), call())
    stage.run_until(130)
    assert "error" not in stage.kinds()


def test_agent_that_never_stops_listening_is_given_up():
    stage = Stage(agent_silence=30.0)
    stage.emit(TurnBegin("t", "listening"))
    stage.run_until(131)
    assert stage.kinds() == ["listening", "error", "interrupted 1 server"]


# --- the end


def test_stop_interrupts_the_response():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(), *speak("t", 2))
    stage.take()
    stage.manager.stop(stage.now)
    assert stage.kinds() == ["interrupted 1 server"]
    assert [entry[0] for entry in stage.agent.take()] == ["tool_result", "interrupted"]


def test_close_settles_what_is_open_and_sends_nothing():
    stage = Stage()
    stage.emit(TurnBegin("t"), call(), *speak("t", 2))
    stage.take()
    stage.session.close()
    assert [entry[0] for entry in stage.agent.take()] == ["tool_result", "interrupted"]
    stage.emit(Text("t", "x"))
    stage.say("text", text="x")
    assert stage.kinds() == []
    assert stage.agent.take() == []


def test_emit_wakes_once_until_the_next_tick():
    stage = Stage()
    before = stage.wakes
    stage.manager.emit(TurnBegin("t"))
    stage.manager.emit(TurnEnd("t"))
    assert stage.wakes == before + 1
    assert not stage.manager.idle
    stage.tick()
    assert stage.manager.idle


def test_event_log_is_told_of_turns_and_calls():
    stage = Stage()
    stage.emit(TurnBegin("t"), call())
    stage.say("interrupt", epoch=1, reason="user")
    names = [name for name, _ in stage.notes]
    assert names == [
        "turn.state",
        "turn.state",
        "call.sent",
        "call.settled",
        "turn.interrupted",
        "turn.heard",
    ]


def test_audio_of_the_user_reaches_the_agent_unchanged():
    stage = Stage()
    stage.manager.audio(b"\x01\x02")
    assert stage.agent.take() == [("user_audio", b"\x01\x02")]


# --- any order of events


KEYS = st.sampled_from(["t1", "t2", "t3"])
CALLS = st.sampled_from(["c1", "c2", "c3"])
ITEMS = st.sampled_from(["i1", "i2"])
AGENT_EVENTS = st.one_of(
    st.builds(TurnBegin, KEYS, st.sampled_from(["listening", "thinking"])),
    st.builds(TurnState, KEYS, st.sampled_from(["thinking", "acting", "speaking"])),
    st.builds(TurnEnd, KEYS),
    st.builds(Text, KEYS, st.text(max_size=5), st.booleans()),
    st.builds(AudioBegin, KEYS, ITEMS),
    st.builds(Audio, KEYS, ITEMS, st.binary(max_size=2000), st.booleans()),
    st.builds(AudioEnd, KEYS, ITEMS),
    st.builds(CallBegin, KEYS, CALLS, st.just("status")),
    st.builds(CallDelta, KEYS, CALLS, st.text(max_size=5)),
    st.builds(
        Call,
        KEYS,
        CALLS,
        st.sampled_from(["status", "lock", "nobody"]),
        st.sampled_from(["{}", "{", '{"door":"back"}']),
    ),
    st.builds(AgentError, st.just("hm"), st.just(True), st.one_of(st.none(), KEYS)),
)
STEPS = st.one_of(
    AGENT_EVENTS,
    st.tuples(st.just("interrupt"), st.integers(0, 12)),
    st.tuples(st.just("text"), st.text(max_size=3)),
    st.tuples(st.just("playback"), st.integers(0, 900)),
    st.tuples(st.just("result"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([0.02, 0.3, 1.0, 8.0])),
    st.tuples(st.just("cut"), st.just(None)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=40), st.booleans())
def test_whatever_happens_the_rules_of_turns_hold(steps, streams):
    stage = Stage({"capabilities": ["tool-stream-v1"]} if streams else None)
    log, issued, items = [], [], []

    def look():
        for message in stage.take():
            log.append(message)
            if isinstance(message, dict) and message["type"] == "tool.call":
                issued.append(message)
            if isinstance(message, dict) and message["type"] == "audio.start":
                items.append(message["itemId"])

    for step in steps:
        if not isinstance(step, tuple):
            stage.emit(step)
        elif step[0] == "interrupt":
            stage.say("interrupt", epoch=step[1], reason="user")
        elif step[0] == "text":
            stage.say("text", text=step[1])
        elif step[0] == "playback" and items:
            stage.say("playback", itemId=items[-1], playedMs=step[1])
        elif step[0] == "result" and issued:
            done = issued.pop(0)
            outcome = {"ok": True, "output": 1} if step[1] else {"ok": False, "code": "FAILED", "message": ""}
            stage.say("tool.result", callId=done["callId"], epoch=done["epoch"], **outcome)
        elif step[0] == "wait":
            stage.run_until(stage.now + step[1])
        elif step[0] == "cut":
            look()
            stage.park()
            stage.run_until(stage.now + 0.5)
            missed = stage.session.outbox.last
            stage.connect(seen=log)
            assert stage.session.outbox.last >= missed
        look()
    stage.run_until(stage.now + 1000)  # longer than any limit
    look()

    assert stage.manager.idle
    assert stage.manager.deadline(stage.now) is None
    check_rules(log)
    told = [
        (turn, result.call) for name, turn, result in (e for e in stage.agent.told if e[0] == "tool_result")
    ]
    assert len(told) == len(set(told))
    called = {(step.turn, step.call) for step in steps if isinstance(step, Call)}
    assert set(told) == called  # each call has exactly one result, whatever became of it
    interrupted = [
        message for message in log if isinstance(message, dict) and message["type"] == "interrupted"
    ]
    assert len(interrupted) == len([entry for entry in stage.agent.told if entry[0] == "interrupted"])
    typed = [step[1] for step in steps if isinstance(step, tuple) and step[0] == "text"]
    assert [entry[1] for entry in stage.agent.told if entry[0] == "user_text"] == typed


def check_rules(log):
    """What holds for every stream of server messages (§6, decisions 13, 15)."""
    closed = epoch = 0
    open_item = None
    ids = set()
    for message in log:
        if isinstance(message, bytes):
            assert open_item is not None
            assert open_item > closed
            continue
        kind = message["type"]
        if "epoch" in message:
            assert message["epoch"] >= epoch or kind == "interrupted"
            epoch = max(epoch, message["epoch"])
        if kind == "ready":
            open_item = None
        elif kind == "interrupted":
            assert message["epoch"] > closed
            closed = message["epoch"]
        elif kind == "audio.start":
            assert message["epoch"] > closed
            assert message["itemId"] not in ids
            ids.add(message["itemId"])
            open_item = message["epoch"]
        elif kind in ("turn.state", "text", "tool.call", "tool.call.delta"):
            assert message["epoch"] > closed
            if message.get("state") == "idle":
                closed = max(closed, message["epoch"])  # nothing more of it
    numbers = [message["seq"] for message in log if isinstance(message, dict) and message["seq"]]
    assert numbers == list(range(1, len(numbers) + 1))
    check_streams(
        [message for message in log if isinstance(message, dict) and message["type"] == "tool.stream"]
    )


def check_streams(messages):
    """The lifecycle of §7.5."""
    phases = {}
    for message in messages:
        phases.setdefault(message["callId"], []).append(message["phase"])
    for seen in phases.values():
        assert seen[0] == "start"
        assert seen[-1] in ("settled", "cancelled", "failed")
        middle = seen[1:-1]
        assert middle == sorted(middle, key=["arguments-delta", "arguments-complete"].index)
        assert middle.count("arguments-complete") <= 1
