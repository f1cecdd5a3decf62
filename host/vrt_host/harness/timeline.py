"""The picture of a conversation: both voices, the board, the turns, the calls and the network, scene by scene.

Every scene is a block of lanes, measured in pixels from its upper edge; all share one scale of time.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vrt_host.harness.picture import Band, CallBar, Mark, Picture, Scene, Zoom
from vrt_host.sim.wav import Samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vrt_host.harness.sheet import Place, Sheet

_WIDTH = 1800
_LEFT, _RIGHT = 140, 1782  # pixels: where the lanes begin and end
_HEAD, _FOOT, _GAP = 84, 56, 76
_VOICE = 76  # two lines of words above a wave of 46 pixels
_ZOOM = 175
_INK, _GREY, _FAINT = "#1f2933", "#52606d", "#9aa5b1"
_USER, _SPEAKER = "#2b6cb0", "#c05621"
_OTHER = "#e4e7eb"
_PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
"""Behind words that a line would cross."""
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)
"""Seconds between two ticks."""

COLOURS = {
    # the board's light and the turn
    "connecting": "#d9c6f5",
    "listening": "#90cdf4",
    "thinking": "#d6bcfa",
    "speaking": "#fbd38d",
    "acting": "#9ae6b4",
    "confirm": "#faf089",
    "error": "#fc8181",
    # calls
    "running": "#9ae6b4",
    "ok": "#2f855a",
    "REJECTED": "#b7791f",
    "failed": "#c53030",
    # world, button and network
    "safe": "#f1f5f9",
    "changed": "#bee3f8",
    "press": "#4a5568",
    "up": "#c6f6d5",
    "down": "#feb2b2",
    # marks
    "interrupt": "#c53030",
    "cut": "#b83280",
    "resume": "#2f855a",
    "expired": "#b7791f",
}


def draw(picture: Picture, path: Path) -> None:
    """Write the picture as a PNG. Raises `ImportError` without matplotlib."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing"
        )  # a script without a font shows as boxes
        sheet = compose(picture)
        path.parent.mkdir(parents=True, exist_ok=True)
        sheet.figure.savefig(path, dpi=sheet.figure.dpi)


def compose(picture: Picture) -> Sheet:
    """All blocks one below the other."""
    from vrt_host.harness.sheet import Sheet  # noqa: PLC0415  (matplotlib is heavy; nothing else needs it)

    scenes = picture.scenes or [Scene(0.0, max(1.0, len(picture.user) / picture.rate), "", None)]
    blocks = [_Block(picture, scene) for scene in scenes]
    span = max(scene.end - scene.start for scene in scenes)
    sheet = Sheet(_WIDTH, _HEAD + _FOOT + sum(block.height + _GAP for block in blocks))
    sheet.write(20, 32, picture.title, room=_RIGHT - 20, size=17, weight="bold", color=_INK)
    sheet.write(20, 60, picture.subtitle, room=_RIGHT - 20, size=10.5, color=_GREY)
    top = _HEAD
    for number, block in enumerate(blocks, 1):
        _title(sheet, top + 20, number, block.scene)
        block.draw(sheet, top + 48, span)
        top += block.height + _GAP
    _legend(sheet, sheet.height - 18)
    return sheet


def _title(sheet: Sheet, y: float, number: int, scene: Scene) -> None:
    if not scene.title:
        return
    colour, word = {
        True: (COLOURS["ok"], "every step happened"),
        False: (COLOURS["failed"], "failed"),
        None: (_FAINT, "not finished"),
    }[scene.ok]
    badge = {"boxstyle": "round,pad=0.3", "facecolor": colour, "edgecolor": "none"}
    sheet.write(24, y, str(number), size=12, weight="bold", color="white", bbox=badge)
    verdict = sheet.write(_RIGHT, y, word, size=10.5, color=colour, ha="right", weight="bold")
    limit = (verdict.x0 if verdict else _RIGHT) - 22
    title = sheet.write(52, y, scene.title, room=limit - 52, size=13, weight="bold", color=_INK)
    if title and scene.note:
        sheet.write(
            title.x1 + 22, y, scene.note, room=max(0.0, limit - title.x1 - 22), size=10.5, color=_GREY
        )


def _legend(sheet: Sheet, y: float) -> None:
    x = float(_LEFT)
    for text, kind in (
        ("waits in the queue", "queued"),
        ("awaits the button", "confirm"),
        ("tool runs", "running"),
        ("done", "ok"),
        ("refused or expired", "REJECTED"),
        ("interrupted or failed", "failed"),
        ("connected", "up"),
        ("connection lost", "down"),
    ):
        sheet.box((x, y - 7, 17, 13), COLOURS.get(kind, _OTHER), _FAINT)
        written = sheet.write(x + 24, y, text, size=9.5, color=_GREY)
        x = (written.x1 if written else x) + 24
    scale = "seconds since the start; one scale for all scenes"
    sheet.write(_RIGHT, y, scale, size=9.5, color=_FAINT, ha="right")


def _zoom(sheet: Sheet, picture: Picture, zoom: Zoom, left: float, top: float) -> None:
    """A span drawn large to the right of its scene's lanes."""
    width = min(_RIGHT - left, 1000)
    axes = _axes(sheet, (left, top, width, _ZOOM), (zoom.start, zoom.end), 50)
    middle = left + width / 2
    sheet.write(
        middle, top + _ZOOM + 34, zoom.title, size=10.5, ha="center", style="italic", color=_GREY, room=width
    )
    for y, sound, colour in ((84, picture.user, _USER), (140, picture.speaker, _SPEAKER)):
        _wave(axes, y, sound, picture.rate, zoom.start, zoom.end, colour, per_second=500)
    for row, mark in enumerate(zoom.marks):
        colour = COLOURS.get(mark.kind, _INK)
        y = 10 + 14 * (row % 3)
        axes.plot([mark.at, mark.at], [y, _ZOOM], color=colour, linewidth=1.2, zorder=6)
        x = left + width * (mark.at - zoom.start) / (zoom.end - zoom.start)
        _label(sheet, mark, x, top + y, leftwards=x > left + 0.6 * width)


def _label(sheet: Sheet, mark: Mark, x: float, y: float, *, leftwards: bool) -> None:
    """A mark's words beside its line, on the other side if there is no room on this one."""
    for left in (leftwards, not leftwards):
        if sheet.write(
            x - 6 if left else x + 6,
            y,
            mark.text,
            room=x - _LEFT if left else _RIGHT - x,
            ha="right" if left else "left",
            size=9,
            weight="bold",
            color=COLOURS.get(mark.kind, _INK),
            bbox=_PAPER,
        ):
            return


def _axes(sheet: Sheet, place: Place, span: tuple[float, float], apart: float) -> Axes:
    """Axes at (left, top, width, height) for a span of time, with ticks at round times, `apart` pixels or more."""
    axes = sheet.axes(place, span)
    step = next(
        step for step in _STEPS if step * place[2] >= apart * (span[1] - span[0]) or step == _STEPS[-1]
    )
    first, last = (round(edge / step, 6) for edge in span)
    axes.set_xticks(np.arange(np.ceil(first), np.floor(last) + 1) * step)
    axes.tick_params(axis="x", labelsize=8.5, colors=_GREY, length=3)
    axes.spines["bottom"].set_color(_FAINT)
    return axes


class _Block:
    """One scene's lanes, from top to bottom."""

    def __init__(self, picture: Picture, scene: Scene) -> None:
        self.picture = picture
        self.scene = scene
        self.calls = _stack([call for call in picture.calls if self._sees(call.queued, call.ended)])
        self.lanes: list[tuple[str, list[Band]]] = [("board light", picture.led)]
        if any(self._sees(press.start, press.end) for press in picture.presses):
            self.lanes.append(("button", picture.presses))
        self.lanes.append(("turn", picture.turns))
        changed = [
            (name.replace("_", " "), bands)
            for name, bands in picture.outputs.items()
            if any(scene.start < band.start < scene.end for band in bands[1:])
        ]
        self.after = [*changed, ("connection", picture.link)]
        self.height = (
            20 + 2 * _VOICE + 24 * (len(self.lanes) + len(self.after)) + 30 * max(1, len(self.calls)) + 4
        )

    def _sees(self, start: float, end: float) -> bool:
        return end > self.scene.start and start < self.scene.end

    def draw(self, sheet: Sheet, top: float, span: float) -> None:
        """Marks, lanes and the time axis, and beside them what is enlarged; `span` seconds fill the width."""
        start, end = self.scene.start, self.scene.end
        self.sheet, self.top = sheet, top
        self.per_second = (_RIGHT - _LEFT) / span
        self.axes = _axes(sheet, (_LEFT, top, (end - start) * self.per_second, self.height), (start, end), 60)
        self._marks([mark for mark in self.picture.marks if start <= mark.at <= end])
        y = self._voice(20, "user", _USER, self.picture.user, self.picture.said)
        y = self._voice(y, "speaker", _SPEAKER, self.picture.speaker, self.picture.spoken)
        for name, bands in self.lanes:
            y = self._lane(y, name, bands)
        self._name(y + 15 * max(1, len(self.calls)), "tool calls")
        for row, calls in enumerate(self.calls):
            for call in calls:
                self._call(call, y + 30 * row)
        y += 30 * max(1, len(self.calls))
        for name, bands in self.after:
            y = self._lane(y, name, bands)
        zoom = next((one for one in self.picture.zooms if start <= one.start < end), None)
        beside = self._x(end) + 70
        if zoom is not None and _RIGHT - beside >= 380:
            _zoom(sheet, self.picture, zoom, beside, top)

    def _x(self, t: float) -> float:
        """The pixel of a time."""
        return _LEFT + (t - self.scene.start) * self.per_second

    def _marks(self, marks: Sequence[Mark]) -> None:
        """Moments that concern every lane, with their words above them."""
        for mark, following in zip(marks, [*marks, None][1:], strict=True):
            self.axes.plot(
                [mark.at, mark.at],
                [6, self.height],
                color=COLOURS.get(mark.kind, _INK),
                linewidth=1.2,
                linestyle=(0, (4, 2)),
                zorder=6,
            )
            crowded = following is not None and following.at - mark.at < 2
            _label(self.sheet, mark, self._x(mark.at), self.top + 8, leftwards=crowded)

    def _name(self, y: float, name: str) -> None:
        self.sheet.write(_LEFT - 11, self.top + y, name, room=_LEFT - 15, ha="right", size=10, color=_INK)

    def _voice(self, y: float, name: str, colour: str, sound: Samples, words: Sequence[Band]) -> float:
        """A waveform with the words above it, each until the next begins."""
        start, end = self.scene.start, self.scene.end
        self._name(y + 52, name)
        _wave(self.axes, y + 52, sound, self.picture.rate, start, end, colour)
        shown = [band for band in words if start <= band.start < end]
        for band, after in zip(shown, [*shown, None][1:], strict=True):
            x = self._x(band.start)
            room = self._x(end if after is None else after.start) - x - 6
            style: dict[str, Any] = {"size": 9.5, "style": "italic", "color": colour, "bbox": _PAPER}
            self.sheet.write(x, self.top + y + 14, band.text, room=room, lines=2, **style)
        return y + _VOICE

    def _lane(self, y: float, name: str, bands: Iterable[Band]) -> float:
        self._name(y + 12, name)
        for band in bands:
            if self._sees(band.start, band.end):
                self._box(band.start, band.end, (y + 2, 20), band.kind)
                ink = "white" if band.kind == "press" else _INK
                self._inside(band.start, band.end, y + 12, band.text, ink, 8.5)
        return y + 24

    def _call(self, call: CallBar, y: float) -> None:
        ended = max(call.ended, call.queued + 0.12)  # a call that is done at once stays visible
        self._box(call.queued, ended, (y + 3, 24), "queued")
        if call.started is not None:
            self._box(call.started, ended, (y + 3, 24), "running")
        for start, end in call.confirming:
            self._box(start, end, (y + 3, 24), "confirm")
        kind = call.outcome if call.outcome in COLOURS else "failed"
        self._box(ended - 0.04, ended + 0.04, (y + 3, 24), kind)
        done = "done" if call.outcome == "ok" else call.outcome
        if not self._inside(call.queued, ended, y + 15, call.text, _INK, 9):
            done = f"{call.text}  {done}"
        x = self._x(min(ended, self.scene.end) + 0.09)
        ink = COLOURS[kind]
        self.sheet.write(x, self.top + y + 15, done, room=_RIGHT - x, color=ink, size=9, weight="bold")

    def _inside(self, start: float, end: float, y: float, text: str, ink: str, size: float) -> bool:  # noqa: PLR0917
        """Text in the middle of a box, if it has room there."""
        left, right = self._x(max(start, self.scene.start)), self._x(min(end, self.scene.end))
        style: dict[str, Any] = {"ha": "center", "color": ink, "size": size}
        place = ((left + right) / 2, self.top + y)
        return self.sheet.write(*place, text, room=right - left - 6, whole=True, **style) is not None

    def _box(self, start: float, end: float, rows: tuple[float, float], kind: str) -> None:
        start, end = max(start, self.scene.start), min(end, self.scene.end)
        colour = COLOURS.get(kind, _OTHER)
        self.axes.broken_barh(
            [(start, end - start)], rows, facecolor=colour, edgecolor="white", linewidth=0.8, zorder=4
        )


def _wave(  # noqa: PLR0917  (a place, a sound, a span and a colour)
    axes: Axes,
    y: float,
    sound: Samples,
    rate: int,
    start: float,
    end: float,
    colour: str,
    per_second: int = 100,
) -> None:
    """A sound between two times around `y`, 46 pixels high: lows and highs, their square roots, so that quiet shows."""
    step = rate // per_second
    part = sound[max(0, int(start * rate)) : max(0, int(end * rate))]
    count = len(part) // step
    axes.plot([start, end], [y, y], color=colour, linewidth=0.6, alpha=0.5, zorder=2)
    if not count:
        return
    blocks = part[: count * step].reshape(count, step).astype(np.float32) / 32768
    high, low = np.sqrt(blocks.max(axis=1).clip(0, 1)), np.sqrt(-blocks.min(axis=1).clip(-1, 0))
    times = max(0.0, start) + np.arange(count) / per_second
    axes.fill_between(times, y - 23 * high, y + 23 * low, color=colour, linewidth=0.3, zorder=3)


def _stack(calls: Sequence[CallBar]) -> list[list[CallBar]]:
    """Calls in as few rows as keep them apart, with room for what is written after each."""
    rows: list[list[CallBar]] = []
    for call in sorted(calls, key=lambda one: one.queued):
        row = next((row for row in rows if row[-1].ended + 2.5 <= call.queued), None)
        if row is None:
            rows.append([call])
        else:
            row.append(call)
    return rows
