"""The names that the firmware's modules and objects have on a board: see firmware.py."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping

from vrt_host.device.weave.layout import PROBED, PUBLIC, SEEN
from vrt_host.device.weave.sources import Source, families, is_private, of_others
from vrt_host.device.weave.words import ASKED, FOREIGN, PARAMETERS, WORDS


class Naming:
    """Gives them, once the modules are known."""

    sources: dict[str, Source]
    group: Mapping[str, str]
    boards: list[ast.Module]
    globals: dict[str, dict[str, str]]
    """Of each module: name in the source -> on the device."""
    attributes: dict[str, dict[str, str]]
    """The same of the objects of its classes."""
    public_attributes: dict[str, str]
    """Those that do not depend on the class."""

    def home(self, name: str) -> str:
        """The module that a module of the sources is in, or is, on the device."""
        raise NotImplementedError

    def _name(self) -> None:
        trees = [source.tree for source in self.sources.values()]
        used = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
        used |= {node.arg for tree in trees for node in ast.walk(tree) if isinstance(node, ast.arg)}
        used |= {one for source in self.sources.values() for one in source.outside}
        used |= {self.home(name).rpartition(".")[2] for name in self.sources} | set(PARAMETERS)
        functions = self._name_globals([word for word in WORDS if word not in used], _spare(used))
        self._name_attributes(trees, functions)

    def _name_globals(self, free: list[str], spare: list[str]) -> set[str]:
        """What modules have: what is joined or imported its own name each, functions first. Returns the functions' names."""
        functions: set[str] = set()
        imported = {
            ref[1:] for source in self.sources.values() for ref in source.refs.values() if ref[0] == "name"
        }
        order = [(source, name) for source in self.sources.values() for name in sorted(source.globals)]
        words = iter(free + spare)
        alone: dict[str, Iterator[str]] = {}
        for source, name in sorted(order, key=lambda one: one[1] not in one[0].functions):
            if not source.name.startswith("vrt"):
                continue
            if name in (*PUBLIC.get(source.name, ()), *PROBED.get(source.name, ())) or name.endswith("Error"):
                word = name
            elif source.name in self.group or (source.name, name) in imported:
                word = next(words)
            else:
                word = next(alone.setdefault(source.name, iter(free[::-1] + spare)))
            self.globals[source.name][name] = word
            if source.name in self.group and name in source.functions:
                functions.add(word)
        return functions

    def _name_attributes(self, trees: list[ast.Module], functions: set[str]) -> None:
        """What objects have. Methods have names that no function has, nor the private ones of others, so that a traceback can be
        read; what is private and no method shares its name with what never meets it."""
        kept = self._kept(trees)
        met = {name for tree in trees for name in of_others(tree)}

        def is_own(name: str) -> bool:
            return is_private(name) and name not in met

        seen = {
            node.attr
            for tree in [*trees, *self.boards]
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
        }
        possible = [*(word for word in WORDS if word not in seen | ASKED | kept), *_spare(seen)]
        kept |= {*WORDS, *ASKED, *FOREIGN, *SEEN}
        methods = {name for source in self.sources.values() for name in source.methods} - kept
        data = {name for source in self.sources.values() for name in source.data} - kept
        words = iter([word for word in possible if word not in functions])
        table = {name: next(words) for name in sorted(methods) if not is_own(name)}
        together = families(self.sources)
        own: dict[str, dict[str, str]] = {}
        for family in sorted(together, key=lambda one: not any(name in self.group for name in one)):
            private = {name for one in family for name in self.sources[one].methods if is_own(name)} - kept
            made = {name: next(words) for name in sorted(private)}
            own.update(dict.fromkeys(family, made))
        taken = {word for made in (table, *own.values()) for word in made.values()}
        also = [word for names in self.globals.values() for word in names.values() if word in possible]
        pool = [word for word in dict.fromkeys([*also, *possible]) if word not in taken]
        public = sorted(name for name in data - methods if not is_own(name))
        table.update(zip(public, pool, strict=False))
        for family in together:
            private = {name for one in family for name in self.sources[one].data if is_own(name)} & data
            for one in family:
                shared = zip(sorted(private - set(own[one])), pool[len(public) :], strict=False)
                self.attributes[one] = {**table, **dict(shared), **own[one]}
        self.public_attributes = table

    def _kept(self, trees: Iterable[ast.Module]) -> set[str]:
        """Attributes that keep their names."""
        kept: set[str] = set()
        for tree in [*trees, *self.boards]:
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    kept.add(node.value)
                elif isinstance(node, ast.keyword) and node.arg:
                    kept.add(node.arg)
        theirs = set()
        for tree in self.boards:
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute | ast.FunctionDef | ast.ClassDef):
                    theirs.add(node.attr if isinstance(node, ast.Attribute) else node.name)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    theirs.add(node.id)
        kept.update(name for name in theirs if not is_private(name))
        for source in self.sources.values():
            if not source.name.startswith("vrt"):
                kept.update(name for name in source.globals if not is_private(name))
        return kept

    @functools.cached_property
    def keywords(self) -> set[str]:
        """Parameters that somebody names."""
        found: set[str] = set()
        for tree in [*(source.tree for source in self.sources.values()), *self.boards]:
            found.update(node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg)
        return found


def _spare(used: set[str]) -> list[str]:
    """Short names, for when there is no word left."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [one for a in letters for b in letters if (one := a + b + "_") not in used]
