"""`vrt doctor`: what is wrong, in words."""

from __future__ import annotations

import argparse

from vrt_host.device import doctor
from vrt_host.device.doctor import Check

EXAMPLES = """\
examples:
  vrt doctor                                   the only board that is plugged in, or why there is none
  vrt doctor --port /dev/ttyACM0 --json        for programs
  vrt doctor --offline                         without Wi-Fi and host

It stops the board's program, looks, and starts it again. Wi-Fi, host, TLS and token are tried from the board itself.

exit code: 0 nothing is wrong (what is unknown says why); 1 something is
"""

_MARK = {"ok": "ok", "problem": "PROBLEM", "unknown": "unknown"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt doctor`."""
    parser.epilog = EXAMPLES
    parser.add_argument("--port", help="the board's serial port (default: the only one there is)")
    parser.add_argument("--offline", action="store_true", help="try neither Wi-Fi nor host")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Examine; 1 when something is wrong."""
    checks = doctor.examine(args.port, _ignore if args.json else _show, network=not args.offline)
    if args.json:
        print(doctor.to_json(args.port, checks))
    return 0 if doctor.healthy(checks) else 1


def _show(check: Check) -> None:
    print(f"{_MARK[check.state]:<8} {check.name:<12} {check.said}", flush=True)
    if check.advice:
        print(f"{'':<21} -> {check.advice}", flush=True)


def _ignore(check: Check) -> None:
    """It is printed at the end."""
