"""Real processes: `vrt serve` and `vrt sim` as a user starts them."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from vrt_host.sim import wav

VRT = [sys.executable, "-m", "vrt_host"]


@pytest.fixture(scope="session")
def command():
    """What starts `vrt`."""
    return VRT


@pytest.fixture
def serve(tmp_path):
    """Start `vrt serve` with a script (a dict) or other options; returns its address."""
    processes = []

    def start(script=None, *options):
        words = ["serve", "--port", "0", *options]
        if script is not None:
            path = tmp_path / "script.json"
            path.write_text(json.dumps(script))
            words += ["--agent", "scripted", "--script", str(path)]
        process = subprocess.Popen(
            [*VRT, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        processes.append(process)
        said = process.stdout.readline()
        assert said.startswith("serving "), said
        return said.split()[-1]

    yield start
    for process in processes:
        process.terminate()
        process.wait(10)
        process.stdout.close()


@pytest.fixture
def vrt():
    """Run `vrt` to its end; returns (exit code, lines of output, text of errors)."""

    def run(*words, timeout=60, **environment):
        done = subprocess.run(
            [*VRT, *words],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode, done.stdout.splitlines(), done.stderr

    return run


@pytest.fixture
def voice(tmp_path):
    """A WAV that a scripted agent takes for a sentence: 0.7 s of tone, at a rate and width of its own."""
    path = tmp_path / "voice.wav"
    t = np.arange(int(0.7 * 44_100)) / 44_100
    mono = (9_000 * np.sin(2 * np.pi * 300 * t)).astype(np.int16)
    wav.save(path, np.stack([mono, mono], axis=1), 44_100)
    return path
