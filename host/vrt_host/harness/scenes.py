"""The demo's conversation: four scenes, each step checked against the event log as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping

from vrt_host.harness.recorder import Event, NotSeen
from vrt_host.harness.rig import Rig
from vrt_host.harness.stage import Stage
from vrt_host.harness.user import HOLD_S, REACT_S, RESTING, User
from vrt_host.sim.wav import Samples

HEARD_S = 6.0
"""From the end of a sentence to its call, at most; far more than it takes."""
SPOKEN_S = 25.0
"""From a result to the end of the spoken answer, at most."""
EXPIRE_S = 18.0
"""A confirmation expires after 15 s."""
AWAY_S = 1.0
"""The network is away for so long."""
PAUSE_S = 1.5
"""Of quiet between two scenes."""


class Conversation:
    """Plays the scenes on a stage. `sentences`: what the user says -> its sound.

    `queues`: the agent's second call reaches the board while the first runs. Behind a facade it waits there for the first's result.
    """

    def __init__(
        self, stage: Stage, rig: Rig, user: User, sentences: Mapping[str, Samples], *, queues: bool = True
    ) -> None:
        self._queues = queues
        self._stage = stage
        self._rig = rig
        self._user = user
        self._sentences = sentences

    async def play(self) -> None:
        """All scenes; raises `StepFailed` at the first step that does not happen."""
        for scene in (self.confirmed, self.expired, self.interrupted, self.cut):
            await scene()
            await self._pause()

    # --- scene 1

    async def confirmed(self) -> None:
        """Unlock the front door, confirmed by the button."""
        stage = self._stage
        with stage.scene("“Unlock the front door”, confirmed by the button") as scene:
            said = self._say("Unlock the front door.")
            call = await self._called(said, "lock", door="front", state="unlocked")
            asked = await self._asked(call)
            stage.check("the lock waits", self._level("front_lock") == 0, "the front door unlocked already")
            told = await self._speaks("the board asks aloud", call, "button")
            scene.note = _first_sound(stage, said)
            await stage.expect("it has finished asking", "device", "played", within=SPOKEN_S, after=told)
            await asyncio.sleep(REACT_S)
            await self._user.press(HOLD_S)
            await stage.expect(
                f"the button, held for {HOLD_S:g} s, confirms",
                "device",
                "confirm",
                within=2,
                after=asked,
                outcome="confirmed",
            )
            await stage.expect(
                "the front door unlocks",
                "hardware",
                "output",
                within=2,
                after=asked,
                name="front_lock",
                value=1,
            )
            result = await self._result(call, True)
            await self._answers(result, "unlocked")

    # --- scene 2

    async def expired(self) -> None:
        """Unlock the back door, nobody confirms."""
        stage = self._stage
        with stage.scene("“Unlock the back door”, and nobody touches the button") as scene:
            said = self._say("Unlock the back door.")
            call = await self._called(said, "lock", door="back", state="unlocked")
            asked = await self._asked(call)
            await self._speaks("the board asks aloud", call, "button")
            scene.note = _first_sound(stage, said)
            expired = await stage.expect(
                "the confirmation expires",
                "device",
                "confirm",
                within=EXPIRE_S,
                after=asked,
                outcome="REJECTED",
                detail=lambda event: f"after {event['t'] - asked['t']:.1f} s",
            )
            result = await self._result(call, False, "REJECTED")
            await self._answers(result, "not|confirm|stay")
            stage.check(
                "the call never ran", not stage.seen("device", "call_start", call=call["call"]), "it started"
            )
            stage.check("the back door is locked", self._level("back_lock") == 0, "an unlocked back door")
            stage.check("no press was needed for that", not stage.seen("hardware", "button"), expired)

    # --- scene 3

    async def interrupted(self) -> None:
        """A long answer is interrupted by speech; what was queued behind it never runs."""
        stage = self._stage
        with stage.scene("“Check the house and then turn off the light”, and the user says “stop”") as scene:
            said = self._say("Turn on the light.")
            call = await self._called(said, "light", state="on")
            await self._answers(await self._result(call, True), "on")
            stage.check("the light is on", self._level("light") == 1, "a dark light")

            said = self._say("Check the house, and then turn off the light.")
            check = await self._called(said, "check_house")
            light = await self._called(check, "light", state="off") if self._queues else None
            await stage.expect(
                "the check of the house runs",
                "device",
                "call_start",
                within=2,
                after=check,
                call=check["call"],
            )
            sounds = await self._speaks("the board talks meanwhile", check, "check")
            await stage.expect(
                "it is in the middle of it", "device", "progress", within=5, after=sounds, call=check["call"]
            )
            await self._sounding()

            stop = self._say("Stop.")
            noticed = await stage.expect(
                "the board notices the voice",
                "device",
                "interrupt",
                within=2,
                after=sounds,
                reason="speech",
                detail=lambda event: f"{_ms(event['t'] - stop['speech_start'])} after it began",
            )
            silent = await stage.expect(
                "the speaker falls silent",
                "hardware",
                "sound",
                within=2,
                after=noticed,
                on=False,
                detail=lambda event: f"{_ms(max(0.0, event['t'] - noticed['t']))} later",
            )
            await stage.expect(
                "the host learns what was heard",
                "host",
                "message.in",
                within=2,
                after=sounds,
                type="playback",
                detail=lambda event: f"{event['message']['playedMs'] / 1000:.2f} s of the answer",
            )
            await self._result(check, False, "INTERRUPTED")
            if light is not None:
                await self._result(light, False, "INTERRUPTED")
            await self._rests(noticed)
            if light is not None:
                stage.check(
                    "the queued call never ran",
                    not stage.seen("device", "call_start", call=light["call"]),
                    "that it started",
                )
            stage.check("the light is still on", self._level("light") == 1, "a dark light")
            scene.note = (
                f"silent {_ms(silent['t'] - stop['speech_start'])} after the voice began, "
                f"{_ms(max(0.0, silent['t'] - noticed['t']))} after the board noticed it"
            )
            onset = f"silent, {_ms(silent['t'] - stop['speech_start'])} after the onset"
            stage.recorder.add(
                "demo",
                "zoom",
                start=stop["speech_start"] - 0.25,
                end=silent["t"] + 0.25,
                title="the interruption, enlarged",
                marks=[
                    {"at": stop["speech_start"], "text": "the user speaks", "kind": "user"},
                    {"at": noticed["t"], "text": "the board notices", "kind": "interrupt"},
                    {"at": silent["t"], "text": onset, "kind": "ok"},
                ],
            )

    # --- scene 4

    async def cut(self) -> None:
        """The connection is cut in the middle of a call."""
        stage = self._stage
        with stage.scene("“Check the house”, and the connection is cut in the middle") as scene:
            said = self._say("Check the house.")
            call = await self._called(said, "check_house")
            middle = await stage.expect(
                "the check of the house is under way",
                "device",
                "progress",
                within=6,
                after=call,
                text=_contains("back door"),
            )
            proxy = self._rig.proxy
            cut = proxy.cut()
            proxy.refusing = True
            stage.check("the connection is cut", cut == 1, f"{cut} connections")
            lost = await stage.expect("the board notices", "device", "lost", within=5, after=middle)
            await asyncio.sleep(AWAY_S)
            proxy.refusing = False
            ready = await stage.expect(
                "it comes back and resumes the session",
                "device",
                "ready",
                within=20,
                after=lost,
                resumed=True,
                detail=lambda event: f"after {event['t'] - lost['t']:.2f} s",
            )
            scene.note = f"resumed {ready['t'] - lost['t']:.2f} s after the cut"
            result = await self._result(call, True)
            stage.check(
                "its result is that of the first run", result["t"] > lost["t"], "a result before the cut"
            )
            await self._answers(result, "front door is unlocked")
            runs = len(stage.seen("device", "call_start", call=call["call"]))
            stage.check("the call ran once", runs == 1, f"{runs} runs")
            settled = len(stage.seen("host", "call.settled", id=call["call"]))
            stage.check("its result reached the agent once", settled == 1, f"{settled} results")

    # --- what the scenes have in common

    def _say(self, text: str) -> Event:
        return self._user.say(self._sentences[text], text)

    def _level(self, output: str) -> int:
        return self._rig.board.hardware.outputs[output]

    async def _called(self, said: Event, name: str, **arguments: str) -> Event:
        """The host understood, and the call reached the board."""
        end = said.get("speech_end")
        return await self._stage.expect(
            f"the host calls {name}({', '.join(f'{key}={value}' for key, value in arguments.items())})",
            "device",
            "call",
            within=HEARD_S + (0 if end is None else max(0.0, end - self._stage.recorder.now)),
            after=said,
            name=name,
            arguments=arguments,
            detail=None if end is None else lambda event: f"{_ms(event['t'] - end)} after the last word",
        )

    async def _asked(self, call: Event) -> Event:
        asked = await self._stage.expect(
            "the board asks for the button",
            "device",
            "confirm_asked",
            within=2,
            after=call,
            call=call["call"],
        )
        await self._stage.expect(
            "its light says so", "hardware", "led", within=2, after=call, state="confirm"
        )
        return asked

    async def _speaks(self, step: str, call: Event, words: str) -> Event:
        """The agent says something with these words because of a call, and the speaker sounds."""
        sounds = await self._stage.expect(
            "the speaker sounds", "hardware", "sound", within=HEARD_S, after=call, on=True
        )
        await self._stage.expect(
            step, "device", "transcript", within=HEARD_S, after=call, role="agent", text=_contains(words)
        )
        return sounds

    async def _sounding(self) -> None:
        """Wait out a gap between two words: only what is heard can be interrupted."""
        last = self._stage.seen("hardware", "sound")[-1]
        if not last["on"]:
            recorder = self._stage.recorder
            with contextlib.suppress(NotSeen):
                await recorder.wait_for(_starts_to_sound, within=5, after=recorder.events.index(last))

    async def _result(self, call: Event, ok: bool, code: str | None = None) -> Event:
        return await self._stage.expect(
            f"{call['name']} answers {'with its result' if ok else code}",
            "device",
            "result",
            within=EXPIRE_S,
            after=call,
            call=call["call"],
            ok=ok,
            code=code,
        )

    async def _answers(self, result: Event, words: str) -> None:
        """The spoken answer has these words, and is played to its end."""
        told = await self._stage.expect(
            "the spoken answer says so",
            "device",
            "transcript",
            within=SPOKEN_S,
            after=result,
            role="agent",
            text=_contains(words),
            detail=lambda event: f"“{event['text'].strip()}”",
        )
        await self._stage.expect("it is heard to its end", "device", "played", within=SPOKEN_S, after=told)
        await self._rests(told)

    async def _rests(self, since: Event) -> None:
        """The board listens again."""
        await self._stage.expect(
            "the board listens again", "hardware", "led", within=SPOKEN_S, after=since, state="listening"
        )

    async def _pause(self) -> None:
        """Until the board is at rest and nothing has changed for a moment: what was said last is over for the host too."""
        recorder = self._stage.recorder
        deadline = recorder.now + SPOKEN_S
        while recorder.now < deadline:
            try:
                await recorder.wait_for(_changes, within=PAUSE_S, after=recorder.mark())
            except NotSeen:
                if self._rig.board.hardware.led in RESTING:
                    return


def _starts_to_sound(event: Event) -> bool:
    return bool(event["event"] == "sound" and event["on"])


def _changes(event: Event) -> bool:
    return event["event"] in {"led", "sound", "turn", "transcript"}


def _contains(words: str) -> Callable[[str], bool]:
    """A test for texts that have one of the words (a regular expression)."""
    pattern = re.compile(words, re.IGNORECASE)

    def test(text: str | None) -> bool:
        return text is not None and pattern.search(text) is not None

    test.__name__ = f"/{words}/"
    return test


def _first_sound(stage: Stage, said: Event) -> str:
    """How long after the last word the first sound came, in words."""
    sounds = [event for event in stage.seen("hardware", "sound", on=True) if event["t"] > said["speech_end"]]
    return f"first sound {_ms(sounds[0]['t'] - said['speech_end'])} after the last word" if sounds else ""


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"
