"""The picture of a conversation: both voices, the board, the turns, the calls and the network, scene by scene.

Every scene is a block of lanes, measured in pixels from its upper edge; all share one scale of time.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vrt_host.harness.picture import Band, CallBar, Mark, Picture, Scene
from vrt_host.sim.wav import Samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _DPI = 1800, 100
_LEFT, _RIGHT = 140, 1782  # pixels: where the lanes begin and end
_HEAD, _FOOT, _GAP = 84, 56, 76
_VOICE = 76  # two lines of words above a wave of 46 pixels
_ZOOM = 175
_INK, _GREY, _FAINT = "#1f2933", "#52606d", "#9aa5b1"
_USER, _SPEAKER = "#2b6cb0", "#c05621"
_OTHER = "#e4e7eb"

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
        figure = _compose(picture)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=_DPI)


def _compose(picture: Picture) -> Figure:
    """All blocks one below the other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (heavy; nothing else needs it)
    from matplotlib.figure import Figure  # noqa: PLC0415

    scenes = picture.scenes or [Scene(0.0, max(1.0, len(picture.user) / picture.rate), "", None)]
    blocks = [_Block(picture, scene) for scene in scenes]
    span = max(scene.end - scene.start for scene in scenes)
    total = _HEAD + _FOOT + sum(block.height + _GAP for block in blocks)
    figure = Figure(figsize=(_WIDTH / _DPI, total / _DPI), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    _write(figure, 20, 32, picture.title, size=17, weight="bold")
    _write(figure, 20, 60, picture.subtitle, size=10.5, color=_GREY)
    top = _HEAD
    for number, block in enumerate(blocks, 1):
        _title(figure, top + 20, number, block.scene)
        top += 48
        block.draw(_axes(figure, _LEFT, top, _RIGHT - _LEFT, block.height), span)
        length = block.scene.end - block.scene.start
        _zoom(figure, block, _LEFT + (_RIGHT - _LEFT) * length / span + 70, top)
        top += block.height + _GAP - 48
    _legend(figure, total - 18)
    return figure


def _axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes without ornament at a place in pixels, y downwards in pixels."""
    tall = figure.get_size_inches()[1] * _DPI
    axes = figure.add_axes((left / _WIDTH, 1 - (top + height) / tall, width / _WIDTH, height / tall))
    axes.set_ylim(height, 0)
    axes.set_yticks([])
    axes.patch.set_visible(False)
    axes.tick_params(axis="x", labelsize=8.5, colors=_GREY, length=3)
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
    return axes


def _write(figure: Figure, x: float, y: float, text: str, **style: Any) -> Any:
    """Text of the figure at a place in pixels from the upper left corner."""
    tall = figure.get_size_inches()[1] * _DPI
    return figure.text(
        x / _WIDTH, 1 - y / tall, text, **{"color": _INK, "va": "center", "parse_math": False, **style}
    )


def _title(figure: Figure, y: float, number: int, scene: Scene) -> None:
    if not scene.title:
        return
    colour, word = {
        True: (COLOURS["ok"], "every step happened"),
        False: (COLOURS["failed"], "failed"),
        None: (_FAINT, "not finished"),
    }[scene.ok]
    badge = {"boxstyle": "round,pad=0.3", "facecolor": colour, "edgecolor": "none"}
    _write(figure, 24, y, str(number), size=12, weight="bold", color="white", bbox=badge)
    title = _write(figure, 52, y, scene.title, size=13, weight="bold")
    _write(figure, title.get_window_extent().x1 + 22, y, scene.note, size=10.5, color=_GREY)
    _write(figure, _RIGHT, y, word, size=10.5, color=colour, ha="right", weight="bold")


def _legend(figure: Figure, y: float) -> None:
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
        box = {"facecolor": COLOURS.get(kind, _OTHER), "edgecolor": _FAINT, "linewidth": 0.5, "pad": 2}
        _write(figure, x, y, "   ", size=8, bbox=box)
        x = _write(figure, x + 24, y, text, size=9.5, color=_GREY).get_window_extent().x1 + 24
    _write(
        figure,
        _RIGHT,
        y,
        "seconds since the start; one scale for all scenes",
        size=9.5,
        color=_FAINT,
        ha="right",
    )


def _zoom(figure: Figure, block: _Block, left: float, top: float) -> None:
    """The scene's zoomed span to the right of its lanes, where there is room."""
    scene, picture = block.scene, block.picture
    zoom = next((one for one in picture.zooms if scene.start <= one.start < scene.end), None)
    width = min(_RIGHT - left, 1000)
    if zoom is None or width < 380:
        return
    axes = _axes(figure, left, top, width, _ZOOM)
    axes.set_xlim(zoom.start, zoom.end)
    axes.set_xticks(np.arange(np.ceil(zoom.start * 10), np.floor(zoom.end * 10) + 1) / 10)
    _write(
        figure,
        left + width / 2,
        top + _ZOOM + 34,
        zoom.title,
        size=10.5,
        ha="center",
        style="italic",
        color=_GREY,
    )
    for y, sound, colour in ((84, picture.user, _USER), (140, picture.speaker, _SPEAKER)):
        _wave(axes, y, sound, picture.rate, zoom.start, zoom.end, colour, per_second=500)
    for row, mark in enumerate(zoom.marks):
        colour = COLOURS.get(mark.kind, _INK)
        y = 10 + 14 * (row % 3)
        axes.plot([mark.at, mark.at], [y, _ZOOM], color=colour, linewidth=1.2, zorder=6)
        right = mark.at > zoom.start + 0.6 * (zoom.end - zoom.start)
        _label(axes, mark, y, colour, right)


def _label(axes: Axes, mark: Mark, y: float, colour: str, left: bool) -> None:
    """A mark's words, to the left or to the right of its line."""
    axes.annotate(
        mark.text,
        (mark.at, y),
        xytext=(-4 if left else 4, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        size=9,
        weight="bold",
        color=colour,
        parse_math=False,
        annotation_clip=False,
        zorder=8,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
    )


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

    def draw(self, axes: Axes, span: float) -> None:
        """Lanes, marks and the time axis; `span` seconds fill the width."""
        start, end = self.scene.start, self.scene.end
        axes.set_xlim(start, start + span)
        axes.spines["bottom"].set_bounds(start, end)
        axes.set_xticks(np.arange(np.ceil(start), np.floor(end) + 1))
        y = self._voice(axes, 20, "user", _USER)
        y = self._voice(axes, y, "speaker", _SPEAKER)
        for name, bands in self.lanes:
            y = self._lane(axes, y, name, bands)
        self._name(axes, y + 15 * max(1, len(self.calls)), "tool calls")
        for row, calls in enumerate(self.calls):
            for call in calls:
                self._call(axes, call, y + 30 * row)
        y += 30 * max(1, len(self.calls))
        for name, bands in self.after:
            y = self._lane(axes, y, name, bands)
        marks = [mark for mark in self.picture.marks if start <= mark.at <= end]
        for mark, following in zip(marks, [*marks, None][1:], strict=True):
            colour = COLOURS.get(mark.kind, _INK)
            axes.plot(
                [mark.at, mark.at],
                [6, self.height],
                color=colour,
                linewidth=1.2,
                linestyle=(0, (4, 2)),
                zorder=6,
            )
            _label(axes, mark, 8, colour, following is not None and following.at - mark.at < 2)

    def _name(self, axes: Axes, y: float, name: str) -> None:
        axes.annotate(
            name,
            (self.scene.start, y),
            xytext=(-8, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            size=10,
            color=_INK,
            annotation_clip=False,
        )

    def _voice(self, axes: Axes, y: float, name: str, colour: str) -> float:
        """A waveform with the words above it."""
        mine = name == "user"
        sound, words = (
            (self.picture.user, self.picture.said) if mine else (self.picture.speaker, self.picture.spoken)
        )
        self._name(axes, y + 52, name)
        _wave(axes, y + 52, sound, self.picture.rate, self.scene.start, self.scene.end, colour)
        shown = [band for band in words if self.scene.start <= band.start < self.scene.end]
        for band, after in zip(shown, [*shown, None][1:], strict=True):
            start = max(band.start, self.scene.start)
            room = min(axes.get_xlim()[1], self.scene.end + 1) if after is None else after.start
            _fit(axes, (start, room), y + 14, band.text, colour, lines=2, size=9.5, style="italic")
        return y + _VOICE

    def _lane(self, axes: Axes, y: float, name: str, bands: Iterable[Band]) -> float:
        self._name(axes, y + 12, name)
        for band in bands:
            if self._sees(band.start, band.end):
                self._box(axes, band.start, band.end, (y + 2, 20), band.kind)
                between = (max(band.start, self.scene.start), min(band.end, self.scene.end))
                ink = "white" if band.kind == "press" else _INK
                _fit(axes, between, y + 12, band.text, ink, size=8.5, ha="center")
        return y + 24

    def _call(self, axes: Axes, call: CallBar, y: float) -> None:
        ended = max(call.ended, call.queued + 0.12)  # a call that is done at once stays visible
        self._box(axes, call.queued, ended, (y + 3, 24), "queued")
        if call.started is not None:
            self._box(axes, call.started, ended, (y + 3, 24), "running")
        for start, end in call.confirming:
            self._box(axes, start, end, (y + 3, 24), "confirm")
        kind = call.outcome if call.outcome in COLOURS else "failed"
        self._box(axes, ended - 0.04, ended + 0.04, (y + 3, 24), kind)
        done = "done" if call.outcome == "ok" else call.outcome
        if not _fit(axes, (call.queued, ended), y + 15, call.text, _INK, size=9, ha="center"):
            done = f"{call.text}  {done}"
        after = (ended + 0.09, axes.get_xlim()[1])
        _fit(axes, after, y + 15, done, COLOURS[kind], size=9, weight="bold")

    def _box(self, axes: Axes, start: float, end: float, rows: tuple[float, float], kind: str) -> None:
        start, end = max(start, self.scene.start), min(end, self.scene.end)
        colour = COLOURS.get(kind, _OTHER)
        axes.broken_barh(
            [(start, end - start)], rows, facecolor=colour, edgecolor="white", linewidth=0.8, zorder=4
        )


def _fit(
    axes: Axes, between: tuple[float, float], y: float, text: str, ink: str, *, lines: int = 1, **style: Any
) -> bool:
    """Text between two times, from the first one or (`ha="center"`) in the middle.

    What is too long is broken into `lines` and then shortened; centred text, or what would lose most of itself,
    is left out and False returned.
    """
    edges = axes.transData.transform([(between[0], 0), (between[1], 0)])
    room = edges[1][0] - edges[0][0] - 6
    centred = style.get("ha") == "center"
    x = sum(between) / 2 if centred else between[0]
    label = axes.text(x, y, text, color=ink, va="center", zorder=7, parse_math=False, **style)
    width = label.get_window_extent().width
    if width <= room:
        return True
    per_line = int(len(text) * room / width * 0.95)
    if per_line < (len(text) if centred else 6):
        label.remove()
        return False
    wrapped = textwrap.wrap(text, per_line, max_lines=lines, placeholder="…")
    label.set_text("\n".join(wrapped))
    label.set_linespacing(1.0)
    return True


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
