"""Every firmware test file, run again on real MicroPython: the same asserts, the other runtime."""

import re
import subprocess
from pathlib import Path

import pytest

FIRMWARE_TESTS = Path(__file__).resolve().parents[1] / "firmware"
RUNNER = FIRMWARE_TESTS / "run.py"


@pytest.mark.parametrize("path", sorted(FIRMWARE_TESTS.glob("test_*.py")), ids=lambda path: path.stem)
def test_firmware_on_micropython(path, micropython_binary):
    done = subprocess.run(
        [micropython_binary, str(RUNNER), str(path)], capture_output=True, text=True, timeout=110, check=False
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    closing = re.search(r"(\d+) passed, 0 failed, (\d+) skipped\s*$", done.stdout)
    assert closing, "the runner did not reach its closing line"
    assert int(closing[1]) > 0, "no test of this file ran on MicroPython"
