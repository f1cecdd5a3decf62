"""The Omnia facade, through the real host, over real sockets: connections, messages, sessions, and each number of the page or its code.

What it sends is judged by the schema of schema/peers/omnia, which knows nothing of the facade.
"""

import asyncio
import base64
import contextlib
import json
from typing import get_args

import pytest
from host_client import DEADLINE_S
from multidict import MultiDict
from omnia_client import Closed, answers, serving
from peers.vectors import frame, load
from test_guest import Brain, speak
from vrt_host.agents.base import AgentError, Audio, AudioBegin, Text, Transcript, TurnBegin, TurnEnd
from vrt_host.agents.provider import Kind, ProviderError
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig, TurnLimits
from vrt_host.errors import AgentStartError, UsageError
from vrt_host.facades import (
    omnia,
    omnia_archive,
    omnia_frames,
    omnia_messages,
    omnia_session,
    omnia_socket,
    omnia_turn,
    registry,
)
from websockets.exceptions import ConnectionClosed, InvalidStatus


@pytest.fixture
def tokens(tmp_path):
    """`tokens.add(name)`; `tokens.config` is for the host."""
    file = TokenFile(tmp_path / "t.json")
    file.first = file.add("web")
    file.config = ServerConfig(port=0, tokens=file.path)
    return file


async def refused(host, **query):
    """The status of an upgrade that is refused, and its words."""
    with pytest.raises(InvalidStatus) as error:
        async with host.omnia(**query):
            pass
    return error.value.response.status_code, error.value.response.body.decode()


# --- the upgrade


async def test_connected_is_the_first_frame_and_comes_once():
    """Page, Connected: 1 of a connection; max_payload_size 16 777 216, protocol_version 1."""
    async with serving(Brain(answers)) as host, host.omnia(agent="a") as client:
        await client.say("early")
        assert (first := await client.next())["type"] == "connected"
        assert first["connected"] == {
            "capabilities": {"binary_frames": False, "max_payload_size": 16_777_216, "protocol_version": 1}
        }
        assert await client.answer() == "You said early."
        await client.say("again")
        assert await client.answer() == "You said again."


@pytest.mark.parametrize(("binary", "expected"), [("true", True), ("false", False), ("yes", False)])
async def test_binary_frames_are_for_those_who_ask_for_them(binary, expected):
    async with serving() as host, host.omnia(agent="a", binary=binary, connected=True) as client:
        assert client.connected["connected"]["capabilities"]["binary_frames"] is expected


QUERIES = [one for one in load("omnia").invalid if one.get("as") == "query"]


@pytest.mark.parametrize("vector", QUERIES, ids=lambda one: one["id"])
async def test_an_address_that_is_wrong_is_refused_with_its_status(vector):
    """Page, URL format: 400 without an agent; memory_facet malformed, empty or twice."""
    pairs = []
    for name, value in vector["message"].items():
        pairs += [(name, one) for one in (value if isinstance(value, list) else [value])]
    answer = vector.get("answer")
    if answer is None:
        omnia_messages.query(MultiDict(pairs), agent=None, facet=None)
    else:
        with pytest.raises(omnia_messages.UpgradeError, match=answer.get("message", "memory_facet")) as error:
            omnia_messages.query(MultiDict(pairs), agent=None, facet=None)
        assert error.value.status == answer["status"]


async def test_the_agent_is_required_unless_it_is_configured():
    """Page, URL format: 400 "agent parameter is required"; a name that is another one's is not found."""
    async with serving() as host:
        assert await refused(host) == (400, "agent parameter is required")
        async with host.omnia(agent="any", namespace="n", connected=True):
            pass
    async with serving(agent="lamp") as host:
        assert (await refused(host, agent="other"))[0] == 404
        async with host.omnia(connected=True), host.omnia(agent="lamp", connected=True):
            pass


async def test_a_memory_facet_is_echoed_and_another_than_the_agents_is_refused():
    """Page, URL format: 1 to 128 characters, 400 and 403; echoed as connected.memory_facet."""
    async with serving() as host:
        for wrong in ("", "-a", "f" * 129):
            assert (await refused(host, agent="a", memory_facet=wrong))[0] == 400
        async with host.omnia(agent="a", memory_facet="f" * 128, connected=True) as client:
            assert client.connected["connected"]["memory_facet"] == "f" * 128
    async with serving(memory_facet="p:1") as host:
        assert (await refused(host, agent="a", memory_facet="p:2"))[0] == 403
        for query in ({}, {"memory_facet": "p:1"}):
            async with host.omnia(agent="a", connected=True, **query) as client:
                assert client.connected["connected"]["memory_facet"] == "p:1"


async def test_without_a_token_of_this_hosts_it_is_401_and_the_address_is_no_place_for_one(tokens):
    async with serving(config=tokens.config) as host:
        assert (await refused(host, agent="a"))[0] == 401
        assert (await refused(host, agent="a", access_token=tokens.first))[0] == 401
        assert (await refused(host, agent="a", token="vrt_wrong"))[0] == 401
        async with host.omnia(agent="a", token=tokens.first, connected=True):
            pass


async def test_a_strange_origin_is_403_and_a_configured_one_is_let_in():
    config = ServerConfig(port=0, origins=("https://app.example",))
    async with serving(config=config) as host:
        assert (await refused(host, agent="a", headers={"Origin": "https://evil.example"}))[0] == 403
        async with host.omnia(agent="a", headers={"Origin": "https://app.example"}, connected=True):
            pass


async def test_there_are_500_connections():
    """Code, server_config.go: 500, else 503."""
    assert omnia.Options().connections == 500
    async with serving(connections=1) as host:
        async with host.omnia(agent="a", connected=True):
            assert (await refused(host, agent="a"))[0] == 503
        async with asyncio.timeout(DEADLINE_S):
            while True:  # until the loss is noticed
                with contextlib.suppress(InvalidStatus):
                    async with host.omnia(agent="a", connected=True):
                        break


async def test_a_disclosure_is_told_as_it_is_configured_and_its_acknowledgement_is_noted_once(caplog):
    """Page, Connected: absent is not false; Disclosure acknowledgement."""
    caplog.set_level("INFO")
    async with serving() as host, host.omnia(agent="a", connected=True) as client:
        assert "ai_disclosure" not in client.connected["connected"]
    async with serving(ai_disclosure=False) as host, host.omnia(agent="a", connected=True) as client:
        assert client.connected["connected"]["ai_disclosure"] is False
        await client.send("disclosure_ack")
        await client.send("disclosure_ack")
        await client.send("telepathy")
        await client.error()
    assert caplog.text.count("ai.disclosure.displayed") == 1


# --- messages

SENT = [one for one in load("omnia").invalid if one["direction"] == "client" and "as" not in one]


@pytest.mark.parametrize("vector", SENT, ids=lambda one: one["id"])
def test_what_is_invalid_is_told_apart(vector):
    """With the facade's own words, where the page or its code has them; limits are named, such as 1 source of a medium."""
    sent = frame(vector)
    taken = vector.get("receiver") in ("accepts", "ignores")
    with (
        contextlib.nullcontext()
        if taken
        else pytest.raises((omnia_messages.InvalidError, omnia_frames.FrameError)) as error
    ):
        if isinstance(sent, bytes):
            omnia_frames.decode(sent)
        else:
            omnia_messages.decode(sent if isinstance(sent, str) else json.dumps(sent))
    if "message" in vector.get("answer", {}):
        assert str(error.value) == vector["answer"]["message"]


VALID = [one for one in load("omnia").valid if one["direction"] == "client" and "as" not in one]


@pytest.mark.parametrize("vector", VALID, ids=lambda one: one["id"])
def test_what_is_valid_is_understood(vector):
    """Page, Header layout: 32 bytes, big-endian, fields at 0, 4, 5, 6, 8, 12, 16, 20; Flags: 0x01 is not read, IsLast 0x04."""
    sent = frame(vector)
    if isinstance(sent, bytes):
        made = omnia_frames.decode(sent)
        assert (made.payload.hex(), made.metadata) == (
            vector["decoded"]["payload"],
            vector["decoded"]["metadata"],
        )
        assert made.last is ("is_last" in vector["decoded"]["flags"])
    else:
        text = sent if isinstance(sent, str) else json.dumps(sent)
        assert type(omnia_messages.decode(text)) is omnia_messages.CLIENT[json.loads(text)["type"]]


async def test_whatever_a_client_sends_the_connection_stays(monkeypatch, caplog):
    monkeypatch.setattr(omnia, "MESSAGES_AT_ONCE", 10_000)
    async with serving(Brain(), Brain(answers)) as host, host.omnia(agent="a", connected=True) as client:
        for vector in SENT:
            sent = frame(vector)
            await client.ws.send(sent if isinstance(sent, str | bytes) else json.dumps(sent))
        await client.say("still there?", session_id="the-end")
        assert (await client.until("done"))["session_id"] == "the-end"
    assert [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


@pytest.mark.parametrize(
    ("metadata", "limit"),
    [
        ({f"k{n}": "" for n in range(33)}, "32 keys"),
        ({"a b": ""}, "1 to 64 letters"),
        ({"k" * 65: ""}, "1 to 64 letters"),
        ({"": ""}, "1 to 64 letters"),
        ({"k": "ü" * 4097}, "8 KiB"),
        ({f"k{n}": "a" * 8190 for n in range(4)} | {"x": ""}, "32 KiB"),
    ],
)
async def test_a_limit_of_metadata_is_named_and_the_model_hears_nothing(metadata, limit):
    """Page, Message metadata: 32 keys, 1 to 64 characters, 8 KiB a value, 32 KiB in all."""
    brain = Brain(answers)
    async with serving(brain) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("x", metadata=metadata)
        code, words = await client.error()
        assert code == "INVALID_MESSAGE"
        assert limit in words
        await client.say("y", metadata={"user_id": "u", "omnia.z": "w"})
        assert await client.answer() == "You said y."


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "c", "parts": []}, "c"),
        ({"content": "c", "parts": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\n\nb"),
        ({"content": "c", "parts": [{"type": "text", "text": ""}]}, "c"),
        (
            {
                "parts": [
                    {"type": "file", "media": {"data": "AAAA", "mime_type": "m/m", "filename": "a\nb.pdf"}}
                ]
            },
            "[The user attached, and you cannot see its content: file, ab.pdf, m/m, 3 bytes, sent along]",
        ),
    ],
)
def test_the_text_is_that_of_the_parts_and_media_are_told_in_words(message, expected):
    """Page, Message: text parts joined by a blank line, else content."""
    assert omnia_messages.decode(json.dumps({"type": "message", **message})).text() == expected


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"user": "u-1", "x.y-z": "{user}"}, "Hi\n\n[u-1 {user} ]"),
        ({"content_type": "a", "mock_scenario": "b", "omnia.user": "c"}, "Hi"),
        ({"user": "u", "omnia.q": "c"}, "Hi\n\n[u  ]"),
        ({}, "Hi"),
    ],
)
async def test_the_model_sees_metadata_by_a_template_alone(metadata, expected):
    """Page, Message metadata: appended to the message; reserved keys are never forwarded."""
    heard = []
    brain = Brain(lambda agent, text: (heard.append(text), answers(agent, "x")))
    template = "[{user} {x.y-z} {omnia.q}]"
    async with (
        serving(brain, metadata_template=template) as host,
        host.omnia(agent="a", connected=True) as client,
    ):
        await client.say("Hi", metadata=metadata)
        await client.answer()
    assert heard == [expected]


async def test_an_empty_message_is_done_at_once():
    async with serving() as host, host.omnia(agent="a", connected=True) as client:
        await client.say("")
        assert await client.answer() == ""


@pytest.mark.parametrize("first", ["spoken", "written"])
async def test_an_answer_that_is_spoken_is_written_and_never_twice(first):
    def on_text(agent, text):
        said = [Transcript("t", "agent", "Spoken.", True), Text("t", "Written.", True)]
        agent.port.emit(TurnBegin("t"))
        agent.port.emit(Transcript("t", "user", text, True))
        agent.port.emit(AudioBegin("t", "i"))
        agent.port.emit(Audio("t", "i", bytes(4800)))
        for event in said if first == "spoken" else reversed(said):
            agent.port.emit(event)
        agent.port.emit(TurnEnd("t"))

    async with serving(Brain(on_text)) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("hello")
        assert await client.answer() == f"{first.capitalize()}."


@pytest.mark.parametrize(
    ("declare", "handle"), [({"sandboxes": {"code/main": {}}}, "code/main"), ({"other": 1}, "")]
)
async def test_a_declaration_is_refused_and_the_next_message_opens_the_session(declare, handle):
    """Page, Error codes: SESSION_DECLARATION_REFUSED with its details; read only on the message that opens the session."""
    async with serving(Brain(answers)) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("x", declare=declare)
        error = (await client.until("error"))["error"]
        assert error["code"] == "SESSION_DECLARATION_REFUSED"
        assert error["details"]["type"] == next(iter(declare))
        assert (error["details"]["handle"], error["details"]["reason"]) == (handle, "SessionInitUnsupported")
        await client.say("y", declare={})
        assert await client.answer() == "You said y."
        await client.say("z", declare=declare)
        assert await client.answer() == "You said z."
        await client.say("z", declare={"x": "a" * 16_377})
        assert (await client.error())[1] == "declare has more than 16 KiB"


async def test_an_error_of_the_agent_is_told_without_its_words():
    """Page, Error codes: any other failed turn is INTERNAL_ERROR with a generic message; no done follows."""

    def on_text(agent, text):
        if text == "once more":
            answers(agent, text)
            return
        agent.port.emit(TurnBegin(text))
        agent.port.emit(AgentError("key sk-1 is wrong", recoverable=text != "die", turn=text))

    async with (
        serving(Brain(on_text), Brain(on_text)) as host,
        host.omnia(agent="a", connected=True) as client,
    ):
        for text in ("fail", "die"):
            await client.say(text)
            assert await client.error() == ("INTERNAL_ERROR", "internal server error")
            await client.say("once more")
            assert await client.answer() == "You said once more."


async def test_an_error_that_is_not_the_turns_ends_no_answer():
    def on_text(agent, text):
        if text == "none":
            agent.port.emit(AgentError("before the turn"))
            return
        agent.port.emit(TurnBegin("t"))
        agent.port.emit(AgentError("something else"))
        agent.port.emit(Text("t", "All the same."))
        agent.port.emit(TurnEnd("t"))

    async with serving(Brain(on_text)) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("x")
        assert await client.answer() == "All the same."
        await client.say("none")
        assert await client.error() == ("INTERNAL_ERROR", "internal server error")


async def test_an_agent_that_cannot_start_is_an_error_and_is_tried_again():
    class Broken(Brain):
        async def start(self, session, port):
            raise RuntimeError("no")

    async with serving(Broken(), Brain(answers)) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("x")
        assert await client.error() == ("INTERNAL_ERROR", "failed to create session")
        await client.say("y")
        assert await client.answer() == "You said y."


@pytest.mark.parametrize(("more", "code"), [(False, "PROVIDER_TIMEOUT"), (True, "PROVIDER_STALLED")])
async def test_an_answer_that_does_not_begin_or_stops_partway_is_an_error(monkeypatch, more, code):
    """Page, Error codes: 90 s for the first token; code, runtime_handler.go: 120 s for more."""
    assert (omnia_session.FIRST_S, omnia_session.IDLE_S) == (90, 120)
    monkeypatch.setattr(omnia_session, "IDLE_S" if more else "FIRST_S", 0.1)

    def on_text(agent, text):
        if text == "again":
            answers(agent, text)
            return
        agent.port.emit(TurnBegin("t"))
        if more:
            agent.port.emit(Text("t", "Well, "))

    brain = Brain(on_text)
    async with serving(brain) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("x")
        assert (await client.until("error"))["error"]["code"] == code
        await client.say("again")
        assert await client.answer() == "You said again."


@pytest.mark.parametrize("more", [True, False])
async def test_it_is_told_so_as_well_when_the_host_itself_gives_the_answer_up(monkeypatch, more):
    """The host's own limit is as long; which of the two rings first says nothing."""
    assert TurnLimits().agent_silence == omnia_session.IDLE_S
    monkeypatch.setattr(omnia_session, "IDLE_S" if more else "FIRST_S", 0.2 + omnia_session.SLACK_S / 2)

    def on_text(agent, text):
        agent.port.emit(TurnBegin("t"))
        if more:
            agent.port.emit(Text("t", "Well, "))

    async with (
        serving(Brain(on_text), turn_limits=TurnLimits(agent_silence=0.2)) as host,
        host.omnia(agent="a", connected=True) as client,
    ):
        await client.say("x")
        code = "PROVIDER_STALLED" if more else "PROVIDER_TIMEOUT"
        assert (await client.until("error"))["error"]["code"] == code


KINDS = {
    "rate": "PROVIDER_RATE_LIMITED",
    "quota": "PROVIDER_RATE_LIMITED",
    "unreachable": "PROVIDER_UNAVAILABLE",
    "gone": "PROVIDER_UNAVAILABLE",
    "key": "PROVIDER_AUTH_FAILED",
    "expired": "PROVIDER_AUTH_FAILED",
}
"""Page, Error codes: HTTP 429; unreachable or 5xx; 401 or 403. Any other failed turn is INTERNAL_ERROR."""


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("when", ["start", "before the turn", "turn"])
async def test_what_is_wrong_with_the_models_provider_is_told_by_its_code(kind, when):
    """Page, Error codes: PROVIDER_*, never in the provider's words."""
    error = ProviderError(kind, "key sk-1 is wrong")

    class Fails(Brain):
        async def start(self, session, port):
            await super().start(session, port)
            try:
                if when == "start":
                    raise error
            except ProviderError:
                raise AgentStartError(error.line("brain")) from None

    def on_text(agent, text):
        if when == "turn":
            agent.port.emit(TurnBegin("t"))
        agent.port.emit(error.event("brain", "t" if when == "turn" else None))

    async with serving(Fails(on_text)) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("x")
        code, words = await client.error()
        assert code == KINDS.get(kind, "INTERNAL_ERROR")
        assert "sk-1" not in words


@pytest.mark.parametrize("code", ["MAX_ROUNDS_EXCEEDED", "PROVIDER_STALLED", "RATE_LIMITED", "AGENT_ERROR"])
async def test_a_code_of_another_facade_behind_this_one_is_passed_on_where_it_is_the_turns(code):
    def on_text(agent, text):
        agent.port.emit(TurnBegin("t"))
        agent.port.emit(AgentError("words", turn="t", code=code))

    async with serving(Brain(on_text)) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("x")
        told = code if code in ("MAX_ROUNDS_EXCEEDED", "PROVIDER_STALLED") else "INTERNAL_ERROR"
        assert (await client.error())[0] == told


# --- sessions


async def test_what_was_said_goes_on_where_its_owner_resumes_the_session(tokens):
    """Page, Resume session: history is preserved; frames carry that session's id."""
    first, second = Brain(answers), Brain(answers)
    async with serving(first, second, config=tokens.config, token=tokens.first) as host:
        async with host.omnia(agent="a", connected=True) as client:
            await client.say("hello")
            await client.answer()
            session = client.id
        async with asyncio.timeout(DEADLINE_S):
            await first.closed.wait()
        async with host.omnia(agent="a", connected=True) as client:
            assert client.id != session
            await client.say("again", session_id=session)
            assert (await client.until("done"))["session_id"] == session
        assert second.session.context == {
            "conversation": [
                {"role": "user", "text": "hello"},
                {"role": "agent", "text": "You said hello."},
            ]
        }


async def test_of_what_was_said_so_much_goes_on(tokens, monkeypatch):
    assert (omnia_turn.SAID, omnia_turn.SAID_CHARS) == (20, 400)
    monkeypatch.setattr(omnia_turn, "SAID", 2)
    first, second = Brain(answers), Brain(answers)
    async with serving(first, second, config=tokens.config, token=tokens.first) as host:
        async with host.omnia(agent="a", connected=True) as client:
            for text in ("one", "x" * 500):
                await client.say(text)
                await client.answer()
        async with asyncio.timeout(DEADLINE_S):
            await first.closed.wait()
        async with host.omnia(agent="a", connected=True) as again:
            await again.say("again", session_id=client.id)
            await again.answer()
        assert second.session.context["conversation"] == [
            {"role": "user", "text": "x" * 400},
            {"role": "agent", "text": ("You said " + "x" * 500)[:400]},
        ]


async def test_a_session_is_its_owners_alone(tokens):
    """Page, Resume session: as established by a credential; another facet is another memory."""
    other = tokens.add("other")
    async with (
        serving(Brain(answers), Brain(answers), config=tokens.config, token=tokens.first) as host,
        host.omnia(agent="a", connected=True) as client,
    ):
        await client.say("hello", session_id="mine")
        await client.answer()
        for query in ({"token": other}, {"memory_facet": "f"}):
            async with host.omnia(agent="a", connected=True, **query) as stranger:
                await stranger.say("x", session_id="mine")
                assert await stranger.error() == (
                    "SESSION_EXPIRED",
                    "session context has expired; start a new session",
                )
                await stranger.send(
                    "upload_request",
                    session_id="mine",
                    upload_request={"filename": "f", "mime_type": "m/m", "size_bytes": 1},
                )
                assert (await stranger.error())[0] == "MEDIA_NOT_ENABLED"


async def test_without_tokens_a_session_stays_with_its_connection():
    async with (
        serving(Brain(answers), Brain(answers)) as host,
        host.omnia(agent="a", connected=True) as one,
        host.omnia(agent="a", connected=True) as two,
    ):
        await one.say("x")
        await one.answer()
        await two.say("x", session_id=one.id)
        assert (await two.error())[0] == "SESSION_EXPIRED"
        await one.say("y", session_id="made-up")
        assert (await one.until("done"))["session_id"] == "made-up"
        await one.say("z", session_id="made-up")
        assert (await one.until("done"))["content"] == "You said z."


async def test_a_context_is_kept_for_24_h(tokens):
    """Page, Session expiration: 24 h, then SESSION_EXPIRED, for good."""
    assert omnia.Options().context_ttl == 24 * 3600
    brain = Brain(answers)
    async with serving(
        brain, Brain(answers), config=tokens.config, token=tokens.first, context_ttl=0.001
    ) as host:
        async with host.omnia(agent="a", connected=True) as client:
            await client.say("hello")
            await client.answer()
            session = client.id
        async with asyncio.timeout(DEADLINE_S):
            await brain.closed.wait()
        async with host.omnia(agent="a", connected=True) as client:
            for _ in range(2):
                await client.say("x", session_id=session)
                assert (await client.error())[0] == "SESSION_EXPIRED"
            await client.say("x")
            assert (await client.until("done"))["session_id"] == client.id


async def test_an_answer_that_is_spoken_to_nobody_is_no_silence(monkeypatch):
    monkeypatch.setattr(omnia_session, "FIRST_S", 0.5)
    async with serving(Brain(speak(1.5))) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("x")
        assert await client.answer() == ""


async def test_a_session_that_was_not_opened_does_not_expire(tmp_path):
    """Page, Session handling: the connection's own."""
    async with (
        serving(Brain(answers), context_ttl=1e-9, media=tmp_path) as host,
        host.omnia(agent="a", connected=True) as client,
    ):
        upload = {"filename": "f", "mime_type": "m/m", "size_bytes": 1}
        await client.send("upload_request", upload_request=upload)
        await client.until("upload_ready")
        await client.say("x")
        assert await client.answer() == "You said x."


async def test_a_turn_that_runs_on_another_connection_is_in_progress(tokens):
    """Page, Error codes: TURN_IN_PROGRESS, not processed nor queued; on one connection it is RATE_LIMITED."""

    def on_text(agent, text):
        agent.port.emit(TurnBegin(text))
        agent.port.emit(Text(text, text))
        if text != "long":
            agent.port.emit(TurnEnd("long" if text == "end" else text))

    brain = Brain(on_text)
    async with (
        serving(brain, config=tokens.config, token=tokens.first) as host,
        host.omnia(agent="a", connected=True) as one,
        host.omnia(agent="a", connected=True) as two,
    ):
        await one.say("long")
        await one.until("chunk")
        await two.say("x", session_id=one.id)
        assert (await two.error())[0] == "TURN_IN_PROGRESS"
        brain.port.emit(TurnEnd("long"))
        await one.until("done")
        await two.say("x", session_id=one.id)
        assert (await two.until("done"))["content"] == "x"


async def test_a_thousand_sessions_are_remembered(monkeypatch, tokens):
    assert omnia_archive.MOST == 1000
    monkeypatch.setattr(omnia_archive, "MOST", 2)
    async with serving(*[Brain(answers) for _ in range(4)], config=tokens.config, token=tokens.first) as host:
        for name in ("one", "two", "three"):
            async with host.omnia(agent="a", connected=True) as client:
                await client.say("x", session_id=name)
                await client.answer()
        async with host.omnia(agent="a", connected=True) as client:
            await client.say("x", session_id="one")  # it is a new one
            assert (await client.until("done"))["session_id"] == "one"


async def test_a_connection_has_four_sessions_with_an_agent():
    assert omnia.SESSIONS == 4
    brains = [Brain(answers) for _ in range(6)]
    async with serving(*brains) as host, host.omnia(agent="a", connected=True) as client:
        for name in ("one", "two", "three", "one", "four", "five"):
            await client.say(name, session_id=name)
            await client.answer()
        async with asyncio.timeout(DEADLINE_S):
            await brains[1].closed.wait()
        assert not brains[0].closed.is_set()
        await client.say("again", session_id="two")
        await client.answer()
        assert brains[5].session.context["conversation"][0]["text"] == "two"


async def test_a_token_that_was_revoked_ends_the_connection_with_4401(tokens):
    """Page, Close codes. Ours do not expire: 30 s before the end is not known, so it is told when it is over."""
    brain = Brain(lambda agent, text: agent.port.emit(TurnBegin("t")))
    async with (
        serving(brain, config=tokens.config, token=tokens.first) as host,
        host.omnia(agent="a", connected=True) as client,
    ):
        await client.send("credential_refresh", token="another")
        tokens.revoke("web")
        await client.say("x")
        assert (await client.error())[0] == "CREDENTIAL_EXPIRED"
        assert await client.closed() == (4401, "credential expired")


# --- limits


async def test_a_message_has_16_mib():
    """Code, server_config.go: 16 MiB, 1009."""
    async with serving() as host, host.omnia(agent="a", connected=True) as client:
        await client.ws.send("x" * 16_777_216)
        assert await client.error() == ("INVALID_MESSAGE", "invalid message format")
        with contextlib.suppress(ConnectionClosed):
            await client.ws.send("x" * 16_777_217)
        assert (await client.closed())[0] == 1009


async def test_a_text_has_what_the_host_takes():
    async with serving(Brain(answers)) as host, host.omnia(agent="a", connected=True) as client:
        await client.say('"' * 150_000)
        assert (await client.error())[1] == "the text has more than 250000 bytes as JSON"
        await client.say("x" * 249_900)
        assert len(await client.answer()) == 249_900 + len("You said .")
        await client.say("x", session_id="s" * 129)
        assert (await client.error())[0] == "INVALID_MESSAGE"


def test_a_bucket_has_so_many_at_once_and_so_many_a_second(monkeypatch):
    """Code, server_config.go: 50 /s, at once 100; 2 MiB/s, at once 16 MiB."""
    assert (omnia.MESSAGES_PER_S, omnia.MESSAGES_AT_ONCE) == (50, 100)
    assert (omnia.MEDIA_BYTES_PER_S, omnia.MEDIA_BYTES_AT_ONCE) == (2 << 20, 16 << 20)
    now = 0.0
    monkeypatch.setattr(omnia_socket.time, "monotonic", lambda: now)
    bucket = omnia_socket.Bucket(50, 100)
    assert [bucket.admit() for _ in range(101)] == [True] * 100 + [False]
    now = 1.0
    assert [bucket.admit() for _ in range(51)] == [True] * 50 + [False]
    now = 100.0
    assert not bucket.admit(101)
    assert bucket.admit(100)


async def test_what_is_beyond_a_rate_is_shed_and_told(monkeypatch):
    monkeypatch.setattr(omnia, "MESSAGES_PER_S", 1)
    async with serving(calls=0) as host, host.omnia(agent="a", connected=True) as client:
        for _ in range(120):
            await client.ws.send("{")
        while (await client.error()) == ("INVALID_MESSAGE", "invalid message format"):
            pass
    async with serving(calls=0) as host, host.omnia(agent="a", connected=True) as client:
        await client.audio(bytes(14 << 20))
        await client.audio(bytes(14 << 20))
        assert await client.error() == ("MEDIA_NOT_ENABLED", "audio not supported")
        assert await client.error() == ("RATE_LIMITED", "media rate limit exceeded")


async def _opened(host):
    """A socket of a client that answers no ping."""
    reader, writer = await asyncio.open_connection("127.0.0.1", host.facade.port)
    key = base64.b64encode(bytes(16)).decode()
    writer.write(
        f"GET /ws?agent=a HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def test_a_client_of_which_nothing_comes_for_60_s_is_gone_and_any_frame_counts(monkeypatch):
    """Page, Connection health: a ping every 30 s; 60 s."""
    assert (omnia.PING_S, omnia.SILENCE_S) == (30, 60)
    monkeypatch.setattr(omnia, "PING_S", 0.25)
    monkeypatch.setattr(omnia, "SILENCE_S", 1)
    async with serving() as host, asyncio.timeout(DEADLINE_S):
        reader, writer = await _opened(host)
        for _ in range(5):  # longer than it may be silent
            await reader.readuntil(b"\x89\x00")
            writer.write(b"\x81\x81\x00\x00\x00\x00{")
        assert b"INVALID_MESSAGE" in await reader.readuntil(b"invalid message format")
        with contextlib.suppress(ConnectionError):
            while await reader.read(4096):
                pass
        writer.close()


@pytest.mark.parametrize(("module", "name", "value"), [(omnia_socket, "WRITE_S", 0.1), (omnia, "QUEUED", 8)])
async def test_a_client_that_does_not_read_is_cut_off(monkeypatch, module, name, value):
    """Code, server_config.go: 10 s to write a message."""
    assert omnia_socket.WRITE_S == 10
    monkeypatch.setattr(module, name, value)

    def floods(agent, text):
        agent.port.emit(TurnBegin("t"))
        for _ in range(400):
            agent.port.emit(Text("t", "x" * 30_000))

    brain = Brain(floods)
    async with serving(brain) as host, host.omnia(agent="a", connected=True) as client:
        client.ws.transport.pause_reading()
        await client.say("x")
        async with asyncio.timeout(DEADLINE_S):
            await brain.closed.wait()
        client.ws.transport.abort()
        with contextlib.suppress(Closed, AttributeError):
            await client.closed()


# --- its options


def test_its_table_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("VRT_OMNIA_FACADE_CALLS", "3")
    (tmp_path / "tools.json").write_text('[{"name": "ping", "description": "Pings."}]')
    file = tmp_path / "agents.toml"
    table = f'[omnia_facade]\nagent = "lamp"\nport = 0\ntools = "{tmp_path}/tools.json"\nmedia = "{tmp_path}/media"\n'
    file.write_text(table)
    made = registry.make("omnia", file)
    assert (made.options.agent, made.options.calls, list(made.tools)) == ("lamp", 3, ["ping"])
    assert (tmp_path / "media").is_dir()
    monkeypatch.delenv("VRT_OMNIA_FACADE_CALLS")
    wrongs = 'public_url = "https://h/path"', 'public_url = "https://me:key@h"', 'public_url = "https://h x"'
    for wrong in (*wrongs, 'memory_facet = "-a"', "calls = -1", 'nothing = "x"'):
        file.write_text(f"{table}{wrong}\n")
        with pytest.raises(UsageError, match=wrong.split()[0]):
            registry.make("omnia", file)
    file.write_text('[omnia_facade]\nmedia = ""\n')
    with pytest.raises(UsageError, match="media: give it a folder of its own"):
        registry.make("omnia", file)
