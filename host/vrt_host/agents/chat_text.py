"""A model's text on its way to a voice: without what it thought, in clauses, without marks that nobody says."""

from __future__ import annotations

import re
import unicodedata

_FIRST_CHARS = 15
"""The first clause may end at a comma after so many characters: the user waits for it."""
_CLAUSE_CHARS = 120
"""From here on a clause may end at a comma, and from twice as many on at any blank."""
_SENTENCE_END = re.compile(r"[.!?…]+[\"')\]*_]*\s+|\n+")
_CLAUSE_END = re.compile(r"[,;:]\s+|\s[-–—]+\s+")  # noqa: RUF001  (dashes as models write them)
_ABBREVIATION = re.compile(r"(?:^|[\s(])(?:(?:Dr|Mr|Mrs|Ms|St|No|vs|approx|e\.g|i\.e)|[A-Z]|\d+)\.\s+$")
"""What ends like a sentence and is none; "1." begins an item of a list."""

_THINK, _THOUGHT = "<think>", "</think>"
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_HEAD = re.compile(r"^\s*(?:[#>]+|[-*+•])\s+", re.MULTILINE)
_MARKS = re.compile(r"\*+|`+|~~|(?<!\w)_+|_+(?!\w)")


_NO_WORDS = re.compile(r"(?:\[[^\]]*\]|\([^)]*\)|[\s.…*♪])*")
"""What recognisers write for a sound that is no speech: `[BLANK_AUDIO]`, `(wind)`, `...`."""


def heard(text: str) -> str:
    """What the user said, by a recogniser's text; empty when that has no words."""
    return "" if _NO_WORDS.fullmatch(text) else text.strip()


class Thinking:
    """Takes out what a model puts between `<think>` and `</think>` at the beginning of its answer."""

    def __init__(self) -> None:
        self._held = ""
        self._state = "begin"

    def feed(self, text: str) -> str:
        """What of the text so far is to be said."""
        if self._state == "said":
            return text
        self._held += text
        if self._state == "begin":
            start = self._held.lstrip()
            if start.startswith(_THINK):
                self._state = "thinking"
            elif not _THINK.startswith(start):
                self._state, self._held = "said", ""
                return start
        if self._state == "thinking":
            _, mark, rest = self._held.partition(_THOUGHT)
            if mark:
                self._state, self._held = "begin", rest.lstrip()
                return self.feed("")
            self._held = (
                self._held[:16] + self._held[16:][-len(_THOUGHT) :]
            )  # its beginning, and what may be half a mark
        return ""

    def end(self) -> str:
        """What was held back, for nothing follows."""
        held, self._held = self._held, ""
        return "" if self._state == "thinking" else held


class Clauses:
    """Cuts a text that comes in pieces where a voice may pause. Joined, the clauses are the text."""

    def __init__(self) -> None:
        self._text = ""
        self._first = True

    def feed(self, text: str) -> list[str]:
        """The clauses that are complete."""
        self._text += text
        found: list[str] = []
        while (end := self._boundary()) is not None:
            clause, self._text = self._text[:end], self._text[end:]
            if found and not found[-1].strip():
                clause = found.pop() + clause
            found.append(clause)
            self._first = self._first and not clause.strip()
        return found

    def end(self) -> list[str]:
        """The rest."""
        rest, self._text = self._text, ""
        return [rest] if rest else []

    def _boundary(self) -> int | None:
        text = self._text
        for match in _SENTENCE_END.finditer(text):
            # A blank at the very end may be followed by more blanks, which belong to it.
            if match.end() < len(text) and not _ABBREVIATION.search(text[: match.end()]):
                return self._earlier(match.end())
        return self._earlier(None)

    def _earlier(self, sentence: int | None) -> int | None:
        """The end of a clause before that of its sentence, where the sentence is long or the first."""
        least = _FIRST_CHARS if self._first else _CLAUSE_CHARS
        stop = len(self._text) if sentence is None else sentence
        if stop <= least:
            return sentence
        for match in _CLAUSE_END.finditer(self._text):
            if least <= match.end() < stop:
                return match.end()
        if stop > 2 * _CLAUSE_CHARS:
            blank = self._text.rfind(" ", 0, 2 * _CLAUSE_CHARS)
            return blank + 1 if blank > 0 else 2 * _CLAUSE_CHARS
        return sentence


def spoken(clause: str) -> str:
    """The clause as it is said: no marks of Markdown, no pictures; empty when nothing is left."""
    text = _MARKS.sub("", _HEAD.sub("", _LINK.sub(r"\1", clause)))
    text = "".join(
        c for c in text if unicodedata.category(c) not in ("So", "Cs", "Co", "Cn", "Sk") and c != "\ufe0f"
    )
    text = " ".join(text.split())
    return text if any(c.isalnum() for c in text) else ""
