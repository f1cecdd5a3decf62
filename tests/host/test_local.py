"""agents/local.py: turns, calls and answers, with recognisers and a voice that do what the test says; then the real ones."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_intents import KETTLE, LIGHT, LOCK, sounds
from test_vad import SPEECH, FakeGrammar, FakeVad, loud, quiet, recording
from vrt_host.agents import local, replies
from vrt_host.agents.base import (
    PCM16_24K,
    PCMU,
    AgentError,
    Audio,
    AudioBegin,
    AudioEnd,
    Call,
    Format,
    SessionInfo,
    Text,
    Tool,
    ToolResult,
    Transcript,
    TurnBegin,
    TurnEnd,
    TurnState,
)
from vrt_host.agents.local import LocalAgent
from vrt_host.errors import AgentStartError, UsageError
from vrt_host.speech.asr_free import Transcription
from vrt_host.speech.codec import Pcm16, Pcmu
from vrt_host.speech.resample import resample
from vrt_host.speech.tts import SpeechError

MIC = Format("pcm16", 16_000)
SLOW = Tool(
    "check",
    effect="none",
    phrases=[{"say": "check it", "while": "I look. It takes long.", "reply": "It is fine."}],
)
VAULT = Tool("vault", confirm="voice", phrases=[{"say": "open the vault", "reply": "The vault is open."}])


class Port:
    """Keeps what the agent emits, and answers its calls when told to."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.news = asyncio.Event()
        self.stages: list[str] = []
        self.busy = False
        self.agent: LocalAgent

    def emit(self, event: object) -> None:
        self.events.append(event)
        self.news.set()

    def trace(self, name: str, **fields: object) -> None:
        self.stages.append(name)
        self.news.set()

    async def drain(self) -> None:
        pass

    def idle(self) -> bool:
        return not self.busy

    async def until(self, true: Callable[[], object]) -> None:
        """Wait until something that was emitted, or a stage that was traced, makes it true."""
        async with asyncio.timeout(10):
            while not true():
                self.news.clear()
                await self.news.wait()

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    def said(self, turn: str | None = None) -> str:
        """What the agent said aloud."""
        spoken = [e for e in self.of(Transcript) if e.role == "agent" and turn in (None, e.turn)]
        return "".join(event.text for event in spoken)

    async def ended(self, count: int = 1) -> None:
        await self.until(lambda: len(self.of(TurnEnd)) >= count)

    async def called(self, count: int = 1) -> list[Call]:
        await self.until(lambda: len(self.of(Call)) >= count)
        return self.of(Call)

    def answer(self, call: Call, output: object = None, code: str | None = None, message: str = "") -> None:
        self.agent.tool_result(call.turn, ToolResult(call.call, code is None, output, code, message))


class FakeEngines:
    """Stands for `Engines`: energy is speech, and the recognisers hear what the test sets."""

    def __init__(self) -> None:
        self.ears = FakeGrammar()
        self.text = ""
        self.against = float("inf")
        self.drafts: list[str] = []
        self.voice = self
        self.rate = 8000
        self.rendered: list[str] = []
        self.fails = False
        self.transcribed = threading.Event()  # something has been
        self.gate = None  # an event that the free recogniser waits for
        self.pronouncer = self
        self.free = self
        self.listening = ThreadPoolExecutor(1)
        self.recognising = ThreadPoolExecutor(2)
        self.speaking = ThreadPoolExecutor(1)
        self.known = self.sounds = sounds

    def vad(self) -> FakeVad:
        return FakeVad()

    def grammar(self, jsgf: str, more: str, pronunciations: object, *, rate: int) -> FakeGrammar:
        self.rate_heard = rate
        return self.ears

    def transcribe(self, samples: np.ndarray, draft: str = "") -> Transcription:
        if self.gate is not None:
            self.gate.wait(10)
        heard = Transcription(self.text, self.against)
        self.drafts.append(draft)
        self.transcribed.set()
        return heard

    def render(self, clause: str) -> np.ndarray:
        self.rendered.append(clause)
        if self.fails:
            raise SpeechError("the voice is hoarse")
        return np.full(len(clause) * 80, 0.3, np.float32)  # 10 ms a letter

    def hears(self, grammar: str, free: str | None = None) -> None:
        """What the user is going to say, as the two recognisers hear it."""
        self.ears.text = grammar
        self.text = grammar.capitalize() + "." if free is None else free


@pytest.fixture
def engines():
    made = FakeEngines()
    yield made
    for pool in (made.listening, made.recognising, made.speaking):
        pool.shutdown()


@pytest.fixture
async def start(engines):
    """Starts an agent with the tools given."""
    agents = []

    async def start(*tools: Tool, input_: Format = MIC, output: Format = PCMU, **options: object) -> Port:
        port = Port()
        options.setdefault("trace", port.trace)
        port.agent = LocalAgent(load=lambda: engines, **options)
        agents.append(port.agent)
        await port.agent.start(SessionInfo(tools, None, input_, output), port)
        return port

    yield start
    for agent in agents:
        await agent.close()


def say(port: Port, ms: int = 640, after: int = 1000) -> None:
    """The user makes a sound, then is silent."""
    for samples in (loud(ms), quiet(after)):
        for at in range(0, len(samples), 320):
            port.agent.user_audio(Pcm16().encode(samples[at : at + 320]))


def kinds(port: Port) -> list[str]:
    return [type(event).__name__ for event in port.events]


# --- one command


async def test_command_heard_by_both_is_called_and_answered(start, engines):
    port = await start(LOCK)
    engines.hears("lock the front door")
    say(port)
    (call,) = await port.called()
    assert (call.name, dict(call.arguments)) == ("lock", {"door": "front", "state": "locked"})
    assert not call.confirmed  # nobody was asked
    port.answer(call, {"state": "locked"})
    await port.ended()
    assert port.events[0] == TurnBegin(call.turn, "listening")
    assert port.events[1] == TurnState(call.turn, "thinking")
    assert port.events[2] == Transcript(call.turn, "user", "Lock the front door.", final=True)
    assert kinds(port)[3:] == ["Call", "AudioBegin", "Transcript", "Audio", "AudioEnd", "TurnEnd"]
    assert port.said() == "The front door is locked."
    assert port.of(Text) == []
    sound = Pcmu().decode(port.of(Audio)[0].payload)
    assert len(sound) == len("The front door is locked.") * 80
    assert engines.drafts == ["lock the front door"]


async def test_command_is_not_called_before_the_user_has_finished(start, engines):
    port = await start(LOCK)
    engines.hears("lock the front door")
    say(port, after=192)
    await port.until(lambda: engines.drafts)  # both have heard it, and agree
    assert port.of(Call) == []
    engines.hears("lock the front door and unlock the back door")
    say(port)
    calls = await port.called(2)
    assert [call.arguments["door"] for call in calls] == ["front", "back"]
    assert len(port.of(TurnBegin)) == 1


@pytest.mark.parametrize(
    ("grammar", "free"),
    [
        ("lock the front door", "The quick brown fox."),
        ("lock the front door", "Unlock the front door."),
        ("lock the", "Lock the front door."),
        ("", "What time is it?"),
    ],
)
async def test_command_that_only_one_recogniser_heard_is_not_called(start, engines, grammar, free):
    port = await start(LOCK)
    engines.hears(grammar, free)
    say(port)
    await port.ended()
    assert port.of(Call) == []
    assert port.said() == replies.NOT_CAUGHT


async def test_answer_is_rendered_before_the_result_and_said_only_after_it(start, engines):
    port = await start(LOCK)
    engines.hears("lock the front door")
    say(port)
    (call,) = await port.called()
    assert engines.rendered == ["The front door is locked."]
    assert port.of(Audio) == []
    port.answer(call, code="FAILED", message="OSError: 5")
    await port.ended()
    assert port.said() == "I tried to lock the front door, but it failed."


async def test_answers_are_not_kept(start, engines):
    port = await start(LOCK)
    for count in (1, 2):
        engines.hears("lock the front door")
        say(port)
        port.answer((await port.called(count))[-1])
        await port.ended(count)
    assert engines.rendered == ["The front door is locked."] * 2


async def test_command_comes_in_the_formats_of_the_session(start, engines):
    port = await start(LOCK, input_=PCMU, output=PCM16_24K)
    engines.hears("lock the front door")
    samples = np.concatenate([loud(640), quiet(1000)])
    port.agent.user_audio(Pcmu().encode(resample(samples, 16_000, 8_000)))
    port.answer((await port.called())[0])
    await port.ended()
    assert engines.rate_heard == 8000
    assert len(port.of(Audio)[0].payload) == pytest.approx(len("The front door is locked.") * 480, rel=0.02)


async def test_transcript_is_the_sentence_that_both_heard(start, engines):
    port = await start(LOCK)
    engines.hears("unlock the front door", "I locked the front door.")
    engines.against = 7.0
    say(port)
    port.answer((await port.called())[0])
    await port.ended()
    (heard,) = [event for event in port.of(Transcript) if event.role == "user"]
    assert heard.text == "Unlock the front door."


async def test_transcript_of_what_nobody_agreed_on_is_free_text(start, engines):
    port = await start(LOCK)
    engines.hears("lock the front door", "The quick brown fox.")
    say(port)
    await port.ended()
    assert [event.text for event in port.of(Transcript) if event.role == "user"] == ["The quick brown fox."]


# --- what is no command


async def test_number_that_the_tool_does_not_take_is_named_and_nothing_runs(start, engines):
    port = await start(KETTLE, VAULT)
    engines.hears("open the vault")
    say(port)
    await port.ended()
    engines.hears("heat to one hundred", "Heat to 200.")
    say(port)
    await port.ended(2)
    assert port.said().endswith("I heard 200, but the number must be between 40 and 100, in steps of 5.")
    engines.hears("yes")  # to a question that was left behind
    say(port)
    await port.ended(3)
    assert port.of(Call) == []


async def test_noise_too_short_to_be_speech_ends_quietly(start, engines):
    port = await start(LOCK)
    engines.hears("", "Thank you.")
    say(port, ms=100)
    await port.ended()
    assert kinds(port) == ["TurnBegin", "TurnState", "TurnEnd"]


async def test_sound_without_words_ends_quietly(start, engines):
    port = await start(LOCK)
    engines.hears("lock the front door", "")
    say(port)
    await port.ended()
    assert port.said() == ""
    assert port.of(Call) == []


@pytest.mark.parametrize(
    ("grammar", "free"), [("stop", "Shop."), ("help", "Stop."), ("never mind", "Nevermore.")]
)
async def test_stop_needs_one_recogniser_while_the_device_speaks(start, engines, grammar, free):
    port = await start(LOCK)
    engines.hears(grammar, free)
    port.busy = True
    say(port)
    await port.ended()
    assert port.said() == ""
    (heard,) = port.of(Transcript)
    assert heard.text.rstrip(".").lower() in ("stop", "never mind")
    port.busy = False
    say(port)
    await port.ended(2)
    assert port.said() == replies.NOT_CAUGHT


async def test_stop_after_the_device_has_interrupted_by_itself_is_one(start, engines):
    port = await start(LOCK)
    engines.hears("lock the front door")
    say(port)
    port.answer((await port.called())[0])
    await port.ended()
    port.agent.interrupted(port.of(TurnEnd)[0].turn, [])  # it was still being played
    engines.hears("stop", "Shop.")
    say(port)
    await port.ended(2)
    assert port.said() == "The front door is locked."


async def test_help_names_what_can_be_said(start, engines):
    port = await start(LOCK, LIGHT)
    engines.hears("what can you do", "What can you do?")
    say(port)
    await port.ended()
    assert (
        port.said()
        == "You can say: lock the front door, or turn on the light, or unlock the front door, or turn the light on."
    )


# --- several commands, slow ones, ones that ask


async def test_two_commands_are_called_at_once_and_answered_in_order(start, engines):
    port = await start(LOCK, LIGHT)
    engines.hears("lock the back door and turn off the light")
    say(port)
    lock, light = await port.called(2)
    assert lock.turn == light.turn
    assert (lock.name, light.name) == ("lock", "light")
    port.answer(lock)
    port.answer(light, code="FAILED")
    await port.ended()
    assert port.said() == "The back door is locked.I tried to turn off the light, but it failed."
    assert len(port.of(AudioBegin)) == 2


async def test_slow_tool_is_talked_over_until_its_result(start, engines):
    port = await start(SLOW)
    engines.hears("check it")
    say(port)
    (call,) = await port.called()
    await port.until(lambda: port.said() == "I look. ")
    port.answer(call)
    await port.ended()
    assert port.said() in ("I look. It is fine.", "I look. It takes long.It is fine.")


async def test_quick_tool_is_not_talked_over(start, engines):
    port = await start(SLOW)
    engines.hears("check it")
    say(port)
    port.answer((await port.called())[0])
    await port.ended()
    assert port.said() == "It is fine."


async def test_call_that_asks_says_what_for_and_tells_what_came_of_it(start, engines):
    port = await start(LOCK)
    engines.hears("unlock the back door")
    say(port)
    (call,) = await port.called()
    await port.until(port.said)
    assert port.said() == "Button, for the back door."
    port.answer(call, code="REJECTED", message="not confirmed")
    await port.ended()
    assert port.said() == "Button, for the back door.Not confirmed, so I did not unlock the back door."


async def test_click_does_not_end_a_confirmation_but_speech_does(start, engines):
    port = await start(LOCK)
    engines.hears("unlock the back door")
    say(port)
    await port.until(port.said)
    say(port, ms=128, after=320)
    say(port, ms=128, after=320)
    engines.hears("stop")
    say(port, ms=400)
    await port.until(lambda: len(port.of(TurnBegin)) == 2)
    await port.until(lambda: engines.drafts[-1] == "stop")
    assert len(port.of(TurnBegin)) == 2


# --- questions of our own


async def test_question_runs_the_command_in_the_turn_of_its_yes(start, engines):
    port = await start(VAULT)
    engines.hears("open the vault")
    say(port)
    await port.ended()
    assert port.said() == "Shall I open the vault? Say yes to go on."
    assert port.of(Call) == []
    engines.hears("yes")
    say(port)
    (call,) = await port.called()
    assert call.turn == port.of(TurnBegin)[1].turn
    assert call.confirmed
    port.answer(call)
    await port.ended(2)
    assert port.said(call.turn) == "The vault is open."
    engines.hears("yes")
    say(port)
    await port.ended(3)
    assert port.said().endswith(replies.NOTHING_TO_CONFIRM)
    assert len(port.of(Call)) == 1


@pytest.mark.parametrize(
    ("grammar", "free", "said"),
    [
        ("no", "No.", replies.DROPPED),
        ("lock the front door", "Lock the front door.", None),
        ("yes", "Yesterday.", replies.NOT_CAUGHT),
    ],
)
async def test_question_is_not_answered_by_anything_but_yes(start, engines, grammar, free, said):
    port = await start(VAULT, LOCK)
    engines.hears("open the vault")
    say(port)
    await port.ended()
    engines.hears(grammar, free)
    say(port)
    if said is None:
        port.answer((await port.called())[0])
    await port.ended(2)
    assert [call.name for call in port.of(Call)] == ([] if said else ["lock"])
    assert said is None or port.said().endswith(said)
    if said != replies.NOT_CAUGHT:
        engines.hears("yes")
        say(port)
        await port.ended(3)
        assert "vault" not in [call.name for call in port.of(Call)]


async def asked(start, engines, *tools):
    """A session in which "Shall I open the vault?" waits for its answer."""
    port = await start(VAULT, *tools)
    engines.hears("open the vault")
    say(port)
    await port.ended()
    return port


async def test_yes_that_took_too_long_to_be_only_that_is_none(start, engines):
    port = await asked(start, engines)
    engines.hears("yes")
    say(port, ms=1300)
    await port.ended(2)
    assert port.said().endswith(replies.NOT_CAUGHT)
    assert port.of(Call) == []


async def test_yes_that_goes_on_after_a_pause_is_none(start, engines):
    port = await asked(start, engines, LOCK)
    engines.hears("yes")
    say(port, ms=320, after=400)
    await port.until(lambda: port.stages.count("recognised") == 2)  # both have heard it
    for _ in range(20):  # what would follow from that at once
        await asyncio.sleep(0)
    engines.hears("lock the front door")
    say(port)
    await port.called()
    assert [call.name for call in port.of(Call)] == ["lock"]


async def test_yes_after_which_the_audio_stopped_waits_for_what_comes_after_it(start, engines, monkeypatch):
    monkeypatch.setattr(local, "_STALL_S", 0.05)
    monkeypatch.setattr(local, "_AFTER_STALL_S", 60)
    port = await asked(start, engines, LOCK)
    engines.hears("yes")
    engines.transcribed.clear()
    say(port, ms=320, after=0)
    assert await asyncio.to_thread(engines.transcribed.wait, 10)  # both have heard it
    engines.hears("lock the front door")
    say(port)
    await port.called()
    assert [call.name for call in port.of(Call)] == ["lock"]


async def test_yes_after_which_no_audio_comes_is_one(start, engines, monkeypatch):
    monkeypatch.setattr(local, "_STALL_S", 0.05)
    monkeypatch.setattr(local, "_AFTER_STALL_S", 0)
    port = await asked(start, engines)
    engines.hears("yes")
    say(port, ms=320, after=0)
    assert (await port.called())[0].name == "vault"


async def test_question_that_was_not_heard_out_needs_to_be_asked_again(start, engines):
    port = await start(VAULT)
    engines.hears("open the vault")
    say(port)
    await port.ended()
    port.agent.interrupted(port.of(TurnBegin)[0].turn, [])
    engines.hears("yes")
    say(port)
    await port.ended(2)
    assert port.of(Call) == []


async def test_question_expires(start, engines, monkeypatch):
    monkeypatch.setattr(local, "_CONSENT_S", -60.0)
    port = await start(VAULT)
    port.agent.user_text("open the vault")
    await port.ended()
    port.agent.user_text("yes")
    await port.ended(2)
    assert port.of(Call) == []


# --- interruption


async def test_turn_that_dies_says_nothing_more(start, engines):
    port = await start(LOCK)
    engines.hears("lock the front door")
    say(port)
    (call,) = await port.called()
    port.answer(call, code="INTERRUPTED")
    port.agent.interrupted(call.turn, [])
    port.agent.tool_result(call.turn, ToolResult(call.call, True))
    engines.hears("", "What time is it?")
    say(port)
    await port.ended()
    assert port.said(call.turn) == ""
    assert [event.turn for event in port.of(TurnEnd)] == [port.of(TurnBegin)[1].turn]


async def test_new_utterance_ends_the_answer_before_it(start, engines):
    port = await start(SLOW, LIGHT)
    engines.hears("check it")
    say(port)
    (check,) = await port.called()
    await port.until(port.said)
    engines.hears("turn on the light")
    say(port)
    light = (await port.called(2))[1]
    assert light.turn != check.turn
    port.answer(check)  # too late: its turn is dead
    port.answer(light)
    await port.ended()
    assert "fine" not in port.said()
    assert port.said(light.turn) == "Done."


async def test_recognition_that_ends_after_the_turn_died_is_answered_in_no_turn(start, engines):
    """An interruption while we think (xinnan-tech/xiaozhi-esp32-server#2092): the answer must not come."""
    port = await start(LOCK)
    engines.gate = threading.Event()
    engines.hears("lock the front door")
    say(port)
    await port.until(lambda: port.of(TurnState))
    port.agent.interrupted(port.of(TurnBegin)[0].turn, [])
    engines.gate.set()
    engines.gate = None
    engines.hears("", "What time is it?")
    say(port)
    await port.ended()
    assert port.of(Call) == []


async def test_speech_goes_on_though_its_turn_was_interrupted(start, engines):
    port = await start(LIGHT)
    engines.hears("turn on the light")
    say(port, after=0)
    await port.until(lambda: port.of(TurnBegin))
    port.agent.interrupted(port.of(TurnBegin)[0].turn, [])
    say(port, ms=0)
    (call,) = await port.called()
    assert call.turn == port.of(TurnBegin)[1].turn
    assert port.of(TurnBegin)[1].state == "thinking"


async def test_call_that_the_host_gave_up_is_told_in_a_turn_of_its_own(start, engines):
    port = await start(LOCK)
    engines.hears("lock the front door")
    say(port)
    (call,) = await port.called()
    port.answer(call, code="TIMEOUT")
    port.agent.interrupted(call.turn, [])
    await port.ended()
    assert port.said() == "That took too long. I cannot say whether it was done."
    assert port.of(TurnEnd)[0].turn == port.of(TurnBegin)[1].turn != call.turn


async def test_microphone_that_is_switched_off_ends_the_utterance(start, engines, monkeypatch):
    monkeypatch.setattr(local, "_STALL_S", 0.05)
    port = await start(LIGHT)
    engines.hears("turn on the light")
    say(port, after=0)
    assert (await port.called())[0].name == "light"


# --- text


async def test_text_is_answered_by_text_and_voice(start, engines):
    port = await start(KETTLE)
    port.agent.user_text("Please heat the water to boiling degrees!")
    (call,) = await port.called()
    assert dict(call.arguments) == {"degrees": 100}
    port.answer(call)
    await port.ended()
    assert port.events[0] == TurnBegin(call.turn, "thinking")
    assert port.of(Text) == [Text(call.turn, "Heating to boiling.", final=True)]
    assert port.said() == "Heating to boiling."
    assert len(port.of(AudioEnd)) == 1


@pytest.mark.parametrize("text", ["how are you?", "", "x" * 100_000, "heat to 85 " * 1000, "\x00\ud800"])
async def test_text_that_is_not_understood_is_answered_by_what_can_be(start, text):
    port = await start(LIGHT)
    port.agent.user_text(text)
    await port.ended()
    assert (
        port.of(Text)[0].text
        == "I did not understand that. You can say: turn on the light, or turn the light on."
    )
    assert port.of(Call) == []


async def test_text_with_a_number_out_of_bounds_is_told_which_are_not(start):
    port = await start(KETTLE)
    port.agent.user_text("heat to 20")
    await port.ended()
    assert "between 40 and 100" in port.of(Text)[0].text
    assert port.of(Call) == []


async def test_text_question_is_answered_by_text_however_soon(start):
    port = await start(VAULT)
    port.agent.user_text("open the vault")
    await port.ended()
    port.agent.interrupted(port.of(TurnBegin)[0].turn, [])  # it was being spoken, too
    port.agent.user_text("yes")
    assert (await port.called())[0].name == "vault"


# --- trouble


async def test_voice_that_fails_leaves_the_text(start, engines, caplog):
    port = await start(LOCK)
    engines.fails = True
    engines.hears("lock the front door")
    say(port)
    port.answer((await port.called())[0])
    await port.ended()
    assert port.of(Audio) == []
    assert [text.text for text in port.of(Text)] == ["The front door is locked."]
    assert "hoarse" in caplog.text


async def test_voice_that_is_missing_leaves_the_text(start, engines):
    engines.voice = None
    port = await start(LOCK)
    engines.hears("lock the front door")
    say(port)
    port.answer((await port.called())[0])
    await port.ended()
    assert [(text.text, text.final) for text in port.of(Text)] == [("The front door is locked.", True)]
    assert engines.rendered == []


async def test_recogniser_that_fails_is_an_error_of_the_turn(start, engines, caplog):
    port = await start(LOCK)
    engines.hears("lock the front door")
    engines.free = None
    say(port)
    await port.until(lambda: any(error.turn for error in port.of(AgentError)))
    assert all(error.recoverable for error in port.of(AgentError))
    assert "the local agent failed" in caplog.text


async def test_listener_that_fails_ends_the_session(start, engines):
    port = await start(LOCK)
    engines.ears.partial = lambda: 1 / 0
    say(port)
    await port.until(lambda: port.of(AgentError))
    assert not port.of(AgentError)[0].recoverable


async def test_audio_that_is_not_worked_off_is_bounded(start, engines, caplog):
    port = await start(LOCK)
    for _ in range(2000):
        port.agent.user_audio(b"\0" * 640)  # nothing else runs meanwhile
    assert len(port.agent._frames) == 500
    assert "slower than speech" in caplog.text


async def test_start_without_an_engine_says_what_to_install():
    def missing():
        raise UsageError("speech recognition needs the package 'x': pip install 'vrt-edge[local]'")

    with pytest.raises(AgentStartError, match="pip install"):
        await LocalAgent(load=missing).start(SessionInfo([], None, MIC, PCMU), Port())


async def test_start_warns_of_phrases_that_are_not_used(start, caplog):
    await start(Tool("robot", phrases=["go (now"]))
    assert "tool 'robot': 'go (now' cannot be used" in caplog.text


async def test_start_warns_of_twenty_phrases_at_most(start, caplog):
    await start(Tool("robot", phrases=[f"go (x{number}" for number in range(25)]))
    assert caplog.text.count("cannot be used") == 20


async def test_start_warns_when_nothing_can_be_said(start, caplog):
    await start(LOCK)
    assert "no tool that can be spoken of" not in caplog.text
    await start()
    assert "no tool that can be spoken of" in caplog.text


async def test_close_leaves_nothing_running(start, engines):
    port = await start(SLOW)
    engines.hears("check it")
    say(port)
    await port.called()
    await port.agent.close()
    assert port.agent._tasks == set()


async def test_trace_tells_the_stages(start, engines):
    stages = []
    port = await start(LOCK, trace=lambda name, **fields: stages.append(name))
    engines.hears("lock the front door")
    say(port)
    port.answer((await port.called())[0])
    await port.ended()
    order = ["onset", "guess", "pause", "recognised", "end", "call", "result", "audio"]
    assert [stage for stage in order if stage in stages] == order
    assert stages.index("recognised") < stages.index("call")


# --- the real engines, on recorded speech


@pytest.fixture(scope="module")
def real():
    return local.engines()


@contextlib.asynccontextmanager
async def hearing(*tools: Tool):
    port = Port()
    port.agent = LocalAgent()
    await port.agent.start(SessionInfo(tools, None, PCMU, PCM16_24K), port)
    yield port
    await port.agent.close()


def play(port: Port, samples: np.ndarray, noise: float = 0.002) -> None:
    """The user's microphone: silence, `samples` at 16 kHz, silence, all with some noise, as mu-law."""
    heard = np.concatenate([quiet(500), samples, quiet(1500)])
    heard += np.random.default_rng(0).standard_normal(len(heard)).astype(np.float32) * np.float32(noise)
    payload = Pcmu().encode(resample(heard, 16_000, 8_000))
    for at in range(0, len(payload), 160):
        port.agent.user_audio(payload[at : at + 160])


async def test_real_engines_hear_and_answer(real):
    async with hearing(LOCK, LIGHT) as port:
        play(port, recording("af-heart--lock-the-front-door.wav"))
        (call,) = await port.called()
        assert (call.name, call.arguments) == ("lock", {"door": "front", "state": "locked"})
        port.answer(call)
        await port.ended()
        assert port.said() == "The front door is locked."
        spoken = Pcm16().decode(b"".join(audio.payload for audio in port.of(Audio)))
        assert 0.8 < len(spoken) / 24_000 < 2.5
        assert np.abs(spoken).max() > 0.2


@pytest.mark.parametrize("file", ["am-puck--i-saw-a-fox", "joe--play-some-music", "af-heart--how-far-is-it"])
async def test_real_engines_refuse_other_sentences(real, file):
    (path,) = (SPEECH / "voices").glob(f"{file}*.wav")
    async with hearing(LOCK, LIGHT) as port:
        play(port, recording(path.name))
        await port.ended()
        assert port.of(Call) == []
        assert port.said() == replies.NOT_CAUGHT


async def test_real_engines_take_a_tool_that_nobody_has_seen(real):
    """With a word that is in no dictionary, and with a number."""
    tool = Tool(
        "set_blorp",
        parameters={"properties": {"level": {"type": "integer", "minimum": 0, "maximum": 30}}, "required": ["level"]},
        phrases=[{"say": "bring [the] thermoflux to level {level}", "reply": "The thermoflux is at {level}."}],
    )  # fmt: skip
    assert real.pronouncer.known("thermoflux") == []
    async with hearing(LOCK, tool) as port:
        play(port, recording("af-kore--bring-the-thermoflux-to-level-twelve.wav"))
        (call,) = await port.called()
        assert (call.name, call.arguments) == ("set_blorp", {"level": 12})


async def test_real_engines_are_not_disturbed_by_a_click(real):
    async with hearing(LOCK) as port:
        click = quiet(3000)
        click[20_000:20_400] = np.random.default_rng(1).standard_normal(400) * 0.4
        play(port, click)
        play(port, recording("am-puck--lock-the-front-door.wav"))
        port.answer((await port.called())[0])
        await port.until(lambda: port.said() == "The front door is locked.")
        assert replies.NOT_CAUGHT not in port.said()
