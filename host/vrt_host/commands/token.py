"""`vrt token`: the tokens that boards authenticate with."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from vrt_host.auth import TokenFile

EXAMPLES = """\
examples:
  vrt token add kitchen                 print a new token for the board named kitchen, once
  vrt token list                        show the names, never the tokens
  vrt token revoke kitchen              a lost board: its token stops working at once, without a restart
  vrt serve --tokens ~/.config/vrt/tokens.json --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem

The file holds only hashes. The board gets the token in its configuration, never in a URL.
"""


def default_path() -> Path:
    """Where tokens are kept unless `--tokens` says otherwise."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base else Path.home() / ".config") / "vrt" / "tokens.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt token`."""
    parser.epilog = EXAMPLES
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--tokens",
        type=Path,
        default=None,
        metavar="FILE",
        help="the tokens file (default: ~/.config/vrt/tokens.json)",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("add", parents=[common], help="make a token and print it, once")
    add.add_argument("name", metavar="NAME", help="who will use it, for instance the board's place")
    actions.add_parser("list", parents=[common], help="show the names and when they were added")
    revoke = actions.add_parser("revoke", parents=[common], help="forget a token")
    revoke.add_argument("name", metavar="NAME")


def run(args: argparse.Namespace) -> int:
    """Do it; raises `UsageError` for what the operator can mend."""
    path: Path = args.tokens or default_path()
    file = TokenFile(path)
    if args.action == "add":
        token = file.add(args.name)
        print(token)
        # Standard output carries the token alone, so that a script can take it.
        print(f"This is the only time it is shown. Serve with it: vrt serve --tokens {path}", file=sys.stderr)
    elif args.action == "revoke":
        file.revoke(args.name)
        print(f"{args.name} can no longer connect.", file=sys.stderr)
    else:
        for entry in sorted(file.load().values(), key=lambda entry: entry.name):
            print(f"{entry.name}\t{entry.added}")
    return 0
