"""The Omnia facade: tools of its clients and of boards, and realtime audio sessions."""

import asyncio
import base64

import pytest
from host_client import DEADLINE_S
from omnia_client import PCM16_16K, answers, serving
from peers.vectors import decode_omni, errors
from test_guest import LOCK, Brain, board, call, speak
from vrt_host.agents.base import (
    Abilities,
    AgentError,
    Audio,
    AudioBegin,
    AudioEnd,
    Transcript,
    TurnBegin,
    TurnEnd,
)
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig
from vrt_host.errors import UsageError
from vrt_host.facades import omnia, omnia_frames, omnia_session, omnia_tools
from vrt_host.lending import Lending

# --- tools of the client


def asks(agent, text):
    call(
        agent,
        "where" if text == "where" else "weather",
        arguments="{}" if text == "where" else '{"location": "Rome"}',
    )


def begin(brain, tmp_path, **options):
    return serving(brain, tmp_path=tmp_path, **options)


@pytest.mark.parametrize("ack", [True, False])
async def test_a_tool_of_the_client_is_called_and_its_result_is_the_agents(tmp_path, ack):
    """Page, Tool call, Tool result: any JSON value."""
    brain = Brain(asks)
    async with begin(brain, tmp_path) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("two")
        asked = (await client.until("tool_call"))["tool_call"]
        assert (asked["name"], asked["arguments"]) == ("weather", {"location": "Rome"})
        assert "consent_message" not in asked
        assert [tool.name for tool in brain.session.tools] == ["weather", "where"]
        if ack:
            await client.send("tool_call_ack", tool_call_ack={"call_id": asked["id"]})
        result = {"call_id": asked["id"], "result": {"temperature": "72F"}}
        await client.send("tool_result", tool_result=result)
        await client.until("done")
        assert [(one.ok, one.output) for one in brain.results] == [(True, {"temperature": "72F"})]
        await client.send("tool_result", tool_result=result)
        assert await client.error() == ("INVALID_MESSAGE", "no pending tool call")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"error": "the lamp is off"}, (False, "FAILED", "the lamp is off")),
        ({"error": "", "result": 1}, (False, "FAILED", "the tool failed")),
        ({}, (True, None, "")),
        ({"result": "ü" * 125_000}, (False, "FAILED", "the tool ran, but its result is too large")),
    ],
)
async def test_what_a_result_says_is_what_the_agent_hears(tmp_path, answer, expected):
    brain = Brain(asks)
    async with begin(brain, tmp_path) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("x")
        asked = (await client.until("tool_call"))["tool_call"]
        await client.send("tool_result", tool_result={"call_id": asked["id"], **answer})
        await client.until("done")
        assert [(one.ok, one.code, one.message) for one in brain.results] == [expected]


async def test_a_rejection_is_never_a_success(tmp_path):
    """Page, Tool call acknowledgement and rejection: declined with a reason; consent is asked at the client."""
    brain = Brain(asks)
    async with begin(brain, tmp_path) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("where")
        asked = (await client.until("tool_call"))["tool_call"]
        assert (asked["consent_message"], asked["categories"]) == ("Share your place?", ["location"])
        await client.send("tool_call_ack", tool_call_ack={"call_id": asked["id"]})
        await client.send("tool_call_nack", tool_call_nack={"call_id": asked["id"], "reason": "said no"})
        await client.until("done")
        assert [(one.ok, one.code, one.message) for one in brain.results] == [(False, "REJECTED", "said no")]


@pytest.mark.parametrize(("ack", "code"), [(False, "REJECTED"), (True, "TIMEOUT")])
async def test_a_call_that_is_not_acknowledged_or_answered_is_given_up_and_the_turn_goes_on(
    tmp_path, ack, code
):
    """Code, runtime_handler.go: 5 s for the acknowledgement, 60 s for the result; page: the client is told by a tool_result."""
    assert (omnia.Options().ack_timeout, omnia.Options().client_tool_timeout) == (5, 60)
    brain = Brain(asks)
    times = {"client_tool_timeout": 0.1} if ack else {"ack_timeout": 0.1}
    async with begin(brain, tmp_path, **times) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("x")
        asked = (await client.until("tool_call"))["tool_call"]
        if ack:
            await client.send("tool_call_ack", tool_call_ack={"call_id": asked["id"]})
        told = (await client.until("tool_result"))["tool_result"]
        assert told["id"] == asked["id"]
        await client.until("done")
        assert [(one.code, one.message) for one in brain.results] == [(code, told["error"])]
        await client.send("tool_result", tool_result={"call_id": asked["id"], "result": 1})
        assert await client.error() == ("INVALID_MESSAGE", "no pending tool call")


async def test_a_call_of_a_turn_that_fails_is_given_up(tmp_path):
    def on_text(agent, text):
        agent.port.emit(TurnBegin("t"))
        asks(agent, text)

    brain = Brain(on_text)
    async with begin(brain, tmp_path) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("x")
        asked = (await client.until("tool_call"))["tool_call"]
        brain.port.emit(AgentError("over", turn="t"))
        assert (await client.until("tool_result"))["tool_result"] == {
            "id": asked["id"],
            "error": omnia_tools.INTERRUPTED,
        }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("{}", "valid list"),
        ('[{"name": "a b", "description": ""}]', "0.name"),
        ('[{"name": "a", "description": "", "secret": 1}]', "0.secret"),
        ('[{"name": "a", "description": ""}, {"name": "a", "description": ""}]', "twice"),
        ('[{"name": "a", "description": "", "parameters": {"type": 5}}]', "not a JSON Schema"),
        ("[5]", "0: input should be a valid dictionary$"),
        ('[{"name": "a", "description": "", "parameters": {"default": NaN}}]', "is not JSON"),
        ('[{"name": "a", "description": "", "parameters": {"default": 1e999}}]', "is not JSON"),
        (
            f'[{{"name": "a", "description": "", "parameters": {{"default": {"[" * 29 + "]" * 29}}}}}]',
            "32 levels",
        ),
        (f'[{{"name": "a", "description": "{"x" * 131_072}"}}]', "more than 131072 bytes"),
    ],
)
def test_a_file_of_tools_that_is_wrong_is_a_usage_error(tmp_path, text, words):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(UsageError, match=words):
        omnia_tools.load(tmp_path / "t.json")
    with pytest.raises(UsageError, match="cannot be read"):
        omnia_tools.load(tmp_path / "none.json")


async def test_a_boards_tool_is_run_and_confirmed_at_the_board(tmp_path):
    brain = Brain(lambda agent, text: call(agent, "lock"))
    async with (
        serving(Brain(), brain, lending=Lending(["porch"])) as host,
        host.client() as porch,
        host.omnia(agent="a", connected=True) as client,
    ):
        await board(porch, LOCK)
        await client.say("lock")
        ran = await porch.until("tool.call", name="lock")
        members = {"callId": ran["callId"], "epoch": ran["epoch"]}
        await porch.send("tool.result", **members, ok=False, code="REJECTED", message="not confirmed")
        assert await client.answer() == ""
        assert brain.results[0].code == "REJECTED"


# --- realtime audio


def hears(agent, seconds=0.3):
    agent.port.emit(TurnBegin("t", "listening"))
    agent.port.emit(Transcript("t", "user", "what I", False))
    agent.port.emit(Transcript("t", "user", "what I said", True))
    agent.port.emit(Transcript("t", "agent", "what it says", True))
    speak(seconds)(agent, "")


class Ears(Brain):
    """Answers by voice as soon as it has heard enough."""

    abilities = Abilities(inputs=(PCM16_16K,), outputs=(PCM16_16K,))
    seconds = 0.3
    enough = 3200

    def user_audio(self, payload):
        before = len(self.audio)
        super().user_audio(payload)
        if before < self.enough <= len(self.audio):
            hears(self, self.seconds)


FORMAT = {"sample_rate": 16_000, "channels": 1, "codec": "pcm"}


async def test_a_call_by_binary_frames():
    """Page, Session config, Binary media chunk; done for each turn of the agent's. Code, duplex_sink.go: 12 zeros as MediaID."""
    async with serving(Ears()) as host, host.omnia(agent="a", binary="true", connected=True) as client:
        await client.audio(bytes(6400), **FORMAT)
        assert (await client.next())["session_config"] == FORMAT
        shown, sound, numbers = [], 0, []
        while (came := await client.next())["type"] != "done":
            if came["type"] == "frame":
                assert came["metadata"] == {"session_id": client.id, "mime_type": "audio/pcm", **FORMAT}
                assert (came["flags"], came["media_id"]) == ([], "00" * 12)
                sound += len(came["payload"]) // 2
                numbers.append(came["sequence"])
            else:
                shown.append((came.get("role"), came["content"]))
        assert shown == [("user", "what I said"), (None, "what it says")]
        assert sound == round(0.3 * 32_000)
        assert numbers == list(range(len(numbers)))
        assert came["content"] == "what it says"


async def test_without_binary_frames_each_utterance_is_a_medium():
    """Page, Media chunk: numbered from 0, the final one says so."""
    async with serving(Ears()) as host, host.omnia(agent="a", connected=True) as client:
        await client.audio(bytes(6400))
        assert (await client.next())["session_config"] == FORMAT  # the defaults
        chunks = []
        while (came := await client.next())["type"] != "done":
            if came["type"] == "media_chunk":
                chunks.append(came["media_chunk"])
        assert [one["sequence"] for one in chunks] == list(range(len(chunks)))
        assert [one["is_last"] for one in chunks] == [False] * (len(chunks) - 1) + [True]
        assert len({one["media_id"] for one in chunks}) == 1
        assert sum(len(base64.b64decode(one["data"])) for one in chunks) == round(0.3 * 32_000)


async def test_two_utterances_are_two_media():
    def on_text(agent, text):
        agent.port.emit(TurnBegin("t"))
        for item in ("i", "j"):
            agent.port.emit(AudioBegin("t", item))
            agent.port.emit(Audio("t", item, bytes(1920)))
            agent.port.emit(AudioEnd("t", item))
        agent.port.emit(TurnEnd("t"))

    brain = Ears(on_text)
    brain.enough = 10**9
    async with serving(brain) as host, host.omnia(agent="a", connected=True) as client:
        await client.audio(bytes(320))
        await client.say("x")
        chunks = []
        while (came := await client.next())["type"] != "done":
            if came["type"] == "media_chunk":
                chunks.append(came["media_chunk"])
        first, second = ([one for one in chunks if one["media_id"] == name] for name in _ids(chunks))
        assert chunks == first + second
        for medium in (first, second):
            assert [one["sequence"] for one in medium] == list(range(len(medium)))
            assert [one["is_last"] for one in medium] == [False] * (len(medium) - 1) + [True]


def _ids(chunks):
    return list(dict.fromkeys(one["media_id"] for one in chunks))


@pytest.mark.parametrize(
    ("told", "rate"),
    [
        ({"sample_rate": 24_000, "channels": 1, "codec": "pcm"}, 24_000),
        ({"sample_rate": 8000}, 8000),
        ({"sample_rate": 0, "channels": "1", "codec": 5}, 16_000),
        ({"sample_rate": True, "channels": 2.5}, 16_000),
    ],
)
async def test_both_voices_have_the_format_that_the_first_frame_tells(told, rate):
    """Code, audio_session.go: pcm, 16000 Hz, 1 where it tells none."""
    brain = Ears()
    async with serving(brain) as host, host.omnia(agent="a", binary="true", connected=True) as client:
        await client.audio(bytes(rate), **told)
        await client.audio(bytes(rate))
        assert (await client.next())["session_config"] == {"codec": "pcm", "sample_rate": rate, "channels": 1}
        sound = 0
        while (came := await client.next())["type"] != "done":
            sound += len(came["payload"]) // 2 if came["type"] == "frame" else 0
        assert abs(sound - 0.3 * 2 * rate) < 400
        assert abs(len(brain.audio) - 32_000) < 1600


@pytest.mark.parametrize("told", [{"codec": "opus"}, {"channels": 2}, {"sample_rate": 96_000}])
async def test_another_format_is_answered_with_ours_and_not_heard(told):
    """Page, Session config: the client captures at this format for the rest of the session."""
    brain = Ears()
    async with serving(brain) as host, host.omnia(agent="a", binary="true", connected=True) as client:
        await client.audio(b"\x01" * 6400, **told)
        assert (await client.next())["session_config"] == FORMAT
        await client.audio(b"\x02" * 3201, **FORMAT)
        await client.audio(b"\x02" * 3199)
        await client.until("done")
        assert set(brain.audio) == {2}
        assert len(brain.audio) == 6400


@pytest.mark.parametrize(("size", "sizes"), [(1_048_576, [1_048_576]), (1_048_577, [65_536] * 16 + [1])])
def test_what_is_longer_than_1_mib_is_split_into_64_kib(size, sizes):
    """Page, Flags: Chunked, sequence from 0, total_chunks; one of exactly 1 MiB is not split, and keeps its number."""
    made = list(omnia_frames.encode(bytes(size), {"mime_type": "audio/pcm"}, 7))
    decoded = [decode_omni(one) for one in made]
    assert [errors("omnia", "server", one) for one in made] == [[]] * len(made)
    assert [len(one["payload"]) // 2 for one in decoded] == sizes
    if len(sizes) > 1:
        assert [one["sequence"] for one in decoded] == list(range(17))
        assert {(*one["flags"], one["metadata"]["total_chunks"]) for one in decoded} == {("chunked", 17)}
    else:
        assert (decoded[0]["sequence"], decoded[0]["flags"]) == (7, [])


async def test_who_speaks_up_interrupts():
    """Page, Interrupt."""
    brain = Ears()
    brain.seconds = 20
    async with serving(brain) as host, host.omnia(agent="a", binary="true", connected=True) as client:
        await client.audio(bytes(6400))
        await client.until("frame")
        brain.port.emit(TurnBegin("u", "listening"))
        await client.until("interrupt")
        assert (await client.next())["type"] == "done"
        brain.port.emit(Transcript("u", "agent", "yes?", True))
        brain.port.emit(TurnEnd("u"))
        assert (await client.next())["content"] == "yes?"  # nothing is left of what was said before


async def test_a_noise_that_comes_to_nothing_is_not_done():
    brain = Brain()
    async with serving(brain) as host, host.omnia(agent="a", binary="true", connected=True) as client:
        await client.audio(bytes(6400))
        await client.until("session_config")
        await brain.until(lambda: hasattr(brain, "port"))
        brain.port.emit(TurnBegin("n", "listening"))
        brain.port.emit(TurnEnd("n"))
        hears(brain)
        assert (await client.next())["role"] == "user"


async def test_a_text_in_a_call_is_answered_in_both_ways_and_waits_for_the_turn():
    brain = Ears(answers)
    brain.seconds = 20
    async with serving(brain) as host, host.omnia(agent="a", binary="true", connected=True) as client:
        await client.audio(bytes(6400))
        await client.until("frame")
        await client.say("x")
        assert (await client.until("error"))["error"]["code"] == "TURN_IN_PROGRESS"
        await client.send("hangup")
        await client.say("x")
        while (came := await client.next())["type"] == "frame":
            pass
        assert came["content"] == "You said "


async def test_a_call_of_another_rate_gets_an_agent_of_its_own_that_knows_what_was_said():
    first, second = Brain(answers), Ears()
    async with serving(first, second) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("hello")
        await client.answer()
        await client.audio(bytes(16_000), sample_rate=24_000)
        await client.until("done")
        assert [one["text"] for one in second.session.context["conversation"]] == ["hello", "You said hello."]


async def test_a_call_of_another_rate_waits_for_a_turn_that_runs():
    brain = Brain(lambda agent, text: agent.port.emit(TurnBegin("t")))
    async with serving(brain) as host, host.omnia(agent="a", connected=True) as client:
        await client.say("hello")
        await client.audio(bytes(320), sample_rate=24_000)
        assert (await client.error())[0] == "TURN_IN_PROGRESS"


@pytest.mark.parametrize("answered", [True, False])
async def test_the_last_frame_ends_the_call_behind_its_answer(monkeypatch, answered):
    """Page, Flags: IsLast of the client ends the audio session; its place is free again."""
    monkeypatch.setattr(omnia_session, "LAST_S", DEADLINE_S if answered else 0.05)
    brain = Ears()
    brain.enough = 20_000 if answered else 10**9
    async with (
        serving(brain, calls=1) as host,
        host.omnia(agent="a", binary="true", connected=True) as client,
    ):
        await client.audio(bytes(3200), last=True)
        await brain.until(lambda: len(brain.audio) == 3200 + 32_000)  # a second of silence behind it
        if answered:
            assert (await client.until("done"))["content"] == "what it says"
        async with host.omnia(agent="a", connected=True) as other, asyncio.timeout(DEADLINE_S):
            while True:
                await other.audio(bytes(320))
                if (await other.next())["type"] == "session_config":
                    break


async def test_there_are_8_calls_at_a_time():
    """Code, server_config.go: 8, else RATE_LIMITED "audio session limit reached"."""
    assert omnia.Options().calls == 8
    async with (
        serving(Brain(), Brain(), calls=1) as host,
        host.omnia(agent="a", connected=True) as one,
        host.omnia(agent="a", connected=True) as two,
    ):
        await one.audio(bytes(320))
        await one.until("session_config")
        await two.audio(bytes(320))
        assert await two.error() == ("RATE_LIMITED", "audio session limit reached")
        await one.send("hangup")
        await one.send("telepathy")
        await one.until("error")
        await two.audio(bytes(320))
        await two.until("session_config")


async def test_a_call_that_fails_is_a_duplex_error_and_a_later_frame_begins_another(monkeypatch):
    """Page, Error codes."""
    assert omnia_session.AGAIN_S == 5
    monkeypatch.setattr(omnia_session, "AGAIN_S", 0)
    brain = Ears()
    async with serving(brain, Ears()) as host, host.omnia(agent="a", binary="true", connected=True) as client:
        await client.audio(bytes(320))
        await client.until("session_config")
        await brain.until(lambda: brain.audio)
        brain.port.emit(AgentError("provider: key sk-1", recoverable=False))
        assert await client.error() == ("DUPLEX_ERROR", "the realtime audio session failed")
        await client.audio(bytes(320))
        await client.until("session_config")


async def test_a_call_that_cannot_start_is_told():
    """Code, audio_session.go: INVALID_MESSAGE "audio session start failed: ..."."""

    class Broken(Brain):
        async def start(self, session, port):
            raise RuntimeError("no")

    async with serving(Broken()) as host, host.omnia(agent="a", connected=True) as client:
        await client.audio(bytes(320))
        await client.until("session_config")
        code, words = await client.error()
        assert code == "INVALID_MESSAGE"
        assert words.startswith("audio session start failed: ")


@pytest.mark.parametrize("starts", [True, False])
async def test_an_agent_that_fails_is_not_made_again_with_each_frame(starts):
    """A client does not stop sending at once, and its agent's provider would be asked 50 times a second."""

    class Broken(Ears):
        async def start(self, session, port):
            await super().start(session, port)
            if not starts:
                raise RuntimeError("no")

        def user_audio(self, payload):
            self.port.emit(AgentError("no", recoverable=False))

    async with serving(Broken()) as host, host.omnia(agent="a", connected=True) as client:
        await client.audio(bytes(320))
        await client.until("error")
        for _ in range(5):
            await client.audio(bytes(320))
        await client.send("telepathy")
        assert (await client.error())[1] == "unknown message type"


async def lost(client):
    client.ws.transport.abort()
    await client.ws.wait_closed()


async def test_a_call_whose_connection_is_lost_waits_15_s_for_its_owner(tmp_path):
    """Page, URL format, resume; code, connection.go: 15 s. What is said meanwhile comes later."""
    assert omnia_session.PARK_S == 15
    file = TokenFile(tmp_path / "t.json")
    token, other = file.add("web"), file.add("other")
    config = ServerConfig(port=0, tokens=file.path)
    brain = Ears()
    brain.seconds = 5
    async with serving(brain, config=config, token=token) as host:
        async with host.omnia(agent="a", binary="true", connected=True) as client:
            await client.audio(bytes(6400))
            await client.until("frame")
            await lost(client)
        async with host.omnia(agent="a", token=other, resume=client.id, connected=True) as stranger:
            assert stranger.connected["connected"]["resumed"] is False
            assert stranger.id != client.id
        async with host.omnia(agent="a", resume=client.id, connected=True) as again:
            assert again.connected["connected"]["resumed"] is True
            assert again.id == client.id
            await again.until("media_chunk")
            await again.send("hangup")
            await again.say("hello?", session_id=again.id)
            await again.send("telepathy")
            assert (await again.until("error"))["error"]["code"] == "INVALID_MESSAGE"


async def test_a_call_that_nobody_takes_up_ends(monkeypatch):
    monkeypatch.setattr(omnia_session, "PARK_S", 0.05)
    brain = Ears()
    async with serving(brain, calls=1) as host:
        async with host.omnia(agent="a", binary="true", connected=True) as client:
            await client.audio(bytes(6400))
            await client.until("frame")
            await lost(client)
        async with asyncio.timeout(DEADLINE_S):
            await brain.closed.wait()
        assert host.facade.begins()  # its place is free


async def test_what_is_told_while_a_call_is_parked_comes_with_the_connection(monkeypatch):
    monkeypatch.setattr(omnia_session, "KEPT", 2)
    left, leave = asyncio.Event(), omnia_session.Session.leave
    monkeypatch.setattr(omnia_session.Session, "leave", lambda self: (leave(self), left.set()))
    brain = Ears()
    brain.enough = 10**9
    async with serving(brain) as host:
        async with host.omnia(agent="a", binary="true", connected=True) as client:
            await client.audio(bytes(6400))
            await client.until("session_config")
            await brain.until(lambda: brain.audio)
            await lost(client)
        async with asyncio.timeout(DEADLINE_S):
            await left.wait()
        for word in ("one", "two", "three"):
            brain.port.emit(TurnBegin(word))
            brain.port.emit(Transcript(word, "agent", word, True))
            brain.port.emit(TurnEnd(word))
        await host.event("turn.state", state="idle", turn="three")
        async with host.omnia(agent="a", resume=client.id, connected=True) as again:
            assert (await again.next())["content"] == "three"
            assert (await again.next())["type"] == "done"


async def test_audio_waits_while_a_session_opens(monkeypatch):
    monkeypatch.setattr(omnia_session, "EARLY", 4)
    opened = asyncio.Event()

    class Slow(Ears):
        async def start(self, session, port):
            await opened.wait()
            await super().start(session, port)

    brain = Slow()
    async with serving(brain) as host, host.omnia(agent="a", binary="true", connected=True) as client:
        for _ in range(9):
            await client.audio(bytes(800))
        await client.send("telepathy")
        await client.until("error")
        opened.set()
        await client.until("done")
        assert len(brain.audio) == 4 * 800


async def test_sound_waits_for_a_client_that_reads_slowly(monkeypatch):
    looked, look = asyncio.Event(), omnia_session.Session._look
    monkeypatch.setattr(omnia_session.Session, "_look", lambda self: (look(self), looked.set()))
    monkeypatch.setattr(omnia, "CONGESTED", -1)
    async with serving(Ears()) as host, host.omnia(agent="a", binary="true", connected=True) as client:
        await client.audio(bytes(6400))
        async with asyncio.timeout(DEADLINE_S):
            await looked.wait()
        assert [one for one in host.events if one["event"] == "audio.out"] == []
        monkeypatch.setattr(omnia, "CONGESTED", 64)
        await client.until("frame")


async def test_who_hangs_up_stops_the_agent():
    """Page, Hangup."""
    brain = Ears()
    brain.seconds = 20
    async with serving(brain) as host, host.omnia(agent="a", binary="true", connected=True) as client:
        await client.send("hangup")  # there is no call: nothing happens
        await client.audio(bytes(6400))
        await client.until("frame")
        await client.send("hangup")
        await brain.until(lambda: brain.heard)
        assert brain.heard[0].played_ms < 20_000
