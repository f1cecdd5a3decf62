"""agents/omnia.py, omnia_link.py, omnia_files.py and omnia_credential.py: connections to the facade's stand-in, a process of its own."""

import asyncio
import base64
import contextlib
import json
import logging
import os

import pytest
import pytest_asyncio
from agent_stage import answering, started
from peers.plan import quiet, tone
from peers.process import DEADLINE_S, PeerProcess
from pydantic import SecretStr
from vrt_host.agents import mouth, omnia, omnia_credential, omnia_files, omnia_link
from vrt_host.agents.base import (
    AgentError,
    Audio,
    Call,
    Text,
    Tool,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
)
from vrt_host.agents.omnia import INPUT, OUTPUT, OmniaAgent, Options
from vrt_host.agents.provider import Backoff
from vrt_host.errors import AgentStartError
from websockets.asyncio.server import serve

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "a-secret-that-nobody-may-see"
SPEECH = tone(0.3, "pcm16", 16_000)
QUIET = quiet(0.6, "pcm16", 16_000)
HELLO = {
    "type": "connected",
    "session_id": "s",
    "connected": {
        "capabilities": {"binary_frames": True, "max_payload_size": 1 << 24, "protocol_version": 1}
    },
}


class Quick(Backoff):
    def next(self, error=None):
        super().next(error)
        return 0.01


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(OmniaAgent, "backoff", Quick)
    monkeypatch.setattr(omnia_credential, "WATCH_S", 0.01)
    monkeypatch.setattr(omnia, "WATCH_S", 0.01)


@pytest_asyncio.fixture(name="process", scope="module", loop_scope="module")
async def process_of_module():
    async with PeerProcess("omnia") as peer:
        yield peer


@pytest_asyncio.fixture(name="peer", loop_scope="module")
async def peer_of_test(process):
    yield process
    await process.reset()


def options(port, **given):
    if "credential_file" not in given:
        given.setdefault("api_key", SecretStr(KEY))
    return Options(base_url=f"http://127.0.0.1:{port}", agent="my-agent", **given)


TOOLS = (Tool("lock"),)


@contextlib.asynccontextmanager
async def talking(peer, *, context=None, tools=TOOLS, **given):
    """An agent that has started, and its port."""
    port = peer if isinstance(peer, int) else peer.port
    agent = OmniaAgent(options(port, **given))
    async with started(agent, tools=tools, context=context, format_=INPUT, output=OUTPUT) as events:
        yield agent, events


def said(port):
    return "".join(
        event.text
        for event in port.events
        if isinstance(event, Text) or getattr(event, "role", "") == "agent"
    )


def heard(port):
    return sum(len(event.payload) for event in port.all(Audio)) / OUTPUT.bytes_per_second


# --- parameters and the credential


async def test_parameters_are_in_the_address_and_the_credential_is_not(peer, caplog):
    with caplog.at_level(logging.DEBUG):
        async with talking(peer, namespace="production", memory_facet="client:42") as (agent, port):
            agent.user_text("Hello")
            await port.ends()
            report = await peer.seen("connected")
    assert report["query"] == {
        "agent": "my-agent",
        "namespace": "production",
        "binary": "true",
        "memory_facet": "client:42",
    }
    assert report["key"] == KEY
    assert KEY not in caplog.text + repr(agent._options)


async def test_facade_without_credentials_is_spoken_to_without_one(peer):
    async with talking(peer, api_key=None) as (agent, port):
        agent.user_text("Hello")
        await port.ends()
    assert (await peer.seen("connected"))["key"] == ""


async def test_metadata_and_declaration_are_sent(peer):
    declared = {"sandboxes": {"code": {"mounts": []}}}
    async with talking(peer, metadata={"user_id": "u-1"}, declare=declared) as (agent, port):
        agent.user_text("Hello")
        await peer.seen("text", metadata={"user_id": "u-1"}, declare=declared)
        await port.ends()


async def test_new_credential_replaces_the_old_one_on_the_connection(peer, tmp_path):
    token = tmp_path / "token"
    token.write_text(f"{KEY}\n")
    async with talking(peer, credential_file=token):
        assert (await peer.seen("connected"))["key"] == KEY
        token.write_text("two words")
        token.write_text("a-newer-one\n")
        await peer.seen("refresh", token="a-newer-one")
    assert peer.count("refresh") == 1


async def test_connection_that_is_closed_for_its_credential_is_made_with_the_next(peer, tmp_path):
    """4401 "credential expired" (page, Close codes)."""
    token = tmp_path / "token"
    token.write_text("first")
    async with talking(peer, credential_file=token) as (agent, port):
        await peer.seen("connected", key="first")
        agent.user_text("Hello")
        await port.ends()
        await peer.do("be", accepts="second")
        await peer.do("close", code=4401, reason="credential expired")
        await peer.seen("closed")
        token.write_text("second")
        await peer.seen("connected", key="second")
        agent.user_text("Hello again")
        await port.ends(2)
        assert all(error.recoverable for error in port.all(AgentError))


async def test_message_after_the_deadline_goes_out_with_the_next_credential(peer, tmp_path):
    token = tmp_path / "token"
    token.write_text("first")
    async with talking(peer, credential_file=token) as (agent, port):
        await peer.do("fail", code="CREDENTIAL_EXPIRED")
        agent.user_text("Hello")
        await peer.seen("closed")
        token.write_text("second")
        await peer.seen("connected", key="second")
        await port.ends()
        assert peer.count("text", text="Hello") == 2
        assert port.all(AgentError) == []


@pytest.mark.parametrize("kind", ["key", "file"])
async def test_expired_credential_without_another_ends_the_session(peer, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(omnia, "RENEWAL_S", 0.05)
    (tmp_path / "token").write_text(KEY)
    given = {"credential_file": tmp_path / "token"} if kind == "file" else {}
    async with talking(peer, **given) as (_, port):
        await peer.do("close", code=4401, reason="credential expired")
        await port.until(lambda: port.all(AgentError))
        error = port.all(AgentError)[-1]
        assert not error.recoverable
        assert error.message == "omnia: the credential has expired (4401 credential expired); get a new token"


async def test_file_without_a_credential_is_told_at_the_start(peer, tmp_path):
    for text in (None, "", "two words", f"{KEY}\0x", f"{KEY}\x7f", "schl\u00fcssel", "x" * 16_385):
        if text is not None:
            (tmp_path / "token").write_text(text)
        with pytest.raises(AgentStartError, match=r"there is no credential in .*token.*put it there"):
            async with talking(peer, credential_file=tmp_path / "token"):
                pass


async def test_credential_of_another_editor_is_read_and_a_pipe_is_not_waited_for(peer, tmp_path):
    (tmp_path / "token").write_bytes(f"\ufeff{KEY}\r\n".encode())
    async with talking(peer, credential_file=tmp_path / "token"):
        await peer.seen("connected", key=KEY)
    os.mkfifo(tmp_path / "pipe")
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(AgentStartError, match="there is no credential in"):
            async with talking(peer, credential_file=tmp_path / "pipe"):
                pass


# --- refused


async def test_refused_upgrade_is_one_line(peer):
    await peer.refuse("key")
    with pytest.raises(
        AgentStartError, match=r"omnia: unauthorized: \*\*\* \(HTTP status 401\); check the key"
    ):
        async with talking(peer):
            pass


async def test_nobody_there_is_one_line():
    async with serve(lambda _: None, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
    with pytest.raises(AgentStartError, match=r"omnia: .*; check the address and the network"):
        async with talking(port):
            pass


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        (
            [
                {
                    **HELLO,
                    "connected": {
                        "capabilities": {**HELLO["connected"]["capabilities"], "protocol_version": 2}
                    },
                }
            ],
            "version 2",
        ),
        ([{"type": "done"}], "first message is not connected"),
        (["{"], "not JSON"),
        ([{"type": "error", "error": {"code": "INTERNAL_ERROR", "message": "no runtime"}}], "no runtime"),
    ],
    ids=["version", "order", "json", "error"],
)
async def test_first_message_that_is_not_connected_is_told(frames, told):
    async with answering(*frames) as (port, _):
        with pytest.raises(AgentStartError, match=told):
            async with talking(port):
                pass


async def test_credential_is_not_sent_elsewhere():
    async with answering(status=302, location="http://127.0.0.1:9/ws") as (port, received):
        with pytest.raises(AgentStartError, match="sends elsewhere"):
            async with talking(port):
                pass
    assert len(received) == 1


async def test_facade_that_says_nothing_is_not_waited_for_for_ever():
    async with answering() as (port, _):
        with pytest.raises(AgentStartError, match=r"no answer within 0\.05 s"):
            async with talking(port, connect_timeout_s=0.05):
                pass


async def test_pings_are_answered():
    """The facade pings every 30 s, and closes after 60 s without anything of ours (page, Connection health)."""
    answered = asyncio.Event()

    async def talk(socket):
        await socket.send(json.dumps(HELLO))
        await (await socket.ping())
        answered.set()
        await socket.wait_closed()

    async with serve(talk, "127.0.0.1", 0) as server, talking(server.sockets[0].getsockname()[1]):
        async with asyncio.timeout(DEADLINE_S):
            await answered.wait()


async def test_message_that_is_too_large_ends_the_connection(peer, monkeypatch):
    monkeypatch.setattr(omnia_link, "_FRAME_BYTES", 8_000)
    async with talking(peer) as (agent, port):
        await peer.do("send", message={"type": "chunk", "content": "x" * 20_000})
        await peer.seen("closed")
        agent.user_text("Hello")
        await port.ends()


async def test_broken_frames_are_told_once_a_connection_and_survived(peer, caplog):
    async with talking(peer) as (agent, port):
        for broken in ("{", '{"type": "chunk", "content": 5}'):
            await peer.do("send_raw", text=broken)
        await peer.do("send_raw", hex_="4f4d4e59")
        agent.user_text("Hello")
        await port.ends()
        assert [error.message for error in port.all(AgentError)] == [
            "omnia: it sent a message that is not JSON; it does not speak this protocol as documented: check the address and the version"
        ]
        assert said(port) == "All right. "


async def test_broken_binary_frame_is_told_in_words(peer):
    async with talking(peer) as (_, port):
        await peer.do("send_raw", hex_=b"OMNX".hex() + "00" * 28)
        await port.until(lambda: port.all(AgentError))
        assert (
            "a binary frame that is not right: it does not begin with OMNI" in port.all(AgentError)[0].message
        )


async def test_message_beyond_what_the_facade_takes_is_told_and_not_sent(peer):
    """`max_payload_size`, 16 MiB (page, Connected)."""
    async with talking(peer) as (agent, port):
        await peer.seen("connected")
        agent.user_text("Hello")
        await port.ends()
        agent._max_bytes = 200
        agent.user_text("x" * 200)
        await port.until(lambda: port.all(AgentError))
        [error] = port.all(AgentError)
        assert (error.code, error.recoverable) == ("TOO_LARGE", True)
        assert "the facade takes 200" in error.message
        agent.user_text("Hello")
        await port.ends(2)
    assert peer.count("text") == 2


async def test_result_beyond_what_the_facade_takes_is_a_failure_to_it(peer):
    await peer.respond([{"call": "lock"}], [{"text": "I see."}])
    async with talking(peer) as (agent, port):
        agent.user_text("Lock it")
        await port.until(lambda: port.all(Call))
        agent._max_bytes = 200
        agent.tool_result(port.all(Call)[0].turn, ToolResult("call-1", True, "x" * 300))
        assert "FAILED: a message of" in (await peer.seen("result"))["output"]
        await port.ends()


# --- audio


async def test_speech_opens_a_call_and_is_answered(peer):
    async with talking(peer) as (agent, port):
        agent.user_audio(SPEECH)
        agent.user_audio(QUIET)
        metadata = (await peer.seen("audio"))["metadata"]
        assert (metadata["codec"], metadata["sample_rate"], metadata["channels"]) == ("pcm", 16_000, 1)
        await port.ends()
        words = [event for event in port.all(Transcript) if event.role == "user"]
        assert (words[-1].text, words[-1].final) == ("What is said.", True)
        assert said(port) == "All right. "
        assert heard(port) == pytest.approx(0.2, abs=0.01)
    await peer.seen("hangup")
    assert peer.count("parked") == 0


async def test_microphone_that_is_switched_off_ends_the_utterance(peer):
    async with talking(peer) as (agent, port):
        agent.user_audio(SPEECH)  # and no quiet behind it
        await peer.seen("committed")
        await port.ends()


async def test_audio_comes_as_json_where_binary_frames_are_not_wanted(peer):
    async with talking(peer, binary=False) as (agent, port):
        agent.user_audio(SPEECH + QUIET)
        await port.ends()
        assert heard(port) == pytest.approx(0.2, abs=0.01)
    assert "binary" not in (await peer.seen("connected"))["query"]


async def test_transfer_in_chunks_is_played(peer):
    """1 MB and a byte in 17 frames (page, Flags)."""
    async with talking(peer) as (_, port):
        for number in range(17):
            metadata = json.dumps(
                {"mime_type": "audio/pcm", "sample_rate": 24_000, "total_chunks": 17}
            ).encode()
            payload = bytes(65_536 if number < 16 else 1)
            sizes = (len(metadata), len(payload), number)
            head = b"OMNI\1\2\0\1" + b"".join(size.to_bytes(4, "big") for size in sizes) + bytes(12)
            await peer.do("send_raw", hex_=(head + metadata + payload).hex())
        await peer.do("send", message={"type": "done"})
        await port.ends()
        assert heard(port) == pytest.approx((1 << 20) / 48_000, abs=0.01)


@pytest.mark.parametrize("rate", [8_000, 24_000, 48_000])
async def test_audio_is_captured_in_the_format_that_the_facade_names(peer, rate):
    await peer.do("be", config={"codec": "pcm", "sample_rate": rate, "channels": 1})
    async with talking(peer) as (agent, port):
        agent.user_audio(QUIET)
        await peer.seen("audio")
        await peer.do("send", message={"type": "done", "content": "It is told."})  # behind the format
        await port.ends()
        agent.user_audio(SPEECH)
        agent.user_audio(QUIET)
        stopped = await peer.seen("speech_stopped")
        # What came before the format was known, then speech, and the quiet by which its end is found.
        assert stopped["ms"] == pytest.approx(600 * 16_000 / rate + 300 + 400, abs=40)
        await port.ends(2)


async def test_format_that_cannot_be_had_is_told_and_text_goes_on(peer):
    async with talking(peer) as (agent, port):
        agent.user_audio(QUIET)
        await peer.seen("audio")
        config = {"codec": "opus", "sample_rate": 48_000, "channels": 1}
        await peer.do("send", message={"type": "session_config", "session_config": config})
        await port.until(lambda: port.all(AgentError))
        assert (
            "wants the user's audio as opus, 48000 Hz, 1 channels; write to this agent"
            in port.all(AgentError)[0].message
        )
        agent.user_audio(SPEECH)
        agent.user_text("Hello")
        await port.ends()
    assert peer.count("speech_started") == 0


async def test_agent_that_takes_no_audio_is_told_once(peer):
    await peer.do("be", audio=False)
    async with talking(peer) as (agent, port):
        agent.user_audio(SPEECH)
        await port.until(lambda: port.all(AgentError))
        agent.user_audio(SPEECH)
        agent.user_text("Hello")
        await port.ends()
        [error] = port.all(AgentError)
        assert (error.code, error.recoverable) == ("MEDIA_NOT_ENABLED", True)


async def test_user_who_speaks_up_interrupts(peer):
    await peer.respond(
        [{"say": "This is long.", "seconds": 20, "deaf": 3}], [{"say": "Yes?", "seconds": 0.1}]
    )
    async with talking(peer) as (agent, port):
        agent.user_audio(SPEECH + QUIET)
        await port.until(lambda: port.all(Audio))
        agent.user_audio(SPEECH)
        await port.until(lambda: len(port.all(TurnBegin)) == 2)
        count = len(port.all(Audio))
        agent.user_audio(QUIET)
        await port.ends()
        assert sum(len(one.payload) for one in port.all(Audio)[count:]) == 4_800
        assert said(port).endswith("Yes? ")


async def test_agent_that_never_started_can_be_closed():
    await OmniaAgent(Options(base_url="ws://127.0.0.1:1")).close()


async def test_answer_that_is_far_ahead_is_not_read_on(peer, monkeypatch):
    monkeypatch.setattr(mouth, "MOST_BYTES", 5 * OUTPUT.bytes_per_second)
    await peer.respond([{"say": "Long.", "seconds": None}])
    async with talking(peer) as (agent, port):
        say, ahead = agent.say, asyncio.Event()

        def spy(event):
            say(event)
            if agent._mouth.waiting_bytes > mouth.MOST_BYTES:
                ahead.set()

        monkeypatch.setattr(agent, "say", spy)
        port.fill(True)
        agent.user_text("Go on")
        async with asyncio.timeout(DEADLINE_S):
            await ahead.wait()
        assert agent._mouth.waiting_bytes <= mouth.MOST_BYTES + 4_800
        agent.interrupted(port.all(TurnBegin)[0].turn, [])
        assert agent._mouth.waiting_bytes == 0


# --- connections that come and go


async def test_call_is_taken_up_again_where_it_was(peer):
    """`resume` within the 15 s for which it is parked; frames are counted on (connection.go; live-agent-connection.ts)."""
    async with talking(peer) as (agent, port):
        agent.user_audio(SPEECH)
        await peer.seen("speech_started")
        await peer.drop()
        id_ = (await peer.seen("parked"))["id"]
        agent.user_audio(QUIET)
        assert (await peer.seen("resumed"))["id"] == id_
        await port.ends()
        assert peer.count("audio") == 1
        assert port.all(AgentError) == []
        assert len(port.all(TurnBegin)) == 1


async def test_result_of_a_parked_call_reaches_it(peer):
    await peer.respond([{"call": "lock"}], [{"say": "It is locked.", "seconds": 0.1}])
    async with talking(peer) as (agent, port):
        agent.user_audio(SPEECH + QUIET)
        await port.until(lambda: port.all(Call))
        await peer.seen("ack")
        await peer.drop()
        await peer.seen("parked")
        agent.tool_result(port.all(Call)[0].turn, ToolResult("call-1", True, {"state": "locked"}))
        assert (await peer.seen("result"))["output"] == '{"state": "locked"}'
        await port.ends()
        assert said(port) == "It is locked. "
        assert port.all(AgentError) == []


@pytest.mark.parametrize("late", ["gone", "after 15 s"])
async def test_call_that_is_not_parked_any_more_begins_anew(peer, late, monkeypatch):
    """The grace is 15 s (connection.go); a fresh session counts its frames from 0."""
    if late == "gone":
        await peer.do("be", grace_s=0)
    else:
        monkeypatch.setattr(omnia, "GRACE_S", 0)
    async with talking(peer) as (agent, port):
        agent.user_audio(SPEECH + QUIET)
        await port.ends()
        await peer.drop()
        await peer.seen("connected")
        resume = (await peer.seen("connected"))["query"].get("resume")
        assert (resume is None) == (late != "gone")
        agent.user_audio(SPEECH + QUIET)
        await port.ends(2)
    assert peer.count("audio") == 2


async def test_conversation_goes_on_over_another_connection(peer):
    async with talking(peer) as (agent, port):
        agent.user_text("Remember 5501")
        await port.ends()
        await peer.drop()
        await peer.seen("closed")
        agent.user_text("What was it?")
        await port.ends(2)
        assert "Remember 5501" in (await peer.seen("history"))["said"]


async def test_message_that_arrived_is_not_sent_again(peer, monkeypatch):
    """Its answer may have run tools: nothing runs twice."""
    await peer.respond([{"wait": "gate"}])
    async with talking(peer) as (agent, port):
        confirmed, arrived = agent._confirmed, asyncio.Event()
        monkeypatch.setattr(agent, "_confirmed", lambda message: (confirmed(message), arrived.set()))
        agent.user_text("Hello")
        async with asyncio.timeout(DEADLINE_S):
            await arrived.wait()
        await peer.drop()
        await port.until(lambda: port.all(AgentError))
        assert port.all(AgentError)[0].turn == port.all(TurnBegin)[0].turn
        agent.user_text("Again")
        await port.ends()
    assert [report["text"] for report in peer.reports if report["kind"] == "text"] == ["Hello", "Again"]


async def test_expired_session_is_begun_anew(peer):
    async with talking(peer, context={"room": "attic"}) as (agent, port):
        agent.user_text("one")
        await port.ends()
        await peer.do("forget")
        await peer.drop()
        await peer.seen("closed")
        agent.user_text("two")
        await port.ends(2)
        assert port.all(AgentError) == []
        assert peer.count("text") == 2
        assert ["attic" in one["text"] for one in peer.reports if one["kind"] == "text"] == [True, True]


async def test_facade_that_goes_down_is_waited_for(peer):
    async with talking(peer) as (agent, port):
        await peer.refuse("rate", times=2)
        await peer.do("close", code=1001, reason="server shutdown")
        agent.user_text("Hello")
        await port.ends()
        assert [error.recoverable for error in port.all(AgentError)] == [True]
        assert "connection limit reached" in port.all(AgentError)[0].message


async def test_disclosure_is_told_and_acknowledged(peer):
    await peer.do("be", disclosure=True)
    async with talking(peer) as (_, port):
        await peer.seen("disclosure")
        assert said(port) == "You are speaking with an AI."
        assert len(port.all(TurnEnd)) == 1


async def test_question_of_the_facade_is_answered_by_the_user(peer):
    await peer.do("be", consent="May I?")
    await peer.respond([{"call": "lock"}], [{"text": "Done."}])
    async with talking(peer) as (agent, port):
        agent.user_text("Lock it")
        await peer.seen("ack")
        assert said(port) == "May I? (location)"
        agent.user_text("Yes")
        await port.until(lambda: port.all(Call))
        agent.tool_result(port.all(Call)[0].turn, ToolResult("call-1", True, None))
        await port.until(lambda: "Done." in said(port))


# --- files

PHOTO = base64.b64encode(b"a photo").decode()


@pytest.mark.parametrize("storage", ["local", "cloud"])
async def test_file_is_uploaded_and_named(peer, storage):
    await peer.do("be", storage=storage)
    async with talking(peer, context={"door": f"data:image/jpeg;base64,{PHOTO}"}) as (agent, port):
        agent.user_text("Who is there?")
        upload = await peer.seen("upload", name="door.jpeg", type="image/jpeg", blob="BlockBlob")
        assert upload["data"] == PHOTO
        assert upload["key"] == (f"Bearer {KEY}" if storage == "local" else None)
        [media] = (await peer.seen("text"))["media"]
        assert media["storage_ref"].startswith("omnia://sessions/")
        assert "data" not in media
        await port.ends()
    if storage == "cloud":
        assert (await peer.seen("confirmed"))["key"] == f"Bearer {KEY}"
    else:
        assert peer.count("confirmed") == 0


async def test_small_file_goes_with_the_message_where_nothing_is_stored(peer):
    await peer.do("be", storage="")
    async with talking(peer, context=f"data:image/jpeg;name=a.jpg;base64,{PHOTO}") as (agent, port):
        agent.user_text("What is it?")
        [media] = (await peer.seen("text"))["media"]
        assert media == {"mime_type": "image/jpeg", "filename": "a.jpg", "size_bytes": 7, "data": PHOTO}
        await port.ends()
        assert port.all(AgentError) == []


async def test_file_that_cannot_be_handed_over_is_told_to_both(peer, monkeypatch):
    """One of 256 KB or more is not sent as base64 (page, ContentPart structure)."""
    monkeypatch.setattr(omnia_files, "INLINE_BYTES", 4)
    await peer.do("be", storage="")
    async with talking(peer, context=f"data:image/jpeg;name=a.jpg;base64,{PHOTO}") as (agent, port):
        agent.user_text("What is it?")
        report = await peer.seen("text")
        assert report["media"] == []
        assert "(The file a.jpg could not be handed over.)" in report["text"]
        await port.ends()
        [error] = port.all(AgentError)
        assert error.recoverable
        assert "media storage is not enabled" in error.message


@pytest.mark.parametrize(
    ("ready", "told"),
    [
        ({"upload_url": "http://example.com/x"}, "the upload's address was not used: http is not encrypted"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "has expired already"),
        ({"upload_url": "http://127.0.0.1:9/x"}, "the upload did not succeed"),
    ],
)
async def test_upload_that_cannot_be_is_told(ready, told):
    usual = {
        "upload_id": "u",
        "upload_url": "http://127.0.0.1:9/media/upload/u",
        "storage_ref": "omnia://x",
        "expires_at": "2099-01-01T00:00:00Z",
    }

    def reply(message):
        if message["type"] == "upload_request":
            yield {"type": "upload_ready", "upload_ready": usual | ready}
        elif message["type"] == "message":
            yield {"type": "done", "content": "ok"}

    context = f"data:image/jpeg;base64,{PHOTO}"
    async with (
        answering(HELLO, then=reply) as (number, received),
        talking(number, context=context) as (agent, port),
    ):
        agent.user_text("What is it?")
        await port.ends()
        assert told in port.all(AgentError)[0].message
    assert received[-1]["type"] == "message"


async def test_upload_that_is_not_answered_is_told(monkeypatch):
    monkeypatch.setattr(omnia, "_UPLOAD_S", 0.05)

    def reply(message):
        if message["type"] == "message":
            yield {"type": "done", "content": "ok"}

    context = f"data:image/jpeg;base64,{PHOTO}"
    async with answering(HELLO, then=reply) as (number, _), talking(number, context=context) as (agent, port):
        agent.user_text("What is it?")
        await port.ends()
        assert "no answer to an upload within 0.05 s" in port.all(AgentError)[0].message


async def test_upload_is_refused_in_the_servers_words(peer):
    ready = omnia_files.UploadReady(
        "nobody", f"http://127.0.0.1:{peer.port}/elsewhere", "r", "2099-01-01T00:00:00Z", "PUT", {}
    )
    file = omnia_files.File("a", "a/b", b"x")
    with pytest.raises(omnia_files.ProviderError, match="404"):
        await omnia_files.put(file, ready, "http://127.0.0.1:9/", "", insecure=False, timeout_s=5)
