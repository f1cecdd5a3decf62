"""`vrt flash`: MicroPython onto a board."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vrt_host.device import flash, image_file, ports, profiles
from vrt_host.device.progress import Progress
from vrt_host.errors import UsageError, VrtError

EXAMPLES = """\
examples:
  vrt flash bread-compact-s3 --micropython ESP32_GENERIC_S3-SPIRAM_OCT-20251209-v1.27.0.bin
                                               write MicroPython; files that are on the board stay
  vrt flash bread-compact-s3 --port /dev/ttyACM0 --micropython FILE.bin --erase
                                               erase everything first, settings and keys too
  vrt flash bread-compact-s3                   say which file this board needs

The file is checked against the board before the port is opened, and the chip at the port before anything is written.
`vrt deploy` brings the firmware then.

exit code: 0 written and read back; 1 the board or the wire failed; 2 the command line, the file or the port cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt flash`."""
    parser.epilog = EXAMPLES
    parser.add_argument("board", metavar="BOARD", help="its id, see `vrt boards`")
    parser.add_argument("--port", help="the board's serial port (default: the only one there is)")
    parser.add_argument(
        "--micropython", type=Path, metavar="FILE", help="the image, from micropython.org/download"
    )
    parser.add_argument("--erase", action="store_true", help="erase all of the flash first")


def run(args: argparse.Namespace) -> int:
    """Flash it; the exit code. Raises `UsageError` for what the operator can mend."""
    profile = profiles.find(args.board)
    image = image_file.read(args.micropython, profile)
    port = ports.choose(args.port)
    for note in image_file.doubts(image, profile):
        print(f"note: {note}")
    bar = Progress()
    try:
        flash.flash(port, profile, image, erase=args.erase, say=print, progress=bar.show)
    except UsageError:
        raise
    except VrtError as error:
        bar.end()
        print(f"vrt flash: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        bar.end()
        print(
            "vrt flash: interrupted; what is half written does no harm: run the same command again",
            file=sys.stderr,
        )
        return 130
    bar.end()
    version = ".".join(map(str, image.version))
    then = f"vrt provision --port {port}" if image.with_files else f"vrt deploy {profile.id} --port {port}"
    print(f"MicroPython {version} is on the board and was read back; next: {then}")
    return 0
