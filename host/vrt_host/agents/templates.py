"""Sentence templates: `turn {state} the (light|lamp) [please]`, as `docs/tools.md` gives them.

A template becomes a tree that does three things: it writes itself as a JSGF grammar, it matches a sentence word by
word, and it aligns with a sentence that another recogniser wrote, at a cost. All three see the same sentences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vrt_host.speech.words import NUMBER_LIMIT, normalise, numbers, spell

MAX_LENGTH = 500
"""Characters in a template."""
_MAX_DEPTH = 10
_LISTED = 300
"""A range of more numbers than this is written in the grammar as a general number, not as a list."""


class TemplateError(ValueError):
    """The template cannot be read; the message is for the tool's author."""


# --- what a slot takes


class Choices:
    """A fixed list: how it is spoken -> the value of the argument."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.plain = {spoken: tuple(normalise(spoken)) for spoken in values}
        """How it is spoken -> its words, as they are compared."""

    def value(self, spoken: str) -> Any:
        return self._values[spoken]

    def spoken(self) -> Iterator[str]:
        return iter(self._values)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers from `minimum` to `maximum`, both included, in steps of `step` (counted from zero)."""

    minimum: int
    maximum: int
    step: int = 1

    def __contains__(self, number: int) -> bool:
        return self.minimum <= number <= self.maximum and number % self.step == 0

    def value(self, spoken: str) -> Any:
        return next(value for end, value in numbers(spoken.split(), 0) if end == len(spoken.split()))

    def spoken(self) -> Iterator[str]:
        first = -(-self.minimum // self.step) * self.step
        return (spell(number) for number in range(first, self.maximum + 1, self.step))

    @property
    def listed(self) -> bool:
        return (self.maximum - self.minimum) // self.step < _LISTED


_ANY = Numbers(-NUMBER_LIMIT, NUMBER_LIMIT)

Values = Choices | Numbers

# --- the tree


@dataclass(frozen=True, slots=True)
class Words:
    """Words in a row: as they are pronounced, and as they are compared."""

    spoken: tuple[str, ...]
    plain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of an argument."""

    name: str
    values: Values


@dataclass(frozen=True, slots=True)
class Row:
    """Parts one after the other; none at all matches nothing."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of several."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """Leaves `key`, and the place among the heard words, in the bindings when `node` begins: what follows is its."""

    key: int
    node: Node


Node = Words | Slot | Row | Either | Mark
Binding = tuple[str | int, str]
"""(slot, what was said), or (mark, index of its first heard word)."""
State = tuple[int, tuple[Binding, ...]]
"""How many heard words are used, and the bindings so far."""


def words(text: str) -> Words:
    """A node for a plain text."""
    return Words(tuple(spoken_words(text)), tuple(normalise(text)))


def optional(node: Node) -> Node:
    options = node.options if isinstance(node, Either) else (node,)
    return Either((*options, Row(())))


def unbounded(node: Node) -> Node:
    """The same sentences with any number where one can be."""
    if isinstance(node, Slot):
        return Slot(node.name, _ANY) if isinstance(node.values, Numbers) else node
    if isinstance(node, Row):
        return Row(tuple(map(unbounded, node.parts)))
    if isinstance(node, Either):
        return Either(tuple(map(unbounded, node.options)))
    return Mark(node.key, unbounded(node.node)) if isinstance(node, Mark) else node


def spoken_words(text: str) -> list[str]:
    """Words to pronounce: like `normalise`, but "what's" stays one word."""
    return [part for token in text.lower().split() for part in _pronounced(token)]


def _pronounced(token: str) -> list[str]:
    plain = normalise(token)
    bare = token.replace("\u2019", "'").strip("'.,!?;:")
    return [bare] if "'" in bare and re.fullmatch(r"[a-z]+('[a-z]+)+", bare) else plain


# --- reading


_TOKEN = re.compile(r"\s*([()\[\]|]|\{[^{}]*\}|[^\s()\[\]{}|]+)")


def parse(template: str, slots: Mapping[str, Values]) -> Node:
    """The tree of a template whose `{name}`s are `slots`; TemplateError says what is wrong with it."""
    if len(template) > MAX_LENGTH:
        raise TemplateError(f"it is longer than {MAX_LENGTH} characters")
    tokens = []
    at = 0
    text = template.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise TemplateError(f"{text[at:].strip()[0]!r} has no partner")
        tokens.append(match[1])
        at = match.end()
    node, rest = _alternatives(tokens, 0, slots, 0)
    if rest < len(tokens):
        raise TemplateError(f"{tokens[rest]!r} closes nothing")
    if any(end == 0 for end, _ in match_all(node, [])):
        raise TemplateError("it matches saying nothing")
    return node


def _alternatives(
    tokens: Sequence[str], at: int, slots: Mapping[str, Values], depth: int
) -> tuple[Node, int]:
    if depth > _MAX_DEPTH:
        raise TemplateError(f"it is nested deeper than {_MAX_DEPTH}")
    options: list[Node] = []
    parts: list[Node] = []
    while True:
        token = tokens[at] if at < len(tokens) else ""
        if token in ("", "|", ")", "]"):
            options.append(parts[0] if len(parts) == 1 else Row(tuple(parts)))
            parts = []
            if token != "|":
                return (options[0] if len(options) == 1 else Either(tuple(options))), at
            at += 1
        elif token in ("(", "["):
            node, at = _alternatives(tokens, at + 1, slots, depth + 1)
            if at >= len(tokens) or tokens[at] != (")" if token == "(" else "]"):
                raise TemplateError(f"{token!r} is not closed")
            parts.append(node if token == "(" else optional(node))
            at += 1
        elif token.startswith("{"):
            name = token[1:-1].strip()
            if name not in slots:
                raise TemplateError(f"there is no parameter {name!r} that can be spoken")
            parts.append(Slot(name, slots[name]))
            at += 1
        else:
            node = words(token)
            if not node.plain or not all(word.isascii() for word in node.plain):
                raise TemplateError(f"{token!r} is no English word")
            if parts and isinstance(parts[-1], Words):
                last = parts.pop()
                assert isinstance(last, Words)
                node = Words(last.spoken + node.spoken, last.plain + node.plain)
            parts.append(node)
            at += 1


# --- writing a grammar


def jsgf(node: Node, rule: Callable[[Values], str]) -> str:
    """The expansion of a node; `rule` names the rule that lists a slot's values."""
    if isinstance(node, Words):
        return " ".join(node.spoken)
    if isinstance(node, Slot):
        return f"<{rule(node.values)}>"
    if isinstance(node, Mark):
        return jsgf(node.node, rule)
    if isinstance(node, Row):
        return " ".join(jsgf(part, rule) for part in node.parts)
    said = " | ".join(jsgf(option, rule) for option in node.options if option != Row(()))
    return f"[{said}]" if Row(()) in node.options else f"({said})"


def vocabulary(node: Node) -> Iterator[str]:
    """Every word that must be pronounced to say the node."""
    if isinstance(node, Words):
        yield from node.spoken
    elif isinstance(node, Slot):
        if isinstance(node.values, Choices):
            for spoken in node.values.spoken():
                yield from spoken_words(spoken)
    elif isinstance(node, Mark):
        yield from vocabulary(node.node)
    else:
        for part in node.parts if isinstance(node, Row) else node.options:
            yield from vocabulary(part)


def example(node: Node) -> str:
    """One sentence: the first of every choice, nothing optional but articles, a middle number."""
    if isinstance(node, Words):
        return " ".join(node.spoken)
    if isinstance(node, Slot):
        return _example_value(node.values)
    if isinstance(node, Mark):
        return example(node.node)
    if isinstance(node, Row):
        return " ".join(filter(None, map(example, node.parts)))
    said = example(node.options[0])
    return said if Row(()) not in node.options or said in ("the", "a", "an") else ""


def _example_value(values: Values) -> str:
    if isinstance(values, Choices):
        return next(values.spoken())
    middle = (values.minimum + values.maximum) // 2 // values.step * values.step
    return spell(middle) if middle in values else next(values.spoken())


# --- matching


class Listener(Protocol):
    """How heard words are compared with expected ones."""

    heard: Sequence[str]

    def expect(self, expected: Sequence[str], start: int) -> Iterable[tuple[int, float]]:
        """Where `expected` may end among the heard words when it begins at `start`, and at what cost."""

    def expect_number(self, start: int) -> Iterable[tuple[int, int, float]]:
        """Numbers heard at `start`: (end, value, cost)."""


class Exact:
    """Word for word."""

    def __init__(self, heard: Sequence[str]) -> None:
        self.heard = heard

    def expect(self, expected: Sequence[str], start: int) -> Iterable[tuple[int, float]]:
        end = start + len(expected)
        if tuple(self.heard[start:end]) == tuple(expected):
            yield end, 0.0

    def expect_number(self, start: int) -> Iterable[tuple[int, int, float]]:
        return ((end, value, 0.0) for end, value in numbers(self.heard, start))


def align(node: Node, listener: Listener, states: Mapping[State, float], limit: float) -> dict[State, float]:
    """Every state in which `node` can end, with the least cost of reaching it, at most `limit`."""
    if isinstance(node, Mark):
        marked = {(end, (*bindings, (node.key, str(end)))): cost for (end, bindings), cost in states.items()}
        return align(node.node, listener, marked, limit)
    if isinstance(node, Row):
        reached = dict(states)
        for part in node.parts:
            reached = align(part, listener, reached, limit)
        return reached
    found: dict[State, float] = {}
    if isinstance(node, Either):
        for option in node.options:
            for state, cost in align(option, listener, states, limit).items():
                found[state] = min(cost, found.get(state, limit))
        return found
    for (start, bindings), before in states.items():
        ends: Iterable[tuple[int, tuple[Binding, ...], float]]
        if isinstance(node, Words):
            ends = ((end, bindings, cost) for end, cost in listener.expect(node.plain, start))
        else:
            ends = _fill(node, listener, start, bindings)
        for end, bound, cost in ends:
            if before + cost <= limit:
                state = (end, bound)
                found[state] = min(before + cost, found.get(state, limit))
    return found


def _fill(
    slot: Slot, listener: Listener, start: int, bindings: tuple[Binding, ...]
) -> Iterator[tuple[int, tuple[Binding, ...], float]]:
    held = None  # a slot that is named twice must be filled alike, within one command
    for name, spoken in bindings:
        held = None if isinstance(name, int) else spoken if name == slot.name else held
    if isinstance(slot.values, Numbers):
        options = (
            (end, spell(value), cost)
            for end, value, cost in listener.expect_number(start)
            if value in slot.values and abs(value) <= NUMBER_LIMIT
        )
    else:
        options = (
            (end, spoken, cost)
            for spoken, plain in slot.values.plain.items()
            for end, cost in listener.expect(plain, start)
        )
    for end, spoken, cost in options:
        if held is None or held == spoken:
            yield end, (*bindings, (slot.name, spoken)), cost


def match_all(node: Node, heard: Sequence[str]) -> Iterator[State]:
    """Every way to say exactly `heard` by `node`."""
    for state in align(node, Exact(heard), {(0, ()): 0.0}, 0.0):
        if state[0] == len(heard):
            yield state
