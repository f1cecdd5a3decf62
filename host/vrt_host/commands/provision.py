"""`vrt provision`: Wi-Fi, host and credentials onto a board."""

from __future__ import annotations

import argparse
import getpass
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vrt_host.device import deploy, ports, settings
from vrt_host.device.repl import Repl
from vrt_host.errors import UsageError, VrtError

EXAMPLES = """\
examples:
  vrt provision                                asks for everything; Enter keeps what the board has
  vrt provision --wifi Home --url wss://voice.example:8765/ --ca host.pem
                                               asks for the secrets only
  vrt token add kitchen | vrt provision --url ws://192.168.1.20:8765/
                                               what is piped is the token
  printf 'wifi_password=%s\\ntoken=%s\\n' "$W" "$T" | vrt provision --wifi Home
                                               ... or lines, each with the name of what it is
  vrt provision --set listen=open --set id=kitchen
                                               other settings (firmware/vrt/config.py), and no question

The settings are checked by the firmware on the board before they are written, in one step; the ones before stay as
config.old. Secrets are never taken from the command line, where others could see them, and never shown.

exit code: 0 written; 1 the board or the wire failed; 2 the command line, a setting or the port cannot be used
"""

_PIPED = ("wifi_password", "token")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt provision`."""
    parser.epilog = EXAMPLES
    parser.allow_abbrev = False
    parser.add_argument("--port", help="the board's serial port (default: the only one there is)")
    parser.add_argument("--wifi", metavar="NAME", help="the Wi-Fi's name")
    parser.add_argument("--url", help="the host's address, such as wss://192.168.1.20:8765/")
    parser.add_argument(
        "--ca", type=Path, metavar="FILE", help="the certificate to trust for wss://, PEM or DER"
    )
    parser.add_argument(
        "--update-key", type=Path, metavar="FILE", help="the public key whose updates the board takes"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="others",
        metavar="NAME=VALUE",
        help="another setting; an empty VALUE takes it away",
    )
    parser.add_argument("--anew", action="store_true", help="forget the settings that the board has")
    parser.add_argument("--stay", action="store_true", help="leave the board at its prompt")


def run(args: argparse.Namespace) -> int:
    """Provision; the exit code. Raises `UsageError` for what the operator can mend."""
    given = _given(args)
    port = ports.choose(args.port)
    files: dict[str, bytes] = {}
    if args.ca:
        given["ca"], content = settings.certificate(args.ca)
        files[given["ca"]] = content
    if args.update_key:
        given["update_key"], content = settings.update_key(args.update_key)
        files[given["update_key"]] = content
    if not sys.stdin.isatty():
        given.update(_piped(sys.stdin.read()))
    try:
        with Repl(port, stay=args.stay) as repl:
            deploy.probe(repl)
            before = {} if args.anew else settings.read(repl) or {}
            if sys.stdin.isatty() and not (args.others and not args.wifi and not args.url):
                given = _asked(given, before)
                config = {**before, **given}
                if str(config.get("url", "")).startswith("wss:") and not config.get("ca"):
                    path = input("certificate to trust, a file (Enter: what the board trusts): ").strip()
                    if path:
                        given["ca"], content = settings.certificate(Path(path).expanduser())
                        files[given["ca"]] = content
            config = _merged(before, given)
            settings.replace(repl, config, files)
    except UsageError:
        raise
    except VrtError as error:
        print(f"vrt provision: {error}", file=sys.stderr)
        return 1
    for line in settings.shown(config):
        print(f"  {line}")
    print(
        f"written to {settings.FILE}; the settings before are in {settings.OLD}"
        if before
        else f"written to {settings.FILE}"
    )
    if not args.stay:
        print(f"the board starts with them now; next: vrt monitor --port {port}")
    return 0


def _given(args: argparse.Namespace) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for word in args.others:
        name, separator, value = word.partition("=")
        if not name or not separator:
            raise UsageError(f"--set {name}: write it as NAME=VALUE, such as listen=open")
        if name in ("token", "wifi_password"):
            raise UsageError(
                f"--set {name}: a secret on the command line can be seen by others; type it or pipe it"
            )
        try:
            made[name] = json.loads(value)
        except ValueError:
            made[name] = value
    if args.wifi is not None:
        made["wifi_ssid"] = args.wifi
    if args.url is not None:
        made["url"] = args.url
    return made


def _piped(text: str) -> dict[str, Any]:
    """Secrets from standard input: lines NAME=SECRET, or one line that is the token."""
    lines = [line for line in text.splitlines() if line.strip()]
    made = {}
    for line in lines:
        name, separator, value = line.partition("=")
        if separator and name in _PIPED:
            made[name] = value
        elif len(lines) == 1:
            made["token"] = line.strip()
        else:
            raise UsageError(
                f"a line of the standard input is none of {', '.join(f'{name}=...' for name in _PIPED)}"
            )
    return made


def _asked(given: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What the operator types, where it was not given."""
    made = dict(given)

    def ask(name: str, what: str, typed: Callable[[str], str], *, secret: bool = False) -> None:
        if name in made:
            return
        old = before.get(name, "")
        keeps = (
            " (Enter keeps the one it has)" if secret and old else f" [{old}]" if old and not secret else ""
        )
        if answer := typed(f"{what}{keeps}: "):
            made[name] = answer if secret else answer.strip()

    ask("wifi_ssid", "Wi-Fi name", input)
    if made.get("wifi_ssid") or before.get("wifi_ssid"):
        ask("wifi_password", "Wi-Fi password", getpass.getpass, secret=True)
    ask("url", "the host's address, such as ws://192.168.1.20:8765/", input)
    ask("token", "token of this board, see `vrt token`", getpass.getpass, secret=True)
    return made


def _merged(before: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The new settings. Raises UsageError for what can be seen to be wrong from here."""
    config = {**before, **given}
    if (
        "wifi_ssid" in given
        and given["wifi_ssid"] != before.get("wifi_ssid")
        and "wifi_password" not in given
    ):
        config.pop("wifi_password", None)  # of another network
    config = {name: value for name, value in config.items() if value != "" or name == "url"}
    if said := settings.wifi_fault(config):
        raise UsageError(said)
    token = str(config.get("token", ""))
    if any(char.isspace() for char in token) or not token.isascii():
        raise UsageError(
            "the token is not one that `vrt token add` prints: it has spaces or other characters"
        )
    return config
