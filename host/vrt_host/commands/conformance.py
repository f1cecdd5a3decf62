"""`vrt conformance`: test a server or a client against the protocol."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shlex
import ssl
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from vrt_host.conformance import client_cases, probe, server_cases
from vrt_host.conformance.checks import Check, Finding, Ledger, Unmet
from vrt_host.conformance.client import Server
from vrt_host.conformance.client_cases.stage import Stage
from vrt_host.conformance.live import Progress
from vrt_host.conformance.report import Report
from vrt_host.conformance.run import Pace, matching, play, select
from vrt_host.conformance.serial import SerialListener
from vrt_host.conformance.subject import URL, Command, Operator, Subject
from vrt_host.conformance.watch import Watch
from vrt_host.conformance.watch_client import ClientWatch
from vrt_host.conformance.websocket import WebSocketListener
from vrt_host.errors import UsageError

EXAMPLES = """\
examples:
  vrt serve --agent scripted --conformance               a server that can be tested in full
  vrt conformance server ws://127.0.0.1:8765             ... and its test
  vrt conformance server wss://HOST --ca ca.pem --token-file mine --other-token-file hers
  vrt conformance server ws://HOST --only server.resume --junit report.xml --html report.html

  vrt conformance client -- vrt sim --url {url} --tools boards/sim/conformance.py --heap 192k
                                                         the firmware on a simulated board; it is restarted when it ends
  vrt conformance client --ping-interval 5 -- node client.js {url}
  vrt conformance client --serial /tmp/board -- vrt sim --url {url} --tools boards/sim/conformance.py --heap 256k
                                                         the same over a serial line
  vrt conformance client --serial /dev/ttyACM0           a device on a cable
  vrt conformance client --listen 0.0.0.0:8765           a device in the network, which connects by itself

It ends with 0 when no MUST failed, 1 when one did, 2 when it could not begin. docs/conformance.md says how to make a
server or a client testable, and how to use the vectors of schema/examples from another language.
"""
MOST_PATIENCE_S = 3600
OUTPUT_LINES = 40
"""Of what a client's command printed, shown when it failed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt conformance`."""
    parser.epilog = EXAMPLES
    sides = parser.add_subparsers(dest="side", metavar="SIDE", required=True)
    server = sides.add_parser(
        "server",
        help="test a vRT server",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    server.set_defaults(test=_server)
    server.add_argument("url", nargs="?", metavar="URL", help="ws://HOST:PORT or wss://HOST:PORT")
    server.add_argument(
        "--token-file", type=Path, metavar="FILE", help="its first line is sent in hello.auth"
    )
    server.add_argument(
        "--other-token-file",
        type=Path,
        metavar="FILE",
        help="the token of another principal, for foreign resumes",
    )
    server.add_argument("--ca", type=Path, metavar="FILE", help="certificates to trust, PEM")
    server.add_argument(
        "--patience",
        type=float,
        default=15.0,
        metavar="S",
        help="the longest heartbeat and resume window to wait for (default: 15)",
    )
    server.add_argument("--jobs", type=int, default=8, metavar="N", help="scenarios at a time (default: 8)")
    add_common(server)
    client = sides.add_parser(
        "client",
        help="test a vRT client",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    client.set_defaults(test=_client)
    client.add_argument(
        "words",
        nargs="*",
        metavar="COMMAND",
        help=f"after --: what starts the client; {URL} is the address",
    )
    client.add_argument(
        "--listen", metavar="[HOST:]PORT", help="instead of a command: wait for a client that comes by itself"
    )
    client.add_argument(
        "--serial", metavar="PORT", help="the client is at this serial port, with or without a command"
    )
    client.add_argument(
        "--ping-interval",
        type=float,
        default=15.0,
        metavar="S",
        help="the client's ping interval, as far as it is not 15 s",
    )
    add_common(client)


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options of both sides."""
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="ID",
        help="a check, or the beginning of its id; repeatable",
    )
    parser.add_argument("--list", action="store_true", help="list the checks and do nothing")
    parser.add_argument(
        "--factor", type=float, default=1.0, help="stretch all waits, for slow machines (default: 1)"
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one HTML page")
    parser.add_argument("--all", action="store_true", help="show what passed too")


def run(args: argparse.Namespace) -> int:
    """Test one side; raises `UsageError` for what the operator can mend."""
    places(args)
    return int(args.test(args))


def places(args: argparse.Namespace) -> None:
    """Raises `UsageError` for a report that could not be written, before the test and not after it."""
    for path in (args.junit, args.json, args.html):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            why = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise UsageError(f"cannot write {path}: {why}")


def checked(args: argparse.Namespace, checks: Sequence[Check]) -> list[Check]:
    """The checks that `--only` wants; raises `UsageError` when there are none, or an option makes no sense."""
    if not 0 < args.factor <= 1000:
        raise UsageError(f"--factor {args.factor:g} must be above 0 and at most 1000")
    for name in args.only:
        if not any(matching(check.id, [name]) for check in checks):
            raise UsageError(f"--only {name}: no check has this id or beginning; see --list")
    return [check for check in checks if matching(check.id, args.only)]


def listing(checks: Sequence[Check]) -> int:
    """Print the checks."""
    for check in checks:
        print(f"{check.id:44} {check.level:6} {check.section:6} {check.title}")
    return 0


def deliver(report: Report, args: argparse.Namespace, console: Console) -> int:
    """Show the report, write the files that are asked for; returns the exit code."""
    report.print(console, everything=args.all)
    failed: list[str] = []
    for path, text in (
        (args.junit, report.to_junit),
        (args.json, report.to_json),
        (args.html, report.to_html),
    ):
        if path is not None:
            try:
                path.write_text(text(), encoding="utf-8")
            except OSError as error:
                failed.append(f"cannot write {path}: {error.strerror or error}")
    if failed:  # the others are written all the same: what they tell took minutes
        raise UsageError("; ".join(failed))
    return report.exit_code


# --- servers


def _server(args: argparse.Namespace) -> int:
    checks = checked(args, server_cases.CHECKS)
    if args.list:
        return listing(checks)
    if args.url is None:
        raise UsageError("give the server's URL, such as ws://127.0.0.1:8765")
    scheme = _scheme(args.url)
    if args.jobs < 1:
        raise UsageError(f"--jobs {args.jobs} must be at least 1")
    if not 0 < args.patience <= MOST_PATIENCE_S:
        raise UsageError(f"--patience {args.patience:g} must be above 0 and at most {MOST_PATIENCE_S:,}")
    tokens = (_token(args.token_file), _token(args.other_token_file))
    return asyncio.run(_test_server(args, checks, tokens, _trust(args, scheme)))


async def _test_server(
    args: argparse.Namespace,
    checks: Sequence[Check],
    tokens: tuple[str | None, str | None],
    tls: ssl.SSLContext | None,
) -> int:
    console = Console(highlight=False)
    scenarios = select(server_cases.SCENARIOS, args.only)
    pace = Pace(args.factor)
    began = time.monotonic()
    with Progress(console, len(scenarios), args.only) as progress:
        ledger = Ledger(
            server_cases.CHECKS, secrets=[token for token in tokens if token], changed=progress.changed
        )
        server = Server(args.url, pace, Watch(ledger), *tokens, tls, args.patience)
        await probe.reach(server)
        server = server.steered_by(await probe.profile(server))
        findings = await play(
            scenarios, server, ledger, pace=pace, jobs=args.jobs, begun=progress.begun, ended=progress.ended
        )
    report = Report("server", args.url, _wanted(findings, checks), time.monotonic() - began)
    if not server.profile:
        console.print("[yellow]The server has no answer to 'test profile': see docs/conformance.md[/yellow]")
    return deliver(report, args, console)


def _scheme(url: str) -> str:
    """`ws` or `wss`; raises `UsageError` for what is no server's URL."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("ws", "wss") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, or is too high; half an IPv6 address
        valid = False
    if not valid:
        raise UsageError(f"{url} is not an address of the form ws://HOST:PORT or wss://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise UsageError("no credentials in the URL (vRT §2.1): give --token-file")
    return parts.scheme


def _wanted(findings: Sequence[Finding], checks: Sequence[Check]) -> list[Finding]:
    ids = {check.id for check in checks}
    return [finding for finding in findings if finding.check.id in ids]


def _token(path: Path | None) -> str | None:
    """The first line of a file."""
    if path is None:
        return None
    try:
        token = path.read_text("utf-8").strip().partition("\n")[0].strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"cannot read the token file {path}: {reason}") from None
    if not token:
        raise UsageError(f"the token file {path} is empty")
    return token


def _trust(args: argparse.Namespace, scheme: str) -> ssl.SSLContext | None:
    if scheme == "ws":
        if args.ca is not None:
            raise UsageError("--ca is for wss: addresses")
        return None
    try:
        return ssl.create_default_context(cafile=args.ca)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"cannot use the certificates {args.ca}: {error.strerror or error}") from None


# --- clients


def _client(args: argparse.Namespace) -> int:
    checks = checked(args, client_cases.CHECKS)
    if args.list:
        return listing(checks)
    if args.serial is not None and args.listen is not None:
        raise UsageError("give either --serial or --listen")
    if args.serial == "":
        raise UsageError("--serial: give the port, such as /dev/ttyACM0")
    if args.serial is None and bool(args.words) == (args.listen is not None):
        raise UsageError(
            f"give either a command that starts the client, after --, with {URL} in it, or --listen, or --serial"
        )
    if not 0 < args.ping_interval <= 60:
        raise UsageError(f"--ping-interval {args.ping_interval:g} must be above 0 and at most 60")
    return asyncio.run(_test_client(args, checks))


async def _test_client(args: argparse.Namespace, checks: Sequence[Check]) -> int:
    listener = _listener(args)
    console = Console(highlight=False)
    scenarios = select(client_cases.SCENARIOS, args.only)
    pace = Pace(args.factor)
    began = time.monotonic()
    command = Command(args.words) if args.words else None
    subject: Subject = command or Operator(lambda text: console.print(text, soft_wrap=True))
    try:
        async with _listening(listener, args.listen):
            with Progress(console, len(scenarios), args.only) as progress:
                ledger = Ledger(client_cases.CHECKS, changed=progress.changed)
                watch = ClientWatch(ledger)
                stage = Stage(listener, listener.url, subject, watch, pace=pace, ping_s=args.ping_interval)
                await stage.arrive()
                findings = await play(
                    scenarios, stage, ledger, pace=pace, jobs=1, begun=progress.begun, ended=progress.ended
                )
    except Unmet as unmet:
        _show_output(command)
        raise UsageError(f"nothing to test: {unmet}") from None
    finally:
        await subject.stop()
    peer = args.listen or shlex.join(args.words) or args.serial
    report = Report("client", peer, _wanted(findings, checks), time.monotonic() - began)
    if report.exit_code:
        _show_output(command)
    return deliver(report, args, console)


def _listener(args: argparse.Namespace) -> WebSocketListener | SerialListener:
    if args.serial is not None:
        return SerialListener(args.serial)
    if args.listen is None:
        return WebSocketListener("127.0.0.1", 0)
    at = address(args.listen, "127.0.0.1")
    if at is None:
        raise UsageError(f"--listen {args.listen}: write PORT, or HOST:PORT such as 0.0.0.0:8765")
    return WebSocketListener(*at)


@contextlib.asynccontextmanager
async def _listening(listener: WebSocketListener | SerialListener, where: str | None) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(listener)
        except OSError as error:
            raise UsageError(f"cannot listen at {where}: {error.strerror or error}") from None
        except UnicodeError:  # what no resolver is asked for
            raise UsageError(f"cannot listen at {where}: this is no name of a host") from None
        yield


def _show_output(command: Command | None) -> None:
    if command is not None:
        lines = list(command.output)[-OUTPUT_LINES:]
        print(f"the last {len(lines)} lines of the client:", *lines, sep="\n  ", file=sys.stderr)


def address(word: str, usual: str) -> tuple[str, int] | None:
    """`[HOST:]PORT`, None for what is something else; `usual` is the host when there is none."""
    host, _, port = word.rpartition(":")
    if not (port.isascii() and port.isdigit()) or not 0 < int(port[:6]) < 65536:
        return None
    return host.strip("[]") or usual, int(port)
