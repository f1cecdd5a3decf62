import asyncio

import numpy as np
import pytest
from vrt_host.errors import UsageError
from vrt_host.harness import user
from vrt_host.harness.recorder import NotSeen, Recorder
from vrt_host.sim.say import Utterance


@pytest.mark.parametrize(
    ("word", "value", "at"),
    [
        ("unlock the door", "unlock the door", None),
        ("unlock the door@3.5", "unlock the door", 3.5),
        ("mail me@home", "mail me@home", None),
        ("mail me@home@0", "mail me@home", 0.0),
        ("a@2.wav", "a@2.wav", None),
    ],
)
def test_user_reads_values_with_and_without_a_time(word, value, at):
    assert user.parse_timed(word) == (value, at)


@pytest.mark.parametrize("word", ["", "  ", "@3", " @3", "hello@-1", "hello@nan", "hello@inf"])
def test_user_refuses_what_says_nothing_or_has_no_time(word):
    with pytest.raises(UsageError, match=r"says nothing|0 seconds or more"):
        user.parse_timed(word)


def test_user_answers_requests_by_number_and_the_rest_by_rule():
    presses = user.parse_presses(["1@1.5", "3@0.2", "auto"])
    assert [presses.hold(number) for number in (1, 2, 3, 4)] == [1.5, user.HOLD_S, 0.2, user.HOLD_S]
    assert user.parse_presses(["2@2"]).hold(1) is None
    assert user.parse_presses(["auto", "never"]).hold(1) is None
    assert user.parse_presses([]).hold(1) is None


@pytest.mark.parametrize(
    "word", ["", "1", "1@", "@1", "x@1", "1@x", "0@1", "-1@1", "1@0", "1@-1", "1@nan", "1@61", "always"]
)
def test_user_refuses_other_presses(word):
    with pytest.raises(UsageError, match="--press"):
        user.parse_presses([word])


@pytest.mark.parametrize(("word", "heap"), [("128k", "128k"), ("128K", "128k"), ("2M", "2m"), ("32k", "32k")])
def test_user_reads_heap_sizes(word, heap):
    assert user.parse_heap(word) == heap


@pytest.mark.parametrize(
    "word", ["", "k", "128", "128kb", "1.5M", "-128k", "16k", "65M", "\u0661\u0662\u0668k", "1e6"]
)
def test_user_refuses_heaps_that_cannot_work(word):
    with pytest.raises(UsageError, match="heap"):
        user.parse_heap(word)


def test_user_reads_until_as_a_time_or_an_event():
    assert user.parse_until("12.5") == 12.5
    assert user.parse_until("tool.result") == "tool.result"


@pytest.mark.parametrize("word", ["", " ", "two words", "0", "-1", "nan", "inf"])
def test_user_refuses_an_until_that_never_ends(word):
    with pytest.raises(UsageError, match="--until"):
        user.parse_until(word)


def test_user_knows_where_speech_begins_and_ends():
    sound = np.zeros(1_000, np.int16)
    assert user.speech_edges(sound) == (0, 0)
    assert user.speech_edges(sound[:0]) == (0, 0)
    sound[::7] = 20  # a noise floor
    sound[300:600] = 9_000
    sound[450] = -32_768
    assert user.speech_edges(sound) == (300, 600)


# --- when an answer is over


class Lamp:
    """What a user needs of a board: its light, and a microphone that takes no time."""

    def __init__(self):
        self.hardware = self
        self.led = "listening"

    def say(self, sound):
        return 0.0, 0.0

    def monotonic(self, t):
        return t


class Log(Recorder):
    """A log whose waits end in vain when the test lets time pass."""

    def __init__(self):
        super().__init__(clock=lambda: 0.0)
        self.times = asyncio.Queue()

    async def wait_for(self, match, *, within, after=0):
        seen = asyncio.ensure_future(super().wait_for(match, within=30, after=after))
        time = asyncio.ensure_future(self.times.get())
        await asyncio.wait({seen, time}, return_when=asyncio.FIRST_COMPLETED)
        if seen.done():
            if not time.cancel():  # it passes at the next wait
                self.times.put_nowait(None)
                self.times.task_done()
            return seen.result()
        seen.cancel()
        self.times.task_done()
        raise NotSeen(within, [])


class Room:
    """A user with something to say, and a log in which the test says what happens."""

    def __init__(self, sentences=1):
        self.log = Log()
        self.lamp = Lamp()
        one, silence = Utterance(text="hello"), np.zeros(0, np.int16)
        self.user = user.User(self.lamp, self.log, [one] * sentences, [silence] * sentences)
        self.talk = asyncio.create_task(self.user.talk())
        self.heard = []

    async def said(self):
        """Until the next sentence was said."""
        says = sum(event["event"] == "says" for event in self.heard)
        await Recorder.wait_for(
            self.log, lambda event: event["event"] == "says", within=30, after=len(self.heard)
        )
        self.heard = list(self.log.events)
        assert sum(event["event"] == "says" for event in self.heard) == says + 1

    def light(self, state):
        self.lamp.led = state
        self.log.add("hardware", "led", state=state)

    def sound(self, on):
        self.log.add("hardware", "sound", on=on)

    async def long(self):
        """Whatever the user waits for does not come in time."""
        self.log.times.put_nowait(None)
        async with asyncio.timeout(30):
            await self.log.times.join()

    async def over(self):
        async with asyncio.timeout(30):
            await self.talk
        return [event["event"] for event in self.log.events if event["source"] == "demo"]


async def test_user_waits_until_the_board_rests():
    room = Room()
    await room.said()
    for state in ("thinking", "confirm", "thinking"):
        room.light(state)
        await room.long()
        await room.long()
    room.light("speaking")
    room.sound(True)
    await room.long()
    await room.long()
    room.light("listening")
    assert await room.over() == ["says"]
    assert room.user.unanswered == 0


async def test_user_counts_no_sign_of_an_answer_as_none():
    room = Room()
    await room.long()
    assert await room.over() == ["says", "unanswered"]
    assert room.user.unanswered == 1


async def test_user_does_not_wait_for_an_answer_that_stays_open_in_silence():
    room = Room(2)
    await room.said()
    for sound in (True, False):
        room.light("speaking")
        room.sound(sound)
        await room.long()
    await room.said()
    room.sound(True)  # the next sentence is answered though the light does not change
    room.sound(False)
    await room.long()
    assert await room.over() == ["says", "open", "says", "open"]
    assert room.user.unanswered == 0


async def test_user_counts_an_open_answer_that_was_never_heard_as_none():
    room = Room()
    await room.said()
    room.light("speaking")
    await room.long()
    assert await room.over() == ["says", "open"]
    assert room.user.unanswered == 1
