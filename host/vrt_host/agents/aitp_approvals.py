"""Tools of the server's own that wait for the user ("Human Approval"): asked of the user, and never assumed.

A question is a text of the agent's, with which its turn ends. What the user says next decides: a plain yes approves, anything else
refuses; so do an interruption of that turn, or of what the server says to it by itself, and time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from vrt_host.agents.aitp_messages import ApprovalRequest, Frame
from vrt_host.consent import ANSWER_S, plain_yes
from vrt_host.speech.words import normalise

DENIED = "Action denied by user"
_NO = frozenset(("no", "no thanks", "no thank you", "cancel", "stop", "do not"))
_WAITING = 8
"""Questions that may wait for each other."""
_KNOWN = 64
"""Those of a connection that are remembered."""

Answer = Literal["yes", "no", "other"]


@dataclass(slots=True)
class _Question:
    request: ApprovalRequest
    turn: str = ""
    """In which it is asked."""
    expires: float | None = None
    again: bool = False
    """Something else was written after it: it is to be asked when that has been read."""


class Approvals:
    """Questions, one after the other."""

    def __init__(self) -> None:
        self._questions: deque[_Question] = deque()
        self._known: deque[str] = deque(maxlen=_KNOWN)

    def __bool__(self) -> bool:
        return bool(self._questions)

    @property
    def unasked(self) -> bool:
        """Whether the first one is still to be asked."""
        return bool(self._questions) and not self._questions[0].turn

    @property
    def asked(self) -> bool:
        """Whether the first one was."""
        return bool(self._questions) and bool(self._questions[0].turn)

    def is_new(self, request: ApprovalRequest) -> bool:
        """Whether this connection has not had it before: a question has one answer."""
        if request.call_id in self._known:
            return False
        self._known.append(request.call_id)
        return True

    def add(self, request: ApprovalRequest) -> bool:
        """Another one; False: there are too many."""
        if len(self._questions) >= _WAITING:
            return False
        self._questions.append(_Question(request))
        return True

    def ask(self, turn: str) -> str:
        """The first one is asked in that turn: the words."""
        self._questions[0].turn, self._questions[0].again = turn, False
        request = self._questions[0].request
        return f"{request.message.strip() or request.tool_name} (Yes or no?)"

    @property
    def again(self) -> bool:
        """Whether the first one is to be asked once more."""
        return bool(self._questions) and self._questions[0].again

    def distract(self) -> None:
        """The server writes while the question is open: a yes would be for that."""
        if self.asked:
            self._questions[0].turn, self._questions[0].expires, self._questions[0].again = "", None, True

    def said_more(self, turn: str) -> None:
        """The server speaks while the question is open: it was heard when that was."""
        if self.asked:
            self._questions[0].turn, self._questions[0].expires = turn, None

    def heard_out(self, now: float) -> None:
        """All that was said was heard."""
        if self.asked and self._questions[0].expires is None:
            self._questions[0].expires = now + ANSWER_S

    def overdue(self, now: float) -> bool:
        """Whether nobody has answered the first one in time."""
        return bool(self._questions) and now >= (self._questions[0].expires or now + 1)

    def asked_in(self, turn: str) -> bool:
        """Whether the first one is asked in that turn."""
        return self.asked and self._questions[0].turn == turn

    def judge(self, text: str) -> Answer:
        """What the user's words mean."""
        if plain_yes(text):
            return "yes"
        return "no" if " ".join(normalise(text[:200])) in _NO else "other"

    def settle(self, *, approved: bool) -> Frame:
        """The answer to the first one; it is open no more."""
        request = self._questions.popleft().request
        return response(request.call_id, approved=approved)

    def forget(self) -> None:
        """The server has forgotten them, too."""
        self._questions.clear()
        self._known.clear()


def response(call_id: str, *, approved: bool) -> Frame:
    """APPROVAL_RESPONSE to a tool of the server's."""
    return {"callId": call_id, "approved": approved} | ({} if approved else {"error": DENIED})
