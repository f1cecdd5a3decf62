"""`vrt monitor`: the console of a board."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from vrt_host.device import monitor, ports

EXAMPLES = """\
examples:
  vrt monitor                                  of the only board that is plugged in
  vrt monitor --port /dev/ttyACM0 --json | jq .
                                               every line as JSON; what is no event is {"event": "console", "text": ...}

The board is not reset and does not notice. Ctrl-C ends it. Secrets are not shown, should a line hold one.

exit code: 0 ended by Ctrl-C; 2 the command line or the port cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt monitor`."""
    parser.epilog = EXAMPLES
    parser.add_argument("--port", help="the board's serial port (default: the only one there is)")
    parser.add_argument("--json", action="store_true", help="every line as JSON")


def run(args: argparse.Namespace) -> int:
    """Watch; the exit code. Raises `UsageError` for the port."""
    port = ports.choose(args.port)

    def note(text: str) -> None:
        print(f"vrt monitor: {text}", file=sys.stderr, flush=True)

    try:
        monitor.watch(port, lambda line: print(monitor.shown(line, as_json=args.json), flush=True), note)
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:  # the reader has seen enough
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  (until the end)
    return 0
