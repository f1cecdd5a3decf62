"""The settings of a board, `config.json`, through its prompt: read, checked by the board's own rules, replaced in one step."""

from __future__ import annotations

import hashlib
import json
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vrt_host.device import deploy
from vrt_host.device.repl import BoardError, Repl
from vrt_host.errors import UsageError, VrtError

SECRETS = ("token", "wifi_password")
"""Settings that nobody sees again."""
FILE = "config.json"
OLD = "config.old"

_NAME_BYTES = 32  # of a Wi-Fi (IEEE 802.11 9.4.2.2)
_PASSPHRASE = range(8, 64)  # IEEE 802.11 J.4.1; 64 hex digits are the key itself

# The board's own rules, with its own modules. The certificates are read from the file that they will be in.
_CHECK = """
import sys
sys.path.insert(0, {slot!r})
try:
    from vrt.config import checked
    from vrt.errors import ConfigError
except ImportError:
    print('"none"')
else:
    try:
        with open({slot!r} + '/board.json') as _f:
            _d = json.load(_f)
        _c = checked(json.loads({config!r}), _d.get('duplex', 'half'))
        if _c['url'] == 'serial:':
            if 'serial' not in _d:
                raise ConfigError('config: "url" cannot be serial: this board has no port for it')
        else:
            if _link('url').parse(_c['url'])[0]:
                _ca = None
                if _c['ca']:
                    try:
                        with open(_c['ca'], 'rb') as _f:
                            _ca = _f.read()
                    except OSError:
                        raise ConfigError('config: "ca" cannot be read: ' + _c['ca'])
                _link('tls').context(_ca)
        print('""')
    except ConfigError as _e:
        print(json.dumps(str(_e)))
"""


def read(repl: Repl) -> dict[str, Any] | None:
    """What is in `config.json`; None when there is no such file. Raises VrtError when it is damaged."""
    text = repl.ask(
        f"try:\n with open({FILE!r}) as _f:\n  print(json.dumps(_f.read()))\nexcept OSError:\n print('null')"
    )
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise VrtError(f"{FILE} on the board is damaged: give all settings anew (`vrt provision --anew`)")
    return found


def fault(repl: Repl, config: Mapping[str, Any]) -> str:
    """What the firmware on the board would say against these settings; empty when nothing. Raises VrtError without a firmware."""
    board = deploy.probe(repl)
    code = _CHECK.format(slot=board.running, config=json.dumps(config))
    said = str(repl.ask(code))
    if said == "none":
        raise VrtError("there is no firmware on the board that could check them: `vrt deploy` first")
    return said


def replace(repl: Repl, config: Mapping[str, Any], files: Mapping[str, bytes] | None = None) -> None:
    """Check the settings on the board and make them its `config.json`; the ones before are `config.old`.

    `files` are those that the settings name. Raises UsageError with the firmware's words when a setting is wrong; whatever
    happens, the board has the settings from before or these.
    """
    deploy.probe(repl)
    for path, content in (files or {}).items():
        put(repl, path, content)
    try:
        said = fault(repl, config)
    except BoardError as error:
        said = str(error)
    if said:
        raise UsageError(f"the board would not take these settings: {said}; nothing has changed")
    repl.run(
        f"try:\n _copy({FILE!r}, 'config.keep')\n os.rename('config.keep', {OLD!r})\nexcept OSError:\n pass"
    )
    put(repl, FILE, json.dumps(config).encode())
    used = (config.get("ca", ""), config.get("update_key", ""))
    repl.run(
        f"for _n in os.listdir():\n"
        f" if _n[:3] in ('ca-', 'key') and _n not in {used!r} and _n not in _text({OLD!r}, 9999):\n  _gone(_n)"
    )


def put(repl: Repl, path: str, content: bytes) -> None:
    """Write a file of the board's root in one step, read back before. Raises VrtError.

    Its name until then is the one under which the firmware looks for a whole copy (firmware/vrt/setup/settings.py).
    """
    new = f"{path.rpartition('.')[0]}.new"
    repl.write(new, content)
    if repl.run(f"print(_hash({new!r}))").strip() != hashlib.sha256(content).hexdigest():
        raise VrtError(f"{path} does not read back: run it again; the board still has what it had")
    repl.run(f"os.rename({new!r}, {path!r})")


def certificate(path: Path) -> tuple[str, bytes]:
    """The certificates in a file, PEM or DER, and the name that they get on the board. Raises UsageError.

    The name follows the content, so that settings never meet another certificate than theirs.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    if b"PRIVATE KEY" in content:
        raise UsageError(f"{path} holds a private key, which no board must have: give the certificate alone")
    pem = b"-----BEGIN CERTIFICATE-----" in content
    try:
        ssl.create_default_context(cadata=content.decode("ascii") if pem else content)
    except (ssl.SSLError, ValueError):
        raise UsageError(f"{path} is not a certificate in PEM or DER form") from None
    return f"ca-{hashlib.sha256(content).hexdigest()[:8]}.pem", content


def update_key(path: Path) -> tuple[str, bytes]:
    """The public key of updates in a file of `vrt update`, and the name that it gets on the board. Raises UsageError."""
    try:
        content = path.read_bytes().strip()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    if not re.fullmatch(rb"[0-9a-fA-F]{512}", content):
        raise UsageError(f"{path} is not the public key of updates, FILE.pub of `vrt update key`")
    return f"key-{hashlib.sha256(content).hexdigest()[:8]}.pub", content


def wifi_fault(config: Mapping[str, Any]) -> str:
    """What is wrong with the Wi-Fi's name or password, without showing it; empty when nothing."""
    name, password = str(config.get("wifi_ssid", "")), str(config.get("wifi_password", ""))
    if len(name.encode()) > _NAME_BYTES:
        return f"a Wi-Fi's name has at most {_NAME_BYTES} bytes, and this has {len(name.encode())}"
    if password and not name:
        return "there is a Wi-Fi password without a name: give it with --wifi NAME"
    hexadecimal = len(password) == 64 and not set(password.lower()) - set("0123456789abcdef")
    if password and len(password.encode()) not in _PASSPHRASE and not hexadecimal:
        return "a Wi-Fi password has 8 to 63 characters (none for an open network), and this has not"
    return ""


def shown(config: Mapping[str, Any]) -> list[str]:
    """The settings as lines, without the secrets."""
    return [
        f"{name}: {'(set, not shown)' if name in SECRETS and value else json.dumps(value, ensure_ascii=False)}"
        for name, value in config.items()
    ]
