"""The scripted agent, through a real server."""

import json

import numpy as np
import pytest
from host_client import Closed, hosting
from test_script import recording
from vrt_host.agents.script import load
from vrt_host.agents.scripted import ScriptedAgent
from vrt_host.speech.codec import codec

LOCK = {
    "name": "lock",
    "parameters": {
        "type": "object",
        "properties": {"door": {"enum": ["front", "back"]}, "state": {"type": "string"}},
        "required": ["door"],
    },
}
PCMU = {"encoding": "pcmu", "sampleRate": 8000}
PCM16 = {"encoding": "pcm16", "sampleRate": 24000}


class Play:
    """A client of a host that runs a script."""

    def __init__(self, client):
        self.client = client
        self.calls = []

    async def text(self, text):
        await self.client.send("text", text=text)

    async def call(self):
        call = await self.client.until("tool.call")
        self.calls.append(call)
        return call

    async def result(self, call, output=None, code=None):
        members = (
            {"ok": True, "output": output}
            if code is None
            else {"ok": False, "code": code, "message": "said so"}
        )
        await self.client.send("tool.result", callId=call["callId"], epoch=call["epoch"], **members)

    async def until_idle(self):
        """Everything up to `idle`, as (type, what it says)."""
        seen = []
        while True:
            message = await self.client.next()
            if isinstance(message, bytes):
                seen.append(("audio", len(message)))
            elif message["type"] == "turn.state":
                if message["state"] == "idle":
                    return seen
            elif message["type"] in ("text", "transcript"):
                seen.append((message["type"], message["text"]))
            elif message["type"] not in ("ack", "audio.start"):
                seen.append((message["type"], message.get("code") or message.get("reason")))


@pytest.fixture
def playing(tmp_path):
    """`async with playing(rules, otherwise=..., hello=...) as play`."""

    class Playing:
        def __init__(self, rules, hello=None, **members):
            path = tmp_path / "script.json"
            path.write_text(json.dumps({"rules": rules, **members}))
            script = load(path)
            self._hosting = hosting(lambda: ScriptedAgent(script))
            self._hello = {"tools": [LOCK], "input": PCMU, "output": PCMU, **(hello or {})}

        async def __aenter__(self):
            host = await self._hosting.__aenter__()
            self._client = host.client()
            client = await self._client.__aenter__()
            await client.hello(**self._hello)
            return Play(client)

        async def __aexit__(self, *error):
            await self._client.__aexit__(*error)
            await self._hosting.__aexit__(*error)

    return Playing


def on_text(text, *do, **members):
    return {"on": {"text": text}, "do": list(do), **members}


def tone(ms, level=0.2):
    return codec("pcmu").encode(np.full(ms * 8, level, np.float32))


# --- inputs


async def test_start_is_the_first_input(playing):
    async with playing([{"on": {"start": True}, "do": [{"text": "welcome"}]}]) as play:
        assert await play.until_idle() == [("text", "welcome")]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("hello", "hello", True),
        ("hello", "hello ", False),
        ("hello", "hello\n", False),
        ("a.c", "abc", False),
        ({"contains": "o.w"}, "hello.world", True),
        ({"contains": "x"}, "hello", False),
        ({"matches": "^h.*o$"}, "hello", True),
        ({"matches": "(?i)HELLO"}, "hello", True),
        ({"matches": "^x"}, "hello", False),
    ],
)
async def test_text_is_matched(playing, pattern, text, matches):
    async with playing([on_text(pattern, {"text": "yes"})], otherwise=[{"text": "no"}]) as play:
        await play.text(text)
        assert await play.until_idle() == [("text", "yes" if matches else "no")]


async def test_text_without_a_rule_has_a_default_answer(playing):
    async with playing([]) as play:
        await play.text("x")
        assert await play.until_idle() == [("text", "The script has no answer to this.")]


async def test_first_rule_that_may_still_count_is_taken(playing):
    rules = [
        on_text("a", {"text": "one"}, times=1),
        on_text("a", {"text": "two"}, times=1),
        on_text("a", {"text": "on"}),
    ]
    async with playing(rules) as play:
        answers = []
        for _ in range(4):
            await play.text("a")
            answers += await play.until_idle()
        assert answers == [("text", "one"), ("text", "two"), ("text", "on"), ("text", "on")]


async def test_voice_counts_after_its_time_and_again_after_silence(playing):
    rules = [{"on": {"audio": {"voicedMs": 100}}, "turn": "listening", "do": [{"heard": "you"}]}]
    async with playing(rules) as play:

        async def hear(level, frames):
            for _ in range(frames):
                await play.client.audio(tone(20, level))

        await hear(0.2, 4)
        await hear(0.0, 5)
        await play.client.send("ping")
        await play.client.until("pong")
        assert play.client.last == 0  # 80 ms are not enough
        await hear(0.2, 10)
        assert await play.until_idle() == [("transcript", "you")]
        await hear(0.2, 20)
        await hear(0.0, 16)
        await hear(0.2, 5)
        assert await play.until_idle() == [("transcript", "you")]


async def test_end_of_an_utterance_counts_after_its_silence(playing):
    rules = [{"on": {"audio": {"voicedMs": 100, "silenceMs": 400}}, "do": [{"heard": "all of it"}]}]
    async with playing(rules) as play:
        for level, frames in ((0.2, 6), (0.0, 19), (0.2, 1), (0.0, 20)):
            for _ in range(frames):
                await play.client.audio(tone(20, level))
        assert await play.until_idle() == [("transcript", "all of it")]
        assert play.client.last == 3


async def test_any_audio_counts_while_nothing_is_at_work(playing):
    rules = [{"on": {"audio": "any"}, "times": 1, "do": [{"text": "audio"}]}]
    async with playing(rules) as play:
        for _ in range(3):
            await play.client.audio(tone(20, 0.0))
        assert await play.until_idle() == [("text", "audio")]


async def test_interruption_is_an_input_with_what_was_heard(playing):
    rules = [
        on_text("speak", {"say": {"text": "long", "toneMs": 5000}}),
        {"on": {"interruption": True}, "do": [{"text": "you heard {heardMs} ms"}]},
    ]
    async with playing(rules) as play:
        await play.text("speak")
        start = await play.client.until("audio.start")
        await play.client.audio_until(3)
        await play.client.send("playback", itemId=start["itemId"], playedMs=40)
        await play.client.send("interrupt", epoch=start["epoch"], reason="user")
        await play.client.until("interrupted")
        assert await play.until_idle() == [("text", "you heard 40 ms")]


async def test_turn_that_replaces_another_is_no_interruption(playing):
    rules = [
        on_text("go", {"call": {"tool": "lock", "arguments": {"door": "front"}}}),
        on_text("speak", {"say": {"text": "long", "toneMs": 5000}}),
        {"on": {"audio": {"voicedMs": 60}}, "turn": "listening", "do": [{"text": "heard you"}]},
        {"on": {"interruption": True}, "do": [{"text": "interrupted"}]},
        {"on": {"result": {"code": "INTERRUPTED"}}, "do": [{"text": "cut off"}]},
    ]
    async with playing(rules, otherwise=[{"text": "answer"}]) as play:
        await play.text("go")
        await play.call()
        await play.text("x")
        seen = []
        while ("text", "answer") not in seen:
            seen += await play.until_idle()
        await play.text("speak")
        await play.client.audio_until(3)
        for _ in range(3):
            await play.client.audio(tone(20))
        await play.client.until("turn.state", state="listening")
        assert await play.until_idle() == [("text", "heard you")]
        await play.text("go")
        await play.call()
        for _ in range(15):
            await play.client.audio(tone(20, 0.0))
        for _ in range(3):
            await play.client.audio(tone(20))
        await play.client.until("turn.state", state="listening")
        assert await play.until_idle() == [("text", "heard you")]


async def test_result_that_nothing_waits_for_is_an_input_in_the_same_turn(playing):
    rules = [
        on_text("go", {"call": {"tool": "lock", "arguments": {"door": "front"}}}),
        {"on": {"result": {"tool": "lock", "code": "REJECTED"}}, "do": [{"text": "refused"}]},
        {"on": {"result": {"tool": "other"}}, "do": [{"text": "never"}]},
        {"on": {"result": {"ok": True}}, "do": [{"text": "done: {output.state}"}]},
    ]
    async with playing(rules) as play:
        await play.text("go")
        call = await play.call()
        await play.result(call, {"state": "locked"})
        answer = await play.client.until("text")
        assert answer["text"] == "done: locked"
        assert answer["turnId"] == call["turnId"]
        await play.client.until("turn.state", state="idle")
        await play.text("go")
        await play.result(await play.call(), code="REJECTED")
        assert await play.until_idle() == [("text", "refused")]


async def test_result_of_an_interrupted_call_is_an_input_of_a_new_turn(playing):
    rules = [
        on_text(
            "go",
            {"call": {"tool": "lock", "arguments": {"door": "front"}}},
            {"waitResult": True},
            {"text": "never"},
        ),
        {"on": {"result": {"code": "INTERRUPTED"}}, "do": [{"text": "cut off"}]},
    ]
    async with playing(rules) as play:
        await play.text("go")
        call = await play.call()
        await play.client.send("interrupt", epoch=call["epoch"], reason="user")
        await play.client.until("interrupted")
        answer = await play.client.until("text")
        assert answer["text"] == "cut off"
        assert answer["turnId"] != call["turnId"]


# --- actions


async def test_say_is_a_transcript_with_sound(playing):
    async with playing([on_text("a", {"say": {"text": "tone", "toneMs": 90}})]) as play:
        await play.text("a")
        seen = await play.until_idle()
    assert ("transcript", "tone") in seen
    assert [size for kind, size in seen if kind == "audio"] == [160, 160, 160, 160, 80]


@pytest.mark.parametrize(("output", "rate", "width"), [(PCMU, 8000, 1), (PCM16, 24000, 2)])
async def test_recording_is_converted_to_the_session_s_format(playing, tmp_path, output, rate, width):
    recording(tmp_path / "a.wav", rate=16_000, frames=4000)
    rules = [on_text("a", {"say": {"text": "wav", "wav": "a.wav"}})]
    async with playing(rules, hello={"output": output}) as play:
        await play.text("a")
        seen = await play.until_idle()
    seconds = sum(size for kind, size in seen if kind == "audio") / rate / width
    assert 0.25 <= seconds <= 0.26


async def test_text_may_come_in_chunks_and_user_transcripts_in_versions(playing):
    do = [
        {"heard": {"text": "op", "final": False}},
        {"heard": "open"},
        {"text": ["Hel", "lo"]},
        {"say": "silent"},
    ]
    async with playing([on_text("a", *do)]) as play:
        await play.text("a")
        messages = [await play.client.until(kind) for kind in ("transcript", "transcript", "text", "text")]
    assert [message["final"] for message in messages] == [False, True, False, True]


async def test_call_takes_raw_text_right_or_wrong(playing):
    do = [
        {"call": {"tool": "lock", "raw": '{"door":"fro'}},
        {"branch": {"INVALID": [{"text": "{code}"}]}},
        {"call": {"tool": "lock", "raw": '{"door": "front"}'}},
        {"waitResult": True},
    ]
    async with playing([on_text("a", *do)]) as play:
        await play.text("a")
        assert (await play.client.until("text"))["text"] == "INVALID"
        call = await play.call()
        assert call["arguments"] == {"door": "front"}


async def test_streamed_call_shows_its_arguments_first(playing):
    do = [{"call": {"tool": "lock", "arguments": {"door": "front"}, "stream": True}}, {"waitResult": True}]
    async with playing([on_text("a", *do)]) as play:
        await play.text("a")
        shown = ""
        while True:
            message = await play.client.next()
            if message["type"] == "tool.call.delta":
                shown += message["preview"]["argumentsDelta"]
            elif message["type"] == "tool.call":
                break
        assert json.loads(shown) == message["arguments"] == {"door": "front"}


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (None, "ok"),
        ("REJECTED", "rejected"),
        ("FAILED", "failed FAILED said so"),
        ("INVALID", "failed INVALID said so"),
    ],
)
async def test_branch_follows_the_outcome(playing, code, answer):
    do = [
        {"call": {"tool": "lock", "arguments": {"door": "{1}"}}},
        {
            "branch": {
                "ok": [{"text": "ok"}],
                "REJECTED": [{"text": "rejected"}],
                "failed": [{"text": "failed {code} {message}"}],
            }
        },
        {"text": "after"},
    ]
    async with playing([on_text({"matches": "the (.*) door"}, *do)]) as play:
        await play.text("lock the back door")
        call = await play.call()
        assert call["arguments"] == {"door": "back"}
        await play.result(call, code=code)
        assert await play.until_idle() == [("text", answer), ("text", "after")]


async def test_branch_waits_for_the_call_it_names(playing):
    do = [
        {"call": {"tool": "lock", "arguments": {"door": "front"}, "id": "one"}},
        {"call": {"tool": "lock", "arguments": {"door": "back"}}},
        {"branch": {"call": "one", "ok": [{"text": "one"}]}},
        {"branch": {"otherwise": [{"text": "two"}, {"end": True}]}},
        {"text": "never"},
    ]
    async with playing([on_text("a", *do)]) as play:
        await play.text("a")
        one, two = await play.call(), await play.call()
        await play.result(one)
        assert (await play.client.until("text"))["text"] == "one"
        await play.result(two)
        assert await play.until_idle() == [("text", "two")]


async def test_states_and_further_turns(playing):
    do = [{"state": "acting"}, {"waitMs": 1}, {"turn": "listening"}, {"text": "second"}]
    async with playing([on_text("a", *do)]) as play:
        await play.text("a")
        messages = []
        while not messages or messages[-1].get("state") != "idle":
            messages.append(await play.client.next())
    words = [m.get("state") or m["type"] for m in messages if m["type"] != "ack"]
    assert words == ["thinking", "acting", "interrupted", "listening", "text", "idle"]


async def test_errors_end_what_they_say(playing):
    rules = [
        on_text("a", {"error": "only told"}, {"text": "goes on"}),
        on_text("b", {"error": {"message": "turn", "code": "MODEL_GONE", "inTurn": True}}),
        on_text("c", {"error": {"message": "session", "recoverable": False}}),
    ]
    async with playing(rules) as play:
        await play.text("a")
        assert await play.until_idle() == [("error", "AGENT_ERROR"), ("text", "goes on")]
        await play.text("b")
        assert (await play.client.until("error"))["code"] == "MODEL_GONE"
        await play.client.until("interrupted")
        await play.text("c")
        assert (await play.client.until("error"))["recoverable"] is False
        assert await play.client.closed() == 1011


async def test_rule_without_a_turn_begins_one_only_for_what_needs_it(playing):
    rules = [
        on_text("a", {"waitMs": 1}, {"error": "no turn"}, turn="none"),
        on_text("b", {"text": "turn"}, turn="none"),
    ]
    async with playing(rules) as play:
        await play.text("a")
        assert (await play.client.next())["type"] in ("ack", "error")
        await play.text("b")
        assert [seen for seen in await play.until_idle() if seen[0] != "error"] == [("text", "turn")]


async def test_new_input_ends_the_list_before(playing):
    rules = [on_text("a", {"waitMs": 3_600_000}, {"text": "never"}), on_text("b", {"text": "b"})]
    async with playing(rules) as play:
        await play.text("a")
        await play.client.until("turn.state", state="thinking")
        await play.text("b")
        assert await play.until_idle() == [("interrupted", "user"), ("text", "b")]


async def test_unfinished_call_is_shown_and_never_made(playing):
    do = [{"call": {"tool": "lock", "arguments": {"door": "front"}, "unfinished": True}}, {"text": "done"}]
    async with playing([on_text("a", *do)], {"capabilities": ["tool-stream-v1"]}) as play:
        await play.text("a")
        phases = []
        while True:
            message = await play.client.next()
            assert message["type"] != "tool.call"
            if message["type"] == "tool.stream":
                phases.append(message["phase"])
            elif message.get("state") == "idle":
                break
        assert phases == ["start", "arguments-delta", "failed"]


async def test_work_shows_a_tool_of_the_script_s_own(playing):
    work = {"tool": "search", "arguments": {"for": "{1}"}, "progress": ["looking for {1}"], "code": "FAILED"}
    rules = [{"on": {"text": {"matches": "find (.*)"}}, "do": [{"work": work}, {"text": "done"}]}]
    async with playing(rules, {"capabilities": ["tool-stream-v1"]}) as play:
        await play.text("find me")
        complete = await play.client.until("tool.stream", phase="arguments-complete")
        assert (complete["name"], complete["arguments"]) == ("search", {"for": "me"})
        assert (await play.client.until("tool.stream"))["progress"] == "looking for me"
        assert (await play.client.until("tool.stream"))["code"] == "FAILED"
        assert await play.until_idle() == [("text", "done")]


@pytest.mark.parametrize("context", ["no", {"a": 1}])
async def test_start_may_be_refused_by_the_context(playing, context):
    rules = [
        {"on": {"start": {"context": context}}, "do": [{"refuse": "not you"}]},
        {"on": {"start": True}, "do": [{"text": "welcome"}]},
    ]
    async with playing(rules, {"context": "yes"}) as play:
        assert await play.until_idle() == [("text", "welcome")]
    with pytest.raises(Closed) as closed:
        async with playing(rules, {"context": context}):
            pass
    assert closed.value.code == 1011


async def test_texts_can_name_what_the_session_has_seen(playing):
    rules = [
        on_text("tell", {"text": "{texts} {audioBytes} {heardMs} {outcome} {context} {contextJson}"}),
        on_text("go", {"call": {"tool": "lock", "arguments": {"door": "front"}}}, {"waitResult": True}),
    ]
    async with playing(rules, {"context": "a"}) as play:
        await play.text("tell")
        assert await play.until_idle() == [("text", '1 0 0  a "a"')]
        await play.text("go")
        await play.result(await play.call(), output={"ok": 1})
        await play.until_idle()
        await play.client.audio(b"12")
        await play.client.audio(b"345")
        await play.client.send("context", context=None)
        await play.text("tell")
        assert await play.until_idle() == [("text", '3 5 0 ok {"ok": 1} null null')]
        await play.text("go")
        await play.result(await play.call(), code="REJECTED")
        await play.until_idle()
        await play.text("tell")
        assert await play.until_idle() == [("text", "5 5 0 REJECTED null null")]


async def test_unknown_placeholder_stays(playing):
    async with playing([on_text("a", {"text": "{text} {nobody} {output.x} {} {a b}"})]) as play:
        await play.text("a")
        assert await play.until_idle() == [("text", "a {nobody} {output.x} {} {a b}")]


async def test_same_inputs_give_the_same_messages(playing):
    rules = [on_text("a", {"say": {"text": "x", "toneMs": 100}}, {"text": "{text}"})]
    runs = []
    for _ in range(2):
        async with playing(rules) as play:
            await play.text("a")
            frames = []
            while True:
                message = await play.client.next()
                frames.append(message if isinstance(message, bytes) else message["type"])
                if isinstance(message, dict) and message.get("state") == "idle":
                    break
            runs.append([frame for frame in frames if frame != "ack"])
    assert runs[0] == runs[1]
