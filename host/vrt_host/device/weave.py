"""The firmware as a board gets it: the modules that stay are joined, and internal names are words that MicroPython has in flash.

A module costs a small heap its tables, its paths and its names, and so does every name that MicroPython does not know. So what stays
in memory for as long as the client runs becomes one module, `vrt` (and what a kind of link adds, another). The rest, which is
imported when it is needed, keeps a file of its own, `vrt/NAME`. Names that nobody outside sees are replaced, each by one word from
words.py; private ones of classes that never meet share theirs. Constants are put in where they are used.

What others see stays: what tools and boards import, and whatever is spelled in a text, a keyword or a board's own files.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vrt_host.device import names
from vrt_host.device.layout import FLAT, FORGOTTEN, JOINED, PUBLIC, TEXTS, TWINS
from vrt_host.device.naming import Naming
from vrt_host.device.outline import ENTRY, SELDOM, call_moved, outline, passing
from vrt_host.device.passing import Passing, Seldom
from vrt_host.device.sources import Ref, Source, bound, chosen, is_function, look, module
from vrt_host.device.words import WORDS
from vrt_host.errors import UsageError
from vrt_host.resources import root

VERSION = 4
"""Of the rules here; another one makes other files of the same sources."""


class Firmware(Naming):
    """All of the firmware's sources, and the names that they get."""

    def __init__(
        self, folder: Path, boards: Path, native: bool = True, texts: Mapping[str, str] | None = None
    ) -> None:
        """Of the folders `firmware` and `boards`; `texts` takes the place of files: module -> text. Raises SyntaxError."""
        self.native = native
        self.sources: dict[str, Source] = {}
        for path in [*sorted(folder.glob("*.py")), *sorted((folder / "vrt").rglob("*.py"))]:
            name = module(path.relative_to(folder))
            text = (texts or {}).get(name) or path.read_text("utf-8")
            self.sources[name] = Source(name, path, chosen(ast.parse(text, str(path))))
        self.group = {
            self.twin(name): group
            for group, joined in JOINED.items()
            for name in joined
            if self.twin(name) in self.sources
        }
        files = [*sorted(boards.glob("*.py")), *sorted(boards.glob("*/board.py"))]
        self.boards = [ast.parse(path.read_text("utf-8"), str(path)) for path in files]
        for source in self.sources.values():
            self._by_place(source.tree, source.name)
        trees = {name: source.tree for name, source in self.sources.items()}
        for name, tree in passing(trees).items():
            self.sources[name] = Source(name, self.sources[SELDOM[name][0][0]].path, tree)
        self._moved = outline({name: source.tree for name, source in self.sources.items()})
        for source in self.sources.values():
            look(source, self)
        self.globals: dict[str, dict[str, str]] = {name: {} for name in self.sources}
        self.attributes: dict[str, dict[str, str]] = {}
        self._made: dict[tuple[str, ...], str] = {}
        self._name()

    # --- modules

    def twin(self, name: str) -> str:
        """The module that stands for that one."""
        return name if self.native else TWINS.get(name, name)

    def home(self, name: str) -> str:
        """The module that a module of the sources is in, or is, on the device."""
        if not name.startswith("vrt"):
            return name
        return self.group.get(name) or FLAT.get(name) or "vrt." + name.rpartition(".")[2]

    def import_of(self, node: ast.ImportFrom) -> list[tuple[ast.alias, Ref]]:
        """What a `from ... import` of the firmware's binds."""
        found: list[tuple[ast.alias, Ref]] = []
        for alias in node.names:
            whole = self.twin(f"{node.module}.{alias.name}")
            if whole in self.sources:
                found.append((alias, ("module", whole)))
            else:
                found.append((alias, ("name", self.twin(str(node.module)), alias.name)))
        return found

    def constant(self, module: str, name: str) -> ast.Constant | None:
        """A constant of a module, wherever it is used."""
        source = self.sources.get(module)
        if source is None or name not in source.constants:
            return None
        return ast.Constant(source.constants[name])

    def _by_place(self, tree: ast.Module, module: str = "") -> None:
        """Arguments that are named go to their places where a class of ours is called: their names are no more."""
        known = {name: ("name", module, name) for name in self.classes.get(module, ())}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("vrt"):
                known.update(
                    (alias.asname or alias.name, ref) for alias, ref in self.import_of(node) if len(ref) == 3
                )
        for node in ast.walk(tree):
            ref = (
                known.get(node.func.id)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                else None
            )
            taken = self.classes.get(ref[1], {}).get(ref[2]) if ref else None
            if taken is None or not isinstance(node, ast.Call):
                continue
            given = {one.arg: one.value for one in node.keywords}
            while given:
                name, default = taken[len(node.args)]
                value = given.pop(name, default)
                assert value is not None, f"{module}: {ast.unparse(node)}"
                node.args.append(value)
            node.keywords = []

    @functools.cached_property
    def classes(self) -> dict[str, dict[str, list[tuple[str, ast.expr | None]]]]:
        """Of each module the classes whose constructors can be called by places: parameters with their defaults."""
        made: dict[str, dict[str, list[tuple[str, ast.expr | None]]]] = {}
        for source in self.sources.values():
            for one in source.tree.body:
                found = [init for init in getattr(one, "body", ()) if getattr(init, "name", "") == "__init__"]
                if (
                    isinstance(one, ast.ClassDef)
                    and found
                    and not (found[0].args.vararg or found[0].args.kwarg)
                ):
                    args = found[0].args
                    plain = [*args.posonlyargs, *args.args][1:]
                    defaults = [
                        *[None] * (len(plain) - len(args.defaults)),
                        *args.defaults,
                        *args.kw_defaults,
                    ]
                    names = [one.arg for one in [*plain, *args.kwonlyargs]]
                    made.setdefault(source.name, {})[one.name] = list(zip(names, defaults, strict=True))
        return made

    # --- names

    @functools.cached_property
    def digest(self) -> str:
        """Short, of all names: which tracebacks can be read with them."""
        said = repr((VERSION, self.native, sorted(self.globals.items()), sorted(self.attributes.items())))
        return hashlib.sha256(said.encode()).hexdigest()[:4]

    # --- texts

    def names(self, members: Iterable[str]) -> dict[str, list[str]]:
        """What lies on the device for these modules of the sources: module -> those that are in it."""
        wanted = {self.twin(name) for name in members}
        wanted |= {
            name for name, functions in SELDOM.items() if functions[0][0] in wanted and name in self.sources
        }
        made: dict[str, list[str]] = {}
        for group, joined in JOINED.items():
            inside = [self.twin(name) for name in joined if self.twin(name) in wanted]
            if inside:
                made[group] = inside
        plain = set(TWINS) | set(TWINS.values())
        for name in sorted(wanted):
            if name not in self.group and name not in plain:
                made[self.home(name)] = [name]
        return made

    def files(self, members: Iterable[str] | None = None) -> Iterator[File]:
        """What lies on the device for these modules of the sources, or for all."""
        for name, inside in self.names(self.sources if members is None else members).items():
            package = "/__init__" if name == "vrt" else ""
            shown = f"vrt-{self.digest}" if name == "vrt" else name
            source = self.sources[inside[-1]].path
            yield File(f"{name.replace('.', '/')}{package}.mpy", shown, source, self.text(inside))
            if name == "vrt" and self._texts:
                text = f"def {ENTRY}(start, end):\n return {''.join(self._texts)!r}[start:end]"
                yield File(f"{TEXTS.replace('.', '/')}.mpy", TEXTS, source, text)

    def text(self, inside: list[str]) -> str:
        """The text of a module of the device that consists of these."""
        key = tuple(inside)
        if key not in self._made:
            self._made[key] = self._text(inside)
        return self._made[key]

    def _text(self, inside: list[str]) -> str:
        from vrt_host.device.rewrite import Rewrite  # noqa: PLC0415  (which needs this module)

        made = ast.Module([], [])
        for name in inside:
            made.body.extend(Rewrite(self, self.sources[name]).module().body)
        if "vrt" in inside:
            made = self._seldom(made, self._texts)
            made.body.extend(_aliases())
        stays = self.group.get(inside[0], FORGOTTEN[0]) not in FORGOTTEN
        return names.plain(_imports_once(made if stays else Passing(self.stay).module(made), stays))

    @functools.cached_property
    def stay(self) -> set[str]:
        """Short texts that the device has as names anyway."""
        found = set(WORDS)
        for node in (
            node
            for name, home in self.group.items()
            if home == "vrt"
            for node in ast.walk(self.sources[name].tree)
        ):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.keyword | ast.arg) and node.arg:
                found.add(node.arg)
        return found

    @functools.cached_property
    def _texts(self) -> dict[str, int]:
        """Texts that are loaded when they are said, and where they begin in the one that they make together."""
        from vrt_host.device.rewrite import Rewrite  # noqa: PLC0415  (as above)

        found: dict[str, int] = {}
        for name in JOINED["vrt"]:
            if self.twin(name) in self.sources:
                self._seldom(Rewrite(self, self.sources[self.twin(name)]).module(), found)
        return found

    def _seldom(self, tree: ast.Module, found: dict[str, int]) -> ast.Module:
        once = self.globals["vrt"].get("once")
        if once is None:
            return tree
        made = Seldom(
            found, lambda *part: ast.parse(f"{once}('{TEXTS}', {part[0]}, {part[1]})", mode="eval").body
        ).visit(tree)
        assert isinstance(made, ast.Module)
        return made

    def program(self, content: bytes, *, inner: bool) -> str | None:
        """A user's file with our names where it uses them: a program in place of `main` (`inner`), and tools that reach into the
        firmware. None: as it is."""
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError):
            return None  # which the compiler says better
        return self._foreign(tree, inner=True) if inner or self._reaches_in(tree) else None

    def board(self, path: Path) -> str:
        """The text of a board's file. Raises UsageError."""
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except SyntaxError as error:
            raise UsageError(f"{path}: {error.msg} (line {error.lineno})") from None
        for_tools = path.stem != "board" and any(
            isinstance(node, ast.ImportFrom) and node.module == "vrt.tools" for node in tree.body
        )  # whose parameters the model names
        shortened = names.shortened(tree, None if for_tools else self.keywords)
        return self._foreign(shortened, inner=for_tools and self._reaches_in(tree))

    def _foreign(self, tree: ast.Module, *, inner: bool) -> str:
        """With the modules that it imports where they are; `inner`: and our attributes' names. Statements keep their lines."""
        from vrt_host.device.rewrite import Rewrite  # noqa: PLC0415

        attributes = self.public_attributes if inner else {}
        self._by_place(tree)
        call_moved(tree, self._moved)
        source = Source("", Path(), tree)
        look(source, self)
        lines: list[str] = []
        for one in Rewrite(self, source, attributes).body():
            lines += [""] * (one.lineno - 1 - len(lines))
            lines += names.plain(ast.unparse(ast.fix_missing_locations(one))).split("\n")
        return "\n".join(lines)

    def _reaches_in(self, tree: ast.Module) -> bool:
        """Whether it imports more of the firmware than what is for tools."""
        modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        modules |= {
            alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        }
        return any(name in self.sources and name not in (*PUBLIC, "vrt.volume") for name in modules)

    # --- tracebacks

    def meant(self, module: str, function: str) -> list[tuple[str, str]]:
        """What a function of a module of the device is in the sources: (module, name), each that it may be."""
        inside = JOINED.get(module) or [name for name in self.sources if self.home(name) == module]
        found = []
        for name, seldom in SELDOM.items():
            if self.home(name) == module and function == ENTRY:
                return [(seldom[0][0], seldom[0][1].rpartition(".")[2])]
        for source in (self.sources[name] for name in map(self.twin, inside) if name in self.sources):
            own, attributes = self.globals[source.name], self.attributes[source.name]
            functions = [name for name in source.globals if is_function(source.tree, name)]
            found += [(source.name, name) for name in functions if own.get(name, name) == function]
            found += [
                (source.name, name)
                for name in sorted(source.methods)
                if attributes.get(name, name) == function
            ]
        return found


@dataclass(frozen=True)
class File:
    """Of the device: where it lies in a slot, what tracebacks call it, a source of it, its text."""

    path: str
    shown: str
    source: Path
    text: str


def sources(base: Path | None = None) -> list[Path]:
    """The files that the names depend on."""
    base = base or root()
    boards = base / "boards"
    return sorted([*(base / "firmware").rglob("*.py"), *boards.glob("*.py"), *boards.glob("*/board.py")])


def firmware(*, native: bool = True, version: str | None = None, base: Path | None = None) -> Firmware:
    """The firmware of this host, or of `base`; it calls itself `version`."""
    stamps = tuple((path, path.stat().st_mtime_ns) for path in sources(base))
    return _firmware(native, version, base or root(), stamps)


@functools.lru_cache(8)
def _firmware(native: bool, version: str | None, base: Path, _: object) -> Firmware:
    texts = {}
    if version is not None:
        text = (base / "firmware" / "vrt" / "__init__.py").read_text("utf-8")
        texts["vrt"], count = re.subn(r'(?m)^VERSION = ".*"$', f"VERSION = {json.dumps(version)}", text)
        assert count == 1, "firmware/vrt/__init__.py has no VERSION"
    return Firmware(base / "firmware", base / "boards", native, texts)


def _imports_once(module: ast.Module, stays: bool) -> str:
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
    return "\n".join([*heads, ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))])


_NEAR = 125
"""So many of a module's names have a number that fits into a byte."""


def _foremost(body: list[ast.stmt]) -> list[str]:
    """Statements that are never run and cost four bytes: the compiler numbers names as they come, and these come often."""
    count: Counter[str] = Counter()
    for one in body:
        local: set[str] = set()
        for node in ast.walk(one):
            if isinstance(node, ast.FunctionDef):
                local |= bound(node)
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


def _aliases() -> list[ast.stmt]:
    names = "".join(f"sys.modules[{name!r}] = " for name in PUBLIC)
    return ast.parse(f"import sys\n{names}sys.modules['vrt']").body
