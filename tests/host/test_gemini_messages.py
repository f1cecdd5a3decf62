"""agents/gemini_messages.py, gemini_options.py and gemini_history.py: what is sent is what the SDK's types take."""

import base64
import json
from pathlib import Path

import pytest
from peers.gemini_live import judge
from pydantic import SecretStr
from vrt_host.agents import gemini_messages as messages
from vrt_host.agents import options as agent_options
from vrt_host.agents.base import Tool, ToolResult
from vrt_host.agents.gemini_history import History
from vrt_host.agents.gemini_live import Options
from vrt_host.agents.gemini_messages import parse
from vrt_host.agents.model_tools import ToolNames
from vrt_host.agents.provider import ProviderError
from vrt_host.errors import UsageError

LOCK = Tool("lock", "Lock a door.", {"type": "object", "properties": {"door": {"enum": ["front", "back"]}}})
PAGE = Path(__file__).parents[2] / "docs" / "agents" / "gemini.md"


def options(**given):
    return Options(api_key=SecretStr("the-key"), **given)


def judged(frame):
    judge(frame)
    return frame


def set_up(chosen, *tools, **given):
    names = ToolNames(tools, messages.function_name)
    how = {"handle": None, "seeded": False, **given}
    return judged(messages.setup(chosen, messages.dialect(chosen), names, **how))["setup"]


def said(**content):
    return parse(json.dumps({"serverContent": content}))


# --- what is sent


def test_setup_says_what_the_options_say():
    chosen = options(
        voice="Kore",
        language="en-US",
        start_sensitivity="low",
        end_sensitivity="high",
        silence_ms=300,
        prefix_padding_ms=20,
        setup={"generationConfig": {"temperature": 0.2}},
    )
    setup = set_up(chosen, LOCK, handle="a-handle", seeded=True)
    assert setup["model"] == "models/gemini-3.8-live"
    assert setup["generationConfig"]["temperature"] == 0.2
    assert setup["generationConfig"]["responseModalities"] == ["AUDIO"]
    assert setup["generationConfig"]["speechConfig"]["languageCode"] == "en-US"
    assert setup["sessionResumption"] == {"handle": "a-handle"}
    assert setup["historyConfig"] == {"initialHistoryInClientContent": True}
    detection = setup["realtimeInputConfig"]["automaticActivityDetection"]
    assert detection["startOfSpeechSensitivity"] == "START_SENSITIVITY_LOW"
    [tool] = setup["tools"][0]["functionDeclarations"]
    assert tool["parametersJsonSchema"] == LOCK.parameters
    assert tool["behavior"] == "BLOCKING"


def test_setup_leaves_out_what_is_not_said():
    setup = set_up(options(transcripts=False, compression=False))
    assert set(setup) == {"model", "generationConfig", "systemInstruction", "sessionResumption"}
    assert setup["sessionResumption"] == {}  # a handle of None is refused


@pytest.mark.parametrize(
    ("model", "text", "context", "behavior"),
    [
        ("gemini-2.5-flash-native-audio-preview-09-2025", "content", "content", None),
        ("gemini-live-2.5-flash-preview", "content", "content", None),
        ("gemini-3.1-flash-live-preview", "realtime", "later", None),
        ("gemini-3.8-live", "realtime", "update", "BLOCKING"),
        ("gemini-3.8-live-extended-thinking", "realtime", "update", "NON_BLOCKING"),
    ],
)
def test_dialect_follows_the_model(model, text, context, behavior):
    speaks = messages.dialect(options(model=model))
    assert (speaks.text, speaks.context, speaks.behavior) == (text, context, behavior)
    assert messages.dialect(options(model=model, tool_calls="default")).behavior is None


def test_names_that_are_not_allowed_are_mapped_both_ways():
    tools = [Tool("2nd-light"), Tool("_2nd-light"), Tool("lock.front")]
    names = ToolNames(tools, messages.function_name)
    allowed = [name for name, _ in names.items()]
    assert allowed == ["_2nd-light", "__2nd-light", "lock.front"]
    assert [names.own(name) for name in allowed] == ["2nd-light", "_2nd-light", "lock.front"]
    assert names.own("made-up") == "made-up"


def test_frames_are_of_the_sdks_types():
    for model in ("gemini-2.5-flash", "gemini-3.8-live"):
        judged(messages.typed("Hello", messages.dialect(options(model=model))))
    judged(messages.audio(b"\x00\x01"))
    judged(messages.AUDIO_END)
    judged(messages.context_update("Be brief.", {"door": "open"}))
    judged(messages.content([("user", "a"), ("model", "b")], complete=True))
    results = [("id-1", "lock", messages.response(ToolResult("c", True)))]
    judged(messages.tool_response(results, silent=True))


def test_result_is_never_empty():
    assert messages.response(ToolResult("c", True)) == {"ok": True, "output": "done"}
    failed = messages.response(ToolResult("c", False, code="TIMEOUT", message="no answer"))
    assert failed == {"ok": False, "error": "no answer", "code": "TIMEOUT", "message": "no answer"}


# --- what comes


def test_content_is_read_with_either_spelling():
    data = base64.b64encode(b"\x01\x02").decode()
    parts = [
        {"text": "**Thinking**", "thought": True},
        {"text": "written"},
        {"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": data}},
    ]
    found = said(modelTurn={"parts": parts}, outputTranscription={"text": "Hi"}, turnComplete=True)
    assert (found.parts, found.said, found.turn_complete) == (["written", b"\x01\x02"], "Hi", True)
    snake = {
        "server_content": {
            "model_turn": {"parts": [{"inline_data": {"mime_type": "audio/pcm", "data": data}}]}
        }
    }
    assert parse(json.dumps(snake)).parts == [b"\x01\x02"]
    assert said(interactionStatus="IN_PROGRESS", turnComplete=True).status == "IN_PROGRESS"


def test_calls_keep_the_arguments_that_the_model_wrote():
    calls = [
        {"id": "1", "name": "lock", "args": {"door": "front"}},
        {"name": "a"},
        {"name": "b", "args": ["x"]},
    ]
    found = parse(json.dumps({"toolCall": {"functionCalls": calls}})).calls
    assert [(call.id, call.arguments) for call in found] == [
        ("1", {"door": "front"}),
        (None, {}),
        (None, '["x"]'),
    ]


def test_what_is_unknown_is_named_and_left():
    found = parse('{"somethingNew": 1, "usageMetadata": {}, "goAway": {"timeLeft": "9.5s"}}')
    assert found.unknown == ["somethingNew"]
    assert found.going_s == 9.5


@pytest.mark.parametrize(
    "frame",
    [
        b"{",
        b"\xff\xfe\xff",
        "[" * 100_000,
        "[]",
        "1",
    ],
)
def test_what_cannot_be_read_at_all_is_malformed(frame):
    with pytest.raises(ProviderError) as caught:
        parse(frame)
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize(
    "frame",
    [
        '{"serverContent": 1}',
        '{"serverContent": {"modelTurn": {"parts": [{"inlineData": {"mimeType": "audio/pcm", "data": "!"}}]}}}',
        '{"serverContent": {"modelTurn": {"parts": [{"inlineData": {"mimeType": "audio/pcm;rate=8000", "data": ""}}]}}}',
        '{"toolCall": {"functionCalls": [{"id": "1"}]}}',
        '{"toolCall": {"functionCalls": [{"name": 1}]}}',
    ],
)
def test_what_is_malformed_is_said_to_be(frame):
    assert parse(frame).malformed


def test_what_is_malformed_costs_nothing_but_itself():
    good = {"inlineData": {"mimeType": "audio/pcm", "data": "AAAA"}}
    parts = [{"inlineData": {"mimeType": "audio/opus", "data": "AAAA"}}, None, good]
    content = {"inputTranscription": {"text": 1}, "modelTurn": {"parts": parts}, "turnComplete": True}
    calls = [{"id": "1"}, {"id": "2", "name": "lock"}]
    found = parse(json.dumps({"serverContent": content, "toolCall": {"functionCalls": calls}}))
    assert found.malformed
    assert found.turn_complete
    assert found.parts == [b"\0\0\0"]
    assert [call.id for call in found.calls] == ["2"]


def test_what_is_no_sound_is_left_out():
    picture = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    code = {"executableCode": {"language": "PYTHON", "code": "1 + 1"}}
    found = parse(
        json.dumps({"serverContent": {"modelTurn": {"parts": [picture, code, {"inlineData": None}]}}})
    )
    assert (found.parts, found.malformed) == ([], "")


@pytest.mark.parametrize(
    ("code", "reason", "ready", "kind"),
    [
        (1007, "API key not valid. Please pass a valid API key.", False, "key"),
        (1007, "API key expired. Please renew the API key.", False, "expired"),
        (
            1008,
            "models/x is not found for API version v1beta, or is not supported for bidiGenerateContent",
            False,
            "model",
        ),
        (
            1011,
            "You exceeded your current quota, please check your plan and billing details.",
            False,
            "quota",
        ),
        (1011, "Resource has been exhausted (e.g. check quota).", True, "rate"),
        (1007, "Request contains an invalid argument.", False, "format"),
        (1007, "Request contains an invalid argument.", True, "refused"),
        (1007, 'Invalid JSON payload received. Unknown name "x" at "setup"', False, "version"),
        (1011, "Deadline expired before operation could complete.", True, "gone"),
        (1011, "Internal error encountered.", True, "gone"),
        (1006, "", True, "gone"),
        (1008, "Operation is not implemented, or supported, or enabled.", True, "gone"),
        (1007, "User location is not supported for the API use.", False, "refused"),
        (1008, "Token has been used too many times", False, "expired"),
        (1011, "You exceeded your current quota. Please retry in 34.07s.", True, "rate"),
    ],
)
def test_close_is_told_by_its_words(code, reason, ready, kind):
    assert messages.closed(code, reason, ready=ready).kind == kind


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, "", "key"),
        (404, "", "version"),
        (429, "", "rate"),
        (503, "", "unreachable"),
        (400, "", "refused"),
    ],
)
def test_status_is_told(status, body, kind):
    assert messages.refused(status, body).kind == kind


def test_wait_that_the_words_name_is_kept():
    assert (
        messages.refused(429, "You exceeded your current quota. Please retry in 34.07s.").retry_after_s
        == 34.07
    )


# --- options


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"base_url": "http://example.com"}, "insecure"),
        ({"base_url": "https://key@example.com"}, "may hold no name"),
        ({"base_url": "https://example.com/?key=1"}, "may hold no name"),
        ({"base_url": "example.com"}, "has to be an address"),
    ],
)
def test_address_that_gives_the_key_away_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        options(**given)


def test_key_goes_into_a_header():
    url, headers = options().address()
    assert url.startswith("wss://generativelanguage.googleapis.com/ws/google.ai.generativelanguage.v1beta.")
    assert "the-key" not in url
    assert headers == {"x-goog-api-key": "the-key"}
    assert "the-key" not in repr(options())
    token = Options(api_key=SecretStr("auth_tokens/abc"), api_version="v1alpha").address()
    assert token[0].endswith("v1alpha.GenerativeService.BidiGenerateContentConstrained")
    assert token[1] == {"Authorization": "Token auth_tokens/abc"}
    whole = "http://127.0.0.1:9/proxy/GenerativeService.BidiGenerateContent"
    assert options(base_url=whole).address()[0] == whole.replace("http", "ws")


def test_missing_key_is_one_line():
    with pytest.raises(UsageError, match="GEMINI_API_KEY"):
        agent_options.load(Options, "gemini", None, environ={})


def test_example_of_the_page_loads(tmp_path):
    example = PAGE.read_text("utf-8").split("```toml\n")[1].split("```")[0]
    (tmp_path / "agents.toml").write_text(example)
    (tmp_path / "gemini.key").write_text("k")
    agent_options.load(Options, "gemini", tmp_path / "agents.toml", environ={})


def test_page_has_all_options():
    page = PAGE.read_text("utf-8")
    for name, field in Options.model_fields.items():
        assert f"| `{name}`" in page or f"| `{name}_file`" in page, name
        if isinstance(field.default, str) and name not in ("instructions",):
            assert field.default in page, name


# --- history


def test_history_begins_with_the_user_and_keeps_what_was_heard():
    history = History({"room": "kitchen"})
    history.add("user", "Tell me a story.")
    answer = history.add("model")
    answer.text("item", "Once upon a time there was a fox.")
    answer.sound("item", 2.0)
    answer.cut({"item": 1000})
    history.add("user", "Stop.")
    (first, context), (second, story), (third, stop) = history.turns()
    assert (first, second, third) == ("user", "model", "user")
    assert "kitchen" in context
    assert context.startswith(messages.CONTEXT)
    assert context.endswith("Tell me a story.")
    assert story == "Once upon a ..."
    assert stop == "Stop."


def test_history_is_bounded():
    history = History(None)
    for number in range(200):
        history.add("model" if number % 2 else "user", f"{number} " + "x" * 400)
    turns = history.turns()
    assert turns[0][0] == "user"
    assert sum(len(text) for _, text in turns) < 17_000
    assert turns[-1][1].startswith("199")
