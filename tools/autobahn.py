"""Plays the Autobahn suite between kosoku's fuzzing server and the firmware's WebSocket link on MicroPython."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

CLIENT = Path(__file__).with_name("autobahn_client.py")
COMPRESSION = ("12.*", "13.*")
"""The link offers no compression, so these are left out."""
BULK = ("9.1.5", "9.1.6", "9.2.5", "9.2.6", "9.3.*", "9.4.*", "9.7.*", "9.8.*")
"""Megabytes, and messages and fragments by the thousand: half of the time, and nothing new in them."""


@dataclass(frozen=True)
class Outcome:
    """What the server's report says of each case; `played` is how many the client played."""

    played: int
    passed: frozenset[str]
    informational: frozenset[str]
    failed: Mapping[str, str]
    """The cases that are neither, with the verdicts on the exchange and on its end; not strict counts as failed."""


def play(micropython: str, report: Path, *, leave_out: Iterable[str] = (), timeout_s: float = 300) -> Outcome:
    """Play all cases but compression and `leave_out`; the server's report goes to the folder `report`.

    Raises RuntimeError when server or client do not get to the end.
    """
    excluded = [word for case in (*COMPRESSION, *leave_out) for word in ("-x", case)]
    command = [
        str(Path(sys.executable).with_name("kosoku")),
        "-m",
        "fuzzingserver",
        *excluded,
        "-o",
        str(report),
    ]
    with (
        tempfile.TemporaryFile("w+") as noise,
        subprocess.Popen(
            [*command, "127.0.0.1:0"], stdout=noise, stderr=subprocess.PIPE, text=True
        ) as server,
    ):
        try:
            assert server.stderr is not None
            _, found, url = server.stderr.readline().rpartition("listening on ")
            if not found:
                raise RuntimeError("kosoku does not serve: " + url + server.stderr.read()[-500:])
            client = subprocess.run(
                [micropython, "-X", "heapsize=100m", str(CLIENT), url.strip(), "vrt"],
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
            if client.returncode:
                raise RuntimeError("the client failed: " + client.stdout[-200:] + client.stderr[-1000:])
            server.communicate(timeout=60)
        finally:
            server.kill()
    return _read(report, len(client.stdout.splitlines()))


def _read(report: Path, played: int) -> Outcome:
    agents = json.loads((report / "index.json").read_text())
    verdicts = {case: (entry["behavior"], entry["behaviorClose"]) for case, entry in agents["vrt"].items()}
    passed = frozenset(case for case, verdict in verdicts.items() if verdict == ("OK", "OK"))
    informational = frozenset(case for case, verdict in verdicts.items() if verdict[0] == "INFORMATIONAL")
    rest = {case: " / ".join(verdicts[case]) for case in verdicts.keys() - passed - informational}
    return Outcome(played, passed, informational, rest)
