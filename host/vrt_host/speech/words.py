"""Text as it is spoken: lower-case words, numbers written out; and back to numbers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

_ONES = [
    *(
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    ),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SCALES = ((1_000_000, "million"), (1_000, "thousand"), (100, "hundred"))
NUMBER_LIMIT = 999_999_999
"""Numbers beyond this have no words here."""

_VALUES = {word: value for value, word in enumerate(_ONES)} | {
    word: 20 + 10 * index for index, word in enumerate(_TENS)
}
_CONTRACTIONS = {
    "what's": "what is",
    "where's": "where is",
    "who's": "who is",
    "how's": "how is",
    "it's": "it is",
    "that's": "that is",
    "there's": "there is",
    "let's": "let us",
    "don't": "do not",
    "doesn't": "does not",
    "didn't": "did not",
    "isn't": "is not",
    "can't": "can not",
    "cannot": "can not",
    "won't": "will not",
    "i'm": "i am",
    "i'd": "i would",
    "i'll": "i will",
    "you're": "you are",
}
_SYMBOLS = {"%": " percent ", "&": " and ", "+": " plus ", "°": " degrees ", "\u2019": "'", "\u2018": "'"}
_WORD = re.compile(r"-?\d[\d,]*(?:\.\d+)?|[^\W\d_]+(?:'[^\W\d_]+)*|\d+")


def spell(number: int) -> str:
    """A number in words, without "and": 125 is "one hundred twenty five"."""
    if abs(number) > NUMBER_LIMIT:
        raise ValueError(f"{number} has no words: the limit is {NUMBER_LIMIT}")
    if number < 0:
        return "minus " + spell(-number)
    if number < 20:
        return _ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens - 2] + (" " + _ONES[ones] if ones else "")
    scale, name = next(pair for pair in _SCALES if pair[0] <= number)
    head, rest = divmod(number, scale)
    return f"{spell(head)} {name}" + (" " + spell(rest) if rest else "")


def _digits(text: str) -> str:
    """A number as a recogniser writes it ("21", "1,000", "21.5"), in words; digit by digit when it is too long."""
    whole, _, fraction = text.replace(",", "").partition(".")
    if abs(int(whole)) > NUMBER_LIMIT:
        words = " ".join(_ONES[int(digit)] for digit in whole if digit.isdigit())
    else:
        words = ("minus " if whole.startswith("-") else "") + spell(abs(int(whole)))
    if fraction:
        words += " point " + " ".join(_ONES[int(digit)] for digit in fraction)
    return words


def normalise(text: str) -> list[str]:
    """The words of a text, for comparison: lower case, no punctuation, numbers and contractions written out."""
    plain = text.lower()
    for symbol, spoken in _SYMBOLS.items():
        plain = plain.replace(symbol, spoken)
    plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))
    plain = re.sub(
        r"(?<=[^\W\d])-(?=\w)|_|(?<=\d)-(?=\D)", " ", plain
    )  # "twenty-five", "zone_1", "10-minute"
    words: list[str] = []
    for token in _WORD.findall(plain):
        if token[-1].isdigit():
            words += _digits(token).split()
        elif token == "cent" and words[-1:] == ["per"]:
            words[-1] = "percent"
        else:
            words += _CONTRACTIONS.get(token, token).split()
    return words


def numbers(words: Sequence[str], start: int) -> Iterator[tuple[int, int]]:
    """Every number that begins at `words[start]`, as (index after it, value); "and" may follow hundreds."""
    sign = 1
    at = start
    if at < len(words) and words[at] in ("minus", "negative"):
        sign, at = -1, at + 1
    total = group = 0  # what "thousand" and "million" have closed; what is being built
    scale = NUMBER_LIMIT + 1  # of the last big word: they must fall
    room = 1000  # the next part of the group must be smaller than this
    while at < len(words):
        word = words[at]
        value = _VALUES.get(word)
        if word == "a" and at + 1 < len(words) and words[at + 1] in ("hundred", "thousand", "million"):
            value = 1
        if (
            word == "and"
            and room >= 100
            and (group or total)
            and at + 1 < len(words)
            and words[at + 1] in _VALUES
        ):
            at += 1
            continue
        if value is not None and value < room:
            group += value
            room = 10 if value >= 20 else 0
        elif word == "hundred" and 0 < group < 10:
            group *= 100
            room = 100
        elif (
            word in ("thousand", "million")
            and group
            and (by := 10 ** (3 if word == "thousand" else 6)) < scale
        ):
            total += group * by
            group, scale, room = 0, by, 1000
        else:
            return
        at += 1
        if word != "a":
            yield at, sign * (total + group)


def numbers_in(words: Sequence[str]) -> list[int]:
    """The numbers in a sentence, in order, each read as far as it goes."""
    found = []
    at = 0
    while at < len(words):
        end, value = max(numbers(words, at), default=(at + 1, None))
        if value is not None:
            found.append(value)
        at = end
    return found
