"""JSON that a person wrote: every mistake is told with its place in the file, such as `rules[0].do[1].call`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from vrt_host.agents.base import Json

MAX_FILE = 1 << 20


class BadFile(Exception):
    """A mistake in the file, and where."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem)
        self.where = where
        self.problem = problem


T = TypeVar("T")


def parse(data: bytes) -> Json:
    """The value in a file: strict JSON in UTF-8, no name twice in one object."""
    if len(data) > MAX_FILE:
        raise BadFile("", "is larger than 1 MiB")

    def unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        value = dict(pairs)
        if len(value) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise BadFile("", f"{twice!r} is given twice in one object")
        return value

    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise BadFile("", f"line {error.lineno} column {error.colno}: not JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise BadFile("", f"byte {error.start}: not UTF-8; save the file as UTF-8") from None


class Checked:
    """Reads values of the kinds that are wanted; each method raises `BadFile`. `where` is the place."""

    def object(
        self, value: Json, where: str, *, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()
    ) -> dict[str, Json]:
        """An object with all of the required members and no others than these."""
        if not isinstance(value, dict):
            raise BadFile(where, f"must be an object with {_names((*required, *optional))}")
        for name in required:
            if name not in value:
                raise BadFile(where, f"has no {name!r}; add it")
        for name in value:
            if name not in required and name not in optional:
                raise BadFile(
                    where, f"has the unknown member {name!r}; known are {_names((*required, *optional))}"
                )
        return dict(value)

    def object_of_any(self, value: Json, where: str, advice: str = "") -> dict[str, Json]:
        """An object, whatever it holds."""
        if not isinstance(value, dict):
            raise BadFile(where, f"must be an object{advice}")
        return value

    def single(self, value: Json, where: str, names: tuple[str, ...]) -> tuple[str, Json]:
        """An object with exactly one of these members (and perhaps a comment): its name and value."""
        members = self.object(value, where, optional=(*names, "comment"))
        members.pop("comment", None)
        if len(members) != 1:
            raise BadFile(where, f"must have exactly one of {_names(names)}")
        return next(iter(members.items()))

    def list(self, value: Json, where: str, read: Callable[[Json, str], T]) -> tuple[T, ...]:
        """A list, each value read by `read(value, where)`."""
        if not isinstance(value, list):
            raise BadFile(where, "must be a list")
        return tuple(read(item, f"{where}[{place}]") for place, item in enumerate(value))

    def string(self, value: Json, where: str) -> str:
        """A text."""
        if not isinstance(value, str):
            raise BadFile(where, "must be a text")
        return value

    def boolean(self, value: Json, where: str) -> bool:
        """True or false."""
        if not isinstance(value, bool):
            raise BadFile(where, "must be true or false")
        return value

    def number(self, value: Json, where: str, least: float, most: float) -> float:
        """A number in a range."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise BadFile(where, f"must be a number from {least:g} to {most:g}")
        return float(value)

    def integer(self, value: Json, where: str, least: int, most: int) -> int:
        """A whole number in a range."""
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise BadFile(where, f"must be a whole number from {least} to {most}")
        return value

    def one_of(self, value: Json, where: str, allowed: tuple[str, ...]) -> Any:
        """One of these values."""
        if value not in allowed:
            raise BadFile(where, f"must be one of {_names(allowed)}")
        return value


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(repr(name) for name in names)
