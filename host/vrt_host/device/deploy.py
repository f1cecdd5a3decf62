"""The firmware onto a board, through its prompt: only what differs is sent, and one rename makes it what runs.

The new firmware is written into the slot that does not run and read back there; then the file `slot` is replaced by a rename,
which is one step on littlefs (firmware/slots.py). So whenever the power or the cable goes, the board has the old firmware
or the new one. `config.json`, the journal `calls` and whatever else is on the board stay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vrt_host.device import build
from vrt_host.device.build import LISTING, Files
from vrt_host.device.profiles import Profile
from vrt_host.device.repl import Repl
from vrt_host.errors import VrtError
from vrt_host.sim.firmware import MICROPYTHON_MINIMUM

_SPARE = 16_384  # bytes of flash that stay free, for settings and journal

# What runs on the board. Everything is printed as it becomes known, so that a slow flash is no silence.
_HELPERS = """
import os, sys, json, hashlib, binascii
def _each(p):
    try:
        l = list(os.ilistdir(p))
    except OSError:
        return
    for e in l:
        q = p + '/' + e[0]
        if e[1] & 0x4000:
            yield from _each(q)
        else:
            yield q
def _hash(p):
    h = hashlib.sha256()
    b = bytearray(1024)
    m = memoryview(b)
    with open(p, 'rb') as f:
        while True:
            n = f.readinto(b)
            if not n:
                break
            h.update(m[:n])
    return binascii.hexlify(h.digest()).decode()
def _text(p, n=400):
    try:
        with open(p) as f:
            return f.read(n)
    except (OSError, ValueError):
        return None if n == 400 else ''
def _link(n):
    # A module of the firmware's links, which lies where the board's host has put it: the older ones as the sources do.
    for p in ('vrt.', 'vrt.links.'):
        try:
            __import__(p + n)
            return sys.modules[p + n]
        except ImportError:
            pass
    raise ImportError('vrt.links.' + n)
def _folders(p):
    n = p.find('/')
    while n >= 0:
        try:
            os.mkdir(p[:n])
        except OSError:
            pass
        n = p.find('/', n + 1)
def _copy(a, b):
    _folders(b)
    with open(a, 'rb') as f:
        with open(b, 'wb') as g:
            while True:
                d = f.read(1024)
                if not d:
                    break
                g.write(d)
def _gone(p):
    if os.stat(p)[0] & 0x4000:
        for n in os.listdir(p):
            _gone(p + '/' + n)
        os.rmdir(p)
    else:
        os.remove(p)
"""
_PROBE = """
import sys
_i = sys.implementation
try:
    _s = os.statvfs('/')
except OSError:  # nothing is mounted
    _s = (0, 0, 0, 0)
print(json.dumps({'name': _i.name, 'version': list(_i.version[:3]), 'machine': getattr(_i, '_machine', ''),
    'mpy': getattr(_i, '_mpy', 0), 'block': _s[0], 'free': _s[0] * _s[3], 'root': os.listdir('/'),
    'main': _text('main.py'), 'slot': _text('slot')}))
"""
_FREE = "_s = os.statvfs('/')\nprint(_s[0] * _s[3])"


@dataclass(slots=True)
class Board:
    """What a board says of itself."""

    version: tuple[int, ...]
    machine: str
    mpy: int
    block: int
    free: int
    root: tuple[str, ...]
    main: str | None
    slot: str | None

    @property
    def installed(self) -> bool:
        """Whether main.py is ours."""
        return self.main is not None and "slots.boot()" in self.main

    @property
    def marked(self) -> bool:
        """Whether an update waits to be tried, or is being tried."""
        return (self.slot or "")[1:2] in ("?", "!")

    @property
    def running(self) -> str:
        """The slot that is known to work: with an update pending the other one than the file names."""
        named = (self.slot or "a")[:1]
        named = named if named in ("a", "b") else "a"
        return ("b" if named == "a" else "a") if self.marked else named


@dataclass(slots=True)
class Result:
    """What was done."""

    slot: str
    version: str
    sent: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)
    sent_bytes: int = 0
    kept_tools: bool = False
    kept_main: bool = False
    changed: bool = True


def probe(repl: Repl) -> Board:
    """Ask the board; leaves the helpers on its heap. Raises VrtError when it is no MicroPython that will do."""
    repl.run(_HELPERS)
    said = repl.ask(_PROBE)
    version = tuple(said["version"])
    if said["name"] != "micropython":
        raise VrtError(
            f"the board at {repl.port} runs {said['name']}, not MicroPython: `vrt flash` writes that"
        )
    if version < MICROPYTHON_MINIMUM:
        shown = ".".join(map(str, version))
        raise VrtError(
            f"the board at {repl.port} has MicroPython {shown}, and 1.27 is needed: `vrt flash` writes a newer one"
        )
    if not said["block"]:
        raise VrtError(
            f"the board at {repl.port} has no file system that MicroPython can use (one from before its version 1.26?): "
            "`vrt flash --erase` makes a new one, and takes what is in the old one with it"
        )
    return Board(
        version,
        said["machine"],
        said["mpy"],
        said["block"],
        said["free"],
        tuple(said["root"]),
        said["main"],
        said["slot"],
    )


def listed(repl: Repl, slot: str) -> dict[str, str] | None:
    """What the listing of a slot says, without the files: "board", "version", "tools"; None when there is none."""
    code = f"""
try:
    with open({f"{slot}/{LISTING}"!r}) as f:
        _l = json.load(f)
    print(json.dumps({{k: _l[k] for k in ('board', 'version', 'tools')}}))
except (OSError, ValueError, KeyError):
    print('null')
"""
    return repl.ask(code)  # type: ignore[no-any-return]


def fits(machine: str, mcu: str) -> bool:
    """Whether `sys.implementation._machine` ("... with ESP32S3") is of a board with that chip."""
    chip = machine.rsplit(" with ", 1)[-1].upper().replace("-", "")
    if mcu == "unix":
        return not chip.startswith("ESP32")
    others = tuple(f"ESP32{family}" for family in ("S", "C", "H", "P"))
    if mcu == "esp32":
        return chip.startswith("ESP32") and not chip.startswith(others[:3]) and not chip.startswith("ESP32P4")
    return chip.startswith(mcu.upper())


def deploy(
    repl: Repl,
    profile: Profile,
    *,
    tools: Path | None = None,
    progress: Callable[[str, int, int], None] = lambda path, done, of: None,
) -> Result:
    """Bring the firmware of `profile`; `progress` hears what is sent: path, bytes done, bytes in all.

    Raises UsageError for what the operator can mend, VrtError when the board refuses or goes away; then it has what it had.
    """
    board = probe(repl)
    if not fits(board.machine, profile.data["mcu"]):
        raise VrtError(
            f"the board at {repl.port} is {board.machine}, and {profile.id} has another chip: nothing was written"
        )
    made = build.files(profile, tools=tools, arch=build.arch_of(board.mpy))
    work = _Work(repl, board, made, progress)
    if tools is None:
        work.keep_tools(profile)
    return work.run(json.loads(work.content[LISTING])["version"])


class _Work:
    """One deployment."""

    def __init__(
        self, repl: Repl, board: Board, made: Files, progress: Callable[[str, int, int], None]
    ) -> None:
        self.repl = repl
        self.board = board
        self.content: dict[str, bytes] = dict(made.slot)
        self.made = made
        self.progress = progress
        self.running = board.running
        # On a board that does not have it yet nothing runs from a slot.
        self.target = ("b" if self.running == "a" else "a") if board.installed else "a"
        self.there = self.hashes(("a", "b"))
        self.kept: dict[str, str] = {}  # files of the running slot that the new one gets too: path, hash

    def hashes(self, folders: tuple[str, ...]) -> dict[str, str]:
        """Every file in these folders of the board with its hash."""
        said = self.repl.run(f"for _p in {folders!r}:\n for _q in _each(_p):\n  print(_hash(_q), _q)")
        return {path: digest for digest, _, path in (line.partition(" ") for line in said.splitlines())}

    def keep_tools(self, profile: Profile) -> None:
        """Take the user's own tools along when none are named now."""
        if not self.board.installed:
            return
        if (listed(self.repl, self.running) or {}).get("tools") != "own":
            return
        for name in ("tools.py", "tools.mpy"):
            self.content.pop(name, None)
            if digest := self.there.get(f"{self.running}/{name}"):
                self.kept[name] = digest
        plain = {path: data for path, data in self.content.items() if path != LISTING}
        listing = json.loads(build.listing(profile, plain, own_tools=True))
        listing["files"] = dict(sorted({**listing["files"], **self.kept}.items()))
        self.content[LISTING] = json.dumps(listing, separators=(",", ":")).encode()

    def run(self, version: str) -> Result:
        """Do it."""
        wanted = {**build.digests(self.content), **self.kept}
        root = self.root_files()
        if self.board.installed and not root and not self.board.marked and self.slot(self.running) == wanted:
            return Result(self.running, version, kept_tools=bool(self.kept), changed=False)
        result = Result(self.target, version, kept_tools=bool(self.kept))
        if self.board.marked:  # the firmware that waits, or is tried, is about to be overwritten
            self.replace("slot", f"{self.running} ".encode())
        self.clear(wanted)
        self.fill(wanted, result)
        if self.slot(self.target, self.hashes((self.target,))) != wanted:
            raise VrtError(
                "what was written does not read back: run it again; the board still has what it had"
            )
        if "slots.mpy" in root:
            self.replace("slots.mpy", root["slots.mpy"])
        self.replace("slot", f"{self.target} ".encode())
        if "main.py" in root:
            if self.board.main is not None and not self.board.installed:
                self.repl.run("_copy('main.py', 'main.before.py')")
                result.kept_main = True
            self.replace("main.py", root["main.py"])
        return result

    def slot(self, name: str, there: Mapping[str, str] | None = None) -> dict[str, str]:
        """What is in a slot: path, hash."""
        found = self.there if there is None else there
        return {path[2:]: digest for path, digest in found.items() if path.startswith(f"{name}/")}

    def root_files(self) -> dict[str, bytes]:
        """The files beside the slots that differ."""
        said = self.repl.run(
            f"for _p in {tuple(self.made.root)!r}:\n try:\n  print(_hash(_p), _p)\n except OSError:\n  pass"
        )
        there = {path: digest for digest, _, path in (line.partition(" ") for line in said.splitlines())}
        return {
            path: data
            for path, data in self.made.root.items()
            if there.get(path) != hashlib.sha256(data).hexdigest()
        }

    def clear(self, wanted: Mapping[str, str]) -> None:
        """Remove from the target what does not belong there, and see that the rest has room."""
        stale = [path for path, digest in self.slot(self.target).items() if wanted.get(path) != digest]
        for path in stale:
            self.repl.run(f"_gone({f'{self.target}/{path}'!r})")
            del self.there[f"{self.target}/{path}"]
        sizes = [len(data) for path, data in self.content.items() if path not in self.slot(self.target)]
        sizes += [len(data) for data in self.made.root.values()]
        need = sum(-(-size // self.board.block) * self.board.block for size in sizes) + _SPARE
        free = int(self.repl.ask(_FREE))
        if free < need:
            raise VrtError(
                f"the board has {free >> 10} KB of flash free, and {need >> 10} KB are needed: remove files with "
                "`mpremote fs rm`, or start anew with `vrt flash --erase`"
            )

    def fill(self, wanted: Mapping[str, str], result: Result) -> None:
        """Bring what is missing: from the running slot where it is the same, else through the wire. The listing comes last."""
        have = {digest: path for path, digest in self.there.items()}
        missing = [path for path in wanted if path not in self.slot(self.target)]
        to_send = [path for path in missing if wanted[path] not in have]
        total = sum(len(self.content[path]) for path in to_send)
        for path in sorted(missing, key=lambda path: (path == LISTING, path)):
            target = f"{self.target}/{path}"
            if source := have.get(wanted[path]):
                self.repl.run(f"_copy({source!r}, {target!r})")
                result.copied.append(path)
                continue
            self.repl.run(f"_folders({target!r})")
            before = result.sent_bytes

            def heard(done: int, _: int, path: str = path, before: int = before) -> None:
                self.progress(path, before + done, total)

            self.repl.write(target, self.content[path], heard)
            result.sent_bytes += len(self.content[path])
            result.sent.append(path)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file beside its place, read it back, and rename it: one step on littlefs."""
        new = f"{path}.new"
        self.repl.write(new, data)
        if self.repl.run(f"print(_hash({new!r}))").strip() != hashlib.sha256(data).hexdigest():
            raise VrtError(f"{new} does not read back: run it again; the board still has what it had")
        self.repl.run(f"os.rename({new!r}, {path!r})")
