"""`vrt harness`: play a scenario to a device: what the host says, what breaks, what the device must answer."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from vrt_host.commands.conformance import address, deliver, places
from vrt_host.conformance.checks import Finding, Outcome
from vrt_host.conformance.report import Report
from vrt_host.conformance.run import Pace
from vrt_host.conformance.server import Frame
from vrt_host.errors import UsageError, VrtError
from vrt_host.harness import live, player, retold, timeline
from vrt_host.harness import scenario as files
from vrt_host.harness.capture import Capture, Line, choose, line_of, load
from vrt_host.harness.desk import DeskDevice, Device, SimDevice
from vrt_host.harness.live import View
from vrt_host.harness.picture import Picture
from vrt_host.harness.recorder import Recorder
from vrt_host.harness.replay import replay
from vrt_host.harness.scenario import Scenario

EXAMPLES = """\
examples:
  vrt harness --list                             the scenarios that come with it
  vrt harness late-call                          one of them, with a simulated board
  vrt harness mine.json --junit report.xml       one of your own (docs/harness.md)
  vrt harness late-call --device listen:8765     a board on the desk, set to ws://THIS-COMPUTER:8765/
  vrt harness late-call --device serial:/dev/ttyACM0
                                                 one on a cable (docs/serial.md)
  vrt harness late-call --record late.jsonl --picture late.png
                                                 keep every frame, and draw what happened
  vrt serve --record day.jsonl                   keep every frame of every board that comes
  vrt harness --show day.jsonl --picture day.png
                                                 ... read it, and draw its longest session
  vrt harness --replay day.jsonl                 ... let the host say it all again: does the board answer as it did?

It ends with 0 when no check failed, 1 when one did, 2 when it could not begin.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt harness`."""
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add(
        "scenarios",
        nargs="*",
        metavar="SCENARIO",
        help="a file, or the name of a shipped one; several in turn",
    )
    add(
        "--device",
        default="sim",
        metavar="sim|listen:[HOST:]PORT|serial:PORT",
        help="a simulated board; a board that connects by itself; one on a cable (default: sim)",
    )
    add("--list", action="store_true", help="list the shipped scenarios and do nothing")
    add("--record", type=Path, metavar="FILE", help="write every frame to a capture, JSON lines")
    add(
        "--replay",
        type=Path,
        metavar="FILE",
        help="not a scenario: play a capture's host, compare the answers",
    )
    add(
        "--show", type=Path, metavar="FILE", help="not a scenario: print a capture's frames, without a device"
    )
    add("--session", default="", metavar="ID", help="of a capture: how its id begins (default: the longest)")
    add(
        "--tools",
        metavar="house|conformance|FILE",
        help="--replay: the tools of the simulated board (default: house)",
    )
    add("--picture", type=Path, metavar="PNG", help="draw what happened on a line of time")
    add("--factor", type=float, default=1.0, help="stretch all waits, for slow machines (default: 1)")
    add("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    add("--json", type=Path, metavar="FILE", help="write JSON")
    add("--html", type=Path, metavar="FILE", help="write one HTML page")
    add("--all", action="store_true", help="show what passed in the table, too")


def run(args: argparse.Namespace) -> int:
    """Play; 0 when no check failed. Raises `UsageError` for what the operator can mend."""
    if args.list:
        return _listing()
    if bool(args.scenarios) + bool(args.replay) + bool(args.show) != 1:
        raise UsageError("give a scenario (a file, or one of `vrt harness --list`), or --replay, or --show")
    if not 0 < args.factor <= 1000:
        raise UsageError(f"--factor {args.factor:g} must be above 0 and at most 1000")
    if args.picture is not None and len(args.scenarios) > 1:
        raise UsageError("--picture draws one scenario; name one")
    if args.tools is not None and not args.replay:
        raise UsageError("--tools is for --replay: a scenario names its own")
    if args.session and args.scenarios:
        raise UsageError("--session is for a capture, with --replay or --show")
    places(args)
    if args.picture is not None and args.picture.is_dir():
        raise UsageError(f"cannot draw {args.picture}: it is a folder")
    view = View(live.console())
    if args.show:
        return _show(args, view)
    at = _address(args.device)
    plays = _plays(args)
    began = time.monotonic()
    try:
        findings = asyncio.run(_run(args, plays, at, view))
    except UsageError:
        raise
    except VrtError as error:
        print(f"vrt harness: {error}", file=sys.stderr)
        return 1
    report = Report("harness", args.device, findings, time.monotonic() - began)
    return deliver(report, args, Console(highlight=False))


@dataclass(frozen=True, slots=True)
class _Play:
    """What is played: a scenario, or the lines of a captured session to a device as the scenario describes it."""

    scenario: Scenario
    lines: Sequence[Line] = ()


def _plays(args: argparse.Namespace) -> list[_Play]:
    if args.replay:
        name, lines = choose(load(args.replay), args.session)
        title = f"session {name} of {args.replay.name}"
        why = "The recorded host speaks again; what the board answers is compared."
        return [
            _Play(
                Scenario("replay", title, why, "§7.2", (), files.tools(args.tools or "house", Path())), lines
            )
        ]
    scenarios = [files.load(files.find(word)) for word in args.scenarios]
    names = [one.name for one in scenarios]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two scenarios have the name {name}; the reports could not tell them apart")
    return [_Play(one) for one in scenarios]


async def _run(
    args: argparse.Namespace, plays: Sequence[_Play], at: tuple[str, int] | str | None, view: View
) -> list[Finding]:
    findings: list[Finding] = []
    with view, contextlib.ExitStack() as stack:
        capture = None
        if args.record is not None:
            capture = stack.enter_context(Capture(args.record, by="vrt harness", stopped=view.note))
        for one in plays:
            findings += await _one(args, one, at, view, capture)
    return findings


async def _one(
    args: argparse.Namespace,
    one: _Play,
    at: tuple[str, int] | str | None,
    view: View,
    capture: Capture | None,
) -> list[Finding]:
    scenario, recorder = one.scenario, Recorder()
    view.title(scenario.title, scenario.section)
    view.note(scenario.why)
    device: Device = SimDevice(recorder, scenario) if at is None else DeskDevice(view)
    seen: list[Line] = []

    def keep(connection: int, frame: Frame) -> None:
        line = line_of(connection, frame, frame.t - recorder.origin)
        if line is not None:
            seen.append(line)

    taps: list[player.Tap] = []
    if args.picture is not None:
        taps.append(keep)
    if capture is not None:
        taps.append(capture.taps())
    common: dict[str, Any] = {
        "at": at or ("127.0.0.1", 0),
        "recorder": recorder,
        "view": view,
        "pace": Pace(args.factor),
        "taps": tuple(taps),
    }
    if one.lines:
        findings = await replay(one.lines, device, **common)
    else:
        findings = await player.play(scenario, device, **common)
    if args.picture is not None:
        made = retold.picture(
            seen,
            title=scenario.title,
            subtitle=scenario.why,
            ok=all(one.outcome is not Outcome.FAILED for one in findings),
            told=[event for event in recorder.events if event["source"] != "wire"] if device.tells else (),
        )
        _draw(args.picture, made, view)
    return findings


def _draw(path: Path, picture: Picture, view: View) -> None:
    try:
        timeline.draw(picture, path)
    except ImportError as error:
        raise UsageError(f"--picture needs the package {error.name}: `pip install matplotlib`") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot draw {path}: {getattr(error, 'strerror', None) or error}") from None
    view.note(f"drawn: {path}")


def _show(args: argparse.Namespace, view: View) -> int:
    """Print a session of a capture, and draw it where that is asked for."""
    name, lines = choose(load(args.show), args.session)
    title = f"session {name} of {args.show.name}"
    view.title(title)
    for line in lines:
        if line.kind == "end":
            view.say(line.t, "network", f"connection {line.connection} ends, code {line.code}")
        elif line.kind == "open":
            view.say(line.t, "network", f"connection {line.connection} {line.text}")
        elif line.kind == "text":
            view.say(line.t, "host" if line.who == "host" else "board", line.text)
    frames = sum(line.kind == "audio" for line in lines)
    view.note(f"{len(lines):,} lines, of which {frames:,} are audio and not shown")
    if args.picture is not None:
        _draw(args.picture, retold.picture(lines, title=title), view)
    return 0


def _listing() -> int:
    for path in files.shipped():
        scenario = files.load(path)
        print(f"{scenario.name:32} {scenario.section:6} {scenario.title}")
    return 0


def _address(word: str) -> tuple[str, int] | str | None:
    """Where the device connects to, or its serial port; None for a simulated board."""
    kind, _, rest = word.partition(":")
    if word == "sim":
        return None
    if kind == "serial" and rest:
        return rest
    at = address(rest, "0.0.0.0") if kind == "listen" else None
    if at is None:
        raise UsageError(f"--device {word}: write sim, listen:PORT, listen:HOST:PORT or serial:PORT")
    return at
