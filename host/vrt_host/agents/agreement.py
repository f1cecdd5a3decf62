"""Whether two recognisers heard the same sentence.

The grammar's recogniser forces every sound into some command; the free one writes "look the front door". They agree
when the free text is the command word for word, or when every word of the command is there by spelling or by sound
and nothing else of substance is: "is the light on" and "do not turn the light on" are not "turn the light on".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rapidfuzz.distance import Indel

from vrt_host.speech.words import numbers

Sounds = Callable[[str], Sequence[Sequence[str]]]
"""The pronunciations of a word, each a list of phones; none when it is not in the dictionary."""

ALIKE = 0.55
"""Words less similar than this are different words."""
_ALIKE_JOINED = 0.7
"""The same where two words stand for one: more letters match by chance."""
SMALL = 0.1
"""The cost of a small word too many or too few, and of two words for one."""
NEARLY = 5.0
NEARLY_WHEN_ASKED = 8.0
"""A sentence that the free recogniser finds less likely than its own text by no more than this (a logarithm) is what
was said, garbled, if the values of its slots are there; more may pass when somebody still has to agree. Measured:
`docs/local.md`."""
FILLERS = frozenset("a an the to of my your please uh um oh okay ok hey now just then so well there".split())  # noqa: SIM905
_HOMOPHONES = {"to": "two", "too": "two", "for": "four", "fore": "four", "won": "one", "ate": "eight"}


def limit(words: Sequence[str]) -> float:
    """The cost up to which a free text counts as this command."""
    return 0.2 * sum(word not in FILLERS for word in words)


class Fuzzy:
    """Compares expected words with heard ones by spelling and by sound (a `templates.Listener`)."""

    def __init__(self, heard: Sequence[str], sounds: Sounds) -> None:
        self.heard = heard
        self._sounds = sounds
        self._known: dict[tuple[str, int, int], float] = {}
        self._numbers = [_HOMOPHONES.get(word, word) for word in heard]

    def expect(self, expected: Sequence[str], start: int) -> Iterable[tuple[int, float]]:
        """Ends and costs (`templates.Listener`): words pair one to one, or two heard for one expected, or one for two."""
        reached = {(0, start): 0.0}
        for index in range(len(expected)):
            for (done, at), cost in list(reached.items()):
                if done == index:
                    for state, more in self._pair(expected, index, at):
                        reached[state] = min(cost + more, reached.get(state, cost + more))
        return [(at, cost) for (done, at), cost in reached.items() if done == len(expected)]

    def _pair(self, expected: Sequence[str], index: int, at: int) -> Iterable[tuple[tuple[int, int], float]]:
        """How the word at `index` may be met at `at`: (words done, words used) and the cost."""
        if expected[index] in FILLERS:
            yield (index + 1, at), SMALL
        skipped = 0.0
        while at < len(self.heard):
            for many, size in ((1, 1), (1, 2), (2, 1)):
                alike = self._joined(expected[index : index + many], at, size)
                if alike >= (ALIKE if many == size else _ALIKE_JOINED):
                    yield (index + many, at + size), skipped + 1 - alike + (0 if many == size else SMALL)
            if self.heard[at] not in FILLERS:
                return
            at, skipped = at + 1, skipped + SMALL

    def _joined(self, expected: Sequence[str], at: int, size: int) -> float:
        """Similarity of words written together; none if one of them alone is as similar: the other was not said."""
        alike = self._alike("".join(expected), at, size)
        if len(expected) == size:
            return alike
        parts = [(word, place) for word in expected for place in range(at, min(at + size, len(self.heard)))]
        return alike if all(self._alike(word, place, 1) < alike for word, place in parts) else 0.0

    def holds(self, words: Sequence[str]) -> bool:
        """Whether each of these words was heard somewhere, as far as one can tell."""
        return all(any(self._alike(word, at, 1) >= ALIKE for at in range(len(self.heard))) for word in words)

    def expect_number(self, start: int) -> Iterable[tuple[int, int, float]]:
        """Numbers (`templates.Listener`); "for" may be "four"."""
        while start < len(self.heard):
            for end, value in numbers(self._numbers, start):
                yield end, value, 0.0 if self._numbers[start:end] == list(self.heard[start:end]) else SMALL
            if self.heard[start] not in FILLERS:
                return
            start += 1

    def rest(self, at: int) -> float:
        """The cost of leaving everything from `at` on unexplained."""
        rest = self.heard[at:]
        return SMALL * len(rest) if all(word in FILLERS for word in rest) else float("inf")

    def cost(self, expected: Sequence[str]) -> float:
        """Of the whole heard text being exactly `expected`; infinite when it cannot be."""
        return min((cost + self.rest(at) for at, cost in self.expect(expected, 0)), default=float("inf"))

    def _alike(self, word: str, at: int, size: int) -> float:
        """Similarity of a word and `size` heard words at `at`: 1 when they are spelled, or sound, the same."""
        key = (word, at, size)
        if key not in self._known:
            said = "".join(self.heard[at : at + size])
            best = Indel.normalized_similarity(word, said)
            if size == 1 and best < 1:
                sounds = [(mine, theirs) for mine in self._sounds(word) for theirs in self._sounds(said)]
                best = max(best, *(Indel.normalized_similarity(*pair) for pair in sounds), 0.0)
            self._known[key] = best
        return self._known[key]
