"""The Fish facade: how a session is asked for, what its client sends, and each number of the page or its code that the server keeps.

The rooms are fake here; test_facade_fish_rooms.py has real ones. What the facade sends is judged by schema/peers/fish.
"""

import asyncio
import dataclasses
import datetime
import json
import ssl
import sys

import aiohttp
import jwt
import pytest
from fish_client import DASHBOARD, FakeRoom, answers, serving
from host_client import DEADLINE_S
from peers.livekit_server import KEY, SECRET
from peers.vectors import frame, load
from test_guest import Brain
from test_updates import served
from vrt_host.agents.options import load as load_options
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig
from vrt_host.errors import UsageError
from vrt_host.facades import fish, fish_messages, fish_tools, registry
from vrt_host.facades.fish_room import RoomError

ALL = ("first_message", "first_message_prompt", "system_prompt", "voice_id", "language")


@pytest.fixture
def tokens(tmp_path):
    """`tokens.add(name)`; `tokens.config` is for the host, which lets pages of app.example in."""
    file = TokenFile(tmp_path / "t.json")
    file.first = file.add("web")
    file.config = ServerConfig(port=0, tokens=file.path, origins=("https://app.example",))
    return file


def claims(token):
    return jwt.decode(token, SECRET, algorithms=["HS256"], issuer=KEY)


# --- Connect to a session


async def test_a_session_is_created_with_201():
    """Page, Connect to a session: 201; the token is of no use after expires_at; max_duration_seconds 1800."""
    async with serving(None) as host:
        status, session = await host.create()
        assert (status, session["transport"], session["max_duration_seconds"]) == (201, "livekit", 1800)
        made = claims(session["token"])
        expires = datetime.datetime.fromisoformat(session["expires_at"])
        assert abs(made["exp"] - expires.timestamp()) <= 1
        assert isinstance(session["max_duration_seconds"], int)
        assert abs(expires - datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=60)) < (
            datetime.timedelta(seconds=10)
        )
        assert made["video"]["room"] == session["session_id"]
        assert made["kind"] == "standard"
        assert not made["video"].get("canUpdateOwnMetadata")
        (room,) = FakeRoom.made
        agent = claims(room.token)
        assert (agent["kind"], agent["video"]["canUpdateOwnMetadata"]) == ("agent", True)
        assert agent["attributes"] == {"lk.agent.state": "initializing"}
        assert agent["video"]["room"] == session["session_id"]
        assert agent["sub"] != made["sub"] == room.user
        assert agent["exp"] > made["exp"] + 1800


async def test_clients_can_have_another_address_of_the_same_server():
    async with serving(None, client_url="wss://rtc.example", max_duration=60, join_timeout=5) as host:
        _, session = await host.create()
        assert (session["livekit_url"], session["max_duration_seconds"]) == ("wss://rtc.example", 60)
        assert FakeRoom.made[0].url == "ws://127.0.0.1:7880"


REQUESTS = [
    *((one, 201) for one in load("fish").valid if one.get("as") == "session_request"),
    *((one, 400) for one in load("fish").invalid if one.get("as") == "session_request"),
]


async def test_a_body_is_taken_or_refused_with_400():
    """Page, Connect to a session: an agent_id that is empty or missing; code, session.ts: a name of 128 characters, and of 129."""
    async with serving(None, overrides=ALL) as host:
        for vector, expected in REQUESTS:
            sent = frame(vector)
            status, said = await host.create(data=sent if isinstance(sent, str) else json.dumps(sent))
            assert status == expected, vector["id"]
            if status == 400:
                assert said["code"] == "invalid_request"
                assert said["message"]


async def test_what_may_be_absent_may_not_be_null():
    async with serving(None, overrides=ALL) as host:
        for wrong in ({"name": None}, {"metadata": None}, {"overrides": {"language": None}}):
            assert (await host.create(**wrong))[0] == 400


async def test_time_zones_are_checked_and_hints_are_not():
    """Code, session.ts: timezone is refused if unresolvable, client_timezone dropped."""
    async with serving(None) as host:
        for wrong in ("Mars/Olympus", "../../etc/passwd", "", "/", "Europe"):
            assert (await host.create(timezone=wrong))[0] == 400
        assert (await host.create(timezone="Asia/Tokyo", client_timezone="Mars/Olympus"))[0] == 201


async def test_a_refusal_says_why(tokens, monkeypatch):
    """Code, sessionToken.ts: 403 with "origin" or of an agent that is not public; 409 with unsupported_transport: the SDK is too old."""
    app, other = {"Origin": "https://app.example"}, {"Origin": "https://evil.example"}
    async with serving(None, config=tokens.config, agent_id="lamp", sessions=1) as host:

        async def refused(**how):
            status, said = await host.create(**{"agent_id": "lamp", **how})
            return status, said["code"]

        status, said = await host.create(headers=other, key=tokens.first)
        assert (status, "origin" in said["message"]) == (403, True)
        assert host.headers["Access-Control-Allow-Origin"] == other["Origin"]  # so that the page can tell why
        assert await refused() == (403, "agent_not_public")
        status, said = await host.create()
        assert "origin" not in said["message"]
        assert await refused(key="vrt_wrong") == (401, "unauthorized")
        assert await refused(headers={"Authorization": "Basic eA=="}) == (401, "unauthorized")
        assert await refused(key=tokens.first, agent_id="other") == (404, "agent_not_found")
        old = {"X-Fish-SDK": "agent-client/0.0.9"}
        assert await refused(key=tokens.first, headers=old) == (409, "unsupported_transport")
        assert await refused(key=tokens.first, data="x" * 65_537) == (413, "invalid_request")
        FakeRoom.fails = RoomError("nobody home")
        assert await refused(key=tokens.first) == (503, "transport_unavailable")
        FakeRoom.fails = None
        for sdk in ("agent-client/0.1.0", "agent-client/12.0", "curl"):
            made = await host.create(agent_id="lamp", key=tokens.first, headers={**app, "X-Fish-SDK": sdk})
            assert made[0] == 201
            assert host.headers["Access-Control-Allow-Origin"] == app["Origin"]
            assert await refused(key=tokens.first) == (429, "too_many_sessions")
            FakeRoom.made[-1].events.lost("over")
        monkeypatch.setattr(fish, "BODY_S", 0.05)

        async def slow():
            yield b"{"
            await asyncio.sleep(DEADLINE_S)

        async with host.http.post(
            host.facade.url, data=slow(), headers={"Authorization": f"Bearer {tokens.first}"}
        ) as answer:
            assert answer.status == 408


async def test_browsers_may_ask_first():
    async with (
        serving(None) as host,
        host.http.options(host.facade.url, headers={"Origin": "https://app.example"}) as answer,
    ):
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert answer.headers["Access-Control-Allow-Methods"] == "POST"
        assert {"authorization", "content-type", "x-fish-sdk"} == set(
            answer.headers["Access-Control-Allow-Headers"].split(", ")
        )


async def test_a_public_session_has_less_to_choose(tokens):
    """Page, Connect to a session: public agents; code, session.ts: no name, and of the overrides language and voice_id alone."""
    public, brain = tokens.add("public"), Brain(answers)
    async with serving(
        None, brain, config=tokens.config, public_token=public, overrides=ALL, key=tokens.first
    ) as host:
        assert (await host.create(key=None, name="hall"))[0] == 400
        assert (await host.create(key=None, overrides={"system_prompt": "p"}))[0] == 400
        assert (await host.create(name="hall", overrides={"system_prompt": "p"}))[0] == 201
        room = await host.meet(key=None, overrides={"language": "de", "voice_id": "v"})
        room.send("user.message", text="x")
        await room.gets("write")
        assert brain.session.context == {"language": "de", "voice_id": "v"}
        tokens.revoke("public")
        assert (await host.create(key=None))[0] == 403


async def test_an_override_that_the_agent_does_not_take_is_refused():
    async with serving(None, overrides=("language",)) as host:
        status, said = await host.create(overrides={"language": "de", "voice_id": "v"})
        assert (status, said["message"]) == (400, "overrides.voice_id: the agent does not take it")
        assert (await host.create(overrides={"language": "de"}))[0] == 201


async def test_the_agent_is_told_of_the_session_as_data():
    brains = Brain(answers), Brain(answers)
    async with serving(None, *brains, overrides=ALL) as host:
        await host.meet(
            timezone="Asia/Tokyo",
            world_context=True,
            dynamic_variables={"plan": "gold", "seats": 3, "vip": True},
            overrides={"system_prompt": "Be brief."},
            metadata={"secret": "for the server alone"},
            end_user_id="u-7",
        )
        told = dict(brains[0].session.context)
        assert told.pop("time")[-6:] == "+09:00"
        assert told == {
            "timezone": "Asia/Tokyo",
            "variables": {"plan": "gold", "seats": 3, "vip": True},
            "system_prompt": "Be brief.",
        }
        await host.meet()
        assert brains[1].session.context is None


@pytest.mark.parametrize(
    ("override", "heard"),
    [
        ({"first_message_prompt": "Greet the user."}, "Greet the user."),
        ({"first_message": "Hi!"}, "Begin the conversation with exactly these words: Hi!"),
    ],
)
async def test_an_agent_can_speak_first(override, heard):
    brain = Brain(answers)
    async with serving(None, brain, overrides=ALL) as host:
        room = await host.meet(overrides=override)
        await room.gets("end")
        assert brain.session.context is None
        assert room.words == f"You said {heard}.|"


# --- Client events: `client-event`

VECTORS = [(one, one["id"]) for one in load("fish").valid + load("fish").invalid]
PACKETS = [one for one, _ in VECTORS if one["direction"] == "client" and "as" not in one]


def packet(vector):
    sent = frame(vector)
    if isinstance(sent, bytes):
        return sent
    return (sent if isinstance(sent, str) else json.dumps(sent, ensure_ascii=False)).encode()


@pytest.mark.parametrize("vector", PACKETS, ids=lambda one: one["id"])
def test_a_packet_is_understood_or_passed_over(vector):
    """Page, Channels: 1 JSON object in a packet. A result of 60,001 bytes is the client's own fault."""
    if "why" not in vector or vector.get("receiver") == "accepts":
        assert fish_messages.decode(packet(vector)).type == vector.get("message", {}).get(
            "type", "user.message"
        )
    else:
        with pytest.raises(fish_messages.InvalidError):
            fish_messages.decode(packet(vector))


async def test_whatever_a_client_sends_its_session_goes_on(monkeypatch, caplog):
    monkeypatch.setattr("vrt_host.facades.fish_session.PACKETS_PER_S", 10_000)
    caplog.set_level("INFO")
    async with serving(None, Brain(answers)) as host:
        room = await host.meet()
        for vector in PACKETS:
            if "why" in vector:
                room.events.packet(packet(vector))
        room.send("user.activity")
        room.send("user.message", text=" \n")
        room.send("user.message", text="still there?")
        await room.gets("end")
        assert room.words == "You said still there?.|"
    assert caplog.text.count(": ignored: ") == 1  # told once, not for each
    assert [one.message for one in caplog.records if one.levelname in ("WARNING", "ERROR")] == []


async def test_there_are_a_hundred_packets_in_a_second(caplog):
    caplog.set_level("INFO")
    async with serving(None, Brain(answers)) as host:
        room = await host.meet()
        for _ in range(200):
            room.send("user.activity")
        room.send("user.message", text="one too many")
        room.send("user.hangup")
        assert room.closed is None
    assert caplog.text.count("more than 100 packets in a second") == 1


async def test_texts_wait_while_the_agent_starts_and_the_newest_stay():
    class Slow(Brain):
        async def start(self, session, port):
            await gate.wait()
            await super().start(session, port)

    gate, texts = asyncio.Event(), []
    brain = Slow(lambda agent, text: (texts.append(text), agent.news.set()))
    async with serving(None, brain) as host:
        room = await host.meet(ready=False)
        for number in range(33):
            room.send("user.message", text=str(number))
        for number in range(257):
            room.events.heard(bytes([number % 256] * 2))
        assert room.sent == [("state", "initializing")]
        gate.set()
        await brain.until(lambda: len(brain.audio) == 512)
        assert brain.audio[:2] == b"\1\1"
        assert texts == [str(number) for number in range(1, 33)]


# --- the operator


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("", "livekit_url is missing"),
        ('livekit_url = "ws://10.0.0.9:7880"', "livekit_url: ws is not encrypted"),
        ('livekit_url = "https://rtc.example"', "livekit_url: it has to be an address like wss://HOST"),
        ('livekit_url = "wss://rtc.example?token=1"', "livekit_url: nothing but the address"),
        ('livekit_url = "wss://rtc.example"\nclient_url = "rtc"', "client_url: it has to be"),
        ('livekit_url = "wss://rtc.example"\noverrides = ["voice"]', "overrides.0"),
        ('livekit_url = "wss://rtc.example"\njoin_timeout = 0.5', "join_timeout"),
        ('livekit_url = "wss://rtc.example"\napi_secret = "x"', "api_secret does not belong there"),
    ],
)
def test_an_option_that_is_wrong_is_told_in_one_line(tmp_path, table, says):
    file = tmp_path / "options.toml"
    file.write_text(f"[fish_facade]\n{table}\n")
    environ = {"LIVEKIT_API_KEY": "k", "LIVEKIT_API_SECRET": "not-to-be-shown"}
    with pytest.raises(UsageError) as error:
        load_options(fish.Options, "fish_facade", file, environ=environ)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert "not-to-be-shown" not in str(error.value)


def test_the_key_and_its_secret_are_needed(tmp_path, monkeypatch):
    for name in ("LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "options.toml"
    file.write_text('[fish_facade]\nlivekit_url = "wss://rtc.example"\n')
    with pytest.raises(UsageError, match="api_key is missing; set LIVEKIT_API_KEY"):
        registry.make("fish", file)
    monkeypatch.setenv("LIVEKIT_API_KEY", "k")
    monkeypatch.setenv("LIVEKIT_API_SECRET", "the-secret-of-the-server")
    made = registry.make("fish", file)
    assert "the-secret-of-the-server" not in repr(made.options)


def test_what_is_not_installed_is_named(monkeypatch):
    for module in ("fish", "fish_session", "fish_room"):
        monkeypatch.delitem(sys.modules, f"vrt_host.facades.{module}")
    monkeypatch.setitem(sys.modules, "livekit", None)
    with pytest.raises(
        UsageError, match=r'needs the package .livekit.: pip install "vrt-edge\[facades,fish\]"'
    ):
        registry.make("fish", None)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not JSON"),
        ("{}", "it: input should be a valid list"),
        (json.dumps([{"name": "a b", "description": ""}]), "0.name"),
        (json.dumps([{"name": "a"}]), "0.description: field required"),
        (json.dumps([DASHBOARD, DASHBOARD]), "a name is there twice"),
        (json.dumps([{**DASHBOARD, "timeout": 0.5}]), "0.timeout"),
        (json.dumps([{**DASHBOARD, "timeout": 121}]), "0.timeout"),
        (json.dumps([{**DASHBOARD, "parameters": {"type": 5}}]), "open_dashboard"),
    ],
)
def test_a_tools_file_that_is_wrong_is_told_in_one_line(tmp_path, content, says):
    """Page, client_tool.call: from 1 to 120 seconds."""
    file = tmp_path / "tools.json"
    file.write_text(content)
    with pytest.raises(UsageError) as error:
        fish_tools.load(file)
    assert says in str(error.value)
    with pytest.raises(UsageError, match="cannot be read"):
        fish_tools.load(tmp_path / "none")


async def test_a_host_that_stops_takes_nobody_any_more_and_tells_those_who_are_there():
    async with serving(None, Brain(answers)) as host:
        room = await host.meet()
        url = host.facade.url
        await host.facade.drain()
        status, said = await host.create()
        assert (status, said["code"]) == (503, "stopping")
    assert (await room.event_of("session.ended"))["reason"] == "agent_hangup"
    assert room.closed is True
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.post(url, data="{}")


async def test_with_tls_everything_is_encrypted(tmp_path):
    config = dataclasses.replace(served(tmp_path), port=0)
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    token = TokenFile(tmp_path / "tokens.json").add("mine")
    async with serving(None, config=config) as host:
        assert host.facade.url == f"https://127.0.0.1:{host.facade.port}/v1/agent/sessions"
        headers = {"Authorization": f"Bearer {token}"}
        async with host.http.post(
            host.facade.url, data='{"agent_id": "a"}', headers=headers, ssl=trust
        ) as answer:
            assert answer.status == 201
        with pytest.raises(aiohttp.ClientError):
            await host.http.post(host.facade.url.replace("https", "http"), data="{}")


async def test_a_room_that_cannot_be_left_keeps_no_host_from_stopping(monkeypatch):
    assert fish.STOP_S == 10
    monkeypatch.setattr(fish, "STOP_S", 0.05)
    release = asyncio.Event()

    async def never(self, *, farewell):
        await release.wait()

    monkeypatch.setattr(FakeRoom, "close", never)
    async with serving(None, Brain(answers)) as host:
        await host.meet()
    release.set()
    await asyncio.gather(*host.facade._tasks)


async def test_a_token_that_is_revoked_ends_its_sessions(tokens, monkeypatch):
    monkeypatch.setattr("vrt_host.server.TOKENS_EVERY_S", 0.02)
    async with serving(None, Brain(answers), config=tokens.config, key=tokens.first) as host:
        room = await host.meet()
        tokens.revoke("web")
        assert (await room.event_of("session.ended"))["reason"] == "agent_hangup"
        assert [one["type"] for one in room.events_sent] == ["session.ended"]
        await room.until(lambda: room.closed is not None)
