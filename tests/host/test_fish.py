"""The agent `fish` against the service of peers/fish: creation of sessions, and what no room is needed for (`fish_line`)."""

import logging

import numpy as np
import pytest
import pytest_asyncio
from agent_stage import logged, started
from peers.fish_user import LineAgent
from peers.plan import quiet, tone
from peers.process import PeerProcess
from vrt_host.agents import fish_session
from vrt_host.agents.base import Call, OwnCall, OwnResult, Tool, ToolResult
from vrt_host.agents.fish import FishAgent, Options
from vrt_host.agents.fish_sound import SOUND
from vrt_host.agents.options import load
from vrt_host.agents.provider import ProviderError
from vrt_host.errors import AgentStartError, UsageError

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "a-secret-that-nobody-may-see"
SESSION = {
    "session_id": "s",
    "expires_at": "2099-01-01T00:00:00Z",
    "max_duration_seconds": 1800,
    "transport": "livekit",
    "livekit_url": "ws://127.0.0.1:1",
    "token": KEY,
}


@pytest_asyncio.fixture(name="service", scope="module", loop_scope="module")
async def service_process():
    async with PeerProcess("fish", rooms="line") as service:
        yield service


@pytest_asyncio.fixture(name="peer", loop_scope="module")
async def clean(service):
    yield service
    await service.reset()


def options(peer, **given):
    return Options(agent_id="a", base_url=f"http://127.0.0.1:{peer.port}", **given)


def talking(peer, *tools, **given):
    return started(LineAgent(options(peer, **given)), tools=[Tool(name) for name in tools], format_=SOUND)


# --- options and creation


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "agent_id is missing"),
        ({"agent_id": "a", "base_url": "http://fish.example"}, "not encrypted"),
        ({"agent_id": "a", "name": "n"}, "without a key"),
        ({"agent_id": "a", "overrides": {"system_prompt": "p"}}, "needs a key"),
        ({"agent_id": "a", "overrides": {"voice": "v"}}, "there is no 'voice'"),
        ({"agent_id": "a", "overrides": {"first_message": "a", "first_message_prompt": "b"}}, "not both"),
        ({"agent_id": "a", "tool_timeout_s": 121}, "120"),
        ({"agent_id": "a", "tool_timeout_s": 0.9}, "1"),
        ({"agent_id": "a", "name": "n" * 129}, "128"),
    ],
)
async def test_options_that_cannot_be_are_told_at_the_start(table, said, tmp_path):
    lines = [
        f"[fish]\n{name} = {_toml(value)}\n" if not number else f"{name} = {_toml(value)}\n"
        for number, (name, value) in enumerate(table.items())
    ]
    (tmp_path / "o.toml").write_text("".join(lines) or "[fish]\n")
    with pytest.raises(UsageError, match=said):
        load(Options, "fish", tmp_path / "o.toml", environ={})


def _toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f'{name} = "{text}"' for name, text in value.items()) + "}"
    return f'"{value}"' if isinstance(value, str) else str(value)


async def test_request_has_what_is_set_and_nothing_else(peer):
    assert options(peer).request(None) == {"agent_id": "a"}
    given = {
        "name": "hall",
        "timezone": "Europe/Berlin",
        "client_timezone": "Europe/Berlin",
        "world_context": False,
        "overrides": {"first_message": "Hi."},
        "dynamic_variables": {"age": 7.5, "vip": True},
        "end_user_id": "u",
        "metadata": {"x": 1},
    }
    body = options(peer, api_key=KEY, tool_events=False, **given).request({"room": "hall"})
    context = {"device_context": '{"room": "hall"}'}
    variables = given["dynamic_variables"] | context
    assert body == {"agent_id": "a", "tool_events": False, **given, "dynamic_variables": variables}


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (409, {"code": "unsupported_transport", "message": "old"}, "version", "old"),
        (409, {"message": "not published"}, "model", "publish"),
        (403, {"error": "origin not allowed"}, "key", "origin"),
        (403, {"error": "agent is not public"}, "key", "public"),
        (500, {}, "unreachable", "HTTP status 500"),
        (302, {}, "version", "elsewhere"),
        (201, SESSION | {"transport": "pigeon"}, "version", 'unsupported transport "pigeon"'),
        (201, {"transport": "pigeon", "loft": "x"}, "version", 'unsupported transport "pigeon"'),
        (201, SESSION | {"transport": 1}, "version", "unsupported transport 1"),
        (200, SESSION, "refused", "HTTP status 200"),
        (201, SESSION | {"transport": None}, "malformed", "lacks"),
        (201, SESSION | {"expires_at": "2020-01-01T00:00:00Z"}, "expired", "only until 2020"),
        (201, SESSION | {"expires_at": "soon"}, "malformed", "soon"),
        (201, SESSION | {"token": None}, "malformed", "lacks"),
        (201, SESSION | {"livekit_url": "ws://fish.example"}, "malformed", "not encrypted"),
        (201, ["no"], "malformed", "lacks"),
        (201, SESSION | {"more": "a" * (fish_session._ANSWER_BYTES - 300)}, None, ""),
        (201, SESSION | {"more": "a" * fish_session._ANSWER_BYTES}, "malformed", "lacks"),
    ],
)
async def test_session_that_cannot_be_is_told_in_words(peer, status, body, kind, said):
    """Page, "Connect to a session"; `sessionToken.ts`: 403 and 409."""
    await peer.do("answer", status=status, body=body)
    if kind is None:
        assert (await fish_session.create(options(peer), None)).session == "s"
        return
    with pytest.raises(ProviderError) as raised:
        await fish_session.create(options(peer), None)
    assert raised.value.kind == kind
    assert said in raised.value.line("fish")
    assert KEY not in raised.value.line("fish")


async def test_public_agent_needs_no_key_and_a_key_goes_in_the_header(peer):
    await peer.do("be", absent=True)
    await fish_session.create(options(peer), None)
    assert (await peer.seen("session"))["key"] is False
    ticket = await fish_session.create(options(peer, api_key=KEY), None)
    assert (await peer.seen("session"))["key"] is True
    assert ticket.token not in repr(ticket)


async def test_service_that_is_not_there_is_told():
    with pytest.raises(AgentStartError, match=r"fish: .*check the address"):
        async with started(FishAgent(Options(agent_id="a", base_url="http://127.0.0.1:1")), format_=SOUND):
            pass


# --- sessions


@pytest.mark.parametrize("shown", [True, False])
async def test_tools_of_the_agents_own_are_shown_where_it_tells_of_them(peer, shown):
    await peer.do("be", own="weather")
    await peer.respond([{"text": "Sunny."}])
    async with talking(peer, tool_events=shown) as port:
        port.agent.user_text("Hello.")
        await port.ends()
        assert [one.name for one in port.all(OwnCall)] == ["weather"] * shown
        assert [one.code for one in port.all(OwnResult)] == [None] * shown


async def test_call_that_wants_no_answer_gets_none(peer):
    await peer.do("be", expects=False)
    await peer.respond([{"call": "lock"}], [{"text": "Done."}])
    async with talking(peer, "lock") as port:
        port.agent.user_text("Lock.")
        await port.until(lambda: port.all(Call))
        call = port.all(Call)[0]
        port.agent.tool_result(call.turn, ToolResult(call.call, True, 1))
        await port.ends()
        assert peer.count("result") == 0


async def test_open_microphone_does_not_call_again_who_hung_up_and_speech_does(peer, caplog):
    """Else each call would begin another one, with a first message, until somebody looks at the bill."""
    hiss = np.random.default_rng(1).normal(0, 40, 48_000).astype("<i2").tobytes()
    async with talking(peer) as port:
        port.agent.user_text("Hello.")
        await port.ends()
        with caplog.at_level(logging.WARNING):
            await peer.do("leave")
            await logged(caplog, "its room is over")
        for sound in (quiet(1, "pcm16", 48_000), hiss, tone(0.05, "pcm16", 48_000), hiss):
            port.agent.user_audio(sound)
        assert not port.agent._wanted.is_set()
        await peer.seen("session")
        port.agent.user_audio(tone(0.3, "pcm16", 48_000))
        await peer.seen("session")
