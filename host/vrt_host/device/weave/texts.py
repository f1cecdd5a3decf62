"""Short texts of modules that the device forgets again.

MicroPython makes a name of every text of up to ten characters that it loads, and keeps it for ever. So what such a module says is one
long text, taken apart when it is imported: these texts go with the module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

from vrt_host.device.weave.layout import TEXTS

_SHORT = 10
_REPR = ord("r")
_BETWEEN = "\n"
_LONG = 13
_LIST = "mem_info"
"""What such a module calls them: a word that MicroPython knows, and no module of ours uses."""


def is_seldom(text: str) -> bool:
    """Whether a text of a module that stays is for people, and said so seldom that it can be loaded when it is: not one about a lack
    of memory, nor one that goes with an interruption."""
    return (
        len(text) >= _LONG
        and " " in text
        and text[0] != "{"
        and not re.search(r"\n|memory|heap|hold|interrupt", text)
    )


class Seldom(ast.NodeTransformer):
    """Texts that are loaded when they are said, by `once`; `found` collects them, with the place where each begins."""

    def __init__(self, found: dict[str, int], once: str) -> None:
        self._found = found
        self._once = once

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """A text."""
        return self._taken(node.value) if isinstance(node.value, str) and is_seldom(node.value) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        """A text with gaps."""
        taken = _template(node)
        if taken is None or not is_seldom(taken[0]):
            return node
        values = [self.visit(one) for one in taken[1]]
        return ast.Call(ast.Attribute(self._taken(taken[0]), "format", ast.Load()), values, [])

    def _taken(self, text: str) -> ast.expr:
        start = self._found.setdefault(text, sum(map(len, self._found)))
        return ast.parse(f"{self._once}({TEXTS!r}).get({start}, {start + len(text)})", mode="eval").body


def _template(node: ast.JoinedStr) -> tuple[str, list[ast.expr]] | None:
    """`"{}..."`, as MicroPython keeps a text with gaps, and what goes into them; None when that is not all."""
    text, values = "", []
    for one in node.values:
        if isinstance(one, ast.FormattedValue):
            if one.conversion not in (-1, _REPR) or one.format_spec:
                return None
            text += "{!r}" if one.conversion == _REPR else "{}"
            values.append(one.value)
        elif isinstance(one, ast.Constant):
            text += str(one.value).replace("{", "{{").replace("}", "}}")
    return text, values


class Passing(ast.NodeTransformer):
    """Does it for one module; texts in `stay` are names anyway."""

    def __init__(self, stay: Collection[str]) -> None:
        self._stay = stay
        self._found: dict[str, int] = {}

    def module(self, tree: ast.Module) -> ast.Module:
        """The module, changed in place."""
        self.visit(tree)
        if self._found:
            at = sum(isinstance(one, ast.Import | ast.ImportFrom) for one in tree.body)
            tree.body.sort(key=lambda one: not isinstance(one, ast.Import | ast.ImportFrom))
            tree.body.insert(
                at, ast.parse(f"{_LIST} = {_BETWEEN.join(self._found)!r}.split({_BETWEEN!r})").body[0]
            )
        return tree

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """A text by its place."""
        return self._taken(node.value) if isinstance(node.value, str) and self._passes(node.value) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        """A text with gaps."""
        taken = _template(node)
        if taken is None or not self._passes(taken[0]):
            node.values = [
                self.visit(one) if isinstance(one, ast.FormattedValue) else one for one in node.values
            ]
            return node
        return ast.Call(
            ast.Attribute(self._taken(taken[0]), "format", ast.Load()),
            [self.visit(one) for one in taken[1]],
            [],
        )

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.FormattedValue:
        """Only the value: what is between is not a text of its own."""
        node.value = self.visit(node.value)
        return node

    def _passes(self, text: str) -> bool:
        return (
            0 < len(text) <= _SHORT and text not in self._stay and _BETWEEN not in text and text.isprintable()
        )

    def _taken(self, text: str) -> ast.expr:
        place = self._found.setdefault(text, len(self._found))
        return ast.Subscript(ast.Name(_LIST, ast.Load()), ast.Constant(place), ast.Load())
