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
  vrt image bread-compact-s3 --flash 8 --micropython FILE.bin
                                               for a module with 8 MB of flash instead of 16
  vrt flash bread-compact-s3 --micropython bread-compact-s3-0.1.0.bin
                                               write it (or with a browser: ESP Web Tools reads the manifest)

Since 1.26 MicroPython's files take all of the flash behind it, so the image is for one size of flash: that of the board's
description, or --flash. It holds no settings and no secrets; `vrt provision` gives a board its own. Whoever writes it onto a board replaces what
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
    parser.add_argument(
        "--flash",
        type=int,
        choices=[4, 8, 16, 32],
        metavar="MB",
        help="of the chip, where it is not what the board's description says (4, 8, 16 or 32)",
    )
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
    flash = (args.flash or int(profile.data["memory"]["flash_mb"])) << 20
    vfs = base.vfs(flash)
    try:
        made = image.make(base, files, flash)
    except UsageError:
        raise
    except VrtError as error:
        print(f"vrt image: {error}", file=sys.stderr)
        return 1
    manifest = out.with_suffix(".manifest.json")
    _write(out, made)
    _write(manifest, image.manifest(base, out.name).encode())
    print(
        f"{out}: {len(made):,} bytes, to be written at {base.offset:#x}: MicroPython {'.'.join(map(str, base.version))}, "
        f"and at {vfs.offset:#x} the files ({len(files)}, {sum(map(len, files.values())):,} bytes) "
        f"on {vfs.size >> 10:,} KB of littlefs"
    )
    if base.named is None:
        print(f"for chips with {flash >> 20} MB of flash alone (--flash MB for others)")
    print(f"{manifest}: for ESP Web Tools")
    print(f"next: vrt flash {profile.id} --micropython {out}")
    return 0


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all: half an image would be flashed like a whole one."""
    new = path.with_name(path.name + ".new")
    try:
        new.write_bytes(data)
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
