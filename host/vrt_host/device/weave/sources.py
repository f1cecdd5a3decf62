"""The modules of the firmware's sources, and what is in them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrt_host.device.weave.layout import PUBLIC

if TYPE_CHECKING:
    from vrt_host.device.weave.firmware import Firmware

Ref = tuple[str, ...]  # ("module", name), ("name", module, name)


@dataclass
class Source:
    """A module of the firmware."""

    name: str
    path: Path
    tree: ast.Module
    constants: dict[str, Any] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    refs: dict[str, Ref] = field(default_factory=dict)
    """What its own imports bind: of the firmware, at the level of the module."""
    outside: set[str] = field(default_factory=set)
    """What its imports of MicroPython bind."""
    functions: set[str] = field(default_factory=set)
    """And classes: those of `globals` that tracebacks name."""
    methods: set[str] = field(default_factory=set)
    data: set[str] = field(default_factory=set)


def module(path: Path) -> str:
    """What `import` calls a file of the sources."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def reaches_in(tree: ast.Module) -> bool:
    """Whether a file of others imports more of the firmware than what is for tools."""
    found = {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    found |= {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
    return any(name.split(".")[0] == "vrt" and name not in PUBLIC for name in found)


def is_private(name: str) -> bool:
    """Whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__") and name != "_"


def chosen(tree: ast.Module) -> ast.Module:
    """Without the choices that the build makes: MicroPython, and machine code where it can be had (else TWINS)."""
    body: list[ast.stmt] = []
    for one in tree.body:
        if isinstance(one, ast.If) and ast.unparse(one.test) == "sys.implementation.name == 'micropython'":
            body.extend(chosen(ast.Module(one.body, [])).body)
        elif isinstance(one, ast.Try) and all(isinstance(inner, ast.ImportFrom) for inner in one.body):
            body.extend(one.body)
        else:
            body.append(one)
    return ast.Module(body, tree.type_ignores)


def look(source: Source, firmware: Firmware) -> None:  # noqa: PLR0912  (a branch for each kind of statement)
    """Fill in what a module has."""
    rebound = {name for node in ast.walk(source.tree) if isinstance(node, ast.Global) for name in node.names}
    for one in source.tree.body:
        if isinstance(one, ast.Import):
            for alias in one.names:
                if alias.name.split(".")[0] == "vrt":
                    source.refs[alias.asname or "vrt"] = ("module", alias.name if alias.asname else "vrt")
                else:
                    source.outside.add(alias.asname or alias.name)
        elif isinstance(one, ast.ImportFrom):
            if str(one.module).split(".")[0] == "vrt":
                for alias, ref in firmware.import_of(one):
                    source.refs[alias.asname or alias.name] = ref
            else:
                source.outside.update(alias.asname or alias.name for alias in one.names)
        elif isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name):
            name = one.targets[0].id
            value = _constant(one.value, source.constants)
            if value is not None and name not in rebound and name.isupper() and name != "VERSION":
                source.constants[name] = value
            else:
                source.globals.add(name)
        else:
            made = set(_bound([one]))
            source.globals |= made
            if isinstance(one, ast.FunctionDef | ast.ClassDef):
                source.functions |= made
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef):
            source.methods.update(
                one.name
                for one in node.body
                if isinstance(one, ast.FunctionDef) and not one.name.startswith("__")
            )
            source.data.update(
                target.id
                for one in node.body
                if isinstance(one, ast.Assign)
                for target in one.targets
                if isinstance(target, ast.Name)
            )
            source.data.update(set_on_self(node))


def set_on_self(node: ast.AST) -> Iterator[str]:
    """Attributes that are set on `self`."""
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and is_self(one.value):
            yield one.attr


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def of_others(tree: ast.Module) -> Iterator[str]:
    """Private attributes that are used on other objects than `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_self(node.value):
            yield node.attr


def _constant(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """What `const(...)`, or a number or text by itself, stands for; None for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "const":
        expression = ast.Expression(node.args[0])
        allowed = (
            ast.Constant,
            ast.Name,
            ast.UnaryOp,
            ast.BinOp,
            ast.operator,
            ast.unaryop,
            ast.Expression,
            ast.Load,
        )
        if all(isinstance(one, allowed) for one in ast.walk(expression)):
            try:
                return eval(compile(ast.fix_missing_locations(expression), "", "eval"), {}, dict(known))
            except NameError:
                return None
        return None
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | str)
        and not isinstance(node.value, bool)
    ):
        return node.value
    return None


def _bound(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """Names that statements bind in their own scope."""
    for one in statements:
        if isinstance(one, ast.FunctionDef | ast.ClassDef):
            yield one.name
            continue
        yield from _in_expressions(one)


def _in_expressions(node: ast.AST) -> Iterator[str]:
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.FunctionDef | ast.ClassDef):
            yield one.name
        elif isinstance(one, ast.Lambda):
            pass
        elif isinstance(one, ast.Name):
            if isinstance(one.ctx, ast.Store):
                yield one.id
        elif isinstance(one, ast.ExceptHandler):
            if one.name:
                yield one.name
            yield from _in_expressions(one)
        elif isinstance(one, ast.alias):
            yield one.asname or one.name.split(".")[0]
        else:
            yield from _in_expressions(one)


def bound(function: ast.FunctionDef) -> set[str]:
    """The local names of a function, its parameters among them."""
    made = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    made.update(_bound(function.body))
    shared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    return made - shared


def families(sources: Mapping[str, Source]) -> list[set[str]]:
    """The modules whose classes inherit from one another go together."""
    home = {
        node.name: name
        for name, source in sources.items()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
    }
    family = {name: {name} for name in sources}
    for name, source in sources.items():
        for node in ast.walk(source.tree):
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                other = home.get(getattr(base, "id", getattr(base, "attr", "")), name)
                if family[other] is not family[name]:
                    family[name] |= family[other]
                    for member in family[name]:
                        family[member] = family[name]
    return list({id(members): members for members in family.values()}.values())
