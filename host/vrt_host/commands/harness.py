"""`vrt harness`: play a scenario to a device: what the host says, what breaks, what the device must answer."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from rich.console import Console

from vrt_host.commands.conformance import deliver
from vrt_host.conformance.checks import Finding
from vrt_host.conformance.report import Report
from vrt_host.conformance.run import Pace
from vrt_host.errors import UsageError, VrtError
from vrt_host.harness import live, player
from vrt_host.harness import scenario as files
from vrt_host.harness.desk import DeskDevice, Device, SimDevice
from vrt_host.harness.live import View
from vrt_host.harness.recorder import Recorder
from vrt_host.harness.scenario import Scenario

EXAMPLES = """\
examples:
  vrt harness --list                             the scenarios that come with it
  vrt harness late-call                          one of them, with a simulated board
  vrt harness mine.json --junit report.xml       one of your own (docs/harness.md)
  vrt harness late-call --device listen:8765     a board on the desk, set to ws://THIS-COMPUTER:8765/

It ends with 0 when no check failed, 1 when one did, 2 when it could not begin.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt harness`."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "scenarios",
        nargs="*",
        metavar="SCENARIO",
        help="a file, or the name of a shipped one; several in turn",
    )
    parser.add_argument(
        "--device",
        default="sim",
        metavar="sim|listen:[HOST:]PORT|serial:PORT",
        help="a simulated board; a board that connects by itself; serial is not there yet (default: sim)",
    )
    parser.add_argument("--list", action="store_true", help="list the shipped scenarios and do nothing")
    parser.add_argument(
        "--factor", type=float, default=1.0, help="stretch all waits, for slow machines (default: 1)"
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one HTML page")
    parser.add_argument("--all", action="store_true", help="show what passed in the table, too")


def run(args: argparse.Namespace) -> int:
    """Play; 0 when no check failed. Raises `UsageError` for what the operator can mend."""
    if args.list:
        return _listing()
    if not args.scenarios:
        raise UsageError("name a scenario: a file, or one of `vrt harness --list`")
    if not 0 < args.factor <= 1000:
        raise UsageError(f"--factor {args.factor:g} must be above 0 and at most 1000")
    at = _address(args.device)
    scenarios = [files.load(files.find(word)) for word in args.scenarios]
    names = [one.name for one in scenarios]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two scenarios have the name {name}; the reports could not tell them apart")
    console = live.console()
    began = time.monotonic()
    try:
        findings = asyncio.run(_play(args, scenarios, at, View(console)))
    except UsageError:
        raise
    except VrtError as error:
        print(f"vrt harness: {error}", file=sys.stderr)
        return 1
    report = Report("harness", args.device, findings, time.monotonic() - began)
    return deliver(report, args, Console(highlight=False))


async def _play(
    args: argparse.Namespace, scenarios: list[Scenario], at: tuple[str, int] | None, view: View
) -> list[Finding]:
    findings: list[Finding] = []
    with view:
        for scenario in scenarios:
            view.title(scenario.title, scenario.section)
            view.note(scenario.why)
            recorder = Recorder()
            device: Device = SimDevice(recorder, scenario) if at is None else DeskDevice(view)
            findings += await player.play(
                scenario,
                device,
                at=at or ("127.0.0.1", 0),
                recorder=recorder,
                view=view,
                pace=Pace(args.factor),
            )
    return findings


def _listing() -> int:
    for path in files.shipped():
        scenario = files.load(path)
        print(f"{scenario.name:36} {scenario.section:6} {scenario.title}")
    return 0


def _address(word: str) -> tuple[str, int] | None:
    """Where the device connects to; None for a simulated board."""
    kind, _, rest = word.partition(":")
    if word == "sim":
        return None
    if kind == "serial" and rest:
        raise UsageError(
            f"--device {word}: the serial link is not there yet; use sim, or listen:PORT over the network"
        )
    host, _, port = rest.rpartition(":")
    if kind != "listen" or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"--device {word}: write sim, listen:PORT, listen:HOST:PORT or serial:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)
