"""The turns of an AITP conversation: what the server owes, what the user waits for, and when it is waited for no longer."""

from __future__ import annotations

import itertools
import logging
from typing import Literal

from vrt_host.agents import aitp_messages as messages
from vrt_host.agents.aitp_messages import Frame
from vrt_host.agents.aitp_sound import Sound
from vrt_host.agents.aitp_turn import History, Outlet, Turn
from vrt_host.agents.base import Audio, AudioEnd, Text, Transcript, TurnBegin, TurnEnd

log = logging.getLogger(__name__)

_TURNS = 8
"""Turns that are remembered: an interruption may name one that was made long ago, and is still being played."""
_ANSWER_S = 30.0
"""How long an answer, or the next part of it, may take (LLM_RESPONSE_TIMEOUT)."""
_SPOKEN_S = 12.0
"""The same for speech: the server may find that nothing was said."""
_TAIL_S = 2.0
"""What the server says unasked, a recording behind its text for one, is over after so much quiet."""
LATE_S = 0.3
"""So long after the end of an interrupted answer, what comes unasked belongs to it."""
_INPUTS = 32
"""What the user said may wait for the server; the oldest is dropped."""
_WORDS_S = 0.5
"""The user's words are complete when no more have come for so long."""


class Turns:
    """Of one session, over any number of connections."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._keys = itertools.count(1)
        self._turns: dict[str, Turn] = {}
        self._turn: Turn | None = None
        self._inputs: list[Frame] = []
        """What the user typed, or said as a whole, and the server does not have yet."""
        self._held_until = 0.0
        self._online = False
        self._dead = False
        self._late_until = 0.0
        self._echoes = 0
        """Interruptions that the server has not confirmed."""
        self._news_at = self._heard_at = 0.0
        self._sound = Sound()
        self.history = History()
        self.speaking = False
        """The user, as this host's ear finds."""

    def _news(self) -> None:
        self._news_at = self._outlet.now()

    # --- begin and end

    def _begin(self, state: Literal["listening", "thinking"], *, typed: bool = False) -> Turn:
        """A new turn, and the end of the one before."""
        old = self._turn
        if old is not None and not old.ended:
            self._record(old)
            if old.asked and self._online and not (old.left or old.overdue):
                self._die()
        self._outlet.hush()
        turn = self._turn = Turn(f"turn-{next(self._keys)}", typed)
        self._turns[turn.key] = turn
        if len(self._turns) > _TURNS:
            del self._turns[next(iter(self._turns))]
        self._outlet.emit(TurnBegin(turn.key, state))
        self._news()
        return turn

    def _go_on(self) -> Turn:
        """The turn for what the server says unasked: the last one, if that has not ended for the device, else a new one."""
        turn = self._turn
        return turn if turn is not None and self._reopen(turn) else self._begin("thinking")

    def _reopen(self, turn: Turn) -> bool:
        """Whether a turn that has ended goes on, since the device does not know of its end."""
        if not self._outlet.reopen(turn.key):
            return False
        turn.ended = turn.asked = False
        return True

    def _end_item(self, turn: Turn) -> None:
        if turn.open and turn.item is not None:
            turn.open = False
            if rest := self._sound.end():
                self._outlet.say(Audio(turn.key, turn.item, rest))
            self._outlet.say(AudioEnd(turn.key, turn.item))

    def _finish(self, turn: Turn) -> None:
        """All of the answer has come."""
        self._tell_heard(turn, now=True)
        if turn.captioned:
            self._outlet.say(Transcript(turn.key, "agent", "", final=True, item=turn.item))
        self._end_item(turn)
        if turn.texted:
            self._outlet.say(Text(turn.key, "", final=True))
        self._record(turn)
        turn.ended = True
        self._outlet.say(TurnEnd(turn.key))

    def _drop(self, turn: Turn) -> None:
        """The turn ends with an error, which the caller reports."""
        turn.left = True
        self._turn = None
        self._tell_heard(turn, now=True)
        self._record(turn)
        self._outlet.hush()

    def _leave(self, turn: Turn) -> None:
        """Tell the server that nobody listens to the turn any more."""
        if turn is self._turn:
            self._turn = None
            self._outlet.hush()
            self._record(turn)
        if turn.left or turn.overdue or not self._online:
            return
        turn.left = True
        owed = turn.asked and not turn.ended
        if owed:
            self._die()
        elif turn.out:
            self._expect_late()
            if not turn.ended:  # what is typed now must not be answered by the rest of it
                self._held_until = max(self._held_until, self._late_until)
        if owed or turn.out:
            self._echoes += 1
            self._outlet.send("VOICE_INTERRUPT", {"reason": "barge_in"})

    def _record(self, turn: Turn) -> None:
        self.history.add("agent", turn.said)
        turn.said = ""

    def _die(self) -> None:
        """What comes now belongs to an answer that nobody wants."""
        self._dead = True
        self._news()

    def _revive(self) -> None:
        """That answer is over."""
        self._dead = False
        self._expect_late()
        self._send_inputs()

    def _expect_late(self) -> None:
        """An answer was interrupted, and some of it may still be on its way."""
        self._late_until = self._outlet.now() + LATE_S

    # --- what the user says

    def _ask(self, turn: Turn) -> None:
        """The server owes an answer in this turn."""
        turn.asked, turn.ends_at = True, None
        self._news()

    def _input(self, payload: Frame) -> None:
        """The user said this."""
        self._inputs.append(payload)
        self._send_inputs()
        if len(self._inputs) > _INPUTS:
            log.warning("aitp: more than %d inputs wait for the server; the oldest is dropped", _INPUTS)
            del self._inputs[0]

    def _send_inputs(self) -> None:
        """What the user typed goes out when the server is there and has nothing else to answer; what waited together, together."""
        if not self._online or self._dead or self._outlet.now() < self._held_until:
            return
        while self._inputs:
            said = self._inputs.pop(0)
            while self._inputs and (joined := _joined(said, self._inputs[0])) is not None:
                said = joined
                del self._inputs[0]
            self._outlet.send("USER_INPUT", said)
            if self._turn is not None:
                self._ask(self._turn)

    def _tell_heard(self, turn: Turn, *, now: bool = False) -> None:
        """Say that the user's words are complete. A call must not see too few of them, so before one they get time."""
        text = turn.heard.strip()
        if not text or text == turn.told:
            return
        if now or self._outlet.now() - self._heard_at >= _WORDS_S:
            if not turn.told:
                self.history.add("user", text)
            turn.told = text
            self._outlet.emit(Transcript(turn.key, "user", text, final=True))

    # --- time

    def _wait(self, now: float) -> None:
        """Do what is due to the turn, and end it when what it waits for does not come."""
        if self._dead and self._online and now - self._news_at >= _ANSWER_S:
            self._revive()
        self._send_inputs()
        turn = self._turn
        if turn is None or turn.ended:
            return
        if turn.out or turn.asked:
            self._tell_heard(turn)
        if turn.calls or self.speaking or not self._online:
            return
        quiet = now - max(self._news_at, self._heard_at)
        if turn.ends_at is not None:
            if now >= turn.ends_at:
                self._finish(turn)
        elif turn.out:
            if quiet >= (_ANSWER_S if turn.asked else _TAIL_S):
                self._finish(turn)
        elif turn.typed and turn.asked:
            if quiet >= _ANSWER_S:
                self._drop(turn)
                said = f"the server gave no answer within {_ANSWER_S:g} s"
                self._outlet.report(said, turn.key, advice="ask again")
        elif not turn.typed and quiet >= _SPOKEN_S:
            self._finish(turn)


def _joined(one: Frame, other: Frame) -> Frame | None:
    """Two texts as one, if the server takes that."""
    if one["modality"] != "text" or other["modality"] != "text":
        return None
    content = f"{one['content']}\n\n{other['content']}"
    return (
        {"modality": "text", "content": content} if messages.length(content) <= messages.TEXT_CHARS else None
    )
