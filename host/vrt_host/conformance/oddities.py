"""What a JSON parser hides of a control message's text (vRT §2.2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


class Oddities:
    """`twice`: a member's name that an object has twice. `fractions`: an integer that is written as another number is."""

    def __init__(self, integers: Sequence[str]) -> None:
        """`integers`: the members of a message that are integers; `sampleRate` of a format always is."""
        self._integers = integers
        self.twice: str | None = None
        self.fractions: str | None = None

    def read(self, frame: str) -> dict[str, Any]:
        """The object in a frame; raises `ValueError` for what is none."""
        value = json.loads(frame, object_pairs_hook=self._object, parse_float=_Fraction)
        if not isinstance(value, dict):
            raise ValueError("not an object")  # noqa: TRY004  (one error for all)
        places = [(name, value.get(name)) for name in self._integers]
        for name in ("input", "output"):
            if isinstance(value.get(name), dict):
                places.append((f"{name}.sampleRate", value[name].get("sampleRate")))
        for name, number in places:
            if isinstance(number, _Fraction):
                self.fractions = name
        return value

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            names = [name for name, _ in pairs]
            self.twice = next(name for name in names if names.count(name) > 1)
        return value


class _Fraction(float):
    """A number that is written with a fraction or an exponent."""
