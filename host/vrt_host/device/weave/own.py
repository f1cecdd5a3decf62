"""Names of a board's own modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vrt_host.device.weave.sources import is_private, is_self
from vrt_host.device.weave.words import ASKED, FOREIGN, PARAMETERS, WORDS


def shorten(tree: ast.Module) -> None:
    """Give a module's private names words that MicroPython knows, in place."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    known = {one.name for one in classes}
    if not all(isinstance(base, ast.Name) and base.id in known for one in classes for base in one.bases):
        return  # another's base may have any attribute
    made, taken = set(_made(tree)), {*ASKED, *FOREIGN, *PARAMETERS, *_taken(tree)}
    taken |= {name for name in made if not is_private(name)}
    table = dict(zip(sorted(made - taken), (word for word in WORDS if word not in taken), strict=False))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            node.attr = table.get(node.attr, node.attr)
        elif isinstance(node, ast.Name):
            node.id = table.get(node.id, node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.name = table.get(node.name, node.name)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [table.get(name, name) for name in node.names]


def _made(tree: ast.Module) -> Iterator[str]:
    """Names that a module makes: functions, classes, variables, attributes of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute) and is_self(node.value):
            yield node.attr


def _taken(tree: ast.Module) -> Iterator[str]:
    """Names that stay: of other objects, in a text, of arguments, and of constants, which have none on the device anyway."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not is_self(node.value):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield from (node.name, node.asname or node.name)
        elif isinstance(node, ast.Constant):
            yield str(node.value)
        elif isinstance(node, ast.keyword | ast.arg):
            yield str(node.arg)
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) == "const"
        ):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
