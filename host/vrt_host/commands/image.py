"""`vrt image`: one file to flash in one step."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vrt_host import __version__
from vrt_host.device import image, image_file, profiles
from vrt_host.errors import UsageError, VrtError

EXAMPLES = """\
examples:
  vrt image bread-compact-s3 --micropython ESP32_GENERIC_S3-SPIRAM_OCT-20251209-v1.27.0.bin
                                               MicroPython and firmware in one file, and a manifest beside it
  vrt flash bread-compact-s3 --micropython bread-compact-s3-0.1.0.bin
                                               write it (or with a browser: ESP Web Tools reads the manifest)

It holds no settings and no secrets; `vrt provision` gives a board its own. Whoever writes it onto a board replaces what
was there, settings and journal too.

exit code: 0 written; 1 it failed; 2 the command line or a file cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt image`."""
    parser.epilog = EXAMPLES
    parser.add_argument("board", metavar="BOARD", help="its id, see `vrt boards`")
    parser.add_argument(
        "--micropython", type=Path, metavar="FILE", help="the image, from micropython.org/download"
    )
    parser.add_argument("--tools", type=Path, metavar="FILE", help="your own tools")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: BOARD-VERSION.bin, here")


def run(args: argparse.Namespace) -> int:
    """Make it; the exit code. Raises `UsageError` for what the operator can mend."""
    profile = profiles.find(args.board)
    base = image_file.read(args.micropython, profile)
    out = args.out or Path(f"{profile.id}-{__version__}.bin")
    if out.resolve() == base.path.resolve():
        raise UsageError(f"--out {out} is the MicroPython image itself: name another file")
    for note in image_file.doubts(base, profile):
        print(f"note: {note}")
    files = image.content(profile, tools=args.tools)
    try:
        made = image.make(base, files)
    except UsageError:
        raise
    except VrtError as error:
        print(f"vrt image: {error}", file=sys.stderr)
        return 1
    manifest = out.with_suffix(".manifest.json")
    try:
        out.write_bytes(made)
        manifest.write_text(image.manifest(profile, base, out.name), "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {error.filename}: {error.strerror or error}") from None
    vfs = base.vfs
    print(
        f"{out}: {len(made):,} bytes, to be written at {base.offset:#x}: MicroPython {'.'.join(map(str, base.version))}, "
        f"and at {vfs.offset:#x} the files ({len(files)}, {sum(map(len, files.values())):,} bytes) "
        f"on {vfs.size >> 10:,} KB of littlefs"
    )
    print(f"{manifest}: for ESP Web Tools")
    print(f"next: vrt flash {profile.id} --micropython {out}")
    return 0
