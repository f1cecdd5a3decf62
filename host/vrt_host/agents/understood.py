"""What was understood of one utterance by comparing what two recognisers heard, and the words that are shown for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vrt_host.agents.agreement import Sounds
from vrt_host.agents.intents import Beyond, Intents, Meaning, complete

YES_MS = 1000
"""Speech in a yes, at most: in what is longer something else was said, too, and not heard."""


@dataclass(frozen=True, slots=True)
class Understood:
    """An utterance: its meaning, if both recognisers heard the same."""

    free: str
    """What the free recogniser wrote."""
    text: str
    """What to show as said: the sentence that was agreed on, in the free recogniser's words if they are one, else just
    what it wrote."""
    meaning: Meaning | None = None
    beyond: Beyond | None = None
    """They agree on a command but for a number that it does not take; nothing is to be done."""

    @property
    def is_yes(self) -> bool:
        """It lets what was asked for happen."""
        return self.meaning is not None and self.meaning.control == "yes"

    def doubted(self) -> Understood:
        """The same, with nothing agreed on."""
        return Understood(self.free, self.free)


def compare(  # noqa: PLR0917
    intents: Intents, grammar: str, free: str, against: float, sounds: Sounds, others: Sequence[str] = ()
) -> Understood:
    """What the sentence that the grammar heard and the free text have in common; `against` as in `Intents.agree`.

    `others`: sentences that the free recogniser finds nearly as likely as the grammar's. None of them may mean something else,
    unless nothing happens before somebody agreed.
    """
    meaning = intents.agree(grammar, free, sounds, against)
    if meaning is not None and not meaning.asks and _doubtful(intents, meaning, others):
        return Understood(free, free)
    if meaning is None:
        return Understood(free, free, beyond=intents.beyond(free, grammar))
    written = intents.parse(free)
    same = written is not None and written.same(meaning)
    return Understood(free, _sentence(free if same else complete(grammar), free), meaning)


def _doubtful(intents: Intents, meaning: Meaning, others: Sequence[str]) -> bool:
    """Whether one of the others means something else."""
    if meaning.control not in (None, "yes"):
        return False
    read = (intents.parse(text) for text in others)
    return any(other is not None and not other.same(meaning) for other in read)


def stopped(intents: Intents, grammar: str, free: str) -> Understood | None:
    """A stop that one recogniser alone heard: enough while the device speaks, because it does no harm."""
    for text in (complete(grammar), free):
        meaning = intents.parse(text)
        if meaning is not None and meaning.control == "stop":
            return Understood(free, _sentence(text, free), meaning)
    return None


def _sentence(said: str, free: str) -> str:
    """A sentence as it is written, with the end that the free recogniser heard."""
    words = said.rstrip(" .,;:")
    return (
        words[:1].upper() + words[1:] + ("" if words[-1:] in ("?", "!") else "?" if free[-1:] == "?" else ".")
    )
