"""What can go wrong with somebody else's model server, and how it is told: the same words for all adapters.

A `ProviderError` says of what kind it is. The kind decides whether it is tried again, what the operator can do, and
whether the device may hope (`error.recoverable`, vRT §9).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from typing import Literal

from vrt_host.agents.base import AgentError
from vrt_host.errors import AgentStartError, VrtError

Kind = Literal[
    "key",
    "model",
    "format",
    "rate",
    "quota",
    "expired",
    "version",
    "refused",
    "malformed",
    "unreachable",
    "gone",
]

_ADVICE: dict[Kind, str] = {
    "key": "check the key",
    "model": "choose a model that this account may use",
    "format": "choose an audio format, voice and options that this model takes",
    "rate": "wait, or ask the provider for a higher limit",
    "quota": "look at the account's balance and limits",
    "expired": "get a new token",
    "version": "the two do not speak the same version: update the older one, or check the address",
    "refused": "see the provider's words",
    "malformed": "it does not speak this protocol as documented: check the address and the version",
    "unreachable": "check the address and the network",
    "gone": "it is tried again",
}
"""Kind -> what the operator can do."""

PASSING: frozenset[Kind] = frozenset({"rate", "refused", "malformed", "unreachable", "gone"})
"""What may be over in a while: the device is told that it is recoverable."""
RETRIED: frozenset[Kind] = frozenset({"rate", "unreachable", "gone"})
"""What trying again can help."""

CODES: dict[Kind, str] = {
    "key": "PROVIDER_AUTH_FAILED",
    "expired": "PROVIDER_AUTH_FAILED",
    "rate": "PROVIDER_RATE_LIMITED",
    "quota": "PROVIDER_RATE_LIMITED",
    "unreachable": "PROVIDER_UNAVAILABLE",
    "gone": "PROVIDER_UNAVAILABLE",
}
"""Kind -> `error.code` (vRT §9.2, an open set); of the other kinds it is AGENT_ERROR. They are Omnia's, for its clients."""

_SAID = 300
_SHORT = 8
_FIRST_S, _LONGEST_S = 0.5, 30.0


class ProviderError(VrtError):
    """A provider refused, broke or left; `said` are its own words."""

    def __init__(
        self, kind: Kind, said: str, *, advice: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(said)
        self.kind = kind
        self.said = said
        self.advice = advice or _ADVICE[kind]
        self.retry_after_s = retry_after_s
        """When the provider asked to be left alone for so long."""

    @property
    def passing(self) -> bool:
        """Whether it may be over in a while."""
        return self.kind in PASSING

    @property
    def retried(self) -> bool:
        """Whether trying again can help."""
        return self.kind in RETRIED

    @property
    def code(self) -> str:
        """`error.code` (vRT §9.2)."""
        return CODES.get(self.kind, "AGENT_ERROR")

    def line(self, agent: str, secrets: Iterable[str] = ()) -> str:
        """One line: the adapter, what the provider said without any of `secrets`, and what to do."""
        said = " ".join("".join(c if c.isprintable() else " " for c in self.said).split())
        for secret in secrets:
            if len(secret) < _SHORT:  # which is part of other words, too
                said = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", said) if secret else said
            else:
                said = said.replace(secret, "***")
        if len(said) > _SAID:
            said = said[:_SAID] + "..."
        return f"{agent}: {said.rstrip('.') or self.kind}; {self.advice}"

    def event(self, agent: str, turn: str | None = None, secrets: Iterable[str] = ()) -> AgentError:
        """What the session is told."""
        return AgentError(self.line(agent, secrets), self.passing, turn, self.code)


def why(error: AgentStartError) -> str:
    """`error.code` of what kept an agent from starting: of the provider's error that it was made of, if of one."""
    cause = error.__cause__ or error.__context__
    return cause.code if isinstance(cause, ProviderError) else "AGENT_ERROR"


class Backoff:
    """Seconds to wait before the next try: doubled each time up to half a minute, with jitter so that hosts spread."""

    def __init__(self, dice: random.Random | None = None) -> None:
        self._dice = dice or random.Random()
        self.failures = 0

    def next(self, error: ProviderError | None = None) -> float:
        """One more failure; what the provider asked for is kept to, a minute at most."""
        wait = min(_LONGEST_S, _FIRST_S * 2.0 ** min(self.failures, 10))
        self.failures += 1
        wait *= 0.5 + self._dice.random() / 2
        asked = error.retry_after_s if error is not None else None
        return wait if asked is None else max(wait, min(60.0, asked))

    def reset(self) -> None:
        """It worked."""
        self.failures = 0
