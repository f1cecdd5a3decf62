"""Texts for MicroPython: shorter private names in a board's own modules, and what `ast.unparse` writes as it wants it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from vrt_host.device.words import ASKED, FOREIGN, PARAMETERS, WORDS

_PAIR = re.compile(r"^( *)\(?(\w[\w.]*(?:, \w[\w.]*)+)\)? = \((.+)\)$", re.MULTILINE)


def shortened(tree: ast.Module, keywords: Collection[str] | None) -> ast.Module:
    """A board's module with words that MicroPython knows for its private names, and for parameters that nobody names.

    Changed in place. `keywords`: what the firmware names; None: all may be. Constants (`_X = const(1)`) have no name on the device anyway.
    """
    table = _table(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            node.attr = table.get(node.attr, node.attr)
        elif isinstance(node, ast.Name):
            node.id = table.get(node.id, node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.name = table.get(node.name, node.name)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [table.get(name, name) for name in node.names]
    if keywords is not None:
        named = {*keywords, *(str(node.arg) for node in ast.walk(tree) if isinstance(node, ast.keyword))}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                _name_parameters(node, named)
    return tree


def _name_parameters(function: ast.FunctionDef, named: Collection[str]) -> None:
    inside = list(ast.walk(function))
    if any(isinstance(node, ast.FunctionDef | ast.Lambda) for node in inside[1:]):
        return  # which may have parameters of the same name
    taken = {node.id for node in inside if isinstance(node, ast.Name)}
    taken |= {name for node in inside if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    words = iter([word for word in PARAMETERS if word not in taken])
    new = {
        one.arg: next(words, one.arg)
        for one in function.args.args
        if one.arg != "self" and one.arg not in named
    }
    for node in inside:
        if isinstance(node, ast.Name):
            node.id = new.get(node.id, node.id)
    for one in function.args.args:
        one.arg = new.get(one.arg, one.arg)


def long(name: str, tree: ast.Module) -> str:
    """What the source calls a private name."""
    return next((old for old, new in _table(tree).items() if new == name), name)


def plain(text: str) -> str:
    """What `ast.unparse` has written, without tuples that MicroPython would make in the heap: `(a, b) = (c, d)`."""
    return _PAIR.sub(_bare, text)


def _bare(pair: re.Match[str]) -> str:
    """`a, b = c, d` as MicroPython wants it: for tuples in brackets, as `unparse` writes them, it makes one in the heap."""
    depth = 0
    for character in pair[3]:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return pair[0]  # no tuple
    return f"{pair[1]}{pair[2]} = {pair[3]}"


def _table(tree: ast.Module) -> dict[str, str]:
    kept = set(_kept(tree))
    if not _is_known(tree):
        return {}
    words = [word for word in WORDS if word not in kept | ASKED | FOREIGN]
    return dict(zip(sorted(set(_private(tree)) - kept), words, strict=False))


def _is_known(tree: ast.Module) -> bool:
    """Whether all classes are the module's own: another's base may have any attribute."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    own = {one.name for one in classes}
    return all(isinstance(base, ast.Name) and base.id in own for one in classes for base in one.bases)


def _is_private(name: str | None) -> bool:
    return name is not None and name.startswith("_") and not name.startswith("__") and name != "_"


def _private(tree: ast.Module) -> Iterator[str]:
    """The private names that a module makes: functions, classes, its globals, attributes of `self`."""
    constants = set(_constants(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            made = node.name
        elif isinstance(node, ast.Attribute) and _of_self(node):
            made = node.attr
        elif isinstance(node, ast.Name):
            made = node.id
        else:
            continue
        if _is_private(made) and made not in constants:
            yield made


def _constants(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            function = node.value.func
            if isinstance(function, ast.Name) and function.id == "const":
                yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _kept(tree: ast.Module) -> Iterator[str]:
    """Names that are taken, and private ones that must stay: used on other objects than `self`, in a text, or of arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not (_is_private(node.attr) and _of_self(node)):
            yield node.attr
        elif isinstance(node, ast.Name) and not _is_private(node.id):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and not _is_private(node.name):
            yield node.name
        elif isinstance(node, ast.alias):
            yield from (node.name, node.asname or node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.keyword | ast.arg):
            yield str(node.arg)
    yield from PARAMETERS
