"""Confirmation by voice for agents that answer with somebody else's model (design: `confirm="voice"`).

A model says that the user agreed as easily as it says anything else. So its word does not count: a call that is confirmed
by voice is refused at first, with the sentence to ask. What lets the same call through the next time is that the agent's own
words of that turn have the sentence in them, that the user heard the turn to its end, and that the user's next words, as
they were transcribed or typed, are a plain yes. It then serves one call with the same arguments, in the turn of that yes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vrt_host.agents.base import Json, Tool
from vrt_host.speech.words import normalise

ANSWER_S = 20.0
"""How long a question waits for its yes, from the end of the turn in which it was asked."""
TRANSCRIPT_S = 3.0
"""How long a call waits for the transcript of what the user said before it: models are quicker than their transcripts."""
_YES = frozenset(("yes", "yeah", "yes please", "confirm", "yes confirm", "yes do it", "yes do that"))
_TEXT = 4_000

Decision = Literal["yes", "no", "wait"]


@dataclass(slots=True)
class _Question:
    call: tuple[str, str]
    """The tool and its arguments."""
    turn: str
    """Where it has to be asked; then, where it was answered."""
    words: str
    state: Literal["refused", "asked", "answered"] = "refused"
    expires: float = 0.0


def question(tool: Tool, arguments: Mapping[str, Json]) -> str:
    """What the user has to be asked before this call."""
    values = [f"{_spoken(name)} {_spoken(value)}" for name, value in arguments.items()]
    return f"Shall I do this: {', '.join([_spoken(tool.name), *values])}?"


def _spoken(value: Json) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (dict, list)):
        rows = value.items() if isinstance(value, dict) else ((str(i), one) for i, one in enumerate(value, 1))
        return " ".join(f"{_spoken(name)} {_spoken(one)}" for name, one in rows)
    return (
        str(value).replace("_", " ").replace(".", " ").replace("-", " ")
        if isinstance(value, str)
        else f"{value}"
    )


class Consent:
    """The one question that may be open in a session."""

    def __init__(self) -> None:
        self._question: _Question | None = None
        self._said = {"heard": "", "shown": ""}  # what the agent has said in the turn of the question
        self._typed: bool | None = None  # whether the text before the next turn was a yes

    def decide(self, turn: str, tool: Tool, arguments: Mapping[str, Json]) -> Decision:
        """Whether this call may go out; `wait` until the user's words are known. A yes is used up by it."""
        asked = self._question
        if asked is None or asked.call != _bound(tool, arguments):
            return "no"
        if asked.state == "answered" and asked.turn == turn:
            self._question = None
            return "yes"
        return "wait" if asked.state == "asked" and asked.turn != turn else "no"

    def refuse(self, turn: str, tool: Tool, arguments: Mapping[str, Json]) -> str:
        """The call was not allowed: what the model is told, which has to ask in this turn."""
        sentence = question(tool, arguments)
        self._question = _Question(_bound(tool, arguments), turn, " ".join(normalise(sentence)))
        self._said = dict.fromkeys(self._said, "")
        return (
            f"{tool.name} did not run: the user has to be asked first. Say exactly this and nothing after it, then wait: "
            f'"{sentence}" If the user answers with a plain yes, make the same call again.'
        )

    def agent_said(self, turn: str, text: str, way: Literal["heard", "shown"]) -> None:
        """The next words of the agent: the transcript of what is heard, or a text to read."""
        if self._question is not None and self._question.state == "refused" and self._question.turn == turn:
            self._said[way] = (self._said[way] + text)[-_TEXT:]

    def turn_ended(self, turn: str, now: float) -> None:
        """All of the turn was heard."""
        asked = self._question
        if asked is None or asked.turn != turn:
            return
        said = (f" {' '.join(normalise(text))} " for text in self._said.values())
        if asked.state == "refused" and any(f" {asked.words} " in text for text in said):
            asked.state, asked.expires = "asked", now + ANSWER_S
        else:
            self._question = None  # nobody asked, or the yes was not used

    def turn_interrupted(self, turn: str) -> None:
        """The turn was cut short: what was asked in it was not heard out, and a yes in it is no more."""
        if self._question is not None and self._question.turn == turn:
            self._question = None

    def turn_began(self, turn: str, now: float) -> None:
        """A new turn; what was typed before it belongs to it."""
        asked, typed = self._question, self._typed
        self._typed = None
        if asked is None:
            return
        if now > asked.expires and asked.state == "asked":
            self._question = None
        elif typed is not None:
            self._answer(turn, typed)

    def user_said(self, turn: str, text: str) -> None:
        """The user's words in a turn, complete."""
        if self._question is not None and self._question.state != "refused":
            self._answer(turn, plain_yes(text))

    def user_typed(self, text: str) -> None:
        """The user's text, that the next turn answers."""
        self._typed = plain_yes(text)

    def _answer(self, turn: str, yes: bool) -> None:
        asked = self._question
        if asked is None:
            return
        if yes and asked.state == "asked":
            asked.state, asked.turn = "answered", turn
        else:
            self._question = None  # something else was said


def _bound(tool: Tool, arguments: Mapping[str, Json]) -> tuple[str, str]:
    """As text: 1, 1.0 and true are equal, and not the same argument."""
    return tool.name, json.dumps(arguments, sort_keys=True)


def plain_yes(text: str) -> bool:
    """Whether these words of the user's are a yes and nothing else."""
    return " ".join(normalise(text[:_TEXT])) in _YES
