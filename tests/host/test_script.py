"""The scripted agent's file: what is taken, and how a mistake is told."""

import json
import re
import wave
from pathlib import Path

import pytest
from vrt_host.agents.script import Branch, Recording, Script, Tone, load
from vrt_host.errors import UsageError

DOCS = Path(__file__).parents[2] / "docs" / "scripted.md"


def write(folder, value):
    path = folder / "script.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def rule(*do, **members):
    return {"rules": [{"on": {"start": True}, "do": list(do), **members}]}


CALL = {"call": {"tool": "lock"}}
NESTED = (
    '{"rules":[{"on":{"start":true},"do":[{"call":{"tool":"t"}},'
    + '{"branch":{"ok":[' * 200
    + "]}}" * 200
    + "]}]}"
)


def test_example_of_the_documentation_is_a_script(tmp_path):
    (example,) = re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(load(write(tmp_path, example)).rules) == 3


@pytest.mark.parametrize(
    "text", [text.replace("\\|", "|") for text in re.findall(r"\| `(\{.*?\})` \|", DOCS.read_text())]
)
def test_line_of_the_documentation_can_be_read(tmp_path, text):
    text = text.replace("[...]", "[]").replace('"message": ...', '"message": "x"')
    value = json.loads(text)
    recording(tmp_path / "hello.wav")
    kind = next(iter(value))
    if kind in ("start", "audio", "result", "interruption") or (
        kind == "text" and isinstance(value["text"], dict)
    ):
        load(write(tmp_path, {"rules": [{"on": value, "do": []}]}))
    else:
        load(write(tmp_path, rule(value) if kind == "refuse" else rule(CALL, value)))


def test_documentation_has_lines_to_read():
    assert len(re.findall(r"\| `(\{.*?\})` \|", DOCS.read_text())) > 20


def test_byte_order_mark_is_no_mistake(tmp_path):
    assert load(write(tmp_path, '\ufeff{"rules": []}')) == Script(())


def recording(path, rate=16_000, channels=1, width=2, frames=1600):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(bytes(frames * channels * width))


def test_sounds_are_read_with_the_script(tmp_path):
    recording(tmp_path / "a.wav", 22_050, 2)
    do = [{"say": {"text": "x", "wav": "a.wav"}}, {"say": {"text": "x", "toneMs": 100}}]
    first, second = load(write(tmp_path, rule(*do))).rules[0].do
    assert isinstance(first.sound, Recording)
    assert (first.sound.rate, len(first.sound.samples)) == (22_050, 1600)
    assert second.sound == Tone(100, 440.0)


def test_branch_may_wait_for_a_call_before_it(tmp_path):
    do = [
        {"call": {"tool": "a", "id": "one"}},
        {"call": {"tool": "b"}},
        {"branch": {"call": "one", "ok": [{"waitResult": "one"}], "otherwise": [{"end": True}]}},
    ]
    branch = load(write(tmp_path, rule(*do))).rules[0].do[2]
    assert isinstance(branch, Branch)
    assert branch.call == "one"
    assert set(branch.cases) == {"ok"}


@pytest.mark.parametrize(
    ("script", "place", "problem"),
    [
        ('{"rules": [', "line 1 column 12", "not JSON"),
        ('{"rules": [], "rules": []}', "", "'rules' is given twice"),
        ("[" * 100_000, "", "too deeply"),
        (NESTED, "", "too deeply"),
        ("[]", "", "must be an object with 'rules'"),
        ({}, "", "has no 'rules'"),
        ({"rules": [], "rule": []}, "", "unknown member 'rule'; known are 'rules'"),
        ({"rules": {}}, "rules", "must be a list"),
        ({"rules": [3]}, "rules[0]", "must be an object"),
        ({"rules": [{"on": {"start": True}}]}, "rules[0]", "has no 'do'"),
        ({"rules": [{"on": {}, "do": []}]}, "rules[0].on", "exactly one of"),
        ({"rules": [{"on": {"start": True, "text": "x"}, "do": []}]}, "rules[0].on", "exactly one of"),
        ({"rules": [{"on": {"start": 1}, "do": []}]}, "rules[0].on.start", "must be true"),
        ({"rules": [{"on": {"text": 1}, "do": []}]}, "rules[0].on.text", "must be a text, or an object with"),
        (
            {"rules": [{"on": {"text": {"matches": "("}}, "do": []}]},
            "rules[0].on.text.matches",
            "regular expression",
        ),
        (rule(on={"text": {"matches": "a{99999999999}"}}), "rules[0].on.text.matches", "regular expression"),
        (rule(on={"text": {"matches": "(" * 9999}}), "rules[0].on.text.matches", "regular expression"),
        (rule({"say": {"text": "x", "wav": "a\0\nb"}}), "rules[0].do[0].say.wav", "cannot read"),
        ({"rules": [{"on": {"audio": "some"}, "do": []}]}, "rules[0].on.audio", "must be an object"),
        (
            {"rules": [{"on": {"audio": {"voicedMs": 0}}, "do": []}]},
            "rules[0].on.audio.voicedMs",
            "1 to 60000",
        ),
        (
            {"rules": [{"on": {"audio": {"voicedMs": 1, "level": 2}}, "do": []}]},
            "rules[0].on.audio.level",
            "0.0001 to 1",
        ),
        (
            {"rules": [{"on": {"result": {"code": "NO"}}, "do": []}]},
            "rules[0].on.result.code",
            "one of 'INTERRUPTED'",
        ),
        ({"rules": [{"on": {"result": {"ok": "yes"}}, "do": []}]}, "rules[0].on.result.ok", "true or false"),
        (rule(times=0), "rules[0].times", "1 to"),
        (rule(times=True), "rules[0].times", "whole number"),
        (rule(turn="speaking"), "rules[0].turn", "one of 'thinking', 'listening', 'none'"),
        (rule({}), "rules[0].do[0]", "exactly one of 'say'"),
        (rule({"sing": "x"}), "rules[0].do[0]", "unknown member 'sing'"),
        (rule({"say": 3}), "rules[0].do[0].say", "must be an object"),
        (rule({"say": {"toneMs": 3}}), "rules[0].do[0].say", "has no 'text'"),
        (rule({"say": {"text": "x", "toneMs": 1.5}}), "rules[0].do[0].say.toneMs", "whole number"),
        (rule({"say": {"text": "x", "toneMs": 700_000}}), "rules[0].do[0].say.toneMs", "1 to 600000"),
        (rule({"say": {"text": "x", "toneHz": 100}}), "rules[0].do[0].say", "toneHz without toneMs"),
        (rule({"say": {"text": "x", "toneMs": 1, "wav": "a"}}), "rules[0].do[0].say", "keep one"),
        (rule({"say": {"text": "x", "wav": "no.wav"}}), "rules[0].do[0].say.wav", "cannot read"),
        (rule({"text": []}), "rules[0].do[0].text", "at least one"),
        (rule({"text": ["a", 1]}), "rules[0].do[0].text[1]", "must be a text"),
        (rule({"heard": {"text": "x", "final": 1}}), "rules[0].do[0].heard.final", "true or false"),
        (rule({"state": "idle"}), "rules[0].do[0].state", "one of 'listening'"),
        (rule({"turn": "acting"}), "rules[0].do[0].turn", "one of"),
        (rule({"waitMs": -1}), "rules[0].do[0].waitMs", "0 to"),
        (rule({"end": False}), "rules[0].do[0].end", "must be true"),
        (rule({"error": {"message": "x", "code": "bad"}}), "rules[0].do[0].error.code", "upper-case"),
        (rule({"call": {}}), "rules[0].do[0].call", "has no 'tool'"),
        (rule({"call": {"tool": "x", "arguments": []}}), "rules[0].do[0].call.arguments", "use raw"),
        (rule({"call": {"tool": "x", "arguments": {}, "raw": ""}}), "rules[0].do[0].call", "keep one"),
        (rule({"call": {"tool": "x", "id": ""}}), "rules[0].do[0].call.id", "must not be empty"),
        (rule({"call": {"tool": "x", "unfinished": 1}}), "rules[0].do[0].call.unfinished", "true or false"),
        (
            rule({"call": {"tool": "x", "unfinished": True}}, {"waitResult": True}),
            "rules[0].do[1].waitResult",
            "no call stands before it",
        ),
        (
            rule({"work": {"tool": "x", "arguments": []}}),
            "rules[0].do[0].work.arguments",
            "must be an object",
        ),
        (rule({"work": {"tool": "x", "progress": 1}}), "rules[0].do[0].work.progress", "must be a list"),
        (rule({"work": {"tool": "x", "code": "NO"}}), "rules[0].do[0].work.code", "one of 'INTERRUPTED'"),
        (rule({"refuse": "x"}, on={"text": "x"}), "rules[0].do", "stands alone, in a rule for the start"),
        (rule({"refuse": "x"}, {"end": True}), "rules[0].do", "stands alone"),
        ({"rules": [{"on": {"start": {}}, "do": []}]}, "rules[0].on.start", "has no 'context'"),
        (rule({"waitResult": True}), "rules[0].do[0].waitResult", "no call stands before it"),
        (rule(CALL, {"waitResult": "a"}), "rules[0].do[1].waitResult", "no call before it has the id 'a'"),
        (
            rule(CALL, {"branch": {"call": "b"}}),
            "rules[0].do[1].branch.call",
            "no call before it has the id 'b'",
        ),
        (rule(CALL, {"branch": {"TIMEOUT": []}}), "rules[0].do[1].branch", "unknown member 'TIMEOUT'"),
        (rule(CALL, {"branch": {"ok": [{"end": 1}]}}), "rules[0].do[1].branch.ok[0].end", "must be true"),
        ({"rules": [], "otherwise": "x"}, "otherwise", "must be a list"),
    ],
)
def test_mistake_is_told_with_its_place_in_one_line(tmp_path, script, place, problem):
    path = write(tmp_path, script)
    with pytest.raises(UsageError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {place}")
    assert problem in message
    assert "docs/scripted.md" in message
    assert "\n" not in message


def test_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(UsageError, match="cannot read the script"):
        load(tmp_path / "nothing.json")
    (tmp_path / "latin.json").write_bytes(b'{"rules": "\xe9"}')
    with pytest.raises(UsageError, match="byte 11: not UTF-8"):
        load(tmp_path / "latin.json")
    (tmp_path / "big.json").write_bytes(b" " * (1 << 21))
    with pytest.raises(UsageError, match="1 MiB"):
        load(tmp_path / "big.json")


@pytest.mark.parametrize(("rate", "width"), [(96_000, 2), (4_000, 2), (16_000, 1), (16_000, 3)])
def test_recording_that_cannot_be_used_is_told(tmp_path, rate, width):
    recording(tmp_path / "a.wav", rate, width=width)
    with pytest.raises(UsageError, match="16-bit samples at"):
        load(write(tmp_path, rule({"say": {"text": "x", "wav": "a.wav"}})))


@pytest.mark.parametrize(
    "content", [b"", b"RIFF", b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0", b"not a wave file at all, but longer"]
)
def test_recording_that_is_none_is_told(tmp_path, content):
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(UsageError, match=r"cannot read .*: \w"):
        load(write(tmp_path, rule({"say": {"text": "x", "wav": "a.wav"}})))
