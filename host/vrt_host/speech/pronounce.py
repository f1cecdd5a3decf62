# ruff: noqa: RUF001  (phonetic letters look like Latin ones)
"""How words sound: the recogniser's dictionary, and a guess for words that are not in it.

Sounds are lists of phones in the recogniser's alphabet (ARPABET without stress).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from vrt_host.errors import UsageError
from vrt_host.speech import models

_IPA = {
    "tʃ": "CH", "dʒ": "JH", "eɪ": "EY", "aɪ": "AY", "ɔɪ": "OY", "aʊ": "AW", "oʊ": "OW", "əʊ": "OW",
    "ɑːɹ": "AA R", "ɔːɹ": "AO R", "oːɹ": "AO R", "ɛɹ": "EH R", "ɪɹ": "IH R", "ʊɹ": "UH R", "əl": "AH L",
    "iː": "IY", "uː": "UW", "ɑː": "AA", "ɔː": "AO", "ɜː": "ER", "oː": "AO", "aː": "AA",
    "ɚ": "ER", "ɝ": "ER", "i": "IY", "u": "UW", "ɪ": "IH", "ᵻ": "IH", "ɛ": "EH", "e": "EH", "æ": "AE", "a": "AE",
    "ʌ": "AH", "ə": "AH", "ɐ": "AH", "ɒ": "AA", "ɑ": "AA", "ɔ": "AO", "o": "OW", "ʊ": "UH", "ɜ": "ER",
    "p": "P", "b": "B", "t": "T", "d": "D", "k": "K", "g": "G", "ɡ": "G", "ɾ": "T", "ʔ": "T",
    "f": "F", "v": "V", "θ": "TH", "ð": "DH", "s": "S", "z": "Z", "ʃ": "SH", "ʒ": "ZH", "h": "HH", "x": "K",
    "m": "M", "n": "N", "ŋ": "NG", "l": "L", "ɫ": "L", "ɹ": "R", "r": "R", "j": "Y", "w": "W", "ç": "HH",
}  # fmt: skip
_IPA_TOKEN = re.compile("|".join(sorted(map(re.escape, _IPA), key=len, reverse=True)))

Phonemise = Callable[[str], str]
"""A word to IPA, as a synthesiser speaks it; empty when it cannot."""


class Pronouncer:
    """Loaded once in a process: 126,000 words, 0.3 s, 30 MB."""

    def __init__(self, phonemise: Phonemise | None = None) -> None:
        """`phonemise` guesses words that are in no dictionary."""
        self._phonemise = phonemise
        folder = models.package_folder("pocketsphinx", use="speech recognition")
        self._words = _read_dictionary(folder / "model" / "en-us" / "cmudict-en-us.dict")

    def known(self, word: str) -> Sequence[Sequence[str]]:
        """The pronunciations of a word in the dictionary; none when it is not there."""
        return [sound.split() for sound in self._words.get(word, ())]

    def sounds(self, word: str) -> Sequence[Sequence[str]]:
        """The pronunciations of any word: from the dictionary, from two words that it is made of, or guessed."""
        return self.known(word) or self._compound(word) or self._guess(word)

    def _compound(self, word: str) -> Sequence[Sequence[str]]:
        for cut in range(len(word) - 3, 2, -1):
            first, second = self.known(word[:cut]), self.known(word[cut:])
            if first and second:
                return [[*first[0], *second[0]]]
        return []

    def _guess(self, word: str) -> Sequence[Sequence[str]]:
        phones = from_ipa(self._phonemise(word)) if self._phonemise else []
        return [phones] if phones else []


def from_ipa(ipa: str) -> list[str]:
    """ARPABET phones of an American English transcription; stress and what has no counterpart are dropped."""
    plain = re.sub(r"[ˈˌ.|\s]|\u0329|\u0303", "", ipa)
    return [phone for token in _IPA_TOKEN.findall(plain) for phone in _IPA[token].split()]


def _read_dictionary(path: Path) -> dict[str, tuple[str, ...]]:
    """Lines of "word phones", alternatives as "word(2) phones"."""
    words: dict[str, tuple[str, ...]] = {}
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                word, _, sound = line.strip().partition(" ")
                word = word.partition("(")[0]
                words[word] = (*words.get(word, ()), sound)
    except OSError as error:
        raise UsageError(
            f"no pronunciation dictionary at {path} ({error.strerror}); {models.INSTALL}"
        ) from error
    return words
