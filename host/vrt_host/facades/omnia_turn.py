"""What is known of one session of Omnia's facade: the turn that the client sees, and what was said."""

from __future__ import annotations

from collections import deque

from vrt_host.agents.base import Json

SAID = 20
"""Utterances that go on in the context of the next agent."""
SAID_CHARS = 400
FAILED = "INTERNAL_ERROR", "internal server error"
_TOLD = {
    "PROVIDER_RATE_LIMITED": "the model's provider has limited the rate; try again in a while",
    "PROVIDER_UNAVAILABLE": "the model's provider cannot be reached; try again shortly",
    "PROVIDER_AUTH_FAILED": "the model's provider refused the server's credentials",
    "PROVIDER_TIMEOUT": "the agent did not begin to answer",
    "PROVIDER_STALLED": "the agent's answer stopped partway",
    "MAX_ROUNDS_EXCEEDED": "the turn stopped at the agent's limit of tool calls",
}
"""`error.code` of an agent's error that its clients are told as such, and in which words: never the agent's."""


def failure(code: str) -> tuple[str, str]:
    """Error codes: what a client is told of a turn that failed with this code (vRT §9.2)."""
    return (code, _TOLD[code]) if code in _TOLD else FAILED


class Turn:
    """What the client has seen of a turn."""

    def __init__(self, id_: str, *, text: bool) -> None:
        self.id = id_
        self.text = text
        """It answers a message."""
        self.begun = False
        self.broken: str | None = None
        """The code of an error that was told meanwhile."""
        self.kind: str | None = None
        """Whether its words are what is `spoken` or what is `written`: an agent can give both."""
        self.words: list[str] = []


class Said:
    """The last utterances of a session."""

    def __init__(self) -> None:
        self._said: deque[dict[str, str]] = deque(maxlen=SAID + 1)

    def note(self, role: str, text: str) -> None:
        """One more."""
        self._said.append({"role": role, "text": text[:SAID_CHARS]})

    def forget(self) -> None:
        """The context has expired."""
        self._said.clear()

    def context(self, *, opening: bool) -> Json:
        """For an agent that begins; `opening`: the last one is what the session is opened with, which it is told as such."""
        said = list(self._said)[: -1 if opening else None][-SAID:]
        return {"conversation": said} if said else None
