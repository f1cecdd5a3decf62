"""Captures: every frame of every connection with its time, as lines of JSON (docs/harness.md has the format).

    with Capture(path, by="vrt serve", stopped=log.warning) as capture:
        number = capture.connected("192.168.1.7:5000")
        capture.text(number, "device", frame)      text frames as they stand, but without what nobody else may know
        capture.audio(number, "host", frame)
        capture.end(number, "device", 1006)
    lines = load(path)

What is recorded is private: the file is for its owner alone (mode 600 where there are modes). A credential is never in it,
nor enough of a session's id to resume it. Where the disk is full, or the file has its greatest size, the recording ends with
whole lines, `stopped` is told why once, and whoever is recorded goes on.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from vrt_host import __version__
from vrt_host.conformance.server import Frame
from vrt_host.errors import UsageError
from vrt_host.links.base import Receiver
from vrt_host.links.serial import SerialLink
from vrt_host.links.websocket import WebSocketLink
from vrt_host.runner import without_tokens

Who = Literal["device", "host"]

VERSION: Final = 1
MOST_BYTES: Final = 256 * 1024 * 1024
"""Of a capture: some hours of a conversation."""
_ID_SHOWN: Final = 8
_HIDDEN: Final = "***"


@dataclass(frozen=True, slots=True)
class Line:
    """One line: something that happened on a connection. `t`: seconds since the start of the recording."""

    t: float
    connection: int
    who: Who
    kind: Literal["open", "text", "audio", "end"]
    text: str = ""
    """Of a text frame; of `open`, who it is."""
    audio: bytes = b""
    """A whole binary frame."""
    code: int = 0
    """Of `end`: the close code; 1006: none."""

    @property
    def message(self) -> dict[str, Any] | None:
        """Of a text frame that is a JSON object."""
        if self.kind != "text":
            return None
        try:
            value = json.loads(self.text)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def to_json(self) -> str:
        """As it is in the file."""
        made: dict[str, Any] = {"t": round(self.t, 4), "connection": self.connection, "from": self.who}
        if self.kind == "audio":
            made["audio"] = base64.b64encode(self.audio).decode("ascii")
        elif self.kind == "end":
            made["end"] = self.code
        else:
            made[self.kind] = self.text
        return json.dumps(made, ensure_ascii=False, separators=(", ", ": "))


class Capture:
    """A file that is being recorded. A context manager; leaving it closes the file."""

    def __init__(
        self,
        path: Path,
        *,
        by: str,
        stopped: Callable[[str], object],
        most: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises `UsageError` when the file cannot be made. `by`: what records, for the first line."""
        self._path = path
        self._stopped = stopped
        self._most = most
        self._clock = clock
        self._origin = clock()
        self._size = 0
        self._connections = 0
        self._ended: set[int] = set()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            self._file: Any = os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0)
        except OSError as error:
            raise UsageError(f"cannot record to {path}: {error.strerror or error}") from None
        began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._write({"capture": VERSION, "began": began, "by": f"{by} {__version__}"})

    def connected(self, peer: str = "") -> int:
        """A connection is made; returns its number."""
        self._connections += 1
        self.add("open", self._connections, "device", text=peer)
        return self._connections

    def text(self, connection: int, who: Who, frame: str) -> None:
        """A text frame, valid or not."""
        self.add("text", connection, who, text=frame)

    def audio(self, connection: int, who: Who, frame: bytes) -> None:
        """A binary frame."""
        self.add("audio", connection, who, audio=frame)

    def end(self, connection: int, who: Who, code: int) -> None:
        """A connection ends; of its ends the first one counts."""
        if connection not in self._ended:
            self._ended.add(connection)
            self.add("end", connection, who, code=code)

    def taps(self) -> Callable[[int, Frame], None]:
        """Hears the frames of the suite's server (`player.Tap`), whose connections are numbered from 1."""
        before = self._connections

        def tap(connection: int, frame: Frame) -> None:
            self._connections = max(self._connections, before + connection)
            line = line_of(before + connection, frame, frame.t - self._origin)
            if line is not None:
                self._put(line)

        return tap

    def add(self, kind: Any, connection: int, who: Who, **what: Any) -> None:
        """A line, now."""
        self._put(Line(self._clock() - self._origin, connection, who, kind, **what))

    def _put(self, line: Line) -> None:
        if self._file is None:
            return
        if line.kind == "text":
            line = Line(line.t, line.connection, line.who, "text", text=redacted(line.text))
        self._write(line.to_json())

    def _write(self, line: Any) -> None:
        text = line if isinstance(line, str) else json.dumps(line)
        data = text.encode("utf-8", "surrogatepass") + b"\n"
        if self._size + len(data) > self._most:
            self._stop(f"it has {self._size:,} bytes, and may have {self._most:,}")
            return
        try:
            written = self._file.write(data)
        except OSError as error:
            self._stop(error.strerror or str(error))
            return
        if written != len(data):
            self._stop("the disk is full")
            return
        self._size += len(data)

    def _stop(self, why: str) -> None:
        """End it with the last whole line."""
        with contextlib.suppress(OSError):  # load() takes a broken last line for the end, too
            self._file.truncate(self._size)
        self.close()
        self._stopped(f"the recording {self._path} ends here: {why}")

    def close(self) -> None:
        """Nothing more is recorded."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def line_of(connection: int, frame: Frame, t: float) -> Line | None:
    """The line of a frame of the suite's server; None for what is no part of a capture."""
    who: Who = "host" if frame.sent else "device"
    if frame.kind == "text":
        return Line(t, connection, who, "text", text=frame.data.decode("utf-8", "replace"))
    if frame.kind == "binary":
        return Line(t, connection, who, "audio", audio=frame.data)
    if frame.kind == "end":
        return Line(t, connection, who, "end", code=int.from_bytes(frame.data[:2], "big"))
    return None


def redacted(text: str) -> str:
    """A text frame without its credential, and without enough of a session's id to resume it."""
    private = '"auth"' in text or '"sessionId"' in text or "\\u" in text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _HIDDEN if private else without_tokens(text)
    if private:
        hidden = _hidden(value)
        text = json.dumps(hidden, ensure_ascii=False)
        if not text.isprintable():  # half a surrogate pair can only be written as its escape
            text = json.dumps(hidden)
    return without_tokens(text)


def _hidden(value: Any) -> Any:
    """Every member `auth` and `sessionId`, wherever a client may have put it, made unusable."""
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {name: _hidden(member) for name, member in value.items()}
    if "auth" in made:
        made["auth"] = _HIDDEN
    session = made.get("sessionId")
    if isinstance(session, str) and len(session) > _ID_SHOWN:
        made["sessionId"] = session[:_ID_SHOWN] + "…"
    return made


def load(path: Path) -> list[Line]:
    """The lines of a capture. Raises `UsageError` with the line of a mistake; a last line that breaks off is left out."""
    try:
        rows = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    last = rows.pop()  # empty, or what was being written when the disk was full
    lines = []
    for number, row in enumerate([*rows, *([last] if not rows else [])], 1):
        try:
            value = json.loads(row.decode("utf-8", "surrogatepass"))
            if number == 1:
                if value["capture"] != VERSION:
                    raise ValueError  # noqa: TRY301  (told like the others)
            else:
                lines.append(_line(value))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            what = "this is no capture" if number == 1 else "this is no line of a capture"
            raise UsageError(f"{path.name}: line {number}: {what} of `--record`") from None
    return lines


def _line(value: Any) -> Line:
    who = value["from"]
    if who not in {"device", "host"}:
        raise ValueError(who)
    made = (float(value["t"]), int(value["connection"]), who)
    if not 0 <= made[0] < math.inf:
        raise ValueError(made)
    if "audio" in value:
        return Line(*made, "audio", audio=base64.b64decode(value["audio"], validate=True))
    if "end" in value:
        return Line(*made, "end", code=int(value["end"]))
    kind: Any = "open" if "open" in value else "text"
    return Line(*made, kind, text=str(value[kind]))


def sessions(lines: list[Line]) -> dict[str, list[Line]]:
    """The lines of each session by what is recorded of its id: those of every connection that was bound to it."""
    bound: dict[int, str] = {}
    for line in lines:
        message = line.message if line.who == "host" else None
        if message is not None and message.get("type") == "ready" and line.connection not in bound:
            bound[line.connection] = str(message.get("sessionId", "")).rstrip("…")
    found: dict[str, list[Line]] = {name: [] for name in bound.values()}
    for line in lines:
        if line.connection in bound:
            found[bound[line.connection]].append(line)
    return found


def choose(lines: list[Line], wanted: str = "") -> tuple[str, list[Line]]:
    """A session by the beginning of its id; without one, the session with the most lines. Raises `UsageError`."""
    there = sessions(lines)
    found = {name: there[name] for name in there if name == wanted} or {
        name: one
        for name, one in there.items()
        if name.startswith(wanted) or (len(name) == _ID_SHOWN and wanted.startswith(name))
    }
    if not found:
        known = ", ".join(there) or "none"
        raise UsageError(
            f"the capture has no session {wanted!r}; it has {known}"
            if wanted
            else "the capture has no session"
        )
    name = max(found, key=lambda one: len(found[one]))
    return name, found[name]


def recorded(capture: Capture) -> tuple[type[WebSocketLink], type[SerialLink]]:
    """The server's links, every frame of which goes into the capture as well."""

    class RecordedLink(WebSocketLink):
        """A link that is recorded from its first frame on."""

        def attach(self, receiver: Receiver) -> None:
            self.number = capture.connected(self.peer)
            super().attach(_Ear(receiver, capture, self.number, self._code))

        def write(self, frames: Iterable[str | bytes]) -> None:
            super().write(_heard(capture, self.number, frames))

        def end(self, code: int, reason: str) -> None:
            answer = (
                self.protocol.close_rcvd is not None
            )  # the link itself answers the client's close like this
            capture.end(self.number, "device" if answer else "host", code)
            super().end(code, reason)

        def _code(self) -> int:
            closed = self.protocol.close_rcvd
            return 1006 if closed is None else int(closed.code)

    class RecordedSerialLink(SerialLink):
        """The same on a serial line."""

        def attach(self, receiver: Receiver) -> None:
            self.number = capture.connected(self.peer)
            super().attach(_Ear(receiver, capture, self.number, lambda: self.code))

        def write(self, frames: Iterable[str | bytes]) -> None:
            super().write(_heard(capture, self.number, frames))

        def end(self, code: int, reason: str) -> None:
            capture.end(self.number, "host", code)
            super().end(code, reason)

    return RecordedLink, RecordedSerialLink


def _heard(capture: Capture, number: int, frames: Iterable[str | bytes]) -> Iterable[str | bytes]:
    """The host's frames, which are recorded."""
    frames = list(frames)
    for frame in frames:
        if isinstance(frame, str):
            capture.text(number, "host", frame)
        else:
            capture.audio(number, "host", frame)
    return frames


class _Ear:
    """A link's receiver that is recorded."""

    def __init__(self, receiver: Receiver, capture: Capture, number: int, code: Callable[[], int]) -> None:
        """`code()`: what the device has closed with."""
        self._receiver = receiver
        self._capture = capture
        self._number = number
        self._code = code

    def heard(self) -> None:
        self._receiver.heard()

    def flush(self) -> None:
        self._receiver.flush()

    def text(self, frame: str) -> None:
        self._capture.text(self._number, "device", frame)
        self._receiver.text(frame)

    def audio(self, frame: bytes) -> None:
        self._capture.audio(self._number, "device", frame)
        self._receiver.audio(frame)

    def lost(self, *, too_large: bool) -> None:
        self._capture.end(self._number, "device", self._code())
        self._receiver.lost(too_large=too_large)
