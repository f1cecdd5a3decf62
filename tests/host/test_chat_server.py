"""agents/chat.py against servers that answer as ours never would: what stands in bodies, streams and refusals of others."""

import asyncio
import contextlib
import json
import logging

import pytest
from agent_stage import started
from pydantic import SecretStr
from vrt_host.agents import chat
from vrt_host.agents.base import PCM16_24K, PCMU, AgentError, Call, Text, Tool, ToolResult, TurnEnd
from vrt_host.agents.chat import ChatAgent
from vrt_host.agents.chat_options import Options

KEY = "sk-a-secret"
LOCK = Tool("lock")
STREAM = "text/event-stream"


@contextlib.asynccontextmanager
async def answering(*answers):
    """A server that gives these answers, (status, content type, body) each, the last one for ever; None: no answer at all.

    Its address, and the requests that it got.
    """
    requests = []

    async def serve(reader, writer):
        with (
            contextlib.closing(writer.transport),
            contextlib.suppress(ConnectionError, asyncio.IncompleteReadError),
        ):
            head = await reader.readuntil(b"\r\n\r\n")
            [length] = [
                line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
            ] or [b":0"]
            body = await reader.readexactly(int(length.split(b":")[1]))
            status, kind, answer = 404, "text/plain", b""
            if b"/models " not in head:
                requests.append(json.loads(body))
                given = answers[min(len(requests), len(answers)) - 1]
                if given is None:
                    await reader.read()
                    return
                status, kind, answer = given
            head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + answer)
            await writer.drain()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", requests


@contextlib.asynccontextmanager
async def asked(url, **options):
    """An agent that was asked something; its port."""
    given = {"recogniser": "openai", "synthesiser": "none", "vad": "loudness", **options}
    agent = ChatAgent(Options(model="m", base_url=url, api_key=SecretStr(KEY), **given))
    async with started(agent, tools=[LOCK], format_=PCMU, output=PCM16_24K) as port:
        agent.user_text("Hello")
        yield port


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    monkeypatch.setattr(
        ChatAgent.backoff,
        "next",
        lambda self, error=None: setattr(self, "failures", self.failures + 1) or 0.0,
    )


def chunk(delta, finish=None, **more):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return "data: " + json.dumps({"choices": [choice], **more}, ensure_ascii=False) + "\n\n"


def written(port):
    return "".join(event.text for event in port.all(Text))


HELLO = chunk({"content": "Hello."})
MESSAGE = json.dumps({"choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]}, indent=1)


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        (STREAM, HELLO + "data:[DONE]", "Hello."),
        (STREAM, (HELLO + chunk({}, "stop")).replace("\n", "\r\n"), "Hello."),
        (STREAM, chunk({"content": "Hel\u2028lo\x85."}) + chunk({}, "stop"), "Hel\u2028lo\x85."),
        (STREAM, ": a sign of life\n\nretry: 10\nid: 3\nevent: chunk\n" + HELLO + chunk(None, "stop"), "Hello."),
        (STREAM, 'data: {"choices": [], "usage": {}}\n\n' + HELLO + "data: [DONE]\n\n", "Hello."),
        (STREAM, chunk({"content": [{"type": "thinking"}, {"type": "text", "text": "Hello."}]}, "stop"), "Hello."),
        (STREAM, "data: " + "x" * 3_000_000 + "\n\n" + HELLO + chunk({}, "stop"), "Hello."),
        ("application/json", MESSAGE, "Hello."),
        ("application/json", HELLO + chunk({}, "stop"), "Hello."),
        (STREAM, HELLO, "Hello."),
    ],
    ids=["no blank", "crlf", "other ends of lines", "comments", "usage", "parts", "too long", "whole", "not whole", "no end"],
)  # fmt: skip
async def test_answer_is_read_however_it_is_sent(kind, body, said):
    async with answering((200, kind, body.encode())) as (url, requests), asked(url) as port:
        await port.ends(1)
        assert written(port) == said
        assert port.all(AgentError) == []
        assert len(requests) == 1


@pytest.mark.parametrize(
    ("answer", "words", "recoverable", "tries"),
    [
        ((200, "text/html", "<html>Open UI</html>"), "it answered with text/html", False, 1),
        ((200, "application/json", '{"error": {"message": "No."}}'), "No;", True, 1),
        ((200, STREAM, ""), "it answered nothing", True, 3),
        ((200, STREAM, 'error: {"code": 500, "message": "The slot broke."}\n\n'), "The slot broke;", True, 3),
        ((200, STREAM, 'event: error\ndata: {"message": "It broke."}\n\n'), "It broke;", True, 1),
        ((200, STREAM, 'data: {"object": "error", "message": "Boom.", "code": 400}\n\n'), "Boom;", False, 1),
        ((200, STREAM, "data: {\n\n"), "nothing of its answer can be read", True, 1),
        ((200, STREAM, chunk({}, "content_filter")), "gave no answer (content_filter); ask again in other", True, 1),
        ((200, STREAM, chunk({}, "length")), "gave no answer (length); raise max_tokens", True, 1),
        ((500, "text/plain", ""), "HTTP status 500; the server is in trouble", True, 3),
        ((502, "text/html", "<head><title>x</title></head><h1>502 Bad Gateway</h1>"), "chat: 502 Bad Gateway;", True, 3),
        ((503, "text/plain", '{"error": {"message": "Loading model", "code": 503}}'), "Loading model; the server", True, 3),
        ((422, "text/plain", '{"detail": [{"loc": ["body"], "msg": "Field required"}]}'), "chat: Field required;", False, 1),
        ((400, "text/plain", '[{"error": {"message": "API key not valid."}}]'), "not valid; check the key", False, 1),
        ((401, "text/plain", json.dumps({"error": f"Wrong key {KEY}."})), r"Wrong key ***; check the key", False, 1),
    ],
)  # fmt: skip
async def test_refusal_is_one_line_whatever_it_is_written_in(answer, words, recoverable, tries, caplog):
    status, kind, body = answer
    with caplog.at_level(logging.INFO):
        async with answering((status, kind, body.encode())) as (url, requests), asked(url) as port:
            await port.until(lambda: port.all(AgentError))
            [error] = port.all(AgentError)
    assert words in error.message
    assert error.recoverable is recoverable
    assert len(requests) == tries
    assert port.all(TurnEnd) == []
    assert KEY not in caplog.text
    assert "<" not in error.message


async def test_server_that_never_answers_is_asked_once(monkeypatch):
    monkeypatch.setattr(chat, "_PATIENCE_S", 0.1)
    async with answering(None) as (url, requests), asked(url, timeout_s=0.2) as port:
        await port.until(lambda: port.all(AgentError))
        [error] = port.all(AgentError)
        assert f"chat: {url}/chat/completions did not answer in time; check the address" in error.message
        assert error.recoverable
        assert len(requests) == 1


async def test_refusal_in_the_midst_of_a_conversation_does_not_end_it():
    answers = [(200, STREAM, HELLO.encode()), (400, "text/plain", b"The template failed.")]
    async with answering(*answers) as (url, _), asked(url) as port:
        await port.ends(1)
        port.agent.user_text("More")
        await port.until(lambda: port.all(AgentError))
        [error] = port.all(AgentError)
        assert error.recoverable
        assert "The template failed" in error.message


async def test_what_a_server_adds_to_a_call_goes_back_to_it():
    mark = {"google": {"thought_signature": "c2lnbg=="}}
    call = {"index": 0, "id": "a", "function": {"name": "lock", "arguments": "{}"}, "extra_content": mark}
    answers = [
        (200, STREAM, chunk({"tool_calls": [call]}, "tool_calls").encode()),
        (200, STREAM, HELLO.encode()),
    ]
    async with answering(*answers) as (url, requests), asked(url) as port:
        await port.until(lambda: port.all(Call))
        [one] = port.all(Call)
        port.agent.tool_result(one.turn, ToolResult(one.call, True, "locked"))
        await port.ends(1)
    [said] = [message for message in requests[1]["messages"] if message["role"] == "assistant"]
    assert said["tool_calls"][0]["extra_content"] == mark
