"""The console of a board: its events as lines for people, whatever else it prints as it is, nothing secret."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from vrt_host.device import ports
from vrt_host.device.weave import tracebacks
from vrt_host.errors import UsageError

BAUD = 115_200
_LONGEST = 4096  # bytes of a line
_DELIMITER = b"\xc0"
_KINDS = tuple(bytes((kind,)) for kind in b"OYCcAPQX")  # firmware/vrt/links/framing.py
_FRAME = 140_000  # bytes of the longest, all of it escaped
_LOOK_S = 0.2  # between looks for a key, or for a board that is gone
_HIDDEN = "(hidden)"
_SECRET = re.compile(r"token|passw|secret|api_?key|authorization|^auth$|^key$", re.IGNORECASE)
# In text: NAME=VALUE and "name": "value" of such names, Bearer VALUE, and user:password@ in an address.
_PAIR = re.compile(
    r"""(?ix) (["']?\b[\w-]*(?:token|passw(?:or)?d|secret|api_?key|authorization)["']? \s*[:=]\s* (?:bearer\s+)?)
    ("(?:[^"\\]|\\.)*"? | '(?:[^'\\]|\\.)*'? | [^\s,;}\])"']+)"""
)
_BEARER = re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{6,}")
_USER = re.compile(r"(://)[^/\s@:]*:[^/\s@]*@")
_TOKEN = re.compile(r"\bvrt_[\w-]{16,}")  # what `vrt token add` prints


class Lines:
    """Bytes of the port in, lines out. Frames of the serial link, which are no text, are counted and left out."""

    def __init__(self) -> None:
        self._rest = b""
        self._frame = b""  # one that is not over, from its kind on
        self._after = False  # what comes next stands behind a delimiter
        self.unreadable = 0

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that are whole now."""
        self._rest += self._without_frames(data)
        while True:
            line, newline, rest = self._rest.partition(b"\n")
            if not newline and len(line) < _LONGEST:
                return
            self._rest = rest if newline else b""
            if text := self._text(line):
                yield text

    def _without_frames(self, data: bytes) -> bytes:
        """The text between the frames. The delimiter is a byte that no text has (UTF-8)."""
        made = b""
        pieces = (self._frame + data).split(_DELIMITER)
        self._frame = b""
        for n, piece in enumerate(pieces):
            last = n == len(pieces) - 1
            after = self._after or n > 0
            if after and piece[:1] in _KINDS and len(piece) < _FRAME:
                if last:
                    self._frame = piece
                else:
                    self.unreadable += 1
            else:
                made += piece
                after = after and not piece
            self._after = after or not last
        return made

    def end(self) -> Iterator[str]:
        """What is left without an end of the line."""
        if text := self._text(self._rest):
            yield text
        self._rest = b""

    def _text(self, line: bytes) -> str:
        text = line.decode("utf-8", "replace").strip("\r\x1e \x04")
        odd = sum(not char.isprintable() and char != "\t" for char in text) + text.count("\ufffd")
        if odd * 4 > len(text):
            self.unreadable += 1
            return ""
        return "".join(char if char.isprintable() or char == "\t" else "?" for char in text)


def event_of(line: str) -> dict[str, Any] | None:
    """The event in a line; None when it is other text."""
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("event"), str) else None


def redacted(value: Any, name: str = "") -> Any:
    """The same without secrets: fields of such names, and what looks like one in texts."""
    if _SECRET.search(name) and value not in ("", None, False, True):
        return _HIDDEN
    if isinstance(value, dict):
        return {key: redacted(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [redacted(item) for item in value]
    return clean(value) if isinstance(value, str) else value


def clean(text: str) -> str:
    """A text without secrets."""
    text = _PAIR.sub(lambda found: found[1] + _HIDDEN, text)
    text = _BEARER.sub(rf"\1{_HIDDEN}", text)
    return _TOKEN.sub(_HIDDEN, _USER.sub(rf"\1{_HIDDEN}@", text))


def readable(event: dict[str, Any]) -> str:
    """An event in one line."""
    fields = {name: value for name, value in event.items() if name != "event"}
    kind = event["event"]
    if kind == "error":
        return f"ERROR {fields.pop('code', '')}: {fields.pop('message', '')}{_listed(fields, '; ')}"
    if kind == "led":
        return f"led: {fields.get('state', '')}"
    return f"{kind}{_listed(fields, ': ')}"


def _listed(fields: dict[str, Any], before: str) -> str:
    shown = [f"{name} {_value(value)}" for name, value in fields.items()]
    return before + ", ".join(shown) if shown else ""


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shown(line: str, *, as_json: bool) -> str:
    """A line of the board as it is printed."""
    event = event_of(line)
    if as_json:
        return json.dumps(redacted(event or {"event": "console", "text": line}), ensure_ascii=False)
    return readable(redacted(event)) if event else tracebacks.readable(clean(line))


def opened(port: str) -> Any:
    """The port, without a reset of the board: both lines stay as the system sets them when it opens a port, asserted.

    Auto-reset circuits act when one of DTR and RTS is asserted without the other, and native USB is silent without DTR.
    Raises UsageError.
    """
    try:
        made = ports.unopened(port, baudrate=BAUD, timeout=_LOOK_S)
        if "://" not in port:
            made.exclusive = True
        made.dtr = made.rts = True
        made.open()
    except (OSError, ValueError) as error:
        raise UsageError(ports.explain(port, error).text) from None
    return made


def closed(port: Any) -> None:
    """Close it: RTS, which is the chip's reset, is released first."""
    try:
        port.rts = False
        port.dtr = False
    except OSError:  # gone, or no real port
        pass
    port.close()


def _read(wire: Any) -> bytes | None:
    """What came, perhaps nothing; None when the port is gone."""
    try:
        return bytes(wire.read(max(1, wire.in_waiting)))
    except (OSError, TypeError):  # TypeError: pyserial, of a port that was closed under it
        return None


def watch(port: str, show: Callable[[str], None], note: Callable[[str], None]) -> None:
    """Show what the board prints, until an interruption. A board that goes away is waited for. Raises UsageError at the start."""
    wire = opened(port)
    note(f"{port}; Ctrl-C ends it")
    while True:
        lines = Lines()
        try:
            while (data := _read(wire)) is not None:
                for line in lines.feed(data):
                    show(line)
            for line in lines.end():
                show(line)
        finally:
            closed(wire)
        note(f"the board at {port} is gone; waiting for it")
        while True:
            time.sleep(_LOOK_S)
            try:
                wire = opened(port)
                break
            except UsageError:
                continue
        note(f"the board at {port} is back")
