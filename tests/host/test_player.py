"""The player and the replay, against a device in this process that does what a test says; tests/e2e has the firmware."""

import asyncio
import contextlib
import io
import json
import socket

import pytest
from rich.console import Console
from vrt_host.conformance.checks import Outcome
from vrt_host.errors import UsageError
from vrt_host.harness import desk, look, player
from vrt_host.harness import replay as replaying
from vrt_host.harness.capture import Line, line_of
from vrt_host.harness.live import View
from vrt_host.harness.recorder import Recorder
from vrt_host.harness.replay import replay
from vrt_host.harness.scenario import SHIPPED, load
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

RETRY_S = 0.05
TOOL = {"name": "light", "description": "", "parameters": {"type": "object"}}


class FakeDevice:
    """Comes, and comes back; `answer(call)` makes the members of a result, or None for no answer."""

    restarts = False
    patience_s = 10.0

    def __init__(self, answer, *, tells=False, tools=(TOOL,), twice=False):
        self.answer = answer
        self.tells = tells
        self.tools = list(tools)
        self.twice = twice
        self.did = []
        self.session = None
        self.seq = self.last = 0
        self.kept = []

    async def start(self, url):
        self.url = url
        self.task = asyncio.create_task(self.live())

    async def stop(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def gone(self):
        await asyncio.Future()

    async def press(self, seconds):
        self.did.append(("press", seconds))

    async def speak(self, seconds):
        self.did.append(("speak", seconds))

    async def power_cut(self):
        self.did.append(("power",))

    async def live(self):
        while True:
            with contextlib.suppress(OSError, ConnectionClosed, InvalidHandshake):
                async with connect(self.url, proxy=None) as self.ws:
                    await self.talk()
            await asyncio.sleep(RETRY_S)

    async def talk(self):
        hello = {"v": 1, "seq": 0, "type": "hello", "tools": self.tools, "auth": {"token": "s3cret"}}
        if self.session:
            hello |= {"sessionId": self.session, "resumeFrom": self.last}
        await self.ws.send(json.dumps(hello))
        async for frame in self.ws:
            await self.hear(frame)

    async def hear(self, frame):
        if isinstance(frame, str):
            with contextlib.suppress(ValueError):
                await self.take(json.loads(frame))

    async def take(self, message):
        kind = message.get("type")
        if kind == "ready":
            self.session = message["sessionId"]
            for one in self.kept:
                if one["seq"] > message.get("resumedFrom", 0):
                    await self.ws.send(json.dumps(one))
        if kind == "error" and message["code"] == "RESUME_FAILED":
            self.session, self.seq, self.last, self.kept = None, 0, 0, []
        if message.get("seq", 0) <= self.last:
            return
        self.last = message["seq"]
        if kind == "tool.call":
            made = self.answer(message)
            if made is not None:
                for _ in range(2 if self.twice else 1):
                    self.seq += 1
                    result = {"v": 1, "seq": self.seq, "type": "tool.result", "callId": message["callId"], "epoch": message["epoch"], **made}  # fmt: skip
                    self.kept.append(result)
                    await self.ws.send(json.dumps(result))


def done(call):
    return {"ok": True, "output": call["arguments"]}


class Played:
    """What came of a play."""

    def __init__(self, findings, shown, device, lines, recorder):
        self.by_title = {one.check.title: one for one in findings}
        self.shown = shown
        self.device = device
        self.lines = lines
        self.recorder = recorder
        self.broken = {one.check.id for one in findings if not one.check.id.startswith("harness.")}

    def outcome(self, title):
        return self.by_title[title].outcome

    def detail(self, title):
        return self.by_title[title].details[0]


@pytest.fixture
def run(tmp_path):
    """Play these steps, after `open`, with a device."""

    async def play(*steps, device=None, device_needs=()):
        path = tmp_path / "mine.json"
        value = {"title": "t", "why": "w", "section": "§7.2", "steps": [{"open": {}}, *steps]}
        if device_needs:
            value["device"] = {"needs": device_needs}
        path.write_text(json.dumps(value))
        device, recorder, text, lines = device or FakeDevice(done), Recorder(), io.StringIO(), []
        view = View(Console(file=text, width=300))
        tap = lambda number, frame: lines.append(line_of(number, frame, frame.t))  # noqa: E731
        findings = await player.play(load(path), device, recorder=recorder, view=view, taps=(tap,))
        return Played(findings, text.getvalue(), device, [line for line in lines if line], recorder)

    return play


def call(name="a", **more):
    return {"call": {"tool": "light", "as": name, "arguments": {"state": "on"}, **more}}


def expect(check="it is so", within=2, **what):
    return {"expect": what, "within": within, "check": check}


async def test_device_that_answers_passes_and_its_lines_are_shown(run):
    played = await run(call(), expect(result="a", **{"with": {"ok": True, "output": {"state": "on"}}}))
    assert played.outcome("it is so") is Outcome.PASSED
    assert "✓ it is so" in played.shown
    assert "tool.call" in played.shown
    assert "s3cret" not in played.shown
    assert not played.broken


async def test_device_that_stays_silent_fails_and_the_rest_is_not_reached(run):
    steps = (call(), expect(within=0.1, result="a"), {"never": {"end": True}, "check": "later"})
    played = await run(*steps, device=FakeDevice(lambda call: None))
    assert played.detail("it is so") == "steps[2]: no result of 'a' within 0.1 s; it said nothing"
    assert played.detail("later").startswith("not reached: steps[2]: ")


async def test_device_that_answers_late_fails_although_the_answer_came(run):
    class Late(FakeDevice):
        async def take(self, message):
            if message.get("type") == "tool.call":
                await asyncio.sleep(0.2)
            await super().take(message)

    never = {"never": {"end": True}, "for": 0.5, "check": "waits"}
    played = await run(call(), never, expect(within=0.1, result="a"), device=Late(done))
    assert "s after its 0.1 s: tool.result" in played.detail("it is so")


async def test_device_that_answers_twice_breaks_a_rule_that_always_holds(run):
    played = await run(
        call(),
        {"count": {"message": "tool.result", "with": {"callId": "$a"}}, "is": 1, "for": 0.3, "check": "once"},
        device=FakeDevice(done, twice=True),
    )
    assert played.detail("once") == "steps[2]: 2 came, not 1"
    assert "client.tools.one-result" in played.broken


async def test_results_out_of_order_fail(run):
    played = await run(call("a"), call("b"), expect(within=0.3, results=["b", "a"]))
    assert played.detail("it is so") == "steps[3]: within 0.3 s came the results of a, b"
    played = await run(call("a"), call("b"), expect(results=["a", "b"]))
    assert played.outcome("it is so") is Outcome.PASSED


async def test_never_looks_at_what_came_since_the_last_deed_alone(run):
    never = {"never": {"message": "tool.result"}, "for": 0.2}
    played = await run(
        call(), {**never, "check": "not at once"}, {"turn": "thinking"}, {**never, "check": "no more"}
    )
    assert played.outcome("not at once") is Outcome.FAILED
    assert played.outcome("no more") is Outcome.PASSED


async def test_cut_connection_is_resumed_and_what_counts_as_unhandled_comes_again(run):
    played = await run(
        {"acks": False},
        call(),
        expect("answered", result="a"),
        {"cut": "reset"},
        {"resume": {"forget": 1, "hello": {"resumeFrom": 1}}, "check": "it comes back"},
        expect("again", message="tool.result"),
    )
    assert {one.outcome for one in played.by_title.values()} == {Outcome.PASSED}


async def test_call_that_is_unsaid_comes_with_the_resume(run):
    played = await run(
        {**call("missed"), "unsaid": True},
        {"never": {"message": "tool.result"}, "for": 0.2, "check": "not yet"},
        {"cut": "end"},
        {"resume": {}},
        expect(result="missed"),
    )
    assert {one.outcome for one in played.by_title.values()} == {Outcome.PASSED}


async def test_refused_device_opens_a_new_session(run):
    played = await run(
        {"cut": "reset"},
        {"refuse": {"code": "RESUME_FAILED", "close": 4404}, "check": "it asks"},
        {"open": {"without": ["sessionId"]}, "check": "it opens"},
        call(),
        expect(result="a"),
    )
    assert {one.outcome for one in played.by_title.values()} == {Outcome.PASSED}


async def test_events_of_a_board_on_the_desk_are_not_testable(run):
    played = await run(expect("told", event="led"), call(), expect(result="a"))
    assert played.outcome("told") is Outcome.NOT_TESTABLE
    assert played.outcome("it is so") is Outcome.PASSED


async def test_device_without_the_tools_is_not_testable(run):
    played = await run(call(), expect(result="a"), device=FakeDevice(done, tools=()), device_needs=["light"])
    assert played.outcome("it is so") is Outcome.NOT_TESTABLE
    assert played.detail("it is so") == "the client has no tool light"


async def test_hands_are_asked_for(run):
    device = FakeDevice(done)
    await run({"press": 0.2}, {"speak": 1}, {"power": "cut"}, call(), expect(result="a"), device=device)
    assert device.did == [("press", 0.2), ("speak", 1), ("power",)]


@pytest.mark.parametrize(("tells", "outcome"), [(False, Outcome.PASSED), (True, Outcome.FAILED)])
async def test_time_counts_from_the_end_of_an_operators_press_and_from_the_beginning_of_a_simulated_one(
    tells, outcome, run
):
    class Pressed(FakeDevice):
        async def press(self, seconds):
            await asyncio.sleep(0.5)
            await self.ws.send(
                json.dumps({"v": 1, "seq": 1, "type": "interrupt", "epoch": 0, "reason": "user"})
            )

    played = await run(
        {"press": 0.5}, expect(within=0.4, message="interrupt"), device=Pressed(done, tells=tells)
    )
    assert played.outcome("it is so") is outcome


async def test_operator_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr(desk, "REACT_S", 0)
    text = io.StringIO()
    device = desk.DeskDevice(View(Console(file=text, width=200)))
    await device.start("ws://127.0.0.1:8765/")
    await device.press(0.01)
    await device.speak(0.01)
    assert "connect it to ws://127.0.0.1:8765/" in text.getvalue()
    assert "now hold the button for 0.01 s" in text.getvalue()
    assert "now speak to it for 0.01 s" in text.getvalue()


async def test_raw_frames_and_audio_reach_the_device_as_they_stand(run):
    played = await run(
        {"frame": "nonsense"},
        {"frame": {"hex": "02ff"}},
        {"frame": {"json": {"v": 2}}},
        {"say": {"type": "text", "text": "a"}, "padTo": 500},
        {"audio": {"ms": 40, "epoch": 3}},
        {"audio": {"ms": 20, "goesOn": True}},
        call(),
        expect(result="a"),
    )
    sent = [line for line in played.lines if line.who == "host"]
    assert [line.text for line in sent if line.kind == "text"][1:3] == ["nonsense", '{"v": 2}']
    assert [len(line.audio) for line in sent if line.kind == "audio"] == [2, 165, 165, 165]
    messages = [line.message for line in sent if line.message]
    assert [len(json.dumps(one)) for one in messages if one.get("type") == "text"] == [500]
    assert [one["epoch"] for one in messages if one.get("type") == "audio.start"] == [3]


async def test_port_that_is_taken_is_said(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        view = View(Console(quiet=True))
        with pytest.raises(UsageError, match=rf"cannot listen at 127\.0\.0\.1:{port}: "):
            await player.play(load(SHIPPED / "late-call.json"), FakeDevice(done), at=("127.0.0.1", port), recorder=Recorder(), view=view)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "wanted", "agrees"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ({"a": {"b": [1], "c": 2}}, {"a": {"b": [1]}}, True),
        ([1, 2], [1], False),
        (True, 1, False),
        (1, 1.0, True),
        (None, {}, False),
    ],
)
def test_objects_may_have_more_members_and_all_else_is_equal(value, wanted, agrees):
    assert look.has(value, wanted) is agrees


# --- replay


def again(lines, device):
    return replay(lines, device, recorder=Recorder(), view=View(Console(quiet=True)))


def outcomes(findings):
    return {one.check.id.rpartition(".")[2]: one.outcome for one in findings}


@pytest.fixture
async def lines(run):
    """A session with a cut in it, after which a call was resent; others were made before and after."""
    played = await run(
        {"turn": "thinking"},
        call("a"),
        expect("first", result="a"),
        {"cut": "reset"},
        {"resume": {"resend": 1}},
        {"wait": 0.1},
        call("b"),
        call("c"),
        expect("last", result="c"),
    )
    return played.lines


async def test_replay_to_the_same_device_finds_no_difference(lines):
    device = FakeDevice(done)
    findings = await again(lines, device)
    assert outcomes(findings) == dict.fromkeys(["hello", "comes-back", "results"], Outcome.PASSED)
    assert len(device.kept) == 3


async def test_replay_says_byte_for_byte_what_was_said(lines, run):
    said = []

    class Hearing(FakeDevice):
        async def take(self, message):
            said.append(message)
            await super().take(message)

    await again(lines, Hearing(done))
    then = [one.message for one in lines if one.who == "host" and one.message and one.message["seq"]]
    assert then[1] == then[2]  # resent when it was recorded, which this device does not need
    assert [one for one in said if one["seq"]] == [then[0], *then[2:]]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda call: {"ok": True, "output": "x"}, 'the first difference, result 1: it was {"callId": '),
        (
            lambda call: None if call["callId"].endswith("-b") else done(call),
            "the first difference, result 2: it was",
        ),
        (lambda call: {"ok": False, "code": "FAILED", "message": "no"}, '"code": "FAILED"}'),
    ],
)
async def test_replay_tells_the_first_difference(answer, told, lines, monkeypatch):
    monkeypatch.setattr(replaying, "WITHIN_S", 0.3)
    findings = await again(lines, FakeDevice(answer))
    (result,) = (one for one in findings if one.check.id == "harness.replay.results")
    assert result.outcome is Outcome.FAILED
    assert told in result.details[0]


async def test_replay_takes_another_wording_of_a_failure_for_the_same(run):
    def failing(words):
        return FakeDevice(lambda call: {"ok": False, "code": "FAILED", "message": words})

    played = await run(call(), expect(result="a"), device=failing("one"))
    assert outcomes(await again(played.lines, failing("two")))["results"] is Outcome.PASSED


async def test_replay_tells_a_result_too_many(lines):
    findings = await again([*lines[:-1]], FakeDevice(done))
    assert outcomes(findings)["results"] is Outcome.PASSED
    without_last = [
        one for one in lines if not (one.message or {}).get("callId", "").endswith("-c") or one.who == "host"
    ]
    findings = await again(without_last, FakeDevice(done))
    (result,) = (one for one in findings if one.check.id == "harness.replay.results")
    assert result.details[0].startswith("a result more than was recorded")


async def test_replay_tells_which_tools_differ(lines):
    findings = await again(lines, FakeDevice(done, tools=[{**TOOL, "name": "lamp"}]))
    (result,) = (one for one in findings if one.check.id == "harness.replay.hello")
    assert result.details == ('tools: missing: "light"; new: "lamp"',)


async def test_replay_fails_when_the_device_does_not_come_back(lines, monkeypatch):
    monkeypatch.setattr(replaying, "COME_S", 0.3)
    monkeypatch.setitem(globals(), "RETRY_S", 5)
    findings = await again(lines, FakeDevice(done))
    assert outcomes(findings)["comes-back"] is Outcome.FAILED


async def test_replay_without_a_call_compares_nothing(run):
    played = await run(
        {"turn": "thinking"}, {"wait": 0.05}, {"never": {"end": True}, "for": 0.1, "check": "c"}
    )
    assert outcomes(await again(played.lines, FakeDevice(done)))["results"] is Outcome.NOT_TESTABLE


def foreign(frames):
    """Lines of a capture that another program made: (who, kind, what) on a connection, one after the other."""
    kinds = {"text": "text", "audio": "audio", "end": "code"}
    made = []
    for number, (who, what) in enumerate(frames):
        kind = "audio" if isinstance(what, bytes) else "end" if isinstance(what, int) else "text"
        value = json.dumps(what) if isinstance(what, dict) else what
        connection = 1 + sum(line.kind == "end" for line in made)
        made.append(Line(number / 1000, connection, who, kind, **{kinds[kind]: value}))
    return made


FORMATS = {"input": {"encoding": "pcmu"}, "output": {"encoding": "pcmu"}}
HELLO = {"v": 1, "seq": 0, "type": "hello", "tools": [TOOL]}
READY = {"v": 1, "seq": 0, "type": "ready", "sessionId": "elsewhere", **FORMATS}
OPENED = [("device", HELLO), ("host", READY)]
RESUMED = [("device", {**HELLO, "sessionId": "elsewhere"}), ("host", {**READY, "resumedFrom": 0})]


@pytest.mark.parametrize("code", [0, 999, 1005, 1006, 1015, 2000, 5000, 70000])
async def test_replay_cuts_where_the_recorded_code_cannot_be_sent(code):
    findings = await again(foreign([*OPENED, ("host", code), *RESUMED]), FakeDevice(done))
    assert outcomes(findings)["comes-back"] is Outcome.PASSED


async def test_replay_begins_with_the_hello_that_ready_answered():
    refused = [
        ("device", {**HELLO, "tools": "none"}),
        ("host", {**READY, "type": "error", "code": "INVALID_FIELD"}),
    ]
    said = []

    class Hearing(FakeDevice):
        async def take(self, message):
            said.append(message["type"])
            await super().take(message)

    findings = await again(foreign([*refused, *OPENED]), Hearing(done))
    assert outcomes(findings)["hello"] is Outcome.PASSED
    assert "error" not in said


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        (RESUMED, "begins in the middle of the session"),
        (
            [*OPENED, ("host", 1000), ("device", HELLO), ("host", 1000)],
            "connection 2 of the capture ends before",
        ),
        ([("device", HELLO), ("host", {**READY, "v": 2})], "this side speaks v 1"),
        ([("device", HELLO), ("host", {**READY, "output": 1})], "cannot be said again: output"),
    ],
)
async def test_capture_that_cannot_be_replayed_is_refused_before_the_device_is_awaited(frames, told):
    device = FakeDevice(done)
    with pytest.raises(UsageError, match=told):
        await again(foreign(frames), device)
    assert not hasattr(device, "url")


async def test_replay_says_what_is_no_frame_as_it_stands():
    half = '{"v":1,"seq":1,"type":"text","text":"\\ud800"}'
    frames = [
        ("host", half),
        ("host", b"\x02"),
        ("host", b""),
        ("host", b"\x01abcd"),
        ("host", b"\x02\0\0\0\7z"),
    ]
    came = []

    class Hearing(FakeDevice):
        async def hear(self, frame):
            came.append(frame)
            await super().hear(frame)

    await again(foreign([*OPENED, *frames]), Hearing(done))
    assert [one for one in came if isinstance(one, bytes) or "text" in one] == [
        half, b"\x02", b"", b"\x01abcd", b"\x02\0\0\0\0z",
    ]  # fmt: skip


async def test_message_with_half_a_surrogate_pair_is_resent_too():
    half = {"v": 1, "seq": 1, "type": "text", "text": "\ud800"}
    said = []

    class Forgetful(FakeDevice):
        async def take(self, message):
            said.append(message["type"])
            await super().take(message)
            self.last = 0

    findings = await again(foreign([*OPENED, ("host", half), ("host", 1006), *RESUMED]), Forgetful(done))
    assert outcomes(findings)["comes-back"] is Outcome.PASSED
    assert said == ["ready", "text", "ready", "text"]
