"""The Fish facade: turns, words, tools and the end of a session, and each number of the page or its code that belongs to them.

The rooms are fake here; test_facade_fish_rooms.py has real ones. What the facade sends is judged by schema/peers/fish.
"""

import asyncio
import json

import pytest
from fish_client import FakeRoom, answers, serving
from test_guest import LOCK, Brain, board, call
from vrt_host.agents.base import (
    AgentError,
    Audio,
    AudioBegin,
    OwnCall,
    OwnResult,
    Text,
    Transcript,
    TurnBegin,
    TurnEnd,
    TurnState,
)
from vrt_host.errors import AgentStartError
from vrt_host.facades import fish_session, fish_tools, fish_words
from vrt_host.facades.fish_tools import ClientTool
from vrt_host.lending import Lending

SECOND = bytes(48_000)


def emits(*events):
    """A brain's answer."""
    return lambda agent, text: [agent.port.emit(event) for event in events]


def speaks(agent, turn="v", *, words="You have twelve dollars.", seconds=0.2, end=True):
    """A spoken answer."""
    agent.port.emit(TurnBegin(turn))
    agent.port.emit(AudioBegin(turn, "i"))
    agent.port.emit(Transcript(turn, "agent", words, True, "i"))
    agent.port.emit(Audio(turn, "i", bytes(int(seconds * 48_000) // 2 * 2)))
    if end:
        agent.port.emit(TurnEnd(turn))


# --- Transcription and agent state


async def test_there_are_five_states():
    """Page, Transcription and agent state: 5 states; `idle` is what nobody is there for."""
    turn = [TurnBegin("t"), AudioBegin("t", "i"), Audio("t", "i", bytes(960)), TurnEnd("t")]
    async with serving(None, Brain(emits(*turn))) as host:
        room = await host.meet()
        room.send("user.message", text="x")
        await room.gets("state", "listening", count=2)
        room.events.left()
        room.events.arrived()
        states = [what[1] for what in room.sent if what[0] == "state"]
        assert states == [
            "initializing",
            "listening",
            "thinking",
            "speaking",
            "listening",
            "idle",
            "listening",
        ]


async def test_a_tool_is_no_state_of_its_own():
    async with serving(None, Brain(emits(TurnBegin("t"), TurnState("t", "acting"), TurnEnd("t")))) as host:
        room = await host.meet()
        room.send("user.message", text="x")
        await room.gets("state", "listening", count=2)
        assert {what[1] for what in room.sent if what[0] == "state"} == {
            "initializing",
            "thinking",
            "listening",
        }


async def test_what_the_user_says_is_replaced_until_it_is_final_and_typed_words_have_no_echo():
    """Page, Transcription: each interim update replaces the segment; user.message gets no server echo."""

    def hears(agent, text):
        agent.port.emit(TurnBegin("x"))
        agent.port.emit(Transcript("x", "user", text, True))
        agent.port.emit(TurnEnd("x"))
        agent.port.emit(TurnBegin("t", "listening"))
        for words, final in (("lock", False), ("lock the door", True), ("please", True), ("", True)):
            agent.port.emit(Transcript("t", "user", words, final))
        agent.port.emit(TurnEnd("t"))

    async with serving(None, Brain(hears)) as host:
        room = await host.meet()
        room.send("user.message", text="typed")
        await room.gets("said", count=3)
        (first, *one), (second, *two), (third, *three) = [what[1:] for what in room.sent if what[0] == "said"]
        assert [one, two, three] == [["lock", False], ["lock the door", True], ["please", True]]
        assert first == second != third


async def test_a_reply_in_text_alone_is_not_heard_and_does_not_wait():
    """Page, Client events: with "audio": false no speech; the reply arrives over transcription."""
    async with serving(None, Brain(lambda agent, text: speaks(agent, text, seconds=30))) as host:
        room = await host.meet()
        room.send("user.message", text="a", audio=False)
        await room.gets("write", "You have twelve dollars.")
        room.send("user.message", text="b", audio=False)
        await room.gets("write", "You have twelve dollars.", count=2)
        assert room.sound == b""
        assert ("state", "speaking") not in room.sent
        room.send("user.message", text="c")
        await room.gets("state", "speaking")
        await room.until(lambda: room.sound)


async def test_what_the_agent_says_later_of_itself_is_heard_again():
    brain = Brain(answers)
    async with serving(None, brain) as host:
        room = await host.meet()
        room.send("user.message", text="a", audio=False)
        await room.gets("end")
        await room.gets("state", "listening", count=2)
        speaks(brain, end=False)
        brain.port.emit(Transcript("v", "user", "heard", True))
        await room.until(lambda: room.sound)
        await room.gets("said")


async def test_words_come_with_the_sound_that_they_are_spoken_in(monkeypatch):
    """Page, Transcription: paced to audio playback; 0 words are left to come after an interruption."""
    monkeypatch.setattr(fish_words, "TICK_S", 0.01)
    monkeypatch.setattr(fish_words, "PAUSE_S", 1000)
    said = "One two three four five six seven."
    async with serving(None, Brain(lambda agent, text: speaks(agent, words=said, seconds=30))) as host:
        room = await host.meet()
        room.played = 7.0  # by earlier replies
        room.send("user.message", text="x")
        await room.until(lambda: room.sound)
        assert room.words == ""
        room.played += 5.5 / fish_words.CHARS_PER_S
        await room.gets("write")
        assert room.words == "One two "  # which began before 5 characters' time
        room.played += 5.5 / fish_words.CHARS_PER_S
        await room.gets("write", count=2)
        room.send("user.interrupt")
        assert room.words == "One two three |"
        await room.gets("state", "listening", count=2)
        await room.gets("hush")
        room.played += 100
        room.sound = b""
        room.send("user.message", text="y")
        await room.until(lambda: room.sound)
        room.played += 1.5 / fish_words.CHARS_PER_S
        await room.until(lambda: room.words.count("One") == 2)
        assert room.words.startswith("One two three |One")


async def test_words_that_are_left_follow_when_the_sound_has_ended():
    async with serving(None, Brain(lambda agent, text: speaks(agent, seconds=0.1))) as host:
        room = await host.meet()
        room.send("user.message", text="x")
        await room.gets("end")
        assert room.words == "You have twelve dollars.|"


async def test_words_wait_for_no_sound_that_has_paused(monkeypatch):
    monkeypatch.setattr(fish_words, "PAUSE_S", 0)
    said, played = [], [7.0]

    class Out:
        begin = end = lambda self, *_: None

        def write(self, text):
            said.append(text)

    words = fish_words.Words(Out(), lambda: played[0], aloud=True)
    words.spoken("One two three.")
    words.sound()
    words._look()
    assert said == []  # it has not begun to be heard
    played[0] += 0.01
    words._look()
    assert said == ["One two three."]
    words.end()


@pytest.mark.parametrize("first", ["written", "spoken"])
async def test_what_is_both_written_and_spoken_is_told_once(first):
    def both(agent, text):
        agent.port.emit(TurnBegin("t"))
        written = [Text("t", "Twelve.", True)]
        spoken = [
            AudioBegin("t", "i"),
            Transcript("t", "agent", "Twelve!", True, "i"),
            Audio("t", "i", bytes(4800)),
        ]
        for event in written + spoken if first == "written" else spoken + written:
            agent.port.emit(event)
        agent.port.emit(TurnEnd("t"))

    async with serving(None, Brain(both)) as host:
        room = await host.meet()
        room.send("user.message", text="x")
        await room.gets("end")
        assert room.words == "Twelve!|"


async def test_an_agent_that_only_writes_is_read_after_a_while(monkeypatch):
    monkeypatch.setattr(fish_words, "HOLD_S", 0.05)
    brain = Brain(emits(TurnBegin("t"), Text("t", "Well, ")))
    async with serving(None, brain) as host:
        room = await host.meet()
        room.send("user.message", text="x")
        await room.gets("write", "Well, ")
        brain.port.emit(Text("t", "yes."))
        await room.gets("write", "yes.")
        brain.port.emit(TurnEnd("t"))
        await room.gets("end")


async def test_a_turn_without_words_has_no_segment():
    turn = [TurnBegin("t"), AudioBegin("t", "i"), Audio("t", "i", bytes(960)), TurnEnd("t")]
    async with serving(None, Brain(emits(*turn))) as host:
        room = await host.meet()
        room.send("user.message", text="x")
        await room.gets("state", "listening", count=2)
        assert room.words == ""
        assert ("begin",) not in room.sent


async def test_an_interruption_while_nobody_speaks_is_passed_over():
    async with serving(None, Brain(answers)) as host:
        room = await host.meet()
        room.send("user.interrupt")
        room.send("user.message", text="x")
        await room.gets("end")


async def test_sound_waits_while_the_room_takes_no_more():
    async with serving(None, Brain(lambda agent, text: speaks(agent))) as host:
        room = await host.meet()
        room.takes = False
        room.send("user.message", text="x")
        await room.gets("state", "speaking")
        assert room.sound == b""
        room.takes = True
        room.events.roomy()
        await room.until(lambda: len(room.sound) == 9600)


# --- client_tool.call


async def called(host, room, brain, name="open_dashboard", arguments='{"tab": "billing"}'):
    """The agent calls; the client's message."""
    before = len([one for one in room.events_sent if one["type"] == "client_tool.call"])
    brain.port.emit(TurnBegin(f"t{before}"))
    call(brain, name, f"c{before}", arguments)
    return await room.event_of("client_tool.call", before + 1)


async def test_a_client_runs_a_tool_and_its_answer_counts_once(tmp_path):
    """Page, client_tool.call: results for unknown or already-settled calls are ignored."""
    brain = Brain()
    async with serving(None, brain, tmp_path=tmp_path) as host:
        room = await host.meet()
        message = await called(host, room, brain)
        assert message == {
            "type": "client_tool.call",
            "callId": message["callId"],
            "toolName": "open_dashboard",
            "params": {"tab": "billing"},
            "expectsResponse": True,
        }
        for id_, result in (("nobody", 1), (message["callId"], {"opened": True}), (message["callId"], 2)):
            room.send("client_tool.result", callId=id_, result=result)
        await brain.until(lambda: brain.results)
        assert [(one.ok, one.output) for one in brain.results] == [(True, {"opened": True})]
        await room.event_of("tool.completed")
        assert [one["type"] for one in room.events_sent] == [
            "tool.started",
            "client_tool.call",
            "tool.completed",
        ]
        started, _, completed = room.events_sent
        told = {
            "toolName": "open_dashboard",
            "toolSource": "client",
            "nodeId": "main",
            "callId": message["callId"],
        }
        assert told.items() <= started.items()
        assert told.items() <= completed.items()
        assert (started["input"], completed["output"]) == ('{"tab":"billing"}', '{"opened":true}')


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"isError": True, "result": "Tool is not registered"}, "Tool is not registered"),
        ({"isError": True}, "the tool failed"),
        ({"isError": True, "result": {"why": 5}}, '{"why":5}'),
    ],
)
async def test_a_tool_that_fails_is_reported_as_failed(tmp_path, members, message):
    brain = Brain()
    async with serving(None, brain, tmp_path=tmp_path) as host:
        room = await host.meet()
        made = await called(host, room, brain)
        timer = room.events._calls._timer
        room.send("client_tool.result", callId=made["callId"], **members)
        assert timer.cancelled()  # or it would end the next call
        await brain.until(lambda: brain.results)
        assert [(one.ok, one.code, one.message) for one in brain.results] == [(False, "FAILED", message)]
        assert (await room.event_of("tool.failed"))["error"] == message


async def test_a_call_that_is_not_answered_ends_after_30_s(tmp_path):
    """Page, client_tool.call: 30 seconds unless it is configured; 1 end of each start, however late the answer."""
    assert ClientTool(name="a", description="").timeout == 30
    brain = Brain()
    async with serving(None, brain, tmp_path=tmp_path) as host:
        host.facade.tools["slow"] = ClientTool.model_construct(name="slow", description="", timeout=0.05)
        room = await host.meet()
        made = await called(host, room, brain, "slow", "{}")
        await brain.until(lambda: brain.results)
        assert (brain.results[0].code, brain.results[0].message) == ("TIMEOUT", "Timed out")
        assert (await room.event_of("tool.failed"))["error"] == "Timed out"
        room.send("client_tool.result", callId=made["callId"], result=1)
        again = await called(host, room, brain)
        room.send("client_tool.result", callId=again["callId"], result=1)
        await brain.until(lambda: len(brain.results) == 2)
        await room.event_of("tool.completed")
        assert [one["type"] for one in room.events_sent].count("tool.failed") == 1


async def test_a_call_that_expects_no_answer_is_over_at_once(tmp_path):
    """Page, client_tool.call: fire-and-forget; any result is ignored."""
    brain = Brain()
    async with serving(None, brain, tmp_path=tmp_path) as host:
        room = await host.meet()
        made = await called(host, room, brain, "note", "{}")
        assert made["expectsResponse"] is False
        await brain.until(lambda: brain.results)
        room.send("client_tool.result", callId=made["callId"], isError=True)
        assert [(one.ok, one.output) for one in brain.results] == [(True, None)]
        assert (await room.event_of("tool.completed"))["output"] == "null"


async def test_a_call_that_does_not_fit_into_a_packet_is_not_sent(tmp_path):
    """Code, toolDispatcher.ts: a data packet has 64,000 bytes with its envelope."""
    brain = Brain()
    async with serving(None, brain, tmp_path=tmp_path) as host:
        room = await host.meet()
        brain.port.emit(TurnBegin("t"))
        call(brain, "open_dashboard", arguments=json.dumps({"tab": "x" * 59_950}))
        await brain.until(lambda: brain.results)
        assert brain.results[0].message == "the arguments are too large for the client; it was not called"
        await room.event_of("tool.failed")
        assert [one["type"] for one in room.events_sent] == ["tool.started", "tool.failed"]
        made = await called(host, room, brain, arguments=json.dumps({"tab": "x" * 59_000}))
        assert len(made["params"]["tab"]) == 59_000


async def test_an_interruption_ends_the_call_for_both(tmp_path):
    """Page, Tool lifecycle: exactly 1 end of each start."""
    brain = Brain()
    async with serving(None, brain, tmp_path=tmp_path) as host:
        room = await host.meet()
        made = await called(host, room, brain)
        room.send("user.interrupt")
        await brain.until(lambda: brain.results)
        assert brain.results[0].code == "INTERRUPTED"
        room.send("client_tool.result", callId=made["callId"], result=1)
        room.send("user.message", text="x")
        assert [one["type"] for one in room.events_sent] == [
            "tool.started",
            "client_tool.call",
            "tool.failed",
        ]
        assert room.events_sent[2]["error"] == "Interrupted"


async def test_tool_events_false_keeps_three_messages_off_the_wire(tmp_path):
    """Page, Tool lifecycle: the session then receives none of the 3."""
    brain = Brain()
    async with serving(None, brain, tmp_path=tmp_path) as host:
        room = await host.meet(tool_events=False)
        made = await called(host, room, brain)
        room.send("client_tool.result", callId=made["callId"], result=1)
        await brain.until(lambda: brain.results)
        await called(host, room, brain)
        room.send("user.interrupt")
        await brain.until(lambda: len(brain.results) == 2)
        assert {one["type"] for one in room.events_sent} == {"client_tool.call"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 4083, '{"tab":"' + "x" * 4083 + '"}'),  # 4,093 bytes
        ("x" * 4086, '{"tab":"' + "x" * 4086 + '"}'),  # 4,096
        ("x" * 4087, '{"tab":"' + "x" * 4087 + '"'),
        ("ü" * 3000, '{"tab":"' + "ü" * 2044),
    ],
)
async def test_input_and_output_are_cut_at_4_kb(tmp_path, text, shown):
    """Page, Tool lifecycle: 4 KB, here bytes of UTF-8; marked where it is cut."""
    brain = Brain()
    async with serving(None, brain, tmp_path=tmp_path) as host:
        room = await host.meet()
        made = await called(host, room, brain, arguments=json.dumps({"tab": text}))
        room.send("client_tool.result", callId=made["callId"], result={"tab": text})
        started, completed = await room.event_of("tool.started"), await room.event_of("tool.completed")
        assert started["input"] == completed["output"] == shown
        cut = True if len(shown) < len(text) + 10 else None
        assert started.get("inputTruncated") is completed.get("outputTruncated") is cut


async def test_a_failure_that_is_told_at_length_is_cut(tmp_path):
    brain = Brain()
    async with serving(None, brain, tmp_path=tmp_path) as host:
        room = await host.meet()
        made = await called(host, room, brain)
        room.send("client_tool.result", callId=made["callId"], isError=True, result="e" * 5000)
        assert len((await room.event_of("tool.failed"))["error"]) == fish_tools.ERROR_CHARS


async def test_the_agents_own_tools_are_shown():
    turn = [
        TurnBegin("t"),
        OwnCall("t", "a", "search", {"q": 1}),
        OwnCall("t", "b", "search", {"q": 2}),
        OwnResult("t", "b"),
        OwnResult("t", "a", "FAILED"),
        TurnEnd("t"),
    ]
    async with serving(None, Brain(emits(*turn))) as host:
        room = await host.meet()
        room.send("user.message", text="x")
        await room.event_of("tool.failed")
        shown = [
            (one["type"], one.get("input", one.get("output", one.get("error")))) for one in room.events_sent
        ]
        assert shown == [
            ("tool.started", '{"q":1}'),
            ("tool.started", '{"q":2}'),
            ("tool.completed", "null"),
            ("tool.failed", "Failed"),
        ]
        assert {one["toolSource"] for one in room.events_sent} == {"builtin"}


async def test_a_boards_tool_is_called_with_the_boards_own_confirmation_and_shown():
    brains = [Brain(), Brain()]
    async with serving(None, *brains, lending=Lending(["porch"])) as host, host.client() as client:
        await board(client, LOCK)
        room = await host.meet()
        brain = brains[1]
        brain.port.emit(TurnBegin("t"))
        call(brain, "lock")
        asks = await client.until("tool.call")
        assert asks["name"] == "lock"
        await client.send(
            "tool.result", callId=asks["callId"], epoch=asks["epoch"], ok=True, output={"locked": True}
        )
        await brain.until(lambda: brain.results)
        assert brain.results[0].output == {"locked": True}
        completed = await room.event_of("tool.completed")
        assert (completed["toolSource"], completed["output"]) == ("board", '{"locked":true}')
        assert [one["type"] for one in room.events_sent] == ["tool.started", "tool.completed"]


# --- error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AgentError("the model's secret words", turn="t"), "provider_error"),
        (AgentError("too fast", turn="t", code="RATE_LIMITED"), "provider_error"),
        (AgentError("ours", turn="t", code="OVERFLOW"), "internal_error"),
    ],
)
async def test_an_error_is_told_by_its_category_and_the_session_goes_on(error, code):
    """Page, error: 2 codes, and no raw detail."""

    def fails(agent, text):
        if text == "fail":
            emits(TurnBegin("t"), Text("t", "We"), error)(agent, text)
        else:
            answers(agent, text)

    async with serving(None, Brain(fails)) as host:
        room = await host.meet()
        room.send("user.message", text="fail")
        assert await room.event_of("error") == {"type": "error", "code": code}
        await room.gets("state", "listening", count=2)
        room.send("user.message", text="again")
        await room.gets("write", "You said again.")


async def test_an_agent_that_fails_for_good_ends_the_session():
    async with serving(None, Brain(emits(AgentError("x", recoverable=False)))) as host:
        room = await host.meet()
        room.send("user.message", text="x")
        await room.until(lambda: room.closed is not None)
        assert room.events_sent == [
            {"type": "error", "code": "provider_error"},
            {"type": "session.ended", "reason": "agent_hangup"},
        ]


async def test_an_agent_that_does_not_start_is_an_error_of_its_provider():
    class Refuses(Brain):
        async def start(self, session, port):
            raise AgentStartError("the key is wrong")

    async with serving(None, Refuses()) as host:
        room = await host.meet(ready=False)
        await room.until(lambda: room.closed is not None)
        assert [one.get("code", one.get("reason")) for one in room.events_sent] == [
            "provider_error",
            "agent_hangup",
        ]


# --- the end of a session


async def test_a_hangup_ends_the_session_for_all():
    brain = Brain(answers)
    async with serving(None, brain) as host:
        room = await host.meet()
        room.send("user.hangup")
        room.send("user.hangup")
        assert room.events_sent == [{"type": "session.ended", "reason": "user_hangup"}]
        await room.until(lambda: room.closed is False)
        await brain.closed.wait()
        assert (await host.create())[0] == 201


async def test_whoever_does_not_join_in_time_finds_nobody():
    """Page, Connect to a session: expires_at is the join deadline; the agent is gone then."""
    async with serving(None) as host:
        host.facade.options = host.facade.options.model_copy(update={"join_timeout": 0.05})
        await host.create()
        room = FakeRoom.made[-1]
        await room.until(lambda: room.closed is False)
        assert room.events_sent == []


async def test_a_user_who_comes_in_time_stays_and_has_1800_s():
    """Page, Connect to a session: max_duration_seconds."""
    async with serving(None, Brain(answers)) as host:
        host.facade.options = host.facade.options.model_copy(
            update={"join_timeout": 0.05, "max_duration": 0.3}
        )
        room = await host.meet()
        assert (await room.event_of("session.ended"))["reason"] == "conversation_timeout"
        await room.until(lambda: room.closed is True)


async def test_a_user_who_has_gone_may_come_again_within_15_s(monkeypatch):
    """Page, Compatibility rules: 0 messages are told again; here: 15 s."""
    assert fish_session.RETURN_S == 15
    monkeypatch.setattr(fish_session, "RETURN_S", 0.05)
    async with serving(None, Brain(answers)) as host:
        room = await host.meet()
        room.events.left()
        room.events.arrived()
        before = len(room.sent)
        room.send("user.message", text="still me")
        await room.gets("end")
        assert room.words == "You said still me.|"
        assert ("event",) not in [what[:1] for what in room.sent[:before]]
        room.events.left()
        await room.until(lambda: room.closed is False)


async def test_nothing_begins_again_once_a_session_is_over():
    async with serving(None, Brain(answers)) as host:
        room = await host.meet()
        room.send("user.hangup")
        before = len(room.sent)
        room.events.left()
        room.events.arrived()
        room.events.heard(b"\0\0")
        room.send("user.message", text="x")
        assert room.events._opening is None
        assert ("state", "initializing") not in room.sent[before:]


async def test_a_room_that_is_lost_ends_the_session():
    brain = Brain(answers)
    async with serving(None, brain) as host:
        room = await host.meet()
        room.events.lost("ROOM_DELETED")
        await brain.closed.wait()
        await room.until(lambda: room.closed is False)


async def test_a_user_who_leaves_while_the_agent_starts_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr(fish_session, "RETURN_S", 0.01)

    class Slow(Brain):
        async def start(self, session, port):
            await asyncio.Event().wait()

    brain = Slow()
    async with serving(None, brain) as host:
        room = await host.meet(ready=False)
        room.events.left()
        await room.until(lambda: room.closed is False)
    await brain.closed.wait()
