"""How much of an identifier can be random (vRT §5.2, §6.3)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

ENOUGH = 12
"""Identifiers to compare."""
WANTED_BITS, LEAST_BITS = 112, 64
"""Of 12 ids of 122 random bits a few positions may agree by chance; below the other number ids can be guessed."""


def random_bits(ids: Sequence[str]) -> int:
    """What they hold at most: characters of their alphabet, at the places where they differ; 0 when two are equal."""
    if len(set(ids)) < len(ids) or not ids:
        return 0
    letters = "".join(ids)
    digits = 10 if letters.isdigit() else 16 if re.fullmatch(r"[0-9a-fA-F-]*", letters) else 64
    places = sum(len({one[place] for one in ids}) > 2 for place in range(min(map(len, ids))))
    return round(places * math.log2(digits))
