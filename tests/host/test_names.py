"""Private names of the firmware, shortened for the device: fewer of them, the same program, and readable again."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from vrt_host.device.names import lean, readable
from vrt_host.resources import root

FIRMWARE = root() / "firmware"
MODULES = sorted((FIRMWARE / "vrt").rglob("*.py"))


def package(folder: Path, **modules: str) -> dict[str, str]:
    """The shortened texts of a package `vrt` with these modules."""
    made = folder / "vrt"
    made.mkdir()
    for name, text in modules.items():
        (made / f"{name}.py").write_text(text)
    return {name: lean(made / f"{name}.py") for name in modules}


def test_private_names_of_different_modules_become_the_same(tmp_path: Path) -> None:
    made = package(
        tmp_path, one="def _wait(): pass\n_wait()", two="class Two:\n def _send(self): self._rest = 1"
    )
    assert made["one"] == "def _a():\n    pass\n_a()"
    assert "def _b(self)" in made["two"]
    assert "self._a = 1" in made["two"]


def test_classes_that_inherit_share_their_names(tmp_path: Path) -> None:
    made = package(
        tmp_path,
        base="class Base:\n def __init__(self): self._n = self._z = 0",
        child="from vrt.base import Base\nclass Child(Base):\n def go(self): self._n += self._own()\n def _own(self): pass",
    )
    assert "self._a = self._c = 0" in made["base"]
    assert "self._a += self._b()" in made["child"]
    assert "def _b(self)" in made["child"]


@pytest.mark.parametrize(
    "use",
    [
        "other._secret = 1",
        "from vrt.one import _secret",
        'hasattr(one, "_secret")',
        "call(_secret=1)",
        "def f(_secret): pass",
    ],
)
def test_name_that_somebody_else_uses_stays(tmp_path: Path, use: str) -> None:
    made = package(tmp_path, one="def _secret(): pass\ndef _own(): pass", two=use)
    assert "def _secret" in made["one"]
    assert "def _a" in made["one"]


def test_constants_public_and_special_names_stay(tmp_path: Path) -> None:
    text = "_N = const(5)\n\nclass C:\n\n    def __init__(self):\n        self.shown = _N\n        _ = self.__dict__"
    assert package(tmp_path, one=text)["one"] == text


def test_short_name_that_is_taken_is_passed_over(tmp_path: Path) -> None:
    made = package(tmp_path, one="def _x(): pass", two="other._a = 1")
    assert made["one"].startswith("def _b")


def test_globals_are_renamed_where_they_are_declared(tmp_path: Path) -> None:
    made = package(tmp_path, one="_state = 0\n\ndef go():\n    global _state\n    _state = 1")
    assert made["one"] == "_a = 0\n\ndef go():\n    global _a\n    _a = 1"


def test_module_outside_the_package_has_its_own(tmp_path: Path) -> None:
    path = tmp_path / "board.py"
    path.write_text("_open = []")
    assert lean(path) == "_a = []"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FIRMWARE)))
def test_firmware_is_the_same_but_for_its_names(path: Path) -> None:
    class Blank(ast.NodeTransformer):
        """Every private name alike."""

        def generic_visit(self, node: ast.AST) -> ast.AST:
            for field in ("id", "attr", "name"):
                name = getattr(node, field, None)
                if isinstance(name, str) and name.startswith("_") and not name.startswith("__"):
                    setattr(node, field, "_")
            if isinstance(node, ast.Global | ast.Nonlocal):
                node.names = ["_" if name.startswith("_") else name for name in node.names]
            return super().generic_visit(node)

    old, new = ast.parse(path.read_text()), ast.parse(lean(path))
    assert ast.dump(Blank().visit(old)) == ast.dump(Blank().visit(new))


def test_firmware_has_few_private_names() -> None:
    names = set()
    for path in MODULES:
        for node in ast.walk(ast.parse(lean(path))):
            name = getattr(node, "attr", getattr(node, "name", None))
            if isinstance(name, str) and name.startswith("_") and not name.startswith("__"):
                names.add(name)
    assert len(names) < 60, sorted(names)


def test_traceback_shows_the_names_of_the_source() -> None:
    source = FIRMWARE / "vrt" / "links" / "connect.py"
    assert "def _dial(" in source.read_text()
    number = [
        node.name for node in ast.parse(source.read_text()).body if isinstance(node, ast.FunctionDef)
    ].index("_dial")
    short = [node.name for node in ast.parse(lean(source)).body if isinstance(node, ast.FunctionDef)][number]
    line = f'  File "vrt.links.connect", line 1, in {short}'
    assert readable(line, FIRMWARE) == '  File "vrt.links.connect", line 1, in _dial'


@pytest.mark.parametrize(
    "line", ["OSError: 5", '  File "main", line 1, in run', '  File "nowhere", line 1, in _a', "x in _a"]
)
def test_other_lines_stay_as_they_are(line: str) -> None:
    assert readable(line, FIRMWARE) == line


def test_two_values_are_assigned_without_a_tuple_in_the_heap(tmp_path: Path) -> None:
    made = package(
        tmp_path,
        one="a, b = c, d\ndef f(self):\n self.x, y = g(1), (2, 3)\n x, y = (u or v).w(z)\n for i, j in k: pass",
    )
    assert "a, b = c, d\n" in made["one"]
    assert "    self.x, y = g(1), (2, 3)\n" in made["one"]
    assert "    x, y = (u or v).w(z)\n" in made["one"]
    compile(made["one"], "one", "exec")
