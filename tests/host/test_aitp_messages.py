"""AITP's messages, options, tools and sound as the agent `aitp` reads and writes them; the sections are those of schema/peers/aitp."""

import base64
import contextlib
import json
import struct

import pytest
from peers import vectors
from peers.plan import samples, tone
from pydantic import SecretStr, ValidationError
from vrt_host.agents import aitp_messages as messages
from vrt_host.agents.aitp_messages import AitpError, AudioStream, HandshakeAck, SystemEvent
from vrt_host.agents.aitp_options import Options
from vrt_host.agents.aitp_page import Page
from vrt_host.agents.aitp_sound import Sound, Unplayable, recording
from vrt_host.agents.aitp_tools import declaration, risk
from vrt_host.agents.base import Tool

VECTORS = vectors.load("aitp")
KEY = "a-secret-that-nobody-may-see"


def as_frame(case):
    frame = vectors.frame(case)
    return frame if isinstance(frame, str | bytes) else json.dumps(frame)


def of_server(cases):
    return [pytest.param(case, id=case["id"]) for case in cases if case["direction"] == "server"]


# --- reading


@pytest.mark.parametrize("case", of_server(VECTORS.valid))
def test_valid_message_of_a_server_is_read(case):
    assert messages.parse(as_frame(case)) is not None


@pytest.mark.parametrize(
    "case", of_server(case for case in VECTORS.invalid if case.get("receiver") != "accepts")
)
def test_invalid_message_of_a_server_is_not(case):
    """Rejected whole ("Message Envelope Structure"), or passed over where its kind may be one of another version's."""
    message = None
    with contextlib.suppress(AitpError):
        message = messages.parse(as_frame(case))
    assert message is None or (isinstance(message, SystemEvent) and message.transcript() is None)


def test_server_that_does_not_say_takes_30_tools():
    """30 (page: 2. HANDSHAKE_ACK)."""
    payload = {
        "sessionId": "s",
        "serverVersion": "0.4.0",
        "protocolVersion": "1.0.0",
        "capabilities": ["tools"],
    }
    assert messages.parse(json.dumps(messages.message("HANDSHAKE_ACK", payload))).max_active_tools == 30


# --- writing


def test_handshake_tells_the_key_and_version_1_0_0():
    """1.0.0 (page: Version Negotiation)."""
    made = messages.handshake(KEY, "0.1.0")
    assert vectors.errors("aitp", "client", made) == []
    assert made["payload"]["protocolVersion"] == "1.0.0"
    assert made["payload"]["apiKey"] == KEY
    assert messages.handshake("", "0.1.0")["payload"]["apiKey"] == "anonymous"


def test_session_is_named_in_meta_once_there_is_one():
    assert "meta" not in messages.message("USER_INPUT", {})
    assert messages.message("USER_INPUT", {}, "ses_1")["meta"] == {"sessionId": "ses_1"}


# --- the context


def test_context_of_64_kb_is_told_and_a_larger_one_is_not(caplog):
    """64 KB of context data (code: server-hardening-limits.md)."""
    room = 65_536 - len('{"a": ""}')
    page = Page((), {"a": "x" * room})
    assert len(page.update([])["context"]["a"]) == room
    page.change({"a": "x" * (room + 1)})
    assert page.update([])["context"] == {}
    assert "larger than the 65536 bytes" in caplog.text
    page.change({"a": "x" * (room + 2)})
    page.update([])
    assert len(caplog.records) == 1
    page.change({})
    page.update([])
    page.change({"a": "x" * (room + 2)})
    page.update([])
    assert len(caplog.records) == 2


def test_what_was_said_before_is_cut_to_the_newest_that_fits():
    said = [{"role": "user", "text": str(number) + "x" * 999} for number in range(100)]
    context = Page((), {"a": 1}).update(said)["context"]
    assert context["a"] == 1
    assert context["earlierConversation"][-1] == said[-1]
    assert 50 < len(context["earlierConversation"]) < 66
    assert vectors.beyond("aitp", messages.message("CONTEXT_UPDATE", {"context": context})) == []


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, {}), ({"a": 1}, {"a": 1}), ([1], {"application": [1]}), ("x", {"application": "x"})],
)
def test_context_becomes_an_object(value, told):
    assert Page((), value).update([])["context"] == told


@pytest.mark.parametrize(("limit", "taken"), [(30, 30), (2, 2), (40, 31)])
def test_tools_beyond_what_the_server_takes_are_left_out_and_named(limit, taken, caplog):
    """maxActiveTools (page: 2. HANDSHAKE_ACK)."""
    page = Page([Tool(f"tool_{number}") for number in range(31)], None)
    page.heed(acknowledged(max_active_tools=limit))
    update = page.update([])
    assert vectors.errors("aitp", "client", messages.message("CONTEXT_UPDATE", update)) == []
    assert [tool["name"] for tool in update["activeTools"]] == [f"tool_{number}" for number in range(taken)]
    assert ("tool_30" in caplog.text) == (taken < 31)


def test_server_without_tools_is_told_none(caplog):
    page = Page([Tool("lock")], None)
    page.heed(acknowledged(capabilities=["text"]))
    assert page.update([])["activeTools"] == []
    assert "lock" in caplog.text


def acknowledged(**members):
    return HandshakeAck.model_construct(
        **{"capabilities": ["text", "audio", "tools"], "max_active_tools": 30, **members}
    )


# --- tools


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        (Tool("t", effect="none"), "none"),
        (Tool("t"), "low"),
        (Tool("t", confirm="button"), "high"),
        (Tool("t", confirm="voice"), "high"),
        (Tool("t", confirm="button", effect="irreversible"), "critical"),
    ],
)
def test_risk_comes_from_what_asks_the_user_and_what_cannot_be_undone(tool, told):
    assert risk(tool) == told


def property_of(schema):
    tool = Tool("t", "Does it.", {"type": "object", "properties": {"a": schema}})
    made = declaration(tool)
    frame = messages.message("CONTEXT_UPDATE", {"url": "", "activeTools": [made]})
    assert vectors.errors("aitp", "client", frame) == []
    return made["parameters"]["properties"]["a"]


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        ({"type": "string", "description": "A door."}, {"type": "STRING", "description": "A door."}),
        ({"enum": ["front", "back"]}, {"type": "STRING", "enum": ["front", "back"]}),
        ({"const": "x"}, {"type": "STRING", "enum": ["x"]}),
        ({"type": "boolean"}, {"type": "BOOLEAN"}),
        ({"type": "integer"}, {"type": "NUMBER", "description": "whole number"}),
        (
            {"type": "number", "minimum": 1, "description": "Watts."},
            {"type": "NUMBER", "description": 'Watts. (JSON Schema: {"minimum": 1})'},
        ),
        ({"enum": [1, 2]}, {"type": "NUMBER", "description": 'JSON Schema: {"enum": [1, 2]}'}),
        ({"enum": [True]}, {"type": "BOOLEAN", "description": 'JSON Schema: {"enum": [true]}'}),
        ({"type": ["string", "null"]}, {"type": "STRING", "description": "string or null"}),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            {
                "type": "STRING",
                "description": 'JSON Schema: {"anyOf": [{"type": "string"}, {"type": "null"}]}',
            },
        ),
        ({"type": "array", "items": {"type": "string"}}, {"type": "ARRAY", "items": {"type": "STRING"}}),
        (
            {"properties": {"b": {"type": "string"}}, "required": ["b"], "additionalProperties": False},
            {"type": "OBJECT", "properties": {"b": {"type": "STRING"}}, "required": ["b"]},
        ),
        (True, {"type": "STRING", "description": "any JSON value"}),
        ({}, {"type": "STRING"}),
    ],
)
def test_schema_is_written_in_the_dialect_and_the_rest_in_words(schema, made):
    """page: 3. CONTEXT_UPDATE."""
    assert property_of(schema) == made


def test_schema_nested_without_end_is_told_in_words():
    schema = {"type": "string"}
    for _ in range(30):
        schema = {"type": "array", "items": schema}
    assert "JSON Schema" in json.dumps(property_of(schema))


def test_tool_without_description_or_parameters_has_both():
    assert declaration(Tool("lock")) == {
        "name": "lock",
        "description": "lock",
        "parameters": {"type": "OBJECT", "properties": {}},
        "risk": "low",
    }
    made = declaration(Tool("t", "Does it.", {"type": "object", "minProperties": 1, "required": ["a"]}))
    assert made["description"] == 'Does it. (JSON Schema: {"minProperties": 1})'
    assert made["parameters"]["required"] == ["a"]


# --- sound


def test_audio_of_the_usual_rate_is_played_as_it_is():
    """24000 Hz down (page: 10. AUDIO_STREAM), samples cut anywhere."""
    sound, pcm = Sound(), tone(0.1, "pcm16", 24_000)
    assert sound.feed(pcm[:3], "audio/pcm;rate=24000") + sound.feed(pcm[3:], "audio/pcm") == pcm
    assert sound.end() == b""


@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
def test_audio_of_another_rate_is_converted(rate):
    """The rate is read from the `mimeType`."""
    sound = Sound()
    made = sound.feed(tone(0.5, "pcm16", rate), f"audio/pcm; rate={rate}") + sound.end()
    assert abs(len(made) - 24_000) < 100
    assert abs(samples(made, "pcm16")).max() > 10_000


def test_recording_tells_its_rate_itself():
    """The page's own example of 10. AUDIO_STREAM is a WAV file under the type of PCM."""
    made = Sound().feed(recording(tone(0.5, "pcm16", 16_000), 16_000), "audio/pcm;rate=24000")
    assert abs(len(made) - 24_000) < 400
    assert Sound().feed(base64.b64decode("UklGRiQAAABXQVZF"), "audio/pcm;rate=24000") == b""
    pcm = tone(0.1, "pcm16", 24_000)
    whole = recording(pcm, 24_000)
    streamed = whole[:40] + struct.pack("<I", 0xFFFFFFFF) + whole[44:]
    assert Sound().feed(streamed, "audio/wav") == pcm


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (b"ID3", "audio/mpeg"),
        (b"\0\0", "audio/pcm;rate=24000;channels=2"),
        (b"\0\0", "audio/pcm;rate=0"),
        (b"\0\0", "audio/pcm;rate=99999999"),
        (b"RIFF\0\0\0\0WAVE" + 9_000 * b"junk\0\0\0\0" + recording(b"\0\0", 24_000)[12:], "audio/wav"),
        (recording(b"\0\0", 24_000)[:22] + b"\x02\0" + recording(b"\0\0", 24_000)[24:], "audio/wav"),
    ],
)
def test_what_cannot_be_played_is_refused(data, mime):
    with pytest.raises(Unplayable):
        Sound().feed(data, mime)


def test_audio_data_is_base64():
    payload = {"data": messages.encoded(b"\1\2"), "mimeType": "audio/pcm"}
    message = messages.parse(json.dumps(messages.message("AUDIO_STREAM", payload)))
    assert message == AudioStream(data=messages.encoded(b"\1\2"), mimeType="audio/pcm")
    assert message.data == b"\1\2"


# --- the end of a connection


@pytest.mark.parametrize(
    ("code", "reason", "kind", "final"),
    [
        (1008, "Unauthorized", "key", True),
        (1008, "Protocol version mismatch", "version", True),
        (1008, "Connection limit reached", "quota", True),
        (1008, "Origin not allowed", "refused", True),
        (1008, "lineToken required", "key", True),
        (1003, "", "version", True),
        (1011, "", "refused", True),
        (1013, "Server at capacity", "rate", False),
        (1001, "Server shutting down", "gone", False),
        (1000, "", "gone", False),
        (1006, "", "gone", False),
        (1012, "", "gone", False),
    ],
)
def test_close_code_says_whether_to_come_back(code, reason, kind, final):
    """1003, 1008, 1011: no reconnection (code: OwlLayerClient.ts); 1013 and 1001: later (code: aitp.transport.ts)."""
    error = messages.closed(code, reason)
    assert (error.kind, error.final, error.passing) == (kind, final, not final)
    assert error.said
    assert error.event("aitp").recoverable is not final


@pytest.mark.parametrize(
    ("status", "kind", "final"),
    [
        (401, "key", True),
        (403, "key", True),
        (404, "version", True),
        (429, "rate", False),
        (503, "unreachable", False),
    ],
)
def test_http_status_says_what_is_wrong(status, kind, final):
    error = messages.refused(status)
    assert (error.kind, error.final) == (kind, final)


# --- options


def test_key_goes_into_a_header_and_never_into_the_address():
    options = Options(url="wss://agents.example", api_key=SecretStr(KEY))
    url, headers = options.address()
    assert url == "wss://agents.example/owllayer"
    assert headers == {"Authorization": f"Bearer {KEY}"}
    assert KEY not in repr(options)
    assert Options(url="wss://agents.example/other/").address() == ("wss://agents.example/other", {})


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"url": "http://agents.example"}, "wss"),
        ({"url": "ws://agents.example"}, "insecure"),
        ({"url": "wss://agents.example/owllayer?apiKey=x"}, "key"),
        ({"url": "wss://agents.example", "voice": "message", "vad": "server"}, "vad"),
        ({"url": "wss://agents.example", "reconnect_attempts": -1}, "reconnect_attempts"),
        ({"url": "wss://agents.example:99999"}, "Port out of range"),
        ({"url": "wss://agents.example:port"}, "Port"),
        ({"url": "wss://agents .example"}, "space"),
        ({"url": "wss://agents.example/\n"}, "space"),
        ({"url": "wss://agents..example"}, "name of a computer"),
    ],
)
def test_options_that_cannot_work_are_refused(options, word):
    with pytest.raises(ValidationError, match=word):
        Options(**options)


def test_insecure_address_is_taken_when_it_is_wanted():
    assert Options(url="ws://agents.example", insecure=True).address()[0] == "ws://agents.example/owllayer"
