"""What a target of tools/fuzz.py is. Imports nothing of the product: coverage counts only in what is imported later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SEPARATOR = b"\x1e"
"""Between the steps of a sequence; JSON has no place for it."""


@dataclass(frozen=True)
class Target:
    """`run(data)` raises on a finding. `weight`: its share of all inputs. `text`: JSON is worth mutating as JSON.

    `letter`: what fuzz_device.py calls it.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    weight: int
    text: bool = False
    letter: str = ""
