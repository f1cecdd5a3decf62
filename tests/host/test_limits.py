"""docs/limits.md: each default against the code, each answer by a test, here or where it says."""

import ast
import asyncio
import dataclasses
import functools
import importlib
import json
import pkgutil
import re
import wave
from pathlib import Path

import pytest
import vrt_host
from host_client import DEADLINE_S, hosting
from limit_proofs import PROOFS
from vrt import config as settings
from vrt.tools import report
from vrt.tools.journal import Journal
from vrt_host.agents import script
from vrt_host.agents.base import (
    Agent,
    Audio,
    AudioBegin,
    Call,
    CallBegin,
    Text,
    Transcript,
    TurnBegin,
    TurnEnd,
)
from vrt_host.agents.intents import Intents, Tool
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig, TurnLimits
from vrt_host.errors import UsageError
from vrt_host.session import Limits
from vrt_host.tools import (
    DEFAULT_TIMEOUT_MS,
    MAX_ARGUMENTS,
    MAX_SCHEMA,
    MAX_SCHEMAS,
    MAX_TIMEOUT_MS,
    MAX_TOOLS,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def rows():
    """The rows of the page's tables of limits: (place in the code, default as a number, answer)."""
    found = []
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4 or not line.startswith("|") or cells[0] in ("Limit", "---"):
            continue
        places = [place for place in re.findall(r"`([^`]+)`", cells[2]) if not place.startswith("--")]
        assert len(places) == 1, f"a row names one place in the code: {line}"
        found.append((places[0], float(NUMBER.match(cells[1])[0].replace(",", "")), cells[3]))
    return found


ROWS = rows()


def in_code(place):
    """The value at a place, None when it is a file without a name for it."""
    file, _, name = place.partition(" ")
    if not name and not file.endswith(".py"):
        module, _, name = file.rpartition(".")
        if module.rpartition(".")[2][0].isupper():  # a field of a dataclass
            module, _, cls = module.rpartition(".")
            kind = getattr(importlib.import_module(f"vrt_host.{module}"), cls)
            return {field.name: field.default for field in dataclasses.fields(kind)}[name]
        return getattr(importlib.import_module(f"vrt_host.{module}"), name)
    if file == "schema/common.json":
        found = json.loads((ROOT / file).read_text())["$defs"]
        for step in name.split("/"):
            found = found[step]
        return found
    if file == "config.json":
        return settings.SETTINGS[name][0]
    text = (ROOT / "firmware" / "vrt" / file).read_text(encoding="utf-8")
    if not name:
        return None
    found = re.search(rf"^{name} = const\(([^)]+)\)|\b{name}=(\d+)", text, re.MULTILINE)
    return None if found is None else ast.literal_eval(found[1] or found[2])


# --- the page


@pytest.mark.parametrize(("place", "default"), [row[:2] for row in ROWS])
def test_default_is_that_of_the_code(place, default):
    value = in_code(place)
    if value is None:
        assert " " not in place, "the page names what is not there"
        assert (ROOT / "firmware" / "vrt" / place).is_file()
    else:
        assert default == pytest.approx(value, rel=1e-5)


def test_every_limit_that_can_be_set_is_on_the_page():
    places = {place for place, *_ in ROWS}
    for module, kind in (("session", Limits), ("config", TurnLimits)):
        for field in dataclasses.fields(kind):
            assert f"{module}.{kind.__name__}.{field.name}" in places
    for field in dataclasses.fields(ServerConfig):
        if field.name.startswith("max_") or field.name.endswith("_timeout"):
            assert f"config.ServerConfig.{field.name}" in places
    for name, (_, allowed) in settings.SETTINGS.items():
        if (
            isinstance(allowed, tuple)
            and isinstance(allowed[0], int)
            and name not in ("prefill_ms", "safe_boot_ms", "stats_ms", "volume")
        ):
            assert f"config.json {name}" in places


def test_every_constant_that_is_named_a_limit_is_on_the_page():
    places = {place for place, *_ in ROWS}
    apart = ("conformance", "harness", "sim", "commands", "bundle")  # tools that no peer meets
    for module in pkgutil.walk_packages(vrt_host.__path__, "vrt_host."):
        path = ROOT / "host" / (module.name.replace(".", "/") + ".py")
        if module.name.split(".")[1] in apart or not path.is_file():
            continue
        for name in re.findall(
            r"^(_?MAX_[A-Z_]+)(?:: \w+)? = ", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            assert f"{module.name.removeprefix('vrt_host.')}.{name}" in places


def test_every_row_is_proved_by_a_test_that_is_there():
    assert {place for place, *_ in ROWS} == set(PROOFS)
    for place, proof in PROOFS.items():
        file, _, name = proof.partition("::")
        assert re.search(rf"^(async )?def {name}\(", _text(file), re.MULTILINE), f"{place}: {proof} is gone"


@functools.cache
def _text(file):
    return (ROOT / "tests" / file).read_text(encoding="utf-8")


# --- the host: messages and sessions


class Obedient(Agent):
    """Does with each text what `on_text(agent, text)` says."""

    name = "obedient"

    def __init__(self, on_text=lambda agent, text: None):
        self.on_text = on_text
        self.results = []

    async def start(self, session, port):
        self.session = session
        self.port = port

    def user_text(self, text):
        self.on_text(self, text)

    def user_audio(self, payload):
        pass

    def interrupted(self, turn, heard):
        pass

    def tool_result(self, turn, result):
        self.results.append(result)


def written(seq, text):
    return json.dumps({"v": 1, "seq": seq, "type": "text", "text": text})


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (written(1, "x" * Limits().message_bytes), "TOO_LARGE"),
        (b"\x01\0\0\0\0" + bytes(Limits().audio_bytes), "TOO_LARGE"),
        (written(1, "x").replace('"x"', '"x", "more": ' + "[" * 32 + "]" * 32), "MALFORMED"),
        (json.dumps({"v": 1, "seq": 1, "type": "playback", "itemId": "i" * 257, "playedMs": 0}), "INVALID_FIELD"),
        (json.dumps({"v": 1, "seq": 2**32, "type": "text", "text": "x"}), "INVALID_FIELD"),
    ],
)  # fmt: skip
async def test_what_is_too_much_is_told_and_the_session_goes_on(frame, code):
    async with hosting() as host, host.client() as client:
        await client.hello()
        await client.raw(frame)
        error = await client.until("error")
        assert (error["code"], error["recoverable"]) == (code, True)
        assert len(error["message"]) <= 200
        client.seq = 1
        await client.send("text", text="still here")
        assert (await client.until("text"))["text"] == "Echo: still here"


@pytest.mark.parametrize(
    "members",
    [
        {"tools": [{"name": f"t{number}"} for number in range(257)]},
        {"capabilities": [f"x-{number}" for number in range(257)]},
        {"capabilities": ["x" * 65]},
    ],
)
async def test_hello_that_lists_too_much_is_refused_and_another_may_follow(members):
    async with hosting() as host, host.client() as client:
        await client.send("hello", **members)
        error = await client.until("error")
        assert (error["code"], error["recoverable"], error["seq"]) == ("INVALID_FIELD", True, 0)
        await client.hello()


def schema(values):
    """One of so many JSON values."""
    return {"type": "object", "required": ["x"] * (values - 3)}


@pytest.mark.parametrize(
    ("tools", "used"),
    [
        ([{"name": f"t{number}"} for number in range(MAX_TOOLS + 3)], MAX_TOOLS),
        ([{"name": "good"}, {"name": "bad", "parameters": {"enum": list(range(MAX_SCHEMA))}}], 1),
        (
            [
                {"name": f"t{number}", "parameters": {"enum": list(range(MAX_SCHEMA - 2))}}
                for number in range(MAX_SCHEMAS // MAX_SCHEMA + 1)
            ],
            MAX_SCHEMAS // MAX_SCHEMA,
        ),
    ],
)  # fmt: skip
async def test_tools_beyond_a_limit_are_told_and_never_called(tools, used):
    agent = Obedient()
    async with hosting(lambda: agent) as host, host.client() as client:
        await client.hello(tools=tools)
        error = await client.next()
        assert (error["code"], error["recoverable"], error["seq"]) == ("TOOLS_DECLINED", True, 1)
        assert f"{len(tools) - used} tools" in error["message"]
    assert len(agent.session.tools) == used


async def test_tool_that_is_declined_for_another_reason_is_told_to_nobody():
    tools = [{"name": "bad name"}, {"name": "slow", "timeoutMs": MAX_TIMEOUT_MS + 1}]
    agent = Obedient()
    async with hosting(lambda: agent) as host, host.client() as client:
        await client.hello(tools=tools)
        await client.send("ping")
        assert (await client.next())["type"] == "pong"
    assert agent.session.tools == []


@pytest.mark.parametrize("limits", [Limits(early_messages=2), Limits(early_bytes=100)])
async def test_too_much_before_ready_is_an_overflow(limits):
    class Never(Obedient):
        async def start(self, session, port):
            await asyncio.Event().wait()

    async with hosting(Never, limits=limits) as host, host.client() as client:
        await client.send("hello")
        for _ in range(3):
            await client.send("text", text="x")
        error = await client.until("error")
        assert (error["code"], error["recoverable"], error["seq"]) == ("OVERFLOW", False, 0)
        assert await client.closed() == 1008


@pytest.mark.parametrize(
    ("limits", "count"), [(Limits(ack_s=3600), 32), (Limits(ack_every=3), 3), (Limits(ack_s=0.01), 1)]
)
async def test_acknowledgement_comes_after_so_many_messages_or_so_long(limits, count):
    async with hosting(Obedient, limits=limits) as host, host.client() as client:
        await client.hello()
        for _ in range(count):
            await client.send("context", context=1)
        assert (await client.until("ack"))["upTo"] == count


@pytest.mark.parametrize("limits", [Limits(kept_messages=4), Limits(kept_bytes=300)])
async def test_resume_that_needs_what_is_gone_fails_and_closes_the_session(limits):
    def say(agent, text):
        agent.port.emit(TurnBegin("t"))
        for word in "abcd":
            agent.port.emit(Text("t", word))
        agent.port.emit(TurnEnd("t"))

    async with hosting(lambda: Obedient(say), limits=limits) as host:
        async with host.client() as client:
            session = (await client.hello())["sessionId"]
            await client.send("text", text="go")
            last = (await client.until("turn.state", state="idle"))["seq"]
        await host.event("session.parked")
        async with host.client() as client:  # what is still there is no reason to fail
            await client.hello(sessionId=session, resumeFrom=last - 2)
        async with host.client() as client:
            await client.send("hello", sessionId=session, resumeFrom=0)
            assert (await client.until("error"))["code"] == "RESUME_FAILED"
            assert await client.closed() == 4404
        await host.event("session.closed")


# --- links and tokens


async def test_stranger_who_does_not_shake_hands_is_cut_off(monkeypatch):
    monkeypatch.setattr("vrt_host.server.HANDSHAKE_S", 0.05)
    async with hosting() as host:
        reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
        async with asyncio.timeout(DEADLINE_S):
            assert await reader.read() == b""
        writer.close()


async def test_token_that_is_too_long_is_refused(tmp_path):
    tokens = TokenFile(tmp_path / "tokens.json")
    tokens.add("kitchen")
    async with hosting(config=ServerConfig(port=0, tokens=tokens.path)) as host, host.client() as client:
        await client.send("hello", auth={"token": "x" * 1025})
        assert (await client.until("error"))["code"] == "UNAUTHORIZED"
        assert await client.closed() == 4401


def test_tokens_file_that_is_too_large_is_refused(tmp_path):
    path = tmp_path / "tokens.json"
    path.write_text(" " * (1 << 20) + "{}")
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        TokenFile(path).load()


# --- turns, calls, audio


def begin(agent, text):
    agent.port.emit(TurnBegin(text))


def many_calls(agent, text):
    begin(agent, text)
    for number in range(3):
        agent.port.emit(Call(text, f"c{number}", "status", "{}"))


def many_items(agent, text):
    begin(agent, text)
    for number in range(3):
        agent.port.emit(AudioBegin(text, f"i{number}"))


def much_audio(agent, text):
    begin(agent, text)
    agent.port.emit(AudioBegin(text, "i"))
    agent.port.emit(Audio(text, "i", bytes(48_000)))


def many_events(agent, text):
    begin(agent, text)
    for _ in range(10):
        agent.port.emit(Text(text, "x"))


@pytest.mark.parametrize(
    ("limits", "do", "survives"),
    [
        (TurnLimits(per_turn=2), many_calls, True),
        (TurnLimits(per_turn=2), many_items, True),
        (TurnLimits(agent_audio_s=0.5), much_audio, True),
        (TurnLimits(agent_silence=0.02), begin, True),
        (TurnLimits(events=9), many_events, False),
    ],
)  # fmt: skip
async def test_agent_that_goes_too_far_is_told_of(limits, do, survives):
    agent = Obedient(do)
    async with hosting(lambda: agent, turn_limits=limits) as host, host.client() as client:
        await client.hello(tools=[{"name": "status"}])
        await client.send("text", text="go")
        error = await client.until("error")
        assert (error["code"], error["recoverable"]) == ("AGENT_ERROR", survives)
        if not survives:
            assert await client.closed() == 1011
            return
        await client.until("interrupted", reason="server")
        agent.on_text = lambda agent, text: begin(agent, text) or agent.port.emit(TurnEnd(text))
        await client.send("text", text="again")
        await client.until("turn.state", state="idle")


async def test_arguments_that_are_too_long_are_refused_and_not_sent():
    def call(agent, text):
        begin(agent, text)
        agent.port.emit(Call(text, "c", "status", {"x": "y" * MAX_ARGUMENTS}))
        agent.port.emit(TurnEnd(text))

    agent = Obedient(call)
    async with hosting(lambda: agent) as host, host.client() as client:
        await client.hello(tools=[{"name": "status", "parameters": {"type": "object", "title": "z" * 9000}}])
        await client.send("text", text="go")
        await client.until("turn.state", state="idle")
    (result,) = agent.results
    assert result.code == "INVALID"
    assert "too long" in result.message
    assert len(result.message) < 2000  # the schema is cut
    assert not [event for event in host.events if event["event"] == "call.sent"]


async def test_call_without_a_declared_time_has_the_default():
    agent = Obedient()
    async with hosting(lambda: agent) as host, host.client() as client:
        await client.hello(tools=[{"name": "status"}])
    assert agent.session.tools[0].timeout_ms == DEFAULT_TIMEOUT_MS == 30_000


async def test_calls_beyond_what_a_device_takes_wait_for_a_result():
    agent = Obedient(many_calls)
    async with (
        hosting(lambda: agent, turn_limits=TurnLimits(queued_calls=2)) as host,
        host.client() as client,
    ):
        await client.hello(tools=[{"name": "status"}])
        await client.send("text", text="go")
        first = await client.until("tool.call")
        await client.until("tool.call")
        await client.send("ping")
        assert (await client.next())["type"] == "pong"  # no third one
        await client.send("tool.result", callId=first["callId"], epoch=first["epoch"], ok=True, output=None)
        await client.until("tool.call")


async def test_long_text_goes_in_several_messages_and_a_long_transcript_is_cut():
    def say(agent, text):
        begin(agent, text)
        agent.port.emit(Transcript(text, "user", "u" * 70_000, True))
        agent.port.emit(Text(text, "a" * 70_000, True))
        agent.port.emit(TurnEnd(text))

    async with hosting(lambda: Obedient(say)) as host, host.client() as client:
        await client.hello()
        await client.send("text", text="go")
        heard = await client.until("transcript")
        texts = []
        while not texts or not texts[-1]["final"]:
            texts.append(await client.until("text"))
    assert heard["text"].endswith("…")
    assert len(heard["text"].encode()) <= 32_768
    assert "".join(message["text"] for message in texts) == "a" * 70_000
    assert max(len(message["text"]) for message in texts) <= 32_768


async def test_calls_beyond_the_limit_are_not_displayed():
    def show(agent, text):
        begin(agent, text)
        for number in range(4):
            agent.port.emit(CallBegin(text, f"c{number}", "status"))
        agent.port.emit(TurnEnd(text))

    async with (
        hosting(lambda: Obedient(show), turn_limits=TurnLimits(per_turn=2)) as host,
        host.client() as client,
    ):
        await client.hello(capabilities=["tool-stream-v1"])
        await client.send("text", text="go")
        await client.until("turn.state", state="idle")
    phases = [event["message"].get("phase") for event in host.events if event["event"] == "message.out"]
    assert (phases.count("start"), phases.count("failed")) == (2, 2)


# --- scripts and the offline agent


def test_script_that_is_too_large_is_refused(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(" " * (1 << 20) + "{}")
    with pytest.raises(UsageError, match="MiB"):
        script.load(path)


def test_recording_that_is_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "MAX_SOUND_MS", 60_000)
    with wave.open(str(tmp_path / "long.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(2 * 8000 * 60 + 2))
    path = tmp_path / "s.json"
    path.write_text(
        json.dumps({"rules": [{"on": {"text": "x"}, "do": [{"say": {"text": "x", "wav": "long.wav"}}]}]})
    )
    with pytest.raises(UsageError, match="longer than 1 minutes"):
        script.load(path)


def test_sentences_beyond_the_limit_are_warned_of():
    intents = Intents([Tool("robot", phrases=[{"say": [f"go {word}" for word in "abcdefghijklmnopqrstu"]}])])
    assert "only the first 20 of 21 sentences" in intents.warnings[0]
    assert intents.parse("go a") is not None


# --- the device


def test_device_keeps_short_arguments_alone_for_its_report(tmp_path):
    journal = Journal(str(tmp_path / "calls"))
    journal.begin("s")
    for number, length in enumerate((256, 257)):
        journal.started(f"c{number}", "digest", "lock", "x" * length, 1)
    assert [call["arguments"] for call in report.unknown(journal)] == ["x" * 256, None]


def test_board_and_host_as_shipped_hear_of_each_other_twice_in_the_time_that_they_wait():
    ping_ms = settings.SETTINGS["ping_ms"][0]
    announced = Limits().announced()["heartbeatMs"]
    assert 2 * ping_ms <= announced  # the host's patience; what it answers is the board's
