"""`vrt deploy`: the firmware onto a board that has MicroPython."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vrt_host.device import ports, profiles
from vrt_host.device.deploy import deploy
from vrt_host.device.progress import Progress
from vrt_host.device.repl import Repl
from vrt_host.errors import UsageError, VrtError

EXAMPLES = """\
examples:
  vrt deploy bread-compact-s3                  the firmware, to the only board that is plugged in
  vrt deploy bread-compact-s3 --port /dev/ttyACM0 --tools mine.py
                                               with your own tools (docs/tools.md); they stay at the next deploy

Only files that differ are sent, and each is read back. They go beside the firmware that runs; one step at the end makes
them what starts: pull the cable when you like, and the board has the old firmware or the new one. Settings and journal
stay. The board runs the new firmware at the end, without --stay.

exit code: 0 done, or nothing to do; 1 the board or the wire failed; 2 the command line, a file or the port cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt deploy`."""
    parser.epilog = EXAMPLES
    parser.add_argument("board", metavar="BOARD", help="its id, see `vrt boards`")
    parser.add_argument("--port", help="the board's serial port (default: the only one there is)")
    parser.add_argument("--tools", type=Path, metavar="FILE", help="your own tools")
    parser.add_argument("--stay", action="store_true", help="leave the board at its prompt")


def run(args: argparse.Namespace) -> int:
    """Deploy; the exit code. Raises `UsageError` for what the operator can mend."""
    profile = profiles.find(args.board)
    port = ports.choose(args.port)
    bar = Progress()
    try:
        with Repl(port, stay=args.stay) as repl:
            result = deploy(
                repl,
                profile,
                tools=args.tools,
                progress=lambda path, done, of: bar.show(100 * done // max(of, 1)),
            )
            bar.end()
    except UsageError:
        raise
    except VrtError as error:
        bar.end()
        print(
            f"vrt deploy: {error}; run it again, the board has its old firmware or the new one",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        bar.end()
        print(
            "vrt deploy: interrupted; run it again, the board has its old firmware or the new one",
            file=sys.stderr,
        )
        return 130
    if result.kept_main:
        print("the board's own main.py is kept as main.before.py")
    if result.kept_tools:
        print("your tools stay as they are on the board (--tools replaces them)")
    if result.changed:
        print(
            f"firmware {result.version} of {profile.id} is in slot {result.slot}: {_files(result.sent)} sent "
            f"({result.sent_bytes:,} bytes), {_files(result.copied)} taken from the other slot, all read back"
        )
    else:
        print(f"firmware {result.version} of {profile.id} is on the board already")
    if not args.stay:
        print(f"it starts now; next: vrt provision --port {port}, or vrt monitor --port {port}")
    return 0


def _files(paths: list[str]) -> str:
    return "1 file" if len(paths) == 1 else f"{len(paths)} files"
