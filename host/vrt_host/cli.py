"""The `vrt` command: one subcommand a file in `commands/`, loaded only when it is used."""

from __future__ import annotations

import argparse
import importlib
import os
import select
import sys
from collections.abc import Sequence
from typing import NoReturn

from vrt_host import __version__
from vrt_host.errors import UsageError

COMMANDS = {
    "boards": "list the boards, say what they can do, describe another",
    "conformance": "test a vRT server or client against the protocol",
    "demo": "play the whole conversation with a simulated board and the offline agent",
    "deploy": "bring the firmware to a board that has MicroPython",
    "doctor": "say what is wrong with a board, from its port to its token",
    "flash": "write MicroPython to a board",
    "harness": "play a scenario to a device: what the host says, what breaks, what must be answered",
    "image": "make one file to flash: MicroPython and the firmware",
    "monitor": "show what a board prints",
    "provision": "give a board its Wi-Fi, host and credentials",
    "serve": "run the host: accept boards and give them an agent",
    "sim": "run the firmware on a simulated board",
    "token": "manage the tokens that boards authenticate with",
    "update": "sign firmware for boards and publish it, to be taken over the air",
}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; argparse would print the whole usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see `{self.prog} --help`)\n")


def build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser with every subcommand listed, but only the one in `argv` filled in (others import heavy parts)."""
    parser = _Parser(
        prog="vrt",
        description="vRT Edge: voice boards that can be trusted with the front door.",
        epilog="`vrt COMMAND --help` shows a command's options with examples. Exit code: 0 done, 1 it failed, "
        "2 the command line or a file that it names cannot be used.",
    )
    parser.add_argument("--version", action="version", version=f"vrt {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    wanted = next((word for word in argv if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == wanted:
            module = importlib.import_module(f"vrt_host.commands.{name}")
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run `vrt`; returns the exit code: 0 done, 1 it failed, 2 the operator's input was wrong."""
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # not on Windows
        if not _unread():
            raise
        return 141
    return code


def _unread() -> bool:
    """Whether nobody reads what is printed any more, as after `| head`; the rest of it then goes nowhere."""
    watched = select.poll()
    watched.register(sys.stdout, 0)
    if not watched.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def _run(words: list[str]) -> int:
    parser = build_parser(words)
    args, unknown = parser.parse_known_args(words)
    command = "" if args.command is None else f" {args.command}"
    if unknown:
        parser.exit(2, f"vrt{command}: unknown argument {unknown[0]!r} (see `vrt{command} --help`)\n")
    if args.command is None:
        parser.error(f"choose a COMMAND: {', '.join(COMMANDS)}")
    try:
        return int(args.run(args))
    except UsageError as error:
        print(f"vrt {args.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
