"""How a tool is spoken of: its declared `phrases`, or ones derived from its name and parameters.

`docs/tools.md` documents the format. What a device declares is not trusted to be right: a phrase that cannot be
used is left out with a warning that names it, and spoils nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vrt_host.agents.base import Json, Tool
from vrt_host.agents.templates import Choices, Either, Node, Numbers, TemplateError, Values, parse
from vrt_host.speech.words import NUMBER_LIMIT, normalise, spell

MAX_PHRASES = 50
"""Of one tool."""
MAX_TEMPLATES = 20
"""Of one phrase."""
_DEFAULT_SPAN = 100
"""How far an integer goes that the schema does not bound."""
_MEMBERS = {"say", "set", "words", "reply", "ask", "while"}
_FIELD = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True, eq=False)
class Phrase:
    """One way to ask for a tool, and what is said about it."""

    tool: Tool
    node: Node
    slots: Mapping[str, Values]
    fixed: Mapping[str, Json] = field(default_factory=dict)
    """Arguments that the sentence itself decides."""
    reply: str | None = None
    ask: str | None = None
    during: str | None = None

    def spoken(self, name: str, value: Json) -> str:
        """How an argument's value is spoken."""
        values = self.slots.get(name)
        if isinstance(values, Choices):
            for said in values.spoken():
                if values.value(said) == value and type(values.value(said)) is type(value):
                    return said
        return speakable(value)


def speakable(value: Json) -> str:
    """A JSON value as words: `true` is "on" (a reply that wants "yes" says so by `words`), `front_door` "front door"."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    if isinstance(value, list):
        return ", ".join(speakable(item) for item in value[:8]) or "nothing"
    if isinstance(value, dict):
        return (
            ", ".join(f"{speakable(key)} {speakable(item)}" for key, item in list(value.items())[:8])
            or "nothing"
        )
    return re.sub(r"[_\s]+", " ", str(value)).strip()


def of_tool(tool: Tool, warnings: list[str]) -> Iterator[Phrase]:
    """The usable phrases of a tool; `warnings` gets a line for each one that is not."""
    schema = tool.parameters if isinstance(tool.parameters, Mapping) else {}
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    slots = {
        name: values
        for name, prop in properties.items()
        if isinstance(prop, Mapping) and (values := _values(prop)) is not None
    }
    fixed = {
        name: prop["const"]
        for name, prop in properties.items()
        if isinstance(prop, Mapping) and "const" in prop
    }
    required = schema.get("required")
    needed = [name for name in required if isinstance(name, str)] if isinstance(required, Sequence) else []
    builder = _Builder(tool, slots, fixed, needed, warnings)
    declared = tool.phrases if isinstance(tool.phrases, (list, tuple)) else ()
    if not declared:
        yield from builder.derived()
        return
    if len(declared) > MAX_PHRASES:
        builder.warn(f"only the first {MAX_PHRASES} of its {len(declared)} phrases are used")
    for item in declared[:MAX_PHRASES]:
        yield from builder.declared(item)


def _values(prop: Mapping[str, Any]) -> Values | None:
    """What a parameter's schema can take, spoken; None when it is free text or nested."""
    if isinstance(prop.get("enum"), Sequence) and not isinstance(prop["enum"], str):
        spoken = {_say(value): value for value in prop["enum"]}
        return Choices(spoken) if spoken and all(normalise(said) for said in spoken) else None
    kind = prop.get("type")
    if kind == "boolean":
        return Choices({"on": True, "off": False})
    if kind not in ("integer", "number"):
        return None
    bounds = {key: prop[key] for key in ("minimum", "maximum") if _is_number(prop.get(key))}
    low, high = prop.get("exclusiveMinimum"), prop.get("exclusiveMaximum")
    if low is not None and _is_number(low):
        bounds["minimum"] = max(low + 1, bounds.get("minimum", low + 1))
    if high is not None and _is_number(high):
        bounds["maximum"] = min(high - 1, bounds.get("maximum", high - 1))
    minimum = bounds.get("minimum", min(0, bounds.get("maximum", 0)))
    maximum = bounds.get("maximum", max(minimum, 0) + _DEFAULT_SPAN)
    minimum, maximum = (max(-NUMBER_LIMIT, min(NUMBER_LIMIT, bound)) for bound in (minimum, maximum))
    step = prop.get("multipleOf", 1)
    numbers = Numbers(
        -int(-minimum // 1), int(maximum // 1), step if isinstance(step, int) and step > 0 else 1
    )
    return numbers if next(numbers.spoken(), None) is not None else None


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) != float("inf")


def _say(value: Json) -> str:
    """A value of an enum, as it is spoken."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= NUMBER_LIMIT:
        return spell(value)
    return " ".join(normalise(speakable(value)))


@dataclass(frozen=True, slots=True)
class _Builder:
    """Makes phrases of one tool."""

    tool: Tool
    slots: Mapping[str, Values]
    fixed: Mapping[str, Json]
    required: Sequence[str]
    warnings: list[str]

    def warn(self, message: str) -> None:
        self.warnings.append(f"tool {self.tool.name!r}: {message}")

    def declared(self, item: Json) -> Iterator[Phrase]:
        """The phrases of one entry of `phrases`: none, or one for each of its templates that can be used."""
        if isinstance(item, str):
            item = {"say": item}
        if not isinstance(item, Mapping) or "say" not in item:
            self.warn(f'a phrase is a string or an object with "say", not {str(item)[:60]!r}')
            return
        for unknown in sorted(map(str, set(item) - _MEMBERS)):
            self.warn(f"a phrase has no member {unknown!r}; it is ignored")
        templates = [item["say"]] if isinstance(item["say"], str) else item["say"]
        if not isinstance(templates, list) or not all(isinstance(template, str) for template in templates):
            self.warn('"say" is a template or a list of templates')
            return
        slots = dict(self.slots)
        fixed = dict(self.fixed)
        if isinstance(chosen := item.get("set", {}), Mapping):
            fixed.update(chosen)
        else:
            self.warn('"set" is an object of arguments; it is ignored')
        if isinstance(worded := item.get("words", {}), Mapping):
            slots.update(self._worded(worded))
        else:
            self.warn('"words" is an object of objects; it is ignored')
        texts = {key: self._text(key, item.get(key), {*slots, *fixed}) for key in ("reply", "ask", "while")}
        if len(templates) > MAX_TEMPLATES:
            self.warn(f'only the first {MAX_TEMPLATES} of {len(templates)} sentences of a "say" are used')
        for template in templates[:MAX_TEMPLATES]:
            phrase = self._phrase(template, slots, fixed, texts)
            if phrase is not None:
                yield phrase

    def _worded(self, worded: Mapping[str, Json]) -> Iterator[tuple[str, Values]]:
        for name, table in worded.items():
            if not isinstance(table, Mapping) or not table or not all(normalise(str(said)) for said in table):
                self.warn(f'"words" of {name!r} is an object of spoken words and values; it is ignored')
            else:
                yield name, Choices({" ".join(normalise(said)): value for said, value in table.items()})

    def _text(self, key: str, text: Json, names: set[str]) -> str | None:
        """A text to be spoken, if all that it refers to can exist."""
        if text is None:
            return None
        if not isinstance(text, str):
            self.warn(f"{key!r} is a text; it is ignored")
            return None
        for name in _FIELD.findall(text):
            result = name == "output" or name.startswith("output.")
            if (result and key != "reply") or (not result and name not in names):
                self.warn(f"{key!r} refers to {{{name}}}, which is not known then; it is ignored")
                return None
        return text

    def _phrase(
        self,
        template: str,
        slots: Mapping[str, Values],
        fixed: Mapping[str, Json],
        texts: Mapping[str, str | None],
    ) -> Phrase | None:
        try:
            node = parse(template, {name: values for name, values in slots.items() if name not in fixed})
        except TemplateError as error:
            self.warn(f"{template!r} cannot be used: {error}")
            return None
        sure = _always(node)
        missing = [name for name in self.required if name not in fixed and name not in sure]
        if missing:
            self.warn(f"{template!r} cannot be used: it may leave {missing[0]!r} unsaid, which is required")
            return None
        return Phrase(self.tool, node, slots, fixed, texts["reply"], texts["ask"], texts["while"])

    def derived(self) -> Iterator[Phrase]:
        """What a tool without phrases is called: its name, and its required parameters by name and value."""
        spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", self.tool.name)
        name = normalise(re.sub(r"[._-]+", " ", spaced))
        said = [each for each in self.required if each not in self.fixed]
        silent = next((each for each in said if each not in self.slots), None)
        if silent is not None:
            self.warn(f"it cannot be spoken of: {silent!r} is free text; declare phrases with words for it")
            return
        nothing: Mapping[str, str | None] = {"reply": None, "ask": None, "while": None}
        for template in _default_templates(name, said, self.slots, reads=self.tool.effect == "none"):
            phrase = self._phrase(template, self.slots, self.fixed, nothing)
            if phrase is not None:
                yield phrase


_SETTERS = {"set", "turn", "switch", "change", "adjust", "put", "move"}
_READERS = {"get", "read", "query", "show", "fetch"}


def _default_templates(
    name: Sequence[str], said: Sequence[str], slots: Mapping[str, Values], *, reads: bool
) -> Iterator[str]:
    noun = list(name[1:]) if len(name) > 1 and name[0] in _SETTERS | _READERS else list(name)
    if not noun:
        return
    thing = "[the] " + " ".join(noun)
    action = " ".join(name[:1]) + (" [the] " + " ".join(name[1:]) if len(name) > 1 else "")
    values = " ".join(f"[{' '.join(normalise(each))}] [to|for|at|by] {{{each}}}" for each in said)
    if not said:
        if reads and (len(name) == 1 or name[0] in _READERS):
            yield f"(what is|what's|tell me|read|check) {thing}"
        yield action
        return
    first = slots[said[0]]
    if len(said) == 1 and isinstance(first, Choices) and set(first.plain) == {"on", "off"}:
        yield f"(turn|switch) {{{said[0]}}} {thing}"
        yield f"(turn|switch) {thing} {{{said[0]}}}"
    if len(name) == 1 or name[0] in _SETTERS:
        yield f"set {thing} {values}"
    yield f"{action} {values}"


def _always(node: Node) -> set[str]:
    """The slots that every sentence of a node fills."""
    if isinstance(node, Either):
        return set.intersection(*(_always(option) for option in node.options))
    if hasattr(node, "parts"):
        return set().union(*(_always(part) for part in node.parts))
    if hasattr(node, "node"):
        return _always(node.node)
    return {node.name} if hasattr(node, "name") else set()
