"""`vrt token`: the tokens that boards authenticate with."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from vrt_host.auth import TokenFile

EXAMPLES = """\
examples:
  vrt token add kitchen > kitchen.token make a token for the board named kitchen, and keep it for that board
  vrt token list                        show the names, never the tokens
  vrt token revoke kitchen              a lost board: its token stops working within seconds, without a restart
  vrt serve --tokens ~/.config/vrt/tokens.json --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
                                        let in who has a token
  vrt sim --token-file kitchen.token    be that board

The tokens file holds only hashes. The board gets the token in its configuration ("token"), never in a URL.
"""

_ADD = """\
examples:
  vrt token add kitchen                 print a new token, once: only its hash is kept
  vrt token add kitchen > kitchen.token ... into a file, for `vrt sim --token-file kitchen.token`
  vrt token add hall --tokens t.json    keep its hash in another file, for `vrt serve --tokens t.json`
"""

_LIST = """\
examples:
  vrt token list                        names and days, one a line, with a tab between them
  vrt token list --tokens t.json        those of another file
"""

_REVOKE = """\
examples:
  vrt token revoke kitchen              whoever has it is thrown out within seconds; the host need not be restarted
  vrt token revoke kitchen && vrt token add kitchen
                                        give a board a new token
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

    def action(name: str, summary: str, examples: str) -> argparse.ArgumentParser:
        return actions.add_parser(
            name,
            parents=[common],
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    add = action("add", "make a token and print it, once", _ADD)
    add.add_argument("name", metavar="NAME", help="who will use it, for instance the board's place")
    action("list", "show the names and when they were added", _LIST)
    revoke = action("revoke", "forget a token", _REVOKE)
    revoke.add_argument("name", metavar="NAME", help="as `vrt token list` shows it")


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
