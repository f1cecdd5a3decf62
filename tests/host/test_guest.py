"""A client of another protocol inside the host: what vRT asks of a client, and the tools that boards lend."""

import asyncio
import contextlib
import json

import pytest
from host_client import DEADLINE_S, hosting
from vrt_host.agents.base import (
    PCMU,
    Agent,
    AgentError,
    Audio,
    AudioBegin,
    AudioEnd,
    Call,
    Format,
    Text,
    Tool,
    Transcript,
    TurnBegin,
    TurnEnd,
)
from vrt_host.auth import TokenFile
from vrt_host.config import ServerConfig
from vrt_host.errors import UsageError
from vrt_host.facades.borrow import Borrowed
from vrt_host.facades.guest import Guest, RefusedError
from vrt_host.lending import Lending

TOOL = {"name": "light", "description": "Switches the light.", "parameters": {"type": "object"}}
PCM16_16K = Format("pcm16", 16000)


class Brain(Agent):
    """Does with each text what `on_text(agent, text)` says."""

    name = "brain"

    def __init__(self, on_text=lambda agent, text: None):
        self.on_text = on_text
        self.results = []
        self.heard = []
        self.audio = b""
        self.closed = asyncio.Event()
        self.news = asyncio.Event()

    async def start(self, session, port):
        self.session = session
        self.port = port
        self.news.set()

    def user_text(self, text):
        self.on_text(self, text)

    def user_audio(self, payload):
        self.audio += payload
        self.news.set()

    def interrupted(self, turn, heard):
        self.heard += heard
        self.news.set()

    def tool_result(self, turn, result):
        self.results.append(result)
        self.news.set()

    async def close(self):
        self.closed.set()

    async def until(self, true):
        async with asyncio.timeout(DEADLINE_S):
            while not true():
                self.news.clear()
                await self.news.wait()


class Listener:
    """Keeps what it is told."""

    def __init__(self):
        self.told = []
        self.sound = b""
        self.approved = True
        self.news = asyncio.Event()

    def _note(self, *what):
        self.told.append(what)
        self.news.set()

    def state(self, turn, state):
        self._note("state", state)

    def transcript(self, turn, role, text, *, final):
        self._note("transcript", role, text, final)

    def text(self, turn, text, *, final):
        self._note("text", text, final)

    def audio(self, turn, item, payload):
        self.sound += payload
        self._note("audio")

    def call(self, call):
        self._note("call", call)

    def cancelled(self, call):
        self._note("cancelled", call.id)

    def stream(self, message):
        self._note("stream", message["phase"])

    def interrupted(self, reason):
        self._note("interrupted", reason)

    def error(self, code, message, *, recoverable):
        self._note("error", code, recoverable)

    def closed(self, code, reason):
        self._note("closed", code)

    async def approves(self, call, lent):
        return self.approved

    def room(self):
        return True

    async def hears(self, *what, count=1):
        """The `count`th thing that begins like this."""
        async with asyncio.timeout(DEADLINE_S):
            while len(found := [one for one in self.told if one[: len(what)] == what]) < count:
                self.news.clear()
                await self.news.wait()
        return found[count - 1]


class Door:
    """A facade that only lets guests in."""

    name = "door"
    url = "here"
    host = None

    @contextlib.asynccontextmanager
    async def listen(self, host):
        self.host = host
        yield

    async def drain(self):
        pass


@contextlib.asynccontextmanager
async def guests(brains, *, lending=None, config=None):
    """`make(**open)`: a guest and its listener; `brains` are the agents, in the order of the sessions."""
    door, rest, made = Door(), list(brains), []
    async with hosting(lambda: rest.pop(0), config=config, facades=[door], lending=lending) as host:

        async def make(token=None, *, borrow=False, **members):
            listener = Listener()
            guest = Guest(door.host, listener, "a test", Borrowed(door.host.lending) if borrow else None)
            made.append(guest)
            await guest.open(token, **members)
            return guest, listener

        host.guest = make
        yield host
        for guest in made:
            guest.close()


def call(agent, name="light", id_="c1", arguments="{}"):
    agent.port.emit(TurnBegin("t"))
    agent.port.emit(Call("t", id_, name, arguments))
    agent.port.emit(TurnEnd("t"))


def speak(seconds):
    def on_text(agent, text):
        agent.port.emit(TurnBegin("t"))
        agent.port.emit(AudioBegin("t", "i"))
        payload = bytes(round(seconds * agent.session.output.bytes_per_second))
        agent.port.emit(Audio("t", "i", payload))
        agent.port.emit(AudioEnd("t", "i"))
        agent.port.emit(TurnEnd("t"))

    return on_text


async def test_a_text_gets_its_answer_and_the_turn_its_end():
    def on_text(agent, text):
        agent.port.emit(TurnBegin("t"))
        agent.port.emit(Transcript("t", "user", text, True))
        agent.port.emit(Text("t", "Good ", False))
        agent.port.emit(Text("t", "day.", True))
        agent.port.emit(TurnEnd("t"))

    async with guests([Brain(on_text)]) as host:
        guest, listener = await host.guest()
        guest.say("hello")
        await listener.hears("state", "idle")
        assert [one for one in listener.told if one[0] != "state"] == [
            ("transcript", "user", "hello", True),
            ("text", "Good ", False),
            ("text", "day.", True),
        ]


async def test_sound_is_converted_both_ways():
    brain = Brain(speak(0.3))
    brain.abilities = type(brain.abilities)(inputs=(PCMU,), outputs=(PCMU,))
    async with guests([brain]) as host:
        guest, listener = await host.guest(input_=PCM16_16K, output=PCM16_16K)
        guest.audio(bytes(16000))  # half a second, in one piece
        await brain.until(lambda: len(brain.audio) > 3900)
        guest.say("speak")
        await listener.hears("state", "idle")
        assert abs(len(listener.sound) - 0.3 * 32000) < 400


async def test_a_call_is_run_and_its_result_reaches_the_agent_once():
    brain = Brain(lambda agent, text: call(agent))
    async with guests([brain]) as host:
        guest, listener = await host.guest(tools=[TOOL])
        guest.say("light")
        _, asked = await listener.hears("call")
        assert (asked.name, asked.arguments) == ("light", {})
        assert guest.result(asked.id, ok=True, output={"on": True})
        await brain.until(lambda: brain.results)
        assert [(one.call, one.ok, one.output) for one in brain.results] == [("c1", True, {"on": True})]
        assert not guest.result(asked.id, ok=False)


async def test_calls_come_one_after_the_other():
    def on_text(agent, text):
        agent.port.emit(TurnBegin("t"))
        agent.port.emit(Call("t", "c1", "light", "{}"))
        agent.port.emit(Call("t", "c2", "light", "{}"))
        agent.port.emit(TurnEnd("t"))

    brain = Brain(on_text)
    async with guests([brain]) as host:
        guest, listener = await host.guest(tools=[TOOL])
        guest.say("both")
        _, first = await listener.hears("call")
        await asyncio.sleep(0)
        assert len([one for one in listener.told if one[0] == "call"]) == 1
        guest.result(first.id, ok=True)
        _, second = await listener.hears("call", count=2)
        guest.result(second.id, ok=False, code="REJECTED", message="no")
        await brain.until(lambda: len(brain.results) == 2)
        assert [(one.call, one.ok, one.code) for one in brain.results] == [
            ("c1", True, None),
            ("c2", False, "REJECTED"),
        ]


async def test_an_interruption_ends_the_call_under_way_and_those_behind_it():
    def on_text(agent, text):
        if text == "both":
            agent.port.emit(TurnBegin("t"))
            agent.port.emit(Call("t", "c1", "light", "{}"))
            agent.port.emit(Call("t", "c2", "light", "{}"))
            agent.port.emit(TurnEnd("t"))

    brain = Brain(on_text)
    async with guests([brain]) as host:
        guest, listener = await host.guest(tools=[TOOL])
        guest.say("both")
        _, first = await listener.hears("call")
        guest.interrupt()
        assert ("cancelled", first.id) in listener.told
        assert not guest.result(first.id, ok=True)
        await brain.until(lambda: len(brain.results) == 2)
        assert [one.code for one in brain.results] == ["INTERRUPTED", "INTERRUPTED"]
        assert len([one for one in listener.told if one[0] == "call"]) == 1


async def test_of_an_interrupted_answer_nothing_more_is_heard_and_the_agent_knows_how_much_was():
    brain = Brain(speak(20))
    async with guests([brain]) as host:
        guest, listener = await host.guest()
        guest.say("speak")
        await listener.hears("audio", count=3)
        guest.interrupt("speech")
        heard = len(listener.sound)
        await brain.until(lambda: brain.heard)
        await listener.hears("interrupted", "speech")
        assert len(listener.sound) == heard
        assert 0 <= brain.heard[0].played_ms <= 1000 * heard / 48000


async def test_audio_comes_no_faster_than_it_is_heard():
    """Not more than a second ahead, however fast the agent is."""
    async with guests([Brain(speak(20))]) as host:
        guest, listener = await host.guest()
        begun = asyncio.get_running_loop().time()
        guest.say("speak")
        await listener.hears("audio", count=40)
        passed = asyncio.get_running_loop().time() - begun
        assert len(listener.sound) / 48000 <= 1.1 + passed


async def test_a_token_that_is_none_is_refused(tmp_path):
    TokenFile(tmp_path / "tokens.json").add("web")
    config = ServerConfig(port=0, tokens=tmp_path / "tokens.json")
    async with guests([Brain()], config=config) as host:
        with pytest.raises(RefusedError) as refused:
            await host.guest("wrong")
        assert refused.value.code == "UNAUTHORIZED"


async def test_the_session_ends_with_its_guest_and_is_not_kept_for_a_resume():
    brain = Brain()
    async with guests([brain]) as host:
        guest, listener = await host.guest()
        guest.close()
        async with asyncio.timeout(DEADLINE_S):
            await brain.closed.wait()
        assert listener.told == []
        guest.say("nobody hears this")


async def test_a_host_that_stops_says_so():
    async with guests([Brain()]) as host:
        _, listener = await host.guest()
        host.stop.set()
        assert await listener.hears("closed") == ("closed", 1001)
        assert ("error", "HOST_STOPPING", False) in listener.told


# --- what boards lend

LOCK = {
    "name": "lock",
    "description": "Locks the door.",
    "parameters": {"type": "object"},
    "confirm": "button",
}


async def board(client, *tools, name="porch"):
    await client.hello(tools=list(tools), device={"id": name, "board": "sim"})
    return client


@pytest.mark.parametrize("names", [["porch"], ["porch/lock"]])
async def test_a_tool_of_a_board_is_called_by_another_sessions_agent(names):
    brain = Brain(lambda agent, text: call(agent, "lock"))
    async with guests([Brain(), brain], lending=Lending(names)) as host, host.client() as client:
        await board(client, LOCK)
        guest, listener = await host.guest(borrow=True)
        (tool,) = brain.session.tools
        assert (tool.name, tool.description, tool.confirm) == (
            "lock",
            "Locks the door. (on the board porch)",
            None,
        )
        guest.say("lock it")
        asked = await client.until("tool.call", name="lock")
        await client.send(
            "tool.result", callId=asked["callId"], epoch=asked["epoch"], ok=True, output="locked"
        )
        await brain.until(lambda: brain.results)
        assert (brain.results[0].ok, brain.results[0].output) == (True, "locked")
        assert [one for one in listener.told if one[0] == "call"] == []
        await client.until("turn.state", state="idle")


async def test_the_boards_refusal_is_the_agents():
    brain = Brain(lambda agent, text: call(agent, "lock"))
    async with guests([Brain(), brain], lending=Lending(["porch"])) as host, host.client() as client:
        await board(client, LOCK)
        guest, _ = await host.guest(borrow=True)
        guest.say("lock it")
        asked = await client.until("tool.call")
        members = {"callId": asked["callId"], "epoch": asked["epoch"]}
        await client.send("tool.result", **members, ok=False, code="REJECTED", message="not confirmed")
        await brain.until(lambda: brain.results)
        assert (brain.results[0].code, brain.results[0].message) == ("REJECTED", "not confirmed")


async def test_what_the_clients_user_denies_does_not_reach_the_board():
    brain = Brain(lambda agent, text: call(agent, "lock"))
    async with guests([Brain(), brain], lending=Lending(["porch"])) as host, host.client() as client:
        await board(client, LOCK)
        guest, listener = await host.guest(borrow=True)
        listener.approved = False
        guest.say("lock it")
        await brain.until(lambda: brain.results)
        assert (brain.results[0].code, brain.results[0].message) == ("REJECTED", "Action denied by user")
        await client.send("ping")
        assert (await client.next())["type"] == "pong"


async def test_who_stops_elsewhere_stops_the_call_at_the_board():
    brain = Brain(lambda agent, text: call(agent, "lock"))
    async with guests([Brain(), brain], lending=Lending(["porch"])) as host, host.client() as client:
        await board(client, LOCK)
        guest, _ = await host.guest(borrow=True)
        guest.say("lock it")
        asked = await client.until("tool.call")
        guest.interrupt()
        await brain.until(lambda: brain.results)
        assert brain.results[0].code == "INTERRUPTED"
        assert (await client.until("interrupted"))["epoch"] >= asked["epoch"]


async def test_a_board_that_is_in_a_conversation_is_busy_and_one_that_is_gone_cannot():
    porch = Brain(speak(20))
    brain = Brain(lambda agent, text: call(agent, "lock", id_=text))
    async with guests([porch, brain], lending=Lending(["porch"])) as host:
        async with host.client() as client:
            await board(client, LOCK)
            guest, _ = await host.guest(borrow=True)
            await client.send("text", text="tell me a story")
            await client.until("turn.state", state="speaking")
            guest.say("one")
            await brain.until(lambda: brain.results)
            assert "is busy" in brain.results[0].message
            await client.send("interrupt", epoch=1, reason="user")
            await client.until("interrupted")
            porch.port.emit(AgentError("over", recoverable=False))
            async with asyncio.timeout(DEADLINE_S):
                await porch.closed.wait()
        guest.say("two")
        await brain.until(lambda: len(brain.results) == 2)
        assert "is not connected" in brain.results[1].message


async def test_what_is_confirmed_by_voice_is_not_lent_and_a_name_twice_gets_the_boards_in_front():
    spoken = {**LOCK, "name": "alarm", "confirm": "voice"}
    brain = Brain()
    async with guests([Brain(), brain], lending=Lending(["porch"])) as host, host.client() as client:
        await board(client, LOCK, spoken)
        await host.guest(borrow=True, tools=[{**LOCK, "description": "mine"}])
        assert [tool.name for tool in brain.session.tools] == ["lock", "porch.lock"]


async def test_only_what_is_configured_is_lent_and_only_a_boards():
    brains = [Brain(), Brain(), Brain(), Brain()]
    async with (
        guests(brains, lending=Lending(["porch/lock"])) as host,
        host.client() as one,
        host.client() as two,
    ):
        await board(one, LOCK, {"name": "other"})
        await two.hello(tools=[LOCK], device={"id": "porch"})  # no board: a program
        await host.guest(borrow=True)
        await host.guest()
        assert [tool.name for tool in brains[2].session.tools] == ["lock"]
        assert brains[3].session.tools == []


@pytest.mark.parametrize("changed", [False, True])
async def test_a_board_that_comes_back_is_found_again_unless_the_tool_is_another_one(changed):
    brain = Brain(lambda agent, text: call(agent, "lock", id_=text))
    async with (
        guests([Brain(), brain, Brain()], lending=Lending(["porch"])) as host,
        host.client() as old,
        host.client() as new,
    ):
        await board(old, LOCK)
        guest, _ = await host.guest(borrow=True)
        await board(new, {**LOCK, "confirm": None, "description": "Opens it."} if changed else LOCK)
        guest.say("one")
        if changed:
            await brain.until(lambda: brain.results)
            assert "another tool of that name" in brain.results[0].message
            await new.send("ping")
            assert (await new.next())["type"] == "pong"
        else:
            await new.until("tool.call", name="lock")


async def test_when_the_newest_session_of_a_board_ends_the_one_before_counts():
    lending = Lending(["porch"])
    newest = Brain()
    async with guests([Brain(), newest], lending=lending) as host, host.client() as one, host.client() as two:
        await board(one, LOCK)
        await board(two)
        assert list(lending.tools()) == []
        newest.port.emit(AgentError("over", recoverable=False))
        async with asyncio.timeout(DEADLINE_S):
            await newest.closed.wait()
        assert [lent.tool.name for lent in lending.tools()] == ["lock"]


async def test_a_session_that_ends_while_its_agent_gets_ready_lends_nothing():
    lending = Lending(["porch"])
    lender = lending.wraps("porch", Brain(), [])
    await lender.close()
    await lender.start(None, None)
    assert list(lending.tools()) == []
    assert lending._lenders == {}


@pytest.mark.parametrize("why", ["somebody speaks to it", "it is gone"])
async def test_a_call_that_the_board_breaks_off_fails_and_may_have_run(why):
    """It is no INTERRUPTED: that would be the end of the turn of whoever borrowed the tool."""
    porch = Brain()
    brain = Brain(lambda agent, text: call(agent, "lock"))
    async with guests([porch, brain], lending=Lending(["porch"])) as host, host.client() as client:
        await board(client, LOCK)
        guest, listener = await host.guest(borrow=True)
        guest.say("lock it")
        await client.until("tool.call")
        if why == "it is gone":
            porch.port.emit(AgentError("over", recoverable=False))
        else:
            await client.send("text", text="hello")
        await brain.until(lambda: brain.results)
        assert brain.results[0].code == "FAILED"
        assert "whether it ran is unknown" in brain.results[0].message
        await listener.hears("state", "idle")


def test_names_and_times_of_what_is_borrowed_can_be_declared():
    """A name that is taken twice over; a time that is the most that the host takes."""
    lending = Lending(["porch"])
    lender = lending.wraps("porch", Brain(), [Tool("lock", timeout_ms=3_600_000)])
    lending.add(lender)
    (declared,) = Borrowed(lending, ask_s=120).declarations({"lock", "porch.lock"})
    assert (declared["name"], declared["timeoutMs"]) == ("porch.porch.lock", 3_600_000)


@pytest.mark.parametrize(
    "context", [json.loads("[" * 32 + "]" * 32), {"x": float("inf")}], ids=["deep", "infinity"]
)
async def test_what_no_hello_can_say_opens_no_session(context):
    async with guests([Brain()]) as host:
        with pytest.raises(RefusedError) as refused:
            await host.guest(context=context)
        assert refused.value.code == "INVALID_FIELD"


async def test_a_result_that_is_no_json_is_a_failure():
    brain = Brain(call)
    async with guests([brain]) as host:
        guest, listener = await host.guest(tools=[TOOL])
        guest.say("light")
        asked = (await listener.hears("call"))[1]
        assert guest.result(asked.id, ok=True, output=float("inf"))
        await brain.until(lambda: brain.results)
        assert (brain.results[0].code, brain.results[0].message) == ("FAILED", "the result is no JSON")


@pytest.mark.parametrize("name", ["", "/lock", "porch/"])
def test_a_name_of_nothing_is_refused(name):
    with pytest.raises(UsageError, match="BOARD/TOOL"):
        Lending([name])
