"""`vrt serve`: the host."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrt_host import conformance
from vrt_host.agents import registry
from vrt_host.agents.base import Agent
from vrt_host.config import DEFAULT_HOST, DEFAULT_PORT, ServerConfig, TurnLimits
from vrt_host.errors import UsageError
from vrt_host.facades import registry as facades
from vrt_host.harness.capture import Capture, recorded
from vrt_host.lending import Lending
from vrt_host.server import serve
from vrt_host.session import Limits

if TYPE_CHECKING:
    from vrt_host.updates import Updates

PROFILE = Path(conformance.__file__).with_name("profile.json")
CONFORMANCE_TURNS = TurnLimits(call_margin=0.5)
"""A call that is not answered is given up soon, so that the suite need not wait long for it."""

EXAMPLES = """\
examples:
  vrt serve                                  the offline agent, for boards on this machine
  vrt serve --agent echo --port 0            say back what comes, on any free port
  vrt serve --agent scripted --script s.json do what a file says (docs/scripted.md)
  vrt serve --serial /dev/ttyACM0            also for a board on a cable (docs/serial.md)
  vrt serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --tokens ~/.config/vrt/tokens.json
                                             for boards on the network; `vrt token add NAME` makes their tokens

It stops with Ctrl-C or SIGTERM: clients are told, and work in hand ends; a second one does not wait for it. GET /healthz answers {"status": "ok"}.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt serve`."""
    parser.epilog = EXAMPLES
    agents = "; ".join(f"{name}: {what}" for name, what in registry.AGENTS.items())
    parser.add_argument(
        "--agent", choices=tuple(registry.AGENTS), default="local", help=f"{agents} (default: local)"
    )
    parser.add_argument("--script", type=Path, metavar="FILE", help="what the scripted agent does")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="options of the agents that need some, TOML (docs/agents)"
    )
    facades_ = "; ".join(f"{name}: {what}" for name, (_, _, what) in facades.FACADES.items())
    parser.add_argument(
        "--facade",
        action="append",
        default=[],
        choices=tuple(facades.FACADES),
        help=f"be that for its clients as well, on a port of its own; repeatable (docs/facades.md). {facades_}",
    )
    parser.add_argument(
        "--lend",
        action="append",
        default=[],
        metavar="BOARD[/TOOL]",
        help="let clients of facades use a board's tools, with the board's own confirmation; BOARD is the name of its token; repeatable",
    )
    parser.add_argument("--host", default=DEFAULT_HOST, metavar="ADDRESS", help=f"(default: {DEFAULT_HOST})")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help=f"0 takes any free one (default: {DEFAULT_PORT})"
    )
    parser.add_argument(
        "--serial",
        action="append",
        default=[],
        metavar="PORT",
        help="a board's serial port, which may come and go; repeatable",
    )
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="the certificate chain, PEM")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its key, PEM, without a passphrase")
    parser.add_argument("--tokens", type=Path, metavar="FILE", help="who may connect; see `vrt token`")
    parser.add_argument(
        "--origin", action="append", default=[], metavar="URL", help="a web page's origin to let in"
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="listen on other addresses than loopback without TLS or tokens",
    )
    parser.add_argument(
        "--conformance",
        action="store_true",
        help="serve what `vrt conformance server` steers a server by, with short times (with --agent scripted)",
    )
    parser.add_argument(
        "--heartbeat",
        type=float,
        metavar="S",
        help="close a link that is silent for so long; boards ping every 15 s, see ping_ms (default: 45, or 3)",
    )
    parser.add_argument(
        "--resume-window", type=float, metavar="S", help="keep a lost session for so long (default: 30, or 3)"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write every frame to a capture (docs/harness.md)"
    )
    parser.add_argument(
        "--updates", type=Path, metavar="FOLDER", help="offer boards what `vrt update publish` put there"
    )
    parser.add_argument(
        "--updates-port", type=int, default=8766, metavar="PORT", help="hand it out there (default: 8766)"
    )
    parser.add_argument("--verbose", action="store_true", help="log more")


def run(args: argparse.Namespace) -> int:
    """Serve until it is told to stop; raises `UsageError` for what the operator can mend."""
    logging.basicConfig(
        level=logging.DEBUG if args.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    config = ServerConfig(
        host=args.host,
        port=args.port,
        tls_cert=args.tls_cert,
        tls_key=args.tls_key,
        tokens=args.tokens,
        insecure=args.insecure,
        origins=tuple(args.origin),
        serial=tuple(args.serial),
    )
    if not all(name.strip() for name in args.serial):
        raise UsageError("--serial names no port; write it like --serial /dev/ttyACM0")
    limits = _limits(args)
    agents = registry.factory(
        args.agent,
        script=PROFILE if args.conformance else args.script,
        config=args.config if args.agent in registry.ADAPTERS or not args.facade else None,
    )
    turn_limits = CONFORMANCE_TURNS if args.conformance else None
    options: dict[str, Any] = {"limits": limits, "turn_limits": turn_limits}
    options["facades"] = [facades.make(name, args.config) for name in dict.fromkeys(args.facade)]
    if args.lend and not args.facade:
        raise UsageError("--lend is for the clients of a facade: give --facade too")
    options["lending"] = Lending(args.lend)
    if args.updates is not None:
        options["updates"] = _updates(args.updates, args.updates_port)
    with contextlib.ExitStack() as stack:
        if args.record is not None:
            warn = logging.getLogger("vrt_host.capture").warning
            capture = stack.enter_context(Capture(args.record, by="vrt serve", stopped=warn))
            options["link"], options["serial_link"] = recorded(capture)
        asyncio.run(_serve(config, args.agent, agents, **options))
    return 0


def _updates(folder: Path, port: int) -> Updates:
    if not 0 <= port <= 65535:
        raise UsageError(f"{port} is not a port; give a number from 0 to 65535")
    try:
        from vrt_host.updates import Updates  # noqa: PLC0415  (its packages are an extra)
    except ModuleNotFoundError as error:
        raise UsageError(
            f'--updates needs the package {error.name}: pip install "vrt-edge[device]"'
        ) from None
    return Updates(folder, port)


def _limits(args: argparse.Namespace) -> Limits:
    if args.conformance and (args.agent != "scripted" or args.script is not None):
        raise UsageError("--conformance goes with --agent scripted, and brings a script of its own")
    usual = Limits(heartbeat_s=3.0, resume_window_s=3.0) if args.conformance else Limits()
    for name, seconds in (("--heartbeat", args.heartbeat), ("--resume-window", args.resume_window)):
        if seconds is not None and not 0 < seconds <= 86_400:
            raise UsageError(f"{name} {seconds:g} must be above 0 and at most 86,400 seconds")
    return replace(
        usual,
        heartbeat_s=args.heartbeat or usual.heartbeat_s,
        resume_window_s=args.resume_window or usual.resume_window_s,
    )


async def _serve(config: ServerConfig, name: str, agents: Callable[[], Agent], **options: Any) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    serving = asyncio.current_task()
    assert serving is not None

    def told() -> None:
        """Stop; told again, wait for nothing that is under way."""
        if stop.is_set():
            serving.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, told)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(told))

    async def load(port: int) -> None:
        try:
            await asyncio.to_thread(registry.prepare, agents)
        except BaseException:
            stop.set()
            raise
        host = f"[{config.host}]" if ":" in config.host else config.host or "0.0.0.0"
        print(f"serving {name} on {config.scheme}://{host}:{port}", flush=True)

    # It listens before the agent is loaded: a board that comes meanwhile waits, where it would else try again later and
    # later; and a busy port is told at once.
    loading: list[asyncio.Task[None]] = []
    try:
        await serve(
            config,
            agents,
            ready=lambda port: loading.append(loop.create_task(load(port))),
            stop=stop,
            **options,
        )
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    await asyncio.gather(*loading)
