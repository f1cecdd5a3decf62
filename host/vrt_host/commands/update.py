"""`vrt update`: sign the firmware of a board and publish it, for boards to take over the air."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from vrt_host import __version__
from vrt_host.errors import UsageError

EXAMPLES = """\
examples:
  vrt update key ~/.config/vrt/update.pem      once: the key, and update.pem.pub for your boards (`vrt provision`)
  vrt update sign bread-compact-s3 --key ~/.config/vrt/update.pem --tools my_tools.py
                                               the firmware here with your tools, as bread-compact-s3-0.2.0.bundle
  vrt update publish bread-compact-s3-0.2.0.bundle --key ~/.config/vrt/update.pem.pub --to /srv/vrt-updates
  vrt serve --updates /srv/vrt-updates --tls-cert cert.pem --tls-key key.pem --tokens t.json --host 0.0.0.0

A board takes what this key signed, for its own kind, with a higher version; it goes back by itself to what it had when the
new one does not reach its host within three minutes. docs/updates.md says how.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt update`."""
    parser.epilog = EXAMPLES
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    key = verbs.add_parser("key", help="make a key: FILE is for you alone, FILE.pub goes onto your boards")
    key.add_argument("file", type=Path, metavar="FILE")
    sign = verbs.add_parser("sign", help="build the firmware of a board, and sign it")
    sign.add_argument("board", metavar="BOARD", help="see `vrt boards`")
    sign.add_argument("--key", type=Path, required=True, metavar="FILE", help="made by `vrt update key`")
    sign.add_argument("--tools", type=Path, metavar="FILE", help="your own tools instead of the board's")
    sign.add_argument(
        "--version", default=__version__, metavar="N.N.N", help=f"of this bundle (default: {__version__})"
    )
    sign.add_argument("--out", type=Path, metavar="FILE", help="(default: BOARD-VERSION.bundle)")
    publish = verbs.add_parser(
        "publish", help="check a bundle, and put it where `vrt serve --updates` finds it"
    )
    publish.add_argument("bundle", type=Path, metavar="BUNDLE")
    publish.add_argument(
        "--key", type=Path, required=True, metavar="FILE.pub", help="the public half, as your boards have it"
    )
    publish.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="made when it is not there")


def run(args: argparse.Namespace) -> int:
    """Do what the verb says; raises `UsageError`."""
    try:
        import cryptography  # noqa: F401, PLC0415
    except ModuleNotFoundError:
        raise UsageError('updates need the package cryptography: pip install "vrt-edge[device]"') from None
    {"key": _key, "sign": _sign, "publish": _publish}[args.verb](args)
    return 0


def _key(args: argparse.Namespace) -> None:
    from vrt_host.device.bundle import make_key  # noqa: PLC0415

    public = make_key(args.file)
    print(f"{args.file}: keep it safe and secret; who has it can replace the firmware of your boards")
    print(f"{public}: for your boards, see `vrt provision`")


def _sign(args: argparse.Namespace) -> None:
    from vrt_host.device.build import ARCHITECTURES, MPY_VERSION, tree  # noqa: PLC0415
    from vrt_host.device.bundle import Bundle, sign  # noqa: PLC0415
    from vrt_host.device.compiler import taken_by  # noqa: PLC0415
    from vrt_host.device.profiles import find  # noqa: PLC0415

    profile = find(args.board)
    files = tree(profile, tools=args.tools, version=args.version)
    mpy = taken_by(MPY_VERSION, ARCHITECTURES[profile.data["mcu"]])
    bundle = Bundle(profile.id, args.version, mpy, files)
    out = args.out or Path(f"{profile.id}-{args.version}.bundle")
    data = sign(bundle, args.key)
    _write(out, data)
    print(f"{out}: {len(files)} files, {len(data):,} bytes")


def _publish(args: argparse.Namespace) -> None:
    from vrt_host.device.bundle import opened  # noqa: PLC0415
    from vrt_host.updates import SUFFIX  # noqa: PLC0415

    data = _read(args.bundle)
    bundle = opened(data, args.key, str(args.bundle))
    target = args.to / f"{bundle.board}{SUFFIX}"
    if target.exists():
        there = opened(_read(target), None, str(target))
        if there.number >= bundle.number:
            raise UsageError(
                f"{args.to} has {there.version} for {bundle.board} already, which is not older than {bundle.version}; "
                "boards would not take it: sign it with a higher --version"
            )
    try:
        args.to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--to {args.to} is no folder and cannot be made one: {error.strerror or error}"
        ) from None
    _write(target, data)
    print(
        f"{target}: {bundle.board} {bundle.version}; boards hear of it within seconds from `vrt serve --updates`"
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def _write(path: Path, data: bytes) -> None:
    """In one step: a host that reads it meanwhile sees the old or the new one."""
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
