"""One text of the statements of several modules, as MicroPython wants it."""

from __future__ import annotations

import ast
import keyword
import re
from collections import Counter

from vrt_host.device.weave.sources import bound

_NEAR = 125
"""So many of a module's names have a number that fits into a byte."""
_PAIR = re.compile(r"^( *)\(?(\w[\w.]*(?:, \w[\w.]*)+)\)? = \((.+)\)$", re.MULTILINE)


def text(module: ast.Module, stays: bool) -> str:
    """The text of a module that imports at its beginning, each name once, and only what it uses."""
    used = {node.id for node in ast.walk(module) if isinstance(node, ast.Name)}
    names: dict[str, dict[str, None]] = {}
    body = []
    for one in module.body:
        if isinstance(one, ast.Import | ast.ImportFrom):
            of = one.module if isinstance(one, ast.ImportFrom) else ""
            for alias in one.names:
                if (alias.asname or alias.name.split(".")[0]) in used:
                    names.setdefault(str(of), {})[ast.unparse(alias)] = None
        else:
            body.append(one)
    heads = [*(_foremost(body) if stays else ()), *(f"import {name}" for name in names.pop("", ()))]
    heads += [f"from {of} import {', '.join(found)}" for of, found in names.items()]
    return plain("\n".join([*heads, ast.unparse(ast.Module(body, []))]))


def plain(text: str) -> str:
    """What `ast.unparse` has written, without tuples that MicroPython would make in the heap: `(a, b) = (c, d)`."""
    return _PAIR.sub(_bare, text)


def _bare(pair: re.Match[str]) -> str:
    depth = 0
    for character in pair[3]:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return pair[0]  # no tuple
    return f"{pair[1]}{pair[2]} = {pair[3]}"


def _foremost(body: list[ast.stmt]) -> list[str]:
    """Statements that are never run and cost four bytes: the compiler numbers names as they come, and these come often."""
    count: Counter[str] = Counter()
    for one in body:
        local = {name for node in ast.walk(one) if isinstance(node, ast.FunctionDef) for name in bound(node)}
        for node in ast.walk(one):
            if isinstance(node, ast.Attribute):
                count[node.attr] += 1
            elif isinstance(node, ast.Name):
                count[node.id] += node.id not in local
            elif isinstance(node, ast.keyword | ast.arg) and node.arg:
                count[node.arg] += 1
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                count[node.name] += 1
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= 10:
                count[node.value] += node.value.isidentifier() and not keyword.iskeyword(node.value)
    often = [name for name, times in count.most_common() if times]
    return ["while True:", " break", " " + ".".join(often[:_NEAR])] if len(often) > _NEAR else []
