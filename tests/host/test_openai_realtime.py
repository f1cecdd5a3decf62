"""agents/openai_realtime.py and its connection: options, sessions, what is refused, what is lost; with the peer, or with servers of a frame or two."""

import asyncio
import base64
import contextlib
import json
import logging
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
import pytest_asyncio
from agent_stage import answering, logged, started
from peers.plan import quiet, tone
from peers.process import DEADLINE_S, PeerProcess
from pydantic import SecretStr
from vrt_host.agents import openai_keeper, openai_link, openai_pump, registry
from vrt_host.agents.base import (
    PCM16_24K,
    PCMU,
    AgentError,
    Audio,
    AudioEnd,
    Call,
    Tool,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
)
from vrt_host.agents.openai_agent import check_format
from vrt_host.agents.openai_errors import from_connect
from vrt_host.agents.openai_pump import Pump
from vrt_host.agents.openai_realtime import OpenAIAgent, Options, wire_format
from vrt_host.agents.options import load
from vrt_host.agents.provider import Backoff, ProviderError
from vrt_host.errors import AgentStartError, UsageError
from websockets.datastructures import Headers
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = Path(__file__).parents[2] / "docs" / "agents" / "openai.md"
KEY = "a-secret-that-nobody-may-see"
FRAME = 160
LONG = {"say": "This is long.", "seconds": 30}


@pytest_asyncio.fixture(name="process", scope="module", loop_scope="module")
async def process_of_module():
    async with PeerProcess("openai_realtime") as peer:
        yield peer


@pytest_asyncio.fixture(name="peer", loop_scope="module")
async def peer_of_test(process):
    yield process
    await process.reset()


def agent_for(port, **options):
    base_url = f"http://127.0.0.1:{port}/v1"
    return OpenAIAgent(
        Options(**{"base_url": base_url, "api_key": SecretStr(KEY), "timeout_s": 2.0, **options})
    )


def hears(agent, *parts):
    audio = b"".join(parts)
    for start in range(0, len(audio), FRAME):
        agent.user_audio(audio[start : start + FRAME])


SPEECH = tone(0.3, "pcmu", 8000)
QUIET = quiet(0.6, "pcmu", 8000)


# --- options


async def test_page_has_every_option_and_its_example_loads(tmp_path):
    text = PAGE.read_text()
    example = text.split("```toml\n")[1].split("```")[0]
    (tmp_path / "agents.toml").write_text(example)
    (tmp_path / "openai.key").write_text(KEY)
    options = load(Options, "openai", tmp_path / "agents.toml", agents=registry.ADAPTERS, environ={})
    assert options.api_key.get_secret_value() == KEY
    assert KEY not in repr(options)
    for name in Options.model_fields:
        assert f"`{name}`" in text or f"`{name}_file`" in text, name


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({}, "OPENAI_API_KEY"),
        ({"base_url": "http://example.com/v1"}, "insecure"),
        ({"base_url": "ftp://127.0.0.1"}, "address"),
        ({"base_url": "https://me:secret@example.com"}, "a key is an option of its own"),
        ({"base_url": "http://127.0.0.1/v1", "turn_detection": "none"}, "turn_detection"),
        ({"base_url": "http://127.0.0.1/v1", "silence_duration_ms": 1}, "silence_duration_ms"),
        ({"base_url": "http://127.0.0.1/v1", "voise": "marin"}, "did you mean 'voice'"),
    ],
)
async def test_options_that_cannot_be_are_refused_in_one_line(tmp_path, table, says):
    path = tmp_path / "agents.toml"
    path.write_text(
        "[openai]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items())
    )
    with pytest.raises(UsageError, match=says) as raised:
        load(Options, "openai", path, environ={})
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("base_url", "url", "header"),
    [
        ("https://api.openai.com/v1", "wss://api.openai.com/v1/realtime?model=m", "Authorization"),
        ("https://a.openai.azure.com/openai/v1", "wss://a.openai.azure.com/openai/v1/realtime?model=m", "api-key"),
        ("wss://api.x.ai/v1/realtime", "wss://api.x.ai/v1/realtime?model=m", "Authorization"),
        ("http://127.0.0.1:1/v1/", "ws://127.0.0.1:1/v1/realtime?model=m", "Authorization"),
    ],
)  # fmt: skip
async def test_key_is_in_a_header_and_never_in_the_address(base_url, url, header):
    assert openai_link.address(base_url, "/realtime", "model=m") == url
    [(name, value)] = openai_link.headers(base_url, KEY, "auto").items()
    assert name == header
    assert value.endswith(KEY)
    assert openai_link.headers(base_url, "", "auto") == {}


# --- sessions


async def test_session_is_as_the_options_want_it(peer):
    options = {
        "voice": "marin",
        "speed": 1.2,
        "turn_detection": "semantic_vad",
        "eagerness": "high",
        "noise_reduction": "far_field",
        "language": "en",
        "max_output_tokens": 500,
        "instructions": "Be brief.",
        "session": {"audio": {"input": {"transcription": {"prompt": "doors"}}}, "truncation": "disabled"},
    }
    async with started(agent_for(peer.port, **options), tools=[Tool("lock", "Locks.")]):
        session = (await peer.seen("setup"))["session"]
    input_, output = session["audio"]["input"], session["audio"]["output"]
    assert input_["format"] == output["format"] == {"type": "audio/pcmu"}
    assert input_["turn_detection"]["eagerness"] == "high"
    assert input_["turn_detection"]["interrupt_response"] is True
    assert input_["transcription"] == {"model": "gpt-realtime-whisper", "language": "en", "prompt": "doors"}
    assert (output["voice"], output["speed"]) == ("marin", 1.2)
    assert session["truncation"] == "disabled"
    assert session["instructions"].startswith("Be brief.")
    assert session["tools"][0]["name"] == "lock"


async def test_user_can_be_left_untranscribed(peer):
    async with started(agent_for(peer.port, transcription="")):
        session = (await peer.seen("setup"))["session"]
    assert "transcription" not in session["audio"]["input"]


async def test_mu_law_passes_unchanged_and_pcm_is_taken_too(peer):
    for format_, encoding, rate in ((PCMU, "pcmu", 8000), (PCM16_24K, "pcm16", 24000)):
        await peer.respond([{"say": "Hi.", "seconds": 0.1}])
        async with started(agent_for(peer.port), format_=format_) as port:
            port.agent.user_text("Hello")
            await port.ends()
            assert b"".join(one.payload for one in port.all(Audio)) == tone(0.1, encoding, rate)


async def test_spoken_turn_with_the_text_of_both(peer):
    async with started(agent_for(peer.port)) as port:
        hears(port.agent, SPEECH, QUIET)
        await port.ends()
        said = [one.text for one in port.all(Transcript) if one.final and one.role == "user"]
        assert said == ["What is said."]
        assert port.all(TurnBegin)[0].state == "listening"


async def test_microphone_that_is_switched_off_ends_an_utterance(peer):
    """A device that listens while its button is held sends no quiet, by which a server finds the end."""
    async with started(agent_for(peer.port)) as port:
        hears(port.agent, SPEECH)
        await port.ends()
        assert port.all(AudioEnd)


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "session.created", "session": {"modalities": ["audio"]}},
        {"type": "conversation.created", "conversation": {"object": "realtime.conversation"}},
    ],
)
async def test_flat_dialect_gets_its_turn_detection_where_it_has_it(frame):
    def agree(message):
        shape = {"audio": {"output": {"format": {"type": "audio/pcmu"}}}}
        return [{"type": "ping"}, {"type": "session.updated", "session": shape}]

    async with (
        answering(frame, then=agree) as (number, received),
        started(agent_for(number, voice="ara")),
    ):
        session = received[1]["session"]
    assert session["turn_detection"]["type"] == "server_vad"
    assert session["voice"] == "ara"
    assert "type" not in session
    assert "turn_detection" not in session["audio"]["input"]


@pytest.mark.parametrize(
    "audio", [None, [], {"input": None, "output": []}, {"output": {"format": {"rate": 8000}}}]
)
async def test_session_that_the_server_does_not_describe_is_taken(audio):
    frames = [
        {"type": "session.created", "session": {}},
        {"type": "session.updated", "session": {"audio": audio}},
    ]
    async with answering(*frames) as (number, _), started(agent_for(number)) as port:
        assert port.events == []


# --- refusals


@pytest.mark.parametrize("got", [{"type": "audio/pcmu"}, {"type": "audio/pcm", "rate": 16000}])
async def test_other_format_than_the_wanted_is_refused(got):
    with pytest.raises(ProviderError, match="the server takes"):
        check_format(got, wire_format(PCM16_24K))


@pytest.mark.parametrize(
    ("server", "says"),
    [
        ({"status": 401}, "check the key"),
        ({"status": 404}, "check base_url and model"),
        ({"status": 429, "body": b'{"error": {"code": "insufficient_quota", "message": "No."}}'}, "balance"),
        ({"status": 429}, "wait"),
        ({"status": 503, "body": b"busy"}, "HTTP 503"),
        ({"status": 500, "body": b'{"error": {"type": "server_error", "message": "Sorry"}}'}, "Sorry.*; try again"),
        ({"status": 302}, "HTTP 302; check base_url"),
        ({"status": 200, "body": b"<html>"}, "HTTP 200; check base_url"),
        ({"status": 400, "body": b'{"code": "Bad argument", "error": "Incorrect API key provided: xa**"}'}, "check the key"),
        ({"status": 422, "body": b'{"detail": "No such thing."}'}, "No such thing"),
        ({"status": 400, "body": b'{"error": "bad words"}'}, "bad words"),
        ({"status": 400, "body": b"[" * 5000}, "HTTP 400"),
        ({"close": (3000, "invalid_request_error.invalid_api_key")}, "check the key"),
        ({"close": (1011, "")}, "1011; try again"),
        ({"frames": ["no json"]}, "does not speak this protocol"),
        ({"frames": [{"type": "hello"}]}, "opened no session"),
        ({"frames": [{"type": "session.created", "session": {"input_audio_format": "pcm16"}}]}, "beta"),
        ({"frames": [{"type": "error", "error": {"code": "model_not_found", "message": "No m."}}]}, "No m; choose"),
        ({"frames": [{"type": "error", "error": f"key {KEY} is bad"}]}, r"key \*\*\* is bad"),
        (
            {
                "frames": [
                    {"type": "session.updated", "session": {"audio": {"input": {"format": {"type": "audio/pcm"}}}}}
                ]
            },
            "audio/pcm for its input",
        ),
        ({"frames": [{"type": "session.updated", "session": {"input_audio_format": "g711_ulaw"}}]}, "beta"),
        ({"frames": [{"type": "error", "error": {"code": "429", "message": "Slow down."}}]}, "Slow down; wait"),
    ],
)  # fmt: skip
async def test_server_that_opens_no_session_is_told_in_one_line(server, says, caplog):
    frames = server.pop("frames", ())
    async with answering(*frames, **server) as (number, _):
        with pytest.raises(AgentStartError, match=says) as raised:
            async with started(agent_for(number, timeout_s=0.3)):
                pass
    line = str(raised.value)
    assert line.startswith("openai: ")
    assert len(line.splitlines()) == 1
    assert KEY not in line
    ours = [record for record in caplog.records if record.name.startswith("vrt_host")]
    assert ours == [], "the host tells it, with the session"


@pytest.mark.parametrize(
    ("after", "seconds"), [("2", 2), ("1.5", 1.5), ("", None), ("nan", None), ("-1", None), ("inf", None), ("Mon, 30 Nov", None)]
)  # fmt: skip
async def test_server_that_asks_to_be_left_alone_is(after, seconds):
    response = Response(429, "Too many", Headers({"Retry-After": after}), b"")
    assert from_connect(InvalidStatus(response), 1.0).retry_after_s == seconds


async def test_redirect_is_not_followed_with_the_key():
    async with (
        answering() as (other, received),
        answering(status=302, location=f"ws://127.0.0.1:{other}/") as (number, _),
    ):
        with pytest.raises(AgentStartError, match="HTTP 302"):
            async with started(agent_for(number)):
                pass
        assert received == []


async def test_nobody_there():
    async with answering() as (number, _):
        pass
    with pytest.raises(AgentStartError, match=r"openai: the server cannot be reached.*check the address"):
        async with started(agent_for(number)):
            pass


@pytest.mark.parametrize(
    ("scheme", "says"), [("http", "hung up.*http or https"), ("https", "TLS|hung up.*http or https")]
)
async def test_server_that_speaks_something_else(scheme, says):
    async def hang_up(reader, writer):
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(AgentStartError, match=says):
            async with started(agent_for(port, base_url=f"{scheme}://127.0.0.1:{port}/v1")):
                pass


async def test_key_is_in_no_log_however_much_is_logged(peer, caplog):
    caplog.set_level(logging.DEBUG)
    async with started(agent_for(peer.port)) as port:
        port.agent.user_text("Hello")
        await port.ends()
        await peer.refuse("key", times=9)
        await peer.drop()
        port.agent.user_text("Hello")
        await port.until(lambda: port.all(AgentError))
    error = port.all(AgentError)[0]
    assert not error.recoverable
    assert "***" in error.message
    assert KEY not in caplog.text + repr(port.events) + repr(port.agent)


# --- lost and replaced connections


async def test_connection_is_made_anew_only_when_it_is_needed(peer):
    async with started(agent_for(peer.port)) as port:
        await peer.seen("setup")
        await peer.drop()
        await peer.seen("closed")
        for _ in range(20):
            await peer.do("respond", responses=[])  # time enough for what should not happen
        assert peer.count("connected") == 1
        hears(port.agent, SPEECH, QUIET)
        await port.ends()
        assert peer.count("connected") == 2
        assert peer.count("speech_started") == 1
        assert port.all(AgentError) == []


async def test_words_whose_hearer_is_lost_are_said_to_the_next(peer):
    async with started(agent_for(peer.port)) as port:
        hears(port.agent, SPEECH)
        await peer.seen("speech_started")
        await port.until(lambda: port.all(TurnBegin))
        await peer.drop()
        await port.until(lambda: port.all(AgentError))
        assert port.all(AgentError)[0].recoverable
        hears(port.agent, QUIET)
        await port.ends()
        assert peer.count("committed") == 1


async def test_audio_without_a_connection_is_bounded(peer, caplog):
    async with started(agent_for(peer.port)) as port:
        await peer.seen("setup")
        await peer.drop()
        await logged(caplog, "the server closed the connection")
        hears(port.agent, tone(4, "pcmu", 8000), quiet(11, "pcmu", 8000))
        await peer.seen("setup")
        port.agent.user_text("Hello")
        await port.ends()
        assert peer.count("speech_started") == 0, "the newest ten seconds are silent"
        assert caplog.text.count("the user's oldest audio is dropped") == 1


async def test_audio_that_the_connection_does_not_take_is_bounded():
    class Socket:
        def __init__(self):
            self.sent, self.all = [], asyncio.Event()
            self.transport = Mock()

        async def send(self, text):
            self.sent.append(json.loads(text))
            if self.sent[-1]["type"] == "last":
                self.all.set()

        async def close(self, code, reason):
            pass

    socket = Socket()
    link = openai_link.Link(socket, "append", None)
    for number in range(1000):
        link.send_audio(bytes([number % 256]))
    await asyncio.sleep(0)
    link.send({"type": "last"})
    await socket.all.wait()
    await link.close()
    audio = [one["audio"] for one in socket.sent if one["type"] == "append"]
    assert len(audio) == 500
    assert audio[0] == base64.b64encode(bytes([500 % 256])).decode()


async def test_words_that_were_answered_are_not_said_again(peer):
    async with started(agent_for(peer.port)) as port:
        hears(port.agent, SPEECH, QUIET)
        await port.ends()
        await peer.drop()
        port.agent.user_text("Hello")
        await port.ends(2)
        assert peer.count("connected") == 2
        assert peer.count("speech_started") == 1


async def test_session_is_replaced_before_it_ends_and_nobody_notices(peer):
    await peer.do("be", expires_s=2.5)
    async with started(agent_for(peer.port), context={"room": "hall"}) as port:
        port.agent.user_text("Remember the cat.")
        await port.ends()
        reports = len(peer.reports)
        for _ in range(2):
            await peer.seen("setup")
        await peer.do("be")
        await peer.mentioned("Remember the cat.", since=reports)
        await peer.mentioned("[device data]", since=reports)
        await peer.seen("closed")
        port.agent.user_text("And now?")
        await port.ends(2)
        assert port.all(AgentError) == []
        assert peer.count("errors") == 0


async def test_session_is_not_replaced_while_something_is_said(peer):
    await peer.do("be", expires_s=2.5)
    await peer.respond([{"wait": "gate"}, {"say": "It is done.", "seconds": 0.1}])
    async with started(agent_for(peer.port)) as port:
        port.agent.user_text("Do it.")
        await peer.seen("waiting")
        for _ in range(2):
            await peer.seen("setup")
        await peer.release("gate")
        await port.ends()
        await peer.seen("closed")
        assert "".join(one.text for one in port.all(Transcript)) == "It is done."
        assert port.all(AgentError) == []


async def test_session_that_has_ended_already_by_its_clock_is_kept(peer):
    await peer.do("be", expires_s=0)
    async with started(agent_for(peer.port)) as port:
        port.agent.user_text("Hello")
        await port.ends()
        assert peer.count("connected") == 1


async def test_session_that_ends_for_its_age_is_followed_by_the_next(peer):
    async with started(agent_for(peer.port)) as port:
        port.agent.user_text("Remember the cat.")
        await port.ends()
        await peer.do("expire")
        await peer.seen("closed")
        port.agent.user_text("Hello")
        await port.ends(2)
        assert port.all(AgentError) == []


async def test_call_that_runs_outlives_the_connection(peer):
    await peer.respond([{"call": "lock", "id": "c1"}], [{"say": "Done.", "seconds": 0.1}])
    async with started(agent_for(peer.port), tools=[Tool("lock")]) as port:
        port.agent.user_text("Lock it.")
        await port.until(lambda: port.all(Call))
        await peer.drop()
        await port.until(lambda: port.all(AgentError))
        assert port.all(AgentError)[0].turn is None, "its turn goes on"
        port.agent.tool_result(port.all(Call)[0].turn, ToolResult("c1", True, "locked"))
        assert "locked" in (await peer.seen("result"))["output"]
        await port.ends()
        assert {one.turn for one in port.all(TurnEnd)} == {port.all(Call)[0].turn}


async def test_attempts_that_fail_leave_more_time_between_them(peer, monkeypatch):
    waits = []

    def no_wait(self, error=None):
        self.failures += 1
        waits.append(self.failures)
        return 0.0

    monkeypatch.setattr(Backoff, "next", no_wait)
    async with started(agent_for(peer.port)) as port:
        await peer.seen("setup")
        await peer.refuse("rate", times=3)
        await peer.drop()
        await peer.seen("closed")
        port.agent.user_text("Hello")
        await port.ends()
        assert waits == [1, 2, 3, 4]
        assert port.all(AgentError) == []


async def test_session_that_lasted_is_followed_at_once(peer, monkeypatch):
    waits = []

    def count(self, error=None):
        self.failures += 1
        waits.append(self.failures)
        return 0.0

    monkeypatch.setattr(Backoff, "next", count)
    monkeypatch.setattr(openai_keeper, "_LASTING_S", -1.0)
    async with started(agent_for(peer.port)) as port:
        for turns in (1, 2, 3):
            await peer.drop()
            port.agent.user_text("Hello")
            await port.ends(turns)
    assert waits == [1, 1, 1]


class Line:
    """A connection that a test ends."""

    def __init__(self):
        self.over = asyncio.Event()

    async def events(self):
        await self.over.wait()
        raise ProviderError("gone", "the server closed the connection")
        yield

    async def close(self):
        self.over.set()


class Talk:
    """What is kept connected: each dial takes the next of `plan`, a time until the end or an error; then there is no end."""

    def __init__(self, *plan):
        self.plan = list(plan)
        self.lines, self.told = [], []
        self.rests = False
        self._news = asyncio.Event()

    def _tell(self, *what):
        self.told.append(what)
        self._news.set()

    async def dial(self):
        next_ = self.plan.pop(0) if self.plan else None
        self._tell("dial")
        if isinstance(next_, ProviderError):
            raise next_
        self.lines.append(Line())
        return self.lines[-1], None if next_ is None else time.time() + next_

    def opened(self, link):
        self._tell("opened", self.lines.index(link))

    def lost(self, error):
        self._tell("lost", error.kind)

    def broken(self, error):
        self._tell("broken", error.kind)

    def quiet(self):
        return self.rests

    async def until(self, *what, times=1):
        async with asyncio.timeout(DEADLINE_S):
            while self.told.count(what) < times:
                self._news.clear()
                await self._news.wait()


@contextlib.asynccontextmanager
async def kept(talk):
    keeper = openai_keeper.Keeper("openai", talk, [])
    await keeper.open()
    try:
        yield keeper
    finally:
        await keeper.close()


async def test_session_that_breaks_while_its_successor_waits_is_told_as_lost():
    """The successor's turn had not come, since something was being said: what was said is told as lost."""
    talk = Talk(0.3)
    async with kept(talk):
        await talk.until("dial", times=2)
        await asyncio.sleep(0)
        talk.lines[0].over.set()
        await talk.until("opened", 1)
        assert ("lost", "gone") in talk.told
        assert talk.told.count(("dial",)) == 2


async def test_session_that_is_replaced_is_not_told_as_lost():
    talk = Talk(0.3)
    talk.rests = True
    async with kept(talk):
        await talk.until("opened", 1)
        assert ("lost", "gone") not in talk.told


@pytest.mark.parametrize("kind", ["refused", "malformed"])
async def test_refusal_that_may_pass_is_told_and_tried_again_when_somebody_needs_it(monkeypatch, kind):
    monkeypatch.setattr(Backoff, "next", lambda self, error=None: 0.0)
    talk = Talk(None, ProviderError(kind, "not now"))
    async with kept(talk) as keeper:
        talk.lines[0].over.set()
        await talk.until("lost", "gone")
        keeper.hurry()
        await talk.until("lost", kind)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(talk.lines) == 1, "nobody needs it"
        keeper.hurry()
        await talk.until("opened", 1)


async def test_server_that_is_away_for_long_is_told_once(monkeypatch):
    monkeypatch.setattr(Backoff, "next", lambda self, error=None: 0.0)
    monkeypatch.setattr(openai_keeper, "_QUIETLY_S", -1.0)
    talk = Talk(None, *[ProviderError("unreachable", "nobody there")] * 3)
    async with kept(talk) as keeper:
        talk.lines[0].over.set()
        await talk.until("lost", "gone")
        keeper.hurry()
        await talk.until("opened", 1)
        assert talk.told.count(("broken", "unreachable")) == 1


async def test_server_that_cannot_truncate_is_no_end_of_the_session():
    def refuse(message):
        if message["type"] != "conversation.item.delete":
            return []
        error = {"type": "invalid_request_error", "code": "unknown_event", "event_id": message["event_id"]}
        return [{"type": "error", "error": error}, {"type": "response.created", "response": {"id": "r"}}]

    frames = [{"type": "session.created", "session": {}}, {"type": "session.updated", "session": {}}]
    async with answering(*frames, then=refuse) as (number, _), started(agent_for(number), context=1) as port:
        port.agent.context(2)
        await port.until(lambda: port.all(TurnBegin))
        assert port.all(AgentError) == []


async def test_refusal_while_the_session_runs_is_one_line_in_the_log(peer, caplog):
    async with started(agent_for(peer.port)) as port:
        await peer.refuse("key", times=9)
        await peer.drop()
        port.agent.user_text("Hello")
        await port.until(lambda: any(not one.recoverable for one in port.all(AgentError)))
        assert caplog.text.count("check the key") == 1


# --- a model that is faster than real time


async def test_speech_is_noticed_while_minutes_of_an_answer_wait(peer):
    await peer.respond([{"say": "Long.", "seconds": 120}], [{"say": "Short.", "seconds": 0.1}])
    async with started(agent_for(peer.port)) as port:
        port.full = True
        port.agent.user_text("Tell me everything.")
        await port.until(lambda: port.all(Audio))
        hears(port.agent, SPEECH, QUIET)
        await port.until(lambda: len(port.all(TurnBegin)) == 2)
        assert len(port.all(Audio)) == 1
        port.fill(False)
        await port.ends()
        later = [one for one in port.all(Audio) if one.turn == port.all(TurnBegin)[1].turn]
        assert sum(len(one.payload) for one in later) == 800


async def test_answer_without_an_end_is_cut_off(peer):
    await peer.respond([{"say": "Endless.", "seconds": None}])
    async with started(agent_for(peer.port)) as port:
        port.full = True
        port.agent.user_text("Go.")
        await peer.seen("cancel")
        port.fill(False)
        await port.ends()
        assert sum(len(one.payload) for one in port.all(Audio)) < 8000 * 302


class Slow:
    """A port that takes no more audio until its gate opens."""

    def __init__(self):
        self.events, self.gate = [], asyncio.Event()

    def emit(self, event):
        self.events.append(event)

    async def drain(self):
        await self.gate.wait()


async def test_words_without_end_are_cut_off(monkeypatch):
    monkeypatch.setattr(openai_pump, "_EVENTS", 10)
    slow, cut = Slow(), []
    pump = Pump(slow, 100, cut.append)
    pump.emit(Audio("t", "i", b"1"))
    for _ in range(20):
        pump.emit(Transcript("t", "agent", "and ", False))
    pump.emit(TurnEnd("t"))
    slow.gate.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(slow.events) == 12
    assert cut == ["t"] * 10
    await pump.close()


async def test_message_that_is_too_large_ends_the_connection(monkeypatch, caplog):
    monkeypatch.setattr(openai_link, "_MESSAGE_BYTES", 2000)
    large = {"type": "response.output_audio.delta", "delta": "A" * 4000}
    frames = [{"type": "session.created", "session": {}}, {"type": "session.updated", "session": {}}, large]
    async with answering(*frames) as (number, _), started(agent_for(number)):
        await logged(caplog, "openai: the server sent a message that is too large; it is tried again")


async def test_pump_keeps_the_order_of_a_turn():
    slow = Slow()
    pump = Pump(slow, 100, lambda turn: None)
    events = [
        Audio("t", "i", b"1"),
        Transcript("t", "agent", "a", False),
        Audio("t", "i", b"2"),
        TurnEnd("t"),
    ]
    for event in events:
        pump.emit(event)
    pump.emit(Transcript("t", "user", "first", True))
    assert slow.events == [events[0], Transcript("t", "user", "first", True)]
    slow.gate.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert slow.events[2:] == events[1:]
    await pump.close()
