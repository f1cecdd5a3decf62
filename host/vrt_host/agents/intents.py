"""From words to commands, over the tools that the device declared.

One tree of sentences serves the grammar of the recogniser, the parser of what was heard or typed, and the check that
two recognisers mean the same. Nothing here knows a tool.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from vrt_host.agents import phrases
from vrt_host.agents.agreement import NEARLY, NEARLY_WHEN_ASKED, Fuzzy, Sounds, limit
from vrt_host.agents.base import Json, Tool
from vrt_host.agents.phrases import Phrase
from vrt_host.agents.templates import (
    Binding,
    Either,
    Mark,
    Node,
    Numbers,
    Row,
    Values,
    align,
    example,
    jsgf,
    match_all,
    optional,
    parse,
    spoken_words,
    unbounded,
    vocabulary,
    words,
)
from vrt_host.speech.words import normalise, numbers_in

Control = Literal["stop", "yes", "no", "help"]

_CONTROLS: Mapping[Control, str] = {
    "stop": "(stop|cancel|never mind|be quiet) [that|now|it|please]",
    "yes": "(yes|yeah|yes please|confirm)",
    "no": "(no|no thanks|no thank you)",
    "help": "(help|what can you do|what can i say)",
}
_POLITE = parse("(please|(can|could|would|will) you [please])", {})
_INVITES = frozenset(("can", "could", "will", "would"))
"""A command that begins so is one word away from a question about the past: "did you ..."."""
_JOIN = parse("(and [then]|then)", {})
_JOINTS = ("and", "then")
_RISKY = ("unlock", "unlatch", "unbolt", "disarm")
"""How words begin that undo what keeps the house shut: "unlocked" is a state that a call may ask for."""
_RISKY_TO_OPEN = frozenset(("door", "doors", "gate", "gates", "garage", "lock", "safe", "vault"))
_ASKS_ONLY = frozenset(("is", "are", "was", "what", "which", "who", "where", "when", "how", "does", "did"))
"""A sentence that begins so is a question: it opens nothing."""
_DOUBT = 0.3
"""By how much another command may fit better when the one understood asks before it acts."""


@dataclass(frozen=True, slots=True)
class Command:
    """One call that a sentence asks for."""

    phrase: Phrase
    arguments: Mapping[str, Json]
    text: str
    """The sentence, without what joined or softened it."""
    said: str
    """What was said for its slots."""

    @property
    def tool(self) -> Tool:
        return self.phrase.tool

    @property
    def asks_device(self) -> bool:
        """The device itself will ask for the button."""
        return self.tool.confirm == "button" and self.tool.asks(self.arguments)

    @property
    def asks_aloud(self) -> bool:
        """We must ask and hear yes: so the tool says, or it opens the house and nobody thought of asking."""
        if self.tool.confirm is not None:
            return self.tool.confirm == "voice" and self.tool.asks(self.arguments)
        said = self.text.split()
        if self.tool.effect == "none" or said[0] in _ASKS_ONLY:
            return False
        said += (word for value in self.arguments.values() for word in normalise(phrases.speakable(value)))
        if not self.arguments:  # the name alone tells what the tool does
            said += normalise(re.sub(r"[._-]", " ", self.tool.name))
        opens = any(word in {"open", "opened"} for word in said) and not _RISKY_TO_OPEN.isdisjoint(said)
        return opens or any(word.startswith(_RISKY) for word in said)

    @property
    def asks(self) -> bool:
        """Nothing happens before somebody agreed."""
        return self.asks_device or self.asks_aloud

    def beyond(self) -> dict[str, Beyond]:
        """The arguments that are numbers which their slots do not take."""
        return {
            name: Beyond(value, slot)
            for name, value in self.arguments.items()
            if name not in self.phrase.fixed
            and isinstance(slot := self.phrase.slots.get(name), Numbers)
            and value not in slot
        }

    def same(self, other: Command) -> bool:
        """Whether both mean the same call."""
        return self.tool.name == other.tool.name and self.arguments == other.arguments


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a sentence means: commands in their order, or one of our own words."""

    commands: tuple[Command, ...] = ()
    control: Control | None = None

    @property
    def asks(self) -> bool:
        """Nothing at all happens before somebody agreed."""
        return bool(self.commands) and all(command.asks for command in self.commands)

    def same(self, other: Meaning) -> bool:
        """Whether both mean the same."""
        return (
            self.control == other.control
            and len(self.commands) == len(other.commands)
            and all(mine.same(theirs) for mine, theirs in zip(self.commands, other.commands, strict=True))
        )


@dataclass(frozen=True, slots=True)
class Beyond:
    """A number that was said for a slot and is none of its."""

    number: int
    slot: Numbers


@dataclass(frozen=True, slots=True)
class Grammar:
    """What a grammar recogniser needs."""

    jsgf: str
    more: str
    """What may be said after a pause, to go on from a sentence: "and then turn off the light"."""
    pronunciations: Mapping[str, Sequence[Sequence[str]]]


class Intents:
    """What can be said in a session. `warnings` tells the operator which phrases of which tool are not used, and why."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.warnings: list[str] = []
        self._phrases = [phrase for tool in tools for phrase in phrases.of_tool(tool, self.warnings)]

    def pronounce(self, sounds: Sounds) -> Grammar:
        """The grammar; phrases with a word that `sounds` does not know are left out from now on, with a warning."""
        known: dict[str, Sequence[Sequence[str]]] = {}

        def unknown(node: Node) -> str | None:
            for word in vocabulary(node):
                if word not in known:
                    known[word] = sounds(word)
                if not known[word]:
                    return word
            return None

        kept = []
        for phrase in self._phrases:
            word = unknown(phrase.node)
            if word is None:
                kept.append(phrase)
            else:
                self.warnings.append(
                    f"tool {phrase.tool.name!r}: {example(phrase.node)!r} cannot be heard: nobody knows how "
                    f"{word!r} is pronounced; spell it as it sounds"
                )
        self._phrases = kept
        for tree in ("_tree", "_unbounded"):
            self.__dict__.pop(tree, None)
        unknown(self._tree)
        unknown(_JOIN)  # without phrases, the tree has none
        rules = _Rules()
        sentence, more = jsgf(self._tree, rules.name), f"[{jsgf(_JOIN, rules.name)}] <sentence>"
        shared = rules.text(known, sounds)
        head = "#JSGF V1.0;\ngrammar commands;\n"
        return Grammar(
            f"{head}public <sentence> = {sentence};\n{shared}",
            f"{head}public <more> = {more};\n<sentence> = {sentence};\n{shared}",
            {word: sound for word, sound in known.items() if sound},
        )

    @cached_property
    def _tree(self) -> Node:
        """Every sentence."""
        return self._sentences([phrase.node for phrase in self._phrases])

    @cached_property
    def _unbounded(self) -> Node:
        """Every sentence, with any number where one can be."""
        return self._sentences([unbounded(phrase.node) for phrase in self._phrases])

    @staticmethod
    def _sentences(nodes: Sequence[Node]) -> Node:
        """Sentences of these phrases, and our own. The mark of a phrase is its index, of a control -1 and below."""
        said = [Mark(index, node) for index, node in enumerate(nodes)]
        own = [Mark(-1 - index, parse(say, {})) for index, say in enumerate(_CONTROLS.values())]
        if not said:
            return Either(tuple(own))
        one = Either(tuple(said)) if len(said) > 1 else said[0]
        commands = Row((optional(_POLITE), one, optional(Row((_JOIN, one))), optional(words("please"))))
        return Either((commands, *own))

    def parse(self, text: str) -> Meaning | None:
        """What a text means, word for word; None when it is no sentence of ours.

        When it can be read in several ways, the fewest commands win, then the tool and phrase declared first.
        """
        return self._parse(self._tree, text)

    def _parse(self, tree: Node, text: str) -> Meaning | None:
        heard = normalise(text)
        readings = [self._read(bindings, heard) for _, bindings in match_all(tree, heard)]
        return min(readings, key=lambda pair: pair[0], default=(None, None))[1]

    def beyond(self, text: str, grammar: str | None = None) -> Beyond | None:
        """The number that alone keeps a text from being a sentence of ours, because its slot does not take it.

        With `grammar`, what the grammar heard must be the same sentence with some number.
        """
        meaning = self._parse(self._unbounded, text)
        other = meaning if grammar is None else self._parse(self._unbounded, complete(grammar))
        if meaning is None or other is None or len(meaning.commands) != len(other.commands):
            return None
        found: list[Beyond] = []
        for mine, theirs in zip(meaning.commands, other.commands, strict=True):
            wrong = mine.beyond()
            same = mine.tool.name == theirs.tool.name and mine.arguments.keys() == theirs.arguments.keys()
            if not same or any(
                value != theirs.arguments[name] for name, value in mine.arguments.items() if name not in wrong
            ):
                return None
            found += wrong.values()
        return found[0] if found else None

    def _read(self, bindings: Sequence[Binding], heard: Sequence[str]) -> tuple[tuple[int, ...], Meaning]:
        """A rank, for choosing among several readings, and the meaning."""
        marks = [index for index, (name, _) in enumerate(bindings) if isinstance(name, int)]
        keys = [int(bindings[index][0]) for index in marks]
        if keys[0] < 0:
            return (9, -keys[0]), Meaning(control=list(_CONTROLS)[-1 - keys[0]])
        commands = []
        for key, first, last in zip(keys, marks, [*marks[1:], len(bindings)], strict=True):
            phrase = self._phrases[key]
            filled = {
                str(name): phrase.slots[str(name)].value(said) for name, said in bindings[first + 1 : last]
            }
            end = int(bindings[last][1]) if last < len(bindings) else len(heard)
            text = list(heard[int(bindings[first][1]) : end])
            while text[-1] in (*_JOINTS, "please"):
                text.pop()
            said = " ".join(said for _, said in bindings[first + 1 : last])
            commands.append(Command(phrase, {**phrase.fixed, **filled}, " ".join(text), said))
        return (len(keys), *keys), Meaning(tuple(commands))

    def agree(self, grammar: str, free: str, sounds: Sounds, against: float = math.inf) -> Meaning | None:
        """What both recognisers heard; None when they differ, or heard no sentence of ours.

        `against`: how much less likely the free recogniser finds the grammar's sentence than its own text.
        """
        understood = self.parse(complete(grammar))
        if understood is None:
            return None
        if grammar.split(maxsplit=1)[0] in _JOINTS:
            free = " ".join(_unjoined(normalise(free)))
        exact = self.parse(free)
        if exact is not None:
            return understood if exact.same(understood) else None
        expected = normalise(complete(grammar))
        wanted, said = numbers_in(expected), numbers_in(normalise(free))
        if (
            wanted and said and wanted != said
        ):  # the grammar takes thirty for thirteen when thirty is out of bounds
            return None
        heard = Fuzzy(normalise(free), sounds)
        cost = heard.cost(expected)
        if cost > limit(expected):
            nearly = NEARLY_WHEN_ASKED if understood.asks else 0.0 if expected[0] in _INVITES else NEARLY
            values = [word for command in understood.commands for word in normalise(command.said)]
            return understood if against <= nearly and heard.holds(values) else None
        margin = _DOUBT if understood.asks else 0.0
        for (at, bindings), other in align(self._tree, heard, {(0, ()): 0.0}, cost).items():
            if other + heard.rest(at) < cost - margin and not self._read(bindings, heard.heard)[1].same(
                understood
            ):
                return None
        return understood

    def examples(self, most: int = 6) -> list[str]:
        """Sentences that would work, of as many tools as possible."""
        first: dict[str, str] = {}
        more: list[str] = []
        for phrase in self._phrases:
            sentence = example(phrase.node)
            if first.setdefault(phrase.tool.name, sentence) != sentence:
                more.append(sentence)
        return [*first.values(), *more][:most]


def complete(grammar: str) -> str:
    """The hypothesis without a joint that nothing follows, for the decoder hears one in the silence after a command,
    or that nothing precedes, since it may go on from the sentence before.
    """
    said = _unjoined(grammar.split())
    while said and said[-1] in _JOINTS:
        said.pop()
    return " ".join(said)


def _unjoined(words: list[str]) -> list[str]:
    """The words without a joint before them."""
    while words and words[0] in _JOINTS:
        words = words[1:]
    return words


class _Rules:
    """The rules of the slots' values, each written once."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[str, Values]] = {}

    def name(self, values: Values) -> str:
        return self._names.setdefault(id(values), (f"slot{len(self._names)}", values))[0]

    def text(self, known: dict[str, Sequence[Sequence[str]]], sounds: Sounds) -> str:
        lines = []
        number = False
        for name, values in self._names.values():
            if isinstance(values, Numbers) and not values.listed:
                lines.append(f"<{name}> = <number>;")
                number = True
            else:
                lines.append(
                    f"<{name}> = {' | '.join(' '.join(spoken_words(said)) for said in values.spoken())};"
                )
        if number:
            lines.append(_NUMBER)
        for word in _words_of(lines):
            known.setdefault(word, sounds(word))
        return "\n".join(lines) + "\n"


_NUMBER = """\
<one> = one | two | three | four | five | six | seven | eight | nine;
<teen> = ten | eleven | twelve | thirteen | fourteen | fifteen | sixteen | seventeen | eighteen | nineteen;
<ten> = twenty | thirty | forty | fifty | sixty | seventy | eighty | ninety;
<small> = <one> | <teen> | <ten> [<one>];
<hundred> = [<one> hundred [and]] <small> | <one> hundred;
<number> = [minus] (zero | <hundred> | <hundred> thousand [[and] <hundred>] | <hundred> million [<hundred> thousand] [<hundred>]);"""


def _words_of(lines: Sequence[str]) -> Iterator[str]:
    """The words on the right of rules."""
    for line in "\n".join(lines).split("\n"):
        for token in line.partition("=")[2].replace("|", " ").replace("(", " ").replace(")", " ").split():
            bare = token.strip("[];")
            if bare and not bare.startswith("<"):
                yield bare
