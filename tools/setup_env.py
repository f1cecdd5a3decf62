"""Make `.venv` and install a set of parts into it: `demo`, `test`, `lint`, `types` or `fuzz`.

Only wheels and pure Python are taken, so that no compiler is ever needed. A part without a wheel for this Python or platform
is left out by name; the product says what it does without it. Run by the Makefile; needs nothing but Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STUBS = ROOT / "build" / "typings"
STUB_PACKAGE = "micropython-esp32-esp32-generic-s3-stubs==1.29.*"


def say(text: str) -> None:
    """One line of progress."""
    print(f"setup: {text}", flush=True)


def pip(*words: str, check: bool = True) -> bool:
    """`pip install` into `.venv`, wheels only; True when it worked. With `check`, a failure ends the set-up."""
    command = [
        str(PYTHON),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *(
            "--only-binary",
            ":all:",
            "--no-binary",
            "esptool",
        ),  # esptool: pure Python, published as source only
    ]
    done = subprocess.run(
        [*command, *words],
        cwd=ROOT,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode and check:
        reason = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()[
            -1:
        ]
        sys.exit(
            "setup: pip could not install the parts needed: " + (reason[-1] if reason else "no reason given")
        )
    return done.returncode == 0


def make_venv() -> None:
    """Create `.venv` when it is not there, with a pip that knows dependency groups."""
    if PYTHON.exists():
        return
    version = ".".join(map(str, sys.version_info[:3]))
    say(f"making .venv with Python {version}")
    done = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(VENV)], check=False, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(
            f"setup: this Python cannot make a virtual environment; install its venv package: {done.stdout[-300:]}"
        )
    pip("--upgrade", "pip>=25.1,<27")


def install_demo() -> None:
    """The product with all its offline parts, or with those that have a wheel here."""
    say(
        "installing the host, the simulator, the offline speech parts and the adapters (about 500 MB the first time)"
    )
    constrained = ("-c", "constraints.txt")
    if pip(*constrained, "-e", ".[demo,agents]", check=False):
        return
    say("not every part has a wheel for this Python and platform; installing those that have")
    pip(*constrained, "-e", ".")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    parts = ("sim", "local", "device", "openai", "gemini", "chat", "aitp", "omnia")
    for requirement in [requirement for part in parts for requirement in extras[part]]:
        if not pip(*constrained, requirement, check=False):
            say(f"left out, no wheel here: {requirement.partition(';')[0].strip()}")


def main(parts: str) -> None:
    """Install one set of parts."""
    make_venv()
    if parts == "demo":
        install_demo()
    else:
        say(f"installing what `make {parts}` needs")
        pip("-c", "constraints.txt", "--group", parts)
    if parts == "types":
        pip("--target", str(STUBS), "--upgrade", STUB_PACKAGE)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "demo")
