"""What the device gets of the firmware's sources: modules joined, names replaced, and tracebacks that can be read all the same."""

from __future__ import annotations

import ast
import builtins
import types
from pathlib import Path

import pytest
from vrt_host.device.weave import Firmware, firmware, joining, own, words
from vrt_host.device.weave.layout import PUBLIC
from vrt_host.device.weave.texts import Seldom
from vrt_host.device.weave.tracebacks import placed, readable
from vrt_host.resources import root

KNOWN_TO_THE_COMPILER = {"ptr8", "ptr16", "ptr32", "uint"}


def woven(folder: Path, **modules: str) -> dict[str, str]:
    """The texts of a firmware with these modules of the package `vrt`, by their names on the device."""
    for name, text in {"__init__": "", **modules}.items():
        path = folder / "firmware" / "vrt" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "boards").mkdir()
    made = Firmware(folder / "firmware", folder / "boards")
    return {name: made.text(inside) for name, inside in made.names(made.sources).items()}


def run(text: str, **known: object) -> dict[str, object]:
    """The globals of a module after it has run."""
    made = dict(known)
    exec(compile(text, "text", "exec"), made)
    return made


def test_modules_that_stay_become_one_and_find_each_other(tmp_path: Path) -> None:
    made = woven(
        tmp_path,
        errors="class VrtError(Exception): pass\nclass ConfigError(VrtError): pass",
        log="from vrt.errors import ConfigError\n_KEPT = const(3)\ndef _fail(): raise ConfigError(_KEPT)\n"
        "class Log:\n def step(self): _fail()",
        ui="from vrt import log\n_KEPT = const(4)\nclass Button:\n def __init__(self): self.kept = _KEPT + 1\n"
        " def press(self): log._fail()",
    )
    assert set(made) == {"vrt"}
    assert "import" not in made["vrt"].replace("import sys", "")
    assert "_KEPT" not in made["vrt"]
    assert "3" in made["vrt"]
    assert "4 + 1" in made["vrt"]


def test_module_that_is_forgotten_stays_apart_and_imports_from_the_joined_ones(tmp_path: Path) -> None:
    made = woven(
        tmp_path,
        errors="class VrtError(Exception): pass",
        **{
            "setup/late": "from vrt.errors import VrtError\ndef make(x):\n if x == 'an odd one':\n  raise VrtError('odd')\n"
        },
    )
    assert set(made) == {"vrt", "vrt.late"}
    assert "from vrt import VrtError" in made["vrt.late"]


def test_short_texts_of_a_forgotten_module_are_no_names(tmp_path: Path) -> None:
    made = woven(tmp_path, **{"setup/late": "def make(x):\n return 'odd' if x else f'{x}: {x}'\n"})[
        "vrt.late"
    ]
    (function,) = [one for one in run(made).values() if callable(one)]
    assert [function(1), function(0)] == ["odd", "0: 0"]
    constants = [node.value for node in ast.walk(ast.parse(made)) if isinstance(node, ast.Constant)]
    assert "odd" not in constants
    assert "{}: {}" not in constants


def test_text_that_is_seldom_said_is_loaded_then() -> None:
    found: dict[str, int] = {}
    text = "def f(x): return ['short', 'there is a longer one', f'no {x!r} or {{}} is there: {x}']"
    made = ast.unparse(ast.fix_missing_locations(Seldom(found, "once").visit(ast.parse(text))))
    assert "short" in made
    assert "there" not in made
    space = run(
        made, once=lambda name: types.SimpleNamespace(get=lambda start, end: "".join(found)[start:end])
    )
    assert space["f"]("a") == run(text)["f"]("a")  # type: ignore[operator]


@pytest.mark.parametrize("text", ["the heap has no memory", "it was interrupted here", "two\nlines of it"])
def test_text_that_must_be_there_stays(text: str) -> None:
    made = Seldom({}, "once").visit(ast.parse(f"said = {text!r}"))
    assert run(ast.unparse(made))["said"] == text


def test_names_that_others_see_stay(tmp_path: Path) -> None:
    made = woven(
        tmp_path,
        **{"tools/__init__": "def tool(description, parameters=None): pass\ndef current(): pass"},
        log="class Log:\n def fault(self, code): self.told = hasattr(code, 'shown')\n def shown(self): self.fault(code=1)\n"
        " def write(self): pass",
    )["vrt"]
    assert "def tool(description, parameters=None)" in made
    for kept in ("shown", "code", "write"):  # in a text; of an argument that is named; streams have it, too
        assert kept in made
    for replaced in ("told", "fault"):
        assert replaced not in made


@pytest.mark.parametrize("native", [True, False])
def test_every_name_of_the_firmware_is_known_where_it_is_used(native: bool) -> None:
    made = firmware(native=native)
    trees = {file.path: ast.parse(file.text) for file in made.files()}
    given = {path: {name for node in ast.walk(tree) for name in bound(node)} for path, tree in trees.items()}
    for path, tree in trees.items():
        known = given[path] | set(dir(builtins)) | KNOWN_TO_THE_COMPILER
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                assert node.id in known, (path, node.id)
            elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "vrt":
                of = f"{str(node.module).replace('.', '/')}{'/__init__' if node.module == 'vrt' else ''}.mpy"
                assert {alias.name for alias in node.names} <= given[of], (path, ast.unparse(node))


def bound(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.ExceptHandler):
        return [str(node.name)]
    if isinstance(node, ast.arg):
        return [node.arg]
    return [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else []


@pytest.mark.parametrize("module", PUBLIC)
def test_what_tools_import_is_there(module: str) -> None:
    made = firmware()
    (home,) = [path for path, inside in made.names(made.sources).items() if module in inside]
    tree = ast.parse(made.text(made.names(made.sources)[home]))
    assert set(PUBLIC[module]) <= {name for node in tree.body for name in bound(node)}
    assert home == module or f"sys.modules['{module}']" in ast.unparse(tree)


def test_no_attribute_keeps_a_name_that_was_replaced() -> None:
    made = firmware()
    old = {name for table in made.attributes.values() for name in table}
    new = {name for table in made.attributes.values() for name in table.values()}
    for file in made.files():
        tree = ast.parse(file.text)
        if tree.body and isinstance(tree.body[0], ast.While):
            del tree.body[0]  # all kinds of names, for their order
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                assert node.attr not in old - new, (file.path, ast.unparse(node))


def test_replaced_names_are_words_that_micropython_knows_and_no_object_of_its_own_is_asked_for() -> None:
    made = firmware()
    new = [name for table in made.attributes.values() for name in table.values()]
    assert set(new) <= set(words.WORDS)
    assert not set(new) & words.ASKED
    for table in made.attributes.values():
        assert len(set(table.values())) == len(table)


def stubs() -> list[Path]:
    return sorted((root() / "build" / "typings").rglob("*.pyi"))


@pytest.mark.skipif(not stubs(), reason="`make setup` fetches MicroPython's stubs")
def test_no_name_is_replaced_that_micropythons_objects_have() -> None:
    """Those that the firmware uses: another object's attribute of that name would not be found."""
    wanted = {
        "machine",
        "network",
        "neopixel",
        "select",
        "socket",
        "ssl",
        "esp32",
        "hashlib",
        "array",
        "io",
        "micropython",
    }
    theirs = set()
    for path in stubs():
        if wanted & set(path.with_suffix("").parts):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef):
                    theirs |= {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
    assert {"irq", "readinto", "wrap_socket"} <= theirs
    assert not set(firmware().public_attributes) & theirs - {"pending"}  # which CPython's sockets have


def test_traceback_shows_the_names_of_the_source() -> None:
    made = firmware()
    short = made.globals["vrt.links.connect"]["_dial"]
    assert readable(f'  File "vrt.connect", line 1, in {short}') == '  File "vrt.links.connect", in _dial'
    method = made.attributes["vrt.app"]["_receive"]
    assert readable(f'  File "vrt-{made.digest}", line 1, in {method}') == '  File "vrt.app", in _receive'
    assert placed(f"OSError: 5 at vrt-{made.digest}:{method}") == "OSError: 5 at vrt.app:_receive"


@pytest.mark.parametrize(
    "line",
    ["OSError: 5", '  File "tools.py", line 7, in abs', '  File "nowhere", line 1, in abs', "x in abs"],
)
def test_other_lines_stay_as_they_are(line: str) -> None:
    assert readable(line) == line


def test_line_of_another_firmware_stays_as_it_is() -> None:
    method = firmware().attributes["vrt.app"]["_receive"]
    line = f'  File "vrt-0000", line 1, in {method}'
    assert readable(line) == line
    assert placed(f"vrt-0000:{method}") == f"vrt-0000:{method}"


def shortened(text: str) -> str:
    tree = ast.parse(text)
    own.shorten(tree)
    return ast.unparse(tree)


def test_private_names_of_a_board_become_words() -> None:
    made = shortened(
        "_open = []\n\ndef _show(link):\n    global _open\n    _open = link\n\ndef wait(link):\n    _show(link)"
    )
    assert "_open" not in made
    assert "_show" not in made
    space = run(made)
    space["wait"](5)  # type: ignore[operator]
    assert 5 in space.values()


def test_class_with_anothers_base_keeps_its_names() -> None:
    text = "class Light(Strip):\n\n    def _show(self):\n        self._n = 1"
    assert shortened(text) == text


def test_two_values_are_assigned_without_a_tuple_in_the_heap() -> None:
    text = "a, b = c, d\ndef f(self):\n self.x, y = g(1), (2, 3)\n x, y = (u or v).w(z)\n for i, j in k: pass"
    made = joining.plain(ast.unparse(ast.parse(text)))
    assert "a, b = c, d\n" in made
    assert "    self.x, y = g(1), (2, 3)\n" in made
    assert "    x, y = (u or v).w(z)\n" in made
    compile(made, "one", "exec")
