"""All of the firmware's sources, and the texts of the modules that a board gets instead.

A module costs a small heap its tables, its paths and its names, and so does every name that MicroPython does not know. So what stays
in memory for as long as the client runs becomes one module, `vrt` (and what a kind of link adds, another). The rest, which is
imported when it is needed, keeps a file of its own, `vrt/NAME`. Names that nobody outside sees are replaced, each by one word from
words.py; private ones of classes that never meet share theirs. Constants are put in where they are used.

What others see stays: what tools and boards import, and whatever is spelled in a text, a keyword or a board's own files.
"""

from __future__ import annotations

import ast
import copy
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vrt_host.device.weave import joining, own
from vrt_host.device.weave.layout import FLAT, FORGOTTEN, JOINED, PUBLIC, TEXTS, TWINS
from vrt_host.device.weave.naming import Naming
from vrt_host.device.weave.rewrite import Rewrite
from vrt_host.device.weave.sources import Ref, Source, chosen, look, module, reaches_in
from vrt_host.device.weave.texts import Passing, Seldom
from vrt_host.device.weave.words import WORDS
from vrt_host.errors import UsageError


@dataclass(frozen=True)
class File:
    """Of the device: where it lies in a slot, what tracebacks call it, a source of it, its text."""

    path: str
    shown: str
    source: Path
    text: str


class Firmware(Naming):
    """The sources, and what becomes of them."""

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
            look(source, self)
        self.globals: dict[str, dict[str, str]] = {name: {} for name in self.sources}
        self.attributes: dict[str, dict[str, str]] = {}
        self._made: dict[tuple[str, ...], str] = {}
        self._name()
        self._stay = self._names_anyway()
        self._texts: dict[str, int] = {}  # said so seldom that they are loaded then, and where each begins
        once = self.globals["vrt"].get("once", "once")
        for source in self.sources.values():
            source.tree = Rewrite(self, source).module()
            if self.group.get(source.name) == "vrt":
                source.tree = Seldom(self._texts, once).visit(source.tree)

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

    @functools.cached_property
    def digest(self) -> str:
        """Short, of all names: which tracebacks can be read with them."""
        said = repr((self.native, sorted(self.globals.items()), sorted(self.attributes.items())))
        return hashlib.sha256(said.encode()).hexdigest()[:4]

    # --- texts

    def names(self, members: Iterable[str]) -> dict[str, list[str]]:
        """What lies on the device for these modules of the sources: module -> those that are in it."""
        wanted = {self.twin(name) for name in members}
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

    def files(self, members: Iterable[str] | None = None, version: str | None = None) -> Iterator[File]:
        """What lies on the device for these modules of the sources, or for all; it calls itself `version`."""
        for name, inside in self.names(self.sources if members is None else members).items():
            package = "/__init__" if name == "vrt" else ""
            shown = f"vrt-{self.digest}" if name == "vrt" else name
            source = self.sources[inside[-1]].path
            text = self.text(inside)
            if name == "vrt" and version is not None:
                said = f"{self.globals['vrt']['VERSION']} = "
                before, _, after = text.partition("\n" + said)
                assert after, "firmware/vrt/__init__.py has no VERSION"
                text = f"{before}\n{said}{version!r}\n" + after.partition("\n")[2]
            yield File(f"{name.replace('.', '/')}{package}.mpy", shown, source, text)
            if name == "vrt" and self._texts:
                text = f"def get(start, end):\n return {''.join(self._texts)!r}[start:end]"
                yield File(f"{TEXTS.replace('.', '/')}.mpy", TEXTS, source, text)

    def text(self, inside: list[str]) -> str:
        """The text of a module of the device that consists of these."""
        key = tuple(inside)
        if key not in self._made:
            made = ast.Module([one for name in inside for one in self.sources[name].tree.body], [])
            stays = self.group.get(inside[0], FORGOTTEN[0]) not in FORGOTTEN
            public = [name for name in PUBLIC if name in inside]
            if "vrt" in inside and public:
                made.body.append(_aliases(public))
            if not stays:
                made = Passing(self._stay).module(copy.deepcopy(made))
            self._made[key] = joining.text(made, stays)
        return self._made[key]

    def _names_anyway(self) -> set[str]:
        """Short texts that the device has as names anyway."""
        found = set(WORDS)
        resident = [self.sources[name].tree for name, home in self.group.items() if home == "vrt"]
        for node in (node for tree in resident for node in ast.walk(tree)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.keyword | ast.arg) and node.arg:
                found.add(node.arg)
        return found

    # --- files of others

    def program(self, content: bytes) -> str:
        """A user's file that reaches into the firmware, with our names. Its statements keep their lines. Raises SyntaxError."""
        return self._foreign(ast.parse(content), inner=True)

    def board(self, path: Path) -> str:
        """The text of a board's file. Raises UsageError."""
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except SyntaxError as error:
            raise UsageError(f"{path}: {error.msg} (line {error.lineno})") from None
        own.shorten(tree)
        return self._foreign(tree, inner=reaches_in(tree))

    def _foreign(self, tree: ast.Module, *, inner: bool) -> str:
        """With the modules that it imports where they are; `inner`: and our attributes' names."""
        source = Source("", Path(), tree)
        look(source, self)
        lines: list[str] = []
        for one in Rewrite(self, source, self.public_attributes if inner else {}).module().body:
            lines += [""] * (one.lineno - 1 - len(lines))
            lines += joining.plain(ast.unparse(one)).split("\n")
        return "\n".join(lines)

    # --- tracebacks

    def meant(self, module: str, function: str) -> list[tuple[str, str]]:
        """What a function of a module of the device is in the sources: (module, name), each that it may be."""
        inside = JOINED.get(module) or [name for name in self.sources if self.home(name) == module]
        found = []
        for source in (self.sources[name] for name in map(self.twin, inside) if name in self.sources):
            for names, table in (
                (source.functions, self.globals[source.name]),
                (source.methods, self.attributes[source.name]),
            ):
                found += [(source.name, name) for name in sorted(names) if table.get(name, name) == function]
        return found


def _aliases(modules: Iterable[str]) -> ast.stmt:
    """Modules that others know by their names."""
    names = "".join(f"sys.modules[{name!r}] = " for name in modules)
    return ast.parse(f"{names}sys.modules['vrt']").body[0]
