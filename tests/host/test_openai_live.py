"""agents/openai_live.py and what it is made of: turns out of a stream of sound, a cushion, a backend; and sessions with the peer."""

import base64
import json
from pathlib import Path

import pytest
import pytest_asyncio
from agent_stage import answering, logged, started
from peers.plan import quiet, tone
from peers.process import PeerProcess
from pydantic import SecretStr
from vrt_host.agents import registry
from vrt_host.agents.base import (
    PCM16_24K,
    PCMU,
    AgentError,
    Audio,
    AudioEnd,
    Call,
    Heard,
    Tool,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
)
from vrt_host.agents.model_tools import ToolNames
from vrt_host.agents.openai_duplex import Duplex
from vrt_host.agents.openai_jitter import Jitter, loud
from vrt_host.agents.openai_live import LiveAgent, Options
from vrt_host.agents.options import load
from vrt_host.agents.provider import ProviderError
from vrt_host.errors import AgentStartError, UsageError

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = Path(__file__).parents[2] / "docs" / "agents" / "openai_live.md"
KEY = "a-secret-that-nobody-may-see"
GONE = ProviderError("gone", "the server closed the connection")
CHUNK_S = 0.04
LOUD, STILL = tone(CHUNK_S, "pcmu", 8000), quiet(CHUNK_S, "pcmu", 8000)


class Clock:
    """Time that a test moves, and what is to be done then."""

    def __init__(self):
        self.now = 100.0
        self._due = []

    def later(self, seconds, work):
        self._due.append((self.now + seconds, work))

    def passes(self, seconds):
        end = self.now + seconds
        while self._due and min(self._due, key=lambda one: one[0])[0] <= end + 1e-9:
            self._due.sort(key=lambda one: one[0])
            self.now, work = self._due.pop(0)
            work()
        self.now = end


class Stage:
    """A Live model's stream, played to a `Duplex`."""

    def __init__(self, format_=PCMU):
        self.clock = Clock()
        self.events, self._sent, self.told, self.noted = [], [], [], []
        self.duplex = Duplex(
            self.events.append,
            ToolNames([Tool("lock")]),
            format_,
            0.06,
            0.6,
            now=lambda: self.clock.now,
            later=self.clock.later,
            told=lambda error, turn: self.told.append((error.kind, turn)),
            noted=lambda error: self.noted.append(error.said),
        )
        self.duplex.ready(self._sent.append)

    def sent(self, *kinds):
        sent, self._sent[:] = list(self._sent), []
        return [one for one in sent if not kinds or one["type"] in kinds]

    def again(self):
        self.duplex.opening()
        self.duplex.ready(self._sent.append)

    def sounds(self, seconds, chunk=LOUD):
        for _ in range(round(seconds / CHUNK_S)):
            self.duplex.audio(chunk)
            self.clock.passes(CHUNK_S)
            self.duplex.tick()

    def silent(self, seconds):
        self.sounds(seconds, STILL)

    def hear(self, kind, **members):
        self.duplex.feed({"type": kind, "event_id": "e", **members})

    def user(self, words):
        self.hear("session.input_transcript.delta", delta=words, start_ms=0, end_ms=0)

    def says(self, words):
        self.hear("session.output_transcript.delta", delta=words, start_ms=0, end_ms=0)

    def backend(self, kind, delegation=None, **members):
        event = {"type": f"response.{kind}", **members}
        self.hear("response.event", event=event, delegation_id=delegation)

    def delegates(self, id_="d1"):
        self.hear("session.delegation.created", delegation={"id": id_, "target": "responses"}, offset_ms=0)
        self.backend("created", id_)

    def calls(self, *ids, delegation=None):
        for id_ in ids:
            item = {"id": f"i{id_}", "type": "function_call", "call_id": id_, "name": "lock"}
            self.backend("output_item.added", delegation, item={**item, "arguments": ""})
            self.backend("function_call_arguments.delta", delegation, item_id=item["id"], delta="{}")
            self.backend("output_item.done", delegation, item={**item, "arguments": "{}"})

    def all(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def heard_s(self, turn):
        return sum(len(one.payload) for one in self.all(Audio) if one.turn == turn) / 8000


@pytest.fixture(name="stage")
def a_stage():
    return Stage()


# --- turns out of a stream


async def test_voice_is_a_turn_until_it_is_silent(stage):
    stage.silent(1)
    assert stage.events == []
    stage.says("Good day.")
    stage.sounds(1)
    stage.silent(0.4)
    stage.sounds(1)
    assert stage.all(TurnEnd) == []
    stage.silent(0.7)
    assert len(stage.all(TurnBegin)) == len(stage.all(AudioEnd)) == len(stage.all(TurnEnd)) == 1
    assert 2.0 <= stage.heard_s("turn-1") <= 2.2, "a silence is not played but for its beginning"
    assert [one.text for one in stage.all(Transcript)] == ["Good day.", ""]
    stage.sounds(0.2)
    assert len(stage.all(TurnBegin)) == 2


async def test_users_words_begin_a_turn_and_the_answer_belongs_to_it(stage):
    stage.user(" Good")
    stage.user(" day")
    stage.silent(2)
    stage.sounds(0.4)
    stage.silent(0.7)
    assert stage.all(TurnBegin) == [TurnBegin("turn-1", "listening")]
    said = [one for one in stage.all(Transcript) if one.role == "user"]
    assert [(one.text, one.final) for one in said] == [
        ("Good", False),
        ("Good day", False),
        ("Good day", True),
    ]
    assert stage.all(TurnEnd) == [TurnEnd("turn-1")]


async def test_words_are_complete_when_no_more_come(stage):
    """What a confirmation by voice waits for: "yes" alone is another answer than "yes, but"."""
    stage.user("Yes")
    stage.silent(0.8)
    stage.user(" but not yet")
    assert not [one for one in stage.all(Transcript) if one.final]
    stage.silent(1.2)
    assert [one.text for one in stage.all(Transcript) if one.final] == ["Yes but not yet"]
    stage.silent(2)
    assert len([one for one in stage.all(Transcript) if one.final]) == 1


async def test_words_that_nobody_answers_are_a_turn_that_ends(stage):
    stage.user("Hm")
    stage.silent(13)
    assert stage.all(TurnEnd) == [TurnEnd("turn-1")]
    assert not stage.duplex.active


async def test_user_who_is_given_way_to_has_a_new_turn(stage):
    stage.sounds(1)
    stage.user("Stop")
    stage.sounds(0.2)
    stage.silent(0.12)
    stage.sounds(0.2)
    assert len(stage.all(TurnBegin)) == 1, "the model goes on: that was between two words"
    stage.silent(0.24)
    assert stage.all(TurnBegin)[1] == TurnBegin("turn-2", "listening")
    assert stage.all(Transcript)[-1].turn == "turn-2"


async def test_device_that_interrupts_hears_nothing_more_of_it(stage):
    stage.says("one two three four")
    stage.sounds(1)
    stage.sent()
    stage.duplex.interrupted("turn-1", [Heard(stage.all(Audio)[0].item, 500)])
    [told] = stage.sent()
    assert told["type"] == "session.instructions.append"
    stage.sounds(1)
    stage.says("five")
    stage.silent(0.2)
    stage.sounds(0.2)
    stage.silent(0.1)
    assert stage.heard_s("turn-1") <= 1.0
    assert stage.all(Audio)[-1].turn == "turn-2", "what comes behind a silence is new"
    assert stage.duplex.opening()[0]["content"][0]["text"] == "one two"


async def test_model_that_does_not_stop_is_not_heard_again(stage):
    stage.sounds(1)
    heard = stage.heard_s("turn-1")
    stage.duplex.interrupted("turn-1", [Heard(stage.all(Audio)[0].item, 500)])
    stage.sounds(30)
    assert stage.heard_s("turn-1") == heard
    assert len(stage.all(TurnBegin)) == 1
    stage.silent(0.24)
    stage.sounds(0.2)
    assert len(stage.all(TurnBegin)) == 2


async def test_answer_that_was_interrupted_before_it_came_is_passed_over_as_a_whole(stage):
    stage.user("Tell me")
    stage.duplex.interrupted("turn-1", [])
    stage.silent(1)
    stage.sounds(3)
    stage.silent(0.3)
    assert stage.all(Audio) == []
    stage.sounds(0.2)
    stage.silent(0.1)
    assert stage.heard_s("turn-2") > 0


async def test_text_is_for_the_backend_and_old_sound_is_no_answer_to_it(stage):
    stage.sounds(1)
    stage.duplex.user_text("Hello")
    item, ask = stage.sent("response.item.create", "response.create")
    assert item["item"]["content"] == [{"type": "input_text", "text": "Hello"}]
    assert ask["type"] == "response.create"
    stage.sounds(0.4)
    assert stage.heard_s("turn-2") == 0
    stage.silent(0.3)
    stage.backend("created")
    stage.backend("completed")
    stage.sounds(0.4)
    stage.silent(0.7)
    assert stage.heard_s("turn-2") >= 0.4
    assert stage.all(TurnEnd) == [TurnEnd("turn-2")]


async def test_words_that_come_before_their_sound_are_of_the_same_turn(stage):
    stage.user("Hello")
    stage.silent(3)
    stage.says("Good day.")
    stage.silent(0.4)
    stage.sounds(0.4)
    stage.silent(0.7)
    assert stage.all(TurnEnd) == [TurnEnd("turn-1")]
    assert {one.turn for one in stage.all(Transcript)} == {"turn-1"}


async def test_voice_that_stops_without_a_silence_is_a_turn_that_ends(stage):
    stage.says("Good day.")
    stage.sounds(0.4)
    for _ in range(50):
        stage.clock.passes(0.1)
        stage.duplex.tick()
    assert len(stage.all(AudioEnd)) == 1
    assert stage.all(TurnEnd) == [TurnEnd("turn-1")]


async def test_text_that_the_server_does_not_answer_is_told(stage):
    stage.duplex.user_text("Hello")
    stage.silent(61)
    assert stage.told == [("gone", "turn-1")]
    stage.sent()
    stage.duplex.user_text("Hello")
    assert len(stage.sent("response.create")) == 1, "what was asked before is not waited for"


async def test_text_that_waits_for_a_connection_is_told(stage):
    stage.duplex.lost(GONE)
    stage.duplex.user_text("Hello")
    stage.clock.passes(16)
    stage.duplex.tick()
    assert stage.told == [("gone", "turn-1")]
    assert stage.duplex.resting


# --- the backend


async def test_backend_that_thinks_for_long_is_waited_for(stage):
    stage.user("Lock it")
    stage.delegates()
    stage.silent(40)
    stage.backend("in_progress", "d1")
    stage.silent(40)
    assert stage.all(TurnEnd) == []
    stage.calls("c1", delegation="d1")
    assert [one.turn for one in stage.all(Call)] == ["turn-1"]


async def test_delegation_goes_on_round_by_round(stage):
    """What the backend does with results is of the same delegation."""
    stage.user("Lock it")
    stage.delegates()
    for call in ("c1", "c2"):
        stage.calls(call, delegation="d1")
        stage.backend("completed", "d1")
        stage.sent()
        stage.duplex.tool_result("turn-1", ToolResult(call, True))
        assert [one["type"] for one in stage.sent()] == ["response.item.create", "response.create"]
        stage.backend("created", "d1")
    stage.backend("completed", "d1")
    stage.sounds(0.4)
    stage.silent(0.7)
    assert stage.all(TurnEnd) == [TurnEnd("turn-1")]


async def test_delegations_may_be_at_work_together(stage):
    stage.user("Lock it and tell me the time")
    stage.delegates("d1")
    stage.delegates("d2")
    stage.backend("completed", "d1")
    stage.calls("c1", delegation="d2")
    assert [one.call for one in stage.all(Call)] == ["c1"]
    stage.backend("completed", "d2")
    stage.sent()
    stage.duplex.tool_result("turn-1", ToolResult("c1", True))
    assert [one["type"] for one in stage.sent()] == ["response.item.create", "response.create"]


async def test_call_whose_response_nobody_announced_is_made(stage):
    stage.user("Lock it")
    stage.calls("c1", delegation="d9")
    assert [(one.turn, one.call) for one in stage.all(Call)] == [("turn-1", "c1")]


@pytest.mark.parametrize("named", [True, False])
async def test_work_belongs_to_the_request_that_it_answers(stage, named):
    stage.duplex.user_text("Unlock it")
    first = stage.sent("response.create")[0]["event_id"]
    stage.duplex.interrupted("turn-1", [])
    stage.duplex.user_text("No, do not")
    members = {"client_event_id": first} if named else {}
    delegation = {"id": "d1", "type": "delegation", "target": "responses"}
    stage.hear("session.delegation.created", delegation=delegation, offset_ms=0, **members)
    stage.backend("created", "d1")
    stage.calls("c1", delegation="d1")
    assert stage.all(Call)[0].turn == "turn-1", "the turn manager refuses it"
    stage.backend("completed", "d1")
    stage.backend("created", "d2")
    stage.calls("c2", delegation="d2")
    assert stage.all(Call)[1].turn == "turn-2"


async def test_request_that_came_too_early_is_made_again(stage):
    """The voice had given the backend something at the same time."""
    stage.duplex.user_text("Hello")
    about = stage.sent("response.create")[0]["event_id"]
    error = {"code": "response_already_active", "message": "x", "type": "y", "client_event_id": about}
    stage.hear("error", error=error)
    assert stage.told == []
    assert stage.sent("response.create") == [], "not before the other is done"
    stage.delegates()
    stage.backend("completed", "d1")
    assert len(stage.sent("response.create")) == 1


async def test_error_in_the_stream_of_the_backend_is_its_end(stage):
    stage.duplex.user_text("Hello")
    stage.backend("created")
    event = {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down.", "param": None}
    stage.hear("response.event", event=event, delegation_id=None)
    assert stage.told == [("rate", "turn-1")]
    stage.sent()
    stage.duplex.user_text("Again")
    assert len(stage.sent("response.create")) == 1


async def test_error_that_does_not_say_what_it_is_about_is_of_what_was_asked(stage):
    stage.duplex.user_text("Hello")
    stage.hear("error", error={"code": "x", "message": "No.", "type": "y"})
    assert stage.told == [("refused", "turn-1")]


async def test_call_of_a_delegation_and_what_is_said_of_it_are_one_turn(stage):
    stage.user("Lock it")
    stage.delegates()
    stage.calls("c1", "c2", delegation="d1")
    stage.backend("completed", "d1")
    assert [(one.turn, one.call, one.name, one.arguments) for one in stage.all(Call)] == [
        ("turn-1", "c1", "lock", "{}"),
        ("turn-1", "c2", "lock", "{}"),
    ]
    stage.sounds(0.4)
    stage.silent(20)
    assert stage.all(TurnEnd) == []
    stage.sent()
    stage.duplex.tool_result("turn-1", ToolResult("c1", True, "locked"))
    assert [one["type"] for one in stage.sent()] == ["response.item.create"]
    stage.duplex.tool_result("turn-1", ToolResult("c2", False, code="FAILED", message="jammed"))
    assert [one["type"] for one in stage.sent()] == ["response.item.create", "response.create"]
    stage.backend("created")
    stage.backend("completed")
    stage.silent(2)
    stage.sounds(0.4)
    stage.silent(0.7)
    assert stage.all(TurnEnd) == [TurnEnd("turn-1")]


async def test_results_before_the_end_of_the_response_wait_for_it(stage):
    stage.delegates()
    stage.calls("c1")
    stage.sent()
    stage.duplex.tool_result("turn-1", ToolResult("c1", True))
    assert stage.sent("response.create") == []
    stage.backend("completed")
    assert len(stage.sent("response.create")) == 1


async def test_call_of_an_interrupted_turn_stays_in_it(stage):
    stage.duplex.user_text("Unlock it")
    stage.duplex.interrupted("turn-1", [])
    stage.duplex.user_text("No, do not")
    stage.backend("created")
    stage.calls("c1")
    assert stage.all(Call)[0].turn == "turn-1", "the turn manager refuses it"
    stage.sent()
    stage.duplex.tool_result("turn-1", ToolResult("c1", False, code="INTERRUPTED"))
    stage.backend("completed")
    assert [one["type"] for one in stage.sent()] == ["response.item.create"]
    stage.backend("created")
    stage.calls("c2")
    assert stage.all(Call)[1].turn == "turn-2"


async def test_user_is_told_of_a_call_that_took_too_long(stage):
    stage.delegates()
    stage.calls("c1")
    stage.backend("completed")
    stage.sent()
    stage.duplex.tool_result("turn-1", ToolResult("c1", False, code="TIMEOUT", message="too long"))
    stage.duplex.interrupted("turn-1", [])
    assert len(stage.sent("response.create")) == 1
    stage.backend("created")
    stage.backend("completed")
    stage.sounds(0.4)
    stage.silent(0.1)
    assert stage.heard_s("turn-2") >= 0.4


async def test_failed_work_is_told_with_its_turn(stage):
    stage.duplex.user_text("Hello")
    stage.backend("created")
    stage.backend("failed", response={"error": {"code": "rate_limit_exceeded", "message": "No."}})
    assert stage.told == [("rate", "turn-1")]


async def test_refused_request_is_told_with_its_turn(stage):
    stage.duplex.user_text("Hello")
    about = stage.sent("response.create")[0]["event_id"]
    stage.hear("error", error={"code": "x", "message": "No.", "type": "y", "client_event_id": about})
    assert stage.told == [("refused", "turn-1")]
    stage.duplex.user_text("Again")
    assert len(stage.sent("response.create")) == 1


# --- sessions


async def test_next_session_is_told_what_was_said(stage):
    stage.duplex.context({"room": "hall"})
    stage.duplex.user_text("Hello")
    stage.backend("created")
    stage.backend("completed")
    stage.silent(0.3)
    stage.says("Good day.")
    stage.sounds(0.2)
    stage.silent(0.7)
    stage.duplex.lost(GONE)
    texts = [one["content"][0]["text"] for one in stage.duplex.opening()]
    assert texts == ['[device data] {"room": "hall"}', "Hello", "Good day."]
    assert stage.told == []


async def test_what_was_said_while_the_next_session_opened_is_told_to_it(stage):
    stage.duplex.opening()
    stage.duplex.user_text("Hello")
    stage.sent()
    stage.duplex.ready(stage._sent.append)
    assert "Hello" in stage.sent("session.thinking.append")[0]["content"]


async def test_next_session_is_told_only_what_it_does_not_know(stage):
    """What it was told may have moved: an entry got its text meanwhile, the oldest was forgotten."""
    stage.user("What time")
    stage.says("It is")
    stage.duplex.opening()
    stage.says(" noon.")
    stage.duplex.user_text("Thanks")
    stage.sent()
    stage.duplex.ready(stage._sent.append)
    assert [one["content"] for one in stage.sent("session.thinking.append")] == [
        "assistant: It is noon.",
        "user: Thanks",
    ]


async def test_opening_and_what_is_appended_stay_within_what_the_protocol_takes(stage):
    for number in range(60):
        stage.duplex.user_text(f"{number}" + "\u4f60" * 300)
        stage.duplex.interrupted(f"turn-{number + 1}", [])
    said = [one["content"][0]["text"] for one in stage.duplex.opening()]
    assert 8 < len(said) <= 128
    assert sum(len(text.encode()) for text in said) <= 16_000
    assert said[-1].startswith("59")
    stage.sent()
    stage.duplex.context("\u4f60" * 1000)
    parts = [one["content"] for one in stage.sent("session.thinking.append")]
    assert "".join(parts).count("\u4f60") == 1000
    assert all(len(part) <= 320 for part in parts)
    assert all(part.startswith("[device data] ") for part in parts), "each piece is data"
    stage.duplex.context("a" * 2500)
    assert [len(one["content"]) for one in stage.sent("session.thinking.append")] == [1014, 1014, 516]


async def test_end_that_nothing_can_help_ends_the_turn(stage):
    stage.user("Hello")
    stage.duplex.lost(ProviderError("refused", "the server ended the session: content"))
    assert stage.told == [("refused", "turn-1")]
    assert stage.duplex.resting
    assert stage.duplex.opening() == [], "the next session would end for the same"


async def test_unanswered_text_is_said_again_once(stage):
    stage.duplex.user_text("Hello")
    stage.duplex.lost(GONE)
    assert stage.told == []
    stage.sent()
    stage.again()
    assert [one["type"] for one in stage.sent()] == ["response.item.create", "response.create"]
    stage.duplex.lost(GONE)
    assert stage.told == [("gone", "turn-1")]


async def test_result_for_another_session_is_told_in_words(stage):
    stage.delegates()
    stage.calls("c1")
    stage.backend("completed")
    stage.duplex.lost(GONE)
    assert stage.told == [("gone", None)], "the turn goes on"
    stage.again()
    stage.sent()
    stage.duplex.tool_result("turn-1", ToolResult("c1", True, "locked"))
    item, ask = stage.sent()
    assert item["item"]["content"][0]["text"].startswith("[device data] the tool lock was called")
    assert ask["type"] == "response.create"


async def test_half_an_answer_is_told_as_lost(stage):
    stage.sounds(0.4)
    stage.duplex.lost(GONE)
    assert stage.told == [("gone", "turn-1")]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "session.input_transcript.delta"},
        {"type": "session.output_transcript.delta", "delta": 7},
        {"type": "session.delegation.created", "delegation": []},
        {"type": "response.event"},
        {"type": "response.event", "event": {"type": "response.output_item.done", "item": 7}},
    ],
)
async def test_malformed_event_is_one_error_and_no_end(stage, event):
    with pytest.raises(ProviderError) as raised:
        stage.duplex.feed(event)
    assert raised.value.kind == "malformed"
    stage.hear("session.dreams.delta", delta=7)
    stage.sounds(0.2)
    assert stage.all(TurnBegin)


# --- sound


async def test_half_a_sample_waits_for_its_other_half():
    stage = Stage(format_=PCM16_24K)
    sound = tone(0.12, "pcm16", 24000)
    for start in range(0, len(sound), 961):
        stage.duplex.audio(sound[start : start + 961])
    stage.clock.passes(0.1)
    payloads = [one.payload for one in stage.all(Audio)]
    assert b"".join(payloads) == sound
    assert all(len(payload) % 2 == 0 for payload in payloads), "what is dropped moves no sample"


async def test_what_is_loud():
    assert loud(LOUD, "pcmu")
    assert not loud(STILL, "pcmu")
    assert not loud(b"\x7f\xff\xfe\x7e", "pcmu")
    assert loud(tone(0.1, "pcm16", 24000), "pcm16")
    assert not loud(bytes(4800) + b"\x01\x00\xff", "pcm16")
    assert not loud(b"", "pcm16")


@pytest.fixture(name="jitter")
def a_jitter():
    clock, out = Clock(), []
    return Jitter(out.append, 8000, 0.06, now=lambda: clock.now, later=clock.later), clock, out


async def test_first_sound_waits_for_the_cushion_and_the_rest_does_not(jitter):
    jitter, clock, out = jitter
    jitter.push(b"1" * 320)
    assert out == []
    clock.passes(0.04)
    jitter.push(b"2" * 320)
    clock.passes(0.02)
    assert out == [b"1" * 320, b"2" * 320]
    clock.passes(0.02)
    jitter.push(b"3" * 320)
    assert len(out) == 3


async def test_burst_does_not_queue_up(jitter):
    jitter, clock, out = jitter
    jitter.push(b"1" * 320)
    clock.passes(0.06)
    for _ in range(100):
        jitter.push(b"2" * 320)
    assert sum(map(len, out)) / 8000 <= 0.06 + 0.1 + 0.08
    assert jitter.dropped_s > 3
    clock.passes(1)
    for _ in range(100):
        jitter.push(b"3" * 320)
    before = sum(map(len, out))
    clock.passes(0.06)
    assert (sum(map(len, out)) - before) / 8000 <= 0.2


async def test_what_waits_is_forgotten_or_flushed(jitter):
    jitter, clock, out = jitter
    jitter.push(b"1" * 320)
    jitter.clear()
    clock.passes(0.1)
    assert out == []
    jitter.push(b"2" * 320)
    jitter.flush()
    assert out == [b"2" * 320]
    clock.passes(0.1)
    assert out == [b"2" * 320]


# --- with the peer


@pytest_asyncio.fixture(name="process", scope="module", loop_scope="module")
async def process_of_module():
    async with PeerProcess("openai_live") as peer:
        yield peer


@pytest_asyncio.fixture(name="peer", loop_scope="module")
async def peer_of_test(process):
    yield process
    await process.reset()


def agent_for(port, **options):
    base_url = f"http://127.0.0.1:{port}/v1"
    given = {"base_url": base_url, "api_key": SecretStr(KEY), "timeout_s": 2.0, "pause_ms": 160, **options}
    return LiveAgent(Options(**given))


async def test_page_has_every_option_and_its_example_loads(tmp_path):
    text = PAGE.read_text()
    example = text.split("```toml\n")[1].split("```")[0]
    (tmp_path / "agents.toml").write_text(example)
    (tmp_path / "openai.key").write_text(KEY)
    options = load(Options, "openai_live", tmp_path / "agents.toml", agents=registry.ADAPTERS, environ={})
    assert options.api_key.get_secret_value() == KEY
    for name in Options.model_fields:
        assert f"`{name}`" in text or f"`{name}_file`" in text, name


async def test_key_is_asked_for(tmp_path):
    path = tmp_path / "agents.toml"
    path.write_text("[openai_live]\n")
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        load(Options, "openai_live", path, environ={})


async def test_session_is_as_the_options_want_it(peer):
    options = {
        "voice": "marin",
        "reasoning": "low",
        "backend_model": "b",
        "session": {"delegation": {"responses": {"max_output_tokens": 99}}},
    }
    async with started(agent_for(peer.port, **options), tools=[Tool("lock")], context={"room": "hall"}):
        session = (await peer.seen("setup"))["session"]
    backend = session["delegation"]["responses"]
    assert session["audio"] == {"format": {"type": "audio/pcmu", "rate": 8000}, "output": {"voice": "marin"}}
    assert (backend["model"], backend["reasoning"], backend["max_output_tokens"]) == (
        "b",
        {"effort": "low"},
        99,
    )
    assert backend["tools"][0]["name"] == "lock"
    assert session["input"][0]["content"][0]["text"] == '[device data] {"room": "hall"}'


@pytest.mark.parametrize(("format_", "encoding", "rate"), [(PCMU, "pcmu", 8000), (PCM16_24K, "pcm16", 24000)])
async def test_sound_passes_unchanged(peer, format_, encoding, rate):
    await peer.respond([{"say": "Hi.", "seconds": 0.2}])
    async with started(agent_for(peer.port), format_=format_) as port:
        port.agent.user_text("Hello")
        await port.ends()
        heard = b"".join(one.payload for one in port.all(Audio))
        assert heard.startswith(tone(0.2, encoding, rate))


async def test_model_is_given_time_only_while_something_is_going_on(peer):
    async with started(agent_for(peer.port, idle_s=0)) as port:
        port.agent.user_text("Hello")
        await port.ends()
        agent = port.agent
        assert agent._duplex.active is False
        fed = agent._fed_until
        await peer.do("respond", responses=[])  # a round trip
        port.agent.user_text("Again")
        await port.ends(2)
        assert agent._fed_until > fed


async def test_microphone_that_is_switched_off_ends_an_utterance(peer):
    async with started(agent_for(peer.port)) as port:
        audio = tone(0.3, "pcmu", 8000)
        for start in range(0, len(audio), 160):
            port.agent.user_audio(audio[start : start + 160])
        await port.ends()
        assert "What is said." in [one.text for one in port.all(Transcript)]


async def test_server_is_told_that_a_session_is_over(peer):
    """Sessions are billed by their duration."""
    async with started(agent_for(peer.port)):
        await peer.seen("setup")
    await peer.seen("farewell")


async def test_sound_without_a_connection_is_bounded(peer, caplog):
    async with started(agent_for(peer.port)) as port:
        await peer.seen("setup")
        await peer.drop()
        await logged(caplog, "the server closed the connection")
        sound = tone(2, "pcmu", 8000) + quiet(4, "pcmu", 8000)
        for start in range(0, len(sound), 160):
            port.agent.user_audio(sound[start : start + 160])
        await peer.seen("setup")
        port.agent.user_text("Hello")
        await port.ends()
        assert peer.count("speech_started") == 0, "the newest three seconds are silent"


async def test_session_is_replaced_before_it_ends_and_nobody_notices(peer):
    await peer.do("be", expires_s=2.5)
    async with started(agent_for(peer.port)) as port:
        port.agent.user_text("Remember the cat.")
        await port.ends()
        reports = len(peer.reports)
        for _ in range(2):
            await peer.seen("setup")
        await peer.do("be")
        await peer.mentioned("Remember the cat.", since=reports)
        await peer.seen("closed")
        port.agent.user_text("And now?")
        await port.ends(2)
        assert port.all(AgentError) == []


@pytest.mark.parametrize(
    ("server", "says"),
    [
        ({"status": 401}, "check the key"),
        ({"frames": [{"type": "session.created", "session": {}}]}, "Realtime protocol"),
        ({"frames": [{"type": "session.closed", "reason": "content"}]}, "ended the session: content"),
        ({"frames": [{"type": "error", "error": {"code": "model_not_found", "message": "No m"}}]}, "No m; choose"),
        ({"frames": [{"type": "session.started", "session": {"audio": {"format": {"type": "audio/pcm"}}}}]}, "not audio/pcmu"),
        ({"frames": []}, "opened no session"),
    ],
)  # fmt: skip
async def test_server_that_opens_no_session_is_told_in_one_line(server, says, caplog):
    frames = server.pop("frames", ())
    async with answering(*frames, **server) as (number, _):
        with pytest.raises(AgentStartError, match=says) as raised:
            async with started(agent_for(number, timeout_s=0.3)):
                pass
    assert str(raised.value).startswith("openai_live: ")
    assert KEY not in str(raised.value) + caplog.text


async def test_sound_that_is_none_is_told_once_and_survived():
    good = base64.b64encode(LOUD).decode()
    bad = [{"type": "session.output_audio.delta", "delta": delta} for delta in ("?", 7)]
    frames = [{"type": "session.started", "session": {}}, *bad]
    frames += [{"type": "session.output_audio.delta", "delta": good}] * 5
    async with (
        answering(*map(json.dumps, frames)) as (number, _),
        started(agent_for(number)) as port,
    ):
        await port.until(lambda: port.all(Audio))
        assert len(port.all(AgentError)) == 1
        assert port.all(AgentError)[0].recoverable
