"""One module of the firmware's sources as it is on the device: see firmware.py."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from vrt_host.device.weave.layout import PUBLIC
from vrt_host.device.weave.sources import Ref, Source, bound
from vrt_host.device.weave.words import PARAMETERS

if TYPE_CHECKING:
    from vrt_host.device.weave.firmware import Firmware

_LOADERS = (("name", "vrt", "use"), ("name", "vrt", "once"))
"""Functions that give the module of a name."""
_OPEN_TO_ALL = frozenset(name for names in PUBLIC.values() for name in names)


class _Scope:
    """A function: its local names, what its imports stand for, and what its parameters are called."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.refs: dict[str, Ref] = {}
        self.renamed: dict[str, str] = {}


class Rewrite(ast.NodeTransformer):
    """Makes it. With `attributes` it is a file of others, whose own names stay: these are of our objects."""

    def __init__(self, firmware: Firmware, source: Source, attributes: dict[str, str] | None = None) -> None:
        foreign = attributes is not None
        self._firmware = firmware
        self._source = source
        self._foreign = foreign
        self._home = "" if foreign else firmware.home(source.name)
        self._globals = {} if foreign else firmware.globals[source.name]
        self._attributes = firmware.attributes[source.name] if attributes is None else attributes
        self._scopes: list[_Scope] = []
        self._classes = 0  # we are in the body of one, not of a method

    def module(self) -> ast.Module:
        """The module, changed in place; each of its statements begins at its line."""
        tree = self._source.tree
        body = []
        for one in tree.body:
            made = self.visit(one)
            for new in made if isinstance(made, list) else [made] if made else []:
                body.append(ast.copy_location(new, one))
        tree.body = body
        return ast.fix_missing_locations(tree)

    # --- what a name is

    def _ref(self, name: str) -> Ref | None:
        for scope in reversed(self._scopes):
            if name in scope.refs:
                return scope.refs[name]
            if name in scope.names:
                return None
        return self._source.refs.get(name)

    def _is_local(self, name: str) -> _Scope | None:
        return next((scope for scope in reversed(self._scopes) if name in scope.names), None)

    def _module_of(self, node: ast.expr) -> str | None:
        """The firmware's module that an expression stands for."""
        if isinstance(node, ast.Name):
            ref = self._ref(node.id)
            return ref[1] if ref and ref[0] == "module" else None
        if isinstance(node, ast.Attribute):
            outer = self._module_of(node.value)
            inner = self._firmware.twin(f"{outer}.{node.attr}")
            return inner if outer and inner in self._firmware.sources else None
        if (
            isinstance(node, ast.Call)
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and self._is_use(node.func)
        ):
            return str(node.args[0].value)
        return None

    def _is_use(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return self._ref(node.id) in _LOADERS
        return (
            isinstance(node, ast.Attribute)
            and ("name", "vrt", node.attr) in _LOADERS
            and self._module_of(node.value) == "vrt"
        )

    def _new(self, module: str, name: str) -> str:
        return self._firmware.globals.get(module, {}).get(name, name)

    # --- names

    def visit_Name(self, node: ast.Name) -> ast.AST:  # noqa: PLR0911  (a name may be one of many things)
        scope = self._is_local(node.id)
        if scope is not None and node.id not in scope.refs:
            node.id = scope.renamed.get(node.id, node.id)
            return node
        ref = self._ref(node.id)
        if ref is not None and ref[0] == "name":
            constant = self._firmware.constant(ref[1], ref[2])
            if constant:
                return constant
            if not (self._foreign or (scope and scope.refs)) or self._firmware.home(ref[1]) == self._home:
                node.id = self._new(ref[1], ref[2])
            return node
        if ref is not None:
            home = self._firmware.home(ref[1])
            node.id = node.id if "." in home else home
            return node
        if self._classes and isinstance(node.ctx, ast.Store):
            node.id = self._attributes.get(node.id, node.id)
            return node
        if not self._foreign:
            constant = self._firmware.constant(self._source.name, node.id)
            if constant and isinstance(node.ctx, ast.Load):
                return constant
            node.id = self._globals.get(node.id, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        module = self._module_of(node.value)
        if module is None or module not in self._firmware.sources:
            node.attr = self._attributes.get(node.attr, node.attr)
            self.generic_visit(node)
            return node
        inner = self._firmware.twin(f"{module}.{node.attr}")
        if inner in self._firmware.sources:
            raise ValueError(
                f"{self._source.name}: a module of the firmware is no value: {ast.unparse(node)}"
            )
        constant = self._firmware.constant(module, node.attr)
        if constant:
            return constant
        new = self._new(module, node.attr)
        if not self._foreign and self._firmware.home(module) == self._home:
            return ast.copy_location(ast.Name(new, node.ctx), node)
        node.attr = new
        if isinstance(node.value, ast.Attribute):  # vrt.app.App
            node.value = ast.parse(self._firmware.home(module), mode="eval").body
        else:
            self.generic_visit(node)
        return node

    def visit_Global(self, node: ast.Global) -> ast.AST:
        node.names = [self._globals.get(name, name) for name in node.names]
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and node.value in self._firmware.sources and "." in node.value:
            node.value = self._firmware.home(node.value)
        return node

    # --- imports

    def visit_Import(self, node: ast.Import) -> ast.AST | list[ast.AST] | None:
        made: list[ast.AST] = []
        for alias in node.names:
            if alias.name.split(".")[0] != "vrt":
                made.append(ast.Import([alias]))
                continue
            ref = ("module", alias.name if alias.asname else "vrt")
            if self._scopes:
                self._scopes[-1].refs[alias.asname or "vrt"] = ref
            home = self._firmware.home(alias.name)
            if home != self._home or self._foreign:
                made.append(_import(home, alias.asname))
        return self._or_pass(made)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.AST] | None:
        if str(node.module).split(".")[0] != "vrt":
            return node
        made: list[ast.AST] = []
        for alias, ref in self._firmware.import_of(node):
            here = alias.asname or alias.name
            home = self._firmware.home(ref[1])
            inside = home == self._home and not self._foreign
            if ref[0] == "name" and self._firmware.constant(ref[1], ref[2]):
                inside = True
            if self._scopes and (inside or ref[0] == "module"):
                self._scopes[-1].refs[here] = ref
            if inside:
                continue
            if ref[0] == "module":
                made.append(_import(home, here))
                continue
            new = self._new(ref[1], ref[2])
            local = here if self._scopes or self._foreign else new
            made.append(ast.ImportFrom(home, [ast.alias(new, local if local != new else None)], 0))
        return self._or_pass(_together(made))

    def _or_pass(self, made: list[ast.AST]) -> ast.AST | list[ast.AST] | None:
        if made or not self._scopes:
            return made
        return ast.Pass()

    # --- functions and classes

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        in_class, self._classes = self._classes, 0
        node.decorator_list = [self.visit(one) for one in node.decorator_list]
        node.args.defaults = [self.visit(one) for one in node.args.defaults]
        node.args.kw_defaults = [one and self.visit(one) for one in node.args.kw_defaults]
        scope = _Scope(bound(node))
        open_to_all = node.name in _OPEN_TO_ALL
        if in_class:
            node.name = self._attributes.get(node.name, node.name)
        elif not self._scopes and not self._foreign:
            node.name = self._globals.get(node.name, node.name)
        if not (self._foreign or open_to_all):
            self._rename_parameters(node, scope)
        self._scopes.append(scope)
        node.body = self._statements(node.body)
        self._scopes.pop()
        self._classes = in_class
        return node

    def _statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for one in body:
            new = self.visit(one)
            made.extend(new if isinstance(new, list) else [new] if new else [])
        lean = [one for one in made if not isinstance(one, ast.Pass)]
        return lean or [ast.Pass()]

    def _rename_parameters(self, node: ast.FunctionDef, scope: _Scope) -> None:
        used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} | scope.names
        used |= {name for outer in self._scopes for name in (*outer.names, *outer.renamed.values())}
        words = iter([word for word in PARAMETERS if word not in used])
        for one in [*node.args.posonlyargs, *node.args.args]:
            if one.arg == "self" or one.arg in self._firmware.keywords:
                continue
            word = next(words, None)
            if word is None:
                return
            scope.renamed[one.arg] = one.arg = word

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self._scopes.append(_Scope({one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}))
        self.generic_visit(node)
        self._scopes.pop()
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.bases = [self.visit(one) for one in node.bases]
        if not self._scopes and not self._foreign:
            node.name = self._globals.get(node.name, node.name)
        self._classes += 1
        node.body = self._statements(node.body)
        self._classes -= 1
        return node

    # --- what is no longer there

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        target = node.targets[0]
        if (
            not (self._scopes or self._classes or self._foreign)
            and isinstance(target, ast.Name)
            and target.id in self._source.constants
        ):
            return None
        self.generic_visit(node)
        return node

    def visit_Delete(self, node: ast.Delete) -> ast.AST:
        targets = [one for one in node.targets if not (isinstance(one, ast.Name) and self._gone(one.id))]
        if not targets:
            return ast.Pass()
        node.targets = [self.visit(one) for one in targets]
        return node

    def _gone(self, name: str) -> bool:
        return any(name in scope.refs for scope in self._scopes)


def _import(home: str, name: str | None) -> ast.stmt:
    return ast.Import([ast.alias(home, name if name != home and "." in home else None)])


def _together(statements: list[ast.AST]) -> list[ast.AST]:
    """Names from one module in one statement."""
    made: list[ast.AST] = []
    by_module: dict[str, ast.ImportFrom] = {}
    for one in statements:
        if isinstance(one, ast.ImportFrom) and str(one.module) in by_module:
            by_module[str(one.module)].names.extend(one.names)
            continue
        if isinstance(one, ast.ImportFrom):
            by_module[str(one.module)] = one
        made.append(one)
    return made
