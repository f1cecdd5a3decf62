"""The AITP facade, through the real host, over real sockets: each message, rule, time and limit of the page and its server.

What it sends is judged by the schema of schema/peers/aitp, which knows nothing of the facade.
"""

import asyncio
import base64
import contextlib
import io
import itertools
import json
import wave

import pytest
from host_client import DEADLINE_S, hosting
from peers.vectors import errors, load
from test_guest import LOCK, Brain, board, call, speak
from vrt_host.agents.base import PCMU, Abilities, AgentError, Call, Text, Transcript, TurnBegin, TurnEnd
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig
from vrt_host.facades import aitp, aitp_messages, aitp_session
from vrt_host.lending import Lending
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

INIT = {
    "apiKey": "anonymous",
    "userAgent": "test",
    "viewport": "0x0",
    "sdkVersion": "0.4.0",
    "protocolVersion": "1.0.0",
}
CART = {
    "name": "add_to_cart",
    "description": "Adds a product.",
    "parameters": {
        "type": "OBJECT",
        "properties": {"quantity": {"type": "NUMBER"}},
        "required": ["quantity"],
    },
    "risk": "low",
}
PAY = {"name": "pay", "description": "Pays.", "risk": "critical"}


class Closed(Exception):
    def __init__(self, code, reason):
        super().__init__(code, reason)
        self.code, self.reason = code, reason


class Client:
    """An AITP client; every frame that comes is judged."""

    numbers = itertools.count(1)

    def __init__(self, ws):
        self.ws = ws
        self.kept = []

    async def send(self, kind, /, **payload):
        message = {"id": f"m{next(self.numbers)}", "type": kind, "timestamp": 1.0, "payload": payload}
        await self.ws.send(json.dumps(message))

    async def next(self):
        async with asyncio.timeout(DEADLINE_S):
            try:
                message = json.loads(await self.ws.recv())
            except ConnectionClosed as error:
                raise Closed(error.rcvd.code, error.rcvd.reason) from None
        assert errors("aitp", "server", message) == []
        return message["type"], message["payload"]

    async def until(self, kind, /, **members):
        """The payload of the next message like this; others are passed over."""
        while True:
            type_, payload = await self.next()
            if type_ == kind and members.items() <= payload.items():
                return payload

    async def answer(self):
        """The text of the next whole answer."""
        text = ""
        while True:
            payload = await self.until("AGENT_RESPONSE")
            text += payload["chunk"]
            if payload["done"]:
                return text

    async def init(self, *tools, **members):
        await self.send("HANDSHAKE_INIT", **{**INIT, **members})
        ack = await self.until("HANDSHAKE_ACK")
        await self.page(*tools)
        return ack

    async def page(self, *tools, context=None):
        extra = {} if context is None else {"context": context}
        await self.send("CONTEXT_UPDATE", url="/", activeTools=list(tools), **extra)
        return await self.until("SYSTEM_EVENT")

    async def say(self, text):
        await self.send("USER_INPUT", modality="text", content=text)

    async def closed(self):
        while True:
            try:
                await self.next()
            except Closed as closed:
                return closed.code, closed.reason


@contextlib.asynccontextmanager
async def serving(*brains, config=None, lending=None, **options):
    """`client(**headers)`: connects; `brains` are the agents, in the order of the sessions."""
    facade, rest = aitp.AitpFacade(aitp.Options(port=0, **options)), list(brains)
    async with hosting(lambda: rest.pop(0), config=config, facades=[facade], lending=lending) as host:

        @contextlib.asynccontextmanager
        async def client(**headers):
            async with connect(
                f"ws://127.0.0.1:{facade.port}/owllayer",
                compression=None,
                proxy=None,
                additional_headers=headers,
            ) as ws:
                yield Client(ws)

        host.aitp = client
        host.facade = facade
        yield host


def answers(agent, text):
    agent.port.emit(TurnBegin("t"))
    agent.port.emit(Text("t", f"You said {text}.", True))
    agent.port.emit(TurnEnd("t"))


# --- the handshake


async def test_the_acknowledgement_follows_a_valid_init_and_names_version_and_limits():
    """§2 HANDSHAKE_ACK; facts 3.2: maxActiveTools is 30."""
    async with serving(Brain()) as host, host.aitp() as client:
        ack = await client.init()
        assert ack["sessionId"].startswith("sess_")
        assert (ack["protocolVersion"], ack["capabilities"], ack["maxActiveTools"]) == (
            "1.0.0",
            ["text", "audio", "tools"],
            30,
        )


@pytest.mark.parametrize("version", ["1.0.1", "1.0", "2.0.0", ""])
async def test_another_version_is_an_error_and_1008(version):
    """Version Negotiation: compared strictly, close 1008."""
    async with serving() as host, host.aitp() as client:
        await client.send("HANDSHAKE_INIT", **{**INIT, "protocolVersion": version})
        said = await client.until("SYSTEM_EVENT", kind="error")
        assert said["message"] == f"Incompatible protocol version: {version} (server: 1.0.0)"
        assert await client.closed() == (1008, "Protocol version mismatch")


async def test_a_connection_without_init_is_closed(monkeypatch):
    monkeypatch.setattr(aitp, "INIT_S", 0.05)
    async with serving() as host, host.aitp() as client:
        assert await client.closed() == (1008, "no HANDSHAKE_INIT in time")


async def test_keys_are_tokens_in_the_init_or_in_the_header_and_never_in_the_url(tmp_path):
    token = TokenFile(tmp_path / "t.json").add("web")
    config = ServerConfig(port=0, tokens=tmp_path / "t.json")
    async with serving(Brain(), Brain(), config=config) as host:
        async with host.aitp() as client:
            await client.init(apiKey=token)
        async with host.aitp(Authorization=f"Bearer {token}") as client:
            await client.init()
        for wrong in ("anonymous", "vrt_wrong"):
            async with host.aitp() as client:
                await client.send("HANDSHAKE_INIT", **{**INIT, "apiKey": wrong})
                assert await client.closed() == (1008, "Unauthorized")
        url = f"ws://127.0.0.1:{host.facade.port}/owllayer?apiKey={token}"
        async with connect(url, compression=None, proxy=None) as ws:
            client = Client(ws)
            await client.send("HANDSHAKE_INIT", **INIT)
            assert await client.closed() == (1008, "Unauthorized")


async def test_a_strange_origin_is_closed_with_1008_and_a_configured_one_is_let_in():
    config = ServerConfig(port=0, origins=("https://shop.example",))
    async with serving(Brain(), config=config) as host:
        async with host.aitp(Origin="https://evil.example") as client:
            assert await client.closed() == (1008, "Origin not allowed")
        async with host.aitp(Origin="https://shop.example") as client:
            await client.init()


async def test_a_key_has_ten_connections():
    """Facts 3.2: 1008 beyond 10 per key."""
    assert aitp.Options().connections == 10
    async with serving(Brain(), Brain(), connections=1) as host:
        async with host.aitp() as first:
            await first.init()
            async with host.aitp() as second:
                await second.send("HANDSHAKE_INIT", **INIT)
                assert await second.closed() == (1008, "Connection limit")
        async with host.aitp() as third:
            await third.init()


async def test_another_path_is_not_found():
    async with serving() as host:
        with pytest.raises(InvalidStatus):
            await connect(f"ws://127.0.0.1:{host.facade.port}/other", proxy=None)


# --- messages


async def test_a_text_is_answered_in_writing():
    """§4, §9."""
    async with serving(Brain(answers)) as host, host.aitp() as client:
        await client.init()
        await client.say("hello")
        assert await client.answer() == "You said hello."


async def test_an_answer_that_is_only_spoken_is_written_for_whoever_writes():
    def on_text(agent, text):
        agent.port.emit(TurnBegin("t"))
        agent.port.emit(Transcript("t", "agent", "Spoken.", True))
        agent.port.emit(Text("t", "never twice", True))
        agent.port.emit(TurnEnd("t"))

    async with serving(Brain(on_text)) as host, host.aitp() as client:
        await client.init()
        await client.say("hello")
        assert await client.answer() == "Spoken."


SENT = [one for one in load("aitp").invalid if one["direction"] == "client" and "hex" not in one]


@pytest.mark.parametrize("vector", SENT, ids=lambda one: one["id"])
def test_what_is_invalid_is_told_apart(vector):
    """Facts 3.2: logged and ignored. What the reference server takes all the same, or answers, gets past this."""
    text = vector["text"] if "text" in vector else json.dumps(vector["message"])
    if vector.get("receiver") in ("accepts", "answers") or vector["id"] == "client.USER_INPUT.audio-base64":
        aitp_messages.decode(text)
    else:
        with pytest.raises(aitp_messages.InvalidError):
            aitp_messages.decode(text)


async def test_frames_that_are_invalid_come_to_nothing():
    async with serving(Brain(answers)) as host, host.aitp() as client:
        await client.init()
        for frame in (
            "{",
            "[]",
            "null",
            "{}",
            json.dumps({"id": "x", "type": "NEW", "timestamp": 1, "payload": {}}),
        ):
            await client.ws.send(frame)
        await client.ws.send(b"\x00")
        await client.send(
            "HANDSHAKE_ACK", sessionId="x", serverVersion="1", protocolVersion="1", capabilities=[]
        )
        await client.send("HANDSHAKE_INIT", **INIT)
        await client.say("still there?")
        assert await client.answer() == "You said still there?."


@pytest.mark.parametrize(
    "vector",
    [one for one in load("aitp").valid if one["direction"] == "client"],
    ids=lambda one: one["message"]["type"],
)
def test_what_is_valid_is_understood(vector):
    made = aitp_messages.decode(json.dumps(vector["message"]))
    assert type(made) is aitp_messages.CLIENT[vector["message"]["type"]]


async def test_each_update_of_the_page_tells_which_tools_count():
    """§3; facts 3.2: always answered by tools_effective."""
    async with serving(Brain()) as host, host.aitp() as client:
        await client.send("HANDSHAKE_INIT", **INIT)
        await client.until("HANDSHAKE_ACK")
        told = await client.page(CART)
        assert told["kind"] == "tools_effective"
        assert [tool["name"] for tool in told["data"]["effectiveTools"]] == ["add_to_cart"]
        assert told["data"]["clientTools"] == [CART]
        assert told["data"]["serverTools"] == told["data"]["ignoredClientTools"] == []


async def test_more_tools_than_there_may_be_leave_the_list_before():
    """Facts 3.2: SYSTEM_EVENT error that names count and limit."""
    many = [{**CART, "name": f"t{n}"} for n in range(31)]
    async with serving(Brain()) as host, host.aitp() as client:
        await client.init(CART)
        said = await client.page(*many)
        assert said["message"].startswith("Too many tools (max 30): 31")
        told = await client.until("SYSTEM_EVENT", kind="tools_effective")
        assert [tool["name"] for tool in told["data"]["effectiveTools"]] == ["add_to_cart"]


async def test_the_page_is_the_agents_context():
    """§3; a context beyond 64 KB is refused (facts 3.2)."""
    brain = Brain(answers)
    seen = []
    brain.context = seen.append
    async with serving(brain) as host, host.aitp() as client:
        await client.init(CART)
        await client.say("x")
        await client.answer()
        await client.page(CART, context={"price": 3})
        said = await client.page(CART, context={"x": "y" * 65536})
        assert "larger than 64 KB" in said["message"]
        await client.say("y")
        await client.answer()
    assert seen == [{"url": "/", "context": {"price": 3}}]


async def test_what_comes_while_the_session_opens_waits():
    opened = asyncio.Event()

    class Slow(Brain):
        async def start(self, session, port):
            await opened.wait()
            await super().start(session, port)

    brain = Slow()
    async with serving(brain) as host, host.aitp() as client:
        await client.init()
        for _ in range(40):
            await client.send("AUDIO_STREAM", **stream(bytes(3200)))
        await client.page()  # an answer to this: what came before it has been taken
        opened.set()
        await brain.until(lambda: len(brain.audio) >= 32 * 4800 - 100)
        assert len(brain.audio) <= 32 * 4800


@contextlib.asynccontextmanager
async def cut_off(pieces=400):
    """A host whose agent says so much, after a client that reads none of it was cut off."""

    def floods(agent, text):
        agent.port.emit(TurnBegin("t"))
        for _ in range(pieces):
            agent.port.emit(Text("t", "x" * 30_000))

    brain = Brain(floods)
    async with serving(brain) as host, host.aitp() as client:
        await client.init()
        client.ws.transport.pause_reading()
        await client.say("x")
        async with asyncio.timeout(DEADLINE_S):
            await brain.closed.wait()
        client.ws.transport.abort()
        yield host


async def test_whoever_does_not_read_is_cut_off(monkeypatch):
    monkeypatch.setattr(aitp, "QUEUED", 8)
    async with cut_off():
        pass


async def test_when_the_tools_change_what_was_said_goes_on_in_the_context():
    first, second = Brain(answers), Brain(answers)
    async with serving(first, second) as host, host.aitp() as client:
        await client.init()
        await client.say("hello")
        await client.answer()
        await client.page(CART)
        await client.say("again")
        await client.answer()
        assert [tool.name for tool in second.session.tools] == ["add_to_cart"]
        assert second.session.context["conversation"] == [
            {"role": "user", "text": "hello"},
            {"role": "agent", "text": "You said hello."},
        ]


# --- limits


async def test_a_text_has_8000_characters():
    async with serving(Brain(answers)) as host, host.aitp() as client:
        await client.init()
        await client.say("x" * 8001)
        assert "too long (max 8000" in (await client.until("SYSTEM_EVENT", kind="error"))["message"]
        await client.say("x" * 8000)
        assert len(await client.answer()) == 8000 + len("You said .")


async def test_there_are_twenty_inputs_in_a_minute():
    async with serving(Brain(answers)) as host, host.aitp() as client:
        await client.init()
        for _ in range(20):
            await client.say("x")
            await client.answer()
        await client.say("x")
        assert (await client.until("SYSTEM_EVENT"))["message"].startswith("Too many messages")


async def test_there_are_a_hundred_messages_in_a_second():
    async with serving(Brain(answers)) as host, host.aitp() as client:
        await client.init()
        for _ in range(200):
            await client.send("VOICE_INTERRUPT", reason="barge_in")
        assert (await client.until("SYSTEM_EVENT"))["message"].startswith("Too many messages: 100 a second")


async def test_a_message_has_4_mib():
    async with serving(Brain()) as host, host.aitp() as client:
        await client.init()
        with contextlib.suppress(ConnectionClosed):
            await client.ws.send("x" * (4 * 1024 * 1024 + 1))
        assert (await client.closed())[0] == 1009


async def test_one_answer_at_a_time():
    """Facts 3.2: "still answering"."""
    async with (
        serving(Brain(lambda agent, text: agent.port.emit(TurnBegin("t")))) as host,
        host.aitp() as client,
    ):
        await client.init()
        await client.say("one")
        await asyncio.sleep(0)
        await client.say("two")
        assert "still answering" in (await client.until("SYSTEM_EVENT", kind="error"))["message"]


async def test_whoever_answers_no_ping_is_cut_off(monkeypatch):
    """Facts 3.2: a ping every 30 s, ended when there is no pong by the next."""
    assert aitp.PING_S == 30
    monkeypatch.setattr(aitp, "PING_S", 0.05)
    async with serving(Brain()) as host:
        reader, writer = await asyncio.open_connection("127.0.0.1", host.facade.port)
        key = base64.b64encode(bytes(16)).decode()
        writer.write(
            f"GET /owllayer HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        async with asyncio.timeout(DEADLINE_S):
            with contextlib.suppress(ConnectionError):
                while await reader.read(4096):
                    pass
        writer.close()


async def test_an_answer_that_does_not_come_is_told_after_30_s(monkeypatch):
    """Facts 3.1: LLM_RESPONSE_TIMEOUT 30 000."""
    assert aitp_session.RESPONSE_S == 30
    monkeypatch.setattr(aitp_session, "RESPONSE_S", 0.1)
    brain = Brain(lambda agent, text: text == "again" and answers(agent, text))
    async with serving(brain) as host, host.aitp() as client:
        await client.init()
        await client.say("x")
        assert "does not answer" in (await client.until("SYSTEM_EVENT"))["message"]
        await client.say("again")
        assert await client.answer() == "You said again."


# --- tools of the client


async def test_a_tool_of_the_client_is_called_and_its_result_is_the_agents():
    """§5, §6; the schema's dialect is the agent's JSON Schema."""
    brain = Brain(lambda agent, text: call(agent, "add_to_cart", arguments='{"quantity": 2}'))
    async with serving(brain) as host, host.aitp() as client:
        await client.init(CART)
        await client.say("two")
        asked = await client.until("TOOL_CALL")
        assert (asked["name"], asked["args"]) == ("add_to_cart", {"quantity": 2})
        assert brain.session.tools[0].parameters == {
            "type": "object",
            "required": ["quantity"],
            "properties": {"quantity": {"type": "number"}},
        }
        await client.send("TOOL_RESULT", callId="other", status="success")
        await client.send("TOOL_RESULT", callId=asked["callId"], status="success", result={"added": True})
        await client.send("TOOL_RESULT", callId=asked["callId"], status="error", error="late")
        await brain.until(lambda: brain.results)
        await client.answer()
        assert [(one.ok, one.output) for one in brain.results] == [(True, {"added": True})]


async def test_an_error_of_the_tool_is_an_error():
    brain = Brain(lambda agent, text: call(agent, "pay"))
    async with serving(brain) as host, host.aitp() as client:
        await client.init(PAY)
        await client.say("pay")
        asked = await client.until("TOOL_CALL")
        await client.send("TOOL_RESULT", callId=asked["callId"], status="error", error="no card")
        await brain.until(lambda: brain.results)
        assert (brain.results[0].code, brain.results[0].message) == ("FAILED", "no card")


async def test_a_call_that_nobody_answers_ends_after_10_s(monkeypatch):
    """Facts 3.2: toolTimeout 10 s."""
    assert aitp_session.CALL_S == 10
    monkeypatch.setattr(aitp_session, "CALL_S", 0.05)
    brain = Brain(lambda agent, text: call(agent, "pay"))
    async with serving(brain) as host, host.aitp() as client:
        await client.init(PAY)
        await client.say("pay")
        await brain.until(lambda: brain.results)
        assert brain.results[0].code == "TIMEOUT"


@pytest.mark.parametrize("how", ["request", "pending"])
async def test_while_the_user_is_asked_the_call_waits_120_s_longer(monkeypatch, how):
    """§7; facts 3.2: extended by 120 s."""
    assert aitp_session.APPROVAL_S == 120
    monkeypatch.setattr(aitp_session, "CALL_S", 0.3)
    brain = Brain(lambda agent, text: call(agent, "pay"))
    async with serving(brain) as host, host.aitp() as client:
        await client.init(PAY)
        await client.say("pay")
        asked = await client.until("TOOL_CALL")
        if how == "pending":
            await client.send("TOOL_RESULT", callId=asked["callId"], status="pending_approval")
        else:
            await client.send(
                "APPROVAL_REQUEST",
                callId=asked["callId"],
                toolName="pay",
                risk="critical",
                args={},
                message="Pay?",
            )
        await asyncio.sleep(0.4)  # the time that would have been over
        assert brain.results == []
        await client.send("APPROVAL_RESPONSE", callId=asked["callId"], approved=True, result={"paid": True})
        await brain.until(lambda: brain.results)
        assert (brain.results[0].ok, brain.results[0].output) == (True, {"paid": True})


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ({"approved": False}, ("REJECTED", "Action denied by user")),
        ({"approved": False, "result": {"paid": True}}, ("REJECTED", "Action denied by user")),
        ({"approved": True, "error": "no card"}, ("FAILED", "no card")),
    ],
)
async def test_a_refusal_is_never_a_success(response, expected):
    """§8."""
    brain = Brain(lambda agent, text: call(agent, "pay"))
    async with serving(brain) as host, host.aitp() as client:
        await client.init(PAY)
        await client.say("pay")
        asked = await client.until("TOOL_CALL")
        await client.send("APPROVAL_RESPONSE", callId=asked["callId"], **response)
        await brain.until(lambda: brain.results)
        assert (brain.results[0].ok, brain.results[0].code, brain.results[0].message) == (False, *expected)


async def test_calls_go_with_the_connection():
    brain = Brain(lambda agent, text: call(agent, "pay"))
    async with serving(brain) as host:
        async with host.aitp() as client:
            await client.init(PAY)
            await client.say("pay")
            await client.until("TOOL_CALL")
        async with asyncio.timeout(DEADLINE_S):
            await brain.closed.wait()
        assert [one.code for one in brain.results] == ["INTERRUPTED"]


async def test_a_tool_that_the_page_does_not_offer_any_more_is_not_called():
    def on_text(agent, text):
        agent.port.emit(TurnBegin("t"))
        agent.port.emit(Call("t", "c1", "pay", "{}"))
        agent.port.emit(Call("t", "c2", "add_to_cart", '{"quantity": 1}'))
        agent.port.emit(TurnEnd("t"))

    brain = Brain(on_text)
    async with serving(brain, Brain()) as host, host.aitp() as client:
        await client.init(PAY, CART)
        await client.say("both")
        asked = await client.until("TOOL_CALL", name="pay")
        await client.page(PAY)
        await client.send("TOOL_RESULT", callId=asked["callId"], status="success")
        await brain.until(lambda: len(brain.results) == 2)
        assert "not offer" in brain.results[1].message


# --- voice


def hears(agent, seconds=0.3):
    agent.port.emit(TurnBegin("t", "listening"))
    agent.port.emit(Transcript("t", "user", "what I said", True))
    agent.port.emit(Transcript("t", "agent", "what it says", True))
    speak(seconds)(agent, "")


class Ears(Brain):
    """Answers by voice as soon as it has heard enough."""

    enough = 3200

    def user_audio(self, payload):
        before = len(self.audio)
        super().user_audio(payload)
        if before < self.enough <= len(self.audio):
            hears(self)


def stream(payload, rate=16000):
    return {"data": base64.b64encode(payload).decode(), "mimeType": f"audio/pcm;rate={rate}"}


async def test_voice_is_answered_by_voice_and_shown_as_transcripts():
    """§10, §13, §14."""
    async with serving(Ears()) as host, host.aitp() as client:
        await client.init()
        await client.send("AUDIO_STREAM", **stream(bytes(6400)))
        shown, sound = [], 0
        while True:
            kind, payload = await client.next()
            if kind == "AUDIO_STREAM":
                assert payload["mimeType"] == "audio/pcm;rate=24000"
                sound += len(base64.b64decode(payload["data"]))
            elif kind == "SYSTEM_EVENT":
                shown.append(payload["data"])
            elif kind == "VOICE_STATE_EVENT":
                break
        assert payload == {"event": "turn_complete"}
        assert shown == [{"role": "user", "text": "what I said"}, {"role": "agent", "text": "what it says"}]
        assert abs(sound - 0.3 * 48000) < 500


@pytest.mark.parametrize("rate", [8000, 48000])
async def test_sound_of_another_rate_is_converted(rate):
    brain = Ears()
    brain.abilities = Abilities(inputs=(PCMU,))
    brain.enough = 3000
    async with serving(brain) as host, host.aitp() as client:
        await client.init()
        await client.send("AUDIO_STREAM", **stream(bytes(rate), rate))
        await client.until("VOICE_STATE_EVENT")
        assert abs(len(brain.audio) - 4000) < 200


async def test_the_end_that_the_client_tells_is_silence_for_the_agent():
    """§11."""
    brain = Brain()
    async with serving(brain) as host, host.aitp() as client:
        await client.init()
        await client.send("VOICE_INPUT_END", reason="user_stop")
        await brain.until(lambda: len(brain.audio) >= 30_000)
        assert set(brain.audio) <= {0}


async def test_a_barge_in_silences_the_answer():
    """§12: VOICE_STATE_EVENT interrupted, reason barge_in."""
    brain = Ears()
    brain.user_audio = lambda payload: None
    async with serving(brain, Brain()) as host, host.aitp() as client:
        await client.init()
        await client.send("AUDIO_STREAM", **stream(bytes(640)))
        await brain.until(lambda: hasattr(brain, "port"))
        hears(brain, 20)
        await client.until("AUDIO_STREAM")
        await client.send("VOICE_INTERRUPT", reason="barge_in")
        assert await client.until("VOICE_STATE_EVENT") == {"event": "interrupted", "reason": "barge_in"}
        await brain.until(lambda: brain.heard)
        await client.page(CART)
        kinds = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                while True:
                    kinds.append((await client.next())[0])
        assert "AUDIO_STREAM" not in kinds


@pytest.mark.parametrize("kind", ["pcm", "wav"])
async def test_a_message_of_sound_is_heard(kind):
    """§4: a complete audio message."""
    brain = Ears()
    sound, mime = bytes(32000), "audio/pcm;rate=16000"
    if kind == "wav":
        file, mime = io.BytesIO(), "audio/wav"
        with wave.open(file, "wb") as made:
            made.setparams((1, 2, 16000, 0, "NONE", ""))
            made.writeframes(sound)
        sound = file.getvalue()
    async with serving(brain) as host, host.aitp() as client:
        await client.init()
        data = base64.b64encode(sound).decode()
        await client.send("USER_INPUT", modality="audio", content=data, mimeType=mime)
        await client.until("VOICE_STATE_EVENT", event="turn_complete")


@pytest.mark.parametrize(
    ("content", "mime"), [("AAAA", "audio/mp3"), ("AAAA", "audio/wav"), ("%", "audio/pcm"), ("AAAA", None)]
)
async def test_sound_that_is_none_is_an_error(content, mime):
    async with serving(Brain()) as host, host.aitp() as client:
        await client.init()
        extra = {"mimeType": mime} if mime else {}
        await client.send("USER_INPUT", modality="audio", content=content, **extra)
        said = await client.until("SYSTEM_EVENT", kind="error")
        assert said["message"].startswith("Audio input not supported")


# --- errors and ends


async def test_an_error_of_the_agent_is_told_and_one_that_ends_the_session_closes():
    def on_text(agent, text):
        agent.port.emit(TurnBegin("t"))
        agent.port.emit(AgentError("the model is away", recoverable=text != "die", turn="t"))

    async with serving(Brain(on_text)) as host, host.aitp() as client:
        await client.init()
        await client.say("x")
        assert await client.next() == ("SYSTEM_EVENT", {"kind": "error", "message": "the model is away"})
        assert await client.next() == ("AGENT_RESPONSE", {"chunk": "", "done": True})
        await client.say("die")
        await client.until("SYSTEM_EVENT", kind="disconnect")
        assert (await client.closed())[0] == 1011


async def test_a_host_that_stops_closes_with_1001():
    async with serving(Brain()) as host, host.aitp() as client:
        await client.init()
        host.stop.set()
        assert await client.closed() == (1001, "Server shutting down")


# --- boards


async def test_a_boards_tool_is_the_servers_and_asks_at_the_page_and_at_the_board():
    brain = Brain(lambda agent, text: call(agent, "lock"))
    async with serving(Brain(), brain, lending=Lending(["porch"])) as host, host.client() as porch:
        await board(porch, LOCK)
        async with host.aitp() as client:
            await client.send("HANDSHAKE_INIT", **INIT)
            await client.until("HANDSHAKE_ACK")
            told = (await client.page({**CART, "name": "lock"}))["data"]
            assert [tool["name"] for tool in told["serverTools"]] == ["lock"]
            assert told["serverTools"][0]["risk"] == "high"
            assert [tool["name"] for tool in told["ignoredClientTools"]] == ["lock"]
            await client.say("lock")
            await client.until("SYSTEM_EVENT", kind="approval_required")
            asked = await client.until("APPROVAL_REQUEST", toolName="lock", risk="high")
            await client.send("APPROVAL_RESPONSE", callId=asked["callId"], approved=True)
            ran = await porch.until("tool.call", name="lock")
            members = {"callId": ran["callId"], "epoch": ran["epoch"]}
            await porch.send("tool.result", **members, ok=True, output="locked")
            await brain.until(lambda: brain.results)
            assert brain.results[0].output == "locked"


async def test_what_the_page_denies_or_leaves_open_does_not_reach_the_board(monkeypatch):
    monkeypatch.setattr(aitp_session, "APPROVAL_S", 0.1)
    brain = Brain(lambda agent, text: call(agent, "lock", id_=text))
    async with serving(Brain(), brain, lending=Lending(["porch"])) as host, host.client() as porch:
        await board(porch, LOCK)
        async with host.aitp() as client:
            await client.init()
            await client.say("denied")
            asked = await client.until("APPROVAL_REQUEST")
            await client.send("APPROVAL_RESPONSE", callId=asked["callId"], approved=False)
            await brain.until(lambda: brain.results)
            await client.answer()
            await client.say("open")
            await brain.until(lambda: len(brain.results) == 2)
            assert [one.code for one in brain.results] == ["REJECTED", "REJECTED"]
            await porch.send("ping")
            assert (await porch.next())["type"] == "pong"
