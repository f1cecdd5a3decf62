"""A captured session in the words of an event log, so that `story.picture` can draw it: what the wire alone tells.

    made = picture(lines, title="session 1a2b3c4d")

When a tool began to run and what the board's light showed is not on the wire, and so not in the picture. The host sends sound
ahead of time: it is drawn when it can be heard at the earliest, and until the turn is interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vrt_host.errors import UsageError
from vrt_host.harness import story
from vrt_host.harness.capture import Line
from vrt_host.harness.picture import Picture
from vrt_host.harness.recorder import Event
from vrt_host.protocol import wire
from vrt_host.protocol.audio import HEADER_BYTES
from vrt_host.protocol.wire import Message
from vrt_host.sim.wav import Samples
from vrt_host.speech.codec import codec, to_pcm16
from vrt_host.speech.resample import resample

RATE = 24_000
_MARGIN_S = 0.5
MOST_S = 3600
"""The longest session that is drawn: its sound takes 100 KB a second while it is."""


def picture(
    lines: Sequence[Line],
    *,
    title: str,
    subtitle: str = "",
    ok: bool | None = None,
    told: Sequence[Event] = (),
) -> Picture:
    """Everything that `timeline.draw` needs. `ok`: whether all checks passed, where there were some.

    Raises `UsageError` for a session of more than `MOST_S`.

    `told`: what a board told itself, on the same clock, instead of what the wire tells.
    """
    began = min((line.t for line in lines), default=0.0)
    end = max((line.t for line in lines), default=0.0) - began + _MARGIN_S
    if end > MOST_S:
        raise UsageError(
            f"this session lasts {end / 60:,.0f} minutes; a picture shows {MOST_S // 60} at most"
        )
    moved = [_moved(line, began) for line in lines]
    seen = [event for event in told if 0 <= event["t"] - began <= end]
    heard = [{**event, "t": event["t"] - began} for event in seen] or list(events(moved))
    name = "" if ok is None else "checked"
    scene: list[Event] = [
        {"t": 0.0, "source": "demo", "event": "scene", "number": 1, "title": name},
        {"t": end, "source": "demo", "event": "scene.end", "number": 1, "ok": ok, "note": ""},
    ]
    made = story.picture([scene[0], *heard, scene[1]], end)
    made.title, made.subtitle = title, subtitle
    made.user, made.speaker, made.rate = sound(moved, "device"), sound(moved, "host"), RATE
    return made


def _moved(line: Line, by: float) -> Line:
    return Line(line.t - by, line.connection, line.who, line.kind, line.text, line.audio, line.code)


def events(lines: Sequence[Line]) -> Iterator[Event]:
    """What happened, as the device's own log would tell it."""
    names: dict[str, str] = {}
    for line in lines:
        if line.kind == "end":
            if line.code == 1006:
                yield {"t": line.t, "source": "proxy", "event": "cut"}
            yield _event(line, "lost", reason="", code=line.code)
        message = _message(line)
        if message is None:
            continue
        event = (
            _from_device(line, message, names) if line.who == "device" else _from_host(line, message, names)
        )
        if event is not None:
            yield event


def _message(line: Line) -> Message | None:
    """What the line says, if it says it as it should: a broken message has no place in a picture."""
    if line.kind != "text":
        return None
    try:
        return wire.decode(line.text, "client" if line.who == "device" else "server")
    except wire.WireError:
        return None


def _from_host(line: Line, message: dict[str, Any], names: dict[str, str]) -> Event | None:
    kind = message.get("type")
    if kind == "ready":
        return _event(line, "ready", resumed="resumedFrom" in message)
    if kind == "turn.state":
        return _event(line, "turn", state=message["state"], epoch=message["epoch"])
    if kind == "interrupted":
        return _event(line, "interrupted", epoch=message["epoch"])
    if kind == "transcript":
        return _event(line, kind, role=message["role"], text=message["text"], final=message["final"])
    if kind == "tool.call":
        call = names[message["callId"]] = message["name"]
        return _event(line, "call", call=message["callId"], name=call, arguments=message["arguments"])
    return None


def _from_device(line: Line, message: dict[str, Any], names: dict[str, str]) -> Event | None:
    kind = message.get("type")
    if kind == "interrupt":
        return _event(line, kind, epoch=message["epoch"], reason=message["reason"])
    if kind == "tool.result":
        call = message["callId"]
        name = names.get(call, "?")
        return _event(line, "result", call=call, name=name, ok=message["ok"], code=message.get("code"))
    return None


def _event(line: Line, name: str, /, **fields: Any) -> Event:
    return {"t": line.t, "source": "device", "event": name, **fields}


def sound(lines: Sequence[Line], who: str) -> Samples:
    """What one side sent, from time 0 at `RATE`; silence for a format that is not read here (opus)."""
    form: dict[str, Any] = {"encoding": ""}
    pieces: list[tuple[float, Samples]] = []
    until, closed, epoch = 0.0, -1, 0
    for line in lines:
        message = _message(line) or {}
        kind = message.get("type")
        if line.who == "host" and kind == "ready":
            form = message.get("input" if who == "device" else "output") or form
        elif line.who == "host" and kind == "audio.start":
            epoch = message.get("epoch", 0)
        elif who == "host" and kind in {"interrupt", "interrupted"}:
            pieces = [(at, one[: max(0, round((line.t - at) * RATE))]) for at, one in pieces]
            until, closed = line.t, max(closed, message.get("epoch", 0))
        elif line.kind == "audio" and line.who == who and (who == "device" or epoch > closed):
            piece = _decoded(line.audio[HEADER_BYTES:], form)
            start = max(line.t, until)
            until = start + len(piece) / RATE
            pieces.append((start, piece))
    made = np.zeros(round((max((line.t for line in lines), default=0.0) + _MARGIN_S) * RATE), np.int16)
    for start, piece in pieces:
        first = round(start * RATE)
        part = piece[: max(0, len(made) - first)]
        made[first : first + len(part)] = part
    return made


def _decoded(payload: bytes, form: dict[str, Any]) -> Samples:
    if form["encoding"] not in {"pcmu", "pcm16"}:
        return np.zeros(0, np.int16)
    rate = int(form.get("sampleRate", 8_000 if form["encoding"] == "pcmu" else 24_000))
    if not 1_000 <= rate <= 192_000:
        return np.zeros(0, np.int16)
    samples = codec(form["encoding"]).decode(payload)
    return to_pcm16(samples if rate == RATE else resample(samples, rate, RATE))
