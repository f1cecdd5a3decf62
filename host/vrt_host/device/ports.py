"""Serial ports: which one is meant, and in words why one cannot be used."""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrt_host.errors import UsageError, VrtError

try:
    import serial
    from serial.tools import list_ports
except ImportError:  # told when a port is wanted
    serial = None  # type: ignore[assignment]

_DIALOUT = (
    "no permission for {port}: add yourself to the group that owns it (`sudo usermod -a -G {group} $USER`), "
    "then log out and in again"
)


class Gone(VrtError):
    """The board went away in the middle of something."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a port cannot be used: `kind` is "none", "permission", "busy" or "other"; `text` is one line for the operator."""

    kind: str
    text: str


def choose(named: str | None) -> str:
    """The operator's port, or the only one there is. Raises UsageError with the list otherwise."""
    if serial is None:
        raise UsageError("pyserial is not installed: pip install 'vrt-edge[device]'")
    if named:
        return named
    found = listed()
    if len(found) == 1:
        return found[0][0]
    if not found:
        raise UsageError(
            "no serial port is here: plug the board in with a cable that carries data, or name it with --port"
        )
    ports = "".join(f"\n  {name}  {what}" for name, what in found)
    raise UsageError(f"there are several serial ports, name one with --port:{ports}")


def listed() -> list[tuple[str, str]]:
    """The serial ports that may be a board: (name, description). Ports of the mainboard, which name no device, are left out."""
    ports = [port for port in list_ports.comports() if port.vid is not None or sys.platform == "win32"]
    return sorted((port.device, _described(port.description, port.manufacturer)) for port in ports)


def _described(description: str | None, manufacturer: str | None) -> str:
    words = description if description and description != "n/a" else "a serial port"
    return f"{words} ({manufacturer})" if manufacturer and manufacturer not in words else words


def unopened(port: str, **options: Any) -> Any:
    """A port of pyserial's that is not open yet."""
    return serial.serial_for_url(port, do_not_open=True, **options)


def check(port: str) -> None:
    """Raises UsageError when `port` cannot be opened, saying why and what to do."""
    if trouble := examine(port):
        raise UsageError(trouble.text)


def examine(port: str) -> Trouble | None:
    """What is wrong with a port, found by opening it (which resets no board); None when nothing is."""
    try:
        serial.serial_for_url(port, exclusive=None if "://" in port else True).close()
    except (OSError, ValueError) as error:  # pyserial's own is an OSError
        return explain(port, error)
    return None


def explain(port: str, error: BaseException) -> Trouble:
    """An error of opening `port` in words."""
    number = getattr(error, "errno", None)
    said = str(error)
    if "://" in port:
        return Trouble("none", f"nothing answers at {port} ({said})")
    if number == errno.ENOENT or (number is None and "FileNotFoundError" in said):
        there = ", ".join(name for name, _ in listed()) or "none"
        return Trouble("none", f"there is no port {port}; there is: {there}")
    if number == errno.EACCES and sys.platform != "win32":
        return Trouble("permission", _DIALOUT.format(port=port, group=_group(port)))
    if number in (errno.EAGAIN, errno.EBUSY) or "exclusively lock" in said or "PermissionError" in said:
        return Trouble(
            "busy",
            f"{port} is in use by another program: end `vrt monitor`, `vrt serve --serial`, a terminal or an editor that has it open",
        )
    if number == errno.ENOTTY or "Inappropriate ioctl" in said:
        there = ", ".join(name for name, _ in listed()) or "none"
        return Trouble("other", f"{port} is no serial port; there is: {there}")
    return Trouble(
        "other", f"{port} cannot be used: {said.splitlines()[0] if said else type(error).__name__}"
    )


def _group(port: str) -> str:
    """The group that may use the port; "dialout" when that is nobody's."""
    try:
        group = Path(port).group()
    except (OSError, KeyError, NotImplementedError):
        return "dialout"
    return "dialout" if group == "root" else group
