"""Constructors of objects that live as long as the device, moved to where they are called: modules that are forgotten afterwards.

`Sound(board, config)` becomes `make_Sound(Sound(), board, config)`, and `make_Sound`, which was `Sound.__init__`, is in the module that
makes the device. What it needs of its own module is imported there.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping

MOVED: Mapping[tuple[str, str], str] = {
    **dict.fromkeys(
        (
            *(
                ("vrt.app", "App"),
                ("vrt.conversation", "Conversation"),
                ("vrt.log", "Log"),
                ("vrt.sound", "Sound"),
            ),
            *(("vrt.protocol.lifecycle", "Lifecycle"), ("vrt.protocol.session", "Session")),
            *(
                ("vrt.protocol.stream", "Streams"),
                ("vrt.tools.confirm", "Confirm"),
                ("vrt.tools.journal", "Journal"),
            ),
            *(("vrt.tools.registry", "Registry"), ("vrt.ui", "Button")),
        ),
        "vrt.build",
    ),
    ("vrt.audio.mic", "Mic"): "vrt.audio.make",
    ("vrt.audio.speaker", "Speaker"): "vrt.audio.make",
    ("vrt.links.websocket", "WebSocket"): "vrt.links.url",
    ("vrt.links.ws", "WebSocketLink"): "vrt.links.url",
}
"""(module, class) -> the module that makes its object."""


SELDOM: Mapping[str, tuple[tuple[str, str], ...]] = {
    "vrt.seldom.arguments": (("vrt.tools.arguments", "problem"), ("vrt.tools.arguments", "_broken_limit")),
    "vrt.seldom.hello": (("vrt.app", "App.hello"), ("vrt.tools.registry", "Registry.declare")),
    "vrt.seldom.count": (("vrt.app", "App._count"), ("vrt.sound", "Sound.figures")),
    "vrt.seldom.surrogates": (("vrt.protocol.grammar", "join_surrogates"),),
    "vrt.seldom.ready": (
        ("vrt.conversation", "Conversation._ready"),
        ("vrt.tools.registry", "Registry.resumed"),
        ("vrt.tools.journal", "Journal.settle"),
    ),
    "vrt.seldom.save": (
        ("vrt.tools.journal", "Journal._save"),
        ("vrt.tools.journal", "Journal._record"),
    ),
}
"""Functions that are loaded each time they run, and forgotten: module -> (where it was, name), the one that is called first and then
what it alone needs. None of them runs for audio, and none changes anything before it has been loaded."""
ENTRY = "main"
"""What such a module calls the first of them; `vrt.once` knows it, too."""

Moved = Mapping[tuple[str, str], str]


def outline(trees: Mapping[str, ast.Module]) -> Moved:
    """Do it, in place, in the trees of the modules. Returns what was moved."""
    moved = {
        one: to
        for one, to in MOVED.items()
        if one[0] in trees and to in trees and _init(trees[one[0]], one[1])
    }
    for one, target in moved.items():
        _move(trees[one[0]], trees[target], one, target, moved)
    for name, tree in trees.items():
        call_moved(tree, moved, name)
    return moved


def call_moved(tree: ast.Module, moved: Moved, module: str = "") -> None:
    """The calls of one module, and what it must import for them."""
    known = {name: (owner, name) for owner, name in moved if owner == module}
    known.update((alias.asname or alias.name, one) for _, alias, one in _imports(tree) if one in moved)
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known:
            one = known[node.func.id]
            node.args.insert(0, ast.Call(node.func, [], []))
            node.func = ast.Name(_maker(one), ast.Load())
            used.add(one)
    for body in _bodies(tree):
        for place, statement in reversed(list(enumerate(body))):
            for _, _, one in (
                _imports(ast.Module([statement], [])) if isinstance(statement, ast.ImportFrom) else ()
            ):
                if one in used and moved[one] != module:
                    body.insert(place + 1, ast.ImportFrom(moved[one], [ast.alias(_maker(one))], 0))


def _imports(tree: ast.AST) -> Iterator[tuple[ast.ImportFrom, ast.alias, tuple[str, str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node, alias, (str(node.module), alias.name)


def _maker(one: tuple[str, str]) -> str:
    return f"make_{one[1]}"


def _init(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return next(
                (f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None
            )
    return None


def _move(source: ast.Module, made: ast.Module, one: tuple[str, str], target: str, moved: Moved) -> None:
    init = _taken(source, f"{one[1]}.__init__")
    holder = next(node for node in source.body if isinstance(node, ast.ClassDef) and node.name == one[1])
    init.name = _maker(one)
    init.body.append(ast.Return(ast.Name("self", ast.Load())))
    _begin_base(source, holder, init, one[0], moved)
    _carry(source, one[0], init, made, one[1])


def _taken(source: ast.Module, name: str) -> ast.FunctionDef:
    """A function, or the method `Class.name`, out of its module."""
    owner, _, last = name.rpartition(".")
    body = source.body
    if owner:
        body = next(
            node.body for node in source.body if isinstance(node, ast.ClassDef) and node.name == owner
        )
    found = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == last)
    body.remove(found)
    return found


def _carry(source: ast.Module, module: str, function: ast.FunctionDef, made: ast.Module, label: str) -> None:
    """Put a function of `module`, its `home`, whose attributes it knows, into another one, and there what it needs of its own."""
    function.home = module  # type: ignore[attr-defined]
    shared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    function.body = [node for node in function.body if not isinstance(node, ast.Global)]
    local = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    local |= {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    local |= {alias.asname or alias.name for _, alias, _ in _imports(function)}
    defaults = [
        one for one in (*function.args.defaults, *function.args.kw_defaults) if isinstance(one, ast.Name)
    ]
    needed = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} - local
    needed |= {one.id for one in defaults}
    needed -= {node.name for node in made.body if isinstance(node, ast.FunctionDef)}
    renamed = {}
    for statement in source.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                name = alias.asname or alias.name
                if name in needed and str(getattr(statement, "module", alias.name)).startswith("vrt"):
                    renamed[name] = f"{label}_{name}"
                    made.body.insert(0, _import(statement, ast.alias(alias.name, renamed[name])))
                elif name in needed:
                    made.body.insert(0, _import(statement, alias))
        else:
            for name in set(_made(statement)) & needed:
                renamed[name] = f"{label}_{name}"
                made.body.insert(0, ast.ImportFrom(module, [ast.alias(name, renamed[name])], 0))
    if shared:
        made.body.insert(0, ast.Import([ast.alias(module, f"{label}_module")]))
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and (node.id not in local or node in defaults):
            node.id = renamed.get(node.id, node.id)
    made.body.append(_Shared(shared, f"{label}_module").visit(function))


def passing(trees: Mapping[str, ast.Module]) -> dict[str, ast.Module]:
    """Take the functions of SELDOM out of their modules. Returns the modules that they are in instead."""
    made = {}
    for name, functions in SELDOM.items():
        if any(module not in trees for module, _ in functions):
            continue
        taken = [(module, where, _taken(trees[module], where)) for module, where in functions]
        module, where, entry = taken[0]
        _stub(trees[module], where, entry, name)
        helpers = {one.name: f"of_{one.name}" if "." in where else one.name for _, where, one in taken[1:]}
        tree = made[name] = ast.Module([], [])
        for module, _, one in reversed(taken):
            one.name = ENTRY if one is entry else helpers[one.name]
            for node in ast.walk(one):
                if isinstance(node, ast.Name) and node.id == where:  # by itself
                    node.id = ENTRY
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in helpers
                ):
                    node.args.insert(0, node.func.value)
                    node.func = ast.Name(helpers[node.func.attr], ast.Load())
            if one.name == ENTRY:
                tree.body.append(ast.parse(f"def {ENTRY}(): pass").body[0])  # so that it is known
            _carry(trees[module], module, one, tree, f"{name.rpartition('.')[2]}_{one.name}")
            if one.name == ENTRY:
                tree.body = [node for node in tree.body if node is one or getattr(node, "name", "") != ENTRY]
    return made


def _stub(source: ast.Module, where: str, entry: ast.FunctionDef, name: str) -> None:
    """In place of a function: who loads it, runs it, and forgets it."""
    owner = where.rpartition(".")[0]
    body = source.body
    if owner:
        body = next(
            node.body for node in source.body if isinstance(node, ast.ClassDef) and node.name == owner
        )
    arguments = [ast.Name(one.arg, ast.Load()) for one in entry.args.args]
    call = ast.Call(ast.Name("once", ast.Load()), [ast.Constant(name), *arguments], [])
    stub = ast.FunctionDef(entry.name, copy.deepcopy(entry.args), [ast.Return(call)], [], None, None)
    body.append(stub)
    source.body.insert(0, ast.ImportFrom("vrt", [ast.alias("once")], 0))


class _Shared(ast.NodeTransformer):
    """Globals that are set: attributes of their module."""

    def __init__(self, names: set[str], module: str) -> None:
        self._names = names
        self._module = module

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return (
            ast.Attribute(ast.Name(self._module, ast.Load()), node.id, node.ctx)
            if node.id in self._names
            else node
        )


def _begin_base(
    source: ast.Module, holder: ast.ClassDef, init: ast.FunctionDef, module: str, moved: Moved
) -> None:
    """`Base.__init__(self, ...)`, or the same by super(), of a base that is moved, too."""
    for base in holder.bases:
        name = ast.unparse(base)
        whole = next(
            (one for _, alias, one in _imports(source) if (alias.asname or alias.name) == name),
            (module, name),
        )
        for call in ast.walk(init):
            if whole in moved and isinstance(call, ast.Call):
                if ast.unparse(call.func) == "super().__init__":
                    call.args.insert(0, ast.Name("self", ast.Load()))
                elif ast.unparse(call.func) != f"{name}.__init__":
                    continue
                call.func = ast.Name(_maker(whole), ast.Load())


def _import(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> ast.stmt:
    return (
        ast.Import([alias])
        if isinstance(statement, ast.Import)
        else ast.ImportFrom(statement.module, [alias], 0)
    )


def _made(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))


def _bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                yield body
