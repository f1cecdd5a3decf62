"""The one question that an Omnia facade may have to the user before a call (`consent_message`), and what counts as a yes."""

from __future__ import annotations

from dataclasses import dataclass

from vrt_host.agents.alarm import Alarm
from vrt_host.agents.base import Text
from vrt_host.agents.omnia_calls import Calls, OpenCall
from vrt_host.agents.omnia_messages import ToolCall
from vrt_host.agents.omnia_mouth import Mouth
from vrt_host.agents.omnia_turn import Outlet, Turn
from vrt_host.consent import ANSWER_S, plain_yes
from vrt_host.speech.words import normalise

QUIET_S = 1.0
"""Nothing more was said to a question for so long: it has been asked."""
_NO = frozenset(("no", "no thanks", "no thank you", "do not", "stop", "cancel", "never mind"))


def plain_no(text: str) -> bool:
    """Whether this is a no and nothing else."""
    return " ".join(normalise(text)) in _NO


@dataclass(slots=True, eq=False)
class Question:
    """What the facade wants to know of the user before a call."""

    call: OpenCall
    turn: Turn
    asked: bool = False
    before: tuple[Turn, int] | None = None
    """Words of a turn that are late ones of what was said before the question, and so no answer to it."""

    def words(self, turn: Turn) -> str:
        """What the user said in that turn to the question."""
        if turn is self.turn:
            return ""
        return turn.heard[self.before[1] if self.before and self.before[0] is turn else 0 :]


class Asker:
    """Asks, and knows when nobody will answer any more."""

    def __init__(self, outlet: Outlet, calls: Calls, mouth: Mouth) -> None:
        self._outlet = outlet
        self._calls = calls
        self._mouth = mouth
        self.open: Question | None = None
        self._asking = Alarm(outlet.later, self._asked)
        self._due = Alarm(outlet.later, self._unanswered)

    def ask(self, call: OpenCall, wanted: ToolCall, turn: Turn) -> None:
        """By the facade's own words, as a text."""
        if self.open is not None:
            self._calls.refuse(call, "REJECTED: the user is being asked something else")
            return
        self.open = Question(call, turn)
        self._due.set(ANSWER_S)
        concerns = f" ({', '.join(wanted.categories)})" if wanted.categories else ""
        self._outlet.say(Text(turn.key, wanted.consent + concerns, final=not turn.typed))
        turn.wrote = turn.wrote or turn.typed
        if turn.typed:
            self._asked()
        else:
            self.more()

    def more(self) -> None:
        """The agent has said something. Where there is speech, it may speak its question itself."""
        if self.open is not None and not self.open.asked:
            self._asking.set(QUIET_S)

    def _asked(self) -> None:
        if self.open is not None and not self.open.asked:
            self.open.asked = True
            self._mouth.end(self.open.turn)

    def _unanswered(self) -> None:
        question = self.open
        if question is not None:
            self.refuse("the user did not answer in time")
            self._mouth.end(question.turn)

    def doubtful(self, turn: Turn) -> bool:
        """Whether the user's words so far are a yes, which more of them may take back."""
        return self.open is not None and plain_yes(self.open.words(turn))

    def taken(self) -> Question | None:
        """The open question, which is not open any more."""
        question, self.open = self.open, None
        self.close()
        return question

    def refuse(self, why: str) -> None:
        """It is answered by no."""
        question = self.taken()
        if question is not None:
            self._calls.refuse(question.call, f"REJECTED: {why}" if why else "")

    def close(self) -> None:
        """Nothing is due any more."""
        self._asking.stop()
        self._due.stop()
