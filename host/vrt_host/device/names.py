"""Shorter and fewer private names in the firmware, where the device keeps every name once for all modules.

A name costs a board some 15 to 30 bytes, and when the table that holds them is full it doubles in one piece. So what is private,
that is, begins with an underscore and is used in one module or one family of classes, gets one of a few names that all of them
share: `_a`, `_b` and so on, in the alphabet's order of the old ones. Constants (`_X = const(1)`) have no name on the device anyway.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

VERSION = 3
"""Of the rules here; another one makes other files of the same sources."""

_PAIR = re.compile(r"^( *)\(?(\w[\w.]*(?:, \w[\w.]*)+)\)? = \((.+)\)$", re.MULTILINE)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_FRAME = re.compile(r'(File "([\w.]+)", line \d+, in )(_[a-z]{1,2})$')


def lean(source: Path) -> str:
    """The text of a module with its private names shortened.

    A module of the firmware's package `vrt` shares the names of its family, any other has its own. Raises SyntaxError.
    """
    table = _table(source)
    tree = ast.parse(source.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            node.attr = table.get(node.attr, node.attr)
        elif isinstance(node, ast.Name):
            node.id = table.get(node.id, node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.name = table.get(node.name, node.name)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [table.get(name, name) for name in node.names]
    return _PAIR.sub(_bare, ast.unparse(tree))


def _bare(pair: re.Match[str]) -> str:
    """`a, b = c, d` as MicroPython wants it: for tuples in brackets, as `unparse` writes them, it makes one in the heap."""
    depth = 0
    for character in pair[3]:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return pair[0]  # no tuple
    return f"{pair[1]}{pair[2]} = {pair[3]}"


def readable(line: str, folder: Path) -> str:
    """A line of a board's traceback with the name that the source has; `folder` holds the firmware's sources."""
    found = _FRAME.search(line)
    if found is None:
        return line
    path = folder.joinpath(*found[2].split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    table = _table(source) if source.is_file() else {}
    full = next((old for old, new in table.items() if new == found[3]), found[3])
    return line[: found.start(3)] + full


def _table(source: Path) -> dict[str, str]:
    package = next((folder for folder in source.parents if folder.name == "vrt"), None)
    files = {source, *(package.rglob("*.py") if package else ())}
    return _tables(tuple(sorted((path, path.stat().st_mtime_ns) for path in files)))[source]


@functools.lru_cache(maxsize=32)
def _tables(stamps: tuple[tuple[Path, int], ...]) -> dict[Path, dict[str, str]]:
    """For each file old name -> new name. The times are there so that a changed file is read again."""
    trees = {path: ast.parse(path.read_text("utf-8"), str(path)) for path, _ in stamps}
    owned = {path: set(_private(tree)) for path, tree in trees.items()}
    families = _families(trees)
    kept = set(_kept(trees.values()))
    tables: dict[Path, dict[str, str]] = {}
    for family in families:
        names = sorted(set().union(*(owned[path] for path in family)) - kept)
        table = dict(zip(names, _short(kept), strict=False))
        tables.update(dict.fromkeys(family, table))
    return tables


def _short(taken: set[str]) -> Iterator[str]:
    for length in (1, 2):
        for number in range(len(_LETTERS) ** length):
            first, last = divmod(number, len(_LETTERS))
            name = "_" + (_LETTERS[first] if length == 2 else "") + _LETTERS[last]
            if name not in taken:
                yield name


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


def _families(trees: dict[Path, ast.Module]) -> list[set[Path]]:
    """The files whose classes inherit from one another go together."""
    home = {
        node.name: path
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    family = {path: {path} for path in trees}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                other = home.get(getattr(base, "id", getattr(base, "attr", "")), path)
                if family[other] is not family[path]:
                    family[path] |= family[other]
                    for member in family[path]:
                        family[member] = family[path]
    return list({id(members): members for members in family.values()}.values())


def _kept(trees: Iterable[ast.Module]) -> Iterator[str]:
    """Names that must stay: used on other objects than `self`, imported, spelled out in a text, or of arguments."""
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _of_self(node):
                yield node.attr
            elif isinstance(node, ast.ImportFrom):
                yield from (alias.name for alias in node.names if _is_private(alias.name))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_private(node.value):
                yield node.value
            elif isinstance(node, ast.keyword | ast.arg) and _is_private(node.arg):
                yield str(node.arg)
